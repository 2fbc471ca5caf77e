"""Databases that tests get: copies of a template, and kept for the next test where nothing but rows has come about.

To copy and drop a database takes long, and so does the first call of each function in a new session, which compiles it. So a
database is lent again, with its session, after the rows of the test before are deleted. It is not trusted: the server's own
counters say whether a catalog was written to, if only by what was rolled back (a role's grant, a function, an index, a
temporary table, statistics). Then, or when the rows that the template has were touched, or there are many pages by now, the
database is dropped and the next test gets a new one. Commits are real throughout, and so are second sessions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

Connection = psycopg.Connection[Any]
QUIET = {TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR}

# DISCARD ALL but for the plans, which are what a session is kept for. A temporary table is noticed in the catalogs.
RESET = """
close all; set session authorization default; reset all; deallocate all; unlisten *; discard sequences;
select pg_advisory_unlock_all(); select pg_stat_force_next_flush()
"""
# By table, how many rows were ever written in the database; 0: in its catalogs.
WRITTEN = """
select case when relnamespace <> 'pg_catalog'::regnamespace then oid::bigint else 0 end,
    sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))
from pg_class where relkind = 'r' and not relisshared group by 1
"""
# The shared catalogs' rows about the database, and whether the counters have advanced.
ABOUT = """
select d.xmin::text, d.ctid::text, s.stats_reset, (select count(*) from pg_db_role_setting where setdatabase = d.oid)
from pg_database as d join pg_stat_database as s on s.datid = d.oid where d.datname = current_database()
"""
OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = {} and pid <> pg_backend_pid()
"""
# Larger tables would be scanned and planned differently from new ones. (antonyms has 21 pages when new.)
MOST_BYTES = 24 * 8192


def end_others(connection: Connection, name: str) -> None:
    """End all other sessions in a database, and wait until they are gone."""
    others = sql.SQL(OTHERS).format(sql.Literal(name))
    deadline = time.monotonic() + 30
    while connection.execute(others).fetchall():
        if time.monotonic() > deadline:
            raise RuntimeError(f"sessions in {name} do not end")
        time.sleep(0.001)


def drop(admin: Connection, name: str) -> None:
    """Drop a database, whichever sessions are in it. DROP DATABASE itself would look again only after 100 ms."""
    end_others(admin, name)
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


@dataclass
class State:
    """The compared state: rows of shared catalogs, and the number of rows written, by table (0: in all catalogs)."""

    about: tuple[Any, ...]
    written: dict[int, int]


@dataclass
class Database:
    """A copy of a template, and a superuser's session in it."""

    admin: Connection
    name: str
    connection: Connection
    # by table, its name and how many rows it has
    template: dict[int, tuple[str, int]] = field(init=False)
    # tables that foreign keys refer to
    referred: set[int] = field(init=False)
    first_xid: int = field(init=False)
    state: State = field(init=False)

    @classmethod
    def copy(cls, admin: Connection, template: str, name: str, **where: Any) -> Self:
        drop(admin, name)
        names = {"name": sql.Identifier(name), "template": sql.Identifier(template)}
        admin.execute(
            sql.SQL("create database {name} template {template} strategy file_copy").format(**names)
        )
        return cls(admin, name, psycopg.connect(dbname=name, autocommit=True, **where))

    def __post_init__(self) -> None:
        query = "select oid::bigint, oid::regclass::text from pg_class where relkind = 'r' and oid >= 16384"
        tables = self.connection.execute(query).fetchall()
        counts = " union all ".join(f"select {oid}, count(*) from {table}" for oid, table in tables)
        rows = dict(self.connection.execute(counts.encode()).fetchall())
        self.template = {oid: (table, rows[oid]) for oid, table in tables}
        keys = "select distinct confrelid::bigint from pg_constraint where contype = 'f'"
        self.referred = {oid for (oid,) in self.connection.execute(keys)}
        (self.first_xid,) = self._row("select pg_current_xact_id()::text::bigint")
        self.connection.execute("select pg_stat_force_next_flush()")
        self.state = self._state()

    def drop(self) -> None:
        self.connection.close()
        drop(self.admin, self.name)

    def clean(self) -> bool:
        """Undo what can be undone; returns whether the database is clean."""
        try:
            return self._clean()
        except psycopg.OperationalError:  # a session that was ended
            return False

    def _clean(self) -> bool:
        used = self.connection
        if used.closed or used.info.transaction_status not in QUIET:
            return False
        # What is set on the client's side, such as row factories and prepared statements, goes with the object.
        self.connection = psycopg.Connection(used.pgconn)
        del used.pgconn
        self.connection.rollback()
        self.connection.autocommit = True
        self.connection.execute(RESET)
        end_others(self.connection, self.name)
        state = self._state()
        if state.about != self.state.about or state.written[0] != self.state.written[0]:
            return False
        touched = [oid for oid, rows in state.written.items() if rows != self.state.written.get(oid)]
        if touched:
            if not self._delete_rows(touched):
                return False
            self.state = self._state()
        return True

    def _delete_rows(self, touched: list[int]) -> bool:
        if not self.template.keys() >= set(touched):
            return False
        names = {oid: self.template[oid][0] for oid in touched}
        sizes = ", ".join(f"pg_relation_size({oid})" for oid in names)
        if max(self._row(f"select {sizes}")) > MOST_BYTES:
            return False
        # Referrers first, for foreign keys. The ledger's triggers let memfold.maintenance pass. session_replication_role
        # would do for both, but to set it throws away all plans of the session.
        in_order = sorted(names, key=lambda oid: oid in self.referred)
        deletes = "".join(
            f"delete from {names[oid]} where xmin::text::bigint >= {self.first_xid};" for oid in in_order
        )
        self.connection.execute(
            f"begin; set local memfold.maintenance = on; {deletes} commit; select pg_stat_force_next_flush()".encode()
        )
        left = " union all ".join(f"select {oid}, count(*) from {name}" for oid, name in names.items())
        return all(rows == self.template[oid][1] for oid, rows in self.connection.execute(left.encode()))

    def _state(self) -> State:
        return State(self._row(ABOUT), dict(self.connection.execute(WRITTEN).fetchall()))

    def _row(self, query: str) -> tuple[Any, ...]:
        row = self.connection.execute(query.encode()).fetchone()
        assert row is not None
        return tuple(row)


# By host and name: clean, and waiting for the next test.
KEPT: dict[tuple[str, str], Database] = {}
# By host: connections that make databases and drop them.
ADMINS: dict[str, Connection] = {}


@contextmanager
def lend(template: str, name: str, *, new: bool = False, **where: Any) -> Iterator[Connection]:
    """A superuser's session, with autocommit, in a database called ``name`` that is like the template; a ``new`` one?"""
    admin = ADMINS.get(where["host"])
    if admin is None or admin.closed:
        admin = ADMINS[where["host"]] = psycopg.connect(dbname="postgres", autocommit=True, **where)
    place = where["host"], name
    database = KEPT.pop(place, None)
    if database is not None and new:
        database.drop()
        database = None
    if database is None:
        database = Database.copy(admin, template, name, **where)
    keep = False
    try:
        yield database.connection
        keep = database.clean()
    finally:
        if keep:
            KEPT[place] = database
        else:
            database.drop()
