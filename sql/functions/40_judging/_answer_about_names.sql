-- Answers a question about names for resolve_judgement(). duplicate links the alias to the name (status obsolete if other
-- links forbid it), one and many declare the predicate; below the confidence floor nothing changes. Raises 42501 unless
-- the caller may set such rules or is a judge; MF026 to MF028.
create or replace function memfold_internal._answer_about_names(
    p_tenant_id text, p_judgement_id uuid, p_verdict text, p_confidence double precision, p_reason text, p_model text,
    p_input_tokens bigint,
    p_output_tokens bigint, p_cost double precision
) returns memfold.resolution
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    j memfold.judgements;
    r memfold.resolution;
    v_why text;
    v_actor constant text := memfold_internal._actor();
    v_verdicts text[];
    v_is_sure boolean;
    v_run_id uuid;
begin
    -- Links and predicates are rules; an agent may only answer questions about memories.
    if not (
        has_function_privilege(v_actor, 'memfold.link_subject(text, text, text, text)', 'execute')
        or pg_has_role(v_actor, 'memfold_judge', 'member')
    ) then
        perform memfold_internal._fail('42501', 'permission denied to answer a question about names',
            format('The answer may set a rule, and role %I may not call link_subject() or set_predicate().', v_actor),
            'A member of memfold_app, memfold_tenant or memfold_judge answers it.');
    end if;
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = p_tenant_id collate "C" and o.judgement_id = p_judgement_id;
    v_verdicts := case j.kind when 'identity' then array['duplicate', 'distinct'] else array['one', 'many'] end;
    if not coalesce(p_verdict = any(v_verdicts), false) then
        perform memfold_internal._fail('MF028', 'the verdict does not apply to this question',
            format('verdict was %s; the question is of kind %s.', quote_nullable(p_verdict), j.kind),
            format('For kind %s, a verdict is %s or %s; express doubt with a low confidence.', j.kind, v_verdicts[1], v_verdicts[2]));
    end if;
    perform memfold_internal._check_answer(p_confidence, p_input_tokens, p_output_tokens, p_cost);
    v_is_sure := p_confidence >= (memfold_internal._policy(j.tenant_id, j.bucket_id, '*')).confidence_floor;
    if j.kind = 'identity' then
        -- A link closes questions, so its lock comes before the judgement's row.
        perform memfold_internal._lock_links(p_tenant_id, j.bucket_id);
    elsif v_is_sure then
        -- This locks buckets, and so comes before the judgement's row.
        v_run_id := memfold_internal._declare(j.tenant_id, j.link ->> 'name', p_verdict, null);
    end if;
    j := memfold_internal._waiting_judgement(p_tenant_id, p_judgement_id, p_model, p_input_tokens, p_output_tokens, p_cost);
    j.status := 'done';
    j.verdict := p_verdict;
    j.confidence := p_confidence;
    j.reason := p_reason;
    r.action := 'judged';
    if not v_is_sure then
        j.verdict := 'unsure';
        j.reason := concat_ws(': ', p_verdict, p_reason);
    elsif p_verdict = 'duplicate' then
        begin
            j.run_id := memfold_internal._link(j.tenant_id, j.bucket_id, j.link ->> 'kind',
                coalesce(j.link ->> 'alias', j.link ->> 'name'), j.link ->> 'name');
            r.action := 'linked';
        exception when sqlstate 'MF063' then
            -- Links created since the question forbid this one.
            get stacked diagnostics v_why = pg_exception_detail;
            j.status := 'obsolete';
            j.verdict := null;
            j.reason := v_why;
            r.action := null;
        end;
    elsif j.kind = 'cardinality' then
        j.run_id := v_run_id;
        r.action := 'declared';
    end if;
    perform memfold_internal._close_judgement(j);
    r.status := j.status;
    r.verdict := j.verdict;
    r.run_id := j.run_id;
    return r;
end;
$$;
