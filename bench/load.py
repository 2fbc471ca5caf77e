"""Loads very many memories directly into memfold's tables, as if each had come through ingest_memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dataset
import harness
import numpy as np
import psycopg
from pgvector.psycopg import register_vector

SCOPE = 20  # memories per subject
Row = tuple[int, str, str, Any]  # running number, subject, content, embedding

# The table of candidates: the measured statement reads them by id, so that no vector is sent.
POOL = """
create table bench.pool (id bigint primary key, subject text collate "C", content text, embedding vector);
grant select on bench.pool to bench_app
"""

# Foreign keys hold by construction; checks and generated columns are computed as usual.
LOAD = """
set session_replication_role = replica;
set synchronize_seqscans = off;
set synchronous_commit = off;

create temp table scopes as
select s.subject, memfold_internal._scope_key('default', 'fact', s.subject, null) as scope_key
from (select distinct subject from bench.staged) as s;
analyze scopes;

insert into memfold.memories (tenant_id, memory_id, subject, content, canonicalizer, key_fields, is_ingested)
select {tenant}, s.memory_id, s.subject, s.content, 'prose/1', 'type,subject,predicate', true from bench.staged as s;

insert into memfold.memory_counters (
    tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence,
    first_seen, last_seen
)
select {tenant}, s.memory_id, 1, 1, 0.5, 0.5, s.at, s.at from bench.staged as s;

insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
select {tenant}, s.memory_id, 'bench', 'default', k.scope_key, s.embedding
from bench.staged as s join scopes as k on k.subject = s.subject;

insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
select {tenant}, 'loaded-' || s.id, s.memory_id, s.memory_id from bench.staged as s;

insert into memfold.memory_events (
    tenant_id, event_id, recorded_at, bucket_id, action, memory_id, observation, content, memory_type, subject,
    source_turn_ids, source_confidence, extractor_confidence, origin, metadata, observed_at, actor
)
select {tenant}, s.memory_id, s.at, 'default', 'inserted', s.memory_id, true, s.content, 'fact', s.subject,
    array['loaded-' || s.id], 0.5, 0.5, 'observed', '{{}}', s.at, 'bench'
from bench.staged as s;

drop table bench.staged, scopes;
"""


def variants(data: dataset.Dataset, subjects: int, memories: int, seed: int = 1) -> Iterator[Row]:
    """Memory n belongs to subject n % subjects: all memories of a subject are noise around one real vector.

    Its texts are variants of the text of that vector, and they lie in the table as if they had arrived in order: far
    from one another.
    """
    n = 0
    for turn in range(-(-memories // subjects)):
        some = min(subjects, memories - n)
        for i, embedding in enumerate(variant(data, some, turn, seed)):
            text = data.real_texts[i]
            yield n, f"Subject {i}", f"{text} (variant {turn})" if turn else text, embedding
            n += 1


def variant(data: dataset.Dataset, count: int, turn: int, seed: int = 1) -> dataset.Floats:
    """The first vectors of a round, as ``Dataset.vectors`` makes them, without making the others."""
    real: dataset.Floats = np.array(data.real_vectors[:count])
    return around(real, dataset.COSINE, [seed, turn]) if turn else real


def around(centre: dataset.Floats, cosine: float, seed: int | list[int]) -> dataset.Floats:
    """One unit vector at about this cosine from each row."""
    noise = np.random.default_rng(seed).standard_normal(centre.shape, dtype=np.float32)
    scale = np.float32(np.sqrt((1 / cosine**2 - 1) / centre.shape[1]))
    rows: dataset.Floats = centre + scale * noise
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


COLUMNS = {"id": "int8", "subject": "text", "content": "text", "embedding": "vector"}


def copy(
    connection: psycopg.Connection[Any],
    table: str,
    rows: Iterable[tuple[Any, ...]],
    columns: Mapping[str, str] = COLUMNS,
) -> None:
    """COPY rows into these columns, given with their types."""
    register_vector(connection)
    with (
        connection.cursor() as cursor,
        cursor.copy(f"copy {table} ({', '.join(columns)}) from stdin (format binary)".encode()) as sink,
    ):
        sink.set_types([*columns.values()])
        for row in rows:
            sink.write_row(row)


def load(server: harness.Server, database: str, rows: Iterable[Row], tenant: str = "'bench'") -> None:
    """Fill memfold's tables in a database without memories of these tenants.

    ``tenant`` is SQL: whose memory a row of ``bench.staged`` (alias s) is to be.
    """
    with server.connect(database) as connection:
        connection.execute(
            'create unlogged table bench.staged (id bigint, subject text collate "C", content text,'
            " embedding vector, memory_id uuid default uuidv7(), at timestamptz default clock_timestamp())"
        )
        copy(connection, "bench.staged", rows)
        connection.execute(LOAD.format(tenant=tenant).encode())
        connection.execute("vacuum analyze")
