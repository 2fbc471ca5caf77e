-- Closes judgements with a person's verdict.
create or replace function memfold_internal._answered(p_tenant_id text, p_judgement_ids uuid[], p_verdict text) returns void
language plpgsql volatile
as $$
declare
    v_id uuid;
begin
    -- One by one: without statistics, a join with the ids may read all judgements.
    foreach v_id in array p_judgement_ids loop
        update memfold.judgements as o
        set status = 'done', verdict = p_verdict, confidence = 1, reason = 'approved with its run', model = null,
            resolved_at = memfold_internal._clock()
        where o.tenant_id = p_tenant_id collate "C" and o.judgement_id = v_id;
    end loop;
end;
$$;

-- Merges the pairs of these judgements, the newer memory into the older (p_action merged) or the older into the newer
-- (replaced), and closes those that were merged. Returns how many. One whose memories were changed by another one before
-- it stays open. The caller holds the bucket's lock.
create or replace function memfold_internal._merge_answered(
    r memfold.runs, p_action text, p_judgement_ids uuid[], p_verdict text
) returns bigint
language plpgsql volatile
as $$
declare
    v_children uuid[];
    v_parents uuid[];
    v_similarities double precision[];
    v_places integer[];
begin
    if p_judgement_ids = '{}' then
        return 0;
    end if;
    select array_agg(case when p_action = 'merged' then s.newer else s.older end order by i.place),
        array_agg(case when p_action = 'merged' then s.older else s.newer end order by i.place),
        array_agg(j.similarity order by i.place)
    into v_children, v_parents, v_similarities
    from unnest(p_judgement_ids) with ordinality as i (id, place)
    cross join lateral (
        select j.memory_id, j.other_id, j.similarity from memfold.judgements as j
        where j.tenant_id = r.tenant_id and j.judgement_id = i.id
        offset 0
    ) as j
    cross join lateral (select greatest(j.memory_id, j.other_id) as newer, least(j.memory_id, j.other_id) as older) as s;
    v_places := memfold_internal._merge_all(r, 3, 'person', p_action, v_children, v_parents, v_similarities,
        array_fill('approved with its run'::text, array[cardinality(p_judgement_ids)]), p_judgement_ids,
        p_verdict);
    perform memfold_internal._answered(r.tenant_id, array(select p_judgement_ids[p.place] from unnest(v_places) as p (place)),
        p_verdict);
    return cardinality(v_places);
end;
$$;

create or replace function memfold.approve_run(
    run_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    verdict text default 'duplicate',
    max_operations bigint default 100
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    j memfold.judgements;
    n memfold.judgements;
    v_ids uuid[];
    v_id uuid;
    v_texts uuid[];
    v_waiting bigint;
    v_asked bigint;
    v_ends timestamptz;
    v_newer memfold.memories;
    v_older memfold.memories;
    -- Judgements whose newer memory is merged into the older, or replaces it.
    v_merged uuid[];
    v_replaced uuid[];
    v_clusters bigint := 0;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    r := memfold_internal._run(tenant_id, run_id);
    if r.status = 'undone' then
        perform memfold_internal._fail('MF039', 'the run is undone', format('run_id was %s.', r.run_id),
            'The memories that it had merged are recorded as distinct; a new run asks about the others.');
    elsif not coalesce(verdict in ('duplicate', 'refinement', 'contradiction', 'distinct'), false) then
        perform memfold_internal._fail('MF028', 'unknown verdict', format('verdict was %s.', quote_nullable(verdict)),
            'A verdict is duplicate, refinement, contradiction or distinct.');
    elsif not coalesce(max_operations between 1 and 1000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_operations was %s.', coalesce(max_operations::text, 'null')), 'max_operations is 1 to 1000.');
    end if;
    -- Before the lock, so that writers wait less.
    select count(*) into v_waiting
    from memfold.judgements as o
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.status in ('open', 'leased') and o.kind <> 'synthesis';
    v_ids := array(
        select o.judgement_id
        from memfold.judgements as o
        where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.status in ('open', 'leased') and o.kind <> 'synthesis'
        order by o.judgement_id
        limit least(max_operations, 100)
    );
    -- Rows that a concurrent merge adds to these are locked out of order, which may deadlock (40P01).
    v_texts := memfold_internal._texts_to_lock(r.tenant_id, array(
        select distinct x.id
        from unnest(v_ids) as i (id)
        cross join lateral (
            select memfold_internal._member_ids(o.memory_id, o.other_id, o.member_ids) as ids from memfold.judgements as o
            where o.tenant_id = r.tenant_id and o.judgement_id = i.id
            offset 0
        ) as o
        cross join lateral unnest(o.ids) as x (id)
    ));
    perform memfold_internal._lock(r.tenant_id, r.bucket_id, null, true);
    v_ends := clock_timestamp() + interval '60 milliseconds';
    perform memfold_internal._lock_texts(r.tenant_id, v_texts);
    for v_from in 1..coalesce(cardinality(v_ids), 0) by 10 loop
        exit when v_from > 1 and clock_timestamp() > v_ends;
        v_merged := array[]::uuid[];
        v_replaced := array[]::uuid[];
        foreach v_id in array v_ids[v_from:v_from + 9] loop
            select o.* into j
            from memfold.judgements as o
            where o.tenant_id = r.tenant_id and o.judgement_id = v_id and o.status in ('open', 'leased')
            for no key update;
            continue when not found;
            n := memfold_internal._refresh_judgement(j);
            if n.status = 'obsolete' then
                update memfold.judgements as o
                set status = 'obsolete', reason = n.reason, resolved_at = memfold_internal._clock()
                where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
                perform memfold_internal._close_parts(j, '{}', '{}');
                v_waiting := v_waiting - 1;
            elsif n.member_ids is not null then
                -- A cluster is derived by itself, which takes long: the first is answered in any case, others while there is time.
                exit when v_clusters > 0 and clock_timestamp() > v_ends;
                v_clusters := v_clusters + 1;
                perform memfold_internal._answered(r.tenant_id, array[j.judgement_id], verdict);
                n.verdict := verdict;
                n.reason := 'approved with its run';
                n.model := null;
                perform memfold_internal._close_parts(n, n.member_ids, n.member_ids);
                perform memfold_internal._apply_verdict(n, n.member_ids, null);
                v_waiting := v_waiting - 1;
            elsif memfold_internal._has_changed(n, j) then
                v_waiting := v_waiting - (memfold_internal._requeue_judgement(n) is null)::integer;
            else
                select m.* into strict v_newer
                from memfold.memories as m where m.tenant_id = n.tenant_id and m.memory_id = greatest(n.memory_id, n.other_id);
                select m.* into strict v_older
                from memfold.memories as m where m.tenant_id = n.tenant_id and m.memory_id = least(n.memory_id, n.other_id);
                if verdict not in ('duplicate', 'refinement') or v_newer.status <> 'active' or v_older.status <> 'active' then
                    perform memfold_internal._answered(r.tenant_id, array[j.judgement_id], verdict);
                    n.verdict := verdict;
                    n.reason := 'approved with its run';
                    n.model := null;
                    perform memfold_internal._apply_verdict(n, memfold_internal._members(n), null);
                    v_waiting := v_waiting - 1;
                elsif verdict = 'refinement' and length(v_newer.content) > length(v_older.content) then
                    v_replaced := v_replaced || j.judgement_id;
                else
                    v_merged := v_merged || j.judgement_id;
                end if;
            end if;
        end loop;
        v_waiting := v_waiting - memfold_internal._merge_answered(r, 'merged', v_merged, verdict)
            - memfold_internal._merge_answered(r, 'replaced', v_replaced, verdict);
    end loop;
    if v_waiting <= 0 then
        -- Count again, because others may have asked or answered since.
        select count(*) filter (where o.kind <> 'synthesis' and o.status in ('open', 'leased')), count(*)
        into v_waiting, v_asked
        from memfold.judgements as o
        where o.tenant_id = r.tenant_id and o.run_id = r.run_id;
        -- Counting the results of a large run takes longer than writers should wait; maintenance closes that (task runs).
        if v_asked <= 1000 then
            perform memfold_internal._end_run(r.tenant_id, r.run_id, '{}');
        end if;
    end if;
    return v_waiting;
end;
$$;
grant execute on function memfold.approve_run to memfold_app;
comment on function memfold.approve_run is
'Answers judgements of a run with the same verdict (as in resolve_judgement), on behalf of a person, up to max_operations (1 to 1000; a
call ends after 100), and returns how many still wait: call it until it returns 0. Judgements of kind synthesis are left to a judge, who
writes the text. Blocks writers of the bucket, so it stops after about 0.1 s. A question whose memories have changed is asked again or
becomes obsolete. For runs of more than 1,000 questions, run_maintenance() closes the row in runs; runs_overview shows at once that the
run is done. Raises MF001 to MF003, MF022, MF025, MF028, MF038 (no such run), MF039 (it is undone).';
