"""consolidate, approve_run, undo_run: memories that say the same are found, judged, merged under one run, and undone."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest

from tests.support.maintenance import (
    angle,
    consolidate,
    held,
    run_consolidation,
    set_options,
    store,
    storing,
    vim,
)
from tests.support.memories import check, counters, ingest, model, vector
from tests.support.queries import DB, rows


def approve(db: DB, run_id: UUID, *arguments: Any) -> int:
    row = db.execute(
        f"select approve_run(%s, 'acme'{', %s' * len(arguments)})", [run_id, *arguments]
    ).fetchone()
    assert row is not None
    return int(row[0])


def overview(db: DB, run_id: UUID) -> dict[str, Any]:
    [row] = rows(db, "select * from runs_overview where run_id = %s", run_id)
    return row


def test_a_text_with_vectors_of_two_models_is_one_text(db: DB) -> None:
    model(db)
    model(db, "n")
    storing(db)
    for text, cosine in (("User likes tea", 1.0), ("User owns a cat", 0.1)):
        stored = store(db, text, **vector(cosine))
        other = vector(cosine, name="n")
        db.execute("select attach_embedding(%s, %s::vector, 'n', 'acme')", [stored, other["embedding"]])
    assert consolidate(db, embedding_model="m") == []


def test_a_dry_run_shows_the_plan_and_writes_nothing(db: DB) -> None:
    model(db)
    storing(db)
    a, b, c, _ = vim(db)
    plan = consolidate(db)
    assert [(p["run_id"], p["cluster"], p["memory_id"], p["representative_id"]) for p in plan] == [
        (None, 1, b, a),
        (None, 1, c, a),
    ]
    assert [round(p["similarity"], 3) for p in plan] == [0.94, 0.866]
    assert plan[0]["guard"] == []
    assert plan[1]["guard"][0].startswith("numeral: ")
    assert (plan[0]["content"], plan[0]["representative_content"]) == (
        "User's editor is Vim",
        "User uses Vim",
    )
    assert {p["action"] for p in plan} == {"ask"}
    assert db.execute("select count(*) from judgements").fetchone() == (0,)
    assert db.execute("select count(*) from runs").fetchone() == (0,)
    # a threshold of its own, and the options'
    assert [(p["memory_id"], p["representative_id"]) for p in consolidate(db, threshold=0.95)] == [(c, b)]
    set_options(db, consolidate_threshold=0.99)
    assert consolidate(db) == []


def test_a_judge_answers_and_the_run_knows(db: DB) -> None:
    model(db)
    storing(db)
    a, b, _c, _ = vim(db)
    run_id = run_consolidation(db)
    assert overview(db, run_id)["status"] == "open"
    assert consolidate(db) == [], "a queued pair is not asked again"
    [claimed] = rows(db, "select * from claim_judgements('w', max_results => 10, tenant_id => 'acme')")
    assert claimed["kind"] == "consolidation"
    db.execute(
        "select resolve_judgement(%s, 'duplicate', member_ids => %s, model => 'gpt', tenant_id => 'acme')",
        [claimed["judgement_id"], [a, b]],
    )
    found = overview(db, run_id)
    assert [found[name] for name in ("status", "waiting", "judged", "merged")] == ["done", 0, 1, 1]
    [event] = rows(db, "select * from memory_events where run_id = %s and action = 'merged'", run_id)
    assert (event["memory_id"], event["target_id"], event["method"]) == (b, a, "judge")
    assert counters(db, a)["observations"] == 2
    assert consolidate(db) == [], "a judged pair is not asked again"
    check(db)


def test_a_person_approves_a_run(db: DB) -> None:
    model(db)
    storing(db)
    a, _b, _c, bob = vim(db)
    store(db, "Bob's editor is Vim", subject="Bob", **angle(5))
    run_id = run_consolidation(db, approval="person")
    assert db.execute(
        "select distinct kind, run_id, cardinality(member_ids) from judgements where status = 'open' order by 3"
    ).fetchall() == [("review", run_id, 3), ("review", run_id, None)]
    assert approve(db, run_id, "duplicate", 1) == 1
    assert db.execute("select status, ended_at is null from runs").fetchall() == [("open", True)]
    assert approve(db, run_id) == 0
    found = rows(db, "select * from runs")[0]
    assert (found["status"], found["kind"], found["actor"]) == ("done", "consolidation", "postgres")
    assert found["report"] == {"questions": 2, "asked": 2, "left_out": 0, "merged": 3}
    assert counters(db, a)["observations"] == 3
    events = rows(db, "select * from memory_events where run_id = %s", run_id)
    assert {(e["action"], e["tier"], e["method"], e["target_id"], e["verdict"]) for e in events} == {
        ("merged", 3, "person", a, "duplicate"),
        ("merged", 3, "person", bob, "duplicate"),
    }
    # an alias's text is a hit from now on
    assert ingest(db, "user's editor is vim", subject="user", predicate="editor").memory_id == a
    assert approve(db, run_id) == 0
    check(db)


@pytest.mark.parametrize(
    ("verdict", "actions", "active"),
    [
        ("refinement", {"replaced"}, {"User uses Vim every day"}),
        ("contradiction", {"superseded"}, {"User uses Vim every day"}),
        ("distinct", {"judged"}, {"User uses Vim", "User uses Vim every day"}),
    ],
)
def test_other_verdicts(db: DB, verdict: str, actions: set[str], active: set[str]) -> None:
    model(db)
    storing(db)
    store(db, "User uses Vim", **angle(0))
    store(db, "User uses Vim every day", **angle(10))
    run_id = run_consolidation(db)
    assert approve(db, run_id, verdict) == 0
    assert {
        r["action"] for r in rows(db, "select action from memory_events where run_id = %s", run_id)
    } == actions
    assert {r["content"] for r in rows(db, "select content from memories where status = 'active'")} == active
    check(db)
    db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (2,)
    check(db)


@pytest.mark.parametrize("verdict", ["duplicate", "refinement", "contradiction", "distinct"])
def test_a_value_that_is_history_by_now_is_answered_as_by_itself(db: DB, verdict: str) -> None:
    """One of two that a run asks about was retired by a third, which is an alias of the other one now."""
    model(db)
    storing(db)
    slot = {"subject": "user", "predicate": "uses"}
    old, new, third = (
        store(db, f"Editor {name}", **slot, **angle(degrees))
        for name, degrees in (("Vim", 0), ("Emacs", 20), ("ed", 80))
    )
    run_id = run_consolidation(db, threshold=0.9, approval="person")
    db.execute("select supersede_memory(%s, %s, tenant_id => 'acme')", [old, third])
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [third, new])
    states = "select content, status, root_id from memories order by content"
    with db.transaction(force_rollback=True):
        db.execute(
            "select resolve_judgement(judgement_id, %s, member_ids => %s, tenant_id => 'acme') from judgements",
            [verdict, [old, new]],
        )
        expected = rows(db, states)
    assert approve(db, run_id, verdict) == 0
    assert rows(db, states) == expected
    assert overview(db, run_id)["status"] == "done"
    check(db)


def test_nothing_is_merged_by_a_chain(db: DB) -> None:
    """A is near B, B near C, C near D, D near E: each is asked about with one that it is near."""
    model(db)
    storing(db)
    ids = [store(db, f"Fact {name}", **angle(35 * n)) for n, name in enumerate("ABCDE")]
    plan = consolidate(db)
    assert [(ids.index(p["memory_id"]), ids.index(p["representative_id"])) for p in plan] == [
        (1, 0),
        (3, 2),
        (4, 3),
    ]
    assert [p["cluster"] for p in plan] == [1, 2, 3]
    assert [round(p["similarity"], 3) for p in plan] == [0.819, 0.819, 0.819]


def test_pairs_merged_in_the_meantime_are_requeued_or_obsolete(db: DB) -> None:
    model(db)
    storing(db)
    set_options(db, max_cluster_size=2)
    a, b, c, _ = vim(db)
    other = store(db, "Zed", subject="Zed")
    run_id = run_consolidation(db)
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [b, other])
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [c])
    assert approve(db, run_id) == 1, "asked again, about its root"
    assert approve(db, run_id) == 0
    assert overview(db, run_id)["obsolete"] == 2
    assert (
        rows(db, "select root_id from memories where memory_id in (%s, %s)", b, other) == [{"root_id": a}] * 2
    )
    check(db)


def test_limits_are_counted(db: DB) -> None:
    model(db)
    storing(db)
    set_options(db, max_cluster_size=2)
    _, b, c, _ = vim(db)
    for limit in ("max_operations", "max_judgements"):
        assert [p["memory_id"] for p in consolidate(db, **{limit: 1})] == [c], "the most similar first"
    run_id = run_consolidation(db, max_operations=1)
    assert overview(db, run_id)["report"] == {"questions": 2, "asked": 1, "left_out": 1, "open": 1}
    assert [p["memory_id"] for p in consolidate(db)] == [b]
    assert [p["memory_id"] for p in consolidate(db, approval="person", max_judgements=1)] == [b]


def test_protected_types_other_models_and_hashless_texts_are_left_out(db: DB) -> None:
    model(db)
    model(db, "other")
    storing(db)
    set_options(db, protected_types=["constraint"])
    for degrees in (0, 5):
        store(db, f"Gripper at {degrees}", memory_type="constraint", **angle(degrees))
        store(db, f"Of another model {degrees}", **{**angle(degrees), "embedding_model": "other"})
    storing(db, "off", dedup="off")
    for degrees in (0, 5):
        store(db, "Opted out", bucket_id="off", **angle(degrees))
    assert consolidate(db, embedding_model="m") == []
    assert len(consolidate(db, embedding_model="other")) == 1
    assert consolidate(db, "off") == []
    assert consolidate(db, "nobody's") == []


def test_bad_arguments(db: DB) -> None:
    model(db)
    storing(db)
    vim(db)
    for options in (
        {"threshold": 2},
        {"approval": "me"},
        {"max_operations": 0},
        {"max_judgements": 0},
        {"dry_run": None},
    ):
        with pytest.raises(psycopg.Error) as error:
            consolidate(db, **options)
        assert error.value.sqlstate == "MF022", options
    with pytest.raises(psycopg.Error) as error:
        consolidate(db, embedding_model="none")
    assert error.value.sqlstate == "MF013"
    run_id = run_consolidation(db)
    for arguments, code in (
        ((run_id, "same"), "MF028"),
        ((run_id, "duplicate", 0), "MF022"),
        ((UUID(int=0),), "MF038"),
    ):
        with pytest.raises(psycopg.Error) as error:
            approve(db, *arguments)
        assert error.value.sqlstate == code
    db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    assert overview(db, run_id)["obsolete"] == 1
    for call in ("undo_run", "approve_run"):
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select {call}(%s, tenant_id => 'acme')", [run_id])
        assert error.value.sqlstate == "MF039"
    with pytest.raises(psycopg.Error) as error:
        db.execute("select undo_run(%s, tenant_id => 'acme')", [UUID(int=0)])
    assert error.value.sqlstate == "MF038"
    db.execute(
        "insert into runs (tenant_id, bucket_id, kind, actor) values ('acme', 'default', 'decay', 'x')"
    )
    with pytest.raises(psycopg.Error) as error:
        db.execute("select undo_run(run_id, tenant_id => 'acme') from runs where kind = 'decay'")
    assert error.value.sqlstate == "MF039"
    db.execute("set role memfold_app")
    with pytest.raises(psycopg.Error) as error:
        db.execute("select undo_run(%s, tenant_id => 'acme')", [run_id])
    assert error.value.sqlstate == "MF002"


def tell(db: DB, bucket: str, first: bool) -> None:
    """Half of a story: 40 facts in three texts each, or later statements, some about the same facts."""
    at = "2026-01-01" if first else "2026-02-01"
    for n in range(0, 40, 1 if first else 3):
        for k, text in enumerate((f"fact {n} alpha", f"fact {n} beta", f"fact {n} gamma")):
            if first or k == n % 3:
                ingest(
                    db, text, bucket_id=bucket, subject=f"s{n // 4}", observed_at=at, source_turn_ids=[f"{at} {n}"],
                    metadata={"k": k, "first": first}, source_confidence=0.3 + 0.1 * k + (0.2 if not first else 0),
                    **vector(0.99 if first else 1.0, 1 + k) if n % 4 == 0 else {},
                )  # fmt: skip
    if not first:
        ingest(db, "news", bucket_id=bucket, observed_at=at)


def test_undo_run_restores_what_the_bucket_held(db: DB) -> None:
    """With ingests in between, of merged texts and of others: the result is that of a bucket that was never
    consolidated."""
    model(db)
    for bucket in ("control", "folded"):
        storing(db, bucket)
        tell(db, bucket, first=True)
    assert held(db, "folded") == held(db, "control")
    run_id = consolidate(db, "folded", dry_run=False, approval="person")[0]["run_id"]
    for _ in range(20):
        if not approve(db, run_id, "duplicate", 7):
            break
    assert overview(db, run_id)["merged"] == 20
    check(db)
    for bucket in ("control", "folded"):
        tell(db, bucket, first=False)
    assert held(db, "folded") != held(db, "control")
    undone = rows(db, "select * from undo_run(%s, 'acme', 'a mistake')", run_id)
    assert len(undone) == 30
    assert {u["status"] for u in undone} == {"active"}
    assert held(db, "folded") == held(db, "control")
    check(db)
    found = overview(db, run_id)
    assert (found["status"], found["merged"], found["undone"]) == ("undone", 0, 20)
    assert found["report"]["undone_because"] == "a mistake"
    assert consolidate(db, "folded") == [], "all texts of the former memory are distinct"


def test_a_merge_that_was_undone_by_itself_is_left_alone(db: DB) -> None:
    model(db)
    storing(db)
    vim(db)
    run_id = run_consolidation(db)
    approve(db, run_id)
    [first, _] = rows(db, "select event_id from memory_events where run_id = %s", run_id)
    db.execute("select undo(%s, tenant_id => 'acme')", [first["event_id"]])
    assert len(rows(db, "select * from undo_run(%s, tenant_id => 'acme')", run_id)) == 2
    assert overview(db, run_id)["undone"] == 2
    check(db)


LOAD = """
with new as (
    insert into memories (tenant_id, bucket_id, content, subject)
    select 'acme', 'large', 'loaded ' || n, 'User' from generate_series(1, %(count)s) as n
    returning tenant_id, bucket_id, memory_id, scope_key, content
), told as (
    insert into memory_events (tenant_id, bucket_id, action, memory_id, observation, content, source_confidence,
        extractor_confidence, observed_at, actor)
    select tenant_id, bucket_id, 'inserted', memory_id, true, content, 0.5, 0.5, '2026-01-01', 'x' from new
), counted as (
    insert into memory_counters (tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence,
        first_seen, last_seen)
    select tenant_id, memory_id, 1, 1, 0.5, 0.5, '2026-01-01', '2026-01-01' from new
), numbered as (
    select n.*, row_number() over (order by n.memory_id) as place from new as n
)
insert into memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
select n.tenant_id, n.memory_id, 'large', n.bucket_id, n.scope_key, v.embedding::vector
from numbered as n
join unnest(%(vectors)s::text[]) with ordinality as v (embedding, place) on v.place = n.place
"""


def test_a_large_group_is_searched_by_an_index_of_its_own(db: DB) -> None:
    """1,200 memories of one subject, 300 of them said again: all are found, and nothing is left behind."""
    random = np.random.default_rng(1)
    base = random.normal(size=(900, 32))
    vectors = np.vstack([base, base[:300] + 0.1 * random.normal(size=(300, 32))])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    db.execute("select register_embedding_model('large', 32, 0.92, 0.85)")
    with db.transaction():
        db.execute("set local client_min_messages = error")
        db.execute(
            LOAD, {"count": 1200, "vectors": [json.dumps([round(float(x), 6) for x in v]) for v in vectors]}
        )
    before = db.execute("show maintenance_work_mem").fetchone()
    with db.transaction():
        plan = consolidate(db, "large", threshold=0.9)
        assert db.execute("show enable_seqscan").fetchone() == ("on",)
        assert db.execute("show maintenance_work_mem").fetchone() == before
        assert db.execute("select count(*) from pg_class where relname like 'memfold%'").fetchone() == (0,)
    place = {
        row["memory_id"]: n
        for n, row in enumerate(rows(db, "select memory_id from memories order by memory_id"))
    }
    exact = vectors @ vectors.T
    wanted = {(int(b), int(a)) for a, b in np.argwhere(np.triu(exact >= 0.9, 1))}
    found = {(place[p["memory_id"]], place[p["representative_id"]]) for p in plan}
    assert len(found & wanted) >= 0.99 * len(wanted)
    assert found <= wanted
    run_id = consolidate(db, "large", threshold=0.9, dry_run=False, approval="person", max_operations=250)[0][
        "run_id"
    ]
    assert approve(db, run_id, "duplicate", 1000) in range(250), "some are answered, even on a slow machine"
    for _ in range(250):
        if not approve(db, run_id, "duplicate", 1000):
            break
    assert len(rows(db, "select * from undo_run(%s, tenant_id => 'acme')", run_id)) == 500
    check(db)
