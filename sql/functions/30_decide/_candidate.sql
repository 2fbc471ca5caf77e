-- Raises MF003 to MF010, MF016 or MF061 for arguments that are not allowed. Null stands for the default if there is one.
create or replace function memfold_internal._check_candidate(
    p_content text, p_bucket_id text, p_memory_type text, p_subject text, p_predicate text, p_object text,
    p_source_turn_ids text[], p_source_confidence double precision, p_extractor_confidence double precision, p_session_id text,
    p_origin text, p_metadata jsonb, p_observed_at timestamptz, p_policy memfold.policies
) returns void
language plpgsql stable
as $$
declare
    v_turn text;
begin
    perform memfold_internal._check_identifier('bucket_id', p_bucket_id, true);
    perform memfold_internal._check_identifier('memory_type', p_memory_type, true);
    perform memfold_internal._check_wildcard('bucket_id', p_bucket_id);
    perform memfold_internal._check_wildcard('memory_type', p_memory_type);
    perform memfold_internal._check_identifier('subject', p_subject, false);
    perform memfold_internal._check_identifier('predicate', p_predicate, false);
    perform memfold_internal._check_identifier('object', p_object, false);
    perform memfold_internal._check_identifier('session_id', p_session_id, false);
    if p_content is null or p_content = '' then
        perform memfold_internal._fail('MF004', 'the content is empty',
            format('content was %s.', quote_nullable(p_content)), 'Pass the text of one fact.');
    elsif octet_length(p_content) > p_policy.max_content_length then
        perform memfold_internal._fail('MF005', 'the content is too long',
            format('It has %s bytes; this bucket accepts %s.', octet_length(p_content),
                p_policy.max_content_length),
            'A memory is one fact. Split the text, or raise max_content_length with set_policy().');
    end if;
    perform memfold_internal._check_marks(p_content);
    if not coalesce(p_source_confidence, 0.5) between 0 and 1 or not coalesce(p_extractor_confidence, 0.5) between 0 and 1 then
        perform memfold_internal._fail('MF006', 'a confidence is out of range',
            format('source_confidence was %s, extractor_confidence %s.', p_source_confidence,
                p_extractor_confidence),
            'Confidences are in [0, 1].');
    end if;
    if jsonb_typeof(p_metadata) <> 'object' then
        perform memfold_internal._fail('MF007', 'metadata is not an object',
            format('It is a JSON %s.', jsonb_typeof(p_metadata)),
            'Pass a JSON object, or {} if there is none.');
    elsif octet_length(p_metadata::text) > p_policy.max_metadata_size then
        perform memfold_internal._fail('MF008', 'the metadata is too large',
            format('It has %s bytes; this bucket accepts %s.', octet_length(p_metadata::text),
                p_policy.max_metadata_size),
            'Store large values elsewhere, or raise max_metadata_size with set_policy().');
    end if;
    if p_origin not in ('observed', 'inferred', 'recalled') then
        perform memfold_internal._fail('MF009', 'unknown origin', format('origin was %L.', p_origin),
            'origin is observed, inferred or recalled.');
    end if;
    if p_observed_at > memfold_internal._clock() + interval '5 minutes' or p_observed_at < '0001-01-01 00:00:00+00' then
        perform memfold_internal._fail('MF010', 'observed_at is out of range', format('It was %s.', p_observed_at),
            'Pass a time in the past, from the year 1 on; at most 5 minutes ahead of the server''s clock are accepted.');
    end if;
    if cardinality(p_source_turn_ids) > 1000 then
        perform memfold_internal._fail('MF016', 'too many source turns',
            format('source_turn_ids has %s elements.', cardinality(p_source_turn_ids)),
            'Pass at most 1,000 per call.');
    end if;
    foreach v_turn in array coalesce(p_source_turn_ids, '{}') loop
        perform memfold_internal._check_identifier('source_turn_ids', v_turn, true);
    end loop;
end;
$$;

-- Raises MF065 for a period in which no fact can be valid.
create or replace function memfold_internal._check_validity(p_valid_from timestamptz, p_valid_until timestamptz) returns void
language plpgsql immutable parallel safe
as $$
declare
    -- Clients read these: Python's datetime, for one, has no other years.
    v_first constant timestamptz := timestamptz '0001-01-01 00:00:00+00';
    v_last constant timestamptz := timestamptz '9999-12-31 23:59:59.999999+00';
begin
    if not coalesce(p_valid_from < p_valid_until, true) or not coalesce(p_valid_from between v_first and v_last, true)
        or not coalesce(p_valid_until between v_first and v_last, true)
    then
        perform memfold_internal._fail('MF065', 'the validity is empty or endless',
            format('valid_from was %s, valid_until %s.', coalesce(p_valid_from::text, 'null'), coalesce(p_valid_until::text,
                'null')),
            'valid_from must be earlier than valid_until, both in the years 1 to 9999 (UTC); for no bound use null, not infinity.');
    end if;
end;
$$;

-- As few nodes as possible: PL/pgSQL initialises them all, with their privileges, in every call.
-- Whether a candidate with the key of a memory is certainly valid: at most one turn, observed, and nothing too long. Any
-- other candidate may still have an empty bucket or type, an empty canonical subject or predicate, or more content or
-- metadata than its policy allows. One expression, which its callers inline.
create or replace function memfold_internal._is_plainly_valid(
    p_content text, p_bucket_id text, p_memory_type text, p_subject text, p_predicate text, p_object text,
    p_source_turn_ids text[], p_source_confidence double precision, p_extractor_confidence double precision, p_session_id text,
    p_origin text, p_metadata jsonb, p_observed_at timestamptz
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(p_content) between 1 and 8192
    and pg_catalog.octet_length(
        pg_catalog.concat(p_bucket_id, p_memory_type, p_subject, p_predicate, p_object, p_session_id, p_source_turn_ids[1])
    ) <= 512
    and (p_object ~ '^[A-Za-z0-9]' collate "C") is not false and (p_session_id <> '') is not false
    and (
        p_metadata = '{}'
        or pg_catalog.jsonb_typeof(p_metadata) = 'object' and pg_catalog.octet_length(p_metadata::text) <= 8192
    )
    and pg_catalog.cardinality(p_source_turn_ids) = case when p_source_turn_ids[1] <> '' then 1 else 0 end
    and p_source_confidence between 0 and 1 and p_extractor_confidence between 0 and 1
    and p_origin = 'observed' and (p_observed_at <= pg_catalog.now() and p_observed_at >= '0001-01-01 00:00:00+00') is not false, false
);

-- The checks that _is_plainly_valid() omits for a candidate that may be new, except its policy's limits. One expression,
-- which its callers inline.
create or replace function memfold_internal._is_usual_text(
    p_content text, p_tenant_id text, p_bucket_id text, p_memory_type text, p_subject text, p_predicate text
) returns boolean
language sql immutable parallel safe
return coalesce(
    p_bucket_id > '*' collate "C" and p_memory_type > '*' collate "C" and p_tenant_id <> '*'
    and not memfold_internal._has_mark_run_1(p_content)
    and (p_subject ~ '^[A-Za-z0-9]' collate "C") is not false and (p_predicate ~ '^[A-Za-z0-9]' collate "C") is not false, false
);

-- Validates the arguments of a caller and returns them with the hash, the unit vector and the policy that applies
-- (without the scope key, which a tier-1 hit does not need). Null stands for the default; p_observed_at stays null,
-- which means the time when the candidate is written (_stated_at). p_default_hash: its hash by the default rules, if
-- known. Raises MF003 to MF016, MF061, MF065; writes nothing.
create or replace function memfold_internal._candidate(
    p_content text, p_tenant_id text, p_bucket_id text, p_memory_type text, p_subject text, p_predicate text, p_object text,
    p_embedding vector, p_embedding_model text, p_source_turn_ids text[], p_source_confidence double precision,
    p_extractor_confidence double precision, p_session_id text, p_origin text, p_metadata jsonb, p_observed_at timestamptz,
    p_default_hash bytea default null, p_valid_from timestamptz default null, p_valid_until timestamptz default null
) returns memfold_internal.candidate
language plpgsql stable
as $$
declare
    v_policy memfold.policies := memfold_internal._policy(p_tenant_id, p_bucket_id, p_memory_type);
    v_turns text[] := p_source_turn_ids;
    v_signature text;
    v_names record;
begin
    if not memfold_internal._is_plainly_valid(p_content, p_bucket_id, p_memory_type, p_subject, p_predicate, p_object, p_source_turn_ids,
        p_source_confidence, p_extractor_confidence, p_session_id, p_origin, p_metadata, p_observed_at)
        or v_policy.max_content_length < 8192 or v_policy.max_metadata_size < 8192
        or not memfold_internal._is_usual_text(p_content, p_tenant_id, p_bucket_id, p_memory_type, p_subject, p_predicate)
    then
        perform memfold_internal._check_wildcard('tenant_id', p_tenant_id);
        perform memfold_internal._check_candidate(p_content, p_bucket_id, p_memory_type, p_subject, p_predicate, p_object,
            p_source_turn_ids,
            p_source_confidence, p_extractor_confidence, p_session_id, p_origin, p_metadata, p_observed_at, v_policy);
        select coalesce(array_agg(distinct t.turn collate "C" order by t.turn collate "C"), '{}') into v_turns
        from unnest(p_source_turn_ids) as t (turn);
    end if;
    if num_nonnulls(p_valid_from, p_valid_until) > 0 then
        perform memfold_internal._check_validity(p_valid_from, p_valid_until);
    end if;
    if p_embedding is not null or p_embedding_model is not null then
        perform memfold_internal._check_embedding(p_embedding, p_embedding_model);
    end if;
    if v_policy.dedup = 'off' then
        v_policy.canonicalizer := null;
    end if;
    if v_policy.metadata_keys <> '{}' then
        v_signature := memfold_internal._metadata_signature(p_metadata, v_policy.metadata_keys);
    end if;
    v_names := memfold_internal._resolve_names(p_tenant_id, p_bucket_id, p_subject, p_predicate, p_content);
    return (
        p_tenant_id, p_bucket_id, p_memory_type, p_content, v_names.subject, v_names.predicate, p_object,
            memfold_internal._unit(p_embedding), p_embedding_model,
        v_turns, coalesce(p_source_confidence, 0.5), coalesce(p_extractor_confidence, 0.5), p_session_id,
        coalesce(p_origin, 'observed'), coalesce(p_metadata, '{}'), p_observed_at,
        case when p_default_hash is not null and not v_names.is_linked and v_policy.canonicalizer = 'prose/1'
            and v_policy.key_fields = 'type,subject,predicate' and v_signature is null then p_default_hash
            else memfold_internal._content_hash(p_memory_type, v_names.subject, v_names.predicate, p_content, v_policy.canonicalizer,
                v_policy.key_fields,
                v_signature)
        end,
        null::uuid, v_signature, v_policy, null::uuid, null::uuid, null::uuid, null::uuid,
        p_subject, p_predicate, p_valid_from, p_valid_until
    );
end;
$$;

-- The checks of a single candidate as expressions, for many: _candidate() calls functions, these are inlined.

-- Whether a candidate of a batch is certainly valid; any other is checked in detail (_candidate). One expression, which
-- its caller inlines.
create or replace function memfold_internal._is_valid_candidate(
    p_content text, p_bucket_id text, p_memory_type text, p_subject text, p_predicate text, p_object text,
    p_source_turn_ids text[], p_source_confidence double precision, p_extractor_confidence double precision, p_session_id text,
    p_origin text, p_metadata jsonb, p_observed_at timestamptz, p_idempotency_key text, p_max_content_length bigint,
    p_max_metadata_size bigint
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(p_content) between 1 and p_max_content_length
    and not memfold_internal._has_mark_run_1(p_content)
    and pg_catalog.octet_length(p_bucket_id) between 1 and 512 and pg_catalog.octet_length(p_memory_type) between 1 and 512
    and p_bucket_id <> '*' and p_memory_type <> '*'
    and (p_subject ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(p_subject) <= 512) is not false
    and (p_predicate ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(p_predicate) <= 512) is not false
    and (p_object ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(p_object) <= 512) is not false
    and (pg_catalog.octet_length(p_session_id) between 1 and 512) is not false
    and (pg_catalog.octet_length(p_idempotency_key) between 1 and 512) is not false
    and (
        p_metadata = '{}'
        or pg_catalog.jsonb_typeof(p_metadata) = 'object' and pg_catalog.octet_length(p_metadata::text) <= p_max_metadata_size
    )
    and pg_catalog.cardinality(p_source_turn_ids) <= 1
    and (
        pg_catalog.octet_length(p_source_turn_ids[1]) between 1 and 512
        or pg_catalog.cardinality(p_source_turn_ids) = 0
    )
    and p_source_confidence between 0 and 1 and p_extractor_confidence between 0 and 1
    and p_origin in ('observed', 'inferred', 'recalled')
    and (p_observed_at <= pg_catalog.now() and p_observed_at >= '0001-01-01 00:00:00+00') is not false, false
);
