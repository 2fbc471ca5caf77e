"""Linking with concurrent writers, and after kill -9: no statement is lost, and no text stays under an alias."""

from __future__ import annotations

import contextlib
import json
import random
import threading

import psycopg
import pytest

from tests.support import servers
from tests.support.links import NAMES, link
from tests.support.memories import check, ingest
from tests.support.queries import DB, Connect
from tests.support.rehashing import writers
from tests.support.waiting import until


def write(db: DB, chosen: random.Random) -> int:
    """Facts of one person by any of the names."""
    fact = {"content": f"fact {chosen.randrange(30)}", "subject": chosen.choice(NAMES)}
    if chosen.random() < 0.3:
        fact = {**fact, "predicate": chosen.choice(["is", "was"]), "object": str(chosen.randrange(5))}
        if chosen.random() < 0.3:
            fact["valid_until"] = f"2025-06-{chosen.randrange(1, 29):02}"
    if chosen.random() < 0.2:
        db.execute(
            "select memfold.ingest_memories(%s, 'acme', on_error => 'abort')", [json.dumps([fact, fact])]
        )
        return 2
    ingest(db, **fact)
    return 1


def test_linking_while_eight_writers_continue(db: DB, connect: Connect) -> None:
    db.execute("select set_predicate('is', 'acme')")
    facts = [{"content": f"fact {n}", "subject": name} for n in range(30) for name in NAMES]
    db.execute("select ingest_memories(%s, 'acme')", [json.dumps(facts)])
    with writers([connect() for _ in range(8)], write) as written:
        # in one call, and in small batches
        link(db, "Georg", "Georg Maier")
        link(db, "G. Maier", "Georg Maier", "*")
        db.execute("call take_up_links('acme', batch_size => 4)")
    assert written.errors == []
    # what was being written when all buckets were linked
    db.execute("call take_up_links('acme')")
    assert db.execute("select distinct subject from memories").fetchall() == [("Georg Maier",)]
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (
        written.taken + len(facts),
    )
    assert db.execute(
        "select count(*) from memories where status = 'active' and predicate is null"
    ).fetchone() == (30,)
    assert db.execute("select count(distinct slot_key) from memory_intervals").fetchone() == (1,)
    check(db)


def test_the_server_is_killed_while_links_are_applied(own_cluster: servers.Cluster) -> None:
    """kill -9 in the middle, with concurrent writers: called again it continues, and no statement is lost."""
    dsn = own_cluster.dsn() + " options='-csearch_path=public,memfold'"
    facts = [{"content": f"fact {n}", "subject": name} for n in range(100) for name in NAMES]

    def take_up() -> None:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(dsn, autocommit=True) as connection,
        ):
            connection.execute("call take_up_links('acme', batch_size => 5)")

    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as db:
        db.execute("select ingest_memories(%s, 'acme')", [json.dumps(facts)])
        link(db, "Georg", "Georg Maier", "*")
        # the run cannot be done before the kill
        held = psycopg.connect(dsn)
        held.execute(
            "select from memories where subject = 'Georg' order by memory_id desc limit 1 for update"
        )
        connections = [psycopg.connect(dsn, autocommit=True) for _ in range(4)]
        begun = "select 1 from runs where (report ->> 'texts')::int > 20"
        with writers(connections, write, take_up) as written:
            try:
                until(lambda: db.execute(begun).fetchone(), "the links are half taken up", pause=0)
                own_cluster.kill()
            except BaseException:
                held.close()
                raise
    assert all(isinstance(error, psycopg.OperationalError) for error in written.errors), written.errors
    own_cluster.restart()
    with psycopg.connect(dsn, autocommit=True) as db:
        assert db.execute("select status from runs where kind = 'link'").fetchall() == [("open",)]
        assert (db.execute("select count(*) from memories where subject = 'Georg'").fetchone() or (0,))[0] > 0
        check(db)
        db.execute("call take_up_links('acme')")
        assert db.execute("select status from runs where kind = 'link'").fetchall() == [("done",)]
        assert db.execute("select count(*) from memories where subject = 'Georg'").fetchone() == (0,)
        taken = (db.execute("select sum(observations) from memory_totals").fetchone() or (0,))[0]
        # a call that had committed when the server went may not have been acknowledged: one each at most, of two facts
        assert written.taken + len(facts) <= taken <= written.taken + len(facts) + 8
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
def test_a_writer_retries_if_its_name_was_linked_while_it_waited(
    db: DB, connect: Connect, call: str, unlinked: bool
) -> None:
    """It resolved its names before it waited for the scope, so its result is no longer valid."""
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
