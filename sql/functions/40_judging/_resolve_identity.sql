create or replace function memfold_internal._resolve_identity(
    tenant_id text, judgement_id uuid, verdict text, confidence double precision, reason text, model text, input_tokens bigint,
    output_tokens bigint, cost double precision
) returns memfold.resolution
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    j memfold.judgements;
    r memfold.resolution;
    v_why text;
    v_actor constant text := memfold_internal._actor();
begin
    -- an agent answers questions about memories: what links names is a rule of the bucket
    if not (
        pg_catalog.has_function_privilege(v_actor, 'memfold.link_subject(text, text, text, text)', 'execute')
        or pg_catalog.pg_has_role(v_actor, 'memfold_judge', 'member')
    ) then
        perform memfold_internal._fail('42501', 'permission denied to answer a question about names',
            pg_catalog.format('The answer may link the names, and role %I may not call link_subject().', v_actor),
            'A member of memfold_app, memfold_tenant or memfold_judge answers it.');
    end if;
    if not coalesce(verdict in ('duplicate', 'distinct'), false) then
        perform memfold_internal._fail('MF028', 'the verdict does not apply to names',
            pg_catalog.format('verdict was %s; the question is whether two names mean the same.', pg_catalog.quote_nullable(verdict)),
            'For names, a verdict is duplicate (they mean the same) or distinct; express doubt with a low confidence.');
    end if;
    perform memfold_internal._check_answer(confidence, input_tokens, output_tokens, cost);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = tenant_id collate "C" and o.judgement_id = judgement_id;
    -- a link made in the meantime closes the question
    perform memfold_internal._lock_links(tenant_id, j.bucket_id);
    j := memfold_internal._waiting_judgement(tenant_id, judgement_id, model, input_tokens, output_tokens, cost);
    j.status := 'done';
    j.verdict := verdict;
    j.confidence := confidence;
    j.reason := reason;
    r.action := 'judged';
    if confidence < (memfold_internal._policy(j.tenant_id, j.bucket_id, '*')).confidence_floor then
        j.verdict := 'unsure';
        j.reason := pg_catalog.concat_ws(': ', verdict, reason);
    elsif verdict = 'duplicate' then
        begin
            j.run_id := memfold_internal._link(j.tenant_id, j.bucket_id, j.link ->> 'kind',
                coalesce(j.link ->> 'alias', j.link ->> 'name'), j.link ->> 'name');
            r.action := 'linked';
        exception when sqlstate 'MF063' then
            -- links created since the question do not allow it
            get stacked diagnostics v_why = pg_exception_detail;
            j.status := 'obsolete';
            j.verdict := null;
            j.reason := v_why;
            r.action := null;
        end;
    end if;
    perform memfold_internal._close_judgement(j);
    r.status := j.status;
    r.verdict := j.verdict;
    r.run_id := j.run_id;
    return r;
end;
$$;
comment on function memfold_internal._resolve_identity is
'Answers a question about two names, for resolve_judgement(): duplicate links the alias to the name. Status obsolete: other links do not
allow it. Raises 42501 for a role that may not link names and is no judge.';
