create or replace function memfold._metadata_signature(metadata jsonb, metadata_keys text[]) returns text
language plpgsql immutable parallel safe
as $$
begin
    if metadata_keys = '{}' then
        return null;
    end if;
    return (
        select coalesce(pg_catalog.jsonb_object_agg(k.key, metadata -> k.key), '{}')::text
        from pg_catalog.unnest(metadata_keys) as k (key)
        where metadata ? k.key
    );
end;
$$;
revoke all on function memfold._metadata_signature(jsonb, text[]) from public;
comment on function memfold._metadata_signature(jsonb, text[]) is
'The metadata keys that are part of the hash, with their values, as JSON text; null where the policy names none.';
