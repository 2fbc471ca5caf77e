create or replace function memfold.merge_memories(
    memory_id uuid,
    into_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_pair constant memfold.memories[] := memfold_internal._authorize_pair(tenant_id, memory_id, into_id);
    a constant memfold.memories := v_pair[1];
    b constant memfold.memories := v_pair[2];
begin
    return memfold_internal._person_result('merged', b.memory_id, null,
        memfold_internal._record_relation(memfold_internal._person(tenant_id, a.bucket_id, reason), 'merged',
            a.memory_id, b.memory_id, null, null));
end;
$$;
grant execute on function memfold.merge_memories to memfold_app;
comment on function memfold.merge_memories is
'Merges a memory into another of the same bucket, in any scope, as a manual action: memory_id becomes an alias of into_id, which counts
its observations from now on. The id of an alias stands for its root. undo(event_id) undoes it. Raises MF018 (no such memory), MF034 (the
same memory, another bucket, rejected or withdrawn), MF025.';
