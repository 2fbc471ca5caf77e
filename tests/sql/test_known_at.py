"""known_at: the memories that were current at one time, as known at another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tests.support.memories import check, ingest
from tests.support.queries import DB, rows


def day(number: int) -> datetime:
    return datetime(2025, 1, number, tzinfo=UTC)


def now(db: DB) -> datetime:
    row = db.execute("select clock_timestamp()").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def believed(db: DB, known_at: datetime | None, as_of: datetime | None = None) -> list[str]:
    found = rows(db, "select * from current_memories('acme', as_of => %s, known_at => %s)", as_of, known_at)
    return sorted(r["content"] for r in found)


def everything(db: DB) -> list[Any]:
    """The state that a reading call must not change."""
    return [
        rows(db, f"select to_jsonb(t) from {table} as t order by to_jsonb(t)::text")
        for table in (
            "memories",
            "memory_counters",
            "memory_events",
            "memory_intervals",
            "policies",
            "memory_sources",
        )
    ]


def test_each_time_has_what_was_known_then(db: DB) -> None:
    db.execute("select set_predicate('lives_in', 'acme')")
    slot: dict[str, Any] = {"subject": "Ann", "predicate": "lives_in"}
    before = now(db)
    one = ingest(db, "Ann lives in Rome", object="Rome", observed_at=day(1), **slot)
    tea = ingest(db, "Ann likes tea", observed_at=day(1))
    first = now(db)
    ingest(db, "Ann lives in Oslo", object="Oslo", observed_at=day(5), **slot)
    ingest(db, "Ann likes tea", observed_at=day(6), valid_until=day(7))
    second = now(db)
    # a late arrival: the state of day 3 becomes known later
    ingest(db, "Ann lives in Bonn", object="Bonn", observed_at=day(3), **slot)
    rejected = db.execute(
        "select (reject_memory(%s, tenant_id => 'acme')).event_id", [tea.memory_id]
    ).fetchone()
    third = now(db)
    assert rejected is not None
    db.execute("select undo(%s, tenant_id => 'acme')", [rejected[0]])
    ingest(db, "Ann likes tea", observed_at=day(8))
    held = everything(db)

    assert believed(db, before) == []
    assert believed(db, first) == ["Ann likes tea", "Ann lives in Rome"]
    assert believed(db, second) == ["Ann lives in Oslo"]
    assert believed(db, third) == ["Ann lives in Oslo"]
    assert believed(db, now(db)) == believed(db, None) == ["Ann likes tea", "Ann lives in Oslo"]
    assert [believed(db, t, day(4)) for t in (first, second, third)] == [
        ["Ann likes tea", "Ann lives in Rome"],
        ["Ann likes tea", "Ann lives in Rome"],
        ["Ann lives in Bonn"],
    ]
    (row,) = rows(
        db,
        "select * from current_memories('acme', known_at => %s) where memory_id = %s",
        first,
        one.memory_id,
    )
    assert (row["valid_from"], row["valid_to"], row["repetition_count"]) == (day(1), None, 0)
    assert everything(db) == held
    assert rows(db, "select * from memories where tenant_id <> 'acme'") == []
    check(db)


def test_merges_are_those_of_then_and_confidence_is_by_the_buckets_weights(db: DB) -> None:
    db.execute("select set_policy('acme', weights => '{0.2,0.3,0.5}')")
    one = ingest(db, "Ann likes tea", source_turn_ids=["a"], source_confidence=0.9)
    other = ingest(db, "Tea is what Ann likes", source_turn_ids=["b"])
    before = now(db)
    merged = db.execute(
        "select (merge_memories(%s, %s, tenant_id => 'acme')).event_id", [other.memory_id, one.memory_id]
    ).fetchone()
    assert merged is not None
    then = rows(db, "select * from current_memories('acme')")
    after = now(db)
    db.execute("select undo(%s, tenant_id => 'acme')", [merged[0]])
    assert believed(db, before) == ["Ann likes tea", "Tea is what Ann likes"]
    assert rows(db, "select * from current_memories('acme', known_at => %s)", after) == then
    assert then[0]["repetition_count"] == 1
    check(db)


def test_restatements_count_at_their_own_time(db: DB) -> None:
    ingest(db, "Ann likes tea", observed_at=day(1))
    for n in range(3):
        ingest(db, "Ann likes tea", observed_at=day(2 + n))
    early = now(db)
    for n in range(3):
        ingest(db, "Ann likes tea", observed_at=day(6 + n))
    found = rows(db, "select * from current_memories('acme', known_at => %s)", early)
    assert [r["repetition_count"] for r in found] == [3]
    check(db)


def test_many_memories_are_derived_in_parts(db: DB) -> None:
    made = [ingest(db, f"Fact {n} of Ann", subject=str(n)) for n in range(410)]
    for n in (0, 1):
        named = [made[n].memory_id, made[405 + n].memory_id]
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", named)
    assert len(believed(db, None)) == 408
    assert believed(db, now(db)) == believed(db, None)


def test_erased_memories_are_not_shown(db: DB) -> None:
    ingest(db, "Ann likes tea", source_turn_ids=["t"])
    then = now(db)
    db.execute("select erase_source('t', 'acme')")
    assert believed(db, then) == []


def test_a_read_only_transaction_is_refused(db: DB) -> None:
    ingest(db, "Ann likes tea")
    then = now(db)
    db.execute("set default_transaction_read_only = on")
    with pytest.raises(psycopg.Error) as refused:
        believed(db, then)
    db.execute("reset default_transaction_read_only")
    assert refused.value.sqlstate == "MF022"
    assert believed(db, None) == ["Ann likes tea"]


@pytest.mark.parametrize("role", ["memfold_app", "memfold_auditor"])
def test_it_is_the_sessions_tenant_alone(db: DB, role: str) -> None:
    ingest(db, "Ann likes tea")
    db.execute(f"set role {role}")
    db.execute("set memfold.tenant_id = 'acme'")
    assert believed(db, now(db)) == ["Ann likes tea"]
    db.execute("set memfold.tenant_id = 'other'")
    with pytest.raises(psycopg.Error) as refused:
        believed(db, now(db))
    db.execute("reset role")
    assert refused.value.sqlstate == "MF002"
