-- Pairs of texts that were decided about, each with its relation (label) by the last decision, and who or what decided
-- (evidence). p_bucket_id null: all buckets. Only reads.
create or replace function memfold_internal._past_decisions(p_tenant_id text, p_bucket_id text)
returns table (memory_a uuid, memory_b uuid, label text, evidence text)
language plpgsql stable
as $$
begin
    return query
    select distinct on (least(d.a, d.b), greatest(d.a, d.b)) d.a, d.b, d.label, d.evidence
    from (
        -- Judged pairs. An undone duplicate or refinement means distinct; other undone answers are omitted.
        select j.memory_id as a, j.other_id as b, j.resolved_at as at,
            case when u.undone then 'distinct' else j.verdict end as label,
            case when u.undone or j.reason like 'undone%' and j.model is null then 'undo'
                when j.model is null then 'person' else 'judge' end as evidence
        from memfold.judgements as j
        cross join lateral (
            select exists (
                select from memfold.ledger as e
                where e.tenant_id = j.tenant_id and e.memory_id in (j.memory_id, j.other_id)
                    and e.judgement_id = memfold_internal._root(j.judgement_id, j.cluster_id) and e.undone
            ) or exists (
                select from memfold.ledger as e
                where e.tenant_id = j.tenant_id and e.target_id in (j.memory_id, j.other_id)
                    and e.judgement_id = memfold_internal._root(j.judgement_id, j.cluster_id) and e.undone
            ) as undone
        ) as u
        where j.tenant_id = p_tenant_id collate "C"
            and (p_bucket_id is null or j.bucket_id = p_bucket_id collate "C")
            -- The rows of status part give the relation of each member of a cluster to the oldest.
            and j.status = 'done' and j.member_ids is null and j.link is null
            and j.verdict in ('duplicate', 'refinement', 'contradiction', 'distinct')
            and not (u.undone and j.verdict in ('contradiction', 'distinct'))
        union all
        select e.memory_id, e.target_id, e.recorded_at,
            case when e.undone then 'distinct' when e.action in ('superseded', 'historical') then 'contradiction'
                when e.reason ~ '^refinement(,|$)' then 'refinement' else 'duplicate' end,
            case when e.undone then 'undo' when e.tier = 3 then 'person'
                when e.action in ('superseded', 'historical') then 'object' else 'merge' end
        from memfold.ledger as e
        where e.tenant_id = p_tenant_id collate "C"
            and (p_bucket_id is null or e.bucket_id = p_bucket_id collate "C")
            and e.judgement_id is null and e.memory_id <> e.target_id and e.undo_state is distinct from 'withdrawn'
            and (
                e.tier = 2 and e.action in ('merged', 'replaced')
                or e.tier = 3 and e.action = 'merged' and e.method = 'person'
                or not e.undone and e.tier = 2 and e.action in ('superseded', 'historical') and e.method = 'object'
                or not e.undone and e.tier = 3 and e.action = 'superseded' and e.method = 'person'
            )
    ) as d
    order by least(d.a, d.b), greatest(d.a, d.b), d.at desc;
end;
$$;

-- Pairs of active memories of one scope with a cosine of at least p_threshold that were never asked about, among the newest
-- 1,000 memories of each scope. The newer memory is memory_a.
create or replace function memfold_internal._near_pairs(
    p_tenant_id text, p_bucket_id text, p_embedding_model text, p_threshold double precision
)
returns table (memory_a uuid, memory_b uuid, similarity double precision)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids uuid[];
begin
    for v_ids in
        -- Up to 1,000 memories, _close_pairs() is exact.
        select g.group_ids[greatest(cardinality(g.group_ids) - 999, 1):]
        from memfold_internal._maintenance_groups(p_tenant_id, p_bucket_id, p_embedding_model, true, null) as g
    loop
        return query
        select v_ids[c.b], v_ids[c.a], c.similarity
        from memfold_internal._close_pairs(p_tenant_id, v_ids, p_embedding_model, p_threshold) as c
        where not memfold_internal._was_asked(p_tenant_id, v_ids[c.a], v_ids[c.b]);
    end loop;
end;
$$;

-- The texts of two memories, their cosine by each model of which both have a vector, and when the newer was created. No row
-- if one has no vector of p_embedding_model, is withdrawn, was erased or has no words, or both are equal. Only reads.
create or replace function memfold_internal._collectable(
    p_tenant_id text, p_memory_a uuid, p_memory_b uuid, p_embedding_model text
) returns table (content_a text, content_b text, similarities jsonb, created_at timestamptz)
language plpgsql stable rows 1
as $$
begin
    return query
    select a.content, b.content, s.similarities, greatest(a.created_at, b.created_at)
    from memfold.memories as a
    join memfold.memories as b on b.tenant_id = a.tenant_id and b.memory_id = p_memory_b
    cross join lateral (
        select jsonb_object_agg(v.model, memfold_internal._similarity(v.embedding, w.embedding)) as similarities
        from memfold.memory_vectors as v
        join memfold.memory_vectors as w on w.tenant_id = v.tenant_id and w.memory_id = b.memory_id and w.model = v.model
        where v.tenant_id = a.tenant_id and v.memory_id = a.memory_id
    ) as s
    where a.tenant_id = p_tenant_id collate "C" and a.memory_id = p_memory_a
        and a.status <> 'withdrawn' and b.status <> 'withdrawn'
        and s.similarities ? p_embedding_model
        and memfold_internal._prose_1(a.content) not in ('', memfold_internal._prose_1(b.content))
        and memfold_internal._prose_1(b.content) <> ''
        and not exists (
            select from memfold.memory_events as e
            where e.tenant_id = a.tenant_id and e.memory_id in (a.memory_id, b.memory_id) and e.action = 'erased'
        );
end;
$$;

create or replace function memfold.collect_pairs(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default null,
    embedding_model text default null,
    max_results bigint default 10000,
    min_age interval default '30 days'
) returns table (evidence text, label text, pairs bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_close double precision;
    v_pair record;
    v_a text[] := array[]::text[];
    v_b text[] := array[]::text[];
    v_labels text[] := array[]::text[];
    v_evidences text[] := array[]::text[];
    v_similarities jsonb[] := array[]::jsonb[];
    v_memories_a uuid[] := array[]::uuid[];
    v_memories_b uuid[] := array[]::uuid[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, false);
    perform memfold_internal._check_embedding(null, embedding_model);
    if not coalesce(max_results between 1 and 100000 and min_age between '0' and '1000 years', false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_results was %s, min_age %s.', max_results, min_age),
            'max_results is 1 to 100,000, min_age 0 to 1,000 years.');
    end if;
    select coalesce(m.candidate_threshold, m.judge_threshold - 0.1) into strict v_close
    from memfold.embedding_models as m where m.model = collect_pairs.embedding_model collate "C";
    for v_pair in
        select d.memory_a, d.memory_b, d.evidence, c.content_a, c.content_b, c.similarities,
            -- The words decide whether an undone merge is a contradiction.
            case when d.evidence = 'undo' and exists (
                select from unnest(memfold_internal._guard(collect_pairs.tenant_id, c.content_a, c.content_b)) as g (signal)
                where g.signal ~ '^(negation|antonym|prefix):'
            ) then 'contradiction' else d.label end as label
        from memfold_internal._past_decisions(tenant_id, bucket_id) as d
        cross join lateral memfold_internal._collectable(collect_pairs.tenant_id, d.memory_a, d.memory_b, embedding_model) as c
        order by memfold_internal._pair_strength('collected', d.evidence) desc, greatest(d.memory_a, d.memory_b) desc
        limit max_results
    loop
        v_a := v_a || v_pair.content_a;
        v_b := v_b || v_pair.content_b;
        v_labels := v_labels || v_pair.label;
        v_evidences := v_evidences || v_pair.evidence;
        v_similarities := v_similarities || v_pair.similarities;
        v_memories_a := v_memories_a || v_pair.memory_a;
        v_memories_b := v_memories_b || v_pair.memory_b;
    end loop;
    for v_pair in
        select n.memory_a, n.memory_b, c.content_a, c.content_b, c.similarities
        from (
            select distinct m.bucket_id
            from memfold.memories as m
            where m.tenant_id = collect_pairs.tenant_id collate "C"
                and (collect_pairs.bucket_id is null or m.bucket_id = collect_pairs.bucket_id collate "C")
        ) as b
        cross join lateral memfold_internal._near_pairs(collect_pairs.tenant_id, b.bucket_id, embedding_model, v_close) as n
        cross join lateral memfold_internal._collectable(collect_pairs.tenant_id, n.memory_a, n.memory_b, embedding_model) as c
        where c.created_at <= now() - min_age
        order by n.similarity desc, n.memory_a, n.memory_b
        limit max_results - cardinality(v_a)
    loop
        v_a := v_a || v_pair.content_a;
        v_b := v_b || v_pair.content_b;
        v_labels := v_labels || 'distinct'::text;
        v_evidences := v_evidences || 'neighbours'::text;
        v_similarities := v_similarities || v_pair.similarities;
        v_memories_a := v_memories_a || v_pair.memory_a;
        v_memories_b := v_memories_b || v_pair.memory_b;
    end loop;
    perform memfold_internal._add_pairs(tenant_id, v_a, v_b, v_labels, 'collected', v_evidences, v_similarities, v_memories_a,
        v_memories_b);
    return query
    select p.evidence, p.label, count(*)
    from unnest(v_evidences, v_labels) as p (evidence, label)
    group by p.evidence, p.label
    order by p.evidence, p.label;
end;
$$;
grant execute on function memfold.collect_pairs to memfold_app;
comment on function memfold.collect_pairs is
'Derives labelled pairs from past decisions in a bucket (null: in all of the tenant''s), stores them with their cosines by the model, and
returns how many it found, by evidence and label. Verdicts of judges and persons count as given; a merge that was undone counts as
distinct, or as contradiction if the guard finds opposites; another object of a single-valued predicate counts as contradiction. Automatic
merges that still hold (duplicate) and near memories that have both been active for min_age (distinct) are weak: nobody has looked at
them, and they result from the very thresholds that they would confirm. Stores at most max_results pairs, weak ones last, newest first. A
pair with a stronger label keeps it. Ignores withdrawn and erased texts. Raises MF001 to MF003, MF012, MF013, MF022.';

create or replace function memfold.pairs_to_label(
    tenant_id text default current_setting('memfold.tenant_id', true),
    embedding_model text default null,
    max_results bigint default 100
) returns table (
    pair_id uuid, content_a text, content_b text, label text, evidence text, similarity double precision, guard text[]
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_embedding(null, embedding_model);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_results was %s.', max_results), 'max_results is 1 to 10,000.');
    end if;
    return query
    select p.pair_id, p.content_a::text, p.content_b::text, p.label::text, p.evidence::text, p.similarity,
        memfold_internal._guard(pairs_to_label.tenant_id, p.content_a, p.content_b)
    from (
        select l.*, c.similarity,
            -- Within the band, pairs near an edge help most to place that edge; pairs outside come later.
            case when c.similarity between b.low and b.high
                then least(c.similarity - b.low, b.high - c.similarity)
                else 2 + greatest(b.low - c.similarity, c.similarity - b.high) end as distance
        from memfold.labelled_pairs as l
        cross join lateral (
            select (l.similarities ->> pairs_to_label.embedding_model)::double precision as similarity
        ) as c
        cross join (
            select coalesce(m.candidate_threshold, m.judge_threshold) as low,
                coalesce(case when m.score_function is null then m.merge_threshold end, 1) as high
            from memfold.embedding_models as m where m.model = pairs_to_label.embedding_model collate "C"
        ) as b
        where l.tenant_id = pairs_to_label.tenant_id collate "C" and l.weak and c.similarity is not null
        order by distance, l.pair_id
        limit max_results
    ) as p
    order by p.distance, p.pair_id;
end;
$$;
grant execute on function memfold.pairs_to_label to memfold_app;
comment on function memfold.pairs_to_label is
'Returns pairs that collect_pairs() found and nobody has looked at, with their cosine by the model, most informative first: those between
the model''s thresholds, nearest to one of them first, then those nearest to the band. At most max_results. To label one, pass both texts
to add_labelled_pair(). Raises MF001, MF002, MF012, MF013, MF022.';
