"""The calibrated score of tier 2: how likely two texts are duplicates, from the features of ``_pair_features``.

Gradient-boosted trees, fitted here and compiled into one SQL function, so that the database scores a pair without
Python. Fitting needs scikit-learn (``memfold[calibrate]``); everything else needs numpy.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memfold.client._extras import needs

Floats = npt.NDArray[np.float64]

FORMAT = "memfold trees/1"

# The cost of the SQL function limits the ensemble: its size in bits is the leaves times the thresholds of all
# features.
MAX_TREES = 120
MAX_LEAVES = 8
MAX_BINS = 16
FOLDS = 5
# Beyond this, a probability is 0 or 1 to the last digit; exp() of it is still a number.
FAR = 500.0
# The unit of leaves, in log-odds: 120 trees, each off by half a step, do not add up to 1e-6.
STEP = 2.0**-25


@dataclass(frozen=True)
class Node:
    """A node of a tree: a split (at most the threshold: left, else right) or a leaf (feature is -1)."""

    feature: int
    threshold: float
    left: int
    right: int
    #: What the pairs that came here add to the score, on average, in log-odds.
    value: float


@dataclass(frozen=True)
class Score:
    """A fitted score: P(duplicate) of a pair from its features."""

    names: tuple[str, ...]
    baseline: float
    #: The first node of each tree is its root.
    trees: tuple[tuple[Node, ...], ...]

    def predict(self, features: npt.ArrayLike) -> Floats:
        """P(duplicate) for each row of features, in [0, 1]."""
        rows = self._rows(features)
        total = np.full(len(rows), self.baseline)
        for tree in self.trees:
            total += _values(tree)[_leaves(tree, rows)]
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(total, -FAR, FAR))), dtype=np.float64)

    def contributions(self, features: npt.ArrayLike) -> Floats:
        """The contribution of each feature to the log-odds of each row; with the mean in front, a row sums to its
        log-odds.

        Each split on the way to a leaf moves the mean of the pairs that get there; the move is credited to the
        feature of the split. ``_explain_score`` does the same in SQL.
        """
        rows = self._rows(features)
        added = np.zeros((len(rows), len(self.names) + 1))
        added[:, 0] = self.baseline
        at = np.arange(len(rows))
        for tree in self.trees:
            values = _values(tree)
            place = np.zeros(len(rows), dtype=np.int64)
            added[:, 0] += values[0]
            while True:
                moved = _step(tree, rows, place)
                if np.array_equal(moved, place):
                    break
                asked = np.array([node.feature for node in tree])[place]
                inner = asked >= 0
                np.add.at(added, (at[inner], asked[inner] + 1), (values[moved] - values[place])[inner])
                place = moved
        return added

    def body(self) -> str:
        """This score as the body of a PL/pgSQL function of ``features double precision[]``."""
        width = -(-sum(node.feature < 0 for tree in self.trees for node in tree) // 4) * 4
        terms = [_bits(np.ones(width, dtype=np.bool_))]
        for feature, (thresholds, masks) in _masks(self.trees, width).items():
            edges = ",".join(repr(float(np.nextafter(edge, np.inf))) for edge in thresholds)
            sets = ",".join(_hex(mask) for mask in masks)
            terms.append(
                f"('[0:{len(thresholds)}]={{{sets}}}'::varbit[])"
                f"[width_bucket(features[{feature + 1}], '{{{edges}}}'::double precision[])]"
            )
        # each tree counts from its lowest leaf, in whole steps: the sum of the set bits, binary digit by binary digit
        lowest = [min(node.value for node in tree if node.feature < 0) for tree in self.trees]
        above = [
            round((node.value - low) / STEP)
            for tree, low in zip(self.trees, lowest, strict=True)
            for node in tree
            if node.feature < 0
        ]
        counts = []
        for digit in range(max(above, default=0).bit_length()):
            plane = np.zeros(width, dtype=np.bool_)
            plane[: len(above)] = [bool(steps >> digit & 1) for steps in above]
            counts.append(f"{1 << digit} * bit_count(v & {_bits(plane)})")
        lines = [
            "declare",
            "    -- the leaves that can be reached: one of each tree remains",
            "    v bit varying;",
            "begin",
            f"    if cardinality(features) <> {len(self.names)} then",
            f"        raise exception '{len(self.names)} features expected, got %', cardinality(features)",
            "            using errcode = 'data_exception';",
            "    end if;",
            "    v := " + "\n        & ".join(terms) + ";",
            f"    return 1 / (1 + exp(-(float8 '{self.baseline + sum(lowest)!r}' + float8 '{STEP!r}' * (0",
            *(f"        + {count}" for count in counts),
            "    ))));",
            "end;",
        ]
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """As text that ``from_json`` and ``_explain_score`` read: [feature, threshold, left, right, value] a node."""
        return json.dumps(
            {
                "format": FORMAT,
                "features": list(self.names),
                "baseline": self.baseline,
                "trees": [
                    [[node.feature, node.threshold, node.left, node.right, node.value] for node in tree]
                    for tree in self.trees
                ],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes | dict[str, Any]) -> Score:
        """The score that ``to_json`` wrote, also as the parsed object of a jsonb column."""
        stored = text if isinstance(text, dict) else json.loads(text)
        if stored.get("format") != FORMAT:
            raise ValueError(f"not a score of the format {FORMAT!r}: {stored.get('format')!r}")
        return cls(
            names=tuple(stored["features"]),
            baseline=float(stored["baseline"]),
            trees=tuple(
                tuple(
                    Node(int(feature), float(threshold), int(left), int(right), float(value))
                    for feature, threshold, left, right, value in tree
                )
                for tree in stored["trees"]
            ),
        )

    def _rows(self, features: npt.ArrayLike) -> Floats:
        rows = np.atleast_2d(np.asarray(features, dtype=np.float64))
        if rows.shape[1] != len(self.names):
            raise ValueError(f"{len(self.names)} features expected, got {rows.shape[1]}")
        return rows


def fit(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    seed: int = 0,
    names: Sequence[str] = (),
    weights: npt.ArrayLike | None = None,
    size: int | None = None,
) -> Score:
    """Fit a score: rows of features, whether each is a duplicate, and the text group that each belongs to.

    The number of trees (``size``) is chosen on groups that a fold did not see, unless given; ``weights``: the weight
    of each row (default: 1). The same data and seed give the same score. Thresholds must not be chosen on the pairs
    it was fitted to: see ``cross_scores``.
    """
    rows, truth, group = _checked(features, labels, groups)
    with _one_thread():
        size = size or _best_size(rows, truth, group, seed)
        score = _compile(_model(seed, size).fit(rows, truth, sample_weight=weights), rows.shape[1])
    return Score(
        tuple(names) or tuple(f"f{place}" for place in range(rows.shape[1])), score.baseline, score.trees
    )


def cross_scores(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    seed: int = 0,
    folds: int = FOLDS,
) -> Floats:
    """P(duplicate) of each row by a score fitted to the other folds; thresholds are chosen on these."""
    rows, truth, group = _checked(features, labels, groups)
    found = np.zeros(len(rows))
    with _one_thread():
        size = _best_size(rows, truth, group, seed)
        for held_out in _folds(group, folds, seed):
            model = _model(seed, size).fit(rows[~held_out], truth[~held_out])
            found[held_out] = _compile(model, rows.shape[1]).predict(rows[held_out])
    return found


def _checked(
    features: npt.ArrayLike, labels: npt.ArrayLike, groups: npt.ArrayLike
) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    rows = np.asarray(features, dtype=np.float64)
    truth = np.asarray(labels, dtype=np.bool_)
    group = np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)
    if rows.ndim != 2 or not len(rows) == len(truth) == len(group):
        raise ValueError("features, labels and groups must have as many rows")
    if not np.isfinite(rows).all():
        raise ValueError("features must be finite")
    for label in (True, False):
        if len(np.unique(group[truth == label])) < 2:
            kind = "duplicates" if label else "other pairs"
            raise ValueError(f"{kind} of at least two text groups are needed")
    return rows, truth, group


def _folds(group: npt.NDArray[np.int64], folds: int, seed: int) -> list[npt.NDArray[np.bool_]]:
    """Which rows are held out, fold by fold: whole groups, chosen at random."""
    order = np.random.default_rng(seed).permutation(group.max() + 1)
    fold = order[group] % folds
    return [fold == number for number in range(folds) if (fold == number).any() and (fold != number).any()]


def _one_thread() -> AbstractContextManager[Any]:
    """One thread fits a few thousand rows faster than several that wait for each other.

    threadpoolctl comes with scikit-learn. It limits libraries that are already loaded.
    """
    with needs("calibrate"):
        importlib.import_module("sklearn.ensemble")
    limits: AbstractContextManager[Any] = importlib.import_module("threadpoolctl").threadpool_limits(1)
    return limits


def _model(seed: int, size: int) -> Any:
    ensemble = importlib.import_module("sklearn.ensemble")
    return ensemble.HistGradientBoostingClassifier(
        learning_rate=0.12,
        max_iter=size,
        max_leaf_nodes=MAX_LEAVES,
        max_bins=MAX_BINS,
        min_samples_leaf=15,
        l2_regularization=1.0,
        max_features=0.3,
        early_stopping=False,
        random_state=seed,
    )


def _best_size(rows: Floats, truth: npt.NDArray[np.bool_], group: npt.NDArray[np.int64], seed: int) -> int:
    """The number of trees that predicts unseen groups best, by log-loss."""
    loss = np.zeros(MAX_TREES)
    for held_out in _folds(group, FOLDS, seed):
        seen = truth[~held_out]
        if seen.all() or not seen.any():
            continue
        model = _model(seed, MAX_TREES).fit(rows[~held_out], seen)
        for place, found in enumerate(model.staged_predict_proba(rows[held_out])):
            right = np.where(truth[held_out], found[:, 1], found[:, 0])
            loss[place] -= np.log(np.maximum(right, 1e-12)).sum()
    return int(loss.argmin()) + 1


def _compile(model: Any, width: int) -> Score:
    """A fitted HistGradientBoostingClassifier, as a Score."""
    trees = []
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        # leaves have their own value; a node above them has the mean of its leaves
        means = nodes["value"].astype(np.float64)
        for place in range(len(nodes) - 1, -1, -1):
            if not nodes["is_leaf"][place]:
                below = [int(nodes["left"][place]), int(nodes["right"][place])]
                means[place] = np.average(means[below], weights=nodes["count"][below])
        trees.append(
            tuple(
                Node(-1, 0.0, -1, -1, float(mean))
                if node["is_leaf"]
                else Node(
                    int(node["feature_idx"]),
                    float(node["num_threshold"]),
                    int(node["left"]),
                    int(node["right"]),
                    float(mean),
                )
                for node, mean in zip(nodes, means, strict=True)
            )
        )
    return Score(
        tuple(str(place) for place in range(width)),
        float(np.ravel(model._baseline_prediction)[0]),
        tuple(trees),
    )


def _values(tree: tuple[Node, ...]) -> Floats:
    return np.array([node.value for node in tree])


def _step(tree: tuple[Node, ...], rows: Floats, place: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The next node of each row; a leaf stays."""
    feature = np.array([node.feature for node in tree])[place]
    threshold = np.array([node.threshold for node in tree])[place]
    left = np.array([node.left for node in tree])[place]
    right = np.array([node.right for node in tree])[place]
    below = rows[np.arange(len(rows)), np.maximum(feature, 0)] <= threshold
    return np.where(feature < 0, place, np.where(below, left, right)).astype(np.int64)


def _leaves(tree: tuple[Node, ...], rows: Floats) -> npt.NDArray[np.int64]:
    place = np.zeros(len(rows), dtype=np.int64)
    while True:
        moved = _step(tree, rows, place)
        if np.array_equal(moved, place):
            return place
        place = moved


def _masks(
    trees: tuple[tuple[Node, ...], ...], width: int
) -> dict[int, tuple[list[float], npt.NDArray[np.bool_]]]:
    """For each feature its thresholds, and for each interval between them the leaves that remain reachable."""
    splits: dict[int, list[tuple[float, list[int], list[int]]]] = {}
    first = 0
    for tree in trees:
        number = {place: first + count for count, place in enumerate(_leaf_places(tree, None))}
        for node in tree:
            if node.feature >= 0:
                left, right = (
                    [number[place] for place in _leaf_places(tree, side)] for side in (node.left, node.right)
                )
                splits.setdefault(node.feature, []).append((node.threshold, left, right))
        first += len(number)
    found = {}
    for feature in sorted(splits):
        thresholds = sorted({threshold for threshold, _, _ in splits[feature]})
        masks = np.ones((len(thresholds) + 1, width), dtype=np.bool_)
        for threshold, left, right in splits[feature]:
            edge = thresholds.index(threshold) + 1
            masks[:edge, right] = False
            masks[edge:, left] = False
        found[feature] = (thresholds, masks)
    return found


def _leaf_places(tree: tuple[Node, ...], below: int | None) -> list[int]:
    """The leaves below a node, or all of a tree, in the order in which the tree lists them."""
    if below is None:
        return [place for place, node in enumerate(tree) if node.feature < 0]
    node = tree[below]
    return [below] if node.feature < 0 else _leaf_places(tree, node.left) + _leaf_places(tree, node.right)


def _hex(mask: npt.NDArray[np.bool_]) -> str:
    return "x" + "".join(
        f"{sum(8 >> place for place in range(4) if four[place]):x}" for four in mask.reshape(-1, 4)
    )


def _bits(mask: npt.NDArray[np.bool_]) -> str:
    return f"varbit '{_hex(mask)}'"
