create or replace function memfold._check_identifier(name text, identifier text, required boolean) returns void
language plpgsql immutable parallel safe
as $$
begin
    if identifier is null and required or identifier = '' then
        perform memfold._fail('MF003', pg_catalog.format('%s is missing', name),
            pg_catalog.format('%s was %s.', name, pg_catalog.quote_nullable(identifier)),
            'Pass a text that is not empty'
            || case when required then '.' else ', or null where there is none.' end);
    elsif pg_catalog.octet_length(identifier) > 512 then
        perform memfold._fail('MF003', pg_catalog.format('%s is too long', name),
            pg_catalog.format('It has %s bytes.', pg_catalog.octet_length(identifier)),
            'Identifiers have at most 512 bytes of UTF-8; long text belongs into content or metadata.');
    elsif name in ('subject', 'predicate', 'object') and memfold.canonicalize(identifier, 'prose/1') = '' then
        perform memfold._fail('MF003', pg_catalog.format('%s is empty', name),
            pg_catalog.format('Nothing is left of %L in canonical form.', identifier),
            'Pass null where there is none.');
    end if;
end;
$$;
revoke all on function memfold._check_identifier(text, text, boolean) from public;
comment on function memfold._check_identifier(text, text, boolean) is
'Raises MF003 unless the identifier has 1 to 512 bytes (null is allowed where it is not required).';

create or replace function memfold._check_marks(content text) returns void
language plpgsql immutable parallel safe
as $$
begin
    if memfold._has_mark_run_1(content) then
        perform memfold._fail('MF061', 'the content has too many combining marks in a row',
            'More than 30 follow one another.',
            'No script needs so many (Unicode Standard Annex 15 calls text with 30 at most stream-safe): take them out.');
    end if;
end;
$$;
revoke all on function memfold._check_marks(text) from public;
comment on function memfold._check_marks(text) is 'Raises MF061: normalizing such a text would be too expensive.';

create or replace function memfold._check_wildcard(name text, identifier text) returns void
language plpgsql immutable parallel safe
as $$
begin
    if identifier = '*' then
        perform memfold._fail('MF003', pg_catalog.format('%s is not a name', name),
            pg_catalog.format('%s was ''*'', which stands for any in rules and in calls of maintenance.', name),
            'Pass a name of its own.');
    end if;
end;
$$;
revoke all on function memfold._check_wildcard(text, text) from public;
comment on function memfold._check_wildcard(text, text) is 'Raises MF003 for ''*'', which names no tenant, bucket or type of a memory.';

create or replace function memfold._fits_model(embedding vector, dimensions bigint, replaced_by text) returns boolean
language sql immutable parallel safe
return replaced_by is null and dimensions is not null and (
    embedding is null
    or memfold._dimensions(embedding) = dimensions and memfold._norm(embedding) between 1e-30 and 1e30
);
revoke all on function memfold._fits_model(vector, bigint, text) from public;
comment on function memfold._fits_model(vector, bigint, text) is
'Whether tier 2 takes an embedding of the model that has these dimensions and was replaced by that one, by none where null.
One expression, which its callers inline; _check_embedding() says what is wrong.';

create or replace function memfold._check_embedding(embedding vector, embedding_model text) returns void
language plpgsql stable
as $$
declare
    v_dimensions bigint;
    v_replaced_by text;
begin
    if embedding_model is null then
        perform memfold._fail('MF012', 'the embedding has no model',
            pg_catalog.format('A vector of %s dimensions came without embedding_model.', memfold._dimensions(embedding)),
            'Pass embedding_model: only vectors of one model can be compared.');
    end if;
    select m.dimensions, m.replaced_by into v_dimensions, v_replaced_by
    from memfold.embedding_models as m where m.model = embedding_model collate "C";
    if not found then
        perform memfold._fail('MF013', 'unknown embedding model',
            pg_catalog.format('%L is not registered.', embedding_model),
            'Register it: select register_embedding_model(model, dimensions).');
    elsif memfold._fits_model(embedding, v_dimensions, v_replaced_by) then
        return;
    elsif embedding is not null and memfold._dimensions(embedding) <> v_dimensions then
        perform memfold._fail('MF014', 'the embedding has the wrong size',
            pg_catalog.format('Model %L has %s dimensions, the vector %s.', embedding_model, v_dimensions,
                memfold._dimensions(embedding)),
            'Pass the vector that this model made of the content.');
    elsif v_replaced_by is not null then
        perform memfold._check_model(embedding_model, false);
    else
        perform memfold._fail('MF015', 'the embedding has no direction',
            pg_catalog.format('Its norm is %s.', memfold._norm(embedding)),
            'A zero vector is like nothing: leave the embedding out where there is none.');
    end if;
end;
$$;
revoke all on function memfold._check_embedding(vector, text) from public;
comment on function memfold._check_embedding(vector, text) is
'Raises MF012 (no model), MF013 (unknown model), MF014 (wrong size), MF015 (zero vector), MF047 (replaced model).';

create or replace function memfold._check_candidate(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz, policy memfold.policies
) returns void
language plpgsql stable
as $$
declare
    v_turn text;
begin
    perform memfold._check_identifier('bucket_id', bucket_id, true);
    perform memfold._check_identifier('memory_type', memory_type, true);
    perform memfold._check_wildcard('bucket_id', bucket_id);
    perform memfold._check_wildcard('memory_type', memory_type);
    perform memfold._check_identifier('subject', subject, false);
    perform memfold._check_identifier('predicate', predicate, false);
    perform memfold._check_identifier('object', object, false);
    perform memfold._check_identifier('session_id', session_id, false);
    if content is null or content = '' then
        perform memfold._fail('MF004', 'the content is empty',
            pg_catalog.format('content was %s.', pg_catalog.quote_nullable(content)), 'Pass the text of one fact.');
    elsif pg_catalog.octet_length(content) > policy.max_content_length then
        perform memfold._fail('MF005', 'the content is too long',
            pg_catalog.format('It has %s bytes; this bucket accepts %s.', pg_catalog.octet_length(content),
                policy.max_content_length),
            'A memory is one fact. Split the text, or raise max_content_length by set_policy().');
    end if;
    perform memfold._check_marks(content);
    if not coalesce(source_confidence, 0.5) between 0 and 1 or not coalesce(extractor_confidence, 0.5) between 0 and 1 then
        perform memfold._fail('MF006', 'a confidence is out of range',
            pg_catalog.format('source_confidence was %s, extractor_confidence %s.', source_confidence,
                extractor_confidence),
            'Confidences lie in [0, 1].');
    end if;
    if pg_catalog.jsonb_typeof(metadata) <> 'object' then
        perform memfold._fail('MF007', 'metadata is not an object',
            pg_catalog.format('It is a JSON %s.', pg_catalog.jsonb_typeof(metadata)),
            'Pass a JSON object, {} where there is none.');
    elsif pg_catalog.octet_length(metadata::text) > policy.max_metadata_size then
        perform memfold._fail('MF008', 'the metadata is too large',
            pg_catalog.format('It has %s bytes; this bucket accepts %s.', pg_catalog.octet_length(metadata::text),
                policy.max_metadata_size),
            'Keep large values elsewhere, or raise max_metadata_size by set_policy().');
    end if;
    if origin not in ('observed', 'inferred', 'recalled') then
        perform memfold._fail('MF009', 'unknown origin', pg_catalog.format('origin was %L.', origin),
            'origin is observed, inferred or recalled.');
    end if;
    if observed_at > memfold._clock() + interval '5 minutes' or observed_at = '-infinity' then
        perform memfold._fail('MF010', 'observed_at is out of range', pg_catalog.format('It was %s.', observed_at),
            'An observation lies in the past: at most 5 minutes ahead of the server''s clock are allowed for.');
    end if;
    if pg_catalog.cardinality(source_turn_ids) > 1000 then
        perform memfold._fail('MF016', 'too many source turns',
            pg_catalog.format('There are %s.', pg_catalog.cardinality(source_turn_ids)),
            'One fact comes from at most 1,000 turns a call.');
    end if;
    foreach v_turn in array coalesce(source_turn_ids, '{}') loop
        perform memfold._check_identifier('source_turn_ids', v_turn, true);
    end loop;
end;
$$;
revoke all on function memfold._check_candidate(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz,
    memfold.policies
) from public;
comment on function memfold._check_candidate(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz,
    memfold.policies
) is
'Raises MF003 to MF010, MF016 or MF061 for what a caller may not hand in. Null stands for the default where there is one.';

-- No more nodes than it takes: PL/pgSQL initialises them all, with their privileges, in every call.
create or replace function memfold._is_usual(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(content) <= 8192
    and pg_catalog.octet_length(pg_catalog.concat(bucket_id, memory_type, subject, predicate, source_turn_ids[1])) <= 512
    and object is null and session_id is null and metadata = '{}'
    and pg_catalog.cardinality(source_turn_ids) = case when source_turn_ids[1] <> '' then 1 else 0 end
    and source_confidence between 0 and 1 and extractor_confidence between 0 and 1
    and origin = 'observed' and (observed_at <= pg_catalog.now() and observed_at > '-infinity') is not false, false
);
revoke all on function memfold._is_usual(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz
) from public;
comment on function memfold._is_usual(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz
) is
'A candidate with nothing about it that must be looked at piece by piece, if it has the key of a memory: without object,
session, metadata, further turns or another origin, and nothing too long. Else its content may still be empty, or longer than
the policy allows, and so may bucket, type, subject and predicate. One expression, which its callers inline.';

create or replace function memfold._candidate(
    content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text,
    embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision,
    extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamptz
) returns memfold.candidate
language plpgsql stable
as $$
declare
    v_policy memfold.policies := memfold._policy(tenant_id, bucket_id, memory_type);
    v_turns text[] := source_turn_ids;
    v_signature text;
begin
    if not memfold._is_usual(content, bucket_id, memory_type, subject, predicate, object, source_turn_ids,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at)
        or v_policy.max_content_length < 8192
        or (content <> '' and bucket_id > '*' collate "C" and memory_type > '*' collate "C") is not true
        or memfold._has_mark_run_1(content) or tenant_id = '*'
        or (subject ~ '^[A-Za-z0-9]' collate "C") is false or (predicate ~ '^[A-Za-z0-9]' collate "C") is false
    then
        perform memfold._check_wildcard('tenant_id', tenant_id);
        perform memfold._check_candidate(content, bucket_id, memory_type, subject, predicate, object, source_turn_ids,
            source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, v_policy);
        select coalesce(pg_catalog.array_agg(distinct t.turn collate "C" order by t.turn collate "C"), '{}') into v_turns
        from pg_catalog.unnest(source_turn_ids) as t (turn);
    end if;
    if embedding is not null or embedding_model is not null then
        perform memfold._check_embedding(embedding, embedding_model);
    end if;
    if v_policy.dedup = 'off' then
        v_policy.canonicalizer := null;
    end if;
    if v_policy.metadata_keys <> '{}' then
        v_signature := memfold._metadata_signature(metadata, v_policy.metadata_keys);
    end if;
    return (
        tenant_id, bucket_id, memory_type, content, subject, predicate, object, memfold._unit(embedding), embedding_model,
        v_turns, coalesce(source_confidence, 0.5), coalesce(extractor_confidence, 0.5), session_id,
        coalesce(origin, 'observed'), coalesce(metadata, '{}'), observed_at,
        memfold._content_hash(memory_type, subject, predicate, content, v_policy.canonicalizer, v_policy.key_fields,
            v_signature),
        null::bigint, v_signature, v_policy, null::uuid, null::uuid, null::uuid, null::uuid
    );
end;
$$;
revoke all on function memfold._candidate(
    text, text, text, text, text, text, text, vector, text, text[], double precision, double precision, text, text, jsonb,
    timestamptz
) from public;
comment on function memfold._candidate(
    text, text, text, text, text, text, text, vector, text, text[], double precision, double precision, text, text, jsonb,
    timestamptz
) is
'Validates what a caller hands in and returns it with its hash, its unit vector and the policy that applies (the scope key,
which a tier-1 hit has no use for, is left out). Null stands for the default; observed_at stays null, for that is now, which is
told when the candidate is written (_stated_at). Raises MF003 to MF016, MF061; writes nothing.';
