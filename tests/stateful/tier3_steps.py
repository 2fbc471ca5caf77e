"""Steps of judges and of people: answers, manual actions, undo."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.reference_model.records import undone
from tests.stateful.counts import COUNTS
from tests.stateful.ingest_steps import TEXT, IngestSteps

HOW = st.sampled_from(["one scope"] * 6 + ["any scope", "anything"])
VERDICTS: dict[str, Any] = {
    "verdict": st.sampled_from(["duplicate", "refinement", "contradiction", "contradiction", "distinct"]),
    "confidence": st.sampled_from([0.9, 0.75, 0.9, 0.9, 0.74]),
    "richer_memory_id": st.sampled_from([None, "memory", "other"]),
    "person": st.booleans(),
}


class Tier3Steps(IngestSteps):
    """Answers, manual actions, undo."""

    def resolve(
        self, judgement: int, verdict: str, confidence: float, richer_memory_id: str | None, person: bool
    ) -> None:
        j = self.world.judgements[judgement]
        says_more = None
        if verdict == "refinement" and richer_memory_id is not None:
            says_more = j.memory if richer_memory_id == "memory" else j.other
        said = self.call(
            "resolve_judgement", judgement_id=self.judgements[judgement], verdict=verdict, confidence=confidence,
            richer_memory_id=None if says_more is None else self.memories[says_more], model=None if person else "a model",
        )  # fmt: skip

        def expect() -> dict[str, Any]:
            state, event = self.world.resolve(
                judgement, verdict, confidence, says_more, "person" if person else "judge"
            )
            if event is None:
                return {"status": state, "action": None, "event_id": None}
            action = event.action
            if action == "judged" and len(self.world.judgements) > judgements:
                action = "escalated"
            answer = {"status": state, "verdict": event.verdict, "action": action}
            answer["event_id"] = self.held["events"][-1][0] if self.held["events"] else "none"
            if action in ("merged", "replaced", "superseded"):
                answer["memory_id"] = str(self.memories[self.world.state.root(event.memory or 0)])
            return answer

        judgements = len(self.world.judgements)
        self.step(said, expect)

    def asked_by_runs(self) -> set[int]:
        return {number for asked in self.asked.values() for number in asked}

    def decidable(self) -> list[int]:
        world = self.world
        return [
            j.number
            for j in world.judgements
            if j.state == "open"
            and j.number not in self.asked_by_runs()
            and world.live_pair(j.kind, world.state.root(j.memory), world.state.root(j.other))
        ]

    def open(self) -> list[int]:
        """Judgements of runs are answered by approve_run()."""
        return [
            j.number
            for j in self.world.judgements
            if j.state == "open" and j.number not in self.asked_by_runs()
        ]

    @precondition(lambda self: self.decidable())
    @rule(number=st.integers(0, 9), **VERDICTS)
    def judge(self, number: int, **given: Any) -> None:
        waiting = self.decidable()
        self.resolve(waiting[number % len(waiting)], **given)

    @precondition(lambda self: self.decidable())
    @rule(number=st.integers(0, 1), **VERDICTS)
    def judge_the_newest(self, number: int, **given: Any) -> None:
        waiting = self.decidable()[::-1]
        self.resolve(waiting[number % len(waiting)], **given)

    @precondition(lambda self: self.open())
    @rule(number=st.integers(0, 9), **VERDICTS)
    def judge_whatever_is_open(self, number: int, **given: Any) -> None:
        waiting = self.open()
        self.resolve(waiting[number % len(waiting)], **given)

    @precondition(lambda self: self.seldom() and any(j.state != "open" for j in self.world.judgements))
    @rule(number=st.integers(0, 9), **VERDICTS)
    def judge_once_more(self, number: int, **given: Any) -> None:
        closed = [j.number for j in self.world.judgements if j.state != "open"]
        self.resolve(closed[number % len(closed)], **given)

    @precondition(lambda self: len(self.world.memories) > 3)
    @rule(memory=st.integers(0, 29))
    def reject(self, memory: int) -> None:
        memory = self.choose(memory)
        said = self.call("reject_memory", memory_id=self.memories[memory])
        self.step(said, lambda: self.answer(self.world.reject(memory)))

    def two(self, memory: int, other: int, how: str) -> tuple[int, int]:
        """Two memories: of one scope, or of any."""
        memory = self.choose(memory)
        scope, root = self.world.memories[memory].scope, self.world.state.root
        near = [
            m.number
            for m in self.world.memories
            if how == "anything"
            or (
                root(m.number) != root(memory)
                and self.world.state.status[root(m.number)] in ("active", "superseded")
                and (m.scope is scope or how == "any scope")
            )
        ] or [memory]
        return memory, near[other % len(near)]

    @precondition(lambda self: len(self.world.memories) > 1)
    @rule(memory=st.integers(0, 29), other=st.integers(0, 9), how=HOW)
    def merge(self, memory: int, other: int, how: str) -> None:
        memory, other = self.two(memory, other, how)
        said = self.call("merge_memories", memory_id=self.memories[memory], into_id=self.memories[other])
        self.step(said, lambda: self.answer(self.world.merge(memory, other)))

    @precondition(lambda self: len(self.world.memories) > 1)
    @rule(memory=st.integers(0, 29), other=st.integers(0, 9), how=HOW)
    def supersede(self, memory: int, other: int, how: str) -> None:
        memory, other = self.two(memory, other, how)
        said = self.call("supersede_memory", memory_id=self.memories[memory], by_id=self.memories[other])
        self.step(
            said,
            lambda: self.answer(self.world.supersede(memory, other, self.stated_now)),
        )

    @precondition(lambda self: self.world.memories)
    @rule(memory=st.integers(0, 29), text=TEXT, embedded=st.booleans())
    def update(self, memory: int, text: int, embedded: bool) -> None:
        memory = self.choose(memory)
        scope = self.world.memories[memory].scope
        if text % 3:  # one that does not exist yet
            known = {m.text.content for m in self.world.memories if m.scope is scope}
            text = next((i for i in range(text, text + 10) if scope.texts[i % 10].content not in known), text)
        new = scope.texts[text % 10]
        said = self.call(
            "update_memory", memory_id=self.memories[memory], content=new.content, object=new.object,
            **({"embedding": str(list(new.vector)), "embedding_model": "m"} if embedded else {}),
        )  # fmt: skip
        self.step(said, lambda: self.answer(self.world.update(memory, new, new.object, embedded)))

    def take_back(self, number: int) -> None:
        said = self.call("undo", event_id=self.events[number])

        def expect() -> dict[str, Any]:
            self.world.undo(number)
            event, state = self.world.events[number], self.world.state
            COUNTS[f"undone: {event.action} {event.tier} {event.method}"] += 1
            for row in self.rows:
                memory = self.memories.index(UUID(row["memory_id"]))
                assert memory in (event.memory, event.target), (self.told(), row)
                assert row["status"] == state.status[memory], (self.told(), row, state.status[memory])
            # a rehash may place a text by it, in rows of its own behind it
            return {"event_id": self.held["events"][0][0] if self.held["events"] else "none"}

        self.step(said, expect)

    def undoable(self) -> list[int]:
        gone = undone(self.world.events)
        last = {e.undoes: e.number for e in self.world.events if e.undoes is not None and not e.of_rehash}
        return [
            e.number
            for e in self.world.events
            if e.number in last.values()
            or (
                e.number not in gone
                and e.method != "rehash"
                and e.action in ("merged", "replaced", "superseded", "historical", "rejected", "judged")
                and (e.tier != 1 or e.observation)
            )
        ]

    @precondition(lambda self: self.undoable())
    @rule(number=st.integers(0, 29))
    def undo(self, number: int) -> None:
        waiting = self.undoable()
        self.take_back(waiting[number % len(waiting)])

    @precondition(lambda self: self.undoable())
    @rule(number=st.integers(0, 5))
    def undo_the_newest(self, number: int) -> None:
        waiting = self.undoable()[::-1]
        self.take_back(waiting[number % len(waiting)])

    @precondition(lambda self: self.seldom())
    @rule(number=st.integers(0, 29))
    def undo_anything(self, number: int) -> None:
        self.take_back(number % len(self.world.events))
