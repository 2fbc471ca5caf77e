"""Texts, rows of the ledger, judgements, and the state that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MERGE = 0.92
JUDGE = 0.85
FLOOR = 0.75
NEIGHBOURS = 20
# What is reported of a near memory: its similarity, and where an alias is nearer, which one, and its similarity.
Told = tuple[int, float | None, int | None, float | None]
NOW = float("inf")


class RefusedError(Exception):
    """The call is refused with this SQLSTATE, and changes nothing."""


@dataclass(frozen=True)
class Text:
    """One text that may be submitted: its object, its vector, and what the guard distinguishes it by."""

    content: str
    vector: tuple[float, ...]
    kind: int = 0
    object: str | None = None


@dataclass(frozen=True)
class Scope:
    """Bucket, subject and predicate, with the rules that hold there."""

    name: str
    bucket: str
    predicate: str
    single: bool
    conflict: str
    bucket_conflict: str
    on_ambiguous: str
    metadata_merge: str
    on_merge: str
    texts: tuple[Text, ...]

    @property
    def slot(self) -> bool:
        """One value at a time."""
        return self.single and self.conflict != "keep_both"


@dataclass
class Memory:
    number: int
    scope: Scope
    text: Text
    content: str
    object: str | None
    embedded: bool
    # The rules of its hash; None: it has none. Read from the database: a rehash processes texts in the order of hashes.
    profile: str | None = "prose"


@dataclass
class Rules:
    """The rules for a bucket's hashes; during a rehash also the previous ones."""

    now: str = "prose"
    before: str | None = None


@dataclass
class Event:
    """A row of the ledger."""

    action: str
    memory: int | None
    tier: int | None = None
    method: str | None = None
    target: int | None = None
    similarity: float | None = None
    reason: str | None = None
    observation: bool = False
    judgement: int | None = None
    verdict: str | None = None
    undoes: int | None = None
    content: str | None = None
    turns: tuple[str, ...] = ()
    source: float | None = None
    extractor: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    at: float | None = None
    # its validity; None: no bound
    valid: tuple[float | None, float | None] = (None, None)
    similar: list[Told] = field(default_factory=list)
    # of maintenance: its rows are taken over from the database
    run: str | None = None
    number: int = -1

    @property
    def fold(self) -> tuple[int, int] | None:
        """(folded, into)"""
        if self.target is None or self.memory is None or (self.tier or 0) < 2:
            return None
        if self.action == "merged":
            return self.memory, self.target
        if self.action == "replaced":
            return self.target, self.memory
        return None

    @property
    def of_rehash(self) -> bool:
        return self.method == "rehash" or (self.undoes is not None and self.reason == "rehash")


def undone(events: list[Event]) -> dict[int, Event]:
    """Of each event that is undone or withdrawn, the row that says so: the last one about it."""
    last = {e.undoes: e for e in events if e.undoes is not None}
    return {number: e for number, e in last.items() if e.action != "restored"}


def observed(events: list[Event]) -> list[Event]:
    """The observations in force: only a restatement goes with its decision, unless all of the event was withdrawn."""
    gone = undone(events)
    return [
        e
        for e in events
        if e.observation and (e.number not in gone or (e.tier != 1 and gone[e.number].action == "undone"))
    ]


@dataclass(frozen=True)
class Near:
    """An active memory near to a text: by its own text (None: it has no vector), and by the nearest of its texts."""

    root: int
    own: float | None
    clean: bool
    best: float
    matched: int

    @property
    def told(self) -> Told:
        nearer = self.matched != self.root
        return self.root, self.own, self.matched if nearer else None, self.best if nearer else None

    @property
    def merges(self) -> bool:
        """Texts that merge are compared with the text that will be shown for them."""
        return self.clean and self.own is not None and self.own > MERGE


@dataclass
class Judgement:
    number: int
    kind: str
    memory: int
    other: int
    state: str = "open"
    verdict: str | None = None
    similarity: float | None = None


@dataclass
class State:
    """The state that follows from the ledger."""

    parent: dict[int, int] = field(default_factory=dict)
    status: dict[int, str] = field(default_factory=dict)
    trees: dict[int, list[int]] = field(default_factory=dict)
    counters: dict[int, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[int, dict[str, Any]] = field(default_factory=dict)
    sources: set[tuple[int, str]] = field(default_factory=set)
    # from when until when (None: for ever) a root is current; only of those whose times are told apart from what they hold
    intervals: list[tuple[float, int, float | None]] = field(default_factory=list)
    on_timeline: set[int] = field(default_factory=set)
    # pairs of roots that were decided about
    decided: set[frozenset[int]] = field(default_factory=set)
    # pairs of roots that cannot both be current
    exclusions: set[frozenset[int]] = field(default_factory=set)
    # when a root, or one that it excludes or shares a slot with, was last stated
    last_said: dict[int, float] = field(default_factory=dict)

    def root(self, memory: int) -> int:
        while memory in self.parent:
            memory = self.parent[memory]
        return memory
