"""Writes the judges' answers, and gives unanswered judgements back: no answer that was paid for is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any
from uuid import UUID

import psycopg

from memfold.client._log import get_logger, log_synthesis
from memfold.client._text import describe_error
from memfold.client.errors import translate
from memfold.client.judging import protocol
from memfold.client.judging.database import Database
from memfold.client.judging.protocol import Call
from memfold.client.judging.questions import Judge, Question, Usage
from memfold.client.judging.summary import Summary

logger = get_logger("memfold.worker")

# Errors that every answer would meet: missing functions, missing privileges, a wrong tenant.
_FATAL = frozenset({"42501", "42883", "3F000", "MF001", "MF002"})
_ALREADY_ANSWERED = "MF027"
_UNKNOWN = "MF026"


class Writer:
    """The half of the worker that writes. Each write is a task, which the end of the run waits for."""

    def __init__(self, database: Database, judge: Judge, name: str) -> None:
        self.name = name
        self.summary = Summary()
        self._database = database
        self._judge = judge
        self._settling: Counter[UUID] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_claim = 0.0
        self._stopping = False
        self._fatal: psycopg.Error | None = None
        # Created here, used in one loop: since Python 3.10 it belongs to the loop that first waits for it.
        self._changed = asyncio.Event()

    def _wake(self) -> None:
        self._next_claim = 0.0
        self._changed.set()

    def _end(self, error: psycopg.Error) -> None:
        """Stop because of an error that every further call would meet."""
        if self._fatal is None:
            self._fatal = error
        self._stopping = True
        self._changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task failed, its lease will end", exc_info=error)

    def _settle_later(self, judgement_id: UUID, work: Coroutine[Any, Any, None]) -> None:
        self._settling[judgement_id] += 1
        self._spawn(self._settled(judgement_id, work))

    async def _settled(self, judgement_id: UUID, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._settling[judgement_id] -= 1
            if not self._settling[judgement_id]:
                del self._settling[judgement_id]
            self._changed.set()

    async def _resolve(self, question: Question, call: Call, took: float) -> None:
        judgement_id, tenant_id = question.judgement_id, question.tenant_id
        where = f"judgement={judgement_id} tenant={tenant_id}"
        verdict = call.arguments
        try:
            rows = await self._database.write(call)
        except asyncio.CancelledError:
            self.summary.unwritten += 1
            logger.error("LOST %s verdict=%s", where, verdict["verdict"])
            raise
        except psycopg.Error as error:
            if error.sqlstate in (_ALREADY_ANSWERED, _UNKNOWN):
                self.summary.answered_elsewhere += 1
                logger.info(
                    "late %s verdict=%s cost=%.6g: %s", where, verdict["verdict"], verdict["cost"],
                    error.diag.message_primary,
                )  # fmt: skip
                return
            await self._refused(question, error, verdict)
            return
        except (
            Exception
        ) as error:  # an answer that cannot be sent: a lone surrogate, a verdict that is not a text
            await self._refused(question, error, verdict)
            return
        row = rows[0]
        if row["status"] == "done":
            self.summary.verdicts[row["verdict"]] += 1
        elif row["status"] == "open":
            self.summary.requeued += 1
            self._wake()
        else:
            self.summary.obsolete += 1
        logger.info(
            "judged %s status=%s verdict=%s confidence=%.2f action=%s ms=%.0f tokens=%s+%s cost=%.6g", where,
            row["status"], row["verdict"] or verdict["verdict"], verdict["confidence"], row["action"], took * 1000,
            verdict["input_tokens"], verdict["output_tokens"], verdict["cost"],
        )  # fmt: skip
        count = len(verdict["member_ids"] or question.sides)
        log_synthesis(row["action"], verdict["merged_text"], row["memory_id"], count)

    async def _refused(self, question: Question, error: Exception, verdict: Mapping[str, Any]) -> None:
        """The database refuses the answer: a failed attempt."""
        message = str(translate(error)) if isinstance(error, psycopg.Error) else describe_error(error)
        where = f"judgement={question.judgement_id} tenant={question.tenant_id}"
        logger.warning("refused %s verdict=%s error=%s", where, verdict["verdict"], message)
        if isinstance(error, psycopg.Error) and error.sqlstate in _FATAL:
            self.summary.unwritten += 1
            self._end(error)
            return
        usage = Usage(verdict["model"], verdict["input_tokens"], verdict["output_tokens"], verdict["cost"])
        await self._fail(question.judgement_id, question.tenant_id, message, usage=usage)

    async def _fail(
        self,
        judgement_id: UUID,
        tenant_id: str,
        reason: str,
        *,
        counted: bool = True,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        call = protocol.fail(
            self.name,
            judgement_id,
            tenant_id,
            reason,
            counted=counted,
            retry_after=retry_after,
            usage=None if usage is None else protocol.usage_arguments(self._judge, usage),
        )
        try:
            rows = await self._database.write(call)
        except psycopg.Error as error:
            # Nothing is lost: the lease will end.
            logger.warning("not given back judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error)
            if error.sqlstate in _FATAL:
                self._end(error)
            return
        if counted:
            status = protocol.status_after_failure(rows)
            self.summary.failed += 1
            self.summary.last_failure = call.arguments["error"]
            self.summary.dead += status == "dead"
            if status == "replaced":
                logger.warning(
                    "DEDUP_FAIL: judgement %s failed for good (%s), falling back to replace",
                    judgement_id,
                    call.arguments["error"],
                )
            if status == "dead":
                logger.error(
                    "dead judgement=%s tenant=%s error=%s", judgement_id, tenant_id, call.arguments["error"]
                )
        else:
            self.summary.given_back += 1
