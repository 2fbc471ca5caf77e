-- Distributes an installed memfold over the nodes of a Citus cluster, by tenant (README.md).
--
-- memfold init --citus runs this on the coordinator, as a superuser, and so does each later memfold init, after an upgrade or
-- when a node was added: it leaves distributed tables alone and updates functions and views. The first transaction is the
-- one that installs the release's functions, which alone would take locks on the wrong node. It drops views and triggers,
-- distributes the tables of tenants by tenant_id and those of rules to every node, replaces the hooks of the core, and
-- makes each public function of a tenant a wrapper that runs the original on the tenant's node. A second transaction
-- copies functions and views to the other nodes.
--
-- What must stay true: all locks of a tenant are taken on the node that has its shards (MF060 otherwise), and each table in
-- a statement is restricted to that tenant when it is planned.
begin;

set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
-- memfold init turns this off for memfold's own files.
set local citus.enable_ddl_propagation = on;
-- This is safe, because memfold's triggers only change their own row, or refuse.
select set_config('citus.enable_unsafe_triggers', 'on', true);
select set_config('citus.multi_shard_modify_mode', 'sequential', true);

do $$
begin
    if not exists (select from pg_extension where extname = 'citus') then
        raise exception 'Citus is not installed in this database' using
            errcode = 'object_not_in_prerequisite_state', hint = 'Run CREATE EXTENSION citus on every node, and add the workers.';
    elsif to_regclass('memfold.memories') is null then
        raise exception 'memfold is not installed in this database' using
            errcode = 'object_not_in_prerequisite_state', hint = 'Run memfold init DSN, with citus.enable_ddl_propagation = off.';
    elsif exists (select from pg_extension where extname = 'memfold') then
        raise exception 'memfold is installed as an extension, whose objects Citus does not distribute' using
            errcode = 'object_not_in_prerequisite_state', hint = 'Install it with memfold init.';
    elsif (select groupid from pg_dist_local_group) <> 0 then
        raise exception 'this is not the coordinator' using errcode = 'object_not_in_prerequisite_state';
    end if;
end;
$$;

-- memfold_rules connects nodes to each other for work beyond a tenant's node: to change rules, which are on every node, and to
-- move shards. memfold_owner, whose functions work on the tenant's node, cannot log in, so any of them that would reach
-- beyond it fails. memfold_rules owns the tables: row-level security then applies to memfold_owner without being forced, and
-- logical replication, which moves shards, does not write into tables whose policies apply to their owner.
do $$
begin
    if not exists (select from pg_roles where rolname = 'memfold_rules') then
        set local citus.enable_ddl_propagation = off;  -- dropped together with the objects that name it, below
        create role memfold_rules login bypassrls in role memfold_owner;
        set local citus.enable_ddl_propagation = on;
    end if;
end;
$$;

-- Roles are copied to other nodes when an object names them, with their memberships; no other object names this one.
grant usage on schema memfold, memfold_internal to memfold_agent, memfold_tenant, memfold_rules;

-- Tables --------------------------------------------------------------------------------------------------------------

-- To Citus, the functions that a view calls are dependencies of its tables: a circle, if one takes or returns rows of them.
-- So views are dropped while tables are distributed.
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

-- The functions that views call, on the nodes that have rows.
create temporary table viewing_functions on commit drop as
select distinct d.refobjid as oid
from pg_class as c
join pg_rewrite as r on r.ev_class = c.oid
join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_proc'::regclass
join pg_proc as p
    on p.oid = d.refobjid and p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.provolatile <> 'i'
where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'v'
-- Functions that queries of the client, or of tests, call on rows of tables.
union
select p.oid from pg_proc as p where p.pronamespace = 'memfold_internal'::regnamespace and p.proname in ('_guard');

create temporary table held_triggers on commit drop as
select tgrelid::regclass::text as relation, tgname as name, pg_get_triggerdef(oid) as definition
from pg_trigger
where not tgisinternal
and tgrelid in (
    select oid from pg_class where relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
)
-- Once tables are distributed, only triggers that an upgrade has created again are dropped.
and (
    tgname = 'replace_shipped'
    or not exists (select from pg_dist_partition as p where p.logicalrelid = 'memfold.memories'::regclass)
);

do $$
declare
    v_row record;
begin
    if not exists (select from pg_dist_partition as p where p.logicalrelid = 'memfold.memories'::regclass) then
        -- Every writer locks these first, in this order, so none is interrupted halfway.
        lock table memfold.tenant_roles, memfold.policies, memfold.memories in access exclusive mode;
    end if;
    set local citus.enable_ddl_propagation = off;
    if exists (select from held_views) then
        execute (select 'drop view ' || string_agg(name, ', ') from held_views);
    end if;
    for v_row in select * from held_triggers loop
        -- A trigger that an upgrade has created again exists only on this node.
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
    -- Rules, which every node needs: those of tenant '*' apply to all tenants.
    for v_row in
        select t.name from unnest(array[
            'tenant_roles', 'embedding_models', 'calibrations', 'calibration_changes', 'policies', 'options', 'predicates',
            'antonyms', 'lexicon'
        ]) with ordinality as t (name, place)
        where not exists (select from pg_dist_partition as p where p.logicalrelid = ('memfold.' || t.name)::regclass)
        order by t.place
    loop
        perform create_reference_table(('memfold.' || v_row.name)::regclass);
    end loop;
    -- Citus copies the functions that generated columns name, but not those that these call, which existing rows need.
    for v_row in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prokind = 'f' and p.provolatile = 'i'
            and not exists (select from pg_dist_partition as t where t.logicalrelid = 'memfold.memories'::regclass)
            and not exists (
                select from unnest(p.proargtypes::oid[] || p.prorettype) as a (oid)
                join pg_type as t on t.oid = a.oid and t.typnamespace <> 'pg_catalog'::regnamespace
            )
        -- In the order of creation: each after those that it calls.
        order by p.oid
    loop
        perform create_distributed_function(v_row.name);
    end loop;
    for v_row in
        select t.name, t.place from unnest(array[
            'memories', 'memory_counters', 'memory_vectors', 'memory_intervals', 'memory_sources', 'memory_tokens',
            'memory_events', 'idempotency_keys', 'judgements', 'labelled_pairs', 'runs',
            'links'
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
        -- Shards have only row triggers, and TRUNCATE is not per row.
        execute replace(replace(v_row.definition, ' OR TRUNCATE', ''), ' FOR EACH STATEMENT ', ' FOR EACH ROW ');
        execute format(
            'create trigger %I before truncate on %s for each statement execute function memfold_internal._refuse()',
            'refuse_truncate', v_row.relation);
    end loop;
end;
$$;

-- From here on, functions are changed only on this node; at the end all of them are copied to the others.
select set_config('citus.enable_ddl_propagation', 'off', true);

-- Hooks of the core ---------------------------------------------------------------------------------------------------

create or replace function memfold_internal._is_tenant_node(tenant_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    -- Computed once: the function is volatile, and the WHERE clause would call it for every placement.
    v_shard constant bigint := case when tenant_id is not null
        then get_shard_id_for_distribution_column('memfold.memories', tenant_id) end;
begin
    if v_shard is null then
        return true;
    elsif to_regclass(shard_name('memfold.memories', v_shard)) is null then
        -- Most calls that must be sent end here, without the query below. While a shard moves, two nodes have its table.
        return false;
    end if;
    return exists (
        select from pg_dist_placement as p
        where p.shardid = v_shard and p.groupid = (select g.groupid from pg_dist_local_group as g)
    );
end;
$body$;
comment on function memfold_internal._is_tenant_node(text) is
'Whether this node has the tenant''s shards. For null (every tenant) always true: any node can handle such calls.';

create or replace function memfold_internal._assert_local_shard(p_tenant_id text) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    if coalesce(p_tenant_id, '') = '' then
        perform memfold_internal._fail('MF001', 'tenant_id is missing',
            format('A memory always belongs to a tenant; tenant_id was %s.', quote_nullable(p_tenant_id)),
            'Pass tenant_id, or set memfold.tenant_id.');
    elsif not memfold_internal._is_tenant_node(p_tenant_id) then
        perform memfold_internal._fail('MF060', 'the call does not run on the node of its tenant',
            'Locks taken here would not stop other writers: the tenant''s shards were moved during the call, or'
            ' Citus did not send it.',
            'Retry. If it fails again, call it in a separate statement: SELECT ... FROM memfold.f(...).');
    end if;
end;
$body$;
comment on function memfold_internal._assert_local_shard(text) is
'The hook on Citus: raises MF060 unless this node has the tenant''s shards, so that all locks of a tenant are on one node; MF001.';

-- Citus runs any statement on the node of its tenant if each table in it is restricted to that tenant by a constant known at
-- planning time. Row-level security restricts each table, and this function, declared immutable, is the constant. So no plan
-- may outlive its tenant: _on_tenant_node() discards those of another one.
create or replace function memfold_internal._planned_tenant() returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
as $body$
begin
    return nullif(current_setting('memfold.tenant_id', true), '');
end;
$body$;
comment on function memfold_internal._planned_tenant() is
'memfold.tenant_id, declared immutable: only for row-level security on Citus, after _on_tenant_node().';

create or replace function memfold_internal._on_tenant_node(p_tenant_id text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $body$
declare
    v_marker constant text := format('prepare "memfold plans" as select %L', p_tenant_id);
    v_planned text;
begin
    perform memfold_internal._assert_local_shard(p_tenant_id);
    -- A prepared statement marks whose plans these are: like them it survives ROLLBACK, which would restore a setting.
    select p.statement into v_planned from pg_prepared_statement() as p where p.name = 'memfold plans';
    if v_planned = v_marker then
        return;
    elsif v_planned is not null then
        deallocate "memfold plans";
    end if;
    discard plans;
    execute v_marker;
end;
$body$;
comment on function memfold_internal._on_tenant_node(text) is
'The hook on Citus: _assert_local_shard(), and discards all plans of the session if they may name another tenant. Raises MF060.';

create or replace function memfold_internal._is_authorized(p_tenant_id text) returns boolean
language sql stable parallel safe
return false;

create or replace function memfold_internal._authorize_reader(p_tenant_id text) returns void
language plpgsql volatile
as $body$
begin
    perform memfold_internal._authorize_session(p_tenant_id, 'memfold_auditor');
    perform memfold_internal._on_tenant_node(p_tenant_id);
end;
$body$;

create or replace function memfold_internal._believed_memories(
    p_tenant_id text, p_bucket_id text, p_as_of timestamptz, p_known_at timestamptz
) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    raise exception 'known_at is not available on Citus' using
        errcode = 'feature_not_supported',
        detail = 'Past state is derived in rows of another tenant, whose shards may be on another node.',
        hint = 'Copy the bucket to a single server (memfold export, memfold restore), and call it there.';
end;
$body$;

-- As its owner: no policy restricts memfold_rules, as which erase_tenant() runs, and Citus would not plan these joins.
alter function memfold_internal._erase_some(text, text, bigint) security definer set search_path = pg_catalog, pg_temp;

-- Runs as its owner memfold_rules, because replay_bucket() copies policies, which are on every node, before it rolls back.
alter function memfold_internal._copy_rules(text, text, text) security definer set search_path = pg_catalog, pg_temp;

-- Wrappers, which run as their caller, check the session with these on the calling node.
alter function memfold_internal._authorize_session(text, name) security definer set search_path = pg_catalog, pg_temp;
alter function memfold_internal._authorize_queue_session(text) security definer set search_path = pg_catalog, pg_temp;

-- Not the recursive query of one server: on Citus, such a query must be about one tenant.
create or replace function memfold.tenants() returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set citus.allow_nested_distributed_execution = on
as $body$
begin
    return query select m.tenant_id::text from memfold.memories as m group by m.tenant_id order by m.tenant_id;
end;
$body$;

-- Rules may be changed on any node, but only the tenant's node can apply them to what is stored: maintenance does that.
create or replace function memfold_internal._take_up_now(r memfold.runs, p_rows_at_most bigint) returns bigint
language plpgsql volatile
as $body$
begin
    return null;
end;
$body$;

-- Rules are on every node, and the tenant's node alone cannot change them.
create or replace function memfold_internal._undo_predicate(r memfold.runs) returns setof memfold.undone_memory
language plpgsql volatile
as $body$
begin
    raise exception 'a rule cannot be undone on Citus' using
        errcode = 'feature_not_supported',
        detail = format('Run %s has changed the rule of predicate %L; rules are on every node.', r.run_id,
            r.arguments ->> 'predicate'),
        hint = 'Set the previous rule with set_predicate(); maintenance applies it to stored memories.';
end;
$body$;

create or replace function memfold_internal._queue_tenants() returns setof text
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $body$
begin
    return query
    select j.tenant_id::text from memfold.judgements as j
    where j.status in ('open', 'leased', 'dead') group by j.tenant_id order by random();
end;
$body$;
comment on function memfold_internal._queue_tenants() is
'The tenants whose judgements may be claimed or retried, on Citus, in any order.';

create or replace function memfold_internal._claim_all_tenants(
    p_worker text, p_max_results bigint, p_lease interval, p_review boolean, p_judgement_ids uuid[]
) returns setof memfold.claimed_judgement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    v_tenant text;
    v_left bigint := p_max_results;
    v_given bigint;
begin
    for v_tenant in select t from memfold_internal._queue_tenants() as t loop
        return query select * from memfold.claim_judgements(p_worker, v_tenant, v_left, p_lease, p_review, p_judgement_ids);
        get diagnostics v_given = row_count;
        v_left := v_left - v_given;
        exit when v_left <= 0;
    end loop;
end;
$body$;

create or replace function memfold_internal._retry_all_tenants() returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    v_tenant text;
    v_count bigint := 0;
begin
    for v_tenant in select t from memfold_internal._queue_tenants() as t loop
        v_count := v_count + memfold.retry_judgements(v_tenant);
    end loop;
    return v_count;
end;
$body$;

-- Calls from any node -------------------------------------------------------------------------------------------------

-- Each public function of a tenant, memfold.f, becomes a wrapper: it checks the session on the calling node, and runs the
-- original function, memfold_internal.f, on the tenant's node, within the caller's transaction.
--
-- Citus sends SELECT ... FROM f(...) to the node of an argument, inside a transaction only if that is forced. On arrival,
-- forcing restricts every statement to the exact constant of the call, with its collation, which memfold's statements do
-- not repeat (row-level security and _on_tenant_node() restrict them to the tenant). So the call that is sent is
-- _run_on_shard() of "any", which is forced and does nothing. On arrival, its deparsed name and constants resolve to
-- _run_on_shard() of text, which is not forced: argument names are not deparsed, and an untyped constant is read as text.
create or replace function memfold_internal._run_on_shard(tenant_id text, call text, lock_timeout text, read_only text, away "any")
returns setof record
language internal volatile
as 'any_out';
comment on function memfold_internal._run_on_shard(text, text, text, text, "any") is
'Sent to the node of the tenant, where it is _run_on_shard(text, text, text, text, text). If it runs on the calling node it fails (0A000):
the tenant has been moved.';

create or replace function memfold_internal._run_on_shard(tenant_id text, call text, lock_timeout text, read_only text, here text)
returns setof record
language plpgsql volatile
as $body$
declare
    -- The name of the function in: select * from memfold_internal.<name>(...
    v_call constant text := split_part(split_part(call, '(', 1), '.', 2);
    v_schema text;
begin
    if v_call = any(memfold_internal._shard_calls()) then
        v_schema := memfold_internal._shard_schema(tenant_id);
    end if;
    if v_schema is null then
        perform memfold_internal._assert_local_shard(tenant_id);
    end if;
    if current_setting('lock_timeout') <> lock_timeout then
        perform set_config('lock_timeout', lock_timeout, true);
    end if;
    -- An earlier call of the transaction may have set another tenant.
    perform set_config('memfold.tenant_id', tenant_id, true);
    if read_only = 'on' then
        perform set_config('transaction_read_only', 'on', true);
    end if;
    return query execute case
        when v_schema is null then call
        else 'select * from ' || v_schema || substr(call, length('select * from memfold_internal') + 1)
    end;
end;
$body$;
comment on function memfold_internal._run_on_shard(text, text, text, text, text) is
'_run_on_shard(text, text, text, text, "any") on the node of the tenant: runs the statement as its caller, with the functions of the
shard if it has them. Raises MF060.';

do $$
declare
    v_function record;
begin
    for v_function in
        select p.oid::regprocedure as name, p.proname in (
            '_is_tenant_node', '_assert_local_shard', '_run_on_shard', '_authorize_session', '_authorize_queue_session',
            '_shard_calls', '_shard_schema', '_shard_schema_name', '_is_shard_authorized'
        ) as is_for_sessions
        from pg_proc as p
        where p.pronamespace = 'memfold_internal'::regnamespace and p.proname in (
            '_is_tenant_node', '_assert_local_shard', '_run_on_shard', '_authorize_session', '_authorize_queue_session',
            '_planned_tenant', '_queue_tenants', '_shard_calls', '_shard_tables', '_shard_source', '_shard_schema_name', '_shard_schema',
            '_shard_functions_state', '_is_shard_authorized',
            -- Called for one tenant at a time, because no node has all of them.
            '_claim', '_retry_judgements'
        )
    loop
        execute format('alter function %s owner to memfold_owner', v_function.name);
        execute format('revoke all on function %s from public', v_function.name);
        if v_function.is_for_sessions then
            execute format('grant execute on function %s to memfold_app, memfold_agent, memfold_judge, memfold_auditor', v_function.name);
        end if;
    end loop;
end;
$$;

-- The statements that give the routine named other the owner, privileges and comment of a routine.
create or replace function pg_temp.attributes(routine oid, other text) returns text
language sql stable set search_path = pg_catalog, pg_temp
return (
    select concat_ws('; ',
        format('alter routine %s owner to %s', other, p.proowner::regrole),
        format('revoke all on routine %s from public', other),
        (
            select string_agg(format('grant execute on routine %s to %s', other, x.grantee::regrole), '; ')
            from aclexplode(p.proacl) as x where x.grantee not in (0, p.proowner)
        ),
        format('comment on routine %s is %L', other, obj_description(p.oid, 'pg_proc'))
    )
    from pg_proc as p where p.oid = routine
);

create or replace function pg_temp.wrapper(routine oid) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp
as $body$
declare
    f pg_proc;
    v_original text;
    v_literals text;
    v_values text;
    v_columns text;
    v_out text;
    v_into text;
    v_result constant text := pg_get_function_result(routine);
begin
    select p.* into f from pg_proc as p where p.oid = routine;
    v_original := format('memfold_internal.%I', ltrim(f.proname, '_'));
    select
        string_agg(format('%%L::%s', a.type), ', ' order by a.place),
        string_agg(format('%I.%I', f.proname, a.name), ', ' order by a.place)
    into v_literals, v_values
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
        -- Arguments are sent as text.
        ' set search_path = pg_catalog, pg_temp set datestyle = iso set intervalstyle = postgres set extra_float_digits = 3'
        -- Citus sends a call only by a plan that contains the tenant, not by a generic one, which the session may ask for.
        ' set plan_cache_mode = auto'
        -- In the binary protocol, Citus takes texts from other nodes to be in the encoding of the client.
        ' set citus.enable_binary_protocol = off'
        -- A statement on tables whose rows are on other nodes may call this.
        ' set citus.allow_nested_distributed_execution = on%s'
        ' as $wrapper$
declare
    v_call text;
    v_lock_timeout constant text := current_setting(''lock_timeout'');
    v_read_only constant text := current_setting(''transaction_read_only'');%s
begin
    %s%s;
    if memfold_internal._is_tenant_node(tenant_id) then
        %s;
    else
        v_call := format(%L, %s);
        %s as r (%s);
    end if;%s
end;
$wrapper$',
        f.pronamespace::regnamespace, f.proname, pg_get_function_arguments(routine), v_result,
        -- A call that writes nothing is sent without BEGIN and COMMIT (two of three round trips), unless a transaction is open there.
        case when f.provolatile <> 'v' or f.proname = 'known_memory' then ' set citus.function_opens_transaction_block = off' else '' end,
        case when v_into ~ 'v_result' then E'\n    v_result ' || v_result || ';' else '' end,
        -- Functions of a shard check the session themselves. By search_path, their call is planned once while the session stays with
        -- the shard; EXECUTE would plan it each time, a tenth of the time of known_memory().
        case when f.proname = any(memfold_internal._shard_calls()) then format(
            'v_call := memfold_internal._shard_schema(tenant_id);
    if v_call is not null then
        perform set_config(''search_path'', v_call, true);
        %s%I(%s);
        return%s;
    end if;
    ',
            v_into, f.proname, v_values, case when v_into ~ 'v_result' then ' v_result' else '' end
        ) else '' end,
        case
            when f.proname in ('claim_judgements', 'retry_judgements')
                then 'tenant_id := memfold_internal._authorize_queue_session(tenant_id)'
            when f.proname = any(memfold_internal._shard_calls()) then 'if memfold_internal._is_shard_authorized(tenant_id) is not true then
        perform memfold_internal._authorize_session(tenant_id);
    end if'
            else format('perform memfold_internal._authorize_session(tenant_id, %L)', case
                when has_function_privilege('memfold_judge', routine, 'execute') then 'memfold_judge'
                when not f.prosecdef then 'memfold_auditor'
                else 'memfold_owner'
            end)
        end,
        v_into || format('%s(%s)', v_original, v_values),
        format('select %s from %s(%s)', case when f.prorettype = 'void'::regtype then 'null::text' else '*' end,
            v_original, v_literals), v_values,
        v_into || 'memfold_internal._run_on_shard(tenant_id => tenant_id, call => v_call, lock_timeout => v_lock_timeout,'
            ' read_only => v_read_only, away => '''')', v_columns,
        case when v_into ~ 'v_result' then E'\n    return v_result;' else '' end
    );
end;
$body$;

do $$
declare
    v_function record;
    v_original text;
begin
    for v_function in
        select p.oid, ltrim(p.proname, '_') as name, p.prosecdef, pg_get_functiondef(p.oid) as definition
        from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prokind = 'f'
            and 'tenant_id' = any(p.proargnames[:p.pronargs])
            and (
                p.pronamespace = 'memfold'::regnamespace and p.proname !~ '^_' and p.proname <> 'derive_scope'
                -- These are the parts of rehash_bucket() and take_up_links(), procedures that commit on the calling node.
                or p.proname in ('_rehash_begin', '_rehash_batch', '_take_up_batch')
            )
            -- Omit wrappers.
            and ('citus.allow_nested_distributed_execution=on' = any(p.proconfig)) is not true
    loop
        -- The original keeps its name, which qualifies its arguments, in another schema.
        execute 'create or replace function memfold_internal.'
            || substr(v_function.definition, strpos(v_function.definition, v_function.name || '('));
        v_original := format('memfold_internal.%I(%s)', v_function.name, (
            select string_agg(t.type::regtype::text, ', ' order by t.place)
            from pg_proc as p cross join unnest(p.proargtypes::oid[]) with ordinality as t (type, place)
            where p.oid = v_function.oid
        ));
        execute pg_temp.attributes(v_function.oid, v_original);
        if not v_function.prosecdef then
            execute format('alter function %s security definer volatile', v_original);
        end if;
        execute pg_temp.wrapper(v_function.oid);
    end loop;
end;
$$;

-- Functions -----------------------------------------------------------------------------------------------------------

-- Citus plans statements for one tenant, so there are no generic plans.
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

-- Citus cannot plan an SQL function that reads a distributed table by its parameters: move the body into PL/pgSQL.
do $$
declare
    v_function record;
    v_head text;
    v_body text;
begin
    for v_function in
        select distinct p.oid, p.proretset, p.prosqlbody is not null as is_parsed, p.prosrc
        from pg_proc as p
        join pg_depend as d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_class'::regclass
        join pg_class as c on c.oid = d.refobjid and c.relkind in ('r', 'p', 'v')
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prosqlbody is not null
            and p.prosrc = ''
            and exists (
                select from pg_dist_partition as t where t.logicalrelid = c.oid
            )
        union all
        -- Functions that read a view have their body as text, and no dependencies.
        select p.oid, p.proretset, false, p.prosrc
        from pg_proc as p
        join pg_language as l on l.oid = p.prolang and l.lanname = 'sql'
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.prosqlbody is null
            and exists (
                select from pg_dist_partition as t
                where strpos(p.prosrc, 'from ' || t.logicalrelid::regclass::text || ' ') > 0
            )
    loop
        v_head := pg_get_functiondef(v_function.oid);
        v_body := case when v_function.is_parsed then pg_get_function_sqlbody(v_function.oid)
            else rtrim(v_function.prosrc, E' \n;') end;
        v_head := case when v_function.is_parsed then left(v_head, length(v_head) - length(v_body) - 1)
            else left(v_head, strpos(v_head, E'\nAS $function$') - 1) || E'\n' end;
        v_head := replace(v_head, E'\n LANGUAGE sql\n', E'\n LANGUAGE plpgsql\n');
        if starts_with(v_body, 'RETURN ') then
            v_body := v_body || ';';
        else
            if v_function.is_parsed then
                -- The statement between BEGIN ATOMIC and ; END.
                v_body := substr(v_body, 13, length(v_body) - 17);
            end if;
            v_body := case when v_function.proretset then 'return query ' || v_body || ';' else 'return (' || v_body || ');' end;
        end if;
        execute v_head || E'\nas $body$\n#variable_conflict use_column\nbegin\n' || v_body || E'\nend;\n$body$';
    end loop;
end;
$$;

-- Make memfold_rules own functions that change rules; tell Citus which functions to send; recreate policies and views.
do $$
declare
    v_function record;
    v_policy record;
    v_row record;
begin
    for v_function in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and p.proname in (
            'register_embedding_model', 'unregister_embedding_model', 'replace_embedding_model', 'apply_calibration',
            'calibrate_by_anchors', 'undo_calibration', 'create_vector_index', 'drop_vector_index', 'create_text_index', 'drop_text_index', '_indexed_words',
            '_rehash_end', '_claim_all_tenants', '_retry_all_tenants', 'tenants', '_shard_schema', 'create_shard_functions',
            'drop_shard_functions', 'shard_functions', '_create_shard_functions', '_drop_shard_functions', '_copy_rules'
        )
        or p.pronamespace = 'memfold_internal'::regnamespace and p.proname in (
            'set_policy', 'set_options', 'set_predicate', 'set_common_predicates', 'erase_tenant', 'import_bucket', 'rehash_begin'
        )
    loop
        execute format('alter function %s owner to memfold_rules', v_function.name);
        execute format('grant execute on function %s to memfold_owner', v_function.name);
    end loop;
    grant execute on function memfold.shard_functions() to memfold_app, memfold_agent, memfold_judge, memfold_auditor;
    -- For the schemas of create_shard_functions().
    execute format('grant create on database %I to memfold_rules', current_database());
    -- Distribute types first, as those of arguments: types in a function's body are not recorded as dependencies.
    execute (
        select 'create function memfold_internal._types(' || string_agg(t.oid::regtype::text, ', ')
            || ') returns void begin atomic end'
        from pg_type as t
        join pg_class as c on c.oid = t.typrelid and c.relkind = 'c'
        where t.typnamespace = any('{memfold,memfold_internal}'::regnamespace[])
    );
    set local citus.enable_ddl_propagation = on;
    perform create_distributed_function(p.oid::regprocedure)
    from pg_proc as p where p.pronamespace = 'memfold_internal'::regnamespace and p.proname in ('_types', '_planned_tenant');
    drop function memfold_internal._types;
    perform create_distributed_function('memfold_internal._run_on_shard(text, text, text, text, "any")', 'tenant_id',
        'memfold.memories', true);
    for v_policy in
        select p.polrelid::regclass as name, p.polname from pg_policy as p
        join pg_class as c
            on c.oid = p.polrelid and c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])
        where p.polname = 'tenant_isolation' and pg_get_expr(p.polqual, p.polrelid) !~ '_planned_tenant'
            and exists (select from pg_dist_partition as d where d.logicalrelid = p.polrelid)
    loop
        execute format('alter policy %I on %s using (tenant_id = memfold_internal._planned_tenant())',
            v_policy.polname, v_policy.name);
    end loop;
    set local citus.enable_ddl_propagation = off;
    for v_function in
        select p.oid::regprocedure as name from pg_proc as p
        where p.pronamespace = 'memfold_internal'::regnamespace and (p.proname !~ '^_' or p.proname = '_bound_tenant')
            or p.oid in (select f.oid from viewing_functions as f)
    loop
        -- These query tables from within statements on tables, all on one node.
        execute format('alter function %s set citus.allow_nested_distributed_execution = on', v_function.name);
    end loop;
    -- This drops functions after it has read all shards.
    alter function memfold.unregister_embedding_model(text) set citus.multi_shard_modify_mode = sequential;
    -- The function of a score, which this creates and rolls back, stays on the node: only the coordinator may send one.
    alter function memfold_internal.replay_bucket(text, text, uuid, text, bigint) set citus.enable_ddl_propagation = off;
    for v_row in select * from held_views order by place loop
        execute v_row.definition;
    end loop;
end;
$$;
commit;

-- Functions and views are plain objects of each node, not managed by Citus: to Citus, functions that take or return rows of
-- tables whose CHECKs call memfold's functions form a circle, and no node could be added. This must see what was
-- distributed, so it is a separate transaction.
do $$
declare
    v_result record;
begin
    set local search_path = pg_catalog, pg_temp;
    for v_result in
        select r.nodename, r.nodeport, r.result
        from run_command_on_workers((
            with routine as (
                select p.oid, format('%s', p.oid::regprocedure) as name from pg_proc as p
                where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
            ),

            routine_text as (
                select r.oid::bigint as place, r.name, concat_ws('; ',
                    pg_get_functiondef(r.oid), pg_temp.attributes(r.oid, r.name)
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
    set local lock_timeout = '300ms';
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
                    -- It needs an object that comes later.
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
    execute format('grant create on database %%I to memfold_rules', current_database());
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
        raise exception 'worker %:% does not have memfold''s functions', v_result.nodename, v_result.nodeport using
            -- memfold init retries the first of these.
            errcode = case when v_result.result ~ 'deadlock detected|lock timeout|concurrently updated' then 'deadlock_detected'
                else 'raise_exception' end,
            detail = v_result.result, hint = 'Run the script again when the worker can be reached.';
    end loop;
end;
$$;
drop table held_views;

-- Shards with functions of the previous release get those of this one.
do $$
begin
    if (select bool_or(f.state <> 'missing') and bool_or(f.state <> 'current') from memfold.shard_functions() as f) then
        perform from memfold.create_shard_functions();
    end if;
end;
$$;
