"""The anchors: memfold's own labelled pairs, by which the thresholds of an embedding model are found without any labels of
its users.

``memfold/data/anchors.jsonl`` has one pair a line: texts ``a`` and ``b``, their ``label``, ``cosine`` (that of their
all-MiniLM-L6-v2 vectors) and ``split``: the half ``train`` chooses the thresholds, ``test`` measures their rates. Only those
in English are used, because all-MiniLM-L6-v2, which every model is matched to, knows no other language.
"""

from __future__ import annotations

import json
import math
import operator
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memfold.client.embedding.vectors import VectorBinary

ANCHORS: Final = Path(__file__).parents[2] / "data" / "anchors.jsonl"


def read_anchors(file: Path = ANCHORS) -> tuple[dict[str, Any], ...]:
    """The pairs in English, in the file's order."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(pair for pair in map(json.loads, lines) if pair["language"] == "en")


def anchor_texts() -> list[str]:
    """Each text once: about 1,600, of at most 300 bytes."""
    return sorted({pair[side] for pair in read_anchors() for side in ("a", "b")})


def compared(vectors: Mapping[str, VectorBinary]) -> list[dict[str, Any]]:
    """The pairs as ``calibrate_by_anchors()`` takes them, by the vectors of their texts."""
    units = {text: _unit(vector) for text, vector in vectors.items()}
    return [
        {
            **{key: pair[key] for key in ("a", "b", "label", "cosine")},
            "similarity": sum(map(operator.mul, units[pair["a"]], units[pair["b"]])),
            "held_out": pair["split"] == "test",
        }
        for pair in read_anchors()
    ]


def _unit(vector: VectorBinary) -> list[float]:
    values = struct.unpack_from(f">{vector.dimensions}f", vector, 4)
    norm = math.hypot(*values)
    return [value / norm for value in values]
