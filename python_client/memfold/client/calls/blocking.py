"""``Memfold``, the blocking client. The calls themselves are in ``memfold.client.calls.core``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

import psycopg

from memfold.client import queries
from memfold.client.calls import recall as _recall
from memfold.client.calls.batch import Batches
from memfold.client.calls.entries import Entry
from memfold.client.calls.subject_calls import SubjectCalls
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


class Memfold(SubjectCalls):
    """The blocking client. It has one connection; threads that share it take turns.

    >>> with Memfold(dsn, tenant_id="acme") as memfold:
    ...     memfold.ingest("Alice has a cat.", subject="Alice").action
    'inserted'
    """

    def ingest(
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
        """Submit any number of facts in batches. The result is that of ``ingest`` for each, in order, but faster.

        Returns an iterator, which must be exhausted: it reads a batch of candidates, stores them in one transaction,
        yields an item for each, and continues. candidates: texts, or mappings of ``content`` and the arguments of
        ``ingest``; None in a mapping means the server's default. defaults: arguments for all candidates that do not
        give their own. A candidate that cannot be stored yields an item with ``error`` set; with on_error 'abort',
        its error is raised, which names its index, and nothing of its batch is stored. If the connection is lost,
        even during COMMIT, the batch is sent again and counts once. With an embedder, the distinct texts of a batch
        that tier 1 does not know are embedded together, while the previous batch is stored; for that it reads one
        batch ahead (not with wait). wait: as for ``ingest``, for each candidate, with ten judgements at a time.
        progress: called after each batch with the number of candidates so far, and the number per action ('error' for
        those that failed).
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
        taken = batches.taken(candidates)
        if not batches.embeds_ahead:
            for entries in taken:
                self._drive(batches.embed(self._drive(batches.look_up(entries))))
                yield from self._drive(batches.store(entries))
            return
        # Another thread stores a batch while this one embeds the next.
        entries = next(taken, [])
        self._drive(batches.embed(self._drive(batches.look_up(entries))))
        with ThreadPoolExecutor(1, "memfold-store") as thread:
            while entries:
                following: list[Entry] = []
                failed, storing = None, None
                try:
                    following = next(taken, [])
                    missing = self._drive(batches.look_up(following))
                    storing = thread.submit(copy_context().run, self._drive, batches.store(entries))
                    self._drive(batches.embed(missing))
                except Exception as error:  # raised in its place, after this batch
                    failed = error
                yield from (
                    storing or thread.submit(copy_context().run, self._drive, batches.store(entries))
                ).result()
                if failed is not None:
                    raise failed
                entries = following

    def preview(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[CandidateFields]
    ) -> IngestResult:
        """What ``ingest`` would do now with the same arguments. Nothing is written."""
        return self._drive(self._core.ingest(content, tenant_id, fields, preview=True))

    def known(
        self, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> KnownMemory | None:
        """The memory that holds exactly this text, if the bucket knows it: only tier 1."""
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
    ) -> SearchResult[SimilarMemory]:
        """Active memories whose cosine to the embedding, or to that of the content, is at least ``threshold``."""
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
        by: SearchBy | None = None,
        verify: bool = False,
        merge_text: bool = False,
        judge_timeout: float = 30.0,
        **options: Unpack[SearchFields],
    ) -> SearchResult[FoundMemory]:
        """The active memories that fit the query best, each fact once.

        by: 'vector' compares the embedding, or that of the query; 'words' counts the words of the query that a memory
        has; 'both' ranks by both. None: 'vector' if there is an embedding or an embedder, else 'words'. bucket_ids,
        bucket_prefix: search these buckets, or those whose names begin so, instead of bucket_id. metadata_path: a
        condition in jsonpath, such as ``$.year > 2020``. ``complete`` of the result is False if a bucket is too large
        to be searched completely: ``reason`` and ``hint`` say why, and what to do.

        verify: ask the client's judge about each memory that is hidden behind another; only those that it calls a
        duplicate or a refinement stay hidden. merge_text: the judge writes one text for memories that are shown as
        one, ``display_text``, which is not stored. Each of the two takes one call of the judge per hidden memory; if
        it fails, or does not answer within judge_timeout seconds, memories are shown separately, with their own
        texts.
        """
        named = {"bucket_id": bucket_id, "embedding": embedding, "embedding_model": embedding_model}
        return self._drive(
            _recall.search(
                self._core, query, tenant_id, named, options, by=by,
                verify=verify, merge_text=merge_text, judge_timeout=judge_timeout,
            )
        )  # fmt: skip

    def record_feedback(self, memory_id: UUID | str, helpful: bool, tenant_id: str | None = None) -> Feedback:
        """Record that a memory helped or harmed; ``search`` uses it for ranking. Returns both counts."""
        return self._drive(self._core.record_feedback(memory_id, helpful, tenant_id))

    def attach_embedding(
        self, memory_id: UUID | str, embedding: Embedding, embedding_model: str, tenant_id: str | None = None
    ) -> IngestResult:
        """Give a memory that was stored without a vector its vector, and run the tier 2 that was skipped."""
        return self._drive(self._core.attach_embedding(memory_id, embedding, embedding_model, tenant_id))

    def embed_pending(
        self, tenant_id: str | None = None, bucket_id: str | None = None, batch: int = 64
    ) -> EmbedReport:
        """Embed memories that were stored without a vector, and attach the vectors. Stops when the embedder is down."""
        return self._drive(self._core.embed_pending(tenant_id, bucket_id, batch))

    def explain(self, memory_id: UUID | str, tenant_id: str | None = None) -> str:
        """The complete history of a memory, as text."""
        return self._drive(self._core.explain(memory_id, tenant_id))

    def stats(self, tenant_id: str | None = None, bucket_id: str | None = None) -> tuple[BucketStats, ...]:
        """What deduplication did, per bucket."""
        return self._drive(self._core.stats(tenant_id, bucket_id))

    def undo(
        self, event_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> tuple[UndoneMemory, ...]:
        """Undo one event: a merge, a supersession, a rejection or a restatement. Returns its memories as they are
        now."""
        return self._drive(self._core.undo(event_id, reason, tenant_id))

    def merge(
        self,
        memory_id: UUID | str,
        into_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """Merge a memory into another one, to which its observations count from now on."""
        given = {"memory_id": memory_id, "into_id": into_id, "reason": reason}
        return self._drive(self._core.manual_action(queries.MERGE, given, tenant_id))

    def supersede(
        self,
        memory_id: UUID | str,
        by_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """Supersede a memory by another one, from now on."""
        given = {"memory_id": memory_id, "by_id": by_id, "reason": reason}
        return self._drive(self._core.manual_action(queries.SUPERSEDE, given, tenant_id))

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
        """Give a memory another text: a new memory, into which the old one is merged, compared by tier 2."""
        given = {
            "object": object,
            "embedding": embedding,
            "embedding_model": embedding_model,
            "reason": reason,
        }
        return self._drive(self._core.update(memory_id, content, given, tenant_id))

    def current_memories(
        self,
        bucket_id: str = "default",
        as_of: datetime | None = None,
        tenant_id: str | None = None,
        *,
        known_at: datetime | None = None,
    ) -> tuple[CurrentMemory, ...]:
        """The memories that were current at a time (None: now), according to what is known today.

        known_at: according to what the ledger had at that time; as_of None then means known_at.
        """
        return self._drive(self._core.current_memories(bucket_id, as_of, known_at, tenant_id))

    def get(self, memory_id: UUID | str, tenant_id: str | None = None) -> Memory:
        """A memory by its id, whatever its status. Raises MemoryNotFoundError."""
        return self._drive(self._core.get(memory_id, tenant_id))

    def list(
        self,
        bucket_id: str | None = "default",
        tenant_id: str | None = None,
        *,
        status: MemoryStatus | None = "active",
        after: UUID | str | None = None,
        limit: int = 100,
        **options: Unpack[ListFields],
    ) -> tuple[Memory, ...]:
        """A page of at most ``limit`` (1 to 1000) memories, oldest first.

        bucket_id None: all buckets. status None: any. after: the last memory_id of the previous page; the page after
        the last one is empty.

        >>> page = memfold.list("notes", limit=500)
        >>> while page:
        ...     page = memfold.list("notes", limit=500, after=page[-1].memory_id)
        """
        given = {"bucket_id": bucket_id, "status": status, **options}
        return self._drive(self._core.list(given, after, limit, tenant_id))

    def erase(
        self,
        *,
        memory_id: UUID | str | None = None,
        source_turn_id: str | None = None,
        bucket_id: str | None = None,
        whole_tenant: bool = False,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> Erasure:
        """Erase texts, their vectors and their contents in the ledger. It cannot be undone.

        Takes one of: memory_id, with all texts merged into it; source_turn_id, a conversation turn (a fact that other
        turns support stays); bucket_id; whole_tenant=True (as a member of memfold_owner). Larger erasures take
        several calls, each in its own transaction. To refuse a text when it is stated again, use ``reject`` instead.
        """
        given = {"memory_id": memory_id, "source_turn_id": source_turn_id, "bucket_id": bucket_id}
        return self._drive(
            self._core.erase(given, whole_tenant=whole_tenant, reason=reason, tenant_id=tenant_id)
        )

    def set_predicate(
        self,
        predicate: str,
        cardinality: Cardinality = "one",
        conflict: Conflict | None = None,
        tenant_id: str | None = None,
    ) -> UUID | None:
        """Set how many values a predicate has at a time, and which of two wins (conflict; None: as the policy says).

        Returns the run that takes up what is stored, or None if nothing that is stored is concerned.
        """
        return self._drive(self._core.set_predicate(predicate, cardinality, conflict, tenant_id))

    def set_policy(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **rules: Any
    ) -> Row:
        """Set rules of a tenant, of a bucket, or of one type in it ('*': any); returns all rules that apply there
        now.

        rules: named as in ``memfold.set_policy`` in the database, such as preset="hash_first" or
        merge_threshold=0.95; omitted rules, or None, do not change. Raises InvalidOptionError, which names the
        existing rules.
        """
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return self._drive(self._core.set_rules("set_policy", scope, rules, tenant_id))

    def set_options(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **options: Any
    ) -> Row:
        """Set options of recall and maintenance, as ``set_policy`` sets rules; named as in ``memfold.set_options``."""
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return self._drive(self._core.set_rules("set_options", scope, options, tenant_id))

    def check_invariants(self, tenant_id: str | None = None) -> Rows:
        """Differences between the tenant's memories and its ledger; empty if there are none."""
        return self._drive(self._core.check_invariants(tenant_id))

    def register_embedding_model(self, embedding_model: str, dimensions: int) -> None:
        """Register an embedding model; the client does so itself for its embedder's model."""
        self._drive(self._core.register_embedding_model(embedding_model, dimensions))

    def translate_unique_violation(
        self, error: psycopg.Error, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> MemfoldError:
        """Translate the error of a plain INSERT into memfold.memories.

        Returns ``MemoryHashConflict`` with the id of the memory that holds the text, if the index of tier 1 raised
        it.
        """
        return self._drive(self._core.hash_conflict(error, content, tenant_id, fields))
