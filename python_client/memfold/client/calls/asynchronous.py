"""``AsyncMemfold``, the async client. The calls themselves are in ``memfold.client.calls.core``."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row

from memfold.client import queries
from memfold.client._connection import reading_times
from memfold.client.calls import recall as _recall
from memfold.client.calls.batch import Batches
from memfold.client.calls.driving import asked, run, together
from memfold.client.calls.entries import Entry
from memfold.client.calls.steps import Ask, Embed, Pause, Step, Steps, Together, Transact
from memfold.client.calls.subject_calls import AsyncSubjectCalls
from memfold.client.calls.transactions import hearing, transact_async
from memfold.client.embedding.embedders import is_async
from memfold.client.errors import MemfoldError
from memfold.client.found import (
    FoundMemory,
    SearchBy,
    SearchFields,
    SearchResult,
)
from memfold.client.types import (
    BatchItem,
    BucketStats,
    Candidate,
    CandidateFields,
    Cardinality,
    Conflict,
    CurrentMemory,
    Embedding,
    EmbedReport,
    Erasure,
    Feedback,
    IngestResult,
    KnownMemory,
    ListFields,
    Memory,
    MemoryStatus,
    OnError,
    ProbeFields,
    Row,
    Rows,
    SimilarFields,
    SimilarMemory,
    UndoneMemory,
)

T = TypeVar("T")


class AsyncMemfold(AsyncSubjectCalls):
    """The async client. It has one connection; tasks that share it take turns at the connection, but not at the
    embedder.

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
        """As ``Memfold.ingest_many``, for any iterable or async iterable: ``async for item in ...``."""
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
        """As ``Memfold._ingest_many``, with a task in place of the thread."""
        taken = batches.taken_async(candidates)
        if not batches.embeds_ahead:
            async for entries in taken:
                await self._drive(batches.embed(await self._drive(batches.look_up(entries))))
                for item in await self._drive(batches.store(entries)):
                    yield item
            return
        entries = await anext(taken, [])
        await self._drive(batches.embed(await self._drive(batches.look_up(entries))))
        while entries:
            following: list[Entry] = []
            failed, storing = None, None
            try:
                following = await anext(taken, [])
                missing = await self._drive(batches.look_up(following))
                storing = asyncio.create_task(self._drive(batches.store(entries)))
                await self._drive(batches.embed(missing))
            except Exception as error:
                failed = error
            except BaseException:
                if storing is not None:
                    storing.cancel()
                raise
            for item in await (storing or self._drive(batches.store(entries))):
                yield item
            if failed is not None:
                raise failed
            entries = following

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
    ) -> SearchResult[SimilarMemory]:
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
        by: SearchBy | None = None,
        verify: bool = False,
        merge_text: bool = False,
        judge_timeout: float = 30.0,
        **options: Unpack[SearchFields],
    ) -> SearchResult[FoundMemory]:
        """As ``Memfold.search``."""
        named = {"bucket_id": bucket_id, "embedding": embedding, "embedding_model": embedding_model}
        return await self._drive(
            _recall.search(
                self._core, query, tenant_id, named, options, by=by,
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

    async def merge(
        self,
        memory_id: UUID | str,
        into_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """As ``Memfold.merge``."""
        given = {"memory_id": memory_id, "into_id": into_id, "reason": reason}
        return await self._drive(self._core.manual_action(queries.MERGE, given, tenant_id))

    async def supersede(
        self,
        memory_id: UUID | str,
        by_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """As ``Memfold.supersede``."""
        given = {"memory_id": memory_id, "by_id": by_id, "reason": reason}
        return await self._drive(self._core.manual_action(queries.SUPERSEDE, given, tenant_id))

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
        self,
        bucket_id: str = "default",
        as_of: datetime | None = None,
        tenant_id: str | None = None,
        *,
        known_at: datetime | None = None,
    ) -> tuple[CurrentMemory, ...]:
        """As ``Memfold.current_memories``."""
        return await self._drive(self._core.current_memories(bucket_id, as_of, known_at, tenant_id))

    async def get(self, memory_id: UUID | str, tenant_id: str | None = None) -> Memory:
        """As ``Memfold.get``."""
        return await self._drive(self._core.get(memory_id, tenant_id))

    async def list(
        self,
        bucket_id: str | None = "default",
        tenant_id: str | None = None,
        *,
        status: MemoryStatus | None = "active",
        after: UUID | str | None = None,
        limit: int = 100,
        **options: Unpack[ListFields],
    ) -> tuple[Memory, ...]:
        """As ``Memfold.list``."""
        given = {"bucket_id": bucket_id, "status": status, **options}
        return await self._drive(self._core.list(given, after, limit, tenant_id))

    async def erase(
        self,
        *,
        memory_id: UUID | str | None = None,
        source_turn_id: str | None = None,
        bucket_id: str | None = None,
        whole_tenant: bool = False,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> Erasure:
        """As ``Memfold.erase``."""
        given = {"memory_id": memory_id, "source_turn_id": source_turn_id, "bucket_id": bucket_id}
        return await self._drive(
            self._core.erase(given, whole_tenant=whole_tenant, reason=reason, tenant_id=tenant_id)
        )

    async def set_predicate(
        self,
        predicate: str,
        cardinality: Cardinality = "one",
        conflict: Conflict | None = None,
        tenant_id: str | None = None,
    ) -> UUID | None:
        """As ``Memfold.set_predicate``."""
        return await self._drive(self._core.set_predicate(predicate, cardinality, conflict, tenant_id))

    async def set_policy(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **rules: Any
    ) -> Row:
        """As ``Memfold.set_policy``."""
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return await self._drive(self._core.set_rules("set_policy", scope, rules, tenant_id))

    async def set_options(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **options: Any
    ) -> Row:
        """As ``Memfold.set_options``."""
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return await self._drive(self._core.set_rules("set_options", scope, options, tenant_id))

    async def check_invariants(self, tenant_id: str | None = None) -> Rows:
        """As ``Memfold.check_invariants``."""
        return await self._drive(self._core.check_invariants(tenant_id))

    async def register_embedding_model(self, embedding_model: str, dimensions: int) -> None:
        """As ``Memfold.register_embedding_model``."""
        await self._drive(self._core.register_embedding_model(embedding_model, dimensions))

    async def translate_unique_violation(
        self, error: psycopg.Error, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> MemfoldError:
        """As ``Memfold.translate_unique_violation``."""
        return await self._drive(self._core.hash_conflict(error, content, tenant_id, fields))

    async def _drive(self, steps: Steps[T]) -> T:
        return await run(steps, self._carry_out)

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
                return await asked(self._core, step, self._carry_out)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Together():
                return await together(step, self._carry_out)

    async def _transact(self, step: Transact) -> Rows:
        if self._connection is None or self._connection.closed:
            self._connection = reading_times(
                await psycopg.AsyncConnection.connect(**self._options, row_factory=dict_row)
            )
        with hearing(self._connection, step):
            return await transact_async(self._connection, step)
