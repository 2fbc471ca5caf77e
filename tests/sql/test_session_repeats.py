"""max_session_repeats: repeated statements of one session are refused, and leave nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
import pytest

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB
from tests.support.rounds import seeds


def refused(db: DB, content: str, **arguments: Any) -> psycopg.Error:
    tables = ("memory_events", "memory_counters", "memory_sources", "idempotency_keys", "memories")
    before = [db.execute(f"select * from {t} order by 1, 2, 3".encode()).fetchall() for t in tables]
    with pytest.raises(psycopg.Error) as error:
        ingest(db, content, **arguments)
    assert error.value.sqlstate == "MF055"
    assert [db.execute(f"select * from {t} order by 1, 2, 3".encode()).fetchall() for t in tables] == before
    return error.value


def test_a_loop_is_refused(db: DB) -> None:
    db.execute("select set_policy('acme', max_session_repeats => 3)")
    said = [ingest(db, "User likes tea", session_id="s") for _ in range(3)]
    error = refused(db, "  user LIKES tea.", session_id="s", idempotency_key="k", source_turn_ids=["t"])
    assert error.diag.message_detail == "Session 's' has stated this fact 3 times; this bucket accepts 3."
    assert "origin => 'recalled'" in (error.diag.message_hint or "")
    refused(db, "User likes tea", session_id="s", function="preview_memory")
    # another session, none, another fact, and what was recalled
    assert ingest(db, "User likes tea", session_id="t").action == "merged"
    assert ingest(db, "User likes tea").action == "merged"
    assert ingest(db, "User likes coffee", session_id="s").action == "inserted"
    assert ingest(db, "User likes tea", session_id="s", origin="recalled").action == "merged"
    # undone statements do not count; a repeated key gets its answer again
    db.execute("select undo(%s, tenant_id => 'acme')", [said[1].event_id])
    last = ingest(db, "User likes tea", session_id="s", idempotency_key="k")
    assert ingest(db, "User likes tea", session_id="s", idempotency_key="k") == last
    refused(db, "User likes tea", session_id="s")
    db.execute("select set_policy('acme', max_session_repeats => 5)")
    assert ingest(db, "User likes tea", session_id="s").action == "merged"
    check(db)


def test_of_a_single_valued_slot(db: DB) -> None:
    model(db)
    db.execute("select set_policy('acme', max_session_repeats => 2), set_predicate('works_at', 'acme')")
    at = {"subject": "Ann", "predicate": "works_at", "session_id": "s"}
    for _ in range(2):
        for place in ("VW", "Stripe"):
            ingest(db, f"Ann works at {place}", object=place, **at)
    refused(db, "Ann works at VW", object="VW", **at)
    # an alias has a text of its own
    for cosine, text in ((1.0, "User prefers dark mode"), (0.97, "The user likes dark mode best")):
        for _ in range(2):
            ingest(db, text, session_id="s", **vector(cosine))
        refused(db, text, session_id="s")
    check(db)


def test_only_the_newest_rows_count(db: DB) -> None:
    db.execute("select set_policy('acme', max_session_repeats => 2)")
    for _ in range(2):
        ingest(db, "User likes tea", session_id="s")
    for _ in range(18):
        ingest(db, "User likes tea")
    refused(db, "User likes tea", session_id="s")
    ingest(db, "User likes tea")
    assert ingest(db, "User likes tea", session_id="s").action == "merged"


@pytest.mark.parametrize("wrong", [0, 1001, -1])
def test_the_limit_has_limits(db: DB, wrong: int) -> None:
    with pytest.raises(psycopg.Error) as error:
        db.execute("select set_policy('acme', max_session_repeats => %s)", [wrong])
    assert error.value.sqlstate == "MF017"


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_batches_refuse_what_singles_refuse(db: DB, seed: int) -> None:
    rnd = random.Random(seed)
    db.execute("select set_predicate('works_at', 'acme')")
    for bucket in ("one by one", "batch"):
        db.execute("select set_policy('acme', %s, max_session_repeats => 2)", [bucket])
        db.execute("select set_policy('acme', %s, 'quote', max_session_repeats => 3)", [bucket])
    for _ in range(4):
        candidates = []
        for _ in range(25):
            candidate: dict[str, Any] = {
                "content": f"fact {rnd.randrange(3)}",
                "session_id": rnd.choice(["s", "t", None]),
            }
            if rnd.random() < 0.2:
                candidate["metadata"] = {"k": rnd.randrange(2)}
            if rnd.random() < 0.2:
                candidate["origin"] = "recalled"
            if rnd.random() < 0.2:
                candidate["memory_type"] = "quote"
            if rnd.random() < 0.2:
                candidate |= {"subject": "Ann", "predicate": "works_at", "object": candidate["content"]}
            if rnd.random() < 0.3:
                # a key belongs to one call
                candidate["idempotency_key"] = f"{rnd.randrange(3)} {json.dumps(candidate)}"
            candidates.append(candidate)
        singles = []
        for candidate in candidates:
            try:
                said = ingest(db, bucket_id="one by one", **candidate)
                singles.append((said.action, said.tier, said.method, None))
            except psycopg.Error as error:
                singles.append((None, None, None, error.sqlstate))
        batch = json.dumps([{**candidate, "bucket_id": "batch"} for candidate in candidates])
        rows = db.execute(
            "select action, tier, method, sqlstate from ingest_memories(%s::jsonb, 'acme', 'report')", [batch]
        ).fetchall()
        assert rows == singles
        check(db)
    states = [
        db.execute(
            "select m.content, m.memory_type, m.subject, m.status, k.observations, k.independent"
            " from memories m left join memory_totals k using (tenant_id, memory_id)"
            " where bucket_id = %s order by 1, 2, 3",
            [bucket],
        ).fetchall()
        for bucket in ("one by one", "batch")
    ]
    assert states[0] == states[1]
    keys = "select idempotency_key from idempotency_keys where bucket_id = %s and event_id is not null order by 1"
    assert db.execute(keys, ["one by one"]).fetchall() == db.execute(keys, ["batch"]).fetchall()
    assert db.execute("select count(*) from idempotency_keys where event_id is null").fetchone() == (0,)


def test_a_batch_that_is_to_be_whole(db: DB) -> None:
    db.execute("select set_policy('acme', max_session_repeats => 1)")
    batch = json.dumps(
        [{"content": "a", "session_id": "s"}, {"content": "b"}, {"content": "A.", "session_id": "s"}]
    )
    with pytest.raises(psycopg.Error) as error:
        db.execute("select * from ingest_memories(%s::jsonb, 'acme', 'abort')", [batch])
    assert error.value.sqlstate == "MF055"
    assert (error.value.diag.message_detail or "").startswith("Candidate 2: Session 's'")
    assert db.execute("select count(*) from memory_events").fetchone() == (0,)
