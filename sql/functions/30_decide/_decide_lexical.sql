-- Tier 2, lexical: row 8 of the decision table, over the memories that share most words with the candidate, by any of
-- their texts and by their own. action: merged (the best one whose own text is above the policy's lexical_threshold and
-- passes guard and veto), ambiguous (one that guard or veto keep apart, or with an alias above the threshold), or null;
-- similarity: Jaccard to its own text, in [0, 1].
create or replace function memfold_internal._decide_lexical(c memfold_internal.candidate, d memfold_internal.decision)
returns memfold_internal.decision
language plpgsql stable
as $$
declare
    v_policy constant memfold.policies := c.policy;
    v_tokens constant text[] := memfold_internal._tokens(c.content, v_policy.segmenter);
    v_report constant double precision := coalesce(v_policy.similar_threshold, v_policy.lexical_threshold);
    v_neighbour record;
    -- texts, memories and own texts of memories found so far
    v_texts bigint := 0;
    v_trees bigint := 0;
    v_owns bigint := 0;
    v_is_new boolean;
    v_own double precision;
    v_value double precision;
    v_best double precision;
    v_mergeable boolean;
    v_guard jsonb;
    v_veto text;
    v_entry jsonb;
    v_entries jsonb := '{}'::jsonb;
begin
    d.action := null;
    for v_neighbour in
        select s.memory_id, m.root_id, m.content, r.content as root_content, r.object as root_object
        from (
            -- A word that all texts contain is searched in the newest only.
            select t.memory_id, count(*) as shared
            from unnest(v_tokens) as w (token)
            cross join lateral (
                select t.memory_id from memfold.memory_tokens as t
                where t.tenant_id = c.tenant_id and t.bucket_id = c.bucket_id
                    and t.token = w.token
                order by t.memory_id desc
                limit 1000
            ) as t
            group by t.memory_id
            -- The limit is repeated here, so that memories beyond it are not looked up.
            order by shared desc, t.memory_id
        ) as s
        cross join lateral (
            select memfold_internal._root(m.memory_id, m.root_id) as root_id, m.content, m.scope_key
            from memfold.memories as m
            where m.tenant_id = c.tenant_id and m.memory_id = s.memory_id
            offset 0
        ) as m
        cross join lateral memfold_internal._memory(c.tenant_id, m.root_id) as r
        where r.status in ('active', 'superseded') and (v_policy.scope = 'bucket' or m.scope_key = c.scope_key)
        order by s.shared desc, s.memory_id
    loop
        -- Aliases do not count as results: continue until there are enough memories by any text, and by their own.
        exit when v_trees >= v_policy.lexical_neighbours and v_owns >= v_policy.lexical_neighbours;
        continue when memfold_internal._are_two_values(c.tenant_id, c.predicate, c.object, v_neighbour.root_object);
        v_entry := v_entries -> v_neighbour.root_id::text;
        v_is_new := v_entry is null;
        v_texts := v_texts + 1;
        continue when not (v_texts <= v_policy.lexical_neighbours
            or v_is_new and v_trees < v_policy.lexical_neighbours
            or v_neighbour.memory_id = v_neighbour.root_id and v_owns < v_policy.lexical_neighbours);
        v_owns := v_owns + (v_neighbour.memory_id = v_neighbour.root_id)::integer;
        if v_is_new then
            v_trees := v_trees + 1;
            v_own := memfold_internal._jaccard(v_tokens, memfold_internal._tokens(v_neighbour.root_content, v_policy.segmenter));
            v_entry := jsonb_build_object('memory_id', v_neighbour.root_id, 'jaccard', v_own);
        else
            continue when v_neighbour.memory_id = v_neighbour.root_id;
            v_own := (v_entry ->> 'jaccard')::double precision;
        end if;
        v_value := v_own;
        if v_neighbour.memory_id <> v_neighbour.root_id then
            v_value := memfold_internal._jaccard(v_tokens, memfold_internal._tokens(v_neighbour.content, v_policy.segmenter));
            if v_value > greatest(v_own, (v_entry ->> 'matched_jaccard')::double precision) then
                v_entry := v_entry || jsonb_build_object(
                    'jaccard_matched_id', v_neighbour.memory_id, 'matched_jaccard', v_value);
            else
                v_value := v_own;
            end if;
        end if;
        -- A merge depends on the text that will be shown: a near alias is only a reason to ask.
        v_mergeable := v_own > v_policy.lexical_threshold;
        if v_mergeable and (d.action is distinct from 'merged' or v_own > v_best)
            or v_value > v_policy.lexical_threshold and (d.action is null or d.action = 'ambiguous' and v_value > v_best)
        then
            select to_jsonb(m.guard), m.mergeable, m.veto into v_guard, v_mergeable, v_veto
            from memfold_internal._check_merge(c.tenant_id, c.bucket_id, v_policy, c.content, v_neighbour.root_content, c.object,
                v_neighbour.root_object, (
                    select array_agg(s.signal)
                    from jsonb_array_elements_text(v_entry -> 'guard') as s (signal)
                ), v_mergeable) as m;
            v_entry := v_entry || jsonb_strip_nulls(jsonb_build_object('guard', v_guard, 'veto', v_veto));
            if v_mergeable or d.action is null or d.action = 'ambiguous' and v_value > v_best then
                v_best := case when v_mergeable then v_own else v_value end;
                d.action := case when v_mergeable then 'merged' else 'ambiguous' end;
                d.tier := 2;
                d.method := 'lexical';
                d.target_id := v_neighbour.root_id;
                d.similarity := v_own;
                d.guard := array(select jsonb_array_elements_text(v_guard));
                d.reason := v_veto;
            end if;
        end if;
        v_entries := v_entries || jsonb_build_object(v_neighbour.root_id, v_entry);
    end loop;
    select jsonb_agg(s.entry order by s.jaccard desc, s.id) into d.similar_memories
    from (
        select e.key as id, e.value as entry, greatest(
            (e.value ->> 'jaccard')::double precision, (e.value ->> 'matched_jaccard')::double precision) as jaccard
        from jsonb_each(v_entries) as e
    ) as s
    where s.jaccard >= v_report or s.id = d.target_id::text;
    return d;
end;
$$;
