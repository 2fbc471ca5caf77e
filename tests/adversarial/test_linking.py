"""Linking with concurrent writers, and after kill -9: no statement is lost, and no text stays under an alias."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import psycopg
import pytest

from tests import servers
from tests.sql.test_links import NAMES, link
from tests.support import check, ingest, until

DB = psycopg.Connection[Any]
Connect = Callable[..., DB]


def writer(
    connection: DB, seed: int, stop: threading.Event, done: list[int], errors: list[BaseException]
) -> None:
    """Facts of one person by any of the names, until told to stop; calls that are told to come again do."""
    chosen = random.Random(seed)
    accepted = 0
    try:
        while not stop.is_set():
            fact = {"content": f"fact {chosen.randrange(30)}", "subject": chosen.choice(NAMES)}
            if chosen.random() < 0.3:
                fact = {**fact, "predicate": chosen.choice(["is", "was"]), "object": str(chosen.randrange(5))}
            with contextlib.suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                if chosen.random() < 0.2:
                    connection.execute(
                        "select memfold.ingest_memories(%s, 'acme', on_error => 'abort')",
                        [json.dumps([fact, fact])],
                    )
                    accepted += 2
                else:
                    ingest(connection, **fact)
                    accepted += 1
    except BaseException as error:
        errors.append(error)
    done.append(accepted)


def test_linking_beside_eight_writers(db: DB, connect: Connect) -> None:
    db.execute("select set_predicate('is', 'acme')")
    facts = [{"content": f"fact {n}", "subject": name} for n in range(30) for name in NAMES]
    db.execute("select ingest_memories(%s, 'acme')", [json.dumps(facts)])
    stop = threading.Event()
    done: list[int] = []
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=writer, args=(connect(), seed, stop, done, errors)) for seed in range(8)
    ]
    for thread in threads:
        thread.start()
    try:
        # in one call, and in small batches
        link(db, "Georg", "Georg Maier")
        link(db, "G. Maier", "Georg Maier", "*")
        db.execute("call take_up_links('acme', batch_size => 4)")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    # what was being written when all buckets were linked
    db.execute("call take_up_links('acme')")
    assert db.execute("select distinct subject from memories").fetchall() == [("Georg Maier",)]
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (sum(done) + len(facts),)
    assert db.execute(
        "select count(*) from memories where status = 'active' and predicate is null"
    ).fetchone() == (30,)
    assert db.execute("select count(distinct scope_key) from memory_intervals").fetchone() == (1,)
    check(db)


@pytest.mark.slow
def test_server_killed_while_links_are_taken_up(own_cluster: servers.Cluster) -> None:
    """kill -9 half-way, beside writers: called again it goes on, and nothing that was told is lost."""
    dsn = own_cluster.dsn() + " options='-csearch_path=public,memfold'"
    facts = [{"content": f"fact {n}", "subject": name} for n in range(100) for name in NAMES]

    def take_up() -> None:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(dsn, autocommit=True) as connection,
        ):
            connection.execute("call take_up_links('acme', batch_size => 5)")

    stop = threading.Event()
    done: list[int] = []
    errors: list[BaseException] = []
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as db:
        db.execute("select ingest_memories(%s, 'acme')", [json.dumps(facts)])
        link(db, "Georg", "Georg Maier", "*")
        # the run cannot be done before the kill
        held = psycopg.connect(dsn)
        held.execute(
            "select from memories where subject = 'Georg' order by memory_id desc limit 1 for update"
        )
        threads = [
            threading.Thread(
                target=writer, args=(psycopg.connect(dsn, autocommit=True), seed, stop, done, errors)
            )
            for seed in range(4)
        ]
        threads.append(threading.Thread(target=take_up))
        for thread in threads:
            thread.start()
        begun = "select 1 from runs where (report ->> 'texts')::int > 20"
        try:
            until(lambda: db.execute(begun).fetchone(), "the links are half taken up", pause=0)
        except BaseException:
            stop.set()
            held.close()
            raise
        # all of it: without a postmaster the session that holds the row would go, and the run could end
        postmaster = psutil.Process(
            int((own_cluster.base / "data" / "postmaster.pid").read_text().split()[0])
        )
        postmaster.suspend()
        for process in (*postmaster.children(), postmaster):
            process.kill()
    for thread in threads:
        thread.join()
    assert all(isinstance(error, psycopg.OperationalError) for error in errors), errors
    for _ in range(100):
        try:
            own_cluster.run(own_cluster.bindir / "pg_ctl", "-D", own_cluster.base / "data", "-l",
                            own_cluster.base / "log", "-w", "start")  # fmt: skip
            break
        except RuntimeError:
            # what is left of the old one is still going
            time.sleep(0.1)
    with psycopg.connect(dsn, autocommit=True) as db:
        assert db.execute("select status from runs where kind = 'link'").fetchall() == [("open",)]
        assert (db.execute("select count(*) from memories where subject = 'Georg'").fetchone() or (0,))[0] > 0
        check(db)
        db.execute("call take_up_links('acme')")
        assert db.execute("select status from runs where kind = 'link'").fetchall() == [("done",)]
        assert db.execute("select count(*) from memories where subject = 'Georg'").fetchone() == (0,)
        taken = (db.execute("select sum(observations) from memory_totals").fetchone() or (0,))[0]
        # a call that had committed when the server went may not have been acknowledged: one each at most, of two facts
        assert sum(done) + len(facts) <= taken <= sum(done) + len(facts) + 8
        check(db)


BATCH = 'select ingest_memories(\'[{"content": "likes tea", "subject": "Georg"}]\', \'acme\')'


@pytest.mark.parametrize(
    "call",
    [
        "select ingest_memory('likes tea', 'acme', subject => 'Georg')",
        "select ingest_memory('likes tea', 'acme', subject => 'Georg', origin => 'inferred')",
        BATCH,
    ],
    ids=["fast path", "slow path", "batch"],
)
@pytest.mark.parametrize("unlinked", [False, True])
def test_writer_that_waited_while_its_name_was_linked_comes_again(
    db: DB, connect: Connect, call: str, unlinked: bool
) -> None:
    """It resolved its names before, and had to wait for the scope: what it knew of them no longer holds."""
    holder, waiting = connect(), connect()
    if unlinked:
        link(db, "Georg", "Georg Maier")
    holder.execute("begin")
    if unlinked:
        holder.execute("select unlink_subject('Georg', 'acme')")
    else:
        link(holder, "Georg", "Georg Maier")
    codes: list[str | None] = []

    def write() -> None:
        try:
            waiting.execute(call.encode())
            codes.append("done")
        except psycopg.Error as error:
            codes.append(error.sqlstate)

    thread = threading.Thread(target=write)
    thread.start()
    waits = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    until(lambda: db.execute(waits, [waiting.info.backend_pid]).fetchone() or codes, "the writer waits")
    holder.execute("commit")
    thread.join()
    assert codes == ["40001"]
    waiting.execute(call.encode())
    assert db.execute("select subject from memories").fetchall() == [
        ("Georg" if unlinked else "Georg Maier",)
    ]
    check(db)
