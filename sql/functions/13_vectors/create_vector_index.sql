create or replace function memfold.vector_index_ddl(embedding_model text, drop_index boolean default false) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_dimensions bigint;
    v_type text;
    v_schema regnamespace;
begin
    if drop_index then
        return query select s.* from memfold_internal._index_ddl(memfold_internal._vector_index_name(embedding_model), null) as s;
        return;
    end if;
    select m.dimensions into v_dimensions
    from memfold.embedding_models as m where m.model = embedding_model collate "C";
    if v_dimensions is null then
        perform memfold_internal._fail_unknown_model(embedding_model);
    elsif v_dimensions > 4000 then
        perform memfold_internal._fail('MF037', 'the model has too many dimensions for an index',
            format('%L has %s.', embedding_model, v_dimensions),
            'pgvector indexes up to 4,000. Without an index, tier 2 compares the newest 10,000 vectors of a bucket.');
    end if;
    v_type := case when v_dimensions <= 2000 then 'vector' else 'halfvec' end;
    select t.typnamespace into strict v_schema
    from pg_attribute as a join pg_type as t on t.oid = a.atttypid
    where a.attrelid = 'memfold.memory_vectors'::regclass and a.attname = 'embedding';
    if not has_schema_privilege('memfold_owner', v_schema, 'usage') then
        raise exception 'memfold_owner may not use the schema of pgvector' using
            errcode = 'insufficient_privilege',
            detail = format('A search by the index uses operators of schema %s.', v_schema),
            hint = format('Run: grant usage on schema %s to memfold_owner', v_schema);
    end if;
    if memfold_internal._vector_index(embedding_model) is not null then
        return;
    end if;
    return query select s.* from memfold_internal._index_ddl(memfold_internal._vector_index_name(embedding_model), format(
        'memory_vectors using hnsw ((embedding::%s.%s(%s)) %s.%s_ip_ops) where model = %L and is_live',
        v_schema, v_type, v_dimensions, v_schema, v_type, embedding_model)) as s;
end;
$$;
comment on function memfold.vector_index_ddl is
E'Returns the statements that build the index of create_vector_index() without blocking writers, one per row, for psql''s \\gexec: they
cannot run inside a function. Returns no row if the index exists and is valid; an invalid one, left by an interrupted build, is dropped
first. drop_index: returns the statement that drops it instead; no row if there is no such index. Only for members of memfold_owner.
Raises MF013, MF037.';

create or replace function memfold.create_vector_index(embedding_model text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    -- Lock before the index is looked up, to wait for another build of it. (SHARE would do for a build, but
    -- admits two builders.)
    lock table memfold.memory_vectors in share row exclusive mode;
    perform memfold_internal._execute_index_ddl(s.statement) from memfold.vector_index_ddl(embedding_model) as s (statement);
end;
$$;
comment on function memfold.create_vector_index is
'Creates the HNSW index of an embedding model, for policies with scope => bucket: in buckets of more than 10,000 vectors, an approximate
search then covers the whole bucket instead of its newest 10,000. Does nothing if the index exists; replaces an invalid one, left by an
interrupted build. Blocks writers of vectors until the transaction ends: on a database in use, run the statements of vector_index_ddl()
instead. Raise maintenance_work_mem first, to the size of the graph: about 2 kB per vector of 384 dimensions. Only for members of
memfold_owner. Raises MF013, MF037.';
