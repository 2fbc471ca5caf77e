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
        v_number := v_number + (
            select count(*) from memfold.consolidate(p_tenant_id, p_bucket_id, dry_run => false)
        );
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
    if not exists (
        select from memfold.options as o
        where greatest(o.consolidate_interval, o.sweep_interval, o.prune_interval, o.link_interval) > interval '0'
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
