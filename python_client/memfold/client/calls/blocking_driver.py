"""Carries out the steps of a call in the calling thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, LiteralString

from memfold.client.calls.blocking.running import Runner
from memfold.client.calls.driving import ask, asked, background, together
from memfold.client.calls.steps import Ask, Embed, Pause, Step, Steps, Together, Transact
from memfold.client.embedding.embedders import is_async
from memfold.client.types import Row


class Driver(Runner):
    """The part of ``Memfold`` that ``AsyncMemfold`` does differently."""

    def _check_embedder(self) -> None:
        if self._core.embedder is not None and is_async(self._core.embedder):
            raise TypeError("a coroutine function embeds for AsyncMemfold only")

    def _query(self, statement: LiteralString, tenant_id: str | None = None) -> list[Row]:
        return self._drive(self._core.query(statement, tenant_id))

    def _carry_out(self, step: Step) -> Any:
        match step:
            case Transact():
                return self._transact(step)
            case Embed():
                assert self._core.embedder is not None  # noqa: S101 (only it asks for this)
                return self._core.embedder.embed(step.texts)
            case Ask():
                try:
                    return background.run(ask(self._core.judge, step))
                except KeyboardInterrupt:
                    if step.leased:
                        with contextlib.suppress(Exception):
                            self._drive(self._core.give_back(step.question, "its caller was interrupted"))
                    raise
            case Pause():
                return time.sleep(step.seconds)
            case Together():
                return self._carry_out_together(step)

    def _carry_out_together(self, step: Together) -> list[Any]:
        """Runs on the background loop, where judges are asked; one thread at a time uses the database."""
        turn: asyncio.Lock
        ended = threading.Event()

        async def carry_out(step: Step) -> Any:
            match step:
                case Ask():
                    return await asked(self._core, step, carry_out)
                case Pause():
                    return await asyncio.sleep(step.seconds)
                case _:
                    async with turn:
                        return await asyncio.to_thread(self._carry_out, step)

        async def work() -> list[Any]:
            nonlocal turn
            turn = asyncio.Lock()
            try:
                return await together(step, carry_out)
            finally:
                ended.set()

        try:
            return background.run(work())
        except BaseException:
            ended.wait(5)  # give back the judgements being asked
            raise

    @contextlib.contextmanager
    def _beside(self) -> Iterator[Callable[[Steps[Any]], Callable[[], Any]]]:
        """A function that starts a call in another thread; what it returns waits for the result."""
        with ThreadPoolExecutor(1, "memfold-store") as thread:
            yield lambda steps: thread.submit(copy_context().run, self._drive, steps).result
