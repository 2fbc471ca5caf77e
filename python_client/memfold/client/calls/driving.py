"""Questions and groups of calls, which both clients run on an event loop, and the loop of the blocking one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from memfold.client.calls.asynchronous.running import run
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Ask, Step, Steps, Together
from memfold.client.judging import Answer, Judge, protocol

T = TypeVar("T")


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
