"""Undo is derivation: afterwards every memory equals a recomputation from the ledger without that relation."""

from __future__ import annotations

import math
import threading
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.ledger import UNDOABLE, History, same, stored, undo
from tests.support.memories import Result, check, counters, ingest, model, status, vector
from tests.support.queries import DB, Connect
from tests.support.rounds import seeds

# Random histories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_any_events_in_any_order(db: DB, seed: int) -> None:
    """Random histories; some of their events undone forwards, backwards and shuffled; then all of them."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    undone = 0
    for turn in range(3):
        bucket = f"history {turn}"
        history = History(db, bucket, seed * 100 + turn)
        history.run(40)
        before = same(db, bucket)
        events = [row[0] for row in db.execute(UNDOABLE, [bucket]).fetchall()]
        some = history.random.sample(events, min(6, len(events)))
        orders = [sorted(some), sorted(some, reverse=True), some]
        ends = []
        for order in orders:
            with db.transaction(force_rollback=True):
                for event in order:
                    undo(db, event)
                    ends.append(same(db, bucket)) if event == order[-1] else same(db, bucket)
                    undone += 1
                check(db)
        assert all(end == ends[0] for end in ends)
        assert before == stored(db, bucket)
        history.random.shuffle(events)
        for event in events:
            undo(db, event)
            undone += 1
        end = same(db, bucket)
        assert {row["status"] for row in end.values()} & {"merged", "rejected"} == set()
    check(db)
    assert undone > 50


@pytest.mark.parametrize("seed", range(3))
def test_the_ledger_says_what_can_be_undone(db: DB, seed: int) -> None:
    """The view ledger, of every row, before and after a rehash whose events undo() refuses."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    db.execute("select set_policy('acme', 'default', canonicalizer => 'exact')")
    history = History(db, "default", seed)
    history.run(50)
    ingest(db, "It rains")
    ingest(db, "it rains")
    events = "select event_id, is_undoable, method = 'rehash' from memfold.ledger order by event_id"
    for rehashed in (False, True):
        found = db.execute(events).fetchall()
        for event, is_undoable, _ in found:
            code = None
            try:
                with db.transaction(force_rollback=True):
                    undo(db, event)
            except psycopg.Error as error:
                code = error.sqlstate
            assert (code is None) == is_undoable, (event, code)
            assert code in (None, "MF032", "MF033")
        assert {is_undoable for _, is_undoable, _ in found} == {True, False}
        assert any(is_rehash for _, _, is_rehash in found) == rehashed
        if not rehashed:
            db.execute("call memfold.rehash_bucket('acme', 'default', 'flat')")


def test_random_calls_continue_after_undos(db: DB) -> None:
    """Undone, then folded, retired and restated again, then undone again."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    history = History(db, "default", 7)
    for _ in range(4):
        history.run(15)
        for _ in range(3):
            history.undo()
            same(db)
    check(db)


def test_six_connections_at_once(db: DB, connect: Connect) -> None:
    """6 connections do all of it to one bucket: only what may be retried is raised, and the ledger explains the end."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    histories = [History(connect(), "default", seed) for seed in range(6)]
    errors: list[BaseException] = []

    def live(history: History) -> None:
        for _ in range(15):
            try:
                history.run(1)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=live, args=(history,)) for history in histories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(same(db)) > 5
    check(db)


# Readable cases -----------------------------------------------------------------------------------------------------


def text(db: DB, content: str) -> UUID:
    row = db.execute("select memory_id from memories where content = %s", [content]).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def person(db: DB, function: str, *arguments: Any) -> Result:
    places = ", ".join(["%s"] * len(arguments))
    row = db.execute(
        f"select * from memfold.{function}({places}, tenant_id => 'acme')", list(arguments)
    ).fetchone()
    assert row is not None
    return Result(*row)


def answer(db: DB, verdict: str, **arguments: Any) -> Any:
    """Answer the only open judgement."""
    names = "".join(f", {name} => %s" for name in arguments)
    row = db.execute(
        f"select * from resolve_judgement((select judgement_id from judgements"
        f" where tenant_id = 'acme' and status = 'open'), %s{names},"
        " tenant_id => 'acme')",
        [verdict, *arguments.values()],
    ).fetchone()
    assert row is not None
    return row


def open_judgements(db: DB) -> list[tuple[Any, ...]]:
    return db.execute("select kind, memory_id, other_id from judgements where status = 'open'").fetchall()


@pytest.mark.core
def test_a_merge_whose_alias_was_restated(db: DB) -> None:
    """X is merged into R, gets 3 more observations, Y is merged (X is nearer): undoing X -> R leaves Y where it is."""
    model(db)
    r = ingest(db, "User prefers dark mode", source_turn_ids=["a"], source_confidence=0.3, **vector(1.0))
    fold = ingest(
        db, "The user likes dark mode best", source_turn_ids=["b"], source_confidence=0.9, **vector(0.95)
    )
    x = text(db, "The user likes dark mode best")
    for turn in ("b", "c", "d"):
        assert ingest(db, "The user likes dark mode best", source_turn_ids=[turn]).method == "alias"
    y = ingest(db, "Dark mode is liked best by the user", source_turn_ids=["e"], **vector(0.93))
    assert (fold.action, y.action, y.memory_id) == ("merged", "merged", r.memory_id)
    assert y.similarity == pytest.approx(0.93)
    nearer = 0.93 * 0.95 + math.sqrt(1 - 0.93**2) * math.sqrt(1 - 0.95**2)
    assert (y.similar[0]["matched_id"], y.similar[0]["matched_similarity"]) == (str(x), pytest.approx(nearer))
    assert counters(db, r.memory_id)["observations"] == 6

    told = undo(db, fold.event_id, "they differ")
    assert told == [
        (r.memory_id, "active", "User prefers dark mode"),
        (x, "active", "The user likes dark mode best"),
    ]
    mine, own = counters(db, r.memory_id), counters(db, x)
    assert (mine["observations"], mine["independent"], mine["aliases"]) == (2, 2, 1)
    assert (own["observations"], own["independent"], own["aliases"]) == (4, 3, 0)
    assert (mine["source_confidence"], own["source_confidence"]) == (0.5, 0.9)
    # recorded as distinct, so that no sweep folds it again, and nobody is asked
    assert db.execute(
        "select kind, status, verdict, memory_id, other_id, reason from judgements"
    ).fetchall() == [("review", "done", "distinct", x, r.memory_id, "undone: they differ")]
    assert ingest(db, "The user likes dark mode best").memory_id == x
    same(db)
    undo(db, y.event_id)
    assert status(db, text(db, "Dark mode is liked best by the user")) == "active"
    same(db)
    check(db)


def test_an_alias_of_an_alias(db: DB) -> None:
    model(db)
    r = ingest(db, "User prefers dark mode", **vector(1.0))
    fold = ingest(db, "The user likes dark mode best", **vector(0.95))
    x = text(db, "The user likes dark mode best")
    s = ingest(db, "Dark it must be", subject="user", **vector(1.0))
    merged = person(db, "merge_memories", r.memory_id, s.memory_id)
    t = ingest(db, "No light on my screen", subject="screen", **vector(1.0))
    again = person(db, "merge_memories", x, t.memory_id)  # x stands for its root s
    assert (merged.memory_id, again.memory_id) == (s.memory_id, t.memory_id)
    assert ingest(db, "The user likes dark mode best").memory_id == t.memory_id
    assert counters(db, t.memory_id)["observations"] == 5

    undo(db, merged.event_id)
    assert counters(db, t.memory_id)["observations"] == 2
    assert counters(db, r.memory_id)["observations"] == 3
    same(db)
    undo(db, fold.event_id)
    assert (counters(db, r.memory_id)["observations"], counters(db, x)["observations"]) == (1, 2)
    undo(db, again.event_id)
    assert {status(db, m) for m in (r.memory_id, x, s.memory_id, t.memory_id)} == {"active"}
    same(db)
    check(db)


def test_a_refinement(db: DB) -> None:
    model(db)
    old = ingest(db, "User likes Vim", **vector(1.0))
    new = ingest(db, "User likes Vim, with the arrow keys off", **vector(0.9))
    resolved = answer(db, "refinement", model="a model")
    assert resolved[2:4] == ("replaced", new.memory_id)
    ingest(db, "User likes Vim", source_turn_ids=["t"])
    undo(db, resolved[4])
    assert (counters(db, old.memory_id)["observations"], counters(db, new.memory_id)["observations"]) == (
        2,
        1,
    )
    assert open_judgements(db) == []
    same(db)
    check(db)


def test_a_synthesis_is_two_merges(db: DB) -> None:
    a = ingest(db, "User likes Vim")
    b = ingest(db, "User dislikes arrow keys")
    db.execute(
        "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id)"
        " select tenant_id, bucket_id, scope_key, 'synthesis', memory_id, %s from memories where memory_id = %s",
        [a.memory_id, b.memory_id],
    )
    whole = answer(db, "duplicate", merged_text="User likes Vim without arrow keys", model="a model")[3]
    first, second = db.execute(
        "select event_id, target_id from memory_events where action = 'replaced' order by event_id"
    ).fetchall()
    assert (first[1], second[1]) == (a.memory_id, b.memory_id)
    assert counters(db, whole)["observations"] == 2
    undo(db, second[0])
    assert (status(db, a.memory_id), status(db, b.memory_id), status(db, whole)) == (
        "merged",
        "active",
        "active",
    )
    same(db)
    undo(db, first[0])
    assert (status(db, a.memory_id), status(db, whole)) == ("active", "withdrawn")
    same(db)
    check(db)


def test_an_update(db: DB) -> None:
    old = ingest(db, "User likes Vmi", source_turn_ids=["a"])
    edit = person(db, "update_memory", old.memory_id, "User likes Vim")
    assert status(db, old.memory_id) == "merged"
    undo(db, edit.event_id)
    assert (status(db, old.memory_id), status(db, edit.memory_id)) == ("active", "withdrawn")
    # restated, it is a memory like any other, and can be undone again
    revived = ingest(db, "User likes Vim")
    assert (revived.action, revived.tier, revived.memory_id) == ("inserted", 1, edit.memory_id)
    same(db)
    undo(db, revived.event_id)
    assert status(db, edit.memory_id) == "withdrawn"
    same(db)
    check(db)


def test_a_restatement(db: DB) -> None:
    first = ingest(db, "User likes Vim", source_turn_ids=["a"], source_confidence=0.2, observed_at="2026-01-05",
                   metadata={"k": 1})  # fmt: skip
    again = ingest(db, "User likes Vim", source_turn_ids=["a", "b"], source_confidence=0.9, observed_at="2026-02-05",
                   metadata={"k": 2})  # fmt: skip
    assert undo(db, again.event_id) == [(first.memory_id, "active", "User likes Vim")]
    found = counters(db, first.memory_id)
    assert (found["observations"], found["independent"], found["source_confidence"]) == (1, 1, 0.2)
    assert found["first_seen"] == found["last_seen"]
    assert db.execute("select metadata from memories").fetchall() == [({"k": 1},)]
    assert db.execute("select source_turn_id from memory_sources").fetchall() == [("a",)]
    same(db)
    check(db)


def test_a_rejection(db: DB) -> None:
    model(db)
    root = ingest(db, "User prefers dark mode", **vector(1.0))
    ingest(db, "The user likes dark mode best", **vector(0.95))
    rejection = person(db, "reject_memory", root.memory_id)
    assert ingest(db, "The user likes dark mode best").action == "rejected"
    assert undo(db, rejection.event_id)[0][1] == "active"
    assert ingest(db, "The user likes dark mode best").action == "merged"
    assert counters(db, root.memory_id)["observations"] == 3
    same(db)
    check(db)


def says(db: DB, place: str, at: str, **more: Any) -> Result:
    arguments = {"subject": "Ann", "predicate": "works_at", "object": place, "observed_at": f"2026-{at}"}
    return ingest(db, f"Ann works at {place}", **{**arguments, **more})


def test_a_supersession_by_ingest(db: DB) -> None:
    """The two values hold together, nobody is asked, and the next one takes the place of both."""
    db.execute("select set_predicate('works_at', 'acme')")
    a, b = says(db, "VW", "01-01"), says(db, "Stripe", "03-01")
    told = undo(db, b.event_id)
    assert [row[1] for row in told] == ["active", "active"]
    assert db.execute("select count(*) from memory_intervals where valid_to is null").fetchone() == (2,)
    assert open_judgements(db) == []
    same(db)
    # restated, they still hold together
    assert says(db, "VW", "04-01").action == "merged"
    assert [status(db, m.memory_id) for m in (a, b)] == ["active", "active"]
    same(db)
    says(db, "BMW", "05-01")
    assert [status(db, m.memory_id) for m in (a, b)] == ["superseded", "superseded"]
    same(db)
    check(db)


def test_a_person_who_tells_values_apart(db: DB) -> None:
    """`distinct` from a person lets two values of a slot hold together; undone, they exclude each other again."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    slot = {"subject": "Ann", "predicate": "works_at"}
    a = ingest(db, "Ann works at VW", observed_at="2026-01-01", **slot, **vector(1.0))
    b = ingest(db, "Ann works with VW", observed_at="2026-02-01", **slot, **vector(0.9, axis=2))
    assert b.action == "escalated"
    assert [status(db, m.memory_id) for m in (a, b)] == ["superseded", "active"]
    judged = answer(db, "distinct")[4]
    assert [status(db, m.memory_id) for m in (a, b)] == ["active", "active"]
    same(db)
    undo(db, judged)
    assert [status(db, m.memory_id) for m in (a, b)] == ["superseded", "active"]
    same(db)
    check(db)


def test_a_supersession_before_others(db: DB) -> None:
    """VW, Stripe, BMW: if the first supersession is undone, VW and Stripe hold together until BMW."""
    db.execute("select set_predicate('works_at', 'acme')")
    a, b, c = says(db, "VW", "01-01"), says(db, "Stripe", "03-01"), says(db, "BMW", "05-01")
    undo(db, b.event_id)
    assert [status(db, m.memory_id) for m in (a, b, c)] == ["superseded", "superseded", "active"]
    same(db)
    undo(db, c.event_id)
    # VW and BMW were not recorded as distinct
    assert [status(db, m.memory_id) for m in (a, b, c)] == ["superseded", "active", "active"]
    same(db)
    d = says(db, "Seat", "07-01")
    assert d.action == "superseded"
    assert [status(db, m.memory_id) for m in (a, b, c, d)] == [
        "superseded",
        "superseded",
        "superseded",
        "active",
    ]
    same(db)
    check(db)


def test_a_late_arrival(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    says(db, "Stripe", "03-01")
    late = says(db, "VW", "01-01")
    assert late.action == "historical"
    undo(db, late.event_id)
    assert db.execute("select status from memories").fetchall() == [("active",), ("active",)]
    same(db)
    check(db)


@pytest.mark.parametrize("by", ["judge", "person"])
def test_a_judged_supersession(db: DB, by: str) -> None:
    """On a predicate of many values: restated in between, undone, and the other way round after a review."""
    model(db)
    a = ingest(db, "User likes tea", observed_at="2026-01-01", **vector(1.0))
    b = ingest(db, "User likes no tea", observed_at="2026-02-01", **vector(0.97))
    assert b.action == "escalated"
    if by == "judge":
        event = answer(db, "contradiction", model="a model")[4]
    else:
        answer(db, "distinct")
        event = person(db, "supersede_memory", a.memory_id, b.memory_id).event_id
    assert (status(db, a.memory_id), status(db, b.memory_id)) == ("superseded", "active")
    back = ingest(db, "User likes tea")
    assert (back.action, back.method, back.superseded_id) == ("superseded", "timeline", b.memory_id)
    assert (status(db, a.memory_id), status(db, b.memory_id)) == ("active", "superseded")
    same(db)
    undo(db, event)
    assert (status(db, a.memory_id), status(db, b.memory_id)) == ("active", "active")
    assert counters(db, a.memory_id)["observations"] == 2
    assert open_judgements(db) == []
    same(db)
    check(db)


def test_a_restatement_that_brought_a_value_back(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    a, b, again = says(db, "VW", "01-01"), says(db, "Stripe", "03-01"), says(db, "VW", "05-01")
    assert again.tier == 1
    undo(db, again.event_id)
    assert (status(db, a.memory_id), status(db, b.memory_id)) == ("superseded", "active")
    assert open_judgements(db) == []
    same(db)
    undo(db, b.event_id)
    same(db)
    check(db)


def test_a_merge_across_scopes(db: DB) -> None:
    db.execute("select set_predicate('works_at', 'acme')")
    says(db, "VW", "01-01")
    b = says(db, "Stripe", "03-01")
    c = ingest(db, "Ann is with Stripe", subject="Ann", observed_at="2026-04-01")
    merged = person(db, "merge_memories", c.memory_id, b.memory_id)
    assert counters(db, b.memory_id)["observations"] == 2
    undo(db, merged.event_id)
    assert (status(db, b.memory_id), status(db, c.memory_id)) == ("active", "active")
    assert open_judgements(db) == []
    same(db)
    check(db)


def test_what_an_undo_leaves_in_the_ledger(db: DB) -> None:
    model(db)
    r = ingest(db, "User prefers dark mode", **vector(1.0))
    fold = ingest(db, "The user likes dark mode best", **vector(0.95))
    before = db.execute("select * from memory_events order by event_id").fetchall()
    row = db.execute("select * from undo(%s, 'acme', 'wrong')", [fold.event_id]).fetchone()
    assert row is not None
    after = db.execute("select * from memory_events order by event_id").fetchall()
    assert after[:-1] == before
    assert db.execute(
        "select event_id, action, undoes, memory_id, target_id, reason, actor, observation from memory_events"
        " order by event_id desc limit 1"
    ).fetchone() == (
        row[0], "undone", fold.event_id, text(db, "The user likes dark mode best"), r.memory_id, "wrong",
        db.info.user, False,
    )  # fmt: skip


def apart(db: DB) -> list[str]:
    """The status of what tells texts apart because a merge was undone."""
    rows = db.execute("select status from judgements where verdict = 'distinct' order by judgement_id")
    return [row[0] for row in rows]


def test_an_undo_is_undone_and_that_too(db: DB) -> None:
    """The last row about an event decides its state; only that row can be undone."""
    model(db)
    root = ingest(db, "User prefers dark mode", source_turn_ids=["a"], **vector(1.0))
    fold = ingest(db, "The user likes dark mode best", source_turn_ids=["b"], **vector(0.95))
    merged = same(db)
    events = [fold.event_id]
    for turn, says in enumerate(["undone", "restored", "undone", "restored"]):
        row = db.execute("select event_id from undo(%s, 'acme')", [events[-1]]).fetchone()
        assert row is not None
        for earlier in events[turn > 0 :]:
            with pytest.raises(psycopg.Error) as error:
                undo(db, earlier)
            assert error.value.sqlstate == "MF033"
        events.append(row[0])
        assert db.execute("select action, undoes from memory_events where event_id = %s", [row[0]]).fetchone() == (
            says, fold.event_id,
        )  # fmt: skip
        # each time it is undone the two are told apart, until it is restored
        assert apart(db) == ["obsolete"] * (turn // 2) + [["done", "obsolete"][turn % 2]]
        if says == "restored":
            assert same(db) == merged
            assert counters(db, root.memory_id)["observations"] == 2
        check(db)
    # the event is in force, and can be undone as before
    assert {row[1] for row in undo(db, fold.event_id)} == {"active"}


def test_a_restatement_counts_again(db: DB) -> None:
    ingest(db, "User likes tea", source_turn_ids=["a"])
    again = ingest(db, "User likes tea", source_turn_ids=["b"])
    before = same(db)
    row = db.execute("select event_id from undo(%s, 'acme')", [again.event_id]).fetchone()
    assert row is not None
    # the next statement of the turn counts as the first until the earlier one is restored
    ingest(db, "User likes tea", source_turn_ids=["b"])
    undo(db, row[0])
    assert db.execute("select event_id from memory_sources where source_turn_id = 'b'").fetchone() == (
        again.event_id,
    )
    after = same(db)
    assert [one["sources"] for one in after.values()] == [one["sources"] for one in before.values()]
    assert [one["independent"] for one in after.values()] == [2]
    check(db)


def test_a_merge_that_would_make_a_circle_is_not_restored(db: DB) -> None:
    a, b = (ingest(db, content) for content in ("User likes tea", "Tea is liked"))
    merged = person(db, "merge_memories", b.memory_id, a.memory_id)
    row = db.execute("select event_id from undo(%s, 'acme')", [merged.event_id]).fetchone()
    assert row is not None
    other = person(db, "merge_memories", a.memory_id, b.memory_id)
    before = same(db)
    with pytest.raises(psycopg.Error) as error:
        undo(db, row[0])
    assert (error.value.sqlstate, error.value.diag.message_primary) == (
        "MF032",
        "the event cannot be restored",
    )
    assert error.value.diag.message_hint
    assert same(db) == before
    undo(db, other.event_id)
    undo(db, row[0])
    assert status(db, b.memory_id) == "merged"
    check(db)


def test_what_cannot_be_undone(db: DB) -> None:
    model(db)
    first = ingest(db, "User likes tea", **vector(1.0))
    second = ingest(db, "User likes no tea", **vector(0.97))
    recalled = ingest(db, "Something else", origin="recalled")
    rejection = person(db, "reject_memory", first.memory_id)
    tombstone = ingest(db, "User likes tea")
    undone = db.execute("select event_id from undo(%s, tenant_id => 'acme')", [rejection.event_id]).fetchone()
    assert undone is not None
    for event in (first.event_id, second.event_id, recalled.event_id, tombstone.event_id):
        with pytest.raises(psycopg.Error) as error:
            undo(db, event)
        assert error.value.sqlstate == "MF032"
        assert error.value.diag.message_detail
        assert error.value.diag.message_hint
    with pytest.raises(psycopg.Error) as error:
        undo(db, rejection.event_id)
    assert error.value.sqlstate == "MF033"
    for unknown in (first.memory_id, None):
        with pytest.raises(psycopg.Error) as error:
            undo(db, unknown)
        assert error.value.sqlstate == "MF029"
    same(db)
    check(db)


def test_another_tenants_event(db: DB, app: Any) -> None:
    ingest(db, "User likes Vim", tenant_id="globex")
    theirs = ingest(db, "User likes Vim", tenant_id="globex")
    mine = app("acme")
    with pytest.raises(psycopg.Error) as error:
        mine.execute("select undo(%s)", [theirs.event_id])
    assert error.value.sqlstate == "MF029"
    with pytest.raises(psycopg.Error) as error:
        mine.execute("select undo(%s, tenant_id => 'globex')", [theirs.event_id])
    assert error.value.sqlstate == "MF002"
    assert counters(db, theirs.memory_id)["observations"] == 2


def test_an_undone_contradiction_leaves_no_timeline(db: DB) -> None:
    """The loser was stated again since: that row names the winner too, and puts it on no timeline."""
    old = ingest(db, "User likes tea", observed_at="2026-01-01")
    new = ingest(db, "User likes coffee", observed_at="2026-01-02")
    row = db.execute(
        "select event_id from supersede_memory(%s, %s, tenant_id => 'acme')", [old.memory_id, new.memory_id]
    ).fetchone()
    assert row is not None
    again = ingest(db, "User likes tea")
    assert (again.action, again.tier, again.superseded_id) == ("superseded", 1, new.memory_id)
    undo(db, row[0])
    assert (status(db, old.memory_id), status(db, new.memory_id)) == ("active", "active")
    assert not counters(db, new.memory_id)["on_timeline"]
    assert db.execute("select count(*) from memory_intervals").fetchone() == (0,)
    same(db)
