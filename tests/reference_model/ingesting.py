"""Tiers 1 and 2: the decision table for new texts and late vectors."""

from __future__ import annotations

from typing import Any

from tests.reference_model.derivation import differ
from tests.reference_model.records import JUDGE, NOW, Event, Memory, RefusedError, Scope, Text
from tests.reference_model.storage import Storage


class Ingesting(Storage):
    """Decides about texts."""

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
        # a statement made now is never late
        at = NOW if at is None else at
        counts = origin != "recalled"
        event = Event("inserted", None, content=content, at=at, observation=counts, **given)
        known = self.find(scope, text, content)
        root = -1 if known is None else self.state.root(known.number)
        status = None if known is None else self.state.status[root]
        if known is not None and status != "withdrawn":
            event.memory, event.tier, event.method = (
                known.number,
                1,
                "hash" if root == known.number else "alias",
            )
            event.target = None if root == known.number else root
            event.action = "merged"  # row 3
            if status == "rejected":  # row 2
                event.action, event.method, event.observation = "rejected", "tombstone", False
                event.similar = [(root, None, None, None)]
            elif status == "superseded":  # row 4
                current, seen = self.current([*self.in_slot(self.memories[root].scope), *self.rivals(root)])
                event.method, event.target = "timeline", None
                if counts and current is not None and at >= seen:
                    event.action, event.target = "superseded", current
            return self.record(event)

        if status == "withdrawn" and not counts:
            event.action, event.reason = "rejected", "recalled"
            return self.record(event)
        forgotten = self.forgotten(scope, thing)
        if forgotten is not None:  # row 5
            event.action, event.tier, event.method, event.observation = "rejected", 2, "tombstone", False
            event.memory, event.similar = forgotten, [(forgotten, None, None, None)]
            return self.record(event)

        # Rows 6 to 13: a new text, or one that was withdrawn.
        current, current_at = self.current(self.in_slot(scope))
        current_thing = None if current is None else self.memories[current].object
        near = self.neighbours(scope, text, thing) if embedded else []
        best = near[0] if near and near[0].best >= JUDGE else None
        clean = max((n for n in near if n.merges), key=lambda n: n.own or 0, default=None)
        judgement: str | None = None

        def compete(method: str) -> None:
            """Rows 6, 7 and 12"""
            nonlocal judgement
            event.tier, event.method, event.target = 2, method, current
            if at < current_at:
                event.action = "historical"
            elif scope.conflict == "newest_wins":
                event.action = "superseded"
            elif scope.conflict == "keep_existing":
                event.action, event.reason, event.observation = "rejected", "keep_existing", False
            else:
                event.action, judgement = "escalated", "review"
                if current is not None and current not in {told[0] for told in event.similar}:
                    event.similar.append((current, None, None, None))

        if counts and differ(thing, current_thing):
            compete("object")
            near = []
        elif clean and self.forgot(clean.root):  # row 9
            event.action, event.tier, event.method, event.observation = "rejected", 2, "tombstone", False
            event.similarity, event.memory = clean.own, clean.root
        elif clean:
            event.action, event.tier, event.method = "merged", 2, "vector"
            event.similarity, event.target = clean.own, clean.root
            if (
                scope.on_merge == "replace"
                and counts
                and at >= self.state.counters[event.target]["last_seen"]
            ):
                event.action = "replaced"
        elif not counts:
            event.action, event.reason = "rejected", "recalled"
            if best:
                event.tier, event.method, event.similarity = 2, "vector", best.own
                event.target = best.root
        elif best:
            event.tier, event.method, event.similarity = 2, "vector", best.own
            if scope.on_ambiguous != "insert":
                event.action, event.target = "escalated", best.root
                judgement = self.kind(scope, best.root)
        elif current is not None and None in (thing, current_thing):
            compete("predicate")
        event.similar += [n.told for n in near if n.best >= JUDGE]

        if event.action == "rejected":
            pass
        elif known is not None:
            event.memory = known.number
            if event.tier is None:
                event.tier, event.method = 1, "hash" if root == known.number else "alias"
        else:
            event.memory = self.store(scope, text, content, thing, embedded)
        self.record(event)
        if judgement and event.memory is not None and event.target is not None:
            event.judgement = self.queue(judgement, event.memory, event.target, event.similarity)
        return event

    def kind(self, scope: Scope, other: int) -> str:
        """The result of a question about another memory."""
        if self.forgot(other):
            return "forgotten"
        return "write" if scope.on_ambiguous == "judge" else "review"

    def forgotten(self, scope: Scope, thing: str | None) -> int | None:
        """A tombstone with this object, which nothing else in the scope has."""
        same = [r for r in self.state.trees if self.memories[r].scope is scope and thing is not None
                and not differ(thing, self.memories[r].object) and self.memories[r].object is not None]  # fmt: skip
        dead = [r for r in same if self.forgot(r)]
        return None if any(self.alive(r) for r in same) else max(dead, default=None)

    def attach(self, memory: int) -> Event:
        """A late vector: the tier 2 that was skipped."""
        m = self.memories[memory]
        if m.embedded:
            raise RefusedError("MF019")
        m.embedded = True
        return self.compare(m, "embedded") or self.events[-1]

    def asked(self, *pairs: tuple[int, int]) -> bool:
        """Queued or judged: not asked again, and not merged either."""
        return any(self.pair(a, b, ("open", "done")) for a, b in pairs)

    def compare(self, m: Memory, otherwise: str | None) -> Event | None:
        """Tier 2 for an existing memory."""
        root = self.state.root(m.number)
        asks = root == m.number and self.alive(root)
        event = self.found(m, otherwise) if asks else Event(otherwise or "", m.number)
        return self.carry_out(event) if event.action else None

    def found(self, m: Memory, otherwise: str | None) -> Event:
        """The result of tier 2 for a root."""
        event = Event(otherwise or "", m.number)
        root = m.number
        near = self.neighbours(m.scope, m.text, m.object, apart_from=root)
        event.similar = [n.told for n in near if n.best >= JUDGE]
        clean = max((n for n in near if n.merges), key=lambda n: n.own or 0, default=None)
        if near and (clean or near[0].best >= JUDGE):
            found = clean or near[0]
            event.tier, event.method, event.similarity = 2, "vector", found.own
            event.target = other = found.root
            if (
                self.asked((root, other), (root, found.matched))
                or frozenset((root, other)) in self.state.decided
            ):
                pass
            elif clean and otherwise and self.forgot(other):
                event.action, event.method = "merged", "tombstone"
            elif clean and not self.forgot(other):
                event.memory, event.target = newer, older = self.newer_first(root, other)
                last = {r: self.state.counters[r]["last_seen"] for r in (newer, older)}
                replaces = m.scope.on_merge == "replace" and last[newer] >= last[older]
                event.action = "replaced" if replaces else "merged"
            elif m.scope.on_ambiguous != "insert":
                event.action = "escalated"
        return event

    def carry_out(self, event: Event) -> Event:
        self.record(event)
        if event.action == "escalated" and event.memory is not None and event.target is not None:
            judgement = self.kind(self.memories[event.memory].scope, event.target)
            event.judgement = self.queue(judgement, event.memory, event.target, event.similarity)
        return event
