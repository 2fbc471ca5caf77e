-- A manual decision, not an answer to a question, for _record_relation().
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

-- The result of a manual decision for the caller.
create or replace function memfold_internal._person_result(p_action text, p_memory_id uuid, p_superseded_id uuid, p_event_id uuid)
returns memfold.ingest_result
language sql immutable parallel safe
return (
    p_action, p_memory_id, 3, 'person'::text, null::double precision, p_superseded_id, null::uuid, p_event_id, null::jsonb
)::memfold.ingest_result;

-- Raises MF034 unless these are two different memories of one bucket.
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

-- The roots of two memories that a person relates to each other, looked up again under the locks of both. Raises MF001
-- to MF003, MF018, MF034, MF025.
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
