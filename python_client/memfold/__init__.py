"""memfold folds duplicate memories of AI agents into one, inside PostgreSQL."""

from memfold.client import AsyncMemfold, Memfold
from memfold.embedders import Embedder, OpenAIEmbedder
from memfold.errors import (
    ConnectionLostError,
    InstallError,
    InvalidEmbeddingError,
    InvalidTextError,
    MemfoldError,
    MemoryHashConflict,
    OutcomeUnknownError,
    RetryableError,
)
from memfold.types import BucketStats, EmbedReport, IngestResult, KnownMemory, SimilarMemory

__version__ = "0.2.0"

__all__ = [
    "AsyncMemfold",
    "BucketStats",
    "ConnectionLostError",
    "EmbedReport",
    "Embedder",
    "IngestResult",
    "InstallError",
    "InvalidEmbeddingError",
    "InvalidTextError",
    "KnownMemory",
    "Memfold",
    "MemfoldError",
    "MemoryHashConflict",
    "OpenAIEmbedder",
    "OutcomeUnknownError",
    "RetryableError",
    "SimilarMemory",
    "__version__",
]
