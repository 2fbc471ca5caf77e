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
