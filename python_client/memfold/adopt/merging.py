"""One table in step 4: rows are archived, references to them are re-pointed, and they are deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from memfold.adopt.session import Session
from memfold.client.errors import AdoptError

_DEPTH = 8
"""How many levels of foreign keys of colliding rows are followed."""


@dataclass
class Merge:
    """A row that is archived, and the one that stays in its place; columns as text."""

    loser: dict[str, str | None]
    keeper: dict[str, str | None] | None
    tenant: str | None = None
    bucket: str | None = None
    content_hash: bytes | None = None
    archive_id: object = None
    repointed: list[dict[str, object]] = field(default_factory=list)


_Obstacle = tuple[Child, list[Merge], catalog.Index | None, tuple[str, Sequence[Any]]]


class Merging(DedupStatements):
    """Merges rows of a table, and rows that collide because of that in tables that refer to it."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.connection, session.definition)
        self.session = session
        self._careful = False
        self.archived = self.repointed = self.collided = 0

    def _send(self, statement: str, parameters: Sequence[Any]) -> list[DictRow]:
        """A statement of a batch; it runs often, so it is prepared."""
        return self.session.fetch(statement, parameters, prepare=True)

    # One table

    def _merge(self, table: Table, merges: list[Merge], reason: str, depth: int) -> None:
        """Archive rows, re-point references to them, and delete them, in few round trips, because rows are locked."""
        if depth > _DEPTH:
            raise AdoptError(
                f"foreign keys from {self.of.table} to {table} and beyond are more than {_DEPTH} levels deep"
            )
        key = self.key(table)
        referred = [
            (child, moved)
            for child in self.children(table)
            if (moved := [merge for merge in merges if _refers(child, merge)])
        ]
        obstacles = self._obstacles(referred)
        archived, *answers = self.session.fetch_all(
            [
                self._archiving(table, key, merges, reason),
                *(
                    (self.lock(child, self.key(child.table)), self._pairs(child, moved))
                    for child, moved in referred
                ),
                *(statement for _, _, _, statement in obstacles),
            ]
        )
        self._identify(table, key, merges, archived)
        held = [one for one, rows in zip(referred, answers, strict=False) if rows]
        for child, moved in held:
            if any(merge.keeper is None for merge in moved):
                raise AdoptError(
                    f"a row that collides is referenced by {child.table} ({child.constraint})",
                    hint="Resolve these rows manually, then run it again.",
                )
        self._remove_obstacles(obstacles, answers[len(referred) :], depth)
        if held:
            self._repoint(held, depth)
        gone = self.session.fetch_all([*self._noting(merges), self._deleting(table, key, merges)])[-1][0]["n"]
        if gone != len(merges):
            raise AdoptError(
                f"{table}: {len(merges)} rows were to be deleted, but {gone} were",
                hint="A trigger or a rule of the table keeps rows from being deleted.",
            )
        if reason == "duplicate":
            self.archived += len(merges)
        else:
            self.collided += len(merges)

    def _archiving(
        self, table: Table, key: Key, merges: list[Merge], reason: str
    ) -> tuple[str, Sequence[Any]]:
        real = key != ("ctid",)
        return self.archive(table, key, reason), [
            *arrays_of([key_of(merge.loser, key) for merge in merges], len(key)),
            [
                json.dumps({one: merge.keeper.get(one) for one in key}) if merge.keeper and real else None
                for merge in merges
            ],
            [merge.tenant for merge in merges],
            [merge.bucket for merge in merges],
            [merge.content_hash for merge in merges],
        ]

    @staticmethod
    def _identify(table: Table, key: Key, merges: list[Merge], rows: list[DictRow]) -> None:
        by_key = {tuple(row["row_key"][one] for one in key): row["archive_id"] for row in rows}
        if len(by_key) != len(merges):
            raise AdoptError(f"{table}: {len(merges)} rows were to be archived, but {len(by_key)} were found")
        for merge in merges:
            merge.archive_id = by_key[key_of(merge.loser, key)]

    def _deleting(self, table: Table, key: Key, merges: list[Merge]) -> tuple[str, Sequence[Any]]:
        return self.delete(table, key), arrays_of([key_of(merge.loser, key) for merge in merges], len(key))

    @staticmethod
    def _noting(merges: list[Merge]) -> list[tuple[str, Sequence[Any]]]:
        noted = [merge for merge in merges if merge.repointed]
        if not noted:
            return []
        # one document: writing an array of them takes longer than the statement
        return [
            (
                "update memfold.adoption_archive as a set repointed = v.value"
                " from jsonb_each($1::jsonb) as v where a.archive_id = v.key::uuid",
                [json.dumps({str(merge.archive_id): merge.repointed for merge in noted})],
            )
        ]

    # What refers to it

    def _obstacles(self, referred: list[tuple[Child, list[Merge]]]) -> list[_Obstacle]:
        """Statements that find or remove rows that would conflict with re-pointed references."""
        made: list[_Obstacle] = []
        for child, moved in referred:
            if any(merge.keeper is None for merge in moved):
                continue
            key = self.key(child.table)
            if child.itself and not child.table.columns[child.columns[0]].required:
                made.append((child, moved, None, self._clearing(child, key, moved)))
            for first in self.touched(child)[:1]:
                made.append(
                    (child, moved, first, (self.collisions(child, key, first), self._pairs(child, moved)))
                )
        return made

    def _remove_obstacles(self, obstacles: list[_Obstacle], answers: list[list[DictRow]], depth: int) -> None:
        for (child, moved, index, _), rows in zip(obstacles, answers, strict=True):
            key = self.key(child.table)
            if index is None:
                self._note_cleared(child, key, moved, rows)
                continue
            self._merge_collisions(child, key, rows, depth)
            for other in self.touched(child)[1:]:
                found = self._send(self.collisions(child, key, other), self._pairs(child, moved))
                self._merge_collisions(child, key, found, depth)

    def _repoint(self, held: list[tuple[Child, list[Merge]]], depth: int) -> None:
        if self._careful:
            for child, moved in held:
                self._repoint_singly(child, self.key(child.table), moved, depth)
            return
        found = self.session.fetch_all(
            [(self.repoint(child, self.key(child.table)), self._pairs(child, moved)) for child, moved in held]
        )
        for (child, moved), rows in zip(held, found, strict=True):
            self._note(child, self.key(child.table), moved, rows)

    def _pairs(self, child: Child, merges: list[Merge]) -> list[list[str | None]]:
        old = [[merge.loser[one] for merge in merges] for one in child.referenced]
        new = [[(merge.keeper or {}).get(one) for merge in merges] for one in child.referenced]
        return [*old, *new]

    def _clearing(self, child: Child, key: Key, merges: list[Merge]) -> tuple[str, Sequence[Any]]:
        """A row that stays and refers to one that is merged into it would refer to itself."""
        return self.clear(child, key), [
            *arrays_of([key_of(merge.keeper or {}, key) for merge in merges], len(key)),
            *([merge.loser[one] for merge in merges] for one in child.referenced),
        ]

    def _note_cleared(self, child: Child, key: Key, merges: list[Merge], cleared: list[DictRow]) -> None:
        by_value = {tuple(merge.loser[one] for one in child.referenced): merge for merge in merges}
        for row in cleared:
            merge = by_value[tuple(row[f"e{n}"] for n in range(len(child.columns)))]
            entry = self._entry(child, key, merge, [[row[f"x{n}"] for n in range(len(key))]])
            rest = [merge.loser[one] for one in child.referenced[1:]]
            merge.repointed.append(entry | {"to": [None, *rest]})
        self.repointed += len(cleared)

    def _merge_collisions(self, child: Child, key: Key, found: list[DictRow], depth: int) -> None:
        """Rows of a child table that would equal another one in a unique index are merged the same way."""
        if not found:
            return
        losers = [tuple(row[f"x{n}"] for n in range(len(key))) for row in found]
        keepers = [tuple(row[f"f{n}"] for n in range(len(key))) for row in found]
        rows = self._rows(child.table, key, self.wanted(child.table), [*losers, *keepers])
        merges = [Merge(rows[one], rows[other]) for one, other in zip(losers, keepers, strict=True)]
        self._merge(child.table, merges, "child_collision", depth + 1)

    def _rows(
        self, table: Table, key: Key, wanted: tuple[str, ...], keys: Sequence[Key]
    ) -> dict[Key, dict[str, str | None]]:
        statement = self.rows(table, key, wanted)
        rows = [texts_of(row) for row in self._send(statement, arrays_of(keys, len(key)))]
        return {key_of(row, key): row for row in rows}

    def _note(self, child: Child, key: Key, merges: list[Merge], rows: list[DictRow]) -> None:
        self.repointed += len(rows)
        by_merge: dict[int, list[object]] = {}
        for row in rows:
            # without a key a row is identified by all its values
            which = row["whole"] if "whole" in row else [row[f"x{n}"] for n in range(len(key))]
            by_merge.setdefault(row["i"] - 1, []).append(which)
        for number, keys in by_merge.items():
            merges[number].repointed.append(self._entry(child, key, merges[number], keys))

    @staticmethod
    def _entry(child: Child, key: Key, merge: Merge, rows: list[object]) -> dict[str, object]:
        """The archive's record of re-pointed rows, so that they can be pointed back."""
        return {
            "constraint": child.constraint,
            "schema": child.table.schema,
            "table": child.table.name,
            "columns": list(child.columns),
            "from": [merge.loser[one] for one in child.referenced],
            "to": [(merge.keeper or {}).get(one) for one in child.referenced],
            "key": list(key) if key != ("ctid",) else [],
            "rows": rows,
        }

    def _repoint_singly(self, child: Child, key: Key, merges: list[Merge], depth: int) -> None:
        """Row by row; a row that collides in any way is archived."""
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
        pairs = self._pairs(child, merges)
        statement = self.repoint(child, key, single=True)
        for row in [texts_of(one) for one in self.session.fetch(render(tree), pairs)]:
            try:
                with self.session.connection.transaction():
                    rows = self._send(statement, [*pairs, *key_of(row, key)])
            except psycopg.errors.IntegrityError as error:
                if error.sqlstate not in {"23505", "23P01"}:
                    raise
                self._merge(child.table, [Merge(row, None)], "child_collision", depth + 1)
            else:
                self._note(child, key, merges, rows)


def _refers(child: Child, merge: Merge) -> bool:
    """Whether a row can be referenced at all: nothing refers to null."""
    return all(merge.loser.get(one) is not None for one in child.referenced)


def texts_of(row: DictRow) -> dict[str, str | None]:
    return {name[2:]: value for name, value in row.items() if name.startswith("c:")}


def key_of(row: dict[str, str | None], key: Sequence[str]) -> Key:
    return tuple(str(row[one]) for one in key)


def arrays_of(keys: Sequence[Key], width: int) -> list[list[str]]:
    return [[one[n] for one in keys] for n in range(width)]
