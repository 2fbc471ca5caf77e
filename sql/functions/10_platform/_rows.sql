-- The row of a memory, by its id. Inlined by its callers. OFFSET 0 keeps it one index lookup per id: for a join, the
-- planner may read the whole tenant if statistics are missing, or if this tenant is much larger than most.
create or replace function memfold_internal._memory(p_tenant_id text, p_memory_id uuid) returns setof memfold.memories
language sql stable rows 1
begin atomic
    select m.*
    from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id
    offset 0;
end;
