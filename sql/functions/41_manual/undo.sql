-- The cluster_id shared by the judgements that separate texts which a run, or one event, had merged into p_memory_id.
create or replace function memfold_internal._apart_mark(p_run_id uuid, p_memory_id uuid) returns uuid
language sql immutable parallel safe
return pg_catalog.md5(p_run_id::text || p_memory_id::text)::uuid;

-- Records that texts which undone events had merged into one memory are distinct from each other: one judgement for each
-- text, all with the same cluster_id (_apart_mark). The caller holds the lock.
create or replace function memfold_internal._tell_apart(p_tenant_id text, p_event_ids uuid[], p_reason text) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    t record;
begin
    for t in
        with recursive undone as materialized (
            select coalesce(v.run_id, v.event_id) as run_id, v.bucket_id, v.similarity, v.guard, x.child, x.parent
            from memfold_internal._events(p_tenant_id, p_event_ids) as v
            cross join lateral (
                select case v.action when 'merged' then v.memory_id else v.target_id end as child,
                    case v.action when 'merged' then v.target_id else v.memory_id end as parent
            ) as x
            where v.action in ('merged', 'replaced') and v.tier >= 2
        ),
        edges as materialized (
            -- All merges of these runs, even those undone before: together they made one memory.
            select u.run_id, u.child, u.parent from undone as u
            union
            select v.run_id, case v.action when 'merged' then v.memory_id else v.target_id end as child,
                case v.action when 'merged' then v.target_id else v.memory_id end as parent
            from (select distinct u.run_id from undone as u) as u
            cross join lateral (
                select v.* from memfold.memory_events as v
                where v.tenant_id = p_tenant_id collate "C" and v.run_id = u.run_id
                    and v.action in ('merged', 'replaced') and v.tier >= 2
                offset 0
            ) as v
        ),
        up (run_id, child, ancestor) as (
            select u.run_id, u.child, u.parent from undone as u
            union
            select u.run_id, u.child, e.parent from up as u join edges as e on e.run_id = u.run_id and e.child = u.ancestor
        ),
        told as (
            select distinct on (u.run_id, u.child) u.run_id, u.child, u.ancestor as top,
                memfold_internal._apart_mark(u.run_id, u.ancestor) as cluster_id
            from up as u
            where u.ancestor <> u.child
                and not exists (select from edges as e where e.run_id = u.run_id and e.child = u.ancestor)
            order by u.run_id, u.child, u.ancestor
        )
        select distinct on (o.run_id, o.child) o.*, u.bucket_id, u.similarity, u.guard, m.scope_key
        from told as o
        join undone as u on u.run_id = o.run_id and u.child = o.child
        cross join lateral memfold_internal._memory(p_tenant_id, o.child) as m
        where not exists (
            select from memfold.judgements as j
            where j.tenant_id = p_tenant_id collate "C" and j.memory_id = o.child and j.cluster_id = o.cluster_id
                and j.status = 'done'
        )
        order by o.run_id, o.child
    loop
        insert into memfold.judgements (
            tenant_id, bucket_id, scope_key, kind, status, memory_id, other_id, similarity, guard, verdict, confidence, reason,
            cluster_id, resolved_at
        ) values (
            p_tenant_id, t.bucket_id, t.scope_key, 'review', 'done', t.child, t.top, t.similarity, t.guard, 'distinct', 1,
            concat_ws(': ', 'undone', p_reason), t.cluster_id, memfold_internal._clock()
        );
    end loop;
end;
$$;

-- The inverse of _tell_apart(), for events that are no longer undone: those judgements become obsolete. Raises MF032 if a
-- restored merge would form a circle with a later one. The caller holds the lock.
create or replace function memfold_internal._tell_together(p_tenant_id text, p_event_ids uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    e memfold.memory_events;
    v_child uuid;
    v_parent uuid;
    v_told record;
begin
    for e in
        select v.* from memfold_internal._events(p_tenant_id, p_event_ids) as v
        where v.action in ('merged', 'replaced') and v.tier >= 2
    loop
        v_child := case e.action when 'merged' then e.memory_id else e.target_id end;
        v_parent := case e.action when 'merged' then e.target_id else e.memory_id end;
        if memfold_internal._undo_state(e.tenant_id, e.event_id) = 'restored'
            and memfold_internal._is_beneath(e.tenant_id, v_parent, v_child)
        then
            perform memfold_internal._fail('MF032', 'the event cannot be restored',
                format('Since %s was undone, the memory that it merged into was merged into the other one.', e.event_id),
                'Undo that merge first; explain_memory() shows it.');
        end if;
        for v_told in
            select j.judgement_id, j.other_id, j.cluster_id from memfold.judgements as j
            where j.tenant_id = e.tenant_id and j.memory_id = v_child and j.status = 'done' and j.cluster_id is not null
        loop
            -- Not in the UPDATE, in which Citus does not allow this function of a column.
            if v_told.cluster_id = memfold_internal._apart_mark(coalesce(e.run_id, e.event_id), v_told.other_id) then
                update memfold.judgements as j
                set status = 'obsolete', reason = 'restored: ' || j.reason
                where j.tenant_id = e.tenant_id and j.judgement_id = v_told.judgement_id;
            end if;
        end loop;
    end loop;
end;
$$;

-- Makes each event undone, withdrawn or restored (p_states, by position), unless it already is, as part of a run (or null).
-- Returns the memories concerned, each with its last new ledger row. Raises MF032. The caller holds their locks.
create or replace function memfold_internal._undo(
    p_tenant_id text, p_event_ids uuid[], p_states text[], p_reason text, p_run_id uuid
) returns setof memfold.undone_memory
language plpgsql volatile
-- Arrays of ids make the planner prefer custom plans, and planning takes longer than executing them.
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    a record;
    v_changed record;
    v_undone uuid[];
    v_sides uuid[];
begin
    -- Where an observation comes or goes, turns and sums change: lock the rows of counters, as a restatement does.
    v_sides := array(
        select distinct x.id
        from unnest(p_event_ids, p_states) as i (id, state)
        cross join lateral memfold_internal._event(p_tenant_id, i.id) as v
        cross join lateral (values (v.memory_id), (v.target_id)) as x (id)
        where x.id is not null
            and memfold_internal._withdraws(i.state, v.action, v.tier, v.observation, v.observed_at) <> memfold_internal._withdraws(
                memfold_internal._undo_state(p_tenant_id, i.id), v.action, v.tier, v.observation, v.observed_at)
    );
    if v_sides <> '{}' then
        perform memfold_internal._lock_texts(p_tenant_id, memfold_internal._texts_to_lock(p_tenant_id, v_sides || array(
            select e.into_id from memfold_internal._merges_in_force(p_tenant_id, v_sides) as e
        )));
    end if;
    v_changed := memfold_internal._record_undone(p_tenant_id, p_event_ids, p_states, p_reason, p_run_id);
    if v_changed.undone is null then
        return;
    end if;
    perform memfold_internal._tell_together(p_tenant_id, array(
        select v.undoes from memfold_internal._events(p_tenant_id, v_changed.undo_ids) as v where v.action <> 'undone'
    ));
    v_undone := array(
        select v.undoes from memfold_internal._events(p_tenant_id, v_changed.undo_ids) as v where v.action = 'undone'
    );
    v_sides := array(
        select distinct x.id
        from memfold_internal._events(p_tenant_id, v_changed.undone) as v
        cross join lateral (values (v.memory_id), (v.target_id)) as x (id)
        where x.id is not null
        order by 1
    );
    perform memfold_internal._derive_all(p_tenant_id, v_sides, v_undone = v_changed.undone and not exists (
        select from memfold_internal._events(p_tenant_id, v_undone) as v
        where v.action not in ('merged', 'replaced') or v.tier is distinct from 2 and v.tier is distinct from 3
    ));
    perform memfold_internal._settle_rehash_aliases(p_tenant_id, v_sides);

    perform memfold_internal._tell_apart(p_tenant_id, v_undone, p_reason);
    -- A question whose answer is withdrawn may be asked again; one whose answer is restored is answered.
    for a in
        select v.judgement_id, u.action
        from unnest(v_changed.undone, v_changed.undo_ids, v_changed.earlier) as i (id, undo_id, before)
        cross join lateral memfold_internal._event(p_tenant_id, i.id) as v
        cross join lateral memfold_internal._event(p_tenant_id, i.undo_id) as u
        where v.judgement_id is not null and v.tier = 3 and 'withdrawn' in (u.action, i.before)
    loop
        update memfold.judgements as j
        set status = case a.action when 'withdrawn' then 'obsolete' else 'done' end
        where j.tenant_id = p_tenant_id collate "C" and j.judgement_id = a.judgement_id and j.verdict is not null
            and j.status in ('done', 'obsolete');
    end loop;
    return query
    select distinct on (m.memory_id) i.undo_id, m.memory_id, m.status::text, m.content::text, p_run_id
    from unnest(v_changed.undone, v_changed.undo_ids) as i (id, undo_id)
    cross join lateral memfold_internal._events(p_tenant_id, array[i.id]) as v
    cross join lateral (values (v.memory_id), (v.target_id)) as x (id)
    -- Look up each memory by its id: a join may read all memories of the tenant for each row.
    cross join lateral memfold_internal._memory(p_tenant_id, x.id) as m
    order by m.memory_id, i.undo_id desc;
end;
$$;

-- The event that undo(p_event_id) changes (for the row of an undo, the event that it names), and its state afterwards. Raises
-- MF029 (no such event), MF032 (it cannot be undone), MF033 (it is undone, or a later row names it), 42501. Only reads.
create or replace function memfold_internal._event_to_undo(
    p_tenant_id text, p_event_id uuid, out event memfold.memory_events, out state text
)
language plpgsql stable
as $$
declare
    e constant memfold.memory_events := memfold_internal._event(p_tenant_id, p_event_id);
begin
    event := e;
    state := 'undone';
    if e.event_id is null then
        perform memfold_internal._fail('MF029', 'there is no such event',
            format('event_id was %s.', coalesce(p_event_id::text, 'null')),
            'explain_memory() shows the events of a memory; set memfold.tenant_id to its tenant.');
    elsif e.undoes is not null then
        event := memfold_internal._event(p_tenant_id, e.undoes);
        state := memfold_internal._undo_state(p_tenant_id, e.undoes, e.event_id);
    end if;
    if event.method = 'rehash' then
        perform memfold_internal._fail('MF032', 'the event cannot be undone',
            format('It belongs to the rehash %s.', coalesce(e.run_id, event.run_id)),
            'Texts that are equal under the present rules cannot be separate: call rehash_bucket(tenant_id, bucket_id, undo_run_id => ...).');
    elsif e.undoes is null and not memfold_internal._is_undoable(e.action, e.tier, e.observation) then
        perform memfold_internal._fail('MF032', 'the event cannot be undone',
            format('It is %s%s.', e.action, coalesce(', tier ' || e.tier, '')),
            'Only merges, supersessions, prunings, restatements and rejections can be undone; to remove a memory, use reject_memory().');
    elsif exists (
        select from memfold.memory_events as u
        where u.tenant_id = e.tenant_id and u.undoes = event.event_id and u.event_id > e.event_id and e.undoes is not null
    ) or e.undoes is null and memfold_internal._undo_state(p_tenant_id, e.event_id) <> 'restored' then
        perform memfold_internal._fail('MF033', 'the event is already undone', format('event_id was %s.', e.event_id),
            'explain_memory() marks undone events; only the last row about an event can itself be undone.');
    end if;
    perform memfold_internal._check_rank(e.actor);
end;
$$;

create or replace function memfold.undo(
    event_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns setof memfold.undone_memory
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    r record;
    e memfold.memory_events;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    r := memfold_internal._event_to_undo(tenant_id, event_id);
    e := r.event;
    perform memfold_internal._lock_memories(e.tenant_id, array_remove(array[e.memory_id, e.target_id], null));
    -- Check again: it may have been undone or erased while this call waited.
    r := memfold_internal._event_to_undo(tenant_id, event_id);
    e := r.event;
    perform memfold_internal._check_agent_actions(e.tenant_id, e.bucket_id);
    return query
    select u.* from memfold_internal._undo(e.tenant_id, array[e.event_id], array[r.state], undo.reason, null) as u;
end;
$$;
grant execute on function memfold.undo to memfold_app;
comment on function memfold.undo is
'Undoes one event of the ledger, in any order: a merge (both texts are separate memories again, each with its own
observations), a supersession by ingest (the two values hold together until another one comes), a judgement, a rejection, a pruning, or one
restatement (tier 1: the observation no longer counts). The row of an undo can be undone too, as long as it is the last one about its
event: what it undid is restored. Returns the memories of the event as they are now. Deletes nothing: the ledger gets a row with action
undone or restored. Raises MF025, MF029 (no such event), MF032 (it cannot be undone), MF033 (it is already undone).
For members of memfold_agent: only what agents have decided (42501, MF066).';
