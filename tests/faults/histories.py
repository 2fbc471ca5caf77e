"""What clients called and were answered, and whether some order of the calls explains every answer.

The rules here are written from docs/rules.md for one text at a time, and share nothing with the SQL: a text is stated,
rejected, read, and each of these but the reading may be undone. A call takes effect once, at some moment between its
beginning and its answer; one whose answer was lost, at some moment after its beginning, or never. (Linearizability, as
Wing and Gong search for it: J. Parallel Distrib. Comput. 17, 1993.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LOST = "lost"
"""The answer of a call that may have happened, or not."""
NEVER = float("inf")


@dataclass(frozen=True)
class Call:
    """One call about a text. ``of``: for an undo, the number of the call that it undoes."""

    number: int
    what: str
    began: float
    ended: float
    answer: Any
    of: int | None = None


@dataclass(frozen=True)
class Deed:
    """A call's event that can be undone, and its undos, each of which reverses the one before."""

    call: int
    what: str
    undos: tuple[int, ...] = ()

    @property
    def holds(self) -> bool:
        return len(self.undos) % 2 == 0


@dataclass(frozen=True)
class Fact:
    """The state of a text."""

    deeds: frozenset[Deed] = frozenset()

    @property
    def statements(self) -> int:
        return sum(deed.what != "rejected" and deed.holds for deed in self.deeds)

    @property
    def status(self) -> str | None:
        if any(deed.what == "rejected" and deed.holds for deed in self.deeds):
            return "rejected"
        return "active" if self.deeds else None

    def after(self, call: Call) -> tuple[Any, Fact]:
        """The answer of a call, and the state after it."""
        match call.what, self.status:
            case "read", status:
                return (status, self.statements), self
            case "state", "rejected":
                return "rejected", self
            case "state", None:
                return "inserted", self._with(Deed(call.number, "stated first"))
            case "state", _:
                return "merged", self._with(Deed(call.number, "stated again"))
            case "reject", "active":
                return "rejected", self._with(Deed(call.number, "rejected"))
            case "reject", _:
                return "MF034", self
        deed = next((d for d in self.deeds if call.of == d.call or call.of in d.undos), None)
        if deed is None:
            return "MF029", self
        if deed.what == "stated first":
            return "MF032", self
        # an event must be in force; only the last of its undos can be undone
        if not deed.holds if call.of == deed.call else call.of != deed.undos[-1]:
            return "MF033", self
        return "undone", Fact(self.deeds - {deed})._with(
            Deed(deed.call, deed.what, (*deed.undos, call.number))
        )

    def _with(self, deed: Deed) -> Fact:
        return Fact(self.deeds | {deed})


@dataclass
class Verdict:
    """Whether there is such an order; if not, the longest partial one, and the calls that it leaves out."""

    explained: bool
    order: list[Call] = field(default_factory=list)
    left: list[Call] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"  {c.number}: {c.what}{'' if c.of is None else f' {c.of}'} -> {c.answer}" for c in self.order
        ]
        return "\n".join(["in order:", *lines, "and then none of:", *(f"  {c}" for c in self.left)])


def explain(calls: Iterable[Call]) -> Verdict:
    """Search for an order of the calls about one text that explains every answer."""
    given = sorted(calls, key=lambda c: c.began)
    must = frozenset(c.number for c in given if c.answer != LOST)
    seen: set[tuple[frozenset[int], Fact]] = set()
    best: list[Call] = []
    stack: list[tuple[frozenset[int], Fact, list[Call]]] = [(frozenset(), Fact(), [])]
    while stack:
        done, fact, order = stack.pop()
        if len(order) > len(best):
            best = order
        if must <= done:
            return Verdict(True, order)
        left = [c for c in given if c.number not in done]
        # a call that began after another was answered does not come before it
        first_answer = min((c.ended for c in left), default=NEVER)
        for call in left:
            if call.began > first_answer:
                break
            answer, then = fact.after(call)
            if call.answer not in (LOST, answer):
                continue
            key = (done | {call.number}, then)
            if key not in seen:
                seen.add(key)
                stack.append((*key, [*order, call]))
    return Verdict(False, best, [c for c in given if c not in best])
