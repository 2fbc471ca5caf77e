create or replace function memfold_internal._near_in_batch(
    tenant_id text, items memfold_internal.candidate[], classes text[], firsts bigint[], scope_keys bigint[],
    policies memfold.policies[], policy_of integer[]
) returns bigint[]
language plpgsql stable
-- planned on what the tables hold now: the same order can be had from an index that would read the whole tenant
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_items constant memfold_internal.candidate[] := items;
    v_policies constant memfold.policies[] := policies;
    v_near bigint[];
    v_slack bigint;
begin
    -- A candidate that restates what is not active may bring vectors back, one of a slot may take some away.
    select count(*) into v_slack from unnest(classes) as o (class) where o.class = 'rest';
    with vectors as materialized (
        select c.ordinality as i, c.bucket_id, c.embedding, c.embedding_model, s.scope_key, p.scope = 'bucket' as wide,
            o.class = 'new' and p.dedup = 'on' as asks,
            least(coalesce(p.merge_threshold, m.merge_threshold), coalesce(p.judge_threshold, m.judge_threshold),
                coalesce(p.similar_threshold, p.judge_threshold, m.judge_threshold), m.candidate_threshold) as threshold,
            p.neighbours, case when p.scope = 'predicate' and c.subject is null and c.predicate is null then 1000
                else memfold_internal._exact_limit() end
                + v_slack as newest
        from unnest(v_items) with ordinality as c
        cross join lateral (select classes[c.ordinality] as class, firsts[c.ordinality] as first) as o
        cross join lateral (select scope_keys[c.ordinality] as scope_key) as s
        cross join lateral (select (v_policies[policy_of[c.ordinality]]).* offset 0) as p
        join memfold.embedding_models as m on m.model = c.embedding_model
        where c.embedding is not null and o.first is not null
    ),
    revived as (
        select distinct v.bucket_id, v.scope_key
        from unnest(v_items) with ordinality as c
        cross join lateral (
            select memfold_internal._root(m.memory_id, m.root_id) as root_id
            from memfold_internal._known_text(v_tenant_id, c.bucket_id, c.content_hash) as m
        ) as r
        cross join unnest(memfold_internal._trees(v_tenant_id, array[r.root_id])) as t (id)
        cross join lateral (
            select v.bucket_id, v.scope_key from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id and v.memory_id = t.id and not v.is_active
            offset 0
        ) as v
        where classes[c.ordinality] = 'rest' and firsts[c.ordinality] is null
    ),
    -- pairs within a group only: of a scope, of a bucket where one of them looks there; without the vectors, most of which
    -- are alone
    grouped as (
        select v.i, v.bucket_id, v.embedding_model,
            case when bool_or(v.wide) over (partition by v.bucket_id) then 0 else v.scope_key end as place
        from vectors as v
    ),
    groups as (
        select array_agg(v.i order by v.i) as i, array_agg(v.scope_key order by v.i) as scope_key,
            array_agg(v.wide order by v.i) as wide, array_agg(v.asks order by v.i) as asks,
            array_agg(v.threshold order by v.i) as threshold, array_agg(v.embedding order by v.i) as embedding
        from (
            select g.bucket_id, g.place, g.embedding_model, array_agg(g.i) as members
            from grouped as g
            group by g.bucket_id, g.place, g.embedding_model
            having count(*) > 1
        ) as g
        cross join unnest(g.members) as r (i)
        join vectors as v on v.i = r.i
        group by g.bucket_id, g.place, g.embedding_model
    )
    select array_agg(n.i) into v_near
    from (
        select a.i
        from groups as g
        cross join unnest(g.i, g.scope_key, g.wide, g.asks, g.threshold, g.embedding)
            as a (i, scope_key, wide, asks, threshold, embedding)
        cross join unnest(g.i, g.scope_key, g.embedding) as b (i, scope_key, embedding)
        where a.asks and b.i < a.i and (a.wide or a.scope_key = b.scope_key)
            and memfold_internal._similarity(a.embedding, b.embedding) >= a.threshold
        union
        select v.i
        from vectors as v
        where v.asks and not v.wide and exists (
            select
            from (
                select n.embedding from memfold.memory_vectors as n
                where n.tenant_id = v_tenant_id and n.bucket_id = v.bucket_id and n.scope_key = v.scope_key
                    and n.model = v.embedding_model and n.is_active
                order by n.memory_id desc
                limit v.newest
            ) as n
            where memfold_internal._similarity(n.embedding, v.embedding) >= v.threshold
        )
        union
        select v.i
        from vectors as v
        where v.asks and v.wide and case when memfold_internal._vector_index(v.embedding_model) is not null
            then exists (
                select from memfold_internal._near_texts(v_tenant_id, v.bucket_id, null, v.embedding, v.embedding_model, v.newest, 1,
                    v.threshold, null, null) as n
                where n.memory_ids is not null
            )
            else exists (
                select
                from (
                    select n.embedding from memfold.memory_vectors as n
                    where n.tenant_id = v_tenant_id and n.bucket_id = v.bucket_id and n.model = v.embedding_model and n.is_active
                    order by n.memory_id desc
                    limit v.newest
                ) as n
                where memfold_internal._similarity(n.embedding, v.embedding) >= v.threshold
            ) end
        union
        select v.i
        from vectors as v
        join revived as r on r.bucket_id = v.bucket_id and (v.wide or r.scope_key = v.scope_key)
        where v.asks
    ) as n;
    return v_near;
end;
$$;
revoke all on function memfold_internal._near_in_batch(
    text, memfold_internal.candidate[], text[], bigint[], bigint[], memfold.policies[], integer[]
) from public;
comment on function memfold_internal._near_in_batch(
    text, memfold_internal.candidate[], text[], bigint[], bigint[], memfold.policies[], integer[]
) is
'Which of the new texts of a batch (by place) may have a neighbour that tier 2 would look at: stored, earlier in the batch, or
one that the batch may bring back. Rather one too many. Only reads.';
