-- Tier 1's lookup: the stored text of a bucket with this hash. root_id null: it is a root. Inlined by its callers.
create or replace function memfold_internal._known_text(p_tenant_id text, p_bucket_id text, p_content_hash bytea)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key uuid)
language sql stable parallel safe rows 1
begin atomic
-- Do not let missing statistics choose another index: only the one on the hash ends at once for a range in this order. (As a range of
-- row values it would, in a batch, be read from its beginning.)
    select m.memory_id, m.root_id, m.status, m.predicate, m.scope_key
    from memfold.memories as m
    where
        m.tenant_id = p_tenant_id collate "C"
        and m.bucket_id = p_bucket_id collate "C"
        and m.content_hash >= p_content_hash
        and m.content_hash <= p_content_hash
    order by m.content_hash
    limit 1;
end;

-- How tier 1 found a memory: by its own text (hash) or by an alias. Inlined by its callers.
create or replace function memfold_internal._hit_method(p_memory_id uuid, p_root_id uuid) returns text
language sql immutable parallel safe
return case when p_memory_id = p_root_id then 'hash' else 'alias' end;

-- Raises MF018: there is no such memory.
create or replace function memfold_internal._no_memory(p_memory_id uuid) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._fail('MF018', 'there is no such memory',
        format('memory_id was %s.', coalesce(p_memory_id::text, 'null')),
        'Pass an id that ingest_memory() returned to this tenant.');
end;
$$;

-- The root of a memory. Raises MF018 if there is no such memory, MF034 if the root's status is one of p_refused.
create or replace function memfold_internal._memory_root(
    p_tenant_id text, p_memory_id uuid, p_refused text[]
) returns memfold.memories
language plpgsql stable
as $$
declare
    r memfold.memories;
begin
    select o.* into r
    from memfold.memories as m
    -- A separate query: joined, the planner may scan the tenant.
    cross join lateral (
        select o.* from memfold.memories as o
        where o.tenant_id = m.tenant_id and o.memory_id = memfold_internal._root(m.memory_id, m.root_id)
        offset 0
    ) as o
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id;
    if not found then
        perform memfold_internal._no_memory(p_memory_id);
    elsif r.status = any(p_refused) then
        perform memfold_internal._fail('MF034', 'the memory is ' || r.status,
            format('Memory %s is %s.', r.memory_id, r.status),
            'explain_memory() shows the event that made it so; undo(event_id) undoes it.');
    end if;
    return r;
end;
$$;
