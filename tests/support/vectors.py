"""Large buckets of vectors, and how often the index on them is searched."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import numpy as np

from tests.support.queries import DB, one

DIMENSIONS = 16
LIMIT = 50  # in place of the 10,000, of recall 100,000, up to which a bucket is searched exactly
# As ingest would have written them: what tier 2 reads, and the counters that a merge adds to.
LOAD = """
with new as (
    insert into memfold.memories (tenant_id, bucket_id, content)
    select %(tenant)s, %(bucket)s, 'loaded ' || gen_random_uuid() from generate_series(1, %(count)s) as n
    returning tenant_id, bucket_id, memory_id, scope_key, content
), counted as (
    insert into memfold.memory_counters (tenant_id, memory_id, observations, independent, source_confidence,
        extractor_confidence, first_seen, last_seen)
    select tenant_id, memory_id, 1, 1, 0.5, 0.5, now(), now() from new
), numbered as (
    select n.*, row_number() over (order by n.memory_id) as place from new as n
), filled as (
    insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
    select n.tenant_id, n.memory_id, 'm', n.bucket_id, n.scope_key, v.embedding::vector
    from numbered as n
    join unnest(%(vectors)s::text[]) with ordinality as v (embedding, place) on v.place = n.place
)
select memory_id from numbered order by place
"""


def text(vector: Any) -> str:
    """A vector as SQL writes it."""
    return json.dumps([round(float(x), 6) for x in vector])


def unit(values: Any) -> Any:
    """Vectors of the same direction, of length one."""
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def load(db: DB, tenant: str, vectors: Any, bucket: str = "wide") -> list[UUID]:
    """Store unit vectors, the first one as the oldest."""
    rows = db.execute(
        LOAD,
        {
            "tenant": tenant,
            "bucket": bucket,
            "count": len(vectors),
            "vectors": [text(v) for v in unit(vectors)],
        },
    ).fetchall()
    return [row[0] for row in rows]


def limit(db: DB, newest: int = LIMIT) -> None:
    """Search buckets of at most this many vectors exactly."""
    for name in ("_exact_limit", "_search_limit"):
        db.execute(
            f"create or replace function memfold_internal.{name}() returns bigint"
            f" language sql immutable parallel safe return {newest}"
        )


def noise(count: int, seed: int) -> Any:
    """Random vectors."""
    return np.random.default_rng(seed).standard_normal((count, DIMENSIONS))


class Scans:
    """How often a block has searched the index; one transaction, in which nothing is written to the statistics."""

    QUERY = (
        "select sum(pg_stat_get_xact_numscans(oid)) from pg_class where relname like 'memory_vectors_hnsw_%'"
    )

    def __init__(self, db: DB) -> None:
        self.db, self.count, self.block = db, 0, db.transaction()

    def __enter__(self) -> Scans:
        self.block.__enter__()
        self.before = one(self.db, self.QUERY)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.count = one(self.db, self.QUERY) - self.before
        self.block.__exit__(kind, error, trace)
