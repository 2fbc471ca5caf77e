-- The memories that prune_memories() retires, among p_memory_ids (null: all), least confident first, with reasons. Only reads.
create or replace function memfold_internal._prunable(
    p_tenant_id text, p_bucket_id text, p_max_confidence double precision, p_unused_for interval, p_max_operations bigint,
    p_memory_ids uuid[]
) returns table (
    memory_id uuid, content text, confidence double precision, last_used timestamptz, helpful_count bigint,
    harmful_count bigint, reason text
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
-- Missing statistics must not choose a scan.
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    with texts as materialized (
        select m.memory_id, m.memory_type, m.content::text as content, m.predicate::text as predicate
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.root_id is null and m.status = 'active' and p_memory_ids is null
        union all
        select m.memory_id, m.memory_type, m.content, m.predicate
        from unnest(p_memory_ids) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        where m.root_id is null and m.status = 'active'
    ),
    rules as materialized (
        select t.memory_type as kind, p.weight_source, p.weight_extractor, p.weight_repetition, o.decay_rate, o.decay_floor,
            o.decay_interval
        from (select distinct x.memory_type from texts as x) as t
        cross join lateral memfold_internal._policy(p_tenant_id, p_bucket_id, t.memory_type) as p
        cross join lateral memfold_internal._options(p_tenant_id, p_bucket_id, t.memory_type) as o
        where t.memory_type <> all(o.protected_types)
    ),
    used as (
        select t.memory_id, t.content, u.last_used, k.helpful_count, k.harmful_count, k.valid_until,
            memfold_internal._effective(
                memfold_internal._confidence(k.source_confidence, k.extractor_confidence, k.independent, p.weight_source,
                    p.weight_extractor, p.weight_repetition),
                u.last_used, now(), p.decay_rate, p.decay_floor, p.decay_interval
            ) as confidence
        from texts as t
        join rules as p on p.kind = t.memory_type
        cross join lateral (
            select k.* from memfold.memory_totals as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = t.memory_id
                -- On a timeline, the most recent statement stays current even if it is not used.
                and not (k.on_timeline and (
                    memfold_internal._is_slot(p_tenant_id, p_bucket_id, t.memory_type, t.predicate)
                    or memfold_internal._related(p_tenant_id, array[t.memory_id]) <> '{}'))
            offset 0
        ) as k
        cross join lateral (select greatest(k.last_accessed, k.last_seen) as last_used) as u
    )
    select u.memory_id, u.content, u.confidence, u.last_used, u.helpful_count, u.harmful_count,
        case when u.harmful_count > u.helpful_count + 2
            then format('harmful: %s reports, helpful: %s', u.harmful_count, u.helpful_count)
            when greatest(u.valid_until, u.last_used) < now() - p_unused_for and u.valid_until is not null
            then format('expired since %s', (u.valid_until at time zone 'UTC')::date)
            else format('confidence %s, unused since %s', round(u.confidence::numeric, 3),
                (u.last_used at time zone 'UTC')::date) end
    from used as u
    where u.harmful_count > u.helpful_count + 2
        or u.last_used < now() - p_unused_for
            and (u.confidence < p_max_confidence or u.valid_until < now() - p_unused_for)
    order by u.confidence, u.memory_id
    limit p_max_operations;
end;
$$;

create or replace function memfold.prune_memories(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_confidence double precision default 0.3,
    unused_for interval default '90 days',
    max_operations bigint default 200,
    dry_run boolean default true
) returns table (
    run_id uuid, memory_id uuid, content text, confidence double precision, last_used timestamptz, helpful_count bigint,
    harmful_count bigint, reason text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    v_ids uuid[];
    v_newest uuid;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    if not coalesce(max_confidence between 0 and 1 and unused_for between interval '0' and interval '1000 years' and max_operations between 1 and 1000
        and dry_run is not null, false)
    then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_confidence was %s, unused_for %s, max_operations %s, dry_run %s.', max_confidence, unused_for,
                max_operations, dry_run),
            'max_confidence is 0 to 1, unused_for 0 to 1,000 years, max_operations 1 to 1000, dry_run true or false.');
    end if;
    if dry_run then
        return query
        select null::uuid, p.*
        from memfold_internal._prunable(tenant_id, bucket_id, max_confidence, unused_for, max_operations, null) as p
        order by p.confidence, p.memory_id;
        return;
    end if;
    v_ids := array(
        select p.memory_id
        from memfold_internal._prunable(tenant_id, bucket_id, max_confidence, unused_for, max_operations, null) as p
    );
    -- Under the lock, _prunable() omits memories that were used since.
    perform memfold_internal._lock(tenant_id, bucket_id, null, true);
    r := memfold_internal._start_run(tenant_id, bucket_id, 'pruning', jsonb_build_object(
        'max_confidence', max_confidence, 'unused_for', unused_for, 'max_operations', max_operations));
    perform memfold_internal._adopt_row(tenant_id, i.id) from unnest(v_ids) as i (id);
    -- Restatements do not take the bucket's lock, but the row of counters.
    perform from (
        select k.memory_id from unnest(v_ids) as i (id)
        join memfold.memory_counters as k
            on k.tenant_id = prune_memories.tenant_id collate "C" and k.memory_id = i.id
        order by k.memory_id
        for no key update of k
    ) as k;
    v_newest := memfold_internal._newest_event(tenant_id);
    return query
    with pruned as (
        insert into memfold.memory_events as e (
            tenant_id, event_id, bucket_id, action, tier, method, memory_id, reason, run_id, actor
        )
        select r.tenant_id, memfold_internal._id_after(memfold_internal._new_id(), v_newest), r.bucket_id, 'pruned', 3, 'person', p.memory_id, p.reason, r.run_id, memfold_internal._actor()
        from memfold_internal._prunable(tenant_id, bucket_id, max_confidence, unused_for, max_operations, v_ids) as p
        returning e.memory_id
    )
    select r.run_id, p.*
    from memfold_internal._prunable(tenant_id, bucket_id, max_confidence, unused_for, max_operations, v_ids) as p
    join pruned as d on d.memory_id = p.memory_id
    order by p.confidence, p.memory_id;
    perform memfold_internal._derive_all(r.tenant_id, array(
        select e.memory_id from memfold.memory_events as e
        where e.tenant_id = r.tenant_id and e.run_id = r.run_id order by 1
    ));
    perform memfold_internal._end_run(r.tenant_id, r.run_id, '{}');
end;
$$;
grant execute on function memfold.prune_memories to memfold_app;
comment on function memfold.prune_memories is
'Retires memories of a bucket that are no longer useful: those with an effective confidence below max_confidence (0 to 1) that were
neither stated nor recalled for unused_for, those that expired (valid_until) at least that long ago, and those reported harmful more often
than helpful, by three or more. They are withdrawn, not deleted: if they are stated again, they become active again; undo_run() undoes it.
dry_run (the default) returns what it would retire. Does at most max_operations (1 to 1000) per run, the least confident first. Omits
protected types and values of timelines. Raises MF001 to MF003, MF022, MF025.';
