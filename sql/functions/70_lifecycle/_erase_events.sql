-- The ledger rows of texts. Inlined by its callers.
create or replace function memfold_internal._events_of(p_tenant_id text, p_texts uuid[]) returns setof memfold.memory_events
language sql stable
begin atomic
    select e.*
    from pg_catalog.unnest(p_texts) as i (id)
    cross join lateral (
        select e.* from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id
        offset 0
    ) as e;
end;

-- The ledger rows of other texts that were decided against p_texts (target_id). Inlined by its callers.
create or replace function memfold_internal._events_about(p_tenant_id text, p_texts uuid[]) returns setof memfold.memory_events
language sql stable
begin atomic
    select e.*
    from pg_catalog.unnest(p_texts) as i (id)
    cross join lateral (
        select e.* from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.target_id = i.id
        offset 0
    ) as e;
end;

-- Deletes ledger rows of a bucket, the rows that undo them, and the idempotency keys that refer to them. Returns how many
-- ledger rows. The caller has set memfold.maintenance to on.
create or replace function memfold_internal._remove_events(p_tenant_id text, p_bucket_id text, p_event_ids uuid[]) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_id uuid;
    v_count bigint := 0;
    v_removed bigint;
begin
    foreach v_id in array p_event_ids loop
        delete from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.event_id = v_id;
        get diagnostics v_removed = row_count;
        v_count := v_count + v_removed;
        delete from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.undoes = v_id;
        get diagnostics v_removed = row_count;
        v_count := v_count + v_removed;
    end loop;
    if p_event_ids <> '{}' then
        delete from memfold.idempotency_keys as i
        where i.tenant_id = p_tenant_id collate "C" and i.bucket_id = p_bucket_id collate "C"
            and i.event_id = any(p_event_ids);
    end if;
    return v_count;
end;
$$;

-- p_similar_memories without p_texts, as memories or as matching texts of others; null if no entry is left.
create or replace function memfold_internal._drop_similar(p_similar_memories jsonb, p_texts uuid[]) returns jsonb
language sql immutable parallel safe
begin atomic
    select nullif(coalesce(pg_catalog.jsonb_agg(s.entry - g.vector - g.words order by s.place), '[]'), '[]')
    from pg_catalog.jsonb_array_elements(p_similar_memories) with ordinality as s (entry, place)
    cross join
        lateral (
            select
                case
                    when (s.entry ->> 'matched_id')::uuid = any(p_texts) then '{matched_id,matched_similarity}' else '{}'
                end::text[] as vector,
                case
                    when (s.entry ->> 'jaccard_matched_id')::uuid = any(p_texts) then '{jaccard_matched_id,matched_jaccard}' else '{}'
                end::text[] as words
        ) as g
    where (s.entry ->> 'memory_id')::uuid <> all(p_texts);
end;

-- Removes words of texts from ledger rows and judgements of others: the guard's signals and similar memories contain words
-- of both sides. The caller has set memfold.maintenance to on.
create or replace function memfold_internal._scrub_references(p_tenant_id text, p_bucket_id text, p_texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_judgement_ids uuid[];
    r record;
begin
    -- One by one: a join may look up all rows of the tenant for each.
    for r in
        select o.event_id, o.recorded_at from memfold_internal._events_about(v_tenant_id, p_texts) as o where o.guard <> '{}'
    loop
        update memfold.memory_events as e
        set guard = '{}'
        where e.tenant_id = v_tenant_id and e.event_id = r.event_id and e.recorded_at = r.recorded_at;
    end loop;
    -- Find ids by text, then update by id. A range with its order uses the index of the column even without statistics, where
    -- a join reads the tenant's judgements for each text.
    v_judgement_ids := array(
        select j.id
        from unnest(p_texts) as t (id)
        cross join lateral (
            (
                select j.judgement_id as id from memfold.judgements as j
                where j.tenant_id = v_tenant_id and j.memory_id >= t.id and j.memory_id <= t.id and j.guard <> '{}'
                order by j.memory_id
            )
            union all
            (
                select j.cluster_id from memfold.judgements as j
                where j.tenant_id = v_tenant_id and j.memory_id >= t.id and j.memory_id <= t.id and j.cluster_id is not null
                order by j.memory_id
            )
            union all
            (
                select j.judgement_id from memfold.judgements as j
                where j.tenant_id = v_tenant_id and j.other_id >= t.id and j.other_id <= t.id and j.guard <> '{}'
                order by j.other_id
            )
            offset 0
        ) as j
    );
    update memfold.judgements as j
    set guard = '{}'
    where j.tenant_id = v_tenant_id and j.judgement_id = any(v_judgement_ids) and j.guard <> '{}';
    update memfold.memory_events as e
    set similar_memories = memfold_internal._drop_similar(e.similar_memories, p_texts)
    where e.tenant_id = v_tenant_id and e.bucket_id = p_bucket_id collate "C"
        and (e.similar_memories is not null or not e.observation)
        and e.similar_memories is distinct from memfold_internal._drop_similar(e.similar_memories, p_texts);
end;
$$;

-- Re-points ledger rows about erased texts (p_gone), whose observations are already gone, to p_gone_into (null: no text of
-- the fact is left), or deletes those that would have no meaning; returns how many. p_aliases stay merged into
-- p_aliases_into, by a new row if no other merges them. The caller has set memfold.maintenance to on.
create or replace function memfold_internal._repoint_merges(
    p_tenant_id text, p_bucket_id text, p_gone uuid[], p_gone_into uuid[], p_aliases uuid[], p_aliases_into uuid[]
) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_removed uuid[] := array[]::uuid[];
    v_count bigint;
    v_newest uuid;
    e memfold.memory_events;
    v_memory_id uuid;
    v_target_id uuid;
begin
    for e in
        select x.*
        from (
            select o.* from memfold_internal._events_of(v_tenant_id, p_gone) as o
            union
            select o.* from memfold_internal._events_about(v_tenant_id, p_gone) as o
        ) as x
        order by x.event_id
    loop
        v_memory_id := case when e.memory_id = any(p_gone)
            then p_gone_into[array_position(p_gone, e.memory_id)] else e.memory_id end;
        v_target_id := nullif(case when e.target_id = any(p_gone)
            then p_gone_into[array_position(p_gone, e.target_id)] else e.target_id end, v_memory_id);
        if (case
            -- A recalled statement of an erased text repeats it; a refused one belongs to another source and stays.
            when e.origin is not null then e.memory_id = any(p_gone) and e.origin = 'recalled'
            else e.action not in ('merged', 'replaced', 'superseded', 'rejected', 'pruned', 'undone', 'withdrawn', 'restored') or v_memory_id is null
                or e.action in ('merged', 'replaced', 'superseded') and v_target_id is null
        end) then
            v_removed := v_removed || e.event_id;
        elsif e.action in ('merged', 'replaced', 'superseded', 'historical') and e.tier >= 2 and v_target_id is null then
            -- The text that it was merged into, or replaced, is gone: it becomes a separate fact, with nothing to undo.
            update memfold.memory_events as o
            set action = 'inserted', tier = null, method = null, target_id = null, similarity = null, guard = '{}',
                similar_memories = null, reason = null
            where o.tenant_id = v_tenant_id and o.event_id = e.event_id;
            if memfold_internal._undo_state(v_tenant_id, e.event_id) <> 'withdrawn' then
                delete from memfold.memory_events as o where o.tenant_id = v_tenant_id and o.undoes = e.event_id;
            end if;
        else
            update memfold.memory_events as o
            set memory_id = v_memory_id, target_id = v_target_id, similarity = null, guard = '{}', similar_memories = null,
                reason = case when o.origin is not null then o.reason end,
                content = case when o.origin is not null then o.content end
            where o.tenant_id = v_tenant_id and o.event_id = e.event_id;
        end if;
    end loop;
    v_count := memfold_internal._remove_events(v_tenant_id, p_bucket_id, v_removed);
    v_newest := memfold_internal._newest_event(v_tenant_id);
    -- Texts that were merged only by a row of an erased text.
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, guard, actor
    )
    select v_tenant_id, memfold_internal._id_after(memfold_internal._new_id(), v_newest), p_bucket_id, 'merged', 3, 'erasure', o.id,
    o.into_id, '{}',
        memfold_internal._actor()
    from unnest(p_aliases, p_aliases_into) as o (id, into_id)
    where not exists (
        select from memfold.ledger as l
        where l.tenant_id = v_tenant_id and l.memory_id = o.id and l.action = 'merged' and l.tier >= 2 and not l.undone
        -- Look up each text's rows; do not let missing statistics choose a scan.
        offset 0
    ) and not exists (
        select from memfold.ledger as l
        where l.tenant_id = v_tenant_id and l.target_id = o.id and l.action = 'replaced' and not l.undone
        offset 0
    );
    return v_count;
end;
$$;
