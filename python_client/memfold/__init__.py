"""memfold folds duplicate memories of AI agents into one, inside PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold._version import __version__
from memfold.client import AsyncMemfold, Memfold
from memfold.embedding import Embedder
from memfold.errors import (
    AuthenticationError,
    ConnectionLostError,
    EmbedderError,
    InstallError,
    InvalidDsnError,
    InvalidEmbeddingError,
    InvalidTextError,
    MemfoldError,
    MemoryHashConflict,
    NotInstalledError,
    OutcomeUnknownError,
    RetryableError,
)
from memfold.judging import Answer, Judge, JudgeError, Question
from memfold.types import (
    BatchItem,
    BucketStats,
    CurrentMemory,
    EmbedReport,
    Erasure,
    Feedback,
    FoundMemory,
    IngestResult,
    KnownMemory,
    Memory,
    Resolution,
    SimilarMemory,
    UndoneMemory,
)

if TYPE_CHECKING:
    from memfold.embedding import OpenAIEmbedder
    from memfold.judging import OpenAIJudge

__all__ = [
    "Answer",
    "AsyncMemfold",
    "AuthenticationError",
    "BatchItem",
    "BucketStats",
    "ConnectionLostError",
    "CurrentMemory",
    "EmbedReport",
    "Embedder",
    "EmbedderError",
    "Erasure",
    "Feedback",
    "FoundMemory",
    "IngestResult",
    "InstallError",
    "InvalidDsnError",
    "InvalidEmbeddingError",
    "InvalidTextError",
    "Judge",
    "JudgeError",
    "KnownMemory",
    "Memfold",
    "MemfoldError",
    "Memory",
    "MemoryHashConflict",
    "NotInstalledError",
    "OpenAIEmbedder",
    "OpenAIJudge",
    "OutcomeUnknownError",
    "Question",
    "Resolution",
    "RetryableError",
    "SimilarMemory",
    "UndoneMemory",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Who brings a model of their own does not load what asks an endpoint.
    if name == "OpenAIEmbedder":
        from memfold.embedding import OpenAIEmbedder

        return OpenAIEmbedder
    if name == "OpenAIJudge":
        from memfold.judging import OpenAIJudge

        return OpenAIJudge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
