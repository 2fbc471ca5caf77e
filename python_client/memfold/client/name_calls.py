"""What both clients offer about names that are one. What it does is in ``memfold.client.names``."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from memfold.client.blocking_driver import BlockingDriver
from memfold.client.driving import Client
from memfold.client.steps import Steps
from memfold.types import LinkSuggestion

T = TypeVar("T")


class NameCalls(BlockingDriver):
    """The part of ``Memfold`` that is about names."""

    def link_subject(
        self, alias: str | None, subject: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> UUID:
        """Say that one subject is another one by another name; gives the run, which undo_run() takes back.

        alias None: of texts that come without a subject and begin with this one. bucket_id '*': in all buckets. What is
        stored under the alias is taken up, at most 1,000 texts: ``take_up_links``, or maintenance, does the rest. Raises
        LinkError.
        """
        return self._drive(self._core.link_subject(alias, subject, bucket_id, tenant_id))

    def link_predicate(
        self, alias: str, predicate: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> UUID:
        """Say that one predicate is another one by another name, as ``link_subject`` does of subjects."""
        return self._drive(self._core.link_predicate(alias, predicate, bucket_id, tenant_id))

    def unlink_subject(
        self,
        alias: str | None,
        bucket_id: str = "default",
        tenant_id: str | None = None,
        *,
        subject: str | None = None,
    ) -> int:
        """Take a link back; gives the number of texts that have another name now.

        alias None: of texts without a subject that begin with ``subject``. The two names are not suggested again. Raises
        UnknownLinkError.
        """
        return self._drive(self._core.unlink_subject(alias, subject, bucket_id, tenant_id))

    def unlink_predicate(self, alias: str, bucket_id: str = "default", tenant_id: str | None = None) -> int:
        """Take a link of predicates back, as ``unlink_subject`` does of subjects."""
        return self._drive(self._core.unlink_predicate(alias, bucket_id, tenant_id))

    def suggest_links(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_results: int = 100
    ) -> tuple[LinkSuggestion, ...]:
        """Names of a bucket that may be one, best first. Nothing is linked."""
        return self._drive(self._core.suggest_links(bucket_id, max_results, tenant_id))

    def ask_links(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_questions: int = 20
    ) -> int:
        """Queue the best suggestions as questions for a judge or a person; gives the number of new ones."""
        return self._drive(self._core.ask_links(bucket_id, max_questions, tenant_id))

    def take_up_links(
        self, bucket_id: str | None = None, tenant_id: str | None = None, *, batch_size: int = 20
    ) -> int:
        """Take up what is stored under aliases, of one bucket or (None) of all; gives the number of texts.

        Each batch is a transaction of its own; interrupted, call it again.
        """
        return self._drive(self._core.take_up_links(bucket_id, batch_size, tenant_id))


class AsyncNameCalls(Client):
    """The part of ``AsyncMemfold`` that is about names."""

    async def link_subject(
        self, alias: str | None, subject: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> UUID:
        """As ``Memfold.link_subject``."""
        return await self._drive(self._core.link_subject(alias, subject, bucket_id, tenant_id))

    async def link_predicate(
        self, alias: str, predicate: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> UUID:
        """As ``Memfold.link_predicate``."""
        return await self._drive(self._core.link_predicate(alias, predicate, bucket_id, tenant_id))

    async def unlink_subject(
        self,
        alias: str | None,
        bucket_id: str = "default",
        tenant_id: str | None = None,
        *,
        subject: str | None = None,
    ) -> int:
        """As ``Memfold.unlink_subject``."""
        return await self._drive(self._core.unlink_subject(alias, subject, bucket_id, tenant_id))

    async def unlink_predicate(
        self, alias: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> int:
        """As ``Memfold.unlink_predicate``."""
        return await self._drive(self._core.unlink_predicate(alias, bucket_id, tenant_id))

    async def suggest_links(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_results: int = 100
    ) -> tuple[LinkSuggestion, ...]:
        """As ``Memfold.suggest_links``."""
        return await self._drive(self._core.suggest_links(bucket_id, max_results, tenant_id))

    async def ask_links(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_questions: int = 20
    ) -> int:
        """As ``Memfold.ask_links``."""
        return await self._drive(self._core.ask_links(bucket_id, max_questions, tenant_id))

    async def take_up_links(
        self, bucket_id: str | None = None, tenant_id: str | None = None, *, batch_size: int = 20
    ) -> int:
        """As ``Memfold.take_up_links``."""
        return await self._drive(self._core.take_up_links(bucket_id, batch_size, tenant_id))

    async def _drive(self, steps: Steps[T]) -> T:
        raise NotImplementedError
