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

-- The ledger rows in which texts were decided against. Inlined by its callers.
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

-- Deletes rows of a bucket from the ledger, with the rows that undo them and the calls' idempotency keys, and returns
-- how many. Only for erasure: the caller has set memfold.maintenance to on.
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
        -- and that it was undone
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

-- The reported similar memories without these texts, whether they are memories or the matching texts. Null: none is
-- left.
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

-- Removes what the ledger and the queue say about texts in rows of others: the guard's signals contain words of both.
-- The caller has set memfold.maintenance to on.
create or replace function memfold_internal._scrub_references(p_tenant_id text, p_bucket_id text, p_texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_judgement_ids uuid[];
    r record;
begin
    -- by id, in a loop: joined, the rows of the tenant were looked up for each (15,000 pages after 7,500 rows)
    for r in
        select o.event_id, o.recorded_at from memfold_internal._events_about(v_tenant_id, p_texts) as o where o.guard <> '{}'
    loop
        update memfold.memory_events as e
        set guard = '{}'
        where e.tenant_id = v_tenant_id and e.event_id = r.event_id and e.recorded_at = r.recorded_at;
    end loop;
    -- First by text, then by id. A range and its order: joined, and without statistics, the tenant's judgements were read for each text,
    -- 4,300,000 rows in an erasure.
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

-- Re-points ledger rows from texts that are erased, whose observations are already gone, to the texts that replace them
-- (p_gone_into; null: none is left, and rows that say nothing about others are deleted too). p_aliases: texts that stay,
-- each to be merged into the one of p_aliases_into; those that no row merges any more get their own merge event. Returns
-- how many rows were deleted. The caller has set memfold.maintenance to on.
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
            -- a recalled statement repeats the text; a refused statement of another source belongs to that source
            when e.origin is not null then e.memory_id = any(p_gone) and e.origin = 'recalled'
            else e.action not in ('merged', 'replaced', 'superseded', 'rejected', 'pruned', 'undone', 'withdrawn', 'restored') or v_memory_id is null
                or e.action in ('merged', 'replaced', 'superseded') and v_target_id is null
        end) then
            v_removed := v_removed || e.event_id;
        elsif e.action in ('merged', 'replaced', 'superseded', 'historical') and e.tier >= 2 and v_target_id is null then
            -- the text that it was merged into, or replaced, is gone: it is separate, and there is nothing to undo
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
    -- those merged by a row of the erased text above
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, guard, actor
    )
    select v_tenant_id, memfold_internal._id_after(memfold_internal._new_id(), v_newest), p_bucket_id, 'merged', 3, 'erasure', o.id,
    o.into_id, '{}',
        memfold_internal._actor()
    from unnest(p_aliases, p_aliases_into) as o (id, into_id)
    where not exists (
        select from memfold_internal._ledger as l
        where l.tenant_id = v_tenant_id and l.memory_id = o.id and l.action = 'merged' and l.tier >= 2 and not l.undone
        -- from each to its own rows, as in _restore_wording()
        offset 0
    ) and not exists (
        select from memfold_internal._ledger as l
        where l.tenant_id = v_tenant_id and l.target_id = o.id and l.action = 'replaced' and not l.undone
        offset 0
    );
    return v_count;
end;
$$;
