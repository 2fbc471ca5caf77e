"""All state, as a function of the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.reference_model.records import NOW, Event, Memory, State, Text, Timeline


def shown(s: State, at: float) -> set[int]:
    """The memories that recall shows for a time: values of timelines by their intervals, all others from their first
    observation on."""
    found = set()
    for root, k in s.counters.items():
        since, until = k["valid"]
        if s.status[root] not in ("active", "superseded") or not (since or at) <= at < (until or NOW):
            continue
        if root not in s.on_timeline:
            if k["first_seen"] <= at:
                found.add(root)
        elif any(root == of and start <= at < (end or NOW) for start, _, of, end in s.intervals):
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


# The actions by which a text is put on its slot's timeline; by the latter two also the one that it meets.
PLACED = ("inserted", "superseded", "historical")


def derive(memories: list[Memory], events: list[Event]) -> State:
    s = State()
    undone = {e.undoes: e.number for e in events if e.undoes is not None}
    decided_late = {e.undoes for e in events if e.undoes is not None and e.tier is not None}
    in_force = [e for e in events if e.number not in undone]
    # The later of two counts: a rehash takes an alias out of its tree until it is undone.
    for e in in_force:
        if e.fold:
            s.parent[e.fold[0]] = e.fold[1]
    for m in memories:
        s.trees.setdefault(s.root(m.number), []).append(m.number)

    def sides(e: Event) -> set[int]:
        return {s.root(x) for x in (e.memory, e.target) if x is not None}

    observed = [e for e in events if e.observation and not (e.tier == 1 and e.number in undone)]
    decided = [e for e in in_force if e.action == "superseded" and e.tier == 3]
    asserted = [
        (e.at, e.number, e.memory) for e in [*observed, *decided] if e.at is not None and e.memory is not None
    ]
    rejected = {e.memory for e in in_force if e.action == "rejected" and e.tier == 3}
    # What was told apart by a person stays off every timeline, until someone decides between the two again.
    for e in events:
        taken_back = undone.get(e.number)
        if taken_back is None or not e.on_timeline or (e.tier or 0) < 2 or e.number in decided_late:
            continue
        if e.fold or e.action in ("superseded", "historical"):
            for side in {e.memory, e.target}:
                if not any(d.number > taken_back and side in (d.memory, d.target) for d in decided):
                    s.contested.add(side)

    for root, tree in s.trees.items():
        own = [e for e in observed if e.memory in tree]
        stated_at = [at for at, _, m in asserted if m in tree]
        s.counters[root] = {
            "observations": len(own),
            "independent": independent(own),
            "source": max((e.source or 0 for e in own), default=0),
            "extractor": max((e.extractor or 0 for e in own), default=0),
            "first_seen": min((e.at or 0 for e in own), default=None),
            "last_seen": max(stated_at, default=None),
            "aliases": len(tree) - 1,
            # as the latest observation says
            "valid": max(own, key=lambda e: (e.at or 0, e.number)).valid if own else (None, None),
        }
        s.metadata[root] = folded_metadata(memories[root].scope.metadata_merge, own)
        s.status[root] = "rejected" if root in rejected else "active" if own else "withdrawn"
    s.sources = {(e.memory, t) for e in observed for t in e.turns if e.memory is not None}

    # Who is on which timeline: the scope's, or one of those that a decision between two memories started.
    stated = {e.memory for e in in_force if e.on_timeline and e.observation and e.action in PLACED}
    stated |= {e.memory for e in decided if e.on_timeline}
    # what gave way, and to whom: to a value of another slot it may have been tied by a person
    gave_way = {
        (e.target, e.memory)
        for e in in_force
        if e.on_timeline and e.action in PLACED[1:] and e.target is not None and e.memory is not None
    }
    groups: dict[int, object] = {x: x for e in decided for x in sides(e)}
    for root, tree in s.trees.items():
        if any(memories[m].scope.name == memories[root].scope.name for m in stated.intersection(tree)) or any(
            memories[x].scope.name == memories[by].scope.name == memories[root].scope.name
            for x, by in gave_way
            if x in tree
        ):
            groups[root] = memories[root].scope.name
            s.of_scope.add(root)
        elif stated.intersection(tree) or any(x in tree for x, _ in gave_way):
            groups.setdefault(root, root)
    for e in decided:
        pair = [groups[x] for x in sides(e)]
        live = all(s.status[x] == "active" and x not in s.contested for x in sides(e))
        if not e.on_timeline and len(pair) == 2 and live:
            groups = {x: pair[0] if group == pair[1] else group for x, group in groups.items()}
    standing = {root for e in decided for root in sides(e)}

    def value(root: int) -> object:
        thing = canonical(memories[root].object)
        return root if thing is None or root in standing else thing

    assertions: dict[object, list[tuple[float, int, int]]] = defaultdict(list)
    members: dict[object, list[int]] = defaultdict(list)
    for root, group in groups.items():
        if root not in s.contested and s.status[root] != "rejected":
            s.on_timeline.add(root)
            if s.status[root] == "active":
                members[group].append(root)
    for at, number, stated_by in asserted:
        if s.root(stated_by) in s.on_timeline and s.status[s.root(stated_by)] == "active":
            assertions[groups[s.root(stated_by)]].append((at, number, s.root(stated_by)))
    for group, stated_here in assertions.items():
        timeline = Timeline([])
        for assertion in sorted(stated_here):
            if timeline.segments and value(timeline.last[2]) == value(assertion[2]):
                timeline.segments[-1].append(assertion)
            else:
                timeline.segments.append([assertion])
        for i, segment in enumerate(timeline.segments):
            until = timeline.segments[i + 1][0][0] if i + 1 < len(timeline.segments) else None
            seen: set[int] = set()
            for at, number, root in segment:
                if root not in seen:
                    s.intervals.append((at, number, root, until))
                    seen.add(root)
        current = {root for _, _, root in timeline.segments[-1]}
        for root in members[group]:
            s.timelines[root] = timeline
            s.status[root] = "active" if root in current else "superseded"
    for m in memories:
        if m.number in s.parent:
            s.status[m.number] = "merged"
    s.intervals.sort()
    return s
