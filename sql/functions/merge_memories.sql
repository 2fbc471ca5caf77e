create or replace function memfold._check_pair(a memfold.memories, b memfold.memories) returns void
language plpgsql immutable parallel safe
as $$
begin
    if a.memory_id = b.memory_id then
        perform memfold._fail('MF034', 'the two are one memory already',
            pg_catalog.format('Both ids lead to %s.', a.memory_id),
            'explain_memory() shows its aliases; undo(event_id) takes a fold back.');
    elsif a.bucket_id <> b.bucket_id then
        perform memfold._fail('MF034', 'the two are in different buckets',
            pg_catalog.format('%s is in %L, %s in %L.', a.memory_id, a.bucket_id, b.memory_id, b.bucket_id),
            'Nothing is ever compared or folded across buckets.');
    end if;
end;
$$;
revoke all on function memfold._check_pair(memfold.memories, memfold.memories) from public;
comment on function memfold._check_pair(memfold.memories, memfold.memories) is
'Raises MF034 unless these are two memories of one bucket.';

create or replace function memfold._enter_pair(
    tenant_id text, memory_id uuid, other_id uuid
) returns memfold.memories[]
language plpgsql volatile
as $$
declare
    v_pair memfold.memories[];
begin
    perform memfold._enter(tenant_id);
    v_pair := array[memfold._memory_root(tenant_id, memory_id, '{}'), memfold._memory_root(tenant_id, other_id, '{}')];
    perform memfold._check_pair(v_pair[1], v_pair[2]);
    perform memfold._lock_memories(tenant_id, array[(v_pair[1]).memory_id, (v_pair[2]).memory_id]);
    v_pair := array[memfold._memory_root(tenant_id, memory_id, '{rejected,withdrawn}'),
        memfold._memory_root(tenant_id, other_id, '{rejected,withdrawn}')];
    perform memfold._check_pair(v_pair[1], v_pair[2]);
    return v_pair;
end;
$$;
revoke all on function memfold._enter_pair(text, uuid, uuid) from public;
comment on function memfold._enter_pair(text, uuid, uuid) is
'What a person relates to each other: the roots of two memories, looked at again under the locks of both. Raises MF001 to
MF003, MF018, MF034, MF025.';

create or replace function memfold.merge_memories(
    memory_id uuid,
    into_id uuid,
    reason text default null,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_pair constant memfold.memories[] := memfold._enter_pair(tenant_id, memory_id, into_id);
    a constant memfold.memories := v_pair[1];
    b constant memfold.memories := v_pair[2];
begin
    return memfold._person_result('merged', b.memory_id, null,
        memfold._relate(memfold._person(tenant_id, a.bucket_id, reason), 'merged', a.memory_id, b.memory_id, null, null));
end;
$$;
revoke all on function memfold.merge_memories(uuid, uuid, text, text) from public;
grant execute on function memfold.merge_memories(uuid, uuid, text, text) to memfold_app;
comment on function memfold.merge_memories(uuid, uuid, text, text) is
'A person folds one memory into another of the same bucket, whatever their scopes: memory_id becomes an alias of into_id,
which counts its observations from now on. Ids of aliases stand for where they lead. undo(event_id) takes it back.
Raises MF018 (no such memory), MF034 (the same memory, another bucket, rejected or withdrawn), MF025.';
