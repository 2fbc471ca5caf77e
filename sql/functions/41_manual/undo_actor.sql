-- The events that p_actor has changed since p_since (null: none), and the state of each without the actor. Only reads.
create or replace function memfold_internal._deeds(
    p_tenant_id text, p_actor text, p_since timestamptz, out event_ids uuid[], out states text[]
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    select array_agg(d.event_id order by d.event_id), array_agg(d.state order by d.event_id)
    into event_ids, states
    from (
        -- Withdraw what the actor stated or decided.
        select e.event_id, 'withdrawn' as state from memfold.ledger as e
        where e.tenant_id = p_tenant_id collate "C"
            and e.event_id >= memfold_internal._first_id(greatest(p_since, 'epoch') - interval '1 hour')
            and e.recorded_at >= p_since and e.actor = p_actor collate "C" and e.method is distinct from 'rehash'
            -- The row of a plain INSERT has the actor who ingested it, not the one who inserted it.
            and e.method is distinct from 'plain'
            and (e.observation and not e.withdrawn or memfold_internal._is_undoable(e.action, e.tier, e.observation) and not e.undone)
        union all
        -- Reset events of others that the actor was the last to undo or restore.
        select u.event_id, b.state
        from (
            select distinct e.undoes as event_id from memfold.memory_events as e
            where e.tenant_id = p_tenant_id collate "C"
                and e.event_id >= memfold_internal._first_id(greatest(p_since, 'epoch') - interval '1 hour')
                and e.recorded_at >= p_since and e.actor = p_actor collate "C" and e.undoes is not null
        ) as u
        cross join lateral memfold_internal._events(p_tenant_id, array[u.event_id]) as v
        cross join lateral (
            -- The state by the last row of others (none: in force), and whether the last row of all is the actor's.
            select coalesce((array_agg(w.action order by w.event_id desc) filter (where not w.is_deed))[1], 'restored') as state,
                (array_agg(w.is_deed order by w.event_id desc))[1] as is_last
            from (
                select o.event_id, o.action, o.actor = p_actor collate "C" and o.recorded_at >= p_since as is_deed
                from memfold.memory_events as o
                where o.tenant_id = p_tenant_id collate "C" and o.undoes = u.event_id
            ) as w
        ) as b
        where b.is_last and v.method is distinct from 'rehash'
            and not (v.actor = p_actor collate "C" and v.recorded_at >= p_since and v.method is distinct from 'plain')
    ) as d;
end;
$$;

create or replace function memfold.undo_actor(
    actor text,
    since timestamptz,
    tenant_id text default current_setting('memfold.tenant_id', true),
    dry_run boolean default true,
    reason text default null
) returns setof memfold.undone_memory
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_run memfold.runs;
    v_deeds record;
    v_memories memfold.undone_memory[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if num_nulls(actor, since, dry_run) > 0 or since = 'infinity' then
        perform memfold_internal._fail('MF022', 'it is not clear what to undo',
            format('actor was %s, since %s, dry_run %s.', quote_nullable(actor), coalesce(since::text, 'null'),
                coalesce(dry_run::text, 'null')),
            'Name the role, as in memory_events.actor, and the time from which its actions are to be undone.');
    end if;
    perform memfold_internal._lock_rules(tenant_id);
    v_deeds := memfold_internal._deeds(tenant_id, actor, since);
    if v_deeds.event_ids is null then
        return;
    end if;
    begin
        v_run := memfold_internal._start_run(tenant_id, '*', 'undo', jsonb_build_object('actor', actor, 'since', since));
        v_memories := array(
            select u from memfold_internal._undo(tenant_id, v_deeds.event_ids, v_deeds.states, reason, v_run.run_id) as u
        );
        perform memfold_internal._end_undo(v_run);
        if dry_run then
            raise exception 'a preview';
        end if;
    exception when raise_exception then
        -- A dry run does everything and rolls it back.
        if not dry_run or sqlerrm <> 'a preview' then
            raise;
        end if;
        v_run.run_id := null;
    end;
    return query
    select case when not dry_run then m.event_id end, m.memory_id, m.status, m.content, v_run.run_id from unnest(v_memories) as m;
end;
$$;
grant execute on function memfold.undo_actor to memfold_app;
comment on function memfold.undo_actor is
'Undoes everything that a role (memory_events.actor) has done to a tenant since a time: its statements, decisions, rejections, rewordings
and answers are withdrawn, and what it has undone is restored, unless somebody else has undone or restored the same event since. A text
that nobody else has stated is then withdrawn; it becomes active again when it is stated again. Records one run (runs, kind undo; run_id of
the result), which undo_run() undoes as a whole. dry_run (the default): returns the memories as they would be, and changes nothing.
Otherwise returns the memories concerned as they are now. Blocks the writers of the tenant while it runs, about three seconds for 1,000
decisions. Raises MF001 to MF003, MF022, MF025, MF032 (a merge cannot be restored).';
