-- Active memories with the same hash by the present rules as keep_id, the most confident, then newest of them. Only reads.
create or replace function memfold_internal._exact_duplicates(p_tenant_id text, p_bucket_id text)
returns table (memory_id uuid, keep_id uuid)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with texts as materialized (
        -- Two conditions, one for each of the two indexes that begin with tenant and bucket.
        select m.*
        from memfold.memories as m
        where (m.tenant_id = p_tenant_id collate "C"
                and m.bucket_id = p_bucket_id collate "C" and m.content_hash is not null
            or m.tenant_id = p_tenant_id collate "C"
                and m.bucket_id = p_bucket_id collate "C" and m.content_hash is null)
            and m.root_id is null and m.status = 'active'
    ),
    rules as materialized (
        select k.kind, p.*
        from (select distinct t.memory_type as kind from texts as t) as k
        cross join lateral memfold_internal._policy(p_tenant_id, p_bucket_id, k.kind) as p
        cross join lateral memfold_internal._options(p_tenant_id, p_bucket_id, k.kind) as o
        where k.kind <> all(o.protected_types)
    ),
    hashed as (
        select t.memory_id, t.created_at,
            memfold_internal._confidence(k.source_confidence, k.extractor_confidence, k.independent, p.weight_source,
                p.weight_extractor, p.weight_repetition) as confidence,
            case
                when (t.canonicalizer, t.key_fields) = (p.canonicalizer, p.key_fields) and p.metadata_keys = '{}'
                    then t.content_hash
                when memfold.canonicalize(t.content, p.canonicalizer) <> ''
                    then memfold_internal._content_hash(t.memory_type, t.subject, t.predicate, t.content, p.canonicalizer,
                        p.key_fields, memfold_internal._metadata_signature(t.metadata, p.metadata_keys))
            end as hash
        from texts as t
        join rules as p on p.kind = t.memory_type
        cross join lateral (
            select k.* from memfold.memory_totals as k
            where k.tenant_id = t.tenant_id and k.memory_id = t.memory_id
            offset 0
        ) as k
    ),
    ranked as (
        select h.memory_id, first_value(h.memory_id) over w as keep_id
        from hashed as h
        where h.hash is not null
        window w as (partition by h.hash order by h.confidence desc, h.created_at desc, h.memory_id desc)
    )
    select d.memory_id, d.keep_id from ranked as d
    where d.memory_id <> d.keep_id and not memfold_internal._was_asked(p_tenant_id, d.memory_id, d.keep_id)
    order by d.memory_id;
end;
$$;

create or replace function memfold.clean_exact_duplicates(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    dry_run boolean default true,
    max_operations bigint default 200
) returns table (run_id uuid, memory_id uuid, keep_id uuid, content text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    v_ids uuid[];
    v_keep_ids uuid[];
    v_places integer[];
    v_rules text;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    if not coalesce(max_operations between 1 and 1000 and dry_run is not null, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_operations was %s, dry_run %s.', max_operations, dry_run),
            'max_operations is 1 to 1000, dry_run true or false.');
    end if;
    v_rules := memfold_internal._rules_stamp(tenant_id, bucket_id);
    select array_agg(d.memory_id order by d.memory_id), array_agg(d.keep_id order by d.memory_id)
    into v_ids, v_keep_ids
    from (
        select x.memory_id, x.keep_id
        from memfold_internal._exact_duplicates(tenant_id, bucket_id) as x
        order by x.memory_id
        limit max_operations
    ) as d;
    v_places := array(select generate_subscripts(v_ids, 1));
    if not dry_run and v_ids is not null then
        perform memfold_internal._lock(tenant_id, bucket_id, null, true);
        perform memfold_internal._check_rules_stamp(tenant_id, bucket_id, v_rules);
        r := memfold_internal._start_run(tenant_id, bucket_id, 'cleaning',
            jsonb_build_object('max_operations', max_operations));
        v_places := memfold_internal._merge_all(r, 2, 'hash', 'merged', v_ids, v_keep_ids, null, null, null, null);
        perform memfold_internal._end_run(tenant_id, r.run_id, '{}');
    end if;
    return query
    select r.run_id, m.memory_id, v_keep_ids[p.place], m.content::text
    from unnest(v_places) as p (place)
    join memfold.memories as m on m.tenant_id = clean_exact_duplicates.tenant_id collate "C" and m.memory_id = v_ids[p.place]
    order by p.place;
end;
$$;
grant execute on function memfold.clean_exact_duplicates to memfold_app;
comment on function memfold.clean_exact_duplicates is
'Merges active memories of a bucket that are equal by its present rules (key fields and canonical content) but have a row each, because
they arrived while dedup was off. Keeps the most confident, then the newest; undo_run() undoes it. dry_run (the default) returns what it
would do. Does at most max_operations (1 to 1000) per run, with the bucket locked: call it until it returns no row (it then records no
run). Omits protected types, and pairs that were judged or separated by an undo. Raises MF001 to MF003, MF022, MF025.';
