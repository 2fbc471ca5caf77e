"""What the catalog says about a user's table: whether it can be adopted, by whom, and what refers to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg.rows import DictRow

from memfold.adopt import expressions as x
from memfold.client.errors import AdoptError

__all__ = ["Child", "Column", "Table", "children", "find", "unique_indexes"]

Connection = psycopg.Connection[DictRow]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    required: bool
    default: str | None
    generated: bool
    identity: str
    comparable: bool


@dataclass(frozen=True)
class Index:
    """A unique index of a table: over plain columns, or a more complex one."""

    name: str
    columns: tuple[str, ...]
    plain: bool
    nulls_equal: bool


@dataclass(frozen=True, eq=False)
class Table:
    """A table, as it was found."""

    oid: int
    schema: str
    name: str
    owner: str
    kind: str
    columns: Mapping[str, Column] = field(repr=False)
    primary_key: tuple[str, ...]
    rows: float
    bytes: int
    pages: int
    triggers: tuple[str, ...]

    def __str__(self) -> str:
        return x.render(x.table(self.schema, self.name)).replace('"', "") if self.is_plain else self.quoted

    @property
    def is_plain(self) -> bool:
        return all(re.fullmatch("[a-z_][a-z0-9_]*", part) for part in (self.schema, self.name))

    @property
    def quoted(self) -> str:
        return x.render(self.node)

    @property
    def node(self) -> Any:
        return x.table(self.schema, self.name)


@dataclass(frozen=True)
class Child:
    """A foreign key that refers to a table: the table that has it, its columns and the referenced ones."""

    constraint: str
    table: Table
    columns: tuple[str, ...]
    referenced: tuple[str, ...]
    on_delete: str
    indexed: bool
    itself: bool


_TABLE: LiteralString = """
select
    c.oid::bigint as oid,
    n.nspname as schema,
    c.relname as name,
    pg_catalog.pg_get_userbyid(c.relowner) as owner,
    c.relkind::text as kind,
    c.relispartition as is_partition,
    c.relpersistence::text as persistence,
    exists (select from pg_catalog.pg_inherits as h where c.oid in (h.inhparent, h.inhrelid)) as inherits,
    exists (
        select from pg_catalog.pg_rewrite as r where r.ev_class = c.oid and r.rulename <> '_RETURN'
    ) as has_rules,
    c.reltuples::double precision as rows,
    pg_catalog.pg_table_size(c.oid) as bytes,
    (pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint)::bigint as pages,
    pg_catalog.pg_has_role(c.relowner, 'usage') as owned,
    pg_catalog.row_security_active(c.oid) as row_security,
    pg_catalog.has_table_privilege(c.oid, 'select') as may_select,
    pg_catalog.has_table_privilege(c.oid, 'update') and pg_catalog.has_table_privilege(c.oid, 'delete') as may_change,
    coalesce((
        select pg_catalog.array_agg(t.tgname::text order by t.tgname)
        from pg_catalog.pg_trigger as t
        -- BEFORE ROW triggers of INSERT and UPDATE, which may change what is hashed
        where t.tgrelid = c.oid and not t.tgisinternal and t.tgtype & 3 = 3 and t.tgtype & 20 <> 0
    ), '{}') as triggers
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.oid = $1::bigint::oid
"""

_COLUMNS: LiteralString = """
select
    a.attname as name,
    pg_catalog.format_type(a.atttypid, a.atttypmod) as type,
    a.attnotnull as required,
    pg_catalog.pg_get_expr(d.adbin, d.adrelid) as "default",
    a.attgenerated <> '' as generated,
    a.attidentity::text as identity,
    exists (
        select from pg_catalog.pg_opclass as o
        join pg_catalog.pg_am as m on m.oid = o.opcmethod
        left join pg_catalog.pg_type as t on t.oid = a.atttypid
        where m.amname = 'btree' and o.opcdefault and (
            o.opcintype in (a.atttypid, nullif(t.typbasetype, 0))
            or (t.typtype = 'e' and o.opcintype = 'anyenum'::regtype)
            or (t.typcategory = 'A' and o.opcintype = 'anyarray'::regtype)
            or a.atttypid = 'varchar'::regtype
        )
    ) as comparable
from pg_catalog.pg_attribute as a
left join pg_catalog.pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = $1::bigint::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""

_UNIQUE: LiteralString = """
select
    i.indexrelid::regclass::text as name,
    i.indisprimary as is_primary,
    i.indimmediate as immediate,
    i.indpred is null and i.indexprs is null and not i.indisexclusion as plain,
    i.indisexclusion as exclusion,
    coalesce((pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) as nulls_equal,
    coalesce((
        select pg_catalog.array_agg(a.attname::text order by k.n)
        from pg_catalog.unnest(i.indkey::smallint[]) with ordinality as k (attnum, n)
        join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
        where k.n <= i.indnkeyatts
    ), '{}') as columns
from pg_catalog.pg_index as i
where i.indrelid = $1::bigint::oid and (i.indisunique or i.indisexclusion) and i.indislive
order by i.indisprimary desc, i.indexrelid
"""

_CHILDREN: LiteralString = """
select
    k.conname as "constraint",
    k.conrelid::bigint as child,
    k.confdeltype::text as on_delete,
    (
        select pg_catalog.array_agg(a.attname::text order by c.n)
        from pg_catalog.unnest(k.conkey) with ordinality as c (attnum, n)
        join pg_catalog.pg_attribute as a on a.attrelid = k.conrelid and a.attnum = c.attnum
    ) as columns,
    (
        select pg_catalog.array_agg(a.attname::text order by c.n)
        from pg_catalog.unnest(k.confkey) with ordinality as c (attnum, n)
        join pg_catalog.pg_attribute as a on a.attrelid = k.confrelid and a.attnum = c.attnum
    ) as referenced,
    exists (
        select from pg_catalog.pg_index as i
        where i.indrelid = k.conrelid and i.indisvalid and i.indpred is null and i.indexprs is null
            and (i.indkey::smallint[])[0:pg_catalog.cardinality(k.conkey) - 1] @> k.conkey
    ) as indexed
from pg_catalog.pg_constraint as k
where k.contype = 'f' and k.confrelid = $1::bigint::oid and k.conparentid = 0
order by k.conname, k.oid
"""

_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "p": "a partitioned table",
    "i": "an index",
    "I": "an index",
    "S": "a sequence",
    "c": "a composite type",
    "t": "a TOAST table",
}


def fetch(
    connection: Connection, statement: Any, parameters: Sequence[Any] = (), *, prepare: bool = False
) -> list[DictRow]:
    """The rows of a query of this package, with parameters $1, $2 ..."""
    cursor = psycopg.RawCursor(connection, row_factory=psycopg.rows.dict_row)
    return cursor.execute(statement, parameters, prepare=prepare).fetchall()


def load(connection: Connection, oid: int) -> tuple[Table, DictRow]:
    """The table with that oid, and its other properties."""
    with connection.transaction():
        # so that the server prints types and defaults with their schemas
        connection.execute("set local search_path = pg_catalog")
        found = fetch(connection, _TABLE, [oid])
        if not found:
            raise AdoptError("the table has been dropped")
        row = found[0]
        columns = {one["name"]: Column(**one) for one in fetch(connection, _COLUMNS, [oid])}
        primary = [one for one in fetch(connection, _UNIQUE, [oid]) if one["is_primary"]]
    known = {name: row[name] for name in ("oid", "schema", "name", "owner", "kind", "rows", "bytes", "pages")}
    table = Table(
        **known,
        columns=columns,
        primary_key=tuple(primary[0]["columns"]) if primary else (),
        triggers=tuple(row["triggers"]),
    )
    return table, row


def find(connection: Connection, name: str, *, write: bool = True) -> Table:
    """The table with that name, resolved as in the session; refused if it cannot be adopted (or read)."""
    try:
        found = fetch(connection, "select pg_catalog.to_regclass($1)::oid::bigint as oid", [name])[0]["oid"]
    except psycopg.errors.InsufficientPrivilege as error:
        raise AdoptError(
            f"the role may not look up {name} ({error.diag.message_primary})",
            hint="Run it as the owner of the table.",
        ) from error
    except psycopg.Error as error:
        raise AdoptError(
            f"{name} is not the name of a table ({error.diag.message_primary})",
            hint='Write it as in SQL: public.memories, or "My Schema"."My Table".',
        ) from error
    if found is None:
        raise AdoptError(
            f"there is no table {name} in database {connection.info.dbname}",
            hint="Give its schema too, and check that the role may use that schema.",
        )
    table, row = load(connection, found)
    role = fetch(connection, "select current_user::text as role")[0]["role"]
    if row["kind"] != "r" or row["is_partition"]:
        what = "a partition" if row["is_partition"] else _KINDS.get(row["kind"], "not a table")
        if not write and row["kind"] in {"v", "m", "p", "f", "r"} and row["may_select"]:
            return table
        raise AdoptError(
            f"{table} is {what}",
            hint={
                "p": "A unique index over all partitions would have to include the partition key, and cannot be built"
                " concurrently. Import its rows instead: memfold import.",
                "r": "An index of one partition does not keep duplicates out of the others. Import the rows"
                " instead: memfold import.",
            }.get(row["kind"], "Only an ordinary table can have the column, the trigger and the index."),
        )
    if not row["may_select"]:
        raise AdoptError(f"role {role} may not read {table}", hint=f"Run it as {table.owner}.")
    if row["row_security"]:
        raise AdoptError(
            f"row level security hides rows of {table} from role {role}",
            hint="Run it as a role with BYPASSRLS, so that no row is left out.",
        )
    if not write:
        return table
    if table.schema in {"pg_catalog", "information_schema", "memfold"}:
        raise AdoptError(
            f"{table} is not a table of an application", hint="Adopt a table of your application."
        )
    if row["persistence"] == "t":
        raise AdoptError(f"{table} is a temporary table")
    if row["inherits"]:
        raise AdoptError(
            f"{table} is part of an inheritance tree",
            hint="A unique index covers only one of its tables. Import its rows instead: memfold import.",
        )
    if row["has_rules"]:
        raise AdoptError(f"{table} has rewrite rules, which change what statements on it mean")
    if not row["owned"]:
        raise AdoptError(
            f"role {role} does not own {table}",
            hint=f"Only the owner can add a column and a trigger: run it as {table.owner}, or a member of it.",
        )
    return table


def key_of(connection: Connection, table: Table, given: str | None) -> tuple[str, ...]:
    """The columns that identify a row: the given ones, else the primary key, else another unique key."""
    usable = {
        tuple(one["columns"]): one
        for one in fetch(connection, _UNIQUE, [table.oid])
        if one["plain"] and one["immediate"] and all(table.columns[name].required for name in one["columns"])
    }
    if given is None:
        if usable:
            return next(iter(usable))
        raise AdoptError(
            f"{table} has no usable key",
            detail="It has neither a primary key nor a unique index over columns that are NOT NULL.",
            hint="Batches find their rows by it, and duplicates are told apart by it: add one, for instance"
            f" alter table {table} add column id bigint generated always as identity primary key.",
        )
    columns = tuple(
        found.columns[0] if (found := x.parse("--id", part, table.columns, str(table))).is_column else ""
        for part in given.split(",")
    )
    if "" in columns:
        raise AdoptError(f"--id must be a column, or several separated by commas, not {given}")
    for known in usable:
        if sorted(known) == sorted(columns):
            return known
    raise AdoptError(
        f"{', '.join(columns)} is not a usable key of {table}",
        detail="A key has its own unique index, over the whole table, and its columns are NOT NULL.",
        hint=f"Usable: {'; '.join(', '.join(known) for known in usable)}." if usable else None,
    )


def children(connection: Connection, oid: int) -> list[Child]:
    """The foreign keys that refer to a table."""
    return [
        Child(
            constraint=row["constraint"],
            table=load(connection, row["child"])[0],
            columns=tuple(row["columns"]),
            referenced=tuple(row["referenced"]),
            on_delete=row["on_delete"],
            indexed=row["indexed"],
            itself=row["child"] == oid,
        )
        for row in fetch(connection, _CHILDREN, [oid])
    ]


def unique_indexes(connection: Connection, oid: int) -> list[Index]:
    """The unique indexes and exclusion constraints of a table."""
    return [
        Index(row["name"], tuple(row["columns"]), row["plain"], row["nulls_equal"])
        for row in fetch(connection, _UNIQUE, [oid])
    ]


def row_key(connection: Connection, table: Table) -> tuple[str, ...]:
    """The columns that identify rows of a child table; () if none do."""
    if table.primary_key:
        return table.primary_key
    for index in unique_indexes(connection, table.oid):
        if index.plain and all(table.columns[name].required for name in index.columns):
            return index.columns
    return ()


def check_rights(connection: Connection, child: Child) -> None:
    """Refuse a child table that the role cannot re-point."""
    _, row = load(connection, child.table.oid)
    if not (row["may_select"] and row["may_change"]):
        raise AdoptError(
            f"the role may not change {child.table}, whose foreign key {child.constraint} refers to the table",
            hint=f"Run it as a role that may, such as {child.table.owner}: its rows are re-pointed in step 4.",
        )
    if row["row_security"]:
        raise AdoptError(
            f"row level security hides rows of {child.table} from the role",
            hint="Run it as a role with BYPASSRLS: its rows are re-pointed in step 4.",
        )
