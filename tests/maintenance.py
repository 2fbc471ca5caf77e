"""Shared code of the tests of maintenance: store without merging, make a plan, compare the contents of two buckets."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import UUID

import psycopg

from tests.support import ingest

DB = psycopg.Connection[Any]
Row = dict[str, Any]


def rows(db: DB, query: str, *arguments: Any) -> list[Row]:
    with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(query, arguments).fetchall()


def angle(degrees: float) -> dict[str, str]:
    """A unit vector of model m at an angle: the cosine of two is that of the difference."""
    values = [math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0, 0.0]
    return {"embedding": json.dumps(values), "embedding_model": "m"}


def storing(db: DB, bucket: str = "default", **rules: Any) -> None:
    """Store everything, as if it had been there before deduplication."""
    rules = {"merge_threshold": 1, "judge_threshold": 1, "on_ambiguous": "insert", **rules}
    policy(db, bucket, **rules)


def policy(db: DB, bucket: str = "default", **rules: Any) -> None:
    names = "".join(f", {name} => %s" for name in rules)
    db.execute(f"select set_policy('acme', %s{names})", [bucket, *rules.values()])


def set_options(db: DB, bucket: str = "default", **values: Any) -> None:
    names = "".join(f", {name} => %s" for name in values)
    db.execute(f"select set_options('acme', %s{names})", [bucket, *values.values()])


def store(db: DB, content: str, **arguments: Any) -> UUID:
    result = ingest(db, content, **arguments)
    assert result.memory_id is not None
    return result.memory_id


def held(db: DB, bucket: str) -> list[Row]:
    """The contents of a bucket, in a form that is equal for two buckets with the same history."""
    return rows(
        db,
        """
        select m.content, m.status, m.metadata, o.content as merged_into, r.content as root, k.is_additive, k.on_timeline,
            k.aliases, k.observations, k.independent, k.source_confidence, k.extractor_confidence, k.first_seen::text,
            k.last_seen::text,
            (select array_agg(s.source_turn_id order by s.source_turn_id) from memory_sources as s
                where s.tenant_id = m.tenant_id and s.memory_id = m.memory_id) as turns,
            (select array_agg(format('%%s %%s', i.valid_from, i.valid_to) order by i.valid_from) from memory_intervals as i
                where i.tenant_id = m.tenant_id and i.memory_id = m.memory_id) as intervals,
            (select array_agg(format('%%s %%s %%s', v.model, v.is_live, v.embedding) order by v.model)
                from memory_vectors as v where v.tenant_id = m.tenant_id and v.memory_id = m.memory_id) as vectors
        from memories as m
        left join memory_totals as k using (tenant_id, memory_id)
        left join memories as o on o.tenant_id = m.tenant_id and o.memory_id = m.merged_into
        left join memories as r on r.tenant_id = m.tenant_id and r.memory_id = m.root_id
        where m.tenant_id = 'acme' and m.bucket_id = %s
        order by m.content, m.memory_id
        """,
        bucket,
    )
