"""Who makes vectors of texts: any callable, or an OpenAI-compatible endpoint."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

try:
    from pgvector import Vector
except ImportError:  # before 0.4, which langchain-postgres asks for
    from pgvector.utils import Vector  # type: ignore[no-redef]

from memfold.errors import InvalidEmbeddingError
from memfold.types import Embedding

if TYPE_CHECKING:
    import openai

__all__ = ["Embedder", "EmbedderProtocol", "OpenAIEmbedder"]

_MAX_DIMENSIONS = 16000
_MAX_FLOAT32 = 3.4028234663852886e38


@runtime_checkable
class EmbedderProtocol(Protocol):
    """What the clients need. An ``aembed`` with the same argument is awaited by ``AsyncMemfold`` instead."""

    @property
    def model(self) -> str:
        """The name under which the vectors are registered; only vectors of one name are compared."""

    @property
    def dimensions(self) -> int | None:
        """The size of its vectors; None where the first one tells."""

    @property
    def embed(self) -> Callable[[list[str]], Any]:
        """One vector per text, in order."""


@dataclass(frozen=True)
class Embedder:
    """A callable that gives one vector per text, with the name of its model.

    ``Embedder(embed=model.encode, model="all-MiniLM-L6-v2", dimensions=384)``; a coroutine function works
    with ``AsyncMemfold``, which runs any other callable in a thread.
    """

    embed: Callable[[list[str]], Sequence[Embedding] | Awaitable[Sequence[Embedding]] | Any]
    model: str
    dimensions: int | None = None


class OpenAIEmbedder:
    """Vectors from ``/v1/embeddings`` of OpenAI or of any server that speaks like it.

    ``dimensions`` is sent along, for models that can shorten their vectors; ``name`` registers the vectors
    under another name than ``model``, which vectors of another size need. Without ``api_key`` the environment
    variable OPENAI_API_KEY counts; a server of one's own may need none.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        *,
        name: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
    ) -> None:
        self.model = name or model
        self.dimensions = dimensions
        self._request: dict[str, Any] = {"model": model, "encoding_format": "float"}
        if dimensions is not None:
            self._request["dimensions"] = dimensions
        self._options: dict[str, Any] = {"base_url": base_url, "timeout": timeout, "max_retries": max_retries}
        self._api_key = api_key

    def _client_options(self) -> dict[str, Any]:
        import os

        key = self._api_key or os.environ.get("OPENAI_API_KEY")
        if key is None and self._options["base_url"] is not None:
            key = "none"  # the package insists on one, a server of one's own does not
        return {**self._options, "api_key": key}

    # Imported where it is used: the package takes longer to load than all else together.
    @functools.cached_property
    def _client(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(**self._client_options())

    @functools.cached_property
    def _async_client(self) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(**self._client_options())

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One request for all texts."""
        return self._in_order(self._client.embeddings.create(input=texts, **self._request))

    async def aembed(self, texts: list[str]) -> list[list[float]]:
        """The same, without blocking the event loop."""
        return self._in_order(await self._async_client.embeddings.create(input=texts, **self._request))

    @staticmethod
    def _in_order(response: openai.types.CreateEmbeddingResponse) -> list[list[float]]:
        return [item.embedding for item in sorted(response.data, key=lambda item: item.index)]


class VectorBinary(bytes):
    """A vector as pgvector receives and sends it, made and checked here."""

    __slots__ = ()

    @property
    def dimensions(self) -> int:
        """How many numbers it has."""
        return int.from_bytes(self[:2])


class _VectorBinaryDumper(Dumper):
    """Its type is left to the server, who takes it from the function's argument: it may live in any schema."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: VectorBinary) -> bytes:
        return bytes(obj)


psycopg.adapters.register_dumper(VectorBinary, _VectorBinaryDumper)


def vector_binary(embedding: Embedding | VectorBinary) -> VectorBinary:
    """The vector as pgvector receives it: a third of the text, and no number is printed and read. Raises MF031."""
    if isinstance(embedding, VectorBinary):
        return embedding
    values: Any = embedding.tolist() if hasattr(embedding, "tolist") else embedding
    # Nearly always these are plain floats: then no look at each one is needed.
    if (
        isinstance(values, list | tuple)
        and len(values) <= _MAX_DIMENSIONS
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
    if not 1 <= len(values) <= _MAX_DIMENSIONS:
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
        hint=f"Pass a flat list of 1 to {_MAX_DIMENSIONS} finite numbers.",
    )


def checked_vectors(answer: Any, texts: list[str], dimensions: int | None) -> list[VectorBinary]:
    """What an embedder gave, as pgvector receives it; raises where it is not one usable vector per text."""
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


def is_async(embedder: EmbedderProtocol) -> bool:
    """Whether its ``embed`` must be awaited."""
    call = getattr(embedder.embed, "__call__", None)  # noqa: B004 (its type decides, not whether it is callable)
    return inspect.iscoroutinefunction(embedder.embed) or inspect.iscoroutinefunction(call)
