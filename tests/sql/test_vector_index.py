"""create_vector_index, and bucket-wide tier 2 through it: in buckets that are too large to be searched exactly."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

from tests.conftest import Connect, Make
from tests.support.concurrent_calls import together
from tests.support.memories import ingest
from tests.support.queries import DB
from tests.support.vectors import DIMENSIONS, LIMIT, Scans, limit, load, noise, text, unit

pytestmark = pytest.mark.new_database

SIMILAR = (
    "select memory_id, similarity from memfold.find_similar("
    "tenant_id => %s, bucket_id => %s, embedding => %s::vector, embedding_model => 'm', threshold => -1)"
)


@pytest.fixture
def wide(db: DB) -> DB:
    """Tenants acme (large, and the nearest to everything) and globex (1 in 40), bucket-wide."""
    limit(db)
    db.execute("select register_embedding_model('m', %s, 0.92, 0.85)", [DIMENSIONS])
    for tenant in ("acme", "globex"):
        db.execute("select set_policy(%s, 'wide', scope => 'bucket', guard => 'off')", [tenant])
    return db


@pytest.mark.parametrize(
    "statement", ["select memfold.create_vector_index('m')", "select memfold.create_text_index('english')"]
)
def test_two_at_a_time_build_one_index(wide: DB, connect: Connect, statement: str) -> None:
    load(wide, "acme", noise(2000, 3))
    together([connect() for _ in range(3)], lambda _, db: db.execute(statement.encode()) and None)


def best(vectors: Any, query: Any) -> int:
    return int(np.argmax(unit(vectors) @ unit(query)))


def test_the_whole_bucket_is_searched_through_the_index(wide: DB, app: Connect) -> None:
    vectors = noise(1500, 1)
    ids = load(wide, "acme", vectors)
    mine = app("acme")
    oldest = text(vectors[0])
    # without it, the newest ones are compared
    assert mine.execute(SIMILAR, ["acme", "wide", oldest]).fetchall()[0][0] in ids[-LIMIT:]
    wide.execute("select create_vector_index('m')")
    with Scans(mine) as scans:
        assert mine.execute(SIMILAR, ["acme", "wide", oldest]).fetchall()[0] == (ids[0], 1.0)
    assert scans.count == 1  # as the application's role, under row level security
    for query in noise(60, 2):
        found = mine.execute(SIMILAR, ["acme", "wide", text(query)]).fetchall()
        assert found[0][0] == ids[best(vectors, query)]
        assert len(found) == len(set(found)) == 20
        assert [row[1] for row in found] == sorted((row[1] for row in found), reverse=True)


def test_up_to_the_limit_a_bucket_is_searched_exactly(wide: DB, app: Connect) -> None:
    load(wide, "globex", noise(400, 1))
    vectors = noise(LIMIT + 1, 2)
    ids = load(wide, "acme", vectors[:LIMIT])
    wide.execute("select create_vector_index('m')")
    mine = app("acme")
    for _ in range(2):
        with Scans(mine) as scans:
            assert mine.execute(SIMILAR, ["acme", "wide", text(vectors[0])]).fetchall()[0] == (ids[0], 1.0)
        assert scans.count == int(len(ids) > LIMIT)
        ids += load(wide, "acme", vectors[LIMIT:])


def test_a_small_tenant_finds_its_own(wide: DB, app: Connect) -> None:
    """Most near vectors belong to another tenant; some of its own belong to another bucket."""
    load(wide, "acme", noise(2340, 1))
    vectors = noise(LIMIT + 10, 2)
    ids = load(wide, "globex", vectors)
    load(wide, "globex", vectors, bucket="another")
    wide.execute("select create_vector_index('m')")
    mine = app("globex")
    for query in noise(60, 3):
        with Scans(mine) as scans:
            found = mine.execute(SIMILAR, ["globex", "wide", text(query)]).fetchall()
        assert scans.count == 1
        assert found[0][0] == ids[best(vectors, query)]
        assert len(found) == 20
        assert {row[0] for row in found} <= set(ids)


def test_where_the_index_gives_up_the_newest_are_compared(wide: DB, app: Connect) -> None:
    limit(wide, 5)
    ids = load(wide, "acme", noise(8, 1))
    wide.execute("select create_vector_index('m')")
    mine = app("acme")
    found = mine.execute(SIMILAR, ["acme", "wide", text(noise(1, 2)[0])]).fetchall()
    # 20 are asked for, 8 there: each once, whichever way it was found
    assert sorted(row[0] for row in found) == sorted(ids)


def test_preview_equals_ingest_and_one_transaction_sees_its_own(wide: DB, app: Connect) -> None:
    vectors = noise(300, 1)
    ids = load(wide, "acme", vectors)
    wide.execute("select create_vector_index('m')")
    mine = app("acme")
    fresh = noise(40, 4)
    actions = []
    with Scans(mine) as scans:
        for i, query in enumerate([*vectors[:20], *fresh, *fresh]):
            given = {"bucket_id": "wide", "embedding": text(query), "embedding_model": "m"}
            said = ingest(mine, f"text {i}", function="preview_memory", **given)
            done = ingest(mine, f"text {i}", **given)
            assert (said.action, said.similarity, said.similar) == (
                done.action,
                done.similarity,
                done.similar,
            )
            actions.append((done.action, done.memory_id))
    assert scans.count == 2 * len(actions)
    assert actions[:20] == [("merged", id_) for id_ in ids[:20]]
    # what is there twice was found the second time, unless the first had found something near as well
    first, second = actions[20:60], actions[60:]
    assert sum(action == "inserted" for action, _ in first) > 10
    assert second == [("merged", id_) for _, id_ in first]


def test_later_ones_of_a_batch_are_not_there_yet(wide: DB) -> None:
    vectors = noise(300, 1)
    ids = load(wide, "acme", vectors)
    wide.execute("select create_vector_index('m')")
    wide.execute("set memfold.tenant_id = 'acme'")
    hidden = (
        "select root_id from memfold_internal._knn_dedup('acme', 'wide', null, memfold_internal._unit(%s::vector), 'm', %s,"
        " 20, -1, null, %s, %s)"
    )
    with Scans(wide) as scans:
        found = wide.execute(hidden, [text(vectors[250]), LIMIT, ids[199], ids[299]]).fetchall()
    assert scans.count == 1
    assert len(found) == 20
    assert {row[0] for row in found} <= set(ids[:200])
    # nor do they count
    with Scans(wide) as scans:
        found = wide.execute(hidden, [text(vectors[250]), LIMIT, ids[LIMIT - 1], ids[299]]).fetchall()
    assert scans.count == 0
    assert {row[0] for row in found} <= set(ids[:LIMIT])


def test_no_setting_outlives_the_search(wide: DB, app: Connect) -> None:
    vectors = noise(200, 1)
    load(wide, "acme", vectors)
    wide.execute("select create_vector_index('m')")
    names = ["hnsw.iterative_scan", "hnsw.ef_search", "hnsw.max_scan_tuples", "hnsw.scan_mem_multiplier"]
    settings = sql.SQL("select {}").format(
        sql.SQL(", ").join(sql.SQL("current_setting({}, true)").format(n) for n in [*names, "enable_sort"])
    )
    # the vector comes from a table, so that pgvector's library is not loaded before
    stored = (
        "select f.memory_id from (select embedding from memfold.memory_vectors limit 1) as v,"
        " memfold.find_similar(v.embedding, 'm', 'acme', 'wide', -1) as f"
    )
    mine = app("acme")
    with mine.transaction():
        assert mine.execute(settings).fetchone() == (None, None, None, None, "on")
        assert len(mine.execute(stored).fetchall()) == 20
        assert mine.execute(settings).fetchone() == ("off", "40", "20000", "1", "on")
        mine.execute("set local hnsw.ef_search = 77")
        assert len(mine.execute(stored).fetchall()) == 20
        assert mine.execute(settings).fetchone() == ("off", "77", "20000", "1", "on")


def index(db: DB) -> int:
    """The index of model m, which is there and valid."""
    row = db.execute(
        "select indexrelid::bigint, indisvalid from pg_index"
        " where indexrelid = to_regclass('memfold.' || memfold_internal._vector_index_name('m'))"
    ).fetchone()
    assert row is not None
    oid, valid = row
    assert valid
    return int(oid)


def test_made_once_and_an_invalid_leftover_replaced(wide: DB) -> None:
    vectors = noise(200, 1)
    ids = load(wide, "acme", vectors)

    def statements() -> list[str]:
        return [row[0] for row in wide.execute("select vector_index_ddl('m')").fetchall()]

    assert [line.split(" concurrently")[0] for line in statements()] == ["create index"]
    wide.execute("select create_vector_index('m')")
    made = index(wide)
    wide.execute("select create_vector_index('m')")
    assert index(wide) == made
    assert statements() == []

    interrupted = "update pg_index set indisvalid = false where indexrelid = %s::bigint::oid"
    wide.execute(interrupted, [made])
    # it is not searched
    found = wide.execute(SIMILAR, ["acme", "wide", text(vectors[0])]).fetchall()
    assert {row[0] for row in found} <= set(ids[-LIMIT:])
    wide.execute("select create_vector_index('m')")
    again = index(wide)
    assert again != made

    wide.execute(interrupted, [again])
    assert [line.split(" concurrently")[0] for line in statements()] == ["drop index", "create index"]
    for statement in statements():
        wide.execute(statement.encode())
    assert index(wide) not in (made, again)
    assert wide.execute(SIMILAR, ["acme", "wide", text(vectors[0])]).fetchall()[0][0] == ids[0]


@pytest.mark.parametrize("call", ["create_vector_index", "vector_index_ddl"])
def test_refused(wide: DB, app: Connect, call: str) -> None:
    wide.execute(
        "select register_embedding_model('huge', 4001, 0.92, 0.85), register_embedding_model('it''s', 4000, 0.92, 0.85)"
    )
    for name, state, detail in (
        ("nope", "MF013", "'nope' is not registered. Registered models: huge, it's, m."),
        (None, "MF013", "NULL is not registered. Registered models: huge, it's, m."),
        ("huge", "MF037", "'huge' has 4001."),
    ):
        with pytest.raises(psycopg.Error) as error:
            wide.execute(f"select {call}(%s)", [name])
        assert (error.value.sqlstate, error.value.diag.message_detail) == (state, detail)
        assert error.value.diag.message_hint
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app("acme").execute(f"select memfold.{call}('m')")
    wide.execute("set role memfold_owner")
    wide.execute(f"select memfold.{call}('it''s'); reset role")


def test_more_than_2000_dimensions(db: DB, app: Connect) -> None:
    limit(db, 3)
    db.execute("select register_embedding_model('m', 2500, 0.92, 0.85), create_vector_index('m')")
    rows = np.random.default_rng(1).standard_normal((30, 2500))
    ids = load(db, "acme", rows)
    mine = app("acme")
    with Scans(mine) as scans:
        assert mine.execute(SIMILAR, ["acme", "wide", text(rows[0])]).fetchone() == (ids[0], 1.0)
    assert scans.count == 1


@pytest.mark.one_server
def test_pgvector_in_another_schema(make: Make) -> None:
    with psycopg.connect(make("alembic", vector_schema="ext"), autocommit=True) as db:
        limit(db, 10)
        db.execute("select memfold.register_embedding_model('m', %s, 0.92, 0.85)", [DIMENSIONS])
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as error:
            db.execute("select memfold.create_vector_index('m')")
        assert error.value.diag.message_hint == "Run: grant usage on schema ext to memfold_owner"
        db.execute("grant usage on schema ext to memfold_owner; set search_path = ext")
        db.execute("select memfold.create_vector_index('m')")
        vectors = noise(40, 1)
        ids = load(db, "acme", vectors)
        for schema in ("ext", "moved"):
            if schema == "moved":
                db.execute(
                    "create schema moved; grant usage on schema moved to memfold_owner;"
                    " alter extension vector set schema moved; set search_path = moved"
                )
            with Scans(db) as scans:
                assert db.execute(SIMILAR, ["acme", "wide", text(vectors[0])]).fetchone() == (ids[0], 1.0)
            assert scans.count == 1


def test_batches_equal_singles(wide: DB, app: Connect) -> None:
    vectors = noise(300, 1)
    ids = load(wide, "acme", vectors)
    load(wide, "globex", vectors)
    wide.execute("select create_vector_index('m')")
    queries = [*vectors[:10], *noise(20, 4), *noise(20, 4), *vectors[5:15]]
    candidates = [
        {"content": f"text {i}", "bucket_id": "wide", "embedding": text(q), "embedding_model": "m"}
        for i, q in enumerate(queries)
    ]
    mine = app("acme")
    rows = mine.execute(
        "select action, similarity, memory_id from memfold.ingest_memories(%s::jsonb, 'acme')",
        [json.dumps(candidates)],
    ).fetchall()
    other = app("globex")
    singles = [ingest(other, c.pop("content"), tenant_id="globex", **c) for c in candidates]
    assert [row[:2] for row in rows] == [(one.action, one.similarity) for one in singles]
    assert [row[2] for row in rows[:10]] == ids[:10]
