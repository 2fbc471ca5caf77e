"""check_invariants() notices each kind of damage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

DAMAGE = [
    ("update memory_counters set observations = observations + 1", "counters of a text: observations"),
    ("update memory_counters set independent = independent + 1", "counters of a text: independent"),
    ("update memory_counters set aliases = 7", "memory: aliases"),
    ("update memory_counters set source_confidence = 0.123", "counters of a text: source_confidence"),
    ("update memory_counters set extractor_confidence = 0.123", "counters of a text: extractor_confidence"),
    ("update memory_counters set first_seen = '2001-01-01'", "counters of a text: first_seen"),
    ("update memory_counters set last_seen = '2001-01-01'", "counters of a text: last_seen"),
    ("update memory_counters set alias_observations = 7", "counters of a tree: observations"),
    ("update memory_counters set alias_independent = 7", "counters of a tree: independent"),
    ("update memory_counters set alias_source_confidence = 1", "memory: alias_source_confidence"),
    ("update memory_counters set alias_first_seen = '2001-01-01'", "counters of a tree: first_seen"),
    ("update memory_counters set root_id = null", "counters: root_id"),
    ("update memory_counters set on_timeline = not on_timeline", "on a timeline"),
    ("update memory_counters set is_additive = not is_additive", "additive"),
    ("update memories set metadata = '{\"x\": 1}'", "memory: metadata"),
    ("update memories set status = 'withdrawn' where status = 'active'", "memory: status"),
    ("update memories set status = 'active', merged_into = null, root_id = null", "memory: merged_into"),
    ("update memory_vectors set is_live = not is_live", "vector: is_live"),
    ("update memory_vectors set scope_key = md5(scope_key::text)::uuid", "vector: scope_key"),
    ("update memory_vectors set bucket_id = 'x'", "vector: bucket_id"),
    ("update memory_vectors set embedding = '[2,0,0,0]'", "vector: norm"),
    ("update memory_vectors set memory_id = md5(memory_id::text)::uuid", "vector: memory exists"),
    ("update memory_counters set memory_id = md5(memory_id::text)::uuid", "counters: memory exists"),
    ("delete from memory_sources", "source"),
    (
        "insert into memory_sources select tenant_id, 'x', memory_id, gen_random_uuid() from memories limit 1",
        "source",
    ),
    ("update memory_sources set event_id = md5(event_id::text)::uuid", "source: first event"),
    ("update memory_intervals set valid_to = '2001-01-01'", "interval"),
    ("delete from memory_intervals", "interval"),
    ("update idempotency_keys set event_id = null", "idempotency key: ledger row exists"),
    ("set memfold.maintenance = on; delete from memory_events", "memory: status"),
    (
        "set memfold.maintenance = on; update memory_events set memory_id = md5(memory_id::text)::uuid",
        "ledger: memory exists",
    ),
    (
        "insert into memory_events (tenant_id, bucket_id, action, tier, method, memory_id, target_id, actor)"
        " select tenant_id, bucket_id, 'merged', 3, 'person', root_id, memory_id, 'x' from memories"
        " where root_id is not null",
        "memory: leads to a root",
    ),
]


@pytest.mark.parametrize(("statement", "invariant"), DAMAGE)
def test_damage_is_noticed(db: DB, statement: str, invariant: str) -> None:
    model(db)
    db.execute("select set_predicate('works_at', 'acme')")
    ingest(db, "User prefers dark mode", source_turn_ids=["t"], idempotency_key="k", **vector(1.0))
    ingest(db, "The user likes dark mode best", **vector(0.95))
    for place in ("VW", "Stripe"):
        ingest(db, f"Ann works at {place}", subject="Ann", predicate="works_at", object=place)
    check(db)
    db.execute(statement)
    found = {row[0] for row in db.execute("select invariant from check_invariants('acme')").fetchall()}
    assert invariant in found


def test_a_waiting_plain_row_is_not_damage(db: DB) -> None:
    db.execute(
        "insert into memories (tenant_id, content, metadata) values ('acme', 'User likes tea', '{\"a\": 1}')"
    )
    check(db)
    # an invalid row is still damage, and so is any difference once it was ingested
    db.execute("update memories set status = 'superseded'")
    assert db.execute("select invariant from check_invariants('acme')").fetchall() == [("memory: status",)]
    db.execute("update memories set status = 'active'")
    assert db.execute("select (ingest_plain_rows('acme')).ingested").fetchone() == (1,)
    check(db)
    db.execute("update memories set metadata = '{}', is_ingested = false")
    assert db.execute("select invariant from check_invariants('acme')").fetchall() == [("memory: metadata",)]


def plain(db: DB, content: str) -> Any:
    row = db.execute(
        "insert into memories (tenant_id, bucket_id, memory_type, content) values ('acme', 'default', 'fact', %s)"
        " returning memory_id",
        [content],
    ).fetchone()
    assert row is not None
    return row[0]


def test_a_plain_row_that_is_recalled_waits_on(db: DB) -> None:
    plain(db, "Ann has a cat")
    assert ingest(db, "Ann has a cat", origin="recalled").action == "merged"
    check(db)
    assert db.execute("select (ingest_plain_rows('acme')).ingested").fetchone() == (1,)
    check(db)


@pytest.mark.parametrize("kind", ["review", "synthesis"])
def test_a_plain_row_that_is_told_apart_keeps_waiting(db: DB, kind: str) -> None:
    made = [plain(db, "Ann has a cat"), ingest(db, "Ann has a pet", subject="Ann").memory_id]
    asked = db.execute(
        "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id)"
        " values ('acme', 'default', gen_random_uuid(), %s, %s, %s) returning judgement_id",
        [kind, *sorted(made, reverse=True)],
    ).fetchone()
    assert asked is not None
    verdict = "distinct" if kind == "review" else "duplicate"
    db.execute("select resolve_judgement(%s, %s, tenant_id => 'acme')", [asked[0], verdict])
    assert db.execute("select distinct status from memories").fetchall() == [("active",)]
    check(db)
    assert db.execute("select (ingest_plain_rows('acme')).ingested").fetchone() == (1,)
    check(db)


def test_a_plain_row_that_meets_a_tombstone_in_a_rehash_waits_on(db: DB) -> None:
    rejected = ingest(db, "Ann has a cat")
    db.execute("select reject_memory(%s, 'acme', null)", [rejected.memory_id])
    plain(db, "Ann has a (cat)")
    db.execute("call rehash_bucket('acme', 'default', canonicalizer => 'flat/1')")
    check(db)
