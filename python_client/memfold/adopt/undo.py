"""Undo: restores everything as it was; once step 4 is confirmed, this includes putting the archived rows back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import DictRow
from sqlglot import exp

from memfold.adopt import catalog
from memfold.adopt import expressions as x
from memfold.adopt.catalog import Table
from memfold.adopt.expressions import Node, build, column, render, typed
from memfold.adopt.session import ANY, Batches, Session
from memfold.adopt.sql_fragments import composed, name_of, parameter, rendered
from memfold.adopt.steps import concurrently
from memfold.client.errors import AdoptError

__all__ = ["forget", "restore", "undo"]


def undo(session: Session, *, forget_it: bool = True) -> None:
    """Remove the index, the triggers, the functions and the column."""
    made = session.statements
    # record that the undo has begun, because a run would now archive again
    session.save(
        withheld=False,
        **({} if forget_it else {"step": 0, "position": None, "rows_seen": 0, "rows_hashed": 0}),
    )
    # The index first, without blocking others: the rest only changes the catalog.
    concurrently(session, made.drop_index())

    def work() -> None:
        session.run(*made.drop_triggers(), *made.drop_functions(), made.drop_column())
        if forget_it:
            forget(session)

    session.with_lock_timeout("undo", ANY, work)


def forget(session: Session) -> None:
    """Delete the record of the adoption, and what it has counted; the archive stays."""
    session.fetch(
        "delete from memfold.adoption_repeats where adoption = $1 returning 1 as one", [session.adoption.name]
    )
    session.fetch(
        "delete from memfold.adoptions where table_schema = $1 and table_name = $2 returning 1 as one",
        [session.adoption.table_schema, session.adoption.table_name],
    )


def restore(session: Session) -> tuple[int, int]:
    """Put archived rows and re-pointed references back; returns their numbers.

    The index, triggers and column must be removed first, because the restored rows are duplicates.
    """
    rows = references = 0
    batches = Batches(session.options, start=100, most=2000)
    known = _Known(session)
    told = time.monotonic()
    after: tuple[object, object] = (None, None)
    postponed = progressed = 0
    while True:
        session.pause_or_stop()
        waiting = session.fetch(
            # The last batch first, since later ones build on earlier ones; within a batch, parents before children.
            "select * from memfold.adoption_archive where adoption = $1 and restored_at is null"
            " and ($2::timestamptz is null or archived_at < $2 or (archived_at = $2 and archive_id > $3::uuid))"
            " order by archived_at desc, archive_id limit $4",
            [session.adoption.name, *after, batches.size],
        )
        if not waiting:
            if not postponed:
                return rows, references
            if not progressed:
                raise AdoptError(
                    f"{postponed} archived rows cannot be put back: rows that they refer to no longer exist",
                    hint="They stay in memfold.adoption_archive. Restore the rows that they refer to, and run it again.",
                )
            # rows of one table may refer to one another: try again
            after, postponed, progressed = (None, None), 0, 0
            continue
        started = time.monotonic()
        after = (waiting[-1]["archived_at"], waiting[-1]["archive_id"])
        back = [_put_all_back(session, waiting, known)]
        if back == [None] and len(waiting) > 1:
            # a row that one of them refers to is not back yet: restore each separately
            back = [_put_all_back(session, [row], known) for row in waiting]
            done = len(back) - back.count(None)
        else:
            done = len(waiting) if back != [None] else 0
        references += sum(one or 0 for one in back)
        rows += done
        progressed += done
        postponed += len(waiting) - done
        batches.took(time.monotonic() - started, len(waiting))
        if time.monotonic() - told > 2:
            told = time.monotonic()
            session.say(f"restore: {rows:,} rows, {references:,} references")


def _put_all_back(session: Session, rows: Sequence[DictRow], known: _Known) -> int | None:
    """Put all of these rows back, or none: None, if one refers to a missing row. Returns the number of references."""
    try:
        with session.transaction(lock_timeout=2):
            references = sum(_put_back(session, row, known) for row in rows)
            session.fetch(
                "update memfold.adoption_archive set restored_at = pg_catalog.clock_timestamp()"
                " where archive_id = any($1::uuid[]) returning 1 as one",
                [[row["archive_id"] for row in rows]],
            )
    except psycopg.errors.ForeignKeyViolation:
        return None
    return references


class _Known:
    """Tables and statements, built in advance because that takes longer than executing the statements."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables: dict[tuple[str, str], Table] = {}
        self._made: dict[object, str] = {}

    def table(self, schema: str, name: str) -> Table:
        if (schema, name) not in self._tables:
            self._tables[schema, name] = _table(self._session, schema, name)
        return self._tables[schema, name]

    def statement(self, key: object, make: Callable[[], str]) -> str:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _put_back(session: Session, row: DictRow, known: _Known) -> int:
    table = known.table(row["table_schema"], row["table_name"])
    columns = [one for one in table.columns.values() if not one.generated and one.name in row["row_data"]]
    made = known.statement(
        (table.oid, *(one.name for one in columns)), lambda: _insert(table, [one.name for one in columns])
    )
    session.fetch(made, [row["row_data"][one.name] for one in columns], prepare=True)
    return sum(_point_back(session, entry, known) for entry in row["repointed"])


def _insert(table: Table, columns: Sequence[str]) -> str:
    """As it was, including ids that are GENERATED ALWAYS."""
    casts = [typed(parameter(n), table.columns[one].type) for n, one in enumerate(columns, 1)]
    return composed(
        "insert into {table} ({names}) overriding system value values ({values}) returning 1 as one",
        table=rendered(table.node),
        names=sql_list([name_of(one) for one in columns]),
        values=sql_list([rendered(one) for one in casts]),
    )


def sql_list(parts: Sequence[sql.Composable]) -> sql.Composed:
    """With commas between them."""
    return sql.SQL(", ").join(parts)


def _table(session: Session, schema: str, name: str) -> Table:
    found = session.fetch(
        "select c.oid::bigint as oid from pg_catalog.pg_class as c"
        " join pg_catalog.pg_namespace as n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2",
        [schema, name],
    )
    if not found:
        raise AdoptError(
            f"{schema}.{name} no longer exists, so its archived rows cannot be put back",
            hint="They stay in memfold.adoption_archive.",
        )
    return catalog.load(session.connection, found[0]["oid"])[0]


def _point_back(session: Session, entry: dict[str, Any], known: _Known) -> int:
    """Rows that were re-pointed and still refer to their new target."""
    table = known.table(entry["schema"], entry["table"])
    if not entry["key"]:
        return sum(_point_one_back(session, table, entry, row) for row in entry["rows"])
    made = known.statement(
        (table.oid, "back", *entry["key"], "of", *entry["columns"]), lambda: _pointing_back(table, entry)
    )
    rows = entry["rows"]
    arrays = [[one[n] for one in rows] for n in range(len(entry["key"]))]
    done = session.fetch(made, [*arrays, *entry["to"], *entry["from"]], prepare=True)
    return int(done[0]["n"])


def _pointing_back(table: Table, entry: dict[str, Any]) -> str:
    width, refs = len(entry["key"]), len(entry["columns"])
    source = exp.Unnest(
        expressions=[typed(parameter(n + 1), "text[]") for n in range(width)],
        alias=exp.TableAlias(
            this=exp.to_identifier("p"), columns=[exp.to_identifier(f"k{n}") for n in range(width)]
        ),
    )
    same = [
        exp.EQ(
            this=column(one, "c"), expression=typed(exp.column(f"k{n}", table="p"), table.columns[one].type)
        )
        for n, one in enumerate(entry["key"])
    ]
    still = [
        exp.NullSafeEQ(
            this=column(one, "c"), expression=typed(parameter(width + n + 1), table.columns[one].type)
        )
        for n, one in enumerate(entry["columns"])
    ]
    tree = build(
        "with done as (update C as c set X = null from P where S returning 1 as one) select count(*) as n from done",
        C=table.node,
        X=column(entry["columns"][0]),
        P=source,
        S=x.conjunction([*same, *still]),
    )
    _set(tree, table, entry, width + refs)
    return render(tree)


def _point_one_back(session: Session, table: Table, entry: dict[str, Any], row: dict[str, str | None]) -> int:
    """A row of a table without a key: any of those with exactly these values, because they are all equal."""
    names = list(row)
    tree = build(
        "with done as (update C as c set X = null where c.ctid = (select d.ctid from C as d where S limit 1)"
        " returning 1 as one) select count(*) as n from done",
        C=table.node,
        X=column(entry["columns"][0]),
        S=x.conjunction(
            [
                exp.NullSafeEQ(this=x.as_text(column(one, "d")), expression=typed(parameter(n + 1), "text"))
                for n, one in enumerate(names)
            ]
        ),
    )
    _set(tree, table, entry, len(names))
    values = [row[one] for one in names]
    return int(session.fetch(render(tree), [*values, *entry["from"]])[0]["n"])


def _set(tree: Node, table: Table, entry: dict[str, Any], after: int) -> None:
    """Make the UPDATE in the tree set the columns to their old values; parameters begin after that number."""
    update = tree.find(exp.Update)
    assert update is not None  # noqa: S101 (the templates have one)
    update.set(
        "expressions",
        [
            exp.EQ(this=column(one), expression=typed(parameter(after + n + 1), table.columns[one].type))
            for n, one in enumerate(entry["columns"])
        ],
    )
