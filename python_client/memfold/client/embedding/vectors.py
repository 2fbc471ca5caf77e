"""Checks of vectors, and the form in which pgvector receives them."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

try:
    from pgvector import Vector
except ImportError:  # before 0.4, which langchain-postgres requires
    from pgvector.utils import Vector  # type: ignore[no-redef]

from memfold.client.errors import InvalidEmbeddingError
from memfold.client.types import Embedding

MAX_DIMENSIONS = 16000
_MAX_FLOAT32 = 3.4028234663852886e38


class VectorBinary(bytes):
    """A vector in pgvector's binary form, made and checked here."""

    __slots__ = ()

    @property
    def dimensions(self) -> int:
        """The number of its elements."""
        return int.from_bytes(self[:2])


class _VectorBinaryDumper(Dumper):
    """The server takes its type from the function's argument, because the type may be in any schema."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: VectorBinary) -> bytes:
        return bytes(obj)


class VectorArray:
    """Vectors, or None for missing ones, as a ``vector[]``; ``type_oid``: the oid of vector in this database."""

    __slots__ = ("_elements", "_type_oid")

    def __init__(self, elements: Sequence[VectorBinary | None], type_oid: int) -> None:
        self._elements = elements
        self._type_oid = type_oid

    def __bytes__(self) -> bytes:
        """One dimension, with or without nulls, from 1; each element follows its length, which is -1 for null."""
        parts = [struct.pack(">iiIii", 1, None in self._elements, self._type_oid, len(self._elements), 1)]
        for element in self._elements:
            parts.append(struct.pack(">i", -1 if element is None else len(element)))
            if element is not None:
                parts.append(element)
        return b"".join(parts)


class _VectorArrayDumper(Dumper):
    """The server takes its type from the argument, as for a vector."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: VectorArray) -> bytes:
        return bytes(obj)


psycopg.adapters.register_dumper(VectorBinary, _VectorBinaryDumper)
psycopg.adapters.register_dumper(VectorArray, _VectorArrayDumper)


def vector_binary(embedding: Embedding | VectorBinary) -> VectorBinary:
    """The vector in pgvector's binary form: a third of the text's size, and no number is printed and parsed. Raises
    MF031."""
    if isinstance(embedding, VectorBinary):
        return embedding
    values: Any = embedding.tolist() if hasattr(embedding, "tolist") else embedding
    # Nearly always these are plain floats, so that they need not be checked one by one.
    if (
        isinstance(values, list | tuple)
        and len(values) <= MAX_DIMENSIONS
        and set(map(type, values)) == {float}
    ):
        with contextlib.suppress(OverflowError):
            packed = struct.pack(f">HH{len(values)}f", len(values), 0, *values)
            if all(map(math.isfinite, values)):
                return VectorBinary(packed)
    return VectorBinary(Vector(_floats(embedding)).to_binary())


def _floats(embedding: Embedding) -> list[float]:
    values: Any = embedding
    if isinstance(values, Vector):
        values = values.to_list()
    elif hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise _invalid(f"it is a {type(embedding).__name__}")
    if not 1 <= len(values) <= MAX_DIMENSIONS:
        raise _invalid(f"it has {len(values)} dimensions")
    floats = []
    for place, value in enumerate(values):
        try:
            number = math.nan if isinstance(value, str | bytes | bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) <= _MAX_FLOAT32:
            raise _invalid(f"element {place} is {value!r:.40}")
        floats.append(number)
    return floats


def _invalid(detail: str) -> InvalidEmbeddingError:
    return InvalidEmbeddingError(
        "the embedding is not a vector",
        detail=f"{detail[0].upper()}{detail[1:]}.",
        hint=f"Pass a flat list of 1 to {MAX_DIMENSIONS} finite numbers.",
    )


def is_one_vector(answer: Any) -> bool:
    """Whether it is a flat list of numbers, as an embedder of one text returns."""
    values = answer.tolist() if hasattr(answer, "tolist") else answer
    return (
        isinstance(values, list | tuple)
        and len(values) > 0
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    )


def checked_vectors(answer: Any, texts: list[str], dimensions: int | None) -> list[VectorBinary]:
    """An embedder's vectors in pgvector's binary form; raises unless there is one usable vector per text."""
    vectors = answer.tolist() if hasattr(answer, "tolist") else list(answer)
    if len(vectors) != len(texts):
        raise ValueError(f"{len(vectors)} vectors for {len(texts)} texts")
    made = [vector_binary(vector) for vector in vectors]
    for vector in made:
        size = vector.dimensions
        if dimensions is not None and size != dimensions:
            raise ValueError(f"a vector of {size} dimensions instead of {dimensions}")
        if not any(struct.unpack_from(f">{size}f", vector, 4)):
            raise ValueError("a vector without direction: all zeros")
    return made
