"""Labelled pairs as calibration reads them, and a score as it writes one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from memfold.tools.calibrate import Pair
from memfold.tools.calibrate.score import Score
from tests.support.queries import DB

SCORE = """\
declare
    f0 constant double precision := features[1];
    f1 constant double precision := features[2];
    v double precision := float8 '-0.5';
begin
    if cardinality(features) <> 2 then
        raise exception '2 features expected, got %', cardinality(features)
            using errcode = 'data_exception';
    end if;
    v := v + case when f0 <= float8 '0.5' then float8 '-1.5' else case when f1 <= float8 '1e-05' then float8 '0.0' else \
float8 '2.5' end end;
    return 1 / (1 + exp(-greatest(least(v, float8 '500.0'), float8 '-500.0')));
end;
"""


def create_score(db: DB, name: str, score: Score) -> None:
    """As apply_calibration() does."""
    db.execute(
        f"create or replace function memfold_internal.{name}(features double precision[]) returns double precision"
        f" language plpgsql immutable strict parallel safe as $score$\n{score.body()}$score$".encode()
    )


def pair(number: int, label: str, cosine: float, *guard: str, **more: Any) -> Pair:
    """A labelled pair of texts of its own, with this cosine."""
    a, b = f"text {number} of {label}", f"other text {number} of {label}"
    made = Pair(a, b, label, round(float(cosine), 6), a, b, guard)
    return dataclasses.replace(made, **more)


def normal(seed: int = 0, **classes: tuple[int, float, float]) -> list[Pair]:
    """This many pairs of a class, with cosines around a mean."""
    random = np.random.default_rng(seed)
    return [
        pair(number, label, min(cosine, 1.0))
        for label, (count, mean, deviation) in classes.items()
        for number, cosine in enumerate(random.normal(mean, deviation, count))
    ]


APART = {"duplicate": (400, 0.93, 0.02), "contradiction": (300, 0.6, 0.05), "distinct": (300, 0.4, 0.1)}
OVERLAPPING = {
    "duplicate": (600, 0.7, 0.07),
    "contradiction": (600, 0.65, 0.07),
    "distinct": (600, 0.4, 0.15),
}
