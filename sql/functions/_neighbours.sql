create or replace function memfold._neighbours(
    tenant_id text, bucket_id text, scope_key bigint, embedding vector, embedding_model text,
    newest bigint, max_results bigint, threshold double precision, except_root uuid,
    hidden_after uuid, hidden_to uuid
) returns table (memory_id uuid, root_id uuid, similarity double precision, content text, object text)
language plpgsql stable
as $$
declare
    -- the tree of a memory that asks has its aliases among its own neighbours
    v_results constant bigint := max_results + case when except_root is null then 0 else 100 end;
    v_index oid;
    v_ids uuid[];
    v_similarities double precision[];
begin
    -- Two statements, because one with "or scope_key is null" would read the whole tenant.
    if scope_key is not null then
        return query
        select s.memory_id, memfold._root(m.memory_id, m.root_id), s.similarity, m.content, m.object
        from (
            select n.memory_id, memfold._similarity(n.embedding, _neighbours.embedding) as similarity
            from (
                select v.memory_id, v.embedding
                from memfold.memory_vectors as v
                where v.tenant_id = _neighbours.tenant_id collate "C"
                    and v.bucket_id = _neighbours.bucket_id collate "C"
                    and v.scope_key = _neighbours.scope_key
                    and v.model = embedding_model collate "C"
                    and v.live
                    and (v.memory_id > hidden_after and v.memory_id <= hidden_to) is not true
                order by v.memory_id desc
                limit newest
            ) as n
            order by 2 desc, n.memory_id
            limit v_results
        ) as s
        -- from each to its text, whatever the statistics say: there may be none yet
        cross join lateral (
            select t.memory_id, t.root_id, t.content, t.object from memfold.memories as t
            where t.tenant_id = _neighbours.tenant_id collate "C" and t.memory_id = s.memory_id
            offset 0
        ) as m
        where s.similarity >= threshold and memfold._root(m.memory_id, m.root_id) is distinct from except_root
        order by s.similarity desc, s.memory_id
        limit max_results;
    else
        v_index := memfold._vector_index(embedding_model);
        if v_index is not null
            and memfold._outgrown(tenant_id, bucket_id, embedding_model, newest, hidden_after, hidden_to)
        then
            select i.memory_ids, i.similarities into v_ids, v_similarities
            from memfold._indexed_neighbours(tenant_id, bucket_id, embedding, embedding_model, v_results,
                hidden_after, hidden_to, v_index) as i;
        end if;
        -- An index's scan gives up where nearly all that is near belongs to others: then the newest ones beside it.
        return query
        select s.memory_id, memfold._root(m.memory_id, m.root_id), s.similarity, m.content, m.object
        from (
            (
                select n.memory_id, memfold._similarity(n.embedding, _neighbours.embedding) as similarity
                from (
                    select v.memory_id, v.embedding
                    from memfold.memory_vectors as v
                    where v.tenant_id = _neighbours.tenant_id collate "C"
                        and v.bucket_id = _neighbours.bucket_id collate "C"
                        and v.model = embedding_model collate "C"
                        and v.live
                        and (v.memory_id > hidden_after and v.memory_id <= hidden_to) is not true
                    order by v.memory_id desc
                    limit case when pg_catalog.cardinality(v_ids) = v_results then 0 else newest end
                ) as n
                order by 2 desc, n.memory_id
                limit v_results
            )
            union
            select i.memory_id, i.similarity from unnest(v_ids, v_similarities) as i (memory_id, similarity)
        ) as s
        -- from each to its text, whatever the statistics say: there may be none yet
        cross join lateral (
            select t.memory_id, t.root_id, t.content, t.object from memfold.memories as t
            where t.tenant_id = _neighbours.tenant_id collate "C" and t.memory_id = s.memory_id
            offset 0
        ) as m
        where s.similarity >= threshold and memfold._root(m.memory_id, m.root_id) is distinct from except_root
        order by s.similarity desc, s.memory_id
        limit max_results;
    end if;
end;
$$;
revoke all on function memfold._neighbours(
    text, text, bigint, vector, text, bigint, bigint, double precision, uuid, uuid, uuid
) from public;
comment on function memfold._neighbours(
    text, text, bigint, vector, text, bigint, bigint, double precision, uuid, uuid, uuid
) is
'The max_results live texts nearest to a unit vector, with a cosine of at least threshold, among the newest ones of a scope,
most similar first, ties to the older text. hidden_after, hidden_to: ids between them are not there yet (later ones of a
batch); null: none. Exact: a scan of the scope''s vectors. scope_key null: of the bucket; of all of it, by an approximate
index, where there is one (create_vector_index) and the bucket has more than the newest ones.';
