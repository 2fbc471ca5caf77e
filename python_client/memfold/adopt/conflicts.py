"""The error for a plain INSERT that violated the index of an adoption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from memfold.adopt import definition as definitions
from memfold.client.errors import MemfoldError, MemoryHashConflict, translate

__all__ = ["conflict_of", "conflict_of_async"]


def conflict_of(
    connection: psycopg.Connection[Any], error: psycopg.Error, row: Mapping[str, Any]
) -> MemfoldError:
    """Translate the error of a plain INSERT into an adopted table.

    Returns ``MemoryHashConflict``, with the id of the row that holds the text, if the adoption's index raised it.
    row: the columns of the INSERT. The connection must be able to run a query: rolled back, or in autocommit.
    """
    names = _names(error)
    if names is None:
        return translate(error)
    with connection.cursor(row_factory=dict_row) as cursor:
        function = cursor.execute(_FIND, [names]).fetchone()
        found = None if function is None else cursor.execute(*_question(function, row)).fetchone()
    return _conflict(found)


async def conflict_of_async(
    connection: psycopg.AsyncConnection[Any], error: psycopg.Error, row: Mapping[str, Any]
) -> MemfoldError:
    """As ``conflict_of``."""
    names = _names(error)
    if names is None:
        return translate(error)
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_FIND, [names])
        function = await cursor.fetchone()
        if function is None:
            return _conflict(None)
        await cursor.execute(*_question(function, row))
        return _conflict(await cursor.fetchone())


# The longer name exists only if the shorter one was taken.
_FIND: LiteralString = """
select p.proname as name, p.proargnames[1:p.pronargs] as columns, array(
    select pg_catalog.format_type(t.oid, null) from unnest(p.proargtypes::oid[]) with ordinality as t (oid, n) order by t.n
) as types
from pg_catalog.pg_proc as p join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
where n.nspname = 'memfold' and p.proname = any(%s)
order by pg_catalog.length(p.proname) desc
limit 1
"""


def _names(error: psycopg.Error) -> list[str] | None:
    """Possible names of the function that finds the row; None: it was another error."""
    diagnosis = error.diag
    schema, table = diagnosis.schema_name, diagnosis.table_name
    if error.sqlstate != "23505" or schema is None or table is None:
        return None
    if diagnosis.constraint_name != definitions.index_name(table):
        return None
    return [f"find_{definitions.short_name(schema, table, unique=unique)}" for unique in (False, True)]


def _question(function: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[sql.Composed, list[Any]]:
    # Like an INSERT, this casts values to the column's type, for instance json to jsonb.
    given = [pair for pair in zip(function["columns"], function["types"], strict=True) if pair[0] in row]
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => %s::{}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in given
    )
    query = sql.SQL("select * from memfold.{}({})").format(sql.Identifier(function["name"]), arguments)
    return query, [row[name] for name, _ in given]


def _conflict(found: Mapping[str, Any] | None) -> MemoryHashConflict:
    if found is None:
        return MemoryHashConflict(None, None)
    key = [value for name, value in found.items() if name != "content_hash"]
    existing = key[0] if len(key) == 1 else tuple(key)
    return MemoryHashConflict(
        found["content_hash"], None if key[0] is None else existing, hint="Use the existing row."
    )
