create or replace function memfold.supersede_memory(
    memory_id uuid,
    by_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_pair constant memfold.memories[] := memfold_internal._authorize_pair(tenant_id, memory_id, by_id);
    a constant memfold.memories := v_pair[1];
    b constant memfold.memories := v_pair[2];
    v_stated_at timestamptz;
begin
    -- by_id is current from now on, even if the timeline has statements with later dates. A row of a plain INSERT has no counters.
    v_stated_at := greatest(memfold_internal._clock(), case when not a.is_ingested then a.created_at end,
        memfold_internal._last_said(a.tenant_id, a.bucket_id, array[a.memory_id, b.memory_id], null));
    return memfold_internal._person_result('superseded', b.memory_id, a.memory_id,
        memfold_internal._record_relation(memfold_internal._person(tenant_id, a.bucket_id, reason), 'superseded',
            b.memory_id, a.memory_id, null, v_stated_at));
end;
$$;
grant execute on function memfold.supersede_memory to memfold_app;
comment on function memfold.supersede_memory is
'Retires a memory in favour of another of the same bucket, as a manual action: memory_id becomes history from now on, by_id is current. If
the retired memory is stated again later, it becomes current again. The id of an alias stands for its root. undo(event_id) undoes it.
Raises MF018 (no such memory), MF034 (the same memory, another bucket, rejected or withdrawn), MF025.';
