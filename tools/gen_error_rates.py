"""Writes docs/error-rates.md: the error rates of thresholds, calibrated or not, on labelled pairs.

    python tools/gen_error_rates.py --dsn DSN --model NAME --data "what the pairs are" PAIRS.jsonl

Each line of PAIRS.jsonl has a, b, label and cosine, and source if --without leaves some out. Any database with
memfold is enough: it runs the guard and computes features, nothing is stored. The page contains numbers, no texts.

The bands and the model for each pair have seen neither of its texts: folds are by text group.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from threadpoolctl import threadpool_limits

from memfold.tools.calibrate import (
    LABELS,
    Bands,
    Budget,
    Measured,
    Pair,
    Rate,
    Sample,
    choose,
    described,
    fingerprint,
    frontier,
    groups_of,
    measure,
    parted,
    percentiles,
    read_file,
)
from memfold.tools.calibrate.pairs import Floats
from memfold.tools.calibrate.score import cross_scores, fit

PAGE = Path(__file__).parents[1] / "docs" / "error-rates.md"
MERGE_RATES = "<!-- begin: tools/gen_merge_rates.py -->"
FOLDS = 5
Chooser = Callable[[Sample, Budget], Bands]

HEAD = """\
# Error rates

`tools/gen_error_rates.py` made this page from a run on labelled pairs. `make test` checks that the rates of two small sets
do not get worse: `tests/data/pairs.jsonl`, and the anchors (`memfold/data/anchors.jsonl` of the Python package), short
memories in nine languages. `all-MiniLM-L6-v2` is a model of English and separates little in other languages
(`tests/data/error_rates.json`): embed those with a multilingual model. Your rates differ: [calibrate](calibration.md) on
pairs of your own memories.

| word | means |
|---|---|
| false merge | merged without asking, of all pairs that are not duplicates (contradictions included) |
| false keep | below the judge threshold, of all duplicates |
| escalation | asked about, of all pairs: a judge's work |
| duplicates merged | merged without asking, of all duplicates: questions that a judge is spared |

Brackets contain exact intervals of 95 % (Clopper and Pearson). They treat pairs of one text group as independent, which is
not quite true. Escalation depends on the mixture of pairs: `memfold calibrate --replay` shows how much would be asked in
your bucket. Texts of the same words in another order limit it most: the second part leaves them out. These tables do not
include the veto; the last part does.
"""


@dataclass(frozen=True)
class Row:
    name: str
    thresholds: str
    measured: Measured
    bare: Measured


def scores_of(pairs: Sequence[Pair], parts: np.ndarray) -> tuple[list[Floats], Floats]:
    """For each fold the scores of all pairs (by models that had not seen them), and for each pair its held-out score."""
    features = np.array([pair.features for pair in pairs], dtype=np.float64)
    duplicates = np.array([pair.label == "duplicate" for pair in pairs])
    groups = groups_of(pairs)
    by_fold, unseen = [], np.zeros(len(pairs))
    for fold in range(FOLDS):
        seen = parts != fold
        scores = np.zeros(len(pairs))
        scores[seen] = cross_scores(features[seen], duplicates[seen], groups[seen])
        scores[~seen] = unseen[~seen] = fit(features[seen], duplicates[seen], groups[seen]).predict(
            features[~seen]
        )
        by_fold.append(scores)
    return by_fold, unseen


def folded(
    name: str,
    pairs: Sequence[Pair],
    parts: np.ndarray,
    scores: Sequence[Floats],
    chooser: Chooser,
    budget: Budget,
) -> Row:
    """Bands chosen on four parts, measured on the fifth; all five together."""
    nothing = Measured(Rate(0, 0), Rate(0, 0), Rate(0, 0), Rate(0, 0))
    measured = bare = nothing
    found = []
    for fold in range(FOLDS):
        sample = Sample.of(pairs, scores[fold])
        bands = chooser(sample.where(parts != fold), budget)
        found.append(bands)
        measured += measure(sample.where(parts == fold), bands)
        # without the guard they would be different
        open_sample = sample.without_guard()
        bare += measure(open_sample.where(parts == fold), chooser(open_sample.where(parts != fold), budget))
    judge, merge = (np.array([getattr(bands, end) for bands in found]) for end in ("judge", "merge"))
    return Row(
        name, f"{judge.min():.3f}–{judge.max():.3f} / {merge.min():.3f}–{merge.max():.3f}", measured, bare
    )


def fixed(name: str, pairs: Sequence[Pair], bands: Bands) -> Row:
    sample = Sample.of(pairs)
    return Row(
        name,
        f"{bands.judge:.2f} / {bands.merge:.2f}",
        measure(sample, bands),
        measure(sample.without_guard(), bands),
    )


def table(rows: Sequence[Row], guard: bool) -> list[str]:
    lines = [
        "| thresholds of | judge / merge | false merges | false keeps | escalation | duplicates merged |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        made = row.measured if guard else row.bare
        rates = (made.false_merge, made.false_keep, made.escalation, made.merged_duplicates)
        thresholds = row.thresholds if guard or "–" not in row.thresholds else "chosen again"
        lines.append(f"| {row.name} | {thresholds} | " + " | ".join(map(str, rates)) + " |")
    return lines


def by_class(rows: Sequence[Row]) -> list[str]:
    lines = ["| thresholds of | class | pairs | merged | asked | kept |", "|---|---|---|---|---|---|"]
    for row in rows:
        for label, counts in row.measured.by_label.items():
            total = sum(counts.values())
            shares = " | ".join(str(Rate(counts[fate], total)) for fate in ("merged", "asked", "kept"))
            lines.append(f"| {row.name} | {label} | {total} | {shares} |")
    return lines


def can_be_had(pairs: Sequence[Pair], named: Sequence[tuple[str, Floats]], budget: Budget) -> list[str]:
    counted = Budget(budget.max_false_merge, budget.max_false_keep, budget.max_escalation, confidence=0.5)
    lines = [
        "| score | escalation | false merges | false keeps |",
        "|---|---|---|---|",
    ]
    for name, scores in named:
        best = frontier(Sample.of(pairs, scores), counted)
        lines.append(f"| {name} | {best.escalation:.1%} | {best.false_merge:.1%} | {best.false_keep:.1%} |")
    return lines


def curves(pairs: Sequence[Pair], named: Sequence[tuple[str, Floats]], keeps: float) -> list[str]:
    budgets = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
    lines = [
        "| score | " + " | ".join(f"{share:.1%}" for share in budgets) + " |",
        "|---" * (len(budgets) + 1) + "|",
    ]
    for name, scores in named:
        sample = Sample.of(pairs, scores)
        asked = [
            measure(sample, choose(sample, Budget(share, keeps, confidence=0.5))).escalation.rate
            for share in budgets
        ]
        lines.append(f"| {name} | " + " | ".join(f"{share:.1%}" for share in asked) + " |")
    return lines


def section(title: str, pairs: Sequence[Pair], model: str, data: str, budget: Budget) -> list[str]:
    groups = groups_of(pairs)
    parts = parted(groups, [pair.label for pair in pairs], [1.0] * FOLDS)
    cosines = [np.array([pair.cosine for pair in pairs])] * FOLDS
    scores, unseen = scores_of(pairs, parts)
    counted = Budget(budget.max_false_merge, budget.max_false_keep, budget.max_escalation, confidence=0.5)
    rows = [
        fixed("cosine, 0.85 / 0.92 (defaults)", pairs, Bands(merge=0.92, judge=0.85)),
        folded("cosine, percentiles", pairs, parts, cosines, lambda sample, _: percentiles(sample), budget),
        folded("cosine, calibrated", pairs, parts, cosines, choose, counted),
        folded("score, calibrated", pairs, parts, scores, choose, counted),
        folded("cosine, calibrated with a bound of 95 %", pairs, parts, cosines, choose, budget),
        folded("score, calibrated with a bound of 95 %", pairs, parts, scores, choose, budget),
    ]
    labels = Counter(pair.label for pair in pairs)
    told = ", ".join(f"{labels[label]} {label}" for label in LABELS if labels[label])
    named = [("cosine", cosines[0]), ("score", unseen)]
    shares = f"false merges {budget.max_false_merge:.0%}, false keeps {budget.max_false_keep:.0%}"
    return [
        f"## {title}",
        "",
        f"Model: `{model}`. Data: {data}: {len(pairs)} pairs ({told}) in {int(groups.max()) + 1} groups without a common"
        f" text. Five folds by group; the measured pairs did not choose the thresholds. SHA-256 of the data:"
        f" `{fingerprint(pairs).hex()[:16]}…`.",
        "",
        f"Budget: {shares}, escalation {budget.max_escalation:.0%}. *Calibrated* keeps the counted rates of the"
        " first two within the budget, on the pairs that choose the thresholds; *with a bound* keeps their upper bounds"
        " within it, as `memfold calibrate` does.",
        "",
        "With the guard (the default):",
        "",
        *table(rows, True),
        "",
        "Without it:",
        "",
        *table(rows, False),
        "",
        "By class, with the guard:",
        "",
        *by_class([row for row in rows if "bound" not in row.name]),
        "",
        "The best value of each rate while the two others stay within their budgets, as counted:",
        "",
        *can_be_had(pairs, named, budget),
        "",
        f"Escalation by the share of false merges allowed, with false keeps at {budget.max_false_keep:.0%}:",
        "",
        *curves(pairs, named, budget.max_false_keep),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="what the pairs are, in general terms")
    parser.add_argument(
        "--without", action="append", default=[], metavar="SOURCE", help="a second part without these"
    )
    parser.add_argument("--without-name", default="some sources", help="what they are, in general terms")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    sources = [
        json.loads(line).get("source") for line in given.pairs.read_text().splitlines() if line.strip()
    ]
    threadpool_limits(limits=1)
    with psycopg.connect(given.dsn, autocommit=True) as connection:
        pairs = described(connection, read_file(given.pairs), features=True)
    budget = Budget()
    lines = [HEAD, *section("All pairs", pairs, given.model, given.data, budget)]
    if given.without:
        rest = [pair for pair, source in zip(pairs, sources, strict=True) if source not in given.without]
        lines += section(f"Without {given.without_name}", rest, given.model, given.data, budget)
    # keep the section that tools/gen_merge_rates.py has written
    _, marker, kept = (given.out.read_text() if given.out.exists() else "").partition(MERGE_RATES)
    given.out.write_text("\n".join(lines).rstrip() + "\n" + (f"\n{marker}{kept}" if marker else ""))


if __name__ == "__main__":
    main()
