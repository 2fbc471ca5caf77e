"""Who makes vectors of texts, and what a vector must be."""

from memfold.embedding.embedders import Embedder, EmbedderProtocol, OpenAIEmbedder

__all__ = ["Embedder", "EmbedderProtocol", "OpenAIEmbedder"]
