create or replace function memfold._policy(tenant_id text, bucket_id text, memory_type text) returns memfold.policies
language plpgsql stable
as $$
declare
    v_policy memfold.policies;
    v_best memfold.policies;
    v_rank integer;
    v_best_rank integer := -1;
begin
    -- At most eight rows, usually one: a loop is cheaper than a sort.
    for v_policy in
        select p.*
        from memfold.policies as p
        where p.tenant_id in (_policy.tenant_id collate "C", '*')
            and p.bucket_id in (_policy.bucket_id collate "C", '*')
            and p.memory_type in (_policy.memory_type collate "C", '*')
    loop
        v_rank := (v_policy.tenant_id <> '*')::integer * 4 + (v_policy.bucket_id <> '*')::integer * 2
            + (v_policy.memory_type <> '*')::integer;
        if v_rank > v_best_rank then
            v_best := v_policy;
            v_best_rank := v_rank;
        end if;
    end loop;
    return v_best;
end;
$$;
revoke all on function memfold._policy(text, text, text) from public;
comment on function memfold._policy(text, text, text) is
'The policy that applies: the most specific of (tenant, bucket, type), (tenant, bucket), tenant, default.';
