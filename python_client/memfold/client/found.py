"""Options and results of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from memfold.client.types import Embedding, FromRow, Row

SearchBy: TypeAlias = Literal["vector", "words", "both"]
INCOMPLETE = "01M01"
"""SQLSTATE of the NOTICE with which a search reports that it is not complete."""
NOTHING_NEAR = "01M02"
"""SQLSTATE of the NOTICE with which a search reports that nothing reached ``min_similarity``."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Notice:
    """The server's notices for a statement."""

    sqlstate: str | None
    detail: str | None
    hint: str | None


class SearchResult(tuple[T, ...]):
    """The memories found, best first.

    ``complete``: whether the search covered everything that it could have found. If not, ``reason`` says why, and
    ``hint`` what to do: usually the statement that creates an index. They also say so if nothing reached
    ``min_similarity``.
    """

    complete: bool = True
    reason: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, found: Iterable[T], rows: Sequence[Row], notices: Sequence[Notice]) -> Self:
        made = cls(found)
        told = next((one for one in notices if one.sqlstate == INCOMPLETE), None)
        made.complete = told is None and all(row["complete"] for row in rows)
        if not made.complete:
            # a session may have turned notices off
            made.reason = told.detail if told is not None else "The bucket is large, and there is no index."
            made.hint = told.hint if told is not None else "Ask memfold doctor."
        elif far := next((one for one in notices if one.sqlstate == NOTHING_NEAR), None):
            made.reason, made.hint = far.detail, far.hint
        return made


class SearchFields(TypedDict, total=False):
    """The options of ``search``; their defaults come from the server and the bucket's policy."""

    max_results: int
    memory_type: str
    subject: str
    predicate: str
    session_id: str
    metadata: Mapping[str, Any]
    metadata_path: str
    min_confidence: float
    min_similarity: float
    as_of: datetime
    deduplicate: bool
    dedup_threshold: float
    touch: bool
    bucket_ids: Sequence[str]
    bucket_prefix: str


@dataclass(frozen=True, slots=True)
class ForgottenMemory(FromRow):
    """A memory that ``forget`` removes (``action`` rejected or erased), or makes current again (current again).

    ``run_id``: for ``undo_run``; None: a preview, or erased. ``similarity``: that of its nearest text to the query.
    """

    run_id: UUID | None
    memory_id: UUID
    action: Literal["rejected", "erased", "current again"]
    subject: str | None
    predicate: str | None
    content: str
    similarity: float | None


class ForgetFields(TypedDict, total=False):
    """The options of ``forget``."""

    query: str | None
    min_similarity: float | None
    embedding: Embedding | None
    embedding_model: str | None
    bucket_id: str
    erase: bool
    dry_run: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class ProfileFact(FromRow):
    """A current memory about a subject. ``disputed_by``: as of ``FoundMemory``."""

    memory_id: UUID
    content: str
    predicate: str | None
    object: str | None
    valid_from: datetime
    disputed_by: tuple[UUID, ...]


class Profile(tuple[ProfileFact, ...]):
    """What is known about a subject now, by predicate, the newest first. ``str(profile)`` is a text for a prompt."""

    def __str__(self) -> str:
        return "\n".join(
            f"- {fact.content} ({'contested, ' if fact.disputed_by else ''}since {fact.valid_from:%Y-%m-%d})"
            for fact in self
        )


@dataclass(frozen=True, slots=True)
class FoundMemory(FromRow):
    """A memory that a search shows, best first.

    ``similarity`` is that of ``content``, ``matched_similarity`` that of ``matched_content``, the nearest of its
    texts (None: it has no vector of the model, or the search was only by words). ``word_share``: the share of the
    query's words that this text has, from 0 to 1, with rare words counting more (None: no words, or the search was
    only by vector). ``confidence`` is after decay. ``collapsed_ids`` are memories that say the same and are not
    shown; ``score`` is the best of theirs and its own. ``valid_from``: since when it is current. ``disputed_by``:
    memories that may contradict it: a question about both is open, or they hold another value of the same subject and
    predicate, and nobody has said how many values that predicate has at a time. ``display_text``: with ``merge_text``,
    the text that a model made of all their texts, else the content.
    """

    memory_id: UUID
    bucket_id: str
    content: str
    memory_type: str
    subject: str | None
    predicate: str | None
    object: str | None
    score: float
    similarity: float | None
    matched_id: UUID
    matched_similarity: float | None
    word_share: float | None
    matched_content: str
    confidence: float
    repetition_count: int
    metadata: Mapping[str, Any]
    session_id: str | None
    first_seen: datetime
    last_seen: datetime
    collapsed_ids: tuple[UUID, ...]
    collapsed_count: int
    display_text: str
    valid_from: datetime
    disputed_by: tuple[UUID, ...]

    @classmethod
    def from_row(cls, row: Row) -> Self:
        # not super(): a class with slots is created twice, and super() would name the first
        return cls(**cls._values({**row, "display_text": row["content"]}))
