"""Stores the labelled pairs of a file: calibrate --pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from memfold.client import queries
from memfold.client.calls import Memfold
from memfold.client.embedding import EmbedderProtocol
from memfold.tools.cli._shared import file_name, open_file

_BATCH = 500


def load_pairs(where: str, tenant: str, model: str, path: Path, embedder: EmbedderProtocol | None) -> int:
    """Store the pairs of a file, embedding those without a cosine; returns their number."""
    from memfold.tools.calibrate.pairs import read_lines
    from memfold.tools.calibrate.run import check_model

    with open_file(path) as lines:
        found = list(read_lines(lines, file_name(path)))
    with psycopg.connect(where, autocommit=True) as connection:
        check_model(connection, model)
    missing = [pair for pair in found if pair.get("cosine") is None]
    if missing and embedder is not None:
        _embed(missing, embedder)
    with Memfold(where, tenant) as client:
        for batch in _batches(found):
            given = [
                {
                    "a": pair["a"],
                    "b": pair["b"],
                    "label": pair["label"],
                    "similarities": {model: pair["cosine"]},
                }
                for pair in batch
            ]
            arguments = {"pairs": Jsonb(given), "tenant_id": tenant}
            client._drive(client._core.run(queries.ADD_PAIRS, arguments))
    return len(found)


def _batches(found: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(found), _BATCH):
        yield found[start : start + _BATCH]


def _embed(pairs: list[dict[str, Any]], embedder: EmbedderProtocol) -> None:
    import numpy as np

    for batch in _batches(pairs):
        texts = [pair[side] for side in ("a", "b") for pair in batch]
        vectors = np.asarray(embedder.embed(texts), dtype=np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = (vectors[: len(batch)] * vectors[len(batch) :]).sum(axis=1)
        for pair, cosine in zip(batch, cosines, strict=True):
            pair["cosine"] = round(float(np.clip(cosine, -1, 1)), 6)
