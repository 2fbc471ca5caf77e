"""Calls at the same time: who waits for whom, and many at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.queries import DB

PATIENCE = 60.0
# On Citus, queries must look at all nodes.
BLOCKERS = "select pg_blocking_pids(%s)"


class DidNotWaitError(AssertionError):
    """A call ended without waiting for the other session."""


class Call(threading.Thread):
    """A call in a separate thread, on its own connection: its result or its error, and whom it waits for."""

    def __init__(self, db: DB, connection: DB, work: Callable[[DB], Any]) -> None:
        super().__init__(daemon=True)
        self._db, self._connection, self._work = db, connection, work
        self._pid = connection.info.backend_pid
        self.value: Any = None
        self.error: psycopg.Error | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self._work(self._connection)
        except psycopg.Error as error:
            self.error = error

    def blockers(self) -> list[int]:
        row = self._db.execute(BLOCKERS.encode(), [self._pid]).fetchone()
        assert row is not None
        found: list[int] = row[0]
        return found

    def waits_for(self, other: DB) -> Call:
        deadline = time.monotonic() + PATIENCE
        while other.info.backend_pid not in self.blockers():
            if not self.is_alive():
                raise DidNotWaitError(f"it did not wait: {self.value} {self.error}")
            assert time.monotonic() < deadline, "it waits for nobody, or for somebody else"
            time.sleep(0.01)
        return self

    def end(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive(), f"it still waits, for {self.blockers()}"
        if self.error is not None:
            raise self.error
        return self.value

    def overtakes(self, other: DB) -> bool:
        """Whether it has ended, instead of waiting for the new holder of the row.

        When a row's holder commits a new version, all that waited are let go, and nothing says who is the first to lock
        that: mostly, not always, the one that came first.
        """
        while self.is_alive():
            if other.info.backend_pid in self.blockers():
                return False
            time.sleep(0.01)
        self.end()
        return True

    def must_retry(self) -> psycopg.Error:
        with pytest.raises(psycopg.errors.SerializationFailure) as error:
            self.end()
        assert error.value.diag.message_hint is not None
        return error.value


def together(writers: list[DB], work: Callable[[int, DB], None]) -> None:
    """Run work(i, connection) in a thread each, started at the same moment; errors are the caller's."""
    start = threading.Barrier(len(writers))
    errors: list[BaseException] = []

    def run(i: int, connection: DB) -> None:
        try:
            start.wait()
            work(i, connection)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def fold(db: DB, memory_id: UUID | None, into_id: UUID | None) -> None:
    """Merge two memories."""
    db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [memory_id, into_id])


def batch(db: DB, *candidates: dict[str, Any], on_error: str = "report") -> list[Any]:
    """Ingest candidates of tenant acme in one call."""
    return db.execute(
        "select action, sqlstate from ingest_memories(%s, 'acme', %s) order by ordinal",
        [json.dumps(candidates), on_error],
    ).fetchall()


def advisory(db: DB, holder: DB) -> int:
    """How many keys of buckets and scopes it holds or waits for: its tenant's key of rules does not count."""
    row = db.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and pid = %s"
        " and (classid::bigint << 32 | objid::bigint) <> memfold_internal._rules_key('acme')",
        [holder.info.backend_pid],
    ).fetchone()
    assert row is not None
    return int(row[0])
