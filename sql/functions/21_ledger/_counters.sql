-- Each text has one row of counters, from its first observation on; the row of a root also has the sums over its aliases (alias_*). So
-- a merge adds and its undo subtracts, however many observations there are. Only the text of a withdrawn observation is counted again
-- from the ledger. docs/decisions/0011 has the reasons.

create or replace view memfold.memory_totals with (security_invoker = true) as
select
    k.tenant_id,
    k.memory_id,
    k.is_additive,
    k.on_timeline,
    k.aliases,
    k.observations + coalesce(k.alias_observations, 0) as observations,
    k.independent + coalesce(k.alias_independent, 0) as independent,
    greatest(k.source_confidence, k.alias_source_confidence) as source_confidence,
    greatest(k.extractor_confidence, k.alias_extractor_confidence) as extractor_confidence,
    least(k.first_seen, k.alias_first_seen) as first_seen,
    greatest(k.last_seen, k.alias_last_seen) as last_seen,
    k.access_count,
    k.helpful_count,
    k.harmful_count,
    k.last_accessed,
    k.last_event,
    k.decayed_confidence,
    k.decayed_at,
    k.valid_from,
    k.valid_until
from memfold.memory_counters as k
where k.root_id is null;
comment on view memfold.memory_totals is
'The counters of memories, each over its own observations and those of its aliases, which have no row here.';
comment on column memfold.memory_totals.observations is 'repetition_count + 1.';
comment on column memfold.memory_totals.independent is
'Observations with a source turn that no earlier observation had, or without source turns: n + 1 of the confidence formula.';
comment on column memfold.memory_totals.first_seen is 'Null, like last_seen: no observation is in force.';

-- Adds the source turns (sorted, distinct) of one observation to those of its text. Returns the turns that are new to the text; null: none.
create or replace function memfold_internal._add_turns(
    p_tenant_id text, p_memory_id uuid, p_source_turn_ids text[], p_event_id uuid
) returns text[]
language plpgsql volatile
as $$
declare
    v_new text[];
begin
    with added as (
        insert into memfold.memory_sources as s (tenant_id, source_turn_id, memory_id, event_id)
        select p_tenant_id, t.turn, p_memory_id, p_event_id
        from unnest(p_source_turn_ids) as t (turn)
        on conflict do nothing
        returning s.source_turn_id
    )
    select array_agg(a.source_turn_id) into v_new from added as a;
    return v_new;
end;
$$;

-- Makes an event the first one of its text in those of its turns whose first event has a higher id. Events of a batch may
-- be written after events with higher ids.
create or replace function memfold_internal._precede(
    p_tenant_id text, p_memory_id uuid, p_source_turn_ids text[], p_event_id uuid
) returns void
language plpgsql volatile
as $$
declare
    v_turn text;
begin
    foreach v_turn in array p_source_turn_ids loop
        update memfold.memory_sources as s
        set event_id = p_event_id
        where s.tenant_id = p_tenant_id collate "C" and s.source_turn_id = v_turn collate "C"
            and s.memory_id = p_memory_id and s.event_id > p_event_id;
    end loop;
end;
$$;

-- Whether at least one of these turns is in no other text of the tree.
create or replace function memfold_internal._is_new_to_tree(
    p_tenant_id text, p_memory_id uuid, p_root_id uuid, p_turns text[]
) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    -- Start from the turns: few texts have one, but the root may have many aliases.
    return exists (
        select from unnest(p_turns) as t (turn)
        where not exists (
            select from (
                select s.memory_id from memfold.memory_sources as s
                where s.tenant_id = p_tenant_id collate "C" and s.source_turn_id = t.turn collate "C"
                    and s.memory_id <> p_memory_id
                offset 0
            ) as s
            cross join lateral memfold_internal._memory(p_tenant_id, s.memory_id) as m
            where p_root_id in (m.memory_id, m.root_id)
        )
    );
end;
$$;

-- Adds one observation to the counters and source turns of its text. The caller holds the text's row, or the text is new.
-- p_root_id: null for a root. Returns the turns that are new to the text; null: none.
create or replace function memfold_internal._count_statement(
    p_tenant_id text, p_memory_id uuid, p_root_id uuid, p_source_turn_ids text[], p_source_confidence double precision,
    p_extractor_confidence double precision, p_observed_at timestamptz, p_event_id uuid, p_has_metadata boolean, p_has_validity boolean
) returns text[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_new text[];
begin
    if p_source_turn_ids <> '{}' then
        v_new := memfold_internal._add_turns(p_tenant_id, p_memory_id, p_source_turn_ids, p_event_id);
    end if;
    insert into memfold.memory_counters as k (
        tenant_id, memory_id, root_id, is_additive, observations, independent, source_confidence, extractor_confidence, first_seen,
        last_seen, has_metadata, has_validity, last_event
    ) values (
        p_tenant_id, p_memory_id, p_root_id, p_root_id is null, 1, case when p_source_turn_ids = '{}'
            or v_new is not null then 1 else 0 end, p_source_confidence,
        p_extractor_confidence, p_observed_at, p_observed_at, p_has_metadata, p_has_validity, p_event_id
    )
    on conflict (tenant_id, memory_id) do update
    set observations = k.observations + 1,
        independent = k.independent + excluded.independent,
        source_confidence = greatest(k.source_confidence, excluded.source_confidence),
        extractor_confidence = greatest(k.extractor_confidence, excluded.extractor_confidence),
        first_seen = least(k.first_seen, excluded.first_seen),
        last_seen = greatest(k.last_seen, excluded.last_seen),
        has_metadata = k.has_metadata or excluded.has_metadata,
        has_validity = k.has_validity or excluded.has_validity;
    return v_new;
end;
$$;

-- Counts texts again from their ledger rows, after some of these were undone, changed or erased. The caller holds the
-- rows of the texts' roots, and then derives the sums of the roots.
create or replace function memfold_internal._recount(p_tenant_id text, p_memory_ids uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    d record;
begin
    for d in
        select i.id, o.*, s.stated_at
        from (select distinct x.id from unnest(p_memory_ids) as x (id) where x.id is not null) as i
        cross join lateral (
            with observed as materialized (
                select e.* from memfold_internal._observed as e
                where e.tenant_id = p_tenant_id collate "C"
                    and (e.memory_id, e.event_id) >= (i.id, '00000000-0000-0000-0000-000000000000')
                    and (e.memory_id, e.event_id) <= (i.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                order by e.memory_id, e.event_id
            )
            select count(*) as observations, count(*) filter (where o.source_turn_ids = '{}') + (
                select count(distinct f.event_id)
                from (
                    select distinct on (t.turn) o.event_id from observed as o, unnest(o.source_turn_ids) as t (turn)
                    order by t.turn, o.event_id
                ) as f
            ) as independent, max(o.source_confidence) as source_confidence, max(o.extractor_confidence) as extractor_confidence,
                min(o.observed_at) as first_seen, max(o.observed_at) as last_seen,
                coalesce(bool_or(o.metadata <> '{}'), false) as has_metadata,
                coalesce(bool_or(num_nonnulls(o.valid_from, o.valid_until) > 0), false) as has_validity
            from observed as o
        ) as o
        cross join lateral (
            -- a manual supersession also states the newer value
            select max(e.observed_at) as stated_at from memfold_internal._decisions as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id and e.action = 'superseded' and e.tier = 3
                and not e.undone
        ) as s
        order by i.id
    loop
        update memfold.memory_counters as k
        set observations = d.observations, independent = d.independent, source_confidence = coalesce(d.source_confidence, 0),
            extractor_confidence = coalesce(d.extractor_confidence, 0), first_seen = d.first_seen,
            last_seen = greatest(d.last_seen, d.stated_at), has_metadata = d.has_metadata, has_validity = d.has_validity
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = d.id;
    end loop;
end;
$$;

-- Corrects memory_sources after ledger rows were undone, restored or erased, and counts their texts again. Each turn of
-- such a row gets the first observation that is in force now, or is removed from the text. The arrays have an element for
-- each row and turn; turn null: the row has none. The caller holds the rows of the texts' roots.
create or replace function memfold_internal._restate_turns(
    p_tenant_id text, p_memory_ids uuid[], p_turns text[], p_event_ids uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    d record;
begin
    for d in
        select l.memory_id, l.turn, n.event_id
        from (
            select distinct i.memory_id, i.turn
            from unnest(p_memory_ids, p_turns, p_event_ids) as i (memory_id, turn, event_id)
            left join lateral (
                select s.event_id from memfold.memory_sources as s
                where s.tenant_id = p_tenant_id collate "C" and s.source_turn_id = i.turn collate "C"
                    and s.memory_id = i.memory_id
                offset 0
            ) as s on true
            where i.turn is not null and coalesce(s.event_id >= i.event_id, true)
        ) as l
        left join lateral (
            select e.event_id from memfold_internal._observed as e
            where e.tenant_id = p_tenant_id collate "C"
                and (e.memory_id, e.event_id) >= (l.memory_id, '00000000-0000-0000-0000-000000000000')
                and (e.memory_id, e.event_id) <= (l.memory_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                and e.source_turn_ids @> array[l.turn]
            order by e.memory_id, e.event_id
            limit 1
        ) as n on true
        order by l.turn, l.memory_id
    loop
        if d.event_id is null then
            delete from memfold.memory_sources as o
            where o.tenant_id = p_tenant_id collate "C" and o.source_turn_id = d.turn and o.memory_id = d.memory_id;
        else
            insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
            values (p_tenant_id, d.turn, d.memory_id, d.event_id)
            on conflict (tenant_id, source_turn_id, memory_id) do update set event_id = excluded.event_id;
        end if;
    end loop;
    perform memfold_internal._recount(p_tenant_id, p_memory_ids);
end;
$$;

-- For each tree, the number of observations that are independent in their own text but not in the tree, because other
-- texts had their turns before; no row: none. p_memory_ids, p_root_ids: all texts of the trees, with their roots.
create or replace function memfold_internal._repeated_evidence(p_tenant_id text, p_memory_ids uuid[], p_root_ids uuid[])
returns table (root_id uuid, observations bigint)
language plpgsql stable rows 1
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with texts as materialized (
        select i.id, i.root, row_number() over (partition by i.root order by k.observations desc, i.id) as place
        from unnest(p_memory_ids, p_root_ids) as i (id, root)
        cross join lateral (
            select k.observations from memfold.memory_counters as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = i.id
            offset 0
        ) as k
    ),
    -- the turns of all texts of a tree except the one stated most often: only turns in two texts matter
    turns as materialized (
        select distinct s.root, t.turn
        from texts as s
        cross join lateral (
            select e.source_turn_ids from memfold.memory_events as e
            where e.tenant_id = p_tenant_id collate "C"
                and (e.memory_id, e.event_id) >= (s.id, '00000000-0000-0000-0000-000000000000')
                and (e.memory_id, e.event_id) <= (s.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                and e.observation
            order by e.memory_id, e.event_id
            offset 0
        ) as e
        cross join lateral unnest(e.source_turn_ids) as t (turn)
        where s.place > 1
    ),
    holders as materialized (
        select t.root, t.turn, s.memory_id, s.event_id, first_value(s.event_id) over (partition by t.root, t.turn order by s.event_id)
            as first_event
        from turns as t
        cross join lateral (
            select s.memory_id, s.event_id from memfold.memory_sources as s
            where s.tenant_id = p_tenant_id collate "C" and s.source_turn_id = t.turn
            offset 0
        ) as s
        join texts as x on x.id = s.memory_id and x.root = t.root
    )
    -- observations that are preceded by another text's in each turn that was new to their own text
    select l.root, count(*)
    from (select distinct h.root, h.memory_id, h.event_id from holders as h where h.event_id > h.first_event) as l
    where not exists (
        select from memfold_internal._events(p_tenant_id, array[l.event_id]) as e
        cross join lateral unnest(e.source_turn_ids) as t (turn)
        cross join lateral (
            select from memfold.memory_sources as s
            where s.tenant_id = e.tenant_id and s.source_turn_id = t.turn and s.memory_id = l.memory_id and s.event_id = l.event_id
            offset 0
        ) as s
        where not exists (
            select from holders as h
            where h.root = l.root and h.turn = t.turn and h.first_event < l.event_id
        )
    )
    group by l.root;
end;
$$;
