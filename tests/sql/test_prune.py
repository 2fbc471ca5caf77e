"""prune_memories: unused memories are withdrawn, and come back when they are stated again."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.maintenance import angle, held, policy, set_options, store
from tests.support.memories import check, ingest, model
from tests.support.queries import DB, rows


def prune(db: DB, **options: Any) -> list[dict[str, Any]]:
    names = "".join(f", {name} => %s" for name in options)
    return rows(db, f"select * from prune_memories('acme', 'default'{names})", *options.values())


def status(db: DB) -> dict[str, str]:
    return {r["content"]: r["status"] for r in rows(db, "select content, status from memories")}


def test_unused_and_harmful_memories_are_retired(db: DB) -> None:
    model(db)
    policy(db, weights=[1.0, 0.0, 0.0])
    set_options(db, protected_types=["gotcha"])
    old: dict[str, Any] = {"observed_at": "2025-01-01"}
    unsure = store(db, "old and unsure", source_confidence=0.2, source_turn_ids=["t"], **old, **angle(0))
    store(db, "old and sure", source_confidence=0.9, **old)
    store(db, "new and unsure", source_confidence=0.2)
    recalled = store(db, "recalled and unsure", source_confidence=0.2, **old)
    harmful = store(db, "harmful", source_confidence=0.9)
    store(db, "protected", source_confidence=0.1, memory_type="gotcha", **old)
    db.execute("update memory_counters set last_accessed = now() where memory_id = %s", [recalled])
    db.execute(
        "update memory_counters set helpful_count = 1, harmful_count = 3 where memory_id = %s", [harmful]
    )
    assert [p["memory_id"] for p in prune(db)] == [unsure]
    db.execute("update memory_counters set harmful_count = 4 where memory_id = %s", [harmful])
    before = held(db, "default")
    plan = prune(db)
    assert [(p["memory_id"], p["run_id"], p["confidence"]) for p in plan] == [
        (unsure, None, 0.2),
        (harmful, None, 0.9),
    ]
    assert plan[0]["reason"] == "confidence 0.200, unused since 2025-01-01"
    assert plan[1]["reason"] == "harmful: 4 reports, helpful: 1"
    assert set(status(db).values()) == {"active"}

    done = prune(db, dry_run=False)
    assert [{**p, "run_id": None} for p in done] == plan
    assert {c for c, s in status(db).items() if s == "withdrawn"} == {"old and unsure", "harmful"}
    assert prune(db, dry_run=False) == []
    check(db)
    # stated again, it is active again
    assert ingest(db, "Old and unsure").memory_id == unsure
    assert status(db)["old and unsure"] == "active"
    check(db)
    again = rows(
        db, "select event_id from memory_events where memory_id = %s and observed_at > '2025-06-01'", unsure
    )
    db.execute("select undo(%s, tenant_id => 'acme')", [again[0]["event_id"]])
    assert status(db)["old and unsure"] == "withdrawn"
    undone = rows(db, "select * from undo_run(%s, tenant_id => 'acme')", done[0]["run_id"])
    assert {(u["memory_id"], u["status"]) for u in undone} == {(unsure, "active"), (harmful, "active")}
    assert held(db, "default") == before
    check(db)


def test_one_pruning_is_undone(db: DB) -> None:
    store(db, "unsure", source_confidence=0.1, extractor_confidence=0, observed_at="2025-01-01")
    assert len(prune(db, dry_run=False, max_operations=1)) == 1
    db.execute("select undo(event_id, tenant_id => 'acme') from memory_events where action = 'pruned'")
    assert status(db) == {"unsure": "active"}
    check(db)


def test_decay_makes_it_unsure(db: DB) -> None:
    policy(db, weights=[1.0, 0.0, 0.0])
    set_options(db, decay_rate=0.01)
    store(db, "old", source_confidence=0.9, observed_at="2025-01-01")
    [found] = prune(db)
    assert found["confidence"] == pytest.approx(0.05)


def test_arguments(db: DB) -> None:
    for options in (
        {"max_confidence": 2},
        {"unused_for": "-1 day"},
        {"max_operations": 1001},
        {"dry_run": None},
    ):
        with pytest.raises(psycopg.Error) as error:
            prune(db, **options)
        assert error.value.sqlstate == "MF022", options


def test_the_value_of_a_slot_stays(db: DB) -> None:
    """The last stated value stays current: lack of use does not change it."""
    db.execute("select set_predicate('lives_in', 'acme')")
    slot: dict[str, Any] = {"subject": "Ann", "predicate": "lives_in", "source_confidence": 0.0}
    ingest(db, "Ann lives in Rome", object="Rome", observed_at="2024-01-01", **slot)
    ingest(db, "Ann lives in Oslo", object="Oslo", observed_at="2025-01-01", **slot)
    assert prune(db, max_confidence=1.0, dry_run=False) == []
    assert status(db) == {"Ann lives in Rome": "superseded", "Ann lives in Oslo": "active"}
    check(db)


def test_undoing_a_merge_that_revived_a_pruned_memory(db: DB) -> None:
    """Whether it was stated since depends on the tree after the undo, not before."""
    model(db)
    old = {"observed_at": "2025-01-01", "source_confidence": 0.1}
    root = ingest(db, "the build is slow at night", **old, **angle(0))
    fold = ingest(db, "at night the build is slow", **old, **angle(1))
    assert (fold.action, fold.memory_id) == ("merged", root.memory_id)
    assert len(prune(db, max_confidence=1.0, dry_run=False)) == 1
    assert set(status(db).values()) == {"withdrawn", "merged"}
    # by the other text
    ingest(db, "At night the build is slow!")
    assert set(status(db).values()) == {"active", "merged"}
    check(db)
    db.execute("select undo(%s, tenant_id => 'acme')", [fold.event_id])
    assert status(db) == {"the build is slow at night": "withdrawn", "at night the build is slow": "active"}
    check(db)
