create or replace function memfold._policy(tenant_id text, bucket_id text, memory_type text)
returns setof memfold.policies
language sql stable rows 1
begin atomic
    select p.*
    from memfold.policies as p
    where
        p.tenant_id in (_policy.tenant_id collate "C", '*')
        and p.bucket_id in (_policy.bucket_id collate "C", '*')
        and p.memory_type in (_policy.memory_type collate "C", '*')
    order by p.tenant_id = '*', p.bucket_id = '*', p.memory_type = '*'
    limit 1;
end;
revoke all on function memfold._policy(text, text, text) from public;
comment on function memfold._policy(text, text, text) is
'The policy that applies: the most specific of (tenant, bucket, type), (tenant, bucket), tenant, default.';
