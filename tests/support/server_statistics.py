"""What the server has counted: pages read, scans of an index, calls of functions."""

from __future__ import annotations

from tests.support.queries import DB, one

FILL = """
with texts as materialized (
    select memfold_internal._new_id() as id, n, n % 2 = 1 as slot from generate_series(1, %(rows)s) as n
),
memories as (
    insert into memfold.memories
        (tenant_id, memory_id, content, subject, predicate, object, canonicalizer, key_fields)
    select 'acme', id, 'Fact ' || n, case when slot then 'Subject ' || n end, case when slot then 'lives_in' end,
        case when slot then 'Town ' || n end, 'prose/1', 'type,subject,predicate'
    from texts
),
intervals as (
    insert into memfold.memory_intervals (tenant_id, memory_id, valid_from, slot_key)
    select 'acme', id, now(), memfold_internal._scope_key('default', 'fact', 'Subject ' || n, 'lives_in')
    from texts where slot
)
insert into memfold.memory_counters
    (tenant_id, memory_id, on_timeline, observations, independent, first_seen, last_seen)
select 'acme', id, slot, 1, 1, now(), now() from texts
"""
READ = """
select sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint,
    pg_stat_get_xact_numscans('memfold.memories_content_hash_key'::regclass)
from pg_class as c where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'i')
"""


def read(db: DB) -> tuple[int, int]:
    """Pages looked at in this transaction so far, and scans of the index on the hash."""
    pages, scans = one(db, READ)
    return pages, scans


def never_analyze(db: DB) -> None:
    """Keep autovacuum from analyzing memfold's tables."""
    for (table,) in db.execute(
        "select relname from pg_class where relnamespace = 'memfold'::regnamespace and relkind = 'r'"
    ).fetchall():
        db.execute(f"alter table memfold.{table} set (autovacuum_enabled = false)".encode())
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")


def track_functions(db: DB) -> None:
    """Count the calls of PL/pgSQL functions in this session (function_calls)."""
    db.execute("set track_functions = 'pl'")
    db.execute("set stats_fetch_consistency = none")


def function_calls(db: DB, function: str) -> int:
    """How often this session has called it, since track_functions."""
    calls: int = one(
        db,
        "select coalesce(sum(f.calls), 0)::bigint from (select calls, funcname from pg_stat_user_functions"
        " union all select calls, funcname from pg_stat_xact_user_functions) as f where f.funcname = %s",
        function,
    )
    return calls
