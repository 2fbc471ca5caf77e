-- Release 0.2.0: walls, completed.

-- Who copies candidates in, does so for its own tenant. Row level security would refuse the COPY.

create function memfold._stages_own(tenant_id text) returns boolean
language sql stable parallel safe
return pg_catalog.current_setting('role') = 'none'
and pg_catalog.current_setting('memfold.tenant_id', true) = tenant_id
and tenant_id > '*' collate "C"
and not pg_catalog.pg_has_role(session_user, 'memfold_tenant', 'member');
revoke all on function memfold._stages_own(text) from public;
grant execute on function memfold._stages_own(text) to memfold_app;
comment on function memfold._stages_own(text) is
'The usual case of _may_stage(), in one expression that the constraint inlines: an application that has set its tenant.';

create function memfold._may_stage(tenant_id text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    if tenant_id = '' or tenant_id = '*' or not (
        coalesce(tenant_id = memfold._tenant(), false) or pg_has_role(current_user, 'memfold_owner', 'member')
    ) then
        perform memfold._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of a staged candidate differs from the session''s tenant, or it is that of everyone''s rules.',
            'Run SET memfold.tenant_id (SET LOCAL behind a transaction pooler) to the tenant of the candidates.');
    end if;
    return true;
end;
$$;
revoke all on function memfold._may_stage(text) from public;
grant execute on function memfold._may_stage(text) to memfold_app;
comment on function memfold._may_stage(text) is
'The wall of staged_candidates: true, or MF002 where the tenant is another than the session''s (members of memfold_owner may
stage for any, as a restore does).';

-- squawk-ignore constraint-missing-not-valid
alter table memfold.staged_candidates add constraint staged_candidates_tenant_check
check (memfold._stages_own(tenant_id) or memfold._may_stage(tenant_id));

-- Its owner too goes by its policies (owner_all), as everywhere.
alter table memfold.tenant_roles force row level security;

-- A policy runs for every statement that reads a table: what it calls is inlined but for roles that may be bound.

create function memfold._bound_tenant() returns text
language sql stable parallel safe
return case
    when memfold._bound_role(current_user) is not null
        then (select r.tenant_id from memfold.tenant_roles as r where r.role_name = memfold._bound_role(current_user))
    else pg_catalog.current_setting('memfold.tenant_id', true)
end;
revoke all on function memfold._bound_tenant() from public;
comment on function memfold._bound_tenant() is '_tenant(), for a session in which a member of memfold_tenant (or a superuser) takes part.';

create or replace function memfold._tenant() returns text
language sql stable parallel safe
return case
    when
        pg_catalog.pg_has_role(session_user, 'memfold_tenant', 'member')
        or current_user <> session_user and pg_catalog.pg_has_role(current_user, 'memfold_tenant', 'member')
        then memfold._bound_tenant()
    else pg_catalog.current_setting('memfold.tenant_id', true)
end;
