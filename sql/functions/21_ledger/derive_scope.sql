-- Whether a root was pruned and has not been stated since.
create or replace function memfold_internal._is_pruned(p_tenant_id text, p_root_id uuid) returns boolean
language plpgsql stable
as $$
declare
    v_pruned uuid;
begin
    select p.event_id into v_pruned
    from memfold_internal._decisions as p
    where p.tenant_id = p_tenant_id collate "C" and p.memory_id = p_root_id and p.action = 'pruned'
        and not p.undone
    order by p.event_id desc
    limit 1;
    return v_pruned is not null and not exists (
        select from unnest(memfold_internal._trees(p_tenant_id, array[p_root_id])) as t (id)
        cross join lateral (
            select from memfold_internal._statements as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = t.id and e.event_id > v_pruned
            offset 0
        ) as e
    );
end;
$$;

-- Derives edges, roots, sums over aliases, metadata, validity, and whether a root is alive. p_members: all texts of some
-- trees. The caller holds their rows.
create or replace function memfold_internal._derive_trees(p_tenant_id text, p_members uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_id uuid;
    d record;
begin
    for d in
        -- unchanged rows, most of a large tree, are not written
        select t.*, n.status
        from memfold_internal._derived_trees(v_tenant_id, p_members) as t
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
                when m.status = 'superseded' then 'superseded'
                else 'active'
            end as status
        ) as n
        where (m.merged_into, m.root_id, m.metadata, m.status) is distinct from (t.merged_into, t.root_id, t.metadata, n.status)
            or (
                k.root_id, k.aliases, k.alias_observations, k.alias_independent, k.alias_source_confidence,
                k.alias_extractor_confidence, k.alias_first_seen, k.alias_last_seen, k.valid_from, k.valid_until
            ) is distinct from (
                t.root_id, t.aliases, t.alias_observations, t.alias_independent, t.alias_source_confidence,
                t.alias_extractor_confidence, t.alias_first_seen, t.alias_last_seen, t.valid_from, t.valid_until
            )
        order by t.memory_id
    loop
        update memfold.memory_counters as k
        set root_id = d.root_id, aliases = d.aliases, alias_observations = d.alias_observations,
            alias_independent = d.alias_independent, alias_source_confidence = d.alias_source_confidence,
            alias_extractor_confidence = d.alias_extractor_confidence, alias_first_seen = d.alias_first_seen,
            alias_last_seen = d.alias_last_seen, valid_from = d.valid_from, valid_until = d.valid_until
        where k.tenant_id = v_tenant_id and k.memory_id = d.memory_id;
        update memfold.memories as m
        set merged_into = d.merged_into, root_id = d.root_id, metadata = d.metadata, status = d.status
        where m.tenant_id = v_tenant_id and m.memory_id = d.memory_id;
    end loop;
    -- the next restatement must get a higher id
    for d in
        select x.root_id as memory_id, x.event_id
        from (
            select r.root_id, (array_agg(n.event_id order by n.event_id desc))[1] as event_id
            from unnest(p_members) as i (id)
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
        set last_event = d.event_id
        where k.tenant_id = v_tenant_id and k.memory_id = d.memory_id;
    end loop;
    -- last, because it depends on the new trees whether a pruned memory was stated since
    for v_id in
        select i.id from unnest(p_members) as i (id) where memfold_internal._is_pruned(v_tenant_id, i.id) order by i.id
    loop
        update memfold.memories as m
        set status = 'withdrawn'
        where m.tenant_id = v_tenant_id and m.memory_id = v_id and m.status in ('active', 'superseded');
    end loop;
end;
$$;

-- Derives intervals, status and flags of the roots of p_members, and of all roots whose times may change with theirs.
-- p_regroups: the caller has only added or removed merges. The caller holds the rows of p_members and of current roots.
create or replace function memfold_internal._derive_times(p_tenant_id text, p_members uuid[], p_regroups boolean) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_timed uuid[];
    v_roots uuid[];
    v_derived memfold_internal.derived_time[];
    d record;
begin
    v_roots := array(select r.memory_id from memfold_internal._roots(v_tenant_id, p_members) as r);
    if p_regroups then
        v_derived := memfold_internal._regrouped(v_tenant_id, p_members);
    end if;
    -- only for roots in a slot or a contradiction do times depend on statements
    v_timed := array(
        select r.memory_id
        from memfold_internal._roots(v_tenant_id, p_members) as r
        where v_derived is null and (memfold_internal._is_slot(r.tenant_id, r.bucket_id, r.memory_type, r.predicate)
            or memfold_internal._related(v_tenant_id, array[r.memory_id]) <> '{}')
        union
        -- memories that were on a timeline, because others there may become current
        select k.memory_id
        from unnest(p_members) as i (id)
        cross join lateral (
            select k.memory_id from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.memory_id = i.id and (k.on_timeline or k.has_validity)
            offset 0
        ) as k
        where v_derived is null
    );
    if v_timed <> '{}' then
        v_timed := memfold_internal._timed_with(v_tenant_id, v_timed);
        v_derived := array(
            select t
            from memfold_internal._derived_times(v_tenant_id, memfold_internal._timed_with(v_tenant_id, v_timed)) as t
            where t.memory_id = any(v_timed)
        );
        v_roots := array(select x.id from unnest(v_roots || v_timed) as x (id) group by x.id);
    end if;
    -- unchanged intervals, most of a long timeline, are not written
    for d in
        select o.memory_id, o.valid_from
        from unnest(v_roots || p_members) as i (id)
        cross join lateral (
            select o.* from memfold.memory_intervals as o where o.tenant_id = v_tenant_id and o.memory_id = i.id
            offset 0
        ) as o
        left join (
            select t.memory_id, t.slot_key, lower(r.r) as valid_from, upper(r.r) as valid_to
            from unnest(v_derived) as t, unnest(t.times) as r (r)
            where t.on_timeline
        ) as t on t.memory_id = o.memory_id and t.valid_from = o.valid_from and t.valid_to is not distinct from o.valid_to
            and t.slot_key is not distinct from o.slot_key
        where t.memory_id is null
    loop
        -- by its key: a join would read all intervals of the tenant
        delete from memfold.memory_intervals as o
        where o.tenant_id = v_tenant_id and o.memory_id = d.memory_id and o.valid_from = d.valid_from;
    end loop;
    insert into memfold.memory_intervals (tenant_id, memory_id, valid_from, valid_to, slot_key)
    select v_tenant_id, t.memory_id, lower(r.r), upper(r.r), t.slot_key
    from unnest(v_derived) as t, unnest(t.times) as r (r)
    where t.on_timeline
    on conflict do nothing;
    for d in
        select m.memory_id, n.*
        from unnest(v_roots || p_members) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
        cross join lateral (
            select k.* from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = m.memory_id
            offset 0
        ) as k
        left join unnest(v_derived) as t on t.memory_id = m.memory_id
        cross join lateral (
            select case when m.status not in ('active', 'superseded') then m.status
                    when t.is_superseded then 'superseded' else 'active' end as status,
                m.status in ('active', 'superseded') and coalesce(t.is_additive, true)
                    and num_nonnulls(k.valid_from, k.valid_until) = 0 as is_additive,
                coalesce(t.on_timeline, false) as on_timeline
        ) as n
        where (m.status, k.is_additive, k.on_timeline) <> (n.status, n.is_additive, n.on_timeline)
        order by m.memory_id
    loop
        if d.memory_id <> all(p_members) then
            -- a value that becomes current again: which one is known only now
            perform memfold_internal._try_root(v_tenant_id, d.memory_id);
        end if;
        update memfold.memories as m
        set status = d.status
        where m.tenant_id = v_tenant_id and m.memory_id = d.memory_id and m.status <> d.status;
        update memfold.memory_counters as k
        set is_additive = d.is_additive, on_timeline = d.on_timeline
        where k.tenant_id = v_tenant_id and k.memory_id = d.memory_id;
    end loop;
end;
$$;

-- derive_scope() without the hook. p_regroups: the caller has only added or removed merges.
create or replace function memfold_internal._derive(p_tenant_id text, p_memory_ids uuid[], p_regroups boolean) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
-- ranges of pairs look expensive enough to compile, which takes seconds while the scope is locked
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_text_id uuid;
    v_into_id uuid;
    v_root_id uuid;
    v_texts uuid[];
    v_members uuid[];
    v_id uuid;
    d record;
begin
    if p_regroups then
        select m.* into v_text_id, v_into_id, v_root_id, v_texts from memfold_internal._moved(v_tenant_id, p_memory_ids) as m;
    end if;
    -- Whole trees, as they are stored. The caller names both sides of an edge that was added or removed; in place of a removed one, an
    -- older merge into another tree may apply again.
    v_members := case when v_text_id is not null then v_texts || v_root_id else memfold_internal._trees(v_tenant_id, array(
        -- not by ||, which fails for an array of two dimensions
        select i.id from unnest(p_memory_ids) as i (id)
        union all
        select e.into_id from memfold_internal._merges_in_force(v_tenant_id, p_memory_ids) as e
    )) end;
    insert into memfold.memory_counters (tenant_id, memory_id)
    select v_tenant_id, i.id from unnest(v_members) as i (id) order by i.id
    on conflict do nothing;
    -- Roots by id, then aliases by id: the order in which every caller locks.
    for v_id in
        select i.id
        from (
            select x.id from unnest(v_members || memfold_internal._restated_with(v_tenant_id, v_members)) as x (id) group by x.id
        ) as i
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
        cross join lateral (
            select k.is_additive from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = i.id
            offset 0
        ) as k
        where k.is_additive or i.id = any(v_members)
        order by m.root_id is not null, i.id
    loop
        perform from memfold.memory_counters as k
        where k.tenant_id = v_tenant_id and k.memory_id = v_id
        for no key update;
    end loop;
    if v_text_id is null then
        perform memfold_internal._derive_trees(v_tenant_id, v_members);
    elsif memfold_internal._is_plain_move(v_tenant_id, v_text_id, v_root_id, v_texts) then
        perform memfold_internal._move(v_tenant_id, v_text_id, v_into_id, v_root_id, v_texts);
    else
        -- the locks of the roots cover all of their aliases
        v_members := memfold_internal._trees(v_tenant_id, v_members);
        perform memfold_internal._derive_trees(v_tenant_id, v_members);
    end if;
    for d in
        select k.memory_id, k.is_related
        from unnest(p_memory_ids) as i (id)
        cross join lateral (
            select k.memory_id, not k.is_related as is_related from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.memory_id = i.id
                and k.is_related <> exists (select from memfold_internal._last_words(v_tenant_id, array[i.id]))
            offset 0
        ) as k
    loop
        update memfold.memory_counters as k
        set is_related = d.is_related
        where k.tenant_id = v_tenant_id and k.memory_id = d.memory_id;
    end loop;
    perform memfold_internal._derive_times(v_tenant_id, v_members, p_regroups);
    for d in
        select v.memory_id, r.status <> 'withdrawn' as is_live
        from unnest(v_members) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
        cross join lateral memfold_internal._memory(v_tenant_id, memfold_internal._root(m.memory_id, m.root_id)) as r
        cross join lateral (
            select v.memory_id from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id and v.memory_id = i.id and v.is_live <> (r.status <> 'withdrawn')
            limit 1
        ) as v
        order by v.memory_id
    loop
        update memfold.memory_vectors as v
        set is_live = d.is_live
        where v.tenant_id = v_tenant_id and v.memory_id = d.memory_id and v.is_live <> d.is_live;
    end loop;
end;
$$;

create or replace function memfold.derive_scope(
    memory_ids uuid[],
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._assert_local_shard(tenant_id);
    perform memfold_internal._derive(tenant_id, memory_ids, false);
end;
$$;
comment on function memfold.derive_scope is
'Derives the state of the trees that contain memory_ids, and when they and all that may exclude them are current, from the ledger rows in
force: status, edges, roots, sums over aliases, metadata, intervals. The caller holds the lock of the scope (or of the bucket, if trees
span scopes) and has written the ledger, and counted each text''s own observations. Only the owner may call it.';

-- derive_scope() for any number of memories, in parts. The caller holds the bucket's lock.
create or replace function memfold_internal._derive_all(
    p_tenant_id text, p_memory_ids uuid[], p_regroups boolean default false
) returns void
language plpgsql volatile
as $$
begin
    if cardinality(p_memory_ids) > 200 then
        perform memfold_internal._lock_texts(p_tenant_id, memfold_internal._texts_to_lock(p_tenant_id, p_memory_ids));
    end if;
    for v_from in 1..cardinality(p_memory_ids) by 200 loop
        perform memfold_internal._derive(p_tenant_id, p_memory_ids[v_from:v_from + 199], p_regroups);
    end loop;
end;
$$;
