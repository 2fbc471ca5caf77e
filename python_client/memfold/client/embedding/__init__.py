"""Embedders, and checks of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold.client.embedding.embedders import Embedder, EmbedderProtocol

if TYPE_CHECKING:
    from memfold.client.embedding.local_embedder import LocalEmbedder
    from memfold.client.embedding.openai_embedder import OpenAIEmbedder

__all__ = ["Embedder", "EmbedderProtocol", "LocalEmbedder", "OpenAIEmbedder"]


def __getattr__(name: str) -> Any:
    # Callers with their own model do not load the code that calls endpoints.
    if name == "OpenAIEmbedder":
        from memfold.client.embedding.openai_embedder import OpenAIEmbedder

        return OpenAIEmbedder
    if name == "LocalEmbedder":
        from memfold.client.embedding.local_embedder import LocalEmbedder

        return LocalEmbedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
