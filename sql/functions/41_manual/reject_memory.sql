create or replace function memfold.reject_memory(
    memory_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    m memfold.memories;
    r memfold.ingest_result;
    v_rivalry memfold_internal.rivalry;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{}');
    perform memfold_internal._lock_memories(tenant_id, array[m.memory_id]);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{rejected}');
    perform memfold_internal._check_agent_changes(m);
    v_rivalry := memfold_internal._rivalry(tenant_id, array[m.memory_id]);
    r := memfold_internal._person_result('rejected', m.memory_id, null,
        memfold_internal._record_relation(memfold_internal._person(tenant_id, m.bucket_id, reason), 'rejected',
            m.memory_id, null, null, null));
    select jsonb_agg(jsonb_build_object('memory_id', i.id, 'note', 'current again')) into r."similar"
    from unnest(memfold_internal._current_again(tenant_id, v_rivalry)) as i (id);
    return r;
end;
$$;
grant execute on function memfold.reject_memory to memfold_app;
comment on function memfold.reject_memory is
'Rejects a memory (for an alias: its root) as a manual action: it becomes a tombstone, which is no longer shown, and the same fact is
refused when it arrives again (docs/rules.md, Tombstones). A value that it had superseded becomes current again, and is listed in similar
with the note current again. undo(event_id) undoes it. Raises MF018 (no such memory), MF034 (it is already rejected), MF025. For members of
memfold_agent: only what agents have stated (42501, MF066).';
