create or replace function memfold._neighbours(
    tenant_id text, bucket_id text, scope_key bigint, embedding vector, embedding_model text,
    newest bigint, max_results bigint, except_root uuid default null
) returns table (memory_id uuid, root_id uuid, similarity double precision, content text, object text)
language plpgsql stable
as $$
begin
    return query
    select m.memory_id, memfold._root(m.memory_id, m.root_id), memfold._similarity(s.embedding, _neighbours.embedding),
        m.content, m.object
    from (
        select n.memory_id, n.embedding
        from (
            select v.memory_id, v.embedding
            from memfold.memory_vectors as v
            where v.tenant_id = _neighbours.tenant_id collate "C"
                and v.bucket_id = _neighbours.bucket_id collate "C"
                and (_neighbours.scope_key is null or v.scope_key = _neighbours.scope_key)
                and v.model = embedding_model collate "C"
                and v.live
            order by v.memory_id desc
            limit newest
        ) as n
        order by memfold._inner_product(n.embedding, _neighbours.embedding), n.memory_id
        -- the tree of a memory that asks has its aliases among its own neighbours
        limit max_results + case when except_root is null then 0 else 100 end
    ) as s
    join memfold.memories as m on m.tenant_id = _neighbours.tenant_id collate "C" and m.memory_id = s.memory_id
    where memfold._root(m.memory_id, m.root_id) is distinct from except_root
    order by 3 desc, m.memory_id
    limit max_results;
end;
$$;
revoke all on function memfold._neighbours(text, text, bigint, vector, text, bigint, bigint, uuid) from public;
comment on function memfold._neighbours(text, text, bigint, vector, text, bigint, bigint, uuid) is
'The max_results live texts nearest to a unit vector among the newest ones of a scope (scope_key null: of the bucket),
most similar first, ties to the older text. Exact: a scan of the scope''s vectors, no approximate index.';
