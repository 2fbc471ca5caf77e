"""Runs the steps of a call in the calling thread, over one connection."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row

from memfold.client import tracing
from memfold.client._connection import reading_times
from memfold.client.calls.driving import Client, ask, asked, background, together, traced
from memfold.client.calls.steps import Ask, Embed, Pause, Step, Steps, Together, Transact
from memfold.client.calls.transactions import hearing, transact
from memfold.client.embedding.embedders import is_async
from memfold.client.types import Row

T = TypeVar("T")


class BlockingDriver(Client):
    """A connection, opened when it is needed; threads that share it take turns."""

    def _set_up(self) -> None:
        if self._core.embedder is not None and is_async(self._core.embedder):
            raise TypeError("a coroutine function embeds for AsyncMemfold only")
        self._connection: psycopg.Connection[DictRow] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; another call opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _query(self, statement: LiteralString, tenant_id: str | None = None) -> list[Row]:
        return self._drive(self._core.query(statement, tenant_id))

    def _drive(self, steps: Steps[T]) -> T:
        with tracing.span(tracing.name_of(steps)) as span:
            try:
                step = next(steps)
                while True:
                    try:
                        with traced(step):
                            outcome = self._carry_out(step)
                    except Exception as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                span.set_attributes(tracing.decision(result))
                return result

    def _carry_out(self, step: Step) -> Any:
        match step:
            case Transact():
                with self._lock:
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

    def _transact(self, step: Transact) -> list[Row]:
        if self._connection is None or self._connection.closed:
            self._connection = reading_times(psycopg.connect(**self._options, row_factory=dict_row))
        with hearing(self._connection, step):
            return transact(self._connection, step)
