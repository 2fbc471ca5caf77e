"""Who makes vectors of texts, and what a vector must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold.embedding.embedders import Embedder, EmbedderProtocol

if TYPE_CHECKING:
    from memfold.embedding.local_embedder import LocalEmbedder
    from memfold.embedding.openai_embedder import OpenAIEmbedder

__all__ = ["Embedder", "EmbedderProtocol", "LocalEmbedder", "OpenAIEmbedder"]


def __getattr__(name: str) -> Any:
    # Who brings a model of their own does not load what asks an endpoint.
    if name == "OpenAIEmbedder":
        from memfold.embedding.openai_embedder import OpenAIEmbedder

        return OpenAIEmbedder
    if name == "LocalEmbedder":
        from memfold.embedding.local_embedder import LocalEmbedder

        return LocalEmbedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
