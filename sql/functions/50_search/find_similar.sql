create or replace function memfold.find_similar(
    embedding vector,
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    threshold double precision default 0.85,
    memory_type text default null,
    subject text default null,
    predicate text default null,
    max_results bigint default 20
) returns table (
    memory_id uuid, matched_id uuid, similarity double precision, content text, matched_similarity double precision,
    matched_content text, complete boolean
)
language plpgsql stable security definer rows 20 set search_path = pg_catalog, pg_temp
as $$
declare
    v_scope_key uuid;
    v_newest bigint := memfold_internal._search_limit();
    v_is_indexed boolean := false;
    v_shortfall text;
    v_neighbour record;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    if embedding is null then
        perform memfold_internal._fail('MF022', 'the embedding is missing', 'embedding was null.', 'Pass a vector.');
    elsif not coalesce(max_results between 1 and 1000 and threshold between -1 and 1, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s, threshold %s.', max_results, threshold),
            'max_results is 1 to 1000, threshold -1 to 1.');
    end if;
    perform memfold_internal._check_identifier('memory_type', memory_type, false);
    perform memfold_internal._check_identifier('subject', subject, false);
    perform memfold_internal._check_identifier('predicate', predicate, false);
    if memory_type is null and num_nonnulls(subject, predicate) > 0 then
        perform memfold_internal._fail('MF022', 'memory_type is missing', 'subject or predicate was passed without it.',
            'Pass memory_type too to search one scope, or none of the three to search the bucket.');
    end if;
    perform memfold_internal._check_embedding(embedding, embedding_model);
    select n.subject, n.predicate into subject, predicate
    from memfold_internal._resolve_names(tenant_id, bucket_id, find_similar.subject, find_similar.predicate, null) as n;
    if find_similar.memory_type is not null then
        v_scope_key := memfold_internal._scope_key(bucket_id, find_similar.memory_type, subject, predicate);
    elsif memfold_internal._vector_index(embedding_model) is not null then
        -- Above this number the index is used.
        v_newest := memfold_internal._exact_limit();
        v_is_indexed := true;
    end if;
    if not v_is_indexed and memfold_internal._exceeds_search_limit(tenant_id, bucket_id, v_scope_key, embedding_model) then
        v_shortfall := 'no_index';
    end if;
    embedding := memfold_internal._unit(embedding);
    for v_neighbour in
        select n.*
        from memfold_internal._knn_dedup(
            tenant_id, bucket_id, v_scope_key, embedding, embedding_model, v_newest, max_results, threshold, null, null, null,
            true) as n
        order by n.matched_similarity desc, n.matched_id
        limit max_results
    loop
        if v_neighbour.scan_ended then
            v_shortfall := 'near_scan_ended';
        end if;
        memory_id := v_neighbour.root_id;
        matched_id := v_neighbour.matched_id;
        similarity := v_neighbour.similarity;
        content := v_neighbour.content;
        matched_similarity := v_neighbour.matched_similarity;
        matched_content := v_neighbour.matched_content;
        complete := v_shortfall is null;
        return next;
    end loop;
    -- Without a row, nothing has shown whether the scan gave up: search again for as many texts as _knn_dedup() does.
    if not found and v_is_indexed and (
        select n.scan_ended
        from memfold_internal._near_texts(
            tenant_id, bucket_id, null, embedding, embedding_model, v_newest, 20 + 2 * max_results, threshold, null, null) as n
    ) then
        v_shortfall := 'near_scan_ended';
    end if;
    if v_shortfall is not null then
        perform memfold_internal._notify_incomplete(array[v_shortfall], embedding_model, null);
    end if;
end;
$$;
grant execute on function memfold.find_similar to memfold_app;
comment on function memfold.find_similar is
'Returns the active memories, expired or not, that have a text, their own or an alias''s, with a cosine of at least threshold to the
vector, one row each, nearest first. With memory_type, searches one scope (null subject or predicate matches null); without it, and then
without subject and predicate, the bucket. Searches all of up to 100,000 vectors; of a larger scope only the newest 100,000: complete is
then false in each row, and a NOTICE (01M01) says so. A bucket with more than 10,000 vectors is searched completely by an index
(create_vector_index), which rarely misses one; if the index scan gives up, the newest 10,000 are searched as well, and complete is false.
content and similarity: the text of the memory itself and its cosine (null: it has no vector of the model); matched: the nearest of its
texts, its own if none is nearer. Writes nothing. Raises MF001 to MF003, MF012 to MF015, MF022.';
