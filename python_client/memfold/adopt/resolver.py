"""Step 4: rows of one text become one row. The oldest stays, what refers to the others is re-pointed to it, and the
others go to the archive, in short transactions beside writers that go on.

A batch locks its rows in order of their keys, FOR UPDATE, before it looks at anything that refers to them: no child
row can then be added to a row that is about to go, and no ON DELETE CASCADE finds anything to delete. It waits for
locks less long than deadlock_timeout, so that no writer is ever chosen as the victim of a deadlock with it.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import DictRow
from sqlglot import exp

from memfold.adopt import catalog
from memfold.adopt import expressions as x
from memfold.adopt.catalog import Child, Table
from memfold.adopt.dedup_statements import DedupStatements, Key
from memfold.adopt.expressions import build, column, render
from memfold.adopt.session import Batches, Session
from memfold.errors import PASSING, AdoptError

__all__ = ["Resolver", "batched"]

_DEPTH = 8
"""How far foreign keys of rows that collide are followed."""


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


_Room = tuple[Child, list[_Fold], catalog.Index | None, tuple[str, Sequence[Any]]]


class Resolver(DedupStatements):
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
        # many statements, few rows: a batch takes long before its first row, and no less time with fewer of them
        batches = Batches(session.options, start=20, least=20, most=2000, time=1.5)
        done, waiting = 0, [(0, most)]
        began = moved = time.monotonic()
        self._fetched = (0, -1)
        session.pause_or_stop()
        while waiting:
            low, high = waiting.pop()
            while low < high:
                if self.paused or session.stopping:
                    session.pause_or_stop()
                session.throttle_on_lag()
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
        room = self._room(referred)
        archived, *answers = self.session.fetch_all(
            [
                self._archiving(table, key, folds, reason),
                *(
                    (self.lock(child, self.key(child.table)), self._pairs(child, moved))
                    for child, moved in referred
                ),
                *(statement for _, _, _, statement in room),
            ]
        )
        self._identify(table, key, folds, archived)
        held = [one for one, rows in zip(referred, answers, strict=False) if rows]
        for child, moved in held:
            if any(fold.keeper is None for fold in moved):
                raise AdoptError(
                    f"a row that collides is referred to by {child.table} ({child.constraint})",
                    hint="Resolve these rows by hand, then run it again.",
                )
        self._make_room(room, answers[len(referred) :], depth)
        if held:
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

    def _room(self, referred: list[tuple[Child, list[_Fold]]]) -> list[_Room]:
        """What is asked to know, or to take away, what would stand in the way of references that are re-pointed."""
        made: list[_Room] = []
        for child, moved in referred:
            if any(fold.keeper is None for fold in moved):
                continue
            key = self.key(child.table)
            if child.itself and not child.table.columns[child.columns[0]].required:
                made.append((child, moved, None, self._clearing(child, key, moved)))
            for first in self.touched(child)[:1]:
                made.append(
                    (child, moved, first, (self.collisions(child, key, first), self._pairs(child, moved)))
                )
        return made

    def _make_room(self, room: list[_Room], answers: list[list[DictRow]], depth: int) -> None:
        for (child, moved, index, _), rows in zip(room, answers, strict=True):
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


def batched(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Consecutive parts of a list."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
