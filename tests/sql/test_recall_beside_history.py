"""Recall and find_similar with former values: they take no places from current ones."""

from __future__ import annotations

import pytest

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB


@pytest.fixture
def history(db: DB) -> DB:
    """59 former values of a slot and the current one, all nearer to the query than ten other facts."""
    model(db)
    db.execute("select memfold.set_policy('acme', 'default', guard => 'off', merge_threshold => 0.99999)")
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    for i in range(60):
        ingest(
            db,
            f"Lives in town {i}",
            subject="ann",
            predicate="lives_in",
            object=f"town {i}",
            **vector(0.99 - i / 1000),
        )
    for i in range(10):
        ingest(db, f"Likes dish {i}", **vector(0.8 - i / 50))
    assert db.execute("select count(*) from memories where status = 'superseded'").fetchone() == (59,)
    return db


def test_former_values_take_no_place(history: DB) -> None:
    for limit in (1, 5, 11, 20):
        found = history.execute(
            "select content from search_memories(tenant_id => 'acme', query_embedding => '[1,0,0,0]',"
            " embedding_model => 'm', max_results => %s, deduplicate => false)",
            [limit],
        ).fetchall()
        expected = ["Lives in town 59", *(f"Likes dish {i}" for i in range(10))][:limit]
        assert sorted(text for (text,) in found) == sorted(expected)


def test_expired_facts_take_no_place(db: DB) -> None:
    model(db)
    db.execute("select memfold.set_policy('acme', 'default', guard => 'off', merge_threshold => 0.99999)")
    for i in range(40):
        ingest(db, f"Trip {i}", valid_until="2020-01-01", **vector(0.99 - i / 1000))
    for i in range(6):
        ingest(db, f"Likes dish {i}", **vector(0.8 - i / 50))
    found = db.execute(
        "select content from search_memories(tenant_id => 'acme', query_embedding => '[1,0,0,0]',"
        " embedding_model => 'm', max_results => 5, deduplicate => false)"
    ).fetchall()
    assert len(found) == 5
    check(db)


def test_find_similar_finds_the_active_ones(history: DB) -> None:
    for scope in ("", ", memory_type => 'fact', subject => 'ann', predicate => 'lives_in'"):
        for limit in (1, 5, 20):
            found = history.execute(
                "select content, complete from find_similar('[1,0,0,0]', 'm', 'acme', threshold => 0.3,"
                f" max_results => %s{scope})".encode(),
                [limit],
            ).fetchall()
            assert found[0] == ("Lives in town 59", True)
            assert len(found) == (1 if scope else min(limit, 11))


def test_a_threshold_ends_no_search_of_several_buckets(db: DB) -> None:
    """min_similarity ends the widening when something was too far, not when a page was full of duplicates."""
    model(db)
    db.execute("select memfold.set_policy('acme', '*', guard => 'off', merge_threshold => 0.99999)")
    for bucket in ("a", "b"):
        for i in range(8):
            ingest(db, f"Likes tea {i}", bucket_id=bucket, **vector(0.99 - i / 200))
        ingest(db, f"Likes dish {bucket}", bucket_id=bucket, **vector(0.5))
    shown = {}
    for least in (None, 0.3):
        shown[least] = db.execute(
            "select content from search_memories(tenant_id => 'acme', bucket_ids => '{a,b}',"
            " query_embedding => '[1,0,0,0]', embedding_model => 'm', max_results => 2, min_similarity => %s)",
            [least],
        ).fetchall()
    assert len(shown[None]) == 2
    assert shown[0.3] == shown[None]
