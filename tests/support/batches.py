"""Candidates in one call of ingest_memories, and all rows of a tenant, to compare with single calls."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.support.queries import DB

COLUMNS = (
    "action", "memory_id", "tier", "method", "similarity", "superseded_id", "judgement_id", "event_id", "similar",
)  # fmt: skip
ERRORS = ("sqlstate", "error", "detail", "hint")
Candidate = dict[str, Any]
STATE = {
    "memories": "select m.* from memories m where m.tenant_id = %s order by memory_id",
    "counters": "select k.* from memory_totals k where k.tenant_id = %s and k.observations > 0"
    " order by memory_id",
    "vectors": "select v.* from memory_vectors v where v.tenant_id = %s order by memory_id, model",
    "sources": "select s.source_turn_id, s.memory_id from memory_sources s where s.tenant_id = %s order by 1, 2",
    "intervals": "select i.* from memory_intervals i where i.tenant_id = %s"
    " order by slot_key, valid_from, memory_id",
    "ledger": "select e.* from memory_events e where e.tenant_id = %s order by event_id",
    "judgements": "select j.* from judgements j where j.tenant_id = %s order by judgement_id",
    "keys": "select k.* from idempotency_keys k where k.tenant_id = %s order by bucket_id,"
    " idempotency_key",
}  # fmt: skip
# Read from the clock rather than from the transaction.
CLOCK = ("recorded_at", "resolved_at")


class Names:
    """The ids of a tenant, by kind, in order."""

    def __init__(self, db: DB, tenant: str) -> None:
        self.names: dict[str, str] = {tenant: "tenant"}
        for kind, query in {
            "memory": "select memory_id from memories where tenant_id = %s order by 1",
            "event": "select event_id from memory_events where tenant_id = %s order by 1",
            "judgement": "select judgement_id from judgements where tenant_id = %s order by 1",
        }.items():
            for i, (found,) in enumerate(db.execute(query, [tenant]).fetchall()):
                self.names[str(found)] = f"{kind} {i}"

    def __call__(self, value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return self.names.get(str(value), str(value))
        if isinstance(value, list):
            return [self(item) for item in value]
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, str):
            # whose key it is: an event, or a candidate of the batch
            value = re.sub(r"(was used by) [^;]*;", r"\1 another;", value)
            return self.names.get(value, value)
        return value


def state(db: DB, tenant: str) -> dict[str, list[Any]]:
    """Every row of a tenant. (When a ledger row was written is all that may differ.)"""
    names = Names(db, tenant)
    found: dict[str, list[Any]] = {}
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        for part, query in STATE.items():
            rows = cursor.execute(query.encode(), [tenant]).fetchall()
            found[part] = [names({key: row[key] for key in row if key not in CLOCK}) for row in rows]
    for row in found["judgements"]:
        # what an undo tells apart has a mark, a hash of ids
        if row["cluster_id"] is not None and not str(row["cluster_id"]).startswith("judgement"):
            row["cluster_id"] = "a mark"
    return found


def at_once(
    db: DB, tenant: str, candidates: list[Candidate], apart: bool = False, on_error: str = "report"
) -> list[list[Any]]:
    """apart: vectors by the parameter embeddings, not in the candidates."""
    columns = ", ".join(f'"{name}"' for name in ("ordinal", *COLUMNS, *ERRORS))
    vectors: list[str | None] | None = None
    if apart:
        vectors = [json.dumps(one["embedding"]) if one.get("embedding") else None for one in candidates]
        candidates = [{key: one[key] for key in one if key != "embedding"} for one in candidates]
    rows = db.execute(
        f"select {columns} from ingest_memories(%s, %s, %s, %s::vector[])".encode(),
        [Jsonb(candidates), tenant, on_error, vectors],
    ).fetchall()
    assert [row[0] for row in rows] == list(range(len(candidates)))
    return [list(row[1:]) for row in rows]
