-- Sub-selects have a column (select 1), because Citus cannot pass one without.
create or replace view memfold.metrics with (security_invoker = true) as
select
    s.memories,
    s.memories_total,
    s.ledger_rows_total,
    s.judgements_total,
    q.open_judgements,
    q.reviews,
    q.overdue_leases,
    q.oldest_open_seconds,
    (
        select count(*) from (select 1 from memfold.judgements where status = 'dead' limit 10000) as d
    ) as dead_judgements,
    (
        select count(*) from (select 1 from memfold.memories where embedding_pending limit 10000) as p
    ) as pending_embeddings,
    (
        select count(*) from (select 1 from memfold.memories where not is_ingested limit 10000) as p
    ) as plain_rows,
    extract(epoch from clock_timestamp() - r.started_at)::double precision as maintenance_seconds,
    r.status = 'failed' as maintenance_failed,
    s.bytes
from (
    select
        max(pg_catalog.pg_stat_get_live_tuples(c.oid)) filter (where c.relname = 'memories') as memories,
        max(pg_catalog.pg_stat_get_tuples_inserted(c.oid)) filter (where c.relname = 'memories') as memories_total,
        max(pg_catalog.pg_stat_get_tuples_inserted(c.oid)) filter (where c.relname = 'memory_events') as ledger_rows_total,
        max(pg_catalog.pg_stat_get_tuples_inserted(c.oid)) filter (where c.relname = 'judgements') as judgements_total,
        sum(pg_catalog.pg_total_relation_size(c.oid))::bigint as bytes
    from pg_catalog.pg_class as c
    where c.relnamespace = 'memfold'::regnamespace and c.relkind = 'r'
) as s
cross join (
    select
        count(*) as open_judgements,
        count(*) filter (where o.kind = 'review') as reviews,
        count(*) filter (where o.leased_until < clock_timestamp() - interval '5 minutes') as overdue_leases,
        extract(epoch from clock_timestamp() - min(o.created_at) filter (where o.kind <> 'review'))::double precision
            as oldest_open_seconds
    from (
        select kind, created_at, leased_until from memfold.judgements where status in ('open', 'leased') limit 10000
    ) as o
) as q
left join lateral (
    select started_at, status from memfold.runs where kind = 'maintenance' order by started_at desc limit 1
) as r on true;
comment on view memfold.metrics is
'One row of figures for monitoring, from statistics and small indexes: query it as often as you like. Members of memfold_auditor see
counts for all tenants, others for their own; figures from statistics are always for all tenants. Counts of waiting rows stop at 10,000.';
comment on column memfold.metrics.memories is 'Stored texts, including aliases and history, as estimated by the statistics.';
comment on column memfold.metrics.memories_total is
'Texts written since the statistics were reset (a crash resets them); a standby does not count them.';
comment on column memfold.metrics.ledger_rows_total is
'Ledger rows written since then: observations and decisions. memories_total divided by it is the share of new facts.';
comment on column memfold.metrics.judgements_total is 'Questions asked since then.';
comment on column memfold.metrics.open_judgements is 'Questions that wait for an answer, including those that a judge has claimed.';
comment on column memfold.metrics.reviews is 'Of these, the questions that wait for a person.';
comment on column memfold.metrics.overdue_leases is
'Questions whose lease expired more than five minutes ago: the judge has probably died, and no other claims them.';
comment on column memfold.metrics.oldest_open_seconds is
'Age of the oldest question that waits for a judge, in seconds. Null: there is none.';
comment on column memfold.metrics.dead_judgements is 'Questions that failed eight times; retry_judgements() asks them again.';
comment on column memfold.metrics.pending_embeddings is 'Texts that wait for a vector.';
comment on column memfold.metrics.plain_rows is 'Rows of a plain INSERT that ingest_plain_rows() has not handled yet.';
comment on column memfold.metrics.maintenance_seconds is
'Seconds since the last run_maintenance() of any tenant began. Null: no run is recorded.';
comment on column memfold.metrics.maintenance_failed is 'Whether a task of that run failed; runs.report says which.';
comment on column memfold.metrics.bytes is 'Size of all tables with their indexes, in bytes.';
grant select on memfold.metrics to memfold_app, memfold_auditor;
