"""Step 4: rows of one text become one row. The oldest stays, what refers to the others is re-pointed to it, and the
others go to the archive, in short transactions beside writers that go on.

A batch locks its rows in order of their keys, FOR UPDATE, before it looks at anything that refers to them: no child
row can then be added to a row that is about to go, and no ON DELETE CASCADE finds anything to delete. It waits for
locks less long than deadlock_timeout, so that no writer is ever chosen as the victim of a deadlock with it.
"""

from __future__ import annotations

import csv
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import DictRow
from sqlglot import exp

from memfold.adopt import catalog
from memfold.adopt import expressions as x
from memfold.adopt.catalog import Child, Table
from memfold.adopt.expressions import Node, build, column, render, typed
from memfold.adopt.session import PASSING, Batches, Session
from memfold.adopt.statements import Definition, parameter, remembered
from memfold.errors import AdoptError

__all__ = ["Folds", "Report", "Resolver", "find"]

Key = tuple[str, ...]
_SLOW = 10_000
"""Rows of a child table above which a foreign key without an index would make every batch slow."""
_DEPTH = 8


@dataclass
class Report:
    """What was found."""

    groups: int
    rows: int
    buckets: list[DictRow]

    @property
    def surplus(self) -> int:
        return self.rows - self.groups


def find(session: Session) -> Report:
    """Look for duplicates; the temporary tables hold them until this is called again."""
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
    """One line for every row that would be archived."""
    keys = ", ".join(
        f"k.k{n} as kept_{n}, m.k{n} as archived_{n}" for n in range(len(session.definition.key))
    )
    rows = session.fetch(
        "select m.tenant, m.bucket, pg_catalog.encode(m.h, 'hex') as content_hash, "  # noqa: S608
        f"{keys} from pg_temp.memfold_members as m"
        " join pg_temp.memfold_members as k on k.group_id = m.group_id and k.place = 1"
        " where m.place > 1 order by m.group_id, m.place"
    )
    names = session.definition.key
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        pairs = itertools.chain.from_iterable((f"kept_{one}", f"archived_{one}") for one in names)
        writer.writerow(["tenant", "bucket", "content_hash", *pairs])
        writer.writerows(row.values() for row in rows)
    return len(rows)


def dry_run(session: Session) -> list[tuple[Child, int, int]]:
    """For each foreign key how many rows would be re-pointed, and how many of them would collide."""
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
        for index in _touched(session.connection, child):
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


def _touched(connection: catalog.Connection, child: Child) -> list[catalog.Index]:
    """Plain unique indexes of a child table that re-pointing could violate."""
    return [
        index
        for index in catalog.unique_indexes(connection, child.table.oid)
        if index.plain and set(index.columns) & set(child.columns)
    ]


def refuse_slow(session: Session) -> None:
    """Refuse to begin where each batch would read a large child table from end to end."""
    for child in catalog.children(session.connection, session.definition.table.oid):
        if not child.indexed and child.table.rows > _SLOW:
            raise AdoptError(
                f"foreign key {child.constraint} of {child.table} has no index, and the table is large",
                detail="Every batch would read all of it while it holds locks.",
                hint=f"Run: create index concurrently on {child.table} ({', '.join(child.columns)})",
            )


@dataclass
class _Fold:
    """A row that goes, and the one that stays in its place; columns as text."""

    loser: dict[str, str | None]
    keeper: dict[str, str | None] | None
    tenant: str | None = None
    bucket: str | None = None
    content_hash: bytes | None = None
    archive_id: object = None
    repointed: list[dict[str, object]] = field(default_factory=list)


class Folds:
    """The statements that take rows out of a table, and what refers to them with it."""

    def __init__(self, connection: catalog.Connection, definition: Definition) -> None:
        self.connection = connection
        self.of = definition
        self._children: dict[int, list[Child]] = {}
        self._keys: dict[int, tuple[str, ...]] = {self.of.table.oid: self.of.key}
        self._indexes: dict[tuple[int, str], list[catalog.Index]] = {}

    def wanted(self, table: Table) -> tuple[str, ...]:
        """The key of a table, and the columns that foreign keys refer to."""
        referenced = (one for child in self.children(table) for one in child.referenced)
        return tuple(dict.fromkeys([*self.key(table), *referenced]))

    def all(self) -> Iterator[str]:
        """All of them in their order, as one batch sends them."""
        yield from self._all(self.of.table, "duplicate", set())

    def _all(self, table: Table, reason: str, seen: set[int]) -> Iterator[str]:
        seen.add(table.oid)
        yield self.archive(table, self.key(table), reason)
        for child in self.children(table):
            key = self.key(child.table)
            yield self.lock(child, key)
            if child.itself:
                yield self.clear(child, key)
            for index in self.touched(child):
                yield self.collisions(child, key, index)
                yield self.rows(child.table, key, self.wanted(child.table))
                if child.table.oid not in seen:
                    yield from self._all(child.table, "child_collision", seen)
            yield self.repoint(child, key)
        yield self.delete(table, self.key(table))

    def children(self, table: Table) -> list[Child]:
        if table.oid not in self._children:
            self._children[table.oid] = catalog.children(self.connection, table.oid)
        return self._children[table.oid]

    def key(self, table: Table) -> tuple[str, ...]:
        if table.oid not in self._keys:
            # Without a key the place of a row will do, within a transaction that has it locked.
            self._keys[table.oid] = catalog.row_key(self.connection, table) or ("ctid",)
        return self._keys[table.oid]

    def touched(self, child: Child) -> list[catalog.Index]:
        known = (child.table.oid, child.constraint)
        if known not in self._indexes:
            self._indexes[known] = _touched(self.connection, child)
        return self._indexes[known]

    def _pair_source(self, child: Child) -> tuple[Node, Node]:
        """Old and new values of a foreign key, with their number, as a table p; rows c that have the old ones."""
        width = len(child.columns)
        names = [f"l{n}" for n in range(width)] + [f"n{n}" for n in range(width)]
        source = exp.Unnest(
            expressions=[typed(parameter(n + 1), "text[]") for n in range(2 * width)],
            offset=True,
            alias=exp.TableAlias(
                this=exp.to_identifier("p"), columns=[exp.to_identifier(one) for one in [*names, "i"]]
            ),
        )
        same = x.conjunction(
            [
                exp.EQ(this=column(one, "c"), expression=self._value(child, n, "l"))
                for n, one in enumerate(child.columns)
            ]
        )
        return source, same

    @staticmethod
    def _value(child: Child, number: int, prefix: str) -> Node:
        return typed(
            exp.column(f"{prefix}{number}", table="p"), child.table.columns[child.columns[number]].type
        )

    @remembered
    def archive(self, table: Table, key: Key, reason: str) -> str:
        real = key != ("ctid",)
        source, same = _keyed(table, key, "t", "p", extra=("jsonb", "text", "text", "bytea"))
        tree = build(
            "insert into memfold.adoption_archive (adoption, reason, table_schema, table_name, row_key, row_data,"
            " kept_key, tenant, bucket, content_hash)"
            " select A, B, S, N, ROWKEY, WHOLE, p.e0, p.e1, p.e2, p.e3 from T as t join P on C"
            " returning archive_id, row_key",
            A=x.text(self.of.name),
            B=x.text(reason),
            S=x.text(table.schema),
            N=x.text(table.name),
            ROWKEY=(
                build(
                    "jsonb_object(NAMES, TEXTS)",
                    NAMES=_array([x.text(one) for one in key]),
                    TEXTS=_array([x.as_text(column(one, "t")) for one in key]),
                )
                if real
                else build("jsonb_build_object('ctid', t.ctid)")
            ),
            WHOLE=_whole(table, "t", self.of.hash_column if table.oid == self.of.table.oid else None),
            T=table.node,
            P=source,
            C=same,
        )
        return render(tree)

    @remembered
    def delete(self, table: Table, key: Key) -> str:
        source, same = _keyed(table, key, "t", "p")
        tree = build(
            "with gone as (delete from T as t using P where C returning 1 as one) select count(*) as n from gone",
            T=table.node,
            P=source,
            C=same,
        )
        return render(tree)

    @remembered
    def lock(self, child: Child, key: Key) -> str:
        source, same = self._pair_source(child)
        tree = build(
            "select 1 as one from C as c join P on S order by K for update of c",
            C=child.table.node,
            P=source,
            S=same,
            K=[column(one, "c") for one in key],
        )
        return render(tree)

    @remembered
    def collisions(self, child: Child, key: Key, index: catalog.Index) -> str:
        columns = index.columns
        source, same = self._pair_source(child)
        texts = [exp.alias_(x.as_text(column(one, "c")), f"x{n}") for n, one in enumerate(key)]
        new = [
            exp.alias_(
                self._value(child, child.columns.index(one), "n")
                if one in child.columns
                else column(one, "c"),
                f"v{n}",
            )
            for n, one in enumerate(columns)
        ]
        own = [exp.alias_(column(one, "c"), f"v{n}") for n, one in enumerate(columns)]
        there = build(
            "exists (select 1 from P where S)",
            P=source,
            S=x.conjunction(
                [
                    exp.EQ(this=column(one, "c"), expression=self._value(child, n, "n"))
                    for n, one in enumerate(child.columns)
                ]
            ),
        )
        values: list[Node] = [exp.column(f"v{n}", table="u") for n in range(len(columns))]
        firsts = [
            build(
                "first_value(X) over (partition by V order by u.moved, u.x0)",
                X=exp.column(f"x{n}", table="u"),
                V=values,
            )
            for n in range(len(key))
        ]
        tree = build(
            "select D from ("
            "select F, U, u.moved, row_number() over (partition by V order by u.moved, u.x0) as place from ("
            "select X, N, 1 as moved from C as c join P on S"
            " union all select X, O, 0 as moved from C as c where THERE) as u where W) as d"
            " where d.place > 1 and d.moved = 1",
            D=[exp.column(one, table="d") for n in range(len(key)) for one in (f"x{n}", f"f{n}")],
            F=[exp.alias_(one, f"f{n}") for n, one in enumerate(firsts)],
            U=[exp.column(f"x{n}", table="u") for n in range(len(key))],
            V=values,
            X=texts,
            N=new,
            O=own,
            C=child.table.node,
            P=source,
            S=same,
            THERE=there,
            W=x.conjunction([] if index.nulls_equal else [build("X is not null", X=one) for one in values]),
        )
        return render(tree)

    @remembered
    def clear(self, child: Child, key: Key) -> str:
        source, same = _keyed(child.table, key, "c", "p", extra=("text",) * len(child.columns))
        tree = build(
            "update C as c set X = null from P where S returning R",
            C=child.table.node,
            X=column(child.columns[0]),
            R=[
                *(exp.alias_(x.as_text(column(one, "c")), f"x{n}") for n, one in enumerate(key)),
                *(exp.column(f"e{n}", table="p") for n in range(len(child.columns))),
            ],
            P=source,
            S=x.conjunction(
                [
                    same,
                    *(
                        exp.EQ(
                            this=column(one, "c"),
                            expression=typed(exp.column(f"e{n}", table="p"), child.table.columns[one].type),
                        )
                        for n, one in enumerate(child.columns)
                    ),
                ]
            ),
        )
        return render(tree)

    @remembered
    def rows(self, table: Table, key: Key, wanted: tuple[str, ...]) -> str:
        source, same = _keyed(table, key, "t", "p")
        tree = build(
            "select distinct X from T as t join P on C",
            X=[
                exp.alias_(x.as_text(column(one, "t")), f"c:{one}", quoted=True)
                for one in dict.fromkeys(wanted)
            ],
            T=table.node,
            P=source,
            C=same,
        )
        return render(tree)

    @remembered
    def repoint(self, child: Child, key: Key, *, single: bool = False) -> str:
        source, same = self._pair_source(child)
        if single:
            after = 2 * len(child.columns) + 1
            same = x.conjunction(
                [
                    same,
                    *(
                        exp.EQ(
                            this=column(one, "c"),
                            expression=typed(parameter(after + n), _type(child.table, one)),
                        )
                        for n, one in enumerate(key)
                    ),
                ]
            )
        tree = build(
            "update C as c set X = null from P where S returning R",
            C=child.table.node,
            X=column(child.columns[0]),
            P=source,
            S=same,
            R=[
                exp.column("i", table="p"),
                *(exp.alias_(x.as_text(column(one, "c")), f"x{n}") for n, one in enumerate(key)),
                *([exp.alias_(_whole(child.table, "c"), "whole")] if key == ("ctid",) else []),
            ],
        )
        tree.set(
            "expressions",
            [
                exp.EQ(this=column(one), expression=self._value(child, n, "n"))
                for n, one in enumerate(child.columns)
            ],
        )
        return render(tree)


class Resolver(Folds):
    """Resolves groups of duplicates."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.connection, session.definition)
        self.session = session
        self._careful = False
        # Building a tree takes longer than its statement: not while rows are locked.
        list(self.all())
        session.statements.lock_rows()
        session.statements.rank_rows(self.wanted(self.of.table))
        session.statements.fill_keys()
        self.groups = self.archived = self.repointed = self.collided = 0
        self.paused = False
        self._told = 0.0
        self._fetched = (0, -1)
        self._slots: dict[int, Key] = {}

    def _send(self, statement: str, parameters: Sequence[Any]) -> list[DictRow]:
        """A statement of a batch: there are many, so they are prepared."""
        return self.session.fetch(statement, parameters, prepare=True)

    # Groups

    def resolve_found(self) -> None:
        """Resolve what ``find`` has found, so many of the rows that go at a time."""
        session = self.session
        most = session.fetch("select count(*) as n from pg_temp.memfold_members where place > 1")[0]["n"]
        # many statements, few rows: a batch takes long before its first row
        batches = Batches(session.options, start=10, most=2000, time=1.5)
        done, waiting = 0, [(0, most)]
        began = moved = time.monotonic()
        self._fetched = (0, -1)
        session.pause_or_stop()
        while waiting:
            low, high = waiting.pop()
            while low < high:
                if self.paused or session.stopping:
                    session.pause_or_stop()
                session.mind_standbys()
                until = min(low + batches.size, high)
                started = time.monotonic()
                if self._try(self._keys_of(low, until)):
                    moved = time.monotonic()
                    batches.took(moved - started, until - low)
                    session.spend(until - low)
                    done += until - low
                    low = until
                else:
                    batches.failed()
                    if time.monotonic() - moved > session.options.patience:
                        raise AdoptError(
                            "step 4: rows stay locked by other transactions",
                            detail=f"{most - done} rows are not resolved yet.",
                            hint="End what holds them, and run it again.",
                        )
                    if until - low == 1:
                        waiting.insert(0, (low, until))  # someone has it: later
                        low = until
                        time.sleep(0.05)
                self._tell(done, most, began)
        self._tell(done, most, began, last=True)

    def _tell(self, done: int, most: int, began: float, *, last: bool = False) -> None:
        now = time.monotonic()
        if most and (last or now - self._told > 2):
            self._told = now
            rate = done / max(now - began, 0.001)
            left = f", {(most - done) / rate:,.0f} s left" if rate and not last else ""
            self.session.say(
                f"step 4: {done:,} of {most:,} rows, {rate:,.0f} a second{left};"
                f" {self.repointed:,} references re-pointed"
                + (f", {self.collided:,} colliding rows archived" if self.collided else "")
            )

    def _keys_of(self, low: int, until: int) -> list[Key]:
        """The keys of some rows that go, and of the oldest of their groups."""
        if not low >= self._fetched[0] or not until <= self._fetched[1]:
            self._fetched = (low, until + 5000)
            columns = ", ".join(
                f"{alias}.k{n} as {alias}{n}" for alias in "mf" for n in range(len(self.of.key))
            )
            rows = self.session.fetch(
                f"select m.slot, {columns} from pg_temp.memfold_members as m"  # noqa: S608
                " join pg_temp.memfold_members as f on f.group_id = m.group_id and f.place = 1"
                " where m.slot > $1 and m.slot <= $2",
                list(self._fetched),
            )
            self._slots = {row.pop("slot"): tuple(row.values()) for row in rows}
        width = len(self.of.key)
        found: dict[Key, None] = {}
        for slot in range(low + 1, until + 1):
            row = self._slots[slot]
            found[row[:width]] = found[row[width:]] = None
        return list(found)

    def _try(self, keys: Sequence[Key]) -> bool:
        """Resolve the groups of these rows; False: something was locked, nothing was done."""
        before = (self.groups, self.archived, self.repointed, self.collided)
        try:
            self.resolve(keys)
        except psycopg.Error as error:
            self.groups, self.archived, self.repointed, self.collided = before
            if error.sqlstate in PASSING:
                return False
            # Either a writer was faster, or an index of a child table is more than a list of columns.
            if error.sqlstate in {"23505", "23P01"} and not self._careful:
                self._careful = True
                try:
                    return self._try(keys)
                finally:
                    self._careful = False
            raise
        return True

    def resolve(self, keys: Sequence[Key]) -> None:
        """Make one row of each group that rows of these keys form now, in a transaction of its own."""
        try:
            self._resolve(keys)
        except BaseException:
            if not self.connection.closed:
                self.connection.rollback()
            raise

    def _resolve(self, keys: Sequence[Key]) -> None:
        session = self.session
        made = session.statements
        arrays = _arrays(keys, len(self.of.key))
        *_, rows = session.fetch_all(
            [
                *session.beginning(),
                # what would only be found at COMMIT is to be found where it can be handled
                ("set constraints all immediate", ()),
                (made.lock_rows(), arrays),
                (made.rank_rows(self.wanted(self.of.table)), arrays),
            ]
        )
        folds: list[_Fold] = []
        bare: list[Key] = []
        for _, group in itertools.groupby(rows, key=lambda row: row["group_id"]):
            first, *others = group
            if not first["has_hash"]:
                bare.append(tuple(first[f"c:{one}"] for one in self.of.key))
            folds += [
                _Fold(
                    _texts(row),
                    _texts(first),
                    row["memfold_tenant"],
                    row["memfold_bucket"],
                    row["memfold_h"],
                )
                for row in others
            ]
        before = (self.archived, self.repointed, self.collided)
        if folds:
            self._fold(self.of.table, folds, "duplicate", 0)
        groups = len({tuple((fold.keeper or {}).items()) for fold in folds})
        last: list[tuple[str, Sequence[Any]]] = []
        if bare:
            last.append((made.fill_keys(), _arrays(bare, len(self.of.key))))
        noted = session.saving(
            add_groups_resolved=groups,
            add_rows_archived=self.archived - before[0],
            add_children_repointed=self.repointed - before[1],
            add_children_archived=self.collided - before[2],
        )
        *_, state, _ = session.fetch_all([*last, noted, ("commit", ())])
        self.groups += groups
        self.paused = bool(state and state[0]["paused"])

    # One table

    def _fold(self, table: Table, folds: list[_Fold], reason: str, depth: int) -> None:
        """Archive rows, re-point what refers to them, and delete them: few round trips, for rows are locked."""
        if depth > _DEPTH:
            raise AdoptError(
                f"foreign keys lead from {self.of.table} to {table} and on, more than {_DEPTH} deep"
            )
        key = self.key(table)
        referred = [
            (child, moved)
            for child in self.children(table)
            if (moved := [fold for fold in folds if _refers(child, fold)])
        ]
        archived, *locked = self.session.fetch_all(
            [
                self._archiving(table, key, folds, reason),
                *(
                    (self.lock(child, self.key(child.table)), self._pairs(child, moved))
                    for child, moved in referred
                ),
            ]
        )
        self._identify(table, key, folds, archived)
        held = [one for one, rows in zip(referred, locked, strict=True) if rows]
        for child, moved in held:
            if any(fold.keeper is None for fold in moved):
                raise AdoptError(
                    f"a row that collides is referred to by {child.table} ({child.constraint})",
                    hint="Resolve these rows by hand, then run it again.",
                )
        if held:
            self._make_room(held, depth)
            self._repoint(held, depth)
        gone = self.session.fetch_all([*self._noting(folds), self._deleting(table, key, folds)])[-1][0]["n"]
        if gone != len(folds):
            raise AdoptError(
                f"{table}: {len(folds)} rows were to be deleted, {gone} were",
                hint="A trigger or a rule of the table keeps rows from being deleted.",
            )
        if reason == "duplicate":
            self.archived += len(folds)
        else:
            self.collided += len(folds)

    def _archiving(
        self, table: Table, key: Key, folds: list[_Fold], reason: str
    ) -> tuple[str, Sequence[Any]]:
        real = key != ("ctid",)
        return self.archive(table, key, reason), [
            *_arrays([_key_of(fold.loser, key) for fold in folds], len(key)),
            [
                json.dumps({one: fold.keeper.get(one) for one in key}) if fold.keeper and real else None
                for fold in folds
            ],
            [fold.tenant for fold in folds],
            [fold.bucket for fold in folds],
            [fold.content_hash for fold in folds],
        ]

    @staticmethod
    def _identify(table: Table, key: Key, folds: list[_Fold], rows: list[DictRow]) -> None:
        by_key = {tuple(row["row_key"][one] for one in key): row["archive_id"] for row in rows}
        if len(by_key) != len(folds):
            raise AdoptError(f"{table}: {len(folds)} rows were to be archived, {len(by_key)} were found")
        for fold in folds:
            fold.archive_id = by_key[_key_of(fold.loser, key)]

    def _deleting(self, table: Table, key: Key, folds: list[_Fold]) -> tuple[str, Sequence[Any]]:
        return self.delete(table, key), _arrays([_key_of(fold.loser, key) for fold in folds], len(key))

    @staticmethod
    def _noting(folds: list[_Fold]) -> list[tuple[str, Sequence[Any]]]:
        noted = [fold for fold in folds if fold.repointed]
        if not noted:
            return []
        # one document: an array of them takes longer to write down than the statement takes
        return [
            (
                "update memfold.adoption_archive as a set repointed = v.value"
                " from jsonb_each($1::jsonb) as v where a.archive_id = v.key::uuid",
                [json.dumps({str(fold.archive_id): fold.repointed for fold in noted})],
            )
        ]

    # What refers to it

    def _make_room(self, held: list[tuple[Child, list[_Fold]]], depth: int) -> None:
        """Take away what would stand in the way of references that are re-pointed."""
        sent: list[tuple[str, Sequence[Any]]] = []
        asked: list[tuple[Child, list[_Fold], catalog.Index | None]] = []
        for child, moved in held:
            key = self.key(child.table)
            if child.itself and not child.table.columns[child.columns[0]].required:
                sent.append(self._clearing(child, key, moved))
                asked.append((child, moved, None))
            for first in self.touched(child)[:1]:
                sent.append((self.collisions(child, key, first), self._pairs(child, moved)))
                asked.append((child, moved, first))
        if not sent:
            return
        for (child, moved, index), rows in zip(asked, self.session.fetch_all(sent), strict=True):
            key = self.key(child.table)
            if index is None:
                self._note_cleared(child, key, moved, rows)
                continue
            self._fold_collisions(child, key, rows, depth)
            for other in self.touched(child)[1:]:
                found = self._send(self.collisions(child, key, other), self._pairs(child, moved))
                self._fold_collisions(child, key, found, depth)

    def _repoint(self, held: list[tuple[Child, list[_Fold]]], depth: int) -> None:
        if self._careful:
            for child, moved in held:
                self._repoint_singly(child, self.key(child.table), moved, depth)
            return
        found = self.session.fetch_all(
            [(self.repoint(child, self.key(child.table)), self._pairs(child, moved)) for child, moved in held]
        )
        for (child, moved), rows in zip(held, found, strict=True):
            self._note(child, self.key(child.table), moved, rows)

    def _pairs(self, child: Child, folds: list[_Fold]) -> list[list[str | None]]:
        old = [[fold.loser[one] for fold in folds] for one in child.referenced]
        new = [[(fold.keeper or {}).get(one) for fold in folds] for one in child.referenced]
        return [*old, *new]

    def _clearing(self, child: Child, key: Key, folds: list[_Fold]) -> tuple[str, Sequence[Any]]:
        """A row that stays and refers to one that is folded into it would refer to itself."""
        return self.clear(child, key), [
            *_arrays([_key_of(fold.keeper or {}, key) for fold in folds], len(key)),
            *([fold.loser[one] for fold in folds] for one in child.referenced),
        ]

    def _note_cleared(self, child: Child, key: Key, folds: list[_Fold], cleared: list[DictRow]) -> None:
        by_value = {tuple(fold.loser[one] for one in child.referenced): fold for fold in folds}
        for row in cleared:
            fold = by_value[tuple(row[f"e{n}"] for n in range(len(child.columns)))]
            entry = self._entry(child, key, fold, [[row[f"x{n}"] for n in range(len(key))]])
            rest = [fold.loser[one] for one in child.referenced[1:]]
            fold.repointed.append(entry | {"to": [None, *rest]})
        self.repointed += len(cleared)

    def _fold_collisions(self, child: Child, key: Key, found: list[DictRow], depth: int) -> None:
        """Rows of a child table that would equal another one in a unique index go the same way."""
        if not found:
            return
        losers = [tuple(row[f"x{n}"] for n in range(len(key))) for row in found]
        keepers = [tuple(row[f"f{n}"] for n in range(len(key))) for row in found]
        rows = self._rows(child.table, key, self.wanted(child.table), [*losers, *keepers])
        folds = [_Fold(rows[one], rows[other]) for one, other in zip(losers, keepers, strict=True)]
        self._fold(child.table, folds, "child_collision", depth + 1)

    def _rows(
        self, table: Table, key: Key, wanted: tuple[str, ...], keys: Sequence[Key]
    ) -> dict[Key, dict[str, str | None]]:
        statement = self.rows(table, key, wanted)
        rows = [_texts(row) for row in self._send(statement, _arrays(keys, len(key)))]
        return {_key_of(row, key): row for row in rows}

    def _note(self, child: Child, key: Key, folds: list[_Fold], rows: list[DictRow]) -> None:
        self.repointed += len(rows)
        by_fold: dict[int, list[object]] = {}
        for row in rows:
            # without a key a row is found again by all that it holds
            which = row["whole"] if "whole" in row else [row[f"x{n}"] for n in range(len(key))]
            by_fold.setdefault(row["i"] - 1, []).append(which)
        for number, keys in by_fold.items():
            folds[number].repointed.append(self._entry(child, key, folds[number], keys))

    @staticmethod
    def _entry(child: Child, key: Key, fold: _Fold, rows: list[object]) -> dict[str, object]:
        """What the archive notes of rows that were re-pointed, so that they can be pointed back."""
        return {
            "constraint": child.constraint,
            "schema": child.table.schema,
            "table": child.table.name,
            "columns": list(child.columns),
            "from": [fold.loser[one] for one in child.referenced],
            "to": [(fold.keeper or {}).get(one) for one in child.referenced],
            "key": list(key) if key != ("ctid",) else [],
            "rows": rows,
        }

    def _repoint_singly(self, child: Child, key: Key, folds: list[_Fold], depth: int) -> None:
        """Row by row, and a row that collides in whatever way goes to the archive."""
        source, same = self._pair_source(child)
        tree = build(
            "select X from C as c join P on S order by K",
            X=[
                exp.alias_(x.as_text(column(one, "c")), f"c:{one}", quoted=True)
                for one in self.wanted(child.table)
            ],
            C=child.table.node,
            P=source,
            S=same,
            K=[column(one, "c") for one in key],
        )
        pairs = self._pairs(child, folds)
        statement = self.repoint(child, key, single=True)
        for row in [_texts(one) for one in self.session.fetch(render(tree), pairs)]:
            try:
                with self.session.connection.transaction():
                    rows = self._send(statement, [*pairs, *_key_of(row, key)])
            except psycopg.errors.IntegrityError as error:
                if error.sqlstate not in {"23505", "23P01"}:
                    raise
                self._fold(child.table, [_Fold(row, None)], "child_collision", depth + 1)
            else:
                self._note(child, key, folds, rows)


def _refers(child: Child, fold: _Fold) -> bool:
    """Whether a row can be referred to at all: nothing refers to null."""
    return all(fold.loser.get(one) is not None for one in child.referenced)


def _texts(row: DictRow) -> dict[str, str | None]:
    return {name[2:]: value for name, value in row.items() if name.startswith("c:")}


def _key_of(row: dict[str, str | None], key: Sequence[str]) -> Key:
    return tuple(str(row[one]) for one in key)


def _arrays(keys: Sequence[Key], width: int) -> list[list[str]]:
    return [[one[n] for one in keys] for n in range(width)]


def _type(table: Table, name: str) -> str:
    return "tid" if name == "ctid" else table.columns[name].type


def _array(nodes: Sequence[Node]) -> Node:
    return typed(exp.Array(expressions=list(nodes), bracket_notation=True), "text[]")


def _whole(table: Table, alias: str, without: str | None = None) -> Node:
    """All of a row, each value as the server prints it."""
    names = [one for one in table.columns if one != without]
    return build(
        "jsonb_object(NAMES, TEXTS)",
        NAMES=_array([x.text(one) for one in names]),
        TEXTS=_array([x.as_text(column(one, alias)) for one in names]),
    )


def _keyed(
    table: Table, key: Sequence[str], alias: str, other: str, extra: Sequence[str] = ()
) -> tuple[Node, Node]:
    """Keys, and what else belongs to each, from arrays of parameters; and the condition that a row has such a key."""
    types = [*("text" for _ in key), *extra]
    names = [*(f"k{n}" for n in range(len(key))), *(f"e{n}" for n in range(len(extra)))]
    source = exp.Unnest(
        expressions=[typed(parameter(n + 1), f"{one}[]") for n, one in enumerate(types)],
        alias=exp.TableAlias(
            this=exp.to_identifier(other), columns=[exp.to_identifier(one) for one in names]
        ),
    )
    same = x.conjunction(
        [
            exp.EQ(
                this=column(one, alias), expression=typed(exp.column(f"k{n}", table=other), _type(table, one))
            )
            for n, one in enumerate(key)
        ]
    )
    return source, same


def batched(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Consecutive parts of a list."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
