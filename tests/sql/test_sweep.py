"""sweep_duplicates, duplicate_pairs, clean_exact_duplicates: memories stored without deduplication, or by other
rules."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.maintenance import angle, held, policy, set_columns, set_options, store, storing
from tests.support.memories import check, counters, ingest, model
from tests.support.queries import DB, rows


def sweep(db: DB, bucket: str = "default", **options: Any) -> list[dict[str, Any]]:
    names = "".join(f", {name} => %s" for name in options)
    return rows(db, f"select * from sweep_duplicates('acme', %s{names})", bucket, *options.values())


def texts(db: DB, status: str = "active") -> list[str]:
    return [
        r["content"]
        for r in rows(db, "select content from memories where status = %s order by memory_id", status)
    ]


def test_current_thresholds_apply_to_stored_memories(db: DB) -> None:
    """Above 0.92 a clean pair folds, a raised guard asks; from 0.85 on it is asked; below nothing is done."""
    model(db)
    storing(db)
    a = store(db, "User likes tea", **angle(0))
    b = store(db, "The user likes tea", **angle(20))
    c = store(db, "User likes 2 teas", **angle(-20))
    d = store(db, "User drinks tea", **angle(30))
    e = store(db, "User sells coffee", **angle(70))
    policy(db, preset="three_tier")
    plan = sweep(db)
    assert {(p["memory_id"], p["representative_id"], p["action"]) for p in plan} == {
        (b, a, "merge"),
        (c, a, "ask"),
        (d, a, "ask"),
    }
    assert {p["run_id"] for p in plan} == {None}
    assert db.execute("select count(*) from runs").fetchone() == (0,)
    assert rows(
        db, "select * from duplicate_pairs('acme', 'default', thresholds => '{0.98, 0.9, 0.86}')"
    ) == [{"threshold": 0.98, "pairs": 1}, {"threshold": 0.9, "pairs": 3}, {"threshold": 0.86, "pairs": 4}]
    done = sweep(db, dry_run=False)
    assert [(p["memory_id"], p["action"]) for p in done] == [(p["memory_id"], p["action"]) for p in plan]
    [event] = rows(db, "select * from memory_events where run_id = %s", done[0]["run_id"])
    assert (event["action"], event["tier"], event["method"], event["target_id"]) == ("merged", 2, "vector", a)
    assert rows(db, "select distinct kind, run_id from judgements") == [
        {"kind": "consolidation", "run_id": done[0]["run_id"]}
    ]
    assert counters(db, a)["observations"] == 2
    assert texts(db, "merged") == ["The user likes tea"]
    assert sweep(db, dry_run=False) == [], "an open question is not asked again"
    assert e is not None
    check(db)
    db.execute("select undo_run(%s, tenant_id => 'acme')", [done[0]["run_id"]])
    assert db.execute("select distinct status from judgements where run_id is not null").fetchall() == [
        ("obsolete",)
    ]
    assert len(texts(db)) == 5
    check(db)


@pytest.mark.parametrize(
    ("threshold", "inclusive", "action"),
    [(0.499999, False, "merge"), (0.5, True, "merge"), (0.5, False, "ask"), (0.500001, True, "ask")],
)
def test_a_cosine_at_the_threshold(db: DB, threshold: float, inclusive: bool, action: str) -> None:
    """As in ingest. The cosine of the two is 0.5 to the last bit."""
    model(db)
    storing(db)
    for content, embedding in (("User likes tea", "[1,0,0,0]"), ("The user likes tea", "[0.5,0.5,0.5,0.5]")):
        store(db, content, embedding=embedding, embedding_model="m")
    policy(db, preset="three_tier", judge_threshold=0.4, merge_threshold=threshold)
    set_columns(db, "policies", "default", merge_inclusive=inclusive)
    assert [p["action"] for p in sweep(db)] == [action]


def test_an_id_counts_once(db: DB) -> None:
    """However often it is named: pairs of 4,000 would be counted for a minute."""
    model(db)
    storing(db)
    ids = [store(db, f"Tea is {word}", **angle(n)) for word, n in (("good", 0), ("nice", 10), ("fine", 80))]
    policy(db, preset="three_tier", guard="off")
    plan = sweep(db, memory_ids=ids * 2000)
    assert [(p["memory_id"], p["representative_id"]) for p in plan] == [(ids[1], ids[0])]


def test_every_member_against_the_representative(db: DB) -> None:
    """A, B and C in a row, each above the threshold to the next: C is not merged because it is near to B."""
    model(db)
    storing(db)
    a, b, c = (
        store(db, f"Tea is {word}", **angle(n)) for word, n in (("good", 0), ("nice", 20), ("fine", 40))
    )
    policy(db, preset="three_tier", guard="off")
    assert [(p["memory_id"], p["representative_id"]) for p in sweep(db, dry_run=False)] == [(b, a)]
    assert rows(db, "select root_id from memories where memory_id = %s", c) == [{"root_id": None}]


@pytest.mark.parametrize(
    ("options", "kind", "actions"),
    [
        ({"on_ambiguous": "review"}, "review", {"merge", "ask"}),
        ({"on_ambiguous": "synthesise"}, "synthesis", {"merge", "ask"}),
        ({"on_merge": "synthesise"}, "synthesis", {"ask"}),
        ({"on_ambiguous": "insert"}, None, {"merge", "keep"}),
    ],
)
def test_unclear_pairs_follow_the_policy(
    db: DB, options: dict[str, str], kind: str | None, actions: set[str]
) -> None:
    model(db)
    storing(db)
    for text, degrees in (("Tea", 0), ("Tea!!", 10), ("Black tea", 28)):
        store(db, text, **angle(degrees))
    policy(db, preset="three_tier", guard="off", **options)
    assert {p["action"] for p in sweep(db, dry_run=False)} == actions
    found = {r["kind"] for r in rows(db, "select kind from judgements")}
    assert (kind in found) if kind else not found
    check(db)


def test_the_newer_text_replaces(db: DB) -> None:
    """on_merge => replace: all merge into the newest that is near to them."""
    model(db)
    storing(db)
    _, b, c = (store(db, text, **angle(n)) for text, n in (("Tea", 0), ("Tea!!", 5), ("Black tea", 10)))
    other = store(db, "Tea?!", subject="someone else", **angle(0))
    policy(db, preset="replace_newer", guard="off")
    done = sweep(db, dry_run=False)
    assert {(p["representative_id"], p["action"]) for p in done} == {(c, "replace")}
    assert len(done) == 2
    assert {
        r["action"] for r in rows(db, "select action from memory_events where run_id = %s", done[0]["run_id"])
    } == {"replaced"}
    assert texts(db) == ["Black tea", "Tea?!"]
    assert counters(db, c)["observations"] == 3
    assert b
    assert other
    check(db)
    db.execute("select undo_run(%s, tenant_id => 'acme')", [done[0]["run_id"]])
    assert len(texts(db)) == 4
    check(db)


def test_a_bucket_wide_policy_looks_over_subjects_and_a_protected_type_stays(db: DB) -> None:
    model(db)
    storing(db)
    for subject in ("Ann", "ann's team"):
        for kind in ("fact", "gotcha"):
            store(db, f"{subject} likes tea", subject=subject, memory_type=kind, **angle(0))
    policy(db, scope="bucket", merge_threshold=0.9, judge_threshold=0.9, guard="off")
    set_options(db, protected_types=["gotcha"])
    assert [p["content"] for p in sweep(db, dry_run=False)] == ["ann's team likes tea"]
    assert sorted(texts(db)) == ["Ann likes tea", "Ann likes tea", "ann's team likes tea"]


def test_limits_and_resuming_a_run(db: DB) -> None:
    model(db)
    storing(db)
    for n in range(4):
        for k in range(2):
            store(db, f"Fact {'abcd'[n]} {'xy'[k]}", subject=f"s{n}", **angle(k))
    policy(db, preset="three_tier", guard="off")
    plan = sweep(db, max_operations=1000)
    assert len(plan) == 4
    first = sweep(db, dry_run=False, max_operations=1)
    assert rows(db, "select report -> 'more' as more from runs") == [{"more": True}]
    run_id = first[0]["run_id"]
    ids = [p[name] for p in plan[1:3] for name in ("memory_id", "representative_id")]
    assert len(sweep(db, dry_run=False, memory_ids=ids, into_run=run_id)) == 2
    [row] = rows(db, "select status, merged from runs_overview")
    assert row == {"status": "done", "merged": 3}
    db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    for options, code in (
        ({"into_run": run_id}, "MF022"),
        ({"max_operations": 1001}, "MF022"),
        ({"dry_run": None}, "MF022"),
    ):
        with pytest.raises(psycopg.Error) as error:
            sweep(db, **{"dry_run": False, **options})
        assert error.value.sqlstate == code
    with pytest.raises(psycopg.Error) as error:
        rows(db, "select * from duplicate_pairs('acme', 'default', thresholds => '{2}')")
    assert error.value.sqlstate == "MF022"


def test_exact_duplicates_are_cleaned(db: DB) -> None:
    """Stored while dedup was off: the most confident stays, then the newest; subjects and types keep texts apart."""
    storing(db, dedup="off")
    sure = store(db, "grip_force = 12.5N", source_confidence=0.9)
    low = [store(db, text, source_confidence=0.5) for text in ("Grip_force = 12.5N", " grip_force  = 12.5N.")]
    elsewhere = store(db, "grip_force = 12.5N", subject="left arm")
    store(db, "grip_force = 12N")
    old, new = (store(db, "equal") for _ in range(2))
    before = held(db, "default")
    clean = "select * from clean_exact_duplicates('acme', 'default'%s)"
    plan = rows(db, clean % "")
    assert {(p["memory_id"], p["keep_id"]) for p in plan} == {(low[0], sure), (low[1], sure), (old, new)}
    assert {p["run_id"] for p in plan} == {None}
    hashed = store(db, "EQUAL", source_confidence=0.6)
    assert len(rows(db, clean % ", dry_run => false, max_operations => 2")) == 2
    done = rows(db, clean % ", dry_run => false")
    assert [(p["memory_id"], p["keep_id"]) for p in done] == [(low[1], sure), (old, hashed), (new, hashed)][
        -len(done) :
    ]
    assert rows(db, clean % ", dry_run => false") == []
    assert counters(db, sure)["observations"] == 3
    assert counters(db, elsewhere)["observations"] == 1
    assert {r["method"] for r in rows(db, "select method from memory_events where run_id is not null")} == {
        "hash"
    }
    check(db)
    for row in rows(db, "select run_id from runs where report ? 'merged' order by started_at"):
        db.execute("select undo_run(%s, tenant_id => 'acme')", [row["run_id"]])
    assert [r for r in held(db, "default") if r["content"] != "EQUAL"] == before
    check(db)
    with pytest.raises(psycopg.Error) as error:
        rows(db, clean % ", max_operations => 0")
    assert error.value.sqlstate == "MF022"
    assert ingest(db, "new", bucket_id="other").action == "inserted"
