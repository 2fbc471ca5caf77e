create or replace function memfold._most_used_model(tenant_id text, bucket_id text) returns text
language plpgsql stable
as $$
begin
    return (
        select v.model
        from memfold.memory_vectors as v
        where v.tenant_id = _most_used_model.tenant_id collate "C" and v.bucket_id = _most_used_model.bucket_id collate "C"
            and v.live
        group by v.model
        order by pg_catalog.count(*) desc, v.model
        limit 1
    );
end;
$$;
revoke all on function memfold._most_used_model(text, text) from public;
comment on function memfold._most_used_model(text, text) is
'The embedding model with most live vectors in a bucket. Null: it has none.';

create or replace function memfold._upkeep_model(tenant_id text, bucket_id text, embedding_model text) returns text
language plpgsql stable
as $$
begin
    perform memfold._check_identifier('bucket_id', bucket_id, true);
    if embedding_model is not null then
        perform memfold._check_embedding(null, embedding_model);
    end if;
    return coalesce(embedding_model, memfold._most_used_model(tenant_id, bucket_id));
end;
$$;
revoke all on function memfold._upkeep_model(text, text, text) from public;
comment on function memfold._upkeep_model(text, text, text) is
'The embedding model that upkeep of a bucket compares by. Raises MF003, MF013.';

create or replace function memfold._waiting(tenant_id text, bucket_id text) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select distinct i.id
        from memfold.judgements as j
        cross join lateral pg_catalog.unnest((memfold._member_ids(j.memory_id, j.other_id, j.member_ids))[2:]) as i (id)
        where j.tenant_id = _waiting.tenant_id collate "C" and j.bucket_id = _waiting.bucket_id collate "C"
            and j.state in ('open', 'leased')
    );
end;
$$;
revoke all on function memfold._waiting(text, text) from public;
comment on function memfold._waiting(text, text) is
'The memories of a bucket about which it is asked whether they say what an older one says: until that is answered, upkeep lets them be.';

create or replace function memfold._upkeep_groups(
    tenant_id text, bucket_id text, embedding_model text, by_policy boolean, memory_ids uuid[]
) returns table (group_ids uuid[], policy memfold.policies)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    with texts as materialized (
        select m.memory_id, m.memory_type, m.scope_key, m.subject
        from memfold.memories as m
        where m.tenant_id = _upkeep_groups.tenant_id collate "C" and m.bucket_id = _upkeep_groups.bucket_id collate "C"
            and m.content_hash is not null and m.root_id is null and m.status = 'active'
            and _upkeep_groups.memory_ids is null
        union all
        select m.memory_id, m.memory_type, m.scope_key, m.subject
        from pg_catalog.unnest(_upkeep_groups.memory_ids) as i (id)
        cross join lateral (
            select m.* from memfold.memories as m
            where m.tenant_id = _upkeep_groups.tenant_id collate "C" and m.memory_id = i.id
            offset 0
        ) as m
        where m.bucket_id = _upkeep_groups.bucket_id collate "C"
            and m.content_hash is not null and m.root_id is null and m.status = 'active'
    ),
    rules as materialized (
        select t.memory_type, p as rule, pg_catalog.concat_ws(' ', p.tenant_id, p.bucket_id, p.memory_type) as name
        from (select distinct x.memory_type from texts as x) as t
        cross join lateral memfold._policy(_upkeep_groups.tenant_id, _upkeep_groups.bucket_id, t.memory_type) as p
        where t.memory_type <> all(p.protected_types)
    ),
    placed as (
        select t.memory_id, r.rule,
            case when not by_policy then t.memory_type else r.name end as kind,
            case when not by_policy then memfold._prose_1(t.subject)
                when (r.rule).scope = 'predicate' then t.scope_key::text end as scope
        from texts as t
        join rules as r on r.memory_type = t.memory_type
        -- from each to its vector, whatever the statistics say
        cross join lateral (
            select from memfold.memory_vectors as v
            where v.tenant_id = _upkeep_groups.tenant_id collate "C" and v.memory_id = t.memory_id
                and v.model = _upkeep_groups.embedding_model collate "C"
            offset 0
        ) as v
    )
    select pg_catalog.array_agg(p.memory_id order by p.memory_id),
        (pg_catalog.array_agg(p.rule order by p.memory_id desc))[1]
    from placed as p
    group by p.kind, p.scope
    having pg_catalog.count(*) > 1
    order by (pg_catalog.array_agg(p.memory_id order by p.memory_id))[1];
end;
$$;
revoke all on function memfold._upkeep_groups(text, text, text, boolean, uuid[]) from public;
comment on function memfold._upkeep_groups(text, text, text, boolean, uuid[]) is
'The active roots of a bucket that upkeep may compare with one another, oldest first: those of one type and subject, or, by_policy,
of one scope of tier 2. Not: protected types, memories without a hash or without a vector of the model. memory_ids: only of
these; null: of all. Only reads.';

create or replace function memfold._close_pairs(
    tenant_id text, memory_ids uuid[], embedding_model text, threshold double precision
) returns table (a integer, b integer, similarity double precision)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_a integer[];
    v_b integer[];
    v_size constant integer := pg_catalog.cardinality(memory_ids);
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
    from memfold.embedding_models as m where m.model = embedding_model collate "C";
    if v_size <= 1000 or v_dimensions > 4000 then
        return query
        with v as materialized (
            select i.place::integer as place, x.embedding
            from pg_catalog.unnest(memory_ids) with ordinality as i (id, place)
            cross join lateral (
                select x.embedding from memfold.memory_vectors as x
                where x.tenant_id = _close_pairs.tenant_id collate "C" and x.memory_id = i.id
                    and x.model = embedding_model collate "C"
                offset 0
            ) as x
        )
        select v.place, w.place, memfold._similarity(v.embedding, w.embedding)
        from v
        join v as w on w.place > v.place
        where memfold._similarity(v.embedding, w.embedding) >= threshold;
        return;
    end if;

    -- Larger groups: an index of this group alone, for as long as it is asked. In half precision, which finds as well
    -- and takes half the memory; what it finds is then compared exactly.
    select t.typnamespace::regnamespace::text into strict v_schema
    from pg_catalog.pg_attribute as a
    join pg_catalog.pg_type as t on t.oid = a.atttypid
    where a.attrelid = 'memfold.memory_vectors'::regclass and a.attname = 'embedding';
    perform memfold._norm(v.embedding)
    from memfold.memory_vectors as v where v.tenant_id = _close_pairs.tenant_id collate "C" limit 1;
    -- beside the vector, a node has its links, and their copies while the graph grows
    v_memory := least(2097151, v_size * (2 * v_dimensions + 1000) / 1024 + 16384);
    v_before := memfold._swap_settings(v_names, array['24', 'off',
        greatest(v_memory, (select s.setting::bigint from pg_catalog.pg_settings as s where s.name = 'maintenance_work_mem'))
            ::text || 'kB', 'off', 'off', 'off']);
    begin
        -- room for all of it; only until a session's first temporary table
        perform pg_catalog.set_config('temp_buffers', v_memory || 'kB', true);
    exception when invalid_parameter_value then
        null;
    end;
    v_table := 'pg_temp.memfold_' || pg_catalog.replace(memfold._new_id()::text, '-', '');
    execute pg_catalog.format('create temporary table %s (place integer, embedding %s.halfvec(%s)) on commit drop',
        v_table, v_schema, v_dimensions);
    execute pg_catalog.format('alter table %s alter column embedding set storage main', v_table);
    execute pg_catalog.format(
        'insert into %s'
        ' select i.place, x.embedding::%s.halfvec(%s)'
        ' from unnest($1) with ordinality as i (id, place)'
        ' cross join lateral ('
        ' select x.embedding from memfold.memory_vectors as x'
        ' where x.tenant_id = $2 collate "C" and x.memory_id = i.id and x.model = $3 collate "C" offset 0) as x',
        v_table, v_schema, v_dimensions) using memory_ids, tenant_id, embedding_model;
    execute pg_catalog.format('create index on %s using hnsw (embedding %s.halfvec_ip_ops) with (m = 12, ef_construction = 32)',
        v_table, v_schema);
    execute pg_catalog.format(
        'select array_agg(n.a), array_agg(n.b)'
        ' from ('
        ' select distinct least(m.place, n.place) as a, greatest(m.place, n.place) as b'
        ' from %1$s as m'
        ' cross join lateral ('
        ' select n.place, n.embedding operator(%2$s.<#>) m.embedding as distance from %1$s as n'
        ' order by n.embedding operator(%2$s.<#>) m.embedding limit 21) as n'
        ' where n.place <> m.place and n.distance <= $1) as n',
        v_table, v_schema) into v_a, v_b using 0.01 - threshold;
    return query
    select n.a, n.b, s.similarity
    from unnest(v_a, v_b) as n (a, b)
    cross join lateral (
        select x.embedding from memfold.memory_vectors as x
        where x.tenant_id = _close_pairs.tenant_id collate "C" and x.memory_id = memory_ids[n.a]
            and x.model = embedding_model collate "C"
        offset 0
    ) as x
    cross join lateral (
        select y.embedding from memfold.memory_vectors as y
        where y.tenant_id = _close_pairs.tenant_id collate "C" and y.memory_id = memory_ids[n.b]
            and y.model = embedding_model collate "C"
        offset 0
    ) as y
    cross join lateral (select memfold._similarity(x.embedding, y.embedding) as similarity offset 0) as s
    where s.similarity >= threshold;
    execute 'drop table ' || v_table;
    perform memfold._swap_settings(v_names, v_before);
end;
$$;
revoke all on function memfold._close_pairs(text, uuid[], text, double precision) from public;
comment on function memfold._close_pairs(text, uuid[], text, double precision) is
'The pairs among memory_ids with a cosine of at least threshold, as their places (a < b). Up to 1,000 memories each is compared
with each; of more, each with its 20 nearest by an index made for the purpose: time grows as n log n, and pairs may be missed.';

create or replace function memfold._clusters(
    a integer[], b integer[], similarity double precision[], size integer
) returns table (cluster integer, member integer, leader integer, similarity_to_leader double precision)
language plpgsql immutable rows 1000
as $$
declare
    v_edges constant integer := coalesce(pg_catalog.cardinality(a), 0);
    v_cluster integer[] := pg_catalog.array_fill(0, array[size]);
    v_leader integer[] := pg_catalog.array_fill(0, array[size]);
    v_led integer[] := pg_catalog.array_fill(0, array[size]);
    v_similarity double precision[] := pg_catalog.array_fill(null::double precision, array[size]);
    v_nearest double precision[] := pg_catalog.array_fill(null::double precision, array[size]);
    v_from integer;
    v_to integer;
    v_here integer;
    v_there integer;
    v_next integer;
begin
    for e in 1..v_edges loop
        v_from := a[e];
        v_to := b[e];
        -- edges come in order of their first side: whoever has no leader by then leads
        if v_leader[v_from] = 0 then
            v_leader[v_from] := v_from;
        end if;
        if v_leader[v_from] = v_from and v_leader[v_to] = 0 then
            v_leader[v_to] := v_from;
            v_led[v_from] := v_led[v_from] + 1;
            v_similarity[v_to] := similarity[e];
        end if;
        -- union-find; 0 stands for oneself
        v_here := v_from;
        while v_cluster[v_here] <> 0 loop
            v_here := v_cluster[v_here];
        end loop;
        v_there := v_to;
        while v_cluster[v_there] <> 0 loop
            v_there := v_cluster[v_there];
        end loop;
        while v_cluster[v_from] <> 0 and v_cluster[v_from] <> v_here loop
            v_next := v_cluster[v_from];
            v_cluster[v_from] := v_here;
            v_from := v_next;
        end loop;
        while v_cluster[v_to] <> 0 and v_cluster[v_to] <> v_there loop
            v_next := v_cluster[v_to];
            v_cluster[v_to] := v_there;
            v_to := v_next;
        end loop;
        if v_here <> v_there then
            v_cluster[greatest(v_here, v_there)] := least(v_here, v_there);
        end if;
    end loop;
    -- who neither leads nor is led is near to others' members alone: to be compared with the leader of the nearest of them
    for e in 1..v_edges loop
        for v_turn in 1..2 loop
            v_from := case v_turn when 1 then a[e] else b[e] end;
            v_to := case v_turn when 1 then b[e] else a[e] end;
            if (v_leader[v_from] = 0 or v_led[v_from] = 0 and v_similarity[v_from] is null)
                and v_similarity[v_to] is not null and similarity[e] > coalesce(v_nearest[v_from], -2)
            then
                v_nearest[v_from] := similarity[e];
                v_leader[v_from] := v_leader[v_to];
            end if;
        end loop;
    end loop;
    for v_member in 1..size loop
        if v_leader[v_member] not in (0, v_member) then
            v_here := v_member;
            while v_cluster[v_here] <> 0 loop
                v_here := v_cluster[v_here];
            end loop;
            cluster := v_here;
            member := v_member;
            leader := v_leader[v_member];
            similarity_to_leader := v_similarity[v_member];
            return next;
        end if;
    end loop;
end;
$$;
revoke all on function memfold._clusters(integer[], integer[], double precision[], integer) from public;
comment on function memfold._clusters(integer[], integer[], double precision[], integer) is
'Clusters (union-find) of 1..size, from pairs in order of their first sides, and within each who is to be compared with whom:
the first leads those near to it, the first of the others those near to that one, and so on. similarity_to_leader null: near
to a member of the leader''s, not to the leader.';

create or replace function memfold._cliques(
    a integer[], b integer[], similarity double precision[], size integer, max_size bigint
) returns table (members integer[], lowest double precision)
language plpgsql immutable rows 100
as $$
declare
    v_edges integer[];
    v_to integer[];
    v_near double precision[];
    -- where each one's neighbours begin
    v_begin integer[];
    v_used boolean[] := pg_catalog.array_fill(false, array[size]);
    -- of the cluster that is growing: to how many of its members each is near, and how near to the farthest of them
    v_cluster integer[] := pg_catalog.array_fill(0, array[size]);
    v_count integer[] := pg_catalog.array_fill(0, array[size]);
    v_lowest double precision[] := pg_catalog.array_fill(0::double precision, array[size]);
    v_number integer := 0;
    v_member integer;
    v_next integer;
    v_place integer;
begin
    if coalesce(pg_catalog.cardinality(a), 0) = 0 then
        return;
    end if;
    v_edges := array(
        select e.place::integer from unnest(a, b, similarity) with ordinality as e (a, b, similarity, place)
        order by e.similarity desc, least(e.a, e.b), greatest(e.a, e.b)
    );
    select pg_catalog.array_agg(n.there order by n.here, n.similarity desc, n.there),
        pg_catalog.array_agg(n.similarity order by n.here, n.similarity desc, n.there)
    into v_to, v_near
    from (
        select e.a as here, e.b as there, e.similarity from unnest(a, b, similarity) as e (a, b, similarity)
        union all
        select e.b, e.a, e.similarity from unnest(a, b, similarity) as e (a, b, similarity)
    ) as n;
    v_begin := array(
        select (1 + pg_catalog.sum(coalesce(d.n, 0)) over (order by p.place) - coalesce(d.n, 0))::integer
        from pg_catalog.generate_series(1, size + 1) as p (place)
        left join (
            select n.here, pg_catalog.count(*) as n from unnest(a || b) as n (here) group by n.here
        ) as d on d.here = p.place
        order by p.place
    );
    -- the nearest two of those that are left begin a cluster
    foreach v_place in array v_edges loop
        continue when v_used[a[v_place]] or v_used[b[v_place]];
        v_number := v_number + 1;
        members := array[]::integer[];
        lowest := similarity[v_place];
        v_member := least(a[v_place], b[v_place]);
        v_next := greatest(a[v_place], b[v_place]);
        loop
            members := members || v_member;
            v_used[v_member] := true;
            if v_cluster[v_member] = v_number then
                lowest := least(lowest, v_lowest[v_member]);
            end if;
            for i in v_begin[v_member]..v_begin[v_member + 1] - 1 loop
                if v_cluster[v_to[i]] <> v_number then
                    v_cluster[v_to[i]] := v_number;
                    v_count[v_to[i]] := 0;
                    v_lowest[v_to[i]] := 1;
                end if;
                v_count[v_to[i]] := v_count[v_to[i]] + 1;
                v_lowest[v_to[i]] := least(v_lowest[v_to[i]], v_near[i]);
            end loop;
            exit when pg_catalog.cardinality(members) >= max_size;
            if v_next is null then
                -- the nearest to the first of those that are near to all
                for i in v_begin[members[1]]..v_begin[members[1] + 1] - 1 loop
                    if not v_used[v_to[i]] and v_count[v_to[i]] = pg_catalog.cardinality(members) then
                        v_next := v_to[i];
                        exit;
                    end if;
                end loop;
                exit when v_next is null;
            end if;
            v_member := v_next;
            v_next := null;
        end loop;
        members := array(select m.place from unnest(members) as m (place) order by 1);
        return next;
    end loop;
    -- whoever is near to members of clusters alone: beside the nearest of them
    for v_here in 1..size loop
        if not v_used[v_here] and v_begin[v_here + 1] > v_begin[v_here] then
            v_next := v_to[v_begin[v_here]];
            members := array[least(v_here, v_next), greatest(v_here, v_next)];
            lowest := v_near[v_begin[v_here]];
            return next;
        end if;
    end loop;
end;
$$;
revoke all on function memfold._cliques(integer[], integer[], double precision[], integer, bigint) from public;
comment on function memfold._cliques(integer[], integer[], double precision[], integer, bigint) is
'Clusters of 1..size in which each is near to each, from pairs (a, b) with their similarity: the nearest pair first, then whatever is
near to all of them, up to max_size. What is left is put beside its nearest neighbour, so that everything with a pair is in some question.
lowest: the least similarity of two members. The same pairs give the same clusters.';

create or replace function memfold._similarity_of(
    tenant_id text, memory_id uuid, other_id uuid, embedding_model text
) returns double precision
language plpgsql stable
as $$
begin
    return (
        select memfold._similarity(v.embedding, w.embedding)
        from memfold.memory_vectors as v, memfold.memory_vectors as w
        where v.tenant_id = _similarity_of.tenant_id collate "C" and v.memory_id = _similarity_of.memory_id
            and v.model = _similarity_of.embedding_model collate "C"
            and w.tenant_id = _similarity_of.tenant_id collate "C" and w.memory_id = _similarity_of.other_id
            and w.model = _similarity_of.embedding_model collate "C"
    );
end;
$$;
revoke all on function memfold._similarity_of(text, uuid, uuid, text) from public;
comment on function memfold._similarity_of(text, uuid, uuid, text) is
'Cosine of two memories by the vectors of one model. Null: one of them has none. Only reads.';
