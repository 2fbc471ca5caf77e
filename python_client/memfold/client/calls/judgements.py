"""Judgements in the clients: claimed, asked and resolved by the client's judge, waited for, or answered by a person."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from memfold.client import errors, queries
from memfold.client._log import log_synthesis, logger
from memfold.client._text import describe_error
from memfold.client.calls.sending import Sending
from memfold.client.calls.steps import Ask, Pause, Steps
from memfold.client.judging import Answer, Judge, JudgeError, Question, Usage, Verdict, protocol
from memfold.client.judging.protocol import Failed
from memfold.client.types import IngestResult, Resolution


class Judgements(Sending):
    """A client's part in tier 3, using ``memfold.client.judging.protocol``."""

    judge: Judge | None
    worker: str

    def claim(
        self,
        tenant_id: str | None,
        lease: float,
        *,
        review: bool = False,
        judgement_ids: Sequence[UUID] | None = None,
    ) -> Steps[Question | None]:
        """One waiting question, or None. Without a tenant: of any tenant."""
        made = protocol.claim(
            self.worker, lease, tenant_id=tenant_id, review=review, judgement_ids=judgement_ids
        )
        rows = yield from self.call(made)
        return Question.from_row(rows[0]) if rows else None

    def answer_by_person(
        self,
        question: Question,
        verdict: Verdict,
        richer_memory_id: UUID | None = None,
        member_ids: Sequence[UUID] | None = None,
    ) -> Steps[Resolution]:
        rows = yield from self.call(
            protocol.resolve_by_person(question, verdict, richer_memory_id, member_ids)
        )
        return Resolution.from_row(rows[0])

    def give_back(
        self,
        question: Question,
        error: str,
        *,
        counted: bool = False,
        retry_after: float | None = 0.0,
        usage: Mapping[str, Any] | None = None,
    ) -> Steps[Failed]:
        """Give a lease back without an answer; returns the judgement's status, or what the policy did when it died."""
        made = protocol.fail(
            self.worker,
            question.judgement_id,
            question.tenant_id,
            error,
            counted=counted,
            retry_after=retry_after,
            usage=usage,
        )
        return protocol.status_after_failure((yield from self.call(made)))

    def queued_again(self, question: Question) -> Steps[list[UUID]]:
        """Judgements for a person that an undo has queued about the same pair."""
        parameters = {
            "tenant_id": question.tenant_id,
            "memory_id": question.memory.memory_id,
            "other_id": question.other.memory_id,
        }
        rows = yield from self.send(queries.QUEUED_AGAIN, parameters, reads=True)
        return [row["judgement_id"] for row in rows]

    def events_of(self, question: Question) -> Steps[list[UUID]]:
        """The events of an answer that can be undone, most recent first."""
        parameters = {
            "tenant_id": question.tenant_id,
            "judgement_id": question.judgement_id,
            "member_ids": [side.memory_id for side in question.sides],
        }
        rows = yield from self.send(queries.EVENTS_OF, parameters, reads=True)
        return [row["event_id"] for row in rows]

    def waited_for(self, result: IngestResult, tenant_id: str, seconds: float) -> Steps[Resolution | None]:
        """The judgement's outcome within that time. The fact is already stored, so the caller gets no error from here
        on."""
        assert result.judgement_id is not None  # noqa: S101 (only then is this called)
        try:
            resolution = yield from self._settled(result.judgement_id, tenant_id, seconds)
        except Exception as error:
            logger.warning(
                "DEDUP_FAIL: waiting for judgement %s failed (%s), both memories stay",
                result.judgement_id,
                describe_error(error),
            )
            return None
        if resolution is not None and resolution.action in ("judged", "escalated"):
            resolution = replace(resolution, memory_id=result.memory_id)  # both are kept
        return resolution

    def _settled(self, judgement_id: UUID, tenant_id: str, seconds: float) -> Steps[Resolution | None]:
        until = time.monotonic() + seconds
        pause = 0.05
        due = self.judge is not None
        while True:
            if due and (left := until - time.monotonic()) > 0:
                # Longer than the judge may take, so that nobody else asks the same question.
                question = yield from self.claim(tenant_id, left + 30, judgement_ids=[judgement_id])
                if question is not None:
                    resolution = yield from self._judged(question, left)
                    if resolution is not None:
                        return resolution
            rows = yield from self.send(
                queries.JUDGEMENT, {"judgement_id": judgement_id, "tenant_id": tenant_id}, reads=True
            )
            if not rows:
                return None
            row = rows[0]
            left = until - time.monotonic()
            if row["successor"] is not None and left > 0:
                judgement_id, due = row["successor"], self.judge is not None
                continue
            # A person's answer takes longer than any call should.
            if row["status"] in ("done", "obsolete", "dead") or row["kind"] == "review" or left <= 0:
                return Resolution.from_row(row)
            yield Pause(min(pause, left))
            pause = min(1.5 * pause, 1.0)
            due = self.judge is not None and row["due"]

    def _judged(self, question: Question, seconds: float) -> Steps[Resolution | None]:
        """Ask the judge and apply its answer. None: another judge was faster, or the pair has changed."""
        usage = Usage()
        try:
            answer: Answer = yield Ask(question, seconds)
            usage = answer.usage
            made = protocol.resolve(self.judge, question, answer)
            rows = yield from self.call(made)
        except (errors.JudgementClosedError, errors.JudgementNotFoundError):
            return None
        except errors.ConnectionLostError:
            raise
        except Exception as error:
            return (yield from self._not_judged(question, error, usage))
        resolution = Resolution.from_row(rows[0])
        logger.info(
            "DEDUP_JUDGE: judgement %s %s by %s -> %s",
            question.judgement_id,
            resolution.verdict or answer.verdict,
            made.arguments["model"],
            resolution.action or resolution.status,
        )
        count = len(answer.member_ids or question.sides)
        log_synthesis(resolution.action, answer.merged_text, resolution.memory_id, count)
        return None if resolution.status == "open" else resolution

    def _not_judged(self, question: Question, error: Exception, usage: Usage) -> Steps[Resolution | None]:
        transient = isinstance(error, errors.RetryableError)
        retry_after = None
        if isinstance(error, JudgeError):
            transient, usage = error.transient, error.usage
            retry_after = error.retry_after
        used = protocol.usage_arguments(self.judge, usage)
        status = yield from self.give_back(
            question,
            describe_error(error),
            counted=not transient,
            retry_after=(retry_after or 1.0) if transient else None,
            usage=used,
        )
        logger.warning(
            "DEDUP_FAIL: judgement %s by %s failed (%s), %s",
            question.judgement_id,
            used["model"],
            describe_error(error),
            "falling back to replace" if status == "replaced" else "both memories stay",
        )
        if status == "done" or status == "obsolete" or status == "replaced":
            return None
        return Resolution(status)
