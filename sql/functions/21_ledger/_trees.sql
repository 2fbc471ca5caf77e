-- Here and below: LATERAL with OFFSET 0 is one probe of an index an id. Left to itself the planner reads the whole tenant
-- where statistics are young, or where most tenants are small and this one is not.
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
revoke all on function memfold_internal._trees(text, uuid[]) from public;
comment on function memfold_internal._trees(text, uuid[]) is
'Every text of the trees that hold memory_ids, as they are stored. Only reads.';

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
        select e.target_id, e.event_id from memfold_internal._ledger as e
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
revoke all on function memfold_internal._merges_in_force(text, uuid[]) from public;
comment on function memfold_internal._merges_in_force(text, uuid[]) is
'What the ledger merges each of memory_ids into: of several rows of one text the one of the latest event holds, the others
wait until it is undone. Only reads.';

-- Longer than 150 lines: one statement, whose parts are read by one another.
create or replace function memfold_internal._derived_trees(tenant_id text, memory_ids uuid[])
returns table (
    memory_id uuid, merged_into uuid, root_id uuid, contested boolean, rejected boolean, on_timeline boolean,
    aliases bigint, observations bigint, independent bigint, source_confidence double precision,
    extractor_confidence double precision, first_seen timestamptz, last_seen timestamptz, metadata jsonb
)
language plpgsql stable rows 3
as $$
#variable_conflict use_column
begin
    return query
    with recursive edges as (
        -- Of two merges of one text the later one holds. There are two where a rehash has merged an alias: only roots are
        -- merged otherwise.
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
    observed as (
        -- undoing a tier-1 event withdraws the observation, undoing any other leaves it to its own text
        select m.root, e.*
        from members as m
        cross join lateral (
            select e.* from memfold_internal._ledger as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = m.id
                and e.observation and not (e.tier = 1 and e.undone)
            offset 0
        ) as e
    ),
    relations as (
        -- what puts two memories beside one another on a timeline, from the side of either
        select m.id, m.root, e.*
        from members as m
        cross join lateral (
            select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone
            from memfold_internal._ledger as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = m.id
                and (e.action in ('superseded', 'historical') or e.action in ('merged', 'replaced') and e.tier >= 2 and e.undone)
            offset 0
        ) as e
        union all
        select m.id, m.root, e.*
        from members as m
        cross join lateral (
            select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone
            from memfold_internal._ledger as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.target_id = m.id
                and (e.action in ('superseded', 'historical') or e.action in ('merged', 'replaced') and e.tier >= 2 and e.undone)
            offset 0
        ) as e
    ),
    contests as (
        -- until a judge or a person has decided between them anew
        select distinct r.id
        from relations as r
        cross join lateral (
            select u.event_id, u.tier from memfold.memory_events as u
            where u.tenant_id = _derived_trees.tenant_id collate "C" and u.undoes = r.event_id
            offset 0
        ) as u
        -- what vectors that came later have taken back is decided (tier 2), not contested
        where r.tier >= 2 and r.on_timeline and u.tier is null and not exists (
            select from relations as d
            where d.id = r.id and d.action = 'superseded' and d.tier = 3 and not d.undone and d.event_id > u.event_id
        )
    ),
    values_of_timelines as (
        select o.root as id
        from observed as o
        where o.on_timeline and not o.undone and o.action in ('inserted', 'superseded', 'historical')
        union
        select r.root
        from relations as r
        where r.action in ('superseded', 'historical') and not r.undone and (r.id = r.target_id and r.on_timeline or r.tier = 3)
    ),
    stated as (
        -- a person's supersession states the newer value
        select r.root, max(r.observed_at) as last_at
        from relations as r
        where r.action = 'superseded' and r.tier = 3 and not r.undone and r.id = r.memory_id
        group by r.root
    ),
    rejections as (
        select distinct i.id
        from pg_catalog.unnest(memory_ids) as i (id)
        cross join lateral (
            select e.event_id from memfold_internal._ledger as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = i.id
                and e.action = 'rejected' and e.tier = 3 and not e.undone
            offset 0
        ) as e
    ),
    sizes as (
        select m.root, pg_catalog.count(*) as n from members as m group by m.root
    ),
    sums as (
        -- a row of method archived stands for several
        select o.root, sum(coalesce(o.observations, 1))::bigint as n,
            sum(coalesce(o.without_turns, case when o.source_turn_ids = '{}' then 1 else 0 end))::bigint as without_turns,
            max(o.source_confidence) as source, max(o.extractor_confidence) as extractor,
            min(coalesce(o.first_observed_at, o.observed_at)) as first_at, max(o.observed_at) as last_at
        from observed as o
        group by o.root
    ),
    turns as (
        -- an observation is independent when it has a turn that none before it has
        select f.root, pg_catalog.count(distinct f.event_id) as n
        from (
            select distinct on (o.root, t.turn) o.root, coalesce(t.event_id, o.event_id) as event_id
            from observed as o, unnest(o.source_turn_ids, o.turn_events) as t (turn, event_id)
            order by o.root, t.turn, coalesce(t.event_id, o.event_id)
        ) as f
        group by f.root
    ),
    metadata_rows as (
        select o.root, o.metadata, p.metadata_merge, p.metadata_max, o.observed_at, o.event_id
        from observed as o
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
        coalesce(d.metadata, '{}') || coalesce(x.metadata, '{}')
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
    left join maxima as x on x.root = m.id;
end;
$$;
revoke all on function memfold_internal._derived_trees(text, uuid[]) from public;
comment on function memfold_internal._derived_trees(text, uuid[]) is
'What the ledger rows in force say of whole trees (memory_ids: every member of them): edges, roots, flags, and the
aggregates of the roots. Only reads.';
