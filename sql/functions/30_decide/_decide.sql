-- Tier 1: rows 2 to 4 of the decision table (docs/rules.md). action null: the bucket does not hold this text (memory_id
-- null), or the text is withdrawn.
create or replace function memfold_internal._decide_known(c memfold_internal.candidate) returns memfold_internal.decision
language plpgsql stable
as $$
declare
    d memfold_internal.decision;
    r memfold.memories;
begin
    select m.memory_id, memfold_internal._root(m.memory_id, m.root_id), m.root_id
    into d.memory_id, d.root_id, d.target_id
    from memfold_internal._known_candidate(c) as m;
    if d.memory_id is null then
        return null;
    end if;
    if c.session_id is not null and (c.policy).max_session_repeats is not null then
        perform memfold_internal._check_repeats(c, d.memory_id);
    end if;
    d.tier := 1;
    d.method := memfold_internal._hit_method(d.memory_id, d.root_id);
    select m.* into strict r
    from memfold.memories as m where m.tenant_id = c.tenant_id and m.memory_id = d.root_id;
    if r.status = 'active' then
        -- row 3
        d.action := 'merged';
        return d;
    elsif r.status = 'rejected' then
        -- row 2
        return memfold_internal._decide_forgotten(c.tenant_id, d, d.root_id);
    elsif r.status = 'withdrawn' and c.origin = 'recalled' then
        -- row 10
        d := null;
        d.action := 'rejected';
        d.reason := 'recalled';
        return d;
    end if;
    d.target_id := null;
    if r.status = 'withdrawn' then
        -- decide it as a new text
        return d;
    end if;
    -- row 4
    d.action := 'merged';
    d.method := 'timeline';
    if c.origin <> 'recalled' then
        select v.memory_id into d.target_id
        from memfold_internal._current_value(c.tenant_id, memfold_internal._rivals(c.tenant_id, d.root_id),
            memfold_internal._slot_key(r.tenant_id, r.bucket_id, r.memory_type, r.predicate, r.scope_key)) as v
        where (c.observed_at >= v.last_seen) is not false;
    end if;
    if d.target_id is not null then
        d.action := 'superseded';
    end if;
    return d;
end;
$$;

-- Rows 5 to 13 of the decision table (docs/rules.md), for a text that the bucket does not hold. A candidate without a
-- time (observed_at) counts as observed now, so it is never a late arrival.
create or replace function memfold_internal._decide_new(c memfold_internal.candidate) returns memfold_internal.decision
language plpgsql stable
as $$
declare
    d memfold_internal.decision;
    v_policy constant memfold.policies := c.policy;
    v_slot boolean := false;
    v_conflict text := v_policy.conflict;
    v_object text;
    v_current_id uuid;
    v_current_object text;
    v_last_seen timestamptz;
    v_values_differ boolean;
    v_forgotten_id uuid;
    v_lexical memfold_internal.decision;
begin
    -- row 5
    if num_nonnulls(c.subject, c.predicate, c.object) = 3 and v_policy.dedup = 'on' then
        v_forgotten_id := memfold_internal._forgotten_value(c.tenant_id, c.bucket_id, c.scope_key, c.object);
        if v_forgotten_id is not null then
            return memfold_internal._decide_forgotten(c.tenant_id, d, v_forgotten_id);
        end if;
    end if;
    if c.origin <> 'recalled' and c.predicate is not null and v_policy.dedup = 'on' and memfold_internal._is_single(c.tenant_id,
        c.predicate) then
        v_conflict := memfold_internal._conflict(c.tenant_id, c.predicate, v_conflict);
        v_slot := v_conflict <> 'keep_both';
    end if;
    if v_slot then
        v_object := memfold.canonicalize(c.object, 'prose/1');
        select v.memory_id, v.object, v.last_seen into v_current_id, v_current_object, v_last_seen
        from memfold_internal._current_value(c.tenant_id, '{}', c.scope_key) as v;
        v_values_differ := v_current_object <> v_object;
    end if;

    -- rows 6 and 7
    if v_values_differ then
        return memfold_internal._decide_conflict(d, 'object', v_conflict, v_current_id,
            (c.observed_at < v_last_seen) is true);
    end if;

    -- row 8
    if v_policy.lexical_threshold is not null and v_policy.dedup = 'on' then
        v_lexical := memfold_internal._decide_lexical(c, d);
    end if;

    -- row 9
    if v_lexical.action = 'merged' then
        d := v_lexical;
    else
        if c.embedding is not null and v_policy.dedup = 'on' then
            d := memfold_internal._decide_similar(c, d, null);
        end if;
        if v_lexical.similar_memories is not null then
            v_lexical.similar_memories := memfold_internal._join_similar(v_lexical.similar_memories,
                coalesce(d.similar_memories, '[]'));
            if d.action is null then
                d := v_lexical;
            end if;
            d.similar_memories := v_lexical.similar_memories;
        end if;
    end if;
    if d.action = 'merged' then
        d := memfold_internal._decide_neighbour(c, d, null);
        if d.action = 'rejected' then
            return memfold_internal._decide_forgotten(c.tenant_id, d, d.target_id);
        elsif d.action = 'escalated' then
            return memfold_internal._report_other_value(c, d);
        end if;
        return d;
    end if;

    -- row 10: text that the agent read from memory is not evidence of anything new
    if c.origin = 'recalled' then
        d.action := 'rejected';
        d.reason := 'recalled';
        return d;
    end if;

    -- row 11
    if d.action = 'ambiguous' then
        d := memfold_internal._decide_neighbour(c, d, null);
        if d.action = 'escalated' then
            return memfold_internal._report_other_value(c, d);
        end if;
        d.target_id := null;
    end if;

    -- row 12
    if v_current_id is not null and v_values_differ is null and d.action is null then
        return memfold_internal._decide_conflict(d, 'predicate', v_conflict, v_current_id,
            (c.observed_at < v_last_seen) is true);
    end if;

    -- row 13
    d.action := 'inserted';
    return memfold_internal._report_other_value(c, d);
end;
$$;

-- The decision table (docs/rules.md), rows 2 to 13, for one candidate on the present state.
create or replace function memfold_internal._decide(c memfold_internal.candidate) returns memfold_internal.decision
language plpgsql stable
as $$
declare
    d memfold_internal.decision := memfold_internal._decide_known(c);
    n memfold_internal.decision;
begin
    if d.action is not null then
        return d;
    end if;
    n := memfold_internal._decide_new(c);
    if d.memory_id is not null and n.action <> 'rejected' then
        n.memory_id := d.memory_id;
        n.root_id := d.root_id;
        if n.tier is null then
            n.tier := d.tier;
            n.method := d.method;
        end if;
    end if;
    return n;
end;
$$;

-- The effect of another value in a single-valued slot: rows 6, 7 and 12 of the decision table, by the conflict policy.
create or replace function memfold_internal._decide_conflict(
    d memfold_internal.decision, p_method text, p_conflict text, p_current_id uuid, p_late boolean
) returns memfold_internal.decision
language plpgsql immutable parallel safe
as $$
begin
    d.tier := 2;
    d.method := p_method;
    d.target_id := p_current_id;
    if p_late then
        d.action := 'historical';
    elsif p_conflict = 'newest_wins' then
        d.action := 'superseded';
    elsif p_conflict = 'keep_existing' then
        d.action := 'rejected';
        d.reason := 'keep_existing';
    else
        d.action := 'escalated';
        d.judgement := 'review';
    end if;
    if d.action = 'escalated' and (d.similar_memories @> jsonb_build_array(
        jsonb_build_object('memory_id', p_current_id))) is not true
    then
        d.similar_memories := coalesce(d.similar_memories, '[]')
            || jsonb_build_array(jsonb_build_object('memory_id', p_current_id));
    end if;
    return d;
end;
$$;

-- The similar memories that the lexical tier (a) and vectors (b) report, one entry per memory. Null if both are empty.
create or replace function memfold_internal._join_similar(a jsonb, b jsonb) returns jsonb
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
