"""Runs the steps of a call: the part that both clients share, and an event loop for judges of the blocking one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from memfold.client import tracing
from memfold.client._dsn import read_dsn
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Ask, Embed, Step, Steps, Together, Transact
from memfold.client.embedding import EmbedderProtocol
from memfold.client.judging import Answer, Judge, protocol

T = TypeVar("T")


class Client:
    """The constructor of both clients."""

    def __init__(
        self,
        dsn: str,
        tenant_id: str | None = None,
        embedder: EmbedderProtocol | None = None,
        *,
        judge: Judge | None = None,
        retry_safe: bool = False,
        max_attempts: int = 8,
        prepare_threshold: int | None = None,
    ) -> None:
        """Connects at the first call.

        dsn: a URI, also in SQLAlchemy's form (postgresql+psycopg://), or host=... dbname=...; empty: from libpq's
        environment variables. Raises InvalidDsnError. tenant_id: for calls that do not name one. embedder: asked for
        a vector only if tier 1 does not know the text. judge: asked by ``ingest(..., wait=True)``. retry_safe: gives
        every ingest an idempotency key (one row each), so that it can be sent again if the connection is lost during
        COMMIT. max_attempts: of a call that fails with 40001 or 40P01. prepare_threshold: as in psycopg; None (no
        prepared statements) works behind every pooler.
        """
        self._core = Core(tenant_id, embedder, retry_safe, max_attempts, judge)
        self._options: dict[str, Any] = {
            "conninfo": read_dsn(dsn),
            "autocommit": True,
            "prepare_threshold": prepare_threshold,
            "client_encoding": "UTF8",
            "fallback_application_name": "memfold",
        }
        self._set_up()

    def _set_up(self) -> None:
        raise NotImplementedError


async def ask(judge: Judge | None, step: Ask) -> Answer:
    """The judge's answer, or an error after the timeout."""
    assert judge is not None  # noqa: S101 (only with one is anything asked)
    return await protocol.ask(judge, step.question, step.seconds)


async def asked(core: Core, step: Ask, carry_out: Callable[[Step], Awaitable[Any]]) -> Answer:
    try:
        return await ask(core.judge, step)
    except asyncio.CancelledError:
        # Otherwise nobody else could ask until the lease ends.
        if step.leased:
            with contextlib.suppress(Exception):
                await run(core.give_back(step.question, "its caller was cancelled"), carry_out)
        raise


async def run(steps: Steps[T], carry_out: Callable[[Step], Awaitable[Any]]) -> T:
    with tracing.span(tracing.name_of(steps)) as span:
        try:
            step = next(steps)
            while True:
                try:
                    with traced(step):
                        outcome = await carry_out(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
            span.set_attributes(tracing.decision(result))
            return result


def traced(step: Step) -> AbstractContextManager[object]:
    """A span for one step. A question has its own span where the judge is asked; pauses and groups have none."""
    match step:
        case Transact():
            return tracing.span("transact")
        case Embed():
            return tracing.span("embed", **{"memfold.texts": len(step.texts)})
        case _:
            return contextlib.nullcontext()


async def together(step: Together, carry_out: Callable[[Step], Awaitable[Any]]) -> list[Any]:
    gate = asyncio.Semaphore(step.at_once)

    async def one(steps: Steps[Any]) -> Any:
        async with gate:
            return await run(steps, carry_out)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(steps)) for steps in step.calls]
    return [task.result() for task in tasks]


class Background:
    """An event loop in a thread, for judges of blocking clients, whether or not the caller runs a loop.

    There is one per process, and it never ends: the connections that a judge keeps open belong to the loop that
    opened them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked process has the loop, but not the thread that ran it.
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="memfold-judge", daemon=True).start()
            return self._loop


background = Background()
