create or replace function memfold.known_memory(
    content text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    memory_type text default 'fact',
    subject text default null,
    predicate text default null,
    metadata jsonb default '{}'
) returns table (memory_id uuid, matched_id uuid, status text, content_hash bytea)
language plpgsql stable security definer rows 1 set search_path = pg_catalog, pg_temp
as $$
declare
    c memfold_internal.candidate;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    c := memfold_internal._validate(memfold_internal._candidate(content, tenant_id, bucket_id, memory_type, subject, predicate,
        p_metadata => metadata));
    return query
    select memfold_internal._root(m.memory_id, m.root_id), m.memory_id,
        case when m.root_id is null then m.status else (
            select r.status from memfold.memories as r
            where r.tenant_id = c.tenant_id and r.memory_id = m.root_id
        ) end,
        c.content_hash
    from memfold_internal._known_candidate(c) as m;
end;
$$;
grant execute on function memfold.known_memory to memfold_app;
comment on function memfold.known_memory is
'Runs only the tier-1 lookup: returns the memory that holds this text, if the bucket knows it (memory_id: the root, for an alias;
matched_id: the text itself; status: that of the memory). A known text needs no embedding. Returns no row if the text is not known. Writes
nothing. Raises what ingest_memory() raises for bad input.';
