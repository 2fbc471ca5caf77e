"""Questions and answers, and the protocol of a judge."""

from __future__ import annotations

import math
import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, Protocol, Self, TypeAlias
from uuid import UUID

from memfold.client._retry import MAX_RETRY_AFTER
from memfold.client._text import MAX_ERROR

Verdict: TypeAlias = Literal["duplicate", "refinement", "contradiction", "distinct", "one", "many"]
VERDICTS: Final[tuple[Verdict, ...]] = ("duplicate", "refinement", "contradiction", "distinct")
"""About memories."""
NAME_VERDICTS: Final[Mapping[str, tuple[Verdict, ...]]] = {
    "identity": ("duplicate", "distinct"),
    "cardinality": ("one", "many"),
}
"""About names, by the kind of question."""

MERGING_KINDS: Final = ("synthesis",)
"""The kinds of question whose answer may be one text in place of both."""
LETTERS: Final = "ABCDEFGHIJ"
"""The letters of memories in the prompt, oldest to newest."""
MAX_TOKENS: Final = 10_000_000
"""More tokens than any model reads or writes in one call; a larger figure is not believed."""
_MAX_COST: Final = 1e12


@dataclass(frozen=True, slots=True)
class Side:
    """One of the memories, as it was when the judgement was claimed."""

    memory_id: UUID
    content: str
    memory_type: str
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    observations: int = 1
    sources: int = 0
    origin: str | None = None
    session_id: str | None = None
    source_turn_ids: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From ``memory`` or ``other`` of ``claim_judgements``, which leaves out what is null."""
        return cls(
            memory_id=UUID(str(value["memory_id"])),
            content=value["content"],
            memory_type=value["memory_type"],
            subject=value.get("subject"),
            predicate=value.get("predicate"),
            object=value.get("object"),
            first_seen=_time(value.get("first_seen")),
            last_seen=_time(value.get("last_seen")),
            observations=int(value.get("observations") or 0),
            sources=int(value.get("sources") or 0),
            origin=value.get("origin"),
            session_id=value.get("session_id"),
            source_turn_ids=tuple(value.get("source_turn_ids") or ()),
        )


@dataclass(frozen=True, slots=True)
class Names:
    """Two names that may be one: the alias, and the name that would be stored in its place.

    ``kind``: subject, predicate, or beginning (``alias`` is None: texts without a subject that begin with the name).
    ``told`` and ``name_told`` are example memories about each, ``reasons`` say why the question is asked.
    ``kind`` cardinality: ``name`` is a predicate, ``name_told`` and ``told`` an older and a newer value of one subject.
    """

    kind: str
    alias: str | None
    name: str
    reasons: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    name_told: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From ``link`` of ``claim_judgements``."""
        return cls(
            kind=value["kind"],
            alias=value.get("alias"),
            name=value["name"],
            reasons=tuple(value.get("reasons") or ()),
            told=tuple(value.get("told") or ()),
            name_told=tuple(value.get("name_told") or ()),
        )


@dataclass(frozen=True, slots=True)
class Question:
    """Do these say the same? ``memory`` is the newer one, ``other`` the older one.

    ``members``: for a cluster, all its memories, oldest to newest; ``other`` and ``memory`` are the first and the
    last. ``names``: for kind identity, which asks whether the two names mean one (duplicate) or not (distinct;
    ``memory`` is about the alias, ``other`` about the name), and for kind cardinality, which asks whether a predicate
    has one value at a time (one) or several (many).
    """

    judgement_id: UUID
    tenant_id: str
    bucket_id: str
    kind: str
    similarity: float | None
    guard: tuple[str, ...]
    attempts: int
    memory: Side
    other: Side
    members: tuple[Side, ...] = ()
    names: Names | None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The possible answers."""
        return NAME_VERDICTS.get(self.kind, VERDICTS)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The memories compared, oldest to newest; for a pair, both."""
        return self.members or (self.other, self.memory)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From a row of ``claim_judgements``."""
        similarity = row["similarity"]
        return cls(
            judgement_id=UUID(str(row["judgement_id"])),
            tenant_id=row["tenant_id"],
            bucket_id=row["bucket_id"],
            kind=row["kind"],
            similarity=None if similarity is None else float(similarity),
            guard=tuple(row["guard"] or ()),
            attempts=int(row["attempts"]),
            memory=Side.from_json(row["memory"]),
            other=Side.from_json(row["other"]),
            members=tuple(map(Side.from_json, row.get("members") or ())),
            names=Names.from_json(row["link"]) if row.get("link") else None,
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a call; ``cost`` is in the currency of the judge's prices."""

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


def clamp_usage(usage: object) -> Usage:
    """Clamp reported usage to valid values, so that a bad judge cannot corrupt budgets or the record."""
    if not isinstance(usage, Usage):
        return Usage()

    def tokens(count: object) -> int:
        known = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_TOKENS
        return count if known else 0  # type: ignore[return-value]

    cost: object = usage.cost
    spent = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= _MAX_COST
    return Usage(
        usage.model if isinstance(usage.model, str) and usage.model.strip() else None,
        tokens(usage.input_tokens),
        tokens(usage.output_tokens),
        float(usage.cost) if spent else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict. ``richer_memory_id``: for a refinement, the memory that says more (None: the longest text).

    ``member_ids``: for a cluster, the members that the verdict is about (None: all); the others are distinct from
    them.
    """

    verdict: Verdict
    confidence: float
    reason: str | None = None
    merged_text: str | None = None
    richer_memory_id: UUID | None = None
    usage: Usage = Usage()
    member_ids: tuple[UUID, ...] | None = None


class JudgeError(Exception):
    """The question was not answered; both memories stay, and it is asked again.

    ``transient``: the endpoint is at fault and not the pair, so the attempt does not count. ``retry_after``: the
    seconds that the endpoint asked for. The text never contains a memory, a key, or an endpoint's own words, which
    may quote both.
    """

    speaks_plainly = True

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message[:MAX_ERROR])
        self.transient = transient
        known = isinstance(retry_after, int | float) and not math.isnan(retry_after)
        self.retry_after = min(max(retry_after, 0.0), MAX_RETRY_AFTER) if known else None  # type: ignore[type-var]
        self.usage = usage or Usage()


class Judge(Protocol):
    """Anything that answers questions. Raises JudgeError if it cannot; may be called concurrently."""

    async def judge(self, question: Question) -> Answer:
        """Answer one question."""


def is_wordless(text: str | None) -> bool:
    """Whether a text consists only of white space, control characters and punctuation."""
    return all(unicodedata.category(char)[0] in "PZC" or char in string.punctuation for char in text or "")


def _time(value: str | None) -> datetime | None:
    """Also None for values that PostgreSQL can store and Python cannot: infinity, years before 1."""
    try:
        return None if value is None else datetime.fromisoformat(value)
    except ValueError:
        return None
