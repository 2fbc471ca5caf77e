-- Undoes a run of set_predicate(): restores the previous rule, in a run of its own that applies it to stored memories.
-- Returns no rows. A hook: on Citus it raises 0A000. Raises MF039, 40001, 55P03.
create or replace function memfold_internal._undo_predicate(r memfold.runs) returns setof memfold.undone_memory
language plpgsql volatile
as $$
declare
    v_run_id uuid;
    v_predicates text[];
    v_about constant text := coalesce(r.arguments ->> 'predicate', 'several predicates, or all');
begin
    if r.arguments ? 'for_all' then
        perform memfold_internal._fail('MF039', 'the rule is for all tenants',
            format('Run %s is about %s.', r.run_id, v_about),
            'Call set_predicate(..., tenant_id => ''*'') with the previous rule, or set one for this tenant alone.');
    end if;
    perform memfold_internal._lock_rules(r.tenant_id);
    r := memfold_internal._run(r.tenant_id, r.run_id);
    -- The predicates whose rule has not been set again since.
    select array_agg(u.name) into v_predicates
    from unnest(memfold_internal._predicates_of(r.arguments)) as u (name)
    where not exists (
        select from memfold.runs as o
        where o.tenant_id = r.tenant_id and o.kind = 'predicate' and o.run_id > r.run_id and o.arguments ->> 'predicate' = u.name
    );
    if r.status = 'undone' or v_predicates is null or r.arguments ? 'undoes' then
        perform memfold_internal._fail('MF039', 'the run was undone, or is not the last of its predicate',
            format('Run %s is about %s.', r.run_id, v_about), 'Call set_predicate() with the rule that you want.');
    elsif r.arguments ? 'predicate' then
        v_run_id := memfold_internal._declare(r.tenant_id, r.arguments ->> 'predicate', r.arguments -> 'was' ->> 'cardinality',
            r.arguments -> 'was' ->> 'conflict');
    else
        delete from memfold.predicates as p where p.tenant_id = r.tenant_id and p.predicate = any(v_predicates);
        v_run_id := memfold_internal._take_up_rule(r.tenant_id, '*', jsonb_build_object('predicates', v_predicates,
            'undoes', r.run_id));
    end if;
    update memfold.runs as o
    set status = 'undone', report = o.report || jsonb_build_object('undone_by', v_run_id)
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id;
end;
$$;

-- Ends a run of kind undo; its report counts ledger rows by action.
create or replace function memfold_internal._end_undo(r memfold.runs) returns void
language plpgsql volatile
as $$
begin
    update memfold.runs as o
    set status = 'done', ended_at = memfold_internal._clock(), report = (
        select coalesce(jsonb_object_agg(c.action, c.n), '{}')
        from (
            select e.action, count(*) as n from memfold.memory_events as e
            where e.tenant_id = r.tenant_id and e.run_id = r.run_id
            group by e.action
        ) as c
    )
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id;
end;
$$;

create or replace function memfold.undo_run(
    run_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null
) returns setof memfold.undone_memory
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    j memfold.judgements;
    v_undo memfold.runs;
    v_events uuid[];
    v_states text[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    r := memfold_internal._run(tenant_id, run_id);
    if r.kind in ('decay', 'maintenance', 'rehash', 'reembedding', 'dropping', 'erasure') then
        perform memfold_internal._fail('MF039', 'the run cannot be undone', format('Run %s is of kind %s.', r.run_id, r.kind),
            case r.kind when 'rehash' then 'call rehash_bucket(tenant_id, bucket_id, undo_run_id => ...) undoes it.'
                else 'Runs that merge or prune can be undone: consolidation, sweep, session, cleaning and pruning.' end);
    end if;
    if r.kind = 'predicate' then
        return query select u.* from memfold_internal._undo_predicate(r) as u;
        return;
    elsif r.kind = 'link' then
        perform memfold_internal._lock_links(tenant_id, r.bucket_id);
    elsif r.bucket_id = '*' then
        -- Runs of undo_actor() concern all buckets.
        perform memfold_internal._lock_rules(r.tenant_id);
    else
        perform memfold_internal._lock(r.tenant_id, r.bucket_id, null, true);
    end if;
    r := memfold_internal._run(tenant_id, run_id);
    if r.status = 'undone' then
        perform memfold_internal._fail('MF039', 'the run is already undone', format('Run %s was undone at %s.', r.run_id, r.ended_at),
            'runs_overview shows the status of runs.');
    end if;
    if r.kind = 'link' then
        perform memfold_internal._unlink(tenant_id, r.bucket_id, r.arguments ->> 'kind', r.arguments ->> 'alias');
        return;
    end if;
    for j in
        select o.* from memfold.judgements as o
        where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.member_ids is not null
            and o.status in ('open', 'leased', 'dead')
        order by o.judgement_id
    loop
        perform memfold_internal._close_parts(j, '{}', '{}');
    end loop;
    update memfold.judgements as o
    set status = 'obsolete', reason = concat_ws(': ', 'its run was undone', undo_run.reason), resolved_at = memfold_internal._clock()
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.status in ('open', 'leased', 'dead');
    v_undo := memfold_internal._start_run(r.tenant_id, r.bucket_id, 'undo', jsonb_build_object('undoes', r.run_id));
    select array_agg(e.event_id order by e.event_id), array_agg(e.state order by e.event_id) into v_events, v_states
    from (
        select e.event_id, 'undone' as state from memfold.ledger as e
        where e.tenant_id = r.tenant_id and e.run_id = r.run_id and not e.undone
            and memfold_internal._is_undoable(e.action, e.tier, e.observation)
        union all
        -- Events that this run itself undid or restored get their previous state, unless a later row names them.
        select e.undoes, coalesce((
            select p.action from memfold.memory_events as p
            where p.tenant_id = e.tenant_id and p.undoes = e.undoes and p.event_id < e.event_id
            order by p.event_id desc
            limit 1
        ), 'restored')
        from memfold.memory_events as e
        where e.tenant_id = r.tenant_id and e.run_id = r.run_id and e.undoes is not null and not exists (
            select from memfold.memory_events as l
            where l.tenant_id = e.tenant_id and l.undoes = e.undoes and l.event_id > e.event_id
        )
    ) as e;
    return query
    select u.* from memfold_internal._undo(r.tenant_id, v_events, v_states, undo_run.reason, v_undo.run_id) as u;
    perform memfold_internal._end_undo(v_undo);
    update memfold.runs as o
    set status = case o.run_id when r.run_id then 'undone' else 'done' end, ended_at = memfold_internal._clock(),
        report = case o.run_id when r.run_id then o.report || jsonb_strip_nulls(jsonb_build_object('undone_by', v_undo.run_id,
            'undone_because', undo_run.reason)) else o.report - array['undone_by', 'undone_because'] end
    where o.tenant_id = r.tenant_id and o.run_id in (r.run_id, (r.arguments ->> 'undoes')::uuid);
end;
$$;
grant execute on function memfold.undo_run to memfold_app;
comment on function memfold.undo_run is
'Undoes a whole maintenance run, as undo() does for each event: all that it merged, replaced, superseded, rejected or pruned. Statements
made since remain, and count for the memory that now holds their text. Open judgements of the run become obsolete. A text that a judge
wrote for the run is withdrawn. The texts that the run had merged into one memory are marked as distinct from each other: no run merges
them or asks about them again. The undo is a run itself (runs, kind undo; run_id of the result): undo_run() of it restores what it undid,
except where somebody has undone or restored the same event since. Returns the memories concerned as they are now. Blocks writers of the
bucket: up to three seconds for 1,000 merges. For a run of link_subject() or link_predicate() it removes the link (unlink_subject()); for
one of set_predicate() it restores the previous rule (the last run of a predicate only), and returns no row. Raises MF001 to MF003, MF025,
MF032 (a merge cannot be restored), MF038 (no such run), MF039 (it is already undone, or of a kind that cannot be).';
