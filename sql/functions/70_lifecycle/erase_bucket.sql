-- Erases about p_max_memories of a bucket, with their trees and timelines; fewer if they were stated often. If the bucket has
-- many idempotency keys, a call deletes only these. The caller holds the bucket's lock.
create or replace function memfold_internal._erase_some(
    p_tenant_id text, p_bucket_id text, p_max_memories bigint
) returns memfold.erasure
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_bucket_id constant text collate "C" := p_bucket_id;
    v_result memfold.erasure;
    v_texts uuid[];
    v_sources uuid[];
    v_turns text[];
    v_rows bigint;
begin
    -- Keys first, because none may refer to an erased ledger row.
    delete from memfold.idempotency_keys as i
    using (
        select o.idempotency_key from memfold.idempotency_keys as o
        where o.tenant_id = v_tenant_id and o.bucket_id = v_bucket_id
        limit 20 * p_max_memories
    ) as o
    where i.tenant_id = v_tenant_id and i.bucket_id = v_bucket_id and i.idempotency_key = o.idempotency_key;
    get diagnostics v_rows = row_count;
    if v_rows = 20 * p_max_memories then
        return (0, 0, 0, 1, '{}')::memfold.erasure;
    end if;
    -- Whole trees and timelines, so that the state of the rest does not change.
    v_texts := memfold_internal._timeline_texts(v_tenant_id, array(
        select x.memory_id
        from (
            select t.memory_id, row_number() over (order by t.memory_id) as place,
                sum(k.observations) over (order by t.memory_id) as observations
            from (
                (
                    select m.memory_id from memfold.memories as m
                    where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id and m.content_hash is not null
                    order by m.content_hash
                    limit p_max_memories
                )
                union all
                (
                    select m.memory_id from memfold.memories as m
                    where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id and m.content_hash is null
                    limit p_max_memories
                )
            ) as t
            left join lateral (
                select k.observations from memfold.memory_totals as k
                where k.tenant_id = v_tenant_id and k.memory_id = t.memory_id
                offset 0
            ) as k on true
        ) as x
        -- A fact that was stated very often takes a whole call.
        where x.place = 1 or x.place <= p_max_memories and x.observations < 20 * p_max_memories
    ));
    perform memfold_internal._lock_texts(v_tenant_id, memfold_internal._texts_to_lock(v_tenant_id, v_texts));
    perform memfold_internal._maintain(true);
    select array_agg(x.memory_id), array_agg(x.turn) into v_sources, v_turns
    from (
        select distinct e.memory_id, t.turn
        from memfold_internal._events_of(v_tenant_id, v_texts) as e
        cross join lateral unnest(e.source_turn_ids) as t (turn)
    ) as x;
    delete from memfold.memory_sources as s
    using unnest(v_sources, v_turns) as t (id, turn)
    where s.tenant_id = v_tenant_id and s.source_turn_id = t.turn collate "C" and s.memory_id = t.id;
    delete from memfold.memory_events as e
    using (select t.id from unnest(v_texts) as t (id)) as t
    where e.tenant_id = v_tenant_id and e.memory_id = t.id;
    get diagnostics v_result.events = row_count;
    perform memfold_internal._remove_texts(v_tenant_id, v_texts);
    perform memfold_internal._maintain(false);
    v_result.erased := cardinality(v_texts);
    return v_result;
end;
$$;

-- Erases what is left of a bucket without memories, or of a tenant with its rules (p_bucket_id null), but not the records of
-- the erasure. Deletes at most p_max_rows from large tables and returns how many; fewer than p_max_rows: nothing is left.
create or replace function memfold_internal._erase_rest(p_tenant_id text, p_bucket_id text, p_max_rows bigint) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_bucket_id constant text collate "C" := p_bucket_id;
    v_rows bigint;
    v_left bigint := p_max_rows;
begin
    perform memfold_internal._maintain(true);
    delete from memfold.memory_events as e
    using (
        select o.event_id, o.recorded_at from memfold.memory_events as o
        where o.tenant_id = v_tenant_id and o.action <> 'erased'
            -- For a bucket, only refused candidates are left, which are about no memory.
            and (v_bucket_id is null or o.memory_id is null and o.bucket_id = v_bucket_id)
        limit v_left
    ) as o
    where e.tenant_id = v_tenant_id and e.event_id = o.event_id and e.recorded_at = o.recorded_at;
    get diagnostics v_rows = row_count;
    v_left := v_left - v_rows;
    perform memfold_internal._maintain(false);
    delete from memfold.idempotency_keys as i
    using (
        select o.bucket_id, o.idempotency_key from memfold.idempotency_keys as o
        where o.tenant_id = v_tenant_id and (v_bucket_id is null or o.bucket_id = v_bucket_id)
        limit v_left
    ) as o
    where i.tenant_id = v_tenant_id and i.bucket_id = o.bucket_id and i.idempotency_key = o.idempotency_key;
    get diagnostics v_rows = row_count;
    v_left := v_left - v_rows;
    delete from memfold.runs as r
    where r.tenant_id = v_tenant_id and (v_bucket_id is null or r.bucket_id = v_bucket_id) and r.kind <> 'erasure';
    -- Questions about names, and links, contain the names of those whom the bucket was about.
    delete from memfold.judgements as j
    where j.tenant_id = v_tenant_id and j.link is not null and (v_bucket_id is null or j.bucket_id = v_bucket_id);
    delete from memfold.links as l where l.tenant_id = v_tenant_id and (v_bucket_id is null or l.bucket_id = v_bucket_id);
    if v_bucket_id is null then
        delete from memfold.labelled_pairs as p where p.tenant_id = v_tenant_id;
        delete from memfold.policies as p where p.tenant_id = v_tenant_id;
        delete from memfold.options as o where o.tenant_id = v_tenant_id;
        delete from memfold.predicates as p where p.tenant_id = v_tenant_id;
        delete from memfold.antonyms as a where a.tenant_id = v_tenant_id;
    end if;
    return p_max_rows - v_left;
end;
$$;

-- The open run of an erasure in several calls, or a new one. p_bucket_id '*': the whole tenant.
create or replace function memfold_internal._erasure_run(p_tenant_id text, p_bucket_id text, p_reason text) returns memfold.runs
language plpgsql volatile
as $$
declare
    r memfold.runs;
begin
    select o.* into r
    from memfold.runs as o
    where o.tenant_id = p_tenant_id collate "C" and o.bucket_id = p_bucket_id collate "C"
        and o.kind = 'erasure' and o.status = 'open'
    order by o.run_id desc
    limit 1;
    if not found then
        r := memfold_internal._start_run(p_tenant_id, p_bucket_id, 'erasure', jsonb_build_object('reason', p_reason));
    end if;
    return r;
end;
$$;

-- Adds the results of one call to the run of an erasure. If nothing remains, ends the run and writes a ledger row erased.
create or replace function memfold_internal._end_erasure(r memfold.runs, p_kind text, p_result memfold.erasure) returns void
language plpgsql volatile
as $$
declare
    v_report constant jsonb := jsonb_build_object(
        'erased', coalesce((r.report ->> 'erased')::bigint, 0) + p_result.erased,
        'events', coalesce((r.report ->> 'events')::bigint, 0) + p_result.events);
    v_now constant timestamptz := clock_timestamp();
begin
    update memfold.runs as o
    set report = v_report, status = case when p_result.remaining = 0 then 'done' else 'open' end,
        ended_at = case when p_result.remaining = 0 then v_now end
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id;
    if p_result.remaining = 0 then
        insert into memfold.memory_events (tenant_id, event_id, bucket_id, action, method, reason, cause, run_id, actor)
        values (r.tenant_id, memfold_internal._new_event_id(r.tenant_id), r.bucket_id, 'erased', p_kind, r.arguments ->> 'reason',
            format('%s texts, %s ledger rows', v_report ->> 'erased', v_report ->> 'events'), r.run_id,
            memfold_internal._actor());
    end if;
end;
$$;

-- Raises MF022 unless max_memories is 1 to 10,000.
create or replace function memfold_internal._check_erasure(p_max_memories bigint) returns void
language plpgsql immutable
as $$
begin
    if not coalesce(p_max_memories between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_memories was %s.', coalesce(p_max_memories::text, 'null')), 'max_memories is 1 to 10000.');
    end if;
end;
$$;

create or replace function memfold.erase_bucket(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default null,
    reason text default null,
    max_memories bigint default 200
) returns memfold.erasure
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    v_result memfold.erasure;
    v_rest bigint;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_erasure(max_memories);
    perform memfold_internal._lock(tenant_id, bucket_id, null, true);
    r := memfold_internal._erasure_run(tenant_id, bucket_id, reason);
    v_result := memfold_internal._erase_some(r.tenant_id, r.bucket_id, max_memories);
    v_result.kept := 0;
    v_result.current_again := '{}';
    v_result.remaining := (
        select count(*) from (
            select from memfold.memories as m where m.tenant_id = r.tenant_id and m.bucket_id = r.bucket_id limit 1000
        ) as m
    );
    if v_result.remaining = 0 then
        v_rest := memfold_internal._erase_rest(r.tenant_id, r.bucket_id, 20 * max_memories);
        v_result.events := v_result.events + v_rest;
        v_result.remaining := (v_rest = 20 * max_memories)::integer;
    end if;
    perform memfold_internal._end_erasure(r, 'bucket', v_result);
    return v_result;
end;
$$;
grant execute on function memfold.erase_bucket to memfold_app;
comment on function memfold.erase_bucket is
'Erases a bucket: memories, vectors, ledger, judgements, idempotency keys and runs, everything except its policy and options. Erases about
max_memories (1 to 10,000) per call, so that others do not wait long: call it, each time in a separate transaction, until remaining is 0.
The rest is unchanged until then. Blocks writers of the bucket during a call; a later call erases what they write between calls. Cannot be
undone: if the bucket may be needed again, call export_bucket() first. A run and a ledger row record when, by whom and why (reason). Raises
MF001 to MF003, MF022, MF025.';
