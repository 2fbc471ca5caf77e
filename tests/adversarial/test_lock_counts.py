"""How many locks a transaction with many facts takes, one by one and in batches."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.concurrent_calls import PATIENCE, Call, advisory, batch
from tests.support.memories import check, ingest
from tests.support.queries import DB, Connect

FACTS = (
    "select count(*) from generate_series(1, %s) as n, format('%s %%s', n) as fact,"
    " ingest_memory(fact, 'acme', subject => fact)"
)


def facts(connection: DB, number: int, name: str = "note") -> None:
    """This many new facts in one statement, each in a separate scope."""
    connection.execute((FACTS % (number, name)).encode())


def test_many_facts_in_one_transaction(db: DB, connect: Connect) -> None:
    """From the 65th scope on, the bucket's key stands for all of its scopes."""
    writer = connect()
    writer.execute("begin")
    facts(writer, 64)
    assert advisory(db, writer) == 65
    # more than _max_scope_locks()
    facts(writer, 2100, "further note")
    assert advisory(db, writer) == 66
    waiting = Call(db, connect(), lambda c: ingest(c, "another one")).waits_for(writer)
    writer.execute("commit")
    waiting.end()
    # it ends with the transaction
    writer.execute("begin")
    facts(writer, 3, "last")
    assert advisory(db, writer) == 4
    writer.execute("commit")
    check(db)


@pytest.mark.parametrize("about", ["other things", "the same things"])
def test_two_transactions_of_many_facts(db: DB, connect: Connect, about: str) -> None:
    """Neither waits for the other to leave the bucket; the error for too many locks says how to avoid them."""
    refused: list[psycopg.Error] = []
    lock_bucket = about == "the same things"
    limit = db.execute("select memfold_internal._max_scope_locks()").fetchone()
    assert limit is not None
    holders = [connect(), connect()]
    for number, holder in enumerate(holders):
        holder.execute("begin")
        # as many as two may hold fit into the server's table
        holder.execute(
            "select count(pg_advisory_xact_lock(%s, n)) from generate_series(1, %s) as n", [number, limit[0]]
        )
        assert advisory(db, holder) == limit[0]
    for holder in holders:
        holder.execute("rollback")
    # of fewer facts, because one of two transactions that both reach the limit is rolled back, again and again
    db.execute(
        "create or replace function memfold_internal._max_scope_locks() returns bigint"
        " language sql immutable as 'select 200::bigint'"
    )
    many = 250

    def write(connection: DB, name: str) -> None:
        for _ in range(100):
            connection.execute("begin")
            try:
                if lock_bucket:
                    connection.execute("set local memfold.lock_bucket = on")
                for n in range(25):
                    ingest(connection, f"{name} begins", subject=f"{name} {n}")
                facts(connection, many, name if about == "other things" else "fact")
                connection.execute("commit")
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
                connection.execute("rollback")
                refused.append(error)
            else:
                return
        raise psycopg.errors.SerializationFailure("a hundred times in a row")

    writers = [Call(db, connect(), lambda c, name=name: write(c, name)) for name in ("one", "two")]  # type: ignore[misc]
    for writer in writers:
        writer.join(4 * PATIENCE)
        assert not writer.is_alive()
        assert writer.error is None
    number = 2 * 25 + (many if lock_bucket else 2 * many)
    assert db.execute("select count(*) from memories").fetchone() == (number,)
    assert [e.sqlstate for e in refused if e.sqlstate != "40001"] == []
    for error in refused:
        assert "set local memfold.lock_bucket = on" in str(error.diag.message_hint)
    check(db)


def test_a_transaction_that_cannot_lock_the_bucket(db: DB, connect: Connect) -> None:
    db.execute(
        "create or replace function memfold_internal._max_scope_locks() returns bigint"
        " language sql immutable as 'select 100::bigint'"
    )
    other, writer = connect(), connect()
    other.execute("begin")
    ingest(other, "somebody else writes")
    writer.execute("begin")
    facts(writer, 98)
    assert advisory(db, writer) == 99
    with pytest.raises(psycopg.errors.SerializationFailure) as error:
        facts(writer, 3, "too many")
    assert "ingest_memories" in str(error.value.diag.message_hint)
    writer.execute("rollback")
    # after the other one ends, the bucket is free
    writer.execute("begin")
    facts(writer, 98)
    other.execute("commit")
    facts(writer, 20, "more")
    assert advisory(db, writer) == 100
    writer.execute("commit")
    check(db)


def test_a_scope_counts_once(db: DB, connect: Connect) -> None:
    writer = connect()
    writer.execute("begin")
    for n in range(100):
        ingest(writer, f"User likes {n}", subject="user")
    assert advisory(db, writer) == 2
    facts(writer, 63)
    assert advisory(db, writer) == 65
    writer.execute("rollback")


def test_rolling_back_a_savepoint_releases_its_locks(db: DB, connect: Connect) -> None:
    writer = connect()
    writer.execute("begin; savepoint s")
    facts(writer, 70)
    writer.execute("rollback to s")
    assert advisory(db, writer) == 0
    facts(writer, 10)
    assert advisory(db, writer) == 11
    writer.execute("commit")


@pytest.mark.parametrize("beside", [False, True])
def test_a_batch_counts_what_was_locked_before(db: DB, connect: Connect, beside: bool) -> None:
    other, writer = connect(), connect()
    other.execute("begin")
    if beside:
        ingest(other, "somebody else writes")
    writer.execute("begin")
    facts(writer, 60)
    new = [{"content": f"new {n}", "subject": f"new {n}"} for n in range(10)]
    assert batch(writer, *new) == [("inserted", None)] * 10
    assert advisory(db, writer) == (71 if beside else 62)
    more = [{"content": f"more {n}", "subject": f"more {n}"} for n in range(100)]
    # it does not wait for the bucket while it holds scopes of it
    assert batch(writer, *more) == [("inserted", None)] * 100
    assert advisory(db, writer) == (171 if beside else 62)
    writer.execute("commit")
    other.execute("rollback")
    check(db)


def test_a_batch_of_values_in_one_subtransaction(db: DB, connect: Connect) -> None:
    """Each value of a slot is decided by itself; with a sub-transaction each, 64 of them fill a backend's cache."""
    if db.info.server_version < 160000:
        pytest.skip("pg_stat_get_backend_subxact() needs version 16")
    db.execute("select set_predicate('status', 'acme')")
    writer = connect()
    writer.execute("begin")
    batch(
        writer,
        *(
            {"content": f"Server {n} is up", "subject": f"server {n}", "predicate": "status"}
            for n in range(200)
        ),
    )
    row = db.execute(
        "select s.subxact_count, s.subxact_overflowed from pg_stat_get_backend_idset() as b (id),"
        " pg_stat_get_backend_subxact(b.id) as s where pg_stat_get_backend_pid(b.id) = %s",
        [writer.info.backend_pid],
    ).fetchone()
    assert row is not None
    assert row[0] <= 3
    assert row[1] is False
    writer.execute("commit")
    check(db)


@pytest.mark.parametrize("on_error", ["report", "abort"])
def test_a_batch_that_meets_a_busy_row(db: DB, on_error: str) -> None:
    db.execute("select set_predicate('status', 'acme')")
    db.execute(
        "create or replace function memfold_internal._ingest_locked(c memfold_internal.candidate, p_is_new boolean)"
        " returns memfold.ingest_result language plpgsql as $$ begin raise lock_not_available; end $$"
    )
    # two: one would be a single call, which waits
    states = ({"content": f"It is {it}", "subject": "server", "predicate": "status"} for it in ("up", "down"))
    with pytest.raises(psycopg.errors.SerializationFailure) as error:
        batch(db, *states, on_error=on_error)
    assert error.value.diag.message_hint is not None
    assert db.execute("select count(*) from memories").fetchone() == (0,)
