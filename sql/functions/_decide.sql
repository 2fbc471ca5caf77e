create or replace function memfold._decide_known(c memfold.candidate) returns memfold.decision
language plpgsql stable
as $$
declare
    d memfold.decision;
    v_status text;
    v_current_id uuid;
    v_last_seen timestamptz;
begin
    if (c.policy).rehash_run is null then
        select m.memory_id, memfold._root(m.memory_id, m.root_id), m.root_id, m.status
        into d.memory_id, d.root_id, d.target_id, v_status
        from memfold._known_text(c.tenant_id, c.bucket_id, c.content_hash) as m;
    else
        select m.memory_id, memfold._root(m.memory_id, m.root_id), m.root_id, m.status
        into d.memory_id, d.root_id, d.target_id, v_status
        from memfold._known_in_rehash(c) as m;
    end if;
    if d.memory_id is null then
        return null;
    end if;
    if c.session_id is not null and (c.policy).max_session_repeats is not null then
        perform memfold._check_repeats(c, d.memory_id);
    end if;
    d.tier := 1;
    d.method := 'hash';
    d.on_timeline := false;
    if d.target_id is not null then
        d.method := 'alias';
        select m.status into strict v_status
        from memfold.memories as m where m.tenant_id = c.tenant_id collate "C" and m.memory_id = d.root_id;
    end if;
    if v_status = 'active' then
        -- row 3
        d.action := 'merged';
        return d;
    end if;
    if v_status = 'rejected' then
        -- row 2
        d.action := 'rejected';
        d.method := 'tombstone';
        return d;
    elsif v_status = 'withdrawn' and c.origin = 'recalled' then
        -- row 11
        d := null;
        d.action := 'rejected';
        d.reason := 'recalled';
        d.on_timeline := false;
        return d;
    elsif v_status = 'superseded' or v_status = 'withdrawn' and memfold._is_single(c.tenant_id, c.predicate)
        -- contested: restated it is active, beside the value of its slot
        and not exists (
            select from memfold._derived_trees(c.tenant_id, memfold._trees(c.tenant_id, array[d.root_id])) as t
            where t.memory_id = d.root_id and t.contested
        )
    then
        -- row 4
        d.method := 'timeline';
        if v_status = 'superseded' then
            with timelines as (
                select t.* from memfold._derived_timelines(c.tenant_id,
                    memfold._timeline_texts(c.tenant_id, array[d.root_id])) as t
            ),
            own as (
                select t.timeline, t.of_scope from timelines as t where t.memory_id = d.root_id limit 1
            )
            select o.of_scope, k.memory_id, k.last_seen into d.on_timeline, v_current_id, v_last_seen
            from own as o
            join timelines as t on t.timeline = o.timeline and t.valid_to is null
            join memfold.memory_counters as k on k.tenant_id = c.tenant_id collate "C" and k.memory_id = t.memory_id
            order by k.last_seen desc, k.memory_id desc
            limit 1;
        else
            d.on_timeline := true;
            select v.memory_id, v.last_seen into v_current_id, v_last_seen
            from memfold._current_value(c.tenant_id, c.bucket_id,
                memfold._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate)) as v;
        end if;
        if c.origin <> 'recalled' and (v_current_id is null or (c.observed_at >= v_last_seen) is not false) then
            d.action := case when v_current_id is null then 'inserted' else 'superseded' end;
            d.target_id := v_current_id;
        elsif v_status = 'withdrawn' then
            d.action := 'historical';
            d.target_id := v_current_id;
        else
            d.action := 'merged';
            d.target_id := null;
        end if;
        return d;
    end if;
    -- withdrawn: as if it were new
    d.action := 'inserted';
    d.target_id := null;
    return d;
end;
$$;
revoke all on function memfold._decide_known(memfold.candidate) from public;
comment on function memfold._decide_known(memfold.candidate) is
'Tier 1: rows 2 to 4 of the decision table (docs/decisions.md). Null: the bucket does not hold this text. Only reads.';

create or replace function memfold._is_single(tenant_id text, predicate text) returns boolean
language sql stable
begin atomic
    select coalesce((
        select p.cardinality = 'one'
        from memfold.predicates as p
        where
            p.tenant_id in (_is_single.tenant_id collate "C", '*')
            and p.predicate = memfold.canonicalize(_is_single.predicate, 'prose/1') collate "C"
        order by p.tenant_id = '*'
        limit 1
    ), false);
end;
revoke all on function memfold._is_single(text, text) from public;
comment on function memfold._is_single(text, text) is 'Whether a predicate has one value at a time.';

create or replace function memfold._conflict(tenant_id text, predicate text, conflict text) returns text
language sql stable
begin atomic
    select coalesce((
        select p.conflict
        from memfold.predicates as p
        where
            p.tenant_id in (_conflict.tenant_id collate "C", '*')
            and p.predicate = memfold.canonicalize(_conflict.predicate, 'prose/1') collate "C"
        order by p.tenant_id = '*'
        limit 1
    ), _conflict.conflict);
end;
revoke all on function memfold._conflict(text, text, text) from public;
comment on function memfold._conflict(text, text, text) is
'The conflict policy of a predicate: its own, else (conflict) that of the bucket.';

create or replace function memfold._bands(policy memfold.policies, embedding_model text)
returns table (
    score text, merge_threshold double precision, judge_threshold double precision, floor double precision,
    report double precision
)
language sql stable rows 1
begin atomic
    select
        s.score,
        case when s.score is null then t.merge_threshold else m.score_merge_threshold end,
        case when s.score is null then t.judge_threshold else m.score_judge_threshold end,
        case when s.score is null then least(t.merge_threshold, t.judge_threshold) else m.candidate_threshold end,
        coalesce((_bands.policy).similar_threshold, t.judge_threshold)
    from memfold.embedding_models as m
    -- whoever sets thresholds of the cosine means the cosine
    cross join
        lateral (
            select case
                when pg_catalog.num_nonnulls((_bands.policy).merge_threshold, (_bands.policy).judge_threshold) = 0
                    then m.score_function
            end as score
        ) as s
    cross join
        lateral (
            select
                coalesce((_bands.policy).merge_threshold, m.merge_threshold) as merge_threshold,
                coalesce((_bands.policy).judge_threshold, m.judge_threshold) as judge_threshold
        ) as t
    where m.model = _bands.embedding_model collate "C";
end;
revoke all on function memfold._bands(memfold.policies, text) from public;
comment on function memfold._bands(memfold.policies, text) is
'What tier 2 goes by: above merge_threshold it merges, from judge_threshold on it asks, by a pair''s score (the function of that
name), or by its cosine where score is null: where the model has none, or the policy has thresholds of its own. floor: the cosine
from which on a neighbour counts at all. report: the cosine from which on it is reported as similar.';

create or replace function memfold._pair_score(
    tenant_id text, score text, similarity double precision, memory_id uuid, other_id uuid
) returns double precision
language plpgsql stable
as $$
declare
    a memfold.memories;
    b memfold.memories;
begin
    select m.* into strict a
    from memfold.memories as m where m.tenant_id = _pair_score.tenant_id collate "C" and m.memory_id = _pair_score.memory_id;
    select m.* into strict b
    from memfold.memories as m where m.tenant_id = _pair_score.tenant_id collate "C" and m.memory_id = other_id;
    return memfold._score(score, memfold._pair_features(tenant_id, similarity, a.content, b.content,
        memfold._guard_pair(tenant_id, a.content, b.content, a.object, b.object)));
end;
$$;
revoke all on function memfold._pair_score(text, text, double precision, uuid, uuid) from public;
comment on function memfold._pair_score(text, text, double precision, uuid, uuid) is
'The score (_score) of two memories of the given cosine.';

create or replace function memfold._score(name text, features double precision[]) returns double precision
language plpgsql stable
as $$
declare
    v_score double precision;
begin
    execute pg_catalog.format('select memfold.%I($1)', name) into v_score using features;
    return v_score;
end;
$$;
revoke all on function memfold._score(text, double precision[]) from public;
comment on function memfold._score(text, double precision[]) is
'What the score of a calibration (embedding_models.score_function) says of a pair''s features, in [0, 1].';

create or replace function memfold._decide_similar(c memfold.candidate, d memfold.decision, except_root uuid)
returns memfold.decision
language plpgsql stable
as $$
declare
    v_policy constant memfold.policies := c.policy;
    v_score text;
    v_merge double precision;
    v_judge double precision;
    v_floor double precision;
    v_report double precision;
    v_neighbour record;
    v_session constant bigint := case when c.session_id is not null then v_policy.session_neighbours else 0 end;
    v_guard text[];
    v_signals text[];
    -- by the memory's own text, and by the best of its texts
    v_own double precision;
    v_value double precision;
    v_best double precision;
    v_mergeable boolean;
    v_unclear boolean;
    v_entry jsonb;
    v_about jsonb;
    v_similar jsonb[];
begin
    select b.score, b.merge_threshold, b.judge_threshold, b.floor, b.report
    into v_score, v_merge, v_judge, v_floor, v_report
    from memfold._bands(v_policy, c.embedding_model) as b;
    d.action := null;
    for v_neighbour in
        select n.*
        from memfold._neighbours(
            c.tenant_id, c.bucket_id, case when v_policy.scope = 'predicate' then c.scope_key end,
            c.embedding, c.embedding_model,
            case when v_policy.scope = 'predicate' and c.subject is null and c.predicate is null
                then 1000 else memfold._exact_limit() end,
            greatest(v_policy.neighbours, v_session), least(v_floor, v_report), except_root,
            c.memory_id, c.last_id) as n
    loop
        -- behind the nearest, only those of the candidate's own session
        continue when v_neighbour.place > v_policy.neighbours and not exists (
            select from memfold.memories as m
            where m.tenant_id = c.tenant_id collate "C" and m.memory_id in (v_neighbour.root_id, v_neighbour.matched_id)
                and m.session_id = c.session_id collate "C"
        );
        v_guard := null;
        v_signals := null;
        if v_score is null then
            v_own := v_neighbour.similarity;
            v_value := v_neighbour.matched_similarity;
        else
            v_own := null;
            if v_neighbour.similarity >= v_floor then
                v_signals := memfold._guard_pair(c.tenant_id, c.content, v_neighbour.content, c.object, v_neighbour.object);
                v_own := memfold._score(v_score, memfold._pair_features(
                    c.tenant_id, v_neighbour.similarity, c.content, v_neighbour.content, v_signals));
            end if;
            v_value := v_own;
            if v_neighbour.matched_id <> v_neighbour.root_id and v_neighbour.matched_similarity >= v_floor then
                v_value := greatest(v_own, memfold._score(v_score, memfold._pair_features(
                    c.tenant_id, v_neighbour.matched_similarity, c.content, v_neighbour.matched_content,
                    memfold._guard_pair(c.tenant_id, c.content, v_neighbour.matched_content, c.object,
                        v_neighbour.matched_object))));
            end if;
        end if;
        -- What merges is what will be shown for it: an alias that is near is a reason to ask, no more.
        v_mergeable := coalesce(v_own > v_merge or v_own = v_merge and v_policy.merge_inclusive, false);
        v_unclear := coalesce(v_value >= v_judge, false);
        -- the guard is asked of the best neighbour, and of further ones that would merge, until one is clean
        if v_mergeable and (d.action is distinct from 'merged' or v_own > v_best)
            or v_unclear and (d.action is null or d.action = 'ambiguous' and v_value > v_best)
        then
            v_guard := case when v_policy.guard = 'off' then '{}' else coalesce(v_signals, memfold._guard_pair(
                c.tenant_id, c.content, v_neighbour.content, c.object, v_neighbour.object)) end;
            v_mergeable := v_mergeable and v_guard = '{}';
            if v_mergeable or d.action is null or d.action = 'ambiguous' and v_value > v_best then
                v_best := case when v_mergeable then v_own else v_value end;
                d.action := case when v_mergeable then 'merged' else 'ambiguous' end;
                d.tier := 2;
                d.method := case when v_neighbour.place > v_policy.neighbours then 'session'
                    when v_score is null then 'vector' else 'score' end;
                d.target_id := v_neighbour.root_id;
                d.memory_id := case when except_root is not null then v_neighbour.matched_id end;
                d.similarity := v_neighbour.similarity;
                d.guard := v_guard;
                d.reason := case when v_score is not null then 'score ' || pg_catalog.round(v_best::numeric, 4) end;
                v_about := null;
            end if;
        end if;
        v_entry := pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
            'memory_id', v_neighbour.root_id, 'similarity', v_neighbour.similarity,
            'guard', pg_catalog.to_jsonb(v_guard)) || case when v_neighbour.matched_id = v_neighbour.root_id then '{}'
            else pg_catalog.jsonb_build_object(
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
    d.similar_memories := pg_catalog.to_jsonb(v_similar);
    return d;
end;
$$;
revoke all on function memfold._decide_similar(memfold.candidate, memfold.decision, uuid) from public;
comment on function memfold._decide_similar(memfold.candidate, memfold.decision, uuid) is
'Tier 2: rows 8 and 9 of the decision table. action: merged (the best memory whose own text is above the merge threshold and
guard-clean), ambiguous (the best neighbour, aliases included, at or above the judge threshold), or null. Guard and similarity
are those of the memory''s own text. Method session: a neighbour that is looked at for being of the candidate''s session.
similar_memories: what is near enough to be reported, and what the decision is about. Only reads.';

create or replace function memfold._decide_lexical(c memfold.candidate, d memfold.decision) returns memfold.decision
language plpgsql stable
as $$
declare
    v_policy constant memfold.policies := c.policy;
    v_tokens constant text[] := memfold._tokens(c.content, v_policy.segmenter);
    v_report constant double precision := coalesce(v_policy.similar_threshold, v_policy.lexical_threshold);
    v_neighbour record;
    -- texts, memories and own texts of memories that were met
    v_texts bigint := 0;
    v_trees bigint := 0;
    v_owns bigint := 0;
    v_is_new boolean;
    v_own double precision;
    v_value double precision;
    v_best double precision;
    v_mergeable boolean;
    v_guard jsonb;
    v_entry jsonb;
    v_entries jsonb := '{}'::jsonb;
begin
    d.action := null;
    for v_neighbour in
        select s.memory_id, m.root_id, m.content, r.content as root_content, r.object as root_object
        from (
            -- of a word that everything has, the newest memories
            select t.memory_id, pg_catalog.count(*) as shared
            from pg_catalog.unnest(v_tokens) as w (token)
            cross join lateral (
                select t.memory_id from memfold.memory_tokens as t
                where t.tenant_id = c.tenant_id collate "C" and t.bucket_id = c.bucket_id collate "C"
                    and t.token = w.token
                order by t.memory_id desc
                limit 1000
            ) as t
            group by t.memory_id
            -- here too: then nobody is looked up whom it does not come to
            order by shared desc, t.memory_id
        ) as s
        cross join lateral (
            select memfold._root(m.memory_id, m.root_id) as root_id, m.content, m.scope_key
            from memfold.memories as m
            where m.tenant_id = c.tenant_id collate "C" and m.memory_id = s.memory_id
            offset 0
        ) as m
        cross join lateral (
            select r.content, r.object, r.status from memfold.memories as r
            where r.tenant_id = c.tenant_id collate "C" and r.memory_id = m.root_id
            offset 0
        ) as r
        where r.status = 'active' and (v_policy.scope = 'bucket' or m.scope_key = c.scope_key)
        order by s.shared desc, s.memory_id
    loop
        -- Aliases take no places: it looks on until there are enough memories, by any of their texts and by their own.
        exit when v_trees >= v_policy.lexical_neighbours and v_owns >= v_policy.lexical_neighbours;
        v_entry := v_entries -> v_neighbour.root_id::text;
        v_is_new := v_entry is null;
        v_texts := v_texts + 1;
        continue when not (v_texts <= v_policy.lexical_neighbours
            or v_is_new and v_trees < v_policy.lexical_neighbours
            or v_neighbour.memory_id = v_neighbour.root_id and v_owns < v_policy.lexical_neighbours);
        v_owns := v_owns + (v_neighbour.memory_id = v_neighbour.root_id)::integer;
        if v_is_new then
            v_trees := v_trees + 1;
            v_own := memfold._jaccard(v_tokens, memfold._tokens(v_neighbour.root_content, v_policy.segmenter));
            v_entry := pg_catalog.jsonb_build_object('memory_id', v_neighbour.root_id, 'jaccard', v_own);
        else
            continue when v_neighbour.memory_id = v_neighbour.root_id;
            v_own := (v_entry ->> 'jaccard')::double precision;
        end if;
        v_value := v_own;
        if v_neighbour.memory_id <> v_neighbour.root_id then
            v_value := memfold._jaccard(v_tokens, memfold._tokens(v_neighbour.content, v_policy.segmenter));
            if v_value > greatest(v_own, (v_entry ->> 'matched_jaccard')::double precision) then
                v_entry := v_entry || pg_catalog.jsonb_build_object(
                    'jaccard_matched_id', v_neighbour.memory_id, 'matched_jaccard', v_value);
            else
                v_value := v_own;
            end if;
        end if;
        -- What merges is what will be shown for it: an alias that is near is a reason to ask, no more.
        v_mergeable := v_own > v_policy.lexical_threshold;
        if v_mergeable and (d.action is distinct from 'merged' or v_own > v_best)
            or v_value > v_policy.lexical_threshold and (d.action is null or d.action = 'ambiguous' and v_value > v_best)
        then
            v_guard := coalesce(v_entry -> 'guard', case when v_policy.guard = 'on' then pg_catalog.to_jsonb(memfold._guard_pair(
                c.tenant_id, c.content, v_neighbour.root_content, c.object, v_neighbour.root_object)) else '[]' end);
            v_entry := v_entry || pg_catalog.jsonb_build_object('guard', v_guard);
            v_mergeable := v_mergeable and v_guard = '[]';
            if v_mergeable or d.action is null or d.action = 'ambiguous' and v_value > v_best then
                v_best := case when v_mergeable then v_own else v_value end;
                d.action := case when v_mergeable then 'merged' else 'ambiguous' end;
                d.tier := 2;
                d.method := 'lexical';
                d.target_id := v_neighbour.root_id;
                d.similarity := v_own;
                d.guard := array(select pg_catalog.jsonb_array_elements_text(v_guard));
            end if;
        end if;
        v_entries := v_entries || pg_catalog.jsonb_build_object(v_neighbour.root_id, v_entry);
    end loop;
    select pg_catalog.jsonb_agg(s.entry order by s.jaccard desc, s.id) into d.similar_memories
    from (
        select e.key as id, e.value as entry, greatest(
            (e.value ->> 'jaccard')::double precision, (e.value ->> 'matched_jaccard')::double precision) as jaccard
        from pg_catalog.jsonb_each(v_entries) as e
    ) as s
    where s.jaccard >= v_report or s.id = d.target_id::text;
    return d;
end;
$$;
revoke all on function memfold._decide_lexical(memfold.candidate, memfold.decision) from public;
comment on function memfold._decide_lexical(memfold.candidate, memfold.decision) is
'Tier 2, lexical: row 7 of the decision table, over the memories that share most words with the candidate, by any of their texts
and by their own. action: merged (the best guard-clean one whose own text is above the policy''s lexical_threshold), ambiguous (one
that the guard tells apart, or of which an alias is above it), or null; similarity: Jaccard to its own text, in [0, 1]. Only reads.';

create or replace function memfold._join_similar(a jsonb, b jsonb) returns jsonb
language sql immutable parallel safe
begin atomic
    select pg_catalog.jsonb_agg(s.entry order by s.similarity desc nulls last, s.jaccard desc nulls last, s.memory_id)
    from (
        select
            coalesce(x.entry ->> 'memory_id', y.entry ->> 'memory_id') as memory_id,
            greatest(
                (y.entry ->> 'similarity')::double precision, (y.entry ->> 'matched_similarity')::double precision
            ) as similarity,
            greatest((x.entry ->> 'jaccard')::double precision, (x.entry ->> 'matched_jaccard')::double precision) as jaccard,
            coalesce(x.entry, '{}') || coalesce(y.entry, '{}') as entry
        from pg_catalog.jsonb_array_elements(a) as x (entry)
        full join pg_catalog.jsonb_array_elements(b) as y (entry) on x.entry ->> 'memory_id' = y.entry ->> 'memory_id'
    ) as s;
end;
revoke all on function memfold._join_similar(jsonb, jsonb) from public;
comment on function memfold._join_similar(jsonb, jsonb) is
'What the lexical tier (a) and vectors (b) report as similar, one entry a memory. Null where neither has any.';

create or replace function memfold._decide_fold(c memfold.candidate, d memfold.decision) returns memfold.decision
language plpgsql stable
as $$
begin
    if (c.policy).on_merge = 'strengthen' or c.origin = 'recalled' then
        return d;
    elsif (c.policy).on_merge = 'synthesise' then
        d.action := 'escalated';
        d.judgement := 'synthesis';
        d.on_timeline := false;
    elsif exists (
        select from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = d.target_id
            and (k.last_seen <= c.observed_at) is not false
    ) then
        d.action := 'replaced';
    end if;
    return d;
end;
$$;
revoke all on function memfold._decide_fold(memfold.candidate, memfold.decision) from public;
comment on function memfold._decide_fold(memfold.candidate, memfold.decision) is
'What becomes of an automatic merge, by the policy''s on_merge. A candidate that is older than what it would replace is merged.
Only reads.';

create or replace function memfold._decide(c memfold.candidate) returns memfold.decision
language plpgsql stable
as $$
declare
    d memfold.decision;
    v_policy constant memfold.policies := c.policy;
    v_single boolean := false;
    v_conflict text := v_policy.conflict;
    v_object text;
    v_current_id uuid;
    v_current_object text;
    v_last_seen timestamptz;
    v_values_differ boolean;
    v_lexical memfold.decision;
begin
    d := memfold._decide_known(c);
    if d.action is not null then
        return d;
    end if;

    if c.origin <> 'recalled' and c.predicate is not null and v_policy.dedup = 'on' then
        v_single := memfold._is_single(c.tenant_id, c.predicate);
    end if;
    if v_single then
        v_conflict := memfold._conflict(c.tenant_id, c.predicate, v_conflict);
        v_object := memfold.canonicalize(c.object, 'prose/1');
        select v.memory_id, v.object, v.last_seen into v_current_id, v_current_object, v_last_seen
        from memfold._current_value(c.tenant_id, c.bucket_id, c.scope_key) as v;
        v_values_differ := v_current_object <> v_object;
    end if;
    d.on_timeline := v_single;

    -- rows 5 and 6
    if v_values_differ then
        return memfold._decide_conflict(d, 'object', v_conflict, v_current_id,
            (c.observed_at < v_last_seen) is true);
    end if;

    -- row 7
    if v_policy.lexical_threshold is not null and v_policy.dedup = 'on' then
        v_lexical := memfold._decide_lexical(c, d);
        if v_lexical.action = 'merged' then
            return memfold._decide_fold(c, v_lexical);
        end if;
    end if;

    -- row 8
    if c.embedding is not null and v_policy.dedup = 'on' then
        d := memfold._decide_similar(c, d, null);
    end if;
    if v_lexical.similar_memories is not null then
        v_lexical.similar_memories := memfold._join_similar(v_lexical.similar_memories, coalesce(d.similar_memories, '[]'));
        if d.action is null then
            d := v_lexical;
        end if;
        d.similar_memories := v_lexical.similar_memories;
    end if;
    if d.action = 'merged' then
        return memfold._decide_fold(c, d);
    end if;

    -- row 11: what the agent was shown from memory is no evidence, and may not bring in anything new
    if c.origin = 'recalled' then
        d.action := 'rejected';
        d.reason := 'recalled';
        return d;
    end if;

    -- row 9
    if d.action = 'ambiguous' then
        if v_policy.on_ambiguous <> 'keep' then
            d.action := 'escalated';
            d.judgement := memfold._judgement_kind(v_policy.on_ambiguous);
            d.on_timeline := false;
            return d;
        end if;
        d.target_id := null;
        d.on_timeline := false;
    end if;

    -- row 10
    if v_current_id is not null and v_values_differ is null and d.action is null then
        return memfold._decide_conflict(d, 'predicate', v_conflict, v_current_id,
            (c.observed_at < v_last_seen) is true);
    end if;

    -- row 12
    d.action := 'inserted';
    return d;
end;
$$;
revoke all on function memfold._decide(memfold.candidate) from public;
comment on function memfold._decide(memfold.candidate) is
'The decision table (docs/decisions.md), rows 2 to 12, for one candidate on the present state. What has no time (observed_at) is
told now, and is late for nothing. Only reads.';

create or replace function memfold._judgement_kind(on_ambiguous text) returns text
language sql immutable strict parallel safe
return case on_ambiguous when 'judge' then 'write' when 'synthesise' then 'synthesis' else 'review' end;
revoke all on function memfold._judgement_kind(text) from public;
comment on function memfold._judgement_kind(text) is 'The kind of judgement that on_ambiguous of a policy asks for.';

create or replace function memfold._decide_conflict(
    d memfold.decision, method text, conflict text, current_id uuid, late boolean
) returns memfold.decision
language plpgsql immutable parallel safe
as $$
begin
    d.tier := 2;
    d.method := method;
    d.target_id := current_id;
    if late then
        d.action := 'historical';
    elsif conflict = 'newest_wins' then
        d.action := 'superseded';
    elsif conflict = 'keep_existing' then
        d.action := 'rejected';
        d.reason := 'keep_existing';
    else
        d.on_timeline := false;
        d.action := case conflict when 'keep_both' then 'inserted' else 'escalated' end;
        d.judgement := case conflict when 'review' then 'review' end;
    end if;
    if d.action = 'escalated' and (d.similar_memories @> pg_catalog.jsonb_build_array(
        pg_catalog.jsonb_build_object('memory_id', current_id))) is not true
    then
        d.similar_memories := coalesce(d.similar_memories, '[]')
            || pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('memory_id', current_id));
    end if;
    return d;
end;
$$;
revoke all on function memfold._decide_conflict(memfold.decision, text, text, uuid, boolean) from public;
comment on function memfold._decide_conflict(memfold.decision, text, text, uuid, boolean) is
'What another value in a single-valued slot does: rows 5, 6 and 10 of the decision table, by the conflict policy.';

create or replace function memfold._guard_pair(
    tenant_id text, content text, other_content text, object text, other_object text
) returns text[]
language plpgsql stable
as $$
declare
    v_object constant text := memfold.canonicalize(object, 'prose/1');
    v_other constant text := memfold.canonicalize(other_object, 'prose/1');
    v_signals text[] := memfold._guard(tenant_id, content, other_content);
begin
    if v_object <> v_other then
        v_signals := v_signals || pg_catalog.format('object: %s <> %s', v_object, v_other);
    end if;
    return v_signals;
end;
$$;
revoke all on function memfold._guard_pair(text, text, text, text, text) from public;
comment on function memfold._guard_pair(text, text, text, text, text) is
'The guard over two memories: their texts (_guard) and their canonical objects.';
