create or replace function memfold._consolidation_pairs(
    tenant_id text, bucket_id text, embedding_model text, threshold double precision
) returns table (cluster_id uuid, memory_id uuid, leader_id uuid, similarity double precision)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_group record;
    -- where each leads is open
    v_waiting constant uuid[] := memfold._waiting(tenant_id, bucket_id);
begin
    for v_group in
        select g.group_ids as ids, coalesce(_consolidation_pairs.threshold, (g.policy).consolidate_threshold) as threshold
        from memfold._upkeep_groups(tenant_id, bucket_id, embedding_model, false, null) as g
    loop
        return query
        with edges as (
            select pg_catalog.array_agg(p.a order by p.a, p.b) as a, pg_catalog.array_agg(p.b order by p.a, p.b) as b,
                pg_catalog.array_agg(p.similarity order by p.a, p.b) as similarity
            from memfold._close_pairs(tenant_id, v_group.ids, embedding_model, v_group.threshold) as p
            where not memfold._was_asked(tenant_id, v_group.ids[p.b], v_group.ids[p.a])
                -- a table of hashes, which an array is not
                and v_group.ids[p.a] not in (select w.id from pg_catalog.unnest(v_waiting) as w (id))
                and v_group.ids[p.b] not in (select w.id from pg_catalog.unnest(v_waiting) as w (id))
        )
        select v_group.ids[c.cluster], v_group.ids[c.member], v_group.ids[c.leader], s.similarity
        from edges as e
        cross join lateral memfold._clusters(e.a, e.b, e.similarity, pg_catalog.cardinality(v_group.ids)) as c
        cross join lateral (
            select coalesce(c.similarity_to_leader, (
                select memfold._similarity(v.embedding, w.embedding)
                from memfold.memory_vectors as v, memfold.memory_vectors as w
                where v.tenant_id = _consolidation_pairs.tenant_id collate "C" and v.memory_id = v_group.ids[c.member]
                    and v.model = embedding_model collate "C"
                    and w.tenant_id = _consolidation_pairs.tenant_id collate "C" and w.memory_id = v_group.ids[c.leader]
                    and w.model = embedding_model collate "C"
            )) as similarity
            offset 0
        ) as s
        where e.a is not null and (
            c.similarity_to_leader is not null
            or not memfold._was_asked(tenant_id, v_group.ids[c.member], v_group.ids[c.leader])
        );
    end loop;
end;
$$;
revoke all on function memfold._consolidation_pairs(text, text, text, double precision) from public;
comment on function memfold._consolidation_pairs(text, text, text, double precision) is
'What consolidate() would ask: each member of a cluster with the older memory that it would fold into. cluster_id: the oldest
memory of the cluster. No pair that was judged, and no memory that waits for a judgement.';

create or replace function memfold.consolidate(
    tenant_id text,
    bucket_id text,
    embedding_model text default null,
    threshold double precision default null,
    approval text default 'judge',
    max_operations bigint default 1000,
    max_judgements bigint default 1000,
    dry_run boolean default true
) returns table (
    run_id uuid, cluster bigint, memory_id uuid, representative_id uuid, similarity double precision, guard text[],
    content text, representative_content text, action text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_model text;
    v_limit constant bigint := case when approval = 'judge' then least(max_operations, max_judgements) else max_operations end;
    v_run memfold.runs;
    v_pairs bigint;
    v_asked bigint := 0;
    v_clusters bigint[];
    v_ids uuid[];
    v_into_ids uuid[];
    v_similarities double precision[];
    v_guards jsonb;
    v_rules text;
begin
    perform memfold._enter(tenant_id);
    if not coalesce(approval in ('judge', 'person') and coalesce(threshold between 0 and 1, true)
        and max_operations between 1 and 1000000 and max_judgements between 1 and 1000000 and dry_run is not null, false)
    then
        perform memfold._fail('MF022', 'an argument is out of range',
            format('threshold was %s, approval %s, max_operations %s, max_judgements %s, dry_run %s.', threshold,
                quote_nullable(approval), max_operations, max_judgements, dry_run),
            'threshold is 0 to 1, approval judge or person, both limits 1 to 1000000, dry_run true or false.');
    end if;
    v_model := memfold._upkeep_model(tenant_id, bucket_id, embedding_model);

    v_rules := memfold._rules_stamp(tenant_id, bucket_id);
    -- no lock is held: what is asked here is looked at again when it is answered
    with pairs as materialized (
        select dense_rank() over (order by p.cluster_id) as cluster, p.*
        from memfold._consolidation_pairs(tenant_id, bucket_id, v_model, threshold) as p
    ),
    planned as (
        select p.* from pairs as p order by p.similarity desc, p.memory_id limit v_limit
    ),
    guarded as materialized (
        select p.*, memfold._guard_pair(consolidate.tenant_id, m.content, o.content, m.object, o.object) as guard
        from planned as p
        join memfold.memories as m on m.tenant_id = consolidate.tenant_id collate "C" and m.memory_id = p.memory_id
        join memfold.memories as o on o.tenant_id = consolidate.tenant_id collate "C" and o.memory_id = p.leader_id
    )
    select (select count(*) from pairs), array_agg(g.cluster order by w.place), array_agg(g.memory_id order by w.place),
        array_agg(g.leader_id order by w.place), array_agg(g.similarity order by w.place),
        jsonb_agg(to_jsonb(g.guard) order by w.place)
    into v_pairs, v_clusters, v_ids, v_into_ids, v_similarities, v_guards
    from guarded as g
    cross join lateral (select row(g.cluster, g.leader_id, -g.similarity, g.memory_id) as place) as w;
    v_pairs := coalesce(v_pairs, 0);

    if not dry_run then
        perform memfold._lock(tenant_id, bucket_id, null, true);
        perform memfold._check_rules_stamp(tenant_id, bucket_id, v_rules);
        v_run := memfold._start_run(tenant_id, bucket_id, 'consolidation', jsonb_build_object(
            'embedding_model', v_model, 'threshold', threshold, 'approval', approval, 'max_operations', max_operations,
            'max_judgements', max_judgements));
        v_asked := memfold._ask_all(v_run, case
                when approval = 'person' then 'review'
                -- where a judge writes the text at ingest, so it does here
                when (memfold._policy(tenant_id, bucket_id, '*')).on_ambiguous = 'synthesise' then 'synthesis'
                else 'consolidation' end, v_ids, v_into_ids, v_similarities, v_guards);
        perform memfold._end_run(tenant_id, v_run.run_id, jsonb_build_object(
            'pairs', v_pairs, 'asked', v_asked, 'left_out', v_pairs - coalesce(cardinality(v_ids), 0)));
    end if;
    return query
    select v_run.run_id, p.cluster, p.memory_id, p.leader_id, p.similarity,
        array(select jsonb_array_elements_text(v_guards -> (p.place - 1)::integer)), m.content::text, o.content::text, 'ask'
    from unnest(v_clusters, v_ids, v_into_ids, v_similarities) with ordinality
        as p (cluster, memory_id, leader_id, similarity, place)
    join memfold.memories as m on m.tenant_id = consolidate.tenant_id collate "C" and m.memory_id = p.memory_id
    join memfold.memories as o on o.tenant_id = consolidate.tenant_id collate "C" and o.memory_id = p.leader_id
    order by p.place;
end;
$$;
revoke all on function memfold.consolidate(
    text, text, text, double precision, text, bigint, bigint, boolean
) from public;
grant execute on function memfold.consolidate(
    text, text, text, double precision, text, bigint, bigint, boolean
) to memfold_app;
comment on function memfold.consolidate(text, text, text, double precision, text, bigint, bigint, boolean) is
'Looks through a bucket for what says the same: among the active memories of one type and subject, whatever their predicates,
clusters of cosine at or above threshold (null: the policy''s consolidate_threshold), and of each cluster the pairs (memory, older
representative) to be judged. Nothing folds without an answer. dry_run (the default) returns the plan and writes nothing. Else the pairs are
queued under a run, as far as max_operations, and for a judge max_judgements, allow, the most similar first: for approval =>
''judge'' as kind consolidation, for ''person'' as kind review (see approve_run). Left out are pairs that were judged, memories that
wait for a judgement (as the newer of a pair), and the policy''s protected types. embedding_model null: the one most used there. guard: what an automatic merge would
stumble over. No lock is held while it is planned; what is queued is queued with the bucket locked. Raises MF001 to MF003, MF013, MF022,
MF025; may raise 40001.';
