"""Shared code of the tests: ingest a candidate, make a vector with a given cosine, look for broken invariants."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

DB = psycopg.Connection[Any]
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


def until(condition: Callable[[], object], what: str, seconds: float = 60, pause: float = 0.01) -> None:
    """Wait until it is so; fails and says what did not come about otherwise."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(pause)


def one(db: DB, query: str, *arguments: Any) -> Any:
    """The only value of a query's first row, or that row."""
    row = db.execute(query.encode(), list(arguments)).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


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
    db.execute("select memfold.register_embedding_model(%s, %s)", [name, DIMENSIONS])


def vector(cosine: float, axis: int = 1, name: str = "m") -> dict[str, str]:
    """A vector with this cosine to the first axis, leaning towards another one, as arguments of ingest."""
    values = [0.0] * DIMENSIONS
    values[0] = cosine
    values[axis] = math.sqrt(max(0.0, 1 - cosine * cosine))
    return {"embedding": json.dumps(values), "embedding_model": name}


def counters(db: DB, memory_id: UUID | None) -> dict[str, Any]:
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


def answer(db: DB, verdict: str, confidence: float, **named: Any) -> Any:
    """Answer the one open judgement, as a model: (status, verdict, action, memory_id, event_id)."""
    names = "".join(f", {name} => %s" for name in named)
    row = db.execute(
        "select * from memfold.resolve_judgement((select judgement_id from memfold.judgements"
        " where tenant_id = 'acme' and status in ('open', 'leased')), %s, confidence => %s,"
        f" model => 'a judge', tenant_id => 'acme'{names})".encode(),
        [verdict, confidence, *named.values()],
    ).fetchone()
    assert row is not None
    return row


def status(db: DB, memory: Result | UUID | None) -> str:
    memory_id = memory.memory_id if isinstance(memory, Result) else memory
    row = db.execute("select status from memfold.memories where memory_id = %s", [memory_id]).fetchone()
    assert row is not None
    return str(row[0])


def statuses(db: DB, *memories: Result) -> list[str]:
    return [status(db, m) for m in memories]


def confidence(db: DB, memory: Result) -> Any:
    row = db.execute(
        "select repetition_count, independent_repetitions, confidence from memfold.memory_audit"
        " where memory_id = %s",
        [memory.memory_id],
    ).fetchone()
    assert row is not None
    return row


def inside(cosine: float, *edges: float) -> float:
    """A hair above an edge that is to be met: a vector of four-byte numbers does not hold each cosine to the last digit."""
    return cosine + 1e-6 if cosine in edges else cosine


def track_functions(db: DB) -> None:
    """Count the calls of PL/pgSQL functions in this session (function_calls)."""
    db.execute("set track_functions = 'pl'")
    db.execute("set stats_fetch_consistency = none")


def function_calls(db: DB, function: str) -> int:
    """How often this session has called it, since track_functions."""
    row = db.execute(
        "select coalesce(sum(f.calls), 0)::bigint from (select calls, funcname from pg_stat_user_functions"
        " union all select calls, funcname from pg_stat_xact_user_functions) as f where f.funcname = %s",
        [function],
    ).fetchone()
    assert row is not None
    return int(row[0])


def set_columns(
    db: psycopg.Connection[Any], table: str, bucket: str = "*", tenant: str = "acme", **values: Any
) -> None:
    """Write what only presets set: columns of policies or options for which their functions have no argument."""
    function = {"policies": "set_policy", "options": "set_options"}[table]
    db.execute(f"select memfold.{function}(%s, %s)".encode(), [tenant, bucket])
    columns = ", ".join(f"{name} = %s" for name in values)
    key = "(tenant_id, bucket_id, memory_type) = (%s, %s, '*')"
    db.execute(
        f"update memfold.{table} set {columns} where {key}".encode(), [*values.values(), tenant, bucket]
    )
