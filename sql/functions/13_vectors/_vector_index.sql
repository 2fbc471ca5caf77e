-- How many active vectors tier 2 compares one by one: all of a scope up to this number, above it only the newest, unless
-- there is an index (create_vector_index).
create or replace function memfold_internal._exact_limit() returns bigint
language sql immutable parallel safe
return 10000;

-- The name of an embedding model's index: names of models may be longer than names of indexes.
create or replace function memfold_internal._vector_index_name(p_model text) returns text
language sql immutable parallel safe
return 'memory_vectors_hnsw_' || pg_catalog.left(
    pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(p_model, 'UTF8')), 'hex'), 32
);

-- The valid index of an embedding model. Null: there is none.
create or replace function memfold_internal._vector_index(p_model text) returns oid
language sql stable parallel safe
begin atomic
    select i.indexrelid
    from pg_catalog.pg_index as i
    where
        i.indexrelid = pg_catalog.to_regclass('memfold.' || memfold_internal._vector_index_name(p_model))::oid
        and i.indisvalid and i.indrelid = 'memfold.memory_vectors'::pg_catalog.regclass;
end;

-- Whether a bucket has more active vectors of a model than newest. Reads that many entries of an index: a tenth of the
-- time that comparing as many vectors takes.
create or replace function memfold_internal._exceeds_exact_limit(
    p_tenant_id text, p_bucket_id text, p_embedding_model text, p_newest bigint, p_hidden_after uuid, p_hidden_to uuid
) returns boolean
language plpgsql stable
-- by the index, whatever the statistics say: this runs for each candidate
set enable_seqscan = off
set jit = off
as $$
begin
    return exists (
        select
        from memfold.memory_vectors as v
        where v.tenant_id = p_tenant_id collate "C"
            and v.bucket_id = p_bucket_id collate "C"
            and v.model = p_embedding_model collate "C"
            and v.is_live
            and (v.memory_id > p_hidden_after and v.memory_id <= p_hidden_to) is not true
        offset p_newest limit 1
    );
end;
$$;

-- The indexed type of an index of vectors (_vector_index), such as vector(384), and the schema of that type.
create or replace function memfold_internal._vector_type(p_index_id oid, out type text, out schema text)
language sql stable
begin atomic
    select pg_catalog.format_type(a.atttypid, a.atttypmod), t.typnamespace::pg_catalog.regnamespace::text
    from pg_catalog.pg_attribute as a
    join pg_catalog.pg_type as t on t.oid = a.atttypid
    where a.attrelid = p_index_id and a.attnum = 1;
end;

-- The settings that _scan_far() changes.
create or replace function memfold_internal._scan_settings() returns text[]
language sql immutable parallel safe
return array['hnsw.iterative_scan', 'hnsw.ef_search', 'hnsw.max_scan_tuples', 'hnsw.scan_mem_multiplier', 'enable_sort'];

-- Makes scans of an index of vectors continue until p_max_results have passed, or p_max_scanned entries (at least 40 per
-- result) were read. Returns the previous values of _scan_settings().
create or replace function memfold_internal._scan_far(p_embedding vector, p_max_results bigint, p_max_scanned bigint) returns text[]
language plpgsql volatile
as $$
begin
    perform memfold_internal._norm(p_embedding);
    return memfold_internal._swap_settings(memfold_internal._scan_settings(), array['relaxed_order',
        greatest(400, least(1000, 2 * p_max_results))::text, greatest(p_max_scanned, 40 * p_max_results)::text, '8', 'off']);
end;
$$;

-- The p_max_results active texts of a bucket nearest to a unit vector, by an index (_vector_index), which rarely misses
-- one. Fewer if the scan gave up.
create or replace function memfold_internal._indexed_knn_dedup(
    p_tenant_id text, p_bucket_id text, p_embedding vector, p_embedding_model text, p_max_results bigint,
    p_hidden_after uuid, p_hidden_to uuid, p_index_id oid,
    out memory_ids uuid[], out similarities double precision[]
)
language plpgsql stable
as $$
declare
    v_before text[];
    v_type text;
    v_schema text;
begin
    select t.type, t.schema into strict v_type, v_schema from memfold_internal._vector_type(p_index_id) as t;
    v_before := memfold_internal._scan_far(p_embedding, p_max_results, 4000);
    -- the model as written in the index's predicate, else the index could not be used
    execute format(
        'select array_agg(s.memory_id), array_agg(s.similarity)'
        ' from ('
        ' select v.memory_id, memfold_internal._similarity(v.embedding, $3) as similarity'
        ' from memfold.memory_vectors as v'
        ' where v.tenant_id = $1 collate "C" and v.bucket_id = $2 collate "C" and v.model = %L and v.is_live'
        ' and (v.memory_id > $5 and v.memory_id <= $6) is not true'
        ' order by v.embedding::%s operator(%s.<#>) $3::%s'
        ' limit $4) as s',
        p_embedding_model, v_type, v_schema, v_type)
    into memory_ids, similarities
    using p_tenant_id, p_bucket_id, p_embedding, p_max_results, p_hidden_after, p_hidden_to;
    perform memfold_internal._swap_settings(memfold_internal._scan_settings(), v_before);
end;
$$;
