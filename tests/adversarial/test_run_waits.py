"""Runs of maintenance and erasures wait for writers, and lock in order."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.concurrent_calls import Call, fold
from tests.support.maintenance import angle, policy, store, storing
from tests.support.memories import check, ingest, model, status
from tests.support.queries import DB, Connect


def swept(db: DB) -> UUID:
    """A run that has merged one memory."""
    model(db)
    storing(db)
    store(db, "User likes tea", **angle(0))
    store(db, "The user likes tea", **angle(5))
    policy(db, preset="three_tier")
    row = db.execute(
        "select run_id, action from sweep_duplicates('acme', 'default', dry_run => false)"
    ).fetchone()
    assert row is not None
    assert row[1] == "merge"
    run_id: UUID = row[0]
    return run_id


def test_a_sweep_waits_for_a_writer(db: DB, connect: Connect) -> None:
    model(db)
    storing(db)
    older = store(db, "User likes tea", **angle(0))
    store(db, "The user likes tea", **angle(5))
    policy(db, preset="three_tier")
    writer = connect()
    writer.execute("begin")
    ingest(writer, "Something new", subject="something else")
    sweep = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select action, representative_id from sweep_duplicates('acme', 'default', dry_run => false)"
        ).fetchall(),
    ).waits_for(writer)
    writer.execute("commit")
    assert sweep.end() == [("merge", older)]
    check(db)


def test_undoing_a_run_waits_for_a_writer(db: DB, connect: Connect) -> None:
    run_id = swept(db)
    writer = connect()
    writer.execute("begin")
    ingest(writer, "Something new", subject="something else")
    undo = Call(
        db,
        connect(),
        lambda c: c.execute("select status from undo_run(%s, tenant_id => 'acme')", [run_id]).fetchall(),
    ).waits_for(writer)
    writer.execute("commit")
    assert undo.end() == [("active",), ("active",)]
    check(db)


def test_a_run_is_undone_once(db: DB, connect: Connect) -> None:
    run_id = swept(db)
    first = connect()
    first.execute("begin")
    undo = "select status from undo_run(%s, tenant_id => 'acme')"
    assert first.execute(undo.encode(), [run_id]).fetchall() == [("active",), ("active",)]
    second = Call(db, connect(), lambda c: c.execute(undo.encode(), [run_id])).waits_for(first)
    first.execute("commit")
    with pytest.raises(psycopg.Error) as error:
        second.end()
    assert error.value.sqlstate == "MF039"
    assert db.execute("select count(*) from memory_events where action = 'undone'").fetchone() == (1,)
    check(db)


@pytest.mark.parametrize("writes", ["another fact", "this fact again"])
def test_pruning_waits_for_a_writer(db: DB, connect: Connect, writes: str) -> None:
    """A restatement locks only its memory's row: pruning waits for it, and checks again."""
    old: dict[str, Any] = {"source_confidence": 0.1, "extractor_confidence": 0.1, "observed_at": "2025-01-01"}
    useless = ingest(db, "User may like jazz", **old)
    writer = connect()
    writer.execute("begin")
    if writes == "another fact":
        ingest(writer, "Something new", subject="something else")
    else:
        assert ingest(writer, "User may like jazz").action == "merged"
    prune = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select memory_id from prune_memories('acme', 'default', dry_run => false)"
        ).fetchall(),
    ).waits_for(writer)
    writer.execute("commit")
    if writes == "another fact":
        assert prune.end() == [(useless.memory_id,)]
        assert status(db, useless) == "withdrawn"
    else:
        assert prune.end() == []
        assert status(db, useless) == "active"
    check(db)


@pytest.mark.parametrize("how", ["erase_memory(%(id)s, tenant_id => 'acme')", "erase_source('turn', 'acme')"])
def test_erasure_locks_derived_memories_in_order(db: DB, connect: Connect, how: str) -> None:
    """A memory that was merged with it once is derived too: its row is taken in the order of ids, as a batch takes it."""
    first = ingest(db, "User likes tea").memory_id
    second = ingest(db, "User likes milk", source_turn_ids=["turn"]).memory_id
    assert str(first) < str(second)
    fold(db, second, first)
    db.execute(
        "select undo(event_id, tenant_id => 'acme') from memory_events where tier = 3 and action = 'merged'"
    )
    row = "select from memory_counters where tenant_id = 'acme' and memory_id = %s for no key update"
    holder = connect()
    holder.execute("set search_path = memfold, public")
    holder.execute("begin")
    holder.execute(row.encode(), [first])
    erasing = Call(
        db, connect(), lambda c: c.execute(f"select memfold.{how}".encode(), {"id": second})
    ).waits_for(holder)
    holder.execute(f"{row} nowait".encode(), [second])
    holder.execute("commit")
    erasing.end()
    assert status(db, first) == "active"
    assert db.execute("select count(*) from memories").fetchone() == (1,)
    check(db)
