-- A hook as well: on Citus, a recursive query must be about one tenant.
create or replace function memfold.tenants() returns setof text
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    with recursive t (tenant_id) as (
        (select m.tenant_id from memfold.memories as m order by m.tenant_id limit 1)
        union all
        select (
            select m.tenant_id from memfold.memories as m where m.tenant_id > t.tenant_id order by m.tenant_id limit 1
        )
        from t
        where t.tenant_id is not null
    )
    select t.tenant_id from t where t.tenant_id is not null;
end;
comment on function memfold.tenants is
'Returns every tenant that has memories, in order; reads one index entry for each. Only for members of memfold_owner.';
