"""Applies a person's answer, or undoes it, for the terminal and the page."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memfold.client import errors, queries
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Steps
from memfold.client.judging import Question, Side, Verdict
from memfold.client.judging.questions import LETTERS

VERDICTS: dict[str, Verdict] = {
    "d": "duplicate", "r": "refinement", "c": "contradiction", "k": "distinct", "o": "one", "m": "many",
}  # fmt: skip
"""Verdicts by the key that a person presses."""
REASON = "in review"
"""The actor in the ledger for decisions made here."""


@dataclass(frozen=True, slots=True)
class Manual:
    """The result of a decision about memories whose judgement is closed."""

    action: str | None
    memory_id: UUID | None
    event_ids: tuple[UUID, ...] = ()


def lettered(question: Question) -> dict[str, Side]:
    """The memories by their letters, oldest to newest: A, B, ..."""
    return dict(zip(LETTERS, question.sides, strict=False))


def describe_outcome(question: Question, verdict: Verdict, action: str | None, memory_id: UUID | None) -> str:
    """The effect of an answer, in one line."""
    if question.kind == "cardinality" and question.names is not None:
        value = "one value at a time" if verdict == "one" else "several values at a time"
        return f"{verdict}: {question.names.name} has {value}"
    if question.names is not None:
        said = "linked, A is stored in place of B" if action == "linked" else "both stay"
        return f"{verdict}: {said}"
    names = {side.memory_id: letter for letter, side in lettered(question).items()}
    holds = names.get(memory_id, str(memory_id)) if memory_id is not None else ""
    if question.members:
        said = {
            "merged": f"merged, {holds} stands for those named",
            "replaced": f"merged, {holds} stands for those named",
            "superseded": f"superseded, {holds} is current and the others named are history",
            "rejected": f"rejected, the bucket keeps {holds} and refuses the others named",
            "escalated": "queued for a person, as the policy says",
        }.get(action or "", "all are kept")
    else:
        said = {
            "merged": f"merged, {holds} stands for both",
            "replaced": f"merged, {holds} stands for both",
            "superseded": f"superseded, {holds} is current and the other is history",
            "rejected": "rejected, the bucket keeps A and refuses B",
            "escalated": "queued for a person, as the policy says",
        }.get(action or "", "both are kept")
    return f"{verdict}: {said}"


def describe_undone(question: Question) -> str:
    """The effect of undoing an answer about names, in one line."""
    if question.kind == "cardinality" and question.names is not None:
        return f"undone, nothing is declared about {question.names.name}"
    return "unlinked, the two names are kept apart"


def describe_closed(question: Question, status: str) -> str:
    """Why an answer was not applied, depending on the judgement's current status."""
    if status != "open":
        return (
            "there is nothing to decide any more" if question.names is None else "other links do not allow it"
        )
    if question.members:
        return "one of them has changed since; the question as it is now is queued"
    return "one of the two has changed since; the pair as it is now is queued"


def answer_manually(
    core: Core, question: Question, verdict: Verdict, richer_memory_id: UUID | None, about: Sequence[Side]
) -> Steps[Manual]:
    """Apply another answer for memories whose judgement is closed, by manual actions."""
    if verdict == "distinct":
        return Manual("judged", None)  # as they are after the undo
    winner = about[0]
    if verdict == "contradiction":
        function, other_id = queries.SUPERSEDE, "by_id"
        for side in about:
            if winner.last_seen is None or side.last_seen is None or side.last_seen >= winner.last_seen:
                winner = side
    else:
        function, other_id = queries.MERGE, "into_id"
        if verdict == "refinement":
            longest = max(about, key=lambda side: len(side.content))
            winner = next((side for side in about if side.memory_id == richer_memory_id), longest)
    events: list[UUID] = []
    action: str | None = None
    for loser in about:
        if loser is winner:
            continue
        given = {
            "memory_id": loser.memory_id,
            other_id: winner.memory_id,
            "reason": f"{verdict}, {REASON}",
        }
        result = yield from core.manual_action(function, given, question.tenant_id)
        action = result.action
        if result.event_id is not None:
            events.append(result.event_id)
    return Manual(action, winner.memory_id, tuple(events))


def unlink(core: Core, question: Question, run_id: UUID) -> Steps[None]:
    """Undo the link or the rule that an answer made: two names are distinct from then on."""
    given = {"run_id": run_id, "reason": REASON}
    with contextlib.suppress(errors.RunStateError):
        yield from core.undo(queries.UNDO_RUN, given, question.tenant_id)


def take_back(core: Core, question: Question, event_ids: Sequence[UUID]) -> Steps[None]:
    """Undo the events of an answer, most recent first; events that are already undone stay so."""
    for event_id in event_ids:
        with contextlib.suppress(errors.AlreadyUndoneError):
            given = {"event_id": event_id, "reason": REASON}
            yield from core.undo(queries.UNDO, given, question.tenant_id)
