"""memfold's decisions and state once more, small and slow: what tests/adversarial/test_stateful.py compares the SQL with.

Written from the design, not from the SQL. ``World`` keeps its own ledger; ``derive`` computes all state as a
pure function of it, computed again each time. Memories, events and judgements are numbered from 0 in the order in which
they came, which is also the order of their ids in the database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MERGE, JUDGE, FLOOR = 0.92, 0.85, 0.75
NEIGHBOURS = 20
# What is told of a memory that is near: its similarity, and where an alias is nearer, which one, and its similarity.
Told = tuple[int, float | None, int | None, float | None]
NOW = float("inf")


class RefusedError(Exception):
    """The call is refused with this SQLSTATE, and changes nothing."""


@dataclass(frozen=True)
class Text:
    """One text that may be submitted: its object, its vector, and what the guard tells it apart by."""

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


@dataclass
class Memory:
    number: int
    scope: Scope
    text: Text
    content: str
    object: str | None
    embedded: bool
    # What its hash is made by; None: it has none. Read from the database, for a rehash meets texts in the order of hashes.
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
    on_timeline: bool = False
    judgement: int | None = None
    verdict: str | None = None
    undoes: int | None = None
    content: str | None = None
    turns: tuple[str, ...] = ()
    source: float | None = None
    extractor: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    at: float | None = None
    # from when it holds, and until when; None: no bound
    valid: tuple[float | None, float | None] = (None, None)
    similar: list[Told] = field(default_factory=list)
    # of maintenance: its rows are taken over from the database
    run: str | None = None
    number: int = -1
    asked: bool = False

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
        return self.method == "rehash" or (self.action == "undone" and self.reason == "rehash")


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
class Timeline:
    """The assertions (at, event, root) of several values, in order, cut into segments of equal value."""

    segments: list[list[tuple[float, int, int]]]

    @property
    def last(self) -> tuple[float, int, int]:
        return self.segments[-1][-1]


@dataclass
class State:
    """The state that follows from the ledger."""

    parent: dict[int, int] = field(default_factory=dict)
    status: dict[int, str] = field(default_factory=dict)
    trees: dict[int, list[int]] = field(default_factory=dict)
    timelines: dict[int, Timeline] = field(default_factory=dict)
    counters: dict[int, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[int, dict[str, Any]] = field(default_factory=dict)
    sources: set[tuple[int, str]] = field(default_factory=set)
    intervals: list[tuple[float, int, int, float | None]] = field(default_factory=list)
    on_timeline: set[int] = field(default_factory=set)
    of_scope: set[int] = field(default_factory=set)
    contested: set[int | None] = field(default_factory=set)

    def root(self, memory: int) -> int:
        while memory in self.parent:
            memory = self.parent[memory]
        return memory


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


@dataclass
class World:
    """A tenant: its texts, its ledger, its judgements; and the calls that change them."""

    memories: list[Memory] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    state: State = field(default_factory=State)
    clock: float = 0
    rules: dict[str, Rules] = field(default_factory=lambda: defaultdict(Rules))
    # what a rehash did within the next call, as the database tells it
    rehashed: list[Event] = field(default_factory=list)
    # of a run: what was told apart from what
    parted: set[tuple[str | None, int, int]] = field(default_factory=set)

    # What everything below is made of -----------------------------------------------------------------------------

    def record(self, event: Event) -> Event:
        event.number = len(self.events)
        if event.at == NOW:
            event.at = self.stated_now(event)
        self.events.append(event)
        self.state = derive(self.memories, self.events)
        return event

    def stated_now(self, event: Event) -> float:
        """The clock's time, but not before the last statement of the memories concerned, or of the slot."""
        roots = {self.state.root(x) for x in (event.memory, event.target) if x is not None}
        said = [self.state.counters[r]["last_seen"] for r in roots if r in self.state.counters]
        if event.memory is not None and (
            event.method == "timeline" or (event.action == "inserted" and event.tier == 1)
        ):
            said.append(self.last_seen([event.memory]))
        elif (
            event.action == "inserted"
            and event.on_timeline
            and event.target is None
            and event.memory is not None
        ):
            scope = self.memories[event.memory].scope
            current, seen = self.current(scope)
            said.append(seen if current is not None else self.last_seen(self.slot(scope)))
        return max([self.clock, *(at for at in said if at is not None)])

    def slot(self, scope: Scope) -> list[int]:
        return [m.number for m in self.memories if m.scope.name == scope.name]

    def last_seen(self, memories: Iterable[int]) -> float:
        """The last observation of these and of all that are, or ever were, on one timeline with them."""
        known: set[int] = set()
        new = set(memories)
        while new:
            new = {m for x in new for m in self.state.trees.get(self.state.root(x), [x])} - known
            known |= new
            beside: set[int] = set()
            for e in self.events:
                if e.on_timeline and e.action in PLACED:
                    for x in {e.memory, e.target} & new:
                        beside.update(self.slot(self.memories[x].scope))
                if e.action == "superseded" and e.tier == 3 and {e.memory, e.target} & new:
                    beside |= {x for x in (e.memory, e.target) if x is not None}
            new = beside - known
        seen = [self.state.counters[r]["last_seen"] for r in {self.state.root(x) for x in known}
                if r in self.state.counters]  # fmt: skip
        return max((at for at in seen if at is not None), default=0.0)

    def store(self, scope: Scope, text: Text, content: str, thing: str | None, embedded: bool) -> int:
        now = self.rules[scope.bucket].now
        self.memories.append(Memory(len(self.memories), scope, text, content, thing, embedded, now))
        return len(self.memories) - 1

    def spelled(self, memory: int, profile: str | None = None) -> str:
        m = self.memories[memory]
        return spelling(m.text, m.content, profile or self.rules[m.scope.bucket].now)

    def find(self, scope: Scope, text: Text, content: str) -> Memory | None:
        """Tier 1. A text that a rehash has not reached is found if it was this one before, and will be."""
        rules = self.rules[scope.bucket]
        wanted = spelling(text, content, rules.now)
        for profile in (rules.now, rules.before):
            if profile is None:
                break
            for m in self.memories:
                if m.scope is scope and m.profile is not None:
                    if spelling(m.text, m.content, m.profile) != spelling(text, content, profile):
                        continue
                    reached = m.profile == rules.now
                    if profile == rules.now if reached else self.spelled(m.number) == wanted:
                        return m
        return None

    def in_force(self) -> list[Event]:
        undone = {e.undoes for e in self.events}
        return [e for e in self.events if e.number not in undone]

    def is_beneath(self, memory: int, ancestor: int) -> bool:
        """Also by merges that take effect when a later one is undone."""
        above, new = {memory}, {memory}
        folds = [e.fold for e in self.in_force() if e.fold]
        while new := {into for folded, into in folds if folded in new} - above:
            above |= new
        return memory != ancestor and ancestor in above

    def take_over(self, event: Event) -> None:
        """A row of a rehash. In which order it meets texts is its own affair; what it may do to them is not."""
        if event.action == "merged":
            folded, into = event.fold or (-1, -1)
            one, other = self.memories[folded], self.memories[into]
            assert one.scope is other.scope, event
            assert self.spelled(folded) == self.spelled(into), event
            assert not self.is_beneath(into, folded), event
            status = [self.state.status[self.state.root(x)] for x in (folded, into)]
            assert "rejected" not in status, event
            if folded < into:
                assert self.is_beneath(folded, into) or (status[0] == "withdrawn" != status[1]), event
        elif event.action == "undone":
            assert event.undoes is not None, event
            assert self.events[event.undoes].method == "rehash", event
        else:
            assert event.action == "rehashed", event
            # (it may have met the other one after that was taken elsewhere)
            assert self.state.status[self.state.root(event.memory or 0)] == "rejected", event
        self.record(event)

    def take_over_rehashed(self) -> None:
        while self.rehashed:
            self.take_over(self.rehashed.pop(0))

    def misplaced(self) -> list[str]:
        """Without a rehash in progress: texts that have a wrong hash, or lack one."""
        wrong = []
        in_force = [e for e in self.in_force() if e.method == "rehash"]
        active: dict[tuple[str, str], int] = {}
        for m in self.memories:
            rules = self.rules[m.scope.bucket]
            if rules.before is not None:
                continue
            if m.profile is None:
                rows = [e for e in in_force if e.memory == m.number]
                if not any(
                    e.action == "rehashed" or self.spelled(e.target or 0) == self.spelled(m.number)
                    for e in rows
                ):
                    wrong.append(f"m{m.number} has no hash")
            elif m.profile != rules.now:
                wrong.append(f"m{m.number} has a hash by {m.profile}")
            if self.state.status[m.number] == "active":
                other = active.setdefault((m.scope.name, self.spelled(m.number)), m.number)
                if other != m.number:
                    wrong.append(f"m{other} and m{m.number} are one text")
        return wrong

    def newer_first(self, a: int, b: int) -> tuple[int, int]:
        return max(a, b), min(a, b)

    def pair(self, a: int, b: int, states: Iterable[str]) -> list[Judgement]:
        return [j for j in self.judgements if {j.memory, j.other} == {a, b} and j.state in states]

    def queue(self, kind: str, a: int, b: int, similarity: float | None) -> int | None:
        """One open question a pair."""
        if self.pair(a, b, ("open",)):
            return None
        newer, older = self.newer_first(a, b)
        self.judgements.append(Judgement(len(self.judgements), kind, newer, older, similarity=similarity))
        return len(self.judgements) - 1

    def neighbours(
        self,
        scope: Scope,
        text: Text,
        thing: str | None,
        apart_from: int | None = None,
        also: int | None = None,
    ) -> list[Near]:
        """Active memories near to a text, by any of their texts; the nearest by any, and the nearest by their own."""
        cosines: dict[int, dict[int, float]] = defaultdict(dict)
        for m in self.memories:
            root = self.state.root(m.number)
            seen = self.state.status[root] == "active" or root == also
            if m.scope is scope and m.embedded and seen and root != apart_from:
                cosine = sum(x * y for x, y in zip(m.text.vector, text.vector, strict=True))
                cosines[root][m.number] = cosine
        found = []
        for root, tree in cosines.items():
            m = self.memories[root]
            matched = max(tree, key=lambda number: (tree[number], number == root, -number))
            clean = m.text.kind == text.kind and not differ(thing, m.object)
            found.append(Near(root, self.own(root, text), clean, tree[matched], matched))
        by_any = sorted(found, key=lambda n: (-n.best, n.matched))
        by_own = sorted((n for n in found if n.own is not None), key=lambda n: (-(n.own or 0), n.root))
        looked_at = {n.root for n in by_any[:NEIGHBOURS] + by_own[:NEIGHBOURS]}
        return [n for n in by_any if n.root in looked_at]

    def own(self, root: int, text: Text) -> float | None:
        m = self.memories[root]
        return sum(x * y for x, y in zip(m.text.vector, text.vector, strict=True)) if m.embedded else None

    def active_pair(self, a: int, b: int) -> bool:
        return a != b and self.state.status[a] == self.state.status[b] == "active"

    def present(self, timeline: Timeline) -> tuple[int, float]:
        """The memory that states the present value, where several do the one last seen; and when it was."""
        roots = {root for _, _, root in timeline.segments[-1]}
        seen, current = max((self.state.counters[root]["last_seen"], root) for root in roots)
        return current, seen

    def current(self, scope: Scope) -> tuple[int | None, float]:
        """The value that another one competes with. Nobody competes with what is contested."""
        s = self.state
        values = [
            (root in s.on_timeline, s.counters[root]["last_seen"], root)
            for root in s.trees
            if self.memories[root].scope is scope and s.status[root] == "active" and root not in s.contested
        ]
        _, seen, current = max(values, default=(False, 0.0, None))
        return current, seen

    # Ingest: the decision table -----------------------------------------------------------------------------------

    def ingest(
        self,
        scope: Scope,
        text: Text,
        content: str,
        thing: str | None,
        embedded: bool,
        origin: str,
        at: float | None,
        **given: Any,
    ) -> Event:
        # what is told now is late for nothing
        at = NOW if at is None else at
        counts = origin != "recalled"
        event = Event("inserted", None, content=content, at=at, observation=counts, **given)
        known = self.find(scope, text, content)
        status = None
        current, current_at = self.current(scope)
        if known is not None:
            root = self.state.root(known.number)
            status = self.state.status[root]
            event.memory = known.number
            alias = root != known.number
        if known is not None and status == "rejected":  # row 2
            event.action, event.tier, event.method, event.observation = "rejected", 1, "tombstone", False
            event.target = root if alias else None
            return self.record(event)
        if known is not None and status == "active":  # row 3
            event.action, event.tier, event.method = "merged", 1, "alias" if alias else "hash"
            event.target = root if alias else None
            event.on_timeline = root in self.state.on_timeline
            return self.record(event)
        if known is not None and status == "superseded":  # row 4
            event.action, event.tier, event.method, event.on_timeline = "merged", 1, "timeline", True
            present, present_at = self.present(self.state.timelines[root])
            if counts and at >= present_at:
                event.action, event.target, event.on_timeline = (
                    "superseded",
                    present,
                    root in self.state.of_scope,
                )
            return self.record(event)
        if known is not None and status == "withdrawn" and counts:  # said again
            event.tier, event.method = 1, "alias" if alias else "hash"
            if scope.single and root not in self.state.contested:
                event.method, event.on_timeline = "timeline", True
                if current is not None:
                    event.action = "superseded" if at >= current_at else "historical"
                    event.target = current
            return self.record(event)

        if known is not None:  # withdrawn, and recalled
            event.action, event.reason, event.memory = "rejected", "recalled", None
            return self.record(event)

        # Rows 5 to 12: a new text.
        current_thing = None if current is None else self.memories[current].object
        late = at < current_at
        near = self.neighbours(scope, text, thing) if embedded else []
        best = near[0] if near and near[0].best >= JUDGE else None
        clean = max((n for n in near if n.merges), key=lambda n: n.own or 0, default=None)
        judgement: str | None = None
        event.on_timeline = scope.single

        def compete(method: str) -> None:
            """Rows 5, 6 and 10"""
            nonlocal judgement
            event.tier, event.method, event.target = 2, method, current
            if late:
                event.action = "historical"
            elif scope.conflict == "newest_wins":
                event.action = "superseded"
            elif scope.conflict == "keep_existing":
                event.action, event.reason, event.observation = "rejected", "keep_existing", False
            else:
                event.on_timeline = False
                if scope.conflict == "review":
                    event.action, judgement = "escalated", "review"
                    if current is not None and current not in {told[0] for told in event.similar}:
                        event.similar.append((current, None, None, None))

        if counts and scope.single and differ(thing, current_thing):
            compete("object")
            near = []
        elif clean:
            event.action, event.tier, event.method = "merged", 2, "vector"
            event.similarity, event.target = clean.own, clean.root
            event.on_timeline = event.target in self.state.on_timeline
            if (
                scope.on_merge == "replace"
                and counts
                and at >= self.state.counters[event.target]["last_seen"]
            ):
                event.action = "replaced"
        elif not counts:
            event.action, event.reason, event.on_timeline = "rejected", "recalled", False
            if best:
                event.tier, event.method, event.similarity = 2, "vector", best.own
                event.target = best.root
        elif best:
            event.tier, event.method, event.similarity, event.on_timeline = 2, "vector", best.own, False
            if scope.on_ambiguous != "insert":
                event.action, event.target = "escalated", best.root
                judgement = "write" if scope.on_ambiguous == "judge" else "review"
        elif scope.single and current is not None and None in (thing, current_thing):
            compete("predicate")
        event.similar += [n.told for n in near if n.best >= JUDGE]

        if event.action == "rejected":
            event.memory = None
        else:
            event.memory = self.store(scope, text, content, thing, embedded)
        self.record(event)
        if judgement and event.memory is not None and event.target is not None:
            event.judgement = self.queue(judgement, event.memory, event.target, event.similarity)
        return event

    def attach(self, memory: int) -> Event:
        """A late vector: the tier 2 that was skipped."""
        m = self.memories[memory]
        if m.embedded:
            raise RefusedError("MF019")
        m.embedded = True
        return self.compare_rivals(m) or self.compare(m, "embedded") or self.events[-1]

    def asked(self, *pairs: tuple[int, int]) -> bool:
        """Queued or judged: not asked again, and not merged either."""
        return any(self.pair(a, b, ("open", "done")) for a, b in pairs)

    def compare(self, m: Memory, otherwise: str | None) -> Event | None:
        """Tier 2 for a memory that is there already."""
        root = self.state.root(m.number)
        asks = root == m.number and self.state.status[root] == "active"
        event = self.found(m, otherwise) if asks else Event(otherwise or "", m.number)
        return self.carry_out(event) if event.action else None

    def found(self, m: Memory, otherwise: str | None, also: int | None = None) -> Event:
        """The result of tier 2 for a root; also: this one counts as active."""
        event = Event(otherwise or "", m.number)
        root = m.number
        near = self.neighbours(m.scope, m.text, m.object, apart_from=root, also=also)
        event.similar = [n.told for n in near if n.best >= JUDGE]
        clean = max((n for n in near if n.merges), key=lambda n: n.own or 0, default=None)
        if near and (clean or near[0].best >= JUDGE):
            found = clean or near[0]
            event.tier, event.method, event.similarity = 2, "vector", found.own
            event.target = other = found.root
            if self.asked((root, other), (root, found.matched)):
                event.asked = True
            elif clean:
                event.action = "replaced" if m.scope.on_merge == "replace" else "merged"
                event.memory, event.target = self.newer_first(root, other)
                event.on_timeline = bool({root, other} & self.state.on_timeline)
            elif m.scope.on_ambiguous != "insert":
                event.action = "escalated"
        return event

    def carry_out(self, event: Event) -> Event:
        self.record(event)
        if event.action == "escalated" and event.memory is not None and event.target is not None:
            asks = self.memories[event.memory].scope.on_ambiguous
            judgement = "write" if asks == "judge" else "review"
            event.judgement = self.queue(judgement, event.memory, event.target, event.similarity)
        return event

    def rivals(self, memory: int) -> list[tuple[Event, int, int]]:
        """The supersessions of row 10 (event, winner, loser) between where this text leads and others, oldest first."""
        root, in_force = self.state.root(memory), self.in_force()
        rivals = []
        for e in in_force:
            if (
                e.method != "predicate"
                or e.action not in ("superseded", "historical")
                or None in (e.memory, e.target)
            ):
                continue
            pair = winner, loser = self.state.root(e.memory or 0), self.state.root(e.target or 0)
            if (
                winner == loser
                or root not in pair
                or self.memories[e.memory or 0].scope is not self.memories[memory].scope
            ):
                continue
            if any(self.state.status[x] not in ("active", "superseded") for x in pair):
                continue
            if not any(
                p.action == "superseded" and p.tier == 3 and {p.memory, p.target} == {*pair} for p in in_force
            ):
                rivals.append((e, winner, loser))
        return rivals

    def compare_rivals(self, m: Memory) -> Event | None:
        """Row 10 decides where tier 2 finds nothing: with a vector it is decided again, as if it had been there at once."""
        done = None
        if (
            not m.scope.single
            or m.number in self.state.parent
            or self.state.status[m.number] not in ("active", "superseded")
        ):
            return None
        again = True
        while again:
            again = False
            for e, winner, loser in self.rivals(m.number):
                if not self.memories[winner].embedded:
                    continue
                event = self.found(self.memories[winner], "embedded", also=loser)
                if event.asked or loser not in (event.memory, event.target):
                    continue
                again = event.action in ("merged", "replaced")
                if not again and not self.parts_in_two(e, winner, loser):
                    continue
                self.record(
                    Event(
                        "undone", e.memory, 2, event.method, e.target, event.similarity,
                        "compared by a late vector", undoes=e.number,
                    )
                )  # fmt: skip
                done = self.carry_out(event)
                break
        return done

    def parts_in_two(self, event: Event, winner: int, loser: int) -> bool:
        """Both are active without this supersession: nothing else has put the winner on the timeline."""
        tree = self.state.trees[winner]
        return "active" in (self.state.status[winner], self.state.status[loser]) and not any(
            e is not event
            and (e.on_timeline or e.tier == 3)
            and (
                (e.memory in tree and e.action in ("inserted", "superseded", "historical"))
                or (e.target in tree and e.action in ("superseded", "historical"))
            )
            for e in self.in_force()
        )

    # Tier 3 -------------------------------------------------------------------------------------------------------

    def resolve(
        self, judgement: int, verdict: str, confidence: float, richer_memory_id: int | None, method: str
    ) -> tuple[str, Event | None]:
        """The judgement's state, and what was done."""
        j = self.judgements[judgement]
        if j.state == "part":
            # the question about its cluster is asked, not this one
            raise RefusedError("MF026")
        if j.state != "open":
            raise RefusedError("MF027")
        newer, older = self.newer_first(self.state.root(j.memory), self.state.root(j.other))
        if not self.active_pair(newer, older) and not self.retired_by_a_third(newer, older):
            j.state = "obsolete"
            return "obsolete", None
        if (newer, older) != (j.memory, j.other):
            # asked again about where the two lead; a person may be asked again about what was judged
            j.state = "obsolete"
            if self.pair(newer, older, ("open",) if j.kind == "review" else ("open", "done")):
                return "obsolete", None
            self.queue(j.kind, newer, older, j.similarity)
            return "open", None
        j.state = "done"
        j.verdict = verdict if confidence >= FLOOR else "unsure"
        event = Event("judged", newer, 3, method, older, j.similarity, judgement=judgement, verdict=j.verdict)
        event.reason = verdict if j.verdict == "unsure" else None
        verdict = j.verdict
        if verdict == "duplicate":
            self.fold(event, newer, older)
        elif verdict == "refinement":
            if richer_memory_id is None:
                longer = len(self.memories[newer].content) > len(self.memories[older].content)
                richer_memory_id = newer if longer else older
            self.fold(event, older if richer_memory_id == newer else newer, richer_memory_id)
        elif verdict == "contradiction" or self.different_values(newer, older):
            conflict = self.conflict(newer, older)
            if j.kind == "review" and (verdict == "contradiction" or conflict == "review"):
                conflict = "newest_wins"
            if conflict == "newest_wins":
                winner, loser = newer, older
                if self.last_said(older) > self.last_said(newer):
                    winner, loser = older, newer
                self.supersession(event, winner, loser)
            elif conflict == "keep_existing":
                event.action, event.target = "rejected", None
            elif conflict == "review":
                self.record(event)
                self.queue("review", newer, older, j.similarity)
                return "done", event
        self.record(event)
        return "done", event

    def retired_by_a_third(self, a: int, b: int) -> bool:
        """One is history of the scope that the other one is of, and the other one did not retire it."""
        if {self.state.status[a], self.state.status[b]} != {"active", "superseded"}:
            return False
        winner, loser = (a, b) if self.state.status[a] == "active" else (b, a)
        here, there = self.memories[a].scope, self.memories[b].scope
        return here is there and not any(
            (e.action, e.memory, e.target) == ("superseded", winner, loser) for e in self.events
        )

    def different_values(self, a: int, b: int) -> bool:
        """They cannot both hold: two values of what has one at a time."""
        one, other = self.memories[a], self.memories[b]
        same = one.object is not None and canonical(one.object) == canonical(other.object)
        return one.scope is other.scope and one.scope.single and not same

    def conflict(self, a: int, b: int) -> str:
        """The predicate's policy where both sides are of one, else the bucket's."""
        one, other = self.memories[a].scope, self.memories[b].scope
        return one.conflict if one is other else one.bucket_conflict

    def last_said(self, root: int) -> tuple[float, int]:
        undone = {e.undoes for e in self.events}
        return max(
            (e.at or 0, e.number)
            for e in self.events
            if e.memory in self.state.trees[root]
            and e.at is not None
            and (
                (e.observation and not (e.tier == 1 and e.number in undone))
                or (e.action == "superseded" and e.tier == 3 and e.number not in undone)
            )
        )

    def fold(self, event: Event, folded: int, into: int) -> None:
        event.on_timeline = bool({folded, into} & self.state.on_timeline)
        # the newer of the two is the event's memory
        if folded > into:
            event.action, event.memory, event.target = "merged", folded, into
        else:
            event.action, event.memory, event.target = "replaced", into, folded

    def supersession(self, event: Event, winner: int, loser: int) -> None:
        event.action, event.memory, event.target = "superseded", winner, loser
        scope = self.memories[winner].scope
        event.on_timeline = scope.single and self.memories[loser].scope is scope

    # Manual actions -----------------------------------------------------------------------------------------------

    def refuse(self, *roots: int) -> None:
        if any(self.state.status[r] in ("rejected", "withdrawn") for r in roots) or len(set(roots)) < len(
            roots
        ):
            raise RefusedError("MF034")
        if len({self.memories[r].scope.bucket for r in roots}) > 1:
            raise RefusedError("MF034")

    def reject(self, memory: int) -> Event:
        root = self.state.root(memory)
        if self.state.status[root] == "rejected":
            raise RefusedError("MF034")
        return self.record(Event("rejected", root, 3, "person"))

    def merge(self, memory: int, into: int) -> Event:
        folded, into = self.state.root(memory), self.state.root(into)
        self.refuse(folded, into)
        on_timeline = bool({folded, into} & self.state.on_timeline)
        return self.record(Event("merged", folded, 3, "person", into, on_timeline=on_timeline))

    def supersede(self, memory: int, by: int, now: Callable[[float], float]) -> Event:
        loser, winner = self.state.root(memory), self.state.root(by)
        self.refuse(loser, winner)
        event = Event("superseded", winner, 3, "person", loser)
        self.supersession(event, winner, loser)
        beside = self.slot(self.memories[loser].scope) if event.on_timeline else []
        event.at = now(self.last_seen([loser, winner, *beside]))
        return self.record(event)

    def update(self, memory: int, text: Text, thing: str | None, embedded: bool) -> Event:
        root = self.state.root(memory)
        old = self.memories[root]
        self.refuse(root)
        known = self.find(old.scope, text, text.content)
        event = Event("replaced", None, 3, "person", root)
        if known:
            event.memory = self.state.root(known.number)
            if event.memory == root or self.state.status[event.memory] == "rejected":
                raise RefusedError("MF034")
            event.on_timeline = bool({event.memory, root} & self.state.on_timeline)
            return self.record(event)
        event.on_timeline = root in self.state.on_timeline
        event.memory = self.store(old.scope, text, text.content, thing or old.object, embedded)
        event.content = text.content
        self.record(event)
        new = self.memories[event.memory]
        return self.compare(new, None) or event if embedded else event

    def told_apart(self, memory: int, other: int, similarity: float | None) -> None:
        self.judgements.append(
            Judgement(len(self.judgements), "review", memory, other, "done", "distinct", similarity)
        )

    def part(self, e: Event) -> None:
        """The texts that a run had merged, including e, are recorded as distinct from the text that they were merged
        into."""
        assert e.fold is not None
        child, into = e.fold
        edges = {x.fold for x in self.events if x.run == e.run and x.fold}
        above, new = set[int](), {into}
        while new:
            above |= new
            new = {b for a, b in edges if a in new} - above
        tops = sorted(above - {a for a, _ in edges} - {child})
        if tops and (e.run, child, tops[0]) not in self.parted:
            self.parted.add((e.run, child, tops[0]))
            self.told_apart(child, tops[0], e.similarity)

    def undo(self, number: int) -> Event:
        e = self.events[number]
        if e.method == "rehash":
            raise RefusedError("MF032")
        if any(u.undoes == number for u in self.events):
            raise RefusedError("MF033")
        withdrawn = e.tier == 1 and e.observation
        cut = e.fold is not None or ((e.tier or 0) >= 2 and e.action in ("superseded", "historical"))
        if not withdrawn and not cut and not (e.action == "rejected" and e.tier == 3):
            raise RefusedError("MF032")
        event = self.record(Event("undone", e.memory, target=e.target, undoes=number))
        # a text that had no hash for it is placed
        self.take_over_rehashed()
        if cut and e.memory is not None and e.target is not None:
            a, b = self.state.root(e.memory), self.state.root(e.target)
            if not e.fold or e.on_timeline:
                if self.active_pair(a, b):
                    self.queue("review", a, b, e.similarity)
            elif e.run is None:
                self.told_apart(*self.newer_first(*e.fold), e.similarity)
            if e.fold and e.run is not None:
                self.part(e)
        return event
