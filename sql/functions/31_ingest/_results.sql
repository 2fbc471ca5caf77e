create or replace function memfold_internal._result(d memfold_internal.decision, memory_id uuid, judgement_id uuid, event_id uuid)
returns memfold.ingest_result
language plpgsql immutable parallel safe
as $$
begin
    return (
        d.action,
        case d.action
            -- of a fold the memory that now holds the fact
            when 'merged' then coalesce(d.target_id, d.root_id, memory_id)
            when 'rejected' then d.root_id
            -- of a text that was known the memory where it leads
            else coalesce(d.root_id, memory_id)
        end,
        d.tier, d.method, d.similarity, case d.action when 'superseded' then d.target_id end, judgement_id, event_id,
        d.similar_memories
    );
end;
$$;
revoke all on function memfold_internal._result(memfold_internal.decision, uuid, uuid, uuid) from public;
comment on function memfold_internal._result(memfold_internal.decision, uuid, uuid, uuid) is 'What the caller is told of a decision.';

create or replace function memfold_internal._event_result(tenant_id text, event_id uuid) returns memfold.ingest_result
language plpgsql stable
as $$
declare
    d memfold_internal.decision;
    e memfold.memory_events;
begin
    e := memfold_internal._event(tenant_id, event_id);
    d.action := e.action;
    d.tier := e.tier;
    d.method := e.method;
    select case when e.tier = 1 then memfold_internal._root(m.memory_id, m.root_id) else m.memory_id end into d.root_id
    from memfold.memories as m
    where m.tenant_id = e.tenant_id and m.memory_id = e.memory_id;
    d.target_id := e.target_id;
    d.similarity := e.similarity;
    d.similar_memories := e.similar_memories;
    return memfold_internal._result(d, e.memory_id, e.judgement_id, e.event_id);
end;
$$;
revoke all on function memfold_internal._event_result(text, uuid) from public;
comment on function memfold_internal._event_result(text, uuid) is 'What a call of ingest returned, read from its ledger row.';
