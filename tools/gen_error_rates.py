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

How often tier 2 errs on labelled pairs. Your rates differ: [calibrate](calibration.md) on pairs of your own memories.
`all-MiniLM-L6-v2` is an English model: it separates texts in other languages poorly; embed those with a multilingual one.

`make test` checks that the rates of two sets in the repository do not get worse (`tests/data/error_rates.json`).

| word | means |
|---|---|
| false merge | merged without asking, of all pairs that are not duplicates (contradictions included) |
| false keep | below the judge threshold, of all duplicates |
| escalation | asked about, of all pairs: a judge's work |
| duplicates merged | merged without asking, of all duplicates: questions that a judge is spared |

Brackets contain exact 95 % intervals (Clopper and Pearson), as if pairs of one text group were independent, which is not
quite true. Escalation depends on the mixture of pairs: `memfold calibrate --replay` shows how much would be asked in your
bucket. Texts with the same words in another order raise it most: the second part leaves them out. The first two parts do
not include the veto; the third does.

Pairs are split into five folds, by groups without a common text: the measured pairs did not choose the thresholds.
*Calibrated* keeps the upper bounds (95 %) of false merges and false keeps within the budget, on the pairs that choose the
thresholds, as `memfold calibrate` does.
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


def by_class(row: Row) -> list[str]:
    lines = ["| class | pairs | merged | asked | kept |", "|---|---|---|---|---|"]
    for label, counts in row.measured.by_label.items():
        total = sum(counts.values())
        shares = " | ".join(str(Rate(counts[fate], total)) for fate in ("merged", "asked", "kept"))
        lines.append(f"| {label} | {total} | {shares} |")
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


def section(title: str, about: str, pairs: Sequence[Pair], budget: Budget) -> list[str]:
    groups = groups_of(pairs)
    parts = parted(groups, [pair.label for pair in pairs], [1.0] * FOLDS)
    cosines = [np.array([pair.cosine for pair in pairs])] * FOLDS
    scores, unseen = scores_of(pairs, parts)
    rows = [
        fixed("cosine, 0.85 / 0.92 (defaults)", pairs, Bands(merge=0.92, judge=0.85)),
        folded("cosine, percentiles", pairs, parts, cosines, lambda sample, _: percentiles(sample), budget),
        folded("cosine, calibrated", pairs, parts, cosines, choose, budget),
        folded("score, calibrated", pairs, parts, scores, choose, budget),
    ]
    labels = Counter(pair.label for pair in pairs)
    told = ", ".join(f"{labels[label]} {label}" for label in LABELS if labels[label])
    named = [("cosine", cosines[0]), ("score", unseen)]
    return [
        f"## {title}",
        "",
        f"{about}{len(pairs)} pairs ({told}) in {int(groups.max()) + 1} groups. SHA-256 of the data:"
        f" `{fingerprint(pairs).hex()[:16]}…`.",
        "",
        "With the guard (the default):",
        "",
        *table(rows, True),
        "",
        "Without it:",
        "",
        *table(rows, False),
        "",
        "By class, with the guard and the default thresholds:",
        "",
        *by_class(rows[0]),
        "",
        f"Escalation by the share of false merges allowed, with false keeps at {budget.max_false_keep:.0%}, as counted:",
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
    about = (
        f"Model: `{given.model}`. Budget: false merges {budget.max_false_merge:.0%}, false keeps"
        f" {budget.max_false_keep:.0%}, escalation {budget.max_escalation:.0%}. Data: {given.data}: "
    )
    lines = [HEAD, *section("All pairs", about, pairs, budget)]
    if given.without:
        rest = [pair for pair, source in zip(pairs, sources, strict=True) if source not in given.without]
        lines += section(f"Without {given.without_name}", "", rest, budget)
    # keep the section that tools/gen_merge_rates.py has written
    _, marker, kept = (given.out.read_text() if given.out.exists() else "").partition(MERGE_RATES)
    given.out.write_text("\n".join(lines).rstrip() + "\n" + (f"\n{marker}{kept}" if marker else ""))


if __name__ == "__main__":
    main()
