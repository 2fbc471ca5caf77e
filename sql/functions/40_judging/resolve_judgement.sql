-- Whether an answer about p_about no longer fits a question whose memories have changed; n is its present state. For a pair,
-- always. For a cluster, if fewer than two of p_about are left or the richer memory is gone; for a synthesis, also if any
-- of p_about is gone other than by a merge into one that is left. Only reads.
create or replace function memfold_internal._is_outdated(n memfold.judgements, p_about uuid[], p_richer_memory_id uuid) returns boolean
language plpgsql stable
as $$
declare
    v_left constant uuid[] := array(
        select i.id from unnest(memfold_internal._members(n)) as i (id) where i.id = any(p_about) order by 1
    );
begin
    return n.member_ids is null or cardinality(v_left) < 2
        or coalesce(p_richer_memory_id <> all(v_left), false)
        -- A merged text contains what all members say: it must not bring back one that was rejected or retired.
        or n.kind = 'synthesis' and exists (
            select
            from unnest(p_about) as i (id)
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root from memfold.memories as m
                where m.tenant_id = n.tenant_id and m.memory_id = i.id
                offset 0
            ) as m
            where m.root <> all(v_left)
        );
end;
$$;

-- Settles the members of a cluster that its verdict was not about: each is distinct from p_led, the root of the others,
-- and if several are still active, a new question is asked about them. The caller holds the lock.
create or replace function memfold_internal._answer_rest(j memfold.judgements, p_led uuid, p_rest uuid[]) returns void
language plpgsql volatile
as $$
declare
    n memfold.judgements := j;
    v_id uuid;
    v_left uuid[];
begin
    n.verdict := 'distinct';
    foreach v_id in array p_rest loop
        if exists (select from memfold_internal._memory(j.tenant_id, p_led) as m where m.status = 'active') then
            perform memfold_internal._apply_verdict(n, array[least(v_id, p_led), greatest(v_id, p_led)], null);
        end if;
    end loop;
    v_left := array(
        select m.memory_id
        from unnest(p_rest) as i (id)
        cross join lateral memfold_internal._memory(j.tenant_id, i.id) as m
        where m.status = 'active'
        order by 1
    );
    if cardinality(v_left) > 1 then
        perform memfold_internal._queue_rest(j, j.kind, v_left);
    end if;
end;
$$;

create or replace function memfold.resolve_judgement(
    judgement_id uuid,
    verdict text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    confidence double precision default 1,
    reason text default null,
    merged_text text default null,
    richer_memory_id uuid default null,
    model text default null,
    input_tokens bigint default null,
    output_tokens bigint default null,
    cost double precision default null,
    member_ids uuid[] default null
) returns memfold.resolution
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    j memfold.judgements;
    n memfold.judgements;
    r memfold.resolution;
    v_asked uuid[];
    v_about uuid[];
    v_rest uuid[] := array[]::uuid[];
begin
    perform memfold_internal._authorize_judge(tenant_id);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = resolve_judgement.tenant_id collate "C" and o.judgement_id = resolve_judgement.judgement_id
        and o.status <> 'part';
    v_asked := memfold_internal._members(j);
    v_about := coalesce(array(select distinct i.id from unnest(member_ids) as i (id) where member_ids is not null order by 1), '{}');
    if member_ids is null then
        v_about := v_asked;
    end if;
    if j.judgement_id is null then
        perform memfold_internal._no_judgement(judgement_id);
    elsif j.link is not null then
        return memfold_internal._answer_about_names(j.tenant_id, j.judgement_id, verdict, confidence, reason, model, input_tokens,
            output_tokens, cost);
    elsif not coalesce(verdict in ('duplicate', 'refinement', 'contradiction', 'distinct'), false) then
        perform memfold_internal._fail('MF028', 'unknown verdict', format('verdict was %s.', quote_nullable(verdict)),
            'A verdict is duplicate, refinement, contradiction or distinct; express doubt with a low confidence.');
    elsif cardinality(v_about) < 2 or not coalesce(v_about <@ v_asked, false) then
        perform memfold_internal._fail('MF028', 'member_ids does not fit',
            format('member_ids was %s, the question is about %s.', member_ids, v_asked),
            'Name at least two of the memories in question, or omit it to answer for all of them.');
    elsif richer_memory_id is not null and (verdict <> 'refinement' or richer_memory_id <> all(v_about)) then
        perform memfold_internal._fail('MF028', 'richer_memory_id does not fit',
            format('richer_memory_id was %s, the verdict %s, about %s.', richer_memory_id, verdict, v_about),
            'For a refinement, name the memory that says more, or omit it to use the longest text.');
    end if;
    perform memfold_internal._check_answer(confidence, input_tokens, output_tokens, cost);
    -- The judge was asked without a lock: check again under it.
    perform memfold_internal._lock_memories(j.tenant_id, v_asked);
    perform memfold_internal._check_agent_actions(j.tenant_id, j.bucket_id);
    j := memfold_internal._waiting_judgement(j.tenant_id, j.judgement_id, model, input_tokens, output_tokens, cost);
    n := memfold_internal._refresh_judgement(j);
    if n.status = 'obsolete' then
        perform memfold_internal._close_parts(j, '{}', '{}');
    elsif memfold_internal._has_changed(n, j) and memfold_internal._is_outdated(n, v_about, richer_memory_id) then
        perform memfold_internal._requeue_judgement(n);
        r.status := 'open';
        n.status := 'obsolete';
        n.reason := 'one of its memories was merged: a new question is about the rest';
    else
        n.verdict := resolve_judgement.verdict;
        n.confidence := resolve_judgement.confidence;
        n.reason := resolve_judgement.reason;
        n.merged_text := resolve_judgement.merged_text;
        v_rest := array(select i.id from unnest(memfold_internal._members(n)) as i (id) where i.id <> all(v_about) order by 1);
        v_about := array(select i.id from unnest(memfold_internal._members(n)) as i (id) where i.id = any(v_about) order by 1);
        if n.confidence < (
            select (memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type)).confidence_floor
            from memfold.memories as m where m.tenant_id = n.tenant_id and m.memory_id = n.memory_id
        ) then
            n.verdict := 'unsure';
            n.reason := concat_ws(': ', resolve_judgement.verdict, n.reason);
            -- An unsure answer is about all members, not only those that it names.
            v_about := memfold_internal._members(n);
            v_rest := '{}';
        end if;
        n.status := 'done';
    end if;
    r.status := coalesce(r.status, n.status);
    perform memfold_internal._close_judgement(n);
    if n.status = 'done' then
        perform memfold_internal._close_parts(n, memfold_internal._members(n), v_about);
        r := memfold_internal._apply_verdict(n, v_about, richer_memory_id);
        if v_rest <> '{}' then
            perform memfold_internal._answer_rest(n, r.memory_id, v_rest);
        end if;
    end if;
    return r;
end;
$$;
grant execute on function memfold.resolve_judgement to memfold_judge, memfold_app;
comment on function memfold.resolve_judgement is
'Answers a judgement, under the lock of its scope and only if its memories have not changed since they were judged. verdict: duplicate
(the newer memories become aliases of the oldest), refinement (the richer text becomes active), contradiction (the conflict policy
decides) or distinct (all are kept). confidence in [0, 1]: below the policy''s confidence_floor all are kept, as unsure. Unequal values of
a single-valued slot cannot all be kept: in both cases the conflict policy decides between them. richer_memory_id: for a refinement, the
memory that says more; null: the longest text. merged_text: for kind synthesis, one text that combines all; if it is missing or only
punctuation, all are kept, with a warning. member_ids: for a cluster, the members that the verdict is about (null: all); the others are
distinct from them, and if there are several, a new question is asked about them. For kind forgotten, duplicate and refinement make the
memory an alias of the one that was rejected (undo() separates them), any other verdict keeps it. For kind identity, which asks about two
names, duplicate links the alias to the name (action linked; undo_run() of the result''s run_id undoes it) and distinct keeps them apart;
both permanently. For kind cardinality, one and many declare the predicate as set_predicate() does (action declared; run_id as above).
Members of memfold_agent may answer neither (42501): they may not set rules. model null: a person answered. The first answer counts.
Raises MF001 to MF003, MF025, MF026 (no such judgement), MF027 (it is closed), MF028 (an argument is not allowed), MF066.';
