"""Shared code of the tests of maintenance: store without merging, make a plan, compare the contents of two buckets."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any
from uuid import UUID

from tests.support.memories import ingest
from tests.support.queries import DB, Row, one, rows


def angle(degrees: float) -> dict[str, str]:
    """A unit vector of model m at an angle: the cosine of two is that of the difference."""
    values = [math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0, 0.0]
    return {"embedding": json.dumps(values), "embedding_model": "m"}


def storing(db: DB, bucket: str = "default", **rules: Any) -> None:
    """Store everything, as if it had been there before deduplication."""
    rules = {"merge_threshold": 1, "judge_threshold": 1, "on_ambiguous": "insert", **rules}
    policy(db, bucket, **rules)


def policy(db: DB, bucket: str = "default", **rules: Any) -> None:
    """Set rules of a bucket of tenant acme."""
    names = "".join(f", {name} => %s" for name in rules)
    db.execute(f"select set_policy('acme', %s{names})", [bucket, *rules.values()])


def set_options(db: DB, bucket: str = "default", **values: Any) -> None:
    """Set options of a bucket of tenant acme."""
    names = "".join(f", {name} => %s" for name in values)
    db.execute(f"select set_options('acme', %s{names})", [bucket, *values.values()])


def store(db: DB, content: str, **arguments: Any) -> UUID:
    """Ingest a text; its memory."""
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


def consolidate(db: DB, bucket: str = "default", **options: Any) -> list[dict[str, Any]]:
    """Call consolidate; its rows."""
    names = "".join(f", {name} => %s" for name in options)
    return rows(db, f"select * from consolidate('acme', %s{names})", bucket, *options.values())


def run_consolidation(db: DB, **options: Any) -> UUID:
    """Consolidate for real; the run."""
    found: UUID = consolidate(db, dry_run=False, **options)[0]["run_id"]
    return found


def vim(db: DB) -> list[UUID]:
    """Predicate drift and time: one fact, three texts that ingest has kept apart."""
    return [
        store(db, "User uses Vim", subject="User", predicate="uses", **angle(0)),
        store(db, "User's editor is Vim", subject="user", predicate="editor", **angle(20)),
        store(db, "User edits 3 files in Vim", subject="User", **angle(30)),
        store(db, "Bob uses Vim", subject="Bob", predicate="uses", **angle(1)),
    ]


def run_maintenance(db: DB, *tasks: str) -> dict[str, Any]:
    """Run all tasks, or these, for tenant acme; the report."""
    given = [list(tasks)] if tasks else []
    report: dict[str, Any] = one(db, f"select memfold.run_maintenance('acme'{', %s' * len(given)})", *given)
    return report


def at(db: DB, moment: str) -> dict[str, Any]:
    """One pass over all buckets of tenant acme at this time; counts in all."""
    db.execute(
        "create or replace function memfold_internal._clock() returns timestamptz language sql volatile"
        f" return '{moment}+00'::timestamptz".encode()
    )
    total: Counter[str] = Counter()
    for _ in range(20):
        report = run_maintenance(db, "cycles")
        assert report["errors"] == {}
        total.update(report["counts"])
        if not report["left"]:
            return dict(total)
    raise AssertionError("never done")


def set_columns(db: DB, table: str, bucket: str = "*", tenant: str = "acme", **values: Any) -> None:
    """Write what only presets set: columns of policies or options for which their functions have no argument."""
    function = {"policies": "set_policy", "options": "set_options"}[table]
    db.execute(f"select memfold.{function}(%s, %s)".encode(), [tenant, bucket])
    columns = ", ".join(f"{name} = %s" for name in values)
    key = "(tenant_id, bucket_id, memory_type) = (%s, %s, '*')"
    db.execute(f"update memfold.{table} set {columns} where {key}", [*values.values(), tenant, bucket])
