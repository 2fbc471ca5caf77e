-- Here and below: LATERAL with OFFSET 0 is one index lookup per id. Without it the planner reads the whole tenant if statistics are
-- new, or if most tenants are small and this one is not.
create or replace function memfold_internal._trees(tenant_id text, memory_ids uuid[]) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select t.id
        from (
            select distinct r.root
            from pg_catalog.unnest(memory_ids) as i (id)
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root from memfold.memories as m
                where m.tenant_id = _trees.tenant_id collate "C" and m.memory_id = i.id
                offset 0
            ) as r
        ) as r
        cross join lateral (
            select r.root as id
            union all
            select m.memory_id from memfold.memories as m
            where m.tenant_id = _trees.tenant_id collate "C" and m.root_id = r.root
            offset 0
        ) as t
        order by 1
    );
end;
$$;
comment on function memfold_internal._trees is 'Every stored text of the trees that contain memory_ids. Only reads.';

create or replace function memfold_internal._merges_in_force(tenant_id text, memory_ids uuid[])
returns table (memory_id uuid, into_id uuid, event_id uuid)
language plpgsql stable rows 3
as $$
#variable_conflict use_column
begin
    return query
    select i.id, e.target_id, e.event_id
    from pg_catalog.unnest(memory_ids) as i (id)
    cross join lateral (
        select e.target_id, e.event_id from memfold_internal._decisions as e
        where e.tenant_id = _merges_in_force.tenant_id collate "C" and e.memory_id = i.id
            and e.action = 'merged' and e.tier >= 2 and not e.undone
        offset 0
    ) as e
    union all
    select i.id, e.memory_id, e.event_id
    from pg_catalog.unnest(memory_ids) as i (id)
    cross join lateral (
        select e.memory_id, e.event_id from memfold_internal._ledger as e
        where e.tenant_id = _merges_in_force.tenant_id collate "C" and e.target_id = i.id
            and e.action = 'replaced' and not e.undone
        offset 0
    ) as e;
end;
$$;
comment on function memfold_internal._merges_in_force is
'What the ledger merges each of memory_ids into: of several rows of one text the latest event applies, the others wait until it is undone.
Only reads.';

-- Longer than 150 lines: one statement, whose parts read one another.
create or replace function memfold_internal._derived_trees(tenant_id text, memory_ids uuid[], by_sums boolean default true)
returns table (
    memory_id uuid, merged_into uuid, root_id uuid, contested boolean, rejected boolean, on_timeline boolean,
    aliases bigint, observations bigint, independent bigint, source_confidence double precision,
    extractor_confidence double precision, first_seen timestamptz, last_seen timestamptz, metadata jsonb, valid_from timestamptz,
    valid_until timestamptz
)
language plpgsql stable rows 3
as $$
#variable_conflict use_column
begin
    return query
    with recursive edges as (
        -- Of two merges of one text the later one applies. There are two if a rehash has merged an alias: otherwise only roots are
        -- merged.
        select distinct on (x.memory_id) x.memory_id as child, x.into_id as parent
        from memfold_internal._merges_in_force(_derived_trees.tenant_id, memory_ids) as x
        order by x.memory_id, x.event_id desc
    ),
    paths (child, ancestor) as (
        select i.id, i.id from pg_catalog.unnest(memory_ids) as i (id)
        union
        select p.child, e.parent from paths as p join edges as e on e.child = p.ancestor
    ),
    members as (
        select p.child as id, p.ancestor as root
        from paths as p
        where not exists (select from edges as e where e.child = p.ancestor)
    ),
    blocks as materialized (
        select m.root, m.id, b.*, pg_catalog.lag(b.to_event, 1, '00000000-0000-0000-0000-000000000000')
                over (partition by m.id order by b.to_event) as after
        from members as m
        cross join lateral (
            select b.* from memfold.memory_event_sums as b
            where b.tenant_id = _derived_trees.tenant_id collate "C" and b.memory_id = m.id and by_sums
            offset 0
        ) as b
    ),
    -- Which turns the texts of a tree share is looked up in the largest for each turn of the others, whose rows are read.
    largest as materialized (
        select distinct on (b.root) b.root, b.id, (pg_catalog.array_agg(b.to_event order by b.to_event desc))[1] as to_event
        from blocks as b
        group by b.root, b.id
        order by b.root, sum(b.observations - b.without_turns) desc, b.id
    ),
    summed as (
        select b.*
        from blocks as b
        where b.without_turns = b.observations or b.id in (select l.id from largest as l)
    ),
    -- Separate: under row-level security an index can only be used for conditions on a column. Below in pairs and in order: for the
    -- range alone the planner might search all rows of the tenant, whatever the text.
    spans as materialized (
        select m.root, m.id, coalesce(t.to_event, '00000000-0000-0000-0000-000000000000') as after,
            'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid as to_event
        from members as m
        left join (
            select b.id, (pg_catalog.array_agg(b.to_event order by b.to_event desc))[1] as to_event from blocks as b group by b.id
        ) as t on t.id = m.id
        union all
        select b.root, b.id, b.after, b.to_event
        from blocks as b
        where b.without_turns < b.observations and b.id not in (select l.id from largest as l)
    ),
    observed as materialized (
        select s.root, e.*
        from spans as s
        cross join lateral (
            select e.* from memfold_internal._observed as e
            where e.tenant_id = _derived_trees.tenant_id collate "C"
                and (e.memory_id, e.event_id) > (s.id, s.after) and (e.memory_id, e.event_id) <= (s.id, s.to_event)
            order by e.memory_id, e.event_id
            offset 0
        ) as e
    ),
    relations as (
        -- what puts two memories on one timeline, from either side
        select m.id, m.root, e.*
        from members as m
        cross join lateral (
            select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone
            from memfold_internal._decisions as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = m.id
                and (e.action in ('superseded', 'historical') or e.action in ('merged', 'replaced') and e.tier >= 2 and e.undone)
            offset 0
        ) as e
        union all
        select m.id, m.root, e.*
        from members as m
        cross join lateral (
            -- Pairs and their order, as above: of a list of actions each is a descent of the index on the target, and where most tenants
            -- are small, one over all rows of the tenant looks cheaper. From tier 2 on: of restatements a root has many.
            select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone
            from (values ('superseded', 0), ('historical', 0), ('merged', 2), ('replaced', 2)) as a (action, tier)
            cross join lateral (
                select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone
                from memfold_internal._ledger as e
                where e.tenant_id = _derived_trees.tenant_id collate "C" and e.target_id is not null
                    and (e.target_id, e.action, e.tier) >= (m.id, a.action collate "C", a.tier::smallint)
                    and (e.target_id, e.action, e.tier) <= (m.id, a.action collate "C", 3::smallint)
                    and (a.tier = 0 or e.undone)
                order by e.target_id, e.action, e.tier
                offset 0
            ) as e
        ) as e
    ),
    contests as (
        -- until a judge or a person has decided between them again
        select distinct r.id
        from relations as r
        cross join lateral (
            select u.event_id, u.tier from memfold.memory_events as u
            where u.tenant_id = _derived_trees.tenant_id collate "C" and u.undoes = r.event_id
            offset 0
        ) as u
        -- a supersession undone because of later vectors is decided (tier 2), not contested
        where r.tier >= 2 and r.on_timeline and u.tier is null and not exists (
            select from relations as d
            where d.id = r.id and d.action = 'superseded' and d.tier = 3 and not d.undone and d.event_id > u.event_id
        )
    ),
    values_of_timelines as (
        select m.root as id
        from members as m
        cross join lateral (
            select from memfold_internal._decisions as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = m.id
                and e.observation and e.on_timeline and not e.undone and e.action in ('inserted', 'superseded', 'historical')
            limit 1
        ) as e
        union
        select r.root
        from relations as r
        where r.action in ('superseded', 'historical') and not r.undone and (r.id = r.target_id and r.on_timeline or r.tier = 3)
    ),
    stated as (
        -- a manual supersession states the newer value
        select r.root, max(r.observed_at) as last_at
        from relations as r
        where r.action = 'superseded' and r.tier = 3 and not r.undone and r.id = r.memory_id
        group by r.root
    ),
    rejections as (
        select distinct i.id
        from pg_catalog.unnest(memory_ids) as i (id)
        cross join lateral (
            select e.event_id from memfold_internal._decisions as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = i.id
                and e.action = 'rejected' and e.tier = 3 and not e.undone
            offset 0
        ) as e
    ),
    sizes as (
        select m.root, pg_catalog.count(*) as n from members as m group by m.root
    ),
    sums as (
        -- a row of method archived replaces several
        select o.root, sum(o.observations)::bigint as n, sum(o.without_turns)::bigint as without_turns,
            max(o.source_confidence) as source, max(o.extractor_confidence) as extractor,
            min(o.first_seen) as first_at, max(o.last_seen) as last_at, pg_catalog.bool_or(o.has_validity) as has_validity
        from (
            select o.root, coalesce(o.observations, 1) as observations,
                coalesce(o.without_turns, case when o.source_turn_ids = '{}' then 1 else 0 end) as without_turns,
                o.source_confidence, o.extractor_confidence, coalesce(o.first_observed_at, o.observed_at) as first_seen,
                o.observed_at as last_seen, pg_catalog.num_nonnulls(o.valid_from, o.valid_until) > 0 as has_validity
            from observed as o
            union all
            select b.root, b.observations, b.without_turns, b.source_confidence, b.extractor_confidence, b.first_seen, b.last_seen,
                b.has_validity
            from summed as b
        ) as o
        group by o.root
    ),
    -- An observation is independent if it has a turn that no earlier one has. Of the rows that are read, the first with each turn, and
    -- the first in the largest text's blocks.
    firsts as materialized (
        select f.root, f.turn, f.event_id, s.event_id as summed_id
        from (
            select distinct on (o.root, t.turn) o.root, t.turn, coalesce(t.event_id, o.event_id) as event_id
            from observed as o, unnest(o.source_turn_ids, o.turn_events) as t (turn, event_id)
            order by o.root, t.turn, coalesce(t.event_id, o.event_id)
        ) as f
        left join largest as l on l.root = f.root
        left join lateral (
            select s.event_id from memfold.memory_sources as s
            where s.tenant_id = _derived_trees.tenant_id collate "C" and s.source_turn_id = f.turn and s.memory_id = l.id
                and s.event_id <= l.to_event
            offset 0
        ) as s on true
    ),
    -- Rows in blocks that are not the first with a turn: they count if they are the first with another one.
    late as (
        select h.root, h.event_id
        from (
            select h.root, (pg_catalog.array_agg(h.event_id) filter (where h.event_id is not null))[1] as event_id,
                pg_catalog.bool_or(h.is_late) as is_late
            from (
                select f.root, f.turn, null::uuid as event_id, true as is_late from firsts as f where f.event_id < f.summed_id
                union all
                -- each of its turns that no earlier row of its text had
                select x.root, t.turn, x.event_id, false
                from (select distinct f.root, f.summed_id as event_id from firsts as f where f.event_id < f.summed_id) as x
                join largest as l on l.root = x.root
                cross join lateral (
                    select e.source_turn_ids from memfold.memory_events as e
                    where e.tenant_id = _derived_trees.tenant_id collate "C" and e.event_id = x.event_id
                        and e.method is distinct from 'archived'
                    union all
                    select a.source_turn_ids from memfold.memory_events_archive as a
                    where a.tenant_id = _derived_trees.tenant_id collate "C" and a.event_id = x.event_id
                ) as e
                cross join lateral pg_catalog.unnest(e.source_turn_ids) as t (turn)
                cross join lateral (
                    select from memfold.memory_sources as s
                    where s.tenant_id = _derived_trees.tenant_id collate "C" and s.source_turn_id = t.turn and s.memory_id = l.id
                        and s.event_id = x.event_id
                    offset 0
                ) as s
            ) as h
            group by h.root, h.turn
        ) as h
        where h.event_id is not null
        group by h.root, h.event_id
        having pg_catalog.bool_and(h.is_late)
    ),
    turns as (
        select x.root, sum(x.n)::bigint as n
        from (
            select b.root, b.independent as n from summed as b
            union all
            select f.root, pg_catalog.count(distinct f.event_id)
            from firsts as f
            where (f.summed_id < f.event_id) is not true
            group by f.root
            union all
            select h.root, -1 from late as h
        ) as x
        group by x.root
    ),
    metadata_rows as (
        select o.root, o.metadata, p.metadata_merge, p.metadata_max, o.observed_at, o.event_id
        from (
            select o.root, o.metadata, o.observed_at, o.event_id from observed as o
            union all
            select b.root, e.metadata, e.observed_at, e.event_id
            from summed as b
            cross join lateral (
                select e.metadata, e.observed_at, e.event_id from memfold_internal._observed as e
                where e.tenant_id = _derived_trees.tenant_id collate "C"
                    and (e.memory_id, e.event_id) > (b.id, b.after) and (e.memory_id, e.event_id) <= (b.id, b.to_event)
                    and e.metadata <> '{}'
                order by e.memory_id, e.event_id
                offset 0
            ) as e
            where b.has_metadata
        ) as o
        cross join lateral (
            select r.tenant_id, r.bucket_id, r.memory_type from memfold.memories as r
            where r.tenant_id = _derived_trees.tenant_id collate "C" and r.memory_id = o.root
            offset 0
        ) as r
        cross join lateral memfold_internal._policy(r.tenant_id, r.bucket_id, r.memory_type) as p
        where o.metadata <> '{}'
    ),
    metadatas as (
        select x.root, pg_catalog.jsonb_object_agg(x.key, x.value order by x.observed_at, x.event_id) as metadata
        from (
            select w.root, w.observed_at, w.event_id, kv.key, kv.value
            from metadata_rows as w, pg_catalog.jsonb_each(w.metadata) as kv
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
        select x.root, pg_catalog.jsonb_object_agg(x.key, x.value) as metadata
        from (
            select w.root, k.key, max((w.metadata -> k.key)::numeric) as value
            from metadata_rows as w
            cross join pg_catalog.unnest(w.metadata_max) as k (key)
            where pg_catalog.jsonb_typeof(w.metadata -> k.key) = 'number'
            group by w.root, k.key
        ) as x
        group by x.root
    )
    select m.id, g.parent, nullif(m.root, m.id),
        c.id is not null,
        j.id is not null,
        m.root = m.id and v.id is not null and c.id is null and j.id is null,
        case when m.root = m.id then z.n - 1 else 0 end,
        coalesce(s.n, 0), coalesce(s.without_turns + coalesce(t.n, 0), 0), coalesce(s.source, 0), coalesce(s.extractor, 0),
        coalesce(s.first_at, '-infinity'), coalesce(greatest(s.last_at, w.last_at), '-infinity'),
        coalesce(d.metadata, '{}') || coalesce(x.metadata, '{}'), y.valid_from, y.valid_until
    from members as m
    join sizes as z on z.root = m.root
    left join edges as g on g.child = m.id
    left join contests as c on c.id = m.id
    left join rejections as j on j.id = m.id
    left join values_of_timelines as v on v.id = m.id
    left join stated as w on w.root = m.id
    left join sums as s on s.root = m.id
    left join turns as t on t.root = m.id
    left join metadatas as d on d.root = m.id
    left join maxima as x on x.root = m.id
    left join lateral (
        select v.* from memfold_internal._validity(_derived_trees.tenant_id, array(select t.id from members as t where t.root = m.id),
            s.last_at) as v
        where s.has_validity
        -- otherwise it would be checked for every tree
        offset 0
    ) as y on true;
end;
$$;
comment on function memfold_internal._derived_trees is
'What the ledger rows in force say about whole trees (memory_ids: every member of them): edges, roots, flags, and the aggregates of the
roots. by_sums false: reads every row, even if there are sums. Only reads.';
