-- 30_decide: what becomes of one candidate memory. This module only reads; 31_ingest locks and writes.
--
-- A call's arguments become a candidate (_candidate), which is checked, hashed and given the policy of its bucket
-- (_validate). _decide then returns a decision by the decision table of docs/rules.md, whose rows are numbered in the
-- order in which they are tried: _decide_known for a text that the bucket holds (rows 2 to 4), _decide_new for any other
-- (rows 5 to 13), which asks _decide_lexical (words) and _decide_similar (vectors) for a neighbour.
--
-- _decide_pair alone decides what two near texts become under a policy. New texts, late vectors, sweeps, batches and
-- the end of a session all call it, so a rule about pairs is changed only there.
--
-- What must stay true: no function here writes, locks, or reads the clock more than once for one candidate; each gives
-- the same answer without the lock (preview_memory) and under it; and a decision never depends on the order in which
-- PostgreSQL returns rows.

-- The arguments of ingest_memory() as a candidate that is not checked yet (_validate), with the same defaults. One
-- expression, which its callers inline.
create or replace function memfold_internal._candidate(
    p_content text, p_tenant_id text, p_bucket_id text default 'default', p_memory_type text default 'fact', p_subject text default null,
    p_predicate text default null, p_object text default null, p_embedding vector default null, p_embedding_model text default null,
    p_source_turn_ids text[] default '{}', p_source_confidence double precision default 0.5,
    p_extractor_confidence double precision default 0.5, p_session_id text default null, p_origin text default 'observed',
    p_metadata jsonb default '{}', p_observed_at timestamptz default null, p_valid_from timestamptz default null,
    p_valid_until timestamptz default null, p_idempotency_key text default null
) returns memfold_internal.candidate
language sql immutable parallel safe
return (
    p_content, p_tenant_id, p_bucket_id, p_memory_type, p_subject, p_predicate, p_object, p_embedding, p_embedding_model,
    p_source_turn_ids, p_source_confidence, p_extractor_confidence, p_session_id, p_origin, p_metadata, p_observed_at, p_valid_from,
    p_valid_until, p_idempotency_key, p_subject, p_predicate, null, null, null, null, null, null, null, null
)::memfold_internal.candidate;

-- The earliest time that any client can represent (Python's datetime begins there).
create or replace function memfold_internal._first_time() returns timestamptz
language sql immutable parallel safe
return timestamptz '0001-01-01 00:00:00+00';

create or replace function memfold_internal._origins() returns text[]
language sql immutable parallel safe
return '{observed,inferred,recalled}'::text[];

-- Raises MF003 to MF010, MF016 or MF061 for arguments that are not allowed.
create or replace function memfold_internal._check_candidate(c memfold_internal.candidate) returns void
language plpgsql stable
as $$
declare
    v_turn text;
begin
    perform memfold_internal._check_identifier('bucket_id', c.bucket_id, true);
    perform memfold_internal._check_identifier('idempotency_key', c.idempotency_key, c.idempotency_key is not null);
    perform memfold_internal._check_wildcard('tenant_id', c.tenant_id);
    perform memfold_internal._check_identifier('memory_type', c.memory_type, true);
    perform memfold_internal._check_wildcard('bucket_id', c.bucket_id);
    perform memfold_internal._check_wildcard('memory_type', c.memory_type);
    perform memfold_internal._check_identifier('subject', c.subject, false);
    perform memfold_internal._check_identifier('predicate', c.predicate, false);
    perform memfold_internal._check_identifier('object', c.object, false);
    perform memfold_internal._check_identifier('session_id', c.session_id, false);
    if c.content is null or c.content = '' then
        perform memfold_internal._fail('MF004', 'the content is empty', format('content was %s.', quote_nullable(c.content)),
            'Pass the text of one fact.');
    elsif octet_length(c.content) > (c.policy).max_content_length then
        perform memfold_internal._fail('MF005', 'the content is too long',
            format('It has %s bytes; this bucket accepts %s.', octet_length(c.content), (c.policy).max_content_length),
            'A memory is one fact. Split the text, or raise max_content_length with set_policy().');
    end if;
    perform memfold_internal._check_marks(c.content);
    if not c.source_confidence between 0 and 1 or not c.extractor_confidence between 0 and 1 then
        perform memfold_internal._fail('MF006', 'a confidence is out of range',
            format('source_confidence was %s, extractor_confidence %s.', c.source_confidence, c.extractor_confidence),
            'Confidences are in [0, 1].');
    end if;
    if jsonb_typeof(c.metadata) <> 'object' then
        perform memfold_internal._fail('MF007', 'metadata is not an object', format('It is a JSON %s.', jsonb_typeof(c.metadata)),
            'Pass a JSON object, or {} if there is none.');
    elsif octet_length(c.metadata::text) > (c.policy).max_metadata_size then
        perform memfold_internal._fail('MF008', 'the metadata is too large',
            format('It has %s bytes; this bucket accepts %s.', octet_length(c.metadata::text), (c.policy).max_metadata_size),
            'Store large values elsewhere, or raise max_metadata_size with set_policy().');
    end if;
    if c.origin <> all(memfold_internal._origins()) then
        perform memfold_internal._fail('MF009', 'unknown origin', format('origin was %L.', c.origin),
            'origin is observed, inferred or recalled.');
    end if;
    if c.observed_at > memfold_internal._clock() + interval '5 minutes' or c.observed_at < memfold_internal._first_time() then
        perform memfold_internal._fail('MF010', 'observed_at is out of range', format('It was %s.', c.observed_at),
            'Pass a time in the past, from the year 1 on; at most 5 minutes ahead of the server''s clock are accepted.');
    end if;
    if cardinality(c.source_turn_ids) > 1000 then
        perform memfold_internal._fail('MF016', 'too many source turns',
            format('source_turn_ids has %s elements.', cardinality(c.source_turn_ids)), 'Pass at most 1,000 per call.');
    end if;
    foreach v_turn in array c.source_turn_ids loop
        perform memfold_internal._check_identifier('source_turn_ids', v_turn, true);
    end loop;
end;
$$;

-- Raises MF065 for a period in which no fact can be valid.
create or replace function memfold_internal._check_validity(p_valid_from timestamptz, p_valid_until timestamptz) returns void
language plpgsql immutable parallel safe
as $$
declare
    v_first constant timestamptz := memfold_internal._first_time();
    -- the last time that any client can represent
    v_last constant timestamptz := timestamptz '9999-12-31 23:59:59.999999+00';
begin
    if not coalesce(p_valid_from < p_valid_until, true) or not coalesce(p_valid_from between v_first and v_last, true)
        or not coalesce(p_valid_until between v_first and v_last, true)
    then
        perform memfold_internal._fail('MF065', 'the validity is empty or infinite',
            format('valid_from was %s, valid_until %s.', coalesce(p_valid_from::text, 'null'), coalesce(p_valid_until::text, 'null')),
            'valid_from must be earlier than valid_until, both in the years 1 to 9999 (UTC); for no bound use null, not infinity.');
    end if;
end;
$$;

-- Whether _check_candidate() would pass a candidate whose text the bucket holds, as one expression that its callers
-- inline: all identifiers together are short, at most one turn, no validity. False decides nothing.
create or replace function memfold_internal._is_plainly_valid(c memfold_internal.candidate) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(c.content) between 1 and 8192
    and pg_catalog.octet_length(pg_catalog.concat(
        c.bucket_id, c.memory_type, c.subject, c.predicate, c.object, c.session_id, c.source_turn_ids[1], c.idempotency_key
    )) <= memfold_internal._identifier_size()
    and (c.object ~ '^[A-Za-z0-9]') is not false and (c.session_id <> '') is not false and (c.idempotency_key <> '') is not false
    and (
        c.metadata = '{}'
        or pg_catalog.jsonb_typeof(c.metadata) = 'object' and pg_catalog.octet_length(c.metadata::text) <= 8192
    )
    and pg_catalog.cardinality(c.source_turn_ids) = case when c.source_turn_ids[1] <> '' then 1 else 0 end
    and c.source_confidence between 0 and 1 and c.extractor_confidence between 0 and 1
    and c.origin = any(memfold_internal._origins())
    and (c.observed_at <= pg_catalog.now() and c.observed_at >= memfold_internal._first_time()) is not false
    and c.valid_from is null and c.valid_until is null, false
);

-- Whether _check_candidate() would also pass the rest of a candidate whose text may be new, unless its policy has lower
-- limits than _is_plainly_valid(). One expression, which its callers inline.
create or replace function memfold_internal._is_usual_text(c memfold_internal.candidate) returns boolean
language sql immutable parallel safe
return coalesce(
    c.bucket_id > '*' and c.memory_type > '*' and c.tenant_id <> '*' and not memfold_internal._has_mark_run_1(c.content)
    and (c.subject ~ '^[A-Za-z0-9]') is not false and (c.predicate ~ '^[A-Za-z0-9]') is not false, false
);

-- Whether the limits of a policy are those that _is_plainly_valid() assumes, or higher. (Not of its row: on Citus, the type
-- of a row is that of its shard.)
create or replace function memfold_internal._has_usual_limits(p_max_content_length bigint, p_max_metadata_size bigint) returns boolean
language sql immutable parallel safe
return p_max_content_length >= 8192 and p_max_metadata_size >= 8192;

-- Whether _check_candidate() would pass a candidate, as one expression that its callers inline. False decides nothing.
create or replace function memfold_internal._is_surely_valid(
    c memfold_internal.candidate, p_max_content_length bigint, p_max_metadata_size bigint
) returns boolean
language sql stable parallel safe
return memfold_internal._is_plainly_valid(c) and memfold_internal._is_usual_text(c)
and memfold_internal._has_usual_limits(p_max_content_length, p_max_metadata_size);

-- Checks a candidate, and returns it with its hash, its unit vector and the policy that applies (without the scope key,
-- which a tier-1 hit does not need). observed_at stays null if it is: it is set when the candidate is written
-- (_stated_at). Null stands for the default of confidences, origin, metadata and turns. content_hash: the hash by the
-- default rules, if it is known. Raises MF003 to MF016, MF061, MF065.
create or replace function memfold_internal._validate(c memfold_internal.candidate) returns memfold_internal.candidate
language plpgsql stable
as $$
declare
    v_default constant memfold_internal.candidate := memfold_internal._candidate(null, null);
    v_names record;
begin
    c.policy := memfold_internal._candidate_policy(c.tenant_id, c.bucket_id, c.memory_type);
    if not memfold_internal._is_surely_valid(c, (c.policy).max_content_length, (c.policy).max_metadata_size) then
        c.source_confidence := coalesce(c.source_confidence, v_default.source_confidence);
        c.extractor_confidence := coalesce(c.extractor_confidence, v_default.extractor_confidence);
        c.origin := coalesce(c.origin, v_default.origin);
        c.metadata := coalesce(c.metadata, v_default.metadata);
        c.source_turn_ids := coalesce(c.source_turn_ids, v_default.source_turn_ids);
        perform memfold_internal._check_candidate(c);
        select coalesce(array_agg(distinct t.turn collate "C" order by t.turn collate "C"), '{}') into c.source_turn_ids
        from unnest(c.source_turn_ids) as t (turn);
    end if;
    if num_nonnulls(c.valid_from, c.valid_until) > 0 then
        perform memfold_internal._check_validity(c.valid_from, c.valid_until);
    end if;
    if c.embedding is not null or c.embedding_model is not null then
        perform memfold_internal._check_embedding(c.embedding, c.embedding_model);
        c.embedding := memfold_internal._unit(c.embedding);
    end if;
    if (c.policy).metadata_keys <> '{}' then
        c.metadata_signature := memfold_internal._metadata_signature(c.metadata, (c.policy).metadata_keys);
    end if;
    v_names := memfold_internal._resolve_names(c.tenant_id, c.bucket_id, c.subject, c.predicate, c.content);
    c.given_subject := c.subject;
    c.given_predicate := c.predicate;
    c.subject := v_names.subject;
    c.predicate := v_names.predicate;
    if c.content_hash is null or v_names.is_linked or (c.policy).canonicalizer is distinct from 'prose/1'
        or (c.policy).key_fields <> 'type,subject,predicate' or c.metadata_signature is not null
    then
        c.content_hash := memfold_internal._content_hash(c.memory_type, c.subject, c.predicate, c.content, (c.policy).canonicalizer,
            (c.policy).key_fields, c.metadata_signature);
    end if;
    return c;
end;
$$;
