"""Sums with concurrent writers: no row ends up below a block that lacks it, and no turn loses its first row."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.concurrent_calls import Call
from tests.sql.test_order import SETTING, SHIFTED
from tests.sql.test_sums import (
    HOT,
    blocks,
    contend,
    first_events,
    fold_two,
    merge,
    one,
    restate,
    restate_many,
    says,
    small_blocks,
    take_back,
    undo,
)
from tests.support import check, ingest

DB = psycopg.Connection[Any]
Connect = Callable[..., DB]
pytestmark = pytest.mark.new_database


def test_a_late_statement_beside_one_that_fills_a_block(db: DB, connect: Connect) -> None:
    """It cannot simply be added. Its id is made when nobody else can write a later row before it is there."""
    small_blocks(db)
    # so long that the test does not depend on how fast it is
    db.execute(
        "alter function memfold_internal._ingest_slow_path(memfold_internal.candidate) set lock_timeout = '60s'"
    )
    memory = ingest(db, HOT).memory_id
    holder = connect()
    holder.execute("begin")
    ingest(holder, HOT)
    given = {"metadata": {"x": 1}, "observed_at": "2020-01-01", "source_turn_ids": ["a", "b"]}
    late = Call(db, connect(), lambda c: ingest(c, HOT, **given)).waits_for(holder)
    for _ in range(4):
        ingest(holder, HOT)
    holder.execute("commit")
    assert late.end().action == "merged"
    assert says(db, memory) == (7, 7)
    check(db)


def test_an_undo_beside_a_restatement_in_its_turn(db: DB, connect: Connect) -> None:
    """The turn stays, with the row that was in flight when its first row was undone."""
    small_blocks(db)
    memory = ingest(db, HOT).memory_id
    event = ingest(db, HOT, source_turn_ids=["a"]).event_id
    holder = connect()
    holder.execute("begin")
    again = ingest(holder, HOT, source_turn_ids=["a"]).event_id
    back = Call(db, connect(), lambda c: undo(c, event)).waits_for(holder)
    holder.execute("commit")
    back.end()
    assert first_events(db, memory) == {"a": again}
    assert says(db, memory) == (2, 2)
    check(db)


def test_two_stripes_state_one_turn(db: DB, connect: Connect) -> None:
    """The first by id, which was written second, is evidence."""
    db.execute(SHIFTED.format(shift=SETTING).encode())
    memory = ingest(db, HOT).memory_id
    contend(db)
    ahead = connect()
    ahead.execute("set test.shift = '60'")
    ahead.execute("begin")
    later = ingest(ahead, HOT, source_turn_ids=["a"]).event_id
    waiting = Call(db, connect(), lambda c: ingest(c, HOT, source_turn_ids=["a"])).waits_for(ahead)
    ahead.execute("commit")
    first = waiting.end().event_id
    assert first < later
    assert first_events(db, memory) == {"a": first}
    assert says(db, memory) == (3, 2)
    check(db)


def test_a_block_is_not_made_of_rows_that_are_being_archived(db: DB, connect: Connect) -> None:
    """Archiving does not keep restatements waiting: one that would make a block leaves it to the next one."""
    small_blocks(db)
    memory = ingest(db, HOT).memory_id
    for turn in "abcd":
        ingest(db, HOT, source_turn_ids=[turn])
    assert len(blocks(db, memory)) == 1
    archiving = connect()
    archiving.execute("begin")
    archiving.execute("select archive_events(clock_timestamp(), 'acme')")
    for turn in "efg":
        ingest(db, HOT, source_turn_ids=[turn])
    assert len(blocks(db, memory)) == 1
    archiving.execute("commit")
    check(db)
    for turn in "hijk":
        ingest(db, HOT, source_turn_ids=[turn])
    assert len(blocks(db, memory)) > 1
    assert says(db, memory) == (12, 12)
    check(db)
    merge(db, ingest(db, "User likes coffee", source_turn_ids=["b"]).memory_id, memory)
    assert says(db, memory) == (13, 12)
    check(db)


def test_the_ledger_explains_what_many_writers_leave(db: DB, connect: Connect) -> None:
    """Restatements in single calls and batches, also in stripes, concurrently with merges, and undos of both."""
    small_blocks(db, 4)
    texts = ["User likes tea", "User likes coffee", "User likes milk"]
    for text in texts:
        ingest(db, text)
    errors: list[BaseException] = []
    retried = (
        psycopg.errors.SerializationFailure,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.LockNotAvailable,
    )
    done = dict.fromkeys(("restate", "fold", "undo"), 0)

    def work(kind: str, seed: int, connection: DB) -> None:
        rng = random.Random(seed)
        steps = {
            "restate": [restate] * 6 + [restate_many],
            "fold": [fold_two, take_back],
            "undo": [take_back],
        }[kind]
        for _ in range(60 if kind == "restate" else 25):
            try:
                rng.choice(steps)(connection, rng, texts)
                done[kind] += 1
            except retried:
                continue
            except psycopg.Error as error:
                # it was undone, merged or gone since it was chosen
                if error.sqlstate not in ("MF033", "MF034"):
                    errors.append(error)
                    return
            except BaseException as error:
                errors.append(error)
                return

    kinds = ["restate", "restate", "restate", "fold", "undo"]
    threads = [threading.Thread(target=work, args=(kind, n, connect())) for n, kind in enumerate(kinds)]
    for thread in threads:
        thread.start()
    for n in range(10):
        if n % 2:
            contend(db)
    for thread in threads:
        thread.join()
    assert errors == []
    assert min(done.values()) > 10
    assert one(db, "select count(*) from memfold.memory_event_sums") > 5
    check(db)
