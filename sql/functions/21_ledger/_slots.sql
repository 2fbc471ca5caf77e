-- The slot of a memory with these columns: its scope key if that scope has one value at a time (_is_slot), else null.
-- Not a row as the argument: on Citus, a row has the type of its shard.
create or replace function memfold_internal._slot_key(
    p_tenant_id text, p_bucket_id text, p_memory_type text, p_predicate text, p_scope_key uuid
) returns uuid
language plpgsql stable
as $$
begin
    return case when memfold_internal._is_slot(p_tenant_id, p_bucket_id, p_memory_type, p_predicate) then p_scope_key end;
end;
$$;

-- The roots of memories, each once. Inlined by its callers.
create or replace function memfold_internal._roots(p_tenant_id text, p_memory_ids uuid[]) returns setof memfold.memories
language sql stable rows 3
begin atomic
    select r.*
    from (
        select distinct o.id
        from pg_catalog.unnest(p_memory_ids) as i (id)
        cross join
            lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as id from memfold.memories as m
                where m.tenant_id = p_tenant_id collate "C" and m.memory_id = i.id
                offset 0
            ) as o
    ) as t
    cross join
        lateral (
            select r.* from memfold.memories as r
            where r.tenant_id = p_tenant_id collate "C" and r.memory_id = t.id
            offset 0
        ) as r;
end;

-- The slots that memories, or their roots, are in.
create or replace function memfold_internal._slots(p_tenant_id text, p_memory_ids uuid[])
returns table (slot_key uuid, bucket_id text)
language plpgsql stable rows 1
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select distinct s.scope_key, s.bucket_id::text
    from (
        select distinct m.bucket_id, m.memory_type, m.predicate, m.scope_key
        from (
            select m.* from memfold_internal._roots(p_tenant_id, p_memory_ids) as m
            union all
            select m.*
            from unnest(p_memory_ids) as i (id)
            cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        ) as m
        where m.predicate is not null
        offset 0
    ) as s
    where memfold_internal._is_slot(p_tenant_id, s.bucket_id, s.memory_type, s.predicate);
end;
$$;

-- The roots of memories, and all values of their slots (_slots).
create or replace function memfold_internal._with_slots(p_tenant_id text, p_memory_ids uuid[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return array(
        select r.memory_id from memfold_internal._roots(p_tenant_id, p_memory_ids) as r
        union
        select m.memory_id
        from memfold_internal._slots(p_tenant_id, p_memory_ids) as s
        cross join lateral (
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = s.bucket_id collate "C" and m.scope_key = s.slot_key
                and m.root_id is null
            offset 0
        ) as m
    );
end;
$$;

-- The roots whose times may change with those of memories: the values of their slots, the memories that a decision
-- relates to one of these (_last_words), and the values of their slots, because a decision concerns all texts of a value.
create or replace function memfold_internal._timed_with(p_tenant_id text, p_memory_ids uuid[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_roots constant uuid[] := memfold_internal._with_slots(p_tenant_id, p_memory_ids);
    v_others constant uuid[] := array(
        select w.other_id
        from memfold_internal._last_words(p_tenant_id, memfold_internal._trees(p_tenant_id, memfold_internal._related(p_tenant_id,
            v_roots))) as w
    );
begin
    if v_others = '{}' then
        return v_roots;
    end if;
    return array(
        select distinct i.id from unnest(v_roots || memfold_internal._with_slots(p_tenant_id, v_others)) as i (id)
    );
end;
$$;

-- Those of p_root_ids with a text that, by a decision, contradicts another one or holds together with it (_last_words).
create or replace function memfold_internal._related(p_tenant_id text, p_root_ids uuid[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return array(
        select r.id
        from unnest(p_root_ids) as r (id)
        where exists (
            select from memfold.memory_counters as k
            where k.tenant_id = p_tenant_id collate "C"
                and case when k.root_id is null then k.memory_id else k.root_id end = r.id and k.is_related
            offset 0
        )
    );
end;
$$;

-- The active values of a slot: one, unless a validity ends or begins later, or a person has decided that several hold.
create or replace function memfold_internal._slot_values(p_tenant_id text, p_slot_key uuid) returns uuid[]
language plpgsql stable
as $$
declare
    v_value record;
    v_values uuid[] := array[]::uuid[];
begin
    -- the values whose intervals end last, up to the first that is history
    for v_value in
        select i.memory_id, m.status
        from memfold.memory_intervals as i
        cross join lateral memfold_internal._memory(i.tenant_id, i.memory_id) as m
        where i.tenant_id = p_tenant_id collate "C" and i.slot_key = p_slot_key
        order by case when i.valid_to is null then 'infinity' else i.valid_to end desc
    loop
        exit when v_value.status <> 'active';
        v_values := v_values || v_value.memory_id;
    end loop;
    return v_values;
end;
$$;

-- The time of the last statement about p_memory_ids, about the values of their slots and of p_slot_key, and about what
-- contradicts these; null: there is none. A statement without a time must come after it.
create or replace function memfold_internal._last_said(
    p_tenant_id text, p_bucket_id text, p_memory_ids uuid[], p_slot_key uuid
) returns timestamptz
language plpgsql stable
set plan_cache_mode = force_generic_plan
-- Statistics of a table whose facts are all of one scope must not choose a scan.
set enable_seqscan = off
set jit = off
as $$
declare
    v_roots uuid[] := array(select r.memory_id from memfold_internal._roots(p_tenant_id, p_memory_ids) as r);
    v_slot uuid;
    v_values uuid[];
begin
    for v_slot in
        select p_slot_key where p_slot_key is not null
        union
        select memfold_internal._slot_key(r.tenant_id, r.bucket_id, r.memory_type, r.predicate, r.scope_key)
        from memfold_internal._roots(p_tenant_id, v_roots) as r
    loop
        continue when v_slot is null;
        v_values := memfold_internal._slot_values(p_tenant_id, v_slot);
        if not exists (
            -- common case: the slot's last statement is about its current value
            select from memfold.memory_counters as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = v_values[1] and k.is_additive
        ) then
            v_values := array(
                select m.memory_id from memfold.memories as m
                where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                    and m.scope_key = v_slot and m.root_id is null
            );
        end if;
        v_roots := v_roots || v_values;
    end loop;
    if memfold_internal._related(p_tenant_id, v_roots) <> '{}' then
        v_roots := memfold_internal._timed_with(p_tenant_id, v_roots);
    end if;
    return (
        select max(k.last_seen)
        from unnest(v_roots) as i (id)
        cross join lateral (
            select k.last_seen from memfold.memory_totals as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = i.id
            offset 0
        ) as k
    );
end;
$$;

-- The current value that a new statement would replace: of the values of a slot and of p_memory_ids, the one stated last,
-- with its canonical object. No row: none is current.
create or replace function memfold_internal._current_value(p_tenant_id text, p_memory_ids uuid[], p_slot_key uuid)
returns table (memory_id uuid, object text, last_seen timestamptz)
language plpgsql stable rows 1
as $$
begin
    return query
    select r.memory_id, memfold.canonicalize(r.object, 'prose/1'), k.last_seen
    from memfold_internal._roots(p_tenant_id,
        p_memory_ids || memfold_internal._slot_values(p_tenant_id, p_slot_key)) as r
    cross join lateral (
        select k.last_seen from memfold.memory_totals as k
        where k.tenant_id = r.tenant_id and k.memory_id = r.memory_id and k.on_timeline
        offset 0
    ) as k
    where r.status = 'active'
    order by k.last_seen desc, r.memory_id desc
    limit 1;
end;
$$;

-- The one of these roots that was stated last; ties by the order of the ledger.
create or replace function memfold_internal._stated_last(p_members memfold.memories[]) returns uuid
language plpgsql stable
as $$
begin
    return (
        select m.memory_id
        from unnest(p_members) as m
        join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        cross join lateral memfold_internal._last_statement(m.tenant_id, m.memory_id) as e (event_id)
        order by k.last_seen desc, e.event_id desc
        limit 1
    );
end;
$$;

-- The texts of the trees that contain p_memory_ids, and of all trees whose times may change with theirs.
create or replace function memfold_internal._timeline_texts(p_tenant_id text, p_memory_ids uuid[]) returns uuid[]
language plpgsql stable
as $$
begin
    return memfold_internal._trees(p_tenant_id, memfold_internal._timed_with(p_tenant_id, memfold_internal._trees(p_tenant_id,
        p_memory_ids)));
end;
$$;

-- The texts that a judge or a person has found to contradict a text of this root, in a slot or not.
create or replace function memfold_internal._rivals(p_tenant_id text, p_root_id uuid) returns uuid[]
language plpgsql stable
as $$
begin
    if memfold_internal._related(p_tenant_id, array[p_root_id]) = '{}' then
        return '{}'::uuid[];
    end if;
    return array(
        select distinct on (w.other_id) w.other_id
        from memfold_internal._last_words(p_tenant_id, memfold_internal._trees(p_tenant_id, array[p_root_id])) as w
        where not w.is_apart
    );
end;
$$;

-- The decisions in force about p_memory_ids and other texts, in a slot or not. The two contradict each other (superseded
-- in tier 3), or hold together (is_apart): a person has answered distinct, or undone that one superseded the other. Of
-- several decisions about two values, the one with the highest event_id applies.
create or replace function memfold_internal._last_words(p_tenant_id text, p_memory_ids uuid[])
returns table (memory_id uuid, other_id uuid, event_id uuid, is_apart boolean)
language plpgsql stable rows 3
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select i.id, e.other_id, case e.tier when 2 then u.event_id else e.event_id end, e.tier = 2 or e.action = 'judged'
    from unnest(p_memory_ids) as i (id)
    cross join lateral (
        select e.target_id as other_id, e.event_id, e.action, e.tier, e.method, e.verdict from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = i.id and e.tier > 1
            and e.action in ('superseded', 'historical', 'judged')
        union all
        -- one descent of the index on the target per action
        select e.*
        from unnest(array['superseded', 'historical', 'judged']) as a (action)
        cross join lateral (
            select e.memory_id, e.event_id, e.action, e.tier, e.method, e.verdict from memfold.memory_events as e
            where e.tenant_id = p_tenant_id collate "C" and e.target_id is not null
                and (e.target_id, e.action, e.tier) >= (i.id, a.action collate "C", 2::smallint)
                and (e.target_id, e.action, e.tier) <= (i.id, a.action collate "C", 3::smallint)
            order by e.target_id, e.action, e.tier
            offset 0
        ) as e
        offset 0
    ) as e
    left join lateral (
        select u.event_id, u.action from memfold.memory_events as u
        where u.tenant_id = p_tenant_id collate "C" and u.undoes = e.event_id
        order by u.event_id desc
        limit 1
    ) as u on true
    where e.other_id is not null and case when e.tier = 2 then u.action = 'undone'
        else coalesce(u.action, 'restored') = 'restored' and (e.action = 'superseded' or e.action = 'judged' and e.method = 'person' and e.verdict = 'distinct') end;
end;
$$;

-- The memories whose times may change with those of p_memory_ids, and which others may restate without the scope's lock.
create or replace function memfold_internal._restated_with(p_tenant_id text, p_memory_ids uuid[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    if memfold_internal._related(p_tenant_id, array(select r.memory_id from memfold_internal._roots(p_tenant_id,
        p_memory_ids) as r)) <> '{}' then
        return memfold_internal._timed_with(p_tenant_id, p_memory_ids);
    end if;
    return array(
        select i.memory_id
        from memfold_internal._slots(p_tenant_id, p_memory_ids) as s
        cross join lateral (
            select i.memory_id from memfold.memory_intervals as i
            where i.tenant_id = p_tenant_id collate "C" and i.slot_key = s.slot_key
                and case when i.valid_to is null then 'infinity' else i.valid_to end = 'infinity'
            offset 0
        ) as i
    );
end;
$$;
