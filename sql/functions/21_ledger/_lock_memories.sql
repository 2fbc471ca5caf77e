-- Locks the scope of memories of one bucket for a decision about them, or the bucket if their trees, timelines or
-- policy span scopes, which it checks again under the lock. Returns true; if p_wait is false, it never waits, and returns whether it
-- has the lock. Raises MF025, and 40001 if it would have to wait twice.
create or replace function memfold_internal._lock_memories(
    p_tenant_id text, p_memory_ids uuid[], p_wait boolean default true
) returns boolean
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_roots uuid[];
    v_bucket_id text;
    v_scope_key uuid;
    v_wide boolean;
    v_locked text;
    v_locked_key uuid;
begin
    loop
        -- all memories that the call may change: their roots, and the memories on a timeline with their trees
        v_roots := array(select r.memory_id from memfold_internal._roots(p_tenant_id, p_memory_ids) as r);
        if exists (
            select from memfold.memory_counters as k where k.tenant_id = p_tenant_id collate "C" and k.is_related
        ) and (
            -- otherwise, only values of their slots are on a timeline with them, and a slot is a scope
            memfold_internal._related(p_tenant_id, v_roots) <> '{}' or exists (select from memfold_internal._slots(p_tenant_id,
                p_memory_ids))
        ) then
            v_roots := memfold_internal._timed_with(p_tenant_id, memfold_internal._trees(p_tenant_id, p_memory_ids));
        end if;
        select min(r.bucket_id), min(r.scope_key::text)::uuid, count(distinct r.scope_key) > 1 or bool_or(
            a.elsewhere or memfold_internal._is_wide(p.scope, p.key_fields, p.rehash_run))
        into strict v_bucket_id, v_scope_key, v_wide
        from memfold_internal._roots(p_tenant_id, v_roots) as r
        -- the lowest and the highest scope key of the aliases, by two lookups
        cross join lateral (
            select coalesce(bool_or(a.scope_key <> r.scope_key), false) as elsewhere
            from (
                (
                    select m.scope_key from memfold.memories as m
                    where m.tenant_id = r.tenant_id and m.root_id = r.memory_id
                    order by m.scope_key
                    limit 1
                )
                union all
                (
                    select m.scope_key from memfold.memories as m
                    where m.tenant_id = r.tenant_id and m.root_id = r.memory_id
                    order by m.scope_key desc
                    limit 1
                )
            ) as a
        ) as a
        cross join lateral memfold_internal._policy(r.tenant_id, r.bucket_id, r.memory_type) as p;
        -- no bucket: the memories were erased
        exit when v_bucket_id is null or v_locked = 'bucket' or v_locked = 'scope' and not v_wide
            -- a link may have moved them into another scope
            and v_scope_key = v_locked_key;
        -- a second pass already holds a key, and must not wait for another
        if p_wait then
            perform memfold_internal._lock(p_tenant_id, v_bucket_id, case when not v_wide then v_scope_key end, v_locked is null);
        elsif not memfold_internal._try_lock(p_tenant_id, v_bucket_id, case when not v_wide then v_scope_key end) then
            return false;
        end if;
        v_locked_key := v_scope_key;
        v_locked := case when v_wide then 'bucket' else 'scope' end;
    end loop;
    return true;
end;
$$;

-- The texts whose counters derive_scope() of p_memory_ids changes, or restatements may change at the same time, in the
-- order of locking: roots by id, then aliases by id.
create or replace function memfold_internal._texts_to_lock(p_tenant_id text, p_memory_ids uuid[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_texts uuid[] := array[]::uuid[];
begin
    -- in parts, because the time grows faster than the size
    for v_from in 1..cardinality(p_memory_ids) by 200 loop
        -- texts of trees that were found already are left out
        v_texts := v_texts || memfold_internal._trees(p_tenant_id, array(
            select i.id from unnest(p_memory_ids[v_from:v_from + 199]) as i (id) where i.id <> all(v_texts)
        )) || memfold_internal._restated_with(p_tenant_id, p_memory_ids[v_from:v_from + 199]);
    end loop;
    return array(
        select distinct on (m.root_id is not null, m.memory_id) m.memory_id
        from unnest(v_texts) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        order by m.root_id is not null, m.memory_id
    );
end;
$$;
