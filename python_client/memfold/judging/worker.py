"""The worker: claims judgements, has a judge answer them, and applies the answers as they arrive.

Every decision stays in the database: what is claimed, what an answer does, when a failed judgement comes back.
The worker keeps its slots full, its promises about leases and budgets, and every answer that was paid for until
it is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from memfold import queries
from memfold._log import get_logger, log_synthesis
from memfold._text import describe_error, sanitize_text
from memfold.errors import PASSING, is_connection_lost, translate
from memfold.judging import limits as _limits
from memfold.judging.openai_judge import (
    Answer,
    Judge,
    JudgeError,
    Question,
    Usage,
    clamp_usage,
    usage_arguments,
)

__all__ = ["Summary", "Worker"]

logger = get_logger("memfold.worker")

CHANNEL = "memfold_judgements"

CLAIM = """
select * from memfold.claim_judgements(
    worker => %(worker)s, max => %(max)s, lease => %(lease)s, tenant_id => %(tenant_id)s)
"""
RESOLVE = """
select * from memfold.resolve_judgement(
    judgement_id => %(judgement_id)s, verdict => %(verdict)s, confidence => %(confidence)s, reason => %(reason)s,
    merged_text => %(merged_text)s, fuller => %(fuller)s, model => %(model)s, input_tokens => %(input_tokens)s,
    output_tokens => %(output_tokens)s, cost => %(cost)s, member_ids => %(member_ids)s, tenant_id => %(tenant_id)s)
"""
FAIL = """
select memfold.fail_judgement(
    judgement_id => %(judgement_id)s, error => %(error)s, worker => %(worker)s, counted => %(counted)s,
    retry_after => %(retry_after)s, model => %(model)s, input_tokens => %(input_tokens)s,
    output_tokens => %(output_tokens)s, cost => %(cost)s, tenant_id => %(tenant_id)s) as state
"""
REVIVE = "select memfold.revive_judgements(tenant_id => %(tenant_id)s) as revived"

# Errors that say: the same call may be through a moment later. 55P03: lock_timeout, 57014: statement_timeout.
_SOON = PASSING | {"57014"}
_ATTEMPTS = 20
# Errors that no answer can mend: missing functions, missing rights, a wrong tenant.
_FATAL = frozenset({"42501", "42883", "3F000", "MF001", "MF002"})
_ALREADY_ANSWERED = "MF027"
_UNKNOWN = "MF026"

# So that it notices within a minute or so when a server has gone without a word.
_NOTICE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_NOT_USED = ("model", "input_tokens", "output_tokens", "cost")

_FAILING_JUDGEMENTS = 10
_PROBES_OF_ONE_RUN = 5


@dataclass(slots=True)
class Summary:
    """What a run did."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """Judgements answered, by the verdict that the database stored."""
    calls: int = 0
    requeued: int = 0
    """Answered, but a side had changed meanwhile: asked again for the present pair."""
    moot: int = 0
    """Answered, but the question was gone."""
    answered_elsewhere: int = 0
    """Answered by somebody else meanwhile: the first verdict won."""
    failed: int = 0
    """Attempts that failed and count."""
    dead: int = 0
    """Judgements whose last attempt that was."""
    given_back: int = 0
    """Attempts that do not count: the endpoint was down, or the worker stopped."""
    unwritten: int = 0
    """Answers that were paid for and could not be written."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    unfinished: Literal["endpoint down", "budget spent"] | None = None
    """Why a run that was to end with the queue empty ended before that was certain."""

    @property
    def judged(self) -> int:
        """Judgements answered."""
        return self.verdicts.total()

    def __str__(self) -> str:
        per_verdict = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        parts = [f"judged {self.judged}" + (f" ({per_verdict})" if per_verdict else "")]
        parts.append(f"failed {self.failed}" + (f" ({self.dead} now dead)" if self.dead else ""))
        for count, what in (
            (self.requeued, "asked again for a changed pair"),
            (self.moot, "moot"),
            (self.answered_elsewhere, "answered elsewhere"),
            (self.given_back, "given back"),
            (self.unwritten, "answers LOST"),
        ):
            if count:
                parts.append(f"{count} {what}")
        parts.append(f"{self.calls} calls, {self.input_tokens} + {self.output_tokens} tokens")
        parts.append(f"cost {self.cost:.6g} in {self.seconds:.1f} s")
        if self.unfinished:
            parts.append(f"ended early: {self.unfinished}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A question, and until when its lease holds by the worker's own clock."""

    question: Question
    until: float


class _Pool:
    """A few connections, opened when they are needed. No session setting is relied upon."""

    def __init__(self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[DictRow]]], size: int) -> None:
        self._connect = connect
        self._turn = asyncio.Semaphore(size)
        self._idle: list[psycopg.AsyncConnection[DictRow]] = []

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[DictRow]]:
        async with self._turn:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            except psycopg.Error as error:
                if is_connection_lost(error):
                    await connection.close()
                    await self.close()  # the others have most likely gone with it
                else:
                    with contextlib.suppress(psycopg.Error):
                        await connection.rollback()
                raise
            except BaseException:
                await connection.close()
                raise
            finally:
                if not connection.closed:
                    self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


def _pipeline(connection: psycopg.AsyncConnection[DictRow]) -> AbstractAsyncContextManager[object]:
    """Sends what a transaction begins with together with its statement, where libpq can."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Worker:
    """Has a judge answer what waits.

    >>> async def main() -> None:
    ...     judge = OpenAIJudge("gpt-5-mini")
    ...     print(await Worker(dsn, judge, slots=10).run(until_idle=True))
    """

    def __init__(
        self,
        dsn: str,
        judge: Judge,
        *,
        slots: int = 10,
        name: str | None = None,
        timeout: float = 60.0,
        lease: float | None = None,
        poll: float = 1.0,
        calls_per_hour: int | None = None,
        cost_per_hour: float | None = None,
        tenant_id: str | None = None,
        connections: int = 4,
        listen: bool = True,
        grace: float | None = None,
        ahead: int | None = None,
    ) -> None:
        """Connects when it runs.

        slots: calls at a time. timeout: seconds after which a call is given up, whatever the judge itself does
        about it; lease: of a claimed judgement, longer than that (default: twice as long and 30 seconds more).
        poll: seconds between looks at an empty queue; listen: be woken as well, where a policy has notify on.
        calls_per_hour, cost_per_hour: of any 3,600 seconds, counted by this worker. tenant_id: judge only this
        tenant's; a role that is no judge must give its own. connections: at the most, one more to listen.
        grace: seconds that a stop waits for calls under way (default: timeout). ahead: judgements claimed before
        a slot is free for them (default: as many as slots).
        """
        if not 1 <= slots <= 500:
            raise ValueError("slots are 1 to 500")
        if connections < 2:
            raise ValueError("connections are at least 2: one claims, the others write")
        if timeout <= 0 or poll <= 0:
            raise ValueError("timeout and poll are longer than 0 seconds")
        if (calls_per_hour is not None and calls_per_hour < 1) or (
            cost_per_hour is not None and cost_per_hour <= 0
        ):
            raise ValueError("a budget is greater than 0")
        self._lease = 2 * timeout + 30 if lease is None else lease
        if not timeout < self._lease <= 86400:
            raise ValueError(
                f"the lease ({self._lease:g} s) must be longer than the timeout ({timeout:g} s), at most a day"
            )
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.summary = Summary()
        self._dsn = dsn
        self._judge = judge
        self._slots = slots
        self._timeout = timeout
        self._poll = poll
        self._tenant_id = tenant_id
        self._listens = listen
        self._grace = timeout if grace is None else grace
        self._ahead = slots if ahead is None else min(max(0, ahead), 500)
        self._budget = _limits.Budget(calls_per_hour, cost_per_hour)
        self._breaker = _limits.Breaker()
        # One connection claims: the turns that tenants take are the session's.
        self._claims = _Pool(self._connect, 1)
        self._writes = _Pool(self._connect, connections - 1)
        self._ready: deque[_Claimed] = deque()
        self._asking: dict[UUID, _Claimed] = {}
        self._settling: Counter[UUID] = Counter()
        self._calls: dict[UUID, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._typical: float | None = None
        self._failures_by_id: Counter[UUID] = Counter()
        self._failing: set[UUID] = set()
        self._next_claim = 0.0
        self._comes_back = 0.0
        self._running = False
        self._away = 0
        self._budget_logged_at: float | None = None
        self._stopping = False
        self._dispatching: asyncio.Task[None] | None = None
        self._fatal: psycopg.Error | None = None
        # Made here, used in one loop: since Python 3.10 they belong to the loop that first waits for them.
        self._changed = asyncio.Event()
        self._at_once = asyncio.Event()

    def stop(self, *, now: bool = False) -> None:
        """End the run: claim nothing more, wait for the calls under way, give back the rest. now: do not wait."""
        self._stopping = True
        self._changed.set()
        if now:
            self._at_once.set()
            if self._dispatching is not None:
                self._dispatching.cancel()

    async def revive(self) -> int:
        """Open dead judgements again, before or while it runs; how many."""
        try:
            rows = await self._transact(self._claims, REVIVE, {"tenant_id": self._tenant_id})
        except psycopg.Error as error:
            raise translate(error) from error
        self._wake()
        revived: int = rows[0]["revived"]
        return revived

    async def run(self, until_idle: bool = False) -> Summary:
        """Judge until ``stop``; until_idle: until there is nothing more to claim.

        Then judgements that failed and wait for another attempt are left to a later run, and so is the rest when
        the budget is spent or the endpoint stays down (``Summary.unfinished`` says so). Raises what the database
        says about a first connection that fails, or about missing rights.
        """
        if self._running:
            raise RuntimeError("the worker runs already")
        self._running = True
        self._next_claim = self._comes_back = 0.0
        started = time.monotonic()
        self.summary = Summary()
        listener: asyncio.Task[None] | None = None
        try:
            try:
                async with self._claims.connection():
                    pass
            except psycopg.Error as error:
                raise translate(error) from error
            logger.info("start worker=%s slots=%d lease=%gs", self.name, self._slots, self._lease)
            if self._listens and not until_idle:
                listener = asyncio.create_task(self._listen())
            self._dispatching = asyncio.create_task(self._dispatch_loop(until_idle))
            try:
                await asyncio.wait({self._dispatching})
            except asyncio.CancelledError:
                self.stop(now=True)
                raise
            with contextlib.suppress(asyncio.CancelledError):  # that is what a second stop does to it
                self._dispatching.result()
            if self._fatal is not None:
                raise translate(self._fatal) from self._fatal
        finally:
            background = [task for task in (listener, self._dispatching) if task is not None]
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._wind_down()
            await self._claims.close()
            await self._writes.close()
            for held in (self._ready, self._asking, self._settling, self._calls):
                held.clear()
            self.summary.seconds = time.monotonic() - started
            self._running = self._stopping = False
            self._at_once.clear()
            logger.info("end worker=%s", self.name)
        return self.summary

    # claiming

    async def _dispatch_loop(self, until_idle: bool) -> None:
        """Keep the slots full until told to stop."""
        while not self._stopping:
            self._changed.clear()
            self._start_calls()
            now = time.monotonic()
            spent = self._spent(now)
            free = not (self._ready or self._asking or self._settling)
            if until_idle and free:
                if self._breaker.probes_failed >= _PROBES_OF_ONE_RUN:
                    self.summary.unfinished = "endpoint down"
                    return
                if spent:
                    self.summary.unfinished = "budget spent"
                    return
            capacity = self._free_capacity(now)
            last_look = until_idle and free and now >= self._comes_back
            if capacity > 0 and (now >= self._next_claim or last_look):
                claimed = await self._claim(capacity)
                if claimed is None:
                    continue
                # Fewer than there was capacity for: nothing more waits at present.
                self._next_claim = 0.0 if claimed >= capacity else time.monotonic() + self._poll
                if last_look and not claimed:
                    if self._breaker.open:
                        self.summary.unfinished = "endpoint down"
                    return
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._idle_timeout(now, capacity, spent))

    def _free_capacity(self, now: float) -> int:
        """How many judgements to claim now: a good part of the slots at once, or none."""
        if self._breaker.open:
            # One, to see whether the endpoint is back.
            due = self._breaker.pause(now) <= 0 and not self._breaker.probing and not self._ready
            return int(due and self._budget.left(len(self._asking), now) >= 1)
        # Ahead of free slots only as far as the leases will surely last.
        ahead = 0
        if self._typical is not None and 2 * self._typical < self._lease - self._timeout:
            ahead = self._ahead
        if len(self._settling) > 2 * self._slots or len(self._ready) > ahead // 2:
            return 0
        left = self._budget.left(len(self._asking), now) - len(self._ready)
        return int(max(0.0, min(self._slots + ahead - len(self._asking) - len(self._ready), left)))

    def _spent(self, now: float) -> bool:
        """Whether the budget allows no call at present; said once an hour."""
        if self._asking or self._budget.left(0, now) >= 1:
            return False
        if self._budget_logged_at is None or now - self._said_spent >= _limits.HOUR:
            self._budget_logged_at = now
            seconds = self._budget.seconds_until_free(now)
            logger.warning("the budget of this hour is spent: the next call in %.0f s", seconds)
        return True

    def _idle_timeout(self, now: float, capacity: int, spent: bool) -> float:
        """Seconds until something is to be done although nothing has happened."""
        waits = [claimed.until - self._timeout - now for claimed in self._ready]
        if spent:
            waits.append(self._budget.seconds_until_free(now))
        elif capacity > 0:
            waits.append(self._next_claim - now)
        elif self._breaker.open and not self._breaker.probing:
            waits.append(self._breaker.pause(now))
        return max(0.005, min(waits, default=_limits.HOUR))

    async def _claim(self, capacity: int) -> int | None:
        """Claim as many, and start what there are slots for. None: the database was away, or said no."""
        began = time.monotonic()
        parameters = {
            "worker": self.name,
            "max": capacity,
            "lease": timedelta(seconds=self._lease),
            "tenant_id": self._tenant_id,
        }
        try:
            rows = await self._transact(self._claims, CLAIM, parameters)
        except psycopg.Error as error:
            if self._passing(error):
                await self._pause_for(error)
            else:
                self._end(error)
            return None
        self._up()
        for row in rows:
            judgement_id, tenant_id = row["judgement_id"], row["tenant_id"]
            if self._holds(judgement_id):
                continue  # its lease ended while its answer could not be written
            try:
                self._ready.append(_Claimed(Question.from_row(row), began + self._lease))
            except Exception as error:  # what this release cannot read shall not stop the others
                logger.exception("cannot read judgement=%s tenant=%s", judgement_id, tenant_id)
                self._settle_later(judgement_id, self._fail(judgement_id, tenant_id, describe_error(error)))
        self._start_calls()
        return len(rows)

    def _holds(self, judgement_id: UUID) -> bool:
        """Whether it is here already."""
        return (
            judgement_id in self._asking
            or judgement_id in self._settling
            or any(claimed.question.judgement_id == judgement_id for claimed in self._ready)
        )

    # asking

    def _start_calls(self) -> None:
        """Fill the free slots from what is ready."""
        now = time.monotonic()
        while self._ready and not self._stopping:
            waits = self._breaker.open and (self._breaker.pause(now) > 0 or self._breaker.probing)
            if waits:
                self._give_back("the judge's endpoint is down", self._breaker.pause(now))
            elif self._ready[0].until - now < self._timeout:
                # A call could outlive the lease: whoever claims it next has time for it.
                self._give_back("waited too long for a free slot", 0.0, only_first=True)
            elif self._budget.left(len(self._asking), now) < 1:
                if self._asking:
                    return  # what they cost is not known yet
                self._give_back("the budget of this hour is spent", 0.0)
            elif len(self._asking) >= self._slots:
                return
            else:
                self._breaker.probing = self._breaker.open
                claimed = self._ready.popleft()
                self._budget.called(now)
                self._asking[claimed.question.judgement_id] = claimed
                self._calls[claimed.question.judgement_id] = self._spawn(self._handle(claimed))

    async def _handle(self, claimed: _Claimed) -> None:
        """Ask about one pair, and see that whatever comes of it is written."""
        question = claimed.question
        judgement_id, tenant_id = question.judgement_id, question.tenant_id
        started = time.monotonic()
        self.summary.calls += 1
        usage = Usage()
        work: Coroutine[Any, Any, None]
        try:
            answer = await self._ask(question)
            took = time.monotonic() - started
            usage = clamp_usage(answer.usage)
            work = self._resolve(question, self._verdict(question, answer, usage), took)
        except JudgeError as error:
            usage = clamp_usage(error.usage)
            work = self._failed_call(question, error, usage, started)
        except Exception as error:  # whatever a plugged-in judge does: a failed attempt
            trace = logger.isEnabledFor(logging.DEBUG)
            logger.warning(
                "failed judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error, exc_info=trace
            )
            self._not_the_endpoint(question, started)
            work = self._fail(judgement_id, tenant_id, describe_error(error), usage=usage)
        else:
            self._typical = took if self._typical is None else 0.8 * self._typical + 0.2 * took
            self._failing.clear()
            self._failures_by_id.pop(judgement_id, None)
            if self._breaker.answered(started, time.monotonic()):
                logger.warning("the judge's endpoint is back")
        finally:
            self._calls.pop(judgement_id, None)
            self._asking.pop(judgement_id, None)
        # The slot is free. What is left is to be written, however long the database takes.
        self.summary.input_tokens += usage.input_tokens
        self.summary.output_tokens += usage.output_tokens
        self.summary.cost += usage.cost
        self._budget.paid(usage.cost, time.monotonic())
        self._settling[judgement_id] += 1
        self._changed.set()
        self._start_calls()
        await self._settled(judgement_id, work)

    async def _ask(self, question: Question) -> Answer:
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                return await self._judge.judge(question)
        except TimeoutError as error:
            if deadline.expired():
                raise JudgeError(f"no answer within {self._timeout:g} s", transient=True) from error
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the judge cancelled its own call") from error

    def _verdict(self, question: Question, answer: Answer, usage: Usage) -> dict[str, Any]:
        return {
            "judgement_id": question.judgement_id,
            "verdict": answer.verdict,
            "confidence": float(answer.confidence),
            "reason": None if answer.reason is None else sanitize_text(answer.reason),
            "merged_text": answer.merged_text,
            "fuller": answer.fuller,
            "member_ids": None if answer.member_ids is None else list(answer.member_ids),
            "tenant_id": question.tenant_id,
            **usage_arguments(self._judge, usage),
        }

    def _failed_call(
        self, question: Question, error: JudgeError, usage: Usage, started: float
    ) -> Coroutine[Any, Any, None]:
        now = time.monotonic()
        judgement_id, tenant_id = question.judgement_id, question.tenant_id
        if not error.transient:
            logger.warning("failed judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error)
            self._not_the_endpoint(question, started)
            return self._fail(judgement_id, tenant_id, describe_error(error), usage=usage)
        others_get_through = self._breaker.last_answer > started
        self._tripped(self._breaker.failed(started, now, error.retry_after), describe_error(error))
        logger.debug("away judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error)
        counted = False
        # Shorter than the pause, so that the probe finds something to ask.
        retry_after = 0.5 * self._breaker.pause(now) if self._breaker.open else _limits.FIRST_PAUSE
        if others_get_through:
            # A pair that fails so again and again is to blame itself, and must come to an end.
            self._failures_by_id[judgement_id] += 1
            counted = self._failures_by_id[judgement_id] > _limits.FAILURES_IN_A_ROW
            retry_after = max(retry_after, 2.0 ** min(self._failures_by_id[judgement_id], 8))
            if len(self._failures_by_id) > 10_000:
                self._failures_by_id.clear()
        if not counted:
            self._comes_back = max(self._comes_back, now + retry_after + 0.5)
        return self._fail(
            judgement_id,
            tenant_id,
            describe_error(error),
            counted=counted,
            retry_after=None if counted else retry_after,
            usage=usage,
        )

    def _not_the_endpoint(self, question: Question, started: float) -> None:
        """The endpoint answered, but not usably. When it does so to everyone, asking thousands helps nobody."""
        now = time.monotonic()
        self._failing.add(question.judgement_id)
        if len(self._failing) >= _FAILING_JUDGEMENTS:
            self._tripped(
                self._breaker.failed(started, now, None), f"{len(self._failing)} judgements failed in a row"
            )
        elif self._breaker.answered(started, now):
            logger.warning("the judge's endpoint is back")

    def _tripped(self, tripped: bool, reason: str) -> None:
        if tripped:
            pause = self._breaker.pause(time.monotonic())
            level = logging.WARNING if self._breaker.probes_failed == 0 else logging.INFO
            logger.log(level, "the judge's endpoint is down: pause=%.1fs error=%s", pause, reason)

    def _give_back(self, reason: str, retry_after: float, *, only_first: bool = False) -> None:
        """Hand back what was claimed and not asked."""
        for _ in range(1 if only_first else len(self._ready)):
            question = self._ready.popleft().question
            self._settle_later(
                question.judgement_id,
                self._fail(
                    question.judgement_id,
                    question.tenant_id,
                    reason,
                    counted=False,
                    retry_after=0.5 * retry_after,
                ),
            )

    # writing

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

    async def _resolve(self, question: Question, verdict: Mapping[str, Any], took: float) -> None:
        judgement_id, tenant_id = question.judgement_id, question.tenant_id
        where = f"judgement={judgement_id} tenant={tenant_id}"
        try:
            rows = await self._write(RESOLVE, verdict)
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
        except Exception as error:  # what cannot be sent: a lone surrogate, a verdict that is no text
            await self._refused(question, error, verdict)
            return
        row = rows[0]
        if row["state"] == "done":
            self.summary.verdicts[row["verdict"]] += 1
        elif row["state"] == "open":
            self.summary.requeued += 1
            self._wake()
        else:
            self.summary.moot += 1
        logger.info(
            "judged %s state=%s verdict=%s confidence=%.2f action=%s ms=%.0f tokens=%s+%s cost=%.6g", where,
            row["state"], row["verdict"] or verdict["verdict"], verdict["confidence"], row["action"], took * 1000,
            verdict["input_tokens"], verdict["output_tokens"], verdict["cost"],
        )  # fmt: skip
        count = len(verdict["member_ids"] or question.sides)
        log_synthesis(row["action"], verdict["merged_text"], row["memory_id"], count)

    async def _refused(self, question: Question, error: Exception, verdict: Mapping[str, Any]) -> None:
        """The database does not take the answer: a failed attempt."""
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
        parameters = {
            "judgement_id": judgement_id,
            "error": sanitize_text(reason),
            "worker": self.name,
            "counted": counted,
            "retry_after": None if retry_after is None else timedelta(seconds=retry_after),
            "tenant_id": tenant_id,
            **(usage_arguments(self._judge, usage) if usage is not None else dict.fromkeys(_NOT_USED)),
        }
        try:
            rows = await self._write(FAIL, parameters)
        except psycopg.Error as error:
            # Nothing is lost: the lease will end.
            logger.warning("not given back judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error)
            if error.sqlstate in _FATAL:
                self._end(error)
            return
        if counted:
            self.summary.failed += 1
            self.summary.dead += rows[0]["state"] == "dead"
            if rows[0]["state"] == "replaced":
                logger.warning(
                    "DEDUP_FAIL: judgement %s failed for good (%s), falling back to replace",
                    judgement_id,
                    parameters["error"],
                )
            if rows[0]["state"] == "dead":
                logger.error(
                    "dead judgement=%s tenant=%s error=%s", judgement_id, tenant_id, parameters["error"]
                )
        else:
            self.summary.given_back += 1

    async def _write(self, statement: LiteralString, parameters: Mapping[str, Any]) -> list[DictRow]:
        """Until it is written or refused, however long the database is away. May be sent twice: the database
        takes an answer once, and a give-back only from the holder of the lease."""
        attempts = 0
        while True:
            try:
                rows = await self._transact(self._writes, statement, parameters)
                self._up()
                return rows
            except psycopg.Error as error:
                attempts += 1
                if not self._passing(error) or (error.sqlstate in _SOON and attempts >= _ATTEMPTS):
                    raise
                logger.debug("attempt %d failed (%s), trying again", attempts, error.sqlstate or error)
                if error.sqlstate in _SOON:
                    await asyncio.sleep(min(0.01 * 2**attempts, 2.0) * random.uniform(0.5, 1))  # noqa: S311
                else:
                    await self._pause_for(error)

    async def _transact(
        self, pool: _Pool, statement: LiteralString, parameters: Mapping[str, Any]
    ) -> list[DictRow]:
        """One statement in a transaction of its own, in one round trip. Which isolation level the database
        starts with is not relied upon, nor is any other setting."""
        async with pool.connection() as connection:
            async with _pipeline(connection):
                await connection.execute(queries.BEGIN)
                if self._tenant_id is not None:  # an application's role must say whose it is
                    await connection.execute(queries.SET_TENANT, {"memfold_tenant": self._tenant_id})
                cursor = await connection.execute(statement, parameters)
                await connection.execute("commit")
            return await cursor.fetchall()

    # the database

    async def _connect(self) -> psycopg.AsyncConnection[DictRow]:
        said = conninfo_to_dict(self._dsn)
        return await psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
            client_encoding="UTF8",
            fallback_application_name="memfold judge",
            **{name: value for name, value in _NOTICE.items() if name not in said},
        )

    @staticmethod
    def _passing(error: psycopg.Error) -> bool:
        """Whether the same call may be through later: the server is away, full, or a standby for now."""
        state = error.sqlstate or ""
        return is_connection_lost(error) or state in _SOON or state.startswith("53") or state == "25006"

    async def _pause_for(self, error: psycopg.Error) -> None:
        """Wait before the database is tried again; says once that it is away."""
        if not self._away and error.sqlstate not in _SOON:
            logger.warning("lost the database, trying again: %s", _first_line(error))
        self._away += 1
        wait = min(0.05 * 2 ** min(self._away, 6), 2.0)
        await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 (jitter)

    def _up(self) -> None:
        if self._away:
            logger.warning("the database is back")
        self._away = 0

    def _end(self, error: psycopg.Error) -> None:
        """Stop for an error that every further call would meet."""
        if self._fatal is None:
            self._fatal = error
        self.stop()

    async def _listen(self) -> None:
        """Be woken by new judgements. Without it, through a transaction pooler for one, the poll finds them."""
        said = False
        while True:
            try:
                connection = await self._connect()
                try:
                    await connection.execute(f"listen {CHANNEL}")
                    logger.debug("listening")
                    said = False
                    self._wake()  # something may have come before
                    async for notification in connection.notifies():
                        if self._tenant_id is None or notification.payload in ("", self._tenant_id):
                            self._wake()
                finally:
                    await connection.close()
            except psycopg.Error as error:
                if not said and not self._away:
                    logger.info("not listening, polling only: %s", _first_line(error))
                said = True
            await asyncio.sleep(max(1.0, self._poll) * random.uniform(0.5, 1))  # noqa: S311 (jitter)

    def _wake(self) -> None:
        self._next_claim = 0.0
        self._changed.set()

    # the end

    async def _wind_down(self) -> None:
        """Wait for calls under way, write their answers, give back the rest."""
        self._stopping = True
        if self._asking and not self._at_once.is_set():
            logger.info("stopping: calls_under_way=%d given_back=%d", len(self._asking), len(self._ready))
        self._give_back("the worker stopped", 0.0)
        await self._wait(self._grace)
        for judgement_id, call in list(self._calls.items()):
            question = self._asking[judgement_id].question
            call.cancel()
            self._settle_later(
                judgement_id, self._fail(judgement_id, question.tenant_id, "the worker stopped", counted=False,
                                         retry_after=0.0)
            )  # fmt: skip
        if not self._at_once.is_set():
            await self._wait(5.0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, seconds: float) -> None:
        """Until all tasks are done, but not longer than that, nor when told to stop at once."""
        until = time.monotonic() + seconds
        at_once = asyncio.create_task(self._at_once.wait())
        while self._tasks and not self._at_once.is_set() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({*self._tasks, at_once}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
