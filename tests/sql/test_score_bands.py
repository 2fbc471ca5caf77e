"""A calibrated score in place of the cosine: tier 2's decisions, wherever they are made."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.maintenance import angle, policy, set_columns, store, storing
from tests.support.memories import check, counters, ingest, model, status
from tests.support.queries import DB, rows

# degrees; cosines 0.574, 0.643, 0.766, 0.940, 0.342
FARTHEST, FAR, MIDDLE, NEAR, OFF = 55, 50, 40, 20, 70
TEXTS = ("User likes tea", "User enjoys tea")


@pytest.fixture
def scored(db: DB) -> DB:
    """A model whose score has nothing to do with the cosine: it would merge what is at 0.64 and keep what is at 0.94."""
    model(db)
    db.execute(
        "create function memfold_internal._score_of_a_test(features double precision[]) returns double precision"
        " language sql immutable strict return case when features[1] < 0.6 then 0.99"
        " when features[1] < 0.7 then 0.95 when features[1] < 0.8 then 0.5 else 0.1 end;"
        " update memfold.embedding_models set score_function = '_score_of_a_test', candidate_threshold = 0.5,"
        " score_merge_threshold = 0.9, score_judge_threshold = 0.4"
    )
    return db


@pytest.mark.parametrize(
    ("degrees", "action", "reason"),
    [
        (FAR, "merged", "score 0.9500"),
        (MIDDLE, "escalated", "score 0.5000"),
        (NEAR, "inserted", None),
        (OFF, "inserted", None),  # below candidate_threshold
    ],
)
def test_the_score_decides(scored: DB, degrees: float, action: str, reason: str | None) -> None:
    old = ingest(scored, TEXTS[0], **angle(0))
    preview = ingest(scored, TEXTS[1], function="preview_memory", **angle(degrees))
    found = ingest(scored, TEXTS[1], **angle(degrees))
    assert (found.action, found.method) == (action, "score" if reason else None)
    assert (preview.action, preview.method, preview.similarity) == (
        found.action,
        found.method,
        found.similarity,
    )
    if reason:
        assert found.similarity == pytest.approx({FAR: 0.6428, MIDDLE: 0.7660}[degrees], abs=1e-4)
    [event] = rows(scored, "select reason, target_id from memory_events where event_id = %s", found.event_id)
    assert event == {"reason": reason, "target_id": old.memory_id if reason else None}
    check(scored)


def test_the_best_score_is_taken(scored: DB) -> None:
    """Not the nearest neighbour, nor the one that is only unclear."""
    storing(scored)
    store(scored, "User likes tea", **angle(NEAR))
    store(scored, "User loves tea", **angle(-MIDDLE))
    store(scored, "User enjoys tea", **angle(FAR))
    best = store(scored, "User is keen on tea", **angle(-FARTHEST))
    store(scored, "User adores tea", **angle(-MIDDLE - 1))
    scored.execute("delete from memfold.policies where tenant_id = 'acme'")
    found = ingest(scored, "User is fond of tea", **angle(0))
    assert (found.action, found.method, found.memory_id) == ("merged", "score", best)
    check(scored)


def test_neighbours_that_are_only_reported_are_not_scored(scored: DB) -> None:
    """A neighbour below candidate_threshold may be reported as similar, no more."""
    set_columns(scored, "policies", similar_threshold=0.2)
    old = ingest(scored, TEXTS[0], **angle(0))
    found = ingest(scored, TEXTS[1], **angle(OFF))
    assert (found.action, found.method) == ("inserted", None)
    assert [similar["memory_id"] for similar in found.similar] == [str(old.memory_id)]


def test_the_guard_holds_here_too(scored: DB) -> None:
    ingest(scored, "User likes tea", **angle(0))
    found = ingest(scored, "User does not like tea", **angle(FAR))
    assert (found.action, found.method) == ("escalated", "score")
    [event] = rows(scored, "select guard from memory_events where event_id = %s", found.event_id)
    assert len(event["guard"]) == 1
    assert event["guard"][0].startswith("negation")


def test_a_threshold_that_is_set_is_a_cosine(scored: DB) -> None:
    scored.execute("select set_policy('acme', merge_threshold => 0.92)")
    ingest(scored, TEXTS[0], **angle(0))
    assert ingest(scored, TEXTS[1], **angle(FAR)).action == "inserted"
    found = ingest(scored, "User is fond of tea", **angle(NEAR))
    assert (found.action, found.method) == ("merged", "vector")


def test_batches_and_late_vectors(scored: DB) -> None:
    """A batch does what single calls do, and so does a vector that comes late."""
    batch = [
        {"content": text, **{k: json.loads(v) if k == "embedding" else v for k, v in angle(degrees).items()}}
        for text, degrees in ((TEXTS[0], 0), (TEXTS[1], FAR), ("User is fond of tea", -MIDDLE))
    ]
    done = rows(
        scored,
        "select action, method from ingest_memories(%s::jsonb, 'acme') order by ordinal",
        json.dumps(batch),
    )
    assert done == [
        {"action": "inserted", "method": None},
        {"action": "merged", "method": "score"},
        {"action": "escalated", "method": "score"},
    ]
    late = ingest(scored, "User is fond of tea", bucket_id="late")
    old = ingest(scored, "User likes tea", bucket_id="late", **angle(0))
    [given] = rows(
        scored,
        "select action, method, memory_id from attach_embedding(%s, %s::vector, 'm', 'acme')",
        late.memory_id,
        angle(FAR)["embedding"],
    )
    assert (given["action"], given["method"]) == ("merged", "score")
    assert {status(scored, late), status(scored, old)} == {"active", "merged"}
    check(scored)


def test_a_sweep_goes_by_it(scored: DB) -> None:
    storing(scored)
    a = store(scored, "User likes tea", **angle(0))
    b = store(scored, "The user enjoys tea", **angle(FAR))
    c = store(scored, "User is fond of tea", **angle(-NEAR))
    scored.execute("delete from memfold.policies where tenant_id = 'acme'")
    policy(scored, on_ambiguous="insert")
    done = rows(scored, "select * from sweep_duplicates('acme', 'default', dry_run => false)")
    assert [(p["memory_id"], p["representative_id"], p["action"]) for p in done] == [(b, a, "merge")]
    [event] = rows(
        scored, "select method, similarity from memory_events where run_id = %s", done[0]["run_id"]
    )
    assert event["method"] == "score"
    assert status(scored, c) == "active"
    check(scored)


def test_collapsing_depends_on_the_cosine(scored: DB) -> None:
    """search_memories() compares cosines, as before: scores are for arriving texts."""
    store(scored, "User likes tea", **angle(0))
    store(scored, "The user enjoys tea", **angle(NEAR))
    found = rows(
        scored,
        "select memory_id from search_memories(%s::vector, 'm', 'acme', 'default')",
        angle(0)["embedding"],
    )
    assert len(found) == 1


def test_paraphrases_that_race_leave_one_memory(scored: DB, connect: Callable[..., DB]) -> None:
    """Writers of a scope take turns under a score, too: each sees what the one before it has stored."""
    scored.execute(
        "create or replace function memfold_internal._score_of_a_test(features double precision[]) returns double precision"
        " language sql immutable strict return 0.95"
    )
    # only the score decides: words that keep texts apart are tested elsewhere
    scored.execute("select set_policy('acme', guard => 'off')")
    verbs = ("likes", "enjoys", "loves", "adores", "fancies", "relishes", "is fond of", "is keen on")
    start = threading.Barrier(len(verbs))

    def write(verb: str, connection: DB) -> str:
        start.wait()
        return ingest(connection, f"User {verb} tea", **angle(0)).action

    connections = [connect() for _ in verbs]
    with ThreadPoolExecutor(len(verbs)) as pool:
        done = sorted(pool.map(write, verbs, connections))
    assert done == ["inserted", *["merged"] * (len(verbs) - 1)]
    [memory] = rows(scored, "select memory_id from memories where status = 'active'")
    assert counters(scored, memory["memory_id"])["observations"] == len(verbs)
    check(scored)
