-- Roles belong to the cluster, so a second database of the server finds them already created.
do $$
declare
    v_role text;
begin
    foreach v_role in array array[
        'memfold_owner', 'memfold_queue', 'memfold_app', 'memfold_agent', 'memfold_tenant', 'memfold_judge', 'memfold_auditor'
    ] loop
        if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
            begin
                execute pg_catalog.format('create role %I nologin', v_role);
            exception when duplicate_object or unique_violation then
                null;  -- another database of this server is being installed at the same time
            end;
        end if;
    end loop;
    -- The installing role transfers the objects to memfold_owner, which requires membership (superusers have it).
    if not pg_catalog.pg_has_role(current_user, 'memfold_owner', 'usage') then
        begin
            execute pg_catalog.format('grant memfold_owner, memfold_queue to %I', current_user);
        exception when insufficient_privilege then
            raise exception 'memfold_owner exists in this cluster, and role % is not a member', current_user
                using errcode = 'insufficient_privilege', detail = sqlerrm || '.',
                hint = pg_catalog.format('Ask the first owner, or an administrator, for: grant memfold_owner, memfold_queue to %I',
                    current_user);
        end;
    end if;
    -- Members of memfold_agent and memfold_tenant are bound to one tenant (tenant_roles); those of memfold_tenant have the rights of an
    -- application.
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_agent', 'member') then
        grant memfold_agent to memfold_tenant;
    end if;
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_app', 'member') then
        grant memfold_app to memfold_tenant;
    end if;
end;
$$;

grant usage, create on schema memfold, memfold_internal to memfold_owner, memfold_queue;
-- Roles that write to an adopted table may call the functions generated for it, which are in schema memfold.
grant usage on schema memfold, memfold_internal to memfold_owner with grant option;
grant usage on schema memfold, memfold_internal to memfold_app, memfold_agent, memfold_judge, memfold_auditor;
comment on schema memfold_internal is
'memfold: internal functions and views. Not an API: any release may change them.';
comment on schema memfold is
'memfold: folds duplicate memories of AI agents into one. Start with: select * from memfold.ingest_memory(...)';

-- PostgreSQL 18 has a built-in function; earlier versions assemble the id as text.
do $do$
begin
    execute 'create function memfold_internal._new_id() returns uuid language sql volatile parallel safe return ' || case
        when pg_catalog.current_setting('server_version_num')::integer >= 180000 then 'pg_catalog.uuidv7()'
        -- 48 bits of milliseconds and 12 bits of their fraction, with the version's digit between them
        else $body$(
            pg_catalog.overlay(pg_catalog.lpad(pg_catalog.to_hex(
                (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 4096000)::bigint
            ), 15, '0'), '7', 13, 0)
            || pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20)
        )::uuid$body$
    end;
end;
$do$;
comment on function memfold_internal._new_id is
'A UUID of version 7 (RFC 9562, method 3): milliseconds, then 12 bits of their fraction, so ids sort by time.';

-- The tenant of a session ---------------------------------------------------------------------------------------------

create table memfold.tenant_roles (
    role_name name primary key,
    tenant_id text collate "C" not null check (tenant_id <> '')
);
comment on table memfold.tenant_roles is
'The tenant of each login role that is a member of memfold_agent or memfold_tenant: this row decides, regardless of memfold.tenant_id, and
without a row such a role has access to nothing. Other members of memfold_app are trusted to set memfold.tenant_id.';

create function memfold_internal._bound_role(role name) returns name
language sql stable parallel safe
-- A login as a bound role stays bound after SET ROLE.
return case
    when
        pg_catalog.pg_has_role(role, 'memfold_agent', 'member')
        and not pg_catalog.pg_has_role(role, 'memfold_owner', 'member') then role
    when
        pg_catalog.pg_has_role(session_user, 'memfold_agent', 'member')
        and not pg_catalog.pg_has_role(session_user, 'memfold_owner', 'member') then session_user
end;
comment on function memfold_internal._bound_role is
'The role that binds a caller to one tenant: the caller''s own or the login''s, if it is a member of memfold_agent (as members of
memfold_tenant are) and not of memfold_owner (as superusers are). Null: the caller is not bound.';

create function memfold_internal._bound_tenant() returns text
language sql stable parallel safe
return case
    when memfold_internal._bound_role(current_user) is not null
        then (select r.tenant_id from memfold.tenant_roles as r where r.role_name = memfold_internal._bound_role(current_user))
    else pg_catalog.current_setting('memfold.tenant_id', true)
end;
comment on function memfold_internal._bound_tenant is '_tenant(), for a session that involves a member of memfold_agent (or a superuser).';

-- Row-level security calls this in every statement that reads a table, so the common case, a role that is not bound, needs no further call.
create function memfold_internal._tenant() returns text
language sql stable parallel safe
return case
    when
        pg_catalog.pg_has_role(session_user, 'memfold_agent', 'member')
        or current_user <> session_user and pg_catalog.pg_has_role(current_user, 'memfold_agent', 'member')
        then memfold_internal._bound_tenant()
    else pg_catalog.current_setting('memfold.tenant_id', true)
end;
comment on function memfold_internal._tenant is
'The tenant of the session: that of its role if the role is bound to one, else memfold.tenant_id.';
