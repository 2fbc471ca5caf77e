-- Distributes an installed memfold over the nodes of a Citus cluster, by tenant. README.md says when and how.
--
-- memfold init --citus runs it, on the coordinator, as a superuser; and each memfold init from then on, after an upgrade or
-- when a node was added: what is distributed already is left alone, functions and views are brought up to date. One
-- transaction distributes; a second one brings functions and views to the other nodes.
begin;

set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
-- A trigger of memfold touches its own row, or refuses.
select set_config('citus.enable_unsafe_triggers', 'on', true);
select set_config('citus.multi_shard_modify_mode', 'sequential', true);

do $$
begin
    if not exists (select from pg_extension where extname = 'citus') then
        raise exception 'Citus is not installed in this database' using
            errcode = 'object_not_in_prerequisite_state', hint = 'CREATE EXTENSION citus on every node, and add the workers.';
    elsif to_regclass('memfold.memories') is null then
        raise exception 'memfold is not installed in this database' using
            errcode = 'object_not_in_prerequisite_state', hint = 'memfold init DSN, with citus.enable_ddl_propagation = off.';
    elsif exists (select from pg_extension where extname = 'memfold') then
        raise exception 'memfold is here as an extension, whose objects Citus does not distribute' using
            errcode = 'object_not_in_prerequisite_state', hint = 'Install it by memfold init.';
    elsif (select groupid from pg_dist_local_group) <> 0 then
        raise exception 'this is not the coordinator' using errcode = 'object_not_in_prerequisite_state';
    end if;
end;
$$;

-- A role that the nodes come to one another as, for what reaches beyond a tenant's node: to change rules, which are on
-- every node, and to move shards. memfold_owner, whose functions work on the tenant's node, cannot log in: whatever of them
-- would reach beyond it fails. The tables are this role's, so that memfold_owner is held to the walls without their being
-- forced: logical replication, which moves shards, does not write into a table whose walls bind its owner.
do $$
begin
    if not exists (select from pg_roles where rolname = 'memfold_rules') then
        set local citus.enable_ddl_propagation = off;  -- it goes with what names it, below
        create role memfold_rules login bypassrls in role memfold_owner;
        set local citus.enable_ddl_propagation = on;
    end if;
end;
$$;

-- Roles go where an object names them, and with them their memberships; nothing else names this one.
grant usage on schema memfold, memfold_internal to memfold_tenant, memfold_rules;

-- Tables --------------------------------------------------------------------------------------------------------------

-- Citus takes what a view calls for something that the view's tables depend on: a circle, where that takes or returns
-- rows of them. So the views step aside while tables are distributed.
create temporary table held_views on commit preserve rows as
select
    c.oid::regclass::text as name,
    row_number() over (order by c.oid) as place,
    concat_ws('; ',
        format(
            'create view %s with (%s) as %s', c.oid::regclass, array_to_string(c.reloptions, ', '),
            rtrim(pg_get_viewdef(c.oid), ';')
        ),
        format('alter view %s owner to %s', c.oid::regclass, c.relowner::regrole),
        (
            select string_agg(format('grant %s on %s to %s', x.privilege_type, c.oid::regclass, x.grantee::regrole), '; ')
            from aclexplode(c.relacl) as x
            where x.grantee not in (0, c.relowner)
        ),
        (
            select string_agg(format('comment on column %s.%I is %L', c.oid::regclass, a.attname, d.description), '; ')
            from pg_description as d
            join pg_attribute as a on a.attrelid = d.objoid and a.attnum = d.objsubid
            where d.classoid = 'pg_class'::regclass and d.objoid = c.oid and d.objsubid > 0
        ),
        format('comment on view %s is %L', c.oid::regclass, obj_description(c.oid, 'pg_class'))
    ) as definition
from pg_class as c
where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v';

-- what they call, on the nodes where rows are
create temporary table viewing_functions on commit drop as
select distinct d.refobjid as oid
from pg_class as c
join pg_rewrite as r on r.ev_class = c.oid
join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_proc'::regclass
join pg_proc as p
    on p.oid = d.refobjid and p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.provolatile <> 'i'
where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v'
-- and what queries of the client call beside tables
union
select p.oid from pg_proc as p where p.pronamespace = 'memfold_internal'::regnamespace and p.proname = '_guard';

create temporary table held_triggers on commit drop as
select tgrelid::regclass::text as relation, tgname as name, pg_get_triggerdef(oid) as definition
from pg_trigger
where not tgisinternal
and tgrelid in (
    select oid from pg_class where relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
)
-- those that an upgrade has made again go
and (
    tgname = 'replace_shipped'
    or not exists (select from pg_dist_partition as p where p.logicalrelid = 'memfold.memories'::regclass)
);

do $$
declare
    v_row record;
begin
    set local citus.enable_ddl_propagation = off;
    if exists (select from held_views) then
        execute (select 'drop view ' || string_agg(name, ', ') from held_views);
    end if;
    for v_row in select * from held_triggers loop
        -- one that an upgrade has made again is on this node only
        perform set_config('citus.enable_ddl_propagation', case when exists (
            select from pg_dist_partition as p where p.logicalrelid = v_row.relation::regclass
        ) then 'off' else 'on' end, true);
        execute format('drop trigger %I on %s', v_row.name, v_row.relation);
    end loop;
    set local citus.enable_ddl_propagation = on;
    for v_row in
        select c.oid::regclass::text as name, c.relforcerowsecurity as is_forced from pg_class as c
        where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind in ('r', 'p')
            and c.relowner = 'memfold_owner'::regrole
    loop
        execute format('alter table %s owner to memfold_rules', v_row.name);
        execute format('grant all on %s to memfold_owner', v_row.name);
        if v_row.is_forced then
            execute format('alter table %s no force row level security', v_row.name);
        end if;
    end loop;
    -- rules: everyone reads them, and those of tenant '*' are everyone's
    for v_row in
        select t.name from unnest(array[
            'tenant_roles', 'embedding_models', 'calibrations', 'calibration_changes', 'policies', 'predicates', 'antonyms'
        ]) with ordinality as t (name, place)
        where not exists (select from pg_dist_partition as p where p.logicalrelid = ('memfold.' || t.name)::regclass)
        order by t.place
    loop
        perform create_reference_table(('memfold.' || v_row.name)::regclass);
    end loop;
    if not exists (select from pg_dist_partition as p where p.logicalrelid = 'memfold.staged_candidates'::regclass) then
        -- shards are moved by logical replication
        alter table memfold.staged_candidates set logged;
    end if;
    for v_row in
        select t.name, t.place from unnest(array[
            'memories', 'memory_counters', 'memory_counter_deltas', 'memory_vectors', 'memory_intervals', 'memory_sources', 'memory_tokens',
            'memory_events', 'memory_events_archive', 'idempotency_keys', 'judgements', 'labelled_pairs', 'runs',
            'archive_positions', 'staged_candidates'
        ]) with ordinality as t (name, place)
        where not exists (select from pg_dist_partition as p where p.logicalrelid = ('memfold.' || t.name)::regclass)
        order by t.place
    loop
        perform create_distributed_table(('memfold.' || v_row.name)::regclass, 'tenant_id',
            colocate_with => case when v_row.name = 'memories' then 'none' else 'memfold.memories' end);
    end loop;
    for v_row in select * from held_triggers where name <> 'replace_shipped' loop
        if v_row.definition !~ ' OR TRUNCATE' then
            execute v_row.definition;
            continue;
        end if;
        -- shards have triggers for each row only, and TRUNCATE is of the whole
        execute replace(replace(v_row.definition, ' OR TRUNCATE', ''), ' FOR EACH STATEMENT ', ' FOR EACH ROW ');
        execute format(
            'create trigger %I before truncate on %s for each statement execute function memfold_internal._refuse()',
            'refuse_truncate', v_row.relation);
    end loop;
end;
$$;

-- From here on functions are changed on this node only. At the end all of them go to all nodes as they have become.
select set_config('citus.enable_ddl_propagation', 'off', true);

-- The guard -----------------------------------------------------------------------------------------------------------

create or replace function memfold_internal._lives_here(tenant_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    return exists (
        select
        from pg_dist_placement as p
        join pg_dist_local_group as g on g.groupid = p.groupid
        where p.shardid = get_shard_id_for_distribution_column('memfold.memories', tenant_id)
    );
end;
$body$;
revoke all on function memfold_internal._lives_here(text) from public;
grant execute on function memfold_internal._lives_here(text) to memfold_app, memfold_judge, memfold_auditor, memfold_rules;
comment on function memfold_internal._lives_here(text) is 'Whether this node has the tenant''s shards. tenant_id is not null.';

create or replace function memfold_internal._assert_local_shard(tenant_id text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $body$
begin
    if coalesce(tenant_id, '') = '' then
        perform memfold_internal._fail('MF001', 'tenant_id is missing',
            format('A memory always belongs to a tenant; tenant_id was %s.', quote_nullable(tenant_id)),
            'Pass tenant_id, or set memfold.tenant_id.');
    elsif not memfold_internal._lives_here(tenant_id) then
        perform memfold_internal._fail('MF060', 'the call does not run on the node of its tenant',
            'Locks taken here would keep nobody out: the tenant''s shards have been moved while the call was on its way, or'
            ' Citus did not send it.',
            'Retry. If it fails again, call it by a statement of its own: SELECT ... FROM memfold.f(...).');
    end if;
end;
$body$;
revoke all on function memfold_internal._assert_local_shard(text) from public;
grant execute on function memfold_internal._assert_local_shard(text) to memfold_app, memfold_judge, memfold_auditor, memfold_rules;
comment on function memfold_internal._assert_local_shard(text) is
'The guard of Citus: raises MF060 unless this node has the tenant''s shards, so that there is one lock space a tenant; MF001.';

-- The walls of the session that calls, as they are on a plain server. Behind them, on the tenant's node, are those below.
do $$
declare
    v_name text;
begin
    foreach v_name in array array['_authorize_tenant', '_authorize_judge', '_authorize_queue'] loop
        if (
            select prosrc !~ '_assert_local_shard' from pg_proc
            where oid = ('memfold_internal.' || v_name || '(text)')::regprocedure
        ) then
            execute replace(replace(replace(replace(
                pg_get_functiondef(('memfold_internal.' || v_name || '(text)')::regprocedure),
                'FUNCTION memfold_internal.' || v_name || '(', 'FUNCTION memfold_internal.' || v_name || '_session('),
                'memfold_internal._authorize_tenant(', 'memfold_internal._authorize_tenant_session('),
                'memfold_internal._authorize_judge(', 'memfold_internal._authorize_judge_session('),
                '_authorize_tenant.tenant_id', '_authorize_tenant_session.tenant_id');
            execute format('alter function memfold_internal.%I security definer set search_path = pg_catalog, pg_temp',
                v_name || '_session');
            execute format('alter function memfold_internal.%I owner to memfold_owner', v_name || '_session');
            execute format('revoke all on function memfold_internal.%I from public', v_name || '_session');
            execute format(
                'grant execute on function memfold_internal.%I to memfold_app, memfold_judge, memfold_auditor, memfold_rules',
                v_name || '_session');
            execute format('comment on function memfold_internal.%I is %L', v_name || '_session',
                'The wall of the session that calls, on Citus: what ' || v_name || '() is on a plain server. Raises MF001 to MF003.');
        end if;
    end loop;
end;
$$;

-- The wall as a constant: Citus runs whatever statement it likes on the node of its tenant, once each table in it is held to
-- that tenant by a constant that it sees when it plans. Row level security holds each table to it; said to be immutable,
-- this function is that constant. So no plan may outlive its tenant: _planned_for() throws away what an earlier call has left.
create or replace function memfold_internal._tenant_here() returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
as $body$
begin
    return nullif(current_setting('memfold.tenant_id', true), '');
end;
$body$;
revoke all on function memfold_internal._tenant_here() from public;
grant execute on function memfold_internal._tenant_here() to memfold_queue;
comment on function memfold_internal._tenant_here() is
'memfold.tenant_id, called immutable: only for the walls on Citus, behind _planned_for().';

create or replace function memfold_internal._planned_for(tenant_id text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $body$
begin
    perform set_config('memfold.tenant_id', tenant_id, true);
    -- always: what the last call has planned for is not to be known, it may have been rolled back
    discard plans;
end;
$body$;
revoke all on function memfold_internal._planned_for(text) from public;
comment on function memfold_internal._planned_for(text) is
'Sets the tenant that the walls go by for the rest of the transaction, and drops all plans of the session: they may name another.';

-- What inlines _is_authorized() leaves _authorize_tenant() out: here it has to look where the call runs. The session's wall has
-- a copy.
do $$
begin
    if (
        select pg_get_function_sqlbody(oid) !~* 'return false' from pg_proc
        where oid = 'memfold_internal._is_authorized(text)'::regprocedure
    ) then
        execute replace(pg_get_functiondef('memfold_internal._is_authorized(text)'::regprocedure),
            '._is_authorized(', '._is_authorized_session(');
        revoke all on function memfold_internal._is_authorized_session(text) from public;
        alter function memfold_internal._is_authorized_session(text) owner to memfold_owner;
        comment on function memfold_internal._is_authorized_session(text) is
        'The usual case of _authorize_tenant_session().';
        execute replace(pg_get_functiondef('memfold_internal._authorize_tenant_session(text)'::regprocedure),
            'memfold_internal._is_authorized(', 'memfold_internal._is_authorized_session(');
    end if;
end;
$$;

create or replace function memfold_internal._is_authorized(tenant_id text) returns boolean
language sql stable parallel safe
return false;

create or replace function memfold_internal._authorize_tenant(tenant_id text) returns void
language plpgsql volatile
as $body$
declare
    v_bound constant name := memfold_internal._bound_role(memfold_internal._actor()::name);
    v_here constant text := nullif(pg_catalog.current_setting('memfold.tenant_id', true), '');
begin
    perform memfold_internal._assert_local_shard(tenant_id);
    if v_bound is not null and not exists (
        select from memfold.tenant_roles as r
        where r.role_name = v_bound and r.tenant_id = _authorize_tenant.tenant_id collate "C"
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            pg_catalog.format('Role %I is bound to another tenant, or to none.', v_bound),
            'memfold.tenant_roles says which tenant a member of memfold_tenant belongs to.');
    elsif v_bound is null and (tenant_id = '*' or v_here <> tenant_id)
        and not pg_catalog.pg_has_role(memfold_internal._actor(), 'memfold_owner', 'member')
    then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of the call differs from the setting memfold.tenant_id, or it is that of everyone''s rules.',
            'One transaction works for one tenant.');
    end if;
    if pg_catalog.octet_length(tenant_id) > 512 then
        perform memfold_internal._fail('MF003', 'tenant_id is too long',
            pg_catalog.format('It has %s bytes.', pg_catalog.octet_length(tenant_id)),
            'Identifiers have at most 512 bytes of UTF-8.');
    end if;
    perform memfold_internal._planned_for(tenant_id);
end;
$body$;
comment on function memfold_internal._authorize_tenant(text) is
'The wall at every entry point on the node of the tenant, on Citus (else MF060). The settings of the session that called do
not reach here: the argument says who the tenant is, _authorize_tenant_session() has compared it; a role that is bound to a
tenant is bound here too. Raises MF001 to MF003.';

create or replace function memfold_internal._authorize_judge(tenant_id text) returns void
language plpgsql volatile
as $body$
begin
    if tenant_id <> '' and tenant_id <> '*' and memfold_internal._bound_role(memfold_internal._actor()::name) is null
        and pg_catalog.pg_has_role(memfold_internal._actor(), 'memfold_judge', 'member')
    then
        perform memfold_internal._assert_local_shard(tenant_id);
        perform memfold_internal._planned_for(tenant_id);
    else
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
end;
$body$;

create or replace function memfold_internal._enter_reader(tenant_id text) returns void
language plpgsql volatile
as $body$
begin
    if memfold_internal._bound_role(memfold_internal._actor()::name) is null
        and pg_catalog.pg_has_role(memfold_internal._actor(), 'memfold_auditor', 'member')
    then
        perform memfold_internal._assert_local_shard(tenant_id);
        perform memfold_internal._planned_for(tenant_id);
    else
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
end;
$body$;
create or replace function memfold_internal._enter_reader_session(tenant_id text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    if memfold_internal._bound_role(memfold_internal._actor()::name) is not null
        or not pg_has_role(memfold_internal._actor(), 'memfold_auditor', 'member')
    then
        perform memfold_internal._authorize_tenant_session(tenant_id);
    end if;
end;
$body$;
revoke all on function memfold_internal._enter_reader_session(text) from public;
grant execute on function memfold_internal._enter_reader_session(text) to memfold_app, memfold_judge, memfold_auditor, memfold_rules;
comment on function memfold_internal._enter_reader_session(text) is
'The wall of the session that calls one of them: as _authorize_tenant_session(), and an auditor may read any tenant.';
revoke all on function memfold_internal._enter_reader(text) from public;
comment on function memfold_internal._enter_reader(text) is
'What functions that elsewhere read as their caller begin with on Citus, where they read as memfold_owner: as _authorize_tenant(), and
an auditor may read any tenant.';

do $$
declare
    v_definition text;
    v_function regprocedure;
begin
    for v_function in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = 'memfold'::regnamespace and p.proname = 'derive_scope' and p.prosrc !~ '_assert_local_shard'
    loop
        execute regexp_replace(pg_get_functiondef(v_function),
            '\nbegin\n', E'\nbegin\n    perform memfold_internal._assert_local_shard(tenant_id);\n');
    end loop;
    for v_function in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = 'memfold'::regnamespace and p.proname in ('current_memory', 'current_memories', 'explain_memory')
            and p.prosrc !~ '_at_home'
    loop
        v_definition := pg_get_functiondef(v_function);
        execute regexp_replace(v_definition, '\nbegin\n', E'\nbegin\n    perform memfold_internal._enter_reader(tenant_id);\n');
        execute format('alter function %s security definer volatile', v_function);
    end loop;
    for v_function in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = 'memfold_internal'::regnamespace and (
            p.proname in (
                '_lives_here', '_assert_local_shard', '_send', '_enter_reader', '_enter_reader_session', '_tenant_here', '_planned_for'
            )
            -- of one tenant at a time here: over the walls there is no node that has them all
            or p.proname in ('_claim', '_retry_judgements')
        )
    loop
        execute format('alter function %s owner to memfold_owner', v_function);
    end loop;
end;
$$;

-- What the rest of the world calls: each public function of a tenant tries the wall of the session where it is called, and
-- runs, as memfold_internal._f_at_home, on the tenant's node, within the caller's transaction.
--
-- Citus sends SELECT ... FROM f(...) to the node of an argument, from within a transaction only where that is forced; and
-- where it has arrived, force holds every statement to the very constant of the call, collation included, which memfold's
-- statements do not keep (row level security and the guard keep them to the tenant). So what is sent is _send() of "any",
-- which is forced and can do nothing; its name and constants, written out, mean on arrival the _send() of text, which
-- is not. PostgreSQL takes a constant of unknown type for text where it may, and names of arguments are not written out.
create or replace function memfold_internal._send(tenant_id text, call text, lock_timeout text, read_only text, away "any")
returns setof record
language internal volatile
as 'any_out';
comment on function memfold_internal._send(text, text, text, text, "any") is
'Sent to the node of the tenant, where it is _send(text, text, text, text, text). Where it is run it fails (0A000): the tenant has moved.';

create or replace function memfold_internal._send(tenant_id text, call text, lock_timeout text, read_only text, here text)
returns setof record
language plpgsql volatile
as $body$
begin
    perform memfold_internal._assert_local_shard(tenant_id);
    perform pg_catalog.set_config('lock_timeout', lock_timeout, true);
    -- in place of what an earlier call of the transaction left, for another tenant
    perform pg_catalog.set_config('memfold.tenant_id', tenant_id, true);
    if read_only = 'on' then
        perform pg_catalog.set_config('transaction_read_only', 'on', true);
    end if;
    return query execute call;
end;
$body$;
comment on function memfold_internal._send(text, text, text, text, text) is
'What _send(text, text, text, text, "any") is on arrival: the statement, as its caller, on the node of the tenant. Raises MF060.';
revoke all on function
memfold_internal._send(text, text, text, text, "any"), memfold_internal._send(text, text, text, text, text)
from public;
grant execute on function
memfold_internal._send(text, text, text, text, "any"), memfold_internal._send(text, text, text, text, text)
to memfold_app, memfold_judge, memfold_auditor, memfold_rules;

create or replace function pg_temp.way_home(name regprocedure, called text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp
as $body$
declare
    f pg_proc;
    v_names text;
    v_values text;
    v_columns text;
    v_out text;
    v_into text;
    v_result constant text := pg_get_function_result(name);
begin
    select p.* into f from pg_proc as p where p.oid = name;
    select
        string_agg(format('%I => %%L::%s', a.name, a.type), ', ' order by a.place),
        string_agg(format('%I.%I', called, a.name), ', ' order by a.place)
    into v_names, v_values
    from (
        select t.place, t.type::regtype as type, f.proargnames[t.place] as name
        from unnest(f.proargtypes::oid[]) with ordinality as t (type, place)
    ) as a;
    select
        string_agg(format('%I %s', a.name, a.type::regtype), ', ' order by a.place),
        string_agg(format('%I', a.name), ', ' order by a.place)
    into v_columns, v_out
    from unnest(f.proargnames, f.proallargtypes, f.proargmodes) with ordinality as a (name, type, mode, place)
    where a.mode in ('b', 'o', 't');
    v_columns := coalesce(v_columns, (
        select string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum)
        from pg_type as t join pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
        where t.oid = f.prorettype and t.typtype = 'c'
    ), 'result ' || nullif(f.prorettype, 'void'::regtype)::regtype, 'result text');
    v_into := case
        when f.proretset then 'return query select * from '
        when f.prorettype = 'void'::regtype then 'perform * from '
        else 'select * into ' || coalesce(v_out, 'v_result') || ' from '
    end;
    return format(
        'create or replace function %s.%I(%s) returns %s language plpgsql volatile'
        -- arguments go as text
        ' set search_path = pg_catalog, pg_temp set datestyle = iso set intervalstyle = postgres set extra_float_digits = 3'
        -- called by a statement on tables, whose rows are elsewhere
        ' set citus.allow_nested_distributed_execution = on'
        ' as $way$
declare
    v_call text;
    v_lock_timeout constant text := current_setting(''lock_timeout'');
    v_read_only constant text := current_setting(''transaction_read_only'');%s
begin
    perform memfold_internal.%I(tenant_id);
    if memfold_internal._lives_here(tenant_id) then
        %s;
    else
        v_call := format(%L, %s);
        %s as r (%s);
    end if;%s
end;
$way$',
        case when called ~ '^_' then 'memfold_internal' else 'memfold' end, called, pg_get_function_arguments(name), v_result,
        case when v_into ~ 'v_result' then E'\n    v_result ' || v_result || ';' else '' end,
        case
            when f.prosrc ~ '_authorize_(judge|queue)\(' then '_authorize_judge_session'
            when f.prosrc ~ '_enter_reader\(' then '_enter_reader_session'
            else '_authorize_tenant_session'
        end,
        v_into || format('memfold_internal.%I(%s)', '_' || f.proname || '_at_home', v_values),
        format('select %s from memfold_internal.%I(%s)', case when f.prorettype = 'void'::regtype then 'null::text' else '*' end,
            '_' || f.proname || '_at_home', v_names), v_values,
        v_into || 'memfold_internal._send(tenant_id => tenant_id, call => v_call, lock_timeout => v_lock_timeout,'
            ' read_only => v_read_only, away => '''')', v_columns,
        case when v_into ~ 'v_result' then E'\n    return v_result;' else '' end
    );
end;
$body$;

do $$
declare
    v_function record;
    v_copy regprocedure;
    v_grant text;
    v_called text;
begin
    for v_function in
        select p.oid, p.oid::regprocedure as name, p.pronamespace::regnamespace as schema, p.proname, p.proacl, p.proowner,
            pg_get_function_identity_arguments(p.oid) as arguments
        from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prokind = 'f'
            -- of the procedure rehash_bucket, which commits where it is called, what it calls
            and (p.proname !~ '^_' or p.proname in ('_rehash_begin', '_rehash_batch'))
            and 'tenant_id' = any(p.proargnames[:p.pronargs]) and p.prosrc !~ '_at_home|_of_tenant'
            and p.proname not in (
                -- about pg_cron's jobs
                'schedule_maintenance', 'unschedule_maintenance',
                -- part of other calls
                'derive_scope'
            )
    loop
        -- its arguments are qualified by its name
        execute regexp_replace(replace(pg_get_functiondef(v_function.oid),
            format('FUNCTION %s.%s(', v_function.schema, v_function.proname),
            format('FUNCTION memfold_internal._%s_at_home(', v_function.proname)),
            '\m' || v_function.proname || '\.', '_' || v_function.proname || '_at_home.', 'g');
        v_copy := format('memfold_internal._%s_at_home(%s)', v_function.proname,
            (select string_agg(t::regtype::text, ', ' order by t.place)
                from unnest((select proargtypes::oid[] from pg_proc where oid = v_function.oid)) with ordinality as t (t, place)));
        execute format('alter function %s owner to %s', v_copy, v_function.proowner::regrole);
        execute format('revoke all on function %s from public', v_copy);
        for v_grant in
            select format('grant execute on function %s to %s', v_copy, x.grantee::regrole)
            from aclexplode(v_function.proacl) as x where x.grantee not in (0, v_function.proowner)
        loop
            execute v_grant;
        end loop;
        execute format('comment on function %s is %L', v_copy, v_function.proname || '() on the node of its tenant, on Citus.');
        v_called := v_function.proname;
        if v_function.proname in ('claim_judgements', 'retry_judgements') then
            v_called := '_' || v_function.proname || '_of_tenant';
        end if;
        execute pg_temp.way_home(v_function.name, v_called);
        if v_called = v_function.proname then
            execute format('alter function %s security invoker volatile', v_function.name);
        end if;
    end loop;
    for v_copy in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = 'memfold_internal'::regnamespace and p.proname ~ '^_.*_of_tenant$'
    loop
        execute format('alter function %s owner to memfold_owner', v_copy);
        execute format('revoke all on function %s from public', v_copy);
        execute format('grant execute on function %s to memfold_rules', v_copy);
        execute format('comment on function %s is %L', v_copy, 'Calls the judges'' queue of one tenant, on Citus.');
    end loop;
end;
$$;

create or replace function memfold_internal._refuse() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $body$
declare
    -- of a shard
    v_table constant text := regexp_replace(tg_table_name, '_\d+$', '');
begin
    if current_setting('memfold.maintenance', true) = 'on' and pg_has_role(current_user, 'memfold_owner', 'member') then
        return case tg_op when 'UPDATE' then new when 'DELETE' then old end;
    elsif v_table = 'memories' then
        perform memfold_internal._fail('MF020', format('%s of memories is refused', tg_op),
            'Text, keys and hash of a memory never change, and no memory is deleted: the ledger names it.',
            'To change what holds: ingest_memory(), update_memory(), reject_memory(). undo() takes back what was decided.');
    else
        perform memfold_internal._fail('MF021', format('%s of %s is refused', tg_op, v_table),
            'The ledger is append-only.', 'State is derived from it: undo(event_id) takes an event back by a row of its own.');
    end if;
    return null;
end;
$body$;

-- The judges' queue: a call for one tenant goes to that tenant's node, one for all goes from tenant to tenant.
create or replace function memfold_internal._queues(tenant_id text) returns setof text
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $body$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue_session(tenant_id);
begin
    if v_tenant_id is not null then
        return next v_tenant_id;
    else
        return query
        select j.tenant_id::text from memfold.judgements as j
        where j.status in ('open', 'leased', 'dead') group by j.tenant_id order by random();
    end if;
end;
$body$;
revoke all on function memfold_internal._queues(text) from public;
comment on function memfold_internal._queues(text) is
'The tenants whose judgements the caller may claim or retry, on Citus, in any order. Raises MF001 to MF003.';

create or replace function memfold.claim_judgements(
    worker text,
    tenant_id text default null,
    max_results bigint default 10,
    lease interval default '1 minute',
    review boolean default false,
    judgement_ids uuid[] default null
) returns setof memfold.claimed_judgement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    v_tenant text;
    v_count bigint := 0;
    v_given bigint;
begin
    for v_tenant in
        select q from memfold_internal._queues(tenant_id) as q
        -- that arguments are what they may be is said by a queue
        union all select 'nobody' where not exists (select from memfold_internal._queues(tenant_id))
    loop
        return query
        select *
        from memfold_internal._claim_judgements_of_tenant(worker, max - v_count, lease, review, v_tenant, judgement_ids);
        get diagnostics v_given = row_count;
        v_count := v_count + v_given;
        exit when v_count >= max;
    end loop;
end;
$body$;

create or replace function memfold.retry_judgements(tenant_id text default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    v_tenant text;
    v_given bigint;
    v_count bigint := 0;
begin
    for v_tenant in select q from memfold_internal._queues(tenant_id) as q loop
        select r into v_given from memfold_internal._retry_judgements_of_tenant(v_tenant) as r;
        v_count := v_count + v_given;
    end loop;
    return v_count;
end;
$body$;

-- A recursive query is of one tenant, on Citus.
create or replace function memfold_internal._tenants() returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set citus.allow_nested_distributed_execution = on
as $body$
begin
    return query select m.tenant_id::text from memfold.memories as m group by m.tenant_id order by m.tenant_id;
end;
$body$;

-- Functions -----------------------------------------------------------------------------------------------------------

-- Citus plans a statement for the tenant it is run for, never for any.
do $$
declare
    v_function regprocedure;
begin
    for v_function in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
            and 'plan_cache_mode=force_generic_plan' = any(p.proconfig)
    loop
        execute format('alter function %s reset plan_cache_mode', v_function);
    end loop;
end;
$$;

-- Citus does not plan an SQL function that reads a distributed table by its parameters. Its body goes into PL/pgSQL.
do $$
declare
    v_function record;
    v_head text;
    v_body text;
begin
    for v_function in
        select distinct p.oid, p.proretset
        from pg_proc as p
        join pg_depend as d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_class'::regclass
        join pg_class as c on c.oid = d.refobjid and c.relkind in ('r', 'p', 'v')
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prosqlbody is not null
            and p.prosrc = ''
            and exists (
                select from pg_dist_partition as t where t.logicalrelid = c.oid
            )
    loop
        v_body := pg_get_function_sqlbody(v_function.oid);
        v_head := pg_get_functiondef(v_function.oid);
        v_head := replace(left(v_head, length(v_head) - length(v_body) - 1), E'\n LANGUAGE sql\n', E'\n LANGUAGE plpgsql\n');
        if v_body ~ '^\s*RETURN' then
            v_body := v_body || ';';
        else
            v_body := regexp_replace(v_body, '^\s*BEGIN ATOMIC\s*(.*?);?\s*END\s*$', '\1');
            v_body := case when v_function.proretset then 'return query ' || v_body || ';' else 'return (' || v_body || ');' end;
        end if;
        execute v_head || E'\nas $body$\n#variable_conflict use_column\nbegin\n' || v_body || E'\nend;\n$body$';
    end loop;
end;
$$;

-- The nodes' own role where rules are changed; what Citus itself has to know of; walls; views.
do $$
declare
    v_function record;
    v_policy record;
    v_row record;
begin
    for v_function in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.proname in (
            '_set_policy_at_home', '_set_predicate_at_home', 'register_embedding_model', 'unregister_embedding_model',
            'replace_embedding_model', 'apply_calibration', 'undo_calibration', '_erase_tenant_at_home',
            '_import_bucket_at_home', '__rehash_begin_at_home', '_rehash_end', 'claim_judgements', 'retry_judgements',
            '_queues', '_tenants', 'create_vector_index', 'drop_vector_index'
        )
    loop
        execute format('alter function %s owner to memfold_rules', v_function.name);
        execute format('grant execute on function %s to memfold_owner', v_function.name);
    end loop;
    -- The types first: what a function declares is no dependency of it either, but its arguments are.
    execute (
        select 'create function memfold_internal._types(' || string_agg(t.oid::regtype::text, ', ')
            || ') returns void begin atomic end'
        from pg_type as t
        join pg_class as c on c.oid = t.typrelid and c.relkind = 'c'
        where t.typnamespace = any('{memfold,memfold_internal}'::regnamespace[])
    );
    set local citus.enable_ddl_propagation = on;
    perform create_distributed_function(p.oid::regprocedure)
    from pg_proc as p where p.pronamespace = 'memfold_internal'::regnamespace and p.proname in ('_types', '_tenant_here');
    drop function memfold_internal._types;
    -- what Citus sends
    perform create_distributed_function('memfold_internal._send(text, text, text, text, "any")', 'tenant_id',
        'memfold.memories', true);
    for v_policy in
        select p.polrelid::regclass as name, p.polname from pg_policy as p
        join pg_class as c
            on c.oid = p.polrelid and c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
        where p.polname = 'tenant_isolation' and pg_get_expr(p.polqual, p.polrelid) !~ '_tenant_here'
            and exists (select from pg_dist_partition as d where d.logicalrelid = p.polrelid)
    loop
        execute format('alter policy %I on %s using (tenant_id = memfold_internal._tenant_here())',
            v_policy.polname, v_policy.name);
    end loop;
    set local citus.enable_ddl_propagation = off;
    for v_function in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and (
            p.proname ~ '^_.+_at_home$' or p.proname = '_bound_tenant' or p.oid in (select f.oid from viewing_functions as f)
        )
    loop
        -- memfold's functions, and its walls, ask tables from within statements on tables: all of it on one node
        execute format('alter function %s set citus.allow_nested_distributed_execution = on', v_function.name);
    end loop;
    for v_row in select * from held_views order by place loop
        execute v_row.definition;
    end loop;
end;
$$;
commit;

-- Functions and views are plain objects of each node, not Citus': to it those that take or return rows of tables that have
-- checks of ours are a circle, and a node could not be added. In a transaction of its own, for it has to see what was
-- distributed.
do $$
declare
    v_result record;
begin
    set local search_path = pg_catalog, pg_temp;
    for v_result in
        select r.nodename, r.nodeport, r.result
        from run_command_on_workers((
            with routine as (
                select p.oid, format('%s', p.oid::regprocedure) as name, p.proowner, p.proacl from pg_proc as p
                where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
            ),

            routine_text as (
                select r.oid::bigint as place, r.name, concat_ws('; ',
                    pg_get_functiondef(r.oid),
                    format('alter routine %s owner to %s', r.name, r.proowner::regrole),
                    format('revoke all on routine %s from public', r.name),
                    (
                        select string_agg(format('grant execute on routine %s to %s', r.name, x.grantee::regrole), '; ')
                        from aclexplode(r.proacl) as x where x.grantee not in (0, r.proowner)
                    ),
                    format('comment on routine %s is %L', r.name, obj_description(r.oid, 'pg_proc'))
                ) as text
                from routine as r
            )

            select format('do %L', format(
                $do$
declare
    v_names constant text[] := %L;
    v_texts constant text[] := %L;
    v_left int[] := (select array_agg(i) from generate_subscripts(v_names, 1) as i);
    v_next int[];
    v_name text;
    v_place int;
begin
    set local citus.enable_ddl_propagation = off;
    set local check_function_bodies = off;
    set local client_min_messages = warning;
    set local search_path = pg_catalog, pg_temp;
    for v_name in
        select format('drop view %%s', c.oid::regclass) from pg_class as c
        where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v'
        order by c.oid desc
    loop
        execute v_name;
    end loop;
    for v_name in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
            and p.oid::regprocedure::text <> all(v_names)
    loop
        execute format('drop routine %%s', v_name);
    end loop;
    loop
        v_next := '{}';
        foreach v_place in array v_left loop
            begin
                execute v_texts[v_place];
            exception
                when undefined_function or undefined_table then
                    -- what comes later
                    v_next := v_next || v_place;
                when invalid_function_definition then
                    execute format('drop routine %%s', v_names[v_place]);
                    execute v_texts[v_place];
            end;
        end loop;
        exit when v_next = '{}';
        if cardinality(v_next) = cardinality(v_left) then
            execute v_texts[v_next[1]];
        end if;
        v_left := v_next;
    end loop;
    execute %L;
end;
$do$,
                (select array_agg(t.name order by t.place) from routine_text as t),
                (select array_agg(t.text order by t.place) from routine_text as t),
                (select string_agg(v.definition, '; ' order by v.place) from held_views as v)
            ))
        )) as r
        where not r.success
    loop
        raise exception 'worker %:% has not got memfold''s functions', v_result.nodename, v_result.nodeport using
            detail = v_result.result, hint = 'Run the script again when it can be reached.';
    end loop;
end;
$$;
drop table held_views;
