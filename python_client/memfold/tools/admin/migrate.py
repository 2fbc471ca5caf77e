"""Installs memfold, and compares what is installed with the files that this package carries.

The work is done by the package's migrations (``memfold/migrations/env.py``); this module starts them without
a configuration file.
"""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import conninfo, sql

from memfold.client._dsn import read_dsn
from memfold.client._extras import needs
from memfold.client._version import __version__
from memfold.client.errors import InstallError, MemfoldError, translate
from memfold.tools.admin import queries

# Alembic is imported where it is used: with SQLAlchemy it would take half of every command's start-up time.
if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["drift", "install", "other_version", "script", "search_path_statement", "set_search_path"]

_LIST_ITEM = re.compile(r'\s*("(?:[^"]|"")*"|[^,\s]+)\s*(?:,|$)')
# Alembic keeps its state in a module, so threads take turns.
_one_at_a_time = threading.Lock()

_PACKAGE = Path(__file__).parents[2]

_INSTALLED_FROM = """
select pg_catalog.obj_description(pg_catalog.to_regclass('memfold_internal.alembic_version'), 'pg_class')
"""


def _files(folder: str) -> list[Path]:
    return sorted((_PACKAGE / "sql" / folder).rglob("*.sql"), key=lambda path: path.as_posix().encode())


def installed_from() -> str:
    """A comment on alembic's table: the SHA-256 of the files that were executed last, with their names."""
    found = hashlib.sha256()
    for path in _files("."):
        text = path.read_bytes()
        found.update(f"{path.relative_to(_PACKAGE)} {len(text)}\n".encode() + text)
    return f"installed from the files with the SHA-256 {found.hexdigest()}"


def keep_current(dsn: str, say: Callable[[str], None]) -> str:
    """Install memfold with the starter list of predicates, unless the files of this package were executed last.

    Returns the revision. A failed upgrade is only a warning: the installed version stays.
    """
    try:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            row = connection.execute(_INSTALLED_FROM).fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    found = revision(dsn)
    if found is not None and row == (installed_from(),):
        return found
    say("installing memfold ...")
    try:
        return install(dsn, common_predicates=True)
    except MemfoldError as error:
        if found is None:
            raise
        say(f"WARNING: memfold stays as it was: {error}")
        return found


def install(dsn: str, *, citus: bool = False, common_predicates: bool = False) -> str:
    """Install memfold in the database, or bring it up to date; returns its revision.

    Any number of processes can do so at the same time. ``citus``: the database is on a Citus coordinator, and memfold
    is distributed over its nodes (``contrib/citus/``); later calls recognize this by themselves. ``common_predicates``: a
    new installation has the starter list of predicates, for all tenants. Raises
    ``InstallError`` if it is impossible: an old server, no pgvector, an encoding other than UTF8, no Citus, or
    memfold installed there by CREATE EXTENSION.
    """
    try:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            row = connection.execute(queries.CITUS).fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    has_citus, is_distributed = row or (False, False)
    is_new = revision(dsn) is None
    if citus and not has_citus:
        raise InstallError(
            "Citus is not installed: CREATE EXTENSION citus on every node, and add the workers"
        )
    if citus or is_distributed:
        # the script distributes the new objects to the other nodes
        given = conninfo.conninfo_to_dict(read_dsn(dsn))
        options = f"{given.get('options') or ''} -c citus.enable_ddl_propagation=off"
        local = conninfo.make_conninfo(read_dsn(dsn), options=options)
        if not is_distributed:
            _upgrade(_config(dsn=local), "head")
        _upgrade(_config(dsn=local, citus=_citus_script()), "head")
    else:
        _upgrade(_config(dsn=read_dsn(dsn)), "head")
    found = revision(dsn)
    if found is None:
        raise InstallError("the installation left no revision behind")
    if is_new and common_predicates:
        set_common_predicates(dsn)
    return found


def revision(dsn: str) -> str | None:
    """What is installed in the database. None: memfold is not."""
    try:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            row = connection.execute(queries.HAS_REVISION).fetchone()
            if row is not None and row[0]:
                row = connection.execute(queries.REVISION).fetchone()
                return None if row is None else str(row[0])
    except psycopg.Error as error:
        raise translate(error) from error
    return None


def set_common_predicates(dsn: str) -> int:
    """Set the starter list of predicates for all tenants; returns how many it has set. Needs the owner's rights."""
    try:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            row = connection.execute(queries.SET_COMMON_PREDICATES).fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    return 0 if row is None else int(row[0])


def _citus_script() -> tuple[str, str]:
    """What distributes memfold, without BEGIN and COMMIT, and what copies functions and views to the other nodes."""
    texts = []
    # functions of a shard are made of those of the release, which the second script changes
    for name in ("shard_functions.sql", "citus.sql"):
        text = (_PACKAGE / "contrib" / "citus" / name).read_text(encoding="utf-8")
        text, copies = text.split("\ncommit;\n")
        texts.append(text.partition("\nbegin;\n")[2])
    return "\n".join(texts), copies


def script(dsn: str | None = None) -> str:
    """The SQL that ``install`` would execute in the database, for review and for ``psql -f``.

    Without a database: for a new one. The script is one transaction, and refuses a database at a revision other than
    the one it was made for. It is like one attempt of ``install``: if it fails because of a lock (55P03), run it
    again.
    """
    found = None if dsn is None else revision(dsn)
    config = _config()
    output = io.StringIO()
    config.output_buffer = output
    known = _revisions(config)
    if found is not None and found not in known:
        raise InstallError(f"memfold in this database is newer (revision {found}) than this package")
    _upgrade(config, f"{found or 'base'}:head", sql=True)
    made_for = f"a database at revision {found}" if found else "a database without memfold"
    head = (
        f"-- memfold {__version__}, for {made_for}: one transaction, to be run by psql -v ON_ERROR_STOP=1 -f"
    )
    return f"{head}\n\n{output.getvalue()}"


def _config(**attributes: object) -> Config:
    with needs("migrate"):
        from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_PACKAGE / "migrations").replace("%", "%%"))
    config.attributes.update(attributes)
    return config


def _revisions(config: Config) -> list[str]:
    """The revisions of this package, newest first."""
    from alembic.script import ScriptDirectory

    return [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()]


def _upgrade(config: Config, revision: str, *, sql: bool = False) -> None:
    from alembic import command
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with _one_at_a_time:
            command.upgrade(config, revision, sql=sql)
    except CommandError as error:
        raise InstallError(str(error)) from error
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None)
        if isinstance(cause, psycopg.Error):
            raise translate(cause) from error
        raise InstallError(str(error)) from error
    except psycopg.Error as error:
        raise translate(error) from error


def search_path_statement(dsn: str) -> str | None:
    """The statement that appends memfold to the database's search_path; None if it is already there.

    A schema of the caller always comes first, because CREATE TABLE uses the first existing one.
    """
    with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
        row = connection.execute(queries.SEARCH_PATH).fetchone()
        assert row is not None  # noqa: S101 (a query without FROM gives one row)
        database, present, is_namesake = row
        items = [item[1:-1].replace('""', '"') if item[0] == '"' else item for item in _items(present)]
        wanted = [item for item in items if item not in ("", "memfold")]
        if set(wanted) <= {"$user"}:
            wanted.append("public")
        wanted.append("memfold")
        statements = []
        if items != wanted:
            statements.append(("alter database {} set search_path = {}", wanted))
        if is_namesake and "$user" in wanted:
            own = [item for item in wanted if item != "$user"]
            statements.append(("alter role memfold in database {} set search_path = {}", own))
        return (
            ";\n".join(
                sql.SQL(statement)
                .format(sql.Identifier(database), sql.SQL(", ").join(map(sql.Identifier, path)))
                .as_string(connection)
                for statement, path in statements
            )
            or None
        )


def _items(setting: str) -> list[str]:
    return _LIST_ITEM.findall(setting)


def set_search_path(dsn: str) -> str | None:
    """Execute ``search_path_statement``, for future sessions; returns it."""
    statement = search_path_statement(dsn)
    if statement is not None:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            connection.execute(statement.encode())
    return statement


def create_vector_index(dsn: str, model: str) -> bool:
    """Create the index of a registered embedding model concurrently; False: it exists. Raises the server's error."""
    try:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            statements = connection.execute("select memfold.vector_index_ddl(%s)", [model]).fetchall()
            # unqualified names in it are memfold's
            connection.execute("set search_path = memfold")
            for (statement,) in statements:
                connection.execute(statement)
    except psycopg.Error as error:
        raise translate(error) from error
    return bool(statements)


def other_version(extension: str | None, revision: str | None) -> str | None:
    """What to run if a database has another version than this package; None if it is the same.

    ``extension``: the extension's version, ``revision``: that of ``memfold init``, as far as they are known.
    """
    ours = __version__
    if extension is not None:
        if extension == ours:
            return None
        if _numbers(extension) > _numbers(ours):
            return f"memfold in this database is {extension}, newer than this package ({ours}): upgrade the package"
        return (
            f"memfold in this database is {extension}, and this package {ours}: alter extension memfold update"
            " (make install, if the server has no newer one)"
        )
    known = _revisions(_config())
    if revision is None or revision == known[0]:
        return None
    if revision not in known:
        return f"memfold in this database (revision {revision}) is newer than this package ({ours}): upgrade the package"
    return (
        f"memfold in this database (revision {revision}) is older than this package"
        f" ({ours}, revision {known[0]}): memfold init DSN"
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def drift(dsn: str) -> list[str]:
    """Functions that differ from this package's files: edited, missing, or not memfold's.

    In a transaction that is rolled back, the schema is renamed and all files are executed again, so that the same
    server prints both definitions. Nobody waits for it: no table in use is touched. Needs the privileges of the role
    that installed memfold.
    """
    try:
        with psycopg.connect(read_dsn(dsn), client_encoding="UTF8") as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.execute(queries.INSTALL_PATH)
            found = _definitions(connection)
            connection.execute(queries.STEP_ASIDE)
            for path in [*_files("schema"), *_files("functions")]:
                connection.execute(path.read_bytes())
            made = _definitions(connection)
            connection.rollback()
    except psycopg.Error as error:
        raise translate(error) from error
    return sorted(name for name in found.keys() | made.keys() if found.get(name) != made.get(name))


def _definitions(connection: psycopg.Connection[tuple[object, ...]]) -> dict[str, object]:
    return {str(name): definition for name, definition in connection.execute(queries.DEFINITIONS)}
