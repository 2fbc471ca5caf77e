-- How many vectors tier 2 compares one by one: the newest of a scope, or of a bucket whose model has no index.
create or replace function memfold_internal._exact_limit() returns bigint
language sql immutable parallel safe
return 10000;

-- The name of an embedding model's index. Hashed, because a model's name may be too long for an index.
create or replace function memfold_internal._vector_index_name(p_model text) returns text
language sql immutable parallel safe
return 'memory_vectors_hnsw_' || pg_catalog.left(
    pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(p_model, 'UTF8')), 'hex'), 32
);

-- The valid index of an embedding model; null: none.
create or replace function memfold_internal._vector_index(p_model text) returns oid
language sql stable parallel safe
begin atomic
    select i.indexrelid
    from pg_catalog.pg_index as i
    where
        i.indexrelid = pg_catalog.to_regclass('memfold.' || memfold_internal._vector_index_name(p_model))::oid
        and i.indisvalid and i.indrelid = 'memfold.memory_vectors'::pg_catalog.regclass;
end;

-- Whether a bucket has more than p_newest vectors of a model. Reads that many index entries, in a tenth of the time that
-- comparing the vectors takes.
create or replace function memfold_internal._exceeds_exact_limit(
    p_tenant_id text, p_bucket_id text, p_embedding_model text, p_newest bigint, p_hidden_after uuid, p_hidden_to uuid
) returns boolean
language plpgsql stable
-- Do not let missing statistics choose a scan: this runs for each candidate.
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

-- The parameters that _scan_far() sets.
create or replace function memfold_internal._scan_settings() returns text[]
language sql immutable parallel safe
return array['hnsw.iterative_scan', 'hnsw.ef_search', 'hnsw.max_scan_tuples', 'hnsw.scan_mem_multiplier', 'enable_sort'];

-- Makes scans of a vector index continue until p_max_results rows have passed the filters, or p_max_scanned entries (at
-- least 40 per result) were read. Returns the previous values of _scan_settings().
create or replace function memfold_internal._scan_far(p_embedding vector, p_max_results bigint, p_max_scanned bigint) returns text[]
language plpgsql volatile
as $$
begin
    -- loads pgvector's library, which defines the settings
    perform memfold_internal._norm(p_embedding);
    return memfold_internal._swap_settings(memfold_internal._scan_settings(), array['relaxed_order',
        greatest(400, least(1000, 2 * p_max_results))::text, greatest(p_max_scanned, 40 * p_max_results)::text, '8', 'off']);
end;
$$;

-- The p_max_results texts of a bucket nearest to a unit vector, by an approximate index; fewer if the scan gave up.
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
    -- the model as a literal, as in the index's predicate: otherwise the index could not be used
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
