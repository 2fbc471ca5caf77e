create or replace function memfold.reject_memory(
    memory_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    m memfold.memories;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{}');
    perform memfold_internal._lock_memories(tenant_id, array[m.memory_id]);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{rejected}');
    return memfold_internal._person_result('rejected', m.memory_id, null,
        memfold_internal._record_relation(memfold_internal._person(tenant_id, m.bucket_id, reason), 'rejected',
            m.memory_id, null, null, null));
end;
$$;
revoke all on function memfold.reject_memory(uuid, text, text) from public;
grant execute on function memfold.reject_memory(uuid, text, text) to memfold_app;
comment on function memfold.reject_memory(uuid, text, text) is
'A person says: not this. The memory (of an alias: where it leads) becomes a tombstone: it is no longer shown, and its text
and those of its aliases are rejected when they arrive again. A value that it had superseded is current again.
undo(event_id) takes it back. Raises MF018 (no such memory), MF034 (it is rejected already), MF025.';
