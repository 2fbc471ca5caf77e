"""The clients: ``Memfold`` blocks, ``AsyncMemfold`` awaits. What they do is in ``memfold._core``."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar, Unpack
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row

from memfold import queries
from memfold.client import recall as _recall
from memfold.client.batch import Batches
from memfold.client.core import Ask, CommitLostError, Core, Embed, Pause, Step, Steps, Together, Transact
from memfold.embedding.embedders import EmbedderProtocol, is_async
from memfold.errors import MemfoldError, is_connection_lost
from memfold.judging import Answer, Judge, JudgeError
from memfold.types import (
    BatchItem,
    BucketStats,
    Candidate,
    CandidateFields,
    CurrentMemory,
    Embedding,
    EmbedReport,
    Feedback,
    FoundMemory,
    IngestResult,
    KnownMemory,
    OnError,
    ProbeFields,
    Row,
    SearchFields,
    SimilarFields,
    SimilarMemory,
    UndoneMemory,
)

__all__ = ["AsyncMemfold", "Memfold"]

T = TypeVar("T")


class _Client:
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

        tenant_id: of calls that name none. embedder: asked for a vector only where tier 1 does not know the
        text. judge: asked by ``ingest(..., wait=True)``. retry_safe: gives every ingest an idempotency key (one
        row each), so that it can be sent again when the connection is lost during COMMIT. max_attempts: of a
        call that meets 40001 or 40P01. prepare_threshold: as psycopg's; None, no prepared statements, works
        behind every pooler.
        """
        self._core = Core(tenant_id, embedder, retry_safe, max_attempts, judge)
        self._options: dict[str, Any] = {
            "conninfo": dsn,
            "autocommit": True,
            "prepare_threshold": prepare_threshold,
            "client_encoding": "UTF8",
            "fallback_application_name": "memfold",
        }
        self._set_up()

    def _set_up(self) -> None:
        raise NotImplementedError


def _pipeline(connection: Any) -> Any:
    """Sends what a transaction begins with together with its statement, where libpq can."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()


async def _ask(judge: Judge | None, step: Ask) -> Answer:
    """The judge's answer, in time or not at all."""
    assert judge is not None  # noqa: S101 (only with one is anything asked)
    deadline = asyncio.timeout(step.seconds)
    try:
        async with deadline:
            return await judge.judge(step.question)
    except TimeoutError as error:
        if deadline.expired():
            raise JudgeError(f"no answer within {step.seconds:.3g} s", transient=True) from error
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the judge cancelled its own call") from error


async def _asked(core: Core, step: Ask, carry_out: Callable[[Step], Awaitable[Any]]) -> Answer:
    try:
        return await _ask(core.judge, step)
    except asyncio.CancelledError:
        # Nobody else could ask until the lease ends.
        if step.leased:
            with contextlib.suppress(Exception):
                await _run(core.give_back(step.question, "its caller was cancelled"), carry_out)
        raise


async def _run(steps: Steps[T], carry_out: Callable[[Step], Awaitable[Any]]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                outcome = await carry_out(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def _together(step: Together, carry_out: Callable[[Step], Awaitable[Any]]) -> list[Any]:
    gate = asyncio.Semaphore(step.at_once)

    async def one(steps: Steps[Any]) -> Any:
        async with gate:
            return await _run(steps, carry_out)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(steps)) for steps in step.calls]
    return [task.result() for task in tasks]


class _Background:
    """An event loop in a thread, for judges of blocking clients; whether the caller runs a loop is of no matter.

    One for the process and for good: the connections that a judge keeps open belong to the loop that opened them.
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
            # A fork has the loop, but not the thread that ran it.
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="memfold-judge", daemon=True).start()
            return self._loop


_background = _Background()


class Memfold(_Client):
    """The blocking client. One connection; threads that share it take turns.

    >>> with Memfold(dsn, tenant_id="acme") as memfold:
    ...     memfold.ingest("Alice has a cat.", subject="Alice").action
    'inserted'
    """

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

    def ingest(
        self,
        content: str,
        tenant_id: str | None = None,
        *,
        wait: bool | float = False,
        **fields: Unpack[CandidateFields],
    ) -> IngestResult:
        """Hand in one fact: the database decides whether it is new, known, changed or unclear.

        wait: where it is unclear, have the client's judge asked at once (or wait for the worker that has the
        judgement already, or for any if the client has no judge), for so many seconds or, True, 60;
        ``resolution`` of the result says what came of it. A judge that fails costs nothing but the answer.
        """
        return self._drive(self._core.ingest(content, tenant_id, fields, wait=wait))

    def ingest_many(
        self,
        candidates: Iterable[Candidate],
        tenant_id: str | None = None,
        *,
        batch_size: int = 500,
        wait: bool | float = False,
        on_error: OnError = "report",
        progress: Callable[[int, Counter[str]], object] | None = None,
        **defaults: Unpack[CandidateFields],
    ) -> Iterator[BatchItem]:
        """Hand in any number of facts, a batch at a time: what ``ingest`` would do with each, in order, faster.

        An iterator, which must be run through: it reads so many candidates, stores them in one transaction,
        and gives an item for each; then it reads on. candidates: texts, or mappings of ``content`` and the
        arguments of ``ingest``; None in them stands for the server's default. defaults: arguments of all that
        do not give their own. A candidate that cannot be stored becomes an item with an error; on_error
        'abort': its error is raised, which names its index, and nothing of its batch is stored. A batch whose
        connection is lost, even during COMMIT, is sent again, and counts once. With an embedder, the distinct
        texts of a batch that tier 1 does not know are embedded together. wait: as of ``ingest``, for each
        candidate; ten judgements are under way at once. progress: called after each batch with the number of
        candidates so far and of each action ('error' for those that failed).
        """
        batches = Batches(
            self._core,
            tenant_id,
            defaults,
            batch_size=batch_size,
            wait=wait,
            on_error=on_error,
            progress=progress,
        )
        return self._ingest_many(batches, candidates)

    def _ingest_many(self, batches: Batches, candidates: Iterable[Candidate]) -> Iterator[BatchItem]:
        for candidate in candidates:
            if batches.add(candidate):
                yield from self._drive(batches.send())
        yield from self._drive(batches.send())

    def preview(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[CandidateFields]
    ) -> IngestResult:
        """What ``ingest`` would do now with the same arguments. Nothing is written."""
        return self._drive(self._core.ingest(content, tenant_id, fields, preview=True))

    def known(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> KnownMemory | None:
        """The memory that holds this very text, if the bucket knows it: tier 1 alone."""
        return self._drive(self._core.known(content, tenant_id, fields))

    def find_similar(
        self,
        content: str | None = None,
        tenant_id: str | None = None,
        bucket_id: str = "default",
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
        **options: Unpack[SimilarFields],
    ) -> tuple[SimilarMemory, ...]:
        """Active memories whose cosine to the embedding, or to the content's, is at least ``threshold``."""
        return self._drive(
            self._core.find_similar(content, tenant_id, bucket_id, embedding, embedding_model, options)
        )

    def search(
        self,
        query: str | None = None,
        tenant_id: str | None = None,
        bucket_id: str = "default",
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
        verify: bool = False,
        merge_text: bool = False,
        judge_timeout: float = 30.0,
        **options: Unpack[SearchFields],
    ) -> tuple[FoundMemory, ...]:
        """The active memories nearest to the query (or to its embedding), best first, each fact once.

        verify: the client's judge is asked about each memory that is hidden behind another; only what it calls
        a duplicate or a refinement stays hidden. merge_text: it writes one text for those that are shown as
        one, ``display_text``, which is stored nowhere. Each takes a call of the judge for each hidden memory;
        where it fails, or has no answer in judge_timeout seconds, memories are shown by themselves, with their
        own texts.
        """
        named = {"bucket_id": bucket_id, "embedding": embedding, "embedding_model": embedding_model}
        return self._drive(
            _recall.search(
                self._core, query, tenant_id, named, options,
                verify=verify, merge_text=merge_text, judge_timeout=judge_timeout,
            )
        )  # fmt: skip

    def record_feedback(self, memory_id: UUID | str, helpful: bool, tenant_id: str | None = None) -> Feedback:
        """Count that a memory helped, or harmed: ``search`` ranks by it. Both counts as they are now."""
        return self._drive(self._core.record_feedback(memory_id, helpful, tenant_id))

    def attach_embedding(
        self, memory_id: UUID | str, embedding: Embedding, embedding_model: str, tenant_id: str | None = None
    ) -> IngestResult:
        """Give a memory that was stored without a vector its vector, and run the tier 2 that was skipped."""
        return self._drive(self._core.attach_embedding(memory_id, embedding, embedding_model, tenant_id))

    def embed_pending(
        self, tenant_id: str | None = None, bucket_id: str | None = None, batch: int = 64
    ) -> EmbedReport:
        """Embed what was stored without a vector, and attach the vectors. Stops when the embedder is down."""
        return self._drive(self._core.embed_pending(tenant_id, bucket_id, batch))

    def explain(self, memory_id: UUID | str, tenant_id: str | None = None) -> str:
        """The whole life of a memory, as text."""
        return self._drive(self._core.explain(memory_id, tenant_id))

    def stats(self, tenant_id: str | None = None, bucket_id: str | None = None) -> tuple[BucketStats, ...]:
        """What deduplication did, a bucket each."""
        return self._drive(self._core.stats(tenant_id, bucket_id))

    def undo(
        self, event_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> tuple[UndoneMemory, ...]:
        """Take back one event: a fold, a retirement, a rejection, a restatement. Its memories as they are now."""
        return self._drive(self._core.undo(event_id, reason, tenant_id))

    def reject(
        self, memory_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> IngestResult:
        """Not this: the memory is no longer shown, and its texts are refused when they arrive again."""
        given = {"memory_id": memory_id, "reason": reason}
        return self._drive(self._core.by_hand(queries.REJECT, given, tenant_id))

    def merge(
        self,
        memory_id: UUID | str,
        into_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """Fold a memory into another one, which counts its observations from now on."""
        given = {"memory_id": memory_id, "into_id": into_id, "reason": reason}
        return self._drive(self._core.by_hand(queries.MERGE, given, tenant_id))

    def supersede(
        self,
        memory_id: UUID | str,
        by_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """Retire a memory in favour of another one, from now on."""
        given = {"memory_id": memory_id, "by_id": by_id, "reason": reason}
        return self._drive(self._core.by_hand(queries.SUPERSEDE, given, tenant_id))

    def update(
        self,
        memory_id: UUID | str,
        content: str,
        object: str | None = None,  # noqa: A002 (its name in every interface of memfold)
        reason: str | None = None,
        tenant_id: str | None = None,
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
    ) -> IngestResult:
        """Give a memory another text: a new memory, into which the old one is folded, compared by tier 2."""
        given = {
            "object": object,
            "embedding": embedding,
            "embedding_model": embedding_model,
            "reason": reason,
        }
        return self._drive(self._core.update(memory_id, content, given, tenant_id))

    def current_memories(
        self, bucket_id: str = "default", as_of: datetime | None = None, tenant_id: str | None = None
    ) -> tuple[CurrentMemory, ...]:
        """What was believed true at a time (None: now), by what is known today."""
        return self._drive(self._core.current_memories(bucket_id, as_of, tenant_id))

    def check_invariants(self, tenant_id: str | None = None) -> list[Row]:
        """Where the tenant's memories differ from what the ledger says; empty when all is well."""
        return self._drive(self._core.check_invariants(tenant_id))

    def register_embedding_model(self, model: str, dimensions: int) -> None:
        """Make an embedding model known; the client does so itself for its embedder's."""
        self._drive(self._core.register_embedding_model(model, dimensions))

    def translate_unique_violation(
        self, error: psycopg.Error, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> MemfoldError:
        """What to raise for what a plain INSERT into memfold.memories raised.

        ``MemoryHashConflict`` with the id of the memory that holds the text, if it was the index of tier 1.
        """
        return self._drive(self._core.hash_conflict(error, content, tenant_id, fields))

    def _query(self, statement: LiteralString, tenant_id: str | None = None) -> list[Row]:
        return self._drive(self._core.query(statement, tenant_id))

    def _drive(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._carry_out(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
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
                    return _background.run(_ask(self._core.judge, step))
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
        """On the background's loop, for it is where judges are asked; a thread at a time for the database."""
        turn: asyncio.Lock
        ended = threading.Event()

        async def carry_out(step: Step) -> Any:
            match step:
                case Ask():
                    return await _asked(self._core, step, carry_out)
                case Pause():
                    return await asyncio.sleep(step.seconds)
                case _:
                    async with turn:
                        return await asyncio.to_thread(self._carry_out, step)

        async def work() -> list[Any]:
            nonlocal turn
            turn = asyncio.Lock()
            try:
                return await _together(step, carry_out)
            finally:
                ended.set()

        try:
            return _background.run(work())
        except BaseException:
            ended.wait(5)  # what was being asked is given back
            raise

    def _transact(self, step: Transact) -> list[Row]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(**self._options, row_factory=dict_row)
        connection = self._connection
        try:
            with _pipeline(connection):
                connection.execute(queries.BEGIN)
                connection.execute(queries.SET_TENANT, step.parameters)
                for statement in queries.tenant_for_copy(step.parameters) if step.copy else ():
                    connection.execute(statement)
                if step.copy is None:
                    cursor = connection.execute(step.statement, step.parameters)
            if step.copy is not None:
                with connection.cursor() as copying, copying.copy(step.copy.statement) as copy:
                    copy.set_types(step.copy.types)
                    for row in step.copy.rows:
                        copy.write_row(row)
                cursor = connection.execute(step.statement, step.parameters)
            rows: list[Row] = [*cursor.fetchall()]
            if step.keep is not None and not step.keep(rows):
                connection.rollback()
                return rows
        except BaseException as error:
            try:
                if not isinstance(error, psycopg.Error):
                    raise psycopg.OperationalError("interrupted")
                connection.rollback()
            except psycopg.Error:
                connection.close()
            raise
        try:
            connection.commit()
        except psycopg.Error as error:
            connection.close()
            if is_connection_lost(error):
                raise CommitLostError(error, rows) from error
            raise
        return rows


class AsyncMemfold(_Client):
    """The asynchronous client. One connection; tasks that share it take turns at it, but not at the embedder.

    >>> async with AsyncMemfold(dsn, tenant_id="acme") as memfold:
    ...     result = await memfold.ingest("Alice has a cat.", subject="Alice")
    """

    def _set_up(self) -> None:
        self._connection: psycopg.AsyncConnection[DictRow] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As ``Memfold.close``."""
        async with self._lock:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def ingest(
        self,
        content: str,
        tenant_id: str | None = None,
        *,
        wait: bool | float = False,
        **fields: Unpack[CandidateFields],
    ) -> IngestResult:
        """As ``Memfold.ingest``."""
        return await self._drive(self._core.ingest(content, tenant_id, fields, wait=wait))

    def ingest_many(
        self,
        candidates: Iterable[Candidate] | AsyncIterable[Candidate],
        tenant_id: str | None = None,
        *,
        batch_size: int = 500,
        wait: bool | float = False,
        on_error: OnError = "report",
        progress: Callable[[int, Counter[str]], object] | None = None,
        **defaults: Unpack[CandidateFields],
    ) -> AsyncIterator[BatchItem]:
        """As ``Memfold.ingest_many``, of any iterable or asynchronous one: ``async for item in ...``."""
        batches = Batches(
            self._core,
            tenant_id,
            defaults,
            batch_size=batch_size,
            wait=wait,
            on_error=on_error,
            progress=progress,
        )
        return self._ingest_many(batches, candidates)

    async def _ingest_many(
        self, batches: Batches, candidates: Iterable[Candidate] | AsyncIterable[Candidate]
    ) -> AsyncIterator[BatchItem]:
        if isinstance(candidates, AsyncIterable):
            async for candidate in candidates:
                if batches.add(candidate):
                    for item in await self._drive(batches.send()):
                        yield item
        else:
            for candidate in candidates:
                if batches.add(candidate):
                    for item in await self._drive(batches.send()):
                        yield item
        for item in await self._drive(batches.send()):
            yield item

    async def preview(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[CandidateFields]
    ) -> IngestResult:
        """As ``Memfold.preview``."""
        return await self._drive(self._core.ingest(content, tenant_id, fields, preview=True))

    async def known(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> KnownMemory | None:
        """As ``Memfold.known``."""
        return await self._drive(self._core.known(content, tenant_id, fields))

    async def find_similar(
        self,
        content: str | None = None,
        tenant_id: str | None = None,
        bucket_id: str = "default",
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
        **options: Unpack[SimilarFields],
    ) -> tuple[SimilarMemory, ...]:
        """As ``Memfold.find_similar``."""
        return await self._drive(
            self._core.find_similar(content, tenant_id, bucket_id, embedding, embedding_model, options)
        )

    async def search(
        self,
        query: str | None = None,
        tenant_id: str | None = None,
        bucket_id: str = "default",
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
        verify: bool = False,
        merge_text: bool = False,
        judge_timeout: float = 30.0,
        **options: Unpack[SearchFields],
    ) -> tuple[FoundMemory, ...]:
        """As ``Memfold.search``."""
        named = {"bucket_id": bucket_id, "embedding": embedding, "embedding_model": embedding_model}
        return await self._drive(
            _recall.search(
                self._core, query, tenant_id, named, options,
                verify=verify, merge_text=merge_text, judge_timeout=judge_timeout,
            )
        )  # fmt: skip

    async def record_feedback(
        self, memory_id: UUID | str, helpful: bool, tenant_id: str | None = None
    ) -> Feedback:
        """As ``Memfold.record_feedback``."""
        return await self._drive(self._core.record_feedback(memory_id, helpful, tenant_id))

    async def attach_embedding(
        self, memory_id: UUID | str, embedding: Embedding, embedding_model: str, tenant_id: str | None = None
    ) -> IngestResult:
        """As ``Memfold.attach_embedding``."""
        return await self._drive(
            self._core.attach_embedding(memory_id, embedding, embedding_model, tenant_id)
        )

    async def embed_pending(
        self, tenant_id: str | None = None, bucket_id: str | None = None, batch: int = 64
    ) -> EmbedReport:
        """As ``Memfold.embed_pending``."""
        return await self._drive(self._core.embed_pending(tenant_id, bucket_id, batch))

    async def explain(self, memory_id: UUID | str, tenant_id: str | None = None) -> str:
        """As ``Memfold.explain``."""
        return await self._drive(self._core.explain(memory_id, tenant_id))

    async def stats(
        self, tenant_id: str | None = None, bucket_id: str | None = None
    ) -> tuple[BucketStats, ...]:
        """As ``Memfold.stats``."""
        return await self._drive(self._core.stats(tenant_id, bucket_id))

    async def undo(
        self, event_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> tuple[UndoneMemory, ...]:
        """As ``Memfold.undo``."""
        return await self._drive(self._core.undo(event_id, reason, tenant_id))

    async def reject(
        self, memory_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> IngestResult:
        """As ``Memfold.reject``."""
        given = {"memory_id": memory_id, "reason": reason}
        return await self._drive(self._core.by_hand(queries.REJECT, given, tenant_id))

    async def merge(
        self,
        memory_id: UUID | str,
        into_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """As ``Memfold.merge``."""
        given = {"memory_id": memory_id, "into_id": into_id, "reason": reason}
        return await self._drive(self._core.by_hand(queries.MERGE, given, tenant_id))

    async def supersede(
        self,
        memory_id: UUID | str,
        by_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """As ``Memfold.supersede``."""
        given = {"memory_id": memory_id, "by_id": by_id, "reason": reason}
        return await self._drive(self._core.by_hand(queries.SUPERSEDE, given, tenant_id))

    async def update(
        self,
        memory_id: UUID | str,
        content: str,
        object: str | None = None,  # noqa: A002 (its name in every interface of memfold)
        reason: str | None = None,
        tenant_id: str | None = None,
        *,
        embedding: Embedding | None = None,
        embedding_model: str | None = None,
    ) -> IngestResult:
        """As ``Memfold.update``."""
        given = {
            "object": object,
            "embedding": embedding,
            "embedding_model": embedding_model,
            "reason": reason,
        }
        return await self._drive(self._core.update(memory_id, content, given, tenant_id))

    async def current_memories(
        self, bucket_id: str = "default", as_of: datetime | None = None, tenant_id: str | None = None
    ) -> tuple[CurrentMemory, ...]:
        """As ``Memfold.current_memories``."""
        return await self._drive(self._core.current_memories(bucket_id, as_of, tenant_id))

    async def check_invariants(self, tenant_id: str | None = None) -> list[Row]:
        """As ``Memfold.check_invariants``."""
        return await self._drive(self._core.check_invariants(tenant_id))

    async def register_embedding_model(self, model: str, dimensions: int) -> None:
        """As ``Memfold.register_embedding_model``."""
        await self._drive(self._core.register_embedding_model(model, dimensions))

    async def translate_unique_violation(
        self, error: psycopg.Error, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> MemfoldError:
        """As ``Memfold.translate_unique_violation``."""
        return await self._drive(self._core.hash_conflict(error, content, tenant_id, fields))

    async def _drive(self, steps: Steps[T]) -> T:
        return await _run(steps, self._carry_out)

    async def _carry_out(self, step: Step) -> Any:
        match step:
            case Transact():
                async with self._lock:
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
                return await _asked(self._core, step, self._carry_out)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Together():
                return await _together(step, self._carry_out)

    async def _transact(self, step: Transact) -> list[Row]:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(**self._options, row_factory=dict_row)
        connection = self._connection
        try:
            async with _pipeline(connection):
                await connection.execute(queries.BEGIN)
                await connection.execute(queries.SET_TENANT, step.parameters)
                for statement in queries.tenant_for_copy(step.parameters) if step.copy else ():
                    await connection.execute(statement)
                if step.copy is None:
                    cursor = await connection.execute(step.statement, step.parameters)
            if step.copy is not None:
                async with connection.cursor() as copying, copying.copy(step.copy.statement) as copy:
                    copy.set_types(step.copy.types)
                    for row in step.copy.rows:
                        await copy.write_row(row)
                cursor = await connection.execute(step.statement, step.parameters)
            rows: list[Row] = [*await cursor.fetchall()]
            if step.keep is not None and not step.keep(rows):
                await connection.rollback()
                return rows
        except BaseException as error:
            try:
                if not isinstance(error, psycopg.Error):
                    raise psycopg.OperationalError("interrupted")
                await connection.rollback()
            except psycopg.Error:
                await connection.close()
            raise
        try:
            await connection.commit()
        except psycopg.Error as error:
            await connection.close()
            if is_connection_lost(error):
                raise CommitLostError(error, rows) from error
            raise
        return rows
