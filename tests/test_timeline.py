"""Single-valued predicates: supersession, late arrivals, A-B-A, conflict policies."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support import Result, check, ingest, model, vector

DB = psycopg.Connection[Any]


@pytest.fixture
def slot(db: DB) -> DB:
    db.execute("select set_predicate('acme', 'works_at')")
    return db


def says(db: DB, place: str, at: str, **more: Any) -> Result:
    arguments = {"subject": "Ann", "predicate": "works_at", "object": place, "observed_at": f"2026-{at}"}
    return ingest(db, f"Ann works at {place}", **{**arguments, **more})


def timeline(db: DB) -> list[tuple[str, str, str | None]]:
    return db.execute(
        "select object, to_char(valid_from, 'MM-DD'), to_char(valid_to, 'MM-DD')"
        " from memory_intervals join memories using (tenant_id, memory_id) order by valid_from, from_event"
    ).fetchall()


def current(db: DB) -> list[str]:
    return [row[0] for row in db.execute("select object from memories where status = 'active'").fetchall()]


@pytest.mark.core
def test_a_b_a(slot: DB) -> None:
    a = says(slot, "VW", "01-01")
    b = says(slot, "Stripe", "03-01")
    assert (b.action, b.tier, b.method, b.superseded_id) == ("superseded", 2, "object", a.memory_id)
    again = says(slot, "VW", "06-01")
    assert (again.action, again.tier, again.method) == ("superseded", 1, "timeline")
    assert (again.memory_id, again.superseded_id) == (a.memory_id, b.memory_id)
    assert timeline(slot) == [("VW", "01-01", "03-01"), ("Stripe", "03-01", "06-01"), ("VW", "06-01", None)]
    assert current(slot) == ["VW"]
    check(slot)


@pytest.mark.core
def test_late_arrivals(slot: DB) -> None:
    says(slot, "VW", "02-01")
    says(slot, "Stripe", "04-01")
    says(slot, "Stripe", "06-01")
    before = says(slot, "BMW", "01-01")
    inside = says(slot, "Audi", "05-01")
    after = says(slot, "Seat", "07-01")
    assert [r.action for r in (before, inside, after)] == ["historical", "historical", "superseded"]
    assert timeline(slot) == [
        ("BMW", "01-01", "02-01"), ("VW", "02-01", "04-01"), ("Stripe", "04-01", "05-01"),
        ("Audi", "05-01", "06-01"), ("Stripe", "06-01", "07-01"), ("Seat", "07-01", None),
    ]  # fmt: skip
    assert current(slot) == ["Seat"]
    late = says(slot, "VW", "05-15")
    assert (late.action, late.method) == ("merged", "timeline")
    assert current(slot) == ["Seat"]
    assert ("VW", "05-15", "06-01") in timeline(slot)
    check(slot)


def test_late_hit_on_the_current_value(slot: DB) -> None:
    says(slot, "VW", "02-01")
    says(slot, "Stripe", "04-01")
    late = says(slot, "Stripe", "01-01")
    assert (late.action, late.tier) == ("merged", 1)
    assert timeline(slot) == [
        ("Stripe", "01-01", "02-01"),
        ("VW", "02-01", "04-01"),
        ("Stripe", "04-01", None),
    ]
    check(slot)


def test_ties_go_by_ledger_order(slot: DB) -> None:
    for place in ("VW", "Stripe", "VW"):
        says(slot, place, "01-01")
    assert current(slot) == ["VW"]
    assert [row[0] for row in timeline(slot)] == ["VW", "Stripe", "VW"]
    check(slot)


def test_the_same_object_in_other_words_is_the_same_value(slot: DB) -> None:
    says(slot, "VW", "01-01")
    other = ingest(slot, "Ann is employed by VW", subject="Ann", predicate="works_at", object=" vw ",
                   observed_at="2026-02-01")  # fmt: skip
    assert other.action == "inserted"
    assert len(current(slot)) == 2
    says(slot, "Stripe", "03-01")
    assert current(slot) == ["Stripe"]
    check(slot)


def test_without_objects_the_text_is_the_value(slot: DB) -> None:
    model(slot)
    first = ingest(slot, "Ann works at VW", subject="Ann", predicate="works_at", **vector(1.0))
    paraphrase = ingest(slot, "Ann does her work at VW", subject="Ann", predicate="works_at", **vector(0.97))
    unclear = ingest(slot, "Ann works with VW", subject="Ann", predicate="works_at", **vector(0.9, axis=2))
    changed = ingest(
        slot, "Ann works for herself", subject="Ann", predicate="works_at", **vector(0.3, axis=3)
    )
    assert [r.action for r in (first, paraphrase, unclear, changed)] == [
        "inserted",
        "merged",
        "escalated",
        "superseded",
    ]
    assert (changed.method, changed.superseded_id) == ("predicate", first.memory_id)
    check(slot)


@pytest.mark.parametrize(
    ("conflict", "action", "active"),
    [
        ("newest_wins", "superseded", {"Stripe"}),
        ("keep_existing", "rejected", {"VW"}),
        ("keep_both", "inserted", {"VW", "Stripe"}),
        ("review", "escalated", {"VW", "Stripe"}),
    ],
)
@pytest.mark.parametrize("by", ["policy", "predicate"])
def test_conflict_policies(slot: DB, conflict: str, action: str, active: set[str], by: str) -> None:
    if by == "policy":
        slot.execute("select set_policy('acme', conflict => %s)", [conflict])
    else:
        slot.execute("select set_predicate('acme', 'works_at', conflict => %s)", [conflict])
    says(slot, "VW", "01-01")
    result = says(slot, "Stripe", "02-01")
    assert result.action == action
    assert set(current(slot)) == active
    assert says(slot, "BMW", "01-01", observed_at="2025-01-01").action == "historical"
    assert slot.execute("select kind from judgements").fetchall() == (
        [("review",)] if conflict == "review" else []
    )
    assert slot.execute("select count(*) from memory_events where content like '%Stripe'").fetchone() == (1,)
    check(slot)


def test_predicates_are_many_valued_unless_said(db: DB) -> None:
    for place in ("Berlin", "Rome"):
        result = ingest(db, f"Ann has lived in {place}", subject="Ann", predicate="lived_in", object=place)
        assert result.action == "inserted"
    assert db.execute("select count(*) from memory_intervals").fetchone() == (0,)
    db.execute("select set_predicate('acme', ' Lived_In ')")
    third = ingest(db, "Ann has lived in Oslo", subject="Ann", predicate="LIVED_IN", object="Oslo")
    assert third.action == "superseded"
    check(db)


def test_recalled_text_does_not_bring_a_value_back(slot: DB) -> None:
    says(slot, "VW", "01-01")
    says(slot, "Stripe", "02-01")
    assert says(slot, "VW", "03-01", origin="recalled").action == "merged"
    assert says(slot, "BMW", "03-01", origin="recalled").action == "rejected"
    assert current(slot) == ["Stripe"]
    check(slot)


def test_a_paraphrase_late_in_a_slot_joins_the_timeline(slot: DB) -> None:
    model(slot)
    arguments = {"subject": "Ann", "predicate": "works_at"}
    ingest(slot, "Ann works at VW", **arguments, observed_at="2026-01-01", **vector(1.0))
    ingest(slot, "Ann works for herself", **arguments, observed_at="2026-03-01", **vector(0.1, axis=2))
    late = ingest(
        slot, "Ann is working for herself", **arguments, observed_at="2025-12-01", **vector(0.12, axis=2)
    )
    assert late.action == "merged"
    starts = slot.execute("select valid_from::date::text from memory_intervals order by 1").fetchall()
    assert starts == [("2025-12-01",), ("2026-01-01",), ("2026-03-01",)]
    check(slot)
