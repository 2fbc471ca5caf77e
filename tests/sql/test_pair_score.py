"""The calibrated score of tier 2: its features, and the function that a fitted score is compiled to."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from memfold.tools.calibrate import score as scores
from tests.support.calibration import create_score
from tests.support.draws import settings
from tests.support.queries import DB

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=400)
PARTS = "User Alice Bob not n't never 3 3.5 1,000 50% a@b.c x/y l'été 不喜欢 ない アリス 😀 , . - ' ’ the and from to"
WORDS = st.lists(st.sampled_from(PARTS.split()), max_size=30).map(" ".join)


def features(
    db: DB, a: str | None, b: str | None, similarity: float | None = 0.9, guard: list[str] | None = None
) -> dict[str, float]:
    """The features of a pair, by name."""
    row = db.execute(
        "select memfold_internal._pair_feature_names(), memfold_internal._pair_features(%s, %s, %s, %s::text[])",
        [similarity, a, b, guard],
    ).fetchone()
    assert row is not None
    return dict(zip(*row, strict=True))


def data(rows: int = 600, width: int = 6, seed: int = 3) -> tuple[Any, Any, Any]:
    """Features of invented pairs, some of them whole numbers, and labels that depend on three of them."""
    lot = np.random.default_rng(seed)
    table = lot.normal(size=(rows, width))
    table[:, 1] = lot.integers(0, 5, rows)
    table[:, 4] = lot.integers(0, 2, rows)
    odds = 2 * table[:, 0] + table[:, 1] * (1 - 2 * table[:, 4]) - 1 + lot.normal(size=rows) / 2
    return table, odds > 0, np.arange(rows) // 3


def scored(db: DB, score: scores.Score, rows: Any) -> Any:
    """The compiled function's scores of many rows."""
    create_score(db, "test_score", score)
    found = db.execute(
        "select array_agg(memfold_internal.test_score("
        "  array(select v::double precision from jsonb_array_elements_text(r.row) with ordinality as e (v, n) order by n)"
        ") order by r.place)"
        " from jsonb_array_elements(%s::jsonb) with ordinality as r (row, place)",
        [json.dumps(rows.tolist())],
    ).fetchone()
    assert found is not None
    return np.array(found[0])


def test_one_word_for_another(db: DB) -> None:
    found = features(db, "The user drinks green tea.", "The user drinks black tea")
    assert found["similarity"] == 0.9
    assert (found["prefix"], found["suffix"], found["window"]) == (3, 1, 1)
    assert found["shared"] == found["contained"] == 0.8
    assert (found["letters"], found["longest"], found["alike"], found["unlike"], found["replaced"]) == (
        10,
        5,
        0,
        1,
        1,
    )
    assert found["change"] == pytest.approx(10 / 51)
    assert found["apart_by_change"] == pytest.approx(0.1 / (10 / 51 + 0.02))
    assert found["guard"] == found["denials"] == found["turns"] == 0


def test_the_same_words_in_another_order(db: DB) -> None:
    found = features(db, "Lena moved from Oslo to Rome", "Lena moved from Rome to Oslo")
    assert (found["shared"], found["letters"]) == (1, 0)
    assert (found["shared_names"], found["name_turns"], found["content_turns"], found["inversions"]) == (
        2,
        1,
        1,
        1,
    )
    same = features(db, "Lena moved from Oslo to Rome", "Lena moved from Oslo to Rome")
    assert (same["inversions"], same["window"], same["prefix"], same["break_share"]) == (0, 0, 6, 0)


def test_what_only_one_text_has(db: DB) -> None:
    found = features(db, "Deploys run on Friday", "Deploys never run on Fridays, says Bob")
    assert (found["denial"], found["denials"]) == (1, 1)
    assert (found["alike"], found["commas"], found["names"]) == (1, 1, 2)
    assert found["contained"] == 0.75
    assert features(db, "It doesn't work", "It does work")["denial"] == 1
    assert features(db, "It doesn’t work", "It does not work")["letters"] == 0


def test_what_the_guard_says(db: DB) -> None:
    found = features(db, "a", "b", guard=["negation: not", "date: 1 <> 2", "numeral: 1 <> 2"])
    kinds = {name: value for name, value in found.items() if name.startswith("guard")}
    assert kinds == {"guard": 3, "guard_negation": 1, "guard_value": 1, "guard_name": 0, "guard_antonym": 0}
    assert features(db, "a", "b", guard=["prefix: x", "name: y"])["guard_antonym"] == 1
    assert features(db, "a", "b", guard=None) == features(db, "a", "b", guard=[])


def test_case_and_punctuation_are_no_change(db: DB) -> None:
    found = features(db, "The build-server is DOWN!", "the build server is down")
    assert (found["letters"], found["window"], found["shared"]) == (0, 0, 1)


def test_words_of_scripts_without_spaces(db: DB) -> None:
    found = features(db, "他住在成都。", "他住在重庆")
    assert (found["prefix"], found["window"], found["unlike"], found["words"]) == (3, 2, 2, 5)


def test_the_same_on_every_server(db: DB) -> None:
    """The same for any server version, locale and provider. The numbers are the sums of all features of these pairs."""
    pairs = [
        ("The user drinks green tea.", "The user's tea is green, and he drinks it."),
        ("Lena moved from Oslo to Rome in 2019", "In 2019, Lena left Rome (Italy) for OSLO"),
        ("Élodie n’aime pas l'été", "élodie aime l’été"),
        ("İstanbul ẞ ﬀ Ⅳ", "istanbul ss ff iv"),
        ("他住在成都", "アリスは成都に住んでいる"),
    ]
    sums = [math.fsum(features(db, a, b, 0.75).values()) for a, b in pairs]
    assert [f"{value:.9f}" for value in sums] == [
        "69.247220523", "82.470544247", "39.190916149", "27.952071561", "56.942447435"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b"), [(None, None), ("", ""), ("", "a"), (None, "x y z"), ("...", "!"), (" ", "😀")]
)
def test_nothing_to_compare(db: DB, a: str | None, b: str | None) -> None:
    for similarity in (None, 0.5, math.nan, math.inf):
        found = features(db, a, b, similarity)
        assert all(math.isfinite(value) for value in found.values())
        assert found["similarity"] == (0.5 if similarity == 0.5 else 0)


@given(a=st.one_of(TEXT, WORDS), b=st.one_of(TEXT, WORDS))
@example(a='100"0000', b='0000"0000"100')
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_pair(db: DB, a: str, b: str) -> None:
    """Finite, the same either way, and nothing is changed between a text and itself."""
    found = features(db, a, b)
    assert all(math.isfinite(value) for value in found.values())
    assert features(db, b, a) == found
    for name in (
        "length_ratio",
        "capitals",
        "prefix_share",
        "shared",
        "contained",
        "window_share",
        "inversion_share",
    ):
        assert 0 <= found[name] <= 1, name
    same = features(db, a, a)
    assert same["letters"] == same["window"] == same["turns"] == 0


def test_long_texts_are_bounded_and_read_to_the_end(db: DB) -> None:
    words = [f"w{place}" for place in range(20000)]
    text = " ".join(words)
    found = features(db, text, " ".join([*words[:-1], "other"]))
    assert found["words"] <= 300
    assert found["letters"] > 0
    assert features(db, text, text)["letters"] == 0
    assert features(db, "不" * 50000, "不" * 49999)["words"] <= 300
    assert features(db, "a" * 300000, "b" * 300000)["longest"] == 300000
    db.execute("set statement_timeout = '20s'")
    features(db, text, " ".join(reversed(words)))


def test_the_function_is_what_scikit_learn_says(db: DB) -> None:
    table, labels, groups = data()
    score = scores.fit(table, labels, groups, names=list("abcdef"))
    model = scores._model(0, len(score.trees))
    with scores._one_thread():
        model.fit(table, labels)
    lot = np.random.default_rng(1)
    rows = np.concatenate([lot.normal(size=(300, 6)) * 2, table[:200]])
    # at every threshold, and just above and below it
    edges = [(node.feature, node.threshold) for tree in score.trees for node in tree if node.feature >= 0]
    assert len(edges) > 50
    for feature, edge in edges:
        around = np.repeat(table[:1], 3, axis=0)
        around[:, feature] = [np.nextafter(edge, -np.inf), edge, np.nextafter(edge, np.inf)]
        rows = np.concatenate([rows, around])
    with scores._one_thread():
        expected = model.predict_proba(rows)[:, 1]
    assert np.abs(score.predict(rows) - expected).max() < 1e-12
    found = scored(db, score, rows)
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() < 1e-6
    assert np.ptp(expected) > 0.9


def test_features_far_out(db: DB) -> None:
    table, labels, groups = data(150)
    score = scores.fit(table, labels, groups)
    rows = np.array([[1e300] * 6, [-1e300] * 6, [0.0] * 6, [-0.0] * 6])
    assert np.abs(scored(db, score, rows) - score.predict(rows)).max() < 1e-6
    with pytest.raises(psycopg.errors.DataException, match="6 features expected, got 2"):
        db.execute("select memfold_internal.test_score('{1,2}')")


def test_a_score_without_a_split(db: DB) -> None:
    """Ten pairs are too few: the score is the share of duplicates."""
    score = scores.fit(np.zeros((10, 2)), [True, False] * 5, range(10))
    rows = np.array([[0.0, 1.0]])
    assert score.predict(rows) == pytest.approx([0.5])
    assert scored(db, score, rows) == pytest.approx([0.5])


def test_explanation(db: DB) -> None:
    """Contributions sum to the score, in Python and in SQL; unused features add nothing."""
    table, labels, groups = data()
    score = scores.fit(table, labels, groups, names=list("abcdef"))
    added = score.contributions(table[:5])
    assert np.abs(1 / (1 + np.exp(-added.sum(axis=1))) - score.predict(table[:5])).max() < 1e-12
    assert np.abs(added[:, [1, 2, 5]]).sum() > np.abs(added[:, [3, 4, 6]]).sum() * 3
    for row, expected in zip(table[:5], added, strict=True):
        rows = db.execute(
            "select * from memfold_internal._explain_score(%s::jsonb, %s)", [score.to_json(), row.tolist()]
        ).fetchall()
        assert rows[0][:2] == (None, None)
        assert rows[0][2] == pytest.approx(expected[0])
        found = {name: (value, contribution) for name, value, contribution in rows[1:]}
        for place, name in enumerate(score.names):
            value, contribution = found.get(name, (row[place], 0))
            assert value == row[place]
            assert contribution == pytest.approx(expected[place + 1], abs=1e-9)
        sizes = [abs(contribution) for _, _, contribution in rows[1:]]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.one_server
def test_the_same_data_the_same_score(db: DB) -> None:
    table, labels, groups = data(150)
    score = scores.fit(table, labels, groups, seed=5, names=list("abcdef"))
    again = scores.fit(table, labels, groups, seed=5, names=list("abcdef"))
    assert score == again
    assert score.body() == again.body()
    assert scores.Score.from_json(score.to_json()) == score
    assert scores.Score.from_json(json.loads(score.to_json())) == score
    assert np.array_equal(
        scores.cross_scores(table, labels, groups), scores.cross_scores(table, labels, groups)
    )


@pytest.mark.one_server
def test_a_pair_is_scored_by_what_did_not_see_its_group(db: DB) -> None:
    """Random labels, equal within a group: a score that saw them repeats them, the folds cannot."""
    lot = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 10)
    table = np.repeat(lot.normal(size=(60, 4)), 10, axis=0)
    labels = np.repeat(lot.random(60) < 0.5, 10)
    metrics = importlib.import_module("sklearn.metrics")
    with scores._one_thread():
        seen = scores._compile(scores._model(0, 60).fit(table, labels), 4).predict(table)
    assert metrics.roc_auc_score(labels, seen) > 0.95
    assert metrics.roc_auc_score(labels, scores.cross_scores(table, labels, groups)) < 0.75


@pytest.mark.one_server
def test_refusals(db: DB) -> None:
    table, labels, groups = data(40)
    with pytest.raises(ValueError, match="duplicates of at least two text groups"):
        scores.fit(table, np.zeros(40), groups)
    with pytest.raises(ValueError, match="other pairs of at least two text groups"):
        scores.fit(table, np.ones(40), groups)
    with pytest.raises(ValueError, match="finite"):
        scores.fit(np.full((40, 2), np.nan), labels, groups)
    with pytest.raises(ValueError, match="as many rows"):
        scores.fit(table[:-1], labels, groups)
    score = scores.fit(table, labels, groups)
    with pytest.raises(ValueError, match="6 features expected, got 2"):
        score.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="not a score of the format"):
        scores.Score.from_json("{}")
