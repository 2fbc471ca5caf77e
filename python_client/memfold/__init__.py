"""memfold folds duplicate memories of AI agents into one, inside PostgreSQL."""

from memfold._version import __version__
from memfold.client import AsyncMemfold, Memfold
from memfold.embedding import Embedder, OpenAIEmbedder
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
from memfold.judging import Answer, Judge, JudgeError, OpenAIJudge, Question
from memfold.types import (
    BatchItem,
    BucketStats,
    CurrentMemory,
    EmbedReport,
    Feedback,
    FoundMemory,
    IngestResult,
    KnownMemory,
    Resolution,
    SimilarMemory,
    UndoneMemory,
)

__all__ = [
    "Answer",
    "AsyncMemfold",
    "BatchItem",
    "BucketStats",
    "ConnectionLostError",
    "CurrentMemory",
    "EmbedReport",
    "Embedder",
    "Feedback",
    "FoundMemory",
    "IngestResult",
    "InstallError",
    "InvalidEmbeddingError",
    "InvalidTextError",
    "Judge",
    "JudgeError",
    "KnownMemory",
    "Memfold",
    "MemfoldError",
    "MemoryHashConflict",
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
