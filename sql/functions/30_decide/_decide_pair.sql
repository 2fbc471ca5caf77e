-- The outcome for two texts that are near enough to be compared: rows 8, 9 and 11 of the decision table (docs/rules.md),
-- for new and stored texts alike. p_is_same: near enough to merge, with guard and veto passed; p_is_forgotten: one is a
-- tombstone; p_is_newer: the first is new, or was stored later; p_said_at: when each was last stated (null: now). action:
-- merged (newer into older), replaced (older into newer), escalated (with the judgement's kind), rejected (forgotten), or
-- inserted (both stay).
create or replace function memfold_internal._decide_pair(
    p_policy memfold.policies, p_is_same boolean, p_is_forgotten boolean, p_content text, p_said_at timestamptz, p_other_content text,
    p_other_said_at timestamptz, p_is_newer boolean, out action text, out judgement text, out reason text
)
language plpgsql immutable parallel safe
as $$
begin
    if not p_is_newer then
        select p.action, p.judgement, p.reason into action, judgement, reason
        from memfold_internal._decide_pair(p_policy, p_is_same, p_is_forgotten, p_other_content, p_other_said_at, p_content, p_said_at,
            true) as p;
    elsif not p_is_same then
        action := case when p_policy.on_ambiguous = 'insert' then 'inserted' else 'escalated' end;
        if action = 'escalated' then
            judgement := case when p_is_forgotten then 'forgotten' else memfold_internal._judgement_kind(p_policy.on_ambiguous) end;
        end if;
    elsif p_is_forgotten then
        action := 'rejected';
    elsif p_policy.on_merge = 'synthesise' then
        action := 'escalated';
        judgement := 'synthesis';
    elsif p_policy.on_merge = 'replace' then
        action := case when (p_said_at >= p_other_said_at) is not false then 'replaced' else 'merged' end;
    elsif p_policy.on_refinement <> 'merge' and p_policy.guard = 'on' and memfold_internal._says_more(p_content, p_other_content) then
        reason := 'refinement';
        action := case p_policy.on_refinement when 'replace' then 'replaced' else 'escalated' end;
        if action = 'escalated' then
            judgement := memfold_internal._judgement_kind(p_policy.on_ambiguous);
        end if;
    else
        action := 'merged';
    end if;
end;
$$;

-- The outcome (_decide_pair) for a candidate and the neighbour that tier 2 has found: target_id, with action merged or
-- ambiguous. p_stored_id: the candidate is this stored text; null: it is new.
create or replace function memfold_internal._decide_neighbour(
    c memfold_internal.candidate, d memfold_internal.decision, p_stored_id uuid
) returns memfold_internal.decision
language plpgsql stable
as $$
declare
    v_near record;
    p record;
begin
    select m.content, m.status = 'rejected' as is_forgotten, coalesce(k.last_seen, m.created_at) as last_seen into strict v_near
    from memfold.memories as m
    -- A row of a plain INSERT has no counters yet.
    left join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
    where m.tenant_id = c.tenant_id and m.memory_id = d.target_id;
    p := memfold_internal._decide_pair(c.policy, d.action = 'merged', v_near.is_forgotten, c.content, c.observed_at,
        v_near.content, v_near.last_seen, (p_stored_id > d.target_id) is not false);
    if c.origin = 'recalled' and p.action <> 'rejected' then
        -- recalled text is not evidence: it replaces nothing
        return d;
    end if;
    d.action := p.action;
    d.judgement := p.judgement;
    d.reason := nullif(concat_ws(', ', p.reason, d.reason), '');
    return d;
end;
$$;
