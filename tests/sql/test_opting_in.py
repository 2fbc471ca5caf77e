"""dedup => 'off', and then on: what was stored in between is deduplicated like everything else."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB


def rows(db: DB) -> list[tuple[str, str, bool]]:
    return db.execute(
        "select content, status, content_hash is not null from memories where tenant_id = 'acme' order by memory_id"
    ).fetchall()


@pytest.mark.parametrize("bucket", ["default", "*"])
def test_texts_stored_without_dedup_are_deduplicated(db: DB, bucket: str) -> None:
    model(db)
    db.execute("select set_predicate('drinks', 'acme')")
    db.execute("select set_policy('acme', %s, dedup => 'off')", [bucket])
    told = {"subject": "Kim"}
    ingest(db, "Kim likes tea", **told, **vector(1.0))
    ingest(db, "Kim loves tea", **told, **vector(0.99))
    ingest(db, "Kim likes tea.", **told)
    ingest(db, "Kim drinks tea", **told, predicate="drinks", object="tea", observed_at="2026-01-01")
    ingest(db, "Kim drinks juice", **told, predicate="drinks", object="juice", observed_at="2026-01-02")
    db.execute("select set_policy('acme', %s, dedup => 'on')", [bucket])
    assert rows(db) == [
        ("Kim likes tea", "active", True),
        ("Kim loves tea", "active", True),
        ("Kim likes tea.", "merged", False),
        ("Kim drinks tea", "superseded", True),
        ("Kim drinks juice", "active", True),
    ]
    check(db)
    missing = db.execute("select content from memories where embedding_pending").fetchall()
    assert {content for (content,) in missing} == {"Kim drinks tea", "Kim drinks juice"}
    assert ingest(db, "kim likes  tea", **told).method == "hash"
    merged = db.execute(
        "select content from sweep_duplicates('acme', 'default', dry_run => false)"
    ).fetchall()
    assert merged == [("Kim loves tea",)]
    check(db)


def test_a_type_that_stays_off_stays_as_it_is(db: DB) -> None:
    db.execute("select set_policy('acme', dedup => 'off')")
    db.execute("select set_policy('acme', memory_type => 'log', dedup => 'off')")
    for kind in "fact", "log":
        ingest(db, "Kim likes tea", memory_type=kind)
        ingest(db, "Kim likes tea", memory_type=kind)
    db.execute("select set_policy('acme', dedup => 'on')")
    assert [row[1:] for row in rows(db)] == [
        ("active", True), ("merged", False), ("active", False), ("active", False),
    ]  # fmt: skip
    check(db)


def test_maintenance_processes_the_rest(db: DB) -> None:
    db.execute("select set_policy('acme', dedup => 'off')")
    told = [{"content": f"Kim has tea {n % 701}"} for n in range(1_402)]
    for start in 0, 701:
        db.execute("select * from ingest_memories(%s, 'acme')", [Jsonb(told[start : start + 701])])
    db.execute("select set_policy('acme', dedup => 'on')")
    check(db)
    db.execute("call run_maintenance_all()")
    states = db.execute(
        "select status, content_hash is not null, count(*) from memories group by 1, 2 order by 1"
    )
    assert states.fetchall() == [("active", True, 701), ("merged", False, 701)]
    check(db)
