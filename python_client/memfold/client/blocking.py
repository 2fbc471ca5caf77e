"""``Memfold``, the client that blocks. What it does is in ``memfold.client.core``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

import psycopg

from memfold import queries
from memfold.client import recall as _recall
from memfold.client.batch import Batches
from memfold.client.entries import Entry
from memfold.client.name_calls import NameCalls
from memfold.errors import MemfoldError
from memfold.found import FoundMemory, SearchBy, SearchFields, SearchResult
from memfold.types import (
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


class Memfold(NameCalls):
    """The blocking client. One connection; threads that share it take turns.

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
        texts of a batch that tier 1 does not know are embedded together, while the batch before is stored: then
        it reads one batch ahead (not with wait). wait: as of ``ingest``, for each
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
        taken = batches.taken(candidates)
        if not batches.embeds_ahead:
            for entries in taken:
                self._drive(batches.embed(self._drive(batches.look_up(entries))))
                yield from self._drive(batches.store(entries))
            return
        # A thread stores a batch while the next one is embedded in this one.
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
                except Exception as error:  # raised in its place: after this batch
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
    ) -> SearchResult[SimilarMemory]:
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
        by: SearchBy | None = None,
        verify: bool = False,
        merge_text: bool = False,
        judge_timeout: float = 30.0,
        **options: Unpack[SearchFields],
    ) -> SearchResult[FoundMemory]:
        """The active memories that fit the query best, each fact once.

        by: 'vector' compares the embedding, or the query's; 'words' counts the words of the query that a memory has;
        'both' ranks by both. None: 'vector' where there is an embedding or an embedder, else 'words'. bucket_ids,
        bucket_prefix: these buckets, and those that begin so, in place of bucket_id. metadata_path: a condition in
        jsonpath, such as ``$.year > 2020``. ``complete`` of the result is False where a bucket is too large to be
        looked at whole: ``reason`` and ``hint`` say why, and what to do.

        verify: the client's judge is asked about each memory that is hidden behind another; only what it calls
        a duplicate or a refinement stays hidden. merge_text: it writes one text for those that are shown as
        one, ``display_text``, which is stored nowhere. Each takes a call of the judge for each hidden memory;
        where it fails, or has no answer in judge_timeout seconds, memories are shown by themselves, with their
        own texts.
        """
        named = {"bucket_id": bucket_id, "embedding": embedding, "embedding_model": embedding_model}
        return self._drive(
            _recall.search(
                self._core, query, tenant_id, named, options, by=by,
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
        """Take back one event: a merge, a supersession, a rejection, a restatement. Its memories as they are now."""
        return self._drive(self._core.undo(event_id, reason, tenant_id))

    def reject(
        self, memory_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> IngestResult:
        """Not this: the memory is no longer shown, and its texts are refused when they arrive again."""
        given = {"memory_id": memory_id, "reason": reason}
        return self._drive(self._core.manual_action(queries.REJECT, given, tenant_id))

    def merge(
        self,
        memory_id: UUID | str,
        into_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """Merge a memory into another one, which counts its observations from now on."""
        given = {"memory_id": memory_id, "into_id": into_id, "reason": reason}
        return self._drive(self._core.manual_action(queries.MERGE, given, tenant_id))

    def supersede(
        self,
        memory_id: UUID | str,
        by_id: UUID | str,
        reason: str | None = None,
        tenant_id: str | None = None,
    ) -> IngestResult:
        """Retire a memory in favour of another one, from now on."""
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
        """What was believed true at a time (None: now), by what is known today.

        known_at: by what the ledger had at that time; as_of None is then known_at.
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
        """Memories by age, the oldest first, a page of at most ``limit`` (1 to 1000).

        bucket_id None: of all buckets. status None: any. after: the memory_id of the last memory of the page before; the
        page after the last one is empty.

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
        """Forget for good: texts, vectors, and what the ledger holds of them. It cannot be undone.

        Takes one of: memory_id, with all texts merged into it; source_turn_id, a conversation turn (a fact that other
        turns support stays); bucket_id; whole_tenant=True (as a member of memfold_owner). Larger ones take several
        calls, in transactions of their own. To refuse a text when it is said again, use ``reject`` instead.
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
    ) -> None:
        """Say how many values a predicate has at a time, and which of two holds (conflict; None: as the policy says)."""
        self._drive(self._core.set_predicate(predicate, cardinality, conflict, tenant_id))

    def set_policy(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **rules: Any
    ) -> Row:
        """Set rules of a tenant, of a bucket, or of one type in it ('*': any); gives all that hold there now.

        rules: by the names of ``memfold.set_policy`` in the database, such as preset="hash_first" or
        merge_threshold=0.95; what is left out, or None, stays. Raises InvalidOptionError, which names the rules there are.
        """
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return self._drive(self._core.set_rules("set_policy", scope, rules, tenant_id))

    def set_options(
        self, bucket_id: str = "*", memory_type: str = "*", tenant_id: str | None = None, **options: Any
    ) -> Row:
        """Set what recall and maintenance go by, as ``set_policy`` sets rules; by the names of ``memfold.set_options``."""
        scope = {"bucket_id": bucket_id, "memory_type": memory_type}
        return self._drive(self._core.set_rules("set_options", scope, options, tenant_id))

    def check_invariants(self, tenant_id: str | None = None) -> Rows:
        """Where the tenant's memories differ from what the ledger says; empty when all is well."""
        return self._drive(self._core.check_invariants(tenant_id))

    def register_embedding_model(self, embedding_model: str, dimensions: int) -> None:
        """Make an embedding model known; the client does so itself for its embedder's."""
        self._drive(self._core.register_embedding_model(embedding_model, dimensions))

    def translate_unique_violation(
        self, error: psycopg.Error, content: str, tenant_id: str | None = None, **fields: Unpack[ProbeFields]
    ) -> MemfoldError:
        """What to raise for what a plain INSERT into memfold.memories raised.

        ``MemoryHashConflict`` with the id of the memory that holds the text, if it was the index of tier 1.
        """
        return self._drive(self._core.hash_conflict(error, content, tenant_id, fields))
