-- Row level security: forced, and closed without a tenant.
-- The writing functions run as memfold_owner, which the policies bind too; they compare their tenant_id with the setting
-- (memfold._enter). Who reads tables directly is compared by memfold._tenant(), which knows roles bound to one tenant.

create function memfold._bound_role(role name) returns name
language sql stable parallel safe
-- Whoever logs in as a bound role stays bound, whatever role it sets.
return case
    when
        pg_catalog.pg_has_role(role, 'memfold_tenant', 'member')
        and not pg_catalog.pg_has_role(role, 'memfold_owner', 'member') then role
    when
        pg_catalog.pg_has_role(session_user, 'memfold_tenant', 'member')
        and not pg_catalog.pg_has_role(session_user, 'memfold_owner', 'member') then session_user
end;
revoke all on function memfold._bound_role(name) from public;
comment on function memfold._bound_role(name) is
'The role that binds a caller to one tenant: the caller''s own or the login''s, where it is a member of memfold_tenant (and
not of memfold_owner, as superusers are). Null: the caller is not bound.';

create function memfold._tenant() returns text
language sql stable parallel safe
return case
    when memfold._bound_role(current_user) is not null
        then (select r.tenant_id from memfold.tenant_roles as r where r.role_name = memfold._bound_role(current_user))
    else pg_catalog.current_setting('memfold.tenant_id', true)
end;
revoke all on function memfold._tenant() from public;
comment on function memfold._tenant() is 'The tenant of the session: its role''s, where it is bound to one, else memfold.tenant_id.';

do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'memories', 'memory_counters', 'memory_vectors', 'memory_intervals', 'memory_sources', 'memory_tokens',
        'memory_events', 'idempotency_keys', 'judgements', 'labelled_pairs', 'policies', 'predicates', 'antonyms'
    ] loop
        execute pg_catalog.format('alter table memfold.%I enable row level security', v_table);
        execute pg_catalog.format('alter table memfold.%I force row level security', v_table);
        execute pg_catalog.format(
            'create policy tenant_wall on memfold.%I to memfold_owner'
            ' using (tenant_id = pg_catalog.current_setting(''memfold.tenant_id'', true))', v_table);
        execute pg_catalog.format(
            'create policy tenant_read on memfold.%I for select to memfold_app using (tenant_id = memfold._tenant())',
            v_table);
        execute pg_catalog.format(
            'create policy audit_read on memfold.%I for select to memfold_auditor using (true)', v_table);
    end loop;
    -- rules of any tenant are everyone's to read
    foreach v_table in array array['policies', 'predicates', 'antonyms'] loop
        execute pg_catalog.format(
            'create policy any_tenant_read on memfold.%I for select to memfold_owner, memfold_app'
            ' using (tenant_id = ''*'')', v_table);
    end loop;
    -- the judge's functions work across tenants
    foreach v_table in array array['judgements', 'memories'] loop
        execute pg_catalog.format('create policy queue_all on memfold.%I to memfold_queue using (true)', v_table);
    end loop;
end;
$$;

alter table memfold.tenant_roles enable row level security;
create policy own_row on memfold.tenant_roles for select to memfold_app
using (role_name = memfold._bound_role(current_user));
create policy owner_all on memfold.tenant_roles to memfold_owner using (true);
create policy audit_read on memfold.tenant_roles for select to memfold_auditor using (true);
