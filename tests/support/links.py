"""Names that are linked, and the state that a link leaves."""

from __future__ import annotations

from typing import Any

from tests.support.queries import DB, one

NAMES = ["Georg", "G. Maier", "Georg Maier"]


def link(db: DB, alias: str | None, name: str, bucket: str = "default", what: str = "subject") -> Any:
    """Link an alias to a name; of subjects, or of predicates."""
    return one(db, f"select link_{what}(%s, %s, 'acme', %s)", alias, name, bucket)


def shown(db: DB, bucket: str = "default") -> list[Any]:
    """The active memories as they are shown, without ids."""
    return db.execute(
        "select m.subject, m.predicate, m.object, m.content, k.observations, k.independent, k.source_confidence,"
        " k.extractor_confidence, k.first_seen, k.last_seen, m.metadata,"
        " (select array_agg(distinct s.source_turn_id order by s.source_turn_id) from memory_sources s"
        "  join memories t using (tenant_id, memory_id)"
        "  where t.tenant_id = m.tenant_id and coalesce(t.root_id, t.memory_id) = m.memory_id)"
        " from memories m join memory_totals k using (tenant_id, memory_id)"
        " where m.status = 'active' and m.bucket_id = %s order by 1, 2, 3, 4, 5, 6",
        [bucket],
    ).fetchall()


def state(db: DB) -> list[list[Any]]:
    """All derived state; an undone merge may leave counters of zero."""
    statements = (
        "select memory_id, subject, predicate, content, content_hash, scope_key, status, merged_into, root_id, metadata"
        " from memories",
        "select memory_id, observations, independent, first_seen, last_seen, is_additive, on_timeline, aliases"
        " from memory_totals where observations > 0",
        "select memory_id, scope_key, is_live from memory_vectors",
        "select memory_id, slot_key, valid_from, valid_to from memory_intervals",
        "select memory_id, source_turn_id, tenant_id from memory_sources",
    )
    return [db.execute(f"{statement} order by 1, 2, 3".encode()).fetchall() for statement in statements]
