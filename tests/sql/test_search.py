"""search_memories: its results, its ranking, and the memories that it shows as one."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest

from tests.conftest import Connect
from tests.support.memories import check, counters, ingest, model, vector
from tests.support.queries import DB
from tests.support.searching import QUERY, Found, keep, search, texts
from tests.support.servers import Cluster
from tests.support.vectors import Scans, limit, load, noise, text, unit

DATA = Path(__file__).parents[1] / "data"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))

import make_vectors  # noqa: E402


def groups(found: Found) -> list[set[str]]:
    """The groups shown as one, from a search with show_collapsed."""
    shown: dict[UUID, set[str]] = {}
    for row in found:
        shown.setdefault(row["collapsed_into"] or row["memory_id"], set()).add(row["content"])
    return list(shown.values())


@pytest.fixture
def store(db: DB) -> DB:
    model(db)
    keep(db)
    return db


# Issue 110 of the second source: seven paraphrases of two facts, with the vectors of a real model ---------------


@pytest.fixture
def coffee(db: DB) -> dict[str, list[str]]:
    """Its texts by kind, in a bucket with its preset and without a judge."""
    db.execute("select memfold.register_embedding_model('all-MiniLM-L6-v2', 384)")
    db.execute("select memfold.set_policy('acme', preset => 'store_and_load')")
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'insert')")
    kinds: dict[str, list[str]] = {}
    for line in (DATA / "paraphrases.jsonl").read_text().splitlines():
        row = json.loads(line)
        kinds.setdefault(row["kind"], []).append(row["content"])
    return kinds


def real(content: str) -> str:
    vectors = make_vectors.load_vectors(DATA / "paraphrases.npz")
    return json.dumps([float(x) for x in vectors[content]])


def remember(db: DB, contents: list[str]) -> None:
    for content in contents:
        result = ingest(db, content, embedding=real(content), embedding_model="all-MiniLM-L6-v2")
        assert result.action == "inserted"


@pytest.mark.parametrize("query", ["What coffee does the user like?", "coffee"])
def test_seven_paraphrases_of_two_facts_are_shown_as_two(
    db: DB, coffee: dict[str, list[str]], query: str
) -> None:
    remember(db, coffee["flat white"] + coffee["pour-over"])
    found = search(db, real(query), embedding_model="all-MiniLM-L6-v2")
    assert [row["collapsed_count"] for row in found] == [2, 3]
    assert found[0]["content"] in coffee["flat white"]
    assert found[1]["content"] in coffee["pour-over"]
    assert len(search(db, real(query), embedding_model="all-MiniLM-L6-v2", deduplicate=False)) == 7
    check(db)


def test_a_contradiction_of_a_paraphrase_is_shown_with_it(db: DB, coffee: dict[str, list[str]]) -> None:
    remember(db, coffee["contradiction"] + coffee["flat white"] + coffee["pour-over"] + coffee["other"])
    query = real("What coffee does the user like?")
    found = groups(search(db, query, embedding_model="all-MiniLM-L6-v2", show_collapsed=True))
    # from 0.71 to 0.95, where the paraphrases are at 0.79 to 0.94
    for contradiction in coffee["contradiction"]:
        (group,) = [group for group in found if contradiction in group]
        assert not group & set(coffee["flat white"])
    assert set(coffee["flat white"]) in found
    assert set(coffee["pour-over"]) in found
    assert set(coffee["other"]) in found


# Finding --------------------------------------------------------------------------------------------------------


def test_a_memory_is_shown_once_by_the_best_of_its_texts(db: DB) -> None:
    model(db)
    root = ingest(db, "User likes Vim", **vector(0.6))
    ingest(db, "User loves Emacs", **vector(0.5, axis=2))
    other = ingest(db, "User is fond of Vim", **vector(1.0))
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    db.execute("select memfold.merge_memories(%s, %s)", [other.memory_id, root.memory_id])
    found = search(db)
    assert texts(found) == ["User likes Vim", "User loves Emacs"]
    assert (found[0]["similarity"], found[0]["matched_similarity"]) == (pytest.approx(0.6), 1)
    assert (found[0]["matched_id"], found[0]["matched_content"]) == (other.memory_id, "User is fond of Vim")
    assert (found[1]["matched_id"], found[1]["matched_content"]) == (
        found[1]["memory_id"],
        "User loves Emacs",
    )
    assert (found[0]["repetition_count"], found[0]["collapsed_count"]) == (1, 0)


def test_only_active_memories_are_shown(store: DB) -> None:
    gone = ingest(store, "User likes tea", **vector(1.0))
    ingest(store, "User likes rum", **vector(0.6))
    store.execute("select memfold.reject_memory(%s, tenant_id => 'acme')", [gone.memory_id])
    assert texts(search(store)) == ["User likes rum"]
    assert search(store, bucket="elsewhere") == []
    assert search(store, tenant="globex") == []


FILTERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # the filter, what passes, what does not
    ({"memory_type": "habit"}, {"memory_type": "habit"}, {"memory_type": "fact"}),
    ({"subject": " ANN."}, {"subject": "Ann"}, {"subject": "Bob"}),
    ({"subject": "Ann"}, {"subject": "ann"}, {}),
    ({"predicate": "Likes"}, {"predicate": "likes"}, {"predicate": "owns"}),
    ({"session_id": "s1"}, {"session_id": "s1"}, {"session_id": "S1"}),
    ({"metadata": {"a": 1}}, {"metadata": {"a": 1, "b": 2}}, {"metadata": {"a": 2}}),
    ({"metadata": {"t": ["x"]}}, {"metadata": {"t": ["y", "x"]}}, {"metadata": {"t": ["y"]}}),
    (
        {"min_confidence": 0.7},
        {"source_confidence": 1, "extractor_confidence": 0.7},
        {"source_confidence": 0.9},
    ),
    (
        {"memory_type": "habit", "subject": "Ann", "predicate": "likes"},
        {"memory_type": "habit", "subject": "Ann", "predicate": "likes"},
        {"memory_type": "habit", "subject": "Ann", "predicate": "owns"},
    ),
]


def test_filters(store: DB) -> None:
    """However many nearer memories the filter excludes."""
    for number, (given, passes, fails) in enumerate(FILTERS):
        bucket = f"b{number}"
        for n in range(12):
            ingest(store, f"Near {n}", bucket_id=bucket, **vector(1 - n / 1000), **fails)
        ingest(store, "Far", bucket_id=bucket, **vector(0.3, axis=2), **passes)
        ingest(store, "Farther", bucket_id=bucket, **vector(0.1, axis=3), **passes)
        assert texts(search(store, bucket=bucket, max_results=1, **given)) == ["Far"], given
        assert texts(search(store, bucket=bucket, **given)) == ["Far", "Farther"], given
        assert len(search(store, bucket=bucket, deduplicate=False, max_results=14)) == 14
        assert search(store, **given, bucket="elsewhere") == []


def test_an_alias_is_found_by_what_its_memory_is(store: DB) -> None:
    """Filters apply to the shown memory."""
    root = ingest(store, "User likes Vim", memory_type="habit", session_id="s1", **vector(0.5))
    alias = ingest(store, "Vim is the user's editor", memory_type="fact", session_id="s2", **vector(1.0))
    store.execute(
        "select memfold.merge_memories(%s, %s, tenant_id => 'acme')", [alias.memory_id, root.memory_id]
    )
    for given in (
        {"memory_type": "habit"},
        {"session_id": "s1"},
        {"memory_type": "habit", "session_id": "s1"},
    ):
        assert [(row["memory_id"], row["matched_similarity"]) for row in search(store, **given)] == [
            (root.memory_id, 1)
        ]
    assert search(store, memory_type="fact") == search(store, session_id="s2") == []


def test_the_options_of_a_type_decide_what_it_takes_to_be_shown(store: DB) -> None:
    store.execute("select memfold.set_options('acme', 'default', 'rumour', min_confidence => 0.6)")
    ingest(store, "A fact", **vector(1.0))
    ingest(store, "A rumour", memory_type="rumour", **vector(0.7, axis=2))
    sure = {"source_confidence": 1, "extractor_confidence": 1}
    ingest(store, "A rumour that many tell", memory_type="rumour", **sure, **vector(0.6, axis=3))
    assert texts(search(store)) == ["A fact", "A rumour that many tell"]
    assert texts(search(store, min_confidence=0)) == ["A fact", "A rumour", "A rumour that many tell"]
    # what is shown as 0.17 is 0.5 * 0.1 + 0.3 * 0.4 = 0.16999999999999998
    low = {"source_confidence": 0.1, "extractor_confidence": 0.4}
    ingest(store, "A guess", bucket_id="guesses", **low, **vector(1.0))
    assert texts(search(store, bucket="guesses", min_confidence=0.17)) == ["A guess"]
    assert search(store, bucket="guesses", min_confidence=0.171) == []


def test_as_of(db: DB) -> None:
    model(db)
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    berlin = ingest(
        db, "Ann lives in Berlin", object="Berlin", observed_at="2024-01-01 UTC", **slot, **vector(1.0)
    )
    ingest(db, "Ann lives in Munich", object="Munich", observed_at="2025-01-01 UTC", **slot, **vector(0.9))
    ingest(db, "Ann plays chess", observed_at="2024-06-01 UTC", **vector(0.2))
    assert texts(search(db)) == ["Ann lives in Munich", "Ann plays chess"]
    assert texts(search(db, as_of="2024-03-01 UTC")) == ["Ann lives in Berlin"]
    assert texts(search(db, as_of="2024-07-01 UTC")) == ["Ann lives in Berlin", "Ann plays chess"]
    assert texts(search(db, as_of="2025-07-01 UTC")) == ["Ann lives in Munich", "Ann plays chess"]
    assert search(db, as_of="2023-01-01 UTC") == []
    assert texts(search(db, as_of="2024-07-01 UTC", predicate="lives_in")) == ["Ann lives in Berlin"]
    ingest(db, "Ann lives in Berlin", observed_at="2026-01-01 UTC", **slot)  # A-B-A
    assert texts(search(db, as_of="2025-07-01 UTC"))[0] == "Ann lives in Munich"
    assert search(db)[0]["memory_id"] == berlin.memory_id


@pytest.mark.new_database
def test_large_buckets(db: DB, app: Connect) -> None:
    """Through the index if there is one, with filters inside the scan; otherwise the newest."""
    limit(db)
    db.execute("select register_embedding_model('m', 16, 0.92, 0.85)")
    vectors = noise(1200, 1)
    ids = load(db, "acme", vectors)
    db.execute(
        "update memfold.memories set metadata = '{\"rare\": true}' where memory_id = any(%s)", [ids[::25]]
    )
    load(db, "globex", noise(200, 3))
    mine = app("acme")
    oldest = text(vectors[0])

    def found(query: str, **given: Any) -> list[UUID]:
        rows = search(mine, query, bucket="wide", deduplicate=False, **given)
        return [row["memory_id"] for row in rows]

    assert set(found(oldest)) <= set(ids[-50:])
    db.execute("select create_vector_index('m')")
    with Scans(mine) as scans:
        assert found(oldest)[0] == ids[0]
    assert scans.count == 1
    rare = np.arange(0, 1200, 25)
    hits = 0
    for query in noise(20, 2):
        near = unit(vectors) @ unit(query)
        hits += len({ids[i] for i in np.argsort(-near)[:10]} & set(found(text(query))))
        best = rare[np.argsort(-near[rare])[:5]]
        assert set(found(text(query), max_results=5, metadata={"rare": True})) == {ids[i] for i in best}
    assert hits >= 195
    # exact again, by a filter that few pass
    with Scans(mine) as scans:
        assert found(oldest, memory_type="fact", subject="no one", predicate="likes") == []
        assert found(oldest, session_id="none") == []
    assert scans.count == 0
    assert found(oldest, as_of="now()")[0] == ids[0]
    # the other tenant, too small for the index to be useful
    assert len(search(app("globex"), oldest, tenant="globex", bucket="wide")) == 10


def test_a_scope_of_a_large_bucket_is_searched_exactly(store: DB) -> None:
    limit(store, 5)
    slot = {"subject": "Ann", "predicate": "likes"}
    ingest(store, "Ann likes tea", **slot, **vector(1.0))
    for n in range(8):
        ingest(store, f"Bob said {n}", subject="Bob", predicate="said", **vector(0.9))
    assert "Ann likes tea" not in texts(search(store, deduplicate=False))
    assert texts(search(store, memory_type="fact", **slot)) == ["Ann likes tea"]


# Collapsed results ----------------------------------------------------------------------------------------------


def near(db: DB, *contents: str, **fields: Any) -> list[Any]:
    """Memories so near one another that only their fields keep them apart."""
    return [
        ingest(db, content, **vector(0.99 - n / 1000), **fields).memory_id
        for n, content in enumerate(contents)
    ]


def test_memories_that_say_the_same_are_shown_once(store: DB) -> None:
    first, second, third = near(store, "User likes tea", "User likes tea very much", "The user likes tea")
    (row,) = search(store)
    assert row["memory_id"] == second
    assert row["content"] == "User likes tea very much"  # the longest
    assert row["collapsed_ids"] == [first, third]
    assert row["collapsed_count"] == 2
    assert row["collapsed_into"] is None
    single = search(store, deduplicate=False)
    assert [r["memory_id"] for r in single] == [first, second, third]
    assert row["score"] == max(r["score"] for r in single)
    assert row["similarity"] == single[1]["similarity"]
    assert [r["collapsed_ids"] for r in single] == [[], [], []]
    every = search(store, show_collapsed=True)
    assert [(r["memory_id"], r["collapsed_into"]) for r in every] == [
        (second, None),
        (first, second),
        (third, second),
    ]
    assert [r["score"] for r in every] == [single[1]["score"], single[0]["score"], single[2]["score"]]


def test_the_threshold(store: DB) -> None:
    first = ingest(store, "User likes tea", **vector(1.0))
    ingest(store, "User is fond of tea", **vector(0.8))
    assert len(search(store)) == 1  # the options' 0.8, at or above
    assert len(search(store, dedup_threshold=0.800001)) == 2
    store.execute("select memfold.set_options('acme', search_threshold => 0.9)")
    assert len(search(store)) == 2
    assert len(search(store, dedup_threshold=0.75)) == 1
    store.execute("update memfold.options set search_threshold = null where tenant_id = 'acme'")
    assert len(search(store)) == 2  # the model's judge threshold, 0.85
    store.execute("update memfold.embedding_models set judge_threshold = 0.8")
    assert len(search(store)) == 1
    assert first.action == "inserted"


FIELDS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"predicate": "likes"}, {"predicate": "LIKES"}, True),
    ({"predicate": "likes"}, {"predicate": "owns"}, False),
    ({"predicate": "likes"}, {}, False),
    ({"object": "tea"}, {"object": "Tea."}, True),
    ({"object": "tea"}, {"object": "rum"}, False),
    ({"object": "tea"}, {}, True),
    ({"subject": "Ann"}, {"subject": "ann"}, True),
    ({"subject": "Ann"}, {"subject": "Bob"}, False),
    ({"memory_type": "habit"}, {"memory_type": "fact"}, True),
]


def test_fields_that_differ_keep_apart(store: DB) -> None:
    """Without the guard, which would see other objects too."""
    keep(store, guard="off")
    for number, (one, other, together) in enumerate(FIELDS):
        near(store, "Likes tea", bucket_id=str(number), **one)
        near(store, "Is fond of tea", bucket_id=str(number), **other)
        assert len(search(store, bucket=str(number))) == (1 if together else 2), (one, other)


def test_the_guard_keeps_apart(store: DB) -> None:
    near(store, "User likes tea", "User doesn't like tea")
    near(store, "User has 2 cats", "User has 3 cats")
    assert len(search(store)) == 4
    store.execute("select memfold.set_policy('acme', guard => 'off')")
    assert len(search(store)) == 1


def test_pairs_judged_distinct_stay_apart(db: DB) -> None:
    model(db)
    keep(db, on_ambiguous="judge", conflict="keep_both")
    for verdict, together in (("contradiction", False), ("distinct", False), ("unsure", True), (None, True)):
        bucket = str(verdict)
        near(db, "User likes tea", "User is fond of tea", bucket_id=bucket)
        (judgement,) = db.execute(
            "select judgement_id from memfold.judgements where bucket_id = %s", [bucket]
        ).fetchone() or (None,)
        if verdict is not None:
            sure = ("distinct", 0.5) if verdict == "unsure" else (verdict, 0.9)
            db.execute(
                "select memfold.resolve_judgement(%s, %s, confidence => %s, tenant_id => 'acme', model => 'toy')",
                [judgement, *sure],
            )
        row = db.execute("select verdict from memfold.judgements where bucket_id = %s", [bucket]).fetchone()
        assert row == (verdict,)
        assert len(search(db, bucket=bucket)) == (1 if together else 2), verdict


def test_a_verdict_applies_to_what_its_sides_were_merged_into(db: DB) -> None:
    """The older or the newer of them."""
    model(db)
    for folded in (0, 1):
        bucket = {"bucket_id": f"b{folded}"}
        keep(db, on_ambiguous="judge", conflict="keep_both")
        sides = near(db, "User likes tea", "User is fond of tea", **bucket)
        (judgement,) = db.execute(
            "select judgement_id from memfold.judgements where status = 'open'"
        ).fetchone() or (None,)
        db.execute(
            "select memfold.resolve_judgement(%s, 'contradiction', confidence => 0.9, tenant_id => 'acme')",
            [judgement],
        )
        keep(db)
        (richer,) = near(db, "User likes a cup of tea", **bucket)
        assert len(search(db, bucket=f"b{folded}")) == 2
        db.execute("select memfold.merge_memories(%s, %s, tenant_id => 'acme')", [sides[folded], richer])
        assert [row["collapsed_count"] for row in search(db, bucket=f"b{folded}")] == [0, 0]


def test_search_does_not_repeat_an_undone_merge(db: DB) -> None:
    model(db)
    near(db, "User likes tea")
    merged = ingest(db, "User is fond of tea", **vector(0.98))
    assert merged.action == "merged"
    assert len(search(db)) == 1
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [merged.event_id])
    assert [row["collapsed_count"] for row in search(db)] == [0, 0]


def test_values_of_one_slot_are_not_one(db: DB) -> None:
    """Even without objects to compare."""
    model(db)
    keep(db, conflict="keep_both")
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    near(db, "Ann lives by the river", "Ann lives by the forest", **slot)
    assert len(search(db)) == 2
    near(db, "Ann dwells by a stream", object="stream", **slot)
    near(db, "Ann dwells by the stream", object="Stream", **slot)
    assert sorted(len(group) for group in groups(search(db, show_collapsed=True))) == [1, 1, 2]


def test_each_must_say_the_same_as_all(store: DB) -> None:
    """a is near b and b near c, but a is not near c: no chain."""
    ingest(store, "a", embedding="[1,0,0,0]", embedding_model="m")
    ingest(store, "bb", embedding="[0.9,0.43589,0,0]", embedding_model="m")
    ingest(store, "c", embedding="[0.62,0.7846,0,0]", embedding_model="m")
    assert [set(group) for group in groups(search(store, show_collapsed=True))] == [{"a", "bb"}, {"c"}]
    # from the other end b and c are compared first
    assert groups(search(store, "[0.5,0.866,0,0]", show_collapsed=True)) == [{"c", "bb"}, {"a"}]


SHOWN: list[tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = [
    # the longest in canonical form
    (("User likes green teas", {}), ("User  likes   green    tea", {"source_confidence": 1})),
    # of equals the most confident
    (("User likes tea", {"source_confidence": 0.9}), ("User loves tea", {"observed_at": "now()"})),
    # then the newest
    (("User likes tea", {"observed_at": "2025-02-01 UTC"}), ("User loves tea", {})),
    (
        ("User likes tea", {"observed_at": "2024-12-31 UTC"}),
        ("User loves tea", {"observed_at": "2024-12-30 UTC"}),
    ),
]


def test_which_text_of_a_group_is_shown(store: DB) -> None:
    """In either order of rank and of arrival."""
    for number, (shown, hidden) in enumerate(SHOWN):
        for turn, order in enumerate([(shown, hidden), (hidden, shown)]):
            bucket = f"{number} {turn}"
            for n, (content, fields) in enumerate(order):
                fields = {"observed_at": "2025-01-01 UTC", "bucket_id": bucket, **fields}
                ingest(store, content, **fields, **vector(0.99 - n / 100))
            (row,) = search(store, bucket=bucket)
            assert (row["content"], row["collapsed_count"]) == (shown[0], 1)


def test_search_widens_when_one_fact_crowds_out_the_rest(store: DB) -> None:
    store.execute("select memfold.set_policy('acme', guard => 'off')")
    for n in range(100):
        ingest(store, f"User likes tea {n}", **vector(1 - n / 1000))
    for axis, drink in ((2, "rum"), (3, "gin")):
        ingest(store, f"User likes {drink}", **vector(0.5, axis=axis))
    found = search(store, max_results=3)
    assert [row["collapsed_count"] for row in found] == [99, 0, 0]
    # but within a limit: 48 times as many as requested
    assert [row["collapsed_count"] for row in search(store, max_results=2)] == [95]


def test_equal_searches_have_equal_answers(store: DB, connect: Connect) -> None:
    for n in range(30):
        ingest(store, f"User likes tea no {n}", **vector(0.9, axis=1 + n % 3))
    first = search(store, max_results=20)
    assert len({(row["score"], row["similarity"]) for row in first}) == 1
    assert [row["memory_id"] for row in first] == sorted((row["memory_id"] for row in first), reverse=True)
    assert search(store, max_results=20) == first == search(connect(), max_results=20)


# Rank -----------------------------------------------------------------------------------------------------------


def test_score(store: DB) -> None:
    tea = ingest(store, "User likes tea", **vector(0.7), source_confidence=1, extractor_confidence=1)
    rum = ingest(store, "User likes rum", **vector(0.75, axis=2), source_confidence=0, extractor_confidence=0)
    found = search(store)
    # 0.8 * similarity + 0.1 * confidence + 0.1 * (0 + 1) / (0 + 0 + 2)
    assert [(row["memory_id"], pytest.approx(row["score"])) for row in found] == [
        (tea.memory_id, 0.8 * 0.7 + 0.1 * 0.8 + 0.05),
        (rum.memory_id, 0.8 * 0.75 + 0.05),
    ]
    assert [row["confidence"] for row in found] == [0.8, 0]
    store.execute("select memfold.set_options('acme', rank_confidence => 0, rank_feedback => 0)")
    assert texts(search(store)) == ["User likes rum", "User likes tea"]
    assert [row["score"] for row in search(store)] == [0.75, 0.7]


def test_feedback_changes_the_rank(store: DB) -> None:
    tea = ingest(store, "User likes tea", **vector(0.69))
    rum = ingest(store, "User likes rum", **vector(0.72, axis=2))
    assert texts(search(store)) == ["User likes rum", "User likes tea"]

    def feedback(memory_id: UUID | None, helpful: bool) -> Any:
        return store.execute(
            "select * from memfold.record_feedback(%s, %s, 'acme')", [memory_id, helpful]
        ).fetchone()

    assert feedback(tea.memory_id, True) == (1, 0)
    # 0.8 * 0.03 weighs more than 0.1 * (2/3 - 1/2), and less than 0.1 * (2/3 - 1/3)
    assert texts(search(store)) == ["User likes rum", "User likes tea"]
    assert feedback(rum.memory_id, False) == (0, 1)
    assert texts(search(store)) == ["User likes tea", "User likes rum"]
    assert feedback(rum.memory_id, True) == (1, 1)
    assert feedback(rum.memory_id, True) == (2, 1)
    store.execute("select memfold.set_options('acme', rank_feedback => 0)")
    assert texts(search(store)) == ["User likes rum", "User likes tea"]
    check(store)


def test_feedback_on_an_alias_is_its_memory_s(store: DB) -> None:
    root = ingest(store, "User likes tea", **vector(1.0))
    alias = ingest(store, "User loves tea", **vector(0.9))
    store.execute(
        "select memfold.merge_memories(%s, %s, tenant_id => 'acme')", [alias.memory_id, root.memory_id]
    )
    store.execute("select memfold.record_feedback(%s, true, 'acme')", [alias.memory_id])
    assert counters(store, root.memory_id)["helpful_count"] == 1


def test_bad_feedback(db: DB) -> None:
    for call, code in {
        "record_feedback(gen_random_uuid(), true, 'acme')": "MF018",
        "record_feedback(null, true, 'acme')": "MF018",
        "record_feedback(gen_random_uuid(), null, 'acme')": "MF022",
        "record_feedback(gen_random_uuid(), true, '')": "MF001",
    }.items():
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select memfold.{call}")
        assert error.value.sqlstate == code, call


# Touch ----------------------------------------------------------------------------------------------------------


def test_touch_counts_what_is_shown(store: DB) -> None:
    near(store, "User likes tea", "User likes tea very much")
    far = ingest(store, "User likes rum", **vector(0.1)).memory_id

    def counts() -> list[int]:
        rows = store.execute(
            "select access_count from memfold.memory_audit where (access_count > 0) = (last_accessed is not null)"
            " order by memory_id"
        ).fetchall()
        return [row[0] for row in rows]

    search(store)
    assert counts() == [0, 0, 0]
    search(store, touch=True, max_results=1)
    assert counts() == [0, 1, 0]
    store.execute("select memfold.set_options('acme', touch => true)")
    search(store)
    assert counts() == [0, 2, 1]
    search(store, touch=False)
    search(store, as_of="now()")  # a search of the past
    with store.transaction():
        store.execute("set transaction read only")
        assert len(search(store)) == 2
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            search(store, touch=True)
    assert counts() == [0, 2, 1]
    search(store, show_collapsed=True)
    assert counts() == [0, 3, 2]
    assert counters(store, far)["access_count"] == 2
    check(store)


def test_touch_waits_for_nobody(store: DB, connect: Connect) -> None:
    memory = ingest(store, "User likes tea", **vector(1.0)).memory_id
    ingest(store, "User likes rum", **vector(0.1))
    other = connect()
    with other.transaction():
        other.execute("select from memfold.memory_counters where memory_id = %s for update", [memory])
        store.execute("set lock_timeout = '1s'")
        assert len(search(store, touch=True)) == 2
    rows = store.execute("select content, access_count from memfold.memory_audit order by 1 desc").fetchall()
    assert rows == [("User likes tea", 0), ("User likes rum", 1)]


@pytest.mark.new_database
def test_touch_writes_no_index(store: DB) -> None:
    ingest(store, "User likes tea", **vector(1.0))
    with store.transaction():
        for _ in range(5):
            search(store, touch=True)
        row = store.execute(
            "select pg_stat_get_xact_tuples_updated(c.oid), pg_stat_get_xact_tuples_hot_updated(c.oid)"
            " from pg_class as c where c.oid = 'memfold.memory_counters'::regclass"
        ).fetchone()
    assert row == (5, 5)


@pytest.mark.one_server
def test_on_a_standby(own_cluster: Cluster, standby: str) -> None:
    with psycopg.connect(own_cluster.dsn(), autocommit=True) as primary:
        primary.execute("set search_path = public, memfold")
        model(primary)
        keep(primary, touch=True)
        near(primary, "User likes tea", "User likes tea very much")
        primary.execute("select memfold.create_vector_index('m')")
        (position,) = primary.execute("select pg_current_wal_flush_lsn()::text").fetchone() or ("",)
    with psycopg.connect(standby, autocommit=True) as replica:
        replica.execute("set search_path = public, memfold")
        for _ in range(600):
            row = replica.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [position]).fetchone()
            if row == (True,):
                break
            replica.execute("select pg_sleep(0.05)")
        for given in ({}, {"touch": False}):
            assert [row["collapsed_count"] for row in search(replica, **given)] == [1]


# Bad arguments, and isolation ---------------------------------------------------------------------------------------


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_results": 0}, "MF022"),
    ({"max_results": 1001}, "MF022"),
    ({"max_results": None}, "MF022"),
    ({"dedup_threshold": 1.1}, "MF022"),
    ({"dedup_threshold": -0.1}, "MF022"),
    ({"dedup_threshold": "NaN"}, "MF022"),
    ({"min_confidence": 2}, "MF022"),
    ({"metadata": [1]}, "MF022"),
    ({"query": None}, "MF022"),
    ({"query": "[1,0]"}, "MF014"),
    ({"query": "[0,0,0,0]"}, "MF015"),
    ({"embedding_model": None}, "MF012"),
    ({"embedding_model": "other"}, "MF013"),
    ({"bucket": ""}, "MF003"),
    ({"subject": ""}, "MF003"),
    ({"session_id": "s" * 513}, "MF003"),
    ({"tenant": ""}, "MF001"),
    ({"tenant": None}, "MF001"),
]


def test_bad_arguments(store: DB) -> None:
    for given, code in BAD:
        with pytest.raises(psycopg.Error) as error:
            search(store, **{"query": QUERY, **given})
        assert error.value.sqlstate == code, given


def test_bounds_are_allowed(store: DB) -> None:
    near(store, "User likes tea", "User loves tea")
    for given in ({"max_results": 1}, {"max_results": 1000}, {"dedup_threshold": 0}, {"min_confidence": 0}):
        assert len(search(store, **given)) == 1
    assert len(search(store, dedup_threshold=1)) == 2
    assert search(store, min_confidence=1) == []
    assert len(search(store, deduplicate=None)) == 1
    assert search(store, metadata={"a": 1}) == []


def test_tenants(store: DB, app: Connect) -> None:
    near(store, "User likes tea")
    ingest(store, "User likes rum", tenant_id="globex", **vector(1.0))
    mine = app("acme")
    assert texts(search(mine)) == ["User likes tea"]
    rum = store.execute("select memory_id from memfold.memories where tenant_id = 'globex'").fetchone()
    with pytest.raises(psycopg.Error) as error:
        search(mine, tenant="globex")
    assert error.value.sqlstate == "MF002"
    with pytest.raises(psycopg.Error) as error:
        mine.execute("select memfold.record_feedback(%s, true)", rum)
    assert error.value.sqlstate == "MF018"
    with pytest.raises(psycopg.Error) as error:
        search(app())
    assert error.value.sqlstate == "MF002"


def test_the_usual_call_with_positional_arguments(store: DB) -> None:
    """The usual call, with positional arguments."""
    near(store, "User likes tea")
    row = store.execute(
        "select content, score > 0, collapsed_count from memfold.search_memories(%s, 'm', 'acme', 'default', 5)",
        [QUERY],
    ).fetchone()
    assert row == ("User likes tea", True, 0)
    assert uuid.UUID(str(search(store)[0]["memory_id"]))


def test_the_strictest_threshold_of_several_buckets_applies(db: DB) -> None:
    """A result that one bucket's threshold would show is not hidden by another's."""
    model(db)
    for bucket, threshold, content, cosine in (
        ("a", 0.99, "Alice likes green tea", 1),
        ("b", 0.9, "Tea is what she drinks", 0.95),
    ):
        db.execute("select memfold.set_options('acme', %s, search_threshold => %s)", [bucket, threshold])
        ingest(db, content, bucket_id=bucket, **vector(cosine))
    query = vector(1)
    found = db.execute(
        "select content from memfold.search_memories(%s, %s, tenant_id => 'acme', bucket_ids => '{a,b}') order by 1",
        [query["embedding"], query["embedding_model"]],
    ).fetchall()
    assert found == [("Alice likes green tea",), ("Tea is what she drinks",)]


def test_as_of_its_first_statement_a_memory_is_found(db: DB) -> None:
    ingest(db, "Alice likes tea", observed_at="2026-01-01 12:00:00+00")
    for moment, count in (("2026-01-01 11:59:59.999999+00", 0), ("2026-01-01 12:00:00+00", 1)):
        assert db.execute(
            "select count(*) from memfold.search_memories(query => 'tea', tenant_id => 'acme', as_of => %s)",
            [moment],
        ).fetchone() == (count,)
