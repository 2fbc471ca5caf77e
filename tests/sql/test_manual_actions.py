"""Manual actions: reject, merge, supersede, update, and what was believed at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.memories import Result, check, counters, ingest, model, status, vector
from tests.support.queries import DB

NOBODY = UUID(int=0)


def manual_action(db: DB, function: str, /, *arguments: Any, **named: Any) -> Result:
    named = {"tenant_id": "acme", **named}
    places = ["%s"] * len(arguments) + [f"{name} => %s" for name in named]
    row = db.execute(
        f"select * from memfold.{function}({', '.join(places)})", [*arguments, *named.values()]
    ).fetchone()
    assert row is not None
    return Result(*row)


def text(db: DB, content: str) -> UUID:
    row = db.execute("select memory_id from memories where content = %s", [content]).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def event(db: DB, event_id: UUID | None) -> Any:
    row = db.execute(
        "select action, tier, method, memory_id, target_id, reason, observation, judgement_id, actor"
        " from memory_events where event_id = %s",
        [event_id],
    ).fetchone()
    assert row is not None
    return row


def raises(db: DB, code: str, action: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """The call fails with this code, says why and what to do, and changes nothing."""
    rows = "select count(*) from memory_events union all select count(*) from memories order by 1"
    before = db.execute(rows).fetchall()
    with pytest.raises(psycopg.Error) as error:
        action(*arguments, **named)
    assert error.value.sqlstate == code
    assert error.value.diag.message_detail
    assert error.value.diag.message_hint
    assert db.execute(rows).fetchall() == before


# Rejected -----------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_a_rejected_memory_is_a_tombstone(db: DB) -> None:
    model(db)
    root = ingest(db, "User prefers dark mode", **vector(1.0))
    ingest(db, "The user likes dark mode best", **vector(0.95))
    alias = text(db, "The user likes dark mode best")
    # the id of an alias stands for its root
    rejected = manual_action(db, "reject_memory", alias, reason="a joke")
    assert (rejected.action, rejected.memory_id, rejected.tier, rejected.method) == (
        "rejected", root.memory_id, 3, "person",
    )  # fmt: skip
    assert event(db, rejected.event_id) == (
        "rejected", 3, "person", root.memory_id, None, "a joke", False, None, db.info.user,
    )  # fmt: skip
    assert (status(db, root), status(db, alias)) == ("rejected", "merged")
    for content in ("User prefers dark mode", "The user likes dark mode best"):
        for origin in ("observed", "recalled"):
            again = ingest(db, content, origin=origin)
            assert (again.action, again.tier, again.method) == ("rejected", 1, "tombstone")
    # nor does it come back in other words
    paraphrase = ingest(db, "Dark mode suits the user", **vector(0.96))
    assert (paraphrase.action, paraphrase.tier, paraphrase.method) == ("rejected", 2, "tombstone")
    assert counters(db, root.memory_id)["observations"] == 2
    assert db.execute("select count(*) from current_memories('acme')").fetchone() == (0,)
    raises(db, "MF034", manual_action, db, "reject_memory", root.memory_id)
    raises(db, "MF034", manual_action, db, "reject_memory", alias)
    check(db)


def test_a_rejected_value_gives_way(db: DB) -> None:
    """The value that it had superseded is current again, and its intervals are gone."""
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    a = ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01", **about)
    b = ingest(db, "Ann works at Stripe", object="Stripe", observed_at="2026-02-01", **about)
    c = ingest(db, "Ann works at BMW", object="BMW", observed_at="2026-03-01", **about)
    manual_action(db, "reject_memory", c.memory_id)
    assert [status(db, x) for x in (a, b, c)] == ["superseded", "active", "rejected"]
    manual_action(db, "reject_memory", a.memory_id)  # one that is history
    assert [status(db, x) for x in (a, b, c)] == ["rejected", "active", "rejected"]
    assert db.execute("select memory_id, valid_to from memory_intervals").fetchall() == [(b.memory_id, None)]
    assert ingest(db, "Ann works at BMW", object="BMW", **about).action == "rejected"
    manual_action(db, "reject_memory", b.memory_id)
    assert db.execute("select count(*) from memory_intervals").fetchone() == (0,)
    d = ingest(db, "Ann works at Seat", object="Seat", **about)
    assert (d.action, status(db, d)) == ("inserted", "active")
    check(db)


# Merged -------------------------------------------------------------------------------------------------------------


def test_a_merge(db: DB) -> None:
    model(db)
    a = ingest(db, "User prefers dark mode", source_turn_ids=["a"], source_confidence=0.9, metadata={"x": 1, "y": 1},
               **vector(1.0))  # fmt: skip
    ingest(db, "The user likes dark mode best", source_turn_ids=["b"], **vector(0.95))
    # in any scopes, and the newer memory may be kept
    b = ingest(db, "A dark screen, please", subject="screen", source_turn_ids=["b"], metadata={"y": 2})
    merged = manual_action(
        db, "merge_memories", text(db, "The user likes dark mode best"), b.memory_id, reason="the same"
    )
    assert (merged.action, merged.memory_id, merged.tier, merged.method) == (
        "merged",
        b.memory_id,
        3,
        "person",
    )
    assert event(db, merged.event_id)[:6] == ("merged", 3, "person", a.memory_id, b.memory_id, "the same")
    assert [status(db, x) for x in (a, b)] == ["merged", "active"]
    found = counters(db, b.memory_id)
    assert (found["observations"], found["independent"], found["aliases"]) == (3, 2, 2)
    assert found["source_confidence"] == 0.9
    assert db.execute("select metadata from memories where memory_id = %s", [b.memory_id]).fetchone() == (
        {"x": 1, "y": 2},
    )
    assert ingest(db, "User prefers dark mode").memory_id == b.memory_id
    assert ingest(db, "A dark screen, please", subject="screen").memory_id == b.memory_id
    check(db)
    for one, other in ((a, b), (b, a), (b, b)):
        raises(db, "MF034", manual_action, db, "merge_memories", one.memory_id, other.memory_id)


def test_a_merge_of_two_values(db: DB) -> None:
    """VW and Volkswagen are one employer: the slot has one value less."""
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    a = ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01", **about)
    b = ingest(db, "Ann works at Volkswagen", object="Volkswagen", observed_at="2026-02-01", **about)
    assert status(db, a) == "superseded"
    manual_action(db, "merge_memories", b.memory_id, a.memory_id)
    assert [status(db, x) for x in (a, b)] == ["active", "merged"]
    assert db.execute(
        "select memory_id, valid_from::date::text, valid_to from memory_intervals"
    ).fetchall() == [(a.memory_id, "2026-01-01", None)]
    check(db)


# Superseded ---------------------------------------------------------------------------------------------------------


def test_a_supersession(db: DB) -> None:
    """From now on, where no predicate is single-valued, and wherever the two are in the bucket."""
    a = ingest(db, "User likes tea", observed_at="2026-01-01")
    b = ingest(db, "User prefers coffee", subject="coffee", observed_at="2025-01-01")
    c = ingest(db, "User likes walks", observed_at="2026-01-01")
    done = manual_action(db, "supersede_memory", a.memory_id, b.memory_id, reason="told me so")
    assert (done.action, done.memory_id, done.superseded_id) == ("superseded", b.memory_id, a.memory_id)
    assert event(db, done.event_id)[:7] == (
        "superseded", 3, "person", b.memory_id, a.memory_id, "told me so", False,
    )  # fmt: skip
    assert [status(db, x) for x in (a, b, c)] == ["superseded", "active", "active"]
    rows = db.execute(
        "select memory_id, valid_from::date::text, valid_to > now() - interval '1 minute' from memory_intervals"
        " order by valid_from"
    ).fetchall()
    assert rows[0] == (b.memory_id, "2025-01-01", False)
    assert rows[1] == (a.memory_id, "2026-01-01", True)
    assert rows[2][0] == b.memory_id
    # either may be stated again later
    back = ingest(db, "User likes tea")
    assert (back.action, back.superseded_id) == ("superseded", b.memory_id)
    assert [status(db, x) for x in (a, b, c)] == ["active", "superseded", "active"]
    ingest(db, "User prefers coffee", subject="coffee")
    assert [status(db, x) for x in (a, b, c)] == ["superseded", "active", "active"]
    check(db)


def test_a_supersession_wins_over_what_is_dated_ahead(db: DB) -> None:
    a = ingest(db, "User likes tea", observed_at=datetime.now(UTC) + timedelta(minutes=4))
    b = ingest(db, "User prefers coffee")
    manual_action(db, "supersede_memory", a.memory_id, b.memory_id)
    assert [status(db, x) for x in (a, b)] == ["superseded", "active"]
    check(db)


def test_a_supersession_in_a_slot(db: DB) -> None:
    """The older value is current again by a person's decision, and stays a value like any other."""
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    a = ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01", **about)
    b = ingest(db, "Ann works at Stripe", object="Stripe", observed_at="2026-02-01", **about)
    manual_action(db, "supersede_memory", b.memory_id, a.memory_id)
    assert [status(db, x) for x in (a, b)] == ["active", "superseded"]
    c = ingest(db, "Ann works at BMW", object="BMW", **about)
    assert (c.action, c.superseded_id) == ("superseded", a.memory_id)
    manual_action(db, "supersede_memory", a.memory_id, c.memory_id)  # it is superseded already: stated again
    assert [status(db, x) for x in (a, b, c)] == ["superseded", "superseded", "active"]
    check(db)


def test_aliases_stand_for_their_roots(db: DB) -> None:
    model(db)
    a = ingest(db, "User likes tea", **vector(1.0))
    ingest(db, "The user is fond of tea", **vector(0.97))
    b = ingest(db, "User prefers coffee", subject="c", **vector(1.0))
    ingest(db, "The user is fond of coffee", subject="c", **vector(0.97))
    done = manual_action(
        db, "supersede_memory", text(db, "The user is fond of tea"), text(db, "The user is fond of coffee")
    )
    assert (done.memory_id, done.superseded_id) == (b.memory_id, a.memory_id)
    edited = manual_action(db, "update_memory", text(db, "The user is fond of coffee"), "User drinks coffee")
    assert [status(db, x) for x in (a, b, edited)] == ["superseded", "merged", "active"]
    back = ingest(db, "The user is fond of tea")
    assert (back.action, back.memory_id, back.superseded_id) == ("superseded", a.memory_id, edited.memory_id)
    check(db)


# Updated ------------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_an_update(db: DB) -> None:
    old = ingest(db, "User likes Vmi", memory_type="preference", subject="User", predicate="likes", object="Vmi",
                 source_turn_ids=["a"], source_confidence=0.9, metadata={"x": 1})  # fmt: skip
    new = manual_action(db, "update_memory", old.memory_id, "User likes Vim", object="Vim", reason="typo")
    assert (new.action, new.tier, new.method) == ("replaced", 3, "person")
    assert event(db, new.event_id)[:7] == (
        "replaced",
        3,
        "person",
        new.memory_id,
        old.memory_id,
        "typo",
        False,
    )
    assert db.execute(
        "select content, memory_type, subject, predicate, object, status, metadata from memories where memory_id = %s",
        [new.memory_id],
    ).fetchone() == ("User likes Vim", "preference", "User", "likes", "Vim", "active", {"x": 1})
    found = counters(db, new.memory_id)
    assert (found["observations"], found["source_confidence"], found["aliases"]) == (1, 0.9, 1)
    again = ingest(db, "User likes Vmi", memory_type="preference", subject="User", predicate="likes")
    assert (again.action, again.method, again.memory_id) == ("merged", "alias", new.memory_id)
    # ids that were handed out keep their meaning
    assert db.execute("select memory_id from current_memory(%s, 'acme')", [old.memory_id]).fetchone() == (
        new.memory_id,
    )
    # without an object the old one holds
    third = manual_action(db, "update_memory", old.memory_id, "User likes Vim a lot")
    assert db.execute("select object from memories where memory_id = %s", [third.memory_id]).fetchone() == (
        "Vim",
    )
    assert counters(db, third.memory_id)["aliases"] == 2
    check(db)


def test_an_update_into_a_text_that_is_there(db: DB) -> None:
    model(db)
    a, b = ingest(db, "User likes Vmi"), ingest(db, "User likes Vim")
    done = manual_action(db, "update_memory", a.memory_id, "user likes  VIM.")
    assert (done.action, done.memory_id) == ("replaced", b.memory_id)
    assert [status(db, x) for x in (a, b)] == ["merged", "active"]
    assert counters(db, b.memory_id)["observations"] == 2
    # the text of an alias: its root
    c = ingest(db, "User uses Vim")
    done = manual_action(db, "update_memory", c.memory_id, "User likes Vmi")
    assert (done.action, done.memory_id, status(db, c)) == ("replaced", b.memory_id, "merged")
    # its own text, in any spelling, and that of its own alias: nothing to do
    for content in ("User likes Vim", " USER likes vim ", "User uses Vim"):
        raises(db, "MF034", manual_action, db, "update_memory", b.memory_id, content)
    # a text that a person rejected
    d, e = ingest(db, "User likes Emacs"), ingest(db, "User likes ed")
    manual_action(db, "reject_memory", d.memory_id)
    raises(db, "MF034", manual_action, db, "update_memory", e.memory_id, "User likes Emacs")
    # the same text in another bucket is another memory
    ingest(db, "User likes nano", bucket_id="other")
    assert manual_action(db, "update_memory", e.memory_id, "User likes nano").memory_id != text(
        db, "User likes ed"
    )
    check(db)


@pytest.mark.parametrize(
    ("content", "cosine", "action"),
    [
        ("User is fond of tea", 0.95, "merged"),
        ("User is fond of tea", 0.9, "escalated"),
        ("User is not fond of tea", 0.97, "escalated"),
        ("User is fond of tea", 0.5, "replaced"),
    ],
)
def test_an_update_that_meets_a_twin(db: DB, content: str, cosine: float, action: str) -> None:
    """Dedup runs again for the new text."""
    model(db)
    twin = ingest(db, "User likes tea", source_turn_ids=["a"], **vector(1.0))
    old = ingest(db, "User likes teh", source_turn_ids=["b"], **vector(0.1, axis=2))
    done = manual_action(db, "update_memory", old.memory_id, content, **vector(cosine))
    new = text(db, content)
    assert (done.action, status(db, old)) == (action, "merged")
    assert db.execute(
        "select merged_into from memories where memory_id = %s", [old.memory_id]
    ).fetchone() == (new,)
    if action == "merged":
        assert (done.memory_id, done.similarity) == (twin.memory_id, pytest.approx(cosine))
        assert status(db, new) == "merged"
        assert counters(db, twin.memory_id)["observations"] == 2
        assert counters(db, twin.memory_id)["aliases"] == 2
    else:
        assert status(db, new) == "active"
        queued = db.execute("select judgement_id, memory_id, other_id from judgements").fetchall()
        assert queued == ([(done.judgement_id, new, twin.memory_id)] if action == "escalated" else [])
    assert db.execute("select count(*) from memory_vectors where memory_id = %s", [new]).fetchone() == (1,)
    check(db)


def test_an_update_is_not_compared_with_what_it_replaces(db: DB) -> None:
    model(db)
    old = ingest(db, "User likes tea", **vector(1.0))
    done = manual_action(db, "update_memory", old.memory_id, "User likes tea with milk", **vector(0.97))
    assert (done.action, done.judgement_id) == ("replaced", None)
    check(db)


def test_an_update_of_a_value(db: DB) -> None:
    """The value of a slot gets another object; its past stays its own."""
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    a = ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01", **about)
    b = ingest(db, "Ann works at Stirpe", object="Stirpe", observed_at="2026-02-01", **about)
    new = manual_action(db, "update_memory", b.memory_id, "Ann works at Stripe", object="Stripe")
    assert [status(db, x) for x in (a, b, new)] == ["superseded", "merged", "active"]
    assert db.execute(
        "select m.object, valid_from::date::text, valid_to::date::text from memory_intervals"
        " join memories m using (tenant_id, memory_id) order by valid_from"
    ).fetchall() == [("VW", "2026-01-01", "2026-02-01"), ("Stripe", "2026-02-01", None)]
    c = ingest(db, "Ann works at VW", object="VW", **about)
    assert (c.action, c.superseded_id) == ("superseded", new.memory_id)
    check(db)


def test_updates_that_are_refused(db: DB) -> None:
    """With the same error that ingest raises for such a candidate."""
    model(db)
    old = ingest(db, "User likes tea")
    codes = set()
    wrong: list[dict[str, Any]] = [
        {"content": None}, {"content": ""}, {"content": " . "}, {"content": "y" * 200_000},
        {"content": "x", "embedding": "[1,0,0,0]"},
        {"content": "x", "embedding": "[1,0,0,0]", "embedding_model": "unknown"},
        {"content": "x", "embedding": "[1,0]", "embedding_model": "m"},
        {"content": "x", "embedding": "[0,0,0,0]", "embedding_model": "m"},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(psycopg.Error) as refused:
            ingest(db, **arguments)
        code = refused.value.sqlstate
        assert code is not None
        assert code.startswith("MF")
        raises(db, code, manual_action, db, "update_memory", old.memory_id, **arguments)
        codes.add(code)
    assert "MF004" in codes
    assert len(codes) > 4
    assert status(db, old) == "active"


# What no manual action may do ---------------------------------------------------------------------------------------


def test_memories_that_are_not_there(db: DB) -> None:
    a = ingest(db, "User likes tea")
    theirs = ingest(db, "User likes coffee", tenant_id="globex")
    for other in (NOBODY, None, theirs.memory_id):
        for function, arguments in (
            ("reject_memory", [other]), ("merge_memories", [other, a.memory_id]),
            ("merge_memories", [a.memory_id, other]), ("supersede_memory", [other, a.memory_id]),
            ("supersede_memory", [a.memory_id, other]), ("update_memory", [other, "x"]),
        ):  # fmt: skip
            raises(db, "MF018", manual_action, db, function, *arguments)


def test_actions_not_allowed_in_a_status(db: DB) -> None:
    a, b = ingest(db, "User likes tea"), ingest(db, "User likes coffee")
    elsewhere = ingest(db, "User likes cocoa", bucket_id="other")
    rejected = ingest(db, "User likes gin")
    manual_action(db, "reject_memory", rejected.memory_id)
    edit = manual_action(db, "update_memory", b.memory_id, "User likes espresso")
    db.execute("select undo(%s, tenant_id => 'acme')", [edit.event_id])
    assert status(db, edit.memory_id) == "withdrawn"
    for function in ("merge_memories", "supersede_memory"):
        for other in (a, elsewhere, rejected, edit):
            for pair in ((a, other), (other, a)):
                raises(db, "MF034", manual_action, db, function, pair[0].memory_id, pair[1].memory_id)
    for gone in (rejected, edit):
        raises(db, "MF034", manual_action, db, "update_memory", gone.memory_id, "x")
    check(db)


def test_isolation(db: DB) -> None:
    a, b = ingest(db, "User likes tea"), ingest(db, "User likes coffee")
    for function, arguments in (
        ("reject_memory", [a.memory_id]), ("merge_memories", [a.memory_id, b.memory_id]),
        ("supersede_memory", [a.memory_id, b.memory_id]), ("update_memory", [a.memory_id, "x"]),
    ):  # fmt: skip

        def at_that_level(function: str = function, arguments: list[Any] = arguments) -> None:
            with db.transaction():
                db.execute("set transaction isolation level repeatable read")
                manual_action(db, function, *arguments)

        raises(db, "MF025", at_that_level)


def test_an_application_may_act_manually_for_its_tenant(db: DB, app: Callable[..., DB]) -> None:
    a, b = ingest(db, "User likes tea"), ingest(db, "User likes coffee")
    theirs = ingest(db, "User likes gin", tenant_id="globex")
    mine = app("acme")
    assert mine.execute(
        "select action from supersede_memory(%s, %s)", [a.memory_id, b.memory_id]
    ).fetchone() == ("superseded",)
    assert mine.execute(
        "select action from merge_memories(%s, %s)", [a.memory_id, b.memory_id]
    ).fetchone() == ("merged",)
    assert mine.execute(
        "select action from update_memory(%s, 'User likes both')", [a.memory_id]
    ).fetchone() == ("replaced",)
    assert mine.execute("select action from reject_memory(%s)", [a.memory_id]).fetchone() == ("rejected",)
    assert mine.execute("select content from current_memories()").fetchall() == []
    for function, arguments in (
        ("reject_memory", [theirs.memory_id]), ("merge_memories", [theirs.memory_id, b.memory_id]),
        ("supersede_memory", [theirs.memory_id, b.memory_id]), ("update_memory", [theirs.memory_id, "x"]),
    ):  # fmt: skip
        raises(db, "MF002", manual_action, mine, function, *arguments, tenant_id="globex")
        raises(db, "MF018", manual_action, mine, function, *arguments)
    assert mine.execute("select * from current_memories('globex')").fetchall() == []
    check(db)


# What was believed at a time ----------------------------------------------------------------------------------------


def believed(db: DB, as_of: str | None = None, bucket: str = "default") -> list[str]:
    return [
        row[0]
        for row in db.execute(
            "select content from current_memories('acme', %s, %s)", [bucket, as_of]
        ).fetchall()
    ]


def test_current_memories(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01 00:00+00", **about)
    ingest(db, "Ann works at Stripe", object="Stripe", observed_at="2026-03-01 00:00+00", **about)
    ingest(
        db, "Ann works at VW", object="VW", observed_at="2026-05-01 00:00+00", **about, source_confidence=0.9
    )
    ingest(db, "Ann likes tea", observed_at="2026-02-01 00:00+00")
    ingest(db, "Ann likes tea", observed_at="2026-06-01 00:00+00")
    ingest(db, "Ann likes gin", bucket_id="other", observed_at="2026-02-01 00:00+00")
    gone = ingest(db, "Ann likes cocoa", observed_at="2026-01-01 00:00+00")
    manual_action(db, "reject_memory", gone.memory_id)
    assert believed(db, "2025-12-31") == []
    assert believed(db, "2026-01-01 00:00+00") == ["Ann works at VW"]
    assert believed(db, "2026-02-15") == ["Ann works at VW", "Ann likes tea"]
    # an interval is half-open: at its end the next value holds
    assert believed(db, "2026-03-01 00:00+00") == ["Ann likes tea", "Ann works at Stripe"]
    assert believed(db, "2026-02-28 23:59:59.999999+00") == ["Ann works at VW", "Ann likes tea"]
    assert believed(db) == believed(db, "infinity") == ["Ann likes tea", "Ann works at VW"]
    assert believed(db, bucket="other") == ["Ann likes gin"]
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        rows = cursor.execute("select * from current_memories('acme', as_of => '2026-04-01')").fetchall()
    stripe = rows[1]
    assert (stripe["object"], stripe["subject"], stripe["predicate"], stripe["memory_type"]) == (
        "Stripe", "Ann", "works_at", "fact",
    )  # fmt: skip
    assert stripe["valid_from"].date().isoformat() == "2026-03-01"
    assert stripe["valid_to"].date().isoformat() == "2026-05-01"
    assert (stripe["repetition_count"], stripe["confidence"]) == (0, pytest.approx(0.4))
    assert (rows[0]["valid_to"], rows[0]["repetition_count"]) == (None, 1)
    assert rows[0]["confidence"] == pytest.approx(0.4 + 0.2 * 0.409, abs=1e-4)


def test_merges_and_late_arrivals_count_as_always_known(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    ingest(db, "Ann works at VW", object="VW", observed_at="2026-02-01", **about)
    ingest(db, "Ann works at BMW", object="BMW", observed_at="2026-01-01", **about)
    assert believed(db, "2026-01-15") == ["Ann works at BMW"]
    a = ingest(db, "Ann likes tea", observed_at="2026-01-01")
    b = ingest(db, "Ann is fond of tea", observed_at="2026-01-10")
    manual_action(db, "merge_memories", a.memory_id, b.memory_id)
    assert believed(db, "2026-01-05") == ["Ann works at BMW", "Ann is fond of tea"]


def test_a_judged_supersession_is_history_too(db: DB) -> None:
    a = ingest(db, "User likes tea", observed_at="2026-01-01")
    b = ingest(db, "User likes no tea", observed_at="2026-03-01")
    assert believed(db, "2026-02-01") == ["User likes tea"]
    manual_action(db, "supersede_memory", a.memory_id, b.memory_id)
    assert believed(db) == ["User likes no tea"]
    assert believed(db, "2026-02-01") == ["User likes tea"]
    check(db)


def test_a_contested_value_is_shown_with_the_other(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    ingest(db, "Ann works at VW", object="VW", observed_at="2026-01-01", **about)
    b = ingest(db, "Ann works at Stripe", object="Stripe", observed_at="2026-03-01", **about)
    assert believed(db) == ["Ann works at Stripe"]
    db.execute("select undo(%s, tenant_id => 'acme')", [b.event_id])
    assert believed(db) == ["Ann works at VW", "Ann works at Stripe"]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_an_updated_text_is_as_new_as_its_statements(db: DB, late: bool) -> None:
    """With its vector or before it: under on_merge replace the wording that was stated last stays."""
    model(db)
    db.execute("select set_policy('acme', on_merge => 'replace')")
    stated = ingest(db, "The user likes dark mode", observed_at="2026-01-05", **vector(1.0))
    old = ingest(db, "Bob plays chess", observed_at="2026-01-01", **vector(0.1))
    given = vector(0.95)
    done = manual_action(
        db, "update_memory", old.memory_id, "The user likes the dark mode", **({} if late else given)
    )
    if late:
        query = "select * from attach_embedding(%s, %s, %s, 'acme')"
        db.execute(query, [done.memory_id, given["embedding"], given["embedding_model"]])
    root = "select root_id from memories where content = 'The user likes the dark mode'"
    assert db.execute(root).fetchone() == (stated.memory_id,)
    check(db)
