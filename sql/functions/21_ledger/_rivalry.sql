-- The memories of a rivalry that are current now.
create or replace function memfold_internal._current_of(p_tenant_id text, r memfold_internal.rivalry) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return array(
        select m.memory_id
        from unnest(r.bucket_ids, r.slot_keys) as s (bucket_id, slot_key)
        cross join lateral (
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = s.bucket_id collate "C" and m.scope_key = s.slot_key
                and m.root_id is null and m.status = 'active'
            offset 0
        ) as m
        union
        select m.memory_id
        from unnest(r.rivals) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        where m.status = 'active'
        order by 1
    );
end;
$$;

-- The slots of p_memory_ids, the memories that contradict them, and which of all these are current now: the argument of a
-- later _current_again().
create or replace function memfold_internal._rivalry(p_tenant_id text, p_memory_ids uuid[]) returns memfold_internal.rivalry
language plpgsql stable
as $$
declare
    r memfold_internal.rivalry;
    v_memory record;
    v_slot_key uuid;
begin
    for v_memory in
        select distinct on (m.bucket_id, m.scope_key) m.bucket_id, m.memory_type, m.predicate, m.scope_key
        from unnest(p_memory_ids) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
    loop
        v_slot_key := memfold_internal._slot_key(p_tenant_id, v_memory.bucket_id, v_memory.memory_type, v_memory.predicate,
            v_memory.scope_key);
        if v_slot_key is not null then
            r.bucket_ids := r.bucket_ids || v_memory.bucket_id;
            r.slot_keys := r.slot_keys || v_slot_key;
        end if;
    end loop;
    r.rivals := array(
        select w.other_id from memfold_internal._last_words(p_tenant_id, memfold_internal._trees(p_tenant_id, p_memory_ids)) as w
        where not w.is_apart
    );
    r.current_ids := memfold_internal._current_of(p_tenant_id, r);
    return r;
end;
$$;

-- The memories of a rivalry that have become current since _rivalry() was called.
create or replace function memfold_internal._current_again(p_tenant_id text, r memfold_internal.rivalry) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select i.id from unnest(memfold_internal._current_of(p_tenant_id, r)) as i (id) where i.id <> all(r.current_ids)
    );
end;
$$;
