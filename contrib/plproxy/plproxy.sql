-- A router over memfold servers: run it in a database that is to route, and that does not hold memfold.
--
--     psql -v ON_ERROR_STOP=1 -1 -f contrib/plproxy/plproxy.sql
--
-- Then name the servers (CREATE SERVER memfold ...): contrib/plproxy/README.md. To be run again after an upgrade of memfold.
-- Made by contrib/plproxy/gen_plproxy.py from the catalog of memfold 1.0.0.
do $$
begin
    if to_regclass('memfold.memory_counters') is not null then
        raise exception 'memfold itself is installed in this database' using hint = 'A router is a database of its own.';
    end if;
    if current_setting('server_version_num')::integer < 150000 then
        raise exception 'memfold asks for PostgreSQL 15 or newer';
    end if;
end;
$$;

create extension if not exists plproxy;
create extension if not exists vector;
create schema if not exists memfold;
create schema if not exists memfold_internal;
comment on schema memfold is 'memfold 1.0.0, routed by PL/Proxy: calls go to the server of their tenant.';

-- what an earlier run has made; tenant_roles has rows
do $$
declare
    -- as text before the first is gone: with one, CASCADE takes others
    v_objects constant text[] := array(
        select 'view ' || c.oid::regclass::text from pg_class as c
        where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v'
        union all
        select 'function ' || p.oid::regprocedure::text from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and not exists (
            select from pg_depend as d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
        union all
        select 'type ' || t.oid::regtype::text from pg_type as t
        join pg_class as c on c.oid = t.typrelid
        where t.typnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'c'
    );
    v_object text;
begin
    foreach v_object in array v_objects loop
        execute regexp_replace(v_object, '^(\w+) ', 'drop \1 if exists ') || ' cascade';
    end loop;
end;
$$;

do $$
declare
    v_role text;
begin
    foreach v_role in array array[
        'memfold_owner', 'memfold_app', 'memfold_agent', 'memfold_tenant', 'memfold_judge', 'memfold_auditor'
    ] loop
        if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
            execute pg_catalog.format('create role %I nologin', v_role);
        end if;
    end loop;
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_agent', 'member') then
        grant memfold_agent to memfold_tenant;
    end if;
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_app', 'member') then
        grant memfold_app to memfold_tenant;
    end if;
end;
$$;
grant usage on schema memfold, memfold_internal to memfold_owner, memfold_app, memfold_agent, memfold_judge, memfold_auditor;

-- the type vector, wherever pgvector is
select pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', n.nspname), true)
from pg_catalog.pg_extension as e
join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = 'vector';

-- Tenant isolation -------------------------------------------------------------------------------------------------
--
-- Those of memfold, here already: what passes them is sent on with its tenant. No function here is SECURITY DEFINER, so
-- that the role that calls decides by which user mapping it is sent.

create table if not exists memfold.tenant_roles (
    role_name name primary key,
    tenant_id text collate "C" not null check (tenant_id <> '')
);
comment on table memfold.tenant_roles is
'Which tenant a login role of this router belongs to that is a member of memfold_agent or memfold_tenant.';
alter table memfold.tenant_roles enable row level security;
grant select on memfold.tenant_roles to memfold_app, memfold_agent, memfold_judge, memfold_auditor;
grant select, insert, update, delete on memfold.tenant_roles to memfold_owner;

CREATE OR REPLACE FUNCTION memfold_internal._fail(code text, message text, detail text, hint text)
 RETURNS void
 LANGUAGE plpgsql
 PARALLEL SAFE
AS $function$
begin
    raise exception using errcode = code, message = message, detail = detail, hint = hint;
end;
$function$;
comment on function memfold_internal._fail(text,text,text,text) is
'Raises an error of memfold: SQLSTATE MFxxx (docs/errors.md), with DETAIL and HINT.';

CREATE OR REPLACE FUNCTION memfold_internal._actor()
 RETURNS text
 LANGUAGE sql
 STABLE
RETURN CASE current_setting('role'::text) WHEN 'none'::text THEN (SESSION_USER)::text ELSE current_setting('role'::text) END;
comment on function memfold_internal._actor() is
'The role that called, seen through SECURITY DEFINER.';

CREATE OR REPLACE FUNCTION memfold_internal._bound_role(role name)
 RETURNS name
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN CASE WHEN (pg_has_role(role, 'memfold_agent'::name, 'member'::text) AND (NOT pg_has_role(role, 'memfold_owner'::name, 'member'::text))) THEN role WHEN (pg_has_role(SESSION_USER, 'memfold_agent'::name, 'member'::text) AND (NOT pg_has_role(SESSION_USER, 'memfold_owner'::name, 'member'::text))) THEN SESSION_USER ELSE NULL::name END;
comment on function memfold_internal._bound_role(name) is
'The role that binds a caller to one tenant: the caller''s own or the login''s, where it is a member of memfold_agent (as members of
memfold_tenant are, and not of memfold_owner, as superusers are). Null: the caller is not bound.';

CREATE OR REPLACE FUNCTION memfold_internal._bound_tenant()
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN CASE WHEN (memfold_internal._bound_role(CURRENT_USER) IS NOT NULL) THEN (SELECT r.tenant_id FROM memfold.tenant_roles r WHERE (r.role_name = memfold_internal._bound_role(CURRENT_USER))) ELSE current_setting('memfold.tenant_id'::text, true) END;
comment on function memfold_internal._bound_tenant() is
'_tenant(), for a session in which a member of memfold_agent (or a superuser) takes part.';

CREATE OR REPLACE FUNCTION memfold_internal._tenant()
 RETURNS text
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN CASE WHEN (pg_has_role(SESSION_USER, 'memfold_agent'::name, 'member'::text) OR ((CURRENT_USER <> SESSION_USER) AND pg_has_role(CURRENT_USER, 'memfold_agent'::name, 'member'::text))) THEN memfold_internal._bound_tenant() ELSE current_setting('memfold.tenant_id'::text, true) END;
comment on function memfold_internal._tenant() is
'The tenant of the session: its role''s, where it is bound to one, else memfold.tenant_id.';

CREATE OR REPLACE FUNCTION memfold_internal._on_tenant_node(tenant_id text)
 RETURNS void
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN NULL::void;
comment on function memfold_internal._on_tenant_node(text) is
'A hook that a call reaches once it is authorized, before it reads or locks anything. On Citus: is this the tenant''s node (MF060)?';

CREATE OR REPLACE FUNCTION memfold_internal._is_authorized(tenant_id text)
 RETURNS boolean
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN ((current_setting('role'::text) = 'none'::text) AND (current_setting('memfold.tenant_id'::text, true) = tenant_id) AND (tenant_id > ('*'::text COLLATE "C")) AND (NOT pg_has_role(SESSION_USER, 'memfold_agent'::name, 'member'::text)));
comment on function memfold_internal._is_authorized(text) is
'The usual case of _authorize_tenant(), in one expression that its caller inlines: an application that has set its tenant. Anything else,
or in doubt, is for _authorize_tenant(). On Citus always false, so that every call reaches _on_tenant_node().';

CREATE OR REPLACE FUNCTION memfold_internal._authorize_session(tenant_id text, trusted_role name DEFAULT 'memfold_owner'::name)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    v_bound name;
    v_trusted boolean;
begin
    if tenant_id is null or tenant_id = '' then
        perform memfold_internal._fail('MF001', 'tenant_id is missing',
            pg_catalog.format('A memory always belongs to a tenant; tenant_id was %s.', pg_catalog.quote_nullable(tenant_id)),
            'Pass tenant_id, or set memfold.tenant_id where the function takes it from there.');
    end if;
    v_bound := memfold_internal._bound_role(memfold_internal._actor()::name);
    v_trusted := v_bound is null and (
        pg_catalog.pg_has_role(memfold_internal._actor(), 'memfold_owner', 'member')
        or tenant_id <> '*' and pg_catalog.pg_has_role(memfold_internal._actor(), trusted_role, 'member')
    );
    if v_bound is not null and not exists (
        select from memfold.tenant_roles as r where r.role_name = v_bound and r.tenant_id = _authorize_session.tenant_id collate "C"
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            pg_catalog.format('Role %I is bound to another tenant, or to none.', v_bound),
            'memfold.tenant_roles says which tenant a member of memfold_agent or memfold_tenant belongs to.');
    elsif v_bound is null and not v_trusted and (
        tenant_id = '*' or pg_catalog.current_setting('memfold.tenant_id', true) is distinct from tenant_id
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of the call differs from the setting memfold.tenant_id, or it is that of everyone''s rules.',
            'Run SET memfold.tenant_id (SET LOCAL behind a transaction pooler) to the tenant of the call.');
    end if;
    if pg_catalog.octet_length(tenant_id) > 512 then
        perform memfold_internal._fail('MF003', 'tenant_id is too long',
            pg_catalog.format('It has %s bytes.', pg_catalog.octet_length(tenant_id)),
            'Identifiers have at most 512 bytes of UTF-8.');
    end if;
    if pg_catalog.current_setting('memfold.tenant_id', true) is distinct from tenant_id then
        perform pg_catalog.set_config('memfold.tenant_id', tenant_id, true);
    end if;
end;
$function$;
comment on function memfold_internal._authorize_session(text,name) is
'What every check at an entry point asks of the session: the tenant of the call must be its own. Members of memfold_owner
(superusers too), and of trusted_role, may act for any tenant; for the rest of their transaction memfold.tenant_id is that tenant, so
that row level security, which binds memfold''s functions, sees it. Raises MF001 to MF003.';

CREATE OR REPLACE FUNCTION memfold_internal._authorize_tenant(tenant_id text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    if memfold_internal._is_authorized(tenant_id) is not true then
        perform memfold_internal._authorize_session(tenant_id);
        perform memfold_internal._on_tenant_node(tenant_id);
    end if;
end;
$function$;
comment on function memfold_internal._authorize_tenant(text) is
'The check at every entry point: _authorize_session(), then _on_tenant_node(). Raises MF001 to MF003.';

CREATE OR REPLACE FUNCTION memfold_internal._authorize_judge(tenant_id text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    perform memfold_internal._authorize_session(tenant_id, 'memfold_judge');
    perform memfold_internal._on_tenant_node(tenant_id);
end;
$function$;
comment on function memfold_internal._authorize_judge(text) is
'The check at the entry points of tier 3: as _authorize_tenant(), and a member of memfold_judge may act for any tenant.';

CREATE OR REPLACE FUNCTION memfold_internal._authorize_queue_session(tenant_id text)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
declare
    v_tenant_id text := tenant_id;
begin
    if tenant_id is null and memfold_internal._bound_role(memfold_internal._actor()::name) is null and (
        pg_catalog.pg_has_role(memfold_internal._actor(), 'memfold_judge', 'member')
        or pg_catalog.pg_has_role(memfold_internal._actor(), 'memfold_owner', 'member')
    ) then
        return null;
    end if;
    v_tenant_id := coalesce(tenant_id, pg_catalog.current_setting('memfold.tenant_id', true), '');
    perform memfold_internal._authorize_session(v_tenant_id, 'memfold_judge');
    return v_tenant_id;
end;
$function$;
comment on function memfold_internal._authorize_queue_session(text) is
'Whose queue the session may work on. Null: every tenant''s, which members of memfold_judge and memfold_owner may. Raises MF001
to MF003.';

CREATE OR REPLACE FUNCTION memfold_internal._authorize_queue(tenant_id text)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue_session(tenant_id);
begin
    if v_tenant_id is not null then
        perform memfold_internal._on_tenant_node(v_tenant_id);
    end if;
    return v_tenant_id;
end;
$function$;
comment on function memfold_internal._authorize_queue(text) is
'The check where judgements are claimed: _authorize_queue_session(), then _on_tenant_node(). Returns whose queue it is, or null.';

drop policy if exists own_row on memfold.tenant_roles;
create policy own_row on memfold.tenant_roles for select to memfold_app, memfold_agent
using (role_name = memfold_internal._bound_role(current_user));
drop policy if exists owner_all on memfold.tenant_roles;
create policy owner_all on memfold.tenant_roles to memfold_owner using (true);

create function memfold_internal._shards() returns integer
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select count(*)::integer
    from pg_foreign_server as s, unnest(s.srvoptions) as o (option)
    where s.srvname = 'memfold' and o.option ~ '^p(artition_)?[0-9]+='
$$;
comment on function memfold_internal._shards() is 'How many servers the cluster memfold has.';

create function memfold_internal._route(tenant_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    return hashtext(tenant_id);
end;
$$;
comment on function memfold_internal._route(text) is
'The check of the tenant, then the hash that names the tenant''s server. Hash indexes are made of it, so PostgreSQL keeps it
from release to release. Raises MF001 to MF003.';

create function memfold_internal._route_judge(tenant_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_judge(tenant_id);
    return hashtext(tenant_id);
end;
$$;
comment on function memfold_internal._route_judge(text) is
'_route(), for what members of memfold_judge may do for any tenant.';

create function memfold_internal._route_read(tenant_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    if not coalesce(tenant_id <> '' and pg_has_role(memfold_internal._actor(), 'memfold_auditor', 'member'), false) then
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
    return hashtext(tenant_id);
end;
$$;
comment on function memfold_internal._route_read(text) is
'_route(), for what members of memfold_auditor may read of any tenant.';

create function memfold_internal._route_rules(tenant_id text) returns setof integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if tenant_id = '*' then
        return query select generate_series(0, memfold_internal._shards() - 1);
    else
        return next hashtext(tenant_id);
    end if;
end;
$$;
comment on function memfold_internal._route_rules(text) is
'_route(), for rules: those of the tenant ''*'' are kept on every server.';

create function memfold_internal._route_queue(tenant_id text, shard integer) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(hashtext(memfold_internal._authorize_queue(tenant_id)), shard);
end;
$$;
comment on function memfold_internal._route_queue(text, integer) is
'_route(), for the queue of one tenant or, for who may work on all, the one of the server with this number.';

create function memfold_internal._route_rows(tenant_id text) returns setof integer
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_has_role(current_user, 'memfold_auditor', 'member') then
        return query select generate_series(0, memfold_internal._shards() - 1);
    elsif tenant_id <> '' and tenant_id = memfold_internal._tenant() then
        return next hashtext(tenant_id);
    end if;
end;
$$;
comment on function memfold_internal._route_rows(text) is
'Where rows of a view are: on every server for members of memfold_auditor (superusers too), on the tenant''s for its
session, and nowhere without a tenant.';

revoke all on all functions in schema memfold, memfold_internal from public;
grant execute on all functions in schema memfold, memfold_internal to memfold_owner, memfold_app, memfold_agent, memfold_judge, memfold_auditor;

-- Results -----------------------------------------------------------------------------------------------------------

create type memfold.archived_rows as (archived bigint, summaries bigint, is_left boolean);

create type memfold.batch_result as (ordinal bigint, action text, memory_id uuid, tier integer, method text, similarity double precision, superseded_id uuid, judgement_id uuid, event_id uuid, "similar" jsonb, sqlstate text, error text, detail text, hint text);

create type memfold.claimed_judgement as (tenant_id text, judgement_id uuid, bucket_id text, kind text, similarity double precision, guard text[], attempts bigint, leased_until timestamp with time zone, memory jsonb, other jsonb, members jsonb, link jsonb);

create type memfold.decay_report as (run_id uuid, decayed bigint, remaining bigint);

create type memfold.erasure as (erased bigint, kept bigint, events bigint, remaining bigint);

create type memfold.found_memory as (memory_id uuid, content text, memory_type text, subject text, predicate text, object text, score double precision, similarity double precision, matched_id uuid, matched_similarity double precision, confidence double precision, repetition_count bigint, metadata jsonb, session_id text, first_seen timestamp with time zone, last_seen timestamp with time zone, collapsed_ids uuid[], collapsed_count bigint, collapsed_into uuid, matched_content text, bucket_id text, word_share double precision, complete boolean);

create type memfold.ingest_result as (action text, memory_id uuid, tier integer, method text, similarity double precision, superseded_id uuid, judgement_id uuid, event_id uuid, "similar" jsonb);

create type memfold.link_suggestion as (kind text, alias text, name text, score double precision, reasons text[], evidence jsonb);

create type memfold.pending_memory as (memory_id uuid, bucket_id text, content text, created_at timestamp with time zone);

create type memfold.plain_rows as (ingested bigint, busy bigint);

create type memfold.resolution as (status text, verdict text, action text, memory_id uuid, event_id uuid, run_id uuid);

create type memfold.undone_memory as (event_id uuid, memory_id uuid, status text, content text);

-- Views -------------------------------------------------------------------------------------------------------------

create function memfold_internal._read_dedup_stats(tenant text)
returns table (tenant_id text, bucket_id text, active bigint, merged bigint, superseded bigint, rejected bigint, withdrawn bigint, pending_embeddings bigint, observations bigint, inserted bigint, tier_1_merges bigint, tier_2_merges bigint, tier_3_merges bigint, escalated bigint, supersessions bigint, rejected_candidates bigint, open_judgements bigint, oldest_open_judgement timestamp with time zone, fold_rate numeric, dead_judgements bigint, warning text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.dedup_stats where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_dedup_stats(text) is 'The rows of dedup_stats, from the servers.';
revoke all on function memfold_internal._read_dedup_stats(text) from public;
grant execute on function memfold_internal._read_dedup_stats(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.dedup_stats with (security_invoker = true) as
select * from memfold_internal._read_dedup_stats(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.dedup_stats is 'As on a server, whole: conditions are tried here.';
grant select on memfold.dedup_stats to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_judge_costs(tenant text)
returns table (tenant_id text, day date, judgements numeric, calls numeric, input_tokens numeric, output_tokens numeric, cost double precision, duplicates numeric, refinements numeric, contradictions numeric, distincts numeric, unsure numeric, dead numeric, avoided_by_hash numeric, avoided_by_alias numeric, avoided_by_vector numeric)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.judge_costs where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_judge_costs(text) is 'The rows of judge_costs, from the servers.';
revoke all on function memfold_internal._read_judge_costs(text) from public;
grant execute on function memfold_internal._read_judge_costs(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.judge_costs with (security_invoker = true) as
select * from memfold_internal._read_judge_costs(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.judge_costs is 'As on a server, whole: conditions are tried here.';
grant select on memfold.judge_costs to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_open_judgements(tenant text)
returns table (tenant_id text, bucket_id text, judgement_id uuid, kind text, status text, similarity double precision, guard text[], content text, other_content text, subject text, predicate text, object text, other_object text, last_seen timestamp with time zone, other_last_seen timestamp with time zone, attempts bigint, next_attempt_at timestamp with time zone, last_error text, created_at timestamp with time zone, memory_id uuid, other_id uuid, member_ids uuid[], member_contents text[], link jsonb)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.open_judgements where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_open_judgements(text) is 'The rows of open_judgements, from the servers.';
revoke all on function memfold_internal._read_open_judgements(text) from public;
grant execute on function memfold_internal._read_open_judgements(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.open_judgements with (security_invoker = true) as
select * from memfold_internal._read_open_judgements(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.open_judgements is 'As on a server, whole: conditions are tried here.';
grant select on memfold.open_judgements to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_memory_audit(tenant text)
returns table (tenant_id text, bucket_id text, memory_id uuid, status text, content text, memory_type text, subject text, predicate text, object text, repetition_count bigint, independent_repetitions bigint, aliases bigint, source_confidence double precision, extractor_confidence double precision, confidence double precision, first_seen timestamp with time zone, last_seen timestamp with time zone, access_count bigint, helpful_count bigint, harmful_count bigint, metadata jsonb, merged_into uuid, root_id uuid, session_id text, canonicalizer text, content_hash bytea, embedding_pending boolean, created_at timestamp with time zone, effective_confidence double precision, decayed_confidence double precision, decayed_at timestamp with time zone, last_accessed timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.memory_audit where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_memory_audit(text) is 'The rows of memory_audit, from the servers.';
revoke all on function memfold_internal._read_memory_audit(text) from public;
grant execute on function memfold_internal._read_memory_audit(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.memory_audit with (security_invoker = true) as
select * from memfold_internal._read_memory_audit(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.memory_audit is 'As on a server, whole: conditions are tried here.';
grant select on memfold.memory_audit to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_runs_overview(tenant text)
returns table (tenant_id text, run_id uuid, bucket_id text, kind text, status text, waiting bigint, judged bigint, obsolete bigint, dead bigint, merged bigint, replaced bigint, superseded bigint, rejected bigint, pruned bigint, undone bigint, report jsonb, arguments jsonb, started_at timestamp with time zone, ended_at timestamp with time zone, actor text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.runs_overview where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_runs_overview(text) is 'The rows of runs_overview, from the servers.';
revoke all on function memfold_internal._read_runs_overview(text) from public;
grant execute on function memfold_internal._read_runs_overview(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.runs_overview with (security_invoker = true) as
select * from memfold_internal._read_runs_overview(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.runs_overview is 'As on a server, whole: conditions are tried here.';
grant select on memfold.runs_overview to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_runaway_memories(tenant text)
returns table (tenant_id text, bucket_id text, memory_id uuid, content text, repetition_count bigint, independent_observations bigint, first_seen timestamp with time zone, last_seen timestamp with time zone)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.runaway_memories where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_runaway_memories(text) is 'The rows of runaway_memories, from the servers.';
revoke all on function memfold_internal._read_runaway_memories(text) from public;
grant execute on function memfold_internal._read_runaway_memories(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.runaway_memories with (security_invoker = true) as
select * from memfold_internal._read_runaway_memories(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.runaway_memories is 'As on a server, whole: conditions are tried here.';
grant select on memfold.runaway_memories to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_memories(tenant text)
returns table (tenant_id text, memory_id uuid, bucket_id text, memory_type text, subject text, predicate text, object text, content text, canonicalizer text, key_fields text, metadata_signature text, content_hash bytea, scope_key bigint, status text, merged_into uuid, root_id uuid, session_id text, metadata jsonb, embedding_pending boolean, created_at timestamp with time zone, is_ingested boolean)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.memories where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_memories(text) is 'The rows of memories, from the servers.';
revoke all on function memfold_internal._read_memories(text) from public;
grant execute on function memfold_internal._read_memories(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.memories with (security_invoker = true) as
select * from memfold_internal._read_memories(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.memories is 'As on a server, whole: conditions are tried here.';
grant select on memfold.memories to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_memory_events(tenant text)
returns table (tenant_id text, event_id uuid, recorded_at timestamp with time zone, bucket_id text, action text, tier smallint, method text, memory_id uuid, target_id uuid, similarity double precision, guard text[], similar_memories jsonb, reason text, observation boolean, on_timeline boolean, content text, memory_type text, subject text, predicate text, object text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, judgement_id uuid, verdict text, undoes uuid, run_id uuid, actor text, cause text, observations bigint, without_turns bigint, first_observed_at timestamp with time zone, turn_events uuid[])
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.memory_events where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_memory_events(text) is 'The rows of memory_events, from the servers.';
revoke all on function memfold_internal._read_memory_events(text) from public;
grant execute on function memfold_internal._read_memory_events(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.memory_events with (security_invoker = true) as
select * from memfold_internal._read_memory_events(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.memory_events is 'As on a server, whole: conditions are tried here.';
grant select on memfold.memory_events to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_judgements(tenant text)
returns table (tenant_id text, judgement_id uuid, bucket_id text, scope_key bigint, kind text, status text, memory_id uuid, other_id uuid, member_ids uuid[], similarity double precision, guard text[], worker text, leased_until timestamp with time zone, attempts bigint, next_attempt_at timestamp with time zone, last_error text, verdict text, confidence double precision, reason text, merged_text text, model text, input_tokens bigint, output_tokens bigint, cost double precision, run_id uuid, created_at timestamp with time zone, resolved_at timestamp with time zone, cluster_id uuid, link jsonb)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.judgements where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_judgements(text) is 'The rows of judgements, from the servers.';
revoke all on function memfold_internal._read_judgements(text) from public;
grant execute on function memfold_internal._read_judgements(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.judgements with (security_invoker = true) as
select * from memfold_internal._read_judgements(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.judgements is 'As on a server, whole: conditions are tried here.';
grant select on memfold.judgements to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_labelled_pairs(tenant text)
returns table (tenant_id text, pair_id uuid, content_a text, content_b text, label text, origin text, labelled_at timestamp with time zone, pair_key bytea, similarities jsonb, evidence text, weak boolean, memory_a uuid, memory_b uuid, labelled_by text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.labelled_pairs where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_labelled_pairs(text) is 'The rows of labelled_pairs, from the servers.';
revoke all on function memfold_internal._read_labelled_pairs(text) from public;
grant execute on function memfold_internal._read_labelled_pairs(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.labelled_pairs with (security_invoker = true) as
select * from memfold_internal._read_labelled_pairs(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.labelled_pairs is 'As on a server, whole: conditions are tried here.';
grant select on memfold.labelled_pairs to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_policies(tenant text)
returns table (tenant_id text, bucket_id text, memory_type text, preset text, dedup text, canonicalizer text, key_fields text, metadata_keys text[], scope text, neighbours bigint, merge_threshold double precision, merge_inclusive boolean, judge_threshold double precision, similar_threshold double precision, lexical_threshold double precision, guard text, merge_veto double precision, on_ambiguous text, on_merge text, on_refinement text, metadata_merge text, conflict text, confidence_floor double precision, weight_source double precision, weight_extractor double precision, weight_repetition double precision, notify boolean, max_content_length bigint, max_metadata_size bigint, updated_at timestamp with time zone, lexical_neighbours bigint, session_neighbours bigint, metadata_max text[], on_judge_failure text, rehash_run uuid, rehash_from_canonicalizer text, rehash_from_key_fields text, rehash_from_metadata_keys text[], max_session_repeats bigint, embed text, embed_model text, segmenter text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.policies where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_policies(text) is 'The rows of policies, from the servers.';
revoke all on function memfold_internal._read_policies(text) from public;
grant execute on function memfold_internal._read_policies(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.policies with (security_invoker = true) as
select * from memfold_internal._read_policies(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.policies is 'As on a server, whole: conditions are tried here.';
grant select on memfold.policies to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_options(tenant text)
returns table (tenant_id text, bucket_id text, memory_type text, min_confidence double precision, search_threshold double precision, touch boolean, rank_confidence double precision, rank_feedback double precision, consolidate_threshold double precision, max_cluster_size bigint, session_threshold double precision, protected_types text[], protected_confidence double precision, decay_rate double precision, decay_floor double precision, decay_interval interval, key_retention interval, consolidate_interval interval, sweep_interval interval, prune_interval interval, link_interval interval, text_search text, updated_at timestamp with time zone)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.options where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_options(text) is 'The rows of options, from the servers.';
revoke all on function memfold_internal._read_options(text) from public;
grant execute on function memfold_internal._read_options(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.options with (security_invoker = true) as
select * from memfold_internal._read_options(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.options is 'As on a server, whole: conditions are tried here.';
grant select on memfold.options to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_predicates(tenant text)
returns table (tenant_id text, predicate text, cardinality text, conflict text, updated_at timestamp with time zone)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.predicates where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_predicates(text) is 'The rows of predicates, from the servers.';
revoke all on function memfold_internal._read_predicates(text) from public;
grant execute on function memfold_internal._read_predicates(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.predicates with (security_invoker = true) as
select * from memfold_internal._read_predicates(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.predicates is 'As on a server, whole: conditions are tried here.';
grant select on memfold.predicates to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_links(tenant text)
returns table (tenant_id text, bucket_id text, kind text, alias text, name text, run_id uuid, linked_at timestamp with time zone)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rows(tenant);
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.links where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_links(text) is 'The rows of links, from the servers.';
revoke all on function memfold_internal._read_links(text) from public;
grant execute on function memfold_internal._read_links(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.links with (security_invoker = true) as
select * from memfold_internal._read_links(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.links is 'As on a server, whole: conditions are tried here.';
grant select on memfold.links to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

create function memfold_internal._read_embedding_models(tenant text)
returns table (model text, dimensions bigint, merge_threshold double precision, judge_threshold double precision, calibration_id uuid, registered_at timestamp with time zone, score_function text, candidate_threshold double precision, score_merge_threshold double precision, score_judge_threshold double precision, replaced_by text, replaced_at timestamp with time zone)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on any;
    select v.* from (select pg_catalog.set_config('memfold.tenant_id', $1, true) as t offset 0) as s
    cross join lateral (select * from memfold.embedding_models where s.t is not null offset 0) as v;
$$;
comment on function memfold_internal._read_embedding_models(text) is 'The rows of embedding_models, from the servers.';
revoke all on function memfold_internal._read_embedding_models(text) from public;
grant execute on function memfold_internal._read_embedding_models(text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;
create view memfold.embedding_models with (security_invoker = true) as
select * from memfold_internal._read_embedding_models(coalesce(memfold_internal._tenant(), ''));
comment on view memfold.embedding_models is 'As on a server, whole: conditions are tried here.';
grant select on memfold.embedding_models to memfold_owner, memfold_app, memfold_agent, memfold_auditor;

-- Functions ---------------------------------------------------------------------------------------------------------

create function memfold.add_embeddings(memory_ids uuid[], contents text[], embeddings vector[], embedding_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), run_id uuid DEFAULT NULL::uuid, wait boolean DEFAULT false)
returns TABLE(memory_id uuid, status text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.add_embeddings("memory_ids" => $1, "contents" => $2, "embeddings" => $3, "embedding_model" => $4, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $5, true), "run_id" => $6, "wait" => $7);
$$;
comment on function memfold.add_embeddings(memory_ids uuid[], contents text[], embeddings vector[], embedding_model text, tenant_id text, run_id uuid, wait boolean) is
'Gives memories that have a vector of another model one of embedding_model too. Nothing is compared, folded or asked for it, and
no ledger row is written. contents: the texts that were embedded. status of each: added; known (it has one); busy (somebody
writes to its scope: call again); later (the call had worked for 50 ms, and writers wait for none longer: call again); gone (there
is no such memory, or its text is another); pending (it has no vector yet: attach_embedding()). At most 1,000 a call. wait: one
memory, and the call waits for the lock of its scope. run_id: of start_reembedding(), whose count it adds to.
Raises MF001 to MF003, MF013 to MF015, MF022, MF025, MF038, MF047.';
revoke all on function memfold.add_embeddings(memory_ids uuid[], contents text[], embeddings vector[], embedding_model text, tenant_id text, run_id uuid, wait boolean) from public;
grant execute on function memfold.add_embeddings(memory_ids uuid[], contents text[], embeddings vector[], embedding_model text, tenant_id text, run_id uuid, wait boolean) to memfold_app, memfold_owner;

create function memfold.add_labelled_pair(content_a text, content_b text, label text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), similarities jsonb DEFAULT '{}'::jsonb, origin text DEFAULT 'labelled'::text)
returns uuid
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.add_labelled_pair("content_a" => $1, "content_b" => $2, "label" => $3, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $4, true), "similarities" => $5, "origin" => $6);
$$;
comment on function memfold.add_labelled_pair(content_a text, content_b text, label text, tenant_id text, similarities jsonb, origin text) is
'Says what two texts are to each other, for calibration: duplicate, refinement, contradiction or distinct; returns the pair''s id.
A pair that is there, in either order, gets the new label. similarities: their cosine, by embedding model, such as
{"m": 0.91}; kept beside those that are there. origin: labelled (somebody was shown the pair) or import. Raises MF001 to MF005, MF042.';
revoke all on function memfold.add_labelled_pair(content_a text, content_b text, label text, tenant_id text, similarities jsonb, origin text) from public;
grant execute on function memfold.add_labelled_pair(content_a text, content_b text, label text, tenant_id text, similarities jsonb, origin text) to memfold_app, memfold_owner;

create function memfold.add_labelled_pairs(pairs jsonb, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.add_labelled_pairs("pairs" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true));
$$;
comment on function memfold.add_labelled_pairs(pairs jsonb, tenant_id text) is
'Many labelled pairs at once, all or none: an array of at most 10,000 objects with the keys a, b (the texts), label, and
similarities as in add_labelled_pair(). Their origin is import. Returns how many it was given. Raises MF001 to MF005, MF035, MF042.';
revoke all on function memfold.add_labelled_pairs(pairs jsonb, tenant_id text) from public;
grant execute on function memfold.add_labelled_pairs(pairs jsonb, tenant_id text) to memfold_app, memfold_owner;

create function memfold.apply_decay(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT '*'::text, as_of timestamp with time zone DEFAULT now(), max_operations bigint DEFAULT 10000)
returns memfold.decay_report
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO'
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.apply_decay("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "as_of" => $3, "max_operations" => $4);
$$;
comment on function memfold.apply_decay(tenant_id text, bucket_id text, as_of timestamp with time zone, max_operations bigint) is
'Writes effective_confidence(memory_id, as_of) of the active memories of a bucket (''*'': of all) into memory_counters
(decayed_confidence, decayed_at), for those who read tables; search_memories() and memory_audit compute it and need no such
run. Computed from the last use, not from the last run: any number of runs equals one. Rows that have not begun to decay have
null, and rows that would not change are not touched. At most max_operations rows (1 to 1,000,000) a call; the result says how
many remain: call again, with the same time, until none do. Leaves a row in runs, of kind decay. Raises MF001 to MF003, MF022.';
revoke all on function memfold.apply_decay(tenant_id text, bucket_id text, as_of timestamp with time zone, max_operations bigint) from public;
grant execute on function memfold.apply_decay(tenant_id text, bucket_id text, as_of timestamp with time zone, max_operations bigint) to memfold_app, memfold_owner;

create function memfold.approve_run(run_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), verdict text DEFAULT 'duplicate'::text, max_operations bigint DEFAULT 100)
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.approve_run("run_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "verdict" => $3, "max_operations" => $4);
$$;
comment on function memfold.approve_run(run_id uuid, tenant_id text, verdict text, max_operations bigint) is
'A person answers judgements of a run at once, all with the same verdict (as in resolve_judgement), up to max_operations (1 to 1000; a call
ends after 100), and returns how many still wait: call it until it returns 0. Those of kind synthesis are left to a judge, who writes the text. Writers of
the bucket wait for it, so it stops early rather than go on for more than about 0.1 s. What is no longer as it was asked about is asked again, or is obsolete.
The row in runs of more than 1,000 questions is left to run_maintenance(); runs_overview says at once that it is done. Raises MF001 to MF003, MF022, MF025, MF028, MF038 (no such run), MF039 (it is undone).';
revoke all on function memfold.approve_run(run_id uuid, tenant_id text, verdict text, max_operations bigint) from public;
grant execute on function memfold.approve_run(run_id uuid, tenant_id text, verdict text, max_operations bigint) to memfold_app, memfold_owner;

create function memfold.archive_events(before timestamp with time zone, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), max_events bigint DEFAULT 1000)
returns memfold.archived_rows
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO'
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.archive_events("before" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "max_events" => $3);
$$;
comment on function memfold.archive_events(before timestamp with time zone, tenant_id text, max_events bigint) is
'Moves ledger rows of a tenant that were written before a time to memory_events_archive, where no state of memories depends on
them: restatements of one text, for which one row of method archived stands from then on (of those with the same metadata the
first and the last stay), restatements that were undone, candidates that were refused, and recalled ones. Everything else
stays: what made, folded, retired or judged a memory, values of timelines, what runs did. Counters, confidences, metadata and
statistics stay as they are; undo() and a repeated call with an idempotency key find archived rows.
Looks at max_events rows (1 to 10,000) of at most 64 scopes, goes on where the last call ended, and returns how many rows it
moved, how many stand for them, and whether to call it again. Writers of these scopes wait for it, but restatements do not.
Only for members of memfold_owner. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.archive_events(before timestamp with time zone, tenant_id text, max_events bigint) from public;
grant execute on function memfold.archive_events(before timestamp with time zone, tenant_id text, max_events bigint) to memfold_owner;

create function memfold.ask_links(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, max_questions bigint DEFAULT 20)
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.ask_links("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "max_questions" => $3);
$$;
comment on function memfold.ask_links(tenant_id text, bucket_id text, max_questions bigint) is
'Queues the best suggestions of suggest_links() as judgements of kind identity, at most max_questions (1 to 1,000), and returns how many:
are the two names one? A judge, or a person, answers with resolve_judgement(): duplicate links them, distinct keeps them apart for good.
Nothing is linked until then. A pair of names is asked about once, in either order. Maintenance calls it where the option link_interval says
so. Raises MF001 to MF003, MF022.';
revoke all on function memfold.ask_links(tenant_id text, bucket_id text, max_questions bigint) from public;
grant execute on function memfold.ask_links(tenant_id text, bucket_id text, max_questions bigint) to memfold_app, memfold_owner;

create function memfold.attach_embedding(memory_id uuid, embedding vector, embedding_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.attach_embedding("memory_id" => $1, "embedding" => $2, "embedding_model" => $3, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $4, true));
$$;
comment on function memfold.attach_embedding(memory_id uuid, embedding vector, embedding_model text, tenant_id text) is
'Gives a memory that was stored without a vector its vector, and runs the tier 2 that was skipped: action is merged (the
newer of the two memories is folded into the older, which memory_id names), replaced (by the policy''s on_merge, the older into
the newer), escalated, or embedded (nothing else to do). Where it was one value of a single-valued slot against another for want
of a vector (row 10), and is none beside it, that is taken back, whichever of the two is current.
Raises MF012 to MF015, MF018 (no such memory), MF019 (it has one of this model), MF022, MF025.';
revoke all on function memfold.attach_embedding(memory_id uuid, embedding vector, embedding_model text, tenant_id text) from public;
grant execute on function memfold.attach_embedding(memory_id uuid, embedding vector, embedding_model text, tenant_id text) to memfold_agent, memfold_app, memfold_owner;

create function memfold.canonicalize(content text, profile text)
returns text
language plproxy volatile strict set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on any;
    select * from memfold.canonicalize("content" => $1, "profile" => $2);
$$;
comment on function memfold.canonicalize(content text, profile text) is
'Canonical form of a text: two texts with the same form are one fact to tier 1.

prose/1  U+200B, U+2060, U+FEFF and U+00AD dropped; superscripts, subscripts and vulgar fractions kept apart
         (10^5, H_2O, 1 1/2 with U+2044); NFKC; lower case; white space runs to one space; trimmed; one trailing
         . ! ? or U+3002 stripped; trimmed. Numerals, signs, currency, symbols and negation stay.
flat/1   NFC, lower case; of that only letters with their marks, digits and full stops, of every script.
code/1   line ends to LF; everything else stays.
exact/1  the text as it is.

predicate/1  of predicates, whatever the policy: a small letter and a capital after it are parted (worksAt), and a capital and a
         capital with two small letters after it (HTTPServer), all of ASCII; prose/1; _ - U+2010 become spaces; prose/1.

Immutable: for text of code points assigned in Unicode 14 the same bytes on every server from PostgreSQL 15 on, whatever
its locale and collations (canonicalizer_selftest() proves it for yours). A profile never changes: other rules get
another version. Lower case is the simple mapping of Unicode 14, with final sigma as sigma and any dotted i as i.
NULL gives NULL. Raises MF011 for an unknown profile. Needs database encoding UTF8.';
revoke all on function memfold.canonicalize(content text, profile text) from public;
grant execute on function memfold.canonicalize(content text, profile text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;

create function memfold.canonicalizer_selftest()
returns TABLE(profile text, input text, expected text, actual text, ok boolean)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on any;
    select * from memfold.canonicalizer_selftest();
$$;
comment on function memfold.canonicalizer_selftest() is
'Compares the canonical forms of this server with the frozen ones: one row per golden pair, and one checksum (SHA-256)
per profile and block of 4,096 code points, over all that Unicode 14 assigns (private use left out), each between
spaces and between letters. SELECT * FROM canonicalizer_selftest() WHERE NOT ok must be empty. Anything else means that
hashes made here differ from those of other servers: do not write memories until you know why.';
revoke all on function memfold.canonicalizer_selftest() from public;
grant execute on function memfold.canonicalizer_selftest() to memfold_app, memfold_auditor, memfold_owner;

create function memfold.check_invariants(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns TABLE(memory_id uuid, invariant text, expected text, actual text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.check_invariants("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true));
$$;
comment on function memfold.check_invariants(tenant_id text) is
'Recomputes every status, edge, aggregate, source, interval and vector flag of a tenant from the ledger and returns one row
for each difference; no row: all is well. Run it while nobody writes to the tenant, or take a difference as a question.
A row that came by a plain INSERT and waits for ingest_plain_rows() is no difference.';
revoke all on function memfold.check_invariants(tenant_id text) from public;
grant execute on function memfold.check_invariants(tenant_id text) to memfold_app, memfold_owner;

create function memfold.clean_exact_duplicates(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, dry_run boolean DEFAULT true, max_operations bigint DEFAULT 200)
returns TABLE(run_id uuid, memory_id uuid, keep_id uuid, content text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.clean_exact_duplicates("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "dry_run" => $3, "max_operations" => $4);
$$;
comment on function memfold.clean_exact_duplicates(tenant_id text, bucket_id text, dry_run boolean, max_operations bigint) is
'Folds active memories of a bucket that are equal by its present rules (key fields and canonical content), though each has a row: they
came while dedup was off. The most confident stays, of equals the newest; undo_run() takes it back. dry_run (the default) returns what it
would do. Does at most max_operations (1 to 1000) a run, with the bucket locked: call it until it returns no row (then there is no run). Protected types
and pairs that were judged, or told apart by an undo, are left out. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.clean_exact_duplicates(tenant_id text, bucket_id text, dry_run boolean, max_operations bigint) from public;
grant execute on function memfold.clean_exact_duplicates(tenant_id text, bucket_id text, dry_run boolean, max_operations bigint) to memfold_app, memfold_owner;

create function memfold.collect_pairs(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT NULL::text, embedding_model text DEFAULT NULL::text, max_results bigint DEFAULT 10000, min_age interval DEFAULT '30 days'::interval)
returns TABLE(evidence text, label text, pairs bigint)
language plproxy volatile set search_path = pg_catalog, pg_temp set intervalstyle = 'postgres'
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.collect_pairs("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "embedding_model" => $3, "max_results" => $4, "min_age" => $5);
$$;
comment on function memfold.collect_pairs(tenant_id text, bucket_id text, embedding_model text, max_results bigint, min_age interval) is
'Makes labelled pairs of what was decided in a bucket (null: in all of the tenant''s), with their cosines by the model, and returns
what it found. Verdicts of judges and persons count as given; a fold that was undone as distinct, or as contradiction where the
guard sees opposites; another object of a single-valued predicate as contradiction. Automatic merges that stand (duplicate)
and close memories that stand side by side for min_age (distinct) are weak: nobody has looked at them, and they were made by
the thresholds that they would confirm. At most max_results pairs, weak ones last, newest first. A pair with a stronger label keeps it.
Texts that are withdrawn or erased are not looked at. Raises MF001 to MF003, MF012, MF013, MF022.';
revoke all on function memfold.collect_pairs(tenant_id text, bucket_id text, embedding_model text, max_results bigint, min_age interval) from public;
grant execute on function memfold.collect_pairs(tenant_id text, bucket_id text, embedding_model text, max_results bigint, min_age interval) to memfold_app, memfold_owner;

create function memfold.consolidate(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, embedding_model text DEFAULT NULL::text, threshold double precision DEFAULT NULL::double precision, approval text DEFAULT 'judge'::text, max_operations bigint DEFAULT 1000, max_judgements bigint DEFAULT 1000, dry_run boolean DEFAULT true)
returns TABLE(run_id uuid, cluster bigint, memory_id uuid, representative_id uuid, similarity double precision, guard text[], content text, representative_content text, action text)
language plproxy volatile set search_path = pg_catalog, pg_temp set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.consolidate("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "embedding_model" => $3, "threshold" => $4, "approval" => $5, "max_operations" => $6, "max_judgements" => $7, "dry_run" => $8);
$$;
comment on function memfold.consolidate(tenant_id text, bucket_id text, embedding_model text, threshold double precision, approval text, max_operations bigint, max_judgements bigint, dry_run boolean) is
'Looks through a bucket for what says the same: among the active memories of one type and subject, whatever their predicates,
clusters in which each is near to each: cosine at or above threshold (null: the options'' consolidate_threshold), at most max_cluster_size
memories. Each cluster is one question; a row of the plan is one of its memories beside the oldest (representative_id). Nothing folds
without an answer. dry_run (the default) returns the plan and writes nothing. Else the questions are
queued under a run, as far as max_operations, and for a judge max_judgements, allow, the most similar first: for approval =>
''judge'' as kind consolidation (synthesis where on_ambiguous is synthesise), for ''person'' as kind review (see approve_run). Left out
are pairs that were judged, or told apart by an undo, memories that wait for a judgement (but the oldest of each), and the policy''s protected types. embedding_model null: the one most used there. guard: what an automatic merge would
stumble over. Holds no lock. Raises MF001 to MF003, MF013, MF022.';
revoke all on function memfold.consolidate(tenant_id text, bucket_id text, embedding_model text, threshold double precision, approval text, max_operations bigint, max_judgements bigint, dry_run boolean) from public;
grant execute on function memfold.consolidate(tenant_id text, bucket_id text, embedding_model text, threshold double precision, approval text, max_operations bigint, max_judgements bigint, dry_run boolean) to memfold_app, memfold_owner;

create function memfold_internal._all_create_text_index(text_search text)
returns setof void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on all;
    select * from memfold.create_text_index("text_search" => $1);
$$;
comment on function memfold_internal._all_create_text_index(text) is
'create_text_index() on every server that it is for.';
revoke all on function memfold_internal._all_create_text_index(text) from public;
grant execute on function memfold_internal._all_create_text_index(text) to memfold_owner;

create function memfold.create_text_index(text_search text DEFAULT 'simple'::text)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._all_create_text_index($1);
end;
$$;
comment on function memfold.create_text_index(text_search text) is
'Makes the index of words (GIN) of a text search configuration (set_options(text_search => ...)): search_memories() with a query then finds
words in buckets of any size by it, instead of reading up to 100,000 texts. Does nothing where it is there; replaces one that an
interrupted build has left behind. Writers wait until the transaction ends: on a database in use, run the statements of text_index_ddl()
instead. Only for members of memfold_owner. Raises MF017.';
revoke all on function memfold.create_text_index(text_search text) from public;
grant execute on function memfold.create_text_index(text_search text) to memfold_owner;

create function memfold_internal._all_create_vector_index(embedding_model text)
returns setof void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on all;
    select * from memfold.create_vector_index("embedding_model" => $1);
$$;
comment on function memfold_internal._all_create_vector_index(text) is
'create_vector_index() on every server that it is for.';
revoke all on function memfold_internal._all_create_vector_index(text) from public;
grant execute on function memfold_internal._all_create_vector_index(text) to memfold_owner;

create function memfold.create_vector_index(embedding_model text)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._all_create_vector_index($1);
end;
$$;
comment on function memfold.create_vector_index(embedding_model text) is
'Makes the index (HNSW) of an embedding model, for policies with scope => bucket: buckets of more than 10,000 vectors are
then searched whole, approximately, instead of their newest 10,000. Does nothing where it is there; replaces one that an
interrupted build has left behind. Writers of vectors wait until the transaction ends: on a database in use, run the statements
of vector_index_ddl() instead. Raise maintenance_work_mem first, to what the graph takes: about 2 kB a vector of 384
dimensions. Only for members of memfold_owner. Raises MF013, MF037.';
revoke all on function memfold.create_vector_index(embedding_model text) from public;
grant execute on function memfold.create_vector_index(embedding_model text) to memfold_owner;

create function memfold.current_memories(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, as_of timestamp with time zone DEFAULT NULL::timestamp with time zone, known_at timestamp with time zone DEFAULT NULL::timestamp with time zone)
returns TABLE(memory_id uuid, content text, memory_type text, subject text, predicate text, object text, valid_from timestamp with time zone, valid_to timestamp with time zone, repetition_count bigint, confidence double precision)
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO'
as $$
    cluster 'memfold';
    run on memfold_internal._route_read(tenant_id);
    select * from memfold.current_memories("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "as_of" => $3, "known_at" => $4);
$$;
comment on function memfold.current_memories(tenant_id text, bucket_id text, as_of timestamp with time zone, known_at timestamp with time zone) is
'What was believed true at a time (null: now): values of timelines by their intervals, all other active memories from their
first observation on, none outside its validity. By what is known today (known_at null): folds, rejections and late arrivals count
as if they had always been known. known_at: by the ledger rows that were recorded by then, undone ones as they were then; as_of null
is then known_at. What has been erased since is not shown. It derives the bucket once more, so that it takes longer, and writes (and
takes back) rows: MF022 where a transaction is read-only.
valid_from, valid_to: the interval, within the validity; valid_to null: still so. Raises MF001 to MF003, MF022.';
revoke all on function memfold.current_memories(tenant_id text, bucket_id text, as_of timestamp with time zone, known_at timestamp with time zone) from public;
grant execute on function memfold.current_memories(tenant_id text, bucket_id text, as_of timestamp with time zone, known_at timestamp with time zone) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;

create function memfold.current_memory(id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns TABLE(memory_id uuid, content text, status text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_read(tenant_id);
    select * from memfold.current_memory("id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true));
$$;
comment on function memfold.current_memory(id uuid, tenant_id text) is
'Where an id leads today: the memory that holds its fact, after all folds, and after an erasure that left the fact. Any id ever
handed out keeps its meaning; no row: it was erased. Without a tenant (argument or memfold.tenant_id) it looks among all that
the role may read.';
revoke all on function memfold.current_memory(id uuid, tenant_id text) from public;
grant execute on function memfold.current_memory(id uuid, tenant_id text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;

create function memfold.derive_scope(memory_ids uuid[], tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.derive_scope("memory_ids" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true));
$$;
comment on function memfold.derive_scope(memory_ids uuid[], tenant_id text) is
'Derives the state of the trees that hold memory_ids, and of the timelines they belong to, from the ledger rows in
force: status, edges, roots, counters, metadata, intervals. The caller holds the lock of the scope (of the
bucket, where trees reach over scopes) and has written the ledger and the sources. Only the owner may call it.';
revoke all on function memfold.derive_scope(memory_ids uuid[], tenant_id text) from public;
grant execute on function memfold.derive_scope(memory_ids uuid[], tenant_id text) to memfold_owner;

create function memfold.drop_embeddings(embedding_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), after uuid DEFAULT NULL::uuid, max_results bigint DEFAULT 1000, INOUT run_id uuid DEFAULT NULL::uuid, OUT dropped bigint, OUT last_id uuid)
returns record
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.drop_embeddings("embedding_model" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "after" => $3, "max_results" => $4, "run_id" => $5);
$$;
comment on function memfold.drop_embeddings(embedding_model text, tenant_id text, after uuid, max_results bigint, INOUT run_id uuid, OUT dropped bigint, OUT last_id uuid) is
'Drops vectors of a replaced embedding model, of one tenant, at most max_results (1 to 100,000) behind the id after: dropped says how
many, last_id is what to pass as after next. Fewer than max_results: none is left. run_id: its row in runs, of kind dropping; pass
it on. Refuses while one of them is its memory''s only vector of a model in use. Only for members of memfold_owner.
Raises MF001 to MF003, MF013, MF022, MF038, MF039, MF046, MF048 (the model has not been replaced).';
revoke all on function memfold.drop_embeddings(embedding_model text, tenant_id text, after uuid, max_results bigint, INOUT run_id uuid, OUT dropped bigint, OUT last_id uuid) from public;
grant execute on function memfold.drop_embeddings(embedding_model text, tenant_id text, after uuid, max_results bigint, INOUT run_id uuid, OUT dropped bigint, OUT last_id uuid) to memfold_owner;

create function memfold.duplicate_pairs(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, embedding_model text DEFAULT NULL::text, thresholds double precision[] DEFAULT '{0.98,0.95,0.9}'::double precision[])
returns TABLE(threshold double precision, pairs bigint)
language plproxy volatile set search_path = pg_catalog, pg_temp set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.duplicate_pairs("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "embedding_model" => $3, "thresholds" => $4);
$$;
comment on function memfold.duplicate_pairs(tenant_id text, bucket_id text, embedding_model text, thresholds double precision[]) is
'How many pairs of active memories of one scope have a cosine at or above each threshold: what sweep_duplicates() would meet with other
thresholds. Of scopes with more than 1,000 memories each memory''s 20 nearest are counted. Only reads. Raises MF001 to MF003, MF013,
MF022.';
revoke all on function memfold.duplicate_pairs(tenant_id text, bucket_id text, embedding_model text, thresholds double precision[]) from public;
grant execute on function memfold.duplicate_pairs(tenant_id text, bucket_id text, embedding_model text, thresholds double precision[]) to memfold_app, memfold_owner;

create function memfold.effective_confidence(memory_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), as_of timestamp with time zone DEFAULT now())
returns double precision
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO'
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.effective_confidence("memory_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "as_of" => $3);
$$;
comment on function memfold.effective_confidence(memory_id uuid, tenant_id text, as_of timestamp with time zone) is
'The confidence of a memory (of an alias: of the memory where it leads) after decay, at a time: confidence * (1 - decay_rate) ^
days since last use, by its options, in [0, 1]. Last use is the later of last_accessed and last_seen. Decay begins once
decay_interval has passed without use, ends at decay_floor and spares protected_types; with a decay_rate of 0, the default,
it is the confidence. Computed, nothing is written. Null: a row without an observation. Raises MF001, MF002, MF018.';
revoke all on function memfold.effective_confidence(memory_id uuid, tenant_id text, as_of timestamp with time zone) from public;
grant execute on function memfold.effective_confidence(memory_id uuid, tenant_id text, as_of timestamp with time zone) to memfold_agent, memfold_app, memfold_owner;

create function memfold.embed_pending(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT NULL::text, max_results bigint DEFAULT 32)
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.embed_pending("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "max_results" => $3);
$$;
comment on function memfold.embed_pending(tenant_id text, bucket_id text, max_results bigint) is
'Where a policy embeds in the database: makes the vectors of memories that were stored without one, and runs the tier 2 that
was skipped, as attach_embedding() does. For what came by a plain INSERT or before the policy, or while as many sessions as are
allowed held a model. At most max_results (1 to 1,000) a call, oldest first, of one bucket where given; returns how many: call
it until it returns 0, which it also does where this session may hold no model, or another one is at it. Raises MF001 to
MF003, MF022, MF056 to MF059; 40001 and 40P01 as ingest_memory() does.';
revoke all on function memfold.embed_pending(tenant_id text, bucket_id text, max_results bigint) from public;
grant execute on function memfold.embed_pending(tenant_id text, bucket_id text, max_results bigint) to memfold_agent, memfold_app, memfold_owner;

create function memfold.end_reembedding(run_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.end_reembedding("run_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true));
$$;
comment on function memfold.end_reembedding(run_id uuid, tenant_id text) is
'Closes a run of start_reembedding(), if no memory is left that has a vector of the old model and none of the new; returns how
many are. Raises MF001 to MF003, MF038, MF039 (a run of another kind).';
revoke all on function memfold.end_reembedding(run_id uuid, tenant_id text) from public;
grant execute on function memfold.end_reembedding(run_id uuid, tenant_id text) to memfold_app, memfold_owner;

create function memfold.end_session(session_id text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, dry_run boolean DEFAULT false)
returns TABLE(run_id uuid, merged_groups bigint, superseded_count bigint, compression_ratio double precision, avg_similarity double precision, considered bigint)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.end_session("session_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3, "dry_run" => $4);
$$;
comment on function memfold.end_session(session_id text, tenant_id text, bucket_id text, dry_run boolean) is
'Folds what a session says more than once: among its active memories of one type (and of one subject and predicate, unless the policy''s
scope is the bucket), greedy clusters in order of creation, in which every two have a Jaccard similarity of words above the options''
session_threshold and a clean guard. The most confident stays, then the most often recalled, then the newest. Left out: the options''
protected_types, confidence at or above protected_confidence, sessions of fewer than 3 memories (considered), pairs that were judged,
wait for it, or were told apart by an undo.
compression_ratio: superseded_count / considered; avg_similarity: of all pairs within clusters. undo_run() takes it back. dry_run: nothing is written, run_id is
null. Writers of the bucket wait for it. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.end_session(session_id text, tenant_id text, bucket_id text, dry_run boolean) from public;
grant execute on function memfold.end_session(session_id text, tenant_id text, bucket_id text, dry_run boolean) to memfold_app, memfold_owner;

create function memfold.erase_bucket(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT NULL::text, reason text DEFAULT NULL::text, max_memories bigint DEFAULT 200)
returns memfold.erasure
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.erase_bucket("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "reason" => $3, "max_memories" => $4);
$$;
comment on function memfold.erase_bucket(tenant_id text, bucket_id text, reason text, max_memories bigint) is
'Forgets a bucket: memories, vectors, ledger, judgements, idempotency keys, runs, all of it but its policy and options. About max_memories
(1 to 10,000) a call, so that nobody waits long: call it, each time in a transaction of its own, until remaining is 0. What is left
is unchanged until then. Writers of the bucket wait for a call; what they write between calls goes with a later one. export_bucket()
first, if it may be wanted back. It cannot be undone. A run and a row of the ledger say that it was done, by whom, and reason.
Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.erase_bucket(tenant_id text, bucket_id text, reason text, max_memories bigint) from public;
grant execute on function memfold.erase_bucket(tenant_id text, bucket_id text, reason text, max_memories bigint) to memfold_app, memfold_owner;

create function memfold.erase_memory(memory_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text)
returns memfold.erasure
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.erase_memory("memory_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "reason" => $3);
$$;
comment on function memfold.erase_memory(memory_id uuid, tenant_id text, reason text) is
'Forgets a fact: the memory, all texts folded into it (of an alias: of the memory where it leads), their vectors, metadata,
judgements and ledger rows. What it had superseded by itself is current again, as if it had never been said. Said again, it is a
new memory: to refuse it from now on, use reject_memory(). It cannot be undone. A row of the ledger without content
stays for each text, with reason. Raises MF001 to MF003, MF018 (no such memory), MF025.';
revoke all on function memfold.erase_memory(memory_id uuid, tenant_id text, reason text) from public;
grant execute on function memfold.erase_memory(memory_id uuid, tenant_id text, reason text) to memfold_app, memfold_owner;

create function memfold.erase_source(source_turn_id text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text, max_memories bigint DEFAULT 100)
returns memfold.erasure
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.erase_source("source_turn_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "reason" => $3, "max_memories" => $4);
$$;
comment on function memfold.erase_source(source_turn_id text, tenant_id text, reason text, max_memories bigint) is
'Forgets a conversation turn: every observation that came from it alone, with its text, vector, metadata and ledger rows. A fact that
other turns support stays, in the words of one of them, with its counters derived again; where the turn''s own text was the
one that others were folded into, the oldest of these takes its place and the folds stay; so does one that the turn''s observation had
made, while both texts do. An observation of several turns stays,
without this one. What a judge wrote of several texts goes with any of them. Nothing of it can be undone. Handles max_memories
(1 to 1000) texts a call: call it until remaining is 0. reason is kept with the rows that say that something was erased. Writers of
the scopes concerned wait for it. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.erase_source(source_turn_id text, tenant_id text, reason text, max_memories bigint) from public;
grant execute on function memfold.erase_source(source_turn_id text, tenant_id text, reason text, max_memories bigint) to memfold_app, memfold_owner;

create function memfold.erase_tenant(tenant_id text, reason text DEFAULT NULL::text, max_memories bigint DEFAULT 200)
returns memfold.erasure
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.erase_tenant("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "reason" => $2, "max_memories" => $3);
$$;
comment on function memfold.erase_tenant(tenant_id text, reason text, max_memories bigint) is
'Forgets a tenant: every bucket as erase_bucket() does, then its policies, options, predicates, links, antonyms and labelled pairs. About
max_memories (1 to 10,000) a call, of one bucket: call it, each time in a transaction of its own, until remaining is 0. Its rows in tenant_roles, which
say who may log in as it, stay. It cannot be undone. A run and a row of the ledger say that it was done, by whom, and reason.
Only members of memfold_owner may call it. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.erase_tenant(tenant_id text, reason text, max_memories bigint) from public;
grant execute on function memfold.erase_tenant(tenant_id text, reason text, max_memories bigint) to memfold_owner;

create function memfold.explain_memory(memory_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns SETOF text
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_read(tenant_id);
    select * from memfold.explain_memory("memory_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true));
$$;
comment on function memfold.explain_memory(memory_id uuid, tenant_id text) is
'The whole life of a memory as readable lines: its text and state, what its confidence comes from, when it was current,
its aliases, judgements, and its ledger (the first and the last 15 rows); of what a score decided, or the veto, what added most
to the score in force now. Raises MF018.';
revoke all on function memfold.explain_memory(memory_id uuid, tenant_id text) from public;
grant execute on function memfold.explain_memory(memory_id uuid, tenant_id text) to memfold_agent, memfold_app, memfold_auditor, memfold_owner;

create function memfold.export_bucket(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text)
returns SETOF jsonb
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.export_bucket("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2);
$$;
comment on function memfold.export_bucket(tenant_id text, bucket_id text) is
'Everything about a bucket, as of one moment, one JSON object a row, in the order in which import_bucket() takes it: a header (format
version, counts), what it needs (embedding models, the rules of the bucket and its tenant), memories, counters, vectors, intervals,
sources, words, runs, judgements, the ledger with its archive, idempotency keys, and labelled pairs that were collected from it.
Large buckets: read it through a cursor; the server keeps it in temporary files. Raises MF001 to MF003.';
revoke all on function memfold.export_bucket(tenant_id text, bucket_id text) from public;
grant execute on function memfold.export_bucket(tenant_id text, bucket_id text) to memfold_app, memfold_owner;

create function memfold.fail_judgement(judgement_id uuid, error text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), worker text DEFAULT NULL::text, counted boolean DEFAULT true, retry_after interval DEFAULT NULL::interval, model text DEFAULT NULL::text, input_tokens bigint DEFAULT NULL::bigint, output_tokens bigint DEFAULT NULL::bigint, cost double precision DEFAULT NULL::double precision)
returns text
language plproxy volatile set search_path = pg_catalog, pg_temp set intervalstyle = 'postgres' set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route_judge(tenant_id);
    select * from memfold.fail_judgement("judgement_id" => $1, "error" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "worker" => $4, "counted" => $5, "retry_after" => $6, "model" => $7, "input_tokens" => $8, "output_tokens" => $9, "cost" => $10);
$$;
comment on function memfold.fail_judgement(judgement_id uuid, error text, tenant_id text, worker text, counted boolean, retry_after interval, model text, input_tokens bigint, output_tokens bigint, cost double precision) is
'Gives a leased judgement back without an answer, and returns its status: open (it comes back after retry_after, else after
5 s, doubled with each attempt up to 1 h), dead (after the eighth attempt; see retry_judgements), replaced (the same, of a
synthesis where on_judge_failure is replace: the newest memory has replaced the others), obsolete (there is nothing to decide any more), or
what it was where it is not leased (or not to worker). counted => false: the attempt does not count, for it was not the pair''s fault.
error: the first 1,000 characters are kept. Tokens and cost are added to the judgement''s. Raises MF026, MF028.';
revoke all on function memfold.fail_judgement(judgement_id uuid, error text, tenant_id text, worker text, counted boolean, retry_after interval, model text, input_tokens bigint, output_tokens bigint, cost double precision) from public;
grant execute on function memfold.fail_judgement(judgement_id uuid, error text, tenant_id text, worker text, counted boolean, retry_after interval, model text, input_tokens bigint, output_tokens bigint, cost double precision) to memfold_app, memfold_judge, memfold_owner;

create function memfold.find_similar(embedding vector, embedding_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, threshold double precision DEFAULT 0.85, memory_type text DEFAULT NULL::text, subject text DEFAULT NULL::text, predicate text DEFAULT NULL::text, max_results bigint DEFAULT 20)
returns TABLE(memory_id uuid, matched_id uuid, similarity double precision, content text, matched_similarity double precision, matched_content text, complete boolean)
language plproxy volatile set search_path = pg_catalog, pg_temp set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.find_similar("embedding" => $1, "embedding_model" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "bucket_id" => $4, "threshold" => $5, "memory_type" => $6, "subject" => $7, "predicate" => $8, "max_results" => $9);
$$;
comment on function memfold.find_similar(embedding vector, embedding_model text, tenant_id text, bucket_id text, threshold double precision, memory_type text, subject text, predicate text, max_results bigint) is
'The active memories, expired or not, of which a text, their own or an alias''s, has a cosine of at least threshold to the vector,
one row each, nearest first: in one scope where memory_type is given (null subject or predicate matches null), else in the bucket; among all of up to
100,000 vectors, of a larger scope among the newest 100,000: then complete is false in each row, and a NOTICE (01M01) says so. Of a bucket
with more than 10,000, among all by an index (create_vector_index), nearly always right; where its scan gives up, among the newest 10,000 as
well, and complete is false. content and similarity: the memory''s own text and its cosine (null: it has no vector of the model); matched:
the nearest of its texts, the own one where none is nearer. Nothing is written. Raises MF012 to MF015, MF022.';
revoke all on function memfold.find_similar(embedding vector, embedding_model text, tenant_id text, bucket_id text, threshold double precision, memory_type text, subject text, predicate text, max_results bigint) from public;
grant execute on function memfold.find_similar(embedding vector, embedding_model text, tenant_id text, bucket_id text, threshold double precision, memory_type text, subject text, predicate text, max_results bigint) to memfold_agent, memfold_app, memfold_owner;

create function memfold.import_bucket(lines jsonb, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text)
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.import_bucket("lines" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3);
$$;
comment on function memfold.import_bucket(lines jsonb, tenant_id text, bucket_id text) is
'Takes what export_bucket() returned, as an array of 1 to 10,000 of its rows at a time, in their order and all in one
transaction, into a bucket of the same name that is empty: of this or another tenant, in this or another database. The rows are
those that were exported, ids and times included; hashes and counts are compared. Embedding models must be registered; the bucket''s
policies and options are replaced, those of the tenant, links, predicates and antonyms only added. Returns how many rows it has read. memfold
restore does all this. Only for members of memfold_owner. Raises MF001 to MF003, MF022, MF025, MF053 (the bucket is not empty), MF054.';
revoke all on function memfold.import_bucket(lines jsonb, tenant_id text, bucket_id text) from public;
grant execute on function memfold.import_bucket(lines jsonb, tenant_id text, bucket_id text) to memfold_owner;

create function memfold.ingest_memories(candidates jsonb, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), on_error text DEFAULT 'report'::text, embeddings vector[] DEFAULT NULL::vector[])
returns SETOF memfold.batch_result
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.ingest_memories("candidates" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "on_error" => $3, "embeddings" => $4);
$$;
comment on function memfold.ingest_memories(candidates jsonb, tenant_id text, on_error text, embeddings vector[]) is
'Takes in many candidates at once: a JSON array of at most 10,000 objects whose keys are the arguments of ingest_memory().
The same memories, counters and ledger as those calls one by one, in order. One row a candidate: its place in the array
(ordinal, from 0 on), what ingest_memory() returns, or sqlstate, error, detail and hint of what it would have raised: a bad
candidate does not keep the others out. on_error abort: the first one''s error is raised, and nothing is written.
JSON null stands for the default. embeddings: one vector for each candidate, null where it has none; best sent in binary form.
A candidate may have a member embedding instead, an array of numbers or a string as pgvector prints a vector: it is read in
ten times the time. Raises MF022, MF025, MF035; may raise 40001: retry it with the same idempotency keys.';
revoke all on function memfold.ingest_memories(candidates jsonb, tenant_id text, on_error text, embeddings vector[]) from public;
grant execute on function memfold.ingest_memories(candidates jsonb, tenant_id text, on_error text, embeddings vector[]) to memfold_agent, memfold_app, memfold_owner;

create function memfold.ingest_memory(content text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, memory_type text DEFAULT 'fact'::text, subject text DEFAULT NULL::text, predicate text DEFAULT NULL::text, object text DEFAULT NULL::text, embedding vector DEFAULT NULL::vector, embedding_model text DEFAULT NULL::text, source_turn_ids text[] DEFAULT '{}'::text[], source_confidence double precision DEFAULT 0.5, extractor_confidence double precision DEFAULT 0.5, session_id text DEFAULT NULL::text, origin text DEFAULT 'observed'::text, metadata jsonb DEFAULT '{}'::jsonb, observed_at timestamp with time zone DEFAULT NULL::timestamp with time zone, valid_from timestamp with time zone DEFAULT NULL::timestamp with time zone, valid_until timestamp with time zone DEFAULT NULL::timestamp with time zone, idempotency_key text DEFAULT NULL::text)
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO' set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.ingest_memory("content" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3, "memory_type" => $4, "subject" => $5, "predicate" => $6, "object" => $7, "embedding" => $8, "embedding_model" => $9, "source_turn_ids" => $10, "source_confidence" => $11, "extractor_confidence" => $12, "session_id" => $13, "origin" => $14, "metadata" => $15, "observed_at" => $16, "valid_from" => $17, "valid_until" => $18, "idempotency_key" => $19);
$$;
comment on function memfold.ingest_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text, embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, idempotency_key text) is
'Takes in one candidate memory and decides, atomically, whether its fact is new, known, changed or unclear.
Returns (action, memory_id, tier, method, similarity, superseded_id, judgement_id, event_id, similar); action is inserted,
merged, replaced, superseded, escalated, historical or rejected, memory_id the memory that now holds the fact.
embedding: the content''s vector by a registered embedding_model (it is normalised here); without one tier 2 waits for
attach_embedding(). source_turn_ids: at most 1,000. Confidences in [0, 1]. origin: observed, inferred or recalled.
observed_at: at most 5 minutes ahead; null: now, after all that was stated of this. valid_from, valid_until (exclusive): recall shows
the memory in between only; null: no bound; what its latest observation says holds. idempotency_key: a second call with it
returns the first one''s result, and raises MF062 where it is about another candidate (content, type, subject, predicate, object or metadata).
Bad input raises MF001 to MF016, MF061 or MF065 and changes nothing; a call may raise 40001 or 40P01: retry it with the same key.';
revoke all on function memfold.ingest_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text, embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, idempotency_key text) from public;
grant execute on function memfold.ingest_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text, embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, idempotency_key text) to memfold_agent, memfold_app, memfold_owner;

create function memfold.ingest_plain_rows(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT NULL::text, max_rows bigint DEFAULT 1000)
returns memfold.plain_rows
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.ingest_plain_rows("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "max_rows" => $3);
$$;
comment on function memfold.ingest_plain_rows(tenant_id text, bucket_id text, max_rows bigint) is
'Gives rows that came by a plain INSERT into memories, of one bucket or of all (null), what it did not give them: a ledger row
(an observation at the time they were written), counters, and words where the policy compares them. Their vectors stay
pending: attach_embedding() runs tier 2. At most max_rows (1 to 100,000) or about 100 ms a call. Returns how many it has seen to
(ingested), and how many buckets it has left because others worked there (busy): it waits for one of them, for at most 500 ms.
Call it again until both are 0. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.ingest_plain_rows(tenant_id text, bucket_id text, max_rows bigint) from public;
grant execute on function memfold.ingest_plain_rows(tenant_id text, bucket_id text, max_rows bigint) to memfold_app, memfold_owner;

create function memfold.known_memory(content text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, memory_type text DEFAULT 'fact'::text, subject text DEFAULT NULL::text, predicate text DEFAULT NULL::text, metadata jsonb DEFAULT '{}'::jsonb)
returns TABLE(memory_id uuid, matched_id uuid, status text, content_hash bytea)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.known_memory("content" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3, "memory_type" => $4, "subject" => $5, "predicate" => $6, "metadata" => $7);
$$;
comment on function memfold.known_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, metadata jsonb) is
'The tier-1 probe alone: the memory that holds this text, if the bucket knows it (memory_id: where an alias leads;
matched_id: the text itself; status: the memory''s). A known text needs no embedding. No row: it is not known.
Nothing is written. Raises what ingest_memory() raises for bad input.';
revoke all on function memfold.known_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, metadata jsonb) from public;
grant execute on function memfold.known_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, metadata jsonb) to memfold_agent, memfold_app, memfold_owner;

create function memfold.link_predicate(alias text, predicate text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text)
returns uuid
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.link_predicate("alias" => $1, "predicate" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "bucket_id" => $4);
$$;
comment on function memfold.link_predicate(alias text, predicate text, tenant_id text, bucket_id text) is
'Says that one predicate is another one by another name, as link_subject() does of subjects. Spellings that differ by case and separators
are one without it. How many values it has at a time (set_predicate) is said of the name; what is stored keeps its state, unless both
were single-valued. Returns the run. Raises MF001 to MF003, MF025, MF063.';
revoke all on function memfold.link_predicate(alias text, predicate text, tenant_id text, bucket_id text) from public;
grant execute on function memfold.link_predicate(alias text, predicate text, tenant_id text, bucket_id text) to memfold_app, memfold_owner;

create function memfold.link_subject(alias text, subject text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text)
returns uuid
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.link_subject("alias" => $1, "subject" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "bucket_id" => $4);
$$;
comment on function memfold.link_subject(alias text, subject text, tenant_id text, bucket_id text) is
'Says that one subject is another one by another name: from now on what is told of alias is stored, hashed and searched as told of
subject (the ledger keeps what was told); of a subject that is an alias itself, as of its name. alias null: texts that come without a
subject and begin with this one are told of it. bucket_id ''*'': in all buckets. What the bucket has under the alias is taken up in this
call, at most 1,000 texts; call take_up_links() for the rest, and for ''*''. Texts that are one by the new name are merged. Returns the
run (runs, kind link), which undo_run() takes back as unlink_subject() does. Writers of the bucket wait for that long: about 1 ms a text,
10 ms where it merges; 55P03: another transaction holds a memory for half a second, call it again.
Linked already: goes on with taking up. Raises MF001 to MF003, MF025, MF063.';
revoke all on function memfold.link_subject(alias text, subject text, tenant_id text, bucket_id text) from public;
grant execute on function memfold.link_subject(alias text, subject text, tenant_id text, bucket_id text) to memfold_app, memfold_owner;

create function memfold.merge_memories(memory_id uuid, into_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text)
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.merge_memories("memory_id" => $1, "into_id" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "reason" => $4);
$$;
comment on function memfold.merge_memories(memory_id uuid, into_id uuid, tenant_id text, reason text) is
'A person folds one memory into another of the same bucket, whatever their scopes: memory_id becomes an alias of into_id,
which counts its observations from now on. Ids of aliases stand for where they lead. undo(event_id) takes it back.
Raises MF018 (no such memory), MF034 (the same memory, another bucket, rejected or withdrawn), MF025.';
revoke all on function memfold.merge_memories(memory_id uuid, into_id uuid, tenant_id text, reason text) from public;
grant execute on function memfold.merge_memories(memory_id uuid, into_id uuid, tenant_id text, reason text) to memfold_app, memfold_owner;

create function memfold.missing_embeddings(from_model text, to_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), after uuid DEFAULT NULL::uuid, max_results bigint DEFAULT 100)
returns TABLE(memory_id uuid, bucket_id text, content text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.missing_embeddings("from_model" => $1, "to_model" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "after" => $4, "max_results" => $5);
$$;
comment on function memfold.missing_embeddings(from_model text, to_model text, tenant_id text, after uuid, max_results bigint) is
'Memories of a tenant, aliases and history included, that have a vector of from_model and none of to_model, by id, behind the id
after: embed their content and hand it to add_embeddings(). At most max_results, 1 to 10,000. What has no vector at all is in
pending_embeddings(). Raises MF001 to MF003, MF022.';
revoke all on function memfold.missing_embeddings(from_model text, to_model text, tenant_id text, after uuid, max_results bigint) from public;
grant execute on function memfold.missing_embeddings(from_model text, to_model text, tenant_id text, after uuid, max_results bigint) to memfold_app, memfold_owner;

create function memfold.pairs_to_label(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), embedding_model text DEFAULT NULL::text, max_results bigint DEFAULT 100)
returns TABLE(pair_id uuid, content_a text, content_b text, label text, evidence text, similarity double precision, guard text[])
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.pairs_to_label("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "embedding_model" => $2, "max_results" => $3);
$$;
comment on function memfold.pairs_to_label(tenant_id text, embedding_model text, max_results bigint) is
'Pairs that collect_pairs() has found and nobody has looked at, with their cosine by the model, most informative first: those
between the model''s thresholds, the nearest to one of them first, then those nearest to the band. At most max_results. add_labelled_pair() of
both texts labels one. Raises MF001, MF002, MF012, MF013, MF022.';
revoke all on function memfold.pairs_to_label(tenant_id text, embedding_model text, max_results bigint) from public;
grant execute on function memfold.pairs_to_label(tenant_id text, embedding_model text, max_results bigint) to memfold_app, memfold_owner;

create function memfold.pending_embeddings(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT NULL::text, max_results bigint DEFAULT 100)
returns SETOF memfold.pending_memory
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.pending_embeddings("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "max_results" => $3);
$$;
comment on function memfold.pending_embeddings(tenant_id text, bucket_id text, max_results bigint) is
'Memories of a tenant (of one bucket, where given) that were stored without a vector, oldest first: embed their content and
hand it to attach_embedding(). max_results: at least 1; null: all. Raises MF001 to MF003, MF022.';
revoke all on function memfold.pending_embeddings(tenant_id text, bucket_id text, max_results bigint) from public;
grant execute on function memfold.pending_embeddings(tenant_id text, bucket_id text, max_results bigint) to memfold_agent, memfold_app, memfold_owner;

create function memfold.preview_memory(content text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, memory_type text DEFAULT 'fact'::text, subject text DEFAULT NULL::text, predicate text DEFAULT NULL::text, object text DEFAULT NULL::text, embedding vector DEFAULT NULL::vector, embedding_model text DEFAULT NULL::text, source_turn_ids text[] DEFAULT '{}'::text[], source_confidence double precision DEFAULT 0.5, extractor_confidence double precision DEFAULT 0.5, session_id text DEFAULT NULL::text, origin text DEFAULT 'observed'::text, metadata jsonb DEFAULT '{}'::jsonb, observed_at timestamp with time zone DEFAULT NULL::timestamp with time zone, valid_from timestamp with time zone DEFAULT NULL::timestamp with time zone, valid_until timestamp with time zone DEFAULT NULL::timestamp with time zone, idempotency_key text DEFAULT NULL::text)
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO' set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.preview_memory("content" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3, "memory_type" => $4, "subject" => $5, "predicate" => $6, "object" => $7, "embedding" => $8, "embedding_model" => $9, "source_turn_ids" => $10, "source_confidence" => $11, "extractor_confidence" => $12, "session_id" => $13, "origin" => $14, "metadata" => $15, "observed_at" => $16, "valid_from" => $17, "valid_until" => $18, "idempotency_key" => $19);
$$;
comment on function memfold.preview_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text, embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, idempotency_key text) is
'What ingest_memory() would do with the same arguments now: the same row, without ids of what is not there yet. Nothing is
written, no lock is taken. Raises what ingest_memory() raises for bad input.';
revoke all on function memfold.preview_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text, embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, idempotency_key text) from public;
grant execute on function memfold.preview_memory(content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text, embedding vector, embedding_model text, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text, origin text, metadata jsonb, observed_at timestamp with time zone, valid_from timestamp with time zone, valid_until timestamp with time zone, idempotency_key text) to memfold_agent, memfold_app, memfold_owner;

create function memfold.prune_memories(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, max_confidence double precision DEFAULT 0.3, unused_for interval DEFAULT '90 days'::interval, max_operations bigint DEFAULT 200, dry_run boolean DEFAULT true)
returns TABLE(run_id uuid, memory_id uuid, content text, confidence double precision, last_used timestamp with time zone, helpful_count bigint, harmful_count bigint, reason text)
language plproxy volatile set search_path = pg_catalog, pg_temp set intervalstyle = 'postgres' set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.prune_memories("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "max_confidence" => $3, "unused_for" => $4, "max_operations" => $5, "dry_run" => $6);
$$;
comment on function memfold.prune_memories(tenant_id text, bucket_id text, max_confidence double precision, unused_for interval, max_operations bigint, dry_run boolean) is
'Retires memories of a bucket that are of no use: with an effective confidence below max_confidence (0 to 1) that were neither stated nor
recalled for unused_for, or expired for that long (valid_until), or more often reported harmful than helpful, by three or more. They
are withdrawn, not deleted: stated again, they are active again; undo_run() takes it back. dry_run (the default) returns what it would
retire. Does at most max_operations (1 to 1000) a run, the least confident first. Protected types and values of timelines are left out. Raises MF001 to MF003, MF022, MF025.';
revoke all on function memfold.prune_memories(tenant_id text, bucket_id text, max_confidence double precision, unused_for interval, max_operations bigint, dry_run boolean) from public;
grant execute on function memfold.prune_memories(tenant_id text, bucket_id text, max_confidence double precision, unused_for interval, max_operations bigint, dry_run boolean) to memfold_app, memfold_owner;

create function memfold.record_feedback(memory_id uuid, helpful boolean, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), OUT helpful_count bigint, OUT harmful_count bigint)
returns record
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.record_feedback("memory_id" => $1, "helpful" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true));
$$;
comment on function memfold.record_feedback(memory_id uuid, helpful boolean, tenant_id text, OUT helpful_count bigint, OUT harmful_count bigint) is
'Counts whether a memory (of an alias: the memory where it leads) helped or harmed, and returns both counts: search_memories()
ranks by them. Raises MF001, MF002, MF018 (no such memory), MF022.';
revoke all on function memfold.record_feedback(memory_id uuid, helpful boolean, tenant_id text, OUT helpful_count bigint, OUT harmful_count bigint) from public;
grant execute on function memfold.record_feedback(memory_id uuid, helpful boolean, tenant_id text, OUT helpful_count bigint, OUT harmful_count bigint) to memfold_agent, memfold_app, memfold_owner;

create function memfold.reembed_status(from_model text, to_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns TABLE(old_vectors bigint, new_vectors bigint, missing bigint, pending bigint, own_thresholds bigint, run_id uuid, added bigint)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.reembed_status("from_model" => $1, "to_model" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true));
$$;
comment on function memfold.reembed_status(from_model text, to_model text, tenant_id text) is
'How far a tenant is on the way from one embedding model to another: vectors of each; missing: memories with a vector of the old one
alone; pending: without any (attach_embedding); own_thresholds: policies whose own cosine thresholds, made for the old model, count
for the new one too; the last run, and what it has added. Reads all the tenant''s vectors'' keys. Raises MF001 to MF003, MF013.';
revoke all on function memfold.reembed_status(from_model text, to_model text, tenant_id text) from public;
grant execute on function memfold.reembed_status(from_model text, to_model text, tenant_id text) to memfold_app, memfold_owner;

create function memfold_internal._all_register_embedding_model(embedding_model text, dimensions bigint, merge_threshold double precision, judge_threshold double precision)
returns setof void
language plproxy volatile set search_path = pg_catalog, pg_temp set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on all;
    select * from memfold.register_embedding_model("embedding_model" => $1, "dimensions" => $2, "merge_threshold" => $3, "judge_threshold" => $4);
$$;
comment on function memfold_internal._all_register_embedding_model(text, bigint, double precision, double precision) is
'register_embedding_model() on every server that it is for.';
revoke all on function memfold_internal._all_register_embedding_model(text, bigint, double precision, double precision) from public;
grant execute on function memfold_internal._all_register_embedding_model(text, bigint, double precision, double precision) to memfold_owner;

create function memfold.register_embedding_model(embedding_model text, dimensions bigint, merge_threshold double precision DEFAULT 0.92, judge_threshold double precision DEFAULT 0.85)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._all_register_embedding_model($1, $2, $3, $4);
end;
$$;
comment on function memfold.register_embedding_model(embedding_model text, dimensions bigint, merge_threshold double precision, judge_threshold double precision) is
'Makes an embedding model known: its vectors'' number of dimensions, and the cosine thresholds above which tier 2 merges
and from which on it asks a judge. The defaults were measured with all-MiniLM-L6-v2 (docs/error-rates.md); a notice says so of any
other model. Registering it again changes nothing. Models are
everyone''s: only members of memfold_owner may register them. Raises MF003, MF017, MF023.';
revoke all on function memfold.register_embedding_model(embedding_model text, dimensions bigint, merge_threshold double precision, judge_threshold double precision) from public;
grant execute on function memfold.register_embedding_model(embedding_model text, dimensions bigint, merge_threshold double precision, judge_threshold double precision) to memfold_owner;

create function memfold.reject_memory(memory_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text)
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.reject_memory("memory_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "reason" => $3);
$$;
comment on function memfold.reject_memory(memory_id uuid, tenant_id text, reason text) is
'A person says: not this. The memory (of an alias: where it leads) becomes a tombstone: it is no longer shown, and its text
and those of its aliases are rejected when they arrive again. A value that it had superseded is current again.
undo(event_id) takes it back. Raises MF018 (no such memory), MF034 (it is rejected already), MF025.';
revoke all on function memfold.reject_memory(memory_id uuid, tenant_id text, reason text) from public;
grant execute on function memfold.reject_memory(memory_id uuid, tenant_id text, reason text) to memfold_agent, memfold_app, memfold_owner;

create function memfold.remove_labelled_pair(pair_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.remove_labelled_pair("pair_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true));
$$;
comment on function memfold.remove_labelled_pair(pair_id uuid, tenant_id text) is
'Takes a labelled pair away. Of past decisions collect_pairs() finds it again. Raises MF001, MF002, MF042.';
revoke all on function memfold.remove_labelled_pair(pair_id uuid, tenant_id text) from public;
grant execute on function memfold.remove_labelled_pair(pair_id uuid, tenant_id text) to memfold_app, memfold_owner;

create function memfold_internal._all_replace_embedding_model(embedding_model text, replaced_by text)
returns setof void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on all;
    select * from memfold.replace_embedding_model("embedding_model" => $1, "replaced_by" => $2);
$$;
comment on function memfold_internal._all_replace_embedding_model(text, text) is
'replace_embedding_model() on every server that it is for.';
revoke all on function memfold_internal._all_replace_embedding_model(text, text) from public;
grant execute on function memfold_internal._all_replace_embedding_model(text, text) to memfold_owner;

create function memfold.replace_embedding_model(embedding_model text, replaced_by text)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._all_replace_embedding_model($1, $2);
end;
$$;
comment on function memfold.replace_embedding_model(embedding_model text, replaced_by text) is
'Cut-over, for all tenants: from now on vectors of embedding_model are refused (MF047), in ingest and in search, and its stored ones may be
dropped. Before, both models are accepted side by side. replaced_by null takes it back. Only for members of memfold_owner.
Raises MF013, MF022, MF046 (memories that are embedded by embedding_model are not by replaced_by), MF047 (replaced_by is replaced itself).';
revoke all on function memfold.replace_embedding_model(embedding_model text, replaced_by text) from public;
grant execute on function memfold.replace_embedding_model(embedding_model text, replaced_by text) to memfold_owner;

create function memfold.replay_bucket(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, calibration_id uuid DEFAULT NULL::uuid, embedding_model text DEFAULT NULL::text, max_memories bigint DEFAULT 10000)
returns TABLE(memory_id uuid, other_id uuid, action text, similarity double precision, guard text[], reason text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.replay_bucket("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "calibration_id" => $3, "embedding_model" => $4, "max_memories" => $5);
$$;
comment on function memfold.replay_bucket(tenant_id text, bucket_id text, calibration_id uuid, embedding_model text, max_memories bigint) is
'What would become of a bucket''s texts if they arrived once more, one after the other, in the order in which they came: by the rules
of now, or by a calibration (calibration_id) that is not applied yet. They are really ingested, into a bucket of its own, and all of it
is taken back. One row a text: its action, the text that it was decided against (other_id), similarity, guard and reason as in the
ledger; a judge is not asked, so what is escalated stays beside the other. embedding_model: null: the one that the bucket uses most;
texts without its vector are left out. max_memories: of the newest so many texts, 1 to 100000. Only for members of memfold_owner.
Raises MF001 to MF003, MF013, MF022, MF043, MF045.';
revoke all on function memfold.replay_bucket(tenant_id text, bucket_id text, calibration_id uuid, embedding_model text, max_memories bigint) from public;
grant execute on function memfold.replay_bucket(tenant_id text, bucket_id text, calibration_id uuid, embedding_model text, max_memories bigint) to memfold_owner;

create function memfold.resolve_judgement(judgement_id uuid, verdict text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), confidence double precision DEFAULT 1, reason text DEFAULT NULL::text, merged_text text DEFAULT NULL::text, richer_memory_id uuid DEFAULT NULL::uuid, model text DEFAULT NULL::text, input_tokens bigint DEFAULT NULL::bigint, output_tokens bigint DEFAULT NULL::bigint, cost double precision DEFAULT NULL::double precision, member_ids uuid[] DEFAULT NULL::uuid[])
returns memfold.resolution
language plproxy volatile set search_path = pg_catalog, pg_temp set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route_judge(tenant_id);
    select * from memfold.resolve_judgement("judgement_id" => $1, "verdict" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "confidence" => $4, "reason" => $5, "merged_text" => $6, "richer_memory_id" => $7, "model" => $8, "input_tokens" => $9, "output_tokens" => $10, "cost" => $11, "member_ids" => $12);
$$;
comment on function memfold.resolve_judgement(judgement_id uuid, verdict text, tenant_id text, confidence double precision, reason text, merged_text text, richer_memory_id uuid, model text, input_tokens bigint, output_tokens bigint, cost double precision, member_ids uuid[]) is
'Answers a judgement, under the lock of its scope and only if its memories are still what was judged. verdict: duplicate (the
newer memories are folded into the oldest), refinement (the richer text becomes active), contradiction (the conflict policy
decides) or distinct (all are kept). confidence in [0, 1]: below the policy''s confidence_floor all are kept, as unsure. Of unequal
values of a single-valued slot, which cannot all be kept, the conflict policy decides then too.
richer_memory_id: of a refinement, the memory that says more; null: the longest text. merged_text: of kind synthesis, the text that says
what all say; without one, or with one of punctuation alone, all are kept, with a warning. member_ids: of a cluster, those that the
verdict is about (null: all); the others are distinct from them, and if there are several of them they are asked about again.
Of kind identity, where two names are asked about, duplicate links the alias to the name (action linked; undo_run() of the result''s run_id
takes it back) and distinct keeps them apart; both for good. Members of memfold_agent may not answer these (42501): they may not link names.
model null: a person answered. The first answer counts.
Raises MF001 to MF003, MF025, MF026 (no such judgement), MF027 (it is closed), MF028 (an argument is not allowed).';
revoke all on function memfold.resolve_judgement(judgement_id uuid, verdict text, tenant_id text, confidence double precision, reason text, merged_text text, richer_memory_id uuid, model text, input_tokens bigint, output_tokens bigint, cost double precision, member_ids uuid[]) from public;
grant execute on function memfold.resolve_judgement(judgement_id uuid, verdict text, tenant_id text, confidence double precision, reason text, merged_text text, richer_memory_id uuid, model text, input_tokens bigint, output_tokens bigint, cost double precision, member_ids uuid[]) to memfold_agent, memfold_app, memfold_judge, memfold_owner;

create function memfold.run_maintenance(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), tasks text[] DEFAULT '{plain,decay,counters,syntheses,keys,runs,embed,links,cycles}'::text[])
returns jsonb
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.run_maintenance("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "tasks" => $2);
$$;
comment on function memfold.run_maintenance(tenant_id text, tasks text[]) is
'Does a bounded amount of what is due for a tenant. Tasks: plain (ingest_plain_rows), decay (apply_decay, where options have a
decay_rate), counters (joins the stripes of counters that are no longer contended), syntheses (dead ones fall back as their policy says),
keys (idempotency keys older than the options'' key_retention), runs (closes those whose judgements are all answered), embed (embed_pending, where a policy embeds in the database), links (takes up a hundred texts under
the alias of a link that is not taken up), cycles (consolidate, sweep_duplicates, prune_memories and ask_links of buckets whose
options have an interval for them, once each time that it has passed); not by default clean (clean_exact_duplicates) and sweep
(sweep_duplicates, which may queue judgements), a few buckets a call, in turn. Returns JSON: counts and ms by task; left, the
tasks that have more to do: call again; busy, those of them that met a lock; errors by task. A task that fails does not stop
the others, but locks are held until the end: one task a call where writers are many. Leaves a row in runs (kind maintenance,
status failed where a task has failed), and deletes those of its rows, and of kind decay, that are older than 30 days, 100 a call. Raises MF001 to MF003, MF022.';
revoke all on function memfold.run_maintenance(tenant_id text, tasks text[]) from public;
grant execute on function memfold.run_maintenance(tenant_id text, tasks text[]) to memfold_app, memfold_owner;

create function memfold.search_memories(query_embedding vector DEFAULT NULL::vector, embedding_model text DEFAULT NULL::text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, max_results bigint DEFAULT 10, memory_type text DEFAULT NULL::text, subject text DEFAULT NULL::text, predicate text DEFAULT NULL::text, session_id text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, min_confidence double precision DEFAULT NULL::double precision, as_of timestamp with time zone DEFAULT NULL::timestamp with time zone, deduplicate boolean DEFAULT true, dedup_threshold double precision DEFAULT NULL::double precision, touch boolean DEFAULT NULL::boolean, show_collapsed boolean DEFAULT false, query text DEFAULT NULL::text, bucket_ids text[] DEFAULT NULL::text[], bucket_prefix text DEFAULT NULL::text, metadata_path jsonpath DEFAULT NULL::jsonpath)
returns SETOF memfold.found_memory
language plproxy volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO' set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.search_memories("query_embedding" => $1, "embedding_model" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "bucket_id" => $4, "max_results" => $5, "memory_type" => $6, "subject" => $7, "predicate" => $8, "session_id" => $9, "metadata" => $10, "min_confidence" => $11, "as_of" => $12, "deduplicate" => $13, "dedup_threshold" => $14, "touch" => $15, "show_collapsed" => $16, "query" => $17, "bucket_ids" => $18, "bucket_prefix" => $19, "metadata_path" => $20);
$$;
comment on function memfold.search_memories(query_embedding vector, embedding_model text, tenant_id text, bucket_id text, max_results bigint, memory_type text, subject text, predicate text, session_id text, metadata jsonb, min_confidence double precision, as_of timestamp with time zone, deduplicate boolean, dedup_threshold double precision, touch boolean, show_collapsed boolean, query text, bucket_ids text[], bucket_prefix text, metadata_path jsonpath) is
'The active memories, valid now (valid_from, valid_until), that fit a query best, each fact once: nearest to its vector
(query_embedding), or with most of its words (query: in content, subject, predicate and object, rare words counting more, by the
options'' text_search), or both. Candidates are the 3 *
max_results best texts of a bucket by each that pass the filters (null: none; subject and predicate in canonical form, metadata contained,
metadata_path a jsonpath condition, min_confidence: the options''); a text that was merged leads to its memory (matched_id). Of bucket_id,
or else of bucket_ids and all buckets that begin with bucket_prefix, 1,000 at most. They are ranked by score = (1 - rank_confidence -
rank_feedback) * fit + rank_confidence * effective confidence + rank_feedback * (helpful + 1) / (helpful + harmful + 2); fit is
matched_similarity, word_share, or of both 30.5 * (1 / (60 + rank by vector) + 1 / (60 + rank by words)). Then, unless deduplicate is false,
memories that say the same are shown as one, those of several buckets too: cosine of at least dedup_threshold (null: the options''
search_threshold, else the model''s judge threshold; where one has no vector, words in common of at least 0.8) with each other, the guard
clean, same predicate, no other subject or object, not judged contradiction or distinct. Shown is the longest in canonical form, then the
most confident, then the newest; the others are its collapsed_ids (show_collapsed: rows of their own, after it, all with their own score).
Where too few are left, it looks further, at up to 48 * max_results. It looks at all of a bucket of up to 100,000 vectors, and texts; of a
larger one by an index (create_vector_index, used from 10,000 on, nearly always right; create_text_index), else at its newest 100,000:
then complete is false in each row, and a NOTICE (01M01) names the statement that makes the index. At all, however many, of one session_id,
and with as_of: what was believed at that time, values that were superseded since included, validity and confidence as of then. touch (null: the
options'', unless as_of is given or the transaction is read-only): counts what is shown in access_count and last_accessed. Raises MF001 to MF003,
MF012 to MF015, MF022.';
revoke all on function memfold.search_memories(query_embedding vector, embedding_model text, tenant_id text, bucket_id text, max_results bigint, memory_type text, subject text, predicate text, session_id text, metadata jsonb, min_confidence double precision, as_of timestamp with time zone, deduplicate boolean, dedup_threshold double precision, touch boolean, show_collapsed boolean, query text, bucket_ids text[], bucket_prefix text, metadata_path jsonpath) from public;
grant execute on function memfold.search_memories(query_embedding vector, embedding_model text, tenant_id text, bucket_id text, max_results bigint, memory_type text, subject text, predicate text, session_id text, metadata jsonb, min_confidence double precision, as_of timestamp with time zone, deduplicate boolean, dedup_threshold double precision, touch boolean, show_collapsed boolean, query text, bucket_ids text[], bucket_prefix text, metadata_path jsonpath) to memfold_agent, memfold_app, memfold_owner;

create function memfold_internal._all_set_options(tenant_id text, bucket_id text, memory_type text, min_confidence double precision, search_threshold double precision, touch boolean, rank_confidence double precision, rank_feedback double precision, consolidate_threshold double precision, max_cluster_size bigint, session_threshold double precision, protected_types text[], protected_confidence double precision, decay_rate double precision, decay_floor double precision, decay_interval interval, key_retention interval, consolidate_interval interval, sweep_interval interval, prune_interval interval, text_search text, link_interval interval)
returns setof memfold.options
language plproxy volatile set search_path = pg_catalog, pg_temp set intervalstyle = 'postgres' set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route_rules(tenant_id);
    select * from memfold.set_options("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "memory_type" => $3, "min_confidence" => $4, "search_threshold" => $5, "touch" => $6, "rank_confidence" => $7, "rank_feedback" => $8, "consolidate_threshold" => $9, "max_cluster_size" => $10, "session_threshold" => $11, "protected_types" => $12, "protected_confidence" => $13, "decay_rate" => $14, "decay_floor" => $15, "decay_interval" => $16, "key_retention" => $17, "consolidate_interval" => $18, "sweep_interval" => $19, "prune_interval" => $20, "text_search" => $21, "link_interval" => $22);
$$;
comment on function memfold_internal._all_set_options(text, text, text, double precision, double precision, boolean, double precision, double precision, double precision, bigint, double precision, text[], double precision, double precision, double precision, interval, interval, interval, interval, interval, text, interval) is
'set_options() on every server that it is for.';
revoke all on function memfold_internal._all_set_options(text, text, text, double precision, double precision, boolean, double precision, double precision, double precision, bigint, double precision, text[], double precision, double precision, double precision, interval, interval, interval, interval, interval, text, interval) from public;
grant execute on function memfold_internal._all_set_options(text, text, text, double precision, double precision, boolean, double precision, double precision, double precision, bigint, double precision, text[], double precision, double precision, double precision, interval, interval, interval, interval, interval, text, interval) to memfold_app, memfold_owner;

create function memfold.set_options(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT '*'::text, memory_type text DEFAULT '*'::text, min_confidence double precision DEFAULT NULL::double precision, search_threshold double precision DEFAULT NULL::double precision, touch boolean DEFAULT NULL::boolean, rank_confidence double precision DEFAULT NULL::double precision, rank_feedback double precision DEFAULT NULL::double precision, consolidate_threshold double precision DEFAULT NULL::double precision, max_cluster_size bigint DEFAULT NULL::bigint, session_threshold double precision DEFAULT NULL::double precision, protected_types text[] DEFAULT NULL::text[], protected_confidence double precision DEFAULT NULL::double precision, decay_rate double precision DEFAULT NULL::double precision, decay_floor double precision DEFAULT NULL::double precision, decay_interval interval DEFAULT NULL::interval, key_retention interval DEFAULT NULL::interval, consolidate_interval interval DEFAULT NULL::interval, sweep_interval interval DEFAULT NULL::interval, prune_interval interval DEFAULT NULL::interval, text_search text DEFAULT NULL::text, link_interval interval DEFAULT NULL::interval)
returns memfold.options
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    return (select r from memfold_internal._all_set_options($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) as r limit 1);
end;
$$;
comment on function memfold.set_options(tenant_id text, bucket_id text, memory_type text, min_confidence double precision, search_threshold double precision, touch boolean, rank_confidence double precision, rank_feedback double precision, consolidate_threshold double precision, max_cluster_size bigint, session_threshold double precision, protected_types text[], protected_confidence double precision, decay_rate double precision, decay_floor double precision, decay_interval interval, key_retention interval, consolidate_interval interval, sweep_interval interval, prune_interval interval, text_search text, link_interval interval) is
'Sets what recall and maintenance read of a tenant, a bucket, or one type of a bucket (''*'' = any), and returns it. What is left out
stays as it is there, or as the less specific row has it. The arguments are the columns of memfold.options; set_policy(preset => ...)
sets them all. None of them changes what becomes of a candidate. Raises MF001 to MF003, MF017 (a value that is not allowed), MF025.';
revoke all on function memfold.set_options(tenant_id text, bucket_id text, memory_type text, min_confidence double precision, search_threshold double precision, touch boolean, rank_confidence double precision, rank_feedback double precision, consolidate_threshold double precision, max_cluster_size bigint, session_threshold double precision, protected_types text[], protected_confidence double precision, decay_rate double precision, decay_floor double precision, decay_interval interval, key_retention interval, consolidate_interval interval, sweep_interval interval, prune_interval interval, text_search text, link_interval interval) from public;
grant execute on function memfold.set_options(tenant_id text, bucket_id text, memory_type text, min_confidence double precision, search_threshold double precision, touch boolean, rank_confidence double precision, rank_feedback double precision, consolidate_threshold double precision, max_cluster_size bigint, session_threshold double precision, protected_types text[], protected_confidence double precision, decay_rate double precision, decay_floor double precision, decay_interval interval, key_retention interval, consolidate_interval interval, sweep_interval interval, prune_interval interval, text_search text, link_interval interval) to memfold_app, memfold_owner;

create function memfold_internal._all_set_policy(tenant_id text, bucket_id text, memory_type text, preset text, dedup text, canonicalizer text, key_fields text[], metadata_keys text[], scope text, neighbours bigint, merge_threshold double precision, merge_inclusive boolean, judge_threshold double precision, similar_threshold double precision, lexical_threshold double precision, lexical_neighbours bigint, session_neighbours bigint, guard text, merge_veto double precision, on_ambiguous text, on_merge text, on_refinement text, on_judge_failure text, metadata_merge text, metadata_max text[], conflict text, confidence_floor double precision, notify boolean, weights double precision[], max_content_length bigint, max_metadata_size bigint, max_session_repeats bigint, embed text, embed_model text, segmenter text)
returns setof memfold.policies
language plproxy volatile set search_path = pg_catalog, pg_temp set extra_float_digits = 1
as $$
    cluster 'memfold';
    run on memfold_internal._route_rules(tenant_id);
    select * from memfold.set_policy("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "memory_type" => $3, "preset" => $4, "dedup" => $5, "canonicalizer" => $6, "key_fields" => $7, "metadata_keys" => $8, "scope" => $9, "neighbours" => $10, "merge_threshold" => $11, "merge_inclusive" => $12, "judge_threshold" => $13, "similar_threshold" => $14, "lexical_threshold" => $15, "lexical_neighbours" => $16, "session_neighbours" => $17, "guard" => $18, "merge_veto" => $19, "on_ambiguous" => $20, "on_merge" => $21, "on_refinement" => $22, "on_judge_failure" => $23, "metadata_merge" => $24, "metadata_max" => $25, "conflict" => $26, "confidence_floor" => $27, "notify" => $28, "weights" => $29, "max_content_length" => $30, "max_metadata_size" => $31, "max_session_repeats" => $32, "embed" => $33, "embed_model" => $34, "segmenter" => $35);
$$;
comment on function memfold_internal._all_set_policy(text, text, text, text, text, text, text[], text[], text, bigint, double precision, boolean, double precision, double precision, double precision, bigint, bigint, text, double precision, text, text, text, text, text, text[], text, double precision, boolean, double precision[], bigint, bigint, bigint, text, text, text) is
'set_policy() on every server that it is for.';
revoke all on function memfold_internal._all_set_policy(text, text, text, text, text, text, text[], text[], text, bigint, double precision, boolean, double precision, double precision, double precision, bigint, bigint, text, double precision, text, text, text, text, text, text[], text, double precision, boolean, double precision[], bigint, bigint, bigint, text, text, text) from public;
grant execute on function memfold_internal._all_set_policy(text, text, text, text, text, text, text[], text[], text, bigint, double precision, boolean, double precision, double precision, double precision, bigint, bigint, text, double precision, text, text, text, text, text, text[], text, double precision, boolean, double precision[], bigint, bigint, bigint, text, text, text) to memfold_app, memfold_owner;

create function memfold.set_policy(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT '*'::text, memory_type text DEFAULT '*'::text, preset text DEFAULT NULL::text, dedup text DEFAULT NULL::text, canonicalizer text DEFAULT NULL::text, key_fields text[] DEFAULT NULL::text[], metadata_keys text[] DEFAULT NULL::text[], scope text DEFAULT NULL::text, neighbours bigint DEFAULT NULL::bigint, merge_threshold double precision DEFAULT NULL::double precision, merge_inclusive boolean DEFAULT NULL::boolean, judge_threshold double precision DEFAULT NULL::double precision, similar_threshold double precision DEFAULT NULL::double precision, lexical_threshold double precision DEFAULT NULL::double precision, lexical_neighbours bigint DEFAULT NULL::bigint, session_neighbours bigint DEFAULT NULL::bigint, guard text DEFAULT NULL::text, merge_veto double precision DEFAULT NULL::double precision, on_ambiguous text DEFAULT NULL::text, on_merge text DEFAULT NULL::text, on_refinement text DEFAULT NULL::text, on_judge_failure text DEFAULT NULL::text, metadata_merge text DEFAULT NULL::text, metadata_max text[] DEFAULT NULL::text[], conflict text DEFAULT NULL::text, confidence_floor double precision DEFAULT NULL::double precision, notify boolean DEFAULT NULL::boolean, weights double precision[] DEFAULT NULL::double precision[], max_content_length bigint DEFAULT NULL::bigint, max_metadata_size bigint DEFAULT NULL::bigint, max_session_repeats bigint DEFAULT NULL::bigint, embed text DEFAULT NULL::text, embed_model text DEFAULT NULL::text, segmenter text DEFAULT NULL::text)
returns memfold.policies
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    return (select r from memfold_internal._all_set_policy($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35) as r limit 1);
end;
$$;
comment on function memfold.set_policy(tenant_id text, bucket_id text, memory_type text, preset text, dedup text, canonicalizer text, key_fields text[], metadata_keys text[], scope text, neighbours bigint, merge_threshold double precision, merge_inclusive boolean, judge_threshold double precision, similar_threshold double precision, lexical_threshold double precision, lexical_neighbours bigint, session_neighbours bigint, guard text, merge_veto double precision, on_ambiguous text, on_merge text, on_refinement text, on_judge_failure text, metadata_merge text, metadata_max text[], conflict text, confidence_floor double precision, notify boolean, weights double precision[], max_content_length bigint, max_metadata_size bigint, max_session_repeats bigint, embed text, embed_model text, segmenter text) is
'Sets the rules of a tenant, a bucket, or one type of a bucket (''*'' = any) and returns them. What is left out stays as
it is there, or as the less specific policy has it. preset: three_tier (the defaults), store_and_load, hash_first,
replace_newer or robotics, as what the other arguments start from; it sets the options of the same key too (set_options). key_fields:
of type, subject, predicate. weights: source, extractor, repetition, adding up to 1. dedup => ''off'' stores without a hash.
canonicalizer: prose, flat, code, exact, or lemma:en (de, fr, es, it, pt, auto; memfold_py). embed => ''in_database'': the
database makes the vectors, by embed_model (memfold_py).
The other arguments are the columns of memfold.policies. Raises MF017 (a value that is not allowed), MF011 (no such
canonicalizer), MF024 (the hash of stored memories would change), MF012 or MF013 (no registered embed_model), MF056 (memfold_py
is missing), MF058, MF059.';
revoke all on function memfold.set_policy(tenant_id text, bucket_id text, memory_type text, preset text, dedup text, canonicalizer text, key_fields text[], metadata_keys text[], scope text, neighbours bigint, merge_threshold double precision, merge_inclusive boolean, judge_threshold double precision, similar_threshold double precision, lexical_threshold double precision, lexical_neighbours bigint, session_neighbours bigint, guard text, merge_veto double precision, on_ambiguous text, on_merge text, on_refinement text, on_judge_failure text, metadata_merge text, metadata_max text[], conflict text, confidence_floor double precision, notify boolean, weights double precision[], max_content_length bigint, max_metadata_size bigint, max_session_repeats bigint, embed text, embed_model text, segmenter text) from public;
grant execute on function memfold.set_policy(tenant_id text, bucket_id text, memory_type text, preset text, dedup text, canonicalizer text, key_fields text[], metadata_keys text[], scope text, neighbours bigint, merge_threshold double precision, merge_inclusive boolean, judge_threshold double precision, similar_threshold double precision, lexical_threshold double precision, lexical_neighbours bigint, session_neighbours bigint, guard text, merge_veto double precision, on_ambiguous text, on_merge text, on_refinement text, on_judge_failure text, metadata_merge text, metadata_max text[], conflict text, confidence_floor double precision, notify boolean, weights double precision[], max_content_length bigint, max_metadata_size bigint, max_session_repeats bigint, embed text, embed_model text, segmenter text) to memfold_app, memfold_owner;

create function memfold_internal._all_set_predicate(predicate text, tenant_id text, cardinality text, conflict text)
returns setof void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_rules(tenant_id);
    select * from memfold.set_predicate("predicate" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "cardinality" => $3, "conflict" => $4);
$$;
comment on function memfold_internal._all_set_predicate(text, text, text, text) is
'set_predicate() on every server that it is for.';
revoke all on function memfold_internal._all_set_predicate(text, text, text, text) from public;
grant execute on function memfold_internal._all_set_predicate(text, text, text, text) to memfold_app, memfold_owner;

create function memfold.set_predicate(predicate text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), cardinality text DEFAULT 'one'::text, conflict text DEFAULT NULL::text)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._all_set_predicate($1, $2, $3, $4);
end;
$$;
comment on function memfold.set_predicate(predicate text, tenant_id text, cardinality text, conflict text) is
'Says how many values a predicate has at a time: one (a new value supersedes the old one, by the conflict policy) or many.
It governs candidates from now on; what is stored stays as it is. Raises MF003, MF017.';
revoke all on function memfold.set_predicate(predicate text, tenant_id text, cardinality text, conflict text) from public;
grant execute on function memfold.set_predicate(predicate text, tenant_id text, cardinality text, conflict text) to memfold_app, memfold_owner;

create function memfold.start_reembedding(from_model text, to_model text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true))
returns uuid
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.start_reembedding("from_model" => $1, "to_model" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true));
$$;
comment on function memfold.start_reembedding(from_model text, to_model text, tenant_id text) is
'Begins to give the memories of a tenant, which have vectors of from_model, vectors of to_model too, or goes on where an earlier
run has stopped: a row in runs, of kind reembedding. Then, again and again, missing_embeddings() says what is to be embedded and
add_embeddings() stores it; at last end_reembedding(). Raises MF001 to MF003, MF013, MF022, MF047 (to_model has been replaced).';
revoke all on function memfold.start_reembedding(from_model text, to_model text, tenant_id text) from public;
grant execute on function memfold.start_reembedding(from_model text, to_model text, tenant_id text) to memfold_app, memfold_owner;

create function memfold.suggest_links(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, max_results bigint DEFAULT 100)
returns SETOF memfold.link_suggestion
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.suggest_links("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "max_results" => $3);
$$;
comment on function memfold.suggest_links(tenant_id text, bucket_id text, max_results bigint) is
'Names of a bucket that may be one, for a person or a judge to look at: nothing is linked. kind subject or predicate; alias, name: the
arguments of link_subject() or link_predicate() (alias null: texts without a subject begin with the name); score in (0, 1], best first. reasons:
contained (the words of the alias are among those of the name), initials, facts (the same was told of both, in the same words or at the
model''s merge threshold), ambiguous (other names have these words too), beginning; of predicates slots (the same subjects and objects). evidence:
how many facts each has (facts, name_facts) and both have (shared), pairs of their memory ids, and up to five ids that are told of
each (memory_ids, name_memory_ids). Names that the guard tells apart
("Georg Maier", "Georg Huber") are never suggested, nor those that a judge or a person has told apart (ask_links),
or that were unlinked. Looks at the newest 50,000 active memories, by vectors at the newest 1,000.
Raises MF001 to MF003, MF022.';
revoke all on function memfold.suggest_links(tenant_id text, bucket_id text, max_results bigint) from public;
grant execute on function memfold.suggest_links(tenant_id text, bucket_id text, max_results bigint) to memfold_app, memfold_owner;

create function memfold.supersede_memory(memory_id uuid, by_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text)
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.supersede_memory("memory_id" => $1, "by_id" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "reason" => $4);
$$;
comment on function memfold.supersede_memory(memory_id uuid, by_id uuid, tenant_id text, reason text) is
'A person retires a memory in favour of another of the same bucket: memory_id becomes history from now on, by_id is current.
Stated again later, the retired one is current again. Ids of aliases stand for where they lead. undo(event_id) takes it
back. Raises MF018 (no such memory), MF034 (the same memory, another bucket, rejected or withdrawn), MF025.';
revoke all on function memfold.supersede_memory(memory_id uuid, by_id uuid, tenant_id text, reason text) from public;
grant execute on function memfold.supersede_memory(memory_id uuid, by_id uuid, tenant_id text, reason text) to memfold_app, memfold_owner;

create function memfold.sweep_duplicates(tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, embedding_model text DEFAULT NULL::text, dry_run boolean DEFAULT true, max_operations bigint DEFAULT 200, memory_ids uuid[] DEFAULT NULL::uuid[], into_run uuid DEFAULT NULL::uuid)
returns TABLE(run_id uuid, cluster bigint, memory_id uuid, representative_id uuid, similarity double precision, guard text[], content text, representative_content text, action text)
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.sweep_duplicates("tenant_id" => pg_catalog.set_config('memfold.tenant_id', $1, true), "bucket_id" => $2, "embedding_model" => $3, "dry_run" => $4, "max_operations" => $5, "memory_ids" => $6, "into_run" => $7);
$$;
comment on function memfold.sweep_duplicates(tenant_id text, bucket_id text, embedding_model text, dry_run boolean, max_operations bigint, memory_ids uuid[], into_run uuid) is
'Does to the memories that are there what ingest would do to them if they arrived now, by the thresholds, the scope, the guard, on_merge and
on_ambiguous of the policy: of a bucket that was filled without dedup, or by other rules. Each member of a cluster is compared with the
memory that it would fold into; none is folded because it is near to another member. What is asked about is asked in clusters in which
each is near to each, of at most max_cluster_size memories, one question each. dry_run (the default) returns the plan and writes nothing. action:
merge (memory_id folds into representative_id), replace (the same, and representative_id is the newer text), ask (a judgement is queued
about the cluster, of which representative_id is the oldest), keep (the policy says
so; not counted). Does at most max_operations (1 to 1000; of a dry run 1 to 1000000), the most similar first, and with the bucket locked: call it until it returns
no row but keep. memory_ids: only these are compared with one another, such as those of a dry run; into_run: goes on with that run, so that one
undo_run() takes all of it back. Protected types and memories without a hash or a vector are left out. Raises MF001 to MF003, MF013,
MF022, MF025, MF038.';
revoke all on function memfold.sweep_duplicates(tenant_id text, bucket_id text, embedding_model text, dry_run boolean, max_operations bigint, memory_ids uuid[], into_run uuid) from public;
grant execute on function memfold.sweep_duplicates(tenant_id text, bucket_id text, embedding_model text, dry_run boolean, max_operations bigint, memory_ids uuid[], into_run uuid) to memfold_app, memfold_owner;

create function memfold.undo(event_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text)
returns SETOF memfold.undone_memory
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.undo("event_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "reason" => $3);
$$;
comment on function memfold.undo(event_id uuid, tenant_id text, reason text) is
'Takes back one event of the ledger, no matter who made it, in any order: a fold (both texts are memories of their own again, with
every observation that arrived by them), a supersession (both are active, and a person is asked), a rejection, a pruning, or one
restatement (tier 1: the observation no longer counts). Returns the memories of the event as they are now. Nothing is
deleted: an undone row follows in the ledger. Raises MF029 (no such event), MF032 (it cannot be undone), MF033 (it is).';
revoke all on function memfold.undo(event_id uuid, tenant_id text, reason text) from public;
grant execute on function memfold.undo(event_id uuid, tenant_id text, reason text) to memfold_agent, memfold_app, memfold_owner;

create function memfold.undo_run(run_id uuid, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), reason text DEFAULT NULL::text)
returns SETOF memfold.undone_memory
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.undo_run("run_id" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "reason" => $3);
$$;
comment on function memfold.undo_run(run_id uuid, tenant_id text, reason text) is
'Takes a whole run of maintenance back, as undo() does its events one by one: what it folded, replaced, superseded, rejected or pruned. What
was stated since stays, and counts where its text leads now. Its judgements that wait are obsolete. A text that its judge had
written is withdrawn. What it had made one memory is told apart, each text from each: no run merges or asks about it again. Returns the memories concerned as they are now. Writers of the bucket wait for it: up to three seconds
for 1,000 folds. Of a run of link_subject() or link_predicate() it takes back the link (unlink_subject()), and returns no row. Raises MF001 to MF003, MF025, MF038 (no such run), MF039 (it is undone, or of a kind that cannot be).';
revoke all on function memfold.undo_run(run_id uuid, tenant_id text, reason text) from public;
grant execute on function memfold.undo_run(run_id uuid, tenant_id text, reason text) to memfold_app, memfold_owner;

create function memfold.unlink_predicate(alias text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text)
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.unlink_predicate("alias" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3);
$$;
comment on function memfold.unlink_predicate(alias text, tenant_id text, bucket_id text) is
'Takes link_predicate() back, as unlink_subject() does link_subject(). Raises MF001 to MF003, MF025, MF064 (there is no such link).';
revoke all on function memfold.unlink_predicate(alias text, tenant_id text, bucket_id text) from public;
grant execute on function memfold.unlink_predicate(alias text, tenant_id text, bucket_id text) to memfold_app, memfold_owner;

create function memfold.unlink_subject(alias text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), bucket_id text DEFAULT 'default'::text, subject text DEFAULT NULL::text)
returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.unlink_subject("alias" => $1, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $2, true), "bucket_id" => $3, "subject" => $4);
$$;
comment on function memfold.unlink_subject(alias text, tenant_id text, bucket_id text, subject text) is
'Takes link_subject() back: the alias stands for itself. Texts that first came under it have it again, also those that came since it was
linked, with all that was observed of them; what was merged because it had one name comes apart. What a judge, a sweep or a person has
merged since stays merged: undo it as well. The two names are distinct from now on: suggest_links() leaves them out, link_subject() does not. alias null: of texts without a subject that begin with this one. Returns how many texts have
another name now. In one transaction; writers of the bucket wait for that long. Raises MF001 to MF003, MF025, MF064 (there is no such link).';
revoke all on function memfold.unlink_subject(alias text, tenant_id text, bucket_id text, subject text) from public;
grant execute on function memfold.unlink_subject(alias text, tenant_id text, bucket_id text, subject text) to memfold_app, memfold_owner;

create function memfold_internal._all_unregister_embedding_model(embedding_model text)
returns setof void
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on all;
    select * from memfold.unregister_embedding_model("embedding_model" => $1);
$$;
comment on function memfold_internal._all_unregister_embedding_model(text) is
'unregister_embedding_model() on every server that it is for.';
revoke all on function memfold_internal._all_unregister_embedding_model(text) from public;
grant execute on function memfold_internal._all_unregister_embedding_model(text) to memfold_owner;

create function memfold.unregister_embedding_model(embedding_model text)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._all_unregister_embedding_model($1);
end;
$$;
comment on function memfold.unregister_embedding_model(embedding_model text) is
'Forgets an embedding model that has been replaced and has neither vectors nor an index left. Its calibrations stay, for those who
read them. Only for members of memfold_owner. Raises MF013, MF048 (it has not been replaced, or something is left of it).';
revoke all on function memfold.unregister_embedding_model(embedding_model text) from public;
grant execute on function memfold.unregister_embedding_model(embedding_model text) to memfold_owner;

create function memfold.update_memory(memory_id uuid, content text, tenant_id text DEFAULT current_setting('memfold.tenant_id'::text, true), object text DEFAULT NULL::text, embedding vector DEFAULT NULL::vector, embedding_model text DEFAULT NULL::text, reason text DEFAULT NULL::text)
returns memfold.ingest_result
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route(tenant_id);
    select * from memfold.update_memory("memory_id" => $1, "content" => $2, "tenant_id" => pg_catalog.set_config('memfold.tenant_id', $3, true), "object" => $4, "embedding" => $5, "embedding_model" => $6, "reason" => $7);
$$;
comment on function memfold.update_memory(memory_id uuid, content text, tenant_id text, object text, embedding vector, embedding_model text, reason text) is
'A person gives a memory another text (and object): a text never changes, so the new one becomes a memory of the same
scope, into which the old one is folded; ids and observations of the old one lead to it. With an embedding tier 2 runs for
the new text: action is then merged or escalated where it meets another memory, else replaced. undo(event_id) takes it
back. Raises MF018 (no such memory), MF034 (it says this already, or is rejected or withdrawn), MF004 to MF015, MF025.';
revoke all on function memfold.update_memory(memory_id uuid, content text, tenant_id text, object text, embedding vector, embedding_model text, reason text) from public;
grant execute on function memfold.update_memory(memory_id uuid, content text, tenant_id text, object text, embedding vector, embedding_model text, reason text) to memfold_agent, memfold_app, memfold_owner;

-- The judges' queue: of one tenant, or of all, server after server.

create function memfold_internal._claim_on(
    shard integer, worker text, max bigint, lease interval, review boolean, tenant_id text, judgement_ids uuid[]
) returns setof memfold.claimed_judgement
language plproxy volatile set search_path = pg_catalog, pg_temp set intervalstyle = 'postgres'
as $$
    cluster 'memfold';
    run on memfold_internal._route_queue(tenant_id, shard);
    select * from memfold.claim_judgements("worker" => $2, "max_results" => $3, "lease" => $4, "review" => $5,
        "tenant_id" => case when $6 is not null then pg_catalog.set_config('memfold.tenant_id', $6, true) end,
        "judgement_ids" => $7);
$$;
comment on function memfold_internal._claim_on(integer, text, bigint, interval, boolean, text, uuid[]) is
'claim_judgements() on one server.';

create function memfold_internal._retry_judgements_on(shard integer, tenant_id text) returns bigint
language plproxy volatile set search_path = pg_catalog, pg_temp
as $$
    cluster 'memfold';
    run on memfold_internal._route_queue(tenant_id, shard);
    select * from memfold.retry_judgements(
        "tenant_id" => case when $2 is not null then pg_catalog.set_config('memfold.tenant_id', $2, true) end);
$$;
comment on function memfold_internal._retry_judgements_on(integer, text) is 'retry_judgements() on one server.';

create function memfold.claim_judgements(worker text, tenant_id text DEFAULT NULLIF(current_setting('memfold.tenant_id'::text, true), ''::text), max_results bigint DEFAULT 10, lease interval DEFAULT '00:01:00'::interval, review boolean DEFAULT false, judgement_ids uuid[] DEFAULT NULL::uuid[]) returns SETOF memfold.claimed_judgement
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue(tenant_id);
    v_shards constant integer := memfold_internal._shards();
    -- each claim of a session begins behind the server that the last one ended with
    v_start constant integer := coalesce(nullif(current_setting('memfold.claimed_shard', true), '')::integer, 0);
    v_left bigint := max_results;
    v_given bigint;
    v_lost integer := 0;
begin
    if v_tenant_id is not null then
        return query select * from memfold_internal._claim_on(0, worker, max_results, lease, review,
            v_tenant_id, judgement_ids);
        return;
    end if;
    for v_step in 1..v_shards loop
        begin
            return query select * from memfold_internal._claim_on((v_start + v_step) % v_shards, worker, v_left, lease,
                review, null, judgement_ids);
            get diagnostics v_given = row_count;
        -- of PL/Proxy itself (no connection), and of a server that goes away
        exception when internal_error or connection_exception or admin_shutdown or crash_shutdown or cannot_connect_now then
            v_lost := v_lost + 1;
            if v_lost = v_shards then
                raise;
            end if;
            -- the other servers' judgements can be answered all the same
            raise warning 'server % of the cluster memfold: %', (v_start + v_step) % v_shards, sqlerrm;
            v_given := 0;
        end;
        v_left := v_left - v_given;
        if v_left <= 0 then
            perform set_config('memfold.claimed_shard', ((v_start + v_step) % v_shards)::text, false);
            exit;
        end if;
    end loop;
end;
$$;

create function memfold.retry_judgements(tenant_id text DEFAULT NULLIF(current_setting('memfold.tenant_id'::text, true), ''::text)) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue(tenant_id);
begin
    if v_tenant_id is not null then
        return memfold_internal._retry_judgements_on(0, v_tenant_id);
    end if;
    return (
        select sum(memfold_internal._retry_judgements_on(s, null))
        from generate_series(0, memfold_internal._shards() - 1) as s
    );
end;
$$;

comment on function memfold.claim_judgements(worker text, tenant_id text, max_results bigint, lease interval, review boolean, judgement_ids uuid[]) is
'Leases at most max_results (1 to 1,000) judgements to a worker (any name): the oldest of a tenant first, tenants in turn. Others
do not see them until the lease (1 s to 1 day) ends; each claim counts one attempt of eight. review: those that wait for
a person. members: of a cluster, all of its memories, oldest to newest. link: of kind identity, the names
that are asked about. tenant_id null: of all tenants, which members of memfold_judge may. judgement_ids: only these. Answer each with
resolve_judgement() or fail_judgement(). Raises MF001 to MF003, MF028.';
revoke all on function memfold.claim_judgements(worker text, tenant_id text, max_results bigint, lease interval, review boolean, judgement_ids uuid[]) from public;
grant execute on function memfold.claim_judgements(worker text, tenant_id text, max_results bigint, lease interval, review boolean, judgement_ids uuid[]) to memfold_app, memfold_judge, memfold_owner;

comment on function memfold.retry_judgements(tenant_id text) is
'Queues dead judgements again, with eight attempts each, and returns how many. tenant_id null: of all tenants, which
members of memfold_judge may. Raises MF001 to MF003.';
revoke all on function memfold.retry_judgements(tenant_id text) from public;
grant execute on function memfold.retry_judgements(tenant_id text) to memfold_app, memfold_judge, memfold_owner;

revoke all on function memfold_internal._claim_on(integer, text, bigint, interval, boolean, text, uuid[]) from public;
grant execute on function memfold_internal._claim_on(integer, text, bigint, interval, boolean, text, uuid[]) to memfold_app, memfold_judge, memfold_owner;

revoke all on function memfold_internal._retry_judgements_on(integer, text) from public;
grant execute on function memfold_internal._retry_judgements_on(integer, text) to memfold_app, memfold_judge, memfold_owner;
