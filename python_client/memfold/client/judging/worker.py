"""The worker: claims judgements, has a judge answer them, and applies the answers as they arrive.

Every decision stays in the database: what is claimed, what an answer does, when a failed judgement comes back. The
worker keeps its slots full, respects leases and budgets, and keeps every answer that was paid for until it is
written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time

import psycopg

from memfold.client._log import get_logger
from memfold.client.errors import translate
from memfold.client.judging import limits, protocol
from memfold.client.judging.database import Database, first_line
from memfold.client.judging.dispatching import Dispatcher
from memfold.client.judging.questions import Judge
from memfold.client.judging.summary import Summary

__all__ = ["Summary", "Worker"]

logger = get_logger("memfold.worker")

CHANNEL = "memfold_judgements"


class Worker(Dispatcher):
    """Lets a judge answer the waiting questions.

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

        slots: concurrent calls. timeout: seconds after which a call is abandoned, whatever the judge itself does;
        lease: seconds of a claim, longer than timeout (default: twice as long plus 30). poll: seconds between checks
        of an empty queue; listen: also wake up on NOTIFY, if a policy has notify on. calls_per_hour, cost_per_hour:
        in any 3,600 seconds, counted by this worker. tenant_id: judge only this tenant; a role that is not a judge
        must name its own. connections: the maximum, plus one to listen. grace: seconds that a stop waits for running
        calls (default: timeout). ahead: judgements claimed before a slot is free for them (default: as many as
        slots).
        """
        if not 1 <= slots <= 500:
            raise ValueError("slots must be 1 to 500")
        if connections < 2:
            raise ValueError("connections must be at least 2: one claims, the others write")
        if timeout <= 0 or poll <= 0:
            raise ValueError("timeout and poll must be longer than 0 seconds")
        if (calls_per_hour is not None and calls_per_hour < 1) or (
            cost_per_hour is not None and cost_per_hour <= 0
        ):
            raise ValueError("a budget must be greater than 0")
        lease = 2 * timeout + 30 if lease is None else lease
        if not timeout < lease <= protocol.LONGEST_LEASE:
            raise ValueError(
                f"the lease ({lease:g} s) must be longer than the timeout ({timeout:g} s), at most a day"
            )
        super().__init__(
            Database(dsn, tenant_id, connections),
            judge,
            name or f"{socket.gethostname()}:{os.getpid()}",
            tenant_id=tenant_id,
            slots=slots,
            ahead=slots if ahead is None else min(max(0, ahead), 500),
            timeout=timeout,
            lease=lease,
            poll=poll,
            budget=limits.Budget(calls_per_hour, cost_per_hour),
        )
        self._listens = listen
        self._grace = timeout if grace is None else grace
        self._running = False
        self._dispatching: asyncio.Task[None] | None = None
        self._at_once = asyncio.Event()

    def stop(self, *, now: bool = False) -> None:
        """End the run: claim nothing more, wait for running calls, give back the rest. now: do not wait."""
        self._stopping = True
        self._changed.set()
        if now:
            self._at_once.set()
            if self._dispatching is not None:
                self._dispatching.cancel()

    async def retry(self) -> int:
        """Reopen dead judgements, before or during a run; returns their number."""
        try:
            rows = await self._database.claim(protocol.retry(self._tenant_id))
        except psycopg.Error as error:
            raise translate(error) from error
        self._wake()
        opened: int = rows[0]["retry_judgements"]
        return opened

    async def run(self, until_idle: bool = False) -> Summary:
        """Judge until ``stop``; until_idle: until there is nothing more to claim.

        With until_idle, failed judgements that wait for another attempt are left to a later run, and so is the rest
        if the budget is spent or the endpoint stays down (``Summary.unfinished`` says so). Raises the database's
        error if the first connection fails or privileges are missing.
        """
        if self._running:
            raise RuntimeError("the worker is already running")
        self._running = True
        self._next_claim = self._comes_back = 0.0
        started = time.monotonic()
        self.summary = Summary()
        listener: asyncio.Task[None] | None = None
        try:
            try:
                await self._database.check()
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
            with contextlib.suppress(asyncio.CancelledError):  # a second stop cancels it
                self._dispatching.result()
            if self._fatal is not None:
                raise translate(self._fatal) from self._fatal
        finally:
            background = [task for task in (listener, self._dispatching) if task is not None]
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._wind_down()
            await self._database.close()
            for held in (self._ready, self._asking, self._settling, self._calls):
                held.clear()
            self.summary.seconds = time.monotonic() - started
            self._running = self._stopping = False
            self._at_once.clear()
            logger.info("end worker=%s", self.name)
        return self.summary

    async def _listen(self) -> None:
        """Wake up for new judgements. Where LISTEN does not work, as through a transaction pooler, polling finds
        them."""
        said = False
        while True:
            try:
                connection = await self._database.connect()
                try:
                    await connection.execute(f"listen {CHANNEL}")
                    logger.debug("listening")
                    said = False
                    self._wake()  # something may have arrived before
                    async for notification in connection.notifies():
                        if self._tenant_id is None or notification.payload in ("", self._tenant_id):
                            self._wake()
                finally:
                    await connection.close()
            except psycopg.Error as error:
                if not said and not self._database.is_away:
                    logger.info("not listening, polling only: %s", first_line(error))
                said = True
            await asyncio.sleep(max(1.0, self._poll) * random.uniform(0.5, 1))  # noqa: S311 (jitter)

    # the end

    async def _wind_down(self) -> None:
        """Wait for running calls, write their answers, give back the rest."""
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
        """Wait until all tasks are done, the time is up, or an immediate stop is requested."""
        until = time.monotonic() + seconds
        at_once = asyncio.create_task(self._at_once.wait())
        while self._tasks and not self._at_once.is_set() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({*self._tasks, at_once}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
