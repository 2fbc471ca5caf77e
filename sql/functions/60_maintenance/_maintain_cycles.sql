-- The task cycles: a pass iterates over the buckets of a tenant, for one second per call. An interval divides time since the
-- epoch into cycles; the first pass that begins in a new one does the task in every bucket, without a record for each.

-- Whether a pass that began at p_started is in another cycle than the one that began at p_previous (null: the first).
create or replace function memfold_internal._in_new_cycle(p_cycle interval, p_previous timestamptz, p_started timestamptz) returns boolean
language sql immutable parallel safe
return p_cycle > interval '0' and (
    p_previous is null
    or pg_catalog.floor(extract(epoch from p_previous) / extract(epoch from p_cycle))
    <> pg_catalog.floor(extract(epoch from p_started) / extract(epoch from p_cycle))
);

-- Calls consolidate() for a bucket that has new memories since the last time, or whose last run left questions out, if fewer than
-- p_budget questions about it wait; its policy decides who is asked. Compares at most 5,000 memories (in one group: 3 s): whole
-- subjects, beginning with the one that has the newest memory, but 1,000 of each before more of any. Returns how many memories it
-- asked about.
create or replace function memfold_internal._consolidate_changed(
    p_tenant_id text, p_bucket_id text, p_interval interval, p_budget bigint
) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_budget bigint;
    v_last memfold.runs;
    v_since uuid;
    v_ids uuid[];
    v_number bigint;
begin
    select p_budget - count(*) into v_budget
    from (
        select j.kind, j.run_id, j.created_at
        from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C" and j.bucket_id = p_bucket_id collate "C" and j.status in ('open', 'leased')
        union all
        select j.kind, j.run_id, j.created_at
        from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C" and j.bucket_id = p_bucket_id collate "C" and j.status = 'dead'
    ) as j
    where j.run_id is not null or j.kind <> 'review' and j.created_at < now() - p_interval;
    if v_budget <= 0 or not exists (
        select from memfold.memory_vectors as v
        where v.tenant_id = p_tenant_id collate "C" and v.bucket_id = p_bucket_id collate "C" and v.is_live
    ) then
        return 0;
    end if;
    select r.* into v_last
    from memfold.runs as r
    where r.tenant_id = p_tenant_id collate "C" and r.bucket_id = p_bucket_id collate "C" and r.kind = 'consolidation'
        and r.arguments ->> 'approval' = 'policy'
    order by r.run_id desc
    limit 1;
    -- An hour earlier, because a memory's id is older than its commit, and than a vector that comes late.
    v_since := memfold_internal._first_id(v_last.started_at - interval '1 hour');
    if v_last.report ->> 'left_out' = '0' and not exists (
        select from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.root_id is null and m.status = 'active' and m.memory_id > v_since
    ) then
        return 0;
    end if;
    v_ids := array(
        select p.memory_id
        from (
            select m.memory_id, first_value(m.memory_id) over w as newest, row_number() over w as place
            from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.root_id is null and m.status = 'active'
            window w as (partition by m.memory_type, memfold_internal._prose_1(m.subject) order by m.memory_id desc)
        ) as p
        order by p.place > 1000, p.newest desc, p.memory_id desc
        limit 5000
    );
    select count(*) into v_number
    from memfold.consolidate(p_tenant_id, p_bucket_id, approval => 'policy', max_judgements => v_budget, dry_run => false,
        memory_ids => v_ids);
    -- The new run takes the place of one that asked nothing.
    delete from memfold.runs as r
    where r.tenant_id = p_tenant_id collate "C" and r.run_id = v_last.run_id and r.report ->> 'asked' = '0';
    return v_number;
end;
$$;

-- Calls once each function that is due in a bucket by its options. Returns how many memories were merged, asked about or
-- pruned, plus how many names were asked about.
create or replace function memfold_internal._maintain_bucket(
    p_tenant_id text, p_bucket_id text, p_previous timestamptz, p_started timestamptz
) returns bigint
language plpgsql volatile
as $$
declare
    o constant memfold.options := memfold_internal._options(p_tenant_id, p_bucket_id, '*');
    v_number bigint := 0;
begin
    if memfold_internal._in_new_cycle(o.sweep_interval, p_previous, p_started) then
        v_number := v_number + (
            select count(*) filter (where s.action <> 'keep')
            from memfold.sweep_duplicates(p_tenant_id, p_bucket_id, dry_run => false) as s
        );
    end if;
    if memfold_internal._in_new_cycle(o.consolidate_interval, p_previous, p_started) then
        v_number := v_number + memfold_internal._consolidate_changed(p_tenant_id, p_bucket_id, o.consolidate_interval,
            o.consolidate_budget);
    end if;
    if memfold_internal._in_new_cycle(o.prune_interval, p_previous, p_started) then
        v_number := v_number + (
            select count(*) from memfold.prune_memories(p_tenant_id, p_bucket_id, dry_run => false)
        );
    end if;
    if memfold_internal._in_new_cycle(o.link_interval, p_previous, p_started) then
        v_number := v_number + memfold.ask_links(p_tenant_id, p_bucket_id);
    end if;
    return v_number;
end;
$$;

-- Continues a pass over the buckets of a tenant for up to one second, or until it has written something. p_after, and after in
-- the result: the last bucket done (bucket_id), when this pass began (started), and the previous one (previous).
create or replace function memfold_internal._maintain_cycles(p_tenant_id text, p_after jsonb) returns memfold_internal.maintenance_step
language plpgsql volatile
as $$
declare
    v_step memfold_internal.maintenance_step;
    v_now constant timestamptz := memfold_internal._clock();
    v_started constant timestamptz := coalesce((p_after ->> 'started')::timestamptz, v_now);
    v_previous constant timestamptz := (p_after ->> 'previous')::timestamptz;
    v_bucket_id text collate "C" := coalesce(p_after ->> 'bucket_id', '');
    v_until constant timestamptz := clock_timestamp() + interval '1 second';
begin
    v_step.number := 0;
    v_step.is_left := false;
    v_step.after := p_after;
    -- Iterate over the buckets only if something may be due in one of them.
    if p_after ->> 'bucket_id' is null and not exists (
        select from memfold.options as o
        cross join lateral unnest(array[o.consolidate_interval, o.sweep_interval, o.prune_interval, o.link_interval]) as i (cycle)
        where o.tenant_id in (p_tenant_id collate "C", '*')
            and memfold_internal._in_new_cycle(i.cycle, v_previous, v_started)
    ) then
        return v_step;
    end if;
    loop
        v_bucket_id := memfold_internal._next_bucket(p_tenant_id, v_bucket_id);
        exit when v_bucket_id is null or clock_timestamp() > v_until;
        v_step.number := v_step.number + memfold_internal._maintain_bucket(p_tenant_id, v_bucket_id, v_previous, v_started);
        v_step.after := jsonb_build_object('previous', v_previous, 'started', v_started, 'bucket_id', v_bucket_id);
        v_step.is_left := true;
        -- The bucket stays locked until the call ends.
        exit when v_step.number > 0;
    end loop;
    if v_bucket_id is null then
        v_step.after := jsonb_build_object('previous', v_started);
        v_step.is_left := false;
    end if;
    return v_step;
end;
$$;
