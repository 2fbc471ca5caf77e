"""Installs memfold, and compares what is installed with the files that this package carries.

The work is done by the package's migrations (``memfold/migrations/env.py``); this module starts them without
a configuration file.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from psycopg import sql
from sqlalchemy.exc import SQLAlchemyError

from memfold import queries
from memfold.errors import InstallError, translate

__all__ = ["drift", "install", "search_path_statement", "set_search_path"]

_LIST_ITEM = re.compile(r'\s*("(?:[^"]|"")*"|[^,\s]+)\s*(?:,|$)')
# Alembic keeps what it works on in a module of its own: threads take turns.
_one_at_a_time = threading.Lock()

_PACKAGE = Path(__file__).parent


def function_files() -> list[Path]:
    """The files that every install and upgrade runs again, in their order."""
    return sorted((_PACKAGE / "sql" / "functions").glob("*.sql"), key=lambda path: path.name.encode())


def install(dsn: str) -> str:
    """Install memfold in the database, or bring it up to date; gives the revision it is at.

    Any number of processes may do so at once. Raises ``InstallError`` where it cannot be: an old server, no
    pgvector, another encoding than UTF8, or memfold installed there by CREATE EXTENSION.
    """
    config = Config()
    config.set_main_option("script_location", str(_PACKAGE / "migrations").replace("%", "%%"))
    config.attributes["dsn"] = dsn
    try:
        with _one_at_a_time:
            command.upgrade(config, "head")
    except CommandError as error:
        raise InstallError(str(error)) from error
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None)
        if isinstance(cause, psycopg.Error):
            raise translate(cause) from error
        raise InstallError(str(error)) from error
    except psycopg.Error as error:
        raise translate(error) from error
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(queries.REVISION).fetchone()
    if row is None:
        raise InstallError("the installation left no revision behind")
    return str(row[0])


def search_path_statement(dsn: str) -> str | None:
    """The statement that appends memfold to the database's search_path; None where it is on it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(queries.SEARCH_PATH).fetchone()
        assert row is not None  # noqa: S101 (a query without FROM gives one row)
        database, present = row
        items = [item[1:-1].replace('""', '"') if item[0] == '"' else item for item in _items(present)]
        if "memfold" in items:
            return None
        path = sql.SQL(", ").join([*map(sql.Identifier, items), sql.Identifier("memfold")])
        statement = sql.SQL("alter database {} set search_path = {}")
        return statement.format(sql.Identifier(database), path).as_string(connection)


def _items(setting: str) -> list[str]:
    return _LIST_ITEM.findall(setting)


def set_search_path(dsn: str) -> str | None:
    """Append memfold to the database's present search_path, for sessions to come; gives the statement run."""
    statement = search_path_statement(dsn)
    if statement is not None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(statement.encode())
    return statement


def drift(dsn: str) -> list[str]:
    """Functions whose definition in the database is not the one of this package's files.

    The files are executed in a transaction that is rolled back. While that goes on (less than a second),
    writers wait, for triggers are among what the files replace. Needs the rights of whoever installed it.
    What only schema files define is not compared.
    """
    try:
        with psycopg.connect(dsn, client_encoding="UTF8") as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.execute(queries.INSTALL_PATH)
            before = _definitions(connection)
            for path in function_files():
                connection.execute(path.read_bytes())
            after = _definitions(connection)
            connection.rollback()
    except psycopg.Error as error:
        raise translate(error) from error
    return sorted(name for name, definition in after.items() if before.get(name) != definition)


def _definitions(connection: psycopg.Connection[tuple[object, ...]]) -> dict[str, object]:
    return {str(name): definition for name, definition in connection.execute(queries.DEFINITIONS)}
