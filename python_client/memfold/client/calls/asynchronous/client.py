"""``AsyncMemfold``: what programs call. The calls themselves are in ``memfold.client.calls.core``."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, Unpack
from uuid import UUID

import psycopg

from memfold.client.calls import recall as _recall
from memfold.client.calls.asynchronous.memories import AsyncMemoryCalls
from memfold.client.calls.batch import Batches
from memfold.client.calls.entries import Entry
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
    Embedding,
    EmbedReport,
    IngestResult,
    KnownMemory,
    OnError,
    ProbeFields,
    Row,
    Rows,
    SimilarFields,
    SimilarMemory,
)


class AsyncMemfold(AsyncMemoryCalls):
    """The async client. It has one connection; tasks that share it take turns at the connection, but not at the
    embedder.

    >>> async with AsyncMemfold(dsn, tenant_id="acme") as memfold:
    ...     result = await memfold.ingest("Alice has a cat.", subject="Alice")
    >>> result.action
    'inserted'
    """

    async def ingest(
        self,
        content: str,
        tenant_id: str | None = None,
        *,
        wait: bool | float = False,
        **fields: Unpack[CandidateFields],
    ) -> IngestResult:
        """Submit one fact: the database decides whether it is new, known, changed or unclear.

        wait: if it is unclear, ask the client's judge immediately (or wait for the worker that already has the
        judgement, or for any worker if the client has no judge), for this many seconds; True means 60. ``resolution``
        of the result has the outcome. If the judge fails, only the answer is missing.
        """
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
        """Submit any number of facts in batches, with the same results as ``ingest``, in order, but faster.

        Returns an async iterator, which must be exhausted: it reads a batch of candidates, stores them in one
        transaction, yields an item for each, and continues. candidates (an iterable, or an async one): texts, or
        mappings of ``content`` and the arguments of ``ingest``; None in a mapping means the server's default
        (an error for bucket_id and memory_type, which have to be named or left out).
        defaults: arguments for all candidates that do not give their own. A candidate that cannot be stored yields an
        item with ``error`` set; with on_error 'abort', its error, which names its index, is raised, and nothing of its
        batch is stored. If the connection is lost, even during COMMIT, the batch is sent again and counts once. With an
        embedder, the distinct texts of a batch that tier 1 does not know are embedded together, while the previous
        batch is stored; for that it reads one batch ahead (not with wait). wait: as for ``ingest``, for each candidate,
        with ten judgements at a time. progress: called after each batch with the number of candidates so far, and the
        number per action ('error' for those that failed).
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

    async def _ingest_many(
        self, batches: Batches, candidates: Iterable[Candidate] | AsyncIterable[Candidate]
    ) -> AsyncIterator[BatchItem]:
        taken = batches.taken_async(candidates)
        if not batches.embeds_ahead:
            async for entries in taken:
                await self._drive(batches.embed(await self._drive(batches.look_up(entries))))
                for item in await self._drive(batches.store(entries)):
                    yield item
            return
        # A batch is stored while the next one is embedded.
        entries = await anext(taken, [])
        await self._drive(batches.embed(await self._drive(batches.look_up(entries))))
        async with self._beside() as start:
            while entries:
                following: list[Entry] = []
                failed, stored = None, None
                try:
                    following = await anext(taken, [])
                    missing = await self._drive(batches.look_up(following))
                    stored = start(batches.store(entries))
                    await self._drive(batches.embed(missing))
                except Exception as error:  # raised after this batch, to keep the order
                    failed = error
                for item in await (stored or start(batches.store(entries)))():
                    yield item
                if failed is not None:
                    raise failed
                entries = following

    async def preview(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[CandidateFields]
    ) -> IngestResult:
        """What ``ingest`` would do now with the same arguments. Nothing is written."""
        return await self._drive(self._core.ingest(content, tenant_id, fields, preview=True))

    async def known(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> KnownMemory | None:
        """The memory that holds exactly this text, if the bucket knows it: only tier 1."""
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
        """Active memories whose cosine to the embedding, or to that of the content, is at least ``threshold``."""
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
        """The active memories that fit the query best, each fact once.

        by: 'vector' compares the embedding, or that of the query; 'words' counts the words of the query that a memory
        has; 'both' ranks by both. None: 'vector' if there is an embedding or an embedder, else 'words'; also 'words' if
        the embedder fails, which ``complete`` and ``reason`` of the result report. bucket_ids, bucket_prefix: search
        these buckets, or those whose names begin with the prefix, instead of bucket_id. metadata_path: a condition in
        jsonpath, such as ``$.year > 2020``. ``complete`` of the result is False if a bucket is too large to be searched
        completely: ``reason`` and ``hint`` say why, and what to do.

        verify: ask the client's judge about each memory that is hidden behind another; only those that it calls a
        duplicate or a refinement stay hidden. merge_text: the judge writes one text, ``display_text``, for memories
        that are shown as one; it is not stored. Either takes one call of the judge per hidden memory; if it fails, or
        does not answer within judge_timeout seconds, memories are shown separately, with their own texts.
        """
        named = {"bucket_id": bucket_id, "embedding": embedding, "embedding_model": embedding_model}
        return await self._drive(
            _recall.search(
                self._core, query, tenant_id, named, options, by=by,
                verify=verify, merge_text=merge_text, judge_timeout=judge_timeout,
            )
        )  # fmt: skip

    async def attach_embedding(
        self, memory_id: UUID | str, embedding: Embedding, embedding_model: str, tenant_id: str | None = None
    ) -> IngestResult:
        """Give a memory that was stored without a vector its vector, and run the tier 2 that was skipped."""
        return await self._drive(
            self._core.attach_embedding(memory_id, embedding, embedding_model, tenant_id)
        )

    async def embed_pending(
        self, tenant_id: str | None = None, bucket_id: str | None = None, batch: int = 64
    ) -> EmbedReport:
        """Embed memories that were stored without a vector, and attach the vectors. Stops when the embedder is down."""
        return await self._drive(self._core.embed_pending(tenant_id, bucket_id, batch))

    async def stats(
        self, tenant_id: str | None = None, bucket_id: str | None = None
    ) -> tuple[BucketStats, ...]:
        """What deduplication did, per bucket."""
        return await self._drive(self._core.stats(tenant_id, bucket_id))

    async def set_predicate(
        self,
        predicate: str,
        cardinality: Cardinality = "one",
        conflict: Conflict | None = None,
        tenant_id: str | None = None,
    ) -> UUID | None:
        """Set how many values a predicate has at a time, and which of two wins (conflict; None: as the policy says).

        Returns the run that takes up what is stored, or None if nothing that is stored is concerned.
        """
        return await self._drive(self._core.set_predicate(predicate, cardinality, conflict, tenant_id))

    async def set_policy(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **rules: Any
    ) -> Row:
        """Set rules of a tenant, of a bucket, or of one type in it ('*': any); returns all rules that apply there
        now.

        rules: named as in ``memfold.set_policy`` in the database, such as preset="hash_first" or
        merge_threshold=0.95; omitted rules, or None, do not change. Raises InvalidOptionError, which names the
        existing rules.
        """
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return await self._drive(self._core.set_rules("set_policy", scope, rules, tenant_id))

    async def set_options(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **options: Any
    ) -> Row:
        """Set options of recall and maintenance, as ``set_policy`` sets rules; named as in ``memfold.set_options``."""
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return await self._drive(self._core.set_rules("set_options", scope, options, tenant_id))

    async def check_invariants(self, tenant_id: str | None = None) -> Rows:
        """Differences between the tenant's memories and its ledger; empty if there are none."""
        return await self._drive(self._core.check_invariants(tenant_id))

    async def register_embedding_model(
        self,
        embedding_model: str,
        dimensions: int,
        merge_threshold: float | None = None,
        judge_threshold: float | None = None,
    ) -> bool:
        """Register an embedding model; returns whether it has a threshold to merge by. The client does so itself for its
        embedder's model, and measures the thresholds of one that has none.
        """
        return await self._drive(
            self._core.register_embedding_model(embedding_model, dimensions, merge_threshold, judge_threshold)
        )

    async def measure_thresholds(self) -> Row:
        """Measure the thresholds of the embedder's model on pairs that come with memfold, and put them in force.

        It embeds about 1,600 short texts, and needs a member of memfold_owner. Returns the row of
        ``calibrate_by_anchors`` in the database: merge_threshold, judge_threshold, their rates (report), calibration_id.
        Raises ValueError without an embedder.
        """
        return await self._drive(self._core.measure_thresholds(self._core.embedder))

    async def translate_unique_violation(
        self, error: psycopg.Error, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> MemfoldError:
        """Translate the error of a plain INSERT into memfold.memories.

        Returns ``MemoryHashConflict`` with the id of the memory that holds the text, if the index of tier 1 raised
        it.
        """
        return await self._drive(self._core.hash_conflict(error, content, tenant_id, fields))
