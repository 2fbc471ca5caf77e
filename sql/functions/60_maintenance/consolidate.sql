-- The questions of consolidate(): clusters of memories (oldest to newest) in which every two are near, with their least
-- similarity. Omits pairs that were asked about, and memories that wait for a judgement. p_memory_ids: only these; null: all.
-- p_by_policy: without groups for which on_ambiguous is insert. p_limit: how many questions are wanted; of a group with very many near
-- pairs, only the nearest are read.
create or replace function memfold_internal._consolidation_questions(
    p_tenant_id text, p_bucket_id text, p_embedding_model text, p_threshold double precision, p_memory_ids uuid[],
    p_by_policy boolean, p_limit bigint
) returns table (member_ids uuid[], similarity double precision, on_ambiguous text)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_group record;
    v_older_ids uuid[];
    v_newer_ids uuid[];
    -- An open question may give each of these another root.
    v_waiting constant uuid[] := memfold_internal._waiting(p_tenant_id, p_bucket_id);
begin
    for v_group in
        select g.group_ids as ids, g.policy, g.max_cluster_size,
            coalesce(p_threshold, g.consolidate_threshold) as threshold
        from memfold_internal._maintenance_groups(p_tenant_id, p_bucket_id, p_embedding_model, false, p_memory_ids) as g
    loop
        continue when p_by_policy and (v_group.policy).on_ambiguous = 'insert';
        -- The pairs for which _was_asked() is true, read at once: a call for each near pair would take 33 us.
        select array_agg(q.older_id), array_agg(q.newer_id) into v_older_ids, v_newer_ids
        from unnest(v_group.ids) as i (id)
        cross join lateral (
            select least(j.memory_id, j.other_id) as older_id, greatest(j.memory_id, j.other_id) as newer_id
            from memfold.judgements as j
            where j.tenant_id = p_tenant_id collate "C" and j.memory_id = i.id and j.status <> 'obsolete'
            union all
            select o.memory_id, j.memory_id
            from memfold.judgements as j
            join memfold.judgements as o on o.tenant_id = j.tenant_id and o.cluster_id = j.cluster_id
            where j.tenant_id = p_tenant_id collate "C" and j.memory_id = i.id and j.status <> 'obsolete'
                and o.tenant_id = p_tenant_id collate "C" and o.memory_id < j.memory_id and o.status <> 'obsolete'
            offset 0
        ) as q;
        return query
        with close as (
            select p.*
            from memfold_internal._close_pairs(p_tenant_id, v_group.ids, p_embedding_model, v_group.threshold) as p
            -- A sub-select, because it is hashed and an array is not.
            where (v_group.ids[p.a], v_group.ids[p.b]) not in (
                select q.older_id, q.newer_id from unnest(v_older_ids, v_newer_ids) as q (older_id, newer_id)
            )
                and v_group.ids[p.a] not in (select w.id from unnest(v_waiting) as w (id))
                and v_group.ids[p.b] not in (select w.id from unnest(v_waiting) as w (id))
            order by p.similarity desc, p.a, p.b
            limit greatest(100000, 1000 * p_limit)
        ),
        edges as (
            select array_agg(p.a order by p.a, p.b) as a, array_agg(p.b order by p.a, p.b) as b,
                array_agg(p.similarity order by p.a, p.b) as similarity
            from close as p
        )
        select array(select v_group.ids[m.place] from unnest(c.members) as m (place) order by m.place), c.lowest,
            (v_group.policy).on_ambiguous
        from edges as e
        cross join lateral memfold_internal._cliques(e.a, e.b, e.similarity, cardinality(v_group.ids),
            v_group.max_cluster_size) as c
        where e.a is not null;
    end loop;
end;
$$;

create or replace function memfold.consolidate(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    embedding_model text default null,
    threshold double precision default null,
    approval text default 'judge',
    max_operations bigint default 1000,
    max_judgements bigint default 1000,
    dry_run boolean default true,
    memory_ids uuid[] default null
) returns table (
    run_id uuid, cluster bigint, memory_id uuid, representative_id uuid, similarity double precision, guard text[],
    content text, representative_content text, action text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_model text;
    v_limit constant bigint := case when approval = 'person' then max_operations else least(max_operations, max_judgements) end;
    v_run memfold.runs;
    v_count bigint;
    v_asked bigint := 0;
    -- For each memory except the oldest of its question: the question, and similarity and guard relative to the oldest.
    v_clusters bigint[];
    v_ids uuid[];
    v_oldest_ids uuid[];
    v_similarities double precision[];
    v_guards jsonb;
    v_rules text;
    v_questions jsonb;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if not coalesce(approval in ('judge', 'person', 'policy') and coalesce(threshold between 0 and 1, true)
        and max_operations between 1 and 1000000 and max_judgements between 1 and 1000000 and dry_run is not null, false)
    then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('threshold was %s, approval %s, max_operations %s, max_judgements %s, dry_run %s.', threshold,
                quote_nullable(approval), max_operations, max_judgements, dry_run),
            'threshold is 0 to 1, approval judge, person or policy, both limits 1 to 1000000, dry_run true or false.');
    end if;
    v_model := memfold_internal._maintenance_model(tenant_id, bucket_id, embedding_model);

    if memory_ids is not null then
        memory_ids := array(select distinct i.id from unnest(memory_ids) as i (id) order by 1);
    end if;
    v_rules := memfold_internal._rules_stamp(tenant_id, bucket_id);
    -- Plan without a lock: questions are checked again when they are answered.
    with questions as materialized (
        select q.*
        from memfold_internal._consolidation_questions(tenant_id, bucket_id, v_model, threshold, memory_ids,
            approval = 'policy', v_limit) as q
    ),
    planned as materialized (
        select q.*, row_number() over (order by q.similarity desc, q.member_ids) as cluster
        from questions as q
        order by q.similarity desc, q.member_ids
        limit v_limit
    ),
    beside as materialized (
        select p.cluster, p.member_ids[1] as oldest_id, i.id, i.place,
            memfold_internal._similarity_of(consolidate.tenant_id, i.id, p.member_ids[1], v_model) as similarity,
            memfold_internal._guard_pair(consolidate.tenant_id, m.content, o.content, m.object, o.object,
                m.bucket_id) as guard
        from planned as p
        cross join lateral unnest(p.member_ids[2:]) with ordinality as i (id, place)
        cross join lateral memfold_internal._memory(consolidate.tenant_id, i.id) as m
        cross join lateral memfold_internal._memory(consolidate.tenant_id, p.member_ids[1]) as o
    )
    select (select count(*) from questions), array_agg(b.cluster order by b.cluster, b.place),
        array_agg(b.id order by b.cluster, b.place), array_agg(b.oldest_id order by b.cluster, b.place),
        array_agg(b.similarity order by b.cluster, b.place), jsonb_agg(to_jsonb(b.guard) order by b.cluster, b.place),
        (
            select jsonb_agg(jsonb_build_object(
                -- A judge writes one text for all if the policy wants that at ingest.
                'kind', case when approval = 'person' or approval = 'policy' and p.on_ambiguous = 'review' then 'review'
                    when p.on_ambiguous = 'synthesise' then 'synthesis' else 'consolidation' end,
                'members', to_jsonb(p.member_ids), 'similarity', p.similarity, 'guard', (
                    select coalesce(jsonb_agg(distinct g.signal), '[]')
                    from beside as x cross join lateral unnest(x.guard) as g (signal)
                    where x.cluster = p.cluster
                )) order by p.cluster)
            from planned as p
        )
    into v_count, v_clusters, v_ids, v_oldest_ids, v_similarities, v_guards, v_questions
    from beside as b;
    v_count := coalesce(v_count, 0);

    if not dry_run then
        if v_questions is not null then
            -- The bucket's lock SHARED keeps its rules; EXCLUSIVE would block writers for seconds (21,000 questions: 3.2 s).
            perform memfold_internal._lock(tenant_id, bucket_id, memfold_internal._no_scope(), true);
            perform memfold_internal._check_rules_stamp(tenant_id, bucket_id, v_rules);
        end if;
        -- Keep the memories from being erased, in the order of erasure. Writers do not wait for this: they change no key.
        perform from memfold.memories as m
        where m.tenant_id = consolidate.tenant_id collate "C" and m.memory_id = any(v_ids || v_oldest_ids)
        order by m.memory_id
        for key share;
        v_run := memfold_internal._start_run(tenant_id, bucket_id, 'consolidation', jsonb_build_object(
            'embedding_model', v_model, 'threshold', threshold, 'approval', approval, 'max_operations', max_operations,
            'max_judgements', max_judgements));
        v_asked := memfold_internal._ask_all(v_run, coalesce(v_questions, '[]'));
        perform memfold_internal._end_run(tenant_id, v_run.run_id, jsonb_build_object(
            'questions', v_count, 'asked', v_asked, 'left_out', v_count - coalesce(jsonb_array_length(v_questions), 0)));
    end if;
    return query
    select v_run.run_id, p.cluster, p.memory_id, p.oldest_id, p.similarity,
        array(select jsonb_array_elements_text(v_guards -> (p.place - 1)::integer)), m.content::text, o.content::text, 'ask'
    from unnest(v_clusters, v_ids, v_oldest_ids, v_similarities) with ordinality
        as p (cluster, memory_id, oldest_id, similarity, place)
    cross join lateral memfold_internal._memory(consolidate.tenant_id, p.memory_id) as m
    cross join lateral memfold_internal._memory(consolidate.tenant_id, p.oldest_id) as o
    order by p.place;
end;
$$;
grant execute on function memfold.consolidate to memfold_app;
comment on function memfold.consolidate is
'Looks for memories of a bucket that say the same: among the active memories of one type and subject, with any predicate, it forms clusters
in which every two have a cosine at or above threshold (null: the option consolidate_threshold), of at most max_cluster_size memories. Each
cluster is one question; a row of the plan is one of its memories with the oldest (representative_id). Nothing is merged without an answer.
dry_run (the default) returns the plan and writes nothing. Otherwise the questions are queued under a run, up to max_operations, and for a
judge max_judgements, most similar first: with approval => ''judge'' as kind consolidation (synthesis if on_ambiguous is synthesise), with
''person'' as kind review (see approve_run), with ''policy'' as kind review if on_ambiguous is review, not at all if it is insert, and
otherwise for a judge. memory_ids: only these memories; null: all of the bucket. Omits pairs that were judged or separated by an undo,
memories that wait for a judgement (except the oldest of each), and the protected types of the options. embedding_model null: the most used
one in the bucket. guard: the differences that would prevent an automatic merge. A dry run holds no lock. Otherwise erasure, and what locks
the whole bucket (other runs, changes of rules, bucket-wide policies, large batches), wait while the questions are queued; other writers do
not. Raises MF001 to MF003, MF013, MF022, MF025.';
