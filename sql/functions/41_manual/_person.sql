-- Manual actions, and undo.
--
-- merge_memories(), supersede_memory(), reject_memory() and update_memory() record what a person has decided; undo(),
-- undo_actor() and undo_run() take events out of force; unlink_subject() and unlink_predicate() remove links. Applications
-- call them; agents may call update_memory(), reject_memory() and undo(), and change only what agents have decided.
--
-- Every action takes the lock of the memories (_lock_memories), of the bucket or of the tenant's rules, reads again, and
-- writes ledger rows, from which 21_ledger derives all state. An undo is a row that names the event; the last such row
-- holds. What must stay true: undos work in any order and can be undone; texts that an undo has separated are recorded as
-- distinct (_tell_apart), so that no run merges them again; undo_actor() leaves a tenant as if the actor had done nothing.

-- A manual decision in the form that _record_relation() takes: no judgement_id and no model.
create or replace function memfold_internal._person(p_tenant_id text, p_bucket_id text, p_reason text) returns memfold.judgements
language plpgsql immutable parallel safe
as $$
declare
    j memfold.judgements;
begin
    j.tenant_id := p_tenant_id;
    j.bucket_id := p_bucket_id;
    j.reason := p_reason;
    return j;
end;
$$;

-- The result that a manual action returns.
create or replace function memfold_internal._person_result(p_action text, p_memory_id uuid, p_superseded_id uuid, p_event_id uuid)
returns memfold.ingest_result
language sql immutable parallel safe
return (
    p_action, p_memory_id, 3, 'person'::text, null::double precision, p_superseded_id, null::uuid, p_event_id, null::jsonb
)::memfold.ingest_result;

-- Raises MF034 if these are one memory, or are in different buckets.
create or replace function memfold_internal._check_two_memories(a memfold.memories, b memfold.memories) returns void
language plpgsql immutable parallel safe
as $$
begin
    if a.memory_id = b.memory_id then
        perform memfold_internal._fail('MF034', 'both ids are the same memory',
            format('The root of both is %s.', a.memory_id),
            'explain_memory() shows its aliases; undo(event_id) undoes a merge.');
    elsif a.bucket_id <> b.bucket_id then
        perform memfold_internal._fail('MF034', 'the memories are in different buckets',
            format('%s is in %L, %s in %L.', a.memory_id, a.bucket_id, b.memory_id, b.bucket_id),
            'Memories of different buckets are never compared or merged.');
    end if;
end;
$$;

-- Authorizes the caller, locks two memories and returns their roots as of then. Raises MF001 to MF003, MF018, MF025, MF034
-- (one memory, different buckets, rejected or withdrawn).
create or replace function memfold_internal._authorize_pair(
    p_tenant_id text, p_memory_id uuid, p_other_id uuid
) returns memfold.memories[]
language plpgsql volatile
as $$
declare
    v_pair memfold.memories[];
begin
    perform memfold_internal._authorize_tenant(p_tenant_id);
    v_pair := array[memfold_internal._memory_root(p_tenant_id, p_memory_id, '{}'), memfold_internal._memory_root(p_tenant_id, p_other_id,
        '{}')];
    perform memfold_internal._check_two_memories(v_pair[1], v_pair[2]);
    perform memfold_internal._lock_memories(p_tenant_id, array[(v_pair[1]).memory_id, (v_pair[2]).memory_id]);
    v_pair := array[memfold_internal._memory_root(p_tenant_id, p_memory_id, '{rejected,withdrawn}'),
        memfold_internal._memory_root(p_tenant_id, p_other_id, '{rejected,withdrawn}')];
    perform memfold_internal._check_two_memories(v_pair[1], v_pair[2]);
    return v_pair;
end;
$$;
