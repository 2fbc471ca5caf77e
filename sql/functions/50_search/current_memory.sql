create or replace function memfold.current_memory(
    id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (memory_id uuid, content text, status text)
language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp
as $$
declare
    v_id uuid := id;
begin
    perform memfold_internal._authorize_reader(tenant_id);
    while v_id is not null loop
        return query
        select r.memory_id, r.content::text, r.status::text
        from memfold.memories as m
        join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold_internal._root(m.memory_id, m.root_id)
        where m.memory_id = v_id
            and (m.tenant_id = current_memory.tenant_id collate "C" or coalesce(current_memory.tenant_id, '') = '');
        exit when found;
        -- If the text was erased and its fact was kept, its stub in the ledger names the text that took its place.
        v_id := (
            select e.target_id
            from memfold.memory_events as e
            where e.tenant_id = current_memory.tenant_id collate "C" and e.memory_id = v_id and e.action = 'erased'
            order by e.event_id desc
            limit 1
        );
    end loop;
end;
$$;
grant execute on function memfold.current_memory to memfold_app, memfold_auditor;
comment on function memfold.current_memory is
'Returns the memory that now holds the fact of an id, after all merges, and after an erasure that left the fact. No row: the fact was
erased; any other id remains valid. Without a tenant (argument or memfold.tenant_id), searches all memories that the role may read.';
