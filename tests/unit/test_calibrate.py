"""Thresholds from an error budget: bounds, splits, bands, refusals. No database."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memfold.client.errors import CalibrationRefusedError, InvalidPairError
from memfold.client.judging import Answer, JudgeError, Question
from memfold.tools.calibrate import (
    Bands,
    Budget,
    Calibration,
    Pair,
    Rate,
    Sample,
    allowed,
    calibrate_pairs,
    choose,
    choosing,
    fingerprint,
    groups_of,
    lower,
    measure,
    needed,
    parted,
    percentiles,
    read_file,
    upper,
)
from memfold.tools.calibrate.bands import curve
from memfold.tools.calibrate.bounds import at_most
from memfold.tools.calibrate.judged import a_share, in_band, measure_judge
from memfold.tools.calibrate.report import page, write_html
from tests.support.calibration import APART, OVERLAPPING, normal, pair

CLASSES = ("duplicate", "contradiction", "distinct")


def refused(pairs: Sequence[Pair], reason: str, **options: Any) -> CalibrationRefusedError:
    with pytest.raises(CalibrationRefusedError) as error:
        calibrate_pairs(pairs, **options)
    assert error.value.sqlstate == "MF044"
    assert error.value.reason == reason
    assert error.value.detail
    assert error.value.hint
    return error.value


# bounds -----------------------------------------------------------------------------------------------------


def test_bounds_are_exact() -> None:
    """The figures of tables of the interval of Clopper and Pearson."""
    assert Rate(5, 100).low == pytest.approx(0.0164, abs=5e-5)
    assert Rate(5, 100).high == pytest.approx(0.1128, abs=5e-5)
    assert upper(0, 20, 0.95) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert (upper(20, 20, 0.95), lower(0, 20, 0.95)) == (1.0, 0.0)
    assert lower(20, 20, 0.95) == pytest.approx(0.05 ** (1 / 20))
    for k, n, p in ((0, 5, 0.3), (3, 10, 0.2), (9, 10, 0.5), (2, 400, 0.01), (380, 400, 0.9)):
        counted = math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
        assert at_most(k, n, p) == pytest.approx(counted)


@pytest.mark.parametrize("budget", [0.01, 0.05, 0.15])
def test_as_many_errors_as_the_bound_allows(budget: float) -> None:
    for n in (10, 58, 59, 298, 299, 473, 2000):
        errors = allowed(n, budget, 0.95)
        assert errors < 0 or upper(errors, n, 0.95) <= budget
        assert upper(errors + 1, n, 0.95) > budget
    assert allowed(needed(budget, 0.95), budget, 0.95) == 0
    assert allowed(needed(budget, 0.95) - 1, budget, 0.95) == -1
    assert (needed(0.01, 0.95), needed(0.05, 0.95)) == (299, 59)


def test_the_budget_holds_as_often_as_it_promises() -> None:
    """At most 5 % of thresholds chosen on samples of a known distribution exceed the budget."""
    random = np.random.default_rng(0)
    budget = Budget()
    broken = [0, 0]
    for _ in range(400):
        scores = np.concatenate([random.uniform(0.5, 1.0, 200), random.uniform(0.0, 0.8, 700)])
        labels = np.repeat([0, 3], [200, 700])
        bands = choose(Sample(scores, labels, np.ones(900, dtype=np.bool_)), budget)
        # true rates: uniform distributions
        broken[0] += max(0.0, 0.8 - bands.merge) / 0.8 > budget.max_false_merge
        broken[1] += max(0.0, bands.judge - 0.5) / 0.5 > budget.max_false_keep
    # three standard deviations above 5 % of 400
    assert max(broken) <= 20 + 3 * math.sqrt(400 * 0.05 * 0.95)
    assert min(broken) > 0  # and no wider than it must be


# splits -----------------------------------------------------------------------------------------------------


def linked(seed: int) -> list[Pair]:
    """Pairs that share texts, some of them many."""
    random = np.random.default_rng(seed)
    names = [f"t{int(random.integers(400) ** 0.9)}" for _ in range(800)]
    return [
        Pair(a, b, CLASSES[i % 3], 0.5, a, b)
        for i, (a, b) in enumerate(zip(names[::2], names[1::2], strict=True))
        if a != b and random.random() < 0.4
    ]


@pytest.mark.parametrize("seed", range(5))
def test_no_text_is_on_both_sides(seed: int) -> None:
    pairs = linked(seed)
    groups = groups_of(pairs)
    for shares in ([0.8, 0.2], [1.0] * 5):
        parts = parted(groups, [one.label for one in pairs], shares, seed)
        sides: dict[str, set[int]] = {}
        for one, part in zip(pairs, parts, strict=True):
            sides.setdefault(one.key_a, set()).add(int(part))
            sides.setdefault(one.key_b, set()).add(int(part))
        assert {len(side) for side in sides.values()} == {1}
        assert np.array_equal(parts, parted(groups, [one.label for one in pairs], shares, seed))


def test_each_part_has_its_share_of_each_class() -> None:
    pairs = normal(duplicate=(50, 0.9, 0.1), contradiction=(30, 0.9, 0.1), distinct=(220, 0.5, 0.1))
    held_out = parted(groups_of(pairs), [one.label for one in pairs], [0.8, 0.2]) == 1
    counts = {
        label: sum(one.label == label for one, held in zip(pairs, held_out, strict=True) if held)
        for label in CLASSES
    }
    assert counts == {"duplicate": 10, "contradiction": 6, "distinct": 44}


def test_groups_follow_canonical_texts_not_spelling() -> None:
    a = Pair("Tea.", "Milk", "distinct", 0.1, "tea", "milk")
    b = Pair("TEA", "Coffee", "distinct", 0.1, "tea", "coffee")
    c = Pair("Rain", "Sun", "distinct", 0.1, "rain", "sun")
    assert groups_of([a, c, b]).tolist() == [0, 1, 0]


def test_the_fingerprint_is_of_the_data_alone() -> None:
    pairs = normal(duplicate=(5, 0.9, 0.1), distinct=(5, 0.5, 0.1))
    turned = [dataclasses.replace(one, key_a=one.key_b, key_b=one.key_a) for one in reversed(pairs)]
    assert fingerprint(turned) == fingerprint(pairs)
    assert len(fingerprint(pairs)) == 32
    for change in ({"label": "refinement"}, {"cosine": 0.123}, {"key_a": "x"}):
        assert fingerprint([dataclasses.replace(pairs[0], **change), *pairs[1:]]) != fingerprint(pairs)


# bands ------------------------------------------------------------------------------------------------------


def test_what_a_pair_is_for_the_budget() -> None:
    """Merging anything but a duplicate is an error; pairs that the guard raises are asked about, however close."""
    pairs = [
        pair(1, "duplicate", 0.95), pair(2, "duplicate", 0.95, "numeral: 1 <> 2"), pair(3, "duplicate", 0.4),
        pair(4, "refinement", 0.95), pair(5, "contradiction", 0.95), pair(6, "contradiction", 0.95, "negation: not"),
        pair(7, "distinct", 0.7), pair(8, "distinct", 0.3), pair(9, "distinct", 0.9), pair(10, "distinct", 0.5),
    ]  # fmt: skip
    sample, bands = Sample.of(pairs), Bands(merge=0.9, judge=0.5)
    found = measure(sample, bands)
    assert found.false_merge == Rate(2, 7)
    assert found.false_keep == Rate(1, 3)
    assert found.escalation == Rate(5, 10)  # 0.9 is not above 0.9, and 0.5 is from 0.5 on
    assert found.merged_duplicates == Rate(1, 3)
    assert found.by_label["contradiction"] == {"merged": 1, "asked": 1, "kept": 0}
    bare = measure(sample.without_guard(), bands)
    assert (bare.false_merge, bare.escalation) == (Rate(3, 7), Rate(3, 10))
    assert measure(sample, bands, allow_refinements=True).false_merge == Rate(1, 6)


def test_the_narrowest_bands_within_the_budget() -> None:
    pairs = normal(**OVERLAPPING)
    sample, budget = Sample.of(pairs), Budget()
    bands = choose(sample, budget)
    found = measure(sample, bands)
    assert found.false_merge.count == allowed(1200, 0.01, 0.95)
    assert found.false_keep.count == allowed(600, 0.05, 0.95)
    assert measure(sample, Bands(bands.merge - 1e-3, bands.judge)).false_merge.count > found.false_merge.count
    assert measure(sample, Bands(bands.merge, bands.judge + 1e-3)).false_keep.count > found.false_keep.count


def test_the_guard_lowers_the_merge_threshold() -> None:
    pairs = normal(**OVERLAPPING)
    guarded = [
        dataclasses.replace(one, guard=("negation: not",)) if one.label == "contradiction" else one
        for one in pairs
    ]
    budget = Budget()
    assert choose(Sample.of(guarded), budget).merge < choose(Sample.of(pairs), budget).merge
    assert choose(Sample.of(guarded).without_guard(), budget) == choose(Sample.of(pairs), budget)


def test_a_gap_is_asked_about() -> None:
    made = calibrate_pairs(normal(**APART), "m")
    # the others end at about 0.75, the duplicates begin at about 0.87
    assert 0.7 < made.bands.judge < made.bands.merge < 0.9
    assert 0.02 < made.bands.merge - made.bands.judge < 0.1
    found = made.measured()
    assert (found.false_merge.count, found.by_label["contradiction"]["merged"]) == (0, 0)
    assert found.false_keep.rate <= 0.05
    assert made.measured(held_out=False).escalation.rate <= 0.15


def test_thresholds_stay_where_a_model_may_have_them() -> None:
    pairs = [pair(i, "duplicate", -0.2) for i in range(400)] + [pair(i, "distinct", 1.0) for i in range(400)]
    bands = choose(Sample.of(pairs), Budget())
    assert bands == Bands(merge=1.0, judge=0.0)
    assert measure(Sample.of(pairs), bands).false_merge.count == 0


def test_pairs_that_are_never_scored_are_kept() -> None:
    """Below the candidate threshold there is no score: minus infinity."""
    pairs = normal(duplicate=(400, 0.8, 0.05), distinct=(400, 0.5, 0.05))
    scores = np.array([one.cosine if one.label == "duplicate" else -np.inf for one in pairs])
    scores[:3] = -np.inf
    scores[3:400] = 0.9
    bands = choose(Sample.of(pairs, scores), Budget())
    found = measure(Sample.of(pairs, scores), bands)
    assert found.false_merge == Rate(0, 400)
    assert (found.by_label["distinct"]["kept"], found.by_label["duplicate"]["merged"]) == (400, 397)


def test_stored_reports_contain_numbers_and_no_texts() -> None:
    told = calibrate_pairs(normal(**APART), "m").report()
    assert "text " not in str(told)
    assert told["pairs"] == {
        "used": 1000, "held_out": 200, "groups": 1000, "left_out": {}, "by_origin": {"import": 1000},
        "by_label": {"duplicate": 400, "contradiction": 300, "distinct": 300},
    }  # fmt: skip
    assert told["held_out"]["with_guard"]["false_merge"]["of"] == 120
    assert set(told["held_out"]["with_guard"]["by_label"]) == set(CLASSES)


# refusals ---------------------------------------------------------------------------------------------------


def test_refused_without_contradictions() -> None:
    pairs = normal(duplicate=(400, 0.93, 0.02), distinct=(500, 0.4, 0.1))
    assert refused(pairs, "contradictions").message == "contradictions are missing"
    few = refused([*pairs, *(pair(i, "contradiction", 0.7) for i in range(3))], "contradictions")
    assert few.message == "there are too few contradictions"
    assert "3 of 903 pairs are contradictions; at least 20 are needed" in str(few.detail)


def test_refused_with_forty_pairs() -> None:
    pairs = normal(duplicate=(10, 0.93, 0.02), contradiction=(20, 0.6, 0.05), distinct=(10, 0.4, 0.1))
    told = refused(pairs, "sample")
    # 299 and 59, as 80 % of what there must be
    assert "374 pairs that are not duplicates (there are 30) and 74 duplicates (there are 10)" in str(
        told.detail
    )
    assert "--anchors" in str(told.hint)


def test_the_required_number_of_pairs_is_sufficient() -> None:
    counts = {"duplicate": (74, 0.93, 0.02), "contradiction": (100, 0.6, 0.05), "distinct": (274, 0.4, 0.1)}
    assert calibrate_pairs(normal(**counts), "m").measured(held_out=False).false_merge.of == 299
    counts["distinct"] = (273, 0.4, 0.1)
    assert "374 pairs that are not duplicates (there are 373)" in str(
        refused(normal(**counts), "sample").detail
    )


def test_refused_where_they_overlap_and_what_can_be_had() -> None:
    error = refused(normal(**OVERLAPPING), "overlap")
    best = error.frontier
    assert best.escalation > 0.35
    assert error.attempt.bands == choose(
        Sample.of(error.attempt.pairs).where(~error.attempt.held_out), Budget()
    )
    assert f"{best.escalation:.1%} must be asked about" in str(error.detail)
    # each of the three that it names is attainable
    for budget in (
        Budget(max_escalation=best.escalation + 1e-6),
        Budget(max_false_merge=best.false_merge + 1e-6),
        Budget(max_false_keep=best.false_keep + 1e-6),
    ):
        try:
            made = calibrate_pairs(normal(**OVERLAPPING), "m", budget=budget)
        except CalibrationRefusedError as other:
            pytest.fail(f"{budget}: {other}")
        assert made.frontier.escalation <= budget.max_escalation


def test_refused_without_pairs_and_if_all_share_texts() -> None:
    refused([], "no_pairs")
    star = [
        dataclasses.replace(one, key_a="the same text")
        for one in normal(duplicate=(200, 0.9, 0.01), contradiction=(200, 0.5, 0.1), distinct=(400, 0.4, 0.1))
    ]
    refused(star, "one_group")


def test_refused_where_the_held_out_pairs_say_otherwise() -> None:
    pairs = normal(**APART)
    held_out = parted(groups_of(pairs), [one.label for one in pairs], [0.8, 0.2]) == 1
    worse = [
        dataclasses.replace(one, cosine=0.99) if held and one.label == "contradiction" else one
        for one, held in zip(pairs, held_out, strict=True)
    ]
    assert "false merges" in str(refused(worse, "held_out").detail)


def test_a_budget_is_a_share() -> None:
    with pytest.raises(ValueError, match="max_false_merge"):
        Budget(max_false_merge=0)
    with pytest.raises(ValueError, match="holdout"):
        calibrate_pairs(normal(**APART), "m", holdout=1.0)


# the percentile recipe --------------------------------------------------------------------------------------


def uniform(label: str, low: float, high: float, count: int) -> list[Pair]:
    return [pair(i, label, cosine) for i, cosine in enumerate(np.linspace(low, high, count))]


def test_percentiles_are_the_recipes() -> None:
    """Ask from the 5th percentile of duplicates, merge from the 95th of the others: known of uniform distributions."""
    pairs = uniform("duplicate", 0.8, 1.0, 401) + uniform("distinct", 0.5, 0.9, 401)
    assert percentiles(Sample.of(pairs)) == Bands(merge=0.88, judge=0.81)
    made = calibrate_pairs(pairs, "m", method="percentile", holdout=0.2)
    assert made.bands.judge == pytest.approx(0.81, abs=0.004)
    assert made.bands.merge == pytest.approx(0.88, abs=0.004)
    assert made.method == "percentile"


def test_percentiles_of_normal_distributions() -> None:
    pairs = normal(duplicate=(4000, 0.9, 0.04), distinct=(4000, 0.8, 0.03))
    bands = percentiles(Sample.of(pairs))
    assert bands.judge == pytest.approx(0.9 - 1.6449 * 0.04, abs=0.004)
    assert bands.merge == pytest.approx(0.8 + 1.6449 * 0.03, abs=0.004)


def test_percentiles_say_where_they_miss_their_targets() -> None:
    """5 % of the others are above their 95th percentile by definition: false merges under 1 % are impossible."""
    pairs = uniform("duplicate", 0.8, 1.0, 400) + uniform("distinct", 0.5, 0.9, 400)
    told = calibrate_pairs(pairs, "m", method="percentile", budget=Budget(max_escalation=0.15)).warnings
    assert any("no contradictions" in one for one in told)
    assert any("by construction" in one for one in told)
    assert any("false merges are" in one and "the target is 1.0%" in one for one in told)
    assert any("escalation" in one for one in told)
    apart = uniform("duplicate", 0.93, 1.0, 400) + uniform("contradiction", 0.3, 0.5, 400)
    told = calibrate_pairs(apart, "m", method="percentile").warnings
    assert not any("contradictions" in one for one in told)


def test_percentiles_of_too_few_are_refused() -> None:
    refused(
        uniform("duplicate", 0.8, 1.0, 19) + uniform("distinct", 0.5, 0.9, 400), "sample", method="percentile"
    )
    enough = uniform("duplicate", 0.8, 1.0, 20) + uniform("distinct", 0.5, 0.9, 400)
    assert calibrate_pairs(enough, "m", method="percentile").method == "percentile"


# a fitted score ---------------------------------------------------------------------------------------------


def fitting(monkeypatch: pytest.MonkeyPatch, quality: float) -> None:
    """In place of a fitted model: the truth, blurred according to quality."""

    def fitted(pairs: Sequence[Pair], *_: Any) -> tuple[Any, Any, float]:
        random = np.random.default_rng(1)
        truth = np.array([one.label == "duplicate" for one in pairs], dtype=np.float64)
        noise = random.normal(0.0, 1.0, len(pairs))
        return 1 / (1 + np.exp(-(quality * (2 * truth - 1) + noise))), object(), 0.5

    monkeypatch.setattr(choosing, "_fitted", fitted)


LOOSE = Budget(max_escalation=0.8)


def test_the_fitted_score_only_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = normal(**OVERLAPPING)
    fitting(monkeypatch, 4.0)
    made = calibrate_pairs(pairs, "m", budget=LOOSE, score="best", floor=0.5)
    assert (made.kind, made.candidate_threshold) == ("fitted", 0.5)
    assert made.compared["chosen"] == "fitted"
    assert made.compared["by_cosine_alone"]["asked"] > made.compared["by_score_alone"]["asked"]
    assert (
        made.measured().escalation.rate < calibrate_pairs(pairs, "m", budget=LOOSE).measured().escalation.rate
    )
    fitting(monkeypatch, 0.2)
    assert (
        calibrate_pairs(pairs, "m", budget=Budget(max_escalation=0.99), score="best", floor=0.5).kind
        == "cosine"
    )


def test_the_fitted_score_where_the_cosine_cannot_meet_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting(monkeypatch, 5.0)
    made = calibrate_pairs(normal(**OVERLAPPING), "m", score="best")
    assert made.kind == "fitted"
    assert made.compared["cosine"].startswith("refused: the budget cannot be met")
    fitting(monkeypatch, 0.5)
    refused(normal(**OVERLAPPING), "overlap", score="best")


@pytest.mark.parametrize(
    ("origin", "count", "floor"), [("import", 600, 0.8), ("labelled", 600, 0.53), ("judge", 50, 0.8)]
)
def test_from_which_cosine_on_a_score_is_asked_for(origin: str, count: int, floor: float) -> None:
    """Labels of stored memories determine it; those of a file, or a few labels, do not."""
    pairs = normal(**OVERLAPPING)
    own = [dataclasses.replace(one, origin=origin) for one in pairs[:count]] + pairs[count:]
    duplicates = np.array([one.label == "duplicate" for one in own])
    assert choosing._floor(own, Budget(), duplicates) == pytest.approx(floor, abs=0.03)


def area(scores: Any, truth: Any) -> float:
    """How often a duplicate scores higher than another pair: 0.5 if the score is uninformative."""
    above = scores[truth][:, None] - scores[~truth][None, :]
    return float(np.mean(above > 0) + np.mean(above == 0) / 2)


def test_bands_are_not_chosen_on_pairs_that_the_score_was_fitted_to() -> None:
    """Features of noise: a score that has seen the pairs tells them apart, and one that has not does not."""
    random = np.random.default_rng(3)
    pairs = [
        dataclasses.replace(one, features=tuple(random.normal(size=12)))
        for one in normal(duplicate=(400, 0.7, 0.07), contradiction=(400, 0.7, 0.07))
    ]
    error = refused(
        pairs, "overlap", embedding_model="m", score="fitted", names=[f"f{n}" for n in range(12)], floor=0.5
    )
    made = error.attempt
    assert made.frontier.escalation > 0.9
    truth = np.array([one.label == "duplicate" for one in pairs])
    training = ~made.held_out
    assert abs(area(made.scores[training], truth[training]) - 0.5) < 0.08
    # the same score does tell apart what it was fitted to, so that the above is no accident
    features = np.array([one.features for one in pairs])
    assert area(made.score.predict(features[training]), truth[training]) > 0.65


# files ------------------------------------------------------------------------------------------------------


def test_pairs_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        '{"a": "x", "b": "y", "label": "duplicate", "cosine": 0.91, "id": 7}\n\n'
        '{"a": "x", "b": "z", "label": "distinct", "embeddings": [[3, 4], [4, 3]]}\n'
        '{"a": "y", "b": "z", "label": "refinement"}\n'
    )
    assert list(read_file(file)) == [
        {"a": "x", "b": "y", "label": "duplicate", "cosine": 0.91},
        {"a": "x", "b": "z", "label": "distinct", "cosine": 0.96},
        {"a": "y", "b": "z", "label": "refinement"},
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[1]", "{", '{"a": "x", "b": " ", "label": "distinct"}', '{"a": "x", "b": "y", "label": "same"}',
        '{"a": "x", "b": "y", "label": "distinct", "cosine": "near"}',
        '{"a": "x", "b": "y", "label": "distinct", "embeddings": [[1, 2], [1]]}',
        '{"a": "x", "b": "y", "label": "distinct", "embeddings": [[0, 0], [1, 1]]}',
    ],
)  # fmt: skip
def test_lines_that_are_not_pairs(tmp_path: Path, line: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"a": "x", "b": "y", "label": "distinct"}\n' + line + "\n")
    with pytest.raises(InvalidPairError) as error:
        list(read_file(file))
    assert error.value.sqlstate == "MF042"
    assert "pairs.jsonl:2" in str(error.value.detail)


# the judge --------------------------------------------------------------------------------------------------


class Forgetful:
    """Knows the labels by the texts; wrong on every fourth contradiction, unsure or failing on some."""

    model = "forgetful"

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def judge(self, question: Question) -> Answer:
        self.asked.append(question)
        await asyncio.sleep(0)
        number, label = re.match(r"text (\d+) of (\w+)", question.other.content).groups()  # type: ignore[union-attr]
        if label == "contradiction" and int(number) % 4 == 0:
            return Answer("duplicate", 0.9)
        if label == "distinct" and int(number) == 1:
            return Answer("duplicate", 0.5)
        if label == "distinct" and int(number) == 2:
            raise JudgeError("no answer", transient=True)
        return Answer(label, 0.9)  # type: ignore[arg-type]


def test_the_judge_is_measured_by_class() -> None:
    judge = Forgetful()
    pairs = [pair(i, label, 0.8) for label in CLASSES for i in range(8)]
    found = measure_judge(judge, pairs)
    assert len(judge.asked) == found["asked"] == 24
    assert (judge.asked[0].memory.content, judge.asked[0].similarity) == (pairs[0].b, 0.8)
    assert (found["wrong"]["count"], found["wrong"]["of"]) == (2, 22)
    by_label = found["by_label"]
    assert {label: by_label[label]["wrong"]["count"] for label in CLASSES} == {
        "duplicate": 0, "contradiction": 2, "distinct": 0,
    }  # fmt: skip
    assert (by_label["distinct"]["unsure"], by_label["distinct"]["failed"]) == (1, 1)
    assert (found["merged_wrongly"]["count"], found["merged_wrongly"]["of"]) == (2, 14)
    assert by_label["contradiction"]["verdicts"] == {"duplicate": 2, "contradiction": 6}
    assert by_label["contradiction"]["wrong"]["low"] < 0.25 < by_label["contradiction"]["wrong"]["high"]


def loose() -> Calibration:
    return calibrate_pairs(normal(**OVERLAPPING), "m", budget=LOOSE)


def test_the_judge_is_asked_what_lies_in_the_band() -> None:
    made = loose()
    asked = in_band(made)
    assert asked
    assert all(made.bands.judge <= one.cosine <= made.bands.merge for one in asked)
    assert len(a_share(asked, 10)) == 10
    assert a_share(asked, 10) == a_share(asked, 10)
    assert a_share(asked, 10_000) == asked


# the report -------------------------------------------------------------------------------------------------


def test_the_report_page_is_self_contained(tmp_path: Path) -> None:
    made = loose()
    bad = dataclasses.replace(
        made.pairs[0], label="distinct", cosine=0.999, a="<script>alert(1)</script>", guard=()
    )
    made = dataclasses.replace(
        made,
        pairs=(bad, *made.pairs[1:]),
        scores=np.concatenate([[0.999], made.scores[1:]]),
        warnings=("a < b",),
        judged=measure_judge(Forgetful(), [pair(i, "contradiction", 0.8) for i in range(4)]),
    )
    write_html(made, tmp_path / "report.html", "Refused & told.")
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 1
    assert not re.search(r"(src|href)=\"(?!#)|url\((?!#)|@import|<link|<script|<!ENTITY|<metadata", text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "a &lt; b" in text
    assert "Refused &amp; told." in text
    for words in ("forgetful was asked about 4 pairs", made.fingerprint.hex(), "Kept apart, but duplicates"):
        assert words in text
    assert page(made, "Refused & told.") == text


def test_a_curve_of_few_pairs_without_signals() -> None:
    """The guard lets one of 100 non-duplicates through: no more merges can be wrong."""
    scores = np.linspace(0.5, 0.99, 200)
    labels = np.array([0, 2] * 100, dtype=np.int64)
    clean = labels == 0
    clean[1] = True
    points = curve(Sample(scores, labels, clean), Budget())
    assert points
    assert max(wrong for wrong, _ in points) <= 0.01
