"""Adoption of the tables that memory libraries make: mem0's and langchain's, as their DDL and rows are."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.types.json import Json

from memfold.adopt import conflict_of
from memfold.client.errors import MemoryHashConflict
from memfold.tools.cli import main
from tests.support.queries import DB, one

pytestmark = pytest.mark.core

# mem0, vector_stores/pgvector: a collection is a table.
MEM0 = """
create table mem0 (id uuid primary key, vector vector(4), payload jsonb);
create index mem0_hnsw_idx on mem0 using hnsw (vector vector_cosine_ops);
"""
# langchain-postgres, PGVector: collections and their documents.
LANGCHAIN = """
create table langchain_pg_collection (uuid uuid not null primary key, name varchar not null unique, cmetadata json);
create table langchain_pg_embedding (
    id varchar not null primary key,
    collection_id uuid references langchain_pg_collection (uuid) on delete cascade,
    embedding vector,
    document varchar,
    cmetadata jsonb
);
create index ix_cmetadata_gin on langchain_pg_embedding using gin (cmetadata jsonb_path_ops);
create unique index ix_langchain_pg_embedding_id on langchain_pg_embedding (id);
"""
FACTS = ["Likes {} tea.", "likes  {} tea", "Lives at number {}", "Has {} cats!"]


def run(dsn: str, *arguments: str) -> str:
    result = CliRunner(env={"MEMFOLD_DSN": dsn}).invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def mem0_insert(db: DB, data: str, user: str, when: int = 0) -> uuid.UUID:
    """As mem0 inserts: the text, its MD5 and its owner in the payload, an id of version 4."""
    made = uuid.uuid4()
    payload = {"data": data, "hash": "5d41402abc4b2a76b9719d911017c592", "user_id": user,
               "created_at": f"2025-06-{1 + when % 28:02}T10:00:00.123456-07:00"}  # fmt: skip
    db.execute(
        "insert into mem0 (id, vector, payload) values (%s, %s, %s)", [made, "[1,2,3,4]", json.dumps(payload)]
    )
    return made


def test_mem0(db: DB, dsn: str) -> None:
    db.execute("set search_path = public, memfold")
    db.execute(MEM0.encode())
    for n in range(400):
        mem0_insert(db, FACTS[n % 4].format(n % 40 // 4), f"user-{n % 3}", n)
    # mem0 stores a memory of an agent without a user
    db.execute(
        "insert into mem0 values (%s, '[1,2,3,4]', %s)",
        [uuid.uuid4(), '{"data": "Is helpful.", "agent_id": "a"}'],
    )
    options = ["--table", "mem0", "--content", "payload->>'data'", "--tenant", "payload->>'user_id'",
               "--created", "(payload->>'created_at')::timestamptz"]  # fmt: skip
    assert "'Likes" in run(dsn, "adopt", "plan", *options)
    said = run(dsn, "adopt", "run", *options, "--confirm")
    assert "1 rows have no hash: no tenant" in said
    texts = len(
        {
            FACTS[n % 4].format(n % 40 // 4).lower().replace("  ", " ").strip(".!") + str(n % 3)
            for n in range(400)
        }
    )
    assert one(db, "select count(*) from mem0 where content_hash is not null") == texts
    # the oldest of each, and its vector, as it was
    younger = (
        "select count(*) from mem0 m join adoption_archive a on (a.kept_key ->> 'id')::uuid = m.id"
        " where (a.row_data ->> 'payload')::jsonb ->> 'created_at' < m.payload ->> 'created_at'"
    )
    assert one(db, younger) == 0
    vectors = "select count(*) from adoption_archive where row_data ->> 'vector' = '[1,2,3,4]'"
    assert one(db, vectors) == 400 - texts
    # mem0's own statements go on: what is new, what is changed, what is there already
    new = mem0_insert(db, "Plays the cello.", "user-1")
    with pytest.raises(psycopg.errors.UniqueViolation) as error:
        mem0_insert(db, "plays the  CELLO", "user-1")
    conflict = conflict_of(
        db, error.value, {"payload": Json({"data": "plays the  CELLO", "user_id": "user-1"})}
    )
    assert isinstance(conflict, MemoryHashConflict)
    assert conflict.existing_id == new
    mem0_insert(db, "plays the  CELLO", "user-2")
    db.execute("update mem0 set vector = '[4,3,2,1]' where id = %s", [new])
    db.execute(
        "update mem0 set payload = %s where id = %s",
        ['{"data": "Plays the harp.", "user_id": "user-1"}', new],
    )
    assert mem0_insert(db, "Plays the cello.", "user-1") != new
    found = db.execute(
        "select id, deduped from insert_public_mem0(id => %s, vector => '[1,1,1,1]', payload => %s)",
        [uuid.uuid4(), '{"data": "PLAYS the harp", "user_id": "user-1"}'],
    ).fetchone()
    assert found == (new, True)


def langchain_add(db: DB, collection: uuid.UUID, texts: list[str], user: str) -> list[str]:
    """As langchain's add_documents does: an id of version 4 as text, ON CONFLICT (id) DO UPDATE."""
    ids = [str(uuid.uuid4()) for _ in texts]
    for made, document in zip(ids, texts, strict=True):
        db.execute(
            "insert into langchain_pg_embedding (id, collection_id, embedding, document, cmetadata)"
            " values (%s, %s, '[1,2,3]', %s, %s) on conflict (id) do update set embedding = excluded.embedding,"
            " document = excluded.document, cmetadata = excluded.cmetadata",
            [made, collection, document, json.dumps({"user_id": user, "turn": made[:4]})],
        )
    return ids


def test_langchain(db: DB, dsn: str) -> None:
    db.execute("set search_path = public, memfold")
    db.execute(LANGCHAIN.encode())
    collections = [uuid.uuid4(), uuid.uuid4()]
    for n, one_collection in enumerate(collections):
        db.execute("insert into langchain_pg_collection values (%s, %s, '{}')", [one_collection, f"c{n}"])
    for n in range(300):
        langchain_add(db, collections[n % 2], [FACTS[n % 4].format(n % 40 // 4)], f"user-{n % 3}")
    options = ["--table", "langchain_pg_embedding", "--content", "document", "--tenant", "collection_id",
               "--bucket", "cmetadata->>'user_id'"]  # fmt: skip
    run(dsn, "adopt", "run", *options, "--confirm")
    texts = {
        (n % 2, n % 3, FACTS[n % 4].format(n % 40 // 4).lower().replace("  ", " ").strip(".!"))
        for n in range(300)
    }
    assert one(db, "select count(*) from langchain_pg_embedding") == len(texts)
    index = one(db, "select pg_get_indexdef('langchain_pg_embedding_memfold_key'::regclass)")
    assert "(collection_id, ((cmetadata ->> 'user_id'::text)), content_hash)" in index
    ids = langchain_add(db, collections[0], ["A new document."], "user-1")
    with pytest.raises(psycopg.errors.UniqueViolation) as error:
        langchain_add(db, collections[0], ["a new DOCUMENT"], "user-1")
    row: dict[str, Any] = {"collection_id": collections[0], "document": "a new DOCUMENT",
                           "cmetadata": Json({"user_id": "user-1"})}  # fmt: skip
    conflict = conflict_of(db, error.value, row)
    assert isinstance(conflict, MemoryHashConflict)
    assert conflict.existing_id == ids[0]
    # the same id again is an update, as before
    db.execute(
        "insert into langchain_pg_embedding (id, collection_id, document, cmetadata) values (%s, %s, %s, %s)"
        " on conflict (id) do update set document = excluded.document",
        [ids[0], collections[0], "Another document.", '{"user_id": "user-1"}'],
    )
    assert one(db, "select content_hash = memfold.adopted_hash('another document', 'prose/1')"
                   " from langchain_pg_embedding where id = %s", ids[0])  # fmt: skip
    # a collection that is dropped takes its documents with it, as before
    db.execute("delete from langchain_pg_collection where uuid = %s", [collections[0]])
    assert (
        one(db, "select count(*) from langchain_pg_embedding where collection_id = %s", collections[0]) == 0
    )


@pytest.mark.parametrize(
    ("ddl", "fill", "options"),
    [
        (MEM0, lambda db: mem0_insert(db, "Has a cat.", "u1"),
         ["--content", "payload->>'data'", "--tenant", "payload->>'user_id'", "--table", "mem0"]),
        (LANGCHAIN, lambda db: langchain_add(db, None, ["Has a cat."], "u1"),  # type: ignore[arg-type]
         ["--content", "document", "--tenant", "cmetadata->>'user_id'", "--table", "langchain_pg_embedding"]),
    ],
    ids=["mem0", "langchain"],
)  # fmt: skip
def test_import(db: DB, dsn: str, ddl: str, fill: Callable[[DB], Any], options: list[str]) -> None:
    db.execute("set search_path = public, memfold")
    db.execute(ddl.encode())
    fill(db)
    fill(db)
    said = run(dsn, "import", *options)
    assert "inserted" in said
    assert "merged" in said
    row = db.execute("select content, subject, metadata from memories where tenant_id = 'u1'").fetchall()
    assert [found[0] for found in row] == ["Has a cat."]
    assert row[0][2]["imported_from"]["table"] == f"public.{options[-1]}"
