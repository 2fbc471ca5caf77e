-- Rehashes a few texts of a run, in the order of their hashes after p_position, until about p_until, and returns how far it
-- got. Raises 55P03 if another transaction holds a row. The caller holds the bucket's lock.
create or replace function memfold_internal._rehash_rows(
    p_run memfold.runs, p_position bytea, p_rows_at_most bigint, p_until timestamptz
) returns memfold_internal.rehash_step
language plpgsql volatile
set plan_cache_mode = force_generic_plan
-- the transaction that holds a row may be waiting for the bucket
set lock_timeout = '100ms'
as $$
declare
    v_step memfold_internal.rehash_step;
    v_again constant boolean := (p_run.arguments ->> 'again')::boolean;
    v_policy memfold.policies;
    v_type text collate "C";
    v_hash bytea;
    v_pending uuid[] := array[]::uuid[];
    v_texts memfold.memories[] := array[]::memfold.memories[];
    v_hashes bytea[] := array[]::bytea[];
    v_twins uuid[] := array[]::uuid[];
    v_events uuid[];
    m memfold.memories;
    v_now memfold.memories;
begin
    v_step.rows_seen := 0;
    v_step.rows_changed := 0;
    for m in
        select t.*
        from memfold.memories as t
        where t.tenant_id = p_run.tenant_id and t.bucket_id = p_run.bucket_id and t.content_hash > p_position
        order by t.content_hash
        limit p_rows_at_most
    loop
        v_step.rows_seen := v_step.rows_seen + 1;
        v_step."position" := m.content_hash;
        if v_type is distinct from m.memory_type then
            v_type := m.memory_type;
            v_policy := memfold_internal._policy(p_run.tenant_id, p_run.bucket_id, v_type);
        end if;
        continue when not memfold_internal._is_stale(m, v_policy);
        v_texts := v_texts || m;
        v_hashes := v_hashes || array[memfold_internal._hash_under(m, v_policy)];
    end loop;
    if v_again and v_texts <> '{}' then
        -- First the separated ones, in small batches.
        select coalesce(array_agg(t.twin_id order by t.twin_id), '{}'), array_agg(t.event_id) into v_twins, v_events
        from (
            select t.*
            from unnest(v_texts) with ordinality as x
            cross join lateral memfold_internal._parting_twins(p_run.tenant_id, x.memory_id, v_hashes[x.ordinality]) as t
            limit p_rows_at_most
        ) as t;
        if v_twins <> '{}' then
            perform memfold_internal._split_alias(p_run.tenant_id, v_events, p_run.run_id);
            v_pending := memfold_internal._assign_hashes(p_run.tenant_id, v_twins, p_run.run_id, v_pending);
        end if;
        if cardinality(v_twins) = p_rows_at_most then
            perform memfold_internal._derive_pending(p_run.tenant_id, v_pending);
            v_step."position" := p_position;
            return v_step;
        end if;
    end if;
    for v_i in 1..cardinality(v_texts) loop
        if v_i > 1 and clock_timestamp() > p_until then
            -- deriving merged texts takes as long again, so it stops early
            v_step."position" := m.content_hash;
            exit;
        end if;
        m := v_texts[v_i];
        v_hash := v_hashes[v_i];
        v_policy := memfold_internal._policy(p_run.tenant_id, p_run.bucket_id, m.memory_type);
        v_step.rows_changed := v_step.rows_changed + 1;
        if v_hash is not null and not exists (
            select from memfold_internal._known_text(p_run.tenant_id, p_run.bucket_id, v_hash) as h where h.memory_id <> m.memory_id
        ) then
            -- common case: no other text has the hash
            perform memfold_internal._maintain(true);
            update memfold.memories as t
            set canonicalizer = v_policy.canonicalizer, key_fields = v_policy.key_fields,
                metadata_signature = memfold_internal._stored_signature(m, v_policy.metadata_keys)
            where t.tenant_id = m.tenant_id and t.memory_id = m.memory_id
                -- unless the rehash of an earlier text has included it
                and t.canonicalizer = m.canonicalizer and t.content_hash = m.content_hash;
            perform memfold_internal._maintain(false);
        else
            select t.* into strict v_now
            from memfold.memories as t where t.tenant_id = m.tenant_id and t.memory_id = m.memory_id;
            if memfold_internal._is_stale(v_now, v_policy) then
                v_pending := memfold_internal._rehash_text(m.tenant_id, m.memory_id, p_run.run_id, v_pending);
            end if;
        end if;
    end loop;
    perform memfold_internal._derive_pending(p_run.tenant_id, v_pending);
    return v_step;
end;
$$;

-- Rehashes a few of the texts that earlier runs have left without a hash, unmerged; returns how many. The caller holds the bucket's lock.
create or replace function memfold_internal._rehash_unhashed(p_run memfold.runs, p_rows_at_most bigint) returns bigint
language plpgsql volatile
set lock_timeout = '100ms'
as $$
declare
    v_text record;
    v_number bigint := 0;
begin
    for v_text in
        select e.memory_id, e.event_id
        from memfold.runs as r
        join memfold.ledger as e on e.tenant_id = r.tenant_id and e.run_id = r.run_id
        where r.tenant_id = p_run.tenant_id and r.bucket_id = p_run.bucket_id and r.kind = 'rehash' and r.run_id <> p_run.run_id
            and e.action = 'rehashed' and not e.undone
        order by e.event_id
        limit p_rows_at_most
    loop
        perform memfold_internal._split_alias(p_run.tenant_id, array[v_text.event_id], p_run.run_id);
        perform memfold_internal._assign_hashes(p_run.tenant_id, array[v_text.memory_id], p_run.run_id, null);
        v_number := v_number + 1;
    end loop;
    return v_number;
end;
$$;

-- Continues a run of rehash_bucket() for at most batch_size texts or about 50 ms, under the bucket's lock. Returns whether
-- the run has ended. Raises 55P03 if another transaction holds a row.
create or replace function memfold_internal._rehash_batch(tenant_id text, run_id uuid, batch_size bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_run memfold.runs;
    v_step memfold_internal.rehash_step;
    v_position bytea;
    v_seen bigint := 0;
    v_changed bigint := 0;
    v_few bigint;
    v_number bigint;
    v_ended boolean := false;
    v_unhashed boolean;
    v_locked_at timestamptz;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    select r.* into v_run
    from memfold.runs as r
    where r.tenant_id = tenant_id collate "C" and r.run_id = run_id and r.kind = 'rehash';
    if not found then
        return true;
    end if;
    perform memfold_internal._lock(tenant_id, v_run.bucket_id, null, true);
    v_locked_at := clock_timestamp();
    select r.* into v_run
    from memfold.runs as r
    where r.tenant_id = tenant_id collate "C" and r.run_id = run_id;
    if v_run.status <> 'open' or not exists (
        select from memfold.policies as p
        where p.tenant_id = v_run.tenant_id and p.bucket_id = v_run.bucket_id and p.rehash_run = v_run.run_id
    ) then
        -- another session has ended or undone the run
        return true;
    end if;
    v_position := decode(v_run.report ->> 'position', 'hex');
    v_unhashed := v_position is null and (v_run.arguments ->> 'again')::boolean;
    v_position := coalesce(v_position, '');
    -- not longer, because writers of the bucket wait
    while v_seen < batch_size and clock_timestamp() < v_locked_at + interval '50 milliseconds' loop
        if v_unhashed then
            v_few := least(batch_size - v_seen, 20);
            v_number := memfold_internal._rehash_unhashed(v_run, v_few);
            v_changed := v_changed + v_number;
            v_seen := v_seen + v_few;
            v_unhashed := v_number = v_few;
            continue;
        end if;
        v_step := memfold_internal._rehash_rows(v_run, v_position, least(batch_size - v_seen, 50),
            v_locked_at + interval '30 milliseconds');
        v_ended := v_step.rows_seen = 0;
        exit when v_ended;
        v_position := v_step."position";
        v_seen := v_seen + v_step.rows_seen;
        v_changed := v_changed + v_step.rows_changed;
    end loop;
    v_run.report := v_run.report || jsonb_build_object('rows', (v_run.report ->> 'rows')::bigint + v_changed);
    if v_ended then
        perform memfold_internal._rehash_end(v_run);
        update memfold.runs as r
        set status = 'undone'
        where r.tenant_id = v_run.tenant_id and r.run_id = (v_run.arguments ->> 'undoes')::uuid;
        select (v_run.report - 'position') || jsonb_build_object(
            'merged', count(*) filter (where e.action = 'merged'),
            'parted', count(*) filter (where e.action = 'undone' and e.was = 'merged'),
            'without_hash', count(*) filter (where e.action = 'rehashed'))
        into v_run.report
        from (
            select e.action, (
                select u.action from memfold.memory_events as u
                where u.tenant_id = e.tenant_id and u.event_id = e.undoes
            ) as was
            from memfold.memory_events as e where e.tenant_id = v_run.tenant_id and e.run_id = v_run.run_id
        ) as e;
    elsif not v_unhashed then
        v_run.report := v_run.report || jsonb_build_object('position', encode(v_position, 'hex'));
    end if;
    if v_ended then
        v_run.status := 'done';
        v_run.ended_at := clock_timestamp();
    end if;
    update memfold.runs as r
    set report = v_run.report, status = v_run.status, ended_at = v_run.ended_at
    where r.tenant_id = v_run.tenant_id and r.run_id = v_run.run_id;
    return v_ended;
end;
$$;
grant execute on function memfold_internal._rehash_batch to memfold_app;
