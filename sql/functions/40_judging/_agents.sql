-- Tier 3: answers to the questions that 23_judgement_queue holds.
--
-- A judge (memfold judge, memfold review, any program) leases questions with claim_judgements(), asks a model or a person
-- outside of any transaction, and calls resolve_judgement(), or fail_judgement() if there is no answer. After eight
-- leases a question is dead until retry_judgements(). 60_maintenance also applies verdicts (approve_run) and the fallback
-- of dead questions; 41_manual uses the limits for agents in this file.
--
-- An answer first locks the memories that it may change (_lock_memories), then the judgement's row. Claims and retries
-- skip locked rows. What must stay true: only the first answer to a question counts, and it is applied to the present
-- state. If the memories in question have changed since the lease, they are asked about again instead. Memories change
-- only by ledger rows (_record_relation, _merge_all); links and predicates, by _link and _declare.

-- Whether a role is a member of memfold_agent and not of memfold_app. False if it no longer exists.
create or replace function memfold_internal._is_agent(p_role text) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from pg_roles as r
        where r.rolname = p_role::name and pg_has_role(r.oid, 'memfold_agent', 'member')
            and not pg_has_role(r.oid, 'memfold_app', 'member')
    );
end;
$$;

-- Raises 42501 if the caller is an agent and p_actor, who stated or decided what it wants to change, is not.
create or replace function memfold_internal._check_rank(p_actor text) returns void
language plpgsql stable
as $$
declare
    v_caller constant text := memfold_internal._actor();
begin
    if memfold_internal._is_agent(v_caller) and not memfold_internal._is_agent(p_actor) then
        perform memfold_internal._fail('42501', 'permission denied to change what a person decided',
            format('%s is an agent; %s, who stated or decided it, is not.', v_caller, p_actor),
            'Ask a person to do it. An agent may change what agents have stated and decided.');
    end if;
end;
$$;

-- Raises MF066 if the caller is an agent whose decisions and undos of the last hour reach the bucket's agent_actions_per_hour.
create or replace function memfold_internal._check_agent_actions(p_tenant_id text, p_bucket_id text) returns void
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_actor constant text := memfold_internal._actor();
    v_most bigint;
begin
    if not memfold_internal._is_agent(v_actor) then
        return;
    end if;
    v_most := (memfold_internal._policy(p_tenant_id, p_bucket_id, '*')).agent_actions_per_hour;
    if (
        select count(*)
        from (
            -- "not observation" allows memory_events_erasure_idx, which omits most of what the agent has stated
            select from memfold.memory_events as e
            where e.tenant_id = p_tenant_id collate "C" and e.bucket_id = p_bucket_id collate "C"
                and not e.observation and e.event_id >= memfold_internal._first_id(clock_timestamp() - interval '1 hour')
                and e.actor = v_actor and (e.tier = 3 or e.undoes is not null)
            limit v_most
        ) as e
    ) >= v_most then
        perform memfold_internal._fail('MF066', 'the agent has changed too much',
            format('%s has changed memories of bucket %s %s times within an hour.', v_actor, p_bucket_id, v_most),
            'Ask a person to look at it: undo_actor() undoes what one role has done, set_policy(agent_actions_per_hour => ...) '
            'allows more.');
    end if;
end;
$$;

-- The check before a memory is rejected or reworded. If the caller is an agent, raises 42501 unless all observations and
-- rewordings in force in the memory's tree are by agents, and MF066 as _check_agent_actions().
create or replace function memfold_internal._check_agent_changes(m memfold.memories) returns void
language plpgsql stable
as $$
declare
    v_actor text;
begin
    if not memfold_internal._is_agent(memfold_internal._actor()) then
        return;
    end if;
    select e.actor into v_actor
    from unnest(memfold_internal._trees(m.tenant_id, array[m.memory_id])) as t (id)
    cross join lateral (
        select e.actor from memfold.ledger as e
        where e.tenant_id = m.tenant_id and e.memory_id = t.id
            and (e.observation and not e.withdrawn or e.action = 'replaced' and e.tier = 3 and not e.undone)
            and not memfold_internal._is_agent(e.actor)
        limit 1
    ) as e
    limit 1;
    if found then
        perform memfold_internal._check_rank(v_actor);
    end if;
    perform memfold_internal._check_agent_actions(m.tenant_id, m.bucket_id);
end;
$$;
