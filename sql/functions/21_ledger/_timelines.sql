create or replace function memfold_internal._derived_timelines(tenant_id text, memory_ids uuid[])
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
            select k.memory_id from memfold.memory_totals as k
            where k.tenant_id = _derived_timelines.tenant_id collate "C" and k.memory_id = i.id
                and k.on_timeline and k.observations > 0
            offset 0
        ) as k
        cross join lateral (
            select r.memory_id, r.bucket_id, r.scope_key, r.predicate is not null as has_slot, r.object
            from memfold.memories as r
            where r.tenant_id = _derived_timelines.tenant_id collate "C" and r.memory_id = k.memory_id
                -- a pruned memory may have observations
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
            -- Each with its own time. Pairs and their order, as in _derived_trees: by memory_id alone, and without statistics, the tenant's
            -- 22,900 rows were read for each of 622 texts.
            select e.* from memfold_internal._ledger as e
            where e.tenant_id = _derived_timelines.tenant_id collate "C"
                and (e.memory_id, e.event_id) >= (t.id, '00000000-0000-0000-0000-000000000000')
                and (e.memory_id, e.event_id) <= (t.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                and (e.observation or e.action = 'superseded')
            order by e.memory_id, e.event_id
            offset 0
        ) as e
    ),
    lost as (
        select t.root, t.is_of_scope, e.memory_id, e.tier, e.on_timeline
        from texts as t
        cross join lateral (
            -- pairs and their order, as in _derived_trees
            select e.memory_id, e.tier, e.on_timeline
            from pg_catalog.unnest(array['superseded', 'historical']) as a (action)
            cross join lateral (
                select e.memory_id, e.tier, e.on_timeline from memfold_internal._ledger as e
                where e.tenant_id = _derived_timelines.tenant_id collate "C" and e.target_id is not null
                    and (e.target_id, e.action) >= (t.id, a.action collate "C") and (e.target_id, e.action) <= (t.id, a.action collate "C")
                    and not e.undone
                order by e.target_id, e.action
                offset 0
            ) as e
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
        cross join lateral memfold_internal._memory(_derived_timelines.tenant_id, l.memory_id) as m
        -- a memory superseded by a value of another slot, on a timeline with it, is not by that a value of its own slot
        where l.is_of_scope and l.on_timeline and (m.bucket_id, m.scope_key) = (r.bucket_id, r.scope_key)
    ),
    -- All values of a single-valued slot are on one timeline; otherwise a judged contradiction puts two roots on one. A value that was
    -- merged into a text of another scope puts that text on no slot's timeline.
    labels as (
        select r.root, case when p.root is null then r.root::text else r.bucket_id || ' ' || r.scope_key end as label,
            p.root is not null as of_scope
        from roots as r
        -- An alias that was restated as a value of its root's slot, and is a root again, has no slot without a predicate.
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
    -- once per label, not once per statement: for a slot with 3,365 statements and 112 values that was 95 % of the time
    tied as (
        select r.here, min(r.there) as there from reach as r group by r.here
    ),
    assertions as (
        select least(l.label, i.there) as timeline, l.of_scope, l.root, s.observed_at, s.event_id,
            -- a value that was judged against another stands for itself
            case when r.object is null or l.root in (select j.root from judged as j) then l.root::text
                else r.object end as stated
        from stated as s
        join labels as l on l.root = s.root
        left join tied as i on i.here = l.label
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
    -- where the next value begins. By a window: a self-join on timeline alone produced 3,000,000 rows for a slot of 2,600 values.
    ended as (
        select n.*, min(n.observed_at)
            over (partition by n.timeline order by n.segment groups between 1 following and 1 following) as ends
        from numbered as n
    )
    select distinct on (n.timeline, n.segment, n.root)
        n.timeline, n.of_scope, n.root, n.observed_at, n.event_id, n.ends
    from ended as n
    order by n.timeline, n.segment, n.root, n.observed_at, n.event_id;
end;
$$;
comment on function memfold_internal._derived_timelines is
'The timelines of the roots among memory_ids (which include all roots of a timeline, see _timeline_texts): their assertions in order of
(observed_at, event_id), equal neighbours collapsed; one interval [valid_from, valid_to) for each value, the last one open. A value is the
canonical object, else the memory. of_scope: the memory is a value of its scope''s single-valued slot, rather than of a question that a
judge found. Only reads.';

create or replace function memfold_internal._timeline_texts(tenant_id text, memory_ids uuid[]) returns uuid[]
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
        from unnest(memfold_internal._trees(v_tenant_id, v_new)) as t (id)
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
                    select from memfold_internal._decisions as e
                    where e.tenant_id = v_tenant_id and e.memory_id = i.id and e.on_timeline
                        and e.action in ('inserted', 'superseded', 'historical')
                    union all
                    -- pairs and their order, as in _derived_trees
                    select from unnest(array['superseded', 'historical']) as a (action)
                    cross join lateral (
                        select from memfold.memory_events as e
                        where e.tenant_id = v_tenant_id and e.target_id is not null
                            and (e.target_id, e.action) >= (i.id, a.action collate "C") and (e.target_id, e.action) <= (i.id, a.action collate "C")
                            and e.on_timeline
                        order by e.target_id, e.action
                        offset 0
                    ) as e
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
                select e.target_id as id from memfold_internal._decisions as e
                where e.tenant_id = v_tenant_id and e.memory_id = i.id and e.action = 'superseded' and e.tier = 3
                union all
                (select e.memory_id from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.target_id is not null
                    and (e.target_id, e.action, e.tier) >= (i.id, 'superseded', 3) and (e.target_id, e.action, e.tier) <= (i.id, 'superseded', 3)
                order by e.target_id, e.action, e.tier)
                offset 0
            ) as e
        ) as x
        where x.id <> all(v_known);
        exit when v_new is null;
    end loop;
    return v_known;
end;
$$;
comment on function memfold_internal._timeline_texts is
'The texts of the trees that contain memory_ids, and of all trees that are, or ever were, on one timeline with them: what a change of
memory_ids may change. Only reads.';

create or replace function memfold_internal._slot_memories(tenant_id text, bucket_id text, scope_key bigint) returns uuid[]
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
comment on function memfold_internal._slot_memories is 'The memories of a slot, including aliases and history. Only reads.';

create or replace function memfold_internal._last_seen(tenant_id text, memory_ids uuid[]) returns timestamptz
language plpgsql stable
as $$
begin
    return (
        select max(k.last_seen)
        from pg_catalog.unnest(memfold_internal._timeline_texts(tenant_id, memory_ids)) as i (id)
        cross join lateral (
            select k.last_seen from memfold.memory_totals as k
            where k.tenant_id = _last_seen.tenant_id collate "C" and k.memory_id = i.id
            offset 0
        ) as k
    );
end;
$$;
comment on function memfold_internal._last_seen is
'The last observation of memory_ids and of all memories that are, or ever were, on one timeline with them: a statement of now comes after
it. Null: there is none. Only reads.';

create or replace function memfold_internal._current_value(tenant_id text, bucket_id text, scope_key bigint)
returns table (memory_id uuid, object text, last_seen timestamptz)
language plpgsql stable rows 1
as $$
begin
    return query
    select m.memory_id, memfold.canonicalize(m.object, 'prose/1'), k.last_seen
    from memfold.memories as m
    -- from the slot to its counters, whatever the statistics say: there may be none yet
    cross join lateral (
        select k.on_timeline, k.last_seen from memfold.memory_totals as k
        where k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        offset 0
    ) as k
    where m.tenant_id = _current_value.tenant_id collate "C"
        and m.bucket_id = _current_value.bucket_id collate "C"
        and m.scope_key = _current_value.scope_key
        and m.status = 'active'
        -- contested ones are active, but not the value of the slot
        and (k.on_timeline or not exists (
            select from memfold.memory_events as e
            cross join lateral (
                select from memfold.memory_events as u
                where u.tenant_id = e.tenant_id and u.undoes = e.event_id and u.tier is null
                offset 0
            ) as u
            where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id and e.tier >= 2 and e.on_timeline
        ) and not exists (
            select from memfold.memory_events as e
            cross join lateral (
                select from memfold.memory_events as u
                where u.tenant_id = e.tenant_id and u.undoes = e.event_id and u.tier is null
                offset 0
            ) as u
            where e.tenant_id = m.tenant_id and e.target_id = m.memory_id and e.tier >= 2 and e.on_timeline
        ))
    order by k.on_timeline desc, k.last_seen desc, m.memory_id desc
    limit 1;
end;
$$;
comment on function memfold_internal._current_value is
'The current value of a single-valued slot: its memory, canonical object and last observation. No row: there is none, or only contested
ones.';

create or replace function memfold_internal._stated_last(tenant_id text, members memfold.memories[]) returns uuid
language plpgsql stable
as $$
begin
    return (
        select m.memory_id
        from pg_catalog.unnest(members) as m
        join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        cross join lateral memfold_internal._last_statement(m.tenant_id, m.memory_id) as e (event_id)
        order by k.last_seen desc, e.event_id desc
        limit 1
    );
end;
$$;
comment on function memfold_internal._stated_last is 'The one of these roots that was stated last, ties by ledger order. Only reads.';
