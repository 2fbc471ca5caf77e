create or replace function memfold._start_run(
    tenant_id text, bucket_id text, kind text, arguments jsonb
) returns memfold.runs
language plpgsql volatile
as $$
declare
    v_run memfold.runs;
    v_run_id constant uuid := memfold._new_run_id(tenant_id);
begin
    insert into memfold.runs as r (tenant_id, run_id, bucket_id, kind, arguments, actor)
    values (tenant_id, v_run_id, bucket_id, kind, pg_catalog.jsonb_strip_nulls(arguments), memfold._actor())
    returning r.* into v_run;
    return v_run;
end;
$$;
revoke all on function memfold._start_run(text, text, text, jsonb) from public;
comment on function memfold._start_run(text, text, text, jsonb) is 'Records that a run of upkeep begins, and returns it.';

create or replace function memfold._rules_stamp(tenant_id text, bucket_id text) returns text
language plpgsql stable
as $$
begin
    return (
        select pg_catalog.md5(pg_catalog.string_agg(x.rule, ' ' order by x.rule))
        from (
            select p::text as rule from memfold.policies as p
            where p.tenant_id in (_rules_stamp.tenant_id collate "C", '*') and p.bucket_id in (_rules_stamp.bucket_id collate "C", '*')
            union all
            select m::text from memfold.embedding_models as m
        ) as x
    );
end;
$$;
revoke all on function memfold._rules_stamp(text, text) from public;
comment on function memfold._rules_stamp(text, text) is
'Stands for the rules by which a run plans: those of the bucket, and of the embedding models. Only reads.';

create or replace function memfold._check_rules_stamp(tenant_id text, bucket_id text, stamp text) returns void
language plpgsql volatile
as $$
begin
    if memfold._rules_stamp(tenant_id, bucket_id) <> stamp then
        perform memfold._retry('the rules of the bucket have changed', 'They changed while this call waited for its turn.');
    end if;
end;
$$;
revoke all on function memfold._check_rules_stamp(text, text, text) from public;
comment on function memfold._check_rules_stamp(text, text, text) is
'For a run that has planned, and then waited for the bucket''s lock: raises 40001 if the rules that it planned
by have changed (_rules_stamp).';

create or replace function memfold._run(tenant_id text, run_id uuid) returns memfold.runs
language plpgsql stable
as $$
declare
    r memfold.runs;
begin
    select o.* into r
    from memfold.runs as o
    where o.tenant_id = _run.tenant_id collate "C" and o.run_id = _run.run_id;
    if not found then
        perform memfold._fail('MF038', 'there is no such run',
            pg_catalog.format('run_id was %s.', coalesce(run_id::text, 'null')),
            'runs_overview lists them; set memfold.tenant_id to their tenant.');
    end if;
    return r;
end;
$$;
revoke all on function memfold._run(text, uuid) from public;
comment on function memfold._run(text, uuid) is 'A run. Raises MF038. Only reads.';

create or replace function memfold._end_run(tenant_id text, run_id uuid, report jsonb) returns void
language plpgsql volatile
as $$
declare
    v_now constant timestamptz := pg_catalog.clock_timestamp();
begin
    update memfold.runs as r
    set report = r.report - array['open', 'moot', 'dead'] || _end_run.report || (
            select coalesce(pg_catalog.jsonb_object_agg(c.name, c.n), '{}')
            from (
                select e.action as name, pg_catalog.count(*) as n
                from memfold._ledger as e
                where e.tenant_id = r.tenant_id and e.run_id = r.run_id and not e.undone
                    and e.action in ('merged', 'replaced', 'superseded', 'rejected', 'pruned')
                group by e.action
                union all
                select case j.state when 'done' then j.verdict when 'leased' then 'open' else j.state end,
                    pg_catalog.count(*)
                from memfold.judgements as j
                where j.tenant_id = r.tenant_id and j.run_id = r.run_id
                    and (j.state <> 'done' or j.verdict in ('distinct', 'unsure'))
                group by 1
            ) as c
        ),
        state = case when w.waits then 'open' else 'done' end,
        ended_at = case when not w.waits then v_now end
    from (
        select exists (
            select from memfold.judgements as j
            where j.tenant_id = _end_run.tenant_id collate "C" and j.run_id = _end_run.run_id
                and j.state in ('open', 'leased')
        ) as waits
    ) as w
    where r.tenant_id = _end_run.tenant_id collate "C" and r.run_id = _end_run.run_id and r.state = 'open';
end;
$$;
revoke all on function memfold._end_run(text, uuid, jsonb) from public;
comment on function memfold._end_run(text, uuid, jsonb) is
'Writes down what an open run has done so far, and that it is done, unless judgements of it wait.';

create or replace function memfold._texts_to_lock(tenant_id text, memory_ids uuid[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_texts uuid[] := array[]::uuid[];
begin
    -- in parts, for the time that one takes grows faster than its size
    for v_from in 1..pg_catalog.cardinality(memory_ids) by 200 loop
        -- without those of trees and timelines that are there already
        v_texts := v_texts || memfold._timeline_texts(tenant_id, array(
            select i.id from pg_catalog.unnest(memory_ids[v_from:v_from + 199]) as i (id) where i.id <> all(v_texts)
        ));
    end loop;
    return array(
        select distinct on (m.root_id is not null, m.memory_id) m.memory_id
        from pg_catalog.unnest(v_texts) as i (id)
        cross join lateral (
            select m.memory_id, m.root_id from memfold.memories as m
            where m.tenant_id = _texts_to_lock.tenant_id collate "C" and m.memory_id = i.id
            offset 0
        ) as m
        order by m.root_id is not null, m.memory_id
    );
end;
$$;
revoke all on function memfold._texts_to_lock(text, uuid[]) from public;
comment on function memfold._texts_to_lock(text, uuid[]) is
'All that derive_scope() of memory_ids may change, in the order in which everyone locks. Only reads.';

create or replace function memfold._lock_texts(tenant_id text, memory_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
    v_id uuid;
begin
    foreach v_id in array memory_ids loop
        perform from memfold.memory_counters as k
        where k.tenant_id = _lock_texts.tenant_id collate "C" and k.memory_id = v_id
        for no key update;
    end loop;
end;
$$;
revoke all on function memfold._lock_texts(text, uuid[]) from public;
comment on function memfold._lock_texts(text, uuid[]) is
'Locks the counters of memory_ids one after the other: before derive_scope() is called in parts (_texts_to_lock). The caller holds the
bucket''s lock.';

create or replace function memfold._derive_all(tenant_id text, memory_ids uuid[]) returns void
language plpgsql volatile
as $$
begin
    if pg_catalog.cardinality(memory_ids) > 200 then
        perform memfold._lock_texts(tenant_id, memfold._texts_to_lock(tenant_id, memory_ids));
    end if;
    for v_from in 1..pg_catalog.cardinality(memory_ids) by 200 loop
        perform memfold.derive_scope(tenant_id, memory_ids[v_from:v_from + 199]);
    end loop;
end;
$$;
revoke all on function memfold._derive_all(text, uuid[]) from public;
comment on function memfold._derive_all(text, uuid[]) is
'derive_scope() of any number of memories, in parts. The caller holds the bucket''s lock.';

create or replace function memfold._fold_all(
    r memfold.runs, tier integer, method text, action text, memory_ids uuid[], into_ids uuid[],
    similarities double precision[], reasons text[], judgement_ids uuid[], verdict text
) returns integer[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_active constant uuid[] := array(
        select i.id
        from (select distinct x.id from pg_catalog.unnest(memory_ids || into_ids) as x (id)) as i
        cross join lateral (
            select from memfold.memories as m
            where m.tenant_id = r.tenant_id and m.memory_id = i.id and m.root_id is null and m.status = 'active'
            offset 0
        ) as m
    );
    v_gone uuid[] := array[]::uuid[];
    v_places integer[] := array[]::integer[];
    v_newest uuid;
begin
    for i in 1..coalesce(pg_catalog.cardinality(memory_ids), 0) loop
        if memory_ids[i] = any(v_active) and into_ids[i] = any(v_active) and memory_ids[i] <> into_ids[i]
            and memory_ids[i] <> all(v_gone) and into_ids[i] <> all(v_gone)
        then
            v_gone := v_gone || memory_ids[i];
            v_places := v_places || i;
        end if;
    end loop;
    if v_places = '{}' then
        return v_places;
    end if;
    perform memfold._adopt_row(r.tenant_id, i.id)
    from pg_catalog.unnest(v_places) as p (place)
    cross join lateral (values (memory_ids[p.place]), (into_ids[p.place])) as i (id);
    v_newest := memfold._newest_event(r.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, reason, on_timeline,
        judgement_id, verdict, run_id, actor
    )
    select r.tenant_id, memfold._id_after(memfold._new_id(), v_newest), r.bucket_id, _fold_all.action, tier, method,
        case when action = 'replaced' then into_ids[p.place] else memory_ids[p.place] end,
        case when action = 'replaced' then memory_ids[p.place] else into_ids[p.place] end,
        similarities[p.place],
        coalesce((
            select j.guard from memfold.judgements as j
            where j.tenant_id = r.tenant_id and j.judgement_id = judgement_ids[p.place]
        ), '{}'),
        reasons[p.place],
        exists (
            select from memfold.memory_counters as k
            where k.tenant_id = r.tenant_id and k.memory_id in (memory_ids[p.place], into_ids[p.place]) and k.on_timeline
        ),
        judgement_ids[p.place], _fold_all.verdict, r.run_id, memfold._actor()
    from pg_catalog.unnest(v_places) with ordinality as p (place, turn)
    order by p.turn;
    perform memfold._derive_all(r.tenant_id, array(
        select distinct x.id
        from pg_catalog.unnest(v_places) as p (place)
        cross join lateral (values (memory_ids[p.place]), (into_ids[p.place])) as x (id)
        order by 1
    ));
    return v_places;
end;
$$;
revoke all on function memfold._fold_all(
    memfold.runs, integer, text, text, uuid[], uuid[], double precision[], text[], uuid[], text
) from public;
comment on function memfold._fold_all(
    memfold.runs, integer, text, text, uuid[], uuid[], double precision[], text[], uuid[], text
) is
'Folds each of memory_ids into its place''s of into_ids, as events of a run (action: merged, or replaced where a newer text takes
the place of an older), and derives their state at once. Returns the places that were folded: not those where one of the two
is no longer an active root, or was folded by an earlier place. The caller holds the bucket''s lock.';

create or replace function memfold._ask_all(r memfold.runs, questions jsonb) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids uuid[];
begin
    -- NOTIFY makes commits wait for one another: only where it is wanted, and where a judge may be asleep.
    if (memfold._policy(r.tenant_id, r.bucket_id, '*')).notify and exists (
        select from pg_catalog.jsonb_array_elements(questions) as q (question)
        where not exists (
            select from memfold.judgements as j
            where j.tenant_id = r.tenant_id and j.state in ('open', 'leased')
                and (j.kind = 'review') = (q.question ->> 'kind' = 'review')
        )
    ) then
        perform pg_catalog.pg_notify('memfold_judgements', '');
    end if;
    with asked as (
        insert into memfold.judgements as j (
            tenant_id, bucket_id, scope_key, kind, memory_id, other_id, member_ids, similarity, guard, run_id
        )
        select r.tenant_id, r.bucket_id, m.scope_key, q.question ->> 'kind', i.ids[pg_catalog.cardinality(i.ids)], i.ids[1],
            case when pg_catalog.cardinality(i.ids) > 2 then i.ids end, (q.question ->> 'similarity')::double precision,
            array(select pg_catalog.jsonb_array_elements_text(q.question -> 'guard')), r.run_id
        from pg_catalog.jsonb_array_elements(questions) with ordinality as q (question, place)
        cross join lateral (
            select array(
                select e.id::uuid from pg_catalog.jsonb_array_elements_text(q.question -> 'members') as e (id) order by 1
            ) as ids
            offset 0
        ) as i
        cross join lateral (
            select m.scope_key from memfold.memories as m
            where m.tenant_id = r.tenant_id and m.memory_id = i.ids[pg_catalog.cardinality(i.ids)]
            offset 0
        ) as m
        -- one was erased since it was planned
        where not exists (
            select from pg_catalog.unnest(i.ids) as e (id)
            left join lateral (
                select o.memory_id from memfold.memories as o
                where o.tenant_id = r.tenant_id and o.memory_id = e.id
                offset 0
            ) as o on true
            where o.memory_id is null
        )
        order by q.place
        on conflict do nothing
        returning j.judgement_id
    )
    -- not by ROW_COUNT: Citus takes rows that are left out for inserted ones
    select coalesce(pg_catalog.array_agg(a.judgement_id), '{}') into v_ids from asked as a;
    perform memfold._add_parts(r.tenant_id, v_ids);
    return pg_catalog.cardinality(v_ids);
end;
$$;
revoke all on function memfold._ask_all(memfold.runs, jsonb) from public;
comment on function memfold._ask_all(memfold.runs, jsonb) is
'Queues judgements of a run and returns how many: those that are queued already are left out, and those of which a member
has been erased. questions: an array of objects with kind, members (two memories: a pair; more: a cluster), similarity and guard (the
guard''s signals). The caller holds the bucket''s lock, so that no
member is being erased.';
