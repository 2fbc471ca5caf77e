-- The ledger, and the state that follows from it. memory_events is append-only; its rows in force, in the order of their
-- ids, determine all else about a memory: status, the tree of texts merged into it, counters, source turns, intervals.
--
-- Modules that change memories call it under the locks of 12_locks: they write ledger rows (_record.sql), then call
-- derive_scope(), which recomputes trees and times of all memories concerned. A restatement of an active memory only adds
-- to counters (_counters.sql), and a merge or its undo moves sums (_moved.sql). The module writes memory_events,
-- memory_counters, memory_sources, memory_intervals, runs, and the derived columns of memories and memory_vectors.
--
-- What must stay true: counters are locked before they change, roots by id, then aliases by id; a later event has a
-- higher id; and what is added must equal what is derived. check_invariants() recomputes a tenant from the ledger.
--
-- Statements are written for tables without statistics: a LATERAL subquery with OFFSET 0 is one index lookup per id, and a
-- range of pairs (memory_id, event_id) in index order reads the rows of one text, whereas for a join or plain condition
-- the planner may read the whole tenant. Arrays of ids tempt it to replan, which takes longer: hence force_generic_plan.

-- The intervals, status and flags of a tenant's roots that differ from those that follow from the statements in force,
-- one row each: the part of check_invariants() about times.
-- Longer than 150 lines: the three sentences of docs/rules.md once more, at each moment when one of their conditions changes.
create or replace function memfold_internal._check_times(p_tenant_id text)
returns table (memory_id uuid, invariant text, expected text, actual text)
language plpgsql stable
set jit = off
-- the planner expects one row from each step
set enable_nestloop = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
begin
    return query
    with roots as materialized (
        select m.memory_id as id, m.status, k.on_timeline, k.is_additive, s.slot,
            num_nonnulls(k.valid_from, k.valid_until) > 0 as has_validity,
            case when s.slot is not null and m.object is not null then s.slot || ' ' || memfold.canonicalize(m.object, 'prose/1')
                else m.memory_id::text end as value
        from memfold.memories as m
        join memfold.memory_counters as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        cross join lateral (
            select memfold_internal._slot_key(m.tenant_id, m.bucket_id, m.memory_type, m.predicate, m.scope_key) as slot
            offset 0
        ) as s
        where m.tenant_id = v_tenant_id and m.root_id is null and m.status in ('active', 'superseded')
    ),
    said as materialized (
        select r.id, r.value, r.slot, e.observed_at as at, e.event_id, coalesce(e.valid_from, e.observed_at) as begins,
            coalesce(e.valid_until, 'infinity') as ends, num_nonnulls(e.valid_from, e.valid_until) > 0 as is_timed
        from roots as r
        join memfold.memories as m on m.tenant_id = v_tenant_id and memfold_internal._root(m.memory_id, m.root_id) = r.id
        join memfold_internal._statements as e on e.tenant_id = v_tenant_id and e.memory_id = m.memory_id
    ),
    words as materialized (
        select distinct on (a.value, b.value) a.value as one, b.value as other, w.is_apart, a.slot as slot_one, b.slot as slot_other
        from memfold_internal._last_words(v_tenant_id, array(
            select m.memory_id from memfold.memories as m where m.tenant_id = v_tenant_id
        )) as w
        join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = w.memory_id
        join memfold.memories as o on o.tenant_id = v_tenant_id and o.memory_id = w.other_id
        join roots as a on a.id = memfold_internal._root(m.memory_id, m.root_id)
        join roots as b on b.id = memfold_internal._root(o.memory_id, o.root_id)
        where a.value <> b.value
        order by a.value, b.value, w.event_id desc
    ),
    -- the memories that an open run of a changed rule concerns, and the memories that contradict them
    waiting as materialized (
        select r.id, r.value
        from memfold.runs as o
        join memfold.memories as m on m.tenant_id = o.tenant_id and m.predicate is not null
            and coalesce(o.arguments ->> 'predicate' = memfold_internal._predicate_1(m.predicate), true)
        join roots as r on r.id = m.memory_id
        where o.tenant_id = v_tenant_id and o.kind = 'predicate' and o.status = 'open'
    ),
    unsettled as materialized (
        select w.id from waiting as w
        union
        select r.id from roots as r join words as o on o.one = r.value join waiting as w on w.value = o.other
    ),
    -- slots in which only the order of the statements counts
    plain as materialized (
        select r.slot from roots as r where r.slot is not null
        except
        select s.slot from said as s where s.is_timed
        except
        (select w.slot_one from words as w union select w.slot_other from words as w)
    ),
    segments as (
        select s.slot, s.id, s.at, s.id is distinct from lag(s.id) over (partition by s.slot order by s.at) as starts
        from (
            select distinct on (s.slot, s.at) s.slot, s.id, s.at
            from said as s
            where s.slot in (select p.slot from plain as p)
            order by s.slot, s.at, s.event_id desc
        ) as s
    ),
    expected as (
        select g.id, g.at as valid_from, lead(g.at) over (partition by g.slot order by g.at) as valid_to
        from segments as g
        where g.starts
    ),
    actual as materialized (
        select i.memory_id as id, i.valid_from, i.valid_to, i.slot_key
        from memfold.memory_intervals as i
        where i.tenant_id = v_tenant_id
    ),
    rivals as materialized (
        select w.one, w.other from words as w where not w.is_apart
    ),
    timed as materialized (
        select distinct s.id from said as s where s.is_timed
    ),
    -- the other roots on a timeline, and the values that exclude them
    special as materialized (
        select r.id, r.value, r.slot from roots as r
        where r.slot is not null and r.slot not in (select p.slot from plain as p)
            or r.slot is null and (r.id in (select t.id from timed as t) or r.value in (select o.one from rivals as o))
    ),
    excluded as materialized (
        select r.id, v.value as other
        from special as r
        join (select distinct o.value, o.slot from roots as o) as v on v.slot = r.slot and v.value <> r.value
        left join words as w on w.one = r.value and w.other = v.value
        where w.is_apart is not true
        union
        select r.id, o.other from special as r join rivals as o on o.one = r.value
    ),
    matters as materialized (
        select r.id, r.value, s.begins, s.ends from special as r join said as s on s.value = r.value
        union all
        select r.id, r.value, s.begins, s.ends
        from special as r
        join excluded as x on x.id = r.id
        join said as s on s.value = x.other
    ),
    moments as materialized (
        select m.id, m.value, m.begins as at from matters as m
        union
        select m.id, m.value, m.ends from matters as m where m.ends < 'infinity'
    ),
    -- the statements of each value, the last one first
    histories as materialized (
        select s.value, array_agg(s.id order by s.at desc, s.event_id desc) as ids,
            array_agg(s.at order by s.at desc, s.event_id desc) as ats,
            array_agg(s.event_id order by s.at desc, s.event_id desc) as events,
            array_agg(s.begins order by s.at desc, s.event_id desc) as begins, array_agg(s.ends order by s.at desc, s.event_id desc) as ends
        from said as s
        where s.value in (select r.value from special as r union all select x.other from excluded as x)
        group by s.value
    ),
    decisive as materialized (
        select o.id, o.at, d.id as root_id, d.at as said_at, d.event_id, o.at < d.ends as holds
        from moments as o
        join histories as h on h.value = o.value
        left join lateral (
            select u.* from unnest(h.ids, h.ats, h.events, h.begins, h.ends) with ordinality as u (id, at, event_id, begins, ends, place)
            where u.begins <= o.at
            order by u.place
            limit 1
        ) as d on true
    ),
    blocked as materialized (
        select distinct d.id, d.at
        from decisive as d
        join excluded as x on x.id = d.id
        join histories as h on h.value = x.other
        cross join lateral (
            select u.* from unnest(h.ats, h.events, h.begins, h.ends) with ordinality as u (at, event_id, begins, ends, place)
            where u.begins <= d.at
            order by u.place
            limit 1
        ) as u
        where d.root_id = d.id and d.holds and d.at < u.ends and (u.at, u.event_id) > (d.said_at, d.event_id)
    ),
    currents as (
        select d.id, d.at, coalesce(d.root_id = d.id and d.holds, false) and b.id is null as is_current
        from decisive as d
        left join blocked as b on b.id = d.id and b.at = d.at
    ),
    lasts as materialized (
        select distinct on (l.id) l.id, l.last_id, l.at
        from (
            select r.id, s.id as last_id, s.at, s.event_id
            from roots as r
            join said as s on coalesce(s.slot::text, s.value) = coalesce(r.slot::text, r.value)
            union all
            select r.id, s.id, s.at, s.event_id
            from roots as r
            join rivals as o on o.one = r.value
            join said as s on s.value = o.other
        ) as l
        order by l.id, l.at desc, l.event_id desc
    ),
    ends as materialized (
        select a.id, max(coalesce(a.valid_to, 'infinity')) as at, max(a.valid_from) filter (where a.valid_to is null) as open_from
        from actual as a
        group by a.id
    ),
    states as (
        select r.*, l.at as last_at, l.last_id, e.at as ends, e.open_from,
            r.slot is not null or r.value in (select o.one from rivals as o) as has_rivals,
            r.id in (select t.id from timed as t) as is_timed,
            exists (select from words as w where w.is_apart and w.slot_one = r.slot and w.slot_other = r.slot) as is_lifted
        from roots as r
        join lasts as l on l.id = r.id
        left join ends as e on e.id = r.id
    ),
    found as (
        select coalesce(e.id, a.id) as id, 'interval' as invariant, format('%s to %s', e.valid_from, e.valid_to) as expected,
            format('%s to %s', a.valid_from, a.valid_to) as actual
        from expected as e
        full join (select a.* from actual as a where a.slot_key in (select p.slot from plain as p)) as a
            on a.id = e.id and a.valid_from = e.valid_from and a.valid_to is not distinct from e.valid_to
        where e.id is null or a.id is null
        union all
        select c.id, 'current at ' || c.at, c.is_current::text, (not c.is_current)::text
        from currents as c
        left join actual as a on a.id = c.id and a.valid_from <= c.at and (c.at < a.valid_to or a.valid_to is null)
        group by c.id, c.at, c.is_current
        having c.is_current <> (count(a.id) > 0)
        union all
        select x.id, 'interval begins or ends for a reason', null, x.at::text
        from (
            select a.id, a.valid_from as at from actual as a
            where a.id not in (select r.id from roots as r where r.slot in (select p.slot from plain as p))
            union
            select a.id, a.valid_to from actual as a
            where a.valid_to is not null and a.id not in (select r.id from roots as r where r.slot in (select p.slot from plain as p))
            except
            select o.id, o.at from moments as o
        ) as x
        union all
        select t.id, x.name, x.expected, x.actual
        from states as t
        cross join lateral (
            select t.has_rivals or t.is_timed as on_timeline,
                case when t.has_rivals and (t.ends > t.last_at) is not true then 'superseded' else 'active' end as status
        ) as o
        cross join lateral (values
            ('on a timeline', o.on_timeline::text, t.on_timeline::text),
            ('status', o.status, t.status),
            ('additive', (o.status = 'active' and not t.has_validity and not t.is_lifted
                and (not o.on_timeline or t.last_id = t.id and coalesce(t.open_from <= t.last_at, false)))::text, t.is_additive::text)
        ) as x (name, expected, actual)
        where x.expected <> x.actual
    )
    select f.* from found as f where f.id not in (select u.id from unsettled as u);
end;
$$;
