"""Shared code of the tests of rehashes and links: random calls on one bucket, and writers during a long call."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.support.memories import ingest
from tests.support.queries import DB

RETRIED = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
BY_HAND = (
    "reject_memory(%(one)s, tenant_id => 'acme')",
    "merge_memories(%(one)s, %(two)s, tenant_id => 'acme')",
    "supersede_memory(%(one)s, %(two)s, tenant_id => 'acme')",
    "update_memory(%(one)s, %(text)s, tenant_id => 'acme')",
)
UNDOABLE = """
select event_id, tier = 1 from memfold.ledger where not undone
    and (tier >= 2 or tier = 1 and observation)
    and action <> 'judged' and action <> 'rehashed' and action <> 'escalated' and action <> 'inserted'
    and not (action = 'rejected' and tier < 3) order by 1
"""


class History:
    """Random calls on one bucket; a subclass defines the calls and the candidates."""

    def __init__(self, db: DB, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        self.accepted = 0

    def tell(self, text: str, arguments: dict[str, Any]) -> None:
        """Preview a candidate and ingest it: the preview must be right."""
        try:
            planned = ingest(self.db, text, function="preview_memory", **arguments)
            result = ingest(self.db, text, **arguments)
        except psycopg.Error as error:
            assert error.sqlstate == "MF004", error  # noqa: PT017  # '+' is nothing by flat/1
            return
        assert result.action == planned.action, (text, arguments)
        self.accepted += result.action != "rejected"

    def hand(self, texts: Sequence[str]) -> None:
        """A manual action on any two memories; texts: the texts for updates."""
        ids = [row[0] for row in self.db.execute("select memory_id from memories order by 1").fetchall()]
        if len(ids) < 2:
            return
        one, two = self.random.sample(ids, 2)
        call = self.random.choice(BY_HAND)
        given = {"one": one, "two": two, "text": self.random.choice(texts)}
        try:
            self.db.execute(f"select {call}".encode(), given)
        except psycopg.Error as error:
            assert error.sqlstate == "MF034", error  # noqa: PT017

    def undo(self) -> None:
        rows = self.db.execute(UNDOABLE.encode()).fetchall()
        if not rows:
            return
        event, restated = self.random.choice(rows)
        try:
            self.db.execute("select undo(%s, tenant_id => 'acme')", [event])
            self.accepted -= restated
        except psycopg.Error as error:
            assert error.sqlstate == "MF032", error  # noqa: PT017


Write = Callable[[DB, random.Random], int]


@dataclass
class Written:
    """The results of the writers, once they have ended."""

    taken: int = 0
    errors: list[BaseException] = field(default_factory=list)


@contextmanager
def writers(connections: Sequence[DB], write: Write, *others: Callable[[], None]) -> Iterator[Written]:
    """Write on each connection while the block runs; others: concurrently, once each.

    ``write`` makes one call and returns how many candidates that told; a call that is told to come again is made again.
    """
    stop = threading.Event()
    written = Written()
    lock = threading.Lock()

    def go(connection: DB, chosen: random.Random) -> None:
        taken = 0
        try:
            while not stop.is_set():
                deadline = time.monotonic() + 60
                while True:
                    try:
                        taken += write(connection, chosen)
                        break
                    except RETRIED:
                        if stop.is_set() and time.monotonic() > deadline:
                            raise
        except BaseException as error:
            written.errors.append(error)
        with lock:
            written.taken += taken

    threads = [
        threading.Thread(target=go, args=(connection, random.Random(seed)))
        for seed, connection in enumerate(connections)
    ]
    threads += [threading.Thread(target=other) for other in others]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        stop.set()
        for thread in threads:
            thread.join()
