"""Document 001, a store-time and a load-time tier, replayed with its numbers.

Vectors are made to have the distance (1 - cosine) that the document states.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.judging import answer
from tests.support.memories import Result, check, counters, ingest, inside, status, vector
from tests.support.queries import DB

# The tests of the functions cover each server.
pytestmark = pytest.mark.one_server
COFFEE = (
    "User likes coffee, flat white usually",
    "Coffee enthusiast, favorite coffee is flatwhite",
    "User loves coffee, especially flat white",
)
# 0.28 and 0.25 from the first, as the document has it
VECTORS = ([1.0, 0, 0, 0], [0.72, 0.6939740629158989, 0, 0], [0.75, 0, 0.6614378277661477, 0])
BROKEN = "User broke the pour-over set"


@pytest.fixture
def store_and_load(db: DB) -> DB:
    """From 0.65 on (distance 0.35) a judge writes one text; nothing merges by itself; search folds from 0.6 on."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    db.execute("select set_policy('acme', preset => 'store_and_load')")
    return db


def coffee(db: DB, i: int, **more: Any) -> Result:
    return ingest(db, COFFEE[i], embedding=json.dumps(VECTORS[i]), embedding_model="m", **more)


def current(db: DB) -> list[str]:
    return [row[0] for row in db.execute("select content from current_memories('acme')").fetchall()]


@pytest.mark.parametrize(
    ("distance", "action"),
    [
        (0.0, "escalated"), (0.1, "escalated"), (0.2, "escalated"), (0.25, "escalated"), (0.3499, "escalated"),
        (0.35, "escalated"), (0.3501, "inserted"), (0.4, "inserted"), (0.5, "inserted"),
    ],
)  # fmt: skip
def test_the_store_time_threshold(store_and_load: DB, distance: float, action: str) -> None:
    """0.35 (the document has 0.12, 0.2, 0.35, 0.4 and 0.5 in one text; this is what its settings say)."""
    coffee(store_and_load, 0)
    found = ingest(store_and_load, COFFEE[1], **vector(inside(1 - distance, 0.65)))
    assert found.action == action
    kinds = store_and_load.execute("select kind from judgements").fetchall()
    assert kinds == ([("synthesis",)] if action == "escalated" else [])
    check(store_and_load)


@pytest.mark.parametrize(("distance", "stored"), [(0.12, 3), (0.2, 3)])
def test_before_paraphrases_were_stored_three_times(store_and_load: DB, distance: float, stored: int) -> None:
    """Distances 0.28 and 0.25 pass through what was set before."""
    store_and_load.execute("select set_policy('acme', judge_threshold => %s)", [1 - distance])
    assert [coffee(store_and_load, i).action for i in range(3)] == ["inserted"] * 3
    assert len(current(store_and_load)) == stored


def test_the_coffee_memories_end_as_two_facts(store_and_load: DB) -> None:
    """Three paraphrases and a broken pour-over set: a judge writes one text for the three, step by step."""
    first = coffee(store_and_load, 0, source_turn_ids=["1"])
    second = coffee(store_and_load, 1, source_turn_ids=["2"])
    assert (second.action, second.similarity) == ("escalated", pytest.approx(0.72))
    one_text = "User is a coffee enthusiast who prefers flat white"
    answer(store_and_load, "duplicate", 0.9, merged_text=one_text)
    broken = ingest(
        store_and_load, BROKEN, embedding=json.dumps([0, 0, 0, 1]), embedding_model="m", source_turn_ids=["4"]
    )
    assert broken.action == "inserted"
    # near to a text that was merged, judged against the one it leads to, which has no vector yet
    third = coffee(store_and_load, 2, source_turn_ids=["3"])
    assert (third.action, third.similarity) == ("escalated", None)
    assert third.similar[0]["matched_similarity"] == pytest.approx(0.75)
    assert store_and_load.execute(
        "select other_content from open_judgements where judgement_id = %s", [third.judgement_id]
    ).fetchone() == (one_text,)
    found = answer(
        store_and_load, "refinement", 0.9, merged_text="User is an enthusiast of coffee who loves flat white"
    )
    assert sorted(current(store_and_load)) == [BROKEN, "User is an enthusiast of coffee who loves flat white"]
    fact = counters(store_and_load, found[3])
    assert (fact["observations"], fact["independent"], fact["aliases"]) == (3, 3, 4)
    # the document deletes what it merged; here each text still leads to the fact, and asks nobody
    for i in range(3):
        again = coffee(store_and_load, i)
        assert (again.action, again.tier, again.memory_id) == ("merged", 1, found[3])
    assert store_and_load.execute("select count(*) from judgements where status <> 'done'").fetchone() == (0,)
    # lineage: which memories went into which
    assert store_and_load.execute(
        "select count(*) from memory_events where action = 'replaced' and tier = 3"
    ).fetchone() == (4,)
    assert status(store_and_load, first) == "merged"
    check(store_and_load)


def test_an_empty_reply_destroys_nothing(store_and_load: DB) -> None:
    """The document merges, then deletes the originals: an empty reply of the model would be the end of them."""
    coffee(store_and_load, 0)
    coffee(store_and_load, 1)
    assert answer(store_and_load, "duplicate", 0.9, merged_text=None)[2] == "judged"
    assert current(store_and_load) == list(COFFEE[:2])
    check(store_and_load)


def test_what_a_judge_calls_distinct_is_kept(store_and_load: DB) -> None:
    """Context collapse: "likes flat white" and "broke the pour-over set" are near each other, and two facts."""
    coffee(store_and_load, 0)
    ingest(store_and_load, BROKEN, **vector(0.7))
    answer(store_and_load, "distinct", 0.9, merged_text="User likes coffee and broke the set")
    assert current(store_and_load) == [COFFEE[0], BROKEN]
    check(store_and_load)


def test_equal_texts_and_the_counter(store_and_load: DB) -> None:
    """Hash before vectors; a confirmation raises confidence instead of making an entry."""
    first = coffee(store_and_load, 0)
    again = ingest(store_and_load, "user likes coffee, flat white usually.")
    assert (again.action, again.tier, again.memory_id) == ("merged", 1, first.memory_id)
    assert counters(store_and_load, first.memory_id)["observations"] == 2


# Load time ----------------------------------------------------------------------------------------------------------


def shown(db: DB, query: list[float], **more: Any) -> list[tuple[Any, ...]]:
    """(content, collapsed_count)"""
    names = "".join(f", {name} => %s" for name in more)
    return db.execute(
        f"select content, collapsed_count from search_memories(%s, 'm', 'acme', 'default'{names})".encode(),
        [json.dumps(query), *more.values()],
    ).fetchall()


@pytest.fixture
def three_stored(store_and_load: DB) -> DB:
    """The state before: three stored paraphrases, and another fact."""
    store_and_load.execute("select set_policy('acme', on_ambiguous => 'insert')")
    # each 0.72 or more from the others
    for i, values in enumerate(([1.0, 0, 0, 0], [0.8, 0.6, 0, 0], [0.9, 0.3, 0.3162, 0])):
        ingest(store_and_load, COFFEE[i], embedding=json.dumps(values), embedding_model="m")
    ingest(store_and_load, BROKEN, embedding=json.dumps([0, 0, 0, 1]), embedding_model="m")
    assert len(current(store_and_load)) == 4
    return store_and_load


def test_search_shows_two_facts(three_stored: DB) -> None:
    """Three memories of one fact and one of another: two entries; the most complete one represents its cluster."""
    assert shown(three_stored, [1, 0, 0, 0.5]) == [(COFFEE[1], 2), (BROKEN, 0)]
    assert len(current(three_stored)) == 4  # searching changes nothing


def test_per_request_overrides(three_stored: DB) -> None:
    assert len(shown(three_stored, [1, 0, 0, 0.5], deduplicate=False)) == 4
    assert len(shown(three_stored, [1, 0, 0, 0.5], dedup_threshold=0.85)) == 3
    assert len(shown(three_stored, [1, 0, 0, 0.5], dedup_threshold=0.99)) == 4


@pytest.mark.parametrize(("distance", "entries"), [(0.3999, 1), (0.4, 1), (0.4001, 2)])
def test_the_load_time_threshold(store_and_load: DB, distance: float, entries: int) -> None:
    store_and_load.execute("select set_policy('acme', on_ambiguous => 'insert')")
    coffee(store_and_load, 0)
    ingest(store_and_load, COFFEE[1], **vector(inside(1 - distance, 0.6)))
    assert len(shown(store_and_load, [1, 0, 0, 0])) == entries


def test_feedback_weighs(three_stored: DB) -> None:
    """Helpful and harmful feedback is counted, and changes the order."""
    query = [0.72, 0, 0, 0.694]
    before = [content for content, _ in shown(three_stored, query)]
    assert before == [COFFEE[1], BROKEN]
    (broken,) = three_stored.execute("select memory_id from memories where content = %s", [BROKEN]).fetchall()
    three_stored.execute("select set_config('memfold.tenant_id', 'acme', false)")
    for _ in range(5):
        three_stored.execute("select * from record_feedback(%s, true)", broken)
    assert [content for content, _ in shown(three_stored, query)] == [BROKEN, COFFEE[1]]
    assert three_stored.execute(
        "select helpful_count, harmful_count from memory_counters where memory_id = %s", broken
    ).fetchone() == (5, 0)


def test_retrievals_are_counted(three_stored: DB) -> None:
    """access_count: how often it was shown. Merges are not counted there."""
    shown(three_stored, [1, 0, 0, 0.5])
    shown(three_stored, [1, 0, 0, 0.5])
    counts = three_stored.execute(
        "select m.content, k.access_count from memories m join memory_counters k using (tenant_id, memory_id) order by 1"
    ).fetchall()
    assert dict(counts) == {COFFEE[0]: 0, COFFEE[1]: 2, COFFEE[2]: 0, BROKEN: 2}


def test_compaction(three_stored: DB) -> None:
    """Stored memories go to a judge by the store-time threshold, and end as two facts."""
    three_stored.execute("select set_policy('acme', on_ambiguous => 'synthesise')")
    three_stored.execute("select * from consolidate('acme', 'default', dry_run => false)")
    for _ in range(4):
        waiting = three_stored.execute(
            "select judgement_id, kind from judgements where status = 'open' limit 1"
        ).fetchone()
        if waiting is None:
            break
        assert waiting[1] == "synthesis"
        three_stored.execute(
            "select resolve_judgement(%s, 'duplicate', confidence => 0.9, merged_text => 'User prefers flat white',"
            " model => 'a judge', tenant_id => 'acme')",
            [waiting[0]],
        )
    assert sorted(current(three_stored)) == [BROKEN, "User prefers flat white"]
    check(three_stored)
