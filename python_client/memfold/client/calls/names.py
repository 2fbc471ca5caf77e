"""Links of names, as steps: link, unlink, suggest, ask."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from memfold.client import errors, queries
from memfold.client.calls.steps import Pause, Steps
from memfold.client.calls.stored import Stored
from memfold.client.types import LinkSuggestion, PredicateSuggestion

_PATIENCE: Final = 300
"""How often to try again while others hold locks, a tenth of a second apart."""


class Names(Stored):
    """A client's calls about names."""

    def link_subject(
        self, alias: str | None, subject: str, bucket_id: str, tenant_id: str | None
    ) -> Steps[UUID]:
        given = {"alias": alias, "subject": subject, "bucket_id": bucket_id}
        arguments = self._of_a_tenant(given, tenant_id)
        rows = yield from self.run(queries.LINK_SUBJECT, arguments, repeatable=True)
        run_id: UUID = rows[0]["link_subject"]
        return run_id

    def link_predicate(
        self, alias: str, predicate: str, bucket_id: str, tenant_id: str | None
    ) -> Steps[UUID]:
        given = {"alias": alias, "predicate": predicate, "bucket_id": bucket_id}
        arguments = self._of_a_tenant(given, tenant_id)
        rows = yield from self.run(queries.LINK_PREDICATE, arguments, repeatable=True)
        run_id: UUID = rows[0]["link_predicate"]
        return run_id

    def unlink_subject(
        self, alias: str | None, subject: str | None, bucket_id: str, tenant_id: str | None
    ) -> Steps[int]:
        given = {"alias": alias, "subject": subject, "bucket_id": bucket_id}
        rows = yield from self.run(queries.UNLINK_SUBJECT, self._of_a_tenant(given, tenant_id))
        number: int = rows[0]["unlink_subject"]
        return number

    def unlink_predicate(self, alias: str, bucket_id: str, tenant_id: str | None) -> Steps[int]:
        given = {"alias": alias, "bucket_id": bucket_id}
        rows = yield from self.run(queries.UNLINK_PREDICATE, self._of_a_tenant(given, tenant_id))
        number: int = rows[0]["unlink_predicate"]
        return number

    def suggest_predicates(
        self, bucket_id: str, max_results: int, tenant_id: str | None
    ) -> Steps[tuple[PredicateSuggestion, ...]]:
        given = {"bucket_id": bucket_id, "max_results": max_results}
        rows = yield from self.run(
            queries.SUGGEST_PREDICATES, self._of_a_tenant(given, tenant_id), reads=True
        )
        return tuple(map(PredicateSuggestion.from_row, rows))

    def suggest_links(
        self, bucket_id: str, max_results: int, tenant_id: str | None
    ) -> Steps[tuple[LinkSuggestion, ...]]:
        given = {"bucket_id": bucket_id, "max_results": max_results}
        rows = yield from self.run(queries.SUGGEST_LINKS, self._of_a_tenant(given, tenant_id), reads=True)
        return tuple(map(LinkSuggestion.from_row, rows))

    def ask_links(self, bucket_id: str, max_questions: int, tenant_id: str | None) -> Steps[int]:
        given = {"bucket_id": bucket_id, "max_questions": max_questions}
        rows = yield from self.run(queries.ASK_LINKS, self._of_a_tenant(given, tenant_id), repeatable=True)
        number: int = rows[0]["ask_links"]
        return number

    def take_up_links(self, tenant_id: str | None) -> Steps[int]:
        """Calls maintenance, which limits the work of each transaction."""
        arguments = self._of_a_tenant({}, tenant_id) | {"tasks": ["links"]}
        total = waits = 0
        while True:
            rows = yield from self.run(queries.RUN_MAINTENANCE, arguments, repeatable=True)
            report = rows[0]["run_maintenance"]
            if "links" in report["errors"]:
                state, _, message = report["errors"]["links"].partition(": ")
                raise errors.MemfoldError(message, sqlstate=state)
            total += int(report["counts"].get("links", 0))
            if not report["left"]:
                return total
            waits = waits + 1 if report["busy"] else 0
            if waits > _PATIENCE:
                raise errors.MemfoldError("others hold the locks", sqlstate="55P03", hint="Call it again.")
            if waits:
                yield Pause(0.1)
