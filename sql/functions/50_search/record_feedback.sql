create or replace function memfold.record_feedback(
    memory_id uuid,
    helpful boolean,
    tenant_id text default current_setting('memfold.tenant_id', true),
    out helpful_count bigint,
    out harmful_count bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    m memfold.memories;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if helpful is null then
        perform memfold_internal._fail('MF022', 'helpful is missing', 'It was null.', 'Pass true, or false for harmful.');
    end if;
    loop
        m := memfold_internal._memory_root(record_feedback.tenant_id, record_feedback.memory_id, '{}');
        update memfold.memory_counters as k
        set helpful_count = k.helpful_count + helpful::integer, harmful_count = k.harmful_count + (not helpful)::integer
        where k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        returning k.helpful_count, k.harmful_count into helpful_count, harmful_count;
        exit when found;
        -- A row of a plain INSERT has no counters yet.
        insert into memfold.memory_counters (tenant_id, memory_id) values (m.tenant_id, m.memory_id) on conflict do nothing;
    end loop;
end;
$$;
grant execute on function memfold.record_feedback to memfold_app;
comment on function memfold.record_feedback is
'Records whether a memory (for an alias: its root) helped or harmed, and returns both counts: search_memories() ranks by them. Raises
MF001, MF002, MF018 (no such memory), MF022.';
