-- What is said of one candidate elsewhere, as expressions for many: _candidate() calls, these are inlined.

create or replace function memfold._is_sound(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz, idempotency_key text, max_content_length bigint,
    max_metadata_size bigint
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(content) between 1 and max_content_length
    and not memfold._has_mark_run_1(content)
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
    and (observed_at <= pg_catalog.now() and observed_at > '-infinity') is not false, false
);
revoke all on function memfold._is_sound(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz, text,
    bigint, bigint
) from public;
comment on function memfold._is_sound(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz, text,
    bigint, bigint
) is
'A candidate of a batch that is valid beyond doubt; any other is looked at piece by piece (_candidate). One expression,
which its caller inlines.';

create or replace function memfold._full_hash(memory_type text, subject text, predicate text, canonical text) returns bytea
language sql stable parallel safe
return pg_catalog.sha256(
    pg_catalog.convert_to(memory_type, 'UTF8')
    || E'\\x00'::bytea || coalesce(pg_catalog.convert_to(memfold._prose_1(subject), 'UTF8'), E'\\xff'::bytea)
    || E'\\x00'::bytea || coalesce(pg_catalog.convert_to(memfold._prose_1(predicate), 'UTF8'), E'\\xff'::bytea)
    || E'\\x00ff00'::bytea
    || pg_catalog.convert_to(canonical, 'UTF8')
);
revoke all on function memfold._full_hash(text, text, text, text) from public;
comment on function memfold._full_hash(text, text, text, text) is
'What _content_hash() gives by the key fields type, subject, predicate and without a metadata signature, of content in
canonical form. One expression, which its caller inlines.';

create or replace function memfold._scope_key_of(bucket_id text, memory_type text, subject text, predicate text) returns bigint
language sql immutable parallel safe
return pg_catalog.hashtextextended(
    coalesce(memfold._prose_1(predicate), '') collate "C",
    pg_catalog.hashtextextended(
        coalesce(memfold._prose_1(subject), '') collate "C",
        pg_catalog.hashtextextended(memory_type collate "C", pg_catalog.hashtextextended(bucket_id collate "C", 0))
    )
);
revoke all on function memfold._scope_key_of(text, text, text, text) from public;
comment on function memfold._scope_key_of(text, text, text, text) is
'What _scope_key() gives. One expression, which its caller inlines.';
