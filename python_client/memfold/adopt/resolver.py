"""Step 4: rows with the same text become one row. The oldest stays, references to the others are re-pointed to it,
and the others are archived, in short transactions while writers continue.

A batch locks its rows in order of their keys, FOR UPDATE, before it looks at anything that refers to them: no child
row can then be added to a row that will be deleted, and no ON DELETE CASCADE finds anything to delete. It waits for a
lock less than deadlock_timeout, so that a deadlock with it never makes a writer the victim.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from memfold.adopt.dedup_statements import Key
from memfold.adopt.merging import Merge, Merging, arrays_of, texts_of
from memfold.adopt.session import Batches, Session
from memfold.client.errors import PASSING, AdoptError

__all__ = ["Resolver", "batched"]


class Resolver(Merging):
    """Resolves groups of duplicates."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        # Building a tree takes longer than its statement, so it is not done while rows are locked.
        list(self.all())
        session.statements.lock_rows()
        session.statements.rank_rows(self.wanted(self.of.table))
        session.statements.fill_keys()
        self.groups = 0
        self.paused = False
        self._told = 0.0
        self._fetched = (0, -1)
        self._slots: dict[int, Key] = {}

    # Groups

    def resolve_found(self) -> None:
        """Resolve what ``find`` has found, in batches of rows to archive."""
        session = self.session
        most = session.fetch("select count(*) as n from pg_temp.memfold_members where place > 1")[0]["n"]
        # many statements, few rows: most of a batch's time does not depend on the number of rows
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
                            "step 4: rows remain locked by other transactions",
                            detail=f"{most - done} rows are not resolved yet.",
                            hint="End those transactions, and run it again.",
                        )
                    if until - low == 1:
                        waiting.insert(0, (low, until))  # somebody has locked it: later
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
                f"step 4: {done:,} of {most:,} rows, {rate:,.0f} per second{left};"
                f" {self.repointed:,} references re-pointed"
                + (f", {self.collided:,} colliding rows archived" if self.collided else "")
            )

    def _keys_of(self, low: int, until: int) -> list[Key]:
        """The keys of some rows to archive, and of the oldest of their groups."""
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
        """Resolve the groups of these rows; False: a row was locked, and nothing was done."""
        before = (self.groups, self.archived, self.repointed, self.collided)
        try:
            self.resolve(keys)
        except psycopg.Error as error:
            self.groups, self.archived, self.repointed, self.collided = before
            if error.sqlstate in PASSING:
                return False
            # Either a writer was faster, or a child table has an index that is more than a list of columns.
            if error.sqlstate in {"23505", "23P01"} and not self._careful:
                self._careful = True
                try:
                    return self._try(keys)
                finally:
                    self._careful = False
            raise
        return True

    def resolve(self, keys: Sequence[Key]) -> None:
        """Make one row of each group that the rows with these keys form now, in one transaction."""
        try:
            self._resolve(keys)
        except BaseException:
            if not self.connection.closed:
                self.connection.rollback()
            raise

    def _resolve(self, keys: Sequence[Key]) -> None:
        session = self.session
        made = session.statements
        arrays = arrays_of(keys, len(self.of.key))
        *_, rows = session.fetch_all(
            [
                *session.beginning(),
                # find violations here, where they can be handled, rather than at COMMIT
                ("set constraints all immediate", ()),
                (made.lock_rows(), arrays),
                (made.rank_rows(self.wanted(self.of.table)), arrays),
            ]
        )
        merges: list[Merge] = []
        bare: list[Key] = []
        for _, group in itertools.groupby(rows, key=lambda row: row["group_id"]):
            first, *others = group
            if not first["has_hash"]:
                bare.append(tuple(first[f"c:{one}"] for one in self.of.key))
            merges += [
                Merge(
                    texts_of(row),
                    texts_of(first),
                    row["memfold_tenant"],
                    row["memfold_bucket"],
                    row["memfold_h"],
                )
                for row in others
            ]
        before = (self.archived, self.repointed, self.collided)
        if merges:
            self._merge(self.of.table, merges, "duplicate", 0)
        groups = len({tuple((merge.keeper or {}).items()) for merge in merges})
        last: list[tuple[str, Sequence[Any]]] = []
        if bare:
            last.append((made.fill_keys(), arrays_of(bare, len(self.of.key))))
        noted = session.saving(
            add_groups_resolved=groups,
            add_rows_archived=self.archived - before[0],
            add_children_repointed=self.repointed - before[1],
            add_children_archived=self.collided - before[2],
        )
        *_, state, _ = session.fetch_all([*last, noted, ("commit", ())])
        self.groups += groups
        self.paused = bool(state and state[0]["paused"])


def batched(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Consecutive parts of a list."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
