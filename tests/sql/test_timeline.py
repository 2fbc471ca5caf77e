"""Single-valued predicates: supersession, late arrivals, A-B-A, conflict policies."""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg
import pytest

from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, Connect


@pytest.fixture
def slot(db: DB) -> DB:
    db.execute("select set_predicate('works_at', 'acme')")
    return db


def says(db: DB, place: str, at: str, **more: Any) -> Result:
    arguments = {"subject": "Ann", "predicate": "works_at", "object": place, "observed_at": f"2026-{at}"}
    return ingest(db, f"Ann works at {place}", **{**arguments, **more})


def timeline(db: DB) -> list[tuple[str, str, str | None]]:
    return db.execute(
        "select object, to_char(valid_from, 'MM-DD'), to_char(valid_to, 'MM-DD')"
        " from memory_intervals join memories using (tenant_id, memory_id) order by valid_from"
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


def test_a_value_in_other_words_is_current_again_when_the_other_expires(slot: DB) -> None:
    """Also from a day without a statement, and whether the texts are merged or unmerged."""
    a = says(slot, "VW", "01-01")
    says(slot, "Stripe", "02-01", valid_until="2026-03-01")
    says(slot, "VW", "05-01")
    told = [("VW", "01-01", "02-01"), ("Stripe", "02-01", "03-01"), ("VW", "03-01", None)]
    assert timeline(slot) == told
    row = slot.execute("select event_id from update_memory(%s, 'Ann builds cars', 'acme')", [a.memory_id])
    (event,) = row.fetchall()
    assert timeline(slot) == told
    check(slot)
    slot.execute("select undo(%s, 'acme')", event)
    assert timeline(slot) == told
    check(slot)


def test_a_persons_statement_ends_when_its_text_is_withdrawn(slot: DB) -> None:
    a = says(slot, "VW", "01-01")
    c = says(slot, "Stripe", "02-01")
    told = timeline(slot)
    event, b = slot.execute(
        "select event_id, memory_id from update_memory(%s, 'Ann builds cars', 'acme')", [a.memory_id]
    ).fetchall()[0]
    slot.execute("select supersede_memory(%s, %s, 'acme')", [c.memory_id, b])
    assert current(slot) == ["VW"]
    slot.execute("select undo(%s, 'acme')", [event])
    assert timeline(slot) == told
    assert current(slot) == ["Stripe"]
    check(slot)


def test_texts_that_stood_for_a_value_are_on_no_timeline_of_their_own(db: DB) -> None:
    """Two texts that were restated as aliases of a slot's value, then unmerged, are unrelated."""
    texts = ("Ann builds cars", "Ann has a Golf")
    # no slot yet: undoing these merges contests nothing
    said = says(db, "VW", "01-01").memory_id
    merges = []
    for text in texts:
        other = ingest(db, text, subject="Ann", observed_at="2026-01-02").memory_id
        query = "select (merge_memories(%s, %s, tenant_id => 'acme')).event_id"
        merges.append(db.execute(query, [other, said]).fetchall()[0][0])
    db.execute("select set_predicate('works_at', 'acme')")
    for month, text in enumerate(texts, 2):
        says(db, "Stripe", f"0{month}-01")
        again = ingest(db, text, subject="Ann", observed_at=f"2026-0{month}-02")
        assert (again.action, again.method) == ("superseded", "timeline")
    for event in merges:
        db.execute("select undo(%s, tenant_id => 'acme')", [event])
    check(db)
    found = db.execute("select content, status from memories where predicate is null order by 1").fetchall()
    assert found == [(text, "active") for text in texts]


def test_values_in_texts_of_another_scope(db: DB) -> None:
    """Values of two slots that a person merged into two texts of one scope, no slot, are not on one timeline."""
    db.execute("select set_predicate('lives_in', 'acme')")

    def lives(who: str, place: str) -> Result:
        return ingest(db, f"{who} lives in {place}", subject=who, predicate="lives_in", object=place)

    texts = []
    for text, who, place in (("Eve likes cats", "Carol", "Lima"), ("Eve plays chess", "Zoe", "Kyiv")):
        kept = ingest(db, text, subject="Eve").memory_id
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [lives(who, place).memory_id, kept])
        check(db)
        texts.append(kept)
    for _ in range(2):
        ingest(db, "Eve likes cats", subject="Eve")
        check(db)
        ingest(db, "Eve plays chess", subject="Eve")
        check(db)
        assert lives("Carol", "Lima").memory_id == texts[0]
        check(db)
    active = db.execute("select memory_id from memories where status = 'active' order by 1").fetchall()
    assert [row[0] for row in active] == sorted(texts, key=str)
    # current from their first statement on, like every memory without a slot
    assert db.execute("select count(*) from memory_intervals").fetchone() == (0,)


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
    assert timeline(slot) == [("VW", "01-01", None)]
    check(slot)


def test_the_same_object_in_other_words_is_the_same_value(slot: DB) -> None:
    says(slot, "VW", "01-01")
    other = ingest(slot, "Ann is employed by VW", subject="Ann", predicate="works_at", object=" vw ",
                   observed_at="2026-02-01")  # fmt: skip
    assert other.action == "inserted"
    # one value, shown by the text that stated it last
    assert current(slot) == [" vw "]
    says(slot, "Stripe", "03-01")
    assert current(slot) == ["Stripe"]
    check(slot)


def test_without_objects_the_text_is_the_value(slot: DB) -> None:
    model(slot)
    slot.execute("select set_policy('acme', merge_veto => 0)")
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
    assert (changed.method, changed.superseded_id) == ("predicate", unclear.memory_id)
    check(slot)


@pytest.mark.parametrize(
    ("conflict", "action", "active"),
    [
        ("newest_wins", "superseded", {"Stripe"}),
        ("keep_existing", "rejected", {"VW"}),
        ("keep_both", "inserted", {"VW", "Stripe"}),
        ("review", "escalated", {"Stripe"}),
    ],
)
@pytest.mark.parametrize("by", ["policy", "predicate"])
def test_conflict_policies(slot: DB, conflict: str, action: str, active: set[str], by: str) -> None:
    if by == "policy":
        slot.execute("select set_policy('acme', conflict => %s)", [conflict])
    else:
        slot.execute("select set_predicate('works_at', 'acme', conflict => %s)", [conflict])
    says(slot, "VW", "01-01")
    result = says(slot, "Stripe", "02-01")
    assert result.action == action
    assert set(current(slot)) == active
    late = "inserted" if conflict == "keep_both" else "historical"
    assert says(slot, "BMW", "01-01", observed_at="2025-01-01").action == late
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
    db.execute("select set_predicate(' Lived_In ', 'acme')")
    assert current(db) == ["Rome"], "stored memories are processed"
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


def gapless(db: DB) -> None:
    """By SQL: in each slot every interval ends where the next begins, none overlaps another, one is open."""
    assert (
        db.execute(
            "select * from (select valid_from, valid_to, lead(valid_from) over ("
            " partition by slot_key order by valid_from) as next from memory_intervals) as i"
            " where valid_to is distinct from next or valid_to <= valid_from"
        ).fetchall()
        == []
    )
    assert (
        db.execute(
            "select a.memory_id, b.memory_id from memory_intervals a"
            " join memory_intervals b using (tenant_id, slot_key)"
            " where (a.memory_id, a.valid_from) < (b.memory_id, b.valid_from)"
            " and tstzrange(a.valid_from, a.valid_to) && tstzrange(b.valid_from, b.valid_to)"
        ).fetchall()
        == []
    )
    assert (
        db.execute(
            "select slot_key from memory_intervals group by 1"
            " having count(*) filter (where valid_to is null) <> 1"
        ).fetchall()
        == []
    )


# what comes after VW 02-01, Stripe 04-01, VW 06-01, what it does, and the timeline then
ARRIVALS = [
    # a new value before, inside and after the intervals, and at their very edges
    ("BMW", "01-01", "historical", "BMW 01-01, VW 02-01, Stripe 04-01, VW 06-01", "VW"),
    ("BMW", "03-01", "historical", "VW 02-01, BMW 03-01, Stripe 04-01, VW 06-01", "VW"),
    ("BMW", "05-01", "historical", "VW 02-01, Stripe 04-01, BMW 05-01, VW 06-01", "VW"),
    ("BMW", "04-01", "historical", "VW 02-01, BMW 04-01, VW 06-01", "VW"),
    ("BMW", "06-01", "superseded", "VW 02-01, Stripe 04-01, BMW 06-01", "BMW"),
    ("BMW", "07-01", "superseded", "VW 02-01, Stripe 04-01, VW 06-01, BMW 07-01", "BMW"),
    # the superseded value: earlier, in its own time, in the other's, and now
    ("Stripe", "01-01", "merged", "Stripe 01-01, VW 02-01, Stripe 04-01, VW 06-01", "VW"),
    ("Stripe", "03-01", "merged", "VW 02-01, Stripe 03-01, VW 06-01", "VW"),
    ("Stripe", "05-01", "merged", "VW 02-01, Stripe 04-01, VW 06-01", "VW"),
    ("Stripe", "06-01", "superseded", "VW 02-01, Stripe 04-01", "Stripe"),
    ("Stripe", "07-01", "superseded", "VW 02-01, Stripe 04-01, VW 06-01, Stripe 07-01", "Stripe"),
    # the current value: earlier, in its own first time, in the other's (that is cut in two), and again
    ("VW", "01-01", "merged", "VW 01-01, Stripe 04-01, VW 06-01", "VW"),
    ("VW", "03-01", "merged", "VW 02-01, Stripe 04-01, VW 06-01", "VW"),
    ("VW", "05-01", "merged", "VW 02-01, Stripe 04-01, VW 05-01", "VW"),
    ("VW", "07-01", "merged", "VW 02-01, Stripe 04-01, VW 06-01", "VW"),
]


def test_an_arrival_anywhere(slot: DB) -> None:
    for i, (place, at, action, expected, now) in enumerate(ARRIVALS):
        bucket = f"arrival {i}"
        for known, when in (("VW", "02-01"), ("Stripe", "04-01"), ("VW", "06-01")):
            says(slot, known, when, bucket_id=bucket)
        assert says(slot, place, at, bucket_id=bucket).action == action, (place, at)
        rows = slot.execute(
            "select object || to_char(valid_from, ' MM-DD') from memory_intervals join memories"
            " using (tenant_id, memory_id) where bucket_id = %s order by valid_from",
            [bucket],
        ).fetchall()
        assert ", ".join(row[0] for row in rows) == expected, (place, at)
        assert slot.execute(
            "select object from memories where bucket_id = %s and status = 'active'", [bucket]
        ).fetchall() == [(now,)]
    gapless(slot)
    check(slot)


def test_a_late_value_inside_an_interval_cuts_it_in_two(slot: DB) -> None:
    says(slot, "VW", "02-01")
    says(slot, "VW", "06-01")
    says(slot, "Stripe", "08-01")
    assert says(slot, "BMW", "04-01").action == "historical"
    assert timeline(slot) == [
        ("VW", "02-01", "04-01"), ("BMW", "04-01", "06-01"), ("VW", "06-01", "08-01"), ("Stripe", "08-01", None),
    ]  # fmt: skip
    gapless(slot)
    check(slot)


@pytest.mark.core
def test_tombstones(slot: DB) -> None:
    """A rejected value leaves no gap: its neighbours close up, and nothing it is stated by brings it back."""
    says(slot, "VW", "01-01")
    b = says(slot, "Stripe", "03-01")
    says(slot, "VW", "05-01")
    c = says(slot, "BMW", "07-01")
    rejection: dict[str, Any] = {}
    for name, memory in (("Stripe", b), ("BMW", c)):
        rejection[name] = slot.execute(
            "select event_id from reject_memory(%s, tenant_id => 'acme')", [memory.memory_id]
        ).fetchone()
        gapless(slot)
        check(slot)
    assert timeline(slot) == [("VW", "01-01", None)]
    assert current(slot) == ["VW"]
    for name, at in (("Stripe", "02-01"), ("Stripe", "09-01"), ("BMW", "09-02")):
        again = says(slot, name, at)
        assert (again.action, again.tier, again.method) == ("rejected", 1, "tombstone")
    assert timeline(slot) == [("VW", "01-01", None)]
    assert slot.execute(
        "select observations from memory_totals where memory_id = %s", [b.memory_id]
    ).fetchone() == (1,)
    slot.execute("select undo(%s, tenant_id => 'acme')", [rejection["Stripe"][0]])
    assert timeline(slot) == [("VW", "01-01", "03-01"), ("Stripe", "03-01", "05-01"), ("VW", "05-01", None)]
    assert says(slot, "Stripe", "08-01").action == "superseded"
    slot.execute("select undo(%s, tenant_id => 'acme')", [rejection["BMW"][0]])
    assert [row[0] for row in timeline(slot)] == ["VW", "Stripe", "VW", "BMW", "Stripe"]
    assert current(slot) == ["Stripe"]
    gapless(slot)
    check(slot)


def test_the_last_value_is_rejected(slot: DB) -> None:
    only = says(slot, "VW", "01-01")
    slot.execute("select reject_memory(%s, tenant_id => 'acme')", [only.memory_id])
    assert timeline(slot) == []
    assert says(slot, "Stripe", "02-01").action == "inserted"
    assert timeline(slot) == [("Stripe", "02-01", None)]
    check(slot)


def test_eight_writers_race_two_values(slot: DB, connect: Connect) -> None:
    """A and B, on time and late, by 8 connections: one current value, history without gaps or overlaps."""
    rounds, calls = 4, 5
    writers = [connect() for _ in range(8)]
    start = threading.Barrier(len(writers))
    errors: list[BaseException] = []

    def write(w: int) -> None:
        rnd = random.Random(w)
        try:
            for turn in range(rounds):
                start.wait()
                for call in range(calls):
                    # every other round is a race for the present, the others have late arrivals as well
                    at = (
                        {}
                        if turn % 2
                        else {"observed_at": f"2026-{rnd.randrange(1, 10):02}-{rnd.randrange(1, 28):02}"}
                    )
                    place = "AB"[(w + call + turn) % 2]
                    while True:
                        try:
                            ingest(writers[w], f"Ann {turn} works at {place}", subject=f"Ann {turn}",
                                   predicate="works_at", object=place, source_turn_ids=[f"{w} {call}"], **at)  # fmt: skip
                            break
                        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                            continue
        except BaseException as error:
            errors.append(error)
            start.abort()

    threads = [threading.Thread(target=write, args=(w,)) for w in range(len(writers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = slot.execute(
        "select subject, count(*), count(*) filter (where status = 'active'), sum(observations), sum(independent)"
        " from memories join memory_totals using (tenant_id, memory_id) group by subject order by subject"
    ).fetchall()
    assert found == [(f"Ann {turn}", 2, 1, 8 * calls, 8 * calls) for turn in range(rounds)]
    # the current value is the one that was stated last, by time and then by the ledger's order
    assert (
        slot.execute(
            "select m.subject, m.object from memories m where status = 'active' except"
            " select * from (select distinct on (subject) subject, object from memory_events"
            "  order by subject, observed_at desc, event_id desc) as last"
        ).fetchall()
        == []
    )
    # and the history is the ledger with equal neighbours collapsed
    assert (
        slot.execute(
            "select subject, object, valid_from from memory_intervals join memories using (tenant_id, memory_id)"
            " order by subject, valid_from"
        ).fetchall()
        == slot.execute(
            "select subject, object, observed_at from (select *, lag(object) over ("
            "  partition by subject order by observed_at) as before from (select distinct on (subject, observed_at) *"
            "   from memory_events order by subject, observed_at, event_id desc) as e) as e"
            " where before is distinct from object order by subject, observed_at"
        ).fetchall()
    )
    gapless(slot)
    check(slot)
