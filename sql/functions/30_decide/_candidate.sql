create or replace function memfold_internal._check_candidate(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz, policy memfold.policies
) returns void
language plpgsql stable
as $$
declare
    v_turn text;
begin
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('memory_type', memory_type, true);
    perform memfold_internal._check_wildcard('bucket_id', bucket_id);
    perform memfold_internal._check_wildcard('memory_type', memory_type);
    perform memfold_internal._check_identifier('subject', subject, false);
    perform memfold_internal._check_identifier('predicate', predicate, false);
    perform memfold_internal._check_identifier('object', object, false);
    perform memfold_internal._check_identifier('session_id', session_id, false);
    if content is null or content = '' then
        perform memfold_internal._fail('MF004', 'the content is empty',
            pg_catalog.format('content was %s.', pg_catalog.quote_nullable(content)), 'Pass the text of one fact.');
    elsif pg_catalog.octet_length(content) > policy.max_content_length then
        perform memfold_internal._fail('MF005', 'the content is too long',
            pg_catalog.format('It has %s bytes; this bucket accepts %s.', pg_catalog.octet_length(content),
                policy.max_content_length),
            'A memory is one fact. Split the text, or raise max_content_length with set_policy().');
    end if;
    perform memfold_internal._check_marks(content);
    if not coalesce(source_confidence, 0.5) between 0 and 1 or not coalesce(extractor_confidence, 0.5) between 0 and 1 then
        perform memfold_internal._fail('MF006', 'a confidence is out of range',
            pg_catalog.format('source_confidence was %s, extractor_confidence %s.', source_confidence,
                extractor_confidence),
            'Confidences are in [0, 1].');
    end if;
    if pg_catalog.jsonb_typeof(metadata) <> 'object' then
        perform memfold_internal._fail('MF007', 'metadata is not an object',
            pg_catalog.format('It is a JSON %s.', pg_catalog.jsonb_typeof(metadata)),
            'Pass a JSON object, or {} if there is none.');
    elsif pg_catalog.octet_length(metadata::text) > policy.max_metadata_size then
        perform memfold_internal._fail('MF008', 'the metadata is too large',
            pg_catalog.format('It has %s bytes; this bucket accepts %s.', pg_catalog.octet_length(metadata::text),
                policy.max_metadata_size),
            'Store large values elsewhere, or raise max_metadata_size with set_policy().');
    end if;
    if origin not in ('observed', 'inferred', 'recalled') then
        perform memfold_internal._fail('MF009', 'unknown origin', pg_catalog.format('origin was %L.', origin),
            'origin is observed, inferred or recalled.');
    end if;
    if observed_at > memfold_internal._clock() + interval '5 minutes' or observed_at < '0001-01-01 00:00:00+00' then
        perform memfold_internal._fail('MF010', 'observed_at is out of range', pg_catalog.format('It was %s.', observed_at),
            'Pass a time in the past, from the year 1 on; at most 5 minutes ahead of the server''s clock are accepted.');
    end if;
    if pg_catalog.cardinality(source_turn_ids) > 1000 then
        perform memfold_internal._fail('MF016', 'too many source turns',
            pg_catalog.format('source_turn_ids has %s elements.', pg_catalog.cardinality(source_turn_ids)),
            'Pass at most 1,000 per call.');
    end if;
    foreach v_turn in array coalesce(source_turn_ids, '{}') loop
        perform memfold_internal._check_identifier('source_turn_ids', v_turn, true);
    end loop;
end;
$$;
comment on function memfold_internal._check_candidate is
'Raises MF003 to MF010, MF016 or MF061 for arguments that are not allowed. Null stands for the default if there is one.';

create or replace function memfold_internal._check_validity(valid_from timestamptz, valid_until timestamptz) returns void
language plpgsql immutable parallel safe
as $$
declare
    -- Clients read these: Python's datetime, for one, has no other years.
    v_first constant timestamptz := timestamptz '0001-01-01 00:00:00+00';
    v_last constant timestamptz := timestamptz '9999-12-31 23:59:59.999999+00';
begin
    if not coalesce(valid_from < valid_until, true) or not coalesce(valid_from between v_first and v_last, true)
        or not coalesce(valid_until between v_first and v_last, true)
    then
        perform memfold_internal._fail('MF065', 'the validity is empty or endless',
            pg_catalog.format('valid_from was %s, valid_until %s.', coalesce(valid_from::text, 'null'), coalesce(valid_until::text, 'null')),
            'valid_from must be earlier than valid_until, both in the years 1 to 9999 (UTC); for no bound use null, not infinity.');
    end if;
end;
$$;
comment on function memfold_internal._check_validity is 'Raises MF065 for a period in which no fact can be valid.';

-- As few nodes as possible: PL/pgSQL initialises them all, with their privileges, in every call.
create or replace function memfold_internal._is_fast_path(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(content) between 1 and 8192
    and pg_catalog.octet_length(
        pg_catalog.concat(bucket_id, memory_type, subject, predicate, object, session_id, source_turn_ids[1])
    ) <= 512
    and (object ~ '^[A-Za-z0-9]' collate "C") is not false and (session_id <> '') is not false
    and (
        metadata = '{}'
        or pg_catalog.jsonb_typeof(metadata) = 'object' and pg_catalog.octet_length(metadata::text) <= 8192
    )
    and pg_catalog.cardinality(source_turn_ids) = case when source_turn_ids[1] <> '' then 1 else 0 end
    and source_confidence between 0 and 1 and extractor_confidence between 0 and 1
    and origin = 'observed' and (observed_at <= pg_catalog.now() and observed_at >= '0001-01-01 00:00:00+00') is not false, false
);
comment on function memfold_internal._is_fast_path is
'Whether a candidate with the key of a memory is certainly valid: at most one turn, observed, and nothing too long. Any other candidate
may still have an empty bucket or type, an empty canonical subject or predicate, or more content or metadata than its policy allows. One
expression, which its callers inline.';

create or replace function memfold_internal._is_usual_text(
    content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text
) returns boolean
language sql immutable parallel safe
return coalesce(
    bucket_id > '*' collate "C" and memory_type > '*' collate "C" and tenant_id <> '*'
    and not memfold_internal._has_mark_run_1(content)
    and (subject ~ '^[A-Za-z0-9]' collate "C") is not false and (predicate ~ '^[A-Za-z0-9]' collate "C") is not false, false
);
comment on function memfold_internal._is_usual_text is
'The checks that _is_fast_path() omits for a candidate that may be new, except its policy''s limits. One expression, which its callers
inline.';

create or replace function memfold_internal._candidate(
    content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text,
    embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision,
    extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamptz,
    default_hash bytea default null, valid_from timestamptz default null, valid_until timestamptz default null
) returns memfold_internal.candidate
language plpgsql stable
as $$
declare
    v_policy memfold.policies := memfold_internal._policy(tenant_id, bucket_id, memory_type);
    v_turns text[] := source_turn_ids;
    v_signature text;
    v_names record;
begin
    if not memfold_internal._is_fast_path(content, bucket_id, memory_type, subject, predicate, object, source_turn_ids,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at)
        or v_policy.max_content_length < 8192 or v_policy.max_metadata_size < 8192
        or not memfold_internal._is_usual_text(content, tenant_id, bucket_id, memory_type, subject, predicate)
    then
        perform memfold_internal._check_wildcard('tenant_id', tenant_id);
        perform memfold_internal._check_candidate(content, bucket_id, memory_type, subject, predicate, object, source_turn_ids,
            source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, v_policy);
        select coalesce(pg_catalog.array_agg(distinct t.turn collate "C" order by t.turn collate "C"), '{}') into v_turns
        from pg_catalog.unnest(source_turn_ids) as t (turn);
    end if;
    if pg_catalog.num_nonnulls(valid_from, valid_until) > 0 then
        perform memfold_internal._check_validity(valid_from, valid_until);
    end if;
    if embedding is not null or embedding_model is not null then
        perform memfold_internal._check_embedding(embedding, embedding_model);
    end if;
    if v_policy.dedup = 'off' then
        v_policy.canonicalizer := null;
    end if;
    if v_policy.metadata_keys <> '{}' then
        v_signature := memfold_internal._metadata_signature(metadata, v_policy.metadata_keys);
    end if;
    v_names := memfold_internal._resolve_names(tenant_id, bucket_id, subject, predicate, content);
    return (
        tenant_id, bucket_id, memory_type, content, v_names.subject, v_names.predicate, object, memfold_internal._unit(embedding), embedding_model,
        v_turns, coalesce(source_confidence, 0.5), coalesce(extractor_confidence, 0.5), session_id,
        coalesce(origin, 'observed'), coalesce(metadata, '{}'), observed_at,
        case when default_hash is not null and not v_names.is_linked and v_policy.canonicalizer = 'prose/1'
            and v_policy.key_fields = 'type,subject,predicate' and v_signature is null then default_hash
            else memfold_internal._content_hash(memory_type, v_names.subject, v_names.predicate, content, v_policy.canonicalizer, v_policy.key_fields,
                v_signature)
        end,
        null::uuid, v_signature, v_policy, null::uuid, null::uuid, null::uuid, null::uuid,
        subject, predicate, valid_from, valid_until
    );
end;
$$;
comment on function memfold_internal._candidate is
'Validates the arguments of a caller and returns them with the hash, the unit vector and the policy that applies (without the scope key,
which a tier-1 hit does not need). Null stands for the default; observed_at stays null, which means the time when the candidate is written
(_stated_at). default_hash: its hash by the default rules, if known. Raises MF003 to MF016, MF061, MF065; writes nothing.';

-- The checks of a single candidate as expressions, for many: _candidate() calls functions, these are inlined.

create or replace function memfold_internal._is_valid_candidate(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz, idempotency_key text, max_content_length bigint,
    max_metadata_size bigint
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(content) between 1 and max_content_length
    and not memfold_internal._has_mark_run_1(content)
    and pg_catalog.octet_length(bucket_id) between 1 and 512 and pg_catalog.octet_length(memory_type) between 1 and 512
    and bucket_id <> '*' and memory_type <> '*'
    and (subject ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(subject) <= 512) is not false
    and (predicate ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(predicate) <= 512) is not false
    and (object ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(object) <= 512) is not false
    and (pg_catalog.octet_length(session_id) between 1 and 512) is not false
    and (pg_catalog.octet_length(idempotency_key) between 1 and 512) is not false
    and (
        metadata = '{}'
        or pg_catalog.jsonb_typeof(metadata) = 'object' and pg_catalog.octet_length(metadata::text) <= max_metadata_size
    )
    and pg_catalog.cardinality(source_turn_ids) <= 1
    and (
        pg_catalog.octet_length(source_turn_ids[1]) between 1 and 512
        or pg_catalog.cardinality(source_turn_ids) = 0
    )
    and source_confidence between 0 and 1 and extractor_confidence between 0 and 1
    and origin in ('observed', 'inferred', 'recalled')
    and (observed_at <= pg_catalog.now() and observed_at >= '0001-01-01 00:00:00+00') is not false, false
);
comment on function memfold_internal._is_valid_candidate is
'Whether a candidate of a batch is certainly valid; any other is checked in detail (_candidate). One expression, which its caller
inlines.';
