-- One index lookup per id. Written as a join, the planner reads the whole tenant if statistics are missing, or if most tenants are small
-- and this one is not.
create or replace function memfold_internal._memory(tenant_id text, memory_id uuid) returns setof memfold.memories
language sql stable rows 1
begin atomic
    select m.*
    from memfold.memories as m
    where m.tenant_id = _memory.tenant_id collate "C" and m.memory_id = _memory.memory_id
    offset 0;
end;
comment on function memfold_internal._memory is 'The row of a memory, by its id. Inlined by its callers.';
