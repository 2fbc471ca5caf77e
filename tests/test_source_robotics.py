"""Document 004, a robot's memory, replayed with its numbers (where those were wrong: both are shown).

Vectors are made to have the cosine that the document states.
"""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest

from tests.support import check, ingest, inside, vector

DB = psycopg.Connection[Any]


@pytest.fixture
def robotics(db: DB) -> DB:
    """Exact hash, then Jaccard above 0.70, then cosine from 0.85 on; no judge; similar facts from 0.40 on."""
    db.execute("select register_embedding_model('m', 4)")
    db.execute("select set_policy('acme', preset => 'robotics')")
    return db


def jaccard(db: DB, a: str, b: str) -> float:
    row = db.execute("select _jaccard(_tokens(%s), _tokens(%s))", [a, b]).fetchone()
    assert row is not None
    return float(row[0])


def words(n: int, of: str = "q") -> list[str]:
    return [f"{of}{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(n)]


# Write time ---------------------------------------------------------------------------------------------------------


def test_layer_1_exact(robotics: DB) -> None:
    """The very bytes, whatever type or subject; another case or space is left to the next layer."""
    first = ingest(robotics, "grip_force=12.5N works best", memory_type="observation")
    again = ingest(robotics, "grip_force=12.5N works best", memory_type="config")
    assert (again.action, again.tier, again.method, again.memory_id) == ("merged", 1, "hash", first.memory_id)
    spaced = ingest(robotics, "Grip_force=12.5N  works best")
    assert (spaced.action, spaced.tier, spaced.method, spaced.similarity) == ("merged", 2, "lexical", 1)
    assert ingest(robotics, "grip_force=12.5N works best", bucket_id="other").action == "inserted"
    check(robotics)


@pytest.mark.parametrize(
    ("shared", "own", "action"),
    # Jaccard = shared / (shared + own words of either)
    [(71, 29, "merged"), (70, 30, "inserted"), (69, 31, "inserted")],
)
def test_layer_2_the_threshold(robotics: DB, shared: int, own: int, action: str) -> None:
    """More than 0.70; exactly 0.70 is similar, not the same."""
    common = words(shared)
    first = ingest(robotics, " ".join([*common, *words(own // 2, "x")]))
    second = ingest(robotics, " ".join([*common, *words(own - own // 2, "y")]))
    assert (second.action, second.memory_id == first.memory_id) == (action, action == "merged")
    (similar,) = second.similar
    assert similar["jaccard"] == shared / 100
    check(robotics)


@pytest.mark.parametrize(("shared", "own", "reported"), [(41, 59, True), (40, 60, True), (39, 61, False)])
def test_similar_but_not_the_same(robotics: DB, shared: int, own: int, reported: bool) -> None:
    first = ingest(robotics, " ".join([*words(shared), *words(own // 2, "x")]))
    second = ingest(robotics, " ".join([*words(shared), *words(own - own // 2, "y")]))
    assert second.action == "inserted"
    assert (second.similar is not None) is reported
    if reported:
        assert second.similar == [{"memory_id": str(first.memory_id), "jaccard": shared / 100}]


def test_stop_words(robotics: DB) -> None:
    """English and Chinese function words and the terms of classification count for nothing."""
    for a, b in (
        ("the gripper is closed", "gripper closed"),
        ("decision: use the vacuum gripper", "use vacuum gripper"),
        ("code config pattern architecture", "root_cause tradeoff revert"),
        ("机器人的手在左边", "机器人手左边"),
        ("把杯子给我", "杯子我"),
    ):
        expected = 0.0 if "revert" in b else 1.0
        assert jaccard(robotics, a, b) == expected, (a, b)
    # memories that share only such words are not alike
    ingest(robotics, "preference constraint decision gripper")
    assert ingest(robotics, "preference constraint decision camera").similar is None


def test_top_5_by_shared_words(robotics: DB) -> None:
    """The five that share most words are looked at: a sixth is not seen."""
    for i in range(5):
        ingest(robotics, " ".join([*words(10), *words(20, chr(110 + i))]))
    twin = ingest(robotics, " ".join(words(9)))
    found = ingest(robotics, " ".join(words(10)))
    assert (found.action, twin.action) == ("inserted", "inserted")
    robotics.execute("select set_policy('acme', lexical_neighbours => 6)")
    found = ingest(robotics, " ".join([*words(9), "zz"]))
    assert (found.action, found.memory_id, found.similarity) == ("merged", twin.memory_id, 0.9)
    check(robotics)


@pytest.mark.parametrize(
    ("cosine", "action"),
    [(0.86, "merged"), (0.85, "merged"), (0.8499, "inserted"), (0.4, "inserted"), (0.3999, "inserted")],
)
def test_layer_3_cosine(robotics: DB, cosine: float, action: str) -> None:
    """The document's table says > 0.85, its code >= 0.85: the code holds. From 0.40 on it is reported as similar."""
    first = ingest(robotics, "red objects need force", **vector(1.0))
    second = ingest(robotics, "crimson things want power", **vector(inside(cosine, 0.85, 0.4)))
    assert second.action == action
    assert (second.similar is not None) is (cosine >= 0.4)
    if action == "merged":
        assert (second.method, second.memory_id) == ("vector", first.memory_id)
    elif second.similar:
        assert second.similar[0]["memory_id"] == str(first.memory_id)
    assert robotics.execute("select count(*) from judgements").fetchone() == (0,)
    check(robotics)


def test_an_opposite_is_no_duplicate(robotics: DB) -> None:
    """The document merges it (Jaccard 0.75, cosine 0.97); the guard does not."""
    ingest(robotics, "gripper handles heavy cups", **vector(1.0))
    other = ingest(robotics, "gripper handles heavy cups never", **vector(0.97))
    assert (other.action, other.similar[0]["guard"]) == ("inserted", ["negation: never"])
    check(robotics)


def test_layer_3b_the_session(robotics: DB) -> None:
    """The three nearest are looked at; of the own session the twenty nearest.

    It matters where the nearest are kept apart by the guard.
    """
    for bucket, session in (("a", "now"), ("b", "later")):
        for i in range(3):
            ingest(robotics, f"bin {i} holds screws", bucket_id=bucket, **vector(0.99 - i / 1000))
        fourth = ingest(
            robotics, "screws lie in bins", bucket_id=bucket, session_id="now", **vector(0.9, axis=2)
        )
        found = ingest(
            robotics, "each bin has its screws", bucket_id=bucket, session_id=session, **vector(1.0)
        )
        if session == "now":
            assert (found.action, found.method, found.memory_id) == ("merged", "session", fourth.memory_id)
        else:
            assert found.action == "inserted"
    check(robotics)


# The example of five memories ---------------------------------------------------------------------------------------

FIVE = [
    ("grip_force=12.5N works for cups", "observation", 0.85),
    ("12.5N grip force optimal for cylinders", "observation", 0.80),
    ("force 12.5N best for cup grasping", "observation", 0.90),
    ("red objects need 15N force", "observation", 0.85),
    ("always calibrate before grasping", "constraint", 0.95),
]


def test_the_five_by_their_own_formula(robotics: DB) -> None:
    """The document puts #1 to #3 into one cluster; by its own tokenizer they have nothing to do with each other."""
    one, two, three = (text for text, _, _ in FIVE[:3])
    assert [jaccard(robotics, one, two), jaccard(robotics, one, three), jaccard(robotics, two, three)] == [
        0,
        0,
        0.25,
    ]


def test_confidence_is_the_source_s(robotics: DB) -> None:
    """Weights (1, 0, 0): repetitions do not raise it."""
    for _ in range(3):
        ingest(robotics, FIVE[0][0], source_confidence=0.85, extractor_confidence=0.1)
    assert robotics.execute("select confidence from memory_audit").fetchone() == (0.85,)


def test_the_decay_curve_s_numbers() -> None:
    """0.90 * 0.99^d: what the document's table says, but for its last digits, and its 93 days."""
    assert [round(0.9 * 0.99**d, 3) for d in (0, 7, 30, 90, 180)] == [0.9, 0.839, 0.666, 0.364, 0.147]
    assert math.ceil(math.log(0.3 / 0.9) / math.log(0.99)) == 110
