"""Writes sql/functions/22_guard/_veto.sql: the score of words that an automatic merge needs in addition to cosine and guard.

    python tools/fit_veto.py --dsn DSN --version N OTHERS.jsonl MEMORIES.jsonl    fits it to labelled pairs
    python tools/fit_veto.py                                                      writes the SQL of the model in the file
    python tools/fit_veto.py --check                                              checks that the SQL is that of the model

Each line has a, b, label and cosine of a pair; if there is a split, only "train" is read. Any database with memfold
is enough: it computes the features, nothing is stored. The written file contains the model (``_veto_model``), but no
text.

Gradient-boosted trees over the features of ``_veto_features``, without those of the cosine (so that it is the same
for every model) and of the guard (it is used only if the guard is clean). docs/calibration.md says what it is fitted
to.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from memfold.tools.calibrate import described, groups_of, read_file
from memfold.tools.calibrate.pairs import Floats, Pair, feature_names
from memfold.tools.calibrate.score import Score, fit

FILE = Path(__file__).parents[1] / "sql/functions/22_guard/_veto.sql"

# Pairs below this cosine never merge, so they teach nothing.
FLOOR = 0.80
# Trees: 60 separate slightly less, 240 no more (grouped folds).
SIZE = 100
# The share of the weight for the last file (memories).
SHARE = 0.4

FEATURES = """
select memfold_internal._veto_features(p.pair ->> 0, p.pair ->> 1)
from jsonb_array_elements(%s) with ordinality as p (pair, place)
order by p.place
"""

HEAD = """\
-- Made by tools/fit_veto.py, from labelled pairs, or from the model in it; `--check` compares. Do not edit.

-- The version of the veto's model, which the ledger's reasons name.
create or replace function memfold_internal._veto_version() returns text
language sql immutable parallel safe
return 'veto/{version}';

-- The model veto/{version}: {trees} trees, in the format of memfold.tools.calibrate.
-- _veto_reasons reads it; _veto_trees is generated from it.
create or replace function memfold_internal._veto_model() returns jsonb
language sql immutable parallel safe
as $model$
select jsonb '
{model}
'
$model$;

-- The score veto/{version} of the features of two texts (_pair_features), in [0, 1]: generated from _veto_model().
-- Uses neither the cosine nor the guard.
create or replace function memfold_internal._veto_trees(features double precision[]) returns double precision
language plpgsql immutable strict parallel safe
as $score$
{body}$score$;
"""


def with_words(connection: psycopg.Connection[Any], pairs: Sequence[Pair]) -> list[Pair]:
    """The same with the features of the veto."""
    rows = connection.execute(FEATURES, [Jsonb([[pair.a, pair.b] for pair in pairs])]).fetchall()
    return [replace(pair, features=tuple(row[0])) for pair, row in zip(pairs, rows, strict=True)]


def words_only(names: Sequence[str], features: Floats) -> Floats:
    """The features, with those of the cosine and the guard made constant, so that no tree uses them."""
    kept = [not name.startswith(("similarity", "apart_by_", "guard")) for name in names]
    return np.where(kept, features, 0.0)


def teaches(pair: Pair) -> bool:
    """Whether the pair can reach the veto; refinements have their own rule."""
    return pair.cosine >= FLOOR and not pair.guard and pair.label != "refinement"


def fit_veto(names: Sequence[str], files: Sequence[Sequence[Pair]]) -> Score:
    """The score of described pairs (``memfold.tools.calibrate.described``), file by file; the last one has memories."""
    taught = [[pair for pair in file if teaches(pair)] for file in files]
    pairs = [pair for file in taught for pair in file]
    weights = np.ones(len(pairs))
    memories = np.arange(len(pairs)) >= len(pairs) - len(taught[-1])
    if 0 < memories.sum() < len(pairs):
        weights[memories] = (~memories).sum() / memories.sum() * SHARE / (1 - SHARE)
    score = fit(
        words_only(names, np.array([pair.features for pair in pairs], dtype=np.float64)),
        np.array([pair.label == "duplicate" for pair in pairs]),
        groups_of(pairs),
        names=names,
        weights=weights,
        size=SIZE,
    )
    # the written file is the model, so round it to the digits that it needs
    trees = (
        tuple(replace(node, threshold=round(node.threshold, 6), value=round(node.value, 5)) for node in tree)
        for tree in score.trees
    )
    return replace(score, baseline=round(score.baseline, 5), trees=tuple(trees))


def text_of(score: Score, version: str) -> str:
    stored = json.loads(score.to_json())
    trees = stored.pop("trees")
    model = json.dumps(stored, separators=(",", ":"))[:-1] + ',"trees":[\n'
    model += ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in trees) + "\n]}"
    return HEAD.format(version=version, model=model, trees=len(trees), body=score.body())


def read_model(text: str) -> tuple[Score, str]:
    """The model of the file that text_of wrote, and its version."""
    model = re.search(r"select jsonb '\n(.*?)\n'\n\$model\$", text, re.DOTALL)
    version = re.search(r"return 'veto/(\w+)'", text)
    if model is None or version is None:
        raise SystemExit(f"{FILE.name} holds no model")
    return Score.from_json(model[1]), version[1]


def read_pairs(connection: psycopg.Connection[Any], path: Path) -> list[Pair]:
    """The training pairs of a file, with the database's features of them."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    pairs = with_words(connection, described(connection, read_file(path)))
    return [pair for pair, line in zip(pairs, lines, strict=True) if line.get("split", "train") == "train"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="*")
    parser.add_argument("--dsn")
    parser.add_argument("--version")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.pairs:
        if given.dsn is None or given.version is None:
            parser.error("fitting needs --dsn and --version")
        with psycopg.connect(given.dsn, autocommit=True) as connection:
            files = [read_pairs(connection, path) for path in given.pairs]
            text = text_of(fit_veto(feature_names(connection), files), given.version)
    else:
        text = text_of(*read_model(FILE.read_text(encoding="utf-8")))
    if not given.check:
        FILE.write_text(text, encoding="utf-8")
    elif text != FILE.read_text(encoding="utf-8"):
        sys.exit(f"{FILE} is not what the model makes: run tools/fit_veto.py without --check")


if __name__ == "__main__":
    main()
