"""Carries out the steps of a call in the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from memfold.client.calls.asynchronous.running import AsyncRunner
from memfold.client.calls.driving import asked, together
from memfold.client.calls.steps import Ask, Embed, Pause, Step, Steps, Together, Transact
from memfold.client.embedding.embedders import is_async


class AsyncDriver(AsyncRunner):
    """The part of ``AsyncMemfold`` that ``Memfold`` does differently."""

    async def _carry_out(self, step: Step) -> Any:
        match step:
            case Transact():
                return await self._transact(step)
            case Embed():
                embedder = self._core.embedder
                assert embedder is not None  # noqa: S101 (only it asks for this)
                if (aembed := getattr(embedder, "aembed", None)) is not None:
                    return await aembed(step.texts)
                if is_async(embedder):
                    return await embedder.embed(step.texts)
                answer = await asyncio.to_thread(embedder.embed, step.texts)
                return await answer if inspect.isawaitable(answer) else answer
            case Ask():
                return await asked(self._core, step, self._carry_out)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Together():
                return await together(step, self._carry_out)

    @contextlib.asynccontextmanager
    async def _beside(self) -> AsyncIterator[Callable[[Steps[Any]], Callable[[], Awaitable[Any]]]]:
        """A function that starts a call in a task; what it returns waits for the result."""
        tasks: list[asyncio.Task[Any]] = []

        def start(steps: Steps[Any]) -> Callable[[], Awaitable[Any]]:
            tasks.append(task := asyncio.create_task(self._drive(steps)))
            return lambda: task

        try:
            yield start
        finally:
            for task in tasks:
                task.cancel()
