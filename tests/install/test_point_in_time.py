"""Point-in-time recovery with concurrent writers, from a base backup and archived WAL, as docs/faults.md says."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import errors

from memfold.tools.admin import migrate
from tests.conftest import Target
from tests.support import servers
from tests.support.installing import rows, run

# A separate server, because its contents are the same with both installation methods.
pytestmark = pytest.mark.each_server

WRITERS = 4
CALL = (
    "select action from memfold.ingest_memory(%(content)s, 'acme', subject => %(subject)s, predicate => 'lives_in',"
    " object => %(content)s, source_turn_ids => %(turns)s, idempotency_key => %(key)s)"
)
KEYS = "select idempotency_key from memfold.idempotency_keys where tenant_id = 'acme'"


class Writer(threading.Thread):
    """States known and new facts until stopped; records when each call was sent and acknowledged."""

    def __init__(self, dsn: str, number: int, end: threading.Event) -> None:
        super().__init__()
        self.dsn, self.number, self.end = dsn, number, end
        self.calls: list[tuple[float, float, dict[str, object]]] = []

    def run(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self.end.is_set():
                count = len(self.calls)
                call: dict[str, object] = {
                    "content": f"town {count % 7}", "subject": f"person {(count + self.number) % 20}",
                    "turns": [f"turn {count}"], "key": uuid.uuid4().hex,
                }  # fmt: skip
                sent = time.time()
                while True:
                    try:
                        connection.execute(CALL, call)
                        break
                    except (errors.SerializationFailure, errors.DeadlockDetected):
                        pass
                self.calls.append((sent, time.time(), call))


def wait_until(reached: Callable[[], bool], writers: list[Writer]) -> None:
    while not reached():
        assert all(writer.is_alive() for writer in writers)
        time.sleep(0.01)


@pytest.fixture
def cluster(target: Target) -> Iterator[servers.Cluster]:
    """A server that archives its WAL."""
    cluster = servers.Cluster("own", target.cluster.bindir)
    for name in ("wal", "restored"):
        (cluster.base / name).mkdir()
        os.chown(cluster.base / name, cluster.account.uid, cluster.account.gid)
    # renamed once it is complete
    archive = f"cp %p {cluster.base}/wal/part && mv {cluster.base}/wal/part {cluster.base}/wal/%f"
    cluster.start(extension=False, archive_mode="on", archive_command=archive)
    try:
        yield cluster
    finally:
        cluster.account.run(
            [cluster.bindir / "pg_ctl", "-D", cluster.base / "restored" / "data", "-m", "immediate", "stop"]
        )
        cluster.stop()


def restore(cluster: servers.Cluster, moment: str) -> str:
    """Start a server from the backup, recovered to that moment; returns its directory."""
    base = cluster.base / "restored"
    (base / "data" / "recovery.signal").touch()
    with (base / "data" / "postgresql.auto.conf").open("a") as conf:
        conf.write(
            f"unix_socket_directories = '{base}'\narchive_mode = off\nrestore_command = 'cp {cluster.base}/wal/%f %p'\n"
            f"recovery_target_time = '{moment}'\nrecovery_target_action = promote\n"
        )
    os.chown(base / "data" / "recovery.signal", cluster.account.uid, cluster.account.gid)
    cluster.run(cluster.bindir / "pg_ctl", "-D", base / "data", "-l", base / "log", "-w", "start")
    copy = f"host={base} port=5432 user=postgres dbname=postgres"
    # it can be read from when the backup is consistent, which is before the moment
    while rows(copy, "select pg_is_in_recovery()") == [(True,)]:
        time.sleep(0.05)
    return copy


def test_a_moment_amid_writers_is_restored(cluster: servers.Cluster) -> None:
    """It has calls acknowledged before, and none sent later; calls that are sent again count once."""
    migrate.install(cluster.dsn())
    run(cluster.dsn(), "select memfold.set_predicate('lives_in', 'acme', cardinality => 'one')")
    end = threading.Event()
    writers = [Writer(cluster.dsn(), number, end) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        cluster.run(
            cluster.bindir / "pg_basebackup", "-h", cluster.base, "-p", "5432", "-U", "postgres",
            "-D", cluster.base / "restored" / "data", "-X", "none", "-c", "fast", "--no-sync",
        )  # fmt: skip
        backed_up = [len(writer.calls) for writer in writers]
        # so many calls of each after the backup, and after the moment
        wait_until(
            lambda: all(
                len(writer.calls) > count + 20 for writer, count in zip(writers, backed_up, strict=True)
            ),
            writers,
        )
        moment = time.time()
        ((named,),) = rows(cluster.dsn(), f"select to_timestamp({moment!r}::float8)::text")
        wait_until(lambda: all(writer.calls[-20][0] > moment for writer in writers), writers)
    finally:
        end.set()
        for writer in writers:
            writer.join()
    ((wal,),) = rows(cluster.dsn(), "select pg_walfile_name(pg_switch_wal())")
    while not (cluster.base / "wal" / str(wal)).exists():
        time.sleep(0.05)

    copy = restore(cluster, str(named))
    calls = [call for writer in writers for call in writer.calls]
    there = {key for (key,) in rows(copy, KEYS)}
    before = {call["key"] for _, acknowledged, call in calls if acknowledged < moment}
    after = {call["key"] for sent, _, call in calls if sent > moment}
    assert before
    assert (before - there, after & there) == (set(), set())
    assert len(after) >= 20 * WRITERS
    assert rows(copy, "select * from memfold.check_invariants('acme')") == []
    with psycopg.connect(copy, autocommit=True) as connection:
        # missing calls, and some stored ones
        for _, _, call in [*calls[:20], *(call for call in calls if call[2]["key"] not in there)]:
            connection.execute(CALL, call)
    assert len(rows(copy, KEYS)) == len(calls)
    observed = "select count(*) from memfold.memory_events where tenant_id = 'acme' and observation"
    assert rows(copy, observed) == [(len(calls),)]
    assert rows(copy, "select * from memfold.check_invariants('acme')") == []
