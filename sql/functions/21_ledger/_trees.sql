-- All texts of the trees that contain p_memory_ids, in ascending order.
create or replace function memfold_internal._trees(p_tenant_id text, p_memory_ids uuid[]) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select t.id
        from (
            select distinct r.root
            from unnest(p_memory_ids) as i (id)
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root from memfold.memories as m
                where m.tenant_id = p_tenant_id collate "C" and m.memory_id = i.id
                offset 0
            ) as r
        ) as r
        cross join lateral (
            select r.root as id
            union all
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.root_id = r.root
            offset 0
        ) as t
        order by 1
    );
end;
$$;

-- The merges in force of p_memory_ids into other memories. If a text has several, the one with the highest event_id
-- applies; another one applies once that is undone.
create or replace function memfold_internal._merges_in_force(p_tenant_id text, p_memory_ids uuid[])
returns table (memory_id uuid, into_id uuid, event_id uuid)
language plpgsql stable rows 3
as $$
#variable_conflict use_column
begin
    return query
    select i.id, e.target_id, e.event_id
    from unnest(p_memory_ids) as i (id)
    cross join lateral (
        select e.target_id, e.event_id from memfold_internal._decisions as e
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id
            and e.action = 'merged' and e.tier >= 2 and not e.undone
        offset 0
    ) as e
    union all
    select i.id, e.memory_id, e.event_id
    from unnest(p_memory_ids) as i (id)
    cross join lateral (
        select e.memory_id, e.event_id from memfold.ledger as e
        where e.tenant_id = p_tenant_id collate "C" and e.target_id = i.id
            and e.action = 'replaced' and not e.undone
        offset 0
    ) as e;
end;
$$;

-- The validity of a tree with texts p_memory_ids: that of the latest observation in force, by (observed_at, event_id).
create or replace function memfold_internal._validity(
    p_tenant_id text, p_memory_ids uuid[], out valid_from timestamptz, out valid_until timestamptz
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    select e.valid_from, e.valid_until into valid_from, valid_until
    from unnest(p_memory_ids) as i (id)
    cross join lateral (
        select e.event_id, e.observed_at, e.valid_from, e.valid_until from memfold_internal._observed as e
        where e.tenant_id = p_tenant_id collate "C"
            and (e.memory_id, e.event_id) >= (i.id, '00000000-0000-0000-0000-000000000000')
            and (e.memory_id, e.event_id) <= (i.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by e.memory_id, e.event_id
        offset 0
    ) as e
    order by e.observed_at desc, e.event_id desc
    limit 1;
end;
$$;

-- The state of whole trees that follows from the ledger rows in force: edges, roots and flags, and for roots the sums over
-- their aliases, metadata and validity. p_memory_ids: all texts of the trees, whose own counters are correct.
create or replace function memfold_internal._derived_trees(p_tenant_id text, p_memory_ids uuid[])
returns table (
    memory_id uuid, merged_into uuid, root_id uuid, rejected boolean,
    aliases bigint, observations bigint, alias_observations bigint, alias_independent bigint, alias_source_confidence double precision,
    alias_extractor_confidence double precision, alias_first_seen timestamptz, alias_last_seen timestamptz, metadata jsonb,
    valid_from timestamptz, valid_until timestamptz
)
language plpgsql stable rows 3
as $$
#variable_conflict use_column
begin
    return query
    with recursive edges as (
        -- The later of two merges of a text applies. Only a rehash merges a text that is already an alias.
        select distinct on (x.memory_id) x.memory_id as child, x.into_id as parent
        from memfold_internal._merges_in_force(p_tenant_id, p_memory_ids) as x
        order by x.memory_id, x.event_id desc
    ),
    paths (child, ancestor) as (
        select i.id, i.id from unnest(p_memory_ids) as i (id)
        union
        select p.child, e.parent from paths as p join edges as e on e.child = p.ancestor
    ),
    members as materialized (
        select p.child as id, p.ancestor as root
        from paths as p
        where not exists (select from edges as e where e.child = p.ancestor)
    ),
    rejections as (
        select distinct i.id
        from unnest(p_memory_ids) as i (id)
        cross join lateral (
            select e.event_id from memfold_internal._decisions as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id
                and e.action = 'rejected' and e.tier = 3 and not e.undone
            offset 0
        ) as e
    ),
    counted as materialized (
        select m.root, m.id, m.id <> m.root as is_alias, k.*
        from members as m
        left join lateral (
            select k.observations, k.independent, k.source_confidence, k.extractor_confidence, k.first_seen, k.last_seen, k.has_metadata,
                k.has_validity
            from memfold.memory_counters as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = m.id
            offset 0
        ) as k on true
    ),
    sums as (
        select c.root, count(*) - 1 as aliases, sum(c.observations)::bigint as n,
            sum(c.observations) filter (where c.is_alias and c.observations > 0)::bigint as alias_n,
            sum(c.independent) filter (where c.is_alias and c.observations > 0)::bigint as alias_independent,
            max(c.source_confidence) filter (where c.is_alias and c.observations > 0) as alias_source,
            max(c.extractor_confidence) filter (where c.is_alias and c.observations > 0) as alias_extractor,
            min(c.first_seen) filter (where c.is_alias) as alias_first, max(c.last_seen) filter (where c.is_alias) as alias_last,
            bool_or(c.has_metadata) as has_metadata, bool_or(c.has_validity) as has_validity
        from counted as c
        group by c.root
    ),
    metadata_rows as (
        select c.root, e.metadata, p.metadata_merge, p.metadata_max, e.observed_at, e.event_id
        from counted as c
        cross join lateral (
            select e.metadata, e.observed_at, e.event_id from memfold_internal._observed as e
            where e.tenant_id = p_tenant_id collate "C"
                and (e.memory_id, e.event_id) >= (c.id, '00000000-0000-0000-0000-000000000000')
                and (e.memory_id, e.event_id) <= (c.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                and e.metadata <> '{}'
            order by e.memory_id, e.event_id
            offset 0
        ) as e
        cross join lateral memfold_internal._memory(p_tenant_id, c.root) as r
        cross join lateral memfold_internal._policy(r.tenant_id, r.bucket_id, r.memory_type) as p
        where c.has_metadata
    ),
    metadatas as (
        select x.root, jsonb_object_agg(x.key, x.value order by x.observed_at, x.event_id) as metadata
        from (
            select w.root, w.observed_at, w.event_id, kv.key, kv.value
            from metadata_rows as w, jsonb_each(w.metadata) as kv
            where w.metadata_merge = 'merge' or (w.root, w.event_id) in (
                select distinct on (z.root) z.root, z.event_id
                from metadata_rows as z
                order by z.root,
                    case when z.metadata_merge = 'first' then z.observed_at end,
                    case when z.metadata_merge = 'first' then z.event_id end,
                    z.observed_at desc, z.event_id desc
            )
        ) as x
        group by x.root
    ),
    maxima as (
        select x.root, jsonb_object_agg(x.key, x.value) as metadata
        from (
            select w.root, k.key, max((w.metadata -> k.key)::numeric) as value
            from metadata_rows as w
            cross join unnest(w.metadata_max) as k (key)
            where jsonb_typeof(w.metadata -> k.key) = 'number'
            group by w.root, k.key
        ) as x
        group by x.root
    )
    select m.id, g.parent, nullif(m.root, m.id), j.id is not null,
        coalesce(s.aliases, 0), coalesce(s.n, 0), s.alias_n, s.alias_independent - coalesce(t.observations, 0), s.alias_source,
        s.alias_extractor, s.alias_first, s.alias_last, coalesce(d.metadata, '{}') || coalesce(x.metadata, '{}'), y.valid_from, y.valid_until
    from members as m
    left join edges as g on g.child = m.id
    left join rejections as j on j.id = m.id
    left join sums as s on s.root = m.id
    left join memfold_internal._repeated_evidence(
        p_tenant_id,
        array(select t.id from counted as t join sums as s on s.root = t.root and s.aliases > 0 order by t.id),
        array(select t.root from counted as t join sums as s on s.root = t.root and s.aliases > 0 order by t.id)
    ) as t on t.root_id = m.id
    left join metadatas as d on d.root = m.id
    left join maxima as x on x.root = m.id
    left join lateral (
        select v.* from memfold_internal._validity(p_tenant_id, array(select t.id from members as t where t.root = m.id)) as v
        where s.has_validity
        -- or the function would run for every tree
        offset 0
    ) as y on true;
end;
$$;
