"""Promises 1 and 2, with real connections: one row, exact counters, no duplicate paraphrases."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from typing import Any

import psycopg
import pytest

from tests.support.concurrent_calls import Call, together
from tests.support.memories import check, counters, ingest, model, vector
from tests.support.queries import DB, Connect
from tests.support.server_statistics import function_calls

WRITERS = 16


def test_equal_candidates(db: DB, connect: Connect) -> None:
    calls = 200
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def work(i: int, connection: DB) -> None:
        for call in range(calls):
            spelling = "User likes fact number {}" if (i + call) % 2 else "  USER likes fact number {}."
            result = ingest(
                connection, spelling.format(call % 10), source_turn_ids=[f"turn-{(i * call) % 7}"]
            )
            with lock:
                seen[result.action] += 1

    together([connect() for _ in range(WRITERS)], work)
    assert seen == {"inserted": 10, "merged": WRITERS * calls - 10}
    rows = db.execute("select status, repetition_count from memory_audit").fetchall()
    assert len(rows) == 10
    assert {status for status, _ in rows} == {"active"}
    assert sum(count + 1 for _, count in rows) == WRITERS * calls
    assert db.execute("select count(*) from memory_events").fetchone() == (WRITERS * calls,)
    check(db)


@pytest.mark.parametrize(
    "fields",
    [{}, vector(1.0), {"subject": "user", "predicate": "drinks", "object": "tea"}],
    ids=["without a vector", "with a vector", "value of a slot"],
)
def test_a_text_that_another_call_has_just_stored_is_compared_with_nothing(
    db: DB, connect: Connect, fields: dict[str, Any]
) -> None:
    model(db)
    db.execute("select set_predicate('drinks', 'acme')")
    holder, other = connect(), connect()
    holder.execute("begin")
    stored = ingest(holder, "User likes tea", **fields)
    other.execute("set track_functions = 'all'")
    waiting = Call(db, other, lambda c: ingest(c, "User likes tea.", **fields)).waits_for(holder)
    holder.execute("commit")
    result = waiting.end()
    assert (result.action, result.method, result.memory_id) == ("merged", "hash", stored.memory_id)
    assert function_calls(other, "_ingest_known") > 0, "it took the general path"
    assert function_calls(other, "_ingest_locked") == 0
    check(db)


def test_paraphrase_races(db: DB, connect: Connect) -> None:
    """16 concurrent texts of one fact, any two of them within the merge threshold; 50 times."""
    model(db)
    # races are between texts that would merge; which words do is the guard's and the veto's
    db.execute("select set_policy('acme', guard => 'off')")
    writers = [connect() for _ in range(WRITERS)]
    words = ["likes", "loves", "enjoys", "prefers", "wants", "favours", "picks", "chooses"]
    forms = ["The user {} a dark screen", "A dark screen is what the user {}"]
    texts = [form.format(word) for word in words for form in forms]
    for turn in range(50):

        def work(i: int, connection: DB, turn: int = turn) -> None:
            angle = 0.02 * i
            embedding = json.dumps([math.cos(angle), math.sin(angle), 0, 0])
            ingest(connection, texts[i], bucket_id=f"round {turn}", subject="user",
                   embedding=embedding, embedding_model="m")  # fmt: skip

        together(writers, work)
    found = db.execute(
        "select bucket_id, count(*) filter (where status = 'active'), max(repetition_count) from memory_audit"
        " group by bucket_id"
    ).fetchall()
    assert len(found) == 50
    assert [row for row in found if row[1:] != (1, WRITERS - 1)] == []
    check(db)


def test_one_key_many_calls(db: DB, connect: Connect) -> None:
    results: list[Any] = []
    together(
        [connect() for _ in range(WRITERS)],
        lambda i, c: results.append(ingest(c, "one text", idempotency_key="the same")),
    )
    assert len({r.event_id for r in results}) == 1
    assert db.execute("select count(*) from memories").fetchone() == (1,)
    check(db)


def test_racing_values_of_one_slot(db: DB, connect: Connect) -> None:
    db.execute("select set_predicate('works_at', 'acme')")

    def work(i: int, connection: DB) -> None:
        for call in range(25):
            place = "VW" if (i + call) % 2 else "Stripe"
            while True:
                try:
                    ingest(
                        connection, f"Ann works at {place}", subject="Ann", predicate="works_at", object=place
                    )
                    break
                except psycopg.errors.SerializationFailure:
                    continue

    together([connect() for _ in range(8)], work)
    assert db.execute("select count(*) from memories where status = 'active'").fetchone() == (1,)
    intervals = db.execute("select valid_from, valid_to from memory_intervals order by valid_from").fetchall()
    assert [end for _, end in intervals[:-1]] == [start for start, _ in intervals[1:]]
    assert intervals[-1][1] is None
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (200,)
    check(db)


def test_hits_while_the_tree_changes(db: DB, connect: Connect) -> None:
    """Replays of an alias and of its root, while paraphrases are merged: every observation is counted."""
    model(db)
    db.execute("select set_policy('acme', guard => 'off')")
    root = ingest(db, "User prefers dark mode", **vector(1.0))
    ingest(db, "The user likes dark mode best", **vector(0.99))

    def work(i: int, connection: DB) -> None:
        for call in range(40):
            if i < 4:
                ingest(connection, f"dark mode, {'so ' * (i * 40 + call + 1)}much", **vector(0.999))
            elif i % 2:
                ingest(connection, "User prefers dark mode", source_turn_ids=[f"{i}"])
            else:
                ingest(connection, "The user likes dark mode best", source_turn_ids=[f"{call}"])

    together([connect() for _ in range(WRITERS)], work)
    assert counters(db, root.memory_id)["observations"] == 2 + 40 * WRITERS
    assert counters(db, root.memory_id)["aliases"] == 1 + 4 * 40
    check(db)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_other_isolation_levels(db: DB, connect: Connect, level: str) -> None:
    ingest(db, "User likes Vim")
    other = connect()
    other.execute(f"begin isolation level {level}")
    assert ingest(other, "User likes Vim").action == "merged"
    other.execute("commit")
    other.execute(f"begin isolation level {level}")
    with pytest.raises(psycopg.Error) as error:
        ingest(other, "User likes tea")
    assert error.value.sqlstate == "MF025"
    other.execute("rollback")
    assert db.execute("select count(*) from memory_events").fetchone() == (2,)
    check(db)


def test_a_caller_that_waits_holding_a_row_gives_up(db: DB, connect: Connect) -> None:
    """Lock order: a call that may hold a row lock only tries for the scope's key, and gets 40001."""
    db.execute("select set_predicate('works_at', 'acme')")
    fact = {"content": "Ann works at VW", "subject": "Ann", "predicate": "works_at", "object": "VW"}
    ingest(db, **fact, observed_at="2026-02-01")
    blocker, holder = connect(), connect()
    blocker.execute("begin")
    blocker.execute(
        "select memfold_internal._lock('acme', 'default', scope_key, true) from memories where tenant_id = 'acme'"
    )
    holder.execute("begin")
    ingest(holder, **fact, observed_at="2026-02-03")
    # not late when it begins: it becomes late while it waits for the row
    overtaken = Call(db, connect(), lambda c: ingest(c, **fact, observed_at="2026-02-02")).waits_for(holder)
    holder.execute("commit")
    overtaken.must_retry()
    blocker.execute("rollback")
    assert ingest(db, **fact, observed_at="2026-02-02").action == "merged"
    check(db)
