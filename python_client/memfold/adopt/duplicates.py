"""Step 4 before it changes anything: which rows have the same text, and what refers to them."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.rows import DictRow, tuple_row
from sqlglot import exp

from memfold.adopt import catalog
from memfold.adopt import expressions as x
from memfold.adopt.catalog import Child
from memfold.adopt.dedup_statements import touched
from memfold.adopt.expressions import Node, build, column, render, typed
from memfold.adopt.session import Session
from memfold.client.errors import AdoptError

__all__ = ["Report", "dry_run", "find", "refuse_slow", "write_csv"]

_SLOW = 10_000
"""Above this number of rows in a child table, a foreign key without an index would make every batch slow."""


@dataclass
class Report:
    """The duplicates found."""

    groups: int
    rows: int
    buckets: list[DictRow]

    @property
    def surplus(self) -> int:
        return self.rows - self.groups


def find(session: Session) -> Report:
    """Find duplicates; temporary tables hold them until the next call."""
    with session.transaction():
        session.run("set local work_mem = '64MB'", *session.statements.find_groups())
    row = session.fetch(
        "select count(*) as rows, count(*) filter (where place = 1) as groups from pg_temp.memfold_members"
    )[0]
    buckets = session.fetch(
        "select tenant, bucket, count(distinct group_id) as groups, count(*) as rows,"
        " count(*) filter (where place > 1) as surplus"
        " from pg_temp.memfold_members group by 1, 2 order by 5 desc, 1, 2"
    )
    return Report(row["groups"], row["rows"], buckets)


def write_csv(session: Session, path: Path) -> int:
    """One line for every row that would be archived: its tenant, key and text, and those of the row that is kept."""
    of = session.definition
    pairs = [
        exp.alias_(exp.column(f"k{n}", table=alias), f"{what}_{one}", quoted=True)
        for n, one in enumerate(of.key)
        for what, alias in (("kept", "k"), ("archived", "m"))
    ]
    texts = [
        exp.alias_(x.as_text(of.content.on(alias)), name, quoted=True)
        for name, alias in (("kept_content", "o"), ("archived_content", "t"))
    ]
    tree = build(
        "select m.tenant, m.bucket, encode(m.h, 'hex') as content_hash, X"
        " from memfold_members as m join memfold_members as k on k.group_id = m.group_id and k.place = 1"
        " join T as t on A join T as o on B where m.place > 1 order by m.group_id, m.place",
        X=[*pairs, *texts],
        T=of.table.node,
        A=_same_key(session, "t", "m"),
        B=_same_key(session, "o", "k"),
    )
    written = 0
    # a server-side cursor, because the texts may not fit in memory
    with (
        session.transaction(),
        psycopg.RawServerCursor(session.connection, "memfold_duplicates", row_factory=tuple_row) as rows,
        # it contains memories: readable only by the owner
        open(
            path, "w", newline="", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)
        ) as file,
    ):
        rows.execute(render(tree).encode())
        writer = csv.writer(file)
        writer.writerow([one.name for one in rows.description or ()])
        for row in rows:
            writer.writerow(row)
            written += 1
    return written


def _same_key(session: Session, alias: str, member: str) -> Node:
    """The condition that the row with that name is the member."""
    of = session.definition
    return x.conjunction(
        [
            exp.EQ(
                this=column(one, alias),
                expression=typed(exp.column(f"k{n}", table=member), of.table.columns[one].type),
            )
            for n, one in enumerate(of.key)
        ]
    )


def dry_run(session: Session) -> list[tuple[Child, int, int]]:
    """For each foreign key, how many rows would be re-pointed, and how many of them would collide."""
    of = session.definition
    made = []
    for child in catalog.children(session.connection, of.table.oid):
        key = [
            exp.EQ(this=exp.column(f"k{n}", table="m"), expression=x.as_text(column(one, "t")))
            for n, one in enumerate(of.key)
        ]
        refers = [
            exp.EQ(this=column(one, "c"), expression=column(other, "t"))
            for one, other in zip(child.columns, child.referenced, strict=True)
        ]
        parts = {
            "T": of.table.node,
            "C": child.table.node,
            "K": x.conjunction(key),
            "R": x.conjunction(refers),
        }
        rows = session.fetch(
            render(
                build(
                    "select count(*) as n from memfold_members as m join T as t on K join C as c on R where m.place > 1",
                    **parts,
                )
            )
        )[0]["n"]
        collisions = 0
        for index in touched(session.connection, child):
            others = [column(one, "c") for one in index.columns if one not in child.columns]
            collisions += session.fetch(
                render(
                    build(
                        "select coalesce(sum(d.n - 1), 0)::bigint as n from ("
                        "select count(*) as n from memfold_members as m join T as t on K join C as c on R"
                        " where W group by G having count(*) > 1) as d",
                        **parts,
                        W=x.conjunction(
                            [] if index.nulls_equal else [build("X is not null", X=one) for one in others]
                        ),
                        G=[exp.column("group_id", table="m"), *others],
                    )
                )
            )[0]["n"]
        made.append((child, rows, collisions))
    return made


def refuse_slow(session: Session) -> None:
    """Refuse to begin if each batch would read a large child table completely."""
    for child in catalog.children(session.connection, session.definition.table.oid):
        if not child.indexed and child.table.rows > _SLOW:
            raise AdoptError(
                f"foreign key {child.constraint} of {child.table} has no index, and the table is large",
                detail="Every batch would read all of it while it holds locks.",
                hint=f"Run: create index concurrently on {child.table} ({', '.join(child.columns)})",
            )
