-- The least Jaccard similarity of words at which recall shows two memories as one, if one of them has no vector.
create or replace function memfold_internal._same_words() returns double precision
language sql immutable parallel safe
return 0.8;

-- The positions of pairs in p_memory_ids that are alike: their vectors have a cosine of at least p_threshold, or one has no
-- vector of the model and their words are alike (_same_words). Null if there are none. Only reads.
create or replace function memfold_internal._alike(
    p_tenant_id text, p_memory_ids uuid[], p_embedding_model text, p_threshold double precision, out later bigint[], out earlier bigint[]
)
language plpgsql stable
as $$
begin
    with c as materialized (
        select i.place, i.id, v.embedding
        from unnest(p_memory_ids) with ordinality as i (id, place)
        left join lateral (
            select w.embedding from memfold.memory_vectors as w
            where w.tenant_id = p_tenant_id collate "C" and w.memory_id = i.id
                and w.model = p_embedding_model collate "C"
            offset 0
        ) as v on true
    ),
    -- Words are split only if some memory has no vector.
    said as materialized (
        select c.place, c.embedding is null as is_bare, cardinality(t.words) as size, t.words
        from c
        cross join lateral (
            select memfold_internal._tokens(m.content, 'characters') as words from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.memory_id = c.id
            offset 0
        ) as t
        where exists (select from c as o where o.embedding is null)
    ),
    alike as (
        select a.place as earlier, b.place as later
        from said as a
        cross join lateral unnest(a.words) as x (word)
        join (select s.*, y.word from said as s cross join lateral unnest(s.words) as y (word)) as b
            on b.word = x.word and b.place > a.place and (a.is_bare or b.is_bare)
        group by a.place, b.place, a.size, b.size
        having count(*) >= memfold_internal._same_words() * (a.size + b.size - count(*))
    )
    select array_agg(p.later), array_agg(p.earlier) into later, earlier
    from (
        select b.place as later, a.place as earlier
        from c as a
        join c as b on b.place > a.place
        where memfold_internal._similarity(a.embedding, b.embedding) >= p_threshold
        union all
        select l.later, l.earlier from alike as l
    ) as p;
end;
$$;

-- Groups roots, given in order of rank and maybe of several buckets, that say the same: every pair of a cluster is alike
-- (_alike), and neither keys, objects, judgements nor the guard distinguish it. Clusters after the first p_max_results are
-- not completed. Returns for each root the position of its cluster's best-ranked member, and of the member that is shown.
-- Only reads.
create or replace function memfold_internal._recall_clusters(
    p_tenant_id text, p_memory_ids uuid[], p_confidences double precision[], p_embedding_model text, p_threshold double precision,
    p_guard text, p_max_results bigint,
    out clusters bigint[], out best bigint[]
)
language plpgsql stable
as $$
declare
    v_later bigint[];
    v_earlier bigint[];
    v_near record;
    v_cluster bigint;
    v_members bigint[];
    v_member bigint;
    v_clean boolean;
    v_merged bigint[];
begin
    clusters := array(select generate_subscripts(p_memory_ids, 1));
    best := clusters;
    select p.later, p.earlier into v_later, v_earlier from memfold_internal._alike(p_tenant_id, p_memory_ids, p_embedding_model,
    p_threshold) as p;
    if v_later is null then
        return;
    end if;

    for v_near in
        with c as materialized (
            select i.place, m.memory_id, m.bucket_id, m.content, m.memory_type, memfold_internal._prose_1(m.subject) as subject,
                memfold_internal._predicate_1(m.predicate) as predicate, memfold_internal._prose_1(m.object) as object,
                m.object as given_object, k.on_timeline
            from (select distinct u.place from unnest(v_later || v_earlier) as u (place)) as i
            cross join lateral memfold_internal._memory(p_tenant_id, p_memory_ids[i.place]) as m
            cross join lateral (
                select t.on_timeline from memfold.memory_totals as t
                where t.tenant_id = p_tenant_id collate "C" and t.memory_id = p_memory_ids[i.place]
                offset 0
            ) as k
        ),
        -- Roots that a judgement has found distinct. Its newer side is a text of c, so one direction finds each pair.
        judged as materialized (
            select c.memory_id as id, o.root as other
            from c
            cross join lateral (
                select c.memory_id as id
                union all
                select a.memory_id from memfold.memories as a
                where a.tenant_id = p_tenant_id collate "C" and a.root_id = c.memory_id
                offset 0
            ) as t
            cross join lateral (
                select j.other_id from memfold.judgements as j
                where j.tenant_id = p_tenant_id collate "C" and j.memory_id = t.id
                    and j.status = 'done' and j.verdict in ('contradiction', 'distinct')
                offset 0
            ) as j
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root from memfold.memories as m
                where m.tenant_id = p_tenant_id collate "C" and m.memory_id = j.other_id
                offset 0
            ) as o
        ),
        -- Memories that were separated from one another share a cluster_id.
        told as materialized (
            select c.memory_id as id, j.cluster_id
            from c
            cross join lateral (
                select j.cluster_id from memfold.judgements as j
                where j.tenant_id = p_tenant_id collate "C" and j.memory_id = c.memory_id
                    and j.cluster_id is not null and j.status = 'done' and j.verdict in ('contradiction', 'distinct')
                offset 0
            ) as j
        )
        select b.place, b.bucket_id, b.content, b.given_object as object, array_agg(a.bucket_id) as buckets,
            array_agg(a.place) as places, array_agg(a.content) as contents, array_agg(a.given_object) as objects
        from unnest(v_later, v_earlier) as p (later, earlier)
        join c as a on a.place = p.earlier
        join c as b on b.place = p.later
        where a.predicate is not distinct from b.predicate
            and (a.subject <> b.subject) is not true
            and (a.object <> b.object) is not true
            -- Two values of one slot differ, unless their objects are equal.
            and not (a.memory_type = b.memory_type and a.subject is not distinct from b.subject and (a.object = b.object) is not true
                and (a.on_timeline and b.on_timeline
                    or a.predicate is not null and memfold_internal._is_single(p_tenant_id, a.predicate)))
            and not exists (
                select from judged as j
                where j.id in (a.memory_id, b.memory_id) and j.other in (a.memory_id, b.memory_id)
            )
            and not exists (
                select from told as t join told as u on u.cluster_id = t.cluster_id
                where t.id = a.memory_id and u.id = b.memory_id
            )
        group by b.place, b.bucket_id, b.content, b.given_object
        order by b.place
    loop
        for v_cluster in select distinct clusters[u.place] from unnest(v_near.places) as u (place) order by 1 loop
            -- This and all further clusters are not shown.
            exit when (select count(distinct u.cluster) from unnest(clusters[:v_cluster]) as u (cluster)) > p_max_results;
            v_members := array_positions(clusters, v_cluster);
            v_clean := v_members <@ v_near.places;
            if v_clean and p_guard = 'on' then
                foreach v_member in array v_members loop
                    v_clean := memfold_internal._guard_pair(p_tenant_id, v_near.content,
                        v_near.contents[array_position(v_near.places, v_member)], v_near.object,
                        v_near.objects[array_position(v_near.places, v_member)],
                        case v_near.buckets[array_position(v_near.places, v_member)] when v_near.bucket_id then v_near.bucket_id end) = '{}';
                    exit when not v_clean;
                end loop;
            end if;
            if v_clean then
                clusters[v_near.place] := v_cluster;
                v_merged := v_merged || v_cluster;
                exit;
            end if;
        end loop;
    end loop;
    if v_merged is not null then
        best := array(
            select first_value(u.place) over (partition by u.cluster
                order by m.completeness desc, u.confidence desc, m.last_seen desc, u.id desc)
            from unnest(clusters, p_memory_ids, p_confidences) with ordinality as u (cluster, id, confidence, place)
            left join lateral (
                select length(memfold_internal._prose_1(t.content)) as completeness, k.last_seen
                from memfold.memories as t
                join memfold.memory_totals as k on k.tenant_id = t.tenant_id and k.memory_id = t.memory_id
                where t.tenant_id = p_tenant_id collate "C" and t.memory_id = u.id
                    and u.cluster = any(v_merged)
                offset 0
            ) as m on true
            order by u.place
        );
    end if;
end;
$$;
