"""Installs memfold where no extension can be: executes the files that the extension is built of.

One transaction, whoever comes first: the schema files of the revisions that are missing, then, at head, every
file of sql/functions/. All statements of these files are in these files; nothing here makes an object of its
own but the schema and alembic's version table.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import context
from alembic.script import ScriptDirectory
from alembic.util import CommandError

SQL = Path(__file__).parents[1] / "sql"
ATTEMPTS = 8
# Another writer's lock, a deadlock, and what concurrent installs into databases of one server meet, for they
# share its roles: duplicates (unique_violation, duplicate_object) and "tuple concurrently updated" (XX000).
PASSING = {"55P03", "40P01", "40001", "23505", "42710", "42P06", "XX000"}

DSN = context.config.attributes.get("dsn") or os.environ.get("MEMFOLD_DSN")


def execute(connection: sa.Connection, path: Path) -> None:
    """Execute a file as it is: no parameter, no percent sign and no colon in it means anything here."""
    connection.exec_driver_sql(
        path.read_text(encoding="utf-8"), execution_options={"no_parameters": True}
    ).close()


def files(pattern: str) -> list[Path]:
    """Files under sql/, sorted by bytes, as the extension's script is put together."""
    return sorted(SQL.glob(pattern), key=lambda path: path.name.encode())


def check_server(connection: sa.Connection) -> None:
    """Refuse what memfold cannot run on, before anything is written."""

    def ask(query: str) -> str | None:
        value = connection.exec_driver_sql(query).scalar()
        return None if value is None else str(value)

    if int(ask("show server_version_num") or 0) < 150000:
        raise CommandError(f"memfold needs PostgreSQL 15 or newer; this is {ask('show server_version')}")
    if (encoding := ask("show server_encoding")) != "UTF8":
        raise CommandError(f"memfold needs a database with encoding UTF8; this one has {encoding}")
    if ask("select 1 from pg_catalog.pg_extension where extname = 'memfold'"):
        raise CommandError(
            "memfold is installed in this database by CREATE EXTENSION;"
            " keep it up to date with: alter extension memfold update"
        )


def ensure_vector(connection: sa.Connection) -> str:
    """Give the quoted name of pgvector's schema; install pgvector where it is missing."""
    find = (
        "select pg_catalog.quote_ident(n.nspname), e.extversion from pg_catalog.pg_extension as e"
        " join pg_catalog.pg_namespace as n on n.oid = e.extnamespace where e.extname = 'vector'"
    )
    if connection.exec_driver_sql(find).first() is None:
        if not connection.exec_driver_sql(
            "select 1 from pg_catalog.pg_available_extensions where name = 'vector'"
        ).scalar():
            raise CommandError(
                "memfold needs pgvector, and this server does not have it; install version 0.8 or newer"
            )
        try:
            connection.exec_driver_sql("create extension if not exists vector")
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != "42501":
                raise
            raise CommandError(
                f"memfold needs pgvector, and this role may not install it ({error.orig});"
                " ask an administrator for: create extension vector"
            ) from error
    schema, version = connection.exec_driver_sql(find).one()
    if tuple(int(part) for part in version.split(".")[:2]) < (0, 8):
        raise CommandError(
            f"memfold needs pgvector 0.8 or newer, not {version}: alter extension vector update"
        )
    return str(schema)


def apply(release: str) -> None:
    """Execute the schema files of one release. For revisions: they name it, and nothing else."""
    found = files(f"schema/{release}_*.sql")
    if not found:
        raise CommandError(f"there is no schema file of release {release} in {SQL / 'schema'}")
    for path in found:
        execute(context.get_bind(), path)


def install(connection: sa.Connection) -> None:
    context.configure(connection=connection, version_table_schema="memfold", transactional_ddl=True)
    if context.get_context().opts.get("dont_mutate"):
        context.run_migrations()  # `alembic current` and its like
        return
    # One install at a time; those that wait find it done. Only then a limit: nobody who uses the database
    # shall queue behind an install that itself waits for a lock.
    connection.exec_driver_sql("set local lock_timeout = '5min'")
    connection.exec_driver_sql(
        "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('memfold install', 0))"
    )
    connection.exec_driver_sql("set local lock_timeout = '3s'")
    check_server(connection)
    vector = ensure_vector(connection)
    if not connection.exec_driver_sql("select pg_catalog.to_regnamespace('memfold')").scalar():
        connection.exec_driver_sql("create schema if not exists memfold")
    # The same path as inside CREATE EXTENSION. Files find pgvector's type by it; no function depends on it.
    connection.exec_driver_sql(f"set local search_path = memfold, {vector}, pg_temp")
    connection.exec_driver_sql("set local client_min_messages = warning")
    with context.begin_transaction():
        context.run_migrations()
    heads = ScriptDirectory.from_config(context.config).get_heads()
    if set(context.get_context().get_current_heads()) == set(heads):
        for path in files("functions/*.sql"):
            execute(connection, path)


def run() -> None:
    if context.is_offline_mode():
        raise CommandError("alembic --sql is not supported: the built extension script is that file")
    if not DSN:
        raise CommandError("set MEMFOLD_DSN to the database, such as postgresql://user@host/database")
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(DSN, client_encoding="UTF8", fallback_application_name="memfold"),
        # At any higher level the wait for the lock would take a snapshot without what was waited for.
        isolation_level="READ COMMITTED",
        poolclass=sa.pool.NullPool,
    )
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with engine.begin() as connection:
                install(connection)
            return
        except sa.exc.DBAPIError as error:
            if attempt == ATTEMPTS or getattr(error.orig, "sqlstate", None) not in PASSING:
                raise
            # Jitter: those that collided must not meet again.
            time.sleep(min(0.1 * 2**attempt, 5) * random.uniform(0.5, 1))  # noqa: S311


context.config.attributes["apply"] = apply
run()
