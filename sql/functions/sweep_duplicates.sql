create or replace function memfold._sweep_pairs(
    tenant_id text, bucket_id text, embedding_model text, memory_ids uuid[]
) returns table (
    cluster_id uuid, memory_id uuid, leader_id uuid, similarity double precision, method text, on_merge text, kind text,
    guarded boolean
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_group record;
    v_policy memfold.policies;
    v_size integer;
    -- where each leads is open
    v_waiting constant uuid[] := memfold._waiting(tenant_id, bucket_id);
begin
    for v_group in
        select g.group_ids as ids, g.policy, b.score, b.merge_threshold, b.judge_threshold, b.floor
        from memfold._upkeep_groups(tenant_id, bucket_id, embedding_model, true, memory_ids) as g
        cross join lateral memfold._bands(g.policy, embedding_model) as b
    loop
        v_policy := v_group.policy;
        v_size := pg_catalog.cardinality(v_group.ids);
        return query
        with edges as materialized (
            -- whoever stays comes first: the oldest, or where the newer text replaces the older the newest
            select case v_policy.on_merge when 'replace' then v_size + 1 - p.b else p.a end as a,
                case v_policy.on_merge when 'replace' then v_size + 1 - p.a else p.b end as b,
                p.similarity, s.value >= v_group.judge_threshold as unclear,
                s.value > v_group.merge_threshold or s.value = v_group.merge_threshold and v_policy.merge_inclusive as mergeable
            from memfold._close_pairs(tenant_id, v_group.ids, embedding_model, v_group.floor) as p
            cross join lateral (
                select case when v_group.score is null then p.similarity else memfold._pair_score(
                    tenant_id, v_group.score, p.similarity, v_group.ids[p.b], v_group.ids[p.a]) end as value
                offset 0
            ) as s
            where not memfold._was_asked(tenant_id, v_group.ids[p.b], v_group.ids[p.a])
                -- a table of hashes, which an array is not
                and v_group.ids[p.a] not in (select w.id from pg_catalog.unnest(v_waiting) as w (id))
                and v_group.ids[p.b] not in (select w.id from pg_catalog.unnest(v_waiting) as w (id))
        ),
        alike as (
            select pg_catalog.array_agg(e.a order by e.a, e.b) as a, pg_catalog.array_agg(e.b order by e.a, e.b) as b,
                pg_catalog.array_agg(e.similarity order by e.a, e.b) as similarity
            from edges as e
            where e.mergeable
        ),
        folds as materialized (
            select c.*
            from alike as e
            cross join lateral memfold._clusters(e.a, e.b, e.similarity, v_size) as c
            where e.a is not null and c.similarity_to_leader is not null
        ),
        -- what is left is compared as it would be once those are folded
        unclear as (
            select pg_catalog.array_agg(e.a order by e.a, e.b) as a, pg_catalog.array_agg(e.b order by e.a, e.b) as b,
                pg_catalog.array_agg(e.similarity order by e.a, e.b) as similarity
            from edges as e
            where not e.mergeable and e.unclear and not exists (
                select from folds as f where f.member in (e.a, e.b)
            )
        ),
        asks as (
            select c.*
            from unclear as e
            cross join lateral memfold._clusters(e.a, e.b, e.similarity, v_size) as c
            where e.a is not null and c.similarity_to_leader is not null
        ),
        pairs as (
            select f.*, true as mergeable from folds as f
            union all
            select a.*, false from asks as a
        )
        select n.ids[p.cluster], n.ids[p.member], n.ids[p.leader], p.similarity_to_leader,
            case when v_group.score is null then 'vector' else 'score' end, case when p.mergeable then v_policy.on_merge end,
            case v_policy.on_ambiguous
                when 'judge' then 'consolidation' when 'synthesise' then 'synthesis' when 'review' then 'review' end,
            v_policy.guard = 'on'
        from pairs as p
        cross join (
            select case v_policy.on_merge
                when 'replace' then array(select i.id from pg_catalog.unnest(v_group.ids) as i (id) order by 1 desc)
                else v_group.ids end as ids
        ) as n;
    end loop;
end;
$$;
revoke all on function memfold._sweep_pairs(text, text, text, uuid[]) from public;
comment on function memfold._sweep_pairs(text, text, text, uuid[]) is
'What the bucket''s policies say of the memories that are there already: pairs of a memory and the one it would fold into, by their own
similarity. method: whether the cosine (vector) or a score decides. on_merge: the policy''s, where they are alike enough to merge if the guard (guarded) allows; null: unclear. kind: of the
judgement where it is unclear or the guard does not allow; null: both are kept.';

create or replace function memfold.sweep_duplicates(
    tenant_id text,
    bucket_id text,
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
    v_guard text[];
    v_action text;
    v_kind text;
    v_kinds text[] := array[]::text[];
    v_actions text[] := array[]::text[];
    v_methods text[] := array[]::text[];
    v_clusters bigint[] := array[]::bigint[];
    v_ids uuid[] := array[]::uuid[];
    v_into_ids uuid[] := array[]::uuid[];
    v_similarities double precision[] := array[]::double precision[];
    v_guards jsonb[] := array[]::jsonb[];
    v_places integer[];
    v_done integer[];
    v_asked bigint := 0;
    v_operations bigint := 0;
    v_more boolean := false;
    v_rules text;
begin
    perform memfold._enter(tenant_id);
    if not coalesce(max_operations between 1 and case when dry_run then 1000000 else 1000 end and dry_run is not null, false)
    then
        perform memfold._fail('MF022', 'an argument is out of range',
            format('max_operations was %s, dry_run %s.', max_operations, dry_run),
            'max_operations is 1 to 1000, of a dry run 1 to 1000000; dry_run is true or false.');
    end if;
    v_model := memfold._upkeep_model(tenant_id, bucket_id, embedding_model);
    if into_run is not null then
        r := memfold._run(tenant_id, into_run);
        if r.kind <> 'sweep' or r.bucket_id <> sweep_duplicates.bucket_id or r.state = 'undone' then
            perform memfold._fail('MF022', 'into_run cannot be gone on with',
                format('It is of kind %s, bucket %L, and %s.', r.kind, r.bucket_id, r.state),
                'Name a run of sweep_duplicates() of this bucket that was not undone, or none.');
        end if;
    end if;

    if memory_ids is not null then
        memory_ids := array(select distinct i.id from unnest(memory_ids) as i (id) order by 1);
    end if;
    v_rules := memfold._rules_stamp(tenant_id, bucket_id);
    -- no lock is held while it is planned
    for p in
        select dense_rank() over (order by s.cluster_id) as cluster, s.*, m.content, m.object, o.content as other_content,
            o.object as other_object
        from memfold._sweep_pairs(tenant_id, bucket_id, v_model, memory_ids) as s
        cross join lateral (
            select m.content, m.object from memfold.memories as m
            where m.tenant_id = sweep_duplicates.tenant_id collate "C" and m.memory_id = s.memory_id
            offset 0
        ) as m
        cross join lateral (
            select o.content, o.object from memfold.memories as o
            where o.tenant_id = sweep_duplicates.tenant_id collate "C" and o.memory_id = s.leader_id
            offset 0
        ) as o
        order by s.similarity desc, s.memory_id
    loop
        if v_operations = max_operations then
            v_more := true;
            exit;
        end if;
        v_guard := case when p.guarded and (p.on_merge is not null or p.kind is not null)
            then memfold._guard_pair(tenant_id, p.content, p.other_content, p.object, p.other_object) else '{}' end;
        v_kind := case when p.on_merge = 'synthesise' and v_guard = '{}' then 'synthesis' else p.kind end;
        v_action := case
            when p.on_merge in ('strengthen', 'replace') and v_guard = '{}'
                then case p.on_merge when 'replace' then 'replace' else 'merge' end
            when v_kind is not null then 'ask'
            else 'keep' end;
        v_operations := v_operations + (v_action <> 'keep')::integer;
        v_clusters := array_append(v_clusters, p.cluster);
        v_ids := array_append(v_ids, p.memory_id);
        v_into_ids := array_append(v_into_ids, p.leader_id);
        v_similarities := array_append(v_similarities, p.similarity);
        v_guards := array_append(v_guards, to_jsonb(v_guard));
        v_kinds := array_append(v_kinds, v_kind);
        v_actions := array_append(v_actions, v_action);
        v_methods := array_append(v_methods, p.method);
    end loop;

    -- no run where there is nothing to do: upkeep looks every few minutes
    if not dry_run and (into_run is not null or v_actions && array['merge', 'replace', 'ask']) then
        perform memfold._lock(tenant_id, bucket_id, null, true);
        perform memfold._check_rules_stamp(tenant_id, bucket_id, v_rules);
        if into_run is null then
            r := memfold._start_run(tenant_id, bucket_id, 'sweep', jsonb_build_object(
                'embedding_model', v_model, 'max_operations', max_operations));
        else
            update memfold.runs as o set state = 'open', ended_at = null
            where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.state <> 'undone';
        end if;
        for p in
            select a.action, a.method, array_agg(a.place order by a.place) as places
            from unnest(v_actions, v_methods) with ordinality as a (action, method, place)
            where a.action in ('merge', 'replace')
            group by a.action, a.method
        loop
            v_places := p.places;
            v_done := memfold._fold_all(r, 2, p.method, case p.action when 'merge' then 'merged' else 'replaced' end,
                array(select v_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_into_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_similarities[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                null, null, null);
            -- what has changed meanwhile is for a later sweep
            for i in 1..cardinality(v_places) loop
                if i <> all(v_done) then
                    v_actions[v_places[i]] := null;
                end if;
            end loop;
        end loop;
        for p in
            select a.kind, array_agg(a.place order by a.place) as places
            from unnest(v_actions, v_kinds) with ordinality as a (action, kind, place)
            where a.action = 'ask'
            group by a.kind
        loop
            v_places := p.places;
            v_asked := v_asked + memfold._ask_all(r, p.kind,
                array(select v_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_into_ids[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                array(select v_similarities[i.n] from unnest(v_places) with ordinality as i (n, turn) order by i.turn),
                (select jsonb_agg(v_guards[i.n] order by i.turn) from unnest(v_places) with ordinality as i (n, turn)));
        end loop;
        perform memfold._end_run(tenant_id, r.run_id, jsonb_build_object(
            'asked', v_asked + coalesce((r.report ->> 'asked')::bigint, 0), 'more', v_more));
    end if;
    return query
    select r.run_id, a.cluster, a.memory_id, a.into_id, a.similarity, array(select jsonb_array_elements_text(a.guard)),
        m.content::text, o.content::text, a.action
    from unnest(v_clusters, v_ids, v_into_ids, v_similarities, v_guards, v_actions)
        as a (cluster, memory_id, into_id, similarity, guard, action)
    join memfold.memories as m on m.tenant_id = sweep_duplicates.tenant_id collate "C" and m.memory_id = a.memory_id
    join memfold.memories as o on o.tenant_id = sweep_duplicates.tenant_id collate "C" and o.memory_id = a.into_id
    where a.action is not null
    order by a.cluster, a.into_id, a.similarity desc, a.memory_id;
end;
$$;
revoke all on function memfold.sweep_duplicates(text, text, text, boolean, bigint, uuid[], uuid) from public;
grant execute on function memfold.sweep_duplicates(text, text, text, boolean, bigint, uuid[], uuid) to memfold_app;
comment on function memfold.sweep_duplicates(text, text, text, boolean, bigint, uuid[], uuid) is
'Does to the memories that are there what ingest would do to them if they arrived now, by the thresholds, the scope, the guard, on_merge and
on_ambiguous of the policy: of a bucket that was filled without dedup, or by other rules. Each member of a cluster is compared with the
memory that it would fold into; none is folded because it is near to another member. dry_run (the default) returns the plan and writes nothing. action:
merge (memory_id folds into representative_id), replace (the same, and representative_id is the newer text), ask (a judgement is queued), keep (the policy says
so; not counted). Does at most max_operations (1 to 1000; of a dry run 1 to 1000000), the most similar first, and with the bucket locked: call it until it returns
no row but keep. memory_ids: only these are compared with one another, such as those of a dry run; into_run: goes on with that run, so that one
undo_run() takes all of it back. Protected types and memories without a hash or a vector are left out. Raises MF001 to MF003, MF013,
MF022, MF025, MF038.';

create or replace function memfold.duplicate_pairs(
    tenant_id text,
    bucket_id text,
    embedding_model text default null,
    thresholds double precision[] default '{0.98,0.95,0.9}'
) returns table (threshold double precision, pairs bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
-- arrays of unknown size look dear: compiling the plan takes seconds
set jit = off
as $$
#variable_conflict use_column
declare
    v_model text;
begin
    perform memfold._enter(tenant_id);
    v_model := memfold._upkeep_model(tenant_id, bucket_id, embedding_model);
    if not coalesce((select bool_and(t between 0 and 1) and count(*) <= 100 from unnest(thresholds) as t), false) then
        perform memfold._fail('MF022', 'an argument is out of range',
            format('thresholds was %s.', coalesce(thresholds::text, 'null')), 'Pass 1 to 100 numbers from 0 to 1.');
    end if;
    return query
    with pairs as materialized (
        select p.similarity
        from memfold._upkeep_groups(tenant_id, bucket_id, v_model, true, null) as g
        cross join lateral memfold._close_pairs(tenant_id, g.group_ids, v_model, (select min(t) from unnest(thresholds) as t)) as p
    )
    select t.threshold, count(p.similarity)
    from unnest(thresholds) as t (threshold)
    left join pairs as p on p.similarity >= t.threshold
    group by t.threshold
    order by t.threshold desc;
end;
$$;
revoke all on function memfold.duplicate_pairs(text, text, text, double precision[]) from public;
grant execute on function memfold.duplicate_pairs(text, text, text, double precision[]) to memfold_app;
comment on function memfold.duplicate_pairs(text, text, text, double precision[]) is
'How many pairs of active memories of one scope have a cosine at or above each threshold: what sweep_duplicates() would meet with other
thresholds. Of scopes with more than 1,000 memories each memory''s 20 nearest are counted. Only reads. Raises MF001 to MF003, MF013,
MF022.';
