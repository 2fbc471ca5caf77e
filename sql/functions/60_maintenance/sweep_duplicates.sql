create or replace function memfold_internal._sweep_plan(
    tenant_id text, bucket_id text, embedding_model text, memory_ids uuid[], max_operations bigint
) returns table (
    member_ids uuid[], leader_id uuid, similarity double precision, guard text[], method text, on_merge text,
    policy memfold.policies, is_mergeable boolean
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_group record;
    v_policy memfold.policies;
    v_method text;
    v_size integer;
    v_ids uuid[];
    -- pairs near enough for a question; the positions of those that merge unless the guard raises a signal
    v_a integer[];
    v_b integer[];
    v_near double precision[];
    v_merges boolean[];
    v_fold record;
    v_check record;
    v_members integer[];
    v_leaders integer[];
    -- merges that guard or veto have prevented
    v_from integer[];
    v_into integer[];
    v_count bigint;
    v_stopped boolean;
    v_refines boolean;
    -- the root of each is still open
    v_waiting constant uuid[] := memfold_internal._waiting(tenant_id, bucket_id);
begin
    for v_group in
        select g.group_ids as ids, g.policy, g.max_cluster_size, b.score, b.merge_threshold, b.judge_threshold, b.floor
        from memfold_internal._maintenance_groups(tenant_id, bucket_id, embedding_model, true, memory_ids) as g
        cross join lateral memfold_internal._bands((g.policy).merge_threshold, (g.policy).judge_threshold,
            (g.policy).similar_threshold, embedding_model) as b
    loop
        v_policy := v_group.policy;
        v_size := pg_catalog.cardinality(v_group.ids);
        v_method := case when v_group.score is null then 'vector' else 'score' end;
        -- the one to keep comes first: the oldest, or the newest if newer texts replace older ones
        v_ids := case v_policy.on_merge
            when 'replace' then array(select i.id from pg_catalog.unnest(v_group.ids) as i (id) order by 1 desc) else v_group.ids end;
        select pg_catalog.array_agg(e.a order by e.a, e.b), pg_catalog.array_agg(e.b order by e.a, e.b),
            pg_catalog.array_agg(e.similarity order by e.a, e.b), pg_catalog.array_agg(e.merges order by e.a, e.b)
        into v_a, v_b, v_near, v_merges
        from (
            select case v_policy.on_merge when 'replace' then v_size + 1 - p.b else p.a end as a,
                case v_policy.on_merge when 'replace' then v_size + 1 - p.a else p.b end as b, p.similarity,
                s.value >= v_group.judge_threshold as unclear,
                s.value > v_group.merge_threshold or s.value = v_group.merge_threshold and v_policy.merge_inclusive as merges
            from memfold_internal._close_pairs(tenant_id, v_group.ids, embedding_model, v_group.floor) as p
            cross join lateral (
                select case when v_group.score is null then p.similarity else memfold_internal._pair_score(
                    tenant_id, v_group.score, p.similarity, v_group.ids[p.b], v_group.ids[p.a]) end as value
                offset 0
            ) as s
            where not memfold_internal._was_asked(tenant_id, v_group.ids[p.b], v_group.ids[p.a])
                -- a table of hashes; an array cannot be hashed
                and v_group.ids[p.a] not in (select w.id from pg_catalog.unnest(v_waiting) as w (id))
                and v_group.ids[p.b] not in (select w.id from pg_catalog.unnest(v_waiting) as w (id))
        ) as e
        where e.unclear or e.merges;
        continue when v_a is null;

        v_members := array[]::integer[];
        v_leaders := array[]::integer[];
        v_from := array[]::integer[];
        v_into := array[]::integer[];
        v_count := 0;
        -- A memory that guard or veto keep from its leader may still say the same as another one: three rounds, then a question about
        -- the rest.
        for v_turn in 1..case when v_policy.on_merge = 'synthesise' then 0 else 3 end loop
            v_stopped := false;
            for v_fold in
                with edges as (
                    select pg_catalog.array_agg(e.a order by e.a, e.b) as a, pg_catalog.array_agg(e.b order by e.a, e.b) as b,
                        pg_catalog.array_agg(e.similarity order by e.a, e.b) as similarity
                    from unnest(v_a, v_b, v_near, v_merges) as e (a, b, similarity, merges)
                    where e.merges
                        and e.a not in (select f.place from pg_catalog.unnest(v_members) as f (place))
                        and e.b not in (select f.place from pg_catalog.unnest(v_members) as f (place))
                        and e.b not in (select f.place from pg_catalog.unnest(v_leaders) as f (place))
                        and (e.b, e.a) not in (select f.a, f.b from unnest(v_from, v_into) as f (a, b))
                )
                select c.member, c.leader, c.similarity_to_leader as similarity, m.content, m.object, o.content as other_content,
                    o.object as other_object
                from edges as e
                cross join lateral memfold_internal._clusters(e.a, e.b, e.similarity, v_size) as c
                cross join lateral memfold_internal._memory(_sweep_plan.tenant_id, v_ids[c.member]) as m
                cross join lateral memfold_internal._memory(_sweep_plan.tenant_id, v_ids[c.leader]) as o
                where e.a is not null and c.similarity_to_leader is not null
                order by c.similarity_to_leader desc, c.member
            loop
                if v_count > max_operations then
                    -- more than one call does: left to the next
                    v_members := v_members || v_fold.member;
                    continue;
                end if;
                v_check := memfold_internal._check_merge(tenant_id, bucket_id, v_policy, v_fold.content, v_fold.other_content,
                    v_fold.object, v_fold.other_object, null, true);
                v_refines := v_check.mergeable and memfold_internal._refines(v_policy, v_fold.content, v_fold.other_content);
                if not v_check.mergeable or v_refines and v_policy.on_refinement = 'escalate' then
                    v_stopped := true;
                    v_from := v_from || v_fold.member;
                    v_into := v_into || v_fold.leader;
                    continue;
                end if;
                v_members := v_members || v_fold.member;
                v_leaders := v_leaders || v_fold.leader;
                v_count := v_count + 1;
                return query
                select array[v_ids[case when v_refines then v_fold.leader else v_fold.member end]],
                    v_ids[case when v_refines then v_fold.member else v_fold.leader end], v_fold.similarity, v_check.guard, v_method,
                    case when v_refines then 'replace' else v_policy.on_merge end, v_policy, null::boolean;
            end loop;
            exit when not v_stopped;
        end loop;

        -- the rest is compared as it would be after those merges
        return query
        with edges as (
            select pg_catalog.array_agg(e.a order by e.a, e.b) as a, pg_catalog.array_agg(e.b order by e.a, e.b) as b,
                pg_catalog.array_agg(e.similarity order by e.a, e.b) as similarity
            from unnest(v_a, v_b, v_near, v_merges) as e (a, b, similarity, merges)
            where e.a not in (select f.place from pg_catalog.unnest(v_members) as f (place))
                and e.b not in (select f.place from pg_catalog.unnest(v_members) as f (place))
        )
        select array(select v_ids[i.place] from pg_catalog.unnest(c.members) as i (place) order by 1), null::uuid, c.lowest,
            null::text[], v_method, v_policy.on_merge, v_policy, exists (
                select from pg_catalog.unnest(c.members) as i (place)
                where i.place in (
                    select x.place from unnest(v_a, v_b, v_merges) as e (a, b, merges)
                    cross join lateral (values (e.a), (e.b)) as x (place)
                    where e.merges
                )
            )
        from edges as e
        cross join lateral memfold_internal._cliques(e.a, e.b, e.similarity, v_size, v_group.max_cluster_size) as c
        where e.a is not null;
    end loop;
end;
$$;
comment on function memfold_internal._sweep_plan is
'The decisions of the bucket''s policies about stored memories. With leader_id, a merge: the single element of member_ids is merged into
it, by their own similarity, with guard and veto passed; on_merge says how (replace: it is newer, or says more). Else a cluster (oldest to
newest) to be asked about, by the policy''s on_ambiguous, or by on_merge for pairs with is_mergeable; similarity is the least in it.
method: whether the cosine (vector) or a score decides. Merges after the first max_operations are omitted, and nothing is asked about
them.';

-- Longer than 150 lines: the rounds of a run, and their rows: they share its counters.
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
    v_synthesises boolean;
    v_check record;
    v_kind text;
    -- a row of the plan: a memory and the one that it would be merged into, or the oldest of its cluster
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
    -- holds no lock while it plans
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
        v_synthesises := p.leader_id is null and p.on_merge = 'synthesise' and p.is_mergeable;
        for q in
            select i.id, o.id as into_id, m.content, m.object, o.content as other_content, o.object as other_object
            from unnest(case when p.leader_id is null then p.member_ids[2:] else p.member_ids end) with ordinality as i (id, place)
            cross join lateral memfold_internal._memory(sweep_duplicates.tenant_id, i.id) as m
            cross join lateral (
                select o.memory_id as id, o.content, o.object from memfold.memories as o
                where o.tenant_id = sweep_duplicates.tenant_id collate "C"
                    and o.memory_id = coalesce(p.leader_id, p.member_ids[1])
                offset 0
            ) as o
            order by i.place
        loop
            -- memories with neither a merge nor a question are not compared
            v_check := memfold_internal._check_merge(tenant_id, bucket_id, v_policy, q.content, q.other_content, q.object, q.other_object,
                case when p.leader_id is null and v_policy.on_ambiguous = 'insert' and not v_synthesises then '{}' else p.guard end,
                v_synthesises);
            if v_check.mergeable then
                v_kind := 'synthesis';
            end if;
            v_numbers := array_append(v_numbers, v_number);
            v_ids := array_append(v_ids, q.id);
            v_into_ids := array_append(v_into_ids, q.into_id);
            v_similarities := array_append(v_similarities, case when p.leader_id is null
                then memfold_internal._similarity_of(tenant_id, q.id, q.into_id, v_model) else p.similarity end);
            v_guards := array_append(v_guards, to_jsonb(v_check.guard));
            v_actions := array_append(v_actions, case when p.leader_id is null then 'ask'
                when p.on_merge = 'replace' then 'replace' else 'merge' end);
            v_methods := array_append(v_methods, p.method);
        end loop;
        v_kind := coalesce(v_kind, case v_policy.on_ambiguous
            when 'judge' then 'consolidation' when 'synthesise' then 'synthesis' when 'review' then 'review' end);
        if p.leader_id is null and v_kind is null then
            for i in v_first..cardinality(v_ids) loop
                v_actions[i] := 'keep';
            end loop;
            continue;
        end if;
        v_operations := v_operations + 1;
        if p.leader_id is null then
            v_questions := v_questions || jsonb_build_object('kind', v_kind, 'members', to_jsonb(p.member_ids),
                'similarity', p.similarity, 'guard', (
                    select coalesce(jsonb_agg(distinct g.signal), '[]')
                    from unnest(v_guards[v_first:]) as u (signals) cross join lateral jsonb_array_elements(u.signals) as g (signal)
                ));
        end if;
    end loop;

    -- no run if there is nothing to do: maintenance checks every few minutes
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
            -- the memory that a refinement replaces has absorbed what is merged with it
            order by a.action, a.method
        loop
            v_places := p.places;
            v_done := memfold_internal._merge_all(r, 2, p.method, case p.action when 'merge' then 'merged' else 'replaced' end,
                array(select v_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_into_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_similarities[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                null, null, null);
            -- memories changed since are left to a later sweep
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
        -- texts that are merged into one memory are one cluster, and so are those in one question
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
-- arrays of unknown size look expensive: compiling the plan takes seconds
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
