"""Removes memfold from a database, and its roles from the cluster if no other database uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from memfold.client._dsn import read_dsn
from memfold.client.errors import InstallError, translate

__all__ = ["Removed", "uninstall"]

ROLES: Final = (
    "memfold_tenant", "memfold_agent", "memfold_judge", "memfold_auditor", "memfold_queue", "memfold_rules", "memfold_app",
    "memfold_owner",
)  # fmt: skip

_STATE: LiteralString = """
select pg_catalog.current_database(),
    pg_catalog.to_regnamespace('memfold') is not null or pg_catalog.to_regnamespace('memfold_internal') is not null,
    exists (select from pg_catalog.pg_extension where extname = 'memfold'),
    exists (select from pg_catalog.pg_extension where extname = 'citus'),
    pg_catalog.to_regclass('memfold.adoptions') is not null, pg_catalog.to_regclass('cron.job') is not null
"""
# Objects of others that depend on memfold's: CASCADE would drop them too.
_ON_TOP: LiteralString = """
with ours (class, id) as (
    select 'pg_catalog.pg_class'::regclass::oid, oid from pg_catalog.pg_class
    where relnamespace = any(%(schemas)s::regnamespace[])
    union all
    select 'pg_catalog.pg_proc'::regclass, oid from pg_catalog.pg_proc
    where pronamespace = any(%(schemas)s::regnamespace[])
    union all
    select 'pg_catalog.pg_type'::regclass, oid from pg_catalog.pg_type
    where typnamespace = any(%(schemas)s::regnamespace[])
),
dependent as (
    select d.classid, d.objid, d.classid::regclass::text as class, coalesce(
        (select ev_class from pg_catalog.pg_rewrite where d.classid = 'pg_rewrite'::regclass and oid = d.objid),
        (select tgrelid from pg_catalog.pg_trigger where d.classid = 'pg_trigger'::regclass and oid = d.objid),
        (select adrelid from pg_catalog.pg_attrdef where d.classid = 'pg_attrdef'::regclass and oid = d.objid),
        (select conrelid from pg_catalog.pg_constraint where d.classid = 'pg_constraint'::regclass and oid = d.objid),
        (select polrelid from pg_catalog.pg_policy where d.classid = 'pg_policy'::regclass and oid = d.objid),
        d.objid
    ) as owner
    from pg_catalog.pg_depend as d
    join ours as o on o.class = d.refclassid and o.id = d.refobjid
    where d.deptype in ('n', 'a')
        and d.classid = any(
            '{pg_rewrite,pg_trigger,pg_attrdef,pg_constraint,pg_policy,pg_proc,pg_class,pg_type}'::regclass[]
        )
)
select distinct pg_catalog.pg_describe_object(d.classid, d.objid, 0)
from dependent as d
where not exists (select from ours as o where o.id in (d.owner, d.objid))
order by 1
"""
_SCHEMAS: LiteralString = """
select pg_catalog.array_agg(nspname::text) from pg_catalog.pg_namespace where nspname in ('memfold', 'memfold_internal')
"""
# Settings of the database, for everybody and for one role.
_PATHS: LiteralString = """
select s.setrole::regrole::text, pg_catalog.substr(c.entry, 13)
from pg_catalog.pg_db_role_setting as s
join pg_catalog.pg_database as d on d.oid = s.setdatabase and d.datname = pg_catalog.current_database()
cross join pg_catalog.unnest(s.setconfig) as c (entry)
where c.entry like 'search\\_path=%%' and c.entry ~ '\\mmemfold\\M'
"""


@dataclass(frozen=True)
class Removed:
    """The result of ``uninstall``: the database; the dropped roles; and kept_roles, which something else still needs."""

    database: str
    roles: tuple[str, ...]
    kept_roles: tuple[str, ...]


def uninstall(dsn: str, *, database: str) -> Removed:
    """Drop memfold's objects, jobs and its place in search_path; then its roles, unless something depends on them.

    Every memory is deleted. ``database``: its name, so that nobody drops another by mistake. All of it happens, or nothing.
    Raises InstallError where memfold is not installed, the name is another, it is a node of Citus, a table is adopted, or
    views, functions or the like of others are built on memfold's objects.
    """
    try:
        with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
            with connection.transaction():
                _drop(connection, database)
            gone, kept = _drop_roles(connection)
    except psycopg.Error as error:
        raise translate(error) from error
    return Removed(database, gone, kept)


def _drop(connection: psycopg.Connection[Any], database: str) -> None:
    name, is_there, is_extension, is_citus, has_adoptions, has_cron = _one(connection, _STATE)
    if name != database:
        raise InstallError(f"this database is {name}, not {database}", hint="Nothing was dropped.")
    if not is_there:
        raise InstallError(f"memfold is not installed in {name}")
    if is_citus:
        raise InstallError(
            "this is a node of Citus", hint="contrib/citus/README.md says how to remove memfold from it."
        )
    connection.execute("set local lock_timeout = '10s'")
    adopted = (
        connection.execute("select table_schema, table_name from memfold.adoptions").fetchall()
        if has_adoptions
        else []
    )
    if adopted:
        raise InstallError(
            f"{len(adopted)} tables are adopted", detail=", ".join(".".join(table) for table in adopted) + ".",
            hint="Run memfold adopt undo for each of them first.",
        )  # fmt: skip
    (schemas,) = _one(connection, _SCHEMAS)
    on_top = [row[0] for row in connection.execute(_ON_TOP, {"schemas": schemas})]
    if on_top:
        raise InstallError(
            "objects that are not memfold's depend on it",
            detail="; ".join(on_top[:20]) + ".",
            hint="Drop them first.",
        )
    if has_cron:
        connection.execute(
            "select cron.unschedule(jobid) from cron.job where database = current_database() and command ~ '\\mmemfold\\.'"
        )
    if is_extension:
        # CASCADE: a score created by apply_calibration() does not belong to the extension
        connection.execute("drop extension if exists memfold_py; drop extension memfold cascade")
    connection.execute("drop schema if exists memfold, memfold_internal cascade")
    for role, path in connection.execute(_PATHS).fetchall():
        whose = sql.SQL("alter database {}") if role == "-" else sql.SQL("alter role {} in database {}")
        names = [sql.Identifier(part) for part in ([] if role == "-" else [role.strip('"')]) + [database]]
        left = [part for item in path.split(",") if (part := item.strip()).strip('"') != "memfold"]
        value = (
            sql.SQL(" set search_path = {}").format(sql.SQL(", ".join(left)))
            if left
            else sql.SQL(" reset search_path")
        )
        connection.execute(whose.format(*names) + value)


def _drop_roles(connection: psycopg.Connection[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    there = "select rolname::text from pg_catalog.pg_roles where rolname = any(%s) order by 1"
    roles = tuple(row[0] for row in connection.execute(there, [list(ROLES)]))
    if not roles:
        return (), ()
    try:
        # in one statement: the catalog shows no dependency on memfold_tenant, but functions of other databases use it
        connection.execute(sql.SQL("drop role {}").format(sql.SQL(", ").join(map(sql.Identifier, roles))))
    except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.InsufficientPrivilege):
        return (), roles
    return roles, ()


def _one(connection: psycopg.Connection[Any], query: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None  # noqa: S101 (each of them gives one row)
    return tuple(row)
