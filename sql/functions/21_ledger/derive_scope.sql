create or replace function memfold_internal._is_pruned(tenant_id text, root_id uuid) returns boolean
language plpgsql stable
as $$
declare
    v_pruned uuid;
begin
    select p.event_id into v_pruned
    from memfold_internal._decisions as p
    where p.tenant_id = _is_pruned.tenant_id collate "C" and p.memory_id = _is_pruned.root_id and p.action = 'pruned'
        and not p.undone
    order by p.event_id desc
    limit 1;
    return v_pruned is not null and not exists (
        select from pg_catalog.unnest(memfold_internal._trees(_is_pruned.tenant_id, array[_is_pruned.root_id])) as t (id)
        cross join lateral (
            select from memfold_internal._ledger as e
            where e.tenant_id = _is_pruned.tenant_id collate "C" and e.memory_id = t.id and e.event_id > v_pruned
                -- a person who retires a memory in favour of another states that one
                and (e.observation and not (e.tier = 1 and e.undone)
                    or e.action = 'superseded' and e.tier = 3 and not e.undone)
            offset 0
        ) as e
    );
end;
$$;
comment on function memfold_internal._is_pruned is 'Whether a root was pruned, and not stated since. Only reads.';

-- Longer than 150 lines: steps under one lock whose order is the order of locks.
create or replace function memfold.derive_scope(
    memory_ids uuid[],
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
-- replanning these statements, as their arrays of ids tempt the planner to, takes longer than they do
set plan_cache_mode = force_generic_plan
-- Ranges of pairs look expensive: compiling the plan takes seconds, and the scope is locked.
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_members uuid[];
    v_slot_members uuid[];
    v_values uuid[];
    v_buckets text[] collate "C";
    v_scopes bigint[];
    v_from timestamptz[];
    v_events uuid[];
    v_to timestamptz[];
    v_id uuid;
    d record;
    e record;
begin
    perform memfold_internal._assert_local_shard(tenant_id);
    -- Whole trees, as they are stored. The caller names both sides of an edge that was added or removed; instead of a removed one an
    -- older one may apply again, which points to another tree.
    v_members := memfold_internal._trees(v_tenant_id, array(
        -- not by ||, which fails for an array of two dimensions
        select i.id from unnest(memory_ids) as i (id)
        union all
        select e.into_id from memfold_internal._merges_in_force(v_tenant_id, memory_ids) as e
    ));
    -- and every value on a timeline with them, because each may become or cease to be current
    v_slot_members := memfold_internal._timeline_texts(v_tenant_id, v_members);

    insert into memfold.memory_counters (tenant_id, memory_id)
    select v_tenant_id, i.id from unnest(v_members) as i (id) order by i.id
    on conflict do nothing;
    -- roots by id, then aliases by id: the order in which every caller locks
    for v_id in
        select i.id
        from unnest(v_slot_members) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
        order by m.root_id is not null, i.id
    loop
        perform from memfold.memory_counters as k
        where k.tenant_id = v_tenant_id and k.memory_id = v_id
        for no key update;
    end loop;

    for d in
        -- unchanged rows are not written: in a large tree that is most of them
        select t.*, n.status
        from memfold_internal._derived_trees(v_tenant_id, v_members) as t
        cross join lateral (
            select k.* from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = t.memory_id
            offset 0
        ) as k
        cross join lateral memfold_internal._memory(v_tenant_id, t.memory_id) as m
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
                k.root_id, k.on_timeline, k.aliases, k.alias_observations, k.alias_independent, k.alias_source_confidence,
                k.alias_extractor_confidence, k.alias_first_seen, k.alias_last_seen, k.valid_from, k.valid_until
            ) is distinct from (
                t.root_id, t.on_timeline, t.aliases, t.alias_observations, t.alias_independent, t.alias_source_confidence,
                t.alias_extractor_confidence, t.alias_first_seen, t.alias_last_seen, t.valid_from, t.valid_until
            )
        order by t.memory_id
    loop
        update memfold.memory_counters as k
        set root_id = d.root_id, on_timeline = d.on_timeline, aliases = d.aliases, alias_observations = d.alias_observations,
            alias_independent = d.alias_independent, alias_source_confidence = d.alias_source_confidence,
            alias_extractor_confidence = d.alias_extractor_confidence, alias_first_seen = d.alias_first_seen,
            alias_last_seen = d.alias_last_seen, valid_from = d.valid_from, valid_until = d.valid_until
        where k.tenant_id = v_tenant_id and k.memory_id = d.memory_id;
        update memfold.memories as m
        set merged_into = d.merged_into, root_id = d.root_id, metadata = d.metadata, status = d.status
        where m.tenant_id = v_tenant_id and m.memory_id = d.memory_id;
    end loop;
    -- the next restatement must come after this
    for e in
        select x.root_id as memory_id, x.event_id
        from (
            select r.root_id, (array_agg(n.event_id order by n.event_id desc))[1] as event_id
            from unnest(v_members) as i (id)
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root_id from memfold.memories as m
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
    -- whether they were stated since depends on the present trees
    for v_id in
        select i.id from unnest(v_members) as i (id) where memfold_internal._is_pruned(v_tenant_id, i.id) order by i.id
    loop
        update memfold.memories as m
        set status = 'withdrawn'
        where m.tenant_id = v_tenant_id and m.memory_id = v_id and m.status in ('active', 'superseded');
    end loop;

    -- in a long timeline nearly everything is unchanged, and not written again
    select array_agg(t.memory_id), array_agg(m.bucket_id), array_agg(m.scope_key), array_agg(t.valid_from),
        array_agg(t.from_event), array_agg(t.valid_to)
    into v_values, v_buckets, v_scopes, v_from, v_events, v_to
    from memfold_internal._derived_timelines(v_tenant_id, v_slot_members) as t
    cross join lateral memfold_internal._memory(v_tenant_id, t.memory_id) as m;
    for e in
        select o.bucket_id, o.scope_key, o.valid_from, o.from_event
        from unnest(v_slot_members) as i (id)
        cross join lateral (
            select o.* from memfold.memory_intervals as o where o.tenant_id = v_tenant_id and o.memory_id = i.id
            offset 0
        ) as o
        left join unnest(v_values, v_buckets, v_scopes, v_from, v_events, v_to)
            as t (memory_id, bucket_id, scope_key, valid_from, from_event, valid_to)
            on t.memory_id = o.memory_id and t.from_event = o.from_event and t.valid_from = o.valid_from
            and t.bucket_id = o.bucket_id and t.scope_key = o.scope_key and t.valid_to is not distinct from o.valid_to
        where t.memory_id is null
    loop
        delete from memfold.memory_intervals as o
        where o.tenant_id = v_tenant_id and o.bucket_id = e.bucket_id and o.scope_key = e.scope_key
            and o.valid_from = e.valid_from and o.from_event = e.from_event;
    end loop;
    insert into memfold.memory_intervals (tenant_id, bucket_id, scope_key, memory_id, valid_from, from_event, valid_to)
    select v_tenant_id, t.bucket_id, t.scope_key, t.memory_id, t.valid_from, t.from_event, t.valid_to
    from unnest(v_values, v_buckets, v_scopes, v_from, v_events, v_to)
        as t (memory_id, bucket_id, scope_key, valid_from, from_event, valid_to)
    on conflict do nothing;
    -- a separate statement, not one with the INSERT in it: to Citus that is work for several nodes
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
        select i.id as memory_id, m.status = 'active' as is_active, r.status = 'active' as root_is_active
        from unnest(v_slot_members) as i (id)
        cross join lateral (
            select m.status, memfold_internal._root(m.memory_id, m.root_id) as root from memfold.memories as m
            where m.tenant_id = v_tenant_id and m.memory_id = i.id
            offset 0
        ) as m
        cross join lateral memfold_internal._memory(v_tenant_id, m.root) as r
        cross join lateral (
            select from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.memory_id = i.id and k.is_active <> (m.status = 'active')
            union all
            select from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id and v.memory_id = i.id and v.is_active <> (r.status = 'active')
            limit 1
        ) as changed
        order by i.id
    loop
        update memfold.memory_counters as k
        set is_active = e.is_active
        where k.tenant_id = v_tenant_id and k.memory_id = e.memory_id and k.is_active <> e.is_active;
        update memfold.memory_vectors as v
        set is_active = e.root_is_active
        where v.tenant_id = v_tenant_id and v.memory_id = e.memory_id and v.is_active <> e.root_is_active;
    end loop;
end;
$$;
comment on function memfold.derive_scope is
'Derives the state of the trees that contain memory_ids, and of the timelines they belong to, from the ledger rows in force: status,
edges, roots, sums over aliases, metadata, intervals. The caller holds the lock of the scope (or of the bucket, if trees span scopes) and
has written the ledger, and counted each text''s own observations. Only the owner may call it.';

create or replace function memfold_internal._derive_all(tenant_id text, memory_ids uuid[]) returns void
language plpgsql volatile
as $$
begin
    if pg_catalog.cardinality(memory_ids) > 200 then
        perform memfold_internal._lock_texts(tenant_id, memfold_internal._texts_to_lock(tenant_id, memory_ids));
    end if;
    for v_from in 1..pg_catalog.cardinality(memory_ids) by 200 loop
        perform memfold.derive_scope(memory_ids[v_from:v_from + 199], tenant_id);
    end loop;
end;
$$;
comment on function memfold_internal._derive_all is
'derive_scope() for any number of memories, in parts. The caller holds the bucket''s lock.';
