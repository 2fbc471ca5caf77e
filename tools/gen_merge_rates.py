"""Writes the section of docs/error-rates.md that measures each rule of an automatic merge.

    python tools/gen_merge_rates.py --dsn DSN --data "what the pairs are" OTHERS.jsonl [MEMORIES.jsonl]

MEMORIES.jsonl: by default the anchors. Each line has a, b, label and cosine of a pair, and source, language, split and
group if known. Any database with memfold is enough: it runs guard, veto and refinement on a pair, nothing is stored. The
section contains numbers, no texts.

The veto for a pair has seen neither its group nor any pair of a split "test". A chosen threshold is chosen within the
folds that the model was fitted to, by models that have not seen the pairs that choose it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg.types.json import Jsonb
from threadpoolctl import threadpool_limits

from fit_veto import fit_veto, with_words, words_only
from memfold.client.embedding.anchors import ANCHORS
from memfold.tools.calibrate import described, groups_of, parted, read_file
from memfold.tools.calibrate.pairs import Bools, Floats, Ints, Pair, feature_names

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "error-rates.md"
BEGIN, END = "<!-- begin: tools/gen_merge_rates.py -->", "<!-- end: tools/gen_merge_rates.py -->"
FOLDS = 5
MERGE, JUDGE = 0.92, 0.85
VETOES = (0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
BUDGET = 0.01
SWAPS = "pawsx"

SAYS_MORE = """
select memfold_internal._says_more(p.pair ->> 0, p.pair ->> 1) or memfold_internal._says_more(p.pair ->> 1, p.pair ->> 0)
from jsonb_array_elements(%s) with ordinality as p (pair, place)
order by p.place
"""
HEAD = """\
## What each rule is worth

`tools/gen_merge_rates.py` made this section. A pair merges automatically if its cosine (all-MiniLM-L6-v2) is above 0.92 and
it passes the named rules; the rest is asked about from 0.85 on. With *refinement*, merging a refinement is not a false
merge if the richer text is the root. Each pair is measured with a veto fitted to other groups of texts, and never to the
half `test`. A *chosen* veto has the lowest threshold that keeps false merges at 1 % among the pairs that it was fitted
to, according to models that had not seen them.
"""


@dataclass(frozen=True)
class Measured:
    """Pairs, with the result of the rules for each."""

    names: Sequence[str]
    pairs: Sequence[Pair]
    lines: Sequence[dict[str, Any]]
    parts: Ints
    #: Of the last file.
    memories: Bools
    raised: Bools
    substituted: Bools
    more: Bools

    def of(self, value: Callable[[Pair], Any]) -> Any:
        return np.array([value(pair) for pair in self.pairs])

    def told(self, key: str) -> Any:
        return np.array([str(line.get(key, "")) for line in self.lines])


@dataclass(frozen=True)
class Rule:
    name: str
    #: Which pairs guard and veto let pass.
    passes: Bools
    refinement: bool = False


def measured(connection: psycopg.Connection[Any], files: Sequence[Path]) -> Measured:
    lines: list[dict[str, Any]] = []
    pairs: list[Pair] = []
    for path in files:
        lines += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        pairs += with_words(connection, described(connection, read_file(path)))
    sizes = [sum(1 for _ in read_file(path)) for path in files]
    memories = np.arange(len(pairs)) >= len(pairs) - sizes[-1]
    # if a file says which pairs belong together, that counts like a common text
    texts = groups_of(pairs)
    root: dict[Any, Any] = {}

    def top(key: Any) -> Any:
        while root.setdefault(key, key) != key:
            key = root[key]
        return key

    for text, line in zip(texts, lines, strict=True):
        root[top(("text", int(text)))] = (
            top(("group", line["group"])) if "group" in line else top(("text", int(text)))
        )
    tops = [str(top(("text", int(text)))) for text in texts]
    groups = np.unique(tops, return_inverse=True)[1].astype(np.int64)
    kinds = [f"{pair.label} {place >= len(pairs) - sizes[-1]}" for place, pair in enumerate(pairs)]
    substituted = [any(signal.startswith("substitution:") for signal in pair.guard) for pair in pairs]
    raised = [any(not signal.startswith("substitution:") for signal in pair.guard) for pair in pairs]
    more = [row[0] for row in connection.execute(SAYS_MORE, [Jsonb([[pair.a, pair.b] for pair in pairs])])]
    return Measured(
        feature_names(connection),
        pairs,
        lines,
        parted(groups, kinds, [1.0] * FOLDS),
        memories,
        np.array(raised),
        np.array(substituted),
        np.array(more),
    )


def scores_of(m: Measured) -> tuple[Floats, dict[tuple[int, int], Floats]]:
    """The veto of each pair by a model that has not seen its fold; of all pairs by models that have not seen two."""
    features = words_only(m.names, m.of(lambda pair: pair.features))
    taught = m.told("split") != "test"

    def without(*folds: int) -> Floats:
        seen = taught & ~np.isin(m.parts, folds)
        files = [
            [pair for pair, use in zip(m.pairs, seen & part, strict=True) if use]
            for part in (~m.memories, m.memories)
        ]
        return fit_veto(m.names, [file for file in files if file]).predict(features)

    outer = np.zeros(len(m.pairs))
    for fold in range(FOLDS):
        outer[m.parts == fold] = without(fold)[m.parts == fold]
    return outer, {(a, b): without(a, b) for a in range(FOLDS) for b in range(a + 1, FOLDS)}


def chosen(
    m: Measured, part: Bools, clean: Bools, inner: dict[tuple[int, int], Floats], outer: Floats
) -> tuple[Bools, list[float]]:
    """What passes the threshold that each fold gets from the others: the lowest that keeps a part of them within the
    budget."""
    labels = m.of(lambda pair: pair.label)
    other = part & (labels != "duplicate")
    merged = other & clean & (m.of(lambda pair: pair.cosine) > MERGE) & ~(m.more & (labels == "refinement"))
    passes = np.zeros(len(m.pairs), dtype=np.bool_)
    found = []
    for fold in range(FOLDS):
        scores = np.full(len(m.pairs), np.nan)
        for seen in set(range(FOLDS)) - {fold}:
            scores[m.parts == seen] = inner[min(fold, seen), max(fold, seen)][m.parts == seen]
        allowed = int(BUDGET * (other & (m.parts != fold)).sum())
        wrong = np.sort(scores[merged & (m.parts != fold)])
        least = float(np.nextafter(wrong[-allowed - 1], 1)) if len(wrong) > allowed else 0.0
        found.append(least)
        passes |= (m.parts == fold) & (outer >= least)
    return passes, found


def rules_of(m: Measured, shipped: float) -> tuple[list[Rule], list[Rule]]:
    """All rules, and those that are also reported by part."""
    outer, inner = scores_of(m)
    name, clean = "guard, refinement", ~m.raised
    rules = [Rule("guard", clean), Rule(name, clean, True)]
    told = [rules[0]]
    if m.substituted.any():
        rules.append(Rule(f"{name}, veto {shipped:.2f}", clean & (outer >= shipped), True))
        name, clean = f"{name}, substitution", clean & ~m.substituted
        rules.append(Rule(name, clean, True))
        told.append(rules[-1])
    for least in VETOES:
        rules.append(Rule(f"{name}, veto {least:.2f}", clean & (outer >= least), True))
        if least == shipped:
            told.append(rules[-1])
    for file, part in (("public pairs", ~m.memories), ("memories", m.memories)):
        passes, found = chosen(m, part, clean, inner, outer)
        chose = f"{name}, veto chosen on {file} ({min(found):.2f}–{max(found):.2f})"
        rules.append(Rule(chose, clean & passes, True))
    return rules, told


def rates(m: Measured, rule: Rule, part: Bools) -> list[str]:
    labels, cosine = m.of(lambda pair: pair.label), m.of(lambda pair: pair.cosine)
    duplicate = (labels == "duplicate") & part
    other = (labels != "duplicate") & part
    merged = (cosine > MERGE) & rule.passes
    wrong = merged & other & ~(rule.refinement & m.more & (labels == "refinement"))
    asked = (cosine >= JUDGE) & ~merged & part
    near = duplicate & (cosine > MERGE)

    def share(some: Bools, of: Bools) -> str:
        return f"{some.sum() / of.sum():.1%}" if of.any() else "–"

    return [
        str(int(part.sum())),
        share(wrong, other),
        share(merged & duplicate, duplicate),
        share(merged & near, near),
        share(asked, part),
    ]


def table(m: Measured, rows: Sequence[tuple[str, Rule, Bools]]) -> list[str]:
    lines = [
        "| rules | pairs | false merges | duplicates merged | of those above 0.92 | asked |",
        "|---|---|---|---|---|---|",
    ]
    return (
        lines + [f"| {name} | " + " | ".join(rates(m, rule, part)) + " |" for name, rule, part in rows] + [""]
    )


def section(m: Measured, data: str, shipped: float) -> list[str]:
    rules, told = rules_of(m, shipped)
    source, language, split = m.told("source"), m.told("language"), m.told("split")
    others = ~m.memories
    swaps = np.char.startswith(source, SWAPS)
    lines = [BEGIN, HEAD]
    for title, part in (
        (f"### {data}", others),
        ("### The same without word swaps", others & ~swaps),
        ("### Memories (`python_client/memfold/data/anchors.jsonl`)", m.memories),
        ("### Memories, half `test`", m.memories & (split == "test")),
        ("### Memories in English", m.memories & (language == "en")),
    ):
        if part.any():
            lines += [title, "", *table(m, [(rule.name, rule, part) for rule in rules])]
    for title, key, values in (("source", others, source), ("language", m.memories, language)):
        rows = [
            (f"{value}: {rule.name}", rule, key & (values == value))
            for value in sorted(set(values[key]))
            for rule in told
        ]
        lines += [f"### By {title}", "", *table(m, rows)]
    return [*lines, END]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("others", type=Path)
    parser.add_argument("memories", type=Path, nargs="?", default=ANCHORS)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--data", required=True, help="what the other pairs are, in general terms: a heading")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    threadpool_limits(limits=1)
    with psycopg.connect(given.dsn, autocommit=True) as connection:
        [(shipped,)] = connection.execute(
            "select merge_veto from memfold.policies where tenant_id = '*'"
        ).fetchall()
        lines = section(measured(connection, [given.others, given.memories]), given.data, float(shipped))
    page = given.out.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    given.out.write_text(
        before.rstrip() + "\n\n" + "\n".join(lines) + "\n" + after.lstrip("\n"), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
