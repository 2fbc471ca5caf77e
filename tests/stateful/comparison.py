"""Compares the database with the model after each step."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.reference_model.records import Event, RefusedError
from tests.stateful.counts import COUNTS
from tests.stateful.tenant import EVENT, Tenant

# check_invariants() takes as long as all the rest: it looks at every fifth step and at the end of each sequence.
CHECK_EVERY = 5


class Comparison(Tenant):
    """Lets the model do what the database did, and compares their complete states."""

    def step(self, said: Any, expect: Any) -> None:
        """Let the model do the same, then compare everything."""
        self.read(len(self.script) % CHECK_EVERY == 0)
        events = self.new_events()
        for event in events:
            if event.of_rehash:
                COUNTS[f"a rehash: {event.action}"] += 1
        first = next((i for i, event in enumerate(events) if not event.of_rehash), len(events))
        self.world.rehashed = events[:first]
        try:
            # in a rehash, a text in the way of a new one is moved before anything is decided
            self.world.take_over_rehashed()
            if first:
                self.take_over_hashes()
            self.world.rehashed = [event for event in events[first:] if event.of_rehash]
            answer = expect()
        except RefusedError as error:
            answer = error.args[0]
        except IndexError:
            # the model has rows that the database does not: the differences show them
            answer = {}
        except AssertionError as error:
            raise AssertionError(f"{self.told()}\nnot allowed by the model: {error}") from error
        differences = [f"a rehash has done what it may not: {event}" for event in self.world.rehashed]
        differences += self.compare()
        self.take_over_hashes()
        differences += self.world.misplaced()
        COUNTS["steps"] += 1
        self.count(said)
        self.script[-1] += f" -> {said if isinstance(said, str) else self.brief(said)}"
        if isinstance(answer, str) or isinstance(said, str):
            if answer != said:
                differences.append(f"the call: {said} from the database, {answer} from the model")
        else:
            differences += [
                f"the call's {key}: {said[key]} from the database, {value} from the model"
                for key, value in answer.items()
                if said[key] != value and not (key == "similarity" and self.close(said[key], value))
            ]
        if differences:
            raise AssertionError("\n".join([self.told(), "differences (database, model):", *differences]))

    def count(self, said: Any) -> None:
        name = self.script[-1].split("(")[0]
        if isinstance(said, str):
            COUNTS[f"{name}: {said}"] += 1
            return
        if any(one.get("guard") for one in said.get("similar") or []):
            COUNTS[f"guard raised: {said['action']}"] += 1
        what = [said.get(key) for key in ("status", "verdict", "action", "tier", "method")]
        COUNTS[f"{name}: {' '.join(str(w) for w in what if w is not None) or 'done'}"] += 1

    @staticmethod
    def close(a: Any, b: Any) -> bool:
        return a == b or (a is not None and b is not None and abs(a - b) < 3e-6)

    def ids(self, of: list[UUID], number: int | None) -> str | None:
        return None if number is None else str(of[number])

    def compare(self) -> list[str]:
        w, held = self.world, self.held
        self.memories = [UUID(row[0]) for row in held["memories"]]
        self.judgements = [UUID(row[0]) for row in held["judgements"]]
        self.events += [UUID(row[0]) for row in held["events"]]
        numbers = {
            str(id_): f"{letter}{i}"
            for letter, ids in (("m", self.memories), ("e", self.events), ("j", self.judgements))
            for i, id_ in enumerate(ids)
        }

        def n(id_: str | None) -> str | None:
            return None if id_ is None else numbers.get(id_, id_)

        def name(letter: str, number: int | None) -> str | None:
            return None if number is None else f"{letter}{number}"

        s = w.state
        actual: dict[str, Any] = {"invariants broken": held["invariants"]}
        expected: dict[str, Any] = {"invariants broken": []}
        for row in held["memories"]:
            id_, bucket, predicate, content, thing, status, into, root, metadata, pending, *counters = row[
                :-2
            ]
            live = row[-2]
            own = {"text": [bucket, predicate, content, thing], "status": status, "into": n(into), "root": n(root),
                   "pending": pending, "vector live": live}  # fmt: skip
            if root is None:
                own["metadata"], own["counters"] = metadata, counters
            actual[n(id_) or ""] = own
        for m in w.memories:
            root = s.root(m.number)
            own = {
                "text": [m.scope.bucket, m.scope.predicate, m.content, m.object],
                "status": s.status[m.number],
                "into": name("m", s.parent.get(m.number)),
                "root": name("m", root) if root != m.number else None,
                "pending": not m.embedded,
                "vector live": w.state.status[root] != "withdrawn" if m.embedded else None,
            }
            if root == m.number:
                k = s.counters[root]
                own["metadata"] = s.metadata[root]
                own["counters"] = [
                    root in s.on_timeline, k["aliases"], k["observations"],
                    k["independent"], k["source"], k["extractor"], k["first_seen"], k["last_seen"], list(k["valid"]),
                ]  # fmt: skip
            expected[f"m{m.number}"] = own
        actual["intervals"] = sorted([f, n(m), t] for f, m, t in held["intervals"])
        expected["intervals"] = sorted([f, f"m{m}", t] for f, m, t in s.intervals)
        actual["sources"] = sorted((n(m), t) for m, t in held["sources"])
        expected["sources"] = sorted((f"m{m}", t) for m, t in s.sources)
        actual["judgements"] = [
            [n(j), kind, n(m), n(o), state, verdict, similarity and round(similarity + 3e-5, 4)]
            for j, kind, m, o, state, verdict, similarity in held["judgements"]
        ]
        expected["judgements"] = [
            [
                f"j{j.number}",
                j.kind,
                f"m{j.memory}",
                f"m{j.other}",
                j.state,
                j.verdict,
                j.similarity and round(j.similarity + 3e-5, 4),
            ]
            for j in w.judgements
        ]
        for row in held["events"]:
            values = dict(zip(EVENT, row[1:], strict=True))
            del values["run"]
            values["turns"].sort()
            values["similar"] = self.told_of(
                [
                    (
                        n(x["memory_id"]),
                        x.get("similarity"),
                        n(x.get("matched_id")),
                        x.get("matched_similarity"),
                    )
                    for x in values["similar"] or []
                ]
            )
            for key in ("memory", "target", "judgement", "undoes"):
                values[key] = n(values[key])
            actual[n(row[0]) or ""] = values
        for e in w.events[len(self.events) - len(held["events"]) :]:
            expected[f"e{e.number}"] = {
                "action": e.action, "memory": name("m", e.memory), "tier": e.tier, "method": e.method,
                "target": name("m", e.target), "similarity": e.similarity, "reason": e.reason,
                "observation": e.observation, "judgement": name("j", e.judgement),
                "verdict": e.verdict, "undoes": name("e", e.undoes), "content": e.content, "turns": sorted(e.turns),
                "source": e.source, "extractor": e.extractor, "metadata": None if e.source is None else e.metadata,
                "at": e.at, "valid": list(e.valid),
                "similar": self.told_of([(name("m", a), b, name("m", c), d) for a, b, c, d in e.similar]),
            }  # fmt: skip
        return list(self.differences("", actual, expected))

    @staticmethod
    def told_of(similar: list[tuple[Any, ...]]) -> dict[str, Any]:
        """The reported similar memories, by id, in the form in which they are compared."""
        return {x[0]: {"own similarity": x[1], "matched": x[2], "matched similarity": x[3]} for x in similar}

    def differences(self, where: str, a: Any, b: Any) -> Any:
        if isinstance(a, dict) and isinstance(b, dict) and "metadata" not in where:
            for key in sorted({*a, *b}):
                yield from self.differences(f"{where} {key}", a.get(key), b.get(key))
        elif a != b and not (where.endswith("similarity") and self.close(a, b)):
            yield f" {where}: {a}, {b}"

    def answer(self, event: Event) -> dict[str, Any]:
        """The results of ingest, attach and manual actions."""
        held: int | None = None if event.memory is None else self.world.state.root(event.memory)
        if event.action == "embedded":
            held = event.memory
        ids = [UUID(row[0]) for row in self.held["memories"]]
        judgements = [row[0] for row in self.held["judgements"]]
        return {
            "action": event.action, "tier": event.tier, "method": event.method, "similarity": event.similarity,
            "memory_id": self.ids(ids, held),
            "judgement_id": None if event.judgement is None else judgements[event.judgement],
            "superseded_id": self.ids(ids, event.target) if event.action == "superseded" else None,
        }  # fmt: skip
