"""A client's record of its calls, kept outside the database."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from memfold.client import errors
from tests.support.queries import DB

TURN = "turn-"
AGAIN = {"40001", "40P01"}
# refusals that a call may meet because somebody else was faster: nothing was written
REFUSED = {"MF019", "MF026", "MF027", "MF032", "MF033", "MF039", "55P03"}


@dataclass
class Call:
    """One transaction of a writer: its calls, and what the writer knows about its outcome."""

    kind: str
    tenant: str
    items: list[dict[str, Any]]
    keyed: bool
    marks: list[str]
    sent: float = 0.0
    acked: float = 0.0
    state: str = "new"
    """new, doubt (sent, no answer), acked, or what the audit found of one in doubt without a key: found, never."""
    events: list[UUID] = field(default_factory=list)
    doubts: int = 0
    agains: int = 0

    @property
    def is_acked(self) -> bool:
        return self.state == "acked"


@dataclass
class Deed:
    """One call of a judge or of maintenance: the call, whether it was acknowledged, and how to find it."""

    kind: str
    tenant: str
    subject: Any
    state: str = "new"
    answer: Any = None
    agains: int = 0


def lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost with it: then the outcome is unknown."""
    return errors.is_connection_lost(error)


def ingest_one(db: DB, item: dict[str, Any]) -> UUID:
    names = ", ".join(f"{name} => %({name})s" for name in item)
    row = db.execute(f"select event_id from memfold.ingest_memory({names})".encode(), item).fetchone()
    assert row is not None
    event_id: UUID = row[0]
    return event_id


def batch_events(rows: list[Any]) -> list[UUID]:
    refused = [row for row in rows if row[2] is not None]
    assert refused == [], f"a batch was refused: {refused[:3]}"
    return [row[1] for row in rows]


def execute(db: DB, call: Call) -> list[UUID]:
    """Execute a call, in one transaction; returns the ledger rows that it reports."""
    tenant = call.tenant
    match call.kind:
        case "single":
            return [ingest_one(db, call.items[0])]
        case "together":
            with db.transaction():
                return [ingest_one(db, item) for item in call.items]
        case "batch":
            plain = [{k: v for k, v in item.items() if k != "tenant_id"} for item in call.items]
            return batch_events(
                db.execute(
                    "select ordinal, event_id, sqlstate, error from memfold.ingest_memories(%s, %s) order by 1",
                    [json.dumps(plain), tenant],
                ).fetchall()
            )
        case "vectors apart":
            plain = [
                {k: v for k, v in item.items() if k not in ("tenant_id", "embedding")} for item in call.items
            ]
            return batch_events(
                db.execute(
                    "select ordinal, event_id, sqlstate, error"
                    " from memfold.ingest_memories(%s, %s, embeddings => %s::vector[]) order by 1",
                    [json.dumps(plain), tenant, [item.get("embedding") for item in call.items]],
                ).fetchall()
            )
    raise AssertionError(call.kind)
