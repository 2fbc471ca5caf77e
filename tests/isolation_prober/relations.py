"""Tables and views by the catalog, and what of their rows is a tenant's own."""

from __future__ import annotations

from tests.isolation_prober.sides import Side
from tests.support.queries import DB

# Tables that belong to no tenant: models and their thresholds, adoptions, alembic's own.
SHARED = {
    "embedding_models", "calibrations", "calibration_changes", "adoptions", "adoption_archive", "adoption_repeats",
    "adoption_claims", "alembic_version",
    "lexicon",
}  # fmt: skip
# Columns of tenants' tables whose texts are no tenant's own: states, names of rules and of shared models.
PLAIN = {
    "judgements.guard", "judgements.kind", "judgements.status", "judgements.verdict",
    "labelled_pairs.evidence", "labelled_pairs.label", "labelled_pairs.labelled_by", "labelled_pairs.origin",
    "labelled_pairs.similarities",
    "memories.canonicalizer", "memories.key_fields", "memories.metadata_signature", "memories.status",
    "memory_events.action", "memory_events.actor", "memory_events.guard", "memory_events.method",
    "memory_events.origin", "memory_events.similar_memories", "memory_events.verdict",
    "links.kind", "memory_vectors.model",
    "policies.canonicalizer", "policies.conflict", "policies.dedup", "policies.embed", "policies.guard",
    "policies.key_fields", "policies.metadata_keys", "policies.metadata_merge", "policies.on_ambiguous",
    "policies.on_judge_failure", "policies.on_merge", "policies.on_refinement", "policies.preset",
    "policies.rehash_from_canonicalizer",
    "policies.rehash_from_key_fields",
    "policies.rehash_from_metadata_keys", "policies.scope", "policies.segmenter",
    "predicates.cardinality", "predicates.conflict", "antonyms.kind",
    "runs.actor", "runs.kind", "runs.report", "runs.status",
}  # fmt: skip


TEXTS = """
select c.relname::text, a.attname::text, pg_catalog.format_type(a.atttypid, null)
from pg_class as c join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'p') and a.attgenerated = ''
    and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype) and c.relname <> 'tenant_roles' and exists (
        select from pg_attribute as t where t.attrelid = c.oid and t.attname = 'tenant_id' and not t.attisdropped
    )
order by 1, 2
"""


def relations(db: DB) -> list[tuple[str, str, bool]]:
    """Tables, views and whatever else rows are read from: name, kind, whether it has a tenant_id."""
    return db.execute(
        "select c.relname::text, c.relkind::text, exists (select from pg_attribute as a where a.attrelid = c.oid"
        "  and a.attname = 'tenant_id' and not a.attisdropped)"
        " from pg_class as c where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        "  and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')"
        " order by 1"
    ).fetchall()


def full(relation: str) -> str:
    """With its schema."""
    return f"memfold{'_internal' if relation.startswith('_') or relation == 'alembic_version' else ''}.{relation}"


def tenant_tables(db: DB) -> list[str]:
    return [name for name, kind, isolated in relations(db) if kind in "rp" and isolated]


def snapshot(db: DB, *tenants: str) -> dict[str, str]:
    """A digest of all rows of these tenants, by table; as a superuser."""
    parts = [
        f"select '{table}', coalesce(md5(string_agg(t::text, '|' order by t::text)), '') from memfold.{table} as t"
        " where tenant_id = any(%(tenants)s)"
        for table in tenant_tables(db)
    ]
    return dict(db.execute(" union all ".join(parts).encode(), {"tenants": list(tenants)}).fetchall())


def secrets(db: DB, side: Side) -> set[str]:
    """The side's secrets: its word, and every id, hash and key of its rows."""
    if side.hidden:
        return side.hidden
    found = {side.word}
    columns = db.execute(
        "select c.relname::text, a.attname::text from pg_class as c join pg_attribute as a on a.attrelid = c.oid"
        " where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0"
        " and not a.attisdropped and (a.atttypid in ('uuid'::regtype, 'bytea'::regtype) or a.attname = 'scope_key')"
    ).fetchall()
    for table, column in columns:
        if table in tenant_tables(db):
            rows = db.execute(
                f"select distinct {column}::text from memfold.{table} where tenant_id = %s"
                f" and {column} is not null".encode(),
                [side.tenant],
            ).fetchall()
            found |= {row[0].removeprefix("\\x") for row in rows}
    side.hidden = {text for text in found if len(text) > 7 and text.strip("0-")}
    return side.hidden
