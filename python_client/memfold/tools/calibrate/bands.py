"""Bands (where to merge, where to ask) within an error budget, and their rates on other pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from memfold.tools.calibrate.bounds import Rate, allowed, needed, upper
from memfold.tools.calibrate.pairs import LABELS, Bools, Floats, Ints, Pair

_STEP = 1e6


@dataclass(frozen=True, slots=True)
class Budget:
    """The accepted error rates, and the confidence that they are kept.

    false merge: automatic merges among all pairs that are not duplicates. false keep: duplicates below the judge
    threshold, among all duplicates. escalation: pairs that are asked about, among all.
    """

    max_false_merge: float = 0.01
    max_false_keep: float = 0.05
    max_escalation: float = 0.35
    confidence: float = 0.95
    allow_refinements: bool = False

    def __post_init__(self) -> None:
        for name in ("max_false_merge", "max_false_keep", "max_escalation", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class Sample:
    """Scores of pairs, with the data needed to count errors. ``clean``: the guard does not raise."""

    scores: Floats
    labels: Ints
    clean: Bools

    @classmethod
    def of(cls, pairs: Sequence[Pair], scores: Floats | None = None) -> Sample:
        made = np.array([pair.cosine for pair in pairs], dtype=np.float64) if scores is None else scores
        return cls(
            made,
            np.array([LABELS.index(pair.label) for pair in pairs], dtype=np.int64),
            np.array([not pair.guard for pair in pairs], dtype=np.bool_),
        )

    def where(self, mask: Bools) -> Sample:
        return Sample(self.scores[mask], self.labels[mask], self.clean[mask])

    def without_guard(self) -> Sample:
        return Sample(self.scores, self.labels, np.ones_like(self.clean))

    @property
    def duplicates(self) -> Bools:
        return np.asarray(self.labels == 0)

    def others(self, allow_refinements: bool) -> Bools:
        """The pairs that must not be merged without asking.

        They include refinements: after an automatic merge the older text is shown, and if the newer one says more,
        its detail is hidden until somebody undoes the merge.
        """
        return np.asarray(self.labels > (1 if allow_refinements else 0))

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True)
class Bands:
    """Above ``merge`` a pair is merged; from ``judge`` on it is asked about; below it is kept apart."""

    merge: float
    judge: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The rates of bands on a sample."""

    false_merge: Rate
    false_keep: Rate
    escalation: Rate
    merged_duplicates: Rate
    by_label: dict[str, dict[str, int]] = field(default_factory=dict)

    def __add__(self, other: Measured) -> Measured:
        return Measured(
            self.false_merge + other.false_merge,
            self.false_keep + other.false_keep,
            self.escalation + other.escalation,
            self.merged_duplicates + other.merged_duplicates,
            {
                label: {
                    name: self.by_label.get(label, {}).get(name, 0)
                    + other.by_label.get(label, {}).get(name, 0)
                    for name in ("merged", "asked", "kept")
                }
                for label in LABELS
                if label in self.by_label or label in other.by_label
            },
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "false_merge": self.false_merge.to_json(),
            "false_keep": self.false_keep.to_json(),
            "escalation": self.escalation.to_json(),
            "merged_duplicates": self.merged_duplicates.to_json(),
            "by_label": self.by_label,
        }


def measure(sample: Sample, bands: Bands, *, allow_refinements: bool = False) -> Measured:
    """Count what would happen to the pairs. Pairs that the guard tells apart are never merged, but asked about."""
    merged = (sample.scores > bands.merge) & sample.clean
    kept = sample.scores < bands.judge
    merged &= ~kept
    asked = ~merged & ~kept
    others, duplicates = sample.others(allow_refinements), sample.duplicates

    def rate(what: Bools, among: Bools) -> Rate:
        return Rate(int((what & among).sum()), int(among.sum()))

    everything = np.ones(len(sample), dtype=np.bool_)
    by_label = {}
    for number, label in enumerate(LABELS):
        own = np.asarray(sample.labels == number)
        if own.any():
            by_label[label] = {
                "merged": int((merged & own).sum()),
                "asked": int((asked & own).sum()),
                "kept": int((kept & own).sum()),
            }
    return Measured(
        rate(merged, others),
        rate(kept, duplicates),
        rate(asked, everything),
        rate(merged, duplicates),
        by_label,
    )


# --- choosing -----------------------------------------------------------------------------------------------------


def shortage(sample: Sample, budget: Budget) -> dict[str, tuple[int, int]]:
    """Classes with too few pairs for any bound within the budget: how many there are, and how many are needed."""
    found = {}
    others = int(sample.others(budget.allow_refinements).sum())
    duplicates = int(sample.duplicates.sum())
    if others < (number := needed(budget.max_false_merge, budget.confidence)):
        found["pairs that are not duplicates"] = (others, number)
    if duplicates < (number := needed(budget.max_false_keep, budget.confidence)):
        found["duplicates"] = (duplicates, number)
    if len(sample) < (number := needed(budget.max_escalation, budget.confidence)):
        found["pairs"] = (len(sample), number)
    return found


def _merge_from(sample: Sample, budget: Budget) -> float:
    """The lowest merge threshold that keeps false merges within their budget."""
    others = sample.others(budget.allow_refinements)
    errors = max(allowed(int(others.sum()), budget.max_false_merge, budget.confidence), 0)
    reachable = np.sort(sample.scores[others & sample.clean])[::-1]
    if errors >= len(reachable) or not math.isfinite(reachable[errors]):
        return 0.0
    return _inside(math.ceil(reachable[errors] * _STEP - 1e-3) / _STEP)


def _judge_from(sample: Sample, budget: Budget) -> float:
    """The highest judge threshold that keeps false keeps within their budget."""
    duplicates = np.sort(sample.scores[sample.duplicates])
    errors = max(allowed(len(duplicates), budget.max_false_keep, budget.confidence), 0)
    if errors >= len(duplicates) or not math.isfinite(duplicates[errors]):
        return 0.0
    return _inside(math.floor(duplicates[errors] * _STEP + 1e-3) / _STEP)


def _inside(threshold: float) -> float:
    """Thresholds of a model are in [0, 1]; nothing is above 1, so 1 merges nothing."""
    return min(max(threshold, 0.0), 1.0)


def choose(sample: Sample, budget: Budget) -> Bands:
    """The narrowest bands whose false merges and false keeps stay within the budget.

    If there is a gap between the classes instead of an overlap, the middle half of the gap is the band: pairs unlike
    any in the sample are asked about, and the edges keep away from those in it.
    """
    merge, judge = _merge_from(sample, budget), _judge_from(sample, budget)
    if merge < judge:
        quarter = (judge - merge) / 4
        return Bands(merge=round(judge - quarter, 6), judge=round(merge + quarter, 6))
    return Bands(merge=merge, judge=judge)


def percentiles(sample: Sample) -> Bands:
    """The recipe without a budget: ask from the 5th percentile of duplicates on, merge from the 95th of the others."""
    judge = float(np.percentile(sample.scores[sample.duplicates], 5))
    merge = float(np.percentile(sample.scores[~sample.duplicates], 95))
    ends = sorted(_inside(round(end, 6)) for end in (judge, merge))
    return Bands(merge=ends[1], judge=ends[0])


# --- what is possible -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frontier:
    """The best possible value of each rate while the two others stay within their budgets, as upper bounds."""

    false_merge: float
    false_keep: float
    escalation: float
    confidence: float
    curve: tuple[tuple[float, float], ...] = ()
    """(false merges, escalation) as counted, with false keeps at their budget."""

    def to_json(self) -> dict[str, Any]:
        return {
            "false_merge": round(self.false_merge, 4),
            "false_keep": round(self.false_keep, 4),
            "escalation": round(self.escalation, 4),
            "confidence": self.confidence,
            "curve": [[round(x, 4), round(y, 4)] for x, y in self.curve],
        }

    def told(self, budget: Budget) -> str:
        """In words."""
        merges, keeps, asked = (
            f"{share:.1%}" for share in (budget.max_false_merge, budget.max_false_keep, budget.max_escalation)
        )
        return (
            f"With false merges of {merges} and false keeps of {keeps}, {self.escalation:.1%} must be asked about;"
            f" with {keeps} and an escalation of {asked}, {self.false_merge:.1%} are merged falsely;"
            f" with {merges} and {asked}, {self.false_keep:.1%} are kept falsely"
            f" (upper bounds at {self.confidence:.0%})"
        )


def _asked(sample: Sample, bands: Bands) -> int:
    return int(measure(sample, bands).escalation.count)


def frontier(sample: Sample, budget: Budget) -> Frontier:
    """The value of each rate with the two others at their budgets."""
    confidence = budget.confidence
    merge, judge = _merge_from(sample, budget), _judge_from(sample, budget)
    bands = choose(sample, budget)
    most = max(allowed(len(sample), budget.max_escalation, confidence), 0)
    everything = upper(_asked(sample, bands), len(sample), confidence)
    values = np.unique(np.clip(sample.scores, 0.0, 1.0))

    # the highest merge threshold that does not ask too often, and the lowest judge threshold
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if _asked(sample, Bands(max(float(values[middle]), judge), judge)) <= most:
            low = middle + 1
        else:
            high = middle
    least_merge = max(float(values[low - 1]) if low else 0.0, judge)
    counted = measure(sample, Bands(least_merge, judge), allow_refinements=budget.allow_refinements)
    false_merge = upper(counted.false_merge.count, max(counted.false_merge.of, 1), confidence)

    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        value = float(values[middle])
        if _asked(sample, Bands(max(merge, value), value)) <= most:
            high = middle
        else:
            low = middle + 1
    most_judge = float(values[low]) if low < len(values) else 1.0
    counted = measure(sample, Bands(max(merge, most_judge), most_judge))
    false_keep = upper(counted.false_keep.count, max(counted.false_keep.of, 1), confidence)
    return Frontier(false_merge, false_keep, everything, confidence, curve(sample, budget))


def curve(
    sample: Sample, budget: Budget, max_false_keep: float | None = None
) -> tuple[tuple[float, float], ...]:
    """Escalation by false merges, both as counted, with false keeps at their budget."""
    duplicates = np.sort(sample.scores[sample.duplicates])
    share = budget.max_false_keep if max_false_keep is None else max_false_keep
    if not len(duplicates):
        return ()
    judge = float(duplicates[min(int(share * len(duplicates)), len(duplicates) - 1)])
    points: list[tuple[float, float]] = []
    others = sample.others(budget.allow_refinements)
    reachable = np.sort(sample.scores[others & sample.clean])[::-1]
    total = max(int(others.sum()), 1)
    for share_merged in np.geomspace(0.001, 0.5, 40):
        count = int(share_merged * total)
        merge = float(reachable[count]) if count < len(reachable) else judge
        made = measure(sample, Bands(max(merge, judge), judge), allow_refinements=budget.allow_refinements)
        point = (made.false_merge.rate, made.escalation.rate)
        if not points or points[-1] != point:
            points.append(point)
    return tuple(points)
