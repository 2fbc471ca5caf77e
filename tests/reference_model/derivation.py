"""All state, as a function of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.reference_model.records import NOW, Event, Memory, State, Text, observed, undone


def shown(s: State, at: float) -> set[int]:
    """The memories that recall shows for a time: values of timelines by their intervals, all others from their first
    observation on."""
    found = set()
    for root, k in s.counters.items():
        if s.status[root] not in ("active", "superseded"):
            continue
        if root not in s.on_timeline:
            if k["first_seen"] <= at:
                found.add(root)
        elif any(
            root == of and start <= at < (NOW if end is None else end) for start, of, end in s.intervals
        ):
            found.add(root)
    return found


def canonical(thing: str | None) -> str | None:
    return None if thing is None else thing.strip().lower()


def differ(a: str | None, b: str | None) -> bool:
    return None not in (a, b) and canonical(a) != canonical(b)


def independent(observations: Iterable[Event]) -> int:
    """Observations, in order, that have a turn which none before them had, or none at all."""
    known: set[str] = set()
    count = 0
    for e in sorted(observations, key=lambda e: e.number):
        count += not e.turns or not known.issuperset(e.turns)
        known.update(e.turns)
    return count


def folded_metadata(rule: str, observations: list[Event]) -> dict[str, Any]:
    given = [e.metadata for e in sorted(observations, key=lambda e: (e.at or 0, e.number)) if e.metadata]
    if rule == "first":
        given = given[:1]
    elif rule == "newest":
        given = given[-1:]
    return {key: value for one in given for key, value in one.items()}


def spelling(text: Text, content: str, profile: str) -> str:
    """The canonical form: to prose the ways to write one text are one, to exact they are not."""
    return text.content if profile == "prose" else content


@dataclass(frozen=True)
class Statement:
    """The validity of a root."""

    root: int
    value: object
    at: float
    number: int
    begins: float
    ends: float
    timed: bool

    @property
    def said(self) -> tuple[float, int]:
        return self.at, self.number


def last_words(
    s: State, events: list[Event], gone: dict[int, Event], value: Callable[[int], object]
) -> dict[Any, str]:
    """For each pair of values that was decided about: whether they contradict each other, or are distinct."""
    words: list[tuple[int, Event, str]] = []
    for e in events:
        if e.number in gone:
            if e.action in ("superseded", "historical") and e.tier == 2 and gone[e.number].action == "undone":
                words.append((gone[e.number].number, e, "apart"))
        elif e.action == "superseded" and e.tier == 3:
            words.append((e.number, e, "contradiction"))
        elif (e.action, e.method, e.verdict) == ("judged", "person", "distinct"):
            words.append((e.number, e, "apart"))
    s.decided = {frozenset((s.root(e.memory or 0), s.root(e.target or 0))) for _, e, _ in words}
    return {
        frozenset((value(s.root(e.memory)), value(s.root(e.target)))): word
        for _, e, word in sorted(words, key=lambda w: w[0])
        if e.memory is not None
        and e.target is not None
        and s.status[s.root(e.memory)] == s.status[s.root(e.target)] == "active"
    }


def derive(memories: list[Memory], events: list[Event]) -> State:
    s = State()
    gone = undone(events)
    in_force = [e for e in events if e.number not in gone]
    # The later of two counts: a rehash takes an alias out of its tree until it is undone.
    for e in in_force:
        if e.fold:
            s.parent[e.fold[0]] = e.fold[1]
    for m in memories:
        s.trees.setdefault(s.root(m.number), []).append(m.number)

    # a person who supersedes a memory states the one that replaces it
    stated = [
        *observed(events),
        *(e for e in in_force if e.action == "superseded" and e.tier == 3 and e.at is not None),
    ]
    rejected = {e.memory for e in in_force if e.action == "rejected" and e.tier == 3}

    for root, tree in s.trees.items():
        own = [e for e in observed(events) if e.memory in tree]
        s.counters[root] = {
            "observations": len(own),
            "independent": independent(own),
            "source": max((e.source or 0 for e in own), default=0),
            "extractor": max((e.extractor or 0 for e in own), default=0),
            "first_seen": min((e.at or 0 for e in own), default=None),
            "last_seen": max((e.at or 0 for e in stated if e.memory in tree), default=None),
            "aliases": len(tree) - 1,
            # as the latest observation says
            "valid": max(own, key=lambda e: (e.at or 0, e.number)).valid if own else (None, None),
        }
        s.metadata[root] = folded_metadata(memories[root].scope.metadata_merge, own)
        s.status[root] = "rejected" if root in rejected else "active" if own else "withdrawn"
    s.sources = {(e.memory, t) for e in observed(events) for t in e.turns if e.memory is not None}

    def value(root: int) -> object:
        scope, thing = memories[root].scope, canonical(memories[root].object)
        return (scope.name, thing) if scope.slot and thing is not None else root

    statements = []
    for e in stated:
        root = s.root(e.memory) if e.memory is not None else -1
        if s.status.get(root) == "active" and e.at is not None:
            since, until = e.valid
            begins, ends = e.at if since is None else since, NOW if until is None else until
            statements.append(
                Statement(root, value(root), e.at, e.number, begins, ends, e.valid != (None, None))
            )
    statements.sort(key=lambda x: x.said)
    words = last_words(s, events, gone, value)

    def exclude(a: int, b: int) -> bool:
        """Two roots of different values."""
        word = words.get(frozenset((value(a), value(b))))
        slots = memories[a].scope.slot and memories[a].scope is memories[b].scope
        return value(a) != value(b) and (word == "contradiction" or (slots and word != "apart"))

    def current(at: float) -> set[int]:
        decides: dict[object, Statement] = {}
        for x in statements:
            if x.begins <= at:
                decides[x.value] = x
        holds = [x for x in decides.values() if at < x.ends]
        return {x.root for x in holds if not any(y.said > x.said and exclude(x.root, y.root) for y in holds)}

    alive = {x.root for x in statements}
    s.exclusions = {frozenset((a, b)) for a in alive for b in alive if exclude(a, b)}
    for root in alive:
        beside = {
            other for other in alive
            if (memories[root].scope.slot and memories[root].scope is memories[other].scope) or exclude(root, other)
        }  # fmt: skip
        timed = any(x.root == root and x.timed for x in statements)
        if memories[root].scope.slot or beside - {root} or timed:
            s.on_timeline.add(root)
        s.last_said[root] = max(x.at for x in statements if x.root in beside | {root})
    times = sorted({t for x in statements for t in (x.begins, x.ends) if t < NOW})
    open_since: dict[int, float] = {}
    for t in [*times, None]:
        now = set() if t is None else current(t)
        for root in [r for r in open_since if r not in now]:
            s.intervals.append((open_since.pop(root), root, t))
        for root in now - open_since.keys():
            assert t is not None
            open_since[root] = t
    s.intervals = sorted(i for i in s.intervals if i[1] in s.on_timeline)
    for root in s.on_timeline:
        ends = [NOW if end is None else end for _, of, end in s.intervals if of == root]
        others = any(exclude(root, other) for other in alive) or memories[root].scope.slot
        if others and not any(end > s.last_said[root] for end in ends):
            s.status[root] = "superseded"
    for m in memories:
        if m.number in s.parent:
            s.status[m.number] = "merged"
    return s
