"""A request's access to the database: as the server's login, for one tenant, on its own connection."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from pgvector import Vector
from psycopg import sql

from memfold.client import queries
from memfold.client._checks import check_text
from memfold.client.calls import Memfold
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Steps
from memfold.client.embedding import EmbedderProtocol
from memfold.client.embedding.vectors import VectorBinary
from memfold.client.errors import MemfoldError, NotInstalledError, TenantMissingError
from memfold.client.types import Row
from memfold.tools.admin.queries import CITUS
from memfold.tools.web import statements

NOT_PERMITTED = "42501"
"""The SQLSTATE of a privilege that the login lacks."""


@dataclass(frozen=True)
class Place:
    """The database and the tenant."""

    dsn: str
    tenant_id: str | None = None
    """None: the user chooses among the tenants that the login sees."""
    embedder: EmbedderProtocol | None = None


class Session:
    """One request's statements, which it keeps to show them."""

    def __init__(self, client: Memfold, tenant_id: str | None) -> None:
        self._client = client
        self.core: Core = client._core
        self.tenant_id = tenant_id
        self.statements: list[tuple[str, str]] = []

    def rows(self, name: str, statement: LiteralString, **given: Any) -> list[Row]:
        """The content of a section of the page."""
        for argument, value in given.items():
            if isinstance(value, str):
                check_text(argument, value)
        arguments = {**given, "tenant_id": self.tenant_id}
        self.statements.append((name, as_sql(statement, arguments)))
        return self._client._drive(self.core.send(statement, arguments, reads=True))

    def dry_run(self, name: str, function: str, arguments: Mapping[str, Any]) -> list[Row]:
        """What a function that writes returns; it is rolled back."""
        statement = queries.call(function, arguments)
        self.statements.append((name, f"begin;\n{as_sql(statement, arguments)}\nrollback;"))
        return self._client._drive(self.core.send(statement, arguments, keep=lambda _: False))

    def call(self, function: str, **given: Any) -> list[Row]:
        """A function that writes."""
        arguments = {**given, "tenant_id": self.tenant_id}
        return self._client._drive(self.core.run(function, arguments))

    def drive(self, steps: Steps[Any]) -> Any:
        return self._client._drive(steps)


class Pool:
    """Idle open connections. The tenant is set per transaction, so none stays set on a connection."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._idle: list[Memfold] = []

    @contextlib.contextmanager
    def session(self, tenant_id: str | None) -> Iterator[Session]:
        try:
            client = self._idle.pop()
        except IndexError:
            client = Memfold(self.place.dsn, None, self.place.embedder)
        try:
            yield Session(client, tenant_id)
        finally:
            self._idle.append(client)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def as_sql(statement: str, arguments: Mapping[str, Any]) -> str:
    """The statement with its arguments filled in, ready for psql."""

    def literal(found: re.Match[str]) -> str:
        value = arguments[found[1]]
        if isinstance(value, VectorBinary):
            value = Vector.from_binary(value).to_text()
        return sql.Literal(value).as_string(None)

    return re.sub(r"%\((\w+)\)s", literal, statement).replace("%%", "%").strip() + ";"


def resolve_tenant(place: Place) -> Place:
    """The place with the login's tenant, if there is only one. Raises an error if the database or login is unusable."""
    with Memfold(place.dsn) as client:
        if not client._query(queries.INSTALLED)[0]["installed"]:
            raise NotInstalledError(
                "memfold is not installed in this database", hint="As the database's owner: memfold init DSN"
            )
        if client._query(CITUS)[0]["is_distributed"]:
            raise MemfoldError(
                "this is a node of Citus",
                detail="The page reads tables and views, whose rows are on other nodes.",
                hint="Use psql, or memfold review.",
            )
        if place.tenant_id is not None:
            client._query(statements.TENANTS, place.tenant_id)
            return place
        # a login that is set up for a tenant, or bound to one, cannot choose another
        found = client._query(queries.TENANTS_OF_LOGIN)
        if len(found) == 1:
            return Place(place.dsn, found[0]["tenant_id"], place.embedder)
        if not found and not client._query(statements.TENANTS):
            raise TenantMissingError(
                "no tenant",
                detail="The login sees no memories of any tenant.",
                hint="Give --tenant ID, or bind the login to one tenant (docs/security.md).",
            )
    return place
