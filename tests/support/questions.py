"""A question to a judge, and a good answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from memfold.client.judging import Question, Side
from tests.support.chat_server import Json

OLDER = UUID("01900000-0000-7000-8000-000000000001")
NEWER = UUID("01900000-0000-7000-8000-000000000002")
JUDGEMENT = UUID("01900000-0000-7000-8000-000000000003")


def side(memory_id: UUID = NEWER, content: str = "The user lives in Berlin", **fields: Any) -> Side:
    """A memory as a judge sees it."""
    return replace(
        Side(
            memory_id=memory_id,
            content=content,
            memory_type="fact",
            subject="user",
            predicate="likes",
            first_seen=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            last_seen=datetime(2026, 1, 3, tzinfo=UTC),
            observations=2,
            sources=1,
            origin="observed",
            session_id="s-1",
            source_turn_ids=("t-1", "t-2"),
        ),
        **fields,
    )


def question(
    older: str = "The user lives in Berlin", newer: str = "The user lives in Berlin!", **fields: Any
) -> Question:
    """A question about two texts."""
    return replace(
        Question(
            judgement_id=JUDGEMENT,
            tenant_id="acme",
            bucket_id="default",
            kind="write",
            similarity=0.9,
            guard=("number",),
            attempts=1,
            memory=side(NEWER, newer),
            other=side(OLDER, older),
        ),
        **fields,
    )


GOOD: Json = {
    "reason": "said so",
    "verdict": "duplicate",
    "confidence": 0.9,
    "richer": None,
    "merged_text": None,
}
