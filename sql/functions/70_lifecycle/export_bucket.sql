-- The number of rows of a bucket in each table. Only reads.
create or replace function memfold_internal._bucket_counts(p_tenant_id text, p_bucket_id text) returns jsonb
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_bucket_id constant text collate "C" := p_bucket_id;
begin
    return jsonb_build_object(
        'memories', (select count(*) from memfold.memories as m where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id),
        'memory_counters', (
            select count(*) from memfold.memories as m
            -- One lookup for each id; do not let missing statistics choose a scan.
            cross join lateral (
                select from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = m.memory_id
                offset 0
            ) as k
            where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
        ),
        'memory_vectors', (
            select count(*) from memfold.memories as m
            cross join lateral (
                select from memfold.memory_vectors as v where v.tenant_id = v_tenant_id and v.memory_id = m.memory_id
                offset 0
            ) as v
            where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
        ),
        'memory_intervals', (
            select count(*) from memfold.memories as m
            cross join lateral (
                select from memfold.memory_intervals as i where i.tenant_id = v_tenant_id and i.memory_id = m.memory_id
                offset 0
            ) as i
            where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
        ),
        'memory_sources', (
            -- Start from the sources: no index of theirs begins with the memory.
            select count(*) from memfold.memory_sources as s
            cross join lateral memfold_internal._memory(v_tenant_id, s.memory_id) as m
            where s.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
        ),
        'memory_tokens', (
            select count(*) from memfold.memory_tokens as t where t.tenant_id = v_tenant_id and t.bucket_id = v_bucket_id
        ),
        'memory_events', (
            select count(*) from memfold.memory_events as e where e.tenant_id = v_tenant_id and e.bucket_id = v_bucket_id
        ),
        'idempotency_keys', (
            select count(*) from memfold.idempotency_keys as i where i.tenant_id = v_tenant_id and i.bucket_id = v_bucket_id
        ),
        'judgements', (
            select count(*) from memfold.judgements as j
            where j.tenant_id = v_tenant_id and j.bucket_id = v_bucket_id and j.kind <> 'cardinality'
        ),
        'runs', (select count(*) from memfold.runs as r where r.tenant_id = v_tenant_id and r.bucket_id = v_bucket_id)
    );
end;
$$;

create or replace function memfold.export_bucket(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default'
) returns setof jsonb
-- STABLE, so that all statements see one snapshot.
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set extra_float_digits = 1 set bytea_output = 'hex' set intervalstyle = 'postgres' set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_bucket_id constant text collate "C" := bucket_id;
begin
    perform memfold_internal._authorize_tenant(v_tenant_id);
    perform memfold_internal._check_identifier('bucket_id', v_bucket_id, true);
    return next jsonb_build_object('table', 'header', 'row', jsonb_build_object(
        'format', 1, 'memfold', (select x.extversion from pg_extension as x where x.extname = 'memfold'),
        'tenant_id', v_tenant_id, 'bucket_id', v_bucket_id, 'at', now(),
        -- A changed rule of a predicate has not been applied to all stored values yet.
        'takes_up', exists (
            select from memfold.runs as r
            where r.tenant_id = v_tenant_id and r.bucket_id = '*' and r.kind = 'predicate' and r.status = 'open'
        ),
        'counts', memfold_internal._bucket_counts(v_tenant_id, v_bucket_id)));
    -- Prerequisites: models, and rules of the bucket and of its tenant.
    return query
    select jsonb_build_object('table', 'embedding_models', 'row', jsonb_build_object('model', e.model, 'dimensions', e.dimensions))
    from memfold.embedding_models as e
    where e.model in (
        select v.model from memfold.memory_vectors as v where v.tenant_id = v_tenant_id and v.bucket_id = v_bucket_id
    )
    order by e.model;
    return query
    select jsonb_build_object('table', 'policies', 'row', to_jsonb(p)) from memfold.policies as p
    where p.tenant_id = v_tenant_id and p.bucket_id in (v_bucket_id, '*')
    order by p.bucket_id, p.memory_type;
    return query
    select jsonb_build_object('table', 'options', 'row', to_jsonb(o)) from memfold.options as o
    where o.tenant_id = v_tenant_id and o.bucket_id in (v_bucket_id, '*')
    order by o.bucket_id, o.memory_type;
    return query
    select jsonb_build_object('table', 'predicates', 'row', to_jsonb(p)) from memfold.predicates as p
    where p.tenant_id = v_tenant_id order by p.predicate;
    return query
    select jsonb_build_object('table', 'links', 'row', to_jsonb(l)) from memfold.links as l
    where l.tenant_id = v_tenant_id and l.bucket_id in (v_bucket_id, '*')
    order by l.bucket_id, l.kind, l.alias;
    return query
    select jsonb_build_object('table', 'antonyms', 'row', to_jsonb(a)) from memfold.antonyms as a
    where a.tenant_id = v_tenant_id order by a.word, a.antonym;
    return query
    select jsonb_build_object('table', 'rules', 'row', jsonb_build_object('memory_type', t.memory_type, 'dedup', p.dedup,
        'canonicalizer', p.canonicalizer, 'key_fields', p.key_fields, 'metadata_keys', p.metadata_keys))
    from (
        select distinct m.memory_type from memfold.memories as m
        where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
    ) as t
    cross join lateral memfold_internal._policy(v_tenant_id, v_bucket_id, t.memory_type) as p
    order by t.memory_type;
    -- Roots before their aliases, because of the foreign keys.
    return query
    with recursive trees as (
        select m.memory_id, 0 as depth from memfold.memories as m
        where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id and m.merged_into is null
        union all
        select m.memory_id, t.depth + 1
        from trees as t
        cross join lateral (
            select m.memory_id from memfold.memories as m
            where m.tenant_id = v_tenant_id and m.merged_into = t.memory_id
            offset 0
        ) as m
    )
    -- Here and below, one lookup for each id: without statistics, a join may read the tenant's rows for each memory.
    select jsonb_build_object('table', 'memories', 'row', m.row)
    from trees as t
    cross join lateral (
        select to_jsonb(m) as row from memfold.memories as m where m.tenant_id = v_tenant_id and m.memory_id = t.memory_id
        offset 0
    ) as m
    order by t.depth, t.memory_id;
    return query
    select jsonb_build_object('table', 'memory_counters', 'row', k.row)
    from memfold.memories as m
    cross join lateral (
        select to_jsonb(k) as row from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = m.memory_id
        offset 0
    ) as k
    where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
    order by m.memory_id;
    return query
    select jsonb_build_object('table', 'memory_vectors', 'row', v.row)
    from memfold.memories as m
    cross join lateral (
        select v.model, to_jsonb(v) as row from memfold.memory_vectors as v where v.tenant_id = v_tenant_id and v.memory_id = m.memory_id
        offset 0
    ) as v
    where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
    order by m.memory_id, v.model;
    return query
    select jsonb_build_object('table', 'memory_intervals', 'row', i.row)
    from memfold.memories as m
    cross join lateral (
        select i.valid_from, to_jsonb(i) as row from memfold.memory_intervals as i
        where i.tenant_id = v_tenant_id and i.memory_id = m.memory_id
        offset 0
    ) as i
    where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
    order by m.memory_id, i.valid_from;
    return query
    select jsonb_build_object('table', 'memory_sources', 'row', to_jsonb(s))
    from memfold.memory_sources as s
    cross join lateral memfold_internal._memory(v_tenant_id, s.memory_id) as m
    where s.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id
    order by s.memory_id, s.source_turn_id;
    return query
    select jsonb_build_object('table', 'memory_tokens', 'row', to_jsonb(t)) from memfold.memory_tokens as t
    where t.tenant_id = v_tenant_id and t.bucket_id = v_bucket_id
    order by t.memory_id, t.token;
    return query
    select jsonb_build_object('table', 'runs', 'row', to_jsonb(r)) from memfold.runs as r
    where r.tenant_id = v_tenant_id and r.bucket_id = v_bucket_id
    order by r.run_id;
    return query
    -- Omit questions about predicates, which belong to the tenant and may exist where the bucket is imported.
    select jsonb_build_object('table', 'judgements', 'row', to_jsonb(j)) from memfold.judgements as j
    where j.tenant_id = v_tenant_id and j.bucket_id = v_bucket_id and j.kind <> 'cardinality'
    order by j.judgement_id;
    return query
    select jsonb_build_object('table', 'memory_events', 'row', to_jsonb(e)) from memfold.memory_events as e
    where e.tenant_id = v_tenant_id and e.bucket_id = v_bucket_id
    order by e.event_id;
    return query
    select jsonb_build_object('table', 'idempotency_keys', 'row', to_jsonb(i)) from memfold.idempotency_keys as i
    where i.tenant_id = v_tenant_id and i.bucket_id = v_bucket_id
    order by i.idempotency_key;
    return query
    select jsonb_build_object('table', 'labelled_pairs', 'row', to_jsonb(p)) from memfold.labelled_pairs as p
    where p.tenant_id = v_tenant_id and exists (
        select from memfold.memories as m
        where m.tenant_id = v_tenant_id and m.memory_id in (p.memory_a, p.memory_b) and m.bucket_id = v_bucket_id
    )
    order by p.pair_id;
    return next jsonb_build_object('table', 'end', 'row', '{}'::jsonb);
end;
$$;
grant execute on function memfold.export_bucket to memfold_app;
comment on function memfold.export_bucket is
'Returns the complete contents of a bucket from one snapshot, one JSON object per row, in the order that import_bucket() expects: a header
(format version, counts), prerequisites (embedding models, the rules of the bucket and its tenant), memories, counters, vectors,
intervals, sources, words, runs, judgements, the ledger, idempotency keys, and labelled pairs collected from it. Read
large buckets through a cursor; the server keeps the rows in temporary files. Raises MF001 to MF003.';
