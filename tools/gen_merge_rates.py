"""Writes the section of docs/error-rates.md that measures each rule of an automatic merge.

    python tools/gen_merge_rates.py --dsn DSN --data "what the pairs are" OTHERS.jsonl [MEMORIES.jsonl]

MEMORIES.jsonl: by default the anchors. Each line has a, b, label and cosine of a pair, and source, language, split and
group if known. Any database with memfold is enough: it runs guard, veto and refinement on a pair, nothing is stored. The
section contains numbers, no texts.

The veto for a pair has seen neither its group nor any pair of a split "test".
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
VETOES = (0.3, 0.4, 0.5)
SWAPS = "pawsx"

SAYS_MORE = """
select memfold_internal._says_more(p.pair ->> 0, p.pair ->> 1) or memfold_internal._says_more(p.pair ->> 1, p.pair ->> 0)
from jsonb_array_elements(%s) with ordinality as p (pair, place)
order by p.place
"""
HEAD = """\
## What each rule is worth

A pair merges automatically if its cosine (all-MiniLM-L6-v2) is above 0.92 and it passes the named rules; the rest is asked
about from 0.85 on. The default is the row with *veto 0.30*; `merge_veto` sets another. With *refinement*, merging a
refinement is not a false merge if the richer text is the root. Each pair is measured with a veto fitted to other groups of
texts, and never to the half `test` of the memories, which are short and in nine languages.
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


def scores_of(m: Measured) -> Floats:
    """The veto of each pair by a model that has not seen its fold."""
    features = words_only(m.names, m.of(lambda pair: pair.features))
    taught = m.told("split") != "test"
    scores = np.zeros(len(m.pairs))
    for fold in range(FOLDS):
        seen = taught & (m.parts != fold)
        files = [
            [pair for pair, use in zip(m.pairs, seen & part, strict=True) if use]
            for part in (~m.memories, m.memories)
        ]
        fitted = fit_veto(m.names, [file for file in files if file])
        scores[m.parts == fold] = fitted.predict(features)[m.parts == fold]
    return scores


def rules_of(m: Measured) -> list[Rule]:
    scores, name, clean = scores_of(m), "guard, refinement", ~m.raised
    rules = [Rule("guard", clean), Rule(name, clean, True)]
    if m.substituted.any():
        name, clean = f"{name}, substitution", clean & ~m.substituted
        rules.append(Rule(name, clean, True))
    return rules + [Rule(f"{name}, veto {least:.2f}", clean & (scores >= least), True) for least in VETOES]


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


def table(m: Measured, rows: Sequence[tuple[str, Rule, Bools]], named: str = "rules") -> list[str]:
    lines = [
        f"| {named} | pairs | false merges | duplicates merged | of those above 0.92 | asked |",
        "|---|---|---|---|---|---|",
    ]
    return (
        lines + [f"| {name} | " + " | ".join(rates(m, rule, part)) + " |" for name, rule, part in rows] + [""]
    )


def section(m: Measured, data: str, shipped: float) -> list[str]:
    rules = rules_of(m)
    [default] = [rule for rule in rules if rule.name.endswith(f"veto {shipped:.2f}")]
    source, language, split = m.told("source"), m.told("language"), m.told("split")
    others = ~m.memories
    swaps = np.char.startswith(source, SWAPS)
    lines = [BEGIN, HEAD]
    for title, part in (
        (f"### {data}", others),
        ("### The same without word swaps", others & ~swaps),
        (
            "### Memories (`python_client/memfold/data/anchors.jsonl`), half `test`",
            m.memories & (split == "test"),
        ),
    ):
        if part.any():
            lines += [title, "", *table(m, [(rule.name, rule, part) for rule in rules])]
    for named, part, values in (("source", others, source), ("language", m.memories, language)):
        rows = [(value, default, part & (values == value)) for value in sorted(set(values[part]))]
        lines += [f"### By {named}, with the default rules", "", *table(m, rows, named)]
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
