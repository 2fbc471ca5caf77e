"""The calls of both clients, as generators that request transactions, vectors and pauses.

``Memfold`` and ``AsyncMemfold`` carry out these requests, each in its own way. Every decision (what to send, what to
retry, what to log) is made here, once.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from memfold.client import errors, queries
from memfold.client._checks import check_text
from memfold.client._log import log_decision
from memfold.client.calls.arguments import check_names, wait_seconds
from memfold.client.calls.judgements import Judgements
from memfold.client.calls.names import Names
from memfold.client.calls.steps import Steps
from memfold.client.calls.vectors import Vectors
from memfold.client.embedding import EmbedderProtocol
from memfold.client.embedding.embedders import check_embedder
from memfold.client.found import Notice, SearchResult
from memfold.client.judging import Judge
from memfold.client.types import (
    BucketStats,
    CurrentMemory,
    EmbedReport,
    Feedback,
    IngestResult,
    KnownMemory,
    ProbeFields,
    Row,
    SimilarMemory,
    UndoneMemory,
)


class Core(Judgements, Vectors, Names):
    """The options of a client, and its calls as steps."""

    _speaks_alone = True

    def __init__(
        self,
        tenant_id: str | None,
        embedder: EmbedderProtocol | None,
        retry_safe: bool,
        max_attempts: int,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(tenant_id, max_attempts)
        check_embedder(embedder)
        self.embedder = embedder
        self.retry_safe = retry_safe
        self.judge = judge
        # A lease belongs to one client: two clients of one process must not confuse theirs.
        self.worker = f"client-{socket.gethostname()[:80]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    # the calls

    def ingest(
        self,
        content: str,
        tenant_id: str | None,
        given: Mapping[str, Any],
        *,
        preview: bool = False,
        wait: bool | float = False,
    ) -> Steps[IngestResult]:
        seconds = wait_seconds(wait)
        check_names("ingest", given, queries.CANDIDATE)
        arguments = self.arguments({**given, "content": content}, tenant_id)
        if self.retry_safe and not preview and arguments.get("idempotency_key") is None:
            arguments["idempotency_key"] = uuid.uuid4().hex
        keyed = arguments.get("idempotency_key") is not None

        def send(arguments: dict[str, Any]) -> Steps[list[Row]]:
            return self._ingest(arguments, keyed)

        if preview:
            if self._is_to_embed(arguments) and (yield from self._known(arguments)) is None:
                yield from self._embed_or_not(arguments)
            rows = yield from self.run(queries.PREVIEW, arguments, reads=True)
        else:
            rows = yield from self.known_or_embedded(arguments, send)
        result = IngestResult.from_row(rows[0])
        log_decision(content, result, preview=preview)
        if seconds and result.judgement_id is not None and not preview:
            resolution = yield from self.waited_for(result, arguments["tenant_id"], seconds)
            return replace(result, resolution=resolution)
        return result

    def _ingest(self, arguments: dict[str, Any], keyed: bool) -> Steps[list[Row]]:
        """Call ingest_memory(), whose result has no times, so that only the tenant is to be set: in one statement."""
        statement = queries.call(queries.INGEST, arguments)
        if self._speaks_alone:
            try:
                return (
                    yield from self.send(queries.alone(statement), arguments, repeatable=keyed, opening=None)
                )
            except errors.MemfoldError as error:
                # Another isolation level is the default, or Citus does not delegate such a call.
                if error.sqlstate not in {"MF025", "MF060"}:
                    raise
                self._speaks_alone = False
        return (yield from self.send(statement, arguments, repeatable=keyed))

    def known_or_embedded(
        self, arguments: dict[str, Any], send: Callable[[dict[str, Any]], Steps[list[Row]]]
    ) -> Steps[list[Row]]:
        """What ingest_memory() returns, sent with a vector only if tier 1 does not know the text."""
        if self._is_to_embed(arguments):
            rows = yield from send({**arguments, "if_known": True})
            if rows[0]["action"] is not None:
                return rows
            yield from self._embed_or_not(arguments)
        return (yield from send(arguments))

    def known(
        self, content: str, tenant_id: str | None, given: Mapping[str, Any]
    ) -> Steps[KnownMemory | None]:
        check_names("known", given, ProbeFields.__annotations__)
        return (yield from self._known(self.arguments({**given, "content": content}, tenant_id)))

    def find_similar(
        self,
        content: str | None,
        tenant_id: str | None,
        bucket_id: str,
        embedding: Any,
        embedding_model: str | None,
        given: Mapping[str, Any],
    ) -> Steps[SearchResult[SimilarMemory]]:
        named: dict[str, Any] = {"bucket_id": bucket_id, "embedding_model": embedding_model}
        if embedding is None and content is not None:
            if self.embedder is None:
                raise ValueError("find_similar needs an embedding, or a client with an embedder")
            check_text("content", content)
            vectors = yield from self._vectors(self.embedder, [content])
            yield from self.register(self.embedder, vectors[0])
            named.update(embedding=vectors[0], embedding_model=self.embedder.model)
        else:
            named["embedding"] = embedding
        notices: list[Notice] = []
        rows = yield from self.run(
            queries.FIND_SIMILAR, self.arguments({**named, **given}, tenant_id), reads=True, notices=notices
        )
        return SearchResult.of(map(SimilarMemory.from_row, rows), rows, notices)

    def attach_embedding(
        self, memory_id: UUID | str, embedding: Any, embedding_model: str | None, tenant_id: str | None
    ) -> Steps[IngestResult]:
        arguments = self.arguments(
            {"memory_id": memory_id, "embedding": embedding, "embedding_model": embedding_model}, tenant_id
        )
        rows = yield from self.run(queries.ATTACH, arguments)
        result = IngestResult.from_row(rows[0])
        log_decision(f"memory {arguments['memory_id']}", result)
        return result

    def embed_pending(self, tenant_id: str | None, bucket_id: str | None, batch: int) -> Steps[EmbedReport]:
        if self.embedder is None:
            raise ValueError("embed_pending needs a client with an embedder")
        report = EmbedReport()
        passed: set[UUID] = set()
        stay = 0
        while True:
            # after those that were passed over and are still pending; attached ones are no longer in the list
            arguments = self.arguments({"bucket_id": bucket_id, "max_results": batch + stay}, tenant_id)
            rows = yield from self.run(queries.PENDING, arguments, reads=True)
            rows = [row for row in rows if row["memory_id"] not in passed][:batch]
            if not rows:
                return report
            passed.update(row["memory_id"] for row in rows)
            vectors = yield from self.vectors_or_none(self.embedder, [row["content"] for row in rows])
            failed = vectors.count(None)
            stay += failed
            report = replace(report, failed=report.failed + failed)
            if failed == len(rows):
                return report  # the embedder is down: the rest would fail too
            for row, vector in zip(rows, vectors, strict=True):
                if vector is None:
                    continue
                yield from self.register(self.embedder, vector)
                try:
                    result = yield from self.attach_embedding(
                        row["memory_id"], vector, self.embedder.model, tenant_id
                    )
                except errors.EmbeddingExistsError:
                    stay += 1  # another client was faster, or it is still listed
                    continue
                report = replace(
                    report,
                    attached=report.attached + 1,
                    merged=report.merged + (result.action == "merged"),
                    escalated=report.escalated + (result.action == "escalated"),
                )

    def explain(self, memory_id: UUID | str, tenant_id: str | None) -> Steps[str]:
        return "\n".join((yield from self.explain_lines(memory_id, tenant_id)))

    def explain_lines(self, memory_id: UUID | str, tenant_id: str | None) -> Steps[list[str]]:
        arguments = self.arguments({"memory_id": memory_id}, tenant_id)
        if arguments["tenant_id"] is None:
            del arguments["tenant_id"]
        rows = yield from self.run(queries.EXPLAIN, arguments, reads=True)
        return [row["explain_memory"] for row in rows]

    def current_memories(
        self, bucket_id: str, as_of: datetime | None, known_at: datetime | None, tenant_id: str | None
    ) -> Steps[tuple[CurrentMemory, ...]]:
        arguments = self._of_a_tenant(
            {"bucket_id": bucket_id, "as_of": as_of, "known_at": known_at}, tenant_id
        )
        rows = yield from self.run(queries.CURRENT, arguments, reads=True)
        return tuple(CurrentMemory.from_row(row) for row in rows)

    def record_feedback(self, memory_id: UUID | str, helpful: bool, tenant_id: str | None) -> Steps[Feedback]:
        arguments = self.arguments({"memory_id": memory_id, "helpful": helpful}, tenant_id)
        rows = yield from self.run(queries.FEEDBACK, arguments)
        return Feedback.from_row(rows[0])

    # manual actions

    def undo(
        self, function: str, given: Mapping[str, Any], tenant_id: str | None
    ) -> Steps[tuple[UndoneMemory, ...]]:
        rows = yield from self.run(function, self.arguments(given, tenant_id))
        return tuple(UndoneMemory.from_row(row) for row in rows)

    def manual_action(
        self, function: str, given: Mapping[str, Any], tenant_id: str | None
    ) -> Steps[IngestResult]:
        """merge_memories and the like: one manual action."""
        rows = yield from self.run(function, self.arguments(given, tenant_id))
        return IngestResult.from_row(rows[0])

    def update(
        self, memory_id: UUID | str, content: str, given: Mapping[str, Any], tenant_id: str | None
    ) -> Steps[IngestResult]:
        arguments = self.arguments({"memory_id": memory_id, "content": content, **given}, tenant_id)
        if self._is_to_embed(arguments):
            yield from self._embed_or_not(arguments)
        rows = yield from self.run(queries.UPDATE, arguments)
        result = IngestResult.from_row(rows[0])
        log_decision(content, result)
        return result

    # the rest

    def stats(self, tenant_id: str | None, bucket_id: str | None) -> Steps[tuple[BucketStats, ...]]:
        arguments = self.arguments({"bucket_id": bucket_id}, tenant_id)
        rows = yield from self.send(queries.STATS, arguments, reads=True)
        return tuple(BucketStats.from_row(row) for row in rows)

    def hash_conflict(
        self, error: psycopg.Error, content: str, tenant_id: str | None, given: Mapping[str, Any]
    ) -> Steps[errors.MemfoldError]:
        if not errors.is_hash_conflict(error):
            return errors.translate(error)
        # Under row-level security the error has no DETAIL, so the existing row must be looked up.
        known = yield from self.known(content, tenant_id, given)
        if known is None:
            return errors.MemoryHashConflict(None, None)
        return errors.MemoryHashConflict(known.content_hash, known.memory_id)

    def check_invariants(self, tenant_id: str | None) -> Steps[list[Row]]:
        return (yield from self.run(queries.CHECK_INVARIANTS, self.arguments({}, tenant_id), reads=True))
