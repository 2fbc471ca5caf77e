-- The functions that compute generated columns of memories. The functions that they call are in sql/functions/, and exist before the
-- first row is written.

-- PL/pgSQL on purpose: an INSERT would plan the body of an SQL function each time it computes a generated column. Strings are written
-- E'', because PL/pgSQL parses them on first use, with the session's standard_conforming_strings.
create function memfold_internal._content_hash(
    memory_type text, subject text, predicate text, content text,
    canonicalizer text, key_fields text, metadata_signature text
) returns bytea
language plpgsql immutable parallel safe
as $$
declare
    v_content text;
begin
    if canonicalizer is null then
        return null;
    elsif canonicalizer = 'prose/1' then
        v_content := memfold_internal._prose_1(content);
    else
        v_content := memfold.canonicalize(content, canonicalizer);
    end if;
    if v_content = '' then
        raise exception 'the content is empty in canonical form' using
            errcode = 'MF004',
            detail = pg_catalog.format('The canonical form of %L by %s is empty.',
                pg_catalog.left(content, 100), canonicalizer),
            hint = 'Pass the text of one fact.';
    end if;
    if key_fields = 'type,subject,predicate' and subject is null and predicate is null and metadata_signature is null then
        -- the value of the expression below, in the common case
        return pg_catalog.sha256(pg_catalog.convert_to(memory_type, 'UTF8') || E'\\x00ff00ff00ff00'::bytea
            || pg_catalog.convert_to(v_content, 'UTF8'));
    end if;
    return pg_catalog.sha256(
        -- A field ends with a zero byte, which no text contains; ff (null) and fe (not part of the key) do not occur in UTF-8.
        case when pg_catalog.strpos(key_fields, 'type') > 0
            then pg_catalog.convert_to(memory_type, 'UTF8') else E'\\xfe'::bytea end
        || E'\\x00'::bytea
        || case when pg_catalog.strpos(key_fields, 'subject') > 0
            then coalesce(pg_catalog.convert_to(memfold_internal._prose_1(subject), 'UTF8'), E'\\xff'::bytea) else E'\\xfe'::bytea end
        || E'\\x00'::bytea
        || case when pg_catalog.strpos(key_fields, 'predicate') > 0
            then coalesce(pg_catalog.convert_to(memfold_internal._predicate_1(predicate), 'UTF8'), E'\\xff'::bytea) else E'\\xfe'::bytea end
        || E'\\x00'::bytea
        || coalesce(pg_catalog.convert_to(metadata_signature, 'UTF8'), E'\\xff'::bytea)
        || E'\\x00'::bytea
        || pg_catalog.convert_to(v_content, 'UTF8')
    );
end;
$$;
comment on function memfold_internal._content_hash is
'SHA-256 (32 bytes) over an unambiguous encoding of the key fields and the canonical content. Null without a canonicalizer: such a memory
has opted out of deduplication. Raises MF004 if the canonical content is empty.';

create function memfold_internal._scope_key(bucket_id text, memory_type text, subject text, predicate text) returns uuid
language plpgsql immutable parallel safe
as $$
begin
    return pg_catalog.encode(pg_catalog.substring(pg_catalog.sha256(
        pg_catalog.convert_to(bucket_id, 'UTF8')
        -- No text contains a zero byte. Null is written as the empty text, which is never the canonical form of a subject or predicate.
        || E'\\x00'::bytea || pg_catalog.convert_to(memory_type, 'UTF8')
        || E'\\x00'::bytea || pg_catalog.convert_to(coalesce(memfold_internal._prose_1(subject), ''), 'UTF8')
        || E'\\x00'::bytea || pg_catalog.convert_to(coalesce(memfold_internal._predicate_1(predicate), ''), 'UTF8')
    ), 1, 16), 'hex')::uuid;
end;
$$;
comment on function memfold_internal._scope_key is
'Identifies a scope: the first 16 bytes of a SHA-256 over bucket, type, canonical subject and canonical predicate.';
