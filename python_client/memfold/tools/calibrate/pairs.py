"""Labelled pairs: reading them, grouping them by common texts, and splitting them."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from memfold.client.errors import InvalidPairError
from memfold.client.queries import SET_TENANT
from memfold.tools.calibrate import queries

LABELS: Final = ("duplicate", "refinement", "contradiction", "distinct")
_KEYS: Final = {"a", "b", "label", "cosine", "embeddings"}

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
DB: TypeAlias = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, their label, and the database's features of them.

    ``key_a`` and ``key_b`` are the canonical forms; ``features`` is what the fitted score is computed from.
    """

    a: str
    b: str
    label: str
    cosine: float
    key_a: str
    key_b: str
    guard: tuple[str, ...] = ()
    features: tuple[float, ...] | None = None
    origin: str = "import"
    tenant_id: str = "*"


def groups_of(pairs: Sequence[Pair]) -> Ints:
    """A number for each pair, equal for pairs that share a text, directly or through others."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = key = parent[parent[key]]
        return key

    for pair in pairs:
        parent[root(pair.key_a)] = root(pair.key_b)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(root(pair.key_a), len(numbers)) for pair in pairs], dtype=np.int64)


def parted(groups: Ints, labels: Sequence[str], shares: Sequence[float], seed: int = 0) -> Ints:
    """Which part each pair belongs to. A group is never divided; each part gets about its share of each label."""
    classes = {label: number for number, label in enumerate(sorted(set(labels)))}
    counts = np.zeros((int(groups.max()) + 1, len(classes)))
    for group, label in zip(groups, labels, strict=True):
        counts[group, classes[label]] += 1
    total = counts.sum(axis=0)
    targets = np.outer(np.array(shares) / sum(shares), total)
    # rare labels weigh as much as frequent ones
    weights = 1 / np.maximum(total, 1) ** 2
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    held = np.zeros_like(targets)
    part_of = np.zeros(len(counts), dtype=np.int64)
    for group in order:
        # the part that this brings nearest to its target
        gain = ((targets - held) ** 2 - (targets - held - counts[group]) ** 2) @ weights
        part = int(np.argmax(gain))
        part_of[group] = part
        held[part] += counts[group]
    return part_of[groups]


def fingerprint(pairs: Iterable[Pair]) -> bytes:
    """SHA-256 of the data: canonical texts, labels and cosines, regardless of order."""
    lines = sorted(
        json.dumps([*sorted((pair.key_a, pair.key_b)), pair.label, f"{pair.cosine:.6f}"], ensure_ascii=False)
        for pair in pairs
    )
    return hashlib.sha256("\n".join(lines).encode()).digest()


# --- from a file ------------------------------------------------------------------------------------------------


def read_file(path: Path) -> Iterator[dict[str, Any]]:
    """The pairs of a JSONL file, with the cosine of the embeddings if it has those. Raises InvalidPairError."""
    with path.open("rb") as lines:
        yield from read_lines(lines, path.name)


def read_lines(lines: Iterable[bytes], name: str) -> Iterator[dict[str, Any]]:
    """The same for lines, with a name for messages."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _checked(json.loads(line))
        except (ValueError, TypeError) as error:
            raise InvalidPairError(
                "a line is not a labelled pair",
                detail=f"{name}:{number}: {error}",
                hint=f"A line is an object with a, b, label ({', '.join(LABELS)})"
                " and, if there is one, cosine or embeddings.",
            ) from error


def _checked(pair: Any) -> dict[str, Any]:
    if not isinstance(pair, dict):
        raise ValueError("it is not an object")
    found = {name: value for name, value in pair.items() if name in _KEYS}
    if not all(isinstance(found.get(name), str) and found[name].strip() for name in ("a", "b")):
        raise ValueError("a or b is not a text")
    if found.get("label") not in LABELS:
        raise ValueError(f"label is {found.get('label')!r}")
    vectors = found.pop("embeddings", None)
    if vectors is not None and found.get("cosine") is None:
        one, other = (np.asarray(vector, dtype=np.float64) for vector in vectors)
        lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
        if one.ndim != 1 or one.shape != other.shape or not lengths > 0:
            raise ValueError("embeddings are not two vectors of one length")
        found["cosine"] = float(one @ other) / lengths
    if found.get("cosine") is not None:
        found["cosine"] = round(max(-1.0, min(1.0, float(found["cosine"]))), 6)
    return found


# --- from the database, and what it says of them ----------------------------------------------------------------


def described(
    connection: DB, rows: Iterable[dict[str, Any]], *, tenant_id: str = "*", features: bool = False
) -> list[Pair]:
    """Pairs from ``read_file``, each with its cosine and the data that the database adds. Nothing is stored."""
    made: list[Pair] = []
    given = [{name: row[name] for name in ("a", "b", "label", "cosine")} for row in rows]
    with connection.cursor(row_factory=dict_row) as cursor:
        for start in range(0, len(given), 1000):
            batch = Jsonb(given[start : start + 1000])
            found = cursor.execute(queries.GIVEN_PAIRS, {"pairs": batch, "tenant_id": tenant_id})
            made += [Pair(**row) for row in found]
    return _compared(connection, made, features=features)


def _compared(connection: DB, pairs: Sequence[Pair], *, features: bool) -> list[Pair]:
    """The same with the guard's signals and, if asked for, the features of a fitted score."""
    made: list[Pair] = []
    for tenant_id, group in itertools.groupby(pairs, lambda pair: pair.tenant_id):
        of_tenant = list(group)
        for start in range(0, len(of_tenant), 1000):
            part = of_tenant[start : start + 1000]
            given = [
                {"a": pair.a, "b": pair.b} | ({"similarity": pair.cosine} if features else {})
                for pair in part
            ]
            rows = _describe(connection, given, tenant_id)
            made += [
                replace(
                    pair,
                    guard=tuple(row["guard"]),
                    features=tuple(map(float, row["features"].values())) if features else None,
                )
                for pair, row in zip(part, rows, strict=True)
            ]
    return made


def _describe(connection: DB, pairs: list[dict[str, Any]], tenant_id: str) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        given = {"pairs": Jsonb(pairs), "tenant_id": tenant_id}
        return cursor.execute(queries.DESCRIBE_PAIRS, given).fetchall()


def feature_names(connection: DB) -> tuple[str, ...]:
    """The names of the features, in order."""
    (row,) = _describe(connection, [{"a": "", "b": "", "similarity": 0}], "*")
    return tuple(row["features"])


def stored(
    connection: DB,
    embedding_model: str,
    tenant_id: str | None = None,
    *,
    weak: bool = False,
    features: bool = False,
) -> tuple[list[Pair], dict[str, int]]:
    """The labelled pairs that this session can see, and how many were left out, by reason."""
    asked = {"model": embedding_model, "tenant_id": tenant_id, "weak": weak}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        if tenant_id is not None:
            cursor.execute(SET_TENANT, {"memfold_tenant": tenant_id})
        pairs = [Pair(**row) for row in cursor.execute(queries.STORED_PAIRS, asked)]
        left_out = cursor.execute(queries.PAIRS_LEFT_OUT, asked).fetchone()
    return _compared(connection, pairs, features=features), {
        name: int(value) for name, value in (left_out or {}).items()
    }
