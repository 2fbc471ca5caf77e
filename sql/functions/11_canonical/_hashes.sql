-- The JSON value with all numbers, at any depth, without trailing zeros, so that equal values have equal text.
create or replace function memfold_internal._trim_numbers(p_value jsonb) returns jsonb
language plpgsql immutable parallel safe
as $$
begin
    -- numbers with trailing zeros are rare: search the text for one first
    if p_value::text !~ '[.][0-9]*0(?![0-9])' then
        return p_value;
    end if;
    return case jsonb_typeof(p_value)
        when 'number' then to_jsonb(trim_scale(p_value::numeric))
        when 'array' then (
            select jsonb_agg(memfold_internal._trim_numbers(e.value) order by e.place)
            from jsonb_array_elements(p_value) with ordinality as e (value, place)
        )
        when 'object' then (
            select jsonb_object_agg(e.key, memfold_internal._trim_numbers(e.value)) from jsonb_each(p_value) as e
        )
        else p_value
    end;
end;
$$;

-- The metadata keys that are part of the hash, with their values, as JSON text; null if the policy names no keys.
create or replace function memfold_internal._metadata_signature(p_metadata jsonb, p_metadata_keys text[]) returns text
language plpgsql immutable parallel safe
as $$
begin
    if p_metadata_keys = '{}' then
        return null;
    end if;
    return (
        select memfold_internal._trim_numbers(coalesce(jsonb_object_agg(k.key, p_metadata -> k.key), '{}'))::text
        from unnest(p_metadata_keys) as k (key)
        where p_metadata ? k.key
    );
end;
$$;

-- The metadata that a stored text first came with. That of its row (p_metadata) is combined from all observations, or empty
-- for an alias.
create or replace function memfold_internal._first_metadata(p_tenant_id text, p_memory_id uuid, p_metadata jsonb) returns jsonb
language plpgsql stable
as $$
begin
    return coalesce((
        select e.metadata
        from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = p_memory_id and e.metadata is not null
        order by e.event_id
        limit 1
    ), p_metadata);
end;
$$;

-- The metadata signature of a stored text, from the metadata of its first observation.
create or replace function memfold_internal._stored_signature(m memfold.memories, p_metadata_keys text[]) returns text
language plpgsql stable
as $$
begin
    if p_metadata_keys = '{}' then
        return null;
    end if;
    return memfold_internal._metadata_signature(memfold_internal._first_metadata(m.tenant_id, m.memory_id, m.metadata), p_metadata_keys);
end;
$$;

-- The hash of a stored text by the rules of a policy; null: its canonical form is empty.
create or replace function memfold_internal._hash_under(m memfold.memories, p_policy memfold.policies) returns bytea
language plpgsql stable
as $$
begin
    if memfold.canonicalize(m.content, p_policy.canonicalizer) = '' then
        return null;
    end if;
    return memfold_internal._content_hash(m.memory_type, m.subject, m.predicate, m.content, p_policy.canonicalizer, p_policy.key_fields,
        memfold_internal._stored_signature(m, p_policy.metadata_keys));
end;
$$;

-- _content_hash() of content in canonical form, for the key fields type, subject and predicate and no metadata
-- signature. Inlined by its callers.
create or replace function memfold_internal._full_hash(p_memory_type text, p_subject text, p_predicate text, p_canonical text) returns bytea
language sql stable parallel safe
return pg_catalog.sha256(
    pg_catalog.convert_to(p_memory_type, 'UTF8')
    || E'\\x00'::bytea || coalesce(pg_catalog.convert_to(memfold_internal._prose_1(p_subject), 'UTF8'), E'\\xff'::bytea)
    || E'\\x00'::bytea || coalesce(pg_catalog.convert_to(memfold_internal._predicate_1(p_predicate), 'UTF8'), E'\\xff'::bytea)
    || E'\\x00ff00'::bytea
    || pg_catalog.convert_to(p_canonical, 'UTF8')
);

-- The first 8 bytes of a SHA-256, for advisory keys. Nobody can construct a name with a given key, as is possible with
-- PostgreSQL's own hash functions.
create or replace function memfold_internal._short_hash(p_input bytea) returns bigint
language sql immutable parallel safe
return ('x' || pg_catalog.encode(pg_catalog.substring(pg_catalog.sha256(p_input), 1, 8), 'hex'))::bit(64)::bigint;

-- The scope key of things without a scope: questions about names, and locks that only exclude changes of rules.
create or replace function memfold_internal._no_scope() returns uuid
language sql immutable parallel safe
return '00000000-0000-0000-0000-000000000000'::uuid;
