create or replace function memfold_internal._candidate_keys() returns text[]
language sql immutable parallel safe
return '{content,tenant_id,bucket_id,memory_type,subject,predicate,object,embedding,embedding_model,source_turn_ids,
source_confidence,extractor_confidence,session_id,origin,metadata,observed_at,idempotency_key}'::text[];
revoke all on function memfold_internal._candidate_keys() from public;
comment on function memfold_internal._candidate_keys() is
'The arguments of ingest_memory(): what an element of ingest_memories() may have.';

create or replace function memfold_internal._has_text_values(element jsonb) returns boolean
language sql immutable parallel safe
return pg_catalog.jsonb_path_exists(
    element - array['embedding', 'source_turn_ids', 'source_confidence', 'extractor_confidence', 'metadata'],
    'strict $.* ? (@.type() != "string" && @.type() != "null")', '{}', true
) is not true
and not pg_catalog.jsonb_path_exists(element, 'strict $.source_turn_ids[*] ? (@.type() != "string" && @.type() != "null")', '{}', true);
revoke all on function memfold_internal._has_text_values(jsonb) from public;
comment on function memfold_internal._has_text_values(jsonb) is
'Whether what a candidate says as text is JSON strings or null: anything else would be stored as the text it is written with.
One expression, which its callers inline.';

create or replace function memfold_internal._parse_candidate(tenant_id text, element jsonb, ordinal bigint)
returns memfold.staged_candidates
language plpgsql stable
as $$
declare
    r memfold.staged_candidates;
begin
    if pg_catalog.jsonb_typeof(element) <> 'object' then
        perform memfold_internal._fail('MF036', 'a candidate is not an object',
            pg_catalog.format('It is a JSON %s.', pg_catalog.jsonb_typeof(element)),
            'Pass an object whose keys are the arguments of ingest_memory().');
    elsif element - memfold_internal._candidate_keys() <> '{}' then
        perform memfold_internal._fail('MF036', 'a candidate has an unknown key',
            pg_catalog.format('There is no %s.', (
                select pg_catalog.string_agg(pg_catalog.quote_literal(k.key), ', ' order by k.key)
                from pg_catalog.jsonb_object_keys(element - memfold_internal._candidate_keys()) as k (key)
            )),
            'The keys are the arguments of ingest_memory().');
    elsif not memfold_internal._has_text_values(element) then
        perform memfold_internal._fail('MF036', 'a value of a candidate is of another type',
            'What is a text for ingest_memory(), a turn or a time is a JSON string here.',
            'Pass values of the types that ingest_memory() takes.');
    end if;
    begin
        r := pg_catalog.jsonb_populate_record(null::memfold.staged_candidates, element);
    exception when data_exception then
        perform memfold_internal._fail('MF036', 'a value of a candidate is of another type', left(sqlerrm, 500),
            'Pass values of the types that ingest_memory() takes.');
    end;
    if r.tenant_id <> tenant_id then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of the candidate differs from that of the batch.',
            'A batch belongs to one tenant: leave tenant_id out of the candidates.');
    end if;
    r.ordinal := ordinal;
    return r;
end;
$$;
revoke all on function memfold_internal._parse_candidate(text, jsonb, bigint) from public;
comment on function memfold_internal._parse_candidate(text, jsonb, bigint) is
'One element of ingest_memories(), read. Raises MF002, MF036.';

create or replace function memfold_internal._batch_error(ordinal bigint, sqlstate text, error text, detail text, hint text)
returns memfold.batch_result
language plpgsql volatile
as $$
declare
    r memfold.batch_result;
begin
    -- not the candidate's fault: lost locks, resources, the server going down, broken data
    if left(_batch_error.sqlstate, 2) in ('40', '53', '55', '57', '58', 'XX') then
        raise exception using errcode = _batch_error.sqlstate, message = error, detail = _batch_error.detail, hint = _batch_error.hint;
    end if;
    r.ordinal := ordinal;
    r.sqlstate := _batch_error.sqlstate;
    r.error := error;
    r.detail := nullif(detail, '');
    r.hint := nullif(hint, '');
    return r;
end;
$$;
revoke all on function memfold_internal._batch_error(bigint, text, text, text, text) from public;
comment on function memfold_internal._batch_error(bigint, text, text, text, text) is
'The result of a candidate that is refused; raises the error again where that was not about the candidate.';

create or replace function memfold_internal._check_batch(candidates bigint, on_error text) returns void
language plpgsql immutable parallel safe
as $$
begin
    if candidates > 10000 then
        perform memfold_internal._fail('MF035', 'the batch is too large',
            pg_catalog.format('It has %s candidates.', candidates), 'Send at most 10,000 at a time.');
    elsif on_error is null or on_error not in ('report', 'abort') then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            pg_catalog.format('on_error was %s.', pg_catalog.quote_nullable(on_error)), 'on_error is report or abort.');
    end if;
end;
$$;
revoke all on function memfold_internal._check_batch(bigint, text) from public;
comment on function memfold_internal._check_batch(bigint, text) is 'Raises MF022, MF035.';

create or replace function memfold.ingest_memories(
    candidates jsonb,
    tenant_id text default current_setting('memfold.tenant_id', true),
    on_error text default 'report'
) returns setof memfold.batch_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_rows memfold.staged_candidates[];
    v_failed memfold.batch_result[];
    v_odd boolean;
    v_element record;
    r memfold.staged_candidates;
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    perform memfold_internal._authorize_tenant(v_tenant_id);
    if coalesce(jsonb_typeof(candidates), 'null') <> 'array' then
        perform memfold_internal._fail('MF035', 'the batch is not an array',
            format('candidates was %s.', coalesce('a JSON ' || jsonb_typeof(candidates), 'null')),
            'Pass a JSON array of objects whose keys are the arguments of ingest_memory().');
    end if;
    perform memfold_internal._check_batch(jsonb_array_length(candidates), on_error);
    -- All at once. Only where one of them cannot be read, one by one, to find out which.
    begin
        select array_agg(row(
            v_tenant_id, t.batch_id, t.ordinality - 1, t.staged_at, t.content, t.bucket_id, t.memory_type, t.subject,
            t.predicate, t.object, t.embedding, t.embedding_model, t.source_turn_ids, t.source_confidence,
            t.extractor_confidence, t.session_id, t.origin, t.metadata, t.observed_at, t.idempotency_key
        )::memfold.staged_candidates order by t.ordinality), bool_or(t.tenant_id <> v_tenant_id)
        into v_rows, v_odd
        from jsonb_populate_recordset(null::memfold.staged_candidates, candidates) with ordinality as t;
        v_odd := v_odd or exists (
            select from jsonb_array_elements(candidates) as x (element) where x.element - memfold_internal._candidate_keys() <> '{}' or not memfold_internal._has_text_values(x.element)
        );
    exception when data_exception then
        v_odd := true;
    end;
    if v_odd then
        v_rows := null;
        for v_element in select x.element, x.ordinality - 1 as ordinal from jsonb_array_elements(candidates) with ordinality as x (element) loop
            begin
                r := memfold_internal._parse_candidate(v_tenant_id, v_element.element, v_element.ordinal);
                v_rows := v_rows || r;
            exception when others then
                get stacked diagnostics v_code = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
                    v_hint = pg_exception_hint;
                v_failed := v_failed || memfold_internal._batch_error(v_element.ordinal, v_code, v_message, v_detail, v_hint);
            end;
        end loop;
    end if;
    return query select * from memfold_internal._ingest_rows(v_tenant_id, v_rows, v_failed, on_error);
end;
$$;
revoke all on function memfold.ingest_memories(jsonb, text, text) from public;
grant execute on function memfold.ingest_memories(jsonb, text, text) to memfold_app;
comment on function memfold.ingest_memories(jsonb, text, text) is
'Takes in many candidates at once: a JSON array of at most 10,000 objects whose keys are the arguments of ingest_memory().
The same memories, counters and ledger as those calls one by one, in order. One row a candidate: its place in the array
(ordinal, from 0 on), what ingest_memory() returns, or sqlstate, error, detail and hint of what it would have raised: a bad
candidate does not keep the others out. on_error abort: the first one''s error is raised, and nothing is written.
JSON null stands for the default. An embedding is an array of numbers or, read in a third of the time, a string as pgvector
prints a vector. Raises MF022, MF025, MF035; may raise 40001: retry it with the same idempotency keys.';
