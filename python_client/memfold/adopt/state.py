"""The record of an adoption, and its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import DictRow, dict_row

from memfold.adopt.catalog import Connection, fetch
from memfold.client._dsn import read_dsn
from memfold.client.errors import AdoptError, translate

NAMES = {
    1: "add the column",
    2: "writers hash",
    3: "backfill",
    4: "duplicates",
    5: "unique index",
    6: "insert function",
}


@dataclass
class Adoption:
    """A row of memfold.adoptions."""

    table_schema: str
    table_name: str
    name: str
    definition: dict[str, Any]
    step: int
    confirmed: bool
    withheld: bool
    paused: bool
    absorbs: bool
    position: list[str] | None
    row: DictRow

    @property
    def undoing(self) -> bool:
        """Its undo has begun: duplicates have been archived, and no step counts any more."""
        return self.confirmed and self.step < 3

    def describe(self, pid: int | None) -> Iterator[str]:
        """Its state, in lines."""
        row, table = self.row, f"{self.table_schema}.{self.table_name}"
        doing = f"process {pid} is running" if pid else "paused" if self.paused else "no run is active"
        done = "its undo has begun" if self.undoing else f"step {self.step} of 6 is done"
        yield f"{table}: {done}" + ("" if self.step == 6 else f", {doing}")
        for number, name in NAMES.items():
            times = row["steps"].get(str(number), {})
            if number <= self.step:
                state = f"done {times.get('ended', '')[:19].replace('T', ' ')}"
            elif "began" in times and number == self.step + 1:
                state = f"began {times['began'][:19].replace('T', ' ')}"
            else:
                state = "-"
            yield f"  {number} {name:16} {state}"
        if row["rows_seen"]:
            yield f"  rows examined {row['rows_seen']:,}, hashed {row['rows_hashed']:,}"
        for reason, rows in row["left_out"].items():
            yield f"  without a hash {rows:,}: {reason}"
        if self.confirmed:
            yield (
                f"  groups resolved {row['groups_resolved']:,}, rows archived {row['rows_archived']:,}, references"
                f" re-pointed {row['children_repointed']:,}, colliding rows archived {row['children_archived']:,}"
            )
        if self.absorbs:
            yield "  an INSERT of a known text is absorbed" + ("" if self.step == 6 else " after step 6")
        if row.get("repeats"):
            yield f"  inserts absorbed {row['repeats']:,}, for the texts of {row['repeated_rows']:,} rows"
        if self.withheld:
            yield "  new rows get no hash while the index is built; the next run adds it"
        if row["last_error"]:
            yield f"  last error: {row['last_error']}"
        if not pid and self.undoing:
            yield f"  next: memfold adopt undo --table {table} --restore"
        elif not pid and self.step == 3 and not self.confirmed:
            yield f"  next: memfold adopt run --table {table} --dry-run, then --confirm"
        elif not pid and self.step < 6:
            yield f"  next: memfold adopt run --table {table}"


_ROW: LiteralString = "select * from memfold.adoptions where table_schema = $1 and table_name = $2"
_ROWS: LiteralString = """
select a.*, r.repeats, r.repeated_rows
from memfold.adoptions as a
left join (
    select adoption, pg_catalog.sum(repeats)::bigint as repeats, pg_catalog.count(distinct row_key) as repeated_rows
    from memfold.adoption_repeats group by 1
) as r on r.adoption = a.name
order by a.table_schema, a.table_name
"""
_RUNNING: LiteralString = """
select l.pid
from pg_catalog.pg_locks as l
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
    and (l.classid::bigint << 32) | l.objid::bigint
        = pg_catalog.hashtextextended('memfold adopt ' || $1 || '.' || $2, 0)
"""


def connect(dsn: str) -> Connection:
    """A connection to the table's database."""
    try:
        return psycopg.connect(
            read_dsn(dsn),
            autocommit=True,
            # statements to prepare say so themselves
            prepare_threshold=1_000_000_000,
            client_encoding="UTF8",
            application_name="memfold adopt",
            row_factory=dict_row,
        )
    except psycopg.Error as error:
        raise translate(error) from error


def _adoption(row: DictRow) -> Adoption:
    return Adoption(
        row["table_schema"],
        row["table_name"],
        row["name"],
        row["definition"],
        row["step"],
        row["confirmed_at"] is not None,
        row["withheld"],
        row["paused"],
        row["absorbs"],
        row["position"],
        row,
    )


def load_adoption(connection: Connection, schema: str, table: str) -> Adoption | None:
    """The record of a table's adoption."""
    found = fetch(connection, _ROW, [schema, table])
    return _adoption(found[0]) if found else None


def list_adoptions(connection: Connection) -> list[Adoption]:
    """All adoptions of the database."""
    return [_adoption(row) for row in fetch(connection, _ROWS)]


def running(connection: Connection, adoption: Adoption) -> int | None:
    """The process that is working on it now."""
    found = fetch(connection, _RUNNING, [adoption.table_schema, adoption.table_name])
    return int(found[0]["pid"]) if found else None


def installed(connection: Connection) -> None:
    """Refuse a database without memfold, with an older one, or in which the role may not record state."""
    # by the catalog: a role without USAGE on the schema cannot look up its tables by name
    row = fetch(
        connection,
        "select pg_catalog.pg_is_in_recovery() as standby, current_user::text as role, n.oid is not null as present,"
        " c.oid is not null as installed, pg_catalog.has_schema_privilege(n.oid, 'create') as functions,"
        " pg_catalog.has_table_privilege(c.oid, 'insert, update, delete') as state"
        " from (select 1) as one"
        " left join pg_catalog.pg_namespace as n on n.nspname = 'memfold'"
        " left join pg_catalog.pg_class as c on c.relnamespace = n.oid and c.relname = 'adoptions'",
    )[0]
    if row["standby"]:
        raise AdoptError("this server is a standby", hint="Connect to the primary.")
    if not row["installed"]:
        raise AdoptError(
            "memfold is not installed in this database"
            if not row["present"]
            else "the memfold in this database is older",
            hint="Run: memfold init DSN",
        )
    if not (row["state"] and row["functions"]):
        raise AdoptError(
            f"role {row['role']} may not record the state of an adoption",
            hint=f"Have an administrator run: grant memfold_owner to {row['role']}",
        )
