create or replace function memfold.current_memory(
    id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (memory_id uuid, content text, status text)
language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select r.memory_id, r.content::text, r.status::text
    from memfold.memories as m
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold._root(m.memory_id, m.root_id)
    where m.memory_id = current_memory.id
        and (m.tenant_id = current_memory.tenant_id collate "C" or coalesce(current_memory.tenant_id, '') = '');
end;
$$;
revoke all on function memfold.current_memory(uuid, text) from public;
grant execute on function memfold.current_memory(uuid, text) to memfold_app, memfold_auditor;
comment on function memfold.current_memory(uuid, text) is
'Where an id leads today: the memory that holds its fact, after all folds. Any id ever handed out keeps its meaning.
Without a tenant (argument or memfold.tenant_id) it looks among all that the role may read.';
