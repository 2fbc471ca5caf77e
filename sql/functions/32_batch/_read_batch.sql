-- The arguments of ingest_memory(): the keys that an element of ingest_memories() may have.
create or replace function memfold_internal._candidate_keys() returns text[]
language sql immutable parallel safe
return '{content,tenant_id,bucket_id,memory_type,subject,predicate,object,embedding,embedding_model,source_turn_ids,
source_confidence,extractor_confidence,session_id,origin,metadata,observed_at,valid_from,valid_until,idempotency_key}'::text[];

-- Whether the text values of a candidate are JSON strings or null: anything else would be stored as its JSON text. One
-- expression, which its callers inline.
create or replace function memfold_internal._has_text_values(p_element jsonb) returns boolean
language sql immutable parallel safe
return pg_catalog.jsonb_path_exists(
    p_element - array['embedding', 'source_turn_ids', 'source_confidence', 'extractor_confidence', 'metadata'],
    'strict $.* ? (@.type() != "string" && @.type() != "null")', '{}', true
) is not true
and not pg_catalog.jsonb_path_exists(p_element, 'strict $.source_turn_ids[*] ? (@.type() != "string" && @.type() != "null")', '{}', true);

-- The result of a refused candidate; raises the error again if it was not about the candidate.
create or replace function memfold_internal._batch_error(p_ordinal bigint, p_sqlstate text, p_error text, p_detail text, p_hint text)
returns memfold.batch_result
language plpgsql volatile
as $$
declare
    r memfold.batch_result;
begin
    -- not caused by the candidate: lost locks, resources, shutdown of the server, corrupted data
    if left(p_sqlstate, 2) in ('40', '53', '55', '57', '58', 'XX') then
        raise exception using errcode = p_sqlstate, message = p_error, detail = p_detail, hint = p_hint;
    end if;
    r.ordinal := p_ordinal;
    r.sqlstate := p_sqlstate;
    r.error := p_error;
    r.detail := nullif(p_detail, '');
    r.hint := nullif(p_hint, '');
    return r;
end;
$$;

-- Raises the error of a candidate as that of its batch.
create or replace function memfold_internal._fail_batch(e memfold.batch_result) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._fail(e.sqlstate, e.error,
        'Candidate ' || e.ordinal || coalesce(': ' || e.detail, ' of the batch.'), coalesce(e.hint, 'Nothing was written.'));
end;
$$;

-- Raises MF022, MF035.
create or replace function memfold_internal._check_batch(p_candidates jsonb, p_on_error text, p_embeddings vector[]) returns void
language plpgsql immutable parallel safe
as $$
declare
    v_number bigint;
begin
    if coalesce(jsonb_typeof(p_candidates), 'null') <> 'array' then
        perform memfold_internal._fail('MF035', 'the batch is not an array',
            format('candidates was %s.', coalesce('a JSON ' || jsonb_typeof(p_candidates), 'null')),
            'Pass a JSON array of objects whose keys are the arguments of ingest_memory().');
    end if;
    v_number := jsonb_array_length(p_candidates);
    if v_number > 10000 then
        perform memfold_internal._fail('MF035', 'the batch is too large',
            format('It has %s candidates.', v_number), 'Send at most 10,000 at a time.');
    elsif p_on_error is null or p_on_error not in ('report', 'abort') then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('on_error was %s.', quote_nullable(p_on_error)), 'on_error is report or abort.');
    elsif cardinality(p_embeddings) <> v_number then
        perform memfold_internal._fail('MF035', 'embeddings and candidates differ in length',
            format('embeddings has %s elements for %s candidates.', cardinality(p_embeddings), v_number),
            'Pass one element for each candidate, null if it has no vector.');
    end if;
end;
$$;

-- Reads one element of ingest_memories(). p_embedding: its element of embeddings. Raises MF002, MF036.
create or replace function memfold_internal._parse_candidate(p_tenant_id text, p_element jsonb, p_embedding vector)
returns memfold_internal.candidate
language plpgsql stable
as $$
declare
    r memfold_internal.candidate;
begin
    if jsonb_typeof(p_element) <> 'object' then
        perform memfold_internal._fail('MF036', 'a candidate is not an object',
            format('It is a JSON %s.', jsonb_typeof(p_element)),
            'Pass an object whose keys are the arguments of ingest_memory().');
    elsif p_element - memfold_internal._candidate_keys() <> '{}' then
        perform memfold_internal._fail('MF036', 'a candidate has an unknown key',
            format('Unknown: %s.', (
                select string_agg(quote_literal(k.key), ', ' order by k.key)
                from jsonb_object_keys(p_element - memfold_internal._candidate_keys()) as k (key)
            )),
            'The keys are the arguments of ingest_memory().');
    elsif not memfold_internal._has_text_values(p_element) then
        perform memfold_internal._fail('MF036', 'a value of a candidate has the wrong type',
            'Arguments of ingest_memory() that are texts, turns or times must be JSON strings.',
            'Pass values of the types of the arguments of ingest_memory().');
    end if;
    begin
        r := jsonb_populate_record(memfold_internal._candidate(null, p_tenant_id), p_element);
    exception when data_exception then
        perform memfold_internal._fail('MF036', 'a value of a candidate has the wrong type', left(sqlerrm, 500),
            'Pass values of the types of the arguments of ingest_memory().');
    end;
    if r.tenant_id <> p_tenant_id then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of the candidate differs from that of the batch.',
            'A batch belongs to one tenant: omit tenant_id in the candidates.');
    elsif r.embedding is not null and p_embedding is not null then
        perform memfold_internal._fail('MF036', 'a candidate has two embeddings',
            'It has a key embedding, and an element of embeddings.',
            'Pass only one of them: an element of embeddings takes a tenth of the time to read.');
    end if;
    r.embedding := coalesce(r.embedding, p_embedding);
    return r;
end;
$$;

-- _read_batch(), one by one: the readable candidates, and errors for the others.
create or replace function memfold_internal._read_batch_singly(
    p_tenant_id text, p_candidates jsonb, p_given vector[],
    out elements memfold_internal.candidate[], out ordinals bigint[], out embeddings vector[], out errors memfold.batch_result[]
)
language plpgsql stable
as $$
declare
    v_element record;
    r memfold_internal.candidate;
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    for v_element in
        select x.element, x.embedding, x.ordinality - 1 as ordinal
        from rows from (jsonb_array_elements(p_candidates), unnest(p_given)) with ordinality as x (element, embedding)
    loop
        begin
            r := memfold_internal._parse_candidate(p_tenant_id, v_element.element, v_element.embedding);
            embeddings := embeddings || array[r.embedding];
            r.embedding := null;
            elements := elements || r;
            ordinals := ordinals || v_element.ordinal;
        exception when others then
            get stacked diagnostics v_code = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
                v_hint = pg_exception_hint;
            errors := errors || memfold_internal._batch_error(v_element.ordinal, v_code, v_message, v_detail, v_hint);
        end;
    end loop;
end;
$$;

-- Reads the candidates of ingest_memories(). p_given: its embeddings. Returns elements, ordinals (positions in
-- candidates, from 0) and embeddings (null: none has one) of the readable ones, in their order, and errors for the
-- others.
create or replace function memfold_internal._read_batch(
    p_tenant_id text, p_candidates jsonb, p_given vector[],
    out elements memfold_internal.candidate[], out ordinals bigint[], out embeddings vector[], out errors memfold.batch_result[]
)
language plpgsql stable
as $$
declare
    v_odd boolean;
begin
    -- Read all at once. Only if that fails, read one by one, to find out which is wrong.
    begin
        select array_agg(memfold_internal._candidate(
            t.content, t.tenant_id, t.bucket_id, t.memory_type, t.subject, t.predicate, t.object, null, t.embedding_model,
            t.source_turn_ids, t.source_confidence, t.extractor_confidence, t.session_id, t.origin, t.metadata, t.observed_at,
            t.valid_from, t.valid_until, t.idempotency_key) order by t.ordinality),
        array_agg(t.ordinality - 1 order by t.ordinality),
        array_agg(t.embedding order by t.ordinality),
        bool_or(t.tenant_id <> p_tenant_id)
        into elements, ordinals, embeddings, v_odd
        from jsonb_populate_recordset(memfold_internal._candidate(null, p_tenant_id), p_candidates) with ordinality as t;
        v_odd := v_odd or exists (
            select from jsonb_array_elements(p_candidates) as x (element)
            where x.element - memfold_internal._candidate_keys() <> '{}' or not memfold_internal._has_text_values(x.element)
        );
    exception when data_exception then
        v_odd := true;
    end;
    if coalesce(num_nonnulls(variadic embeddings), 0) = 0 then
        embeddings := p_given;
    elsif p_given is not null then
        v_odd := true;
    end if;
    if v_odd then
        select r.elements, r.ordinals, r.embeddings, r.errors into elements, ordinals, embeddings, errors
        from memfold_internal._read_batch_singly(p_tenant_id, p_candidates, p_given) as r;
    end if;
end;
$$;
