-- The statements in force about roots, each with the time for which it decides that its value holds (may be empty), by
-- slot or value, the last one first. p_root_values, p_slot_keys: value and slot of each root.
create or replace function memfold_internal._said(p_tenant_id text, p_root_ids uuid[], p_root_values text[], p_slot_keys uuid[])
returns setof memfold_internal.statement
language plpgsql stable rows 10
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with said as (
        select r.id as root_id, r.value, r.slot_key, e.observed_at, e.event_id,
            coalesce(e.valid_from, e.observed_at) as begins, coalesce(e.valid_until, 'infinity') as ends,
            num_nonnulls(e.valid_from, e.valid_until) > 0 as is_timed
        from unnest(p_root_ids, p_root_values, p_slot_keys) as r (id, value, slot_key)
        cross join lateral (
            select r.id as text_id
            union all
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.root_id = r.id
            offset 0
        ) as t
        cross join lateral (
            select e.* from memfold_internal._statements as e
            where e.tenant_id = p_tenant_id collate "C"
                and (e.memory_id, e.event_id) >= (t.text_id, '00000000-0000-0000-0000-000000000000')
                and (e.memory_id, e.event_id) <= (t.text_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            order by e.memory_id, e.event_id
            offset 0
        ) as e
    ),
    -- Sentence 1 of docs/rules.md: a statement decides whether its value holds until a statement that was made later begins.
    deciding as (
        select s.*, least(s.ends, min(s.begins) over (
            partition by s.value order by s.observed_at desc, s.event_id desc rows between unbounded preceding and 1 preceding
        )) as until
        from said as s
    )
    select d.root_id, d.value, d.slot_key, d.observed_at, d.event_id, d.is_timed,
        case when d.begins < d.until then tstzrange(d.begins, nullif(d.until, 'infinity')) else 'empty' end
    from deciding as d
    order by coalesce(d.slot_key::text, d.value), d.observed_at desc, d.event_id desc;
end;
$$;

-- The times at which each root is current, by the three sentences of docs/rules.md, and the status and flags that follow.
-- p_root_ids must include all roots that may exclude another of them (_timed_with). Only active and superseded roots count.
create or replace function memfold_internal._derived_times(p_tenant_id text, p_root_ids uuid[])
returns setof memfold_internal.derived_time
language plpgsql stable rows 3
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_roots uuid[];
    v_values text[];
    v_slots uuid[];
    v_related uuid[];
    v_said memfold_internal.statement[];
    v_ones text[];
    v_others text[];
    v_apart boolean[];
    v_lifted uuid[];
    s memfold_internal.statement;
    v_group text;
    v_covered tstzmultirange;
    v_shown tstzmultirange;
    v_shown_roots uuid[] := array[]::uuid[];
    v_shown_times tstzmultirange[] := array[]::tstzmultirange[];
begin
    select array_agg(r.memory_id), array_agg(r.slot_key), array_agg(
        case when r.slot_key is not null and r.object is not null then r.slot_key || ' ' || memfold.canonicalize(r.object, 'prose/1')
            else r.memory_id::text end)
    into v_roots, v_slots, v_values
    from (
        select r.memory_id, r.object,
            memfold_internal._slot_key(r.tenant_id, r.bucket_id, r.memory_type, r.predicate, r.scope_key) as slot_key
        from memfold_internal._roots(p_tenant_id, p_root_ids) as r
        where r.status in ('active', 'superseded')
        offset 0
    ) as r;
    v_said := array(select u from memfold_internal._said(p_tenant_id, v_roots, v_values, v_slots) as u);

    -- Sentence 2: values of one slot exclude each other, and so do values found to contradict each other; the last decision counts.
    v_related := memfold_internal._related(p_tenant_id, v_roots);
    if v_related <> '{}' then
        with words as (
            select w.event_id, w.is_apart, a.value as one, b.value as other,
                case when a.slot_key = b.slot_key then a.slot_key end as slot_key
            from (
                select w.*, o.memory_id as root_id, p.memory_id as other_root
                from memfold_internal._last_words(p_tenant_id, memfold_internal._trees(p_tenant_id, v_related)) as w
                cross join lateral memfold_internal._roots(p_tenant_id, array[w.memory_id]) as o
                cross join lateral memfold_internal._roots(p_tenant_id, array[w.other_id]) as p
            ) as w
            join unnest(v_roots, v_values, v_slots) as a (root_id, value, slot_key) on a.root_id = w.root_id
            join unnest(v_roots, v_values, v_slots) as b (root_id, value, slot_key) on b.root_id = w.other_root
        ),
        last as (
            select distinct on (w.one, w.other) w.one, w.other, w.is_apart, w.slot_key
            from (
                select w.one, w.other, w.is_apart, w.event_id, w.slot_key from words as w
                union all
                select w.other, w.one, w.is_apart, w.event_id, w.slot_key from words as w
            ) as w
            where w.one <> w.other
            order by w.one, w.other, w.event_id desc
        )
        select array_agg(l.one), array_agg(l.other), array_agg(l.is_apart), array_agg(l.slot_key) filter (where l.is_apart)
        into v_ones, v_others, v_apart, v_lifted
        from last as l;
    end if;

    -- Sentence 3: from the last statement to the first, each is current where later ones have not covered its time.
    foreach s in array v_said loop
        if v_group is distinct from coalesce(s.slot_key::text, s.value) then
            v_group := coalesce(s.slot_key::text, s.value);
            v_covered := '{}';
        end if;
        if s.value = any(v_ones) then
            select tstzmultirange(s.holds) - coalesce(range_agg(o.holds), '{}') into v_shown
            from unnest(v_said) as o
            left join unnest(v_ones, v_others, v_apart) as w (one, other, is_apart) on w.one = s.value and w.other = o.value
            where o.value <> s.value and (o.observed_at, o.event_id) > (s.observed_at, s.event_id)
                and coalesce(not w.is_apart, o.slot_key = s.slot_key);
        elsif v_covered @> s.holds then
            v_shown := '{}';
        else
            v_shown := tstzmultirange(s.holds) - v_covered;
        end if;
        if not v_covered @> s.holds then
            v_covered := v_covered + tstzmultirange(s.holds);
        end if;
        if v_shown <> '{}' then
            v_shown_roots := v_shown_roots || s.root_id;
            v_shown_times := v_shown_times || v_shown;
        end if;
    end loop;

    return query
    with roots as (
        select r.* from unnest(v_roots, v_values, v_slots) as r (id, value, slot_key)
    ),
    shown as (
        select t.id, range_agg(t.times) as times from unnest(v_shown_roots, v_shown_times) as t (id, times) group by t.id
    ),
    said as (
        select coalesce(u.slot_key::text, u.value) as label, u.value, u.root_id, u.observed_at, u.event_id, u.is_timed
        from unnest(v_said) as u
    ),
    timed as (
        select distinct u.root_id from said as u where u.is_timed
    ),
    rivals as (
        select w.one, w.other from unnest(v_ones, v_others, v_apart) as w (one, other, is_apart) where not w.is_apart
    ),
    -- the last statement about a root's slot or value, or about a value that contradicts it
    last as (
        select distinct on (r.id) r.id, u.root_id, u.observed_at
        from (
            select r.id, u.root_id, u.observed_at, u.event_id
            from roots as r
            cross join lateral (
                select u.* from (
                    select distinct on (u.label) u.* from said as u order by u.label, u.observed_at desc, u.event_id desc
                ) as u
                where u.label = coalesce(r.slot_key::text, r.value)
            ) as u
            union all
            select r.id, u.root_id, u.observed_at, u.event_id
            from roots as r
            join rivals as o on o.one = r.value
            join said as u on u.value = o.other
        ) as u
        join roots as r on r.id = u.id
        order by r.id, u.observed_at desc, u.event_id desc
    ),
    told as (
        select r.*, coalesce(t.times, '{}') as times, l.root_id as last_id, l.observed_at as last_at,
            r.slot_key is not null or r.value in (select o.one from rivals as o) as has_rivals,
            r.id in (select u.root_id from timed as u) as is_timed
        from roots as r
        join last as l on l.id = r.id
        left join shown as t on t.id = r.id
    )
    select t.id, t.slot_key, t.has_rivals or t.is_timed, x.is_superseded,
        not x.is_superseded and (t.slot_key = any(v_lifted)) is not true
        and (not (t.has_rivals or t.is_timed) or coalesce(t.last_id = t.id and x.is_last, false)), t.times
    from told as t
    cross join lateral (
        select t.has_rivals and not coalesce(bool_or(upper_inf(i.r) or upper(i.r) > t.last_at), false) as is_superseded,
            bool_or(upper_inf(i.r) and lower(i.r) <= t.last_at) as is_last
        from unnest(t.times) as i (r)
    ) as x;
end;
$$;
