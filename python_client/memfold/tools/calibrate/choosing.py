"""Bands from labelled pairs, without a database: chosen on one part of them, measured on the other."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memfold.client.errors import CalibrationRefusedError
from memfold.tools.calibrate.bands import Budget, Sample, choose, frontier, percentiles, shortage
from memfold.tools.calibrate.bounds import at_most, lower, needed
from memfold.tools.calibrate.calibration import Calibration, Kind, Method, rates
from memfold.tools.calibrate.pairs import Bools, Floats, Pair, fingerprint, groups_of, parted

if TYPE_CHECKING:
    from memfold.tools.calibrate.score import Score

MIN_CONTRADICTIONS = 20
"""With fewer, a sample says nothing of the pairs that do the harm."""

FLOOR = 0.80
"""The minimum cosine for a score, unless labels of stored memories determine it. Duplicates of benchmarks reach
further down than those of memories: with a floor from benchmarks, half of a real stream was asked about."""


def calibrate_pairs(
    pairs: Sequence[Pair],
    embedding_model: str = "",
    *,
    budget: Budget | None = None,
    holdout: float = 0.2,
    method: Method = "budget",
    score: Kind = "cosine",
    guard: bool = True,
    seed: int = 0,
    names: Sequence[str] = (),
    floor: float | None = None,
) -> Calibration:
    """Choose the bands, and measure them on the part of the pairs that did not choose them.

    Raises CalibrationRefusedError. ``guard``: whether the policies that use the bands have the guard on. ``names``:
    of the features, if the pairs have any. ``floor``: the minimum cosine for a score; None: from the labels of stored
    memories, or FLOOR.
    """
    budget = budget or Budget()
    if not 0 < holdout < 1:
        raise ValueError("holdout must lie between 0 and 1")
    if method not in ("budget", "percentile") or score not in ("cosine", "fitted", "best"):
        raise ValueError("method is budget or percentile, score is cosine, fitted or best")
    _enough(pairs, budget, holdout, method)
    groups = groups_of(pairs)
    held_out = np.asarray(parted(groups, [pair.label for pair in pairs], [1 - holdout, holdout], seed) == 1)
    if held_out.all() or not held_out.any():
        raise CalibrationRefusedError(
            "the pairs cannot be split",
            reason="one_group",
            detail=f"{len(pairs)} pairs form {int(groups.max()) + 1} groups that share texts.",
            hint="Label pairs of other memories too: rates are measured on texts not seen before.",
        )
    made: dict[str, Calibration] = {}
    refused: dict[str, CalibrationRefusedError] = {}
    for kind in ("cosine", "fitted") if score == "best" else (score,):
        try:
            made[kind] = _calibrated(
                pairs, embedding_model, budget, held_out, method, kind, guard, seed, names, floor
            )
        except CalibrationRefusedError as error:
            refused[kind] = error
    if not made:
        raise min(refused.values(), key=lambda error: getattr(error.frontier, "escalation", 2.0))
    if len(made) == 2:
        return _better(made["cosine"], made["fitted"])
    if refused:
        kind = next(iter(refused))
        only = next(iter(made.values()))
        return replace(only, compared={kind: f"refused: {refused[kind].message}"})
    return next(iter(made.values()))


def _enough(pairs: Sequence[Pair], budget: Budget, holdout: float, method: Method) -> None:
    """Whether the pairs are sufficient at all."""
    labels = Counter(pair.label for pair in pairs)
    if not pairs:
        raise CalibrationRefusedError(
            "there are no labelled pairs",
            reason="no_pairs",
            detail="No pair has both a cosine by this model and a label given by somebody.",
            hint="Add some: memfold calibrate MODEL --pairs FILE, collect_pairs(), memfold review --label.",
        )
    others = sum(labels.values()) - labels["duplicate"]
    if method == "percentile":
        if min(labels["duplicate"], others) < 20:
            raise CalibrationRefusedError(
                "there are too few pairs",
                reason="sample",
                detail=f"There are {labels['duplicate']} duplicates and {others} others.",
                hint="A 5th and a 95th percentile need at least 20 of each; the recipe says 200 to 500 pairs.",
            )
        return
    if not labels["contradiction"]:
        raise _no_contradictions(len(pairs), 0)
    asked = {
        "pairs that are not duplicates": (
            others - (labels["refinement"] if budget.allow_refinements else 0),
            needed(budget.max_false_merge, budget.confidence),
        ),
        "duplicates": (labels["duplicate"], needed(budget.max_false_keep, budget.confidence)),
    }
    if any(there * (1 - holdout) < number for there, number in asked.values()):
        told = " and ".join(
            f"{-int(-number // (1 - holdout))} {what} (there are {there})"
            for what, (there, number) in asked.items()
        )
        raise CalibrationRefusedError(
            "there are too few labelled pairs",
            reason="sample",
            detail=f"It takes {told} to confirm rates of {budget.max_false_merge:.1%} and"
            f" {budget.max_false_keep:.1%} at a confidence of {budget.confidence:.0%}, with {holdout:.0%} of the pairs"
            " held out.",
            hint="With fewer, let memfold calibrate MODEL --anchors set the thresholds. Or label more pairs"
            " (memfold review --label), or allow higher rates (--max-false-merge, --max-false-keep).",
        )
    if labels["contradiction"] < MIN_CONTRADICTIONS:
        raise _no_contradictions(len(pairs), labels["contradiction"])


def _no_contradictions(pairs: int, there: int) -> CalibrationRefusedError:
    return CalibrationRefusedError(
        "there are too few contradictions" if there else "contradictions are missing",
        reason="contradictions",
        detail=f"{there} of {pairs} pairs are contradictions; at least {MIN_CONTRADICTIONS} are needed.",
        hint="They are more similar than paraphrases are: a threshold chosen without them merges"
        " them. Label pairs that contradict each other, or differ in a number or a name.",
    )


def _calibrated(
    pairs: Sequence[Pair],
    embedding_model: str,
    budget: Budget,
    held_out: Bools,
    method: Method,
    kind: Kind,
    guard: bool,
    seed: int,
    names: Sequence[str],
    floor: float | None,
) -> Calibration:
    fitted: Score | None = None
    candidates: float | None = None
    if kind == "cosine":
        scores = np.array([pair.cosine for pair in pairs], dtype=np.float64)
    else:
        scores, fitted, candidates = _fitted(pairs, budget, held_out, seed, names, floor)
    everything = Sample.of(pairs, scores)
    chosen_by = everything if guard else everything.without_guard()
    training = chosen_by.where(~held_out)
    bands = percentiles(training) if method == "percentile" else choose(training, budget)
    made = Calibration(
        model=embedding_model,
        method=method,
        bands=bands,
        budget=budget,
        guard=guard,
        pairs=tuple(pairs),
        scores=scores,
        held_out=held_out,
        frontier=frontier(training, budget),
        fingerprint=fingerprint(pairs),
        score=fitted,
        candidate_threshold=candidates,
    )
    if method == "percentile":
        return replace(made, warnings=tuple(_missed(made)))
    short = shortage(training, budget)
    if short:
        what, (there, number) = next(iter(short.items()))
        raise CalibrationRefusedError(
            "there are too few pairs",
            reason="sample",
            detail=f"Choosing the thresholds takes {number} {what}; {there} are left.",
            hint="Groups that share texts cannot be divided. Label pairs of other memories, or hold out less.",
        )
    if made.frontier.escalation > budget.max_escalation:
        raise _refused(
            made,
            "the budget cannot be met: the distributions overlap",
            reason="overlap",
            detail=made.frontier.told(budget) + ".",
            hint="Allow more of one of them, try the fitted score, or label more: bounds of small samples are wide.",
        )
    _verify(made)
    return replace(made, warnings=tuple(_loose(made)))


def _refused(made: Calibration, message: str, **told: Any) -> CalibrationRefusedError:
    error = CalibrationRefusedError(message, frontier=made.frontier, **told)
    error.attempt = made
    return error


def _fitted(
    pairs: Sequence[Pair],
    budget: Budget,
    held_out: Bools,
    seed: int,
    names: Sequence[str],
    floor: float | None,
) -> tuple[Floats, Score, float]:
    """Scores of all pairs by models that have not seen them, the model of the whole training part, and its floor."""
    from memfold.tools.calibrate.score import cross_scores, fit

    if any(pair.features is None for pair in pairs):
        raise ValueError("the pairs have no features")
    features = np.array([pair.features for pair in pairs], dtype=np.float64)
    cosines = np.array([pair.cosine for pair in pairs], dtype=np.float64)
    duplicates = np.array([pair.label == "duplicate" for pair in pairs], dtype=np.bool_)
    groups = groups_of(pairs)
    scores = np.zeros(len(pairs))
    training = ~held_out
    # on a busy machine, several threads wait for one another far longer than one thread takes alone
    with importlib.import_module("threadpoolctl").threadpool_limits(limits=1):
        # the bands are chosen on scores by models that have not seen the pair
        scores[training] = cross_scores(features[training], duplicates[training], groups[training], seed=seed)
        score = fit(features[training], duplicates[training], groups[training], seed=seed, names=names)
    scores[held_out] = score.predict(features[held_out])
    candidates = _floor(pairs, budget, duplicates & training) if floor is None else floor
    return np.where(cosines < candidates, -np.inf, scores), score, candidates


def _floor(pairs: Sequence[Pair], budget: Budget, duplicates: Bools) -> float:
    """The cosine from which a pair is scored; pairs below it are kept."""
    own = [
        pair.cosine
        for pair, counts in zip(pairs, duplicates, strict=True)
        if counts and pair.origin != "import"
    ]
    if len(own) < needed(budget.max_false_keep, budget.confidence):
        return FLOOR
    # at most a fifth of the permitted false keeps may lie below the floor
    return max(0.0, float(np.floor(np.quantile(own, budget.max_false_keep / 5) * 100) / 100))


def _verify(made: Calibration) -> None:
    """Pairs that nobody looked at must not make the budget impossible."""
    measured = made.measured()
    for name, rate, most in rates(measured, made.budget):
        if rate.of and lower(rate.count, rate.of, made.budget.confidence) > most:
            raise _refused(
                made,
                "the held-out pairs contradict it",
                reason="held_out",
                detail=f"On pairs that were not used to choose the bands, {name} are {rate}, the budget is {most:.1%}.",
                hint="The pairs differ from group to group: label pairs of more memories.",
            )


def _loose(made: Calibration) -> Iterator[str]:
    for name, rate, most in rates(made.measured(), made.budget):
        if rate.of and rate.rate > most:
            yield f"on the held-out pairs {name} are {rate}, the budget is {most:.1%}"
    for label in ("contradiction", "distinct"):
        if label not in made.measured().by_label:
            yield f"no {label} among the held-out pairs"


def _missed(made: Calibration) -> Iterator[str]:
    """Warnings if percentiles miss their own targets."""
    labels = Counter(pair.label for pair in made.pairs)
    if not labels["contradiction"]:
        yield "there are no contradictions among the pairs: they will be merged"
    for name, rate, most in rates(made.measured(), made.budget):
        if rate.of and rate.rate > most:
            yield f"the recipe misses its target: on the held-out pairs {name} are {rate}, the target is {most:.1%}"
    training = made.measured(held_out=False, guard=False)
    if training.false_merge.of and training.false_merge.rate > made.budget.max_false_merge:
        yield (
            f"the 95th percentile lets 5% through by construction: {training.false_merge} of the pairs that chose it"
            f" are merged falsely without the guard; use method => budget"
        )


def _better(cosine: Calibration, fitted: Calibration) -> Calibration:
    """The fitted score, but only if it is better on pairs that neither has seen.

    It must ask about significantly fewer of them, and must not merge or keep significantly more of them falsely, by
    sign tests of the pairs that the two treat differently.
    """
    doubt = 1 - fitted.budget.confidence
    by_cosine, by_score = _fates(cosine), _fates(fitted)
    differ = {
        name: (int((one & ~other).sum()), int((other & ~one).sum()))
        for name, one, other in (
            (name, by_cosine[name], by_score[name]) for name in ("asked", "falsely merged", "falsely kept")
        )
    }

    def rather(more: int, fewer: int) -> bool:
        """Whether so lopsided a count is significant."""
        return more > fewer and at_most(fewer, fewer + more, 0.5) <= doubt

    fewer, more = differ["asked"]
    wins = rather(fewer, more) and not any(
        rather(worse, better) for name, (better, worse) in differ.items() if name != "asked"
    )
    compared: dict[str, Any] = {
        name: made.measured().to_json() | {"merge": made.bands.merge, "judge": made.bands.judge}
        for name, made in (("cosine", cosine), ("fitted", fitted))
    }
    compared["by_cosine_alone"] = {name: counts[0] for name, counts in differ.items()}
    compared["by_score_alone"] = {name: counts[1] for name, counts in differ.items()}
    compared["chosen"] = "fitted" if wins else "cosine"
    return replace(fitted if wins else cosine, compared=compared)


def _fates(made: Calibration) -> dict[str, Bools]:
    """Which of the held-out pairs are asked about, merged falsely, kept falsely."""
    sample = Sample.of(made.pairs, made.scores).where(made.held_out)
    clean = sample.clean if made.guard else np.ones_like(sample.clean)
    kept = sample.scores < made.bands.judge
    merged = (sample.scores > made.bands.merge) & clean & ~kept
    return {
        "asked": np.asarray(~merged & ~kept),
        "falsely merged": np.asarray(merged & sample.others(made.budget.allow_refinements)),
        "falsely kept": np.asarray(kept & sample.duplicates),
    }
