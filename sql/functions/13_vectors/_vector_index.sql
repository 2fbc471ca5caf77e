create or replace function memfold_internal._exact_limit() returns bigint
language sql immutable parallel safe
return 10000;
comment on function memfold_internal._exact_limit is
'How many active vectors tier 2 compares one by one: all of a scope up to this number, above it only the newest, unless there is an index
(create_vector_index).';

create or replace function memfold_internal._vector_index_name(model text) returns text
language sql immutable parallel safe
return 'memory_vectors_hnsw_' || pg_catalog.left(
    pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(model, 'UTF8')), 'hex'), 32
);
comment on function memfold_internal._vector_index_name is
'The name of an embedding model''s index: names of models may be longer than names of indexes.';

create or replace function memfold_internal._vector_index(model text) returns oid
language sql stable parallel safe
begin atomic
    select i.indexrelid
    from pg_catalog.pg_index as i
    where
        i.indexrelid = pg_catalog.to_regclass('memfold.' || memfold_internal._vector_index_name(model))::oid
        and i.indisvalid and i.indrelid = 'memfold.memory_vectors'::pg_catalog.regclass;
end;
comment on function memfold_internal._vector_index is 'The valid index of an embedding model. Null: there is none.';

create or replace function memfold_internal._exceeds_exact_limit(
    tenant_id text, bucket_id text, embedding_model text, newest bigint, hidden_after uuid, hidden_to uuid
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
        where v.tenant_id = _exceeds_exact_limit.tenant_id collate "C"
            and v.bucket_id = _exceeds_exact_limit.bucket_id collate "C"
            and v.model = embedding_model collate "C"
            and v.is_live
            and (v.memory_id > hidden_after and v.memory_id <= hidden_to) is not true
        offset newest limit 1
    );
end;
$$;
comment on function memfold_internal._exceeds_exact_limit is
'Whether a bucket has more active vectors of a model than newest. Reads that many entries of an index: a tenth of the time that comparing
as many vectors takes.';

create or replace function memfold_internal._vector_type(index_id oid, out type text, out schema text)
language sql stable
begin atomic
    select pg_catalog.format_type(a.atttypid, a.atttypmod), t.typnamespace::pg_catalog.regnamespace::text
    from pg_catalog.pg_attribute as a
    join pg_catalog.pg_type as t on t.oid = a.atttypid
    where a.attrelid = _vector_type.index_id and a.attnum = 1;
end;
comment on function memfold_internal._vector_type is
'The indexed type of an index of vectors (_vector_index), such as vector(384), and the schema of that type.';

create or replace function memfold_internal._scan_settings() returns text[]
language sql immutable parallel safe
return array['hnsw.iterative_scan', 'hnsw.ef_search', 'hnsw.max_scan_tuples', 'hnsw.scan_mem_multiplier', 'enable_sort'];
comment on function memfold_internal._scan_settings is 'The settings that _scan_far() changes.';

create or replace function memfold_internal._scan_far(embedding vector, max_results bigint, max_scanned bigint) returns text[]
language plpgsql volatile
as $$
begin
    perform memfold_internal._norm(embedding);
    return memfold_internal._swap_settings(memfold_internal._scan_settings(), array['relaxed_order',
        greatest(400, least(1000, 2 * max_results))::text, greatest(max_scanned, 40 * max_results)::text, '8', 'off']);
end;
$$;
comment on function memfold_internal._scan_far is
'Makes scans of an index of vectors continue until max_results have passed, or max_scanned entries (at least 40 per result) were read.
Returns the previous values of _scan_settings().';

create or replace function memfold_internal._indexed_knn_dedup(
    tenant_id text, bucket_id text, embedding vector, embedding_model text, max_results bigint,
    hidden_after uuid, hidden_to uuid, index_id oid,
    out memory_ids uuid[], out similarities double precision[]
)
language plpgsql stable
as $$
declare
    v_before text[];
    v_type text;
    v_schema text;
begin
    select t.type, t.schema into strict v_type, v_schema from memfold_internal._vector_type(index_id) as t;
    v_before := memfold_internal._scan_far(embedding, max_results, 4000);
    -- the model as written in the index's predicate, else the index could not be used
    execute pg_catalog.format(
        'select array_agg(s.memory_id), array_agg(s.similarity)'
        ' from ('
        ' select v.memory_id, memfold_internal._similarity(v.embedding, $3) as similarity'
        ' from memfold.memory_vectors as v'
        ' where v.tenant_id = $1 collate "C" and v.bucket_id = $2 collate "C" and v.model = %L and v.is_live'
        ' and (v.memory_id > $5 and v.memory_id <= $6) is not true'
        ' order by v.embedding::%s operator(%s.<#>) $3::%s'
        ' limit $4) as s',
        embedding_model, v_type, v_schema, v_type)
    into memory_ids, similarities
    using tenant_id, bucket_id, embedding, max_results, hidden_after, hidden_to;
    perform memfold_internal._swap_settings(memfold_internal._scan_settings(), v_before);
end;
$$;
comment on function memfold_internal._indexed_knn_dedup is
'The max_results active texts of a bucket nearest to a unit vector, by an index (_vector_index), which rarely misses one. Fewer if the
scan gave up.';
