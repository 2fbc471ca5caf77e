"""Step 3: hashes for existing rows, including those that were skipped at first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from memfold.adopt.resolver import batched
from memfold.adopt.session import Batches, Session
from memfold.client.errors import PASSING, AdoptError

# Errors that a user's expression, or a function in it, may raise for a row.
_ROW_ERRORS = ("22", "P0", "38", "39", "21", "42")


def step_3(session: Session) -> None:
    """Hash the existing rows, in order of their keys."""
    session.save(note=session.note(3, "began"))
    position = session.adoption.position
    batches = Batches(session.options, start=500, most=20_000)
    progress = _Progress(session, session.adoption.row["rows_seen"])
    first = session.fetch(
        session.statements.next_batch(first=position is None), [*(position or []), batches.size]
    )
    batch: dict[str, Any] = first[0] if first else {"n": 0}
    # per statement: there is no other in its transaction
    session.run(f"set lock_timeout = {max(1, int(session.lock_timeout * 1000))}")
    session.pause_or_stop()
    while batch["n"]:
        session.throttle_on_lag()
        rows, last = batch["n"], [batch[one] for one in session.definition.key]
        started = time.monotonic()
        batch = _fill(session, position, last, rows, batches.size)
        batches.took(time.monotonic() - started, rows)
        position = last
        progress.more(rows)
        session.spend(rows)
        if batch["paused"] or session.stopping:
            session.pause_or_stop()
    progress.end()
    session.run("set lock_timeout = 0")
    left_out = _fill_missing(session, "step 3")
    session.save(step=3, left_out=left_out, note=session.note(3, "ended"))
    for reason, rows in left_out.items():
        session.say(f"step 3: {rows:,} rows have no hash: {reason}")


def _fill(
    session: Session, position: Sequence[str] | None, last: Sequence[str], rows: int, size: int
) -> dict[str, Any]:
    """One batch and its record, in one statement; returns where the next one ends."""
    made = session.statements
    first = position is None
    parameters = [*(position or []), *last, rows, size]
    careful = False
    attempt = 0
    while True:
        attempt += 1
        try:
            statement = (made.fill_batch_carefully if careful else made.fill_batch)(first=first)
            found = session.fetch(statement, parameters)[0]
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state in PASSING and (not careful or attempt < 100):
                careful = True  # somebody has locked a row: skip it, and look for it again at the end
                continue
            if not careful and state[:2] in _ROW_ERRORS and state != "42501":
                careful = True  # an expression fails for a row: that row gets no hash
                continue
            raise
        if found["paused"] is None:
            raise AdoptError("the adoption has been undone")
        return found


def _fill_missing(session: Session, step: str) -> dict[str, int]:
    """Hash the skipped rows; returns the rows that have no hash, by reason."""
    began = time.monotonic()
    while True:
        left_out, waiting = reasons(session)
        if not waiting:
            return left_out
        keys = keys_of(session, session.fetch(session.statements.missing(), [200_000]))
        done = 0
        for some in batched(keys, session.options.batch or 1000):
            session.pause_or_stop()
            session.throttle_on_lag()
            with session.transaction():
                hashed = session.fetch(session.statements.fill_keys(), columns_of(some))[0]["hashed"]
                session.save(add_rows_hashed=hashed)
            done += hashed
            session.spend(len(some))
        if keys and not done:
            if time.monotonic() - began > session.options.patience:
                raise AdoptError(
                    f"{step}: {len(keys)} rows remain locked by other transactions",
                    hint="End those transactions, and run it again.",
                )
            time.sleep(0.5)


def reasons(session: Session) -> tuple[dict[str, int], int]:
    """Rows without a hash by reason, and how many of them should get one."""
    try:
        row = session.fetch(session.statements.reasons())[0]
        return (
            {name: n for name, n in row.items() if n and name not in {"without_hash", "waiting"}},
            row["waiting"],
        )
    except psycopg.Error as error:
        if (error.sqlstate or "")[:2] not in _ROW_ERRORS:
            raise
        row = session.fetch(session.statements.without_hash())[0]
        why = f"left out, some because an expression fails ({error.diag.message_primary})"
        return ({why: row["without_hash"] - row["waiting"]}, row["waiting"])


def keys_of(session: Session, rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [tuple(row[one] for one in session.definition.key) for row in rows]


def columns_of(keys: Sequence[tuple[str, ...]]) -> list[list[str]]:
    return [list(one) for one in zip(*keys, strict=True)]


class _Progress:
    """A line from time to time: progress, speed, time left."""

    def __init__(self, session: Session, seen: int) -> None:
        self._session = session
        self._seen = seen
        self._start = seen
        self._began = self._told = time.monotonic()

    def more(self, rows: int) -> None:
        self._seen += rows
        now = time.monotonic()
        if now - self._told >= 2:
            self._told = now
            self._line(now)

    def end(self) -> None:
        self._line(time.monotonic(), last=True)

    def _line(self, now: float, *, last: bool = False) -> None:
        rate = (self._seen - self._start) / max(now - self._began, 0.001)
        total = max(self._session.definition.table.rows, 0)
        line = f"step 3: {self._seen:,} rows"
        if total and not last:
            line = f"{line} of about {total:,.0f}, {min(self._seen / total, 1):.0%}"
        line += f", {rate:,.0f} rows per second"
        if total > self._seen and rate and not last:
            line += f", {(total - self._seen) / rate:,.0f} s left"
        self._session.say(line)
