-- Erasure, forgetting, export and import.
--
-- erase_memory() and erase_source() remove texts from a bucket in use: _erase() removes ledger rows and derives the state
-- of what stays as if they had never existed. erase_bucket() and erase_tenant() remove whole trees and timelines, a limited
-- number in each call (_erase_some), under a run. forget_memories() rejects or erases all that matches. export_bucket() and
-- import_bucket() copy a bucket with its ledger (memfold export, memfold restore). Applications call these functions;
-- erase_tenant() and import_bucket() are for members of memfold_owner.
--
-- Only this module deletes from memories and memory_events, with memfold.maintenance on (_maintain). Order of locks:
-- scopes or the bucket, counters, judgements, memories. What must stay true: no table keeps words of an erased text, not
-- in rows of others either (guard, similar_memories); its ledger row erased lets its id still be resolved; a fact
-- that others support keeps its ids and merges; and check_invariants() finds nothing after every call.

-- Other memories that a ledger row with one of p_actions relates, or ever related, to one of p_texts. Only reads.
create or replace function memfold_internal._beside(p_tenant_id text, p_texts uuid[], p_actions text[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return array(
        select distinct x.id
        from (
            select e.* from memfold_internal._events_of(p_tenant_id, p_texts) as e
            where e.target_id is not null and e.tier >= 2
            union all
            select e.* from memfold_internal._events_about(p_tenant_id, p_texts) as e
            where e.tier >= 2
        ) as e
        cross join lateral (values (e.memory_id), (e.target_id)) as x (id)
        where e.action = any(p_actions) and x.id is not null and x.id <> all(p_texts)
    );
end;
$$;

-- Locks memories of one bucket for their erasure, with everything that is derived again without them (_lock_memories). Waits
-- at most once; p_wait false: never. Returns whether it has the lock; if not, the caller gives up. Raises MF025.
create or replace function memfold_internal._lock_to_erase(p_tenant_id text, p_memory_ids uuid[], p_wait boolean) returns boolean
language plpgsql volatile
as $$
declare
    v_wanted uuid[];
    v_locked uuid[] := array[]::uuid[];
    v_wait boolean := p_wait;
begin
    loop
        v_wanted := p_memory_ids || memfold_internal._beside(p_tenant_id, memfold_internal._trees(p_tenant_id, p_memory_ids),
            array['merged', 'replaced', 'superseded', 'historical']);
        if v_wanted <@ v_locked then
            return true;
        elsif not memfold_internal._lock_memories(p_tenant_id, v_wanted, v_wait) then
            return false;
        end if;
        v_locked := v_wanted;
        -- Others may wait for the first lock, so do not wait for a second.
        v_wait := false;
    end loop;
end;
$$;

-- Locks the counters of all that an erasure of p_texts may change, in the common order. The caller has called _lock_to_erase().
create or replace function memfold_internal._lock_erased(p_tenant_id text, p_texts uuid[]) returns void
language plpgsql volatile
as $$
begin
    -- Lock now what is derived again at the end: later it would be out of order, and deadlock with a batch.
    perform memfold_internal._lock_texts(p_tenant_id, memfold_internal._texts_to_lock(p_tenant_id,
        p_texts || memfold_internal._beside(p_tenant_id, p_texts, array['merged', 'replaced', 'superseded', 'historical'])));
    -- Wait for recalled statements too: they change no counters, but hold their root's row FOR KEY SHARE.
    perform from memfold.memory_counters as k
    where k.tenant_id = p_tenant_id collate "C" and k.memory_id = any(p_texts)
    order by k.memory_id
    for update;
end;
$$;

-- Removes ledger rows of p_texts (whole trees of a bucket) or of no text, then from all tables every text that has lost its
-- observations, and derives the rest and what shares their slots. p_turn: rows that name other turns too only lose this one;
-- null: all rows are removed. Leaves a ledger row erased for each text, without content (target_id: the root that has its
-- fact now). The caller has locked the memories (_lock_to_erase) and their counters (_lock_erased).
-- Longer than 150 lines: what is erased with a text, table by table, in the one order in which locks are taken.
create or replace function memfold_internal._erase(
    p_tenant_id text, p_bucket_id text, p_texts uuid[], p_event_ids uuid[], p_turn text, p_reason text
) returns memfold.erasure
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_result memfold.erasure;
    v_said uuid[];
    v_had uuid[];
    v_touched uuid[];
    v_rows bigint[];
    v_still_said uuid[];
    v_has uuid[];
    v_gone uuid[];
    v_gone_into uuid[];
    v_stating uuid[];
    v_roots uuid[];
    v_aliases uuid[];
    v_aliases_into uuid[];
    v_aliases_root uuid[];
    v_beside uuid[];
    v_named uuid[];
    v_sources uuid[];
    v_turns text[];
    v_stated uuid[];
    v_removed uuid[];
    v_newest uuid;
    v_rivalry constant memfold_internal.rivalry := memfold_internal._rivalry(p_tenant_id, p_texts);
    v_timed constant uuid[] := memfold_internal._restated_with(p_tenant_id, p_texts);
begin
    select coalesce(array_agg(distinct e.memory_id), '{}'),
        coalesce(array_agg(distinct e.memory_id) filter (where e.observation), '{}')
    into v_said, v_had
    from memfold_internal._events_of(v_tenant_id, p_texts) as e where e.origin is not null;
    select array_agg(x.memory_id), array_agg(x.n) into v_touched, v_rows
    from (
        select e.memory_id, count(*) as n
        from memfold_internal._events_of(v_tenant_id, p_texts) as e
        where e.event_id = any(p_event_ids)
        group by e.memory_id
    ) as x;
    v_beside := memfold_internal._beside(v_tenant_id, p_texts, array['merged', 'replaced', 'superseded', 'historical']);
    v_named := p_texts || memfold_internal._beside(v_tenant_id, p_texts, array['merged', 'replaced']);
    select array_agg(e.memory_id), array_agg(t.turn), array_agg(e.event_id)
    into v_sources, v_turns, v_stated
    from memfold_internal._events_of(v_tenant_id, p_texts) as e
    left join lateral unnest(e.source_turn_ids) as t (turn) on p_turn is null or t.turn = p_turn
    where e.event_id = any(p_event_ids) and e.observation;

    perform memfold_internal._maintain(true);
    v_removed := p_event_ids;
    if p_turn is not null then
        -- Rows that name other turns stay.
        v_removed := array(
            select i.id from unnest(p_event_ids) as i (id)
            where i.id not in (
                select e.event_id from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.event_id = any(p_event_ids) and not e.source_turn_ids <@ array[p_turn]
            )
        );
        update memfold.memory_events as e
        set source_turn_ids = array_remove(e.source_turn_ids, p_turn)
        from unnest(p_event_ids) as i (id)
        where e.tenant_id = v_tenant_id and e.event_id = i.id and not e.source_turn_ids <@ array[p_turn];
    end if;
    v_removed := coalesce(v_removed, '{}');
    v_result.events := memfold_internal._remove_events(v_tenant_id, p_bucket_id, v_removed);
    if p_turn is null then
        -- All of these texts are erased, so no other observation takes over their turns.
        delete from memfold.memory_sources as s
        using unnest(v_sources, v_turns) as t (id, turn)
        where s.tenant_id = v_tenant_id and s.source_turn_id = t.turn collate "C" and s.memory_id = t.id;
    elsif v_stated is not null then
        perform memfold_internal._restate_turns(v_tenant_id, v_sources, v_turns, v_stated);
    end if;
    select coalesce(array_agg(distinct e.memory_id), '{}'),
        coalesce(array_agg(distinct e.memory_id) filter (where e.observation), '{}')
    into v_still_said, v_has
    from memfold_internal._events_of(v_tenant_id, p_texts) as e where e.origin is not null;
    v_gone := array(
        with members as materialized (
            select m.memory_id as id, memfold_internal._root(m.memory_id, m.root_id) as root, m.memory_id = any(v_has) as has,
                case when m.memory_id = any(v_had) then m.memory_id <> all(v_has)
                    else m.memory_id = any(v_said) and m.memory_id <> all(v_still_said) end as lost,
                exists (
                    select from memfold.memory_events as e
                    where e.tenant_id = v_tenant_id and e.memory_id = m.memory_id and e.content is not null
                        and e.origin is null and e.judgement_id is null
                    -- Here and below: keeps EXISTS from being hashed, which would read the ledger of the tenant.
                    offset 0
                ) as is_written
            from unnest(p_texts) as i (id)
            cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
        ),
        trees as materialized (
            select t.root, bool_or(t.lost) as loses, bool_or(t.has) as stays
            from members as t
            group by t.root
        )
        select t.id
        from members as t
        join trees as r on r.root = t.root
        where r.loses and not t.has and (
            -- A text that a person wrote stays as long as its tree does.
            t.lost and not t.is_written or not r.stays
            -- A text that a judge or an agent wrote from the others may contain what they said.
            or exists (
                select from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.memory_id = t.id and not e.observation and e.content is not null
                    and (e.judgement_id is not null or e.origin is not null)
                offset 0
            )
        )
        order by t.id
    );
    select coalesce(array_agg(s.memory_id) filter (where s.memory_id = any(v_gone)), '{}'),
        array_agg(s.into_id) filter (where s.memory_id = any(v_gone)),
        coalesce(array_agg(s.memory_id) filter (where s.memory_id <> all(v_gone) and s.memory_id <> s.into_id), '{}'),
        coalesce(array_agg(s.into_id) filter (where s.memory_id <> all(v_gone) and s.memory_id <> s.into_id), '{}'),
        coalesce(array_agg(s.root_id) filter (where s.memory_id <> all(v_gone) and s.memory_id <> s.into_id), '{}'),
        coalesce(array_agg(s.memory_id) filter (where s.memory_id <> all(v_gone) and s.memory_id = s.into_id), '{}')
    into v_gone, v_gone_into, v_aliases, v_aliases_into, v_aliases_root, v_roots
    from memfold_internal._new_roots(v_tenant_id, p_texts, v_gone) as s;
    -- a supersession by a person states the newer value
    v_stating := memfold_internal._beside(v_tenant_id, v_gone, array['superseded']);
    v_result.events := v_result.events
        + memfold_internal._repoint_merges(v_tenant_id, p_bucket_id, v_gone, v_gone_into, v_aliases, v_aliases_into);
    if v_gone <> '{}' then
        perform memfold_internal._scrub_references(v_tenant_id, p_bucket_id, v_named);
        -- The fact keeps its counts of access and feedback.
        update memfold.memory_counters as k
        set access_count = k.access_count + d.access_count, helpful_count = k.helpful_count + d.helpful_count,
            harmful_count = k.harmful_count + d.harmful_count, last_accessed = greatest(k.last_accessed, d.last_accessed)
        from unnest(v_gone, v_gone_into) as g (id, into_id)
        join memfold.memory_counters as d on d.tenant_id = v_tenant_id and d.memory_id = g.id
        where k.tenant_id = v_tenant_id and k.memory_id = g.into_id;
        -- Set edges and roots first: each tree must be complete when it is derived.
        update memfold.memories as m
        set status = case when m.status = 'merged' then 'active' else m.status end, merged_into = null, root_id = null
        from (select t.id from unnest(v_roots) as t (id)) as t
        where m.tenant_id = v_tenant_id and m.memory_id = t.id and m.root_id is not null;
        update memfold.memories as m
        set status = 'merged', merged_into = t.into_id, root_id = t.root_id
        from (select t.* from unnest(v_aliases, v_aliases_into, v_aliases_root) as t (id, into_id, root_id)) as t
        where m.tenant_id = v_tenant_id and m.memory_id = t.id and (m.merged_into, m.root_id) <> (t.into_id, t.root_id);
        perform memfold_internal._remove_texts(v_tenant_id, v_gone);
    end if;
    -- A person's statements about erased texts were re-pointed or removed, so count these texts again.
    perform memfold_internal._recount(v_tenant_id, v_gone_into || v_stating);
    perform memfold_internal._restore_wording(v_tenant_id, array(
        select t.id from unnest(v_touched) as t (id) where t.id <> all(v_gone)
    ));
    perform memfold_internal._derive_all(v_tenant_id, array(
        select m.memory_id
        from (
            select r.id from unnest(v_roots || v_beside) as r (id)
            union
            select t.id from unnest(v_timed) as t (id) where t.id <> all(p_texts)
            union
            -- and one of each slot, even if none of its values is current for ever: all of them are derived with it
            select distinct on (s.bucket_id, s.slot_key) o.memory_id
            from unnest(v_rivalry.bucket_ids, v_rivalry.slot_keys) as s (bucket_id, slot_key)
            cross join lateral (
                select m.memory_id from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.bucket_id = s.bucket_id collate "C" and m.scope_key = s.slot_key
                    and m.root_id is null and m.memory_id <> all(p_texts)
                offset 0
            ) as o
        ) as i
        join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = i.id
        order by 1
    ));
    v_newest := memfold_internal._newest_event(v_tenant_id);
    insert into memfold.memory_events (tenant_id, event_id, bucket_id, action, method, memory_id, target_id, reason, cause, actor)
    select v_tenant_id, memfold_internal._id_after(memfold_internal._new_id(), v_newest), p_bucket_id, 'erased',
    case when p_turn is null then 'memory' else 'source' end, x.id, g.into_id, p_reason,
        concat_ws(', ', case when g.id is not null then 'the text' end,
            case when t.n > 0 then format('%s ledger row%s', t.n, case when t.n > 1 then 's' end) end),
        memfold_internal._actor()
    from (select t.id from unnest(v_touched) as t (id) union select g.id from unnest(v_gone) as g (id)) as x
    left join unnest(v_gone, v_gone_into) as g (id, into_id) on g.id = x.id
    left join unnest(v_touched, v_rows) as t (id, n) on t.id = x.id
    order by x.id;
    perform memfold_internal._maintain(false);
    v_result.erased := cardinality(v_gone);
    v_result.kept := (select count(*) from unnest(v_touched) as t (id) where t.id <> all(v_gone));
    v_result.current_again := memfold_internal._current_again(v_tenant_id, v_rivalry);
    return v_result;
end;
$$;
