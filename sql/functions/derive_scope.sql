-- Here and below: LATERAL with OFFSET 0 is one probe of an index an id. Left to itself the planner reads the whole tenant
-- where statistics are young, or where most tenants are small and this one is not.
create or replace function memfold._trees(tenant_id text, memory_ids uuid[]) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select t.id
        from (
            select distinct r.root
            from pg_catalog.unnest(memory_ids) as i (id)
            cross join lateral (
                select memfold._root(m.memory_id, m.root_id) as root from memfold.memories as m
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
revoke all on function memfold._trees(text, uuid[]) from public;
comment on function memfold._trees(text, uuid[]) is
'Every text of the trees that hold memory_ids, as they are stored. Only reads.';

create or replace function memfold._merges_in_force(tenant_id text, memory_ids uuid[])
returns table (memory_id uuid, into_id uuid, event_id uuid)
language plpgsql stable rows 3
as $$
#variable_conflict use_column
begin
    return query
    select i.id, e.target_id, e.event_id
    from pg_catalog.unnest(memory_ids) as i (id)
    cross join lateral (
        select e.target_id, e.event_id from memfold._ledger as e
        where e.tenant_id = _merges_in_force.tenant_id collate "C" and e.memory_id = i.id
            and e.action = 'merged' and e.tier >= 2 and not e.undone
        offset 0
    ) as e
    union all
    select i.id, e.memory_id, e.event_id
    from pg_catalog.unnest(memory_ids) as i (id)
    cross join lateral (
        select e.memory_id, e.event_id from memfold._ledger as e
        where e.tenant_id = _merges_in_force.tenant_id collate "C" and e.target_id = i.id
            and e.action = 'replaced' and not e.undone
        offset 0
    ) as e;
end;
$$;
revoke all on function memfold._merges_in_force(text, uuid[]) from public;
comment on function memfold._merges_in_force(text, uuid[]) is
'What the ledger merges each of memory_ids into: of several rows of one text the one of the latest event holds, the others
wait until it is undone. Only reads.';

create or replace function memfold._derived_trees(tenant_id text, memory_ids uuid[])
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
        from memfold._merges_in_force(_derived_trees.tenant_id, memory_ids) as x
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
            select e.* from memfold._ledger as e
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
            select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone from memfold._ledger as e
            where e.tenant_id = _derived_trees.tenant_id collate "C" and e.memory_id = m.id
                and (e.action in ('superseded', 'historical') or e.action in ('merged', 'replaced') and e.tier >= 2 and e.undone)
            offset 0
        ) as e
        union all
        select m.id, m.root, e.*
        from members as m
        cross join lateral (
            select e.memory_id, e.target_id, e.event_id, e.action, e.tier, e.on_timeline, e.observed_at, e.undone from memfold._ledger as e
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
            select e.event_id from memfold._ledger as e
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
        cross join lateral memfold._policy(r.tenant_id, r.bucket_id, r.memory_type) as p
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
revoke all on function memfold._derived_trees(text, uuid[]) from public;
comment on function memfold._derived_trees(text, uuid[]) is
'What the ledger rows in force say of whole trees (memory_ids: every member of them): edges, roots, flags, and the
aggregates of the roots. Only reads.';

create or replace function memfold._is_pruned(tenant_id text, root_id uuid) returns boolean
language plpgsql stable
as $$
declare
    v_pruned uuid;
begin
    -- the index has nothing but these
    select p.event_id into v_pruned
    from memfold._ledger as p
    where p.tenant_id = _is_pruned.tenant_id collate "C" and p.memory_id = _is_pruned.root_id and p.action = 'pruned'
        and not p.undone
    order by p.event_id desc
    limit 1;
    return v_pruned is not null and not exists (
        select from pg_catalog.unnest(memfold._trees(_is_pruned.tenant_id, array[_is_pruned.root_id])) as t (id)
        cross join lateral (
            select from memfold._ledger as e
            where e.tenant_id = _is_pruned.tenant_id collate "C" and e.memory_id = t.id and e.event_id > v_pruned
                -- who says that it retires another memory states it
                and (e.observation and not (e.tier = 1 and e.undone)
                    or e.action = 'superseded' and e.tier = 3 and not e.undone)
            offset 0
        ) as e
    );
end;
$$;
revoke all on function memfold._is_pruned(text, uuid) from public;
comment on function memfold._is_pruned(text, uuid) is
'Whether a root was pruned, and not stated since. Only reads.';

create or replace function memfold._derived_timelines(tenant_id text, memory_ids uuid[])
returns table (
    timeline text, of_scope boolean, memory_id uuid, valid_from timestamptz, from_event uuid, valid_to timestamptz
)
language plpgsql stable rows 10
as $$
#variable_conflict use_column
begin
    return query
    with recursive roots as (
        select r.memory_id as root, r.bucket_id, r.scope_key, r.has_slot, memfold.canonicalize(r.object, 'prose/1') as object
        from pg_catalog.unnest(memory_ids) as i (id)
        cross join lateral (
            select k.memory_id from memfold.memory_counters as k
            where k.tenant_id = _derived_timelines.tenant_id collate "C" and k.memory_id = i.id
                and k.on_timeline and k.observations > 0
            offset 0
        ) as k
        cross join lateral (
            select r.memory_id, r.bucket_id, r.scope_key, r.predicate is not null as has_slot, r.object
            from memfold.memories as r
            where r.tenant_id = _derived_timelines.tenant_id collate "C" and r.memory_id = k.memory_id
                -- what was pruned may have observations
                and r.root_id is null and r.status <> 'withdrawn'
            offset 0
        ) as r
    ),
    texts as (
        select r.root, r.root as id, true as is_of_scope from roots as r
        union all
        select r.root, m.memory_id, (m.bucket_id, m.scope_key) = (r.bucket_id, r.scope_key)
        from roots as r
        cross join lateral (
            select m.memory_id, m.bucket_id, m.scope_key from memfold.memories as m
            where m.tenant_id = _derived_timelines.tenant_id collate "C" and m.root_id = r.root
            offset 0
        ) as m
    ),
    stated as (
        select t.root, t.is_of_scope, e.*
        from texts as t
        cross join lateral (
            -- each with its own time
            select e.* from memfold._whole_ledger as e
            where e.tenant_id = _derived_timelines.tenant_id collate "C" and e.memory_id = t.id
                and (e.observation or e.action = 'superseded')
            offset 0
        ) as e
    ),
    lost as (
        select t.root, t.is_of_scope, e.memory_id, e.tier, e.on_timeline
        from texts as t
        cross join lateral (
            select e.memory_id, e.tier, e.on_timeline from memfold._ledger as e
            where e.tenant_id = _derived_timelines.tenant_id collate "C" and e.target_id = t.id
                and e.action in ('superseded', 'historical') and not e.undone
            offset 0
        ) as e
    ),
    judged as (
        select s.root, s.target_id as other, s.on_timeline
        from stated as s where s.action = 'superseded' and s.tier = 3 and not s.undone
        union all
        select l.root, l.memory_id, l.on_timeline from lost as l where l.tier = 3
    ),
    placed as (
        select s.root
        from stated as s
        where s.is_of_scope and s.on_timeline and not s.undone and s.action in ('inserted', 'superseded', 'historical')
        union
        select r.root
        from lost as l
        join roots as r on r.root = l.root
        cross join lateral (
            select m.bucket_id, m.scope_key from memfold.memories as m
            where m.tenant_id = _derived_timelines.tenant_id collate "C" and m.memory_id = l.memory_id
            offset 0
        ) as m
        -- what gave way to a value of another slot, with which it had been tied, is none of its own by that
        where l.is_of_scope and l.on_timeline and (m.bucket_id, m.scope_key) = (r.bucket_id, r.scope_key)
    ),
    -- All values of a single-valued slot are on one timeline; a judged contradiction elsewhere ties two roots to one. A value
    -- that was folded into a text of another scope puts that one on no slot's timeline.
    labels as (
        select r.root, case when p.root is null then r.root::text else r.bucket_id || ' ' || r.scope_key end as label,
            p.root is not null as of_scope
        from roots as r
        -- An alias that was restated as a value of its root's slot, and is a root again, has none of its own without a predicate.
        left join placed as p on p.root = r.root and r.has_slot
    ),
    ties as (
        select distinct a.label as here, b.label as there
        from judged as j
        join texts as t on t.id = j.other
        join labels as a on a.root = j.root
        join labels as b on b.root = t.root
        where not j.on_timeline and a.label <> b.label
    ),
    reach (here, there) as (
        select t.here, t.there from ties as t
        union
        select r.here, t.there from reach as r join ties as t on t.here = r.there
    ),
    assertions as (
        select coalesce(least(l.label, (select min(r.there) from reach as r where r.here = l.label)), l.label) as timeline,
            l.of_scope, l.root, s.observed_at, s.event_id,
            -- a value that was judged against another stands for itself
            case when r.object is null or l.root in (select j.root from judged as j) then l.root::text
                else r.object end as stated
        from stated as s
        join labels as l on l.root = s.root
        join roots as r on r.root = s.root
        where s.observation and not (s.tier = 1 and s.undone)
            or s.action = 'superseded' and s.tier = 3 and not s.undone and s.observed_at is not null
    ),
    marked as (
        select a.*, a.stated is distinct from pg_catalog.lag(a.stated) over w as starts
        from assertions as a
        window w as (partition by a.timeline order by a.observed_at, a.event_id)
    ),
    numbered as (
        select a.*, pg_catalog.count(*) filter (where a.starts)
            over (partition by a.timeline order by a.observed_at, a.event_id) as segment
        from marked as a
    ),
    segments as (
        select n.timeline, n.segment,
            pg_catalog.lead(min(n.observed_at)) over (partition by n.timeline order by n.segment) as ends
        from numbered as n
        group by n.timeline, n.segment
    )
    select distinct on (n.timeline, n.segment, n.root)
        n.timeline, n.of_scope, n.root, n.observed_at, n.event_id, s.ends
    from numbered as n
    join segments as s on s.timeline = n.timeline and s.segment = n.segment
    order by n.timeline, n.segment, n.root, n.observed_at, n.event_id;
end;
$$;
revoke all on function memfold._derived_timelines(text, uuid[]) from public;
comment on function memfold._derived_timelines(text, uuid[]) is
'The timelines of the roots among memory_ids (all roots of a timeline are named, see _timeline_texts): their assertions in
order of (observed_at, event_id), equal neighbours collapsed; one interval [valid_from, valid_to) for each value, the last
one open. A value is the canonical object, else the memory. of_scope: the memory is a value of its scope''s single-valued
slot, rather than of a question that a judge found. Only reads.';

create or replace function memfold._timeline_texts(tenant_id text, memory_ids uuid[]) returns uuid[]
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_known uuid[] := array[]::uuid[];
    v_new uuid[] := memory_ids;
begin
    loop
        -- whole trees, as they are stored
        select array_agg(t.id) into v_new
        from unnest(memfold._trees(v_tenant_id, v_new)) as t (id)
        where t.id <> all(v_known);
        exit when v_new is null;
        v_known := v_known || v_new;
        select array_agg(x.id) into v_new
        from (
            -- every value of a single-valued slot
            select m.memory_id as id
            from (
                select distinct s.bucket_id, s.scope_key
                from unnest(v_new) as i (id)
                cross join lateral (
                    select s.bucket_id, s.scope_key from memfold.memories as s
                    where s.tenant_id = v_tenant_id and s.memory_id = i.id and s.predicate is not null
                    offset 0
                ) as s
                cross join lateral (
                    select from memfold.memory_events as e
                    where e.tenant_id = v_tenant_id and e.memory_id = i.id and e.on_timeline
                        and e.action in ('inserted', 'superseded', 'historical')
                    union all
                    select from memfold.memory_events as e
                    where e.tenant_id = v_tenant_id and e.target_id = i.id and e.on_timeline
                        and e.action in ('superseded', 'historical')
                    limit 1
                ) as e
            ) as s
            cross join lateral (
                select m.memory_id from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.bucket_id = s.bucket_id and m.scope_key = s.scope_key
                offset 0
            ) as m
            union
            -- the other side of a judged contradiction
            select e.id
            from unnest(v_new) as i (id)
            cross join lateral (
                select e.target_id as id from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.memory_id = i.id and e.action = 'superseded' and e.tier = 3
                union all
                select e.memory_id from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.target_id = i.id and e.action = 'superseded' and e.tier = 3
                offset 0
            ) as e
        ) as x
        where x.id <> all(v_known);
        exit when v_new is null;
    end loop;
    return v_known;
end;
$$;
revoke all on function memfold._timeline_texts(text, uuid[]) from public;
comment on function memfold._timeline_texts(text, uuid[]) is
'The texts of the trees that hold memory_ids, and of all trees that are, or ever were, on one timeline with them: what a
change of memory_ids may change. Only reads.';

create or replace function memfold._slot_memories(tenant_id text, bucket_id text, scope_key bigint) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select m.memory_id from memfold.memories as m
        where m.tenant_id = _slot_memories.tenant_id collate "C" and m.bucket_id = _slot_memories.bucket_id collate "C"
            and m.scope_key = _slot_memories.scope_key
    );
end;
$$;
revoke all on function memfold._slot_memories(text, text, bigint) from public;
comment on function memfold._slot_memories(text, text, bigint) is 'The memories of a slot, aliases and history with them. Only reads.';

create or replace function memfold._last_seen(tenant_id text, memory_ids uuid[]) returns timestamptz
language plpgsql stable
as $$
begin
    return (
        select max(k.last_seen)
        from pg_catalog.unnest(memfold._timeline_texts(tenant_id, memory_ids)) as i (id)
        cross join lateral (
            select k.last_seen from memfold.memory_counters as k
            where k.tenant_id = _last_seen.tenant_id collate "C" and k.memory_id = i.id
            offset 0
        ) as k
    );
end;
$$;
revoke all on function memfold._last_seen(text, uuid[]) from public;
comment on function memfold._last_seen(text, uuid[]) is
'The last observation of memory_ids and of all that are, or ever were, on one timeline with them: what is stated now comes
after it. Null: there is none. Only reads.';

create or replace function memfold.derive_scope(tenant_id text, memory_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
-- planning these statements anew, as their arrays of ids tempt the planner to, takes longer than they do
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_members uuid[];
    v_slot_members uuid[];
    v_id uuid;
    d record;
    e record;
begin
    -- Whole trees, as they are stored. The caller names both sides of an edge that was made or cut; with one that was cut an
    -- older one may hold again, and it leads to another tree.
    v_members := memfold._trees(v_tenant_id, memory_ids || array(
        select e.into_id from memfold._merges_in_force(v_tenant_id, memory_ids) as e
    ));
    -- and every value beside them on a timeline, because each may gain or lose the present
    v_slot_members := memfold._timeline_texts(v_tenant_id, v_members);

    insert into memfold.memory_counters (tenant_id, memory_id)
    select v_tenant_id, i.id from unnest(v_members) as i (id) order by i.id
    on conflict do nothing;
    -- roots by id, then aliases by id: the order in which everyone locks
    for v_id in
        select i.id
        from unnest(v_slot_members) as i (id)
        cross join lateral (
            select m.root_id from memfold.memories as m
            where m.tenant_id = v_tenant_id and m.memory_id = i.id
            offset 0
        ) as m
        order by m.root_id is not null, i.id
    loop
        perform from memfold.memory_counters as k
        where k.tenant_id = v_tenant_id and k.memory_id = v_id
        for no key update;
    end loop;

    for d in
        -- nothing is written of what stays as it was: of a large tree that is most
        select t.*, n.status
        from memfold._derived_trees(v_tenant_id, v_members) as t
        cross join lateral (
            select k.* from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = t.memory_id
            offset 0
        ) as k
        cross join lateral (
            select m.* from memfold.memories as m where m.tenant_id = v_tenant_id and m.memory_id = t.memory_id
            offset 0
        ) as m
        cross join lateral (
            select case
                when t.root_id is not null then 'merged'
                when t.rejected then 'rejected'
                when t.observations = 0 then 'withdrawn'
                when t.on_timeline and m.status = 'superseded' then 'superseded'
                else 'active'
            end as status
        ) as n
        where (m.merged_into, m.root_id, m.metadata, m.status) is distinct from (t.merged_into, t.root_id, t.metadata, n.status)
            or (
                k.on_timeline, k.aliases, k.observations, k.independent, k.source_confidence, k.extractor_confidence,
                k.first_seen, k.last_seen
            ) is distinct from (
                t.on_timeline, t.aliases, t.observations, t.independent, t.source_confidence, t.extractor_confidence,
                t.first_seen, t.last_seen
            )
        order by t.memory_id
    loop
        update memfold.memory_counters as k
        set on_timeline = d.on_timeline, aliases = d.aliases,
            observations = d.observations, independent = d.independent, source_confidence = d.source_confidence,
            extractor_confidence = d.extractor_confidence, first_seen = d.first_seen, last_seen = d.last_seen
        where k.tenant_id = v_tenant_id and k.memory_id = d.memory_id;
        update memfold.memories as m
        set merged_into = d.merged_into, root_id = d.root_id, metadata = d.metadata, status = d.status
        where m.tenant_id = v_tenant_id and m.memory_id = d.memory_id;
    end loop;
    -- what the next restatement has to come after
    for e in
        select x.root_id as memory_id, x.event_id
        from (
            select r.root_id, (array_agg(n.event_id order by n.event_id desc))[1] as event_id
            from unnest(v_members) as i (id)
            cross join lateral (
                select memfold._root(m.memory_id, m.root_id) as root_id from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.memory_id = i.id
                offset 0
            ) as r
            cross join lateral (
                select n.event_id from memfold.memory_events as n
                where n.tenant_id = v_tenant_id and n.memory_id = i.id
                order by n.event_id desc
                limit 1
            ) as n
            group by r.root_id
        ) as x
        cross join lateral (
            select k.last_event from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.memory_id = x.root_id
            offset 0
        ) as k
        where (k.last_event >= x.event_id) is not true
        order by x.root_id
    loop
        update memfold.memory_counters as k
        set last_event = e.event_id
        where k.tenant_id = v_tenant_id and k.memory_id = e.memory_id;
    end loop;
    -- whether they were stated since is asked of the trees as they are now
    for v_id in
        select i.id from unnest(v_members) as i (id) where memfold._is_pruned(v_tenant_id, i.id) order by i.id
    loop
        update memfold.memories as m
        set status = 'withdrawn'
        where m.tenant_id = v_tenant_id and m.memory_id = v_id and m.status in ('active', 'superseded');
    end loop;

    for e in
        select distinct i.id as memory_id, t.turn
        from unnest(v_members) as i (id)
        cross join lateral (
            select l.source_turn_ids from memfold._ledger as l
            where l.tenant_id = v_tenant_id and l.memory_id = i.id and l.observation and l.tier = 1 and l.undone
            offset 0
        ) as l
        cross join lateral unnest(l.source_turn_ids) as t (turn)
    loop
        delete from memfold.memory_sources as s
        where s.tenant_id = v_tenant_id and s.source_turn_id = e.turn and s.memory_id = e.memory_id and not exists (
            select from memfold._ledger as l
            where l.tenant_id = v_tenant_id and l.memory_id = e.memory_id and l.source_turn_ids @> array[e.turn]
                and l.observation and not (l.tier = 1 and l.undone)
        );
    end loop;
    insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id)
    select distinct v_tenant_id, t.turn, i.id
    from unnest(v_members) as i (id)
    cross join lateral (
        select l.source_turn_ids from memfold._ledger as l
        where l.tenant_id = v_tenant_id and l.memory_id = i.id and l.observation and not (l.tier = 1 and l.undone)
        offset 0
    ) as l
    cross join lateral unnest(l.source_turn_ids) as t (turn)
    order by 2, 3
    on conflict do nothing;

    for v_id in
        select i.id
        from unnest(v_slot_members) as i (id)
        cross join lateral (
            select from memfold.memory_intervals as o where o.tenant_id = v_tenant_id and o.memory_id = i.id
            limit 1
        ) as o
    loop
        delete from memfold.memory_intervals as i where i.tenant_id = v_tenant_id and i.memory_id = v_id;
    end loop;
    insert into memfold.memory_intervals (tenant_id, bucket_id, scope_key, memory_id, valid_from, from_event, valid_to)
    select v_tenant_id, m.bucket_id, m.scope_key, t.memory_id, t.valid_from, t.from_event, t.valid_to
    from memfold._derived_timelines(v_tenant_id, v_slot_members) as t
    cross join lateral (
        select m.bucket_id, m.scope_key from memfold.memories as m
        where m.tenant_id = v_tenant_id and m.memory_id = t.memory_id
        offset 0
    ) as m;
    -- a statement of its own, not one with the INSERT in it: to Citus that is work for several nodes
    for e in
        select i.id as memory_id, case when bool_or(t.valid_to is null) then 'active' else 'superseded' end as status
        from unnest(v_slot_members) as i (id)
        cross join lateral (
            select t.valid_to from memfold.memory_intervals as t
            where t.tenant_id = v_tenant_id and t.memory_id = i.id
            offset 0
        ) as t
        group by i.id
        order by i.id
    loop
        update memfold.memories as m
        set status = e.status
        where m.tenant_id = v_tenant_id and m.memory_id = e.memory_id and m.status <> e.status;
    end loop;

    for e in
        select i.id as memory_id, m.status = 'active' as live, r.status = 'active' as root_live
        from unnest(v_slot_members) as i (id)
        cross join lateral (
            select m.status, memfold._root(m.memory_id, m.root_id) as root from memfold.memories as m
            where m.tenant_id = v_tenant_id and m.memory_id = i.id
            offset 0
        ) as m
        cross join lateral (
            select r.status from memfold.memories as r
            where r.tenant_id = v_tenant_id and r.memory_id = m.root
            offset 0
        ) as r
        cross join lateral (
            select from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.memory_id = i.id and k.live <> (m.status = 'active')
            union all
            select from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id and v.memory_id = i.id and v.live <> (r.status = 'active')
            limit 1
        ) as changed
        order by i.id
    loop
        update memfold.memory_counters as k
        set live = e.live
        where k.tenant_id = v_tenant_id and k.memory_id = e.memory_id and k.live <> e.live;
        update memfold.memory_vectors as v
        set live = e.root_live
        where v.tenant_id = v_tenant_id and v.memory_id = e.memory_id and v.live <> e.root_live;
    end loop;
end;
$$;
revoke all on function memfold.derive_scope(text, uuid[]) from public;
comment on function memfold.derive_scope(text, uuid[]) is
'Derives the state of the trees that hold memory_ids, and of the timelines they belong to, from the ledger rows in
force: status, edges, roots, counters, sources, metadata, intervals. The caller holds the lock of the scope (of the
bucket, where trees reach over scopes) and has written the ledger. Only the owner may call it.';
