create or replace function memfold.pending_embeddings(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default null,
    max_results bigint default 100
) returns setof memfold.pending_memory
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', pending_embeddings.bucket_id, false);
    if max_results < 1 then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_results was %s.', max_results),
            'max_results is at least 1, or null for all.');
    end if;
    return query
    select m.memory_id, m.bucket_id::text, m.content::text, m.created_at
    from memfold.memories as m
    where m.tenant_id = pending_embeddings.tenant_id collate "C" and m.embedding_pending
        and (pending_embeddings.bucket_id is null or m.bucket_id = pending_embeddings.bucket_id collate "C")
    order by m.memory_id
    limit max_results;
end;
$$;
grant execute on function memfold.pending_embeddings to memfold_app;
comment on function memfold.pending_embeddings is
'Returns the memories of a tenant, of one bucket or of all (null), that were stored without a vector, oldest first: embed their content
and pass it to attach_embedding(). max_results: at least 1; null: all. Raises MF001 to MF003, MF022.';
