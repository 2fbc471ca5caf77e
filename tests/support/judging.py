"""Shared code of the tests of tier 3: claim, answer, fail, ask a question, let time pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.memories import Result, ingest, vector
from tests.support.queries import DB, one


@dataclass(frozen=True)
class Claimed:
    """A row of claim_judgements."""

    tenant_id: str
    judgement_id: UUID
    bucket_id: str
    kind: str
    similarity: float | None
    guard: list[str] | None
    attempts: int
    leased_until: datetime
    memory: dict[str, Any]
    other: dict[str, Any]
    members: list[dict[str, Any]] | None = None
    link: dict[str, Any] | None = None


@dataclass(frozen=True)
class Resolution:
    """A row of resolve_judgement."""

    status: str
    verdict: str | None
    action: str | None
    memory_id: UUID | None
    event_id: UUID | None
    run_id: UUID | None = None


def call(db: DB, function: str, /, *arguments: Any, **named: Any) -> list[tuple[Any, ...]]:
    """The rows that a function returns."""
    places = ["%s"] * len(arguments) + [f"{name} => %s" for name in named]
    return db.execute(
        f"select * from memfold.{function}({', '.join(places)})", [*arguments, *named.values()]
    ).fetchall()


def claim(db: DB, worker: str = "w", **arguments: Any) -> list[Claimed]:
    """Claim judgements as this worker."""
    return [Claimed(*row) for row in call(db, "claim_judgements", worker, **arguments)]


def resolve(db: DB, judgement_id: UUID | None, verdict: str | None, **arguments: Any) -> Resolution:
    """Answer a judgement."""
    return Resolution(
        *call(db, "resolve_judgement", judgement_id, verdict, **{"tenant_id": "acme", **arguments})[0]
    )


def fail(db: DB, judgement_id: UUID, error: str = "timeout", **arguments: Any) -> str:
    """Report that a judgement failed; its status afterwards."""
    found: str = call(db, "fail_judgement", judgement_id, error, **{"tenant_id": "acme", **arguments})[0][0]
    return found


def guard(db: DB, a: str, b: str, tenant_id: str = "acme") -> list[str]:
    """Signals of the guard for two texts."""
    return list(one(db, "select memfold_internal._guard(%s, %s, %s)", tenant_id, a, b))


def ask(db: DB, a: Result, b: Result, kind: str = "write", tenant: str = "acme") -> UUID:
    """Queue the question about a pair, as consolidation will."""
    found: UUID = one(
        db,
        "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id, similarity)"
        " select tenant_id, bucket_id, scope_key, %s, greatest(%s::uuid, %s), least(%s::uuid, %s), 0.8"
        " from memories where tenant_id = %s and memory_id = %s returning judgement_id",
        *[kind, a.memory_id, b.memory_id, a.memory_id, b.memory_id, tenant, a.memory_id],
    )
    return found


def pair(
    db: DB, older: str = "User likes tea", newer: str = "User enjoys tea", **more: Any
) -> tuple[Result, Result]:
    """Two memories of one scope with a cosine of 0.9, and the judgement about them."""
    a = ingest(db, older, **{**vector(1.0), **more})
    b = ingest(db, newer, **{**vector(0.9), **more})
    assert (b.action, b.judgement_id is not None) == ("escalated", True)
    return a, b


def state(db: DB, judgement_id: UUID | None) -> Any:
    """Status, verdict and attempts of a judgement."""
    return one(db, "select status, verdict, attempts from judgements where judgement_id = %s", judgement_id)


def event(db: DB, event_id: UUID | None) -> Any:
    """A row of the ledger, without its times."""
    return one(
        db,
        "select action, tier, method, memory_id, target_id, verdict, judgement_id, observation from memory_events"
        " where event_id = %s",
        event_id,
    )


def elapse(db: DB, interval: str) -> None:
    """Let time pass for every judgement."""
    db.execute(
        "update judgements set next_attempt_at = next_attempt_at - %s::interval,"
        " leased_until = leased_until - %s::interval, created_at = created_at - %s::interval",
        [interval] * 3,
    )


def flood(db: DB, tenant: str, size: int) -> list[UUID]:
    """Judgements about pairs of a few memories; their ids in order."""
    for i in range(20):
        if i * (i - 1) // 2 < size:
            ingest(db, f"{tenant} says {'so ' * i}", tenant_id=tenant)
    db.execute(
        "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id)"
        " select a.tenant_id, a.bucket_id, a.scope_key, 'write', a.memory_id, b.memory_id"
        " from memories a join memories b on a.tenant_id = b.tenant_id and a.memory_id > b.memory_id"
        " where a.tenant_id = %s order by a.memory_id, b.memory_id limit %s",
        [tenant, size],
    )
    found = db.execute(
        "select judgement_id from judgements where tenant_id = %s order by judgement_id", [tenant]
    ).fetchall()
    assert len(found) == size
    return [row[0] for row in found]


def raises(code: str, action: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """The call is refused with this code, a detail and a hint."""
    with pytest.raises(psycopg.Error) as error:
        action(*arguments, **named)
    assert error.value.sqlstate == code
    assert error.value.diag.message_detail
    assert error.value.diag.message_hint


def answer(db: DB, verdict: str, confidence: float, **named: Any) -> Any:
    """Answer the one open judgement, as a model: (status, verdict, action, memory_id, event_id)."""
    names = "".join(f", {name} => %s" for name in named)
    return one(
        db,
        "select * from memfold.resolve_judgement((select judgement_id from memfold.judgements"
        " where tenant_id = 'acme' and status in ('open', 'leased')), %s, confidence => %s,"
        f" model => 'a judge', tenant_id => 'acme'{names})",
        verdict,
        confidence,
        *named.values(),
    )
