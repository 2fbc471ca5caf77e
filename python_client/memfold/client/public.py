"""The names of ``memfold``: what ``from memfold import ...`` finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold.client._version import __version__
from memfold.client.calls import AsyncMemfold, Memfold
from memfold.client.embedding import Embedder
from memfold.client.errors import (
    AuthenticationError,
    ConnectionLostError,
    EmbedderError,
    InstallError,
    InvalidDsnError,
    InvalidEmbeddingError,
    InvalidTextError,
    MemfoldError,
    MemoryHashConflict,
    MissingExtraError,
    NotInstalledError,
    OutcomeUnknownError,
    RetryableError,
)
from memfold.client.found import ForgottenMemory, FoundMemory, Profile, ProfileFact, SearchResult
from memfold.client.judging import Answer, Judge, JudgeError, Names, Question
from memfold.client.types import (
    BatchItem,
    BucketStats,
    CurrentMemory,
    EmbedReport,
    Erasure,
    Feedback,
    IngestResult,
    KnownMemory,
    LinkSuggestion,
    Memory,
    PredicateSuggestion,
    Resolution,
    SimilarMemory,
    UndoneMemory,
)

if TYPE_CHECKING:
    from memfold.client.embedding import LocalEmbedder, OpenAIEmbedder
    from memfold.client.judging import LocalJudge, OpenAIJudge

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
    "ForgottenMemory",
    "FoundMemory",
    "IngestResult",
    "InstallError",
    "InvalidDsnError",
    "InvalidEmbeddingError",
    "InvalidTextError",
    "Judge",
    "JudgeError",
    "KnownMemory",
    "LinkSuggestion",
    "LocalEmbedder",
    "LocalJudge",
    "Memfold",
    "MemfoldError",
    "Memory",
    "MemoryHashConflict",
    "MissingExtraError",
    "Names",
    "NotInstalledError",
    "OpenAIEmbedder",
    "OpenAIJudge",
    "OutcomeUnknownError",
    "PredicateSuggestion",
    "Profile",
    "ProfileFact",
    "Question",
    "Resolution",
    "RetryableError",
    "SearchResult",
    "SimilarMemory",
    "UndoneMemory",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Callers with their own model do not load the code that calls endpoints, or a model.
    if name in ("LocalEmbedder", "OpenAIEmbedder"):
        from memfold.client import embedding

        return getattr(embedding, name)
    if name in ("LocalJudge", "OpenAIJudge"):
        from memfold.client import judging

        return getattr(judging, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
