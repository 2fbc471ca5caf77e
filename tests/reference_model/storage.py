"""A tenant's texts, ledger and judgements, and what decisions look up in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.reference_model.derivation import derive, differ, spelling
from tests.reference_model.records import (
    NEIGHBOURS,
    NOW,
    Event,
    Judgement,
    Memory,
    Near,
    Rules,
    Scope,
    State,
    Text,
    undone,
)


@dataclass
class Storage:
    """What a tenant has stored."""

    memories: list[Memory] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    state: State = field(default_factory=State)
    clock: float = 0
    rules: dict[str, Rules] = field(default_factory=lambda: defaultdict(Rules))
    # what a rehash did within the next call, read from the database
    rehashed: list[Event] = field(default_factory=list)
    # by run or event: the pairs recorded as distinct, and the judgement that says so (None: not known, of a run)
    parted: dict[tuple[str | int, int, int], int | None] = field(default_factory=dict)

    def record(self, event: Event) -> Event:
        event.number = len(self.events)
        if event.at == NOW:
            event.at = self.stated_now(event)
        self.events.append(event)
        self.state = derive(self.memories, self.events)
        return event

    def stated_now(self, event: Event) -> float:
        """The clock's time, but not before the last statement of the memories concerned, or of their slots."""
        concerned = {self.state.root(x) for x in (event.memory, event.target) if x is not None}
        slots = {self.memories[x].scope.name for x in concerned if self.memories[x].scope.slot}
        concerned |= {r for r in self.state.trees if self.memories[r].scope.name in slots}
        return max([self.clock, *(self.last_said(root) for root in concerned)])

    def last_said(self, root: int) -> float:
        """When it, or a memory that excludes it, was last stated."""
        seen = self.state.counters.get(root, {}).get("last_seen")
        return max(self.state.last_said.get(root, 0.0), 0.0 if seen is None else seen)

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
        gone = undone(self.events)
        return [e for e in self.events if e.number not in gone]

    def is_beneath(self, memory: int, ancestor: int) -> bool:
        """Also by merges that take effect when a later one is undone."""
        above, new = {memory}, {memory}
        folds = [e.fold for e in self.in_force() if e.fold]
        while new := {into for folded, into in folds if folded in new} - above:
            above |= new
        return memory != ancestor and ancestor in above

    def take_over(self, event: Event) -> None:
        """A row of a rehash. It may process texts in any order, but only as the rules allow."""
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
    ) -> list[Near]:
        """Memories near to a text, current, former or forgotten: the nearest by any of their texts, and by their own."""
        cosines: dict[int, dict[int, float]] = defaultdict(dict)
        for m in self.memories:
            root = self.state.root(m.number)
            another_value = scope.single and differ(thing, self.memories[root].object)
            if (
                m.scope is scope
                and m.embedded
                and (self.alive(root) or self.forgot(root))
                and root != apart_from
                and not another_value
            ):
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

    def alive(self, root: int) -> bool:
        return self.state.status[root] in ("active", "superseded")

    def forgot(self, root: int) -> bool:
        return self.state.status[root] == "rejected"

    def live_pair(self, kind: str, a: int, b: int) -> bool:
        """Whether a question about the two is still one; that of whether something was forgotten is about a tombstone."""
        dead = [r for r in (a, b) if not self.alive(r)]
        return a != b and (not dead or (kind == "forgotten" and len(dead) == 1 and self.forgot(dead[0])))

    def current(self, roots: Iterable[int]) -> tuple[int | None, float]:
        """Of these the one that is current, where several are the one last seen; and when it was."""
        s = self.state
        values = [
            (s.counters[r]["last_seen"], r) for r in roots if r in s.on_timeline and s.status[r] == "active"
        ]
        seen, current = max(values, default=(0.0, None))
        return current, seen

    def rivals(self, root: int) -> list[int]:
        """The memories that exclude it."""
        return [r for r in self.state.trees if r != root and frozenset((root, r)) in self.state.exclusions]

    def in_slot(self, scope: Scope) -> list[int]:
        return [r for r in self.state.trees if scope.slot and self.memories[r].scope is scope]
