create or replace function memfold.describe_pairs(
    pairs jsonb,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (ordinal bigint, guard text[], features json)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_pairs(pairs, '{a,b,similarity}');
    return query
    select p.place, g.guard, case when p.pair ? 'similarity' then (
        select json_object_agg(f.name, f.value order by f.place)
        from unnest(memfold_internal._pair_feature_names(), memfold_internal._pair_features(
            (p.pair ->> 'similarity')::double precision, p.pair ->> 'a', p.pair ->> 'b', g.guard))
            with ordinality as f (name, value, place)
    ) end
    from jsonb_array_elements(pairs) with ordinality as p (pair, place)
    cross join lateral (
        select memfold_internal._guard(describe_pairs.tenant_id, coalesce(p.pair ->> 'a', ''), coalesce(p.pair ->> 'b', '')) as guard
        offset 0
    ) as g
    order by p.place;
end;
$$;
comment on function memfold.describe_pairs is
'Returns what memfold calibrate reads of pairs of texts: the guard''s signals and, of pairs with a similarity (their cosine), the features
that a fitted score is computed from, by name, in the order in which it takes them. pairs: an array of at most 10,000 objects with the keys
a, b (the texts) and similarity. ordinal: the place in the array, from 1. Stores nothing. Only for members of memfold_owner. Raises MF001,
MF003, MF035, MF042.';
