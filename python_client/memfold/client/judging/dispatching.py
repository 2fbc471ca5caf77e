"""Keeps the worker's slots full, respects leases and budgets, and pauses while the endpoint is down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from memfold.client._log import get_logger
from memfold.client._text import describe_error
from memfold.client.judging import limits, protocol
from memfold.client.judging.database import Database, is_passing
from memfold.client.judging.questions import Judge, JudgeError, Question, Usage, clamp_usage
from memfold.client.judging.writing import Writer

logger = get_logger("memfold.worker")

_FAILING_JUDGEMENTS = 10
_PROBES_OF_ONE_RUN = 5
_TROUBLES = {
    "endpoint down": "the judge's endpoint is down",
    "answers useless": "the judge's answers are unusable",
}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A question, and the end of its lease by the worker's own clock."""

    question: Question
    until: float


class Dispatcher(Writer):
    """The half of the worker that claims and asks."""

    def __init__(
        self,
        database: Database,
        judge: Judge,
        name: str,
        *,
        tenant_id: str | None,
        slots: int,
        ahead: int,
        timeout: float,
        lease: float,
        poll: float,
        budget: limits.Budget,
    ) -> None:
        super().__init__(database, judge, name)
        self._tenant_id = tenant_id
        self._slots = slots
        self._ahead = ahead
        self._timeout = timeout
        self._lease = lease
        self._poll = poll
        self._budget = budget
        self._breaker = limits.Breaker()
        self._ready: deque[Claimed] = deque()
        self._asking: dict[UUID, Claimed] = {}
        self._calls: dict[UUID, asyncio.Task[None]] = {}
        self._typical: float | None = None
        self._failures_by_id: Counter[UUID] = Counter()
        self._failing: set[UUID] = set()
        self._comes_back = 0.0
        self._budget_logged_at: float | None = None

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
                    self.summary.unfinished = self._breaker.trouble
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
                # Fewer than there was capacity for: nothing else is waiting now.
                self._next_claim = 0.0 if claimed >= capacity else time.monotonic() + self._poll
                if last_look and not claimed:
                    if self._breaker.open:
                        self.summary.unfinished = self._breaker.trouble
                    return
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._idle_timeout(now, capacity, spent))

    def _free_capacity(self, now: float) -> int:
        """How many judgements to claim now: for many slots at once, or none."""
        if self._breaker.open:
            # One, to find out whether the endpoint is back.
            due = self._breaker.pause(now) <= 0 and not self._breaker.probing and not self._ready
            return int(due and self._budget.left(len(self._asking), now) >= 1)
        # Claim ahead of free slots only as far as the leases will certainly last.
        ahead = 0
        if self._typical is not None and 2 * self._typical < self._lease - self._timeout:
            ahead = self._ahead
        if len(self._settling) > 2 * self._slots or len(self._ready) > ahead // 2:
            return 0
        left = self._budget.left(len(self._asking), now) - len(self._ready)
        return int(max(0.0, min(self._slots + ahead - len(self._asking) - len(self._ready), left)))

    def _spent(self, now: float) -> bool:
        """Whether the budget allows no call now; logged once an hour."""
        if self._asking or self._budget.left(0, now) >= 1:
            return False
        if self._budget_logged_at is None or now - self._budget_logged_at >= limits.HOUR:
            self._budget_logged_at = now
            seconds = self._budget.seconds_until_free(now)
            logger.warning("the budget of this hour is spent: the next call in %.0f s", seconds)
        return True

    def _idle_timeout(self, now: float, capacity: int, spent: bool) -> float:
        """Seconds until there is something to do even if nothing happens."""
        waits = [claimed.until - self._timeout - now for claimed in self._ready]
        if spent:
            waits.append(self._budget.seconds_until_free(now))
        elif capacity > 0:
            waits.append(self._next_claim - now)
        elif self._breaker.open and not self._breaker.probing:
            waits.append(self._breaker.pause(now))
        return max(0.005, min(waits, default=limits.HOUR))

    async def _claim(self, capacity: int) -> int | None:
        """Claim this many, and start as many as there are slots for. None: the database was unavailable, or refused."""
        began = time.monotonic()
        call = protocol.claim(self.name, self._lease, tenant_id=self._tenant_id, most=capacity)
        try:
            rows = await self._database.claim(call)
        except psycopg.Error as error:
            if is_passing(error):
                await self._database.pause_for(error)
            else:
                self._end(error)
            return None
        self._database.up()
        for row in rows:
            judgement_id, tenant_id = row["judgement_id"], row["tenant_id"]
            if self._holds(judgement_id):
                continue  # its lease ended while its answer could not be written
            try:
                self._ready.append(Claimed(Question.from_row(row), began + self._lease))
            except Exception as error:  # a question that this release cannot read must not stop the others
                logger.exception("cannot read judgement=%s tenant=%s", judgement_id, tenant_id)
                self._settle_later(judgement_id, self._fail(judgement_id, tenant_id, describe_error(error)))
        self._start_calls()
        return len(rows)

    def _holds(self, judgement_id: UUID) -> bool:
        """Whether this worker already has it."""
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
                reason = _TROUBLES[self._breaker.trouble]
                self._give_back(reason, self._breaker.pause(now))
            elif self._ready[0].until - now < self._timeout:
                # The call could outlast the lease; the next worker to claim it has time for it.
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

    async def _handle(self, claimed: Claimed) -> None:
        """Ask about one pair, and make sure that the outcome is written."""
        question = claimed.question
        judgement_id, tenant_id = question.judgement_id, question.tenant_id
        started = time.monotonic()
        self.summary.calls += 1
        usage = Usage()
        work: Coroutine[Any, Any, None]
        try:
            answer = await protocol.ask(self._judge, question, self._timeout)
            took = time.monotonic() - started
            usage = clamp_usage(answer.usage)
            work = self._resolve(question, protocol.resolve(self._judge, question, answer), took)
        except JudgeError as error:
            usage = clamp_usage(error.usage)
            work = self._failed_call(question, error, usage, started)
        except Exception as error:  # whatever a plugged-in judge raises is a failed attempt
            trace = logger.isEnabledFor(logging.DEBUG)
            logger.warning(
                "failed judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error, exc_info=trace
            )
            self._not_the_endpoint(question, started, error)
            work = self._fail(judgement_id, tenant_id, describe_error(error), usage=usage)
        else:
            self._typical = took if self._typical is None else 0.8 * self._typical + 0.2 * took
            self._failing.clear()
            self._failures_by_id.pop(judgement_id, None)
            if self._breaker.answered(started, time.monotonic()):
                useless = self._breaker.useless
                logger.warning(
                    "the judge's %s", "answers are usable again" if useless else "endpoint is back"
                )
        finally:
            self._calls.pop(judgement_id, None)
            self._asking.pop(judgement_id, None)
        # The slot is free. Only the writing is left, however long the database takes.
        self.summary.input_tokens += usage.input_tokens
        self.summary.output_tokens += usage.output_tokens
        self.summary.cost += usage.cost
        self._budget.paid(usage.cost, time.monotonic())
        self._settling[judgement_id] += 1
        self._changed.set()
        self._start_calls()
        await self._settled(judgement_id, work)

    def _failed_call(
        self, question: Question, error: JudgeError, usage: Usage, started: float
    ) -> Coroutine[Any, Any, None]:
        now = time.monotonic()
        judgement_id, tenant_id = question.judgement_id, question.tenant_id
        if not error.transient:
            logger.warning("failed judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error)
            self._not_the_endpoint(question, started, error)
            return self._fail(judgement_id, tenant_id, describe_error(error), usage=usage)
        others_get_through = self._breaker.last_answer > started
        self._tripped(self._breaker.failed(started, now, error.retry_after), describe_error(error))
        logger.debug("away judgement=%s tenant=%s error=%s", judgement_id, tenant_id, error)
        counted = False
        # Shorter than the pause, so that the probe finds something to ask.
        retry_after = 0.5 * self._breaker.pause(now) if self._breaker.open else limits.FIRST_PAUSE
        if others_get_through:
            # If a pair fails like this again and again, the pair is the cause, and its attempts must end.
            self._failures_by_id[judgement_id] += 1
            counted = self._failures_by_id[judgement_id] > limits.FAILURES_IN_A_ROW
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

    def _not_the_endpoint(self, question: Question, started: float, error: Exception) -> None:
        """The endpoint answered, but not usably. If it does so for every question, asking thousands helps nobody."""
        now = time.monotonic()
        self._failing.add(question.judgement_id)
        if len(self._failing) >= _FAILING_JUDGEMENTS:
            reason = f"{len(self._failing)} judgements failed in a row, the last: {describe_error(error)}"
            self._tripped(self._breaker.failed(started, now, None, useless=True), reason)
        elif self._breaker.answered(started, now):
            logger.warning("the judge's endpoint is back")

    def _tripped(self, tripped: bool, reason: str) -> None:
        if tripped:
            pause = self._breaker.pause(time.monotonic())
            level = logging.WARNING if self._breaker.probes_failed == 0 else logging.INFO
            logger.log(level, "%s: pause=%.1fs error=%s", _TROUBLES[self._breaker.trouble], pause, reason)

    def _give_back(self, reason: str, retry_after: float, *, only_first: bool = False) -> None:
        """Give back judgements that were claimed but not asked."""
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
