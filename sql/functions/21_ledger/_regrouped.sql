-- _derived_times() in the common case of a merge or its undo between values of one slot. Only the roots to which
-- statements belong change, so the times at which the trees were current are divided among their present roots.
-- p_members: all texts of the trees. Null: the case is not that simple.
create or replace function memfold_internal._regrouped(p_tenant_id text, p_members uuid[]) returns memfold_internal.derived_time[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_roots uuid[];
    v_slot uuid;
    v_open uuid[];
    v_said memfold_internal.statement[];
begin
    -- Required: all texts are in one slot, all roots are alive or were never stated, no text has a validity, and if values
    -- change, none of the tenant has: a statement with a validity limits others of its value (_said).
    select array_agg(r.memory_id) filter (where r.status in ('active', 'superseded')),
        min(memfold_internal._slot_key(r.tenant_id, r.bucket_id, r.memory_type, r.predicate, r.scope_key)::text)::uuid
    into v_roots, v_slot
    from memfold_internal._roots(v_tenant_id, p_members) as r;
    if v_slot is null or v_roots is null or exists (
        select
        from unnest(p_members) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
        cross join lateral (
            select k.has_validity from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = i.id
            offset 0
        ) as k
        -- statements about a dead root do not count; a root that was never stated has none
        where m.scope_key <> v_slot or k.has_validity or m.status = 'rejected' or m.status = 'withdrawn' and exists (
            select from memfold.memory_events as e
            where e.tenant_id = v_tenant_id and e.memory_id = i.id and (e.observation or e.action in ('pruned', 'superseded'))
            offset 0
        )
    ) or exists (
        select from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.has_validity
    ) and 1 < (
        select count(distinct coalesce(memfold.canonicalize(m.object, 'prose/1'), ''))
        from unnest(p_members) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
    ) or memfold_internal._related(v_tenant_id, v_roots) <> '{}' then
        return null;
    end if;
    -- Required: one value of the slot is current for ever, and was stated last.
    v_open := array(
        select i.memory_id from memfold.memory_intervals as i
        where i.tenant_id = v_tenant_id and i.slot_key = v_slot
            and case when i.valid_to is null then 'infinity' else i.valid_to end = 'infinity'
    );
    if cardinality(v_open) <> 1 or not exists (
        select from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = v_open[1] and k.is_additive
    ) then
        return null;
    end if;
    v_said := array(
        select u from memfold_internal._said(v_tenant_id, v_roots, v_roots::text[], array_fill(null::uuid, array[cardinality(v_roots)])) as u
    );
    return array(
        with shown as (
            select unnest(range_agg(tstzrange(i.valid_from, i.valid_to))) as r
            from unnest(p_members) as m (id)
            cross join lateral (
                select i.* from memfold.memory_intervals as i where i.tenant_id = v_tenant_id and i.memory_id = m.id
                offset 0
            ) as i
        ),
        said as (
            select distinct on (u.observed_at) u.root_id, u.observed_at from unnest(v_said) as u
            order by u.observed_at, u.event_id desc
        ),
        -- each statement holds until the next one
        segments as (
            select s.root_id, tstzrange(s.observed_at, lead(s.observed_at) over (order by s.observed_at)) as r from said as s
        ),
        times as (
            select s.root_id, range_agg(h.r * s.r) as times
            from shown as h
            join segments as s on h.r && s.r
            group by s.root_id
        )
        select (r.id, v_slot, true, not coalesce(upper_inf(t.times), false), coalesce(upper_inf(t.times), false),
            coalesce(t.times, '{}'))::memfold_internal.derived_time
        from unnest(v_roots) as r (id)
        left join times as t on t.root_id = r.id
    );
end;
$$;
