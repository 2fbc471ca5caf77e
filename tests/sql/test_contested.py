"""How search reports disputed memories: disputed_by, valid_from, the newest first, min_similarity."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.judging import answer
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB


def lives(db: DB, place: str, cosine: float, day: int, subject: str = "Bo", **more: Any) -> Any:
    where = {"subject": subject, "predicate": "lives_in", "object": place, "observed_at": f"2026-01-{day:02}"}
    near = vector(cosine, axis=1 if place == "Lyon" else 2)
    return ingest(db, f"{subject} lives in {place}", **{**where, **near, **more}).memory_id


def found(db: DB, **options: Any) -> list[dict[str, Any]]:
    names = "".join(f", {name} => %s" for name in options)
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(
            f"select * from search_memories('[1,0,0,0]', 'm', 'acme'{names})".encode(), list(options.values())
        ).fetchall()


def test_the_newest_of_two_values_comes_first_and_both_are_disputed(db: DB) -> None:
    model(db)
    lyon, paris = lives(db, "Lyon", 0.72, 1), lives(db, "Paris", 0.70, 2)
    rows = found(db)
    assert [(row["memory_id"], row["disputed_by"]) for row in rows] == [(paris, [lyon]), (lyon, [paris])]
    assert rows[0]["score"] == rows[1]["score"]
    assert [row["valid_from"].day for row in rows] == [2, 1]
    assert found(db, max_results=1)[0]["memory_id"] == paris
    answer(db, "one", 1)
    [row] = found(db)
    assert (row["memory_id"], row["disputed_by"]) == (paris, [])


def test_order_is_by_last_statement(db: DB) -> None:
    model(db)
    lyon, paris = lives(db, "Lyon", 0.7, 1), lives(db, "Paris", 0.72, 2)
    lives(db, "Lyon", 0.7, 3)
    assert [row["memory_id"] for row in found(db)] == [lyon, paris]


@pytest.mark.parametrize("rule", ["far", "many", "another subject", "no object"])
def test_otherwise_the_nearest_comes_first(db: DB, rule: str) -> None:
    model(db)
    if rule == "many":
        db.execute("select set_predicate('lives_in', 'acme', 'many')")
    lyon = lives(db, "Lyon", 0.72, 1)
    paris = lives(db, "Paris", 0.5 if rule == "far" else 0.7, 2, "Al" if rule == "another subject" else "Bo",
                  **({"object": None} if rule == "no object" else {}))  # fmt: skip
    rows = found(db)
    assert [row["memory_id"] for row in rows] == [lyon, paris]
    assert [row["disputed_by"] for row in rows] == ([[paris], [lyon]] if rule == "far" else [[], []])


def test_an_open_question_is_a_dispute(db: DB) -> None:
    model(db)
    tea = ingest(db, "User likes tea", **vector(1.0)).memory_id
    asked = ingest(db, "User loves tea", **vector(0.88))
    assert asked.action == "escalated"
    assert {row["memory_id"]: row["disputed_by"] for row in found(db, deduplicate=False)} == {
        tea: [asked.memory_id], asked.memory_id: [tea],
    }  # fmt: skip
    answer(db, "distinct", 1)
    assert [row["disputed_by"] for row in found(db, deduplicate=False)] == [[], []]


def test_valid_from_is_that_of_the_present_interval(db: DB) -> None:
    model(db)
    db.execute("select set_predicate('lives_in', 'acme')")
    for day, place in ((1, "Lyon"), (3, "Paris"), (5, "Lyon")):
        lives(db, place, 0.7, day)
    assert [(row["content"], row["valid_from"].day) for row in found(db)] == [("Bo lives in Lyon", 5)]
    assert [row["valid_from"].day for row in found(db, as_of="2026-01-04")] == [3]


@pytest.mark.parametrize(("least", "texts"), [(0.75, ["a"]), (0.65, ["a", "b"]), (None, ["a", "b", "c"])])
def test_min_similarity(db: DB, least: float | None, texts: list[str]) -> None:
    model(db)
    for axis, (text, cosine) in enumerate((("a", 0.8), ("b", 0.7), ("c", 0.1)), 1):
        ingest(db, text, **vector(cosine, axis))
    assert [row["content"] for row in found(db, min_similarity=least, deduplicate=False)] == texts


def test_by_words_it_is_the_share_of_words(db: DB) -> None:
    ingest(db, "Bo likes green tea")
    ingest(db, "Bo likes coffee")
    rows = db.execute(
        "select content from search_memories(query => 'green tea', tenant_id => 'acme', min_similarity => 0.9)"
    ).fetchall()
    assert rows == [("Bo likes green tea",)]


def test_with_both_it_is_the_cosine(db: DB) -> None:
    """A text with all of the words and a vector that is far away is not near."""
    model(db)
    ingest(db, "green tea", **vector(0.2))
    ingest(db, "leaves in hot water", **vector(0.9))
    rows = found(db, query="green tea", min_similarity=0.5)
    assert [row["content"] for row in rows] == ["leaves in hot water"]


def test_a_notice_says_that_nothing_is_near_enough(db: DB) -> None:
    model(db)
    ingest(db, "far", **vector(0.1))
    ingest(db, "a", **vector(0.61))
    ingest(db, "opposite", **vector(-0.5))
    notices: list[tuple[Any, Any]] = []
    db.add_notice_handler(lambda told: notices.append((told.sqlstate, told.message_detail)))
    assert found(db, min_similarity=0.7) == []
    assert notices == [("01M02", "min_similarity was 0.7; the nearest has 0.61.")]
    with pytest.raises(psycopg.Error) as caught:
        found(db, min_similarity=1.1)
    assert caught.value.sqlstate == "MF022"


@pytest.mark.parametrize("policy", ["conflict => 'keep_both'", "dedup => 'off'"])
def test_where_the_answer_would_not_be_used_nothing_is_disputed(db: DB, policy: str) -> None:
    model(db)
    db.execute(f"select set_policy('acme', {policy})".encode())
    lyon, paris = lives(db, "Lyon", 0.72, 1), lives(db, "Paris", 0.7, 2)
    assert [(row["memory_id"], row["disputed_by"]) for row in found(db)] == [(lyon, []), (paris, [])]
    assert db.execute("select distinct disputed_by from profile('Bo', 'acme')").fetchall() == [([],)]


def test_another_spelling_is_no_other_value(db: DB) -> None:
    model(db)
    lyon = lives(db, "Lyon", 0.72, 1)
    again = ingest(
        db, "Bo is in lyon", subject="Bo", predicate="lives_in", object="lyon", **vector(0.7, axis=3)
    ).memory_id
    assert [(row["memory_id"], row["disputed_by"]) for row in found(db)] == [(lyon, []), (again, [])]


def test_each_member_of_a_cluster_is_disputed_by_the_others(db: DB) -> None:
    model(db)
    db.execute("select set_policy('acme', on_ambiguous => 'insert', merge_veto => 0)")
    ids = {ingest(db, f"Bo is fond of {word}", subject="Bo", **vector(cosine, axis)).memory_id
           for word, cosine, axis in (("tea", 1.0, 1), ("black tea", 0.9, 1), ("hot tea", 0.9, 2))}  # fmt: skip
    db.execute("select set_options('acme', consolidate_threshold => 0.7)")
    db.execute("select consolidate('acme', dry_run => false)")
    kinds = db.execute("select cardinality(member_ids) from judgements where status = 'open'").fetchall()
    assert kinds == [(3,)]
    for row in found(db, deduplicate=False):
        assert set(row["disputed_by"]) == ids - {row["memory_id"]}


def test_a_tombstone_is_not_named(db: DB) -> None:
    """Forgotten memories are shown nowhere, even while a question about one is open."""
    model(db)
    told = ingest(db, "Bo likes tea", **vector(1.0))
    db.execute("select reject_memory(%s, 'acme')", [told.memory_id])
    asked = ingest(db, "Bo is keen on hot tea", **vector(0.88))
    assert asked.action == "escalated"
    assert [(row["memory_id"], row["disputed_by"]) for row in found(db)] == [(asked.memory_id, [])]
