create or replace function memfold.erase_memory(
    memory_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns memfold.erasure
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    m memfold.memories;
    v_texts uuid[];
    v_result memfold.erasure;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{}');
    if not memfold_internal._lock_to_erase(m.tenant_id, array[m.memory_id], true) then
        raise exception 'the scope is busy' using
            errcode = 'serialization_failure',
            detail = 'Related memories have changed, and another call is writing to their scope.',
            hint = 'Retry the call.';
    end if;
    -- It may have another root by now, or be erased.
    m := memfold_internal._memory_root(tenant_id, memory_id, '{}');
    v_texts := memfold_internal._trees(m.tenant_id, array[m.memory_id]);
    perform memfold_internal._lock_erased(m.tenant_id, v_texts);
    -- A row of a plain INSERT has no ledger row yet.
    perform memfold_internal._adopt_row(m.tenant_id, i.id) from unnest(v_texts) as i (id);
    v_result := memfold_internal._erase(m.tenant_id, m.bucket_id, v_texts, array(
        select e.event_id from memfold_internal._events_of(m.tenant_id, v_texts) as e
    ), null, reason);
    v_result.remaining := 0;
    return v_result;
end;
$$;
grant execute on function memfold.erase_memory to memfold_app;
comment on function memfold.erase_memory is
'Erases a fact: the memory (for an alias: its root) and all its aliases, with their vectors, metadata, judgements and ledger rows. Values
that only it had superseded become current again, as if it had never been stated. If it is stated again, it is a new memory: to refuse it
from now on, use reject_memory(). Cannot be undone. A ledger row without content remains for each text, with reason. Raises MF001 to
MF003, MF018 (no such memory), MF025.';
