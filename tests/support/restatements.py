"""Restatements of one text: their counts, and the steps of a random history of them."""

from __future__ import annotations

import random
from uuid import UUID

from psycopg.types.json import Jsonb

from tests.support.ledger import undo
from tests.support.memories import counters, ingest
from tests.support.queries import DB, one

HOT = "User likes tea"
TURNS = [None, "a", "b", "c", "d", "e", "f", "g", "h"]


def says(db: DB, memory_id: UUID | None) -> tuple[int, int]:
    """How often a memory was observed, and how often independently."""
    found = counters(db, memory_id)
    return found["observations"], found["independent"]


def merge(db: DB, memory_id: UUID | None, into: UUID | None) -> UUID:
    """Merge two memories; the event."""
    event: UUID = one(db, "select (merge_memories(%s, %s, 'acme')).event_id", memory_id, into)
    return event


def first_events(db: DB, memory_id: UUID | None) -> dict[str, UUID]:
    """By turn, the event that brought it to a memory."""
    return dict(
        db.execute(
            "select source_turn_id, event_id from memfold.memory_sources where memory_id = %s", [memory_id]
        ).fetchall()
    )


def windows(rng: random.Random) -> list[str]:
    """The turns of one observation: none, one, or several."""
    return sorted({turn for turn in rng.choices(TURNS, k=rng.choice((1, 1, 2, 3))) if turn is not None})


def restate(db: DB, rng: random.Random, texts: list[str]) -> None:
    """A step: one of the texts again."""
    given = {"metadata": {rng.choice("xy"): rng.randrange(9)}} if rng.random() < 0.1 else {}
    ingest(db, rng.choice(texts), source_turn_ids=windows(rng), source_confidence=rng.random(), **given)


def restate_many(db: DB, rng: random.Random, texts: list[str]) -> None:
    """A step: several of the texts again, in one call."""
    rows = [
        {"tenant_id": "acme", "content": rng.choice(texts), "source_turn_ids": windows(rng)}
        for _ in range(rng.randrange(2, 12))
    ]
    db.execute("select ingest_memories(%s, 'acme')", [Jsonb(rows)])


def fold_two(db: DB, rng: random.Random, _: list[str]) -> None:
    """A step: merge two memories."""
    roots = [r[0] for r in db.execute("select memory_id from memfold.memories where status = 'active'")]
    if len(roots) > 1:
        merge(db, *rng.sample(sorted(roots), 2))


UNDOABLE = """
select e.event_id from memfold.ledger as e
where memfold_internal._is_undoable(e.action, e.tier, e.observation) and not e.undone order by 1
"""


def take_back(db: DB, rng: random.Random, _: list[str]) -> None:
    """A step: undo an event."""
    events = [r[0] for r in db.execute(UNDOABLE)]
    if events:
        undo(db, rng.choice(events))
