"""Export and import of a bucket, and a bucket with rows in every table."""

from __future__ import annotations

import json
from typing import Any

from tests.support.judging import answer
from tests.support.maintenance import set_columns
from tests.support.memories import Result, ingest, model, vector
from tests.support.queries import DB, one

TABLES = (
    "policies", "options", "predicates", "links", "antonyms", "memories", "memory_counters", "memory_vectors",
    "memory_intervals", "memory_sources", "memory_tokens", "memory_events",
    "idempotency_keys", "judgements", "labelled_pairs", "runs",
)  # fmt: skip


def history(db: DB) -> Result:
    """Rows in every table, odd values among them."""
    model(db)
    db.execute("select set_predicate('works_at', 'acme', conflict => 'newest_wins')")
    db.execute("select set_policy('acme', merge_threshold => 0.93)")
    db.execute("select set_policy('acme', 'default', lexical_threshold => 0.9, weights => '{0.1,0.2,0.7}')")
    set_columns(db, "policies", "default", metadata_max=["score"])
    db.execute("select set_options('acme', rank_feedback => 1 / 3.0)")
    db.execute(
        "select set_options('acme', 'default', decay_interval => '1 day 01:00', protected_types => '{a,\"b,c\"}')"
    )
    db.execute("insert into antonyms values ('acme', 'tabs', 'spaces', 'en')")
    db.execute("select link_subject('Anna', 'Ann', 'acme'), link_predicate('is at', 'works_at', 'acme')")
    first = ingest(
        db, "User prefers dark mode", source_turn_ids=["t,1", 't"2'], idempotency_key="k", source_confidence=1 / 3,
        metadata={"score": 0.1, "nested": {"ä": [1, None, "\\"]}}, session_id="s", **vector(1.0),
    )  # fmt: skip
    fold = ingest(db, "The user likes dark mode best", source_turn_ids=["t3"], **vector(0.97))
    assert fold.tier == 2
    for i in range(12):
        ingest(
            db, "The user likes dark mode best", source_turn_ids=[f"u{i}"], extractor_confidence=0.1 + i / 97
        )
    for day, place in enumerate(("VW", "Stripe", "VW", "“Ärzte\n ohne” \t Grenzen")):
        ingest(
            db,
            f"Ann works at {place}",
            subject="Ann",
            predicate="works_at",
            object=place,
            observed_at=f"2026-01-0{day + 1}",
        )
    assert ingest(db, "User adores a very dark mode", **vector(0.88, axis=2)).action == "escalated"
    answer(db, "distinct", 0.99, reason="shades")
    ingest(db, "User is fond of darkness", **vector(0.87, axis=3))
    ingest(db, "unknown", origin="recalled", idempotency_key="refused")
    gone = ingest(db, "User is a cat")
    db.execute("select reject_memory(%s, tenant_id => 'acme')", [gone.memory_id])
    ingest(db, "User is a cat")
    folded = ingest(db, "User has a dog")
    chain = ingest(db, "User owns a dog")
    last = ingest(db, "User keeps a dog")
    for child, into in ((last, chain), (chain, folded)):
        db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [child.memory_id, into.memory_id])
    db.execute(
        "insert into memories (tenant_id, bucket_id, content, memory_type) values ('acme', 'default', 'plain', 'fact')"
    )
    db.execute("select end_session('s', 'acme')")
    db.execute("select record_feedback(%s, true, 'acme')", [first.memory_id])
    db.execute("set memfold.tenant_id = 'acme'")
    db.execute("select collect_pairs('acme', 'default', 'm')")
    db.execute("select undo(%s, tenant_id => 'acme')", [fold.event_id])
    ingest(db, "User is on holiday", valid_from="2025-01-01", valid_until="2025-02-01")
    ingest(db, "elsewhere", bucket_id="other")
    return first


def exported(db: DB, bucket: str = "default") -> list[Any]:
    """The lines of an export of a bucket of tenant acme."""
    return [row[0] for row in db.execute("select export_bucket('acme', %s)", [bucket]).fetchall()]


def imported(
    db: DB, lines: list[Any], size: int = 7, tenant: str = "acme", bucket: str = "default", rules: bool = True
) -> int:
    """Import lines, several in a call; the number of rows that were written."""
    rows = 0
    with db.transaction():
        for i in range(0, len(lines), size):
            call = "select memfold.import_bucket(tenant_id => %s, bucket_id => %s, rules => %s, lines => %s::jsonb)"
            rows += one(db, call, tenant, bucket, rules, json.dumps(lines[i : i + size]))
    return rows
