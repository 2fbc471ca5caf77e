"""The protocol of embedders, and an embedder made of a function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from memfold.client.types import Embedding


@runtime_checkable
class EmbedderProtocol(Protocol):
    """What the clients need. If there is an ``aembed`` with the same argument, ``AsyncMemfold`` awaits it instead."""

    @property
    def model(self) -> str:
        """The name under which the vectors are registered; only vectors of one name are compared."""

    @property
    def dimensions(self) -> int | None:
        """The size of its vectors; None, or no such attribute: taken from the first one."""

    @property
    def embed(self) -> Callable[[list[str]], Any]:
        """One vector per text, in order."""


@dataclass(frozen=True)
class Embedder:
    """A callable that returns one vector per text, with the name of its model.

    ``Embedder(embed=model.encode, model="all-MiniLM-L6-v2", dimensions=384)``; a coroutine function works
    with ``AsyncMemfold``, which runs any other callable in a thread.
    """

    embed: Callable[[list[str]], Sequence[Embedding] | Awaitable[Sequence[Embedding]] | Any]
    model: str
    dimensions: int | None = None


def check_embedder(embedder: EmbedderProtocol | None) -> None:
    """Raise TypeError if an embedder lacks an attribute that has no default."""
    for name in ("model", "embed"):
        if embedder is not None and not hasattr(embedder, name):
            raise TypeError(
                f"the embedder has no {name}: pass an object with model (a name) and embed (list of texts -> vectors), "
                "or Embedder(embed=..., model=...)"
            )


def dimensions_of(embedder: EmbedderProtocol) -> int | None:
    """The size of its vectors, if the embedder states it."""
    return getattr(embedder, "dimensions", None)


def is_async(embedder: EmbedderProtocol) -> bool:
    """Whether its ``embed`` must be awaited."""
    call = getattr(embedder.embed, "__call__", None)  # noqa: B004 (its type decides, not whether it is callable)
    return inspect.iscoroutinefunction(embedder.embed) or inspect.iscoroutinefunction(call)
