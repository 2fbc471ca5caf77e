create or replace function memfold.supersede_memory(
    memory_id uuid,
    by_id uuid,
    reason text default null,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    a memfold.memories;
    b memfold.memories;
    v_stated_at timestamptz;
begin
    perform memfold._enter(tenant_id);
    a := memfold._memory_root(tenant_id, memory_id, '{}');
    b := memfold._memory_root(tenant_id, by_id, '{}');
    perform memfold._check_pair(a, b);
    perform memfold._lock_memories(tenant_id, array[a.memory_id, b.memory_id]);
    a := memfold._memory_root(tenant_id, memory_id, '{rejected,withdrawn}');
    b := memfold._memory_root(tenant_id, by_id, '{rejected,withdrawn}');
    perform memfold._check_pair(a, b);
    -- it holds from now on, also against an observation that is dated ahead
    select greatest(now(), k.last_seen) into strict v_stated_at
    from memfold.memory_counters as k
    where k.tenant_id = a.tenant_id and k.memory_id = a.memory_id;
    return memfold._person_result('superseded', b.memory_id, a.memory_id,
        memfold._relate(memfold._person(tenant_id, a.bucket_id, reason), 'superseded', b.memory_id, a.memory_id, null,
            v_stated_at));
end;
$$;
revoke all on function memfold.supersede_memory(uuid, uuid, text, text) from public;
grant execute on function memfold.supersede_memory(uuid, uuid, text, text) to memfold_app;
comment on function memfold.supersede_memory(uuid, uuid, text, text) is
'A person retires a memory in favour of another of the same bucket: memory_id becomes history from now on, by_id is current.
Stated again later, the retired one is current again. Ids of aliases stand for where they lead. undo(event_id) takes it
back. Raises MF018 (no such memory), MF034 (the same memory, another bucket, rejected or withdrawn), MF025.';
