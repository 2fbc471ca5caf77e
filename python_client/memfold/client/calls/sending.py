"""Sends a statement until it succeeds, or retrying does not help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, LiteralString, NoReturn

import psycopg

from memfold.client import errors, queries
from memfold.client._checks import check_text
from memfold.client._log import logger
from memfold.client.calls.arguments import prepared
from memfold.client.calls.steps import CommitLostError, Steps, Transact, pause_before
from memfold.client.found import Notice
from memfold.client.judging.protocol import Call
from memfold.client.types import Row


class Sending:
    """The tenant of the statements, and how often they are sent."""

    def __init__(self, tenant_id: str | None, max_attempts: int) -> None:
        if max_attempts < 1:
            raise ValueError("max_attempts must be at least 1")
        check_text("tenant_id", tenant_id)
        self.tenant_id = tenant_id
        self.max_attempts = max_attempts

    def arguments(self, given: Mapping[str, Any], tenant_id: str | None) -> dict[str, Any]:
        arguments = prepared(given)
        check_text("tenant_id", tenant_id)
        arguments["tenant_id"] = self.tenant_id if tenant_id is None else tenant_id
        return arguments

    def run(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        repeatable: bool = False,
        reads: bool = False,
        notices: list[Notice] | None = None,
    ) -> Steps[list[Row]]:
        statement = queries.call(function, arguments)
        return self.send(statement, arguments, repeatable=repeatable, reads=reads, notices=notices)

    def call(self, made: Call) -> Steps[list[Row]]:
        """Send a statement that may be sent twice."""
        return self.send(made.statement, made.arguments, repeatable=True)

    def query(self, statement: LiteralString, tenant_id: str | None = None) -> Steps[list[Row]]:
        return (yield from self.send(statement, {"tenant_id": tenant_id}, reads=True))

    def send(
        self,
        statement: LiteralString,
        arguments: Mapping[str, Any],
        *,
        repeatable: bool = False,
        reads: bool = False,
        notices: list[Notice] | None = None,
        keep: Callable[[list[Row]], bool] | None = None,
        opening: LiteralString | None = queries.SET_TENANT,
    ) -> Steps[list[Row]]:
        """Send until it succeeds. A repeatable call may be sent again even if it may have been committed.

        reads: it writes nothing, so it is repeatable too. notices: receives the server's notices. keep: decides by
        the rows whether to commit. opening: as in Transact, with the same arguments.
        """
        for name, value in arguments.items():
            if isinstance(value, str):
                check_text(name, value)
        parameters = {**arguments, "memfold_tenant": arguments.get("tenant_id")}
        attempts = 0
        reconnected = upgraded = unsure = False
        while True:
            error: psycopg.Error
            try:
                rows: list[Row] = yield Transact(statement, parameters, keep, notices, opening)
                return rows
            except CommitLostError as lost:
                unsure = True
                if not (repeatable or reads):
                    self._give_up(lost.error, unsure)
                error = lost.error
            except psycopg.Error as caught:
                error = caught
            attempts += 1
            if errors.is_connection_lost(error):
                if reconnected:
                    self._give_up(error, unsure)
                reconnected = True
            elif error.sqlstate in errors.BETWEEN_VERSIONS and not upgraded:
                upgraded = True
            elif error.sqlstate not in errors.RETRYABLE or attempts >= self.max_attempts:
                self._give_up(error, unsure)
            logger.debug("attempt %s failed (%s), trying again", attempts, error.sqlstate or error)
            yield pause_before(attempts)

    @staticmethod
    def _give_up(error: psycopg.Error, unsure: bool) -> NoReturn:
        """unsure: COMMIT was on its way, now or in an earlier attempt. An error raised by memfold is an answer."""
        if unsure and not (error.sqlstate or "").startswith("MF"):
            raise errors.OutcomeUnknownError(
                "the connection was lost before the server answered",
                sqlstate=error.sqlstate,
                detail=str(error),
                hint="Whether the call was written is not known. With an idempotency_key, or with"
                " Memfold(retry_safe=True), it is sent again once; with your own key you can repeat it yourself.",
            ) from error
        raise translated(error) from error


def translated(error: psycopg.Error) -> errors.MemfoldError:
    """As ``errors.translate``, for a statement of this package, which names only objects of memfold."""
    if error.sqlstate not in errors.NO_SUCH_OBJECT:
        return errors.translate(error)
    is_absent = error.sqlstate == "3F000"
    return errors.NotInstalledError(
        "memfold is not installed in this database"
        if is_absent
        else "memfold is not installed in this database, or in a version that this client does not support",
        sqlstate=error.sqlstate,
        detail=str(error.diag.message_primary or error),
        hint="As the database's owner: memfold init DSN. memfold doctor says what is installed. Or is it the DSN of another"
        " database?",
    )
