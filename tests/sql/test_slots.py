"""Slots and time: the examples of docs/rules.md, and what went wrong when currency followed from actions."""

from __future__ import annotations

from itertools import product
from typing import Any

import psycopg
import pytest

from tests.conftest import Connect
from tests.support.judging import answer
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB


@pytest.fixture
def slot(db: DB) -> DB:
    model(db)
    db.execute("select set_policy('acme', merge_veto => 0), set_predicate('lives_in', 'acme')")
    return db


def says(db: DB, content: str, day: int, thing: str | None = None, **more: Any) -> Result:
    where = {"subject": "Ida", "predicate": "lives_in", "object": thing, "observed_at": f"2026-01-{day:02}"}
    return ingest(db, content, **{**where, **more})


def current(db: DB, day: int | None = None) -> list[str]:
    """What is current at noon of a day of January 2026, or now."""
    at = None if day is None else f"2026-01-{day:02} 12:00"
    rows = db.execute(
        "select content from current_memories('acme', as_of => %s) order by content", [at]
    ).fetchall()
    return [row[0] for row in rows]


def undo(db: DB, event: Any) -> None:
    db.execute("select undo(%s, 'acme')", [event])
    check(db)


def act(db: DB, call: str, *given: Any) -> Any:
    row = db.execute(f"select event_id from {call}".encode(), list(given)).fetchone()
    assert row is not None
    return row[0]


def open_questions(db: DB) -> int:
    row = db.execute("select count(*) from judgements where status = 'open'").fetchone()
    assert row is not None
    return int(row[0])


def test_the_value_stated_last_is_current(slot: DB) -> None:
    says(slot, "Rome", 1, "rome")
    says(slot, "Oslo", 3, "oslo")
    assert [current(slot, day) for day in (1, 2, 3, 9)] == [["Rome"], ["Rome"], ["Oslo"], ["Oslo"]]
    says(slot, "Rome", 5, "rome")
    assert [current(slot, day) for day in (2, 4, 6)] == [["Rome"], ["Oslo"], ["Rome"]]
    says(slot, "Kyiv", 2, "kyiv")
    assert [current(slot, day) for day in (1, 2, 4, 6)] == [["Rome"], ["Kyiv"], ["Oslo"], ["Rome"]]
    check(slot)


def test_the_undo_of_a_merge_revives_nobody(slot: DB) -> None:
    says(slot, "Ida lives in Rome", 1, "rome", **vector(0.1, axis=3))
    says(slot, "Ida lives in Oslo", 3, "oslo", **vector(1.0))
    fold = says(slot, "Ida is living in Oslo", 4, "oslo", **vector(0.97))
    assert fold.action == "merged"
    undo(slot, fold.event_id)
    assert current(slot) == ["Ida is living in Oslo"]
    assert open_questions(slot) == 0
    says(slot, "Ida lives in Kyiv", 5, "kyiv")
    assert current(slot) == ["Ida lives in Kyiv"]
    check(slot)


@pytest.mark.parametrize("how", ["merge", "supersede", "update", "reject"])
def test_a_manual_action_undone_at_once(slot: DB, how: str) -> None:
    rome, roma = says(slot, "in Rome", 1, "rome"), says(slot, "in Roma", 2, "roma")
    oslo = says(slot, "in Oslo", 3, "oslo")
    before = [current(slot, day) for day in (1, 2, 3)] + [current(slot)]
    event = {
        "merge": lambda: act(slot, "merge_memories(%s, %s, 'acme')", roma.memory_id, rome.memory_id),
        "supersede": lambda: act(slot, "supersede_memory(%s, %s, 'acme')", oslo.memory_id, rome.memory_id),
        "update": lambda: act(slot, "update_memory(%s, 'in Oslo, Norway', 'acme')", oslo.memory_id),
        "reject": lambda: act(slot, "reject_memory(%s, 'acme')", oslo.memory_id),
    }[how]()
    assert how == "merge" or current(slot) != ["in Oslo"]
    undo(slot, event)
    assert [current(slot, day) for day in (1, 2, 3)] + [current(slot)] == before
    assert open_questions(slot) == 0


@pytest.mark.parametrize("verdict", [None, "distinct", "duplicate", "contradiction"])
def test_an_open_question_changes_nothing(slot: DB, verdict: str | None) -> None:
    says(slot, "works at Volkswagen", 1, "vw", **vector(1.0))
    asked = says(slot, "is employed by VW", 2, "vw", **vector(0.88, axis=2))
    assert (asked.action, current(slot)) == ("escalated", ["is employed by VW"])
    says(slot, "works at Stripe", 3, "stripe", **vector(0.1, axis=3))
    says(slot, "works at Bosch", 4, "bosch", **vector(0.1, axis=3))
    if verdict is not None:
        answer(slot, verdict, 0.9)
    assert current(slot) == ["works at Bosch"]
    check(slot)


def test_without_objects_too(slot: DB) -> None:
    says(slot, "drives a Golf", 1, **vector(1.0))
    assert says(slot, "drives a Polo", 2, **vector(0.88, axis=2)).action == "escalated"
    assert current(slot) == ["drives a Polo"]
    says(slot, "is driven", 3, **vector(0.1, axis=3))
    assert current(slot) == ["is driven"]
    check(slot)


def test_a_paraphrase_without_an_object_is_compared(slot: DB) -> None:
    """A missing object is not another value."""
    says(slot, "drives a Golf", 1, "Golf", **vector(1.0))
    found = says(slot, "drives the Golf", 2, **vector(0.99, axis=2))
    assert (found.action, found.tier) == ("merged", 2)
    check(slot)


def test_a_predicate_declared_late(db: DB) -> None:
    for day, place in ((1, "VW"), (3, "Stripe")):
        says(db, f"at {place}", day, place)
    assert len(current(db)) == 2
    row = db.execute("select set_predicate('lives_in', 'acme')").fetchone()
    assert row is not None
    assert [current(db), current(db, 2)] == [["at Stripe"], ["at VW"]]
    check(db)
    assert says(db, "at VW", 5, "VW").action == "superseded"
    assert current(db) == ["at VW"]
    check(db)
    db.execute("select undo_run(%s, 'acme')", [row[0]])
    assert current(db) == ["at Stripe", "at VW"]
    check(db)
    # by the policy as well
    db.execute("select set_predicate('lives_in', 'acme')")
    assert current(db) == ["at VW"]
    db.execute("select set_policy('acme', conflict => 'keep_both')")
    assert current(db) == ["at Stripe", "at VW"]
    check(db)


def test_more_than_one_call_takes_up(db: DB) -> None:
    """Maintenance, or the same call again, processes what a call leaves; new statements follow the rule at once."""
    db.execute("select ingest_memories(jsonb_agg(jsonb_build_object('content', 'at ' || n, 'subject', 'Ida ' || n % 600,"
               " 'predicate', 'lives_in', 'object', n::text)), 'acme') from generate_series(1, 1200) as n")  # fmt: skip
    run = db.execute("select set_predicate('lives_in', 'acme')").fetchone()
    states = "select status, report ->> 'memories' from runs where kind = 'predicate'"
    assert db.execute(states).fetchall() == [("open", "1000")]
    assert db.execute("select set_predicate('lives_in', 'acme')").fetchone() == run
    assert db.execute(states).fetchall()[0][0] == "done"
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (600,)
    check(db)


def test_a_contradiction_of_a_value_that_waits_for_the_rule(slot: DB) -> None:
    """While its run is open, it is unknown by which rule a value, or one that it excludes, has its times."""
    free = ingest(
        slot, "Ida is a nomad", observed_at="2026-01-05", valid_from="2026-01-05", valid_until="2026-01-20"
    )
    says(slot, "at VW", 1, "VW")
    stripe = says(slot, "at Stripe", 10, "Stripe")
    act(slot, "supersede_memory(%s, %s, tenant_id => 'acme')", free.memory_id, stripe.memory_id)
    check(slot)
    slot.execute(
        "insert into runs (tenant_id, bucket_id, kind, actor, arguments) values ('acme', '*', 'predicate', 'a',"
        " jsonb_build_object('predicate', memfold_internal._predicate_1('lives_in')))"
    )
    check(slot)
    slot.execute("delete from memory_intervals where tenant_id = 'acme'")
    assert slot.execute("select * from check_invariants('acme')").fetchall() == []
    slot.execute("update runs set status = 'done'")
    assert slot.execute("select count(distinct memory_id) from check_invariants('acme')").fetchone() == (3,)


@pytest.mark.parametrize(
    "rule", ["set_predicate('lives_in', 'acme', 'many')", "set_policy('acme', conflict => 'keep_both')"]
)
@pytest.mark.parametrize("writer", ["single", "batch"])
def test_a_rule_waits_for_those_who_decide_by_the_one_before(
    slot: DB, connect: Connect, writer: str, rule: str
) -> None:
    """A slot not visible yet would keep its timeline."""
    other = connect()
    with other.transaction():
        if writer == "single":
            says(other, "at VW", 1, "VW")
        else:
            other.execute(
                "select ingest_memories(jsonb_build_array(jsonb_build_object('content', 'at VW', 'subject', 'Ida',"
                " 'predicate', 'lives_in', 'object', 'VW')), 'acme')"
            )
        slot.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            slot.execute(f"select {rule}".encode())
    slot.execute("reset lock_timeout")
    slot.execute(f"select {rule}".encode())
    check(slot)
    says(slot, "at Stripe", 2, "Stripe", **({"observed_at": None} if writer == "batch" else {}))
    assert len(current(slot)) == 2
    check(slot)


def test_a_paraphrase_of_a_superseded_value(slot: DB) -> None:
    likes = ingest(slot, "Mo likes jazz", observed_at="2026-01-01", **vector(1.0))
    asked = ingest(slot, "Mo loathes jazz", observed_at="2026-01-02", **vector(0.88, axis=2))
    assert asked.action == "escalated"
    answer(slot, "contradiction", 0.9)
    again = ingest(slot, "Mo is fond of jazz", observed_at="2026-01-03", **vector(0.99))
    assert (again.action, again.memory_id) == ("merged", likes.memory_id)
    assert current(slot) == ["Mo likes jazz"]
    check(slot)


def test_a_name_that_was_linked_by_mistake(slot: DB) -> None:
    where = {"predicate": "lives_in"}
    ingest(slot, "in Oslo", subject="Bob", object="Oslo", observed_at="2026-01-01", **where)
    slot.execute("select link_subject('Bob', 'Robert', 'acme')")
    ingest(slot, "in Rome", subject="Robert", object="Rome", observed_at="2026-02-01", **where)
    ingest(slot, "in Oslo", subject="Robert", object="Oslo", observed_at="2026-03-01", **where)
    slot.execute("select unlink_subject('Bob', 'acme')")
    rows = slot.execute("select subject, content from memories where status = 'active' order by 1").fetchall()
    assert rows == [("Bob", "in Oslo"), ("Robert", "in Oslo")]
    check(slot)


def test_a_pair_decided_by_the_policy_is_not_asked_about(slot: DB) -> None:
    """keep_both: with vectors at once, and late."""
    slot.execute("select set_predicate('lives_in', 'acme', conflict => 'keep_both')")
    for bucket, late in (("at once", False), ("late", True)):
        for day, (place, near) in enumerate((("Rome", vector(1.0)), ("Oslo", vector(0.9))), 1):
            made = says(slot, f"in {place}", day, place, bucket_id=bucket, **({} if late else near))
            assert made.action == "inserted"
            if late:
                slot.execute(
                    "select attach_embedding(%s, %s, 'm', 'acme')", [made.memory_id, near["embedding"]]
                )
    assert open_questions(slot) == 0
    check(slot)


def test_two_periods_of_one_fact(db: DB) -> None:
    for day, until in ((1, 3), (6, 8)):
        ingest(db, "Ida is on Payments", observed_at=f"2026-01-{day:02}", valid_from=f"2026-01-{day:02}",
               valid_until=f"2026-01-{until:02}")  # fmt: skip
    shown = [["Ida is on Payments"], [], ["Ida is on Payments"], []]
    assert [current(db, day) for day in (2, 4, 7, 9)] == shown
    check(db)


def test_an_override_that_ends(slot: DB) -> None:
    says(slot, "diet A", 1, "a")
    says(slot, "diet B", 2, "b", valid_until="2026-01-05")
    assert [current(slot, day) for day in (1, 3, 6)] == [["diet A"], ["diet B"], ["diet A"]]
    says(slot, "Rome", 7, "rome")
    says(slot, "Oslo", 8, "oslo", valid_from="2026-01-01")
    assert [current(slot, day) for day in (3, 7, 9)] == [["Oslo"], ["Oslo"], ["Oslo"]]
    check(slot)


def test_a_pruned_text_that_is_stated_again_is_compared(slot: DB) -> None:
    pruned = ingest(slot, "Cy likes jazz", observed_at="2025-01-01", **vector(1.0))
    slot.execute(
        "select prune_memories('acme', max_confidence => 1, unused_for => '1 day', dry_run => false)"
    )
    other = ingest(slot, "Cy enjoys jazz", **vector(0.99))
    assert other.action == "inserted"
    again = ingest(slot, "Cy likes jazz", **vector(1.0))
    assert (again.action, again.memory_id) == ("merged", other.memory_id)
    assert again.memory_id != pruned.memory_id
    check(slot)


def test_a_merge_with_a_value_that_had_an_end(slot: DB) -> None:
    """If two texts become one value, the last statement sets its validity."""
    golf, polo = says(slot, "a Golf", 1, "golf"), says(slot, "a Polo", 2, "polo", valid_until="2026-01-03")
    says(slot, "a bicycle", 5, "bicycle")
    before = [["a Golf"], ["a Polo"], ["a Golf"], ["a bicycle"]]
    assert [current(slot, day) for day in (1, 2, 3, 5)] == before
    event = act(slot, "merge_memories(%s, %s, 'acme')", polo.memory_id, golf.memory_id)
    assert [current(slot, day) for day in (1, 2, 3, 5)] == [["a Golf"], ["a Golf"], [], ["a bicycle"]]
    check(slot)
    undo(slot, event)
    assert [current(slot, day) for day in (1, 2, 3, 5)] == before


@pytest.mark.parametrize("how", ["update", "merge", "undo"])
def test_a_text_that_takes_the_value_of_another_or_leaves_it(slot: DB, how: str) -> None:
    """A statement with an end limits earlier ones of its own value, and no other: with any values of the three."""
    values = ["rome", "oslo", None]
    for first, limited, last in product(values, repeat=3):
        bucket = f"{first} {limited} {last}"
        old = says(slot, "a", 1, first, bucket_id=bucket)
        says(slot, "b", 2, limited, valid_until="2026-01-04", bucket_id=bucket)
        says(slot, "a", 6, first, bucket_id=bucket)
        if how == "update":
            act(slot, "update_memory(%s, 'c', 'acme', %s)", old.memory_id, last)
            continue
        other = says(slot, "c", 7, last, bucket_id=bucket)
        event = act(slot, "merge_memories(%s, %s, 'acme')", old.memory_id, other.memory_id)
        if how == "undo":
            act(slot, "undo(%s, 'acme')", event)
    check(slot)


@pytest.mark.parametrize(
    "rule", ["set_predicate('lives_in', '*')", "set_policy('*', conflict => 'keep_both')"]
)
def test_a_rule_for_all_tenants_is_taken_up_in_each(db: DB, rule: str) -> None:
    """Those with a rule of their own keep it; the tenant of the session stays what it was."""
    if "policy" in rule:
        db.execute("select set_predicate('lives_in', '*')")
    for tenant in ("acme", "globex", "initech"):
        if tenant == "initech":
            db.execute("select set_predicate('lives_in', 'initech', 'many')")
        for day, place in ((1, "Lyon"), (2, "Paris")):
            says(db, f"in {place}", day, place, tenant_id=tenant)
    ingest(db, "a fact without a predicate", tenant_id="umbrella")
    db.execute("set memfold.tenant_id = 'acme'")
    assert db.execute(f"select {rule}".encode()).fetchone() is not None
    assert db.execute("show memfold.tenant_id").fetchone() == ("acme",)
    db.execute("reset memfold.tenant_id")
    values = 2 if "policy" in rule else 1
    for tenant, number in (("acme", values), ("globex", values), ("initech", 2), ("umbrella", 1)):
        rows = db.execute("select content from current_memories(%s)", [tenant]).fetchall()
        assert len(rows) == number, tenant
    check(db)
    runs = db.execute("select tenant_id, status from runs where kind = 'predicate' order by 1").fetchall()
    assert ("acme", "done") in runs
    assert ("umbrella", "done") not in runs
    if "predicate" in rule:
        run = db.execute("select run_id from runs where tenant_id = 'acme'").fetchone()
        with pytest.raises(psycopg.Error, match="for all tenants") as caught:
            db.execute("select undo_run(%s, 'acme')", run)
        assert caught.value.sqlstate == "MF039"
        db.execute("select set_predicate('lives_in', '*', 'many')")
        assert len(db.execute("select content from current_memories('acme')").fetchall()) == 2
        check(db)
