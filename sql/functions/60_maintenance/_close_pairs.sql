-- Maintenance: finds duplicates among stored memories, and retires, decays and expires what is old.
--
-- consolidate(), sweep_duplicates(), clean_exact_duplicates(), end_session() and prune_memories() write under a run
-- (runs), which undo_run() undoes as a whole. Applications call them, and so does run_maintenance() for what is due by the
-- options; memfold maintenance and run_maintenance_all() call that. Every call does a bounded amount and reports what is
-- left. approve_run() gives all questions of a run the same answer. 61_calibration uses the groups and pairs of this file.
--
-- A run plans without a lock where that takes long, then locks the bucket (consolidate() SHARED), checks that the rules
-- have not changed since, and skips memories that have. What must stay true: no run merges what ingest would only ask
-- about, nor a pair that was judged or separated by an undo (_was_asked), nor a protected type; run_maintenance() holds
-- locks to its end, so its tasks are small and those that lock buckets come last.

-- The embedding model with the most active vectors in a bucket; null if it has no vectors. Only reads.
create or replace function memfold_internal._most_used_model(p_tenant_id text, p_bucket_id text) returns text
language plpgsql stable
as $$
begin
    return (
        select v.model
        from memfold.memory_vectors as v
        where v.tenant_id = p_tenant_id collate "C" and v.bucket_id = p_bucket_id collate "C"
            and v.is_live
        group by v.model
        order by count(*) desc, v.model
        limit 1
    );
end;
$$;

-- The embedding model by which maintenance compares a bucket: the given or the most used one; may be null. Raises MF003, MF013.
create or replace function memfold_internal._maintenance_model(p_tenant_id text, p_bucket_id text, p_embedding_model text) returns text
language plpgsql stable
as $$
begin
    perform memfold_internal._check_identifier('bucket_id', p_bucket_id, true);
    if p_embedding_model is not null then
        perform memfold_internal._check_embedding(null, p_embedding_model);
    end if;
    return coalesce(p_embedding_model, memfold_internal._most_used_model(p_tenant_id, p_bucket_id));
end;
$$;

-- Groups of active roots of a bucket that maintenance may compare with one another, oldest first: of one type and subject,
-- or (p_by_policy) of one scope of tier 2. With their policy and the strictest of their options. Omits protected types and
-- memories without a hash or a vector of the model. p_memory_ids: only these; null: all. Only reads.
create or replace function memfold_internal._maintenance_groups(
    p_tenant_id text, p_bucket_id text, p_embedding_model text, p_by_policy boolean, p_memory_ids uuid[]
) returns table (group_ids uuid[], policy memfold.policies, consolidate_threshold double precision, max_cluster_size bigint)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with texts as materialized (
        select m.memory_id, m.memory_type, m.scope_key, m.subject
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.content_hash is not null and m.root_id is null and m.status = 'active'
            and p_memory_ids is null
        union all
        select m.memory_id, m.memory_type, m.scope_key, m.subject
        from unnest(p_memory_ids) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        where m.bucket_id = p_bucket_id collate "C"
            and m.content_hash is not null and m.root_id is null and m.status = 'active'
    ),
    rules as materialized (
        select t.memory_type, p as rule, concat_ws(' ', p.tenant_id, p.bucket_id, p.memory_type) as name,
            o.consolidate_threshold, o.max_cluster_size
        from (select distinct x.memory_type from texts as x) as t
        cross join lateral memfold_internal._policy(p_tenant_id, p_bucket_id, t.memory_type) as p
        cross join lateral memfold_internal._options(p_tenant_id, p_bucket_id, t.memory_type) as o
        where t.memory_type <> all(o.protected_types)
    ),
    placed as (
        select t.memory_id, r.rule, r.consolidate_threshold, r.max_cluster_size,
            case when not p_by_policy then t.memory_type else r.name end as kind,
            case when not p_by_policy then memfold_internal._prose_1(t.subject)
                when (r.rule).scope = 'predicate' then t.scope_key::text end as scope
        from texts as t
        join rules as r on r.memory_type = t.memory_type
        -- Look up each vector by its key; do not let missing statistics choose a scan.
        cross join lateral (
            select from memfold.memory_vectors as v
            where v.tenant_id = p_tenant_id collate "C" and v.memory_id = t.memory_id
                and v.model = p_embedding_model collate "C"
            offset 0
        ) as v
    )
    select array_agg(p.memory_id order by p.memory_id),
        (array_agg(p.rule order by p.memory_id desc))[1],
        -- Types of one policy may have options of their own: apply the strictest to the group.
        max(p.consolidate_threshold), min(p.max_cluster_size)
    from placed as p
    group by p.kind, p.scope
    having count(*) > 1
    order by (array_agg(p.memory_id order by p.memory_id))[1];
end;
$$;

-- The pairs among p_memory_ids with a cosine of at least p_threshold, by position (a < b). Exact for up to 1,000 memories;
-- of more, each is compared with its 20 nearest by a temporary index, in n log n time, so pairs may be missed.
create or replace function memfold_internal._close_pairs(
    p_tenant_id text, p_memory_ids uuid[], p_embedding_model text, p_threshold double precision
) returns table (a integer, b integer, similarity double precision)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_a integer[];
    v_b integer[];
    v_size constant integer := cardinality(p_memory_ids);
    v_names constant text[] := array[
        'hnsw.ef_search', 'hnsw.iterative_scan', 'maintenance_work_mem', 'enable_seqscan', 'enable_sort', 'jit'
    ];
    v_before text[];
    v_dimensions bigint;
    v_memory bigint;
    v_schema text;
    v_table text;
begin
    select m.dimensions into v_dimensions
    from memfold.embedding_models as m where m.model = p_embedding_model collate "C";
    if v_size <= 1000 or v_dimensions > 4000 then
        return query
        with v as materialized (
            select i.place::integer as place, x.embedding
            from unnest(p_memory_ids) with ordinality as i (id, place)
            cross join lateral (
                select x.embedding from memfold.memory_vectors as x
                where x.tenant_id = p_tenant_id collate "C" and x.memory_id = i.id
                    and x.model = p_embedding_model collate "C"
                offset 0
            ) as x
        )
        select v.place, w.place, memfold_internal._similarity(v.embedding, w.embedding)
        from v
        join v as w on w.place > v.place
        where memfold_internal._similarity(v.embedding, w.embedding) >= p_threshold;
        return;
    end if;

    -- The temporary index has half precision, which finds as well in half the memory; its results are then compared exactly.
    select t.typnamespace::regnamespace::text into strict v_schema
    from pg_attribute as a
    join pg_type as t on t.oid = a.atttypid
    where a.attrelid = 'memfold.memory_vectors'::regclass and a.attname = 'embedding';
    perform memfold_internal._norm(v.embedding)
    from memfold.memory_vectors as v where v.tenant_id = p_tenant_id collate "C" limit 1;
    -- A node has its vector, its links, and copies of these while the graph grows.
    v_memory := least(2097151, v_size * (2 * v_dimensions + 1000) / 1024 + 16384);
    v_before := memfold_internal._swap_settings(v_names, array['24', 'off',
        greatest(v_memory, (select s.setting::bigint from pg_settings as s where s.name = 'maintenance_work_mem'))
            ::text || 'kB', 'off', 'off', 'off']);
    begin
        -- Room for the whole table. A session that has used temporary tables refuses this.
        perform set_config('temp_buffers', v_memory || 'kB', true);
    exception when invalid_parameter_value then
        null;
    end;
    v_table := 'pg_temp.memfold_' || replace(memfold_internal._new_id()::text, '-', '');
    execute format('create temporary table %s (place integer, embedding %s.halfvec(%s)) on commit drop',
        v_table, v_schema, v_dimensions);
    execute format('alter table %s alter column embedding set storage main', v_table);
    execute format(
        'insert into %s'
        ' select i.place, x.embedding::%s.halfvec(%s)'
        ' from unnest($1) with ordinality as i (id, place)'
        ' cross join lateral ('
        ' select x.embedding from memfold.memory_vectors as x'
        ' where x.tenant_id = $2 collate "C" and x.memory_id = i.id and x.model = $3 collate "C" offset 0) as x',
        v_table, v_schema, v_dimensions) using p_memory_ids, p_tenant_id, p_embedding_model;
    execute format('create index on %s using hnsw (embedding %s.halfvec_ip_ops) with (m = 12, ef_construction = 32)',
        v_table, v_schema);
    execute format(
        'select array_agg(n.a), array_agg(n.b)'
        ' from ('
        ' select distinct least(m.place, n.place) as a, greatest(m.place, n.place) as b'
        ' from %1$s as m'
        ' cross join lateral ('
        ' select n.place, n.embedding operator(%2$s.<#>) m.embedding as distance from %1$s as n'
        ' order by n.embedding operator(%2$s.<#>) m.embedding limit 21) as n'
        ' where n.place <> m.place and n.distance <= $1) as n',
        v_table, v_schema) into v_a, v_b using 0.01 - p_threshold;
    return query
    select n.a, n.b, s.similarity
    from unnest(v_a, v_b) as n (a, b)
    cross join lateral (
        select x.embedding from memfold.memory_vectors as x
        where x.tenant_id = p_tenant_id collate "C" and x.memory_id = p_memory_ids[n.a]
            and x.model = p_embedding_model collate "C"
        offset 0
    ) as x
    cross join lateral (
        select y.embedding from memfold.memory_vectors as y
        where y.tenant_id = p_tenant_id collate "C" and y.memory_id = p_memory_ids[n.b]
            and y.model = p_embedding_model collate "C"
        offset 0
    ) as y
    cross join lateral (select memfold_internal._similarity(x.embedding, y.embedding) as similarity offset 0) as s
    where s.similarity >= p_threshold;
    execute 'drop table ' || v_table;
    perform memfold_internal._swap_settings(v_names, v_before);
end;
$$;

-- The cosine of two memories by the vectors of one model; null if one of them has none. Only reads.
create or replace function memfold_internal._similarity_of(
    p_tenant_id text, p_memory_id uuid, p_other_id uuid, p_embedding_model text
) returns double precision
language plpgsql stable
as $$
begin
    return (
        select memfold_internal._similarity(v.embedding, w.embedding)
        from memfold.memory_vectors as v, memfold.memory_vectors as w
        where v.tenant_id = p_tenant_id collate "C" and v.memory_id = p_memory_id
            and v.model = p_embedding_model collate "C"
            and w.tenant_id = p_tenant_id collate "C" and w.memory_id = p_other_id
            and w.model = p_embedding_model collate "C"
    );
end;
$$;
