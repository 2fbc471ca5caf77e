"""Behind pgbouncer in transaction pooling, two tenants on one server connection stay isolated."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from memfold import AsyncMemfold, Memfold, MemfoldError
from memfold.client.judging.worker import Worker
from tests.conftest import Target
from tests.support import servers
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB
from tests.support.waiting import until
from tests.support.workers import Toy, done, eventually, work

PORT = 6432
# A pooler passes the same messages on to any server.
pytestmark = [
    pytest.mark.one_server,
    # said in the last lines of the run too (LEFT OUT)
    pytest.mark.skipif(servers.pgbouncer() is None, reason="pgbouncer is not installed"),
]

CONFIG = """
[databases]
* = host={server} port={server_port}
[pgbouncer]
unix_socket_dir = {here}
listen_addr =
listen_port = {port}
auth_type = trust
auth_file = {here}/users.txt
pool_mode = transaction
default_pool_size = 1
max_client_conn = 100
logfile = {here}/log
pidfile = {here}/pid
ignore_startup_parameters = extra_float_digits
"""


@dataclass
class Pooler:
    """pgbouncer, with one connection to the server for each database and role."""

    here: Path
    database: str
    role: str
    bound: str

    def dsn(self, role: str | None = None) -> str:
        return f"host={self.here} port={PORT} dbname={self.database} user={role or self.role}"

    def connect(self, role: str | None = None) -> DB:
        return psycopg.connect(self.dsn(role), autocommit=True, prepare_threshold=None)


@pytest.fixture
def pooler(db: DB, target: Target) -> Iterator[Pooler]:
    program = servers.pgbouncer()
    assert program is not None
    cluster = target.cluster
    here = Path(tempfile.mkdtemp(prefix="pooler-", dir=cluster.base))
    os.chown(here, cluster.account.uid, cluster.account.gid)
    name = db.info.dbname
    made = Pooler(here, name, f"app_{name}", f"bound_{name}")
    for role, group in ((made.role, "memfold_app"), (made.bound, "memfold_tenant")):
        db.execute(f"drop role if exists {role}; create role {role} login in role {group}".encode())
    db.execute("insert into memfold.tenant_roles values (%s, 'acme')", [made.bound])
    (here / "users.txt").write_text(f'"{made.role}" ""\n"{made.bound}" ""\n"postgres" ""\n')
    (here / "pgbouncer.ini").write_text(
        CONFIG.format(server=cluster.base, server_port=servers.PORT, here=here, port=PORT)
    )
    cluster.run(program, "-d", here / "pgbouncer.ini")
    deadline = time.monotonic() + 30
    while not (here / f".s.PGSQL.{PORT}").exists() or not (here / "pid").exists():
        assert time.monotonic() < deadline, (here / "log").read_text()
        time.sleep(0.02)
    try:
        yield made
    finally:
        os.kill(int((here / "pid").read_text()), signal.SIGTERM)
        while (here / "pid").exists() and time.monotonic() < deadline + 30:
            time.sleep(0.02)
        db.execute("delete from memfold.tenant_roles")
        ended = "select count(*) from pg_stat_activity where usename = any(%s)"
        until(lambda: db.execute(ended, [[made.role, made.bound]]).fetchone() == (0,), ended)
        db.execute(f"drop role {made.role}; drop role {made.bound}".encode())


def together(*jobs: Callable[[], None]) -> None:
    """Run all concurrently; the first error is raised."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_many_clients_share_one_connection(db: DB, pooler: Pooler) -> None:
    """SET LOCAL in each transaction: twelve clients of two tenants, one backend, each sees its own."""
    backends: set[int] = set()

    def client(tenant: str, number: int) -> None:
        with pooler.connect() as connection:
            for turn in range(10):
                connection.execute("begin")
                if turn % 2:
                    connection.execute("select set_config('memfold.tenant_id', %s, true)", [tenant])
                else:
                    connection.execute(f"set local memfold.tenant_id = '{tenant}'".encode())
                backends.add(connection.execute("select pg_backend_pid()").fetchone()[0])  # type: ignore[index]
                ingest(
                    connection,
                    f"fact {turn} of {number}",
                    tenant_id=tenant,
                    idempotency_key=f"{turn} of {number}",
                )
                ingest(connection, "what both say", tenant_id=tenant)
                ingest(connection, f"fact {turn} of {number}", tenant_id=tenant)
                seen = connection.execute("select distinct tenant_id from memfold.memory_events").fetchall()
                connection.execute("commit")
                assert seen == [(tenant,)]
                # and between transactions there is no tenant, and nothing to see
                assert connection.execute("select count(*) from memfold.memories").fetchone() == (0,)

    together(*[lambda n=n: client(("acme", "globex")[n % 2], n) for n in range(12)])  # type: ignore[misc]
    assert len(backends) == 1
    said = db.execute(
        "select m.tenant_id, k.observations from memfold.memories as m join memfold.memory_totals as k"
        " using (tenant_id, memory_id) where m.content = 'what both say' order by 1"
    ).fetchall()
    assert said == [("acme", 60), ("globex", 60)]
    check(db)


def test_a_session_setting_goes_to_the_next_client(db: DB, pooler: Pooler) -> None:
    """docs/security.md warns of this: SET without LOCAL stays in the server's session, whichever client gets it next."""
    ingest(db, "said by acme")
    with pooler.connect() as careless, pooler.connect() as next_one:
        careless.execute("set memfold.tenant_id = 'acme'")
        assert next_one.execute("select content from memfold.memories").fetchall() == [("said by acme",)]
        # the functions compare it with their argument, so nothing is written in the wrong name
        with pytest.raises(psycopg.Error) as error:
            ingest(next_one, "said by globex", tenant_id="globex")
        assert error.value.sqlstate == "MF002"
        # a client that sets its tenant for each transaction is not affected, before or after
        with next_one.transaction():
            next_one.execute("set local memfold.tenant_id = 'globex'")
            assert next_one.execute("select content from memfold.memories").fetchall() == []
            assert ingest(next_one, "said by globex", tenant_id="globex").action == "inserted"
    # a login of one tenant has a separate pool, and its role decides
    with pooler.connect(pooler.bound) as bound:
        bound.execute("set memfold.tenant_id = 'globex'")
    with pooler.connect(pooler.bound) as bound:
        assert bound.execute("select tenant_id from memfold.memories").fetchall() == [("acme",)]


def test_the_clients(db: DB, pooler: Pooler) -> None:
    """Memfold and AsyncMemfold, of two tenants in turn, through one connection: by default they prepare nothing."""
    model(db)

    def call(tenant: str) -> None:
        with Memfold(pooler.dsn(), tenant) as client:
            first = client.ingest(f"{tenant} likes tea", idempotency_key="k")
            assert client.ingest(f"{tenant} likes TEA").memory_id == first.memory_id
            stored = client.ingest_many([f"{tenant} fact {n}" for n in range(20)])
            assert {item.result.action for item in stored if item.result} == {"inserted"}
            assert tenant in client.explain(first.memory_id)
            assert {one.tenant_id for one in client.stats(tenant)} == {tenant}

    async def call_async(tenant: str) -> None:
        async with AsyncMemfold(pooler.dsn(), tenant) as client:
            results = [await client.ingest(f"{tenant} says {n}") for n in range(10)]
            assert [one.action for one in results] == ["inserted"] * 10

    async def both() -> None:
        await asyncio.gather(call_async("acme"), call_async("globex"))

    together(lambda: call("acme"), lambda: call("globex"), lambda: asyncio.run(both()))
    counts = db.execute("select tenant_id, count(*) from memfold.memories group by 1 order by 1").fetchall()
    assert counts == [("acme", 31), ("globex", 31)]
    with Memfold(pooler.dsn(pooler.bound), "globex") as client, pytest.raises(MemfoldError) as error:
        client.ingest("in the wrong name")
    assert error.value.sqlstate == "MF002"
    check(db)


def test_the_worker_polls(db: DB, pooler: Pooler) -> None:
    """LISTEN does not outlive a transaction there; polling finds open judgements."""
    model(db)
    db.execute("select memfold.set_policy('acme', notify => true)")
    ingest(db, "User prefers dark mode", **vector(1.0))
    toy = Toy()

    async def one_more() -> None:
        await asyncio.to_thread(ingest, db, "User likes it dark", **vector(0.9))
        await eventually(lambda: done(db) == 1)

    assert work(Worker(pooler.dsn(), toy, tenant_id="acme", poll=0.2), one_more()).judged == 1
    assert len(toy.asked) == 1
