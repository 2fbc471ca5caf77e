"""Tier 3: answers of judges, manual actions, and undo."""

from __future__ import annotations

from collections.abc import Callable

from tests.reference_model.derivation import canonical
from tests.reference_model.ingesting import Ingesting
from tests.reference_model.records import (
    FLOOR,
    Event,
    Judgement,
    RefusedError,
    Text,
    observed,
    undone,
)


class World(Ingesting):
    """A tenant: its texts, its ledger, its judgements; and the calls that change them."""

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
        if not self.live_pair(j.kind, newer, older):
            j.state = "obsolete"
            return "obsolete", None
        if (newer, older) != (j.memory, j.other):
            # asked again about the two roots; a person may be asked again about a judged pair
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
        forgotten = next((r for r in (newer, older) if self.forgot(r)), None)
        if forgotten is not None:
            if verdict in ("duplicate", "refinement"):
                self.fold(event, older if forgotten == newer else newer, forgotten)
        elif verdict == "duplicate":
            self.fold(event, newer, older)
        elif verdict == "refinement":
            if richer_memory_id is None:
                longer = len(self.memories[newer].content) > len(self.memories[older].content)
                richer_memory_id = newer if longer else older
            self.fold(event, older if richer_memory_id == newer else newer, richer_memory_id)
        elif verdict == "contradiction" or self.against_the_slot(newer, older, method, verdict):
            conflict = self.conflict(newer, older)
            by_person = j.kind == "review" or method == "person"
            if (j.kind == "review" and verdict == "contradiction") or (conflict == "review" and by_person):
                conflict = "newest_wins"
            if conflict == "newest_wins" and verdict == "contradiction":
                winner, loser = newer, older
                if self.last_said_by(older) > self.last_said_by(newer):
                    winner, loser = older, newer
                event.action, event.memory, event.target = "superseded", winner, loser
            elif conflict == "keep_existing":
                event.action, event.target = "rejected", None
            elif conflict == "review":
                self.record(event)
                self.queue("review", newer, older, j.similarity)
                return "done", event
        self.record(event)
        return "done", event

    def against_the_slot(self, a: int, b: int, method: str, verdict: str) -> bool:
        """Two values of a slot that no person has recorded as distinct."""
        one, other = self.memories[a], self.memories[b]
        same = one.object is not None and canonical(one.object) == canonical(other.object)
        return (
            one.scope is other.scope
            and one.scope.slot
            and not same
            and (method, verdict) != ("person", "distinct")
        )

    def conflict(self, a: int, b: int) -> str:
        """The predicate's policy where both sides are of one, else the bucket's."""
        one, other = self.memories[a].scope, self.memories[b].scope
        return one.conflict if one is other else one.bucket_conflict

    def last_said_by(self, root: int) -> tuple[float, int]:
        retired = [e for e in self.in_force() if e.action == "superseded" and e.tier == 3]
        return max(
            (e.at or 0, e.number)
            for e in [*observed(self.events), *retired]
            if e.memory in self.state.trees[root] and e.at is not None
        )

    def fold(self, event: Event, folded: int, into: int) -> None:
        # the newer of the two is the event's memory
        if folded > into:
            event.action, event.memory, event.target = "merged", folded, into
        else:
            event.action, event.memory, event.target = "replaced", into, folded

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
        return self.record(Event("merged", folded, 3, "person", into))

    def supersede(self, memory: int, by: int, now: Callable[[float], float]) -> Event:
        loser, winner = self.state.root(memory), self.state.root(by)
        self.refuse(loser, winner)
        return self.record(
            Event(
                "superseded",
                winner,
                3,
                "person",
                loser,
                at=now(max(self.last_said(loser), self.last_said(winner))),
            )
        )

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
            return self.record(event)
        event.memory = self.store(old.scope, text, text.content, thing or old.object, embedded)
        event.content = text.content
        self.record(event)
        new = self.memories[event.memory]
        return self.compare(new, None) or event if embedded else event

    def told_apart(self, memory: int, other: int, similarity: float | None) -> None:
        self.judgements.append(
            Judgement(len(self.judgements), "review", memory, other, "done", "distinct", similarity)
        )

    def part(self, e: Event) -> tuple[str | int, int, int] | None:
        """The texts that a run, or e alone, had merged are recorded as distinct from the text that they were merged into:
        which one, unless that is known."""
        assert e.fold is not None
        child, into = e.fold
        edges = {x.fold for x in self.events if x.fold and (x is e if e.run is None else x.run == e.run)}
        above, new = set[int](), {into}
        while new:
            above |= new
            new = {b for a, b in edges if a in new} - above
        tops = sorted(above - {a for a, _ in edges} - {child})
        mark = (e.run or e.number, child, tops[0]) if tops else None
        if mark is None or mark in self.parted:
            return None
        self.parted[mark] = None
        return mark

    def undo(self, number: int) -> Event:
        e = self.events[number]
        if e.undoes is not None:
            return self.restore(e)
        if e.method == "rehash":
            raise RefusedError("MF032")
        withdrawn = e.tier == 1 and e.observation
        cut = e.fold is not None or ((e.tier or 0) >= 2 and e.action in ("superseded", "historical"))
        if not withdrawn and not cut and not (e.tier == 3 and e.action in ("rejected", "judged")):
            raise RefusedError("MF032")
        if number in undone(self.events):
            raise RefusedError("MF033")
        event = self.record(Event("undone", e.memory, target=e.target, undoes=number))
        # a text that had no hash for it is placed
        self.take_over_rehashed()
        if e.fold and (mark := self.part(e)):
            self.parted[mark] = len(self.judgements)
            self.told_apart(*mark[1:], e.similarity)
        return event

    def restore(self, undo: Event) -> Event:
        """The undo of an undo (or of that): restores the state before it."""
        assert undo.undoes is not None
        e = self.events[undo.undoes]
        about = [u for u in self.events if u.undoes == undo.undoes]
        if e.method == "rehash":
            raise RefusedError("MF032")
        if undo is not about[-1]:
            raise RefusedError("MF033")
        before = about[-2].action if len(about) > 1 else "restored"
        if before == "undone":
            return self.undo(e.number)
        if e.fold and self.is_beneath(e.fold[1], e.fold[0]):
            raise RefusedError("MF032")
        event = self.record(Event("restored", e.memory, target=e.target, undoes=e.number))
        if e.fold:
            self.told_together(e)
        self.take_over_rehashed()
        return event

    def told_together(self, e: Event) -> None:
        """The record that the texts of an undone merge are distinct no longer counts."""
        assert e.fold is not None
        for mark in [p for p in self.parted if p[:2] == (e.run or e.number, e.fold[0])]:
            number = self.parted.pop(mark)
            _, child, top = mark
            for j in self.judgements if number is None else [self.judgements[number]]:
                if (j.memory, j.other, j.state, j.verdict, j.kind) == (
                    child,
                    top,
                    "done",
                    "distinct",
                    "review",
                ):
                    j.state = "obsolete"
