"""A calibration: the bands of one embedding model, and what was measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID

import numpy as np

from memfold.tools.calibrate.bands import Bands, Budget, Frontier, Measured, Sample, measure
from memfold.tools.calibrate.pairs import LABELS, Bools, Floats, Pair, groups_of

if TYPE_CHECKING:
    from memfold.tools.calibrate.score import Score

Method: TypeAlias = Literal["budget", "percentile"]
Kind: TypeAlias = Literal["cosine", "fitted", "best"]

_BINS: Final = 60


@dataclass(frozen=True, slots=True)
class Calibration:
    """Bands of one embedding model, and their measured rates. ``report()`` is stored with them.

    ``pairs``, ``scores`` and ``held_out`` (which pairs did not choose the bands) let you inspect the errors.
    """

    model: str
    method: Method
    bands: Bands
    budget: Budget
    guard: bool
    pairs: tuple[Pair, ...]
    scores: Floats
    held_out: Bools
    frontier: Frontier
    fingerprint: bytes
    score: Score | None = None
    candidate_threshold: float | None = None
    warnings: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    compared: dict[str, Any] = field(default_factory=dict)
    judged: dict[str, Any] | None = None
    calibration_id: UUID | None = None

    @property
    def kind(self) -> str:
        return "cosine" if self.score is None else "fitted"

    def measured(self, *, held_out: bool = True, guard: bool | None = None) -> Measured:
        """The rates on the part that chose the bands or on the other; by default with the guard as in the choice."""
        sample = Sample.of(self.pairs, self.scores).where(self.held_out == held_out)
        if not (self.guard if guard is None else guard):
            sample = sample.without_guard()
        return measure(sample, self.bands, allow_refinements=self.budget.allow_refinements)

    def histogram(self) -> tuple[Floats, dict[str, list[int]]]:
        """Edges of 60 bins of the score, and how many pairs of each label that occurs fall in each."""
        scores = np.clip(np.where(np.isfinite(self.scores), self.scores, 0.0), -1.0, 1.0)
        # far below the bands there is only the bulk of unrelated texts
        low = min(float(np.quantile(scores, 0.005)), self.bands.judge)
        edges = np.linspace(low, max(1.0, self.bands.merge), _BINS + 1)
        counts = {}
        for label in LABELS:
            own = scores[[pair.label == label for pair in self.pairs]]
            if len(own):
                counts[label] = np.histogram(np.clip(own, edges[0], edges[-1]), edges)[0].tolist()
        return edges, counts

    def report(self) -> dict[str, Any]:
        """Numbers, no texts."""
        edges, counts = self.histogram()
        labels = Counter(pair.label for pair in self.pairs)
        return {
            "score": self.kind,
            "guard": self.guard,
            "budget": {
                "max_false_merge": self.budget.max_false_merge,
                "max_false_keep": self.budget.max_false_keep,
                "max_escalation": self.budget.max_escalation,
                "confidence": self.budget.confidence,
                "allow_refinements": self.budget.allow_refinements,
            },
            "pairs": {
                "used": len(self.pairs),
                "held_out": int(self.held_out.sum()),
                "groups": int(groups_of(self.pairs).max()) + 1,
                "by_label": {label: labels[label] for label in LABELS if labels[label]},
                "by_origin": dict(sorted(Counter(pair.origin for pair in self.pairs).items())),
                "left_out": self.left_out,
            },
            "held_out": {
                "with_guard": self.measured(guard=True).to_json(),
                "without_guard": self.measured(guard=False).to_json(),
            },
            "chosen_on": {
                "with_guard": self.measured(held_out=False, guard=True).to_json(),
                "without_guard": self.measured(held_out=False, guard=False).to_json(),
            },
            "frontier": self.frontier.to_json(),
            "histogram": {"low": float(edges[0]), "high": float(edges[-1]), "by_label": counts},
            "compared": self.compared,
            "judge": self.judged,
            "warnings": list(self.warnings),
        }


def rates(measured: Measured, budget: Budget) -> list[tuple[str, Any, float]]:
    return [
        ("false merges", measured.false_merge, budget.max_false_merge),
        ("false keeps", measured.false_keep, budget.max_false_keep),
        ("escalation", measured.escalation, budget.max_escalation),
    ]
