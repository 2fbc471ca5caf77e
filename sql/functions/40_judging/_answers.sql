-- Raises MF026: there is no such judgement.
create or replace function memfold_internal._no_judgement(p_judgement_id uuid) returns void
language plpgsql volatile parallel safe
as $$
begin
    perform memfold_internal._fail('MF026', 'there is no such judgement',
        format('judgement_id was %s.', coalesce(p_judgement_id::text, 'null')),
        'open_judgements lists those that wait; set memfold.tenant_id to their tenant.');
end;
$$;

-- Raises MF028 unless tokens and cost are null or 0 to 1e12, so that their sums stay finite.
create or replace function memfold_internal._check_usage(
    p_input_tokens bigint, p_output_tokens bigint, p_cost double precision
) returns void
language plpgsql immutable parallel safe
as $$
begin
    if not coalesce(p_input_tokens between 0 and 1e12, true) or not coalesce(p_output_tokens between 0 and 1e12, true)
        or not coalesce(p_cost between 0 and 1e12, true)
    then
        perform memfold_internal._fail('MF028', 'the cost of a call is out of range',
            format('input_tokens was %s, output_tokens %s, cost %s.', coalesce(p_input_tokens::text, 'null'),
                coalesce(p_output_tokens::text, 'null'), coalesce(p_cost::text, 'null')),
            'Pass the endpoint''s figures, 0 to 1e12, or omit them.');
    end if;
end;
$$;

-- Raises MF028 unless the confidence is 0 to 1 and _check_usage() accepts tokens and cost.
create or replace function memfold_internal._check_answer(
    p_confidence double precision, p_input_tokens bigint, p_output_tokens bigint, p_cost double precision
) returns void
language plpgsql volatile parallel safe
as $$
begin
    if not coalesce(p_confidence between 0 and 1, false) then
        perform memfold_internal._fail('MF028', 'the confidence is not between 0 and 1',
            format('confidence was %s.', coalesce(p_confidence::text, 'null')), 'Pass a number from 0 to 1.');
    end if;
    perform memfold_internal._check_usage(p_input_tokens, p_output_tokens, p_cost);
end;
$$;

-- Locks the row of a judgement that is about to be answered. Returns it with this judge's model, tokens and cost added,
-- not stored yet. Raises MF026, MF027 (it is closed).
create or replace function memfold_internal._waiting_judgement(
    p_tenant_id text, p_judgement_id uuid, p_model text, p_input_tokens bigint, p_output_tokens bigint, p_cost double precision
) returns memfold.judgements
language plpgsql volatile
as $$
declare
    j memfold.judgements;
begin
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = p_tenant_id collate "C" and o.judgement_id = p_judgement_id
    for no key update;
    if not found then
        perform memfold_internal._no_judgement(p_judgement_id);
    elsif j.status in ('done', 'obsolete') then
        perform memfold_internal._fail('MF027', 'the judgement is closed',
            format('Judgement %s is %s%s.', j.judgement_id, j.status, coalesce(': ' || j.verdict, '')),
            'The first answer counts. undo() undoes its effect.');
    end if;
    j.model := p_model;
    j.input_tokens := coalesce(j.input_tokens + p_input_tokens, j.input_tokens, p_input_tokens);
    j.output_tokens := coalesce(j.output_tokens + p_output_tokens, j.output_tokens, p_output_tokens);
    j.cost := coalesce(j.cost + p_cost, j.cost, p_cost);
    return j;
end;
$$;

-- Stores a judgement with its answer: status (done or obsolete), verdict and cost.
create or replace function memfold_internal._close_judgement(j memfold.judgements) returns void
language plpgsql volatile
as $$
begin
    update memfold.judgements as o
    set status = j.status, verdict = j.verdict, confidence = j.confidence, reason = j.reason, merged_text = j.merged_text,
        model = j.model, input_tokens = j.input_tokens, output_tokens = j.output_tokens, cost = j.cost, run_id = j.run_id,
        resolved_at = memfold_internal._clock()
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
end;
$$;
