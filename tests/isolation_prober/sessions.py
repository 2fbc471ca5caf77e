"""A session that acts for a tenant, and everything that it receives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.support.queries import DB


@dataclass
class Session:
    """A connection that acts for a tenant, and everything that it receives."""

    name: str
    connection: DB
    setting: str | None
    path: str = "public, memfold"
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection.add_notice_handler(self._hear)

    def _hear(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        self.heard.append(told(diagnostic))

    def run(self, statement: str, parameters: Any = None, *, commit: bool = False) -> Outcome:
        """One statement in its own transaction, which is rolled back unless told otherwise."""
        begin, statements = f"begin; set local search_path = {self.path};", 2
        if self.setting is not None:
            statements = 3
            begin += self._bind(
                "select pg_catalog.set_config('memfold.tenant_id', %s, true);", [self.setting]
            )
        if statement.startswith("copy"):
            self.connection.execute(begin.encode())
            outcome = self._copy(statement)
            self.connection.execute("rollback")
            return outcome
        if parameters is not None:
            statement = self._bind(statement, parameters)
        # in one message: there are thousands of these
        return self.listen(f"{begin} {statement}; {'commit' if commit else 'rollback'}", before=statements)

    def _bind(self, statement: str, parameters: Any) -> str:
        return psycopg.ClientCursor(self.connection).mogrify(statement.encode(), parameters)

    def listen(self, statements: str, *, before: int = 0) -> Outcome:
        """The result of the last statement of several."""
        self.heard.clear()
        try:
            cursor = self.connection.execute(statements.encode())
            for _ in range(before):
                cursor.nextset()
            rows = [str(row) for row in cursor.fetchall()] if cursor.description else []
        except psycopg.Error as error:
            self.connection.execute("rollback")
            return Outcome(error.sqlstate or "", [], told(error.diag), list(self.heard))
        return Outcome(None, rows, "", list(self.heard))

    def _copy(self, statement: str) -> Outcome:
        self.heard.clear()
        try:
            with self.connection.cursor() as cursor, cursor.copy(statement.encode()) as copied:
                rows = [bytes(line).decode() for line in copied]
        except psycopg.Error as error:
            return Outcome(error.sqlstate or "", [], told(error.diag), list(self.heard))
        return Outcome(None, rows, "", list(self.heard))


def told(diagnostic: psycopg.errors.Diagnostic) -> str:
    """The complete text of an error or a notice."""
    names = ("sqlstate", "message_primary", "message_detail", "message_hint", "context", "internal_query",
             "schema_name", "table_name", "column_name", "datatype_name", "constraint_name")  # fmt: skip
    return "\n".join(f"{name}: {getattr(diagnostic, name)}" for name in names if getattr(diagnostic, name))


@dataclass
class Outcome:
    """The result of a statement: its rows or its error, and its notices."""

    state: str | None
    rows: list[str]
    error: str
    notices: list[str]

    @property
    def all(self) -> str:
        return "\n".join([*self.rows, self.error, *self.notices])

    def reveals(self, hidden: set[str]) -> list[str]:
        text = self.all.lower()
        found = sorted(secret for secret in hidden if secret.lower() in text)
        # a function of the caller's own, run with the rights of somebody else
        return found + re.findall(r"shadow \S+ as \w+", text)

    def shape(self) -> str:
        """The text without the names asked for, and without what is new in every call."""
        text = "\n".join([str(self.state), *sorted(self.rows), self.error, *self.notices])
        text = re.sub(r"(birch|cedar)wood", "<word>", text, flags=re.IGNORECASE)
        text = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "<id>", text)
        text = re.sub(
            r"datetime\.datetime\([^)]*\)+|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*(\+\d\d(:\d\d)?)?",
            "<time>",
            text,
        )
        text = re.sub(r"'ms': {[^}]*}", "<ms>", text)
        text = re.sub(r"(\\+x|b')([^']*)'", "<bytes>", text)
        return re.sub(r"\b[0-9a-f]{16,}\b", "<hash>", text)
