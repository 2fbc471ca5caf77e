"""Queries of a test: one value, or rows by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

DB = psycopg.Connection[Any]
Connect = Callable[..., DB]
Row = dict[str, Any]


def rows(db: DB, query: str, *arguments: Any) -> list[Row]:
    """The rows of a query, by column."""
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(query, arguments).fetchall()


def one(db: DB, query: str, *arguments: Any) -> Any:
    """The only value of a query's first row, or that row."""
    row = db.execute(query.encode(), arguments or None).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row
