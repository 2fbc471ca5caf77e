-- The single text among p_memory_ids whose merge was added (into_id) or removed (into_id null) since the trees were
-- derived. root_id: the memory that it joins or leaves. texts: the text and its own aliases, which move with it. text_id
-- null: there is no such text, or more than one.
create or replace function memfold_internal._moved(
    p_tenant_id text, p_memory_ids uuid[], out text_id uuid, out into_id uuid, out root_id uuid, out texts uuid[]
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
-- if one tree is large, the planner considers every index on roots useless
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_texts uuid[];
begin
    select array_agg(x.id), (array_agg(x.into_id))[1], (array_agg(memfold_internal._root(o.memory_id, o.root_id)))[1]
    into v_texts, into_id, root_id
    from (
        select i.id, m.merged_into, e.into_id, coalesce(m.merged_into, e.into_id) as other_id
        from (select distinct x.id from unnest(p_memory_ids) as x (id)) as i
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        left join lateral (
            select e.into_id from memfold_internal._merges_in_force(p_tenant_id, array[i.id]) as e
            order by e.event_id desc
            limit 1
        ) as e on true
        where m.merged_into is distinct from e.into_id
        offset 0
    ) as x
    cross join lateral memfold_internal._memory(p_tenant_id, x.other_id) as o
    -- it joins a tree or leaves one, not both
    having count(*) = 1 and bool_and(num_nonnulls(x.merged_into, x.into_id) = 1);
    text_id := v_texts[1];
    texts := array(
        with recursive below (id) as (
            select text_id where text_id is not null
            union
            select o.memory_id
            from below as b
            cross join lateral (
                select o.memory_id from memfold.memories as o
                where o.tenant_id = p_tenant_id collate "C" and o.merged_into = b.id
                offset 0
            ) as o
        )
        select b.id from below as b
    );
end;
$$;

-- Whether a text that joins or leaves a memory (_moved) changes only sums over aliases there.
create or replace function memfold_internal._is_plain_move(p_tenant_id text, p_text_id uuid, p_root_id uuid, p_texts uuid[]) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    -- both sides are active, stated and on no timeline, and no text that moves has metadata or a validity
    return not exists (
        select
        from unnest(p_texts || p_root_id) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        left join lateral (
            select k.* from memfold.memory_counters as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = i.id
            offset 0
        ) as k on true
        where k.on_timeline is not false or k.observations = 0 or i.id <> p_root_id and (k.has_metadata or k.has_validity)
            or m.root_id is null and m.status <> 'active'
            or i.id in (p_text_id, p_root_id)
                and memfold_internal._is_slot(m.tenant_id, m.bucket_id, m.memory_type, m.predicate)
    ) and not exists (
        select
        from unnest(array[p_text_id, p_root_id]) as i (id)
        cross join lateral (
            select from memfold_internal._decisions as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id
                and e.action in ('rejected', 'pruned') and not e.undone
            offset 0
        ) as e
    );
end;
$$;

-- The number of observations in a memory's tree that are independent on their own side (p_texts, or the other texts of
-- the tree), but not in the tree, because both sides have their turns. p_side: the side whose turns are looked up.
create or replace function memfold_internal._shared_evidence(p_tenant_id text, p_texts uuid[], p_side uuid[], p_root_id uuid)
returns bigint
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    return (
        with turns as materialized (
            select distinct t.turn
            from unnest(p_side) as i (id)
            cross join lateral (
                select e.source_turn_ids from memfold.memory_events as e
                where e.tenant_id = p_tenant_id collate "C"
                    and (e.memory_id, e.event_id) >= (i.id, '00000000-0000-0000-0000-000000000000')
                    and (e.memory_id, e.event_id) <= (i.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                    and e.observation
                order by e.memory_id, e.event_id
                offset 0
            ) as e
            cross join lateral unnest(e.source_turn_ids) as t (turn)
        ),
        -- for each observation: whether others precede it in every turn that was new to its text, in the tree and on its side
        repeated as (
            select bool_and(n.precedes) as in_tree, bool_and(n.precedes_beside) as beside
            from (
                select distinct s.memory_id, s.event_id
                from turns as t
                cross join lateral memfold_internal._holders(p_tenant_id, t.turn, p_root_id) as s
            ) as l
            cross join lateral memfold_internal._events(p_tenant_id, array[l.event_id]) as e
            cross join lateral unnest(e.source_turn_ids) as t (turn)
            cross join lateral (
                select coalesce(bool_or(s.event_id < l.event_id), false) as precedes,
                    coalesce(bool_or(s.event_id < l.event_id and (s.memory_id = any(p_texts)) = (l.memory_id = any(p_texts))), false)
                    as precedes_beside,
                    bool_or(s.memory_id = l.memory_id and s.event_id = l.event_id) as is_new
                from memfold_internal._holders(p_tenant_id, t.turn, p_root_id) as s
            ) as n
            where n.is_new
            group by l.event_id
        )
        select count(*) from repeated as r where r.in_tree and not r.beside
    );
end;
$$;

-- The texts of a memory's tree that have a turn, each with its first event in that turn. Inlined by its callers.
create or replace function memfold_internal._holders(p_tenant_id text, p_turn text, p_root_id uuid)
returns table (memory_id uuid, event_id uuid)
language sql stable rows 2
begin atomic
    select s.memory_id, s.event_id
    from memfold.memory_sources as s
    cross join
        lateral (
            select k.root_id from memfold.memory_counters as k
            where k.tenant_id = s.tenant_id and k.memory_id = s.memory_id
            offset 0
        ) as k
    where
        s.tenant_id = p_tenant_id collate "C" and s.source_turn_id = p_turn collate "C"
        and memfold_internal._root(s.memory_id, k.root_id) = p_root_id
    offset 0;
end;

-- _derive_trees() in the common case of a merge or its undo: one text and its aliases join the tree of a memory, or leave
-- it (_moved, _is_plain_move). The caller holds the rows of the roots.
create or replace function memfold_internal._move(
    p_tenant_id text, p_text_id uuid, p_into_id uuid, p_root_id uuid, p_texts uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_leaves constant boolean := p_into_id is null;
    v_independent bigint;
    v_shared bigint;
    v_side uuid[] := p_texts;
    v_id uuid;
    -- sums over the texts that move, and over the aliases among them
    m record;
begin
    select count(*) as n, sum(k.observations)::bigint as observations, sum(k.independent)::bigint as independent,
        max(k.source_confidence) as source_confidence, max(k.extractor_confidence) as extractor_confidence,
        min(k.first_seen) as first_seen, max(k.last_seen) as last_seen,
        (sum(k.observations) filter (where i.id <> p_text_id))::bigint as alias_observations,
        max(k.source_confidence) filter (where i.id <> p_text_id) as alias_source_confidence,
        max(k.extractor_confidence) filter (where i.id <> p_text_id) as alias_extractor_confidence,
        min(k.first_seen) filter (where i.id <> p_text_id) as alias_first_seen,
        max(k.last_seen) filter (where i.id <> p_text_id) as alias_last_seen, max(n.event_id::text)::uuid as last_event
    into m
    from unnest(p_texts) as i (id)
    cross join lateral (
        select k.* from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = i.id
        offset 0
    ) as k
    cross join lateral (
        select n.event_id from memfold.memory_events as n
        where n.tenant_id = v_tenant_id and n.memory_id = i.id
        order by n.event_id desc
        limit 1
    ) as n;
    -- Look up the turns of the side with fewer statements.
    if m.observations > (
        select k.observations + coalesce(k.alias_observations, 0) - case when v_leaves then m.observations else 0 end
        from memfold.memory_counters as k
        where k.tenant_id = v_tenant_id and k.memory_id = p_root_id
    ) then
        v_side := array(
            select k.memory_id from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.root_id = p_root_id and k.memory_id <> all(p_texts)
        ) || p_root_id;
    end if;
    if v_leaves then
        v_shared := memfold_internal._shared_evidence(v_tenant_id, p_texts, v_side, p_root_id);
    end if;
    foreach v_id in array p_texts loop
        update memfold.memory_counters as k
        set root_id = case when v_leaves then nullif(p_text_id, v_id) else p_root_id end
        where k.tenant_id = v_tenant_id and k.memory_id = v_id;
        update memfold.memories as t
        set root_id = case when v_leaves then nullif(p_text_id, v_id) else p_root_id end,
            merged_into = case when v_id = p_text_id then p_into_id else t.merged_into end,
            status = case when v_leaves and v_id = p_text_id then 'active' else 'merged' end
        where t.tenant_id = v_tenant_id and t.memory_id = v_id;
    end loop;
    if not v_leaves then
        v_shared := memfold_internal._shared_evidence(v_tenant_id, p_texts, v_side, p_root_id);
    end if;
    v_independent := m.independent - coalesce((
        select r.observations
        from memfold_internal._repeated_evidence(v_tenant_id, p_texts, array_fill(p_text_id, array[cardinality(p_texts)])) as r
        where m.n > 1
    ), 0);
    update memfold.memory_counters as k
    set aliases = case when v_leaves then m.n - 1 else 0 end,
        alias_observations = case when v_leaves then m.alias_observations end,
        alias_independent = case when v_leaves and m.n > 1 then v_independent - k.independent end,
        alias_source_confidence = case when v_leaves then m.alias_source_confidence end,
        alias_extractor_confidence = case when v_leaves then m.alias_extractor_confidence end,
        alias_first_seen = case when v_leaves then m.alias_first_seen end,
        alias_last_seen = case when v_leaves then m.alias_last_seen end, last_event = greatest(k.last_event, m.last_event)
    where k.tenant_id = v_tenant_id and k.memory_id = p_text_id;
    if not v_leaves then
        update memfold.memory_counters as k
        set aliases = k.aliases + m.n, alias_observations = coalesce(k.alias_observations, 0) + m.observations,
            alias_independent = coalesce(k.alias_independent, 0) + v_independent - v_shared,
            alias_source_confidence = greatest(k.alias_source_confidence, m.source_confidence),
            alias_extractor_confidence = greatest(k.alias_extractor_confidence, m.extractor_confidence),
            alias_first_seen = least(k.alias_first_seen, m.first_seen), alias_last_seen = greatest(k.alias_last_seen, m.last_seen),
            last_event = greatest(k.last_event, m.last_event)
        where k.tenant_id = v_tenant_id and k.memory_id = p_root_id;
    else
        update memfold.memory_counters as k
        set aliases = k.aliases - m.n, alias_observations = nullif(k.alias_observations - m.observations, 0),
            alias_independent = case when k.alias_observations > m.observations then k.alias_independent - v_independent + v_shared end,
            last_event = greatest(k.last_event, m.last_event)
        where k.tenant_id = v_tenant_id and k.memory_id = p_root_id;
        -- only if an extreme may have come from the text that leaves, all remaining aliases are read
        update memfold.memory_counters as k
        set alias_source_confidence = o.source_confidence, alias_extractor_confidence = o.extractor_confidence,
            alias_first_seen = o.first_seen, alias_last_seen = o.last_seen
        from (
            select max(x.source_confidence) filter (where x.observations > 0) as source_confidence,
                max(x.extractor_confidence) filter (where x.observations > 0) as extractor_confidence,
                min(x.first_seen) as first_seen, max(x.last_seen) as last_seen
            from memfold.memory_counters as x
            where x.tenant_id = v_tenant_id and x.root_id = p_root_id and (
                select k.alias_first_seen = m.first_seen or k.alias_last_seen = m.last_seen or not exists (
                    select from memfold.memory_counters as y
                    where y.tenant_id = v_tenant_id and y.root_id = p_root_id and y.observations > 0
                        and y.source_confidence = k.alias_source_confidence
                ) or not exists (
                    select from memfold.memory_counters as y
                    where y.tenant_id = v_tenant_id and y.root_id = p_root_id and y.observations > 0
                        and y.extractor_confidence = k.alias_extractor_confidence
                )
                from memfold.memory_counters as k
                where k.tenant_id = v_tenant_id and k.memory_id = p_root_id
            )
            -- no row instead of a row of nulls
            having count(*) > 0
        ) as o
        where k.tenant_id = v_tenant_id and k.memory_id = p_root_id;
        update memfold.memory_counters as k
        set alias_source_confidence = null, alias_extractor_confidence = null, alias_first_seen = null, alias_last_seen = null
        where k.tenant_id = v_tenant_id and k.memory_id = p_root_id and not exists (
            -- (a text that was only recalled has no counters)
            select from memfold.memory_counters as y where y.tenant_id = v_tenant_id and y.root_id = p_root_id
        );
    end if;
end;
$$;
