-- The decision to refuse a text that somebody has rejected: rows 2, 5 and 9 of the decision table. similar_memories
-- names the tombstone and the event of its rejection, for undo().
create or replace function memfold_internal._decide_forgotten(p_tenant_id text, d memfold_internal.decision, p_tombstone uuid)
returns memfold_internal.decision
language plpgsql stable
as $$
declare
    v_note jsonb;
begin
    select jsonb_build_object('memory_id', p_tombstone, 'note', 'forgotten', 'event_id', e.event_id)
    into v_note
    from unnest(memfold_internal._trees(p_tenant_id, array[p_tombstone])) as i (id)
    join memfold_internal._decisions as e on e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id
        and e.action = 'rejected' and e.tier = 3 and not e.undone
    order by e.event_id desc
    limit 1;
    d.action := 'rejected';
    d.tier := coalesce(d.tier, 2);
    d.method := 'tombstone';
    -- the refused words belong to the tombstone, and are erased with it
    d.memory_id := coalesce(d.memory_id, p_tombstone);
    d.root_id := p_tombstone;
    d.target_id := nullif(p_tombstone, d.memory_id);
    d.similar_memories := memfold_internal._join_similar(jsonb_build_array(v_note), coalesce(d.similar_memories, '[]'));
    return d;
end;
$$;

-- Whether a memory is a tombstone.
create or replace function memfold_internal._is_forgotten(p_tenant_id text, p_memory_id uuid) returns boolean
language sql stable
return exists (
    select from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id and m.status = 'rejected'
);

-- The newest tombstone of a scope with this object, if no other memory of the scope has it.
create or replace function memfold_internal._forgotten_value(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_object text
) returns uuid
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_id uuid;
begin
    select m.memory_id into v_id
    from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C" and m.status = 'rejected'
        -- Compare rows and order by them: only the index of tombstones serves that.
        and (m.bucket_id, m.scope_key) >= (p_bucket_id collate "C", p_scope_key)
        and (m.bucket_id, m.scope_key) <= (p_bucket_id collate "C", p_scope_key)
        -- The sub-select runs once, and only if there is a tombstone.
        and memfold_internal._prose_1(m.object) = (select memfold_internal._prose_1(p_object))
    order by m.bucket_id desc, m.scope_key desc, m.memory_id desc
    limit 1;
    if v_id is not null and not exists (
        select from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.scope_key = p_scope_key and m.root_id is null and m.status in ('active', 'superseded')
            and memfold_internal._prose_1(m.object) = (select memfold_internal._prose_1(p_object))
    ) then
        return v_id;
    end if;
    return null;
end;
$$;
