"""Runs the steps of a call, each transaction on the client's one connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row

from memfold.client import queries, tracing
from memfold.client._connection import is_open, pipeline, reading_times
from memfold.client._dsn import read_dsn
from memfold.client.calls.core import Core
from memfold.client.calls.steps import CommitLostError, Embed, Step, Steps, Transact
from memfold.client.embedding import EmbedderProtocol
from memfold.client.errors import is_outcome_unknown
from memfold.client.found import Notice
from memfold.client.judging import Judge
from memfold.client.types import Row

T = TypeVar("T")


class AsyncRunner:
    """The client's options and its connection."""

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
        self._connection: psycopg.AsyncConnection[DictRow] | None = None
        self._lock = asyncio.Lock()
        self._check_embedder()

    def _check_embedder(self) -> None:
        """Raises TypeError for an embedder that the client cannot use."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; another call opens a new one."""
        async with self._lock:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _drive(self, steps: Steps[T]) -> T:
        return await run(steps, self._carry_out)

    async def _carry_out(self, step: Step) -> Any:
        raise NotImplementedError

    async def _transact(self, step: Transact) -> list[Row]:
        async with self._lock:
            if self._connection is None or not is_open(self._connection):
                self._connection = reading_times(
                    await psycopg.AsyncConnection.connect(**self._options, row_factory=dict_row)
                )
            with hearing(self._connection, step):
                return await transact(self._connection, step)


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


@contextlib.contextmanager
def hearing(connection: psycopg.AsyncConnection[DictRow], step: Transact) -> Iterator[None]:
    """Collect the server's notices, for a step that wants them."""
    if (notices := step.notices) is None:
        yield
        return
    notices.clear()  # from an earlier attempt

    def hear(said: psycopg.errors.Diagnostic) -> None:
        notices.append(Notice(said.sqlstate, said.message_detail, said.message_hint))

    connection.add_notice_handler(hear)
    try:
        yield
    finally:
        connection.remove_notice_handler(hear)


async def transact(connection: psycopg.AsyncConnection[DictRow], step: Transact) -> list[Row]:
    """Send it, and commit. Raises CommitLostError if it is unknown whether that succeeded."""
    rows: list[Row] = []
    commits = step.keep is None
    failed: psycopg.Error | None = None
    try:
        if step.opening is None:
            return [*await (await connection.execute(step.statement, step.parameters)).fetchall()]
        async with pipeline(connection):
            try:
                await connection.execute(queries.BEGIN)
                await connection.execute(step.opening, step.parameters)
                cursor = await connection.execute(step.statement, step.parameters)
                if step.keep is None:
                    await connection.execute(queries.COMMIT)
            except psycopg.Error as early:
                failed = early  # psycopg would log that what was sent after it is skipped
        if failed is not None:
            raise failed
        rows = [*await cursor.fetchall()]
        if step.keep is not None:
            commits = step.keep(rows)
            await (connection.commit() if commits else connection.rollback())
    except psycopg.Error as caught:
        error = failed or caught
        if commits and is_outcome_unknown(error):
            await connection.close()
            raise CommitLostError(error, rows) from error
        try:
            await connection.rollback()
        except psycopg.Error:
            await connection.close()
        raise error from None
    except BaseException:
        await connection.close()
        raise
    return rows
