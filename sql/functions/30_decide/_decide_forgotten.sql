create or replace function memfold_internal._decide_forgotten(tenant_id text, d memfold_internal.decision, tombstone uuid)
returns memfold_internal.decision
language plpgsql stable
as $$
declare
    v_note jsonb;
begin
    select pg_catalog.jsonb_build_object('memory_id', tombstone, 'note', 'forgotten', 'event_id', e.event_id)
    into v_note
    from pg_catalog.unnest(memfold_internal._trees(tenant_id, array[tombstone])) as i (id)
    join memfold_internal._decisions as e on e.tenant_id = _decide_forgotten.tenant_id collate "C" and e.memory_id = i.id
        and e.action = 'rejected' and e.tier = 3 and not e.undone
    order by e.event_id desc
    limit 1;
    d.action := 'rejected';
    d.tier := coalesce(d.tier, 2);
    d.method := 'tombstone';
    -- so that the refused words are erased with what they say again
    d.memory_id := coalesce(d.memory_id, tombstone);
    d.root_id := tombstone;
    d.target_id := nullif(tombstone, d.memory_id);
    d.similar_memories := memfold_internal._join_similar(pg_catalog.jsonb_build_array(v_note), coalesce(d.similar_memories, '[]'));
    return d;
end;
$$;
comment on function memfold_internal._decide_forgotten is
'Refuses what a tombstone says: rows 2, 5 and 9 of the decision table. similar_memories names it, with the rejection, for undo().
Only reads.';

create or replace function memfold_internal._is_forgotten(tenant_id text, memory_id uuid) returns boolean
language sql stable
return exists (
    select from memfold.memories as m
    where m.tenant_id = _is_forgotten.tenant_id collate "C" and m.memory_id = _is_forgotten.memory_id and m.status = 'rejected'
);
comment on function memfold_internal._is_forgotten is 'Whether a memory is a tombstone. Only reads.';

create or replace function memfold_internal._forgotten_value(tenant_id text, bucket_id text, scope_key uuid, object text) returns uuid
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_id uuid;
begin
    select m.memory_id into v_id
    from memfold.memories as m
    where m.tenant_id = _forgotten_value.tenant_id collate "C" and m.status = 'rejected'
        -- rows and their order, so that no index but that of tombstones will do
        and (m.bucket_id, m.scope_key) >= (_forgotten_value.bucket_id collate "C", _forgotten_value.scope_key)
        and (m.bucket_id, m.scope_key) <= (_forgotten_value.bucket_id collate "C", _forgotten_value.scope_key)
        -- the sub-select runs once, and only if there is a tombstone
        and memfold_internal._prose_1(m.object) = (select memfold_internal._prose_1(_forgotten_value.object))
    order by m.bucket_id desc, m.scope_key desc, m.memory_id desc
    limit 1;
    if v_id is not null and not exists (
        select from memfold.memories as m
        where m.tenant_id = _forgotten_value.tenant_id collate "C" and m.bucket_id = _forgotten_value.bucket_id collate "C"
            and m.scope_key = _forgotten_value.scope_key and m.root_id is null and m.status in ('active', 'superseded')
            and memfold_internal._prose_1(m.object) = (select memfold_internal._prose_1(_forgotten_value.object))
    ) then
        return v_id;
    end if;
    return null;
end;
$$;
comment on function memfold_internal._forgotten_value is
'The newest tombstone of a scope with this object, if no other memory of the scope has it. Only reads.';
