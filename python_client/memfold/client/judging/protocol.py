"""Claim, ask, resolve, fail: the protocol that all judges share (the worker, a client, a person).

This module sends nothing. A ``Call`` is a statement to send; it omits arguments for which the server has a default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, LiteralString, TypeAlias
from uuid import UUID

from memfold.client import queries, tracing
from memfold.client._checks import check_text, checked_number
from memfold.client._retry import MAX_RETRY_AFTER
from memfold.client._text import sanitize_text
from memfold.client.judging.questions import Answer, Judge, JudgeError, Question, Verdict, clamp_usage
from memfold.client.types import JudgementStatus, Row

LONGEST_LEASE: Final = 86_400.0

Failed: TypeAlias = JudgementStatus | Literal["replaced"]
"""The status of a judgement after a failure, or what the policy did when it died."""


@dataclass(frozen=True, slots=True)
class Call:
    """A statement, and its arguments."""

    statement: LiteralString
    arguments: Mapping[str, Any]


def _call(function: str, arguments: Mapping[str, Any]) -> Call:
    return Call(queries.call(function, arguments), arguments)


def claim(
    worker: str,
    lease: float,
    *,
    tenant_id: str | None,
    most: int = 1,
    review: bool = False,
    judgement_ids: Sequence[UUID] | None = None,
) -> Call:
    """Claim waiting questions for this worker, with a lease in seconds. Without a tenant: of any tenant."""
    arguments: dict[str, Any] = {
        "worker": worker,
        "max_results": most,
        "lease": timedelta(seconds=min(lease, LONGEST_LEASE)),
        "review": review,
        "tenant_id": tenant_id,
    }
    if judgement_ids is not None:
        arguments["judgement_ids"] = list(judgement_ids)
    return _call(queries.CLAIM, arguments)


async def ask(judge: Judge, question: Question, seconds: float) -> Answer:
    """The judge's answer. Raises what the judge raises, or JudgeError after the timeout in seconds."""
    deadline = asyncio.timeout(seconds)
    try:
        with tracing.span("ask", **{"memfold.kind": question.kind}) as span:
            async with deadline:
                answer = await judge.judge(question)
            span.set_attributes({"memfold.verdict": answer.verdict})
            return answer
    except TimeoutError as error:
        if deadline.expired():
            shown = f"{seconds:.3g}" if seconds < 1000 else f"{seconds:.0f}"
            raise JudgeError(f"no answer within {shown} s", transient=True) from error
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the judge cancelled its own call") from error


def usage_arguments(judge: object, usage: object) -> dict[str, Any]:
    """The cost of a call, as arguments of resolve_judgement and fail_judgement."""
    spent = clamp_usage(usage)
    # Without a model the answer would count as that of a person.
    model = spent.model or getattr(judge, "model", None) or type(judge).__name__
    return {
        "model": sanitize_text(str(model), 200),
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost": spent.cost,
    }


def resolve(judge: object, question: Question, answer: Answer) -> Call:
    """Submit a judge's answer. Raises TypeError or InvalidTextError for values that the server could not even read."""
    check_text("verdict", answer.verdict)
    check_text("merged_text", answer.merged_text)
    return _call(
        queries.RESOLVE,
        {
            "judgement_id": question.judgement_id,
            "verdict": answer.verdict,
            "confidence": checked_number("confidence", answer.confidence),
            "reason": None if answer.reason is None else sanitize_text(answer.reason),
            "merged_text": answer.merged_text,
            "richer_memory_id": answer.richer_memory_id,
            "member_ids": None if answer.member_ids is None else list(answer.member_ids),
            "tenant_id": question.tenant_id,
            **usage_arguments(judge, answer.usage),
        },
    )


def resolve_by_person(
    question: Question, verdict: Verdict, richer_memory_id: UUID | None, member_ids: Sequence[UUID] | None
) -> Call:
    """Submit a person's answer: without a model, and certain."""
    return _call(
        queries.RESOLVE,
        {
            "judgement_id": question.judgement_id,
            "verdict": verdict,
            "richer_memory_id": richer_memory_id,
            "member_ids": None if member_ids is None else list(member_ids),
            "tenant_id": question.tenant_id,
        },
    )


def resolve_question(answer: Mapping[str, Any]) -> Call:
    """Submit an answer to a question that was not leased; named as in ``resolve_judgement``; None is omitted."""
    return _call(queries.RESOLVE, {name: value for name, value in answer.items() if value is not None})


def fail(
    worker: str,
    judgement_id: UUID,
    tenant_id: str,
    error: str,
    *,
    counted: bool,
    retry_after: float | None,
    usage: Mapping[str, Any] | None = None,
) -> Call:
    """Give a lease back without an answer. retry_after: None leaves it to the server."""
    wait = None if retry_after is None else min(max(retry_after, 0.0), MAX_RETRY_AFTER)
    return _call(
        queries.FAIL,
        {
            "judgement_id": judgement_id,
            "error": sanitize_text(error),
            "worker": worker,
            "counted": counted,
            "retry_after": None if wait is None else timedelta(seconds=wait),
            "tenant_id": tenant_id,
            **(usage or {}),
        },
    )


def status_after_failure(rows: Sequence[Row]) -> Failed:
    """The result of ``fail``."""
    status: Failed = rows[0]["fail_judgement"]
    return status


def retry(tenant_id: str | None) -> Call:
    """Reopen dead judgements; their number is ``retry_judgements`` of the row."""
    return _call(queries.RETRY, {"tenant_id": tenant_id})
