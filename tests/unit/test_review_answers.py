"""Which memory stands after an answer that a person gives again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from memfold.client.judging import Side
from memfold.tools.review.answers import answer_manually, describe_outcome

DAYS = [datetime(2026, 5, day, tzinfo=UTC) for day in (1, 2)]


@pytest.mark.parametrize(
    ("seen", "stands"),
    [([0, 1], 1), ([1, 0], 0), ([0, 0], 1), ([None, 0], 1), ([0, None], 1), ([1, 1, 0], 1)],
    ids=["later", "earlier", "equal", "first_unknown", "second_unknown", "equal_then_earlier"],
)
def test_the_most_recent_statement_wins_a_contradiction(seen: list[int | None], stands: int) -> None:
    """Of two stated at the same time, the newer memory does."""
    sides = [
        Side(UUID(int=n), f"text {n}", "fact", last_seen=None if day is None else DAYS[day])
        for n, day in enumerate(seen)
    ]
    retired = []

    class Core:
        def manual_action(self, function: str, given: dict[str, Any], tenant_id: str) -> Iterator[Any]:
            retired.append(given["memory_id"].int)
            return SimpleNamespace(action="superseded", event_id=None)
            yield

    steps = answer_manually(Core(), SimpleNamespace(tenant_id="acme"), "contradiction", None, sides)  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value.memory_id == UUID(int=stands)
    assert retired == [n for n in range(len(seen)) if n != stands]


def test_a_rejected_pair_keeps_the_older_memory() -> None:
    """The bucket refuses what was stated, not what it had (on_merge reject)."""
    sides = [Side(UUID(int=n), f"text {n}", "fact") for n in range(2)]
    question: Any = SimpleNamespace(kind="write", names=None, members=(), sides=sides)
    told = describe_outcome(question, "duplicate", "rejected", UUID(int=0))
    assert told == "duplicate: rejected, the bucket keeps A and refuses B"
