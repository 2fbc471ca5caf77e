-- Longer than 150 lines: a plan, its application and its rows share their arrays.
create or replace function memfold.sweep_duplicates(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    embedding_model text default null,
    dry_run boolean default true,
    max_operations bigint default 200,
    memory_ids uuid[] default null,
    into_run uuid default null
) returns table (
    run_id uuid, cluster bigint, memory_id uuid, representative_id uuid, similarity double precision, guard text[],
    content text, representative_content text, action text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_model text;
    r memfold.runs;
    p record;
    q record;
    v_policy memfold.policies;
    v_check record;
    v_pair record;
    v_kind text;
    -- Rows of the plan: a memory, and the one that it merges into, or the oldest of its cluster.
    v_actions text[] := array[]::text[];
    v_methods text[] := array[]::text[];
    v_numbers bigint[] := array[]::bigint[];
    v_ids uuid[] := array[]::uuid[];
    v_into_ids uuid[] := array[]::uuid[];
    v_similarities double precision[] := array[]::double precision[];
    v_guards jsonb[] := array[]::jsonb[];
    v_number bigint := 0;
    v_first integer;
    v_questions jsonb := '[]'::jsonb;
    v_places integer[];
    v_done integer[];
    v_asked bigint := 0;
    v_operations bigint := 0;
    v_more boolean := false;
    v_rules text;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if not coalesce(max_operations between 1 and case when dry_run then 1000000 else 1000 end and dry_run is not null, false)
    then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_operations was %s, dry_run %s.', max_operations, dry_run),
            'max_operations is 1 to 1000, or 1 to 1000000 for a dry run; dry_run is true or false.');
    end if;
    v_model := memfold_internal._maintenance_model(tenant_id, bucket_id, embedding_model);
    if into_run is not null then
        r := memfold_internal._run(tenant_id, into_run);
        if r.kind <> 'sweep' or r.bucket_id <> sweep_duplicates.bucket_id or r.status = 'undone' then
            perform memfold_internal._fail('MF022', 'into_run cannot be continued',
                format('It is of kind %s, bucket %L, and %s.', r.kind, r.bucket_id, r.status),
                'Pass a run of sweep_duplicates() on this bucket that was not undone, or omit it.');
        end if;
    end if;

    if memory_ids is not null then
        memory_ids := array(select distinct i.id from unnest(memory_ids) as i (id) order by 1);
    end if;
    v_rules := memfold_internal._rules_stamp(tenant_id, bucket_id);
    for p in
        select s.* from memfold_internal._sweep_plan(tenant_id, bucket_id, v_model, memory_ids, max_operations) as s
        order by s.similarity desc, s.member_ids
    loop
        if v_operations = max_operations then
            v_more := true;
            exit;
        end if;
        v_number := v_number + 1;
        v_first := cardinality(v_ids) + 1;
        v_kind := null;
        v_policy := p.policy;
        for q in
            select i.id, o.id as into_id, m.content, m.object, o.content as other_content, o.object as other_object
            from unnest(case when p.leader_id is null then p.member_ids[2:] else p.member_ids end) with ordinality as i (id, place)
            cross join lateral memfold_internal._memory(sweep_duplicates.tenant_id, i.id) as m
            cross join lateral (
                select o.memory_id as id, o.content, o.object from memfold.memories as o
                where o.tenant_id = sweep_duplicates.tenant_id collate "C"
                    and o.memory_id = memfold_internal._root(p.member_ids[1], p.leader_id)
                offset 0
            ) as o
            order by i.place
        loop
            -- An empty guard skips the comparison of memories that are neither merged nor asked about.
            v_check := memfold_internal._check_merge(tenant_id, bucket_id, v_policy, q.content, q.other_content, q.object, q.other_object,
                case when p.leader_id is null and v_policy.on_ambiguous = 'insert' and not p.is_mergeable then '{}' else p.guard end,
                p.is_mergeable);
            if p.leader_id is null then
                v_pair := memfold_internal._decide_pair(v_policy, v_check.mergeable, false, q.content, null, q.other_content, null, true);
                if v_pair.action in ('merged', 'replaced') then
                    -- The plan keeps both, although they would merge (each may have absorbed others): ask.
                    v_pair := memfold_internal._decide_pair(v_policy, false, false, q.content, null, q.other_content, null, true);
                end if;
                v_kind := case when v_pair.judgement = 'synthesis' then 'synthesis' else coalesce(v_kind, v_pair.judgement) end;
            end if;
            v_numbers := array_append(v_numbers, v_number);
            v_ids := array_append(v_ids, q.id);
            v_into_ids := array_append(v_into_ids, q.into_id);
            v_similarities := array_append(v_similarities, case when p.leader_id is null
                then memfold_internal._similarity_of(tenant_id, q.id, q.into_id, v_model) else p.similarity end);
            v_guards := array_append(v_guards, to_jsonb(v_check.guard));
            v_actions := array_append(v_actions, case when p.leader_id is null then 'ask'
                when p.action = 'replaced' then 'replace' else 'merge' end);
            v_methods := array_append(v_methods, p.method);
        end loop;
        if p.leader_id is null and v_kind is null then
            for i in v_first..cardinality(v_ids) loop
                v_actions[i] := 'keep';
            end loop;
            continue;
        end if;
        v_operations := v_operations + 1;
        if p.leader_id is null then
            v_questions := v_questions || jsonb_build_object('kind', case v_kind when 'write' then 'consolidation' else v_kind end, 'members', to_jsonb(p.member_ids),
                'similarity', p.similarity, 'guard', (
                    select coalesce(jsonb_agg(distinct g.signal), '[]')
                    from unnest(v_guards[v_first:]) as u (signals) cross join lateral jsonb_array_elements(u.signals) as g (signal)
                ));
        end if;
    end loop;

    -- No run if there is nothing to do, because maintenance calls this often.
    if not dry_run and (into_run is not null or v_actions && array['merge', 'replace', 'ask']) then
        perform memfold_internal._lock(tenant_id, bucket_id, null, true);
        perform memfold_internal._check_rules_stamp(tenant_id, bucket_id, v_rules);
        if into_run is null then
            r := memfold_internal._start_run(tenant_id, bucket_id, 'sweep', jsonb_build_object(
                'embedding_model', v_model, 'max_operations', max_operations));
        else
            update memfold.runs as o set status = 'open', ended_at = null
            where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.status <> 'undone';
        end if;
        for p in
            select a.action, a.method, array_agg(a.place order by a.place) as places
            from unnest(v_actions, v_methods) with ordinality as a (action, method, place)
            where a.action in ('merge', 'replace')
            group by a.action, a.method
            -- Merges first: a memory that is then replaced takes its aliases with it.
            order by a.action, a.method
        loop
            v_places := p.places;
            v_done := memfold_internal._merge_all(r, 2, p.method, case p.action when 'merge' then 'merged' else 'replaced' end,
                array(select v_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_into_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_similarities[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                null, null, null);
            -- Memories that have changed since the plan are left to a later sweep.
            for i in 1..cardinality(v_places) loop
                if i <> all(v_done) then
                    v_actions[v_places[i]] := null;
                end if;
            end loop;
        end loop;
        v_asked := memfold_internal._ask_all(r, v_questions);
        perform memfold_internal._end_run(tenant_id, r.run_id, jsonb_build_object(
            'asked', v_asked + coalesce((r.report ->> 'asked')::bigint, 0), 'more', v_more));
    end if;
    return query
    select r.run_id, dense_rank() over (order by a.first_number), a.memory_id, a.into_id, a.similarity,
        array(select jsonb_array_elements_text(a.guard)), m.content::text, o.content::text, a.action
    from (
        -- Texts merged into one memory are one cluster, and so are those in one question.
        select u.*, min(u.number) over (partition by u.into_id, case when u.action in ('ask', 'keep') then u.number end) as first_number
        from unnest(v_numbers, v_ids, v_into_ids, v_similarities, v_guards, v_actions)
            as u (number, memory_id, into_id, similarity, guard, action)
        where u.action is not null
    ) as a
    join memfold.memories as m on m.tenant_id = sweep_duplicates.tenant_id collate "C" and m.memory_id = a.memory_id
    join memfold.memories as o on o.tenant_id = sweep_duplicates.tenant_id collate "C" and o.memory_id = a.into_id
    order by 2, a.similarity desc, a.memory_id;
end;
$$;
grant execute on function memfold.sweep_duplicates to memfold_app;
comment on function memfold.sweep_duplicates is
'Treats stored memories as ingest would treat them if they arrived now, by the thresholds, scope, guard, on_merge and on_ambiguous of the
policy: for a bucket that was filled without dedup or under other rules. Each member of a cluster is compared with the memory that it
would be merged into; being near another member is not enough. Questions are about clusters in which every two are near, of at most
max_cluster_size memories, one question each. dry_run (the default) returns the plan and writes nothing. action: merge (memory_id becomes
an alias of representative_id), replace (the same, and representative_id is the newer text), ask (queues a judgement about the cluster;
representative_id is its oldest member), keep (by the policy; not counted). Does at most max_operations (1 to 1000; for a dry run 1 to
1000000), the most similar first, with the bucket locked: call it until it returns no row other than keep. memory_ids: compares only these
with one another, such as those of a dry run; into_run: continues that run, so that one undo_run() undoes all of it. Omits protected types
and memories without a hash or a vector. Raises MF001 to MF003, MF013, MF022, MF025, MF038.';

create or replace function memfold.duplicate_pairs(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    embedding_model text default null,
    thresholds double precision[] default '{0.98,0.95,0.9}'
) returns table (threshold double precision, pairs bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
-- Arrays of unknown size look expensive, and compiling the plan would take seconds.
set jit = off
as $$
#variable_conflict use_column
declare
    v_model text;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    v_model := memfold_internal._maintenance_model(tenant_id, bucket_id, embedding_model);
    if not coalesce((select bool_and(t between 0 and 1) and count(*) <= 100 from unnest(thresholds) as t), false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('thresholds was %s.', coalesce(thresholds::text, 'null')), 'Pass 1 to 100 numbers from 0 to 1.');
    end if;
    return query
    with pairs as materialized (
        select p.similarity
        from memfold_internal._maintenance_groups(tenant_id, bucket_id, v_model, true, null) as g
        cross join lateral memfold_internal._close_pairs(tenant_id, g.group_ids, v_model, (select min(t) from unnest(thresholds) as t)) as p
    )
    select t.threshold, count(p.similarity)
    from unnest(thresholds) as t (threshold)
    left join pairs as p on p.similarity >= t.threshold
    group by t.threshold
    order by t.threshold desc;
end;
$$;
grant execute on function memfold.duplicate_pairs to memfold_app;
comment on function memfold.duplicate_pairs is
'Returns how many pairs of active memories of one scope have a cosine at or above each threshold: what sweep_duplicates() would find with
other thresholds. In scopes with more than 1,000 memories only the 20 nearest of each memory are counted. Only reads. Raises MF001 to
MF003, MF013, MF022.';
