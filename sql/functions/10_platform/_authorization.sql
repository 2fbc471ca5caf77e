-- The base of all other modules: authorization, ids and the clock, errors, settings of a transaction, and the check for
-- the optional extension memfold_py.
--
-- A public function authorizes its tenant before it locks or writes the tenant's rows, by _authorize_tenant(), or by _authorize_judge() and
-- _authorize_queue() where a worker may act for all tenants. They set memfold.tenant_id, which row-level security reads, so that no
-- statement sees rows of another tenant. Ids are UUIDs of version 7, in the order of events even if the clock was set back.
--
-- The module writes no table and takes no lock; it reads tenant_roles, and looks up ids in memories, memory_events and
-- runs. Functions called hooks are trivial here: contrib/citus replaces them.

-- The role that the caller has set, else the login role, even inside SECURITY DEFINER functions.
create or replace function memfold_internal._actor() returns text
language sql stable
return case pg_catalog.current_setting('role')
    when 'none' then session_user::text else pg_catalog.current_setting('role')
end;

-- A hook that runs once a call is authorized. On Citus it raises MF060 unless this is the tenant's node.
create or replace function memfold_internal._on_tenant_node(p_tenant_id text) returns void
language sql stable parallel safe return null::void;

-- The hook of derive_scope(), which may run many times per call: unlike _on_tenant_node() it never discards plans.
create or replace function memfold_internal._assert_local_shard(p_tenant_id text) returns void
language sql stable parallel safe return null::void;

-- The hook of functions that read as their caller, under row-level security. On Citus those functions read as
-- memfold_owner, so the hook checks the session as _authorize_session() does; an auditor may read any tenant.
create or replace function memfold_internal._authorize_reader(p_tenant_id text) returns void
language sql stable parallel safe return null::void;
grant execute on function memfold_internal._authorize_reader to memfold_app, memfold_auditor;

-- True in the common case of _authorize_tenant(): an application has set memfold.tenant_id to a valid tenant. False or null: only
-- _authorize_tenant() can decide. On Citus always false, so that every call reaches _on_tenant_node(). Inlined by its callers.
create or replace function memfold_internal._is_authorized(p_tenant_id text) returns boolean
language sql stable parallel safe
return pg_catalog.current_setting('role') = 'none'
and pg_catalog.current_setting('memfold.tenant_id', true) = p_tenant_id
and p_tenant_id > '*' collate "C"
and pg_catalog.octet_length(p_tenant_id) <= 512
and not pg_catalog.pg_has_role(session_user, 'memfold_agent', 'member');

-- Raises MF001 to MF003 unless the session may act for the tenant: its own, or any for members of memfold_owner
-- (including superusers) and of p_trusted_role. Sets memfold.tenant_id to the tenant for the rest of the transaction,
-- because row-level security applies to memfold's own functions, too.
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
            'memfold.tenant_roles lists the tenant of each member of memfold_agent and memfold_tenant.');
    elsif v_bound is null and not v_trusted and (
        p_tenant_id = '*' or current_setting('memfold.tenant_id', true) is distinct from p_tenant_id
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            case
                when p_tenant_id = '*' then 'tenant_id was ''*'', which stands for every tenant: only members of memfold_owner may pass it.'
                when coalesce(current_setting('memfold.tenant_id', true), '') = '' then 'The setting memfold.tenant_id is empty.'
                else 'The setting memfold.tenant_id names another tenant.'
            end,
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

-- The check at every entry point: raises MF001 to MF003 unless the session may act for the tenant.
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

-- _authorize_tenant() for the entry points of tier 3: a member of memfold_judge may act for any tenant, too.
create or replace function memfold_internal._authorize_judge(p_tenant_id text) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._authorize_session(p_tenant_id, 'memfold_judge');
    perform memfold_internal._on_tenant_node(p_tenant_id);
end;
$$;

-- Returns the tenant whose queue the session may work on. If p_tenant_id is null: null, which means all tenants, for
-- members of memfold_judge and memfold_owner that are not bound to one, else memfold.tenant_id. Raises MF001 to MF003.
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

-- The check before judgements are claimed. Returns what _authorize_queue_session() returns. Raises MF001 to MF003.
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
