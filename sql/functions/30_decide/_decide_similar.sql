-- The score of a pair's features by a calibration (embedding_models.score_function), in [0, 1].
create or replace function memfold_internal._score(p_name text, p_features double precision[]) returns double precision
language plpgsql stable
as $$
declare
    v_score double precision;
begin
    execute format('select memfold_internal.%I($1)', p_name) into v_score using p_features;
    return v_score;
end;
$$;

-- The score (_score) of two memories of the given cosine.
create or replace function memfold_internal._pair_score(
    p_tenant_id text, p_score text, p_similarity double precision, p_memory_id uuid, p_other_id uuid
) returns double precision
language plpgsql stable
as $$
declare
    a memfold.memories;
    b memfold.memories;
begin
    select m.* into strict a
    from memfold.memories as m where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id;
    select m.* into strict b
    from memfold.memories as m where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_other_id;
    return memfold_internal._score(p_score, memfold_internal._pair_features(p_similarity, a.content, b.content,
        memfold_internal._guard_pair(p_tenant_id, a.content, b.content, a.object, b.object, a.bucket_id)));
end;
$$;

-- The thresholds of tier 2, from a policy (policy_..., null: not set) and the model: above merge_threshold it merges, at
-- or above judge_threshold it asks, by a pair's score (the function with that name), or by its cosine if score is null:
-- the model has no score, or the policy sets thresholds itself. floor: the cosine at or above which a neighbour is
-- considered at all. report: the cosine at or above which it is reported as similar. dimensions, replaced_by: those of
-- the model. Inlined.
create or replace function memfold_internal._bands(
    p_policy_merge double precision, p_policy_judge double precision, p_policy_similar double precision, p_embedding_model text
) returns table (
    score text, merge_threshold double precision, judge_threshold double precision, floor double precision,
    report double precision, dimensions bigint, replaced_by text
)
language sql stable rows 1
begin atomic
    select
        s.score,
        case when s.score is null then t.merge_threshold else m.score_merge_threshold end,
        case when s.score is null then t.judge_threshold else m.score_judge_threshold end,
        case when s.score is null then least(t.merge_threshold, t.judge_threshold) else m.candidate_threshold end,
        coalesce(p_policy_similar, t.judge_threshold),
        m.dimensions,
        m.replaced_by
    from memfold.embedding_models as m
    -- A policy's own thresholds are cosines, not scores.
    cross join
        lateral (
            select case
                when pg_catalog.num_nonnulls(p_policy_merge, p_policy_judge) = 0 then m.score_function
            end as score
        ) as s
    cross join
        lateral (
            select
                coalesce(p_policy_merge, m.merge_threshold, 'infinity') as merge_threshold,
                coalesce(p_policy_judge, m.judge_threshold) as judge_threshold
        ) as t
    where m.model = p_embedding_model collate "C";
end;

-- How many of the newest texts of its scope, or bucket, tier 2 searches for a candidate's neighbours.
create or replace function memfold_internal._newest(p_scope text, p_subject text, p_predicate text) returns bigint
language sql immutable parallel safe
return case when p_scope = 'predicate' and p_subject is null and p_predicate is null then 1000 else memfold_internal._exact_limit() end;

-- Tier 2: rows 9 and 11 of the decision table. action: merged (the best memory whose own text is above the merge
-- threshold and passes guard and veto), ambiguous (the best neighbour, including aliases, at or above the judge
-- threshold), or null. Guard, veto and similarity are those of the memory's own text; reason names score and veto.
-- Method session: a neighbour that is compared because it is of the candidate's session. similar_memories: those near
-- enough to be reported, and the one that the decision is about.
create or replace function memfold_internal._decide_similar(c memfold_internal.candidate, d memfold_internal.decision, p_except_root uuid)
returns memfold_internal.decision
language plpgsql stable
as $$
declare
    v_policy memfold.policies;
    v_score text;
    v_merge double precision;
    v_judge double precision;
    v_floor double precision;
    v_report double precision;
    v_neighbour record;
    v_session bigint;
    v_least double precision;
    v_newest constant bigint := memfold_internal._newest((c.policy).scope, c.subject, c.predicate);
    v_guard text[];
    v_signals text[];
    v_veto text;
    -- similarity of the memory's own text, and of the nearest of all its texts
    v_own double precision;
    v_value double precision;
    v_best double precision;
    v_mergeable boolean;
    v_unclear boolean;
    v_entry jsonb;
    v_about jsonb;
    v_similar jsonb[];
begin
    d.action := null;
    select b.score, b.merge_threshold, b.judge_threshold, b.floor, b.report
    into v_score, v_merge, v_judge, v_floor, v_report
    from memfold_internal._bands((c.policy).merge_threshold, (c.policy).judge_threshold, (c.policy).similar_threshold,
        c.embedding_model) as b;
    v_least := least(v_floor, v_report);
    v_policy := c.policy;
    v_session := case when c.session_id is not null then v_policy.session_neighbours else 0 end;
    for v_neighbour in
        select n.*
        from memfold_internal._knn_dedup(
            c.tenant_id, c.bucket_id, case when v_policy.scope = 'predicate' then c.scope_key end,
            c.embedding, c.embedding_model,
            v_newest,
            greatest(v_policy.neighbours, v_session), v_least, p_except_root,
            c.memory_id, c.last_id) as n
    loop
        -- Beyond the nearest, consider only those of the candidate's own session.
        continue when v_neighbour.place > v_policy.neighbours and not exists (
            select from memfold.memories as m
            where m.tenant_id = c.tenant_id and m.memory_id in (v_neighbour.root_id, v_neighbour.matched_id)
                and m.session_id = c.session_id
        );
        continue when memfold_internal._are_two_values(c.tenant_id, c.predicate, c.object, v_neighbour.object);
        v_guard := null;
        v_signals := null;
        v_veto := null;
        if v_score is null then
            v_own := v_neighbour.similarity;
            v_value := v_neighbour.matched_similarity;
        else
            v_own := null;
            if v_neighbour.similarity >= v_floor then
                v_signals := memfold_internal._guard_pair(c.tenant_id, c.content, v_neighbour.content, c.object, v_neighbour.object,
                    c.bucket_id);
                v_own := memfold_internal._score(v_score, memfold_internal._pair_features(
                    v_neighbour.similarity, c.content, v_neighbour.content, v_signals));
            end if;
            v_value := v_own;
            if v_neighbour.matched_id <> v_neighbour.root_id and v_neighbour.matched_similarity >= v_floor then
                v_value := greatest(v_own, memfold_internal._score(v_score, memfold_internal._pair_features(
                    v_neighbour.matched_similarity, c.content, v_neighbour.matched_content,
                    memfold_internal._guard_pair(c.tenant_id, c.content, v_neighbour.matched_content, c.object,
                        v_neighbour.matched_object, c.bucket_id))));
            end if;
        end if;
        -- A merge depends on the text that will be shown: a near alias is only a reason to ask.
        v_mergeable := coalesce(v_own > v_merge or v_own = v_merge and v_policy.merge_inclusive, false);
        v_unclear := coalesce(v_value >= v_judge, false);
        -- guard and veto are checked for the best neighbour, and for further ones that would merge, until one may
        if v_mergeable and (d.action is distinct from 'merged' or v_own > v_best)
            or v_unclear and (d.action is null or d.action = 'ambiguous' and v_value > v_best)
        then
            select m.guard, m.mergeable, m.veto into v_guard, v_mergeable, v_veto
            from memfold_internal._check_merge(c.tenant_id, c.bucket_id, v_policy, c.content, v_neighbour.content, c.object,
                v_neighbour.object, v_signals, v_mergeable) as m;
            if v_mergeable or d.action is null or d.action = 'ambiguous' and v_value > v_best then
                v_best := case when v_mergeable then v_own else v_value end;
                d.action := case when v_mergeable then 'merged' else 'ambiguous' end;
                d.tier := 2;
                d.method := case when v_neighbour.place > v_policy.neighbours then 'session'
                    when v_score is null then 'vector' else 'score' end;
                d.target_id := v_neighbour.root_id;
                d.memory_id := case when p_except_root is not null then v_neighbour.matched_id end;
                d.similarity := v_neighbour.similarity;
                d.guard := v_guard;
                d.reason := nullif(concat_ws('; ',
                    case when v_score is not null then 'score ' || round(v_best::numeric, 4) end, v_veto), '');
                v_about := null;
            end if;
        end if;
        v_entry := jsonb_strip_nulls(jsonb_build_object(
            'memory_id', v_neighbour.root_id, 'similarity', v_neighbour.similarity,
            'guard', to_jsonb(v_guard), 'veto', v_veto) || case when v_neighbour.matched_id = v_neighbour.root_id then '{}'
            else jsonb_build_object(
                'matched_id', v_neighbour.matched_id, 'matched_similarity', v_neighbour.matched_similarity) end);
        if v_neighbour.matched_similarity >= v_report then
            v_similar := v_similar || v_entry;
        elsif d.target_id = v_neighbour.root_id then
            v_about := v_entry;
        end if;
    end loop;
    if v_about is not null then
        v_similar := v_similar || v_about;
    end if;
    d.similar_memories := to_jsonb(v_similar);
    return d;
end;
$$;
