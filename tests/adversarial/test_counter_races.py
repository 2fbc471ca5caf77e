"""Counters with concurrent writers: no statement is counted twice or lost, and no turn loses its first row."""

from __future__ import annotations

import random
import threading

import psycopg
import pytest

from tests.support.concurrent_calls import Call
from tests.support.ledger import undo
from tests.support.memories import check, ingest
from tests.support.queries import DB, Connect
from tests.support.restatements import HOT, first_events, fold_two, restate, restate_many, says, take_back

pytestmark = pytest.mark.new_database


def test_a_late_statement_among_concurrent_ones(db: DB, connect: Connect) -> None:
    """It is not a plain addition: its id must be made when no other session can commit a later row before it."""
    # long enough not to depend on the machine's speed
    db.execute(
        "alter function memfold_internal._ingest_under_locks(memfold_internal.candidate) set lock_timeout = '60s'"
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


def test_an_undo_concurrent_with_a_restatement_of_its_turn(db: DB, connect: Connect) -> None:
    """The turn stays, with the row that was in flight when its first row was undone."""
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


def test_the_ledger_explains_the_result_of_many_writers(db: DB, connect: Connect) -> None:
    """Restatements in single calls and batches, concurrently with merges, and undos of both."""
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
    for thread in threads:
        thread.join()
    assert errors == []
    assert min(done.values()) > 10
    check(db)
