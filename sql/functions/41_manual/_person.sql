create or replace function memfold_internal._person(tenant_id text, bucket_id text, reason text) returns memfold.judgements
language plpgsql immutable parallel safe
as $$
declare
    j memfold.judgements;
begin
    j.tenant_id := tenant_id;
    j.bucket_id := bucket_id;
    j.reason := reason;
    return j;
end;
$$;
comment on function memfold_internal._person is 'A manual decision, not an answer to a question, for _record_relation().';

create or replace function memfold_internal._person_result(action text, memory_id uuid, superseded_id uuid, event_id uuid)
returns memfold.ingest_result
language sql immutable parallel safe
return (
    action, memory_id, 3, 'person'::text, null::double precision, superseded_id, null::uuid, event_id, null::jsonb
)::memfold.ingest_result;
comment on function memfold_internal._person_result is 'The result of a manual decision for the caller.';

create or replace function memfold_internal._check_two_memories(a memfold.memories, b memfold.memories) returns void
language plpgsql immutable parallel safe
as $$
begin
    if a.memory_id = b.memory_id then
        perform memfold_internal._fail('MF034', 'both ids are the same memory',
            pg_catalog.format('The root of both is %s.', a.memory_id),
            'explain_memory() shows its aliases; undo(event_id) undoes a merge.');
    elsif a.bucket_id <> b.bucket_id then
        perform memfold_internal._fail('MF034', 'the memories are in different buckets',
            pg_catalog.format('%s is in %L, %s in %L.', a.memory_id, a.bucket_id, b.memory_id, b.bucket_id),
            'Memories of different buckets are never compared or merged.');
    end if;
end;
$$;
comment on function memfold_internal._check_two_memories is 'Raises MF034 unless these are two different memories of one bucket.';

create or replace function memfold_internal._authorize_pair(
    tenant_id text, memory_id uuid, other_id uuid
) returns memfold.memories[]
language plpgsql volatile
as $$
declare
    v_pair memfold.memories[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    v_pair := array[memfold_internal._memory_root(tenant_id, memory_id, '{}'), memfold_internal._memory_root(tenant_id, other_id, '{}')];
    perform memfold_internal._check_two_memories(v_pair[1], v_pair[2]);
    perform memfold_internal._lock_memories(tenant_id, array[(v_pair[1]).memory_id, (v_pair[2]).memory_id]);
    v_pair := array[memfold_internal._memory_root(tenant_id, memory_id, '{rejected,withdrawn}'),
        memfold_internal._memory_root(tenant_id, other_id, '{rejected,withdrawn}')];
    perform memfold_internal._check_two_memories(v_pair[1], v_pair[2]);
    return v_pair;
end;
$$;
comment on function memfold_internal._authorize_pair is
'The roots of two memories that a person relates to each other, looked up again under the locks of both. Raises MF001 to MF003, MF018,
MF034, MF025.';
