-- The vectors of the new texts of a batch, with their positions: whether tier 2 would look for their neighbours (asks),
-- in the whole bucket (wide) or in the scope, the lowest cosine (threshold) and among how many of the newest.
create or replace function memfold_internal._batch_vectors(b memfold_internal.batch) returns table (
    i bigint, bucket_id text, embedding vector, model text, scope_key uuid, wide boolean, asks boolean, threshold double precision,
    newest bigint
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_firsts constant bigint[] := b.firsts;
    v_scope_keys constant uuid[] := b.scope_keys;
    v_embeddings constant memfold_internal.batch.embeddings%type := b.embeddings;
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
begin
    return query
    select c.ordinality, c.bucket_id, v_embeddings[c.ordinality], c.embedding_model, v_scope_keys[c.ordinality], p.scope = 'bucket',
        v_classes[c.ordinality] = 'new' and p.dedup = 'on',
        least(s.floor, s.report), memfold_internal._newest(p.scope, c.subject, c.predicate)
    from unnest(b.items) with ordinality as c
    join unnest(v_policies) with ordinality as p on p.ordinality = v_policy_of[c.ordinality]
    cross join
        lateral memfold_internal._bands(p.merge_threshold, p.judge_threshold, p.similar_threshold, c.embedding_model) as s
    where v_firsts[c.ordinality] is not null and v_embeddings[c.ordinality] is not null;
end;
$$;

-- Scopes in which a candidate that restates an inactive memory may make vectors active again.
create or replace function memfold_internal._revived_in_batch(b memfold_internal.batch) returns table (bucket_id text, scope_key uuid)
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_firsts constant bigint[] := b.firsts;
begin
    return query
    select distinct v.bucket_id, v.scope_key
    from unnest(b.items) with ordinality as c
    cross join lateral (
        select memfold_internal._root(m.memory_id, m.root_id) as root_id
        from memfold_internal._known_text(b.tenant_id, c.bucket_id, c.content_hash) as m
    ) as r
    cross join unnest(memfold_internal._trees(b.tenant_id, array[r.root_id])) as t (id)
    cross join lateral (
        select v.bucket_id, v.scope_key from memfold.memory_vectors as v
        where v.tenant_id = b.tenant_id and v.memory_id = t.id and not v.is_live
        offset 0
    ) as v
    where v_classes[c.ordinality] = 'rest' and v_firsts[c.ordinality] is null;
end;
$$;

-- Which of the new texts of a batch (by position) may have a neighbour that tier 2 would compare: stored, earlier in the
-- batch, or one that the batch may make active again. May include texts without one, but omits none.
create or replace function memfold_internal._near_in_batch(b memfold_internal.batch) returns bigint[]
language plpgsql stable
-- Plan for the present contents of the tables: another index with the same order would read the whole tenant.
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := b.tenant_id;
    v_near bigint[];
    -- Restating an inactive memory may make vectors active; a new value of a slot may make some inactive.
    v_slack constant bigint := (select count(*) from unnest(b.classes) as o (class) where o.class = 'rest');
begin
    with vectors as materialized (
        select * from memfold_internal._batch_vectors(b)
    ),
    revived as (
        select * from memfold_internal._revived_in_batch(b) where v_slack > 0
    ),
    -- only pairs within a group: of a scope, or of a bucket if one of them searches it; without the vectors, most of which have no
    -- neighbour
    grouped as (
        select v.i, v.bucket_id, v.model,
            case when not bool_or(v.wide) over (partition by v.bucket_id) then v.scope_key end as place
        from vectors as v
    ),
    groups as (
        select array_agg(v.i order by v.i) as i, array_agg(v.scope_key order by v.i) as scope_key,
            array_agg(v.wide order by v.i) as wide, array_agg(v.asks order by v.i) as asks,
            array_agg(v.threshold order by v.i) as threshold, array_agg(v.embedding order by v.i) as embedding
        from (
            select g.bucket_id, g.place, g.model, array_agg(g.i) as members
            from grouped as g
            group by g.bucket_id, g.place, g.model
            having count(*) > 1
        ) as g
        cross join unnest(g.members) as r (i)
        join vectors as v on v.i = r.i
        group by g.bucket_id, g.place, g.model
    )
    select array_agg(n.i) into v_near
    from (
        select a.i
        from groups as g
        cross join unnest(g.i, g.scope_key, g.wide, g.asks, g.threshold, g.embedding)
            as a (i, scope_key, wide, asks, threshold, embedding)
        cross join unnest(g.i, g.scope_key, g.embedding) as o (i, scope_key, embedding)
        where a.asks and o.i < a.i and (a.wide or a.scope_key = o.scope_key)
            and memfold_internal._similarity(a.embedding, o.embedding) >= a.threshold
        union
        select v.i
        from vectors as v
        where v.asks and not v.wide and exists (
            select
            from (
                select n.embedding from memfold.memory_vectors as n
                where n.tenant_id = v_tenant_id and n.bucket_id = v.bucket_id and n.scope_key = v.scope_key
                    and n.model = v.model and n.is_live
                order by n.memory_id desc
                limit v.newest + v_slack
            ) as n
            where memfold_internal._similarity(n.embedding, v.embedding) >= v.threshold
        )
        union
        select v.i
        from vectors as v
        where v.asks and v.wide and case when memfold_internal._vector_index(v.model) is not null
            then exists (
                select from memfold_internal._near_texts(v_tenant_id, v.bucket_id, null, v.embedding, v.model, v.newest + v_slack, 1,
                    v.threshold, null, null) as n
                where n.memory_ids is not null
            )
            else exists (
                select
                from (
                    select n.embedding from memfold.memory_vectors as n
                    where n.tenant_id = v_tenant_id and n.bucket_id = v.bucket_id and n.model = v.model and n.is_live
                    order by n.memory_id desc
                    limit v.newest + v_slack
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
