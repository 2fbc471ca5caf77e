create or replace function memfold.fail_judgement(
    judgement_id uuid,
    error text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    worker text default null,
    counted boolean default true,
    retry_after interval default null,
    model text default null,
    input_tokens bigint default null,
    output_tokens bigint default null,
    cost double precision default null
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    j memfold.judgements;
    v_is_locked boolean := false;
begin
    perform memfold_internal._authorize_judge(tenant_id);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = fail_judgement.tenant_id collate "C" and o.judgement_id = fail_judgement.judgement_id
        and o.status <> 'part';
    if not found then
        perform memfold_internal._no_judgement(judgement_id);
    end if;
    if counted and j.attempts >= 8 and memfold_internal._falls_back(j) then
        -- If this was the last attempt, the fallback decides below. Its locks come before that of the row.
        perform memfold_internal._lock_memories(j.tenant_id, memfold_internal._members(j));
        v_is_locked := true;
    end if;
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = fail_judgement.tenant_id collate "C" and o.judgement_id = fail_judgement.judgement_id
    for no key update;
    if not found then
        perform memfold_internal._no_judgement(judgement_id);
    end if;
    perform memfold_internal._check_usage(input_tokens, output_tokens, cost);
    if not coalesce(retry_after between '0' and '1 year', true) then
        perform memfold_internal._fail('MF028', 'retry_after is out of range', format('retry_after was %s.', retry_after),
            'It is 0 to one year, or null to derive it from the number of attempts.');
    end if;
    -- The cost was spent even if the lease now belongs to another worker.
    update memfold.judgements as o
    set model = coalesce(fail_judgement.model, o.model),
        input_tokens = coalesce(o.input_tokens + fail_judgement.input_tokens, o.input_tokens, fail_judgement.input_tokens),
        output_tokens = coalesce(o.output_tokens + fail_judgement.output_tokens, o.output_tokens,
            fail_judgement.output_tokens),
        cost = coalesce(o.cost + fail_judgement.cost, o.cost, fail_judgement.cost)
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    if j.status <> 'leased' or coalesce(worker, j.worker) <> j.worker then
        return j.status;
    end if;
    if not counted then
        j.attempts := greatest(j.attempts - 1, 0);
    end if;
    j.status := case when j.attempts >= 8 then 'dead' else 'open' end;
    -- Plus or minus a fifth, so that retries spread out.
    j.next_attempt_at := clock_timestamp()
        + coalesce(retry_after, interval '5 seconds' * 2 ^ greatest(j.attempts - 1, 0) * (0.8 + 0.4 * random()));
    update memfold.judgements as o
    set status = j.status, attempts = j.attempts, last_error = left(error, 1000), worker = null, leased_until = null,
        next_attempt_at = j.next_attempt_at
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    -- If the policy has begun to ask for a fallback since it was checked, maintenance applies it (_fall_back_dead).
    if v_is_locked and j.status = 'dead' and memfold_internal._falls_back(j) then
        return case memfold_internal._fall_back(j) when 'done' then 'replaced' else 'obsolete' end;
    end if;
    return j.status;
end;
$$;
grant execute on function memfold.fail_judgement to memfold_judge, memfold_app;
comment on function memfold.fail_judgement is
'Returns a leased judgement to the queue without an answer. The result is its status: open (available again after retry_after, by default
after about 5 s, doubled with each attempt), dead (after the eighth attempt; see retry_judgements), replaced (the same, for a
synthesis with on_judge_failure replace: the newest memory has replaced the others), obsolete (nothing is left to decide), or its present
status if it is not leased, or not to this worker. counted => false: the attempt does not count, because the pair was not the cause.
error: the first 1,000 characters are kept. Tokens and cost are added to those of the judgement. Raises MF025, MF026, MF028.';

-- Whether the newest memory replaces the others if this synthesis is never answered: the policy says replace, and the
-- newest is near each of the others. Also true if nothing is left to decide. Only reads.
create or replace function memfold_internal._falls_back(j memfold.judgements) returns boolean
language plpgsql stable
as $$
declare
    n memfold.judgements;
    v_policy memfold.policies;
begin
    if j.kind <> 'synthesis' then
        return false;
    end if;
    select p.* into v_policy
    from memfold.memories as m
    cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
    where m.tenant_id = j.tenant_id and m.memory_id = j.memory_id;
    if v_policy.on_judge_failure is distinct from 'replace' then
        return false;
    end if;
    -- No judge has compared these texts: require that the texts themselves are near, not an alias.
    n := memfold_internal._refresh_judgement(j);
    return n.status = 'obsolete' or not exists (
        select from unnest(memfold_internal._members(n)) as i (id)
        where i.id <> n.memory_id and not memfold_internal._is_pair_near(v_policy, n.tenant_id, n.memory_id, i.id)
    );
end;
$$;

-- Whether the own texts of two memories are near enough for a question, by a model's vectors or by their words. Only reads.
create or replace function memfold_internal._is_pair_near(
    p_policy memfold.policies, p_tenant_id text, p_memory_id uuid, p_other_id uuid
) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select
        from memfold.memory_vectors as a
        cross join lateral (
            select v.embedding from memfold.memory_vectors as v
            where v.tenant_id = a.tenant_id and v.memory_id = p_other_id and v.model = a.model
            offset 0
        ) as b
        cross join lateral memfold_internal._bands(p_policy.merge_threshold, p_policy.judge_threshold, p_policy.similar_threshold,
            a.model) as t
        cross join lateral (select memfold_internal._similarity(a.embedding, b.embedding) as similarity offset 0) as s
        where a.tenant_id = p_tenant_id collate "C" and a.memory_id = p_memory_id
            and case when t.score is null then s.similarity >= t.judge_threshold
                else s.similarity >= t.floor and memfold_internal._pair_score(a.tenant_id, t.score, s.similarity,
                    p_memory_id, p_other_id) >= t.judge_threshold end
    ) or p_policy.lexical_threshold is not null and (
        select memfold_internal._jaccard(memfold_internal._tokens(a.content, p_policy.segmenter),
            memfold_internal._tokens(b.content, p_policy.segmenter))
            > p_policy.lexical_threshold
        from memfold.memories as a
        join memfold.memories as b on b.tenant_id = a.tenant_id and b.memory_id = p_other_id
        where a.tenant_id = p_tenant_id collate "C" and a.memory_id = p_memory_id
    );
end;
$$;

-- Closes a synthesis that was never answered: the newest memory replaces the others. Returns the judgement's status, done
-- or obsolete. The caller holds the lock and has asked _falls_back().
create or replace function memfold_internal._fall_back(j memfold.judgements) returns text
language plpgsql volatile
as $$
declare
    n memfold.judgements := memfold_internal._refresh_judgement(j);
    v_members uuid[];
begin
    if n.status <> 'obsolete' then
        n.status := 'dead';
        n.reason := concat_ws(': ', 'the judge failed, the newer text replaces the older', n.last_error);
        v_members := memfold_internal._members(n);
        for i in 1..cardinality(v_members) - 1 loop
            perform memfold_internal._record_relation(n, 'replaced', v_members[cardinality(v_members)], v_members[i], null,
                null);
        end loop;
        n.status := 'done';
    end if;
    perform memfold_internal._close_parts(n, case n.status when 'done' then v_members else '{}' end, v_members);
    update memfold.judgements as o
    set status = n.status, reason = n.reason, resolved_at = memfold_internal._clock()
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    return n.status;
end;
$$;

-- Applies the fallback to at most one dead synthesis of a tenant, for maintenance. Returns how many (0 or 1).
create or replace function memfold_internal._fall_back_dead(p_tenant_id text) returns bigint
language plpgsql volatile
as $$
declare
    j memfold.judgements;
    v_count bigint := 0;
begin
    -- One per call, because each needs a lock of its own.
    for j in
        select o.* from memfold.judgements as o
        where o.tenant_id = p_tenant_id collate "C" and o.status = 'dead' and o.kind = 'synthesis'
        order by o.judgement_id
    loop
        continue when not memfold_internal._falls_back(j);
        perform memfold_internal._lock_memories(j.tenant_id, memfold_internal._members(j));
        select o.* into j
        from memfold.judgements as o
        where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id and o.status = 'dead'
        for no key update;
        if found and memfold_internal._falls_back(j) then
            perform memfold_internal._fall_back(j);
            v_count := v_count + 1;
        end if;
        exit;
    end loop;
    return v_count;
end;
$$;
