"""Texts that were told apart stay apart: the values of one slot, a run's merges that a person undid, an empty text."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.support.judging import pair, resolve
from tests.support.maintenance import angle, policy, set_options, store, storing
from tests.support.memories import Result, check, ingest, model, statuses, vector
from tests.support.queries import DB, rows

RUN = {"consolidate": "approval => 'person', dry_run => false", "sweep_duplicates": "dry_run => false"}
NUMBERS = ("one", "two", "three", "four")


# --- one value at a time ----------------------------------------------------------------------------------------


def employer(db: DB, text: str, at: str, cosine: float | None = None, **more: Any) -> Result:
    where = {} if cosine is None else vector(cosine)
    return ingest(db, text, subject="User", predicate="employer", observed_at=at, **where, **more)


def datakynd(db: DB, **options: Any) -> tuple[Result, Result]:
    """Two values of one slot that are near enough to be asked about."""
    model(db)
    names = "".join(f", {name} => %s" for name in options)
    db.execute(f"select set_predicate('employer', 'acme'{names})", list(options.values()))
    older = employer(db, "User runs Datakynd", "2026-01-01", 1)
    newer = employer(db, "User recently sold Datakynd", "2026-03-01", 0.87)
    assert newer.action == "escalated"
    return older, newer


@pytest.mark.parametrize("confidence", [0.91, 0.5])
def test_a_model_that_says_distinct_leaves_one_value_current(db: DB, confidence: float) -> None:
    older, newer = datakynd(db)
    assert statuses(db, older, newer) == ["superseded", "active"]
    found = resolve(db, newer.judgement_id, "distinct", confidence=confidence, model="m")
    assert (found.action, found.memory_id) == ("judged", newer.memory_id)
    assert statuses(db, older, newer) == ["superseded", "active"]
    assert rows(db, "select verdict from judgements") == [
        {"verdict": "distinct" if confidence > 0.75 else "unsure"}
    ]
    # a later value supersedes the current one
    later = employer(db, "User teaches", "2026-06-01", 0.1)
    assert (later.action, later.superseded_id) == ("superseded", newer.memory_id)
    assert statuses(db, older, newer, later) == ["superseded", "superseded", "active"]
    assert len(rows(db, "select * from memory_intervals where valid_to is null")) == 1
    check(db)


@pytest.mark.parametrize("verdict", ["contradiction", "distinct"])
@pytest.mark.parametrize("plain", [(True, True), (False, True)])
def test_values_that_a_plain_insert_has_brought(db: DB, verdict: str, plain: tuple[bool, bool]) -> None:
    """They are asked about as soon as they have vectors, which may be before maintenance processes them."""
    model(db)
    db.execute("select set_predicate('employer', 'acme')")
    ids: list[UUID] = []
    for text, is_plain in zip(("User runs Datakynd", "User sold Datakynd"), plain, strict=True):
        if is_plain:
            insert = (
                "insert into memories (tenant_id, bucket_id, memory_type, content, subject, predicate)"
                " values ('acme', 'default', 'fact', %s, 'User', 'employer') returning memory_id"
            )
            ids += [row["memory_id"] for row in rows(db, insert, text)]
        else:
            ids.append(store(db, text, subject="User", predicate="employer"))
    for memory_id, cosine in zip(ids, (1, 0.87), strict=True):
        vectors = [memory_id, vector(cosine)["embedding"]]
        db.execute("select attach_embedding(%s, %s, 'm', 'acme')", vectors)
    [asked] = rows(db, "select judgement_id from judgements where status = 'open'")
    found = resolve(db, asked["judgement_id"], verdict, model="m")
    action = "superseded" if verdict == "contradiction" else "judged"
    assert (found.action, found.memory_id) == (action, ids[1])
    db.execute("select ingest_plain_rows('acme')")
    held = rows(db, "select status from memories order by memory_id")
    assert [row["status"] for row in held] == ["superseded", "active"]
    check(db)


@pytest.mark.parametrize(
    ("conflict", "action", "held"),
    [
        ("keep_existing", "rejected", ["active", "rejected"]),
        ("keep_both", "judged", ["active", "active"]),
        ("review", "escalated", ["superseded", "active"]),
    ],
)
def test_distinct_values_under_the_other_policies(
    db: DB, conflict: str, action: str, held: list[str]
) -> None:
    older, newer = datakynd(db, conflict=conflict)
    found = resolve(db, newer.judgement_id, "distinct", model="m")
    assert found.action == action
    assert statuses(db, older, newer) == held
    if conflict == "review":
        [asked] = rows(db, "select judgement_id, kind from judgements where status = 'open'")
        assert asked["kind"] == "review"
        # a person has the last word
        assert resolve(db, asked["judgement_id"], "distinct").action == "judged"
        assert statuses(db, older, newer) == ["active", "active"]
    check(db)


def test_the_last_of_several_distinct_texts_of_one_value_is_shown(db: DB) -> None:
    model(db)
    db.execute("select set_predicate('employer', 'acme')")
    one = employer(db, "User works for VW", "2026-01-01", 1, object="VW")
    other = employer(db, "User is at VW in Berlin", "2026-03-01", 0.87, object="vw")
    assert resolve(db, other.judgement_id, "distinct", model="m").action == "judged"
    assert statuses(db, one, other) == ["superseded", "active"]
    check(db)


def test_the_older_value_does_not_win_because_its_question_came_late(db: DB) -> None:
    model(db)
    db.execute("select set_predicate('employer', 'acme')")
    newer = employer(db, "User recently sold Datakynd", "2026-03-01", 1)
    older = employer(db, "User runs Datakynd", "2026-01-01", 0.87)
    found = resolve(db, older.judgement_id, "distinct", model="m")
    assert found.action == "judged"
    assert statuses(db, older, newer) == ["superseded", "active"]
    check(db)


@pytest.mark.parametrize("verdict", ["distinct", "duplicate"])
def test_a_value_that_comes_while_two_are_asked_about_retires_both(db: DB, verdict: str) -> None:
    older, newer = datakynd(db)
    later = employer(db, "User teaches", "2026-06-01", 0.1)
    assert later.superseded_id == newer.memory_id
    assert resolve(db, newer.judgement_id, verdict, model="m").status == "done"
    assert statuses(db, older, newer, later) == [
        "superseded", "superseded" if verdict == "distinct" else "merged", "active",
    ]  # fmt: skip
    check(db)


# --- what a run merged and a person undid -------------------------------------------------------------------


def asked_by(db: DB, function: str) -> list[dict[str, Any]]:
    return rows(db, f"select * from {function}('acme', 'default', {RUN[function]})")


def four(db: DB) -> list[UUID]:
    model(db)
    storing(db)
    return [store(db, f"Tea is good, says number {n}", **angle(5 * k)) for k, n in enumerate(NUMBERS)]


def quiet(db: DB) -> None:
    """No run proposes, queues or merges anything."""
    for function in RUN:
        assert asked_by(db, function) == []
        assert rows(db, f"select * from {function}('acme', 'default')") == []
    assert rows(db, "select * from judgements where status in ('open', 'leased')") == []
    assert rows(db, "select * from memories where status <> 'active'") == []


@pytest.mark.parametrize("judge", [True, False])
def test_approved_merges_that_were_undone_are_not_asked_about_again(db: DB, judge: bool) -> None:
    four(db)
    run_id = asked_by(db, "consolidate")[0]["run_id"]
    if judge:
        for asked in rows(db, "select judgement_id from judgements where status = 'open'"):
            db.execute(
                "select resolve_judgement(%s, 'duplicate', model => 'm', tenant_id => 'acme')",
                [asked["judgement_id"]],
            )
    while db.execute("select approve_run(%s, tenant_id => 'acme')", [run_id]).fetchone() != (0,):
        pass
    assert len(rows(db, "select * from memories where status = 'merged'")) == 3
    db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    policy(db, preset="three_tier", guard="off")
    quiet(db)
    check(db)


@pytest.mark.parametrize("whole", [True, False])
def test_a_sweep_leaves_merges_alone_that_a_person_undid(db: DB, whole: bool) -> None:
    """By undo_run, and event by event."""
    four(db)
    policy(db, preset="three_tier", guard="off")
    run_id = asked_by(db, "sweep_duplicates")[0]["run_id"]
    merged = rows(db, "select event_id from memory_events where run_id = %s", run_id)
    assert len(merged) == 3
    if whole:
        db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    else:
        for event in merged:
            db.execute("select undo(%s, tenant_id => 'acme')", [event["event_id"]])
    quiet(db)
    check(db)


def test_two_clusters_of_one_run_are_not_told_apart_from_each_other(db: DB) -> None:
    """Only texts of one memory are recorded as distinct."""
    four(db)
    for k, number in enumerate(NUMBERS):
        store(db, f"Coffee is bad, says number {number}", **angle(60 + 5 * k))
    policy(db, preset="three_tier", guard="off")
    set_options(db, consolidate_threshold=0.45)
    run_id = asked_by(db, "sweep_duplicates")[0]["run_id"]
    assert len(rows(db, "select * from memories where status = 'merged'")) == 6
    db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    assert asked_by(db, "sweep_duplicates") == []
    texts = {(p["content"][:3], p["representative_content"][:3]) for p in asked_by(db, "consolidate")}
    assert texts == {("Cof", "Tea")}


def test_end_session_does_not_repeat_undone_merges(db: DB) -> None:
    """Including pairs that wait for an answer, or had one."""
    storing(db, guard="off")
    for word in ("always", "today", "again", "usually"):
        store(db, f"the grip force of the arm is strong {word}", session_id="s")
    end = "select run_id, superseded_count from end_session('s', 'acme')"
    [first] = rows(db, end)
    assert first["superseded_count"] == 3
    db.execute("select undo_run(%s, tenant_id => 'acme')", [first["run_id"]])
    assert [r["superseded_count"] for r in rows(db, end)] == [0]
    assert rows(db, "select * from memories where status <> 'active'") == []
    check(db)


def test_equal_texts_that_were_undone_stay(db: DB) -> None:
    storing(db, dedup="off")
    for _ in range(4):
        store(db, "equal")
    clean = "select * from clean_exact_duplicates('acme', 'default', dry_run => false)"
    done = rows(db, clean)
    assert len(done) == 3
    db.execute("select undo_run(%s, tenant_id => 'acme')", [done[0]["run_id"]])
    assert rows(db, clean) == []
    assert rows(db, "select * from memories where status <> 'active'") == []
    check(db)


# --- an empty text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", ".", "...", " ?! ", "—", "。", "\u200b", "\n", '"…"'])
@pytest.mark.parametrize("canonicalizer", ["prose", "exact", "flat"])
def test_a_judges_empty_text_keeps_both_with_a_warning(db: DB, text: str, canonicalizer: str) -> None:
    model(db)
    policy(db, on_ambiguous="synthesise", canonicalizer=canonicalizer)
    warnings: list[str | None] = []
    db.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    older, newer = pair(db)
    found = resolve(db, newer.judgement_id, "duplicate", merged_text=text, model="m")
    assert (found.status, found.action) == ("done", "judged")
    assert statuses(db, older, newer) == ["active", "active"]
    assert len(rows(db, "select * from memories")) == 2
    assert len(warnings) == 1
    check(db)


def test_search_does_not_show_as_one_what_a_cluster_told_apart(db: DB) -> None:
    model(db)
    storing(db)
    for k, text in enumerate(("Ann runs each day", "Ann jogs daily", "Ann goes running")):
        store(db, text, subject="Ann", **angle(k))
    db.execute("select count(*) from consolidate('acme', threshold => 0.5, dry_run => false)")
    shown = "select count(*) from search_memories(%s, %s, tenant_id => 'acme', dedup_threshold => 0.5)"
    asked = [angle(0)["embedding"], angle(0)["embedding_model"]]
    assert db.execute(shown, asked).fetchone() == (1,)
    (judgement_id,) = [
        row["judgement_id"]
        for row in rows(db, "select judgement_id from judgements where member_ids is not null")
    ]
    resolve(db, judgement_id, "distinct", confidence=1, model="m")
    assert db.execute(shown, asked).fetchone() == (3,)
