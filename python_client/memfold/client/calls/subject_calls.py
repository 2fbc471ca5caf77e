"""The calls of both clients about a subject: what is known of it, and forgetting. The steps are in
``memfold.client.calls.recall``."""

from __future__ import annotations

from typing import Unpack
from uuid import UUID

from memfold.client import queries
from memfold.client.calls import recall as _recall
from memfold.client.calls.name_calls import AsyncNameCalls, NameCalls
from memfold.client.found import ForgetFields, ForgottenMemory, Profile
from memfold.client.types import IngestResult


class SubjectCalls(NameCalls):
    """The part of ``Memfold`` about subjects."""

    def reject(
        self, memory_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> IngestResult:
        """Reject a memory: it is no longer shown, and its texts are refused when they arrive again."""
        given = {"memory_id": memory_id, "reason": reason}
        return self._drive(self._core.manual_action(queries.REJECT, given, tenant_id))

    def profile(
        self, subject: str, tenant_id: str | None = None, bucket_id: str = "default", max_results: int = 200
    ) -> Profile:
        """What is known about a subject now, by predicate, the newest first; ``str()`` of it is a text for a prompt."""
        given = {"subject": subject, "bucket_id": bucket_id, "max_results": max_results}
        return self._drive(_recall.profile(self._core, given, tenant_id))

    def forget(
        self,
        subject: str | None = None,
        predicate: str | None = None,
        tenant_id: str | None = None,
        **options: Unpack[ForgetFields],
    ) -> tuple[ForgottenMemory, ...]:
        """Forget what is about a subject (and predicate), current and former values; or what is near to a query.

        query, or embedding with embedding_model: memories with a text whose cosine to it is at least min_similarity,
        which depends on the model: look at the preview. With a subject as well: those that are both. They are
        rejected in one run, which undo_run() undoes; erase: deleted for good. dry_run returns what it would forget.
        """
        return self._drive(_recall.forget(self._core, subject, predicate, tenant_id, options))


class AsyncSubjectCalls(AsyncNameCalls):
    """The part of ``AsyncMemfold`` about subjects."""

    async def reject(
        self, memory_id: UUID | str, reason: str | None = None, tenant_id: str | None = None
    ) -> IngestResult:
        """As ``Memfold.reject``."""
        given = {"memory_id": memory_id, "reason": reason}
        return await self._drive(self._core.manual_action(queries.REJECT, given, tenant_id))

    async def profile(
        self, subject: str, tenant_id: str | None = None, bucket_id: str = "default", max_results: int = 200
    ) -> Profile:
        """As ``Memfold.profile``."""
        given = {"subject": subject, "bucket_id": bucket_id, "max_results": max_results}
        return await self._drive(_recall.profile(self._core, given, tenant_id))

    async def forget(
        self,
        subject: str | None = None,
        predicate: str | None = None,
        tenant_id: str | None = None,
        **options: Unpack[ForgetFields],
    ) -> tuple[ForgottenMemory, ...]:
        """As ``Memfold.forget``."""
        return await self._drive(_recall.forget(self._core, subject, predicate, tenant_id, options))
