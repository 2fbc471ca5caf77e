"""The client's argument and result types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, get_args
from uuid import UUID

try:
    from pgvector import Vector
except ImportError:  # before 0.4, which langchain-postgres requires
    from pgvector.utils import Vector  # type: ignore[no-redef]

from memfold.client.errors import MemfoldError

Action: TypeAlias = Literal[
    "inserted", "merged", "replaced", "superseded", "escalated", "historical", "rejected", "embedded"
]
Origin: TypeAlias = Literal["observed", "inferred", "recalled"]
ResolvedAction: TypeAlias = Literal[
    "merged", "replaced", "superseded", "rejected", "escalated", "judged", "linked", "declared"
]
JudgementStatus: TypeAlias = Literal["open", "leased", "done", "obsolete", "dead"]
StoredVerdict: TypeAlias = Literal[
    "duplicate", "refinement", "contradiction", "distinct", "one", "many", "unsure"
]
MemoryStatus: TypeAlias = Literal["active", "merged", "superseded", "rejected", "withdrawn"]
Cardinality: TypeAlias = Literal["one", "many"]
Conflict: TypeAlias = Literal["newest_wins", "keep_existing", "keep_both", "review"]
MEMORY_STATUSES: tuple[str, ...] = get_args(MemoryStatus)
Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = list[Row]


class SupportsToList(Protocol):
    """Arrays, such as those of numpy."""

    def tolist(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class FromRow:
    """A result whose fields are columns; arrays become tuples."""

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(**cls._values(row))

    @classmethod
    def _values(cls, row: Row) -> dict[str, Any]:
        values = {field.name: row[field.name] for field in fields(cls)}
        return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


Embedding: TypeAlias = Sequence[float] | SupportsToList | Vector


class Scope(TypedDict, total=False):
    """What a fact is about, apart from its text."""

    bucket_id: str
    memory_type: str
    subject: str | None
    predicate: str | None


class CandidateFields(Scope, total=False):
    """The arguments of ``ingest_memory`` after content and tenant_id; the server defines their defaults."""

    object: str | None
    embedding: Embedding | None
    embedding_model: str | None
    source_turn_ids: Sequence[str]
    source_confidence: float
    extractor_confidence: float
    session_id: str | None
    origin: Origin
    metadata: Mapping[str, Any]
    observed_at: datetime
    valid_from: datetime | None
    valid_until: datetime | None
    idempotency_key: str | None


Candidate: TypeAlias = str | Mapping[str, Any]
"""A candidate of ``ingest_many``: a text, or a mapping of ``content`` and CandidateFields."""
OnError: TypeAlias = Literal["report", "abort"]


class ProbeFields(Scope, total=False):
    """The arguments of ``known_memory`` after content and tenant_id."""

    metadata: Mapping[str, Any]


class SimilarFields(TypedDict, total=False):
    """The options of ``find_similar``."""

    threshold: float
    memory_type: str
    subject: str | None
    predicate: str | None
    max_results: int


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    """A memory that was compared: the similarity of its own text, and the guard's result (None: not asked).

    ``similarity`` is a cosine, ``jaccard`` a share of words; None: not compared that way. If another of its texts is
    nearer, ``matched_id`` (by words ``jaccard_matched_id``) names it; ``find_similar`` always does, with the contents.
    ``note``: "another value" (nobody has said how many the predicate has); "forgotten": by ``event_id``; "current again".
    """

    memory_id: UUID
    similarity: float | None = None
    guard: tuple[str, ...] | None = None
    matched_id: UUID | None = None
    content: str | None = None
    matched_similarity: float | None = None
    matched_content: str | None = None
    jaccard: float | None = None
    jaccard_matched_id: UUID | None = None
    matched_jaccard: float | None = None
    note: str | None = None
    event_id: UUID | None = None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(cls)}
        for name, value in values.items():
            if value is None or name in ("content", "matched_content", "note"):
                continue
            if name == "guard":
                values[name] = tuple(value)
            else:
                values[name] = UUID(str(value)) if name.endswith("_id") else float(value)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Resolution(FromRow):
    """The result of a judgement.

    ``status``: done; obsolete (there is nothing left to decide); open, leased or dead: not answered, both memories
    stay. The other fields are None unless it is done. ``action``: merged, replaced, superseded, rejected, escalated
    (to a person), judged (both are kept), linked (two names) or declared (a predicate); ``memory_id``: the memory that
    now holds the fact; ``event_id``: for ``undo``; ``run_id``: the run of a link or a declaration.
    """

    status: JudgementStatus
    verdict: StoredVerdict | None = None
    action: ResolvedAction | None = None
    memory_id: UUID | None = None
    event_id: UUID | None = None
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result for a candidate. ``memory_id`` is the memory that now holds the fact. ``similarity`` is that of the
    own text of the memory that it was merged into or is judged against.

    ``resolution``: the result of the judgement, if the candidate was escalated and the call waited.
    """

    action: Action
    memory_id: UUID | None
    tier: int | None
    method: str | None
    similarity: float | None
    superseded_id: UUID | None
    judgement_id: UUID | None
    event_id: UUID | None
    similar: tuple[SimilarMemory, ...]
    resolution: Resolution | None = None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        values = {field.name: row[field.name] for field in fields(cls) if field.name != "resolution"}
        values["similar"] = tuple(SimilarMemory.from_row(item) for item in row["similar"] or ())
        return cls(**values)


@dataclass(frozen=True, slots=True)
class BatchItem:
    """The result for one candidate of ``ingest_many``: ``index`` is its position, from 0.

    Either ``result`` or ``error`` is set; ``content`` is None if the candidate has none.
    """

    index: int
    content: str | None
    result: IngestResult | None = None
    error: MemfoldError | None = None


@dataclass(frozen=True, slots=True)
class KnownMemory(FromRow):
    """A hit of tier 1: ``matched_id`` is the text itself, ``memory_id`` its root."""

    memory_id: UUID
    matched_id: UUID
    status: str
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class UndoneMemory(FromRow):
    """A memory of an undone event as it is now; ``event_id`` is that of the undo, which can be undone in turn."""

    event_id: UUID
    memory_id: UUID
    status: str
    content: str


@dataclass(frozen=True, slots=True)
class CurrentMemory(FromRow):
    """A memory that was current at a time; ``valid_to`` None: it still is."""

    memory_id: UUID
    content: str
    memory_type: str
    subject: str | None
    predicate: str | None
    object: str | None
    valid_from: datetime
    valid_to: datetime | None
    repetition_count: int
    confidence: float


class ListFields(TypedDict, total=False):
    """The options of ``list``. subject and predicate are compared in canonical form."""

    memory_type: str
    subject: str
    predicate: str


@dataclass(frozen=True, slots=True)
class Memory(FromRow):
    """A memory as it is stored.

    ``root_id``: the root of an alias (status merged). An alias has no counters, which belong to its root: its
    ``repetition_count`` is 0, its ``confidence`` and times are None. ``confidence`` is after decay. Outside
    ``valid_from`` and ``valid_until`` (exclusive; None: no bound) recall does not show it.
    """

    memory_id: UUID
    bucket_id: str
    status: MemoryStatus
    content: str
    memory_type: str
    subject: str | None
    predicate: str | None
    object: str | None
    root_id: UUID | None
    repetition_count: int
    confidence: float | None
    metadata: Mapping[str, Any]
    session_id: str | None
    first_seen: datetime | None
    last_seen: datetime | None
    valid_from: datetime | None
    valid_until: datetime | None
    embedding_pending: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Erasure:
    """Counts of erased texts, texts that other sources support, ledger rows, texts left; values that are current again."""

    erased: int = 0
    kept: int = 0
    events: int = 0
    remaining: int = 0
    current_again: tuple[UUID, ...] = ()

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(**{**row, "current_again": tuple(row["current_again"])})

    def plus(self, other: Self) -> Self:
        """The sum of both calls; ``remaining`` is that of the other one."""
        return replace(
            other,
            erased=self.erased + other.erased,
            kept=self.kept + other.kept,
            events=self.events + other.events,
            current_again=self.current_again + other.current_again,
        )


@dataclass(frozen=True, slots=True)
class LinkSuggestion(FromRow):
    """Two names that may be one: the arguments of ``link_subject`` or ``link_predicate``, by ``kind``, and why.

    ``alias`` None: for texts without a subject that begin with the name. ``score`` is in (0, 1].
    """

    kind: Literal["subject", "predicate"]
    alias: str | None
    name: str
    score: float
    reasons: tuple[str, ...]
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PredicateSuggestion(FromRow):
    """A predicate that may have one value at a time, for ``set_predicate``, and why: see ``suggest_predicates``.

    ``score`` is in (0, 1); ``memory_ids`` are two values of one subject, the newer first.
    """

    predicate: str
    score: float
    subjects: int
    changed: int
    most_values: int
    returned: int
    together: int
    memory_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Feedback(FromRow):
    """How often a memory was said to have helped, and to have harmed."""

    helpful_count: int
    harmful_count: int


@dataclass(frozen=True, slots=True)
class BucketStats:
    """One row of the view ``dedup_stats``."""

    tenant_id: str
    bucket_id: str
    active: int
    merged: int
    superseded: int
    rejected: int
    withdrawn: int
    pending_embeddings: int
    observations: int
    inserted: int
    tier_1_merges: int
    tier_2_merges: int
    tier_3_merges: int
    escalated: int
    supersessions: int
    rejected_candidates: int
    open_judgements: int
    oldest_open_judgement: datetime | None
    merge_rate: float | None
    dead_judgements: int
    warning: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        values = {field.name: row[field.name] for field in fields(cls)}
        if values["merge_rate"] is not None:
            values["merge_rate"] = float(values["merge_rate"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """The result of ``embed_pending``: vectors attached, the decisions, and texts that could not be embedded."""

    attached: int = 0
    merged: int = 0
    escalated: int = 0
    failed: int = 0
