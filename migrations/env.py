"""Installs memfold without an extension: executes the files from which the extension is built.

One transaction executes the schema files of the missing revisions, then every file of sql/functions/; concurrent
installations take turns. All statements are in files under sql/; nothing here creates other objects, except alembic's
version table. With ``--sql``, the same statements are printed instead.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import context
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from memfold.tools.admin.migrate import installed_from

SQL = Path(__file__).parents[1] / "sql"
# Nobody should have to queue behind an upgrade that itself waits for a lock, and in a deadlock the upgrade should give
# way before PostgreSQL detects it, after a second.
LOCK_TIMEOUT = "300ms"
PATIENCE = float(os.environ.get("MEMFOLD_LOCK_PATIENCE", "120"))  # seconds
# One installation at a time; those that wait find it done. Nothing else in memfold takes the lock, but any login can.
KEY = "pg_catalog.hashtextextended('memfold install', 0)"
GATE = (
    "set local idle_in_transaction_session_timeout = 0",
    f"set local lock_timeout = '{max(PATIENCE, 0.3)}s'",
    f"select pg_catalog.pg_advisory_xact_lock({KEY})",
    f"set local lock_timeout = '{LOCK_TIMEOUT}'",
)
# Another writer's lock, a deadlock, and errors of concurrent installations into databases of one server, which share
# roles: duplicates (unique_violation, duplicate_object), and of XX000, which is mostly a fault that stays, those below.
PASSING = {"55P03", "40P01", "40001", "23505", "42710", "42P06"}
# never translated by the server
PASSING_INTERNAL = ("tuple concurrently updated", "tuple concurrently deleted")
BLOCKERS = f"""
select pg_catalog.format('process %s (%s%s)%s', a.pid, a.usename,
    coalesce(', ' || nullif(a.application_name, ''), ''),
    coalesce(', in a transaction since ' || a.xact_start::timestamptz(0), ''))
from pg_catalog.pg_stat_activity as a
where a.pid <> pg_catalog.pg_backend_pid() and a.datname = current_database() and exists (
    select from pg_catalog.pg_locks as l
    left join pg_catalog.pg_class as c on c.oid = l.relation
    where l.pid = a.pid and l.granted and (
        c.relnamespace = any(
            array[pg_catalog.to_regnamespace('memfold'), pg_catalog.to_regnamespace('memfold_internal')])
        or l.locktype = 'advisory' and l.objsubid = 1 and (l.classid::bigint << 32 | l.objid::bigint) = {KEY}
    )
)
order by a.xact_start limit 3
"""  # noqa: S608 (KEY is above)

# Empty: libpq's environment variables decide.
DSN = context.config.attributes.get("dsn", os.environ.get("MEMFOLD_DSN") or None)
# On Citus, the first replaces functions of one server, in the transaction that creates them, because these would take
# locks on the wrong node. The second copies functions to the other nodes, in a later transaction.
HOOKS, COPY = context.config.attributes.get("citus", ("", ""))


def files(pattern: str) -> list[Path]:
    """Files under sql/, sorted by the bytes of their paths, in the order of the extension's script."""
    return sorted(SQL.glob(pattern), key=lambda path: path.as_posix().encode())


def execute(text: str) -> None:
    """Execute text unchanged, or print it: parameters, percent signs and colons have no meaning here."""
    if context.is_offline_mode():
        context.get_context().impl.static_output(text)
    else:
        bind = context.get_bind()
        bind.exec_driver_sql(text, execution_options={"no_parameters": True}).close()


def execute_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    execute(f"-- {path.relative_to(SQL.parent)}\n\n{text}" if context.is_offline_mode() else text)


def released() -> dict[str, str]:
    """Checksums of the schema files of published releases, which never change again. `make freeze` records them."""
    sums = SQL / "schema" / "SHA256SUMS"
    lines = sums.read_text(encoding="ascii").splitlines() if sums.exists() else []
    return {name: checksum for checksum, name in (line.split() for line in lines)}


def apply(release: str) -> None:
    """Execute the schema files of one release. For revisions, which only name it."""
    found = files(f"schema/{release}_*.sql")
    checksums = released()
    frozen = {name for name in checksums if name.startswith(f"{release}_")}
    if not found or frozen - {path.name for path in found}:
        raise CommandError(f"a schema file of release {release} is missing in {SQL / 'schema'}")
    for path in found:
        if frozen and hashlib.sha256(path.read_bytes()).hexdigest() != checksums.get(path.name):
            raise CommandError(f"{path} is not the file that was released; get the original one")
        execute_file(path)


def migrate() -> None:
    """Bring the database to head, in the current transaction."""
    execute_file(SQL / "alembic" / "head.sql")
    if context.is_offline_mode():
        execute(expect(context.get_context()._start_from_rev))
    context.run_migrations()
    for path in files("functions/**/*.sql"):
        execute_file(path)
    if HOOKS:
        execute(HOOKS)
    execute(f"comment on table memfold_internal.alembic_version is '{installed_from()}';")


def expect(revision: str | None) -> str:
    """Make a printed script, which is for one revision, refuse others."""
    expected = "null" if revision in (None, "base") else f"'{revision}'"
    return f"""\
do $$
declare
    v_revision text;
begin
    if pg_catalog.to_regclass('memfold_internal.alembic_version') is not null then
        execute 'select version_num from memfold_internal.alembic_version' into v_revision;
    end if;
    if v_revision is distinct from {expected} then
        raise exception 'this script is for another state of the database'
            using errcode = 'object_not_in_prerequisite_state',
            detail = pg_catalog.format('It expects revision %s; the database is at %s.',
                coalesce({expected}, 'none'), coalesce(v_revision, 'none'));
    end if;
end;
$$;"""  # noqa: S608 (the revision is the name of a file here)


def install(connection: sa.Connection) -> None:
    context.configure(connection=connection, version_table_schema="memfold_internal", transactional_ddl=True)
    if context.get_context().opts.get("dont_mutate"):
        context.run_migrations()  # `alembic current` and the like
        return
    scripts = ScriptDirectory.from_config(context.config)
    known = {script.revision for script in scripts.walk_revisions()}
    if newer := set(context.get_context().get_current_heads()) - known:
        raise CommandError(
            f"memfold in this database is newer (revision {', '.join(newer)}) than this package"
            f" ({scripts.get_current_head()}): upgrade the package"
        )
    if scripts.as_revision_number(context.get_revision_argument()) != scripts.get_current_head():
        raise CommandError("functions exist only for the latest revision: run alembic upgrade head")
    close_gate(connection)
    # A failed attempt is repeated behind the gate, which one process holds: ten concurrent ones would never give
    # other users of the database a gap.
    repeat(connection, migrate)


def close_gate(connection: sa.Connection) -> None:
    try:
        with connection.begin_nested():
            for statement in GATE:
                connection.exec_driver_sql(statement)
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "55P03":
            raise
        raise CommandError(
            f"another installation is running in this database: {blockers(connection)}. Nothing was changed; try again later"
        ) from error


def blockers(connection: sa.Connection) -> str:
    found = connection.exec_driver_sql(BLOCKERS, execution_options={"no_parameters": True})
    return "; ".join(found.scalars()) or "it has ended since"


def is_passing(state: str | None, message: str) -> bool:
    return state in PASSING or (state == "XX000" and any(known in message for known in PASSING_INTERNAL))


def repeat(connection: sa.Connection, work: Callable[[], None]) -> None:
    """Repeat work, a part of the current transaction, while other sessions are in its way."""
    began = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        context.configure(
            connection=connection, version_table_schema="memfold_internal", transactional_ddl=True
        )
        try:
            with connection.begin_nested():
                work()
            return
        except sa.exc.DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            if state == "55000":
                message = error.orig.diag.message_primary
                hint = error.orig.diag.message_hint
                raise CommandError(f"{message}: {hint}" if hint else message) from error
            if not is_passing(state, str(error.orig)):
                raise
            if time.monotonic() - began > PATIENCE:
                if state != "55P03":
                    raise
                raise CommandError(
                    f"a transaction holds a lock that the upgrade needs, and {attempt} attempts found no gap:"
                    f" {blockers(connection)}. Nothing was changed; try again later"
                ) from error
            # Jitter: attempts that collided must not collide again. Between attempts everyone else continues.
            time.sleep(min(0.1 * 2**attempt, 5) * random.uniform(0.5, 1))  # noqa: S311


def run() -> None:
    if context.is_offline_mode():
        context.configure(
            dialect_name="postgresql", version_table_schema="memfold_internal", transactional_ddl=True
        )
        with context.begin_transaction():
            for statement in GATE:
                execute(f"{statement};")
            migrate()
        return
    if DSN is None:
        raise CommandError("set MEMFOLD_DSN to the database, such as postgresql://user@host/database")
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(DSN, client_encoding="UTF8", fallback_application_name="memfold"),
        # At any higher level the wait for the lock would take a snapshot without the changes that it waited for.
        isolation_level="READ COMMITTED",
        poolclass=sa.pool.NullPool,
    )
    with engine.connect() as connection:
        with connection.begin():
            install(connection)
        if COPY:
            with connection.begin():
                close_gate(connection)
                repeat(connection, lambda: execute(COPY))


context.config.attributes["apply"] = apply
run()
