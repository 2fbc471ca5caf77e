# Made by tools/gen_blocking.py from ../asynchronous/memories.py: change that file, not this one.
"""The client's calls about stored memories: read, decide, forget."""

from __future__ import annotations

from datetime import datetime
from typing import Unpack
from uuid import UUID

from memfold.client import queries
from memfold.client.calls import recall as _recall
from memfold.client.calls.blocking.names import NameCalls
from memfold.client.found import ForgetFields, ForgottenMemory, Profile
from memfold.client.types import (
    CurrentMemory,
    Embedding,
    Erasure,
    Feedback,
    IngestResult,
    ListFields,
    Memory,
    MemoryStatus,
    UndoneMemory,
)


class MemoryCalls(NameCalls):
    """The part of ``Memfold`` about stored memories."""

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

    def explain(self, memory_id: UUID | str, tenant_id: str | None = None) -> str:
        """The complete history of a memory, as text."""
        return self._drive(self._core.explain(memory_id, tenant_id))

    def profile(
        self, subject: str, tenant_id: str | None = None, bucket_id: str = "default", max_results: int = 200
    ) -> Profile:
        """What is known about a subject now, by predicate, the newest first; ``str()`` of it is a text for a prompt."""
        given = {"subject": subject, "bucket_id": bucket_id, "max_results": max_results}
        return self._drive(_recall.profile(self._core, given, tenant_id))

    def record_feedback(self, memory_id: UUID | str, helpful: bool, tenant_id: str | None = None) -> Feedback:
        """Record that a memory helped or harmed; ``search`` uses it for ranking. Returns both counts."""
        return self._drive(self._core.record_feedback(memory_id, helpful, tenant_id))

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

    def reject(
        self, memory_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> IngestResult:
        """Reject a memory: it is no longer shown, and its texts are refused when they arrive again."""
        given = {"memory_id": memory_id, "reason": reason}
        return self._drive(self._core.manual_action(queries.REJECT, given, tenant_id))

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
        """Give a memory another text, which becomes a new memory: tier 2 compares it, and the old one is merged into it."""
        given = {
            "object": object,
            "embedding": embedding,
            "embedding_model": embedding_model,
            "reason": reason,
        }
        return self._drive(self._core.update(memory_id, content, given, tenant_id))

    def undo(
        self, event_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> tuple[UndoneMemory, ...]:
        """Undo one event: a merge, a supersession, a rejection or a restatement. Returns its memories as they are
        now."""
        given = {"event_id": event_id, "reason": reason}
        return self._drive(self._core.undo(queries.UNDO, given, tenant_id))

    def undo_run(
        self, run_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> tuple[UndoneMemory, ...]:
        """Undo a run, such as one of ``forget`` or ``link_subject``. Returns its memories as they are now."""
        given = {"run_id": run_id, "reason": reason}
        return self._drive(self._core.undo(queries.UNDO_RUN, given, tenant_id))

    def forget(
        self,
        subject: str | None = None,
        predicate: str | None = None,
        tenant_id: str | None = None,
        **options: Unpack[ForgetFields],
    ) -> tuple[ForgottenMemory, ...]:
        """Forget what is about a subject (and predicate), current and former values; or what is near a query.

        query, or embedding with embedding_model: memories with a text whose cosine to it is at least min_similarity,
        which depends on the model: look at the preview. With a subject as well: memories that match both. They are
        rejected in one run, which undo_run() undoes; erase: delete them for good. dry_run returns what it would forget.
        """
        return self._drive(_recall.forget(self._core, subject, predicate, tenant_id, options))

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
