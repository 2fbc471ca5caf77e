"""Ingest a candidate, make a vector with a given cosine, read a memory, look for broken invariants."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from tests.support.queries import DB, one

DIMENSIONS = 4


@dataclass(frozen=True)
class Result:
    """A row of ingest_memory."""

    action: str
    memory_id: UUID | None
    tier: int | None
    method: str | None
    similarity: Any
    superseded_id: UUID | None
    judgement_id: UUID | None
    event_id: UUID | None
    similar: Any


def ingest(db: DB, content: str | None, *, function: str = "ingest_memory", **arguments: Any) -> Result:
    """Call ingest_memory (or preview_memory) with named arguments; tenant acme unless told."""
    arguments = {"content": content, "tenant_id": "acme", **arguments}
    if isinstance(arguments.get("metadata"), dict | list):
        arguments["metadata"] = json.dumps(arguments["metadata"])
    names = ", ".join(f"{name} => %s" for name in arguments)
    row = db.execute(f"select * from memfold.{function}({names})", list(arguments.values())).fetchone()
    assert row is not None
    return Result(*row)


def model(db: DB, name: str = "m") -> None:
    """Register an embedding model of four dimensions."""
    db.execute("select memfold.register_embedding_model(%s, %s, 0.92, 0.85)", [name, DIMENSIONS])


def vector(cosine: float, axis: int = 1, name: str = "m") -> dict[str, str]:
    """A vector with this cosine to the first axis, leaning towards another one, as arguments of ingest."""
    values = [0.0] * DIMENSIONS
    values[0] = cosine
    values[axis] = math.sqrt(max(0.0, 1 - cosine * cosine))
    return {"embedding": json.dumps(values), "embedding_model": name}


def counters(db: DB, memory_id: UUID | None) -> dict[str, Any]:
    """The row of memory_totals of a memory."""
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute(
            "select * from memfold.memory_totals where memory_id = %s", [memory_id]
        ).fetchone()
    assert row is not None
    return row


# check_invariants() of a few memories takes 12 ms of CPU, 8 of them to plan by its arguments.
GENERIC_PLANS = "set plan_cache_mode = force_generic_plan"


def broken_invariants(db: DB) -> list[Any]:
    """What check_invariants() says, in all tenants."""
    tenants = [row[0] for row in db.execute("select distinct tenant_id from memfold.memories").fetchall()]
    db.execute(GENERIC_PLANS)
    found = [
        row
        for tenant in tenants
        for row in db.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
    ]
    db.execute("reset plan_cache_mode")
    return found


def check(db: DB) -> None:
    """No invariant is broken, in any tenant."""
    found = broken_invariants(db)
    assert found == [], found[:6]


def status(db: DB, memory: Result | UUID | None) -> str:
    """The status of a memory."""
    memory_id = memory.memory_id if isinstance(memory, Result) else memory
    return str(one(db, "select status from memfold.memories where memory_id = %s", memory_id))


def statuses(db: DB, *memories: Result) -> list[str]:
    """The statuses of memories."""
    return [status(db, m) for m in memories]


def confidence(db: DB, memory: Result) -> Any:
    """The repetitions of a memory, all and independent ones, and its confidence."""
    return one(
        db,
        "select repetition_count, independent_repetitions, confidence from memfold.memory_audit"
        " where memory_id = %s",
        memory.memory_id,
    )


def inside(cosine: float, *edges: float) -> float:
    """Slightly above a threshold to be reached: four-byte vectors do not hold each cosine to the last digit."""
    return cosine + 1e-6 if cosine in edges else cosine
