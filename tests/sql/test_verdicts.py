"""Tier 3 in SQL: the effect of an answer."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.judging import answer, ask, call, claim, elapse, event, fail, pair, raises, resolve, state
from tests.support.memories import Result, check, counters, ingest, model, status, statuses, vector
from tests.support.queries import DB, Connect


@pytest.fixture
def m(db: DB) -> DB:
    model(db)
    return db


# Verdicts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["write", "review"])
def test_duplicate(m: DB, kind: str) -> None:
    """Folds the newer into the older, even where the newer says more."""
    m.execute("select set_policy('acme', on_ambiguous => %s)", ["judge" if kind == "write" else "review"])
    a, b = pair(m, newer="User enjoys tea every day")
    r = resolve(m, b.judgement_id, "duplicate", confidence=0.8, reason="same claim", model="a", input_tokens=200,
                output_tokens=20, cost=0.001)  # fmt: skip
    assert (r.status, r.verdict, r.action, r.memory_id) == ("done", "duplicate", "merged", a.memory_id)
    assert event(m, r.event_id) == (
        "merged", 3, "judge", b.memory_id, a.memory_id, "duplicate", b.judgement_id, False,
    )  # fmt: skip
    assert statuses(m, a, b) == ["active", "merged"]
    assert counters(m, a.memory_id)["observations"] == 2
    assert m.execute(
        "select kind, status, verdict, confidence, reason, model, input_tokens, output_tokens, cost,"
        " resolved_at between created_at and clock_timestamp() from judgements"
    ).fetchall() == [(kind, "done", "duplicate", 0.8, "same claim", "a", 200, 20, 0.001, True)]
    check(m)


LONG = "User likes tea with milk"
SHORT = "User likes tea"


@pytest.mark.parametrize("kind", ["write", "review", "consolidation"])
def test_refinement(m: DB, kind: str) -> None:
    """The richer text becomes active: the judge's choice, else the longer one."""
    for older, newer, richer, keeps in (
        (SHORT, LONG, None, "newer"),
        (LONG, SHORT, None, "older"),
        (LONG, SHORT, "newer", "newer"),
        (SHORT, LONG, "older", "older"),
    ):
        bucket = f"{older}, {richer}"
        a, b = ingest(m, older, bucket_id=bucket), ingest(m, newer, bucket_id=bucket)
        sides = {"older": a, "newer": b}
        r = resolve(
            m, ask(m, a, b, kind), "refinement", richer_memory_id=sides[richer].memory_id if richer else None
        )
        kept = sides.pop(keeps).memory_id
        [folded] = sides.values()
        assert (r.action, r.memory_id) == ("replaced" if keeps == "newer" else "merged", kept)
        assert event(m, r.event_id)[:5] == (r.action, 3, "person", b.memory_id, a.memory_id)
        assert [status(m, kept), status(m, folded)] == ["active", "merged"]
        assert {ingest(m, text, bucket_id=bucket).memory_id for text in (older, newer)} == {kept}
    check(m)


def test_distinct(m: DB) -> None:
    for kind in ("write", "review", "consolidation", "synthesis"):
        a, b = ingest(m, "User likes tea", bucket_id=kind), ingest(m, "User likes to eat", bucket_id=kind)
        asked = ask(m, a, b, kind)
        r = resolve(m, asked, "distinct", merged_text="User likes tea and to eat")
        assert (r.status, r.verdict, r.action) == ("done", "distinct", "judged")
        assert event(m, r.event_id) == (
            "judged",
            3,
            "person",
            b.memory_id,
            a.memory_id,
            "distinct",
            asked,
            False,
        )
        assert statuses(m, a, b) == ["active", "active"]
    assert m.execute("select count(*) from memories").fetchone() == (8,)
    check(m)


def test_the_confidence_floor(m: DB) -> None:
    """0.75 by default: below it the answer is not applied."""
    for floor, confidence, verdict in (
        (None, 0.74, "unsure"), (None, 0.75, "duplicate"), (0.9, 0.89, "unsure"), (0.9, 0.9, "duplicate"),
        (0, 0, "duplicate"),
    ):  # fmt: skip
        bucket = f"{floor} {confidence}"
        if floor is not None:
            m.execute("select set_policy('acme', %s, confidence_floor => %s)", [bucket, floor])
        a, b = pair(m, bucket_id=bucket)
        r = resolve(m, b.judgement_id, "duplicate", confidence=confidence, reason="maybe")
        assert r.verdict == verdict
        assert event(m, r.event_id)[5] == verdict
        kept = m.execute(
            "select verdict, confidence, reason from judgements where judgement_id = %s", [b.judgement_id]
        ).fetchone()
        if verdict == "unsure":
            assert (r.action, statuses(m, a, b)) == ("judged", ["active", "active"])
            assert kept == ("unsure", confidence, "duplicate: maybe")
        else:
            assert (r.action, statuses(m, a, b)) == ("merged", ["active", "merged"])
            assert kept == ("duplicate", confidence, "maybe")
    check(m)


@pytest.mark.parametrize("verdict", ["duplicate", "refinement"])
def test_a_merged_text(m: DB, verdict: str) -> None:
    about = {"subject": "User", "predicate": "likes"}
    a = ingest(
        m, "User likes tea", source_turn_ids=["a"], source_confidence=0.3, metadata={"x": 1, "y": 1}, **about
    )
    b = ingest(
        m, "User likes milk in tea", source_turn_ids=["b"], source_confidence=0.9, metadata={"y": 2}, **about
    )
    r = resolve(m, ask(m, a, b, "synthesis"), verdict, merged_text="User likes tea with milk", model="a")
    assert (r.action, statuses(m, a, b)) == ("replaced", ["merged", "merged"])
    assert m.execute(
        "select content, subject, predicate, status, embedding_pending, metadata from memories where memory_id = %s",
        [r.memory_id],
    ).fetchone() == ("User likes tea with milk", "User", "likes", "active", True, {"x": 1, "y": 2})
    found = counters(m, r.memory_id)
    assert (found["observations"], found["independent"], found["aliases"]) == (2, 2, 2)
    assert found["source_confidence"] == 0.9
    assert event(m, r.event_id)[0] == "replaced"
    assert ingest(m, "User likes tea", **about).memory_id == r.memory_id
    check(m)


def test_a_merged_text_that_is_there_already(m: DB) -> None:
    a, b, c = (ingest(m, text) for text in ("User likes tea", "User likes milk", "User likes tea with milk"))
    r = resolve(m, ask(m, a, b, "synthesis"), "duplicate", merged_text="user likes tea with milk.")
    assert (r.action, r.memory_id) == ("replaced", c.memory_id)
    assert statuses(m, a, b, c) == ["merged", "merged", "active"]
    assert counters(m, c.memory_id)["observations"] == 3
    # the text of one side
    d = ingest(m, "User drinks tea")
    r = resolve(m, ask(m, c, d, "synthesis"), "duplicate", merged_text="User drinks tea")
    assert (r.memory_id, statuses(m, c, d)) == (d.memory_id, ["merged", "active"])
    # the text of an alias of one side
    e = ingest(m, "User is a tea drinker")
    r = resolve(m, ask(m, d, e, "synthesis"), "duplicate", merged_text="User likes milk")
    assert (r.memory_id, statuses(m, d, e)) == (d.memory_id, ["active", "merged"])
    assert counters(m, d.memory_id)["observations"] == 5
    assert m.execute("select count(*) from memories").fetchone() == (5,)
    check(m)


def test_a_merged_text_that_a_person_rejected(m: DB) -> None:
    a, b, c = (ingest(m, text) for text in ("User likes tea", "User likes milk", "User likes tea with milk"))
    call(m, "reject_memory", c.memory_id, tenant_id="acme")
    r = resolve(m, ask(m, a, b, "synthesis"), "duplicate", merged_text="User likes tea with milk")
    assert (r.status, r.action) == ("done", "judged")
    assert statuses(m, a, b, c) == ["active", "active", "rejected"]
    check(m)


def test_a_merge_is_synthesised_where_the_policy_says_so(m: DB) -> None:
    """Pairs that tier 2 would have merged automatically wait for one text for both."""
    m.execute("select set_policy('acme', on_merge => 'synthesise')")
    a = ingest(m, "User likes tea", **vector(1.0))
    b = ingest(m, "User enjoys tea with milk", **vector(0.97))
    assert (b.action, b.method, b.similarity) == ("escalated", "vector", pytest.approx(0.97))
    assert m.execute("select kind from judgements where judgement_id = %s", [b.judgement_id]).fetchone() == (
        "synthesis",
    )
    r = resolve(m, b.judgement_id, "duplicate", merged_text="User likes tea, with milk", model="a")
    assert r.action == "replaced"
    assert statuses(m, a, b) == ["merged", "merged"]
    assert status(m, r.memory_id) == "active"
    check(m)


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_merged_text(m: DB, empty: str | None) -> None:
    """An empty synthesis keeps both and warns; if no text was requested, none is missing or used."""
    warnings: list[str | None] = []
    m.add_notice_handler(lambda d: warnings.append(d.message_primary))
    a, b = ingest(m, "User likes tea"), ingest(m, "User enjoys tea")
    judgement_id = ask(m, a, b, "synthesis")
    r = resolve(m, judgement_id, "duplicate", merged_text=empty)
    assert (r.action, statuses(m, a, b)) == ("judged", ["active", "active"])
    assert len(warnings) == 1
    assert warnings[0] is not None
    assert str(judgement_id) in warnings[0]
    r = resolve(
        m, ask(m, a, b, "consolidation"), "duplicate", merged_text=empty or "User likes and enjoys tea"
    )
    assert (r.action, statuses(m, a, b)) == ("merged", ["active", "merged"])
    assert len(warnings) == 1
    check(m)


def test_a_merged_text_that_cannot_be(m: DB) -> None:
    """It is checked like a caller's text: the answer is refused, and the question stays."""
    a, b = ingest(m, "User likes tea"), ingest(m, "User enjoys tea")
    judgement_id = ask(m, a, b, "synthesis")
    with pytest.raises(psycopg.Error) as error:
        resolve(m, judgement_id, "duplicate", merged_text="tea " * 30_000)
    assert error.value.sqlstate == "MF005"
    assert state(m, judgement_id)[0] == "open"
    assert statuses(m, a, b) == ["active", "active"]


# Contradictions -----------------------------------------------------------------------------------------------------


CONFLICTS = {
    "newest_wins": ("superseded", ["superseded", "active"]),
    "keep_existing": ("rejected", ["active", "rejected"]),
    "keep_both": ("judged", ["active", "active"]),
    "review": ("escalated", ["active", "active"]),
}


@pytest.mark.parametrize("by", ["bucket", "predicate"])
def test_a_contradiction(m: DB, by: str) -> None:
    m.execute("select set_policy('acme', conflict => 'keep_both')")
    for conflict, (action, after) in CONFLICTS.items():
        if by == "bucket":
            m.execute("select set_policy('acme', %s, conflict => %s)", [conflict, conflict])
        else:
            m.execute(
                "select set_predicate('likes', 'acme', cardinality => 'many', conflict => %s)", [conflict]
            )
        about = {"bucket_id": conflict, "subject": "User", "predicate": "likes"}
        a, b = pair(m, "User likes tea", "User likes no tea", **about)
        r = resolve(m, b.judgement_id, "contradiction", model="a")
        assert (r.verdict, r.action) == ("contradiction", action)
        assert statuses(m, a, b) == after
        reviews = m.execute(
            "select kind, status, memory_id, other_id from judgements where bucket_id = %s and judgement_id <> %s",
            [conflict, b.judgement_id],
        ).fetchall()
        assert reviews == ([("review", "open", b.memory_id, a.memory_id)] if conflict == "review" else [])
        if conflict == "newest_wins":
            assert event(m, r.event_id)[:6] == (
                "superseded",
                3,
                "judge",
                b.memory_id,
                a.memory_id,
                "contradiction",
            )
            assert r.memory_id == b.memory_id
        elif conflict == "keep_existing":
            assert event(m, r.event_id)[:4] == ("rejected", 3, "judge", b.memory_id)
            assert r.memory_id == a.memory_id
            again = ingest(m, "User likes no tea", **about)
            assert (again.action, again.method) == ("rejected", "tombstone")
        else:
            assert event(m, r.event_id)[0] == "judged"
    check(m)


@pytest.mark.parametrize("conflict", ["review", "keep_existing", "keep_both"])
def test_a_person_decides_a_contradiction(m: DB, conflict: str) -> None:
    """Answering a review judgement decides it: the newest wins, whatever the policy."""
    m.execute("select set_policy('acme', conflict => %s)", [conflict])
    a, b = pair(m, "User likes tea", "User likes no tea")
    if conflict == "review":
        resolve(m, b.judgement_id, "contradiction", model="a")
        judgement_id: UUID | None = claim(m, review=True)[0].judgement_id
    else:
        m.execute("update judgements set kind = 'review'")
        judgement_id = b.judgement_id
    r = resolve(m, judgement_id, "contradiction")
    assert (r.action, r.memory_id) == ("superseded", b.memory_id)
    assert statuses(m, a, b) == ["superseded", "active"]
    assert m.execute("select count(*) from judgements where status = 'open'").fetchone() == (0,)
    check(m)


@pytest.mark.parametrize("slot", [False, True], ids=["text", "slot"])
@pytest.mark.parametrize(("confidence", "action"), [(0.9, "superseded"), (0.1, "judged")])
def test_a_person_is_not_asked_again(m: DB, slot: bool, confidence: float, action: str) -> None:
    """Where a person answers a question for a model, and contradictions are for a person."""
    m.execute("select set_policy('acme', conflict => 'review'), set_predicate('likes', 'acme')")
    where = {"subject": "User", "predicate": "likes"} if slot else {}
    _, b = pair(m, "User likes tea", "User likes no tea", **where)
    r = resolve(m, b.judgement_id, "contradiction", confidence=confidence)
    assert r.action == action
    assert m.execute("select count(*) from judgements where status = 'open'").fetchone() == (0,)
    check(m)


def test_the_newest_is_who_was_stated_last(m: DB) -> None:
    a, b = pair(m, "User likes tea", "User likes no tea", observed_at="2026-01-01")
    ingest(m, "User likes tea", observed_at="2026-02-01")
    r = resolve(m, b.judgement_id, "contradiction")
    assert (r.action, r.memory_id) == ("superseded", a.memory_id)
    assert event(m, r.event_id)[3:5] == (a.memory_id, b.memory_id)
    assert statuses(m, a, b) == ["active", "superseded"]
    check(m)


def test_ties_go_by_ledger_order(m: DB) -> None:
    a, b = pair(m, "User likes tea", "User likes no tea", observed_at="2026-01-01")
    ingest(m, "User likes tea", observed_at="2026-01-01")
    assert resolve(m, b.judgement_id, "contradiction").memory_id == a.memory_id
    check(m)


def intervals(db: DB) -> list[tuple[str, str, str | None]]:
    return db.execute(
        "select content, to_char(valid_from, 'MM-DD'), to_char(valid_to, 'MM-DD')"
        " from memory_intervals join memories using (tenant_id, memory_id) order by valid_from"
    ).fetchall()


@pytest.mark.parametrize(
    "about", [{}, {"subject": "User", "predicate": "likes", "object": "tea"}], ids=["plain", "many"]
)
def test_a_timeline_of_their_own(m: DB, about: dict[str, str]) -> None:
    """A judged contradiction where many values are allowed: A, B, A again; a stranger of the scope is not touched."""
    m.execute("select set_policy('acme', guard => 'off', merge_threshold => 0.999)")
    says = {**about, "observed_at": "2026-01-01"}
    stranger = ingest(m, "User likes long walks", **says, **vector(0.1, axis=3))
    a, b = pair(m, "User likes tea", "User likes no tea", **about, observed_at="2026-01-05")
    assert intervals(m) == []
    resolve(m, b.judgement_id, "contradiction", model="a")
    assert statuses(m, stranger, a, b) == ["active", "superseded", "active"]
    assert intervals(m) == [("User likes no tea", "01-05", None)]
    back = ingest(m, "User likes tea", **{**about, "observed_at": "2026-02-01"})
    assert (back.action, back.tier, back.method) == ("superseded", 1, "timeline")
    assert (back.memory_id, back.superseded_id) == (a.memory_id, b.memory_id)
    late = ingest(m, "User likes no tea", **{**about, "observed_at": "2026-01-20"})
    assert (late.action, late.method) == ("merged", "timeline")
    assert statuses(m, stranger, a, b) == ["active", "active", "superseded"]
    assert intervals(m) == [
        ("User likes no tea", "01-05", "02-01"), ("User likes tea", "02-01", None),
    ]  # fmt: skip
    check(m)


def test_two_contradictions_of_one_scope(m: DB) -> None:
    """Each is about its pair alone."""
    a = ingest(m, "User likes tea", observed_at="2026-01-01")
    b = ingest(m, "User likes no tea", observed_at="2026-01-02")
    c = ingest(m, "User lives in Rome", observed_at="2026-01-03")
    d = ingest(m, "User has left Rome", observed_at="2026-01-04")
    resolve(m, ask(m, a, b), "contradiction")
    resolve(m, ask(m, c, d), "contradiction")
    assert statuses(m, a, b, c, d) == ["superseded", "active", "superseded", "active"]
    ingest(m, "User likes tea", observed_at="2026-01-05")
    assert statuses(m, a, b, c, d) == ["active", "superseded", "superseded", "active"]
    # a third one, which contradicts one of them
    e = ingest(m, "User only likes green tea", observed_at="2026-01-06")
    resolve(m, ask(m, a, e), "contradiction")
    assert statuses(m, a, b, c, d, e) == ["superseded", "superseded", "superseded", "active", "active"]
    assert intervals(m) == [
        ("User likes tea", "01-01", "01-02"), ("User likes no tea", "01-02", "01-05"),
        ("User lives in Rome", "01-03", "01-04"), ("User has left Rome", "01-04", None),
        ("User likes tea", "01-05", "01-06"), ("User only likes green tea", "01-06", None),
    ]  # fmt: skip
    check(m)
    back = ingest(m, "User likes no tea", observed_at="2026-01-07")
    assert (back.action, back.superseded_id) == ("merged", None)
    assert statuses(m, a, b, c, d, e) == ["superseded", "active", "superseded", "active", "active"]
    check(m)


def test_the_objects_may_be_equal(m: DB) -> None:
    """A memory in a judged contradiction is its own value, whatever its object."""
    about = {"subject": "Ann", "predicate": "likes", "object": "tea"}
    a = ingest(m, "Ann likes tea", **about, observed_at="2026-01-01")
    b = ingest(m, "Ann has gone off tea", **about, observed_at="2026-01-02")
    resolve(m, ask(m, a, b), "contradiction")
    assert statuses(m, a, b) == ["superseded", "active"]
    check(m)


def test_a_contradiction_in_a_single_valued_slot(m: DB) -> None:
    m.execute("select set_predicate('works_at', 'acme')")
    about = {"subject": "Ann", "predicate": "works_at"}
    v = ingest(m, "Ann works at VW", **about, object="VW", observed_at="2026-01-01", **vector(0.1, axis=3))
    a = ingest(m, "Ann works at Stripe", **about, observed_at="2026-02-01", object="Stripe", **vector(1.0))
    b = ingest(m, "Ann worked at Stripe", **about, observed_at="2026-03-01", object="Stripe", **vector(0.9))
    assert (a.action, b.action) == ("superseded", "escalated")
    r = resolve(m, b.judgement_id, "contradiction", model="a")
    assert (r.action, statuses(m, v, a, b)) == ("superseded", ["superseded", "superseded", "active"])
    assert intervals(m) == [
        ("Ann works at VW", "01-01", "02-01"), ("Ann works at Stripe", "02-01", "03-01"),
        ("Ann worked at Stripe", "03-01", None),
    ]  # fmt: skip
    check(m)
    back = ingest(m, "Ann works at VW", **about, object="VW", observed_at="2026-04-01")
    assert (back.action, statuses(m, v, a, b)) == ("superseded", ["active", "superseded", "superseded"])
    check(m)


# Changes between question and answer --------------------------------------------------------------------------------


def test_a_side_was_merged_in_the_meantime(m: DB) -> None:
    """The question is asked again about the present roots; nothing is applied."""
    a, b = pair(m)
    [asked] = claim(m)
    c = ingest(m, "Tea is what the user likes", subject="tea")
    call(m, "merge_memories", b.memory_id, c.memory_id, tenant_id="acme")
    r = resolve(m, asked.judgement_id, "duplicate", confidence=0.9, model="a", input_tokens=7)
    assert (r.status, r.action, r.event_id) == ("open", None, None)
    assert statuses(m, a, b, c) == ["active", "merged", "active"]
    assert m.execute("select count(*) from memory_events where tier = 3").fetchone() == (1,)
    [again] = claim(m)
    assert (again.memory["memory_id"], again.other["memory_id"]) == (str(c.memory_id), str(a.memory_id))
    assert again.attempts == 1
    assert resolve(m, again.judgement_id, "duplicate", model="a").action == "merged"
    assert statuses(m, a, b, c) == ["active", "merged", "merged"]
    assert m.execute("select sum(input_tokens) from judgements").fetchone() == (7,)
    check(m)


def test_the_claim_looks_again(m: DB) -> None:
    a, b = pair(m)
    c = ingest(m, "Tea is what the user likes", subject="tea")
    call(m, "merge_memories", b.memory_id, c.memory_id, tenant_id="acme")
    d, e = pair(m, "User likes Vim", "User loves Vim", bucket_id="other")
    call(m, "merge_memories", e.memory_id, d.memory_id, tenant_id="acme")
    [asked] = claim(m)
    assert (asked.memory["memory_id"], asked.other["memory_id"]) == (str(c.memory_id), str(a.memory_id))
    assert state(m, e.judgement_id)[0] == "obsolete"
    check(m)


def test_a_late_answer_is_not_applied_to_another_pair(m: DB) -> None:
    """One worker's lease ended, and the pair was changed for the next: the first worker's answer is not about that
    pair."""
    a, b = pair(m)
    [first] = claim(m, "one")
    elapse(m, "61 seconds")
    c = ingest(m, "User likes coffee", subject="coffee")
    call(m, "merge_memories", b.memory_id, c.memory_id, tenant_id="acme")
    [second] = claim(m, "two")
    assert second.memory["memory_id"] == str(c.memory_id)
    assert second.judgement_id != first.judgement_id
    raises("MF027", resolve, m, first.judgement_id, "duplicate", model="a")
    assert fail(m, first.judgement_id, worker="one") == "obsolete"
    assert statuses(m, a, b, c) == ["active", "merged", "active"]
    # and where the second one's answer came first
    d = ingest(m, "User likes cocoa", subject="cocoa")
    call(m, "merge_memories", c.memory_id, d.memory_id, tenant_id="acme")
    assert resolve(m, second.judgement_id, "distinct", model="a").status == "open"
    raises("MF027", resolve, m, second.judgement_id, "duplicate", model="a")
    [third] = claim(m)
    assert third.memory["memory_id"] == str(d.memory_id)
    check(m)


@pytest.mark.parametrize("how", ["rejected", "folded", "withdrawn"])
def test_the_question_is_gone(m: DB, how: str) -> None:
    a, b = pair(m, subject="User", predicate="likes")
    [asked] = claim(m)
    if how == "rejected":
        call(m, "reject_memory", a.memory_id, tenant_id="acme")
    elif how == "folded":
        call(m, "merge_memories", b.memory_id, a.memory_id, tenant_id="acme")
    else:
        # as erasure will
        m.execute("set memfold.maintenance = on")
        m.execute("delete from memory_events where memory_id = %s and observation", [b.memory_id])
        m.execute("reset memfold.maintenance")
        m.execute("select memfold_internal._recount('acme', array[%s]::uuid[])", [b.memory_id])
        m.execute("select derive_scope(array[%s]::uuid[], 'acme')", [b.memory_id])
    before = m.execute("select count(*) from memory_events").fetchone()
    r = resolve(m, asked.judgement_id, "duplicate", model="a")
    assert (r.status, r.verdict, r.action, r.event_id) == ("obsolete", None, None, None)
    assert m.execute("select count(*) from memory_events").fetchone() == before
    found = m.execute(
        "select status, verdict, reason is not null, resolved_at is not null from judgements"
    ).fetchall()
    assert found == [("obsolete", None, True, True)]
    raises("MF027", resolve, m, asked.judgement_id, "duplicate")
    assert claim(m) == []
    check(m)


def test_a_second_answer(m: DB) -> None:
    a, b = pair(m)
    resolve(m, b.judgement_id, "distinct")
    raises("MF027", resolve, m, b.judgement_id, "duplicate")
    assert statuses(m, a, b) == ["active", "active"]
    assert state(m, b.judgement_id)[:2] == ("done", "distinct")


def test_two_answers_at_once(m: DB, connect: Connect) -> None:
    """The first verdict wins; the second gets an error that says so."""
    answered = 0
    workers = [connect() for _ in range(4)]
    for turn in range(10):
        bucket = f"round {turn}"
        _, b = pair(m, bucket_id=bucket)
        barrier = threading.Barrier(len(workers))
        outcomes: list[str] = []

        def work(
            i: int, b: Result = b, barrier: threading.Barrier = barrier, outcomes: list[str] = outcomes
        ) -> None:
            barrier.wait()
            verdict = ["duplicate", "refinement", "contradiction", "distinct"][i]
            try:
                found = resolve(workers[i], b.judgement_id, verdict, confidence=0.9)
                outcomes.append(f"{found.status} {found.verdict}")
            except psycopg.Error as error:
                outcomes.append(error.sqlstate or "")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes)[:3] == ["MF027"] * 3, outcomes
        assert sorted(outcomes)[3] == f"done {state(m, b.judgement_id)[1]}"
        answered += 1
        assert m.execute(
            "select count(*) from memory_events where bucket_id = %s and tier = 3", [bucket]
        ).fetchone() == (1,)
    assert answered == 10
    check(m)


def test_answers_that_are_refused(m: DB) -> None:
    a, b = pair(m)
    refused: list[tuple[str | None, dict[str, Any]]] = [
        ("same", {}), (None, {}), ("unsure", {}), ("", {}),
        ("duplicate", {"confidence": -0.01}), ("duplicate", {"confidence": 1.01}), ("duplicate", {"confidence": None}),
        ("duplicate", {"confidence": float("nan")}), ("duplicate", {"richer_memory_id": a.memory_id}),
        ("refinement", {"richer_memory_id": UUID(int=1)}), ("duplicate", {"input_tokens": -1}), ("duplicate", {"cost": -1}),
    ]  # fmt: skip
    for verdict, arguments in refused:
        raises("MF028", resolve, m, b.judgement_id, verdict, **arguments)
    assert state(m, b.judgement_id) == ("open", None, 0)
    assert statuses(m, a, b) == ["active", "active"]


def test_a_judgement_that_is_not_there(m: DB) -> None:
    _, b = pair(m)
    raises("MF026", resolve, m, UUID(int=0), "distinct")
    raises("MF026", resolve, m, None, "distinct")
    raises("MF026", resolve, m, b.judgement_id, "distinct", tenant_id="globex")


@pytest.mark.parametrize(("subject", "action"), [("Ann", "rejected"), ("Anna", "superseded")])
def test_a_contradiction_across_scopes_follows_the_buckets_rule(db: DB, subject: str, action: str) -> None:
    """The predicate's own rule is about one subject's values."""
    model(db)
    db.execute("select set_policy('acme', scope => 'bucket', conflict => 'newest_wins')")
    db.execute("select set_predicate('likes', 'acme', cardinality => 'many', conflict => 'keep_existing')")
    old = ingest(db, "Ann likes tea", subject="Ann", predicate="likes", **vector(1.0))
    new = ingest(db, f"{subject} does not like tea", subject=subject, predicate="likes", **vector(0.97))
    assert new.action == "escalated"
    assert answer(db, "contradiction", 0.9)[2] == action
    if action == "rejected":
        assert statuses(db, old, new) == ["active", "rejected"]
    else:
        assert statuses(db, old, new) == ["superseded", "active"]
    check(db)
