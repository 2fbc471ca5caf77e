create or replace function memfold._trim_numbers(value jsonb) returns jsonb
language plpgsql immutable parallel safe
as $$
begin
    -- numbers with zeros at the end are rare: their digits are looked for in the text first
    if value::text !~ '[.][0-9]*0(?![0-9])' then
        return value;
    end if;
    return case pg_catalog.jsonb_typeof(value)
        when 'number' then pg_catalog.to_jsonb(pg_catalog.trim_scale(value::numeric))
        when 'array' then (
            select pg_catalog.jsonb_agg(memfold._trim_numbers(e.value) order by e.place)
            from pg_catalog.jsonb_array_elements(value) with ordinality as e (value, place)
        )
        when 'object' then (
            select pg_catalog.jsonb_object_agg(e.key, memfold._trim_numbers(e.value)) from pg_catalog.jsonb_each(value) as e
        )
        else value
    end;
end;
$$;
revoke all on function memfold._trim_numbers(jsonb) from public;
comment on function memfold._trim_numbers(jsonb) is
'JSON with its numbers, at any depth, without zeros at the end: what is equal has the same text then.';

create or replace function memfold._metadata_signature(metadata jsonb, metadata_keys text[]) returns text
language plpgsql immutable parallel safe
as $$
begin
    if metadata_keys = '{}' then
        return null;
    end if;
    return (
        select memfold._trim_numbers(coalesce(pg_catalog.jsonb_object_agg(k.key, metadata -> k.key), '{}'))::text
        from pg_catalog.unnest(metadata_keys) as k (key)
        where metadata ? k.key
    );
end;
$$;
revoke all on function memfold._metadata_signature(jsonb, text[]) from public;
comment on function memfold._metadata_signature(jsonb, text[]) is
'The metadata keys that are part of the hash, with their values, as JSON text (1 for 1.0); null where the policy names none.';
