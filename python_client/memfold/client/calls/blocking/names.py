# Made by tools/gen_blocking.py from ../asynchronous/names.py: change that file, not this one.
"""The client's calls that link names. The steps are in ``memfold.client.calls.names``."""

from __future__ import annotations

from uuid import UUID

from memfold.client.calls.blocking_driver import Driver
from memfold.client.types import LinkSuggestion, PredicateSuggestion


class NameCalls(Driver):
    """The part of ``Memfold`` for names."""

    def link_subject(
        self, alias: str | None, subject: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> UUID:
        """Link two names of one subject; returns the run, which undo_run() can undo.

        alias None: for texts that come without a subject and begin with this name. bucket_id '*': in all buckets. Up
        to 1,000 texts stored under the alias are moved to the name; ``take_up_links``, or maintenance, moves the
        rest. Raises LinkError.
        """
        return self._drive(self._core.link_subject(alias, subject, bucket_id, tenant_id))

    def link_predicate(
        self, alias: str, predicate: str, bucket_id: str = "default", tenant_id: str | None = None
    ) -> UUID:
        """Link two names of one predicate, as ``link_subject`` does for subjects."""
        return self._drive(self._core.link_predicate(alias, predicate, bucket_id, tenant_id))

    def unlink_subject(
        self,
        alias: str | None,
        bucket_id: str = "default",
        tenant_id: str | None = None,
        *,
        subject: str | None = None,
    ) -> int:
        """Remove a link; returns the number of texts whose name has changed.

        alias None: for texts without a subject that begin with ``subject``. The two names are not suggested again.
        Raises UnknownLinkError.
        """
        return self._drive(self._core.unlink_subject(alias, subject, bucket_id, tenant_id))

    def unlink_predicate(self, alias: str, bucket_id: str = "default", tenant_id: str | None = None) -> int:
        """Remove a link of predicates, as ``unlink_subject`` does for subjects."""
        return self._drive(self._core.unlink_predicate(alias, bucket_id, tenant_id))

    def suggest_links(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_results: int = 100
    ) -> tuple[LinkSuggestion, ...]:
        """Pairs of names of a bucket that may mean the same, best first. Links nothing."""
        return self._drive(self._core.suggest_links(bucket_id, max_results, tenant_id))

    def suggest_predicates(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_results: int = 100
    ) -> tuple[PredicateSuggestion, ...]:
        """Predicates of a bucket that may have one value at a time, best first. Declares nothing."""
        return self._drive(self._core.suggest_predicates(bucket_id, max_results, tenant_id))

    def ask_links(
        self, bucket_id: str = "default", tenant_id: str | None = None, *, max_questions: int = 20
    ) -> int:
        """Queue the best suggestions as questions for a judge or a person; returns the number of new ones."""
        return self._drive(self._core.ask_links(bucket_id, max_questions, tenant_id))

    def take_up_links(self, tenant_id: str | None = None) -> int:
        """Apply links, and rules of predicates, to what is stored, as maintenance does; returns the number of texts.

        A hundred texts at a time, each in its own transaction; if it is interrupted, call it again.
        """
        return self._drive(self._core.take_up_links(tenant_id))
