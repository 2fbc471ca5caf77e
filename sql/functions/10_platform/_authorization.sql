-- The role of the caller, even inside SECURITY DEFINER functions.
create or replace function memfold_internal._actor() returns text
language sql stable
return case pg_catalog.current_setting('role')
    when 'none' then session_user::text else pg_catalog.current_setting('role')
end;

-- Hooks, which contrib/citus replaces. Here they do nothing, and are inlined.
-- A hook that runs once a call is authorized, before it reads or locks anything. On Citus it raises MF060 unless this is
-- the tenant's node.
create or replace function memfold_internal._on_tenant_node(p_tenant_id text) returns void
language sql stable parallel safe return null::void;

-- The hook of derive_scope(), which a call may run many times: like _on_tenant_node(), but keeps the plans of the call.
create or replace function memfold_internal._assert_local_shard(p_tenant_id text) returns void
language sql stable parallel safe return null::void;

-- The hook of functions that read as their caller, under row-level security. On Citus they read as memfold_owner: it
-- makes the check of _authorize_session(), and an auditor may read any tenant.
create or replace function memfold_internal._authorize_reader(p_tenant_id text) returns void
language sql stable parallel safe return null::void;
grant execute on function memfold_internal._authorize_reader to memfold_app, memfold_auditor;

-- The common case of _authorize_tenant(), as one expression that its caller inlines: an application that has set its
-- tenant. All other cases are left to _authorize_tenant(). On Citus always false, so that every call reaches
-- _on_tenant_node().
create or replace function memfold_internal._is_authorized(p_tenant_id text) returns boolean
language sql stable parallel safe
return pg_catalog.current_setting('role') = 'none'
and pg_catalog.current_setting('memfold.tenant_id', true) = p_tenant_id
and p_tenant_id > '*' collate "C"
and pg_catalog.octet_length(p_tenant_id) <= 512
and not pg_catalog.pg_has_role(session_user, 'memfold_agent', 'member');

-- Checks the session at every entry point: the tenant of the call must be its own. Members of memfold_owner (including
-- superusers) and of p_trusted_role may act for any tenant; for the rest of their transaction memfold.tenant_id is that
-- tenant, so that row-level security, which applies to memfold's functions, sees it. Raises MF001 to MF003.
create or replace function memfold_internal._authorize_session(p_tenant_id text, p_trusted_role name default 'memfold_owner') returns void
language plpgsql volatile
as $$
declare
    v_bound name;
    v_trusted boolean;
begin
    if p_tenant_id is null or p_tenant_id = '' then
        perform memfold_internal._fail('MF001', 'tenant_id is missing',
            format('A memory always belongs to a tenant; tenant_id was %s.', quote_nullable(p_tenant_id)),
            'Pass tenant_id, or set memfold.tenant_id if the function reads it from there.');
    end if;
    v_bound := memfold_internal._bound_role(memfold_internal._actor()::name);
    v_trusted := v_bound is null and (
        pg_has_role(memfold_internal._actor(), 'memfold_owner', 'member')
        or p_tenant_id <> '*' and pg_has_role(memfold_internal._actor(), p_trusted_role, 'member')
    );
    if v_bound is not null and not exists (
        select from memfold.tenant_roles as r where r.role_name = v_bound and r.tenant_id = p_tenant_id collate "C"
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            format('Role %I is bound to another tenant, or to none.', v_bound),
            'memfold.tenant_roles says which tenant a member of memfold_agent or memfold_tenant belongs to.');
    elsif v_bound is null and not v_trusted and (
        p_tenant_id = '*' or current_setting('memfold.tenant_id', true) is distinct from p_tenant_id
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of the call differs from the setting memfold.tenant_id, or is ''*'', which stands for every tenant.',
            'Run SET memfold.tenant_id (SET LOCAL behind a transaction pooler) to the tenant of the call.');
    end if;
    if octet_length(p_tenant_id) > 512 then
        perform memfold_internal._fail('MF003', 'tenant_id is too long',
            format('It has %s bytes.', octet_length(p_tenant_id)),
            'Identifiers have at most 512 bytes of UTF-8.');
    end if;
    if current_setting('memfold.tenant_id', true) is distinct from p_tenant_id then
        perform set_config('memfold.tenant_id', p_tenant_id, true);
    end if;
end;
$$;

-- The check at every entry point: _authorize_session(), then _on_tenant_node(). Raises MF001 to MF003.
create or replace function memfold_internal._authorize_tenant(p_tenant_id text) returns void
language plpgsql volatile
as $$
begin
    if memfold_internal._is_authorized(p_tenant_id) is not true then
        perform memfold_internal._authorize_session(p_tenant_id);
        perform memfold_internal._on_tenant_node(p_tenant_id);
    end if;
end;
$$;

-- The check at the entry points of tier 3: like _authorize_tenant(), but a member of memfold_judge may act for any
-- tenant.
create or replace function memfold_internal._authorize_judge(p_tenant_id text) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._authorize_session(p_tenant_id, 'memfold_judge');
    perform memfold_internal._on_tenant_node(p_tenant_id);
end;
$$;

-- Returns the tenant whose queue the session may work on. Null: every tenant's, only for members of memfold_judge and
-- memfold_owner. Raises MF001 to MF003.
create or replace function memfold_internal._authorize_queue_session(p_tenant_id text) returns text
language plpgsql volatile
as $$
declare
    v_tenant_id text := p_tenant_id;
begin
    if p_tenant_id is null and memfold_internal._bound_role(memfold_internal._actor()::name) is null and (
        pg_has_role(memfold_internal._actor(), 'memfold_judge', 'member')
        or pg_has_role(memfold_internal._actor(), 'memfold_owner', 'member')
    ) then
        return null;
    end if;
    v_tenant_id := coalesce(p_tenant_id, current_setting('memfold.tenant_id', true), '');
    perform memfold_internal._authorize_session(v_tenant_id, 'memfold_judge');
    return v_tenant_id;
end;
$$;

-- The check before judgements are claimed: _authorize_queue_session(), then _on_tenant_node(). Returns the tenant of the
-- queue, or null.
create or replace function memfold_internal._authorize_queue(p_tenant_id text) returns text
language plpgsql volatile
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue_session(p_tenant_id);
begin
    if v_tenant_id is not null then
        perform memfold_internal._on_tenant_node(v_tenant_id);
    end if;
    return v_tenant_id;
end;
$$;

-- A hook as well: on Citus, a recursive query must be about one tenant.
-- Every tenant that has memories. Only the owner may call it.
create or replace function memfold_internal._tenants() returns setof text
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
