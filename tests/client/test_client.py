"""The Python client against a real server: arguments, results, log lines."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest

from memfold import Memfold
from tests.support.counting import CAT, DOG, Counting, written
from tests.support.queries import one

pytestmark = pytest.mark.usefixtures("measured")

LATER = datetime.now(UTC) + timedelta(days=1)


def test_a_new_fact_and_its_replay(plain: Memfold) -> None:
    first = plain.ingest("Alice has a cat.", subject="Alice", source_turn_ids=["turn-1"])
    again = plain.ingest("alice has a CAT", subject="Alice", source_turn_ids=("turn-1",))
    assert (first.action, first.tier, first.method, first.similar) == ("inserted", None, None, ())
    assert (again.action, again.tier, again.method) == ("merged", 1, "hash")
    assert again.memory_id == first.memory_id
    assert isinstance(first.memory_id, uuid.UUID)
    assert first.event_id != again.event_id


def test_an_escalation_names_the_neighbour(client: Memfold) -> None:
    first = client.ingest("Alice has a cat.", subject="Alice")
    second = client.ingest("Alice has 2 cats.", subject="Alice")
    assert (second.action, second.tier, second.method) == ("escalated", 2, "vector")
    assert second.judgement_id is not None
    assert second.similarity == pytest.approx(1, abs=1e-6)
    assert [similar.memory_id for similar in second.similar] == [first.memory_id]
    assert second.similar[0].guard
    assert all(isinstance(signal, str) for signal in second.similar[0].guard)


def test_a_supersession_names_what_it_replaced(plain: Memfold, db: psycopg.Connection) -> None:
    db.execute("select memfold.set_predicate('lives_in', 't', 'one')")
    fields: dict[str, Any] = {"subject": "Alice", "predicate": "lives_in"}
    paris = plain.ingest("Alice lives in Paris.", object="Paris", **fields)
    rome = plain.ingest("Alice lives in Rome.", object="Rome", **fields)
    assert (rome.action, rome.superseded_id) == ("superseded", paris.memory_id)


def test_every_argument_arrives(plain: Memfold, db: psycopg.Connection) -> None:
    plain.register_embedding_model("toy", 3, 0.92, 0.85)
    when = datetime(2025, 3, 1, 12, tzinfo=UTC)
    result = plain.ingest(
        "Zoë likes 'tea' & %s \\ 100 %",
        "other",
        bucket_id="b",
        memory_type="preference",
        subject="Zoë",
        predicate="likes",
        object="tea",
        embedding=np.array([1, 2, 3], dtype=np.float32),
        embedding_model="toy",
        source_turn_ids=["2", "1"],
        source_confidence=1,
        extractor_confidence=0.25,
        session_id="s",
        origin="inferred",
        metadata={"mood": ["good", 1.5, None], "ключ": True},
        observed_at=when,
        valid_from=when,
        valid_until=LATER,
        idempotency_key="k",
    )
    row = db.execute(
        "select tenant_id, bucket_id, memory_type, content, subject, predicate, object, source_turn_ids,"
        " source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until"
        " from memfold.memory_events where event_id = %s",
        [result.event_id],
    ).fetchone()
    assert row == (
        *("other", "b", "preference", "Zoë likes 'tea' & %s \\ 100 %", "Zoë", "likes", "tea", ["1", "2"]),
        *(1.0, 0.25, "s", "inferred", {"mood": ["good", 1.5, None], "ключ": True}, when),
        *(when, LATER),
    )
    assert one(db, "select model from memfold.memory_vectors") == "toy"
    assert one(db, "select idempotency_key from memfold.idempotency_keys") == "k"


def test_an_unknown_argument_is_a_type_error(plain: Memfold) -> None:
    with pytest.raises(TypeError, match="colour"):
        plain.ingest("Alice has a cat.", colour="black")  # type: ignore[call-arg]


def test_preview_agrees_and_writes_nothing(client: Memfold, db: psycopg.Connection) -> None:
    client.ingest("Alice has a cat.", subject="Alice")
    before = written(db)
    for content in ("Alice has a cat!", "Alice has 3 cats.", "Alice owns a cat."):
        seen = client.preview(content, subject="Alice")
        assert written(db) == before
        done = client.ingest(content, subject="Alice")
        before = written(db)
        assert (seen.action, seen.tier, seen.method, seen.similarity) == (
            *(done.action, done.tier, done.method, done.similarity),
        )


def test_known_finds_the_text_and_nothing_else(client: Memfold) -> None:
    assert client.known("Alice has a cat.") is None
    made = client.ingest("Alice has a cat.")
    folded = client.ingest("Alice owns a cat.")
    assert (folded.action, folded.tier) == ("merged", 2)
    found = client.known("alice owns a cat")
    assert found is not None
    assert found.memory_id == made.memory_id
    assert found.matched_id != made.memory_id
    assert (found.status, len(found.content_hash)) == ("active", 32)
    assert client.known("Alice has a cat.", subject="Alice") is None
    assert client.known("Alice has a cat.", bucket_id="other") is None


def test_find_similar(client: Memfold, counting: Counting) -> None:
    counting.vectors["Bob has a dog."] = DOG
    cat = client.ingest("Alice has a cat.")
    client.ingest("Bob has a dog.")
    by_text = client.find_similar("Alice's cat")
    by_vector = client.find_similar(embedding=CAT, embedding_model="toy", threshold=0.5, max_results=5)
    assert [found.memory_id for found in by_text] == [cat.memory_id]
    assert by_text == by_vector
    assert (by_text[0].content, by_text[0].similarity) == ("Alice has a cat.", 1.0)
    assert client.find_similar("Alice's cat", subject="nobody", memory_type="fact") == ()


def test_explain_and_stats(plain: Memfold) -> None:
    made = plain.ingest("Alice has a cat.")
    plain.ingest("Alice has a cat.")
    text = plain.explain(str(made.memory_id))
    assert text.splitlines()[0] == f'memory {made.memory_id}: "Alice has a cat."'
    assert "said twice" in text
    (stats,) = plain.stats()
    assert (stats.tenant_id, stats.bucket_id, stats.active, stats.observations) == ("t", "default", 1, 2)
    assert (stats.tier_1_merges, stats.merge_rate, stats.pending_embeddings) == (1, 0.5, 1)
    assert plain.stats(bucket_id="none") == ()
    assert plain.check_invariants() == []


def test_log_lines(client: Memfold, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "memfold"):
        first = client.ingest("Alice has a cat.")
        client.ingest("Alice has 2 cats.")
        client.ingest("Alice has a cat.")
        client.preview("Alice has a cat.")
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if "DEDUP" in record.msg]
    assert lines == [
        ("DEBUG", 'DEDUP_CHECK: "Alice has a cat." no match -> inserted'),
        ("DEBUG", 'DEDUP_CHECK: "Alice has 2 cats." closest match sim=1.00 -> escalated'),
        ("DEBUG", 'DEDUP_CHECK: "Alice has a cat." tier 1 hash -> merged'),
        ("INFO", f'DEDUP_MERGE: "Alice has a cat." -> memory {first.memory_id} (tier 1 hash)'),
        ("DEBUG", 'DEDUP_CHECK: "Alice has a cat." tier 1 hash -> merged'),
    ]


def test_a_log_line_is_one_short_line(plain: Memfold, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "memfold"):
        plain.ingest("first\nsecond " + "x" * 1000)
    (line,) = [record.getMessage() for record in caplog.records if "DEDUP" in record.msg]
    assert "\n" not in line
    assert len(line) < 160
