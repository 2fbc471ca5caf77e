-- Row-level security is forced, and shows nothing without a tenant. Writing functions run as memfold_owner, to which the policies
-- apply, too, after they have compared their tenant_id with the setting (_authorize_tenant). Direct reads are restricted to the tenant of
-- _tenant(), which depends on the role if that is bound to one.

do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'memories', 'memory_counters', 'memory_vectors', 'memory_intervals', 'memory_sources', 'memory_tokens',
        'memory_events', 'runs', 'idempotency_keys', 'judgements', 'labelled_pairs',
        'policies', 'options', 'predicates', 'links', 'antonyms'
    ] loop
        execute pg_catalog.format('alter table memfold.%I enable row level security', v_table);
        execute pg_catalog.format('alter table memfold.%I force row level security', v_table);
        execute pg_catalog.format(
            'create policy tenant_isolation on memfold.%I to memfold_owner'
            ' using (tenant_id = pg_catalog.current_setting(''memfold.tenant_id'', true))', v_table);
        execute pg_catalog.format(
            'create policy tenant_read on memfold.%I for select to memfold_app, memfold_agent'
            ' using (tenant_id = memfold_internal._tenant())',
            v_table);
        execute pg_catalog.format(
            'create policy audit_read on memfold.%I for select to memfold_auditor using (true)', v_table);
    end loop;
    -- everyone may read the rules that apply to all tenants
    foreach v_table in array array['policies', 'options', 'predicates', 'antonyms'] loop
        execute pg_catalog.format(
            'create policy any_tenant_read on memfold.%I for select to memfold_owner, memfold_app, memfold_agent'
            ' using (tenant_id = ''*'')', v_table);
    end loop;
    -- the functions of judges work across tenants, and read both sides of a pair
    foreach v_table in array array['judgements', 'memories'] loop
        execute pg_catalog.format('create policy queue_all on memfold.%I to memfold_queue using (true)', v_table);
    end loop;
    foreach v_table in array array['memory_counters', 'memory_events'] loop
        execute pg_catalog.format('create policy queue_read on memfold.%I for select to memfold_queue using (true)', v_table);
    end loop;
end;
$$;

alter table memfold.tenant_roles enable row level security;
-- the policies apply to the owner, too (owner_all)
alter table memfold.tenant_roles force row level security;
create policy own_row on memfold.tenant_roles for select to memfold_app, memfold_agent
using (role_name = memfold_internal._bound_role(current_user));
create policy owner_all on memfold.tenant_roles to memfold_owner using (true);
create policy audit_read on memfold.tenant_roles for select to memfold_auditor using (true);
