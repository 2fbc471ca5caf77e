create or replace function memfold.apply_decay(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default '*',
    as_of timestamptz default now(),
    max_operations bigint default 10000
) returns memfold.decay_report
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_started constant timestamptz := clock_timestamp();
    v_ids uuid[];
    v_due bigint;
    v_result memfold.decay_report;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', apply_decay.bucket_id, true);
    if not coalesce(max_operations between 1 and 1000000 and isfinite(as_of), false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_operations was %s, as_of was %s.', coalesce(max_operations::text, 'null'), coalesce(as_of::text, 'null')),
            'max_operations is 1 to 1000000; as_of is a finite time.');
    end if;
    select array_agg(d.memory_id) filter (where d.number <= max_operations), count(*) into v_ids, v_due
    from (
        -- Those that have waited longest come first, so that bounded runs reach all.
        select e.memory_id, row_number() over (order by e.decayed_at nulls first, e.memory_id) as number
        from memfold_internal._decayed(v_tenant_id, apply_decay.bucket_id, as_of, null) as e
    ) as d;
    -- Lock in the order of ids, then compute the values again: they may have changed.
    perform from memfold.memory_counters as k
    where k.tenant_id = v_tenant_id and k.memory_id = any(v_ids)
    order by k.memory_id
    for no key update;
    update memfold.memory_counters as k
    set decayed_confidence = e.confidence, decayed_at = case when e.confidence is not null then as_of end
    from memfold_internal._decayed(v_tenant_id, apply_decay.bucket_id, as_of, v_ids) as e
    where k.tenant_id = v_tenant_id and k.memory_id = e.memory_id;
    get diagnostics v_result.decayed = row_count;
    v_result.remaining := v_due - coalesce(cardinality(v_ids), 0);
    insert into memfold.runs as r (tenant_id, bucket_id, kind, status, arguments, report, started_at, ended_at, actor)
    values (
        v_tenant_id, apply_decay.bucket_id, 'decay', 'done',
        jsonb_build_object('as_of', as_of, 'max_operations', max_operations),
        jsonb_build_object('decayed', v_result.decayed, 'remaining', v_result.remaining),
        v_started, clock_timestamp(), memfold_internal._actor()
    )
    returning r.run_id into v_result.run_id;
    return v_result;
end;
$$;
grant execute on function memfold.apply_decay to memfold_app;
comment on function memfold.apply_decay is
'Writes effective_confidence(memory_id, as_of) of the active memories of a bucket (''*'': of all) to memory_counters (decayed_confidence,
decayed_at), for readers of the tables; search_memories() and memory_audit compute it themselves. The value depends on the last use, not
on the last run, so repeated runs do not add up. Rows that have not begun to decay have null; rows that would not change are not updated.
Handles at most max_operations rows (1 to 1,000,000) per call; the result says how many remain: call it again with the same time until
none do. Records a run of kind decay. Raises MF001 to MF003, MF022.';

-- The active memories of a bucket ('*': of the tenant) whose stored decay differs from that at p_as_of, with the new value
-- (null: decay has not begun) and the time of the stored one. p_memory_ids: only these; null: all. Only reads.
create or replace function memfold_internal._decayed(p_tenant_id text, p_bucket_id text, p_as_of timestamptz, p_memory_ids uuid[])
returns table (memory_id uuid, confidence double precision, decayed_at timestamptz)
language plpgsql stable
-- Missing statistics must not choose a scan.
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with kinds as materialized (
        select g.bucket_id, g.memory_type, p.weight_source, p.weight_extractor, p.weight_repetition, d.decay_floor,
            d.decay_interval, d.decay_rate
        from (
            select distinct m.bucket_id, m.memory_type
            from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and p_bucket_id in (m.bucket_id, '*')
                and (m.memory_id = any(p_memory_ids) or p_memory_ids is null)
        ) as g
        cross join lateral memfold_internal._policy(p_tenant_id, g.bucket_id, g.memory_type) as p
        cross join lateral memfold_internal._decay(p_tenant_id, g.bucket_id, g.memory_type) as d
    )
    select e.memory_id, e.confidence, e.decayed_at
    from (
        select c.memory_id, c.decayed_confidence, c.decayed_at, case when c.last_used + c.decay_interval < p_as_of and c.decay_rate > 0
            then memfold_internal._effective(c.confidence, c.last_used, p_as_of, c.decay_rate, c.decay_floor, c.decay_interval)
            end as confidence
        from (
            select k.memory_id, k.decayed_confidence, k.decayed_at, greatest(k.last_accessed, k.last_seen) as last_used,
                g.decay_rate, g.decay_floor, g.decay_interval,
                memfold_internal._confidence(k.source_confidence, k.extractor_confidence, k.independent, g.weight_source,
                    g.weight_extractor, g.weight_repetition) as confidence
            from memfold.memories as m
            join kinds as g on g.bucket_id = m.bucket_id and g.memory_type = m.memory_type
            join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
            where m.tenant_id = p_tenant_id collate "C" and m.status = 'active'
                and (m.memory_id = any(p_memory_ids) or p_memory_ids is null)
                and (g.decay_rate > 0 or k.decayed_confidence is not null)
            offset 0
        ) as c
    ) as e
    where e.confidence is distinct from e.decayed_confidence;
end;
$$;
