-- Whether it matters under this policy, and is not declared yet, how many values a predicate has at a time
-- (_cardinality). Inlined by its callers.
create or replace function memfold_internal._is_undecided(p_policy memfold.policies, p_cardinality text) returns boolean
language sql immutable parallel safe
-- an answer would not be used where all values are kept
return p_policy.dedup = 'on' and p_policy.conflict <> 'keep_both' and p_cardinality is null;

-- The newest active memories of a scope with another object: at most p_number, among the newest 100 (before p_before_id,
-- if given).
create or replace function memfold_internal._other_values(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_object text, p_before_id uuid, p_number bigint
) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select n.memory_id
        from (
            select m.memory_id, m.object from memfold.memories as m
            where m.bucket_id = p_bucket_id collate "C" and m.tenant_id = p_tenant_id collate "C"
                and m.scope_key = p_scope_key and m.root_id is null and m.status = 'active'
                and (p_before_id is null or m.memory_id < p_before_id)
            order by m.memory_id desc
            -- the cost must not grow with the scope
            limit 100
        ) as n
        -- The sub-select runs once, and only if there is a value to compare with.
        where memfold_internal._prose_1(n.object) <> (select memfold_internal._prose_1(p_object))
        order by n.memory_id desc
        limit p_number
    );
end;
$$;

-- Adds another value of the same subject and predicate to a decision, if nobody has declared how many values the
-- predicate has at a time.
create or replace function memfold_internal._report_other_value(c memfold_internal.candidate, d memfold_internal.decision)
returns memfold_internal.decision
language plpgsql stable
as $$
begin
    if num_nonnulls(c.subject, c.predicate, c.object) = 3
        and memfold_internal._is_undecided(c.policy, memfold_internal._cardinality(c.tenant_id, c.predicate))
    then
        d.other_value := (memfold_internal._other_values(c.tenant_id, c.bucket_id, c.scope_key, c.object, c.memory_id, 1))[1];
    end if;
    if d.other_value is not null then
        d.similar_memories := memfold_internal._join_similar(
            jsonb_build_array(jsonb_build_object('memory_id', d.other_value, 'note', 'another value')),
            coalesce(d.similar_memories, '[]'));
    end if;
    return d;
end;
$$;
