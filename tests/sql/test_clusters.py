"""One question about several memories near one another: found, claimed, answered once, undone, erased."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any
from uuid import UUID

import pytest

from tests.support.judging import claim, elapse, fail, raises, resolve
from tests.support.maintenance import angle, policy, set_options, store, storing
from tests.support.memories import Result, check, counters, ingest, model, status
from tests.support.queries import DB, rows

WORDS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "birthdays", "holidays", "occasion",
         "Easter", "Advent")  # fmt: skip


def near(db: DB, count: int, step: float = 1.0, **more: Any) -> list[UUID]:
    """Memories of one scope that are all near to one another, oldest to newest."""
    return [
        store(
            db, f"Ann drinks tea on {WORDS[n]}" + " indeed" * (n == 2), subject="Ann", observed_at=f"2026-01-{n + 1:02}",
            **angle(step * n), **more,
        )
        for n in range(count)
    ]  # fmt: skip


def asking(db: DB, count: int, **options: Any) -> list[UUID]:
    """As near(), with one question about all of them."""
    model(db)
    storing(db)
    made = near(db, count)
    policy(db, preset="three_tier", guard="off", merge_threshold=1, **options)
    asked = rows(db, "select * from consolidate('acme', 'default', dry_run => false)")
    assert len(asked) == count - 1
    return made


def open_questions(db: DB) -> list[dict[str, Any]]:
    return rows(db, "select * from judgements where status in ('open', 'leased') order by judgement_id")


def the_question(db: DB) -> UUID:
    [asked] = open_questions(db)
    found: UUID = asked["judgement_id"]
    return found


def statuses(db: DB, ids: list[UUID]) -> list[str]:
    return [status(db, memory_id) for memory_id in ids]


def runs_are_quiet(db: DB) -> None:
    for function in ("consolidate", "sweep_duplicates"):
        assert rows(db, f"select * from {function}('acme', 'default')") == []


# --- finding them -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["consolidate", "sweep_duplicates"])
@pytest.mark.parametrize("guard", ["on", "off"])
def test_eight_near_memories_are_one_question(db: DB, function: str, guard: str) -> None:
    """With a guard that stops every merge, and in the band in which a judge is asked."""
    model(db)
    storing(db)
    made = near(db, 8)
    policy(db, preset="three_tier", guard=guard, merge_threshold=0.92 if guard == "on" else 1)
    plan = rows(db, f"select * from {function}('acme', 'default')")
    assert [(p["memory_id"], p["representative_id"], p["action"]) for p in plan] == [
        (m, made[0], "ask") for m in made[1:]
    ]
    assert {p["cluster"] for p in plan} == {1}
    calls = 0
    for _ in range(10):
        rows(db, f"select * from {function}('acme', 'default', dry_run => false)")
        for asked in claim(db):
            calls += 1
            assert [m["memory_id"] for m in asked.members or []] == list(map(str, made))
            resolve(db, asked.judgement_id, "distinct", model="m")
    assert calls == 1, "a judged cluster is not asked about again"
    assert statuses(db, made) == ["active"] * 8
    runs_are_quiet(db)
    check(db)


def test_a_question_has_its_memories_oldest_to_newest(db: DB) -> None:
    made = asking(db, 4)
    [asked] = claim(db)
    assert asked.kind == "consolidation"
    assert asked.members is not None
    assert [m["memory_id"] for m in asked.members] == list(map(str, made))
    assert [m["content"] for m in asked.members][:2] == [
        "Ann drinks tea on Monday",
        "Ann drinks tea on Tuesday",
    ]
    assert [m["first_seen"][:10] for m in asked.members] == [f"2026-01-0{n}" for n in range(1, 5)]
    assert (asked.other, asked.memory) == (asked.members[0], asked.members[-1])
    assert asked.similarity == pytest.approx(0.99863, abs=1e-5), "the least of the cluster"
    assert claim(db) == []


@pytest.mark.parametrize(("size", "sizes"), [(10, [10, 2]), (5, [5, 5, 2]), (2, [2] * 6)])
def test_larger_clusters_are_split(db: DB, size: int, sizes: list[int]) -> None:
    model(db)
    storing(db)
    made = near(db, 12)
    set_options(db, max_cluster_size=size)
    rows(db, "select * from consolidate('acme', 'default', dry_run => false)")
    found = [asked["member_ids"] or [asked["other_id"], asked["memory_id"]] for asked in open_questions(db)]
    assert sorted(map(len, found), reverse=True) == sizes
    assert sorted(itertools.chain(*found)) == made
    check(db)


def test_how_large_a_cluster_may_be(db: DB) -> None:
    for size in (1, 11):
        raises("MF017", db.execute, "select set_options('acme', max_cluster_size => %s)", [size])


def test_the_members_of_a_cluster_are_mutually_near(db: DB) -> None:
    """For any pairs: a cluster contains only memories that are pairs, and each memory with a pair is in some
    question."""
    chance = random.Random(1)
    for size in (2, 5, 12, 40):
        for share in (0.1, 0.5, 0.9, 1.0):
            pairs = {
                (a, b): round(chance.random(), 2)
                for a, b in itertools.combinations(range(1, size + 1), 2)
                if chance.random() < share
            }
            given = [[a for a, _ in pairs], [b for _, b in pairs], list(pairs.values()), size]
            statement = "select * from memfold_internal._cliques(%s::int[], %s::int[], %s::float8[], %s, 6)"
            found = db.execute(statement, given).fetchall()
            shuffled = chance.sample(list(pairs), len(pairs))
            again = [[a for a, _ in shuffled], [b for _, b in shuffled], [pairs[p] for p in shuffled], size]
            assert db.execute(statement, again).fetchall() == found
            for members, lowest in found:
                inside = [pairs[p] for p in itertools.combinations(members, 2)]
                assert lowest == min(inside)
                assert 2 <= len(members) <= 6
            assert {m for members, _ in found for m in members} == {m for pair in pairs for m in pair}
            larger = [members for members, _ in found if len(members) > 2]
            assert len({m for members in larger for m in members}) == sum(map(len, larger))


def test_pending_members_are_not_asked_about_again(db: DB) -> None:
    made = asking(db, 4)
    runs_are_quiet(db)
    # one that comes now is compared with the oldest, which waits for nothing
    late = store(db, "Ann drinks tea at noon", subject="Ann", **angle(1.5))
    waiting = {a["memory_id"] for a in open_questions(db) if a["member_ids"] is None}
    assert waiting == {late}
    for again in (True, False):
        for a, b in itertools.permutations(made, 2):
            asked = "select memfold_internal._queue_judgement('acme', 'review', %s, %s, 0.9, '{}', %s)"
            assert db.execute(asked, [a, b, again]).fetchone() == (None,)
    check(db)


# --- answering --------------------------------------------------------------------------------------------------


def test_duplicates_become_the_oldest(db: DB) -> None:
    made = asking(db, 4)
    found = resolve(
        db, the_question(db), "duplicate", model="m", reason="all the same", input_tokens=5, cost=0.5
    )
    assert (found.status, found.verdict, found.action, found.memory_id) == (
        "done",
        "duplicate",
        "merged",
        made[0],
    )
    assert statuses(db, made) == ["active", "merged", "merged", "merged"]
    assert counters(db, made[0])["observations"] == 4
    events = rows(db, "select * from memory_events where tier = 3 order by event_id")
    assert [(e["action"], e["method"], e["memory_id"], e["target_id"]) for e in events] == [
        ("merged", "judge", m, made[0]) for m in made[1:]
    ]
    assert {(e["verdict"], e["reason"]) for e in events} == {("duplicate", "all the same")}
    assert found.event_id == events[-1]["event_id"]
    assert rows(db, "select judgements::int, calls::int, cost from judge_costs") == [
        {"judgements": 1, "calls": 0, "cost": 0.5}
    ]
    check(db)


@pytest.mark.parametrize("named", [None, 1])
def test_the_richer_text_of_a_refinement_wins(db: DB, named: int | None) -> None:
    made = asking(db, 4)
    leader = 2 if named is None else named
    found = resolve(
        db, the_question(db), "refinement", model="m", richer_memory_id=None if named is None else made[named]
    )
    assert (found.action, found.memory_id) == ("replaced", made[leader])
    assert statuses(db, made) == ["active" if n == leader else "merged" for n in range(4)]
    assert counters(db, made[leader])["observations"] == 4
    check(db)


@pytest.mark.parametrize(
    ("conflict", "action", "held"),
    [
        ("newest_wins", "superseded", ["superseded"] * 3 + ["active"]),
        ("keep_existing", "rejected", ["active"] + ["rejected"] * 3),
        ("keep_both", "judged", ["active"] * 4),
        ("review", "escalated", ["active"] * 4),
    ],
)
def test_a_contradiction_follows_the_conflict_policy(
    db: DB, conflict: str, action: str, held: list[str]
) -> None:
    made = asking(db, 4, conflict=conflict)
    assert resolve(db, the_question(db), "contradiction", model="m").action == action
    assert statuses(db, made) == held
    if conflict == "review":
        [asked] = open_questions(db)
        assert (asked["kind"], asked["member_ids"]) == ("review", made)
        assert resolve(db, asked["judgement_id"], "contradiction").action == "superseded"
        assert statuses(db, made) == ["superseded"] * 3 + ["active"]
    check(db)


def test_the_newest_value_is_the_one_stated_last(db: DB) -> None:
    made = asking(db, 3)
    ingest(db, "Ann drinks tea on Tuesday", subject="Ann", observed_at="2026-05-01")
    found = resolve(db, the_question(db), "contradiction", model="m")
    assert found.memory_id == made[1]
    assert statuses(db, made) == ["superseded", "active", "superseded"]
    check(db)


@pytest.mark.parametrize(("verdict", "confidence"), [("distinct", 0.9), ("duplicate", 0.5)])
def test_members_that_were_kept_are_not_asked_about_again(db: DB, verdict: str, confidence: float) -> None:
    made = asking(db, 4)
    found = resolve(db, the_question(db), verdict, confidence=confidence, model="m")
    assert (found.status, found.action) == ("done", "judged")
    assert found.verdict == ("distinct" if verdict == "distinct" else "unsure")
    assert statuses(db, made) == ["active"] * 4
    runs_are_quiet(db)
    for a, b in itertools.permutations(made, 2):
        assert db.execute("select memfold_internal._was_asked('acme', %s, %s)", [a, b]).fetchone() == (True,)
    check(db)


def test_only_some_are_the_same(db: DB) -> None:
    """The others are distinct from them, and asked about among themselves."""
    made = asking(db, 6)
    about = [made[4], made[1]]
    found = resolve(db, the_question(db), "duplicate", model="m", member_ids=about)
    assert (found.action, found.memory_id) == ("merged", made[1])
    assert statuses(db, made) == ["active"] * 4 + ["merged", "active"]
    rest = [made[n] for n in (0, 2, 3, 5)]
    [asked] = open_questions(db)
    assert asked["member_ids"] == rest
    resolve(db, asked["judgement_id"], "duplicate", model="m", member_ids=[made[2], made[3]])
    [asked] = open_questions(db)
    assert (asked["other_id"], asked["memory_id"], asked["member_ids"]) == (made[0], made[5], None)
    resolve(db, asked["judgement_id"], "distinct", model="m")
    assert open_questions(db) == []
    assert statuses(db, made) == ["active", "active", "active", "merged", "merged", "active"]
    runs_are_quiet(db)
    assert rows(db, "select status from runs where kind = 'consolidation' order by run_id limit 1")
    check(db)


def test_a_judges_text_contains_what_all_of_them_say(db: DB) -> None:
    made = asking(db, 3, on_ambiguous="synthesise")
    text = "Ann drinks tea on Monday, Tuesday and Wednesday"
    found = resolve(db, the_question(db), "refinement", model="m", merged_text=text)
    assert found.action == "replaced"
    assert rows(db, "select content from current_memories('acme')") == [{"content": text}]
    assert statuses(db, made) == ["merged"] * 3
    assert counters(db, found.memory_id)["observations"] == 3
    for content in ("Ann drinks tea on Monday", "ann drinks tea on tuesday", text):
        again = ingest(db, content, subject="Ann")
        assert (again.action, again.tier, again.memory_id) == ("merged", 1, found.memory_id)
    check(db)


def test_answers_that_do_not_fit(db: DB) -> None:
    made = asking(db, 3)
    asked = the_question(db)
    other = store(db, "Bob drinks tea", subject="Bob")
    for wrong in ([made[0]], [made[0], made[0]], [made[0], other], []):
        raises("MF028", resolve, db, asked, "duplicate", member_ids=wrong)
    raises("MF028", resolve, db, asked, "refinement", richer_memory_id=other)
    raises("MF028", resolve, db, asked, "refinement", richer_memory_id=made[2], member_ids=made[:2])
    # pairs in a cluster are not separate questions
    [part, _] = rows(db, "select judgement_id from judgements where status = 'part' order by memory_id")
    raises("MF026", resolve, db, part["judgement_id"], "duplicate")
    raises("MF026", fail, db, part["judgement_id"])
    resolve(db, asked, "duplicate")
    raises("MF027", resolve, db, asked, "duplicate")


# --- changes while a question waits -----------------------------------------------------------------------------


def drop(db: DB, made: list[UUID], how: str) -> None:
    other = store(db, "Ann drinks something else", subject="Ann")
    if how == "merged with a member":
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [made[1], made[2]])
    elif how == "merged elsewhere":
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [made[1], other])
    elif how == "rejected":
        db.execute("select reject_memory(%s, tenant_id => 'acme')", [made[1]])
    else:
        db.execute("select supersede_memory(%s, %s, tenant_id => 'acme')", [made[1], other])


HOW = ["merged with a member", "merged elsewhere", "rejected", "superseded"]


@pytest.mark.parametrize("how", HOW)
def test_a_member_drops_out_while_the_judge_thinks(db: DB, how: str) -> None:
    made = asking(db, 4)
    [asked] = claim(db)
    drop(db, made, how)
    before = status(db, made[1])
    found = resolve(db, asked.judgement_id, "duplicate", model="m")
    assert (found.status, found.action, found.memory_id) == ("done", "merged", made[0])
    assert statuses(db, [made[0], made[2], made[3]]) == ["active", "merged", "merged"]
    if how != "merged with a member":
        assert status(db, made[1]) == before
    check(db)


@pytest.mark.parametrize("how", HOW)
def test_a_merged_text_is_refused_if_a_member_is_gone(db: DB, how: str) -> None:
    made = asking(db, 4, on_ambiguous="synthesise")
    [asked] = claim(db)
    drop(db, made, how)
    found = resolve(db, asked.judgement_id, "duplicate", model="m", merged_text="Ann drinks tea every day")
    if how == "merged with a member":
        assert (found.status, found.action) == ("done", "replaced")
        assert statuses(db, made) == ["merged"] * 4
    else:
        assert (found.status, found.action) == ("open", None)
        [again] = open_questions(db)
        assert again["member_ids"] == [made[0], made[2], made[3]]
        assert again["judgement_id"] != asked.judgement_id
        raises("MF027", resolve, db, asked.judgement_id, "duplicate")
    check(db)


@pytest.mark.parametrize("how", HOW)
def test_a_member_drops_out_before_it_is_claimed(db: DB, how: str) -> None:
    made = asking(db, 4)
    first = the_question(db)
    drop(db, made, how)
    [asked] = claim(db)
    assert asked.judgement_id != first, "a late answer to the old question finds it closed"
    assert [m["memory_id"] for m in asked.members or []] == [str(made[n]) for n in (0, 2, 3)]
    raises("MF027", resolve, db, first, "duplicate")
    check(db)


def test_with_fewer_than_two_left_there_is_nothing_to_decide(db: DB) -> None:
    made = asking(db, 3)
    [asked] = claim(db)
    for memory_id in made[:2]:
        db.execute("select reject_memory(%s, tenant_id => 'acme')", [memory_id])
    found = resolve(db, asked.judgement_id, "duplicate", model="m")
    assert (found.status, found.action) == ("obsolete", None)
    assert {r["status"] for r in rows(db, "select status from judgements")} == {"obsolete"}
    check(db)


def test_two_that_are_left_are_a_pair(db: DB) -> None:
    made = asking(db, 3)
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [made[0]])
    [asked] = claim(db)
    assert (asked.other["memory_id"], asked.memory["memory_id"], asked.members) == (
        str(made[1]), str(made[2]), None,
    )  # fmt: skip
    check(db)


# --- failing ----------------------------------------------------------------------------------------------------


def fail_for_good(db: DB) -> str:
    said = ""
    for _ in range(8):
        elapse(db, "2 hours")
        [asked] = claim(db)
        said = fail(db, asked.judgement_id)
    return said


def test_all_members_stay_if_the_judge_fails_for_good(db: DB) -> None:
    made = asking(db, 4)
    assert fail_for_good(db) == "dead"
    assert statuses(db, made) == ["active"] * 4
    runs_are_quiet(db)
    check(db)
    assert db.execute("select retry_judgements('acme')").fetchone() == (1,)
    [asked] = claim(db)
    assert len(asked.members or []) == 4
    check(db)


@pytest.mark.parametrize("by", ["fail_judgement", "maintenance"])
def test_the_newest_member_replaces_all_if_the_judge_fails_for_good(db: DB, by: str) -> None:
    """replace_newer: the document's fallback, in a cluster."""
    model(db)
    storing(db)
    made = near(db, 4, step=7)
    policy(db, preset="replace_newer", guard="off", merge_threshold=1)
    rows(db, "select * from sweep_duplicates('acme', 'default', dry_run => false)")
    [asked] = open_questions(db)
    assert (asked["kind"], asked["member_ids"]) == ("synthesis", made)
    if by == "maintenance":
        for _ in range(9):
            claim(db, lease="1 second")
            elapse(db, "2 seconds")
        assert db.execute("select memfold_internal._fall_back_dead('acme')").fetchone() == (1,)
    else:
        assert fail_for_good(db) == "replaced"
    assert statuses(db, made) == ["merged"] * 3 + ["active"]
    assert counters(db, made[3])["observations"] == 4
    assert {e["method"] for e in rows(db, "select method from memory_events where tier = 3")} == {"fallback"}
    check(db)


def test_the_later_of_two_dead_questions_about_one_pair_is_revived(db: DB) -> None:
    """The judge of a cluster has failed for good; so has the question that was asked about two of it since."""
    made = asking(db, 3)
    db.execute("update judgements set status = 'dead' where status = 'open'")
    db.execute(
        "select memfold_internal._queue_judgement('acme', 'review', %s, %s, 0.9, '{}', true)",
        [made[2], made[0]],
    )
    db.execute("update judgements set status = 'dead' where status = 'open'")
    assert db.execute("select retry_judgements()").fetchone() == (1,)
    assert [asked["kind"] for asked in open_questions(db)] == ["review"]
    assert db.execute("select retry_judgements('acme')").fetchone() == (0,)
    resolve(db, the_question(db), "distinct")
    assert db.execute("select retry_judgements('acme')").fetchone() == (1,)
    resolve(db, the_question(db), "duplicate", model="m")
    assert statuses(db, made) == ["active", "merged", "merged"]
    check(db)


# --- runs -------------------------------------------------------------------------------------------------------


def approve(db: DB, run_id: UUID, verdict: str = "duplicate") -> Any:
    row = db.execute(
        "select approve_run(%s, verdict => %s, tenant_id => 'acme')", [run_id, verdict]
    ).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("approval", ["judge", "person"])
@pytest.mark.parametrize(
    ("verdict", "held"),
    [
        ("duplicate", ["active", "merged", "merged", "merged"]),
        ("refinement", ["merged", "merged", "active", "merged"]),
        ("contradiction", ["superseded", "superseded", "superseded", "active"]),
        ("distinct", ["active"] * 4),
    ],
)
def test_a_run_is_approved_and_undone(db: DB, approval: str, verdict: str, held: list[str]) -> None:
    model(db)
    storing(db)
    made = near(db, 4)
    run_id = rows(
        db, "select * from consolidate('acme', 'default', dry_run => false, approval => %s)", approval
    )[0]["run_id"]
    assert approve(db, run_id, verdict) == 0
    assert statuses(db, made) == held
    [found] = rows(db, "select status, waiting, judged from runs_overview where run_id = %s", run_id)
    assert found == {"status": "done", "waiting": 0, "judged": 1}
    check(db)
    rows(db, "select * from undo_run(%s, tenant_id => 'acme')", run_id)
    assert statuses(db, made) == ["active"] * 4
    runs_are_quiet(db)
    check(db)


def test_a_member_that_dropped_out_is_left_alone_by_approval(db: DB) -> None:
    made = asking(db, 4)
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [made[0]])
    [run] = rows(db, "select run_id from runs")
    assert approve(db, run["run_id"]) == 0
    assert statuses(db, made) == ["rejected", "active", "merged", "merged"]
    check(db)


def test_a_run_is_undone_while_its_question_waits(db: DB) -> None:
    made = asking(db, 4)
    [run] = rows(db, "select run_id from runs")
    rows(db, "select * from undo_run(%s, tenant_id => 'acme')", run["run_id"])
    assert {r["status"] for r in rows(db, "select status from judgements")} == {"obsolete"}
    assert len(rows(db, "select * from consolidate('acme', 'default')")) == 3, "nothing was undone"
    assert statuses(db, made) == ["active"] * 4
    check(db)


def test_each_merge_of_a_cluster_can_be_undone(db: DB) -> None:
    made = asking(db, 4)
    resolve(db, the_question(db), "duplicate", model="m")
    for event in rows(db, "select event_id from memory_events where tier = 3 order by event_id desc"):
        rows(db, "select * from undo(%s, tenant_id => 'acme')", event["event_id"])
        check(db)
    assert statuses(db, made) == ["active"] * 4
    runs_are_quiet(db)


# --- looking, erasing, moving -----------------------------------------------------------------------------------


def test_clusters_are_shown_by_views_and_explain_memory(db: DB) -> None:
    made = asking(db, 3)
    [shown] = rows(db, "select * from open_judgements")
    assert shown["member_ids"] == made
    assert [text.split()[-1] for text in shown["member_contents"]] == ["Monday", "Tuesday", "indeed"]
    for memory_id in made:
        lines = [r["line"] for r in rows(db, "select explain_memory(%s, 'acme') as line", memory_id)]
        [line] = [line for line in lines if line.startswith("judgement ")]
        assert str(shown["judgement_id"]) in line
        assert line.count('"') == 4, "the two others"
    resolve(db, the_question(db), "distinct", model="m")
    lines = [r["line"] for r in rows(db, "select explain_memory(%s, 'acme') as line", made[1])]
    assert [line for line in lines if line.startswith("judgement ") and "verdict distinct" in line]


def test_search_shows_what_was_told_apart(db: DB) -> None:
    made = asking(db, 4)
    found = "select memory_id from search_memories(%s, 'm', 'acme', 'default', dedup_threshold => 0.9)"
    assert len(rows(db, found, angle(0)["embedding"])) == 1
    resolve(db, the_question(db), "distinct", model="m")
    assert {r["memory_id"] for r in rows(db, found, angle(0)["embedding"])} == set(made)


@pytest.mark.parametrize("which", [0, 1, 3])
@pytest.mark.parametrize("when", ["open", "leased", "done"])
def test_a_member_is_erased(db: DB, which: int, when: str) -> None:
    """Its question is deleted, because an answer could quote the erased text; other answers stay."""
    made = asking(db, 4)
    asked = the_question(db)
    if when == "leased":
        claim(db)
    elif when == "done":
        resolve(db, asked, "distinct", model="m", reason="one is on a secret day")
    rows(db, "select * from erase_memory(%s, tenant_id => 'acme')", made[which])
    check(db)
    left = [m for m in made if m != made[which]]
    assert statuses(db, left) == ["active"] * 3
    assert rows(db, "select * from judgements where judgement_id = %s", asked) == []
    assert rows(db, "select * from memory_events where reason like '%%secret%%'") == []
    if when == "done":
        runs_are_quiet(db)
    else:
        raises("MF026", resolve, db, asked, "duplicate")
        assert len(rows(db, "select * from consolidate('acme', 'default')")) == 2
    kept = rows(
        db,
        "select to_jsonb(j)::text as row from judgements as j"
        " union all select to_jsonb(e)::text from memory_events as e where e.action <> 'erased'",
    )
    assert not [r for r in kept if str(made[which]) in r["row"]]


def test_a_judges_text_goes_with_any_member(db: DB) -> None:
    made = asking(db, 4, on_ambiguous="synthesise")
    resolve(db, the_question(db), "duplicate", model="m", merged_text="Ann drinks tea on many days")
    rows(db, "select * from erase_memory(%s, tenant_id => 'acme')", made[1])
    assert rows(db, "select * from memories where content like '%%many days'") == []
    assert rows(db, "select * from judgements where merged_text is not null") == []
    check(db)


def test_sources_and_buckets_with_clusters_are_erased(db: DB) -> None:
    model(db)
    storing(db)
    for n in range(4):
        store(db, f"Ann drinks tea on {WORDS[n]}", subject="Ann", source_turn_ids=[f"t{n}"], **angle(n))
    rows(db, "select * from consolidate('acme', 'default', dry_run => false)")
    rows(db, "select * from erase_source('t1', 'acme')")
    check(db)
    assert rows(db, "select * from judgements") == []
    rows(db, "select * from consolidate('acme', 'default', dry_run => false)")
    rows(db, "select * from erase_bucket('acme', 'default')")
    assert rows(db, "select * from judgements") == []
    check(db)


def test_an_export_contains_them(db: DB) -> None:
    made = asking(db, 4)
    lines = [r["line"] for r in rows(db, "select export_bucket('acme', 'default') as line")]
    with db.transaction():
        rows(db, "select import_bucket(%s::jsonb, 'other', 'default')", json.dumps(lines))
    check(db)
    [asked] = claim(db, tenant_id="other")
    assert [m["memory_id"] for m in asked.members or []] == list(map(str, made))
    found = resolve(db, asked.judgement_id, "duplicate", model="m", tenant_id="other")
    assert found.action == "merged"
    check(db)


def test_a_pair_is_asked_about_as_before(db: DB) -> None:
    model(db)
    older = ingest(db, "Ann likes tea", subject="Ann", **angle(0))
    newer: Result = ingest(db, "Ann likes a tea", subject="Ann", **angle(28))
    assert newer.action == "escalated"
    [asked] = claim(db)
    assert asked.members is None
    found = resolve(db, asked.judgement_id, "duplicate", member_ids=[newer.memory_id, older.memory_id])
    assert (found.action, found.memory_id) == ("merged", older.memory_id)
    check(db)
