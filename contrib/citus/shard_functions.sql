-- Functions of a shard: the release's own functions over one shard's tables, which PostgreSQL plans as on one server. See README.md.
--
-- memfold init runs it on the coordinator before citus.sql, while memfold's functions are still those of the release. It keeps their
-- text in memfold_internal._shard_source(), from which memfold.create_shard_functions() makes a schema for each shard of memories.
begin;

set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
set local citus.enable_ddl_propagation = off;

-- Asks nothing: the answer would change a rule on every node from the tenant's node, where memfold_owner cannot.
-- suggest_predicates() names the predicate. Not in citus.sql, because functions of a shard need it too.
create or replace function memfold_internal._ask_cardinality(
    p_tenant_id text, p_bucket_id text, p_predicate text, p_memory_id uuid, p_other_id uuid
) returns uuid
language sql volatile
return null::uuid;

create or replace function memfold_internal._shard_calls() returns text[]
language sql immutable parallel safe
return array['ingest_memory', 'ingest_memories', 'known_memory', 'search_memories'];
comment on function memfold_internal._shard_calls() is 'The calls that run with the functions of a shard, where it has them.';

create or replace function memfold_internal._shard_tables(shard_id bigint) returns table (name text, shard text)
language plpgsql stable set search_path = pg_catalog, pg_temp
as $body$
begin
    return query
    select c.relname::text, shard_name(s.logicalrelid, s.shardid)
    from pg_dist_shard as o
    join pg_dist_shard as s on s.shardminvalue is null or s.shardminvalue = o.shardminvalue
    join pg_dist_partition as p
        on p.logicalrelid = s.logicalrelid and (p.partmethod = 'n' or p.colocationid = (
            select q.colocationid from pg_dist_partition as q where q.logicalrelid = o.logicalrelid
        ))
    join pg_class as c on c.oid = s.logicalrelid and c.relnamespace = 'memfold'::regnamespace
    where o.shardid = shard_id;
end;
$body$;
comment on function memfold_internal._shard_tables(bigint) is
'Each distributed table of memfold, and its shard next to that shard of memories: the co-located one, or that of a reference table.';

create or replace function memfold_internal._create_shard_functions(shard text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp set check_function_bodies = off set client_min_messages = warning
set citus.enable_ddl_propagation = off set citus.enable_manual_changes_to_shards = on
-- A writer that goes through Citus may hold rows that a holder of this lock waits for: give way before a deadlock is detected.
set lock_timeout = '20ms'
as $body$
declare
    v_shard constant bigint := substring(shard from '[0-9]+$');
    v_schema constant text := memfold_internal._shard_schema_name(v_shard);
    v_source text;
    v_parts jsonb;
    v_left int[];
    v_next int[];
    v_place int;
    v_table record;
    v_error text;
    v_changes text[];
    v_is_current constant boolean := to_regproc(v_schema || '.' || v_schema) is not null;
begin
    perform pg_advisory_xact_lock(hashtext('memfold_internal._create_shard_functions'), 0);
    if not v_is_current then
        -- Half of them are left if the shard was moved away, and back: nobody uses them.
        execute format('drop schema if exists %I cascade', v_schema);
        execute format('create schema %I', v_schema);
        v_source := replace(memfold_internal._shard_source(), '<<>>', v_schema);
        for v_table in select t.name, t.shard from memfold_internal._shard_tables(v_shard) as t loop
            v_source := replace(v_source, format('<<%s>>', v_table.name), v_table.shard);
        end loop;
        v_parts := v_source;
        execute format('grant usage, create on schema %I to memfold_owner', v_schema);
        v_left := array(select i from generate_series(0, jsonb_array_length(v_parts) - 1) as i);
        loop
            v_next := '{}';
            foreach v_place in array v_left loop
                begin
                    execute v_parts ->> v_place;
                exception
                    -- before what it depends on
                    when undefined_function or undefined_table or undefined_object then
                        v_next := v_next || v_place;
                        v_error := sqlerrm;
                end;
            end loop;
            exit when v_next = '{}';
            if cardinality(v_next) = cardinality(v_left) then
                raise exception 'functions of shard % cannot be created: %', v_shard, v_error;
            end if;
            v_left := v_next;
        end loop;
        execute format('revoke create on schema %I from memfold_owner', v_schema);
        execute format('grant usage on schema %I to memfold_app, memfold_agent, memfold_judge, memfold_auditor', v_schema);
        execute format('comment on schema %I is %L', v_schema, format(
            'memfold''s functions over the tables of shard %s, for calls of its tenants; see create_shard_functions().', v_shard));
        -- Dropped together with any of the shard's tables, which its arguments name: a schema that has it is whole.
        execute format('create function %I.%I(%s) returns void language sql begin atomic end', v_schema, v_schema, (
            select string_agg(t.shard, ', ' order by t.name) from memfold_internal._shard_tables(v_shard) as t
        ));
    end if;
    -- Policies as on one server: the constant of Citus' planner would bind a plan to a tenant. Then those of an earlier release.
    v_changes := array(
        select format('alter policy %I on %s using (tenant_id = current_setting(%L, true))', p.polname, t.shard,
            'memfold.tenant_id')
        from memfold_internal._shard_tables(v_shard) as t
        join pg_policy as p on p.polrelid = t.shard::regclass
        where pg_get_expr(p.polqual, p.polrelid) ~ '_planned_tenant'
        order by t.name
    ) || array(
        select format('drop schema %I cascade', n.nspname) from pg_namespace as n
        where n.nspname ~ format('^memfold_[0-9a-f]{8}_%s$', v_shard) and n.nspname <> v_schema
    );
    if v_changes = '{}' then
        return case when v_is_current then 'unchanged' else 'created' end;
    end if;
    for v_try in 1..200 loop
        begin
            -- Calls in progress end first, and writers wait here rather than in the middle of a transaction.
            perform lock_shard_metadata(7, array[v_shard]);
            for v_place in 1..cardinality(v_changes) loop
                execute v_changes[v_place];
            end loop;
            return case when v_is_current then 'updated' else 'created' end;
        exception
            when lock_not_available then
                if v_try = 200 then
                    raise;
                end if;
        end;
        perform pg_sleep(0.05 * random());
    end loop;
end;
$body$;
comment on function memfold_internal._create_shard_functions(text) is
'create_shard_functions() for one shard of memories on this node. Raises 55P03 if transactions of the shard''s tenants last too long.';

create or replace function memfold_internal._drop_shard_functions(every boolean) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp set client_min_messages = warning set lock_timeout = '20ms' set citus.enable_ddl_propagation = off
as $body$
declare
    v_schema text;
    v_count bigint := 0;
begin
    perform pg_advisory_xact_lock(hashtext('memfold_internal._create_shard_functions'), 0);
    for v_schema in
        select n.nspname from pg_namespace as n
        where n.nspname ~ '^memfold_[0-9a-f]{8}_[0-9]+$' and (every or not exists (
            select from pg_dist_placement as p
            join pg_dist_local_group as g on g.groupid = p.groupid
            where p.shardid = substring(n.nspname from '[0-9]+$')::bigint
        ))
        order by n.nspname
    loop
        for v_try in 1..200 loop
            begin
                -- Calls in progress end first; a shard that was split has none.
                perform lock_shard_metadata(7, array[s.shardid])
                from pg_dist_shard as s where s.shardid = substring(v_schema from '[0-9]+$')::bigint;
                execute format('drop schema %I cascade', v_schema);
                v_count := v_count + 1;
                exit;
            exception
                when lock_not_available then
                    if v_try = 200 then
                        raise;
                    end if;
            end;
            perform pg_sleep(0.05 * random());
        end loop;
    end loop;
    return v_count;
end;
$body$;
comment on function memfold_internal._drop_shard_functions(boolean) is
'Drops functions of shards on this node: all, or those of shards that are no longer here. Returns for how many shards.';

create or replace function memfold.create_shard_functions() returns table (node text, shard_id bigint, result text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    return query
    select r.nodename || ':' || r.nodeport, r.shardid, r.result
    from run_command_on_placements(
        'memfold.memories', $$select memfold_internal._create_shard_functions('%s')$$, false
    ) as r;
    return query
    select n.nodename || ':' || n.nodeport, null::bigint, r.result
    from run_command_on_all_nodes('select memfold_internal._drop_shard_functions(false)') as r
    join pg_dist_node as n on n.nodeid = r.nodeid
    where not r.success;
end;
$body$;
comment on function memfold.create_shard_functions() is
'Creates, on Citus, memfold''s functions over the tables of each shard, on its node, and drops those of shards that have moved away: the
calls of _shard_calls() then take about as long as on one server. Run it after shards were moved or split; until then, calls of these
tenants are slower. Writers continue; result is created, updated, unchanged, or an error: run it again. shard_id is null for what could not
be dropped. For members of memfold_owner.';

create or replace function memfold_internal._shard_functions_state(shard text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp
as $body$
declare
    v_shard constant text := substring(shard from '[0-9]+$');
    v_schema constant text := memfold_internal._shard_schema_name(v_shard::bigint);
begin
    return case
        when to_regproc(v_schema || '.' || v_schema) is not null then 'current'
        when exists (select from pg_namespace as n where n.nspname ~ format('^memfold_[0-9a-f]{8}_%s$', v_shard)) then 'old'
        else 'missing'
    end;
end;
$body$;
comment on function memfold_internal._shard_functions_state(text) is
'Whether this node has the functions of that shard of memories: current, old (of another release, or dropped in part) or missing.';

create or replace function memfold.shard_functions() returns table (node text, shard_id bigint, state text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
begin
    return query
    select r.nodename || ':' || r.nodeport, r.shardid, r.result
    from run_command_on_placements(
        'memfold.memories', $$select memfold_internal._shard_functions_state('%s')$$, false
    ) as r
    where r.success;
end;
$body$;
comment on function memfold.shard_functions() is
'Returns, on Citus, which shards of memories have functions of their own (create_shard_functions): current, old (of another release, or
dropped in part) or missing; of nodes that answer.';

create or replace function memfold.drop_shard_functions() returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    v_result record;
    v_count bigint := 0;
begin
    for v_result in
        select r.success, r.result from run_command_on_all_nodes('select memfold_internal._drop_shard_functions(true)') as r
    loop
        if not v_result.success then
            raise exception 'functions of shards could not be dropped: %', v_result.result using errcode = 'lock_not_available',
                hint = 'Run it again.';
        end if;
        v_count := v_count + v_result.result::bigint;
    end loop;
    return v_count;
end;
$body$;
comment on function memfold.drop_shard_functions() is
'Drops what create_shard_functions() created, on all nodes, and returns for how many shards. Calls then take longer. Run it before you
alter memfold''s tables. For members of memfold_owner.';

create or replace function memfold_internal._shard_schema(tenant_id text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $body$
declare
    -- without a tenant the call is refused later
    v_shard constant bigint := case when tenant_id is not null
        then get_shard_id_for_distribution_column('memfold.memories', tenant_id) end;
    v_schema constant name := memfold_internal._shard_schema_name(v_shard);
    v_used constant text := coalesce(current_setting('memfold.session_shards', true), '');
begin
    -- An older snapshot would not see where the shard is now.
    if to_regproc(v_schema || '.' || v_schema) is null or current_setting('transaction_isolation') <> 'read committed' then
        return null;
    end if;
    -- A session keeps plans for each shard: 17 MB if it makes all of these calls.
    if strpos(v_used, format('/%s/', v_shard)) = 0 then
        if length(v_used) - length(replace(v_used, '//', '/')) + (v_used <> '')::int
            >= coalesce(nullif(current_setting('memfold.max_session_shards', true), '')::int, 8)
        then
            return null;
        end if;
        perform set_config('memfold.session_shards', format('%s/%s/', v_used, v_shard), false);
    end if;
    -- Moves of shards wait for this lock, as for a statement of Citus that writes, and it lasts until the end of the transaction.
    perform lock_shard_metadata(5, array[v_shard]);
    return (
        select v_schema
        from pg_dist_placement as p
        where p.shardid = v_shard and p.groupid = (select g.groupid from pg_dist_local_group as g)
            and exists (select from pg_proc as f where f.proname = v_schema)
    );
end;
$body$;
comment on function memfold_internal._shard_schema(text) is
'The schema with the functions of the tenant''s shard, which stays on this node until the end of the transaction; null if the call has to
go through Citus: no such functions, another node, REPEATABLE READ, or memfold.max_session_shards others in this session.';

-- The release's functions, views and types that the calls reach, as an array of statements. In them <<memories>> is the shard of that
-- table and <<>> the schema. Functions that neither read tables nor call one that does stay where they are.
do $$
declare
    -- catalog only: Citus has the index on each node under its name
    v_shared constant text[] := '{_vector_index,_text_index}';
    v_tables text;
    v_functions text;
    v_others text;
    v_source jsonb;
    v_count bigint;
    v_faults text;
begin
    if exists (
        select from pg_proc as p
        where p.pronamespace = 'memfold'::regnamespace and p.proname = 'ingest_memory'
            and 'citus.allow_nested_distributed_execution=on' = any(p.proconfig)
    ) then
        -- run again: they are wrappers by now
        return;
    end if;
    select string_agg(c.relname, '|') into v_tables
    from pg_class as c where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'p');

    create temporary table part on commit drop as
    select p.oid, 'function' as kind, n.nspname || '.' || p.proname as name, p.provolatile = 'i' as is_free,
        concat_ws('; ', pg_get_functiondef(p.oid),
            -- One that reads past row-level security, as its owner, stays memfold_rules'. The calls run as memfold_owner, and need no
            -- privileges on what they call.
            format('revoke all on function %s from public', p.oid::regprocedure),
            case when n.nspname = 'memfold_internal' and p.prosecdef
                then format('grant execute on function %s to memfold_owner', p.oid::regprocedure)
                else format('alter function %s owner to memfold_owner', p.oid::regprocedure)
            end,
            (
                select string_agg(format('grant execute on function %s to %s', p.oid::regprocedure, x.grantee::regrole), '; '
                    order by x.grantee::regrole::text)
                from aclexplode(p.proacl) as x where x.grantee not in (0, p.proowner) and n.nspname = 'memfold' and p.prosecdef
            )) as text
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
    where n.nspname in ('memfold', 'memfold_internal') and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
        and p.proname <> all(v_shared) and p.proname !~ '_shard_'
        -- texts of hints name other public functions
        and (n.nspname <> 'memfold' or p.proname = any(memfold_internal._shard_calls() || 'derive_scope'::text))
    union all
    select c.oid, 'view', n.nspname || '.' || c.relname, false, concat_ws('; ',
        format('create view %s with (%s) as %s', c.oid::regclass, array_to_string(c.reloptions, ', '), rtrim(pg_get_viewdef(c.oid), ';')),
        format('alter view %s owner to memfold_owner', c.oid::regclass))
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname in ('memfold', 'memfold_internal') and c.relkind = 'v'
    union all
    select c.oid, 'type', n.nspname || '.' || c.relname, true, format('create type %s as (%s)', c.oid::regclass, (
        select string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum)
        from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ))
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname in ('memfold', 'memfold_internal') and c.relkind = 'c';

    create temporary table mention on commit drop as
    select distinct p.oid, m.word[1] as name
    from part as p cross join regexp_matches(p.text, '\m(memfold(?:_internal)?\.\w+)', 'g') as m (word);

    create temporary table reached on commit drop as
    with recursive reach as (
        select p.oid, p.kind, p.name, p.is_free from part as p where p.name = any(
            select 'memfold.' || c from unnest(memfold_internal._shard_calls()) as c)
        union
        select p.oid, p.kind, p.name, p.is_free
        from reach as r
        join mention as m on m.oid = r.oid
        join part as p on p.name = m.name
    )
    select r.* from reach as r;
    -- what names a table, or anything that does
    loop
        update reached as r set is_free = false
        where r.is_free and exists (
            select from mention as m
            where m.oid = r.oid and m.name <> r.name and (
                m.name ~ format('^memfold\.(%s)$', v_tables)
                or m.name = any(select o.name from reached as o where not o.is_free)
            )
        );
        get diagnostics v_count = row_count;
        exit when v_count = 0;
    end loop;

    select string_agg(distinct split_part(r.name, '.', 2), '|') filter (where r.kind = 'function'),
        string_agg(distinct split_part(r.name, '.', 2), '|') filter (where r.kind <> 'function')
    into v_functions, v_others
    from reached as r where not r.is_free;
    select jsonb_agg(regexp_replace(regexp_replace(regexp_replace(p.text,
        format('\mmemfold\.(%s)\M(?!\()', v_tables), '<<\1>>', 'g'),
        format('\mmemfold(?:_internal)?\.(%s)\M(?!\()', v_others), '<<>>.\1', 'g'),
        format('\mmemfold(?:_internal)?\.(%s)\M(?=\()', v_functions), '<<>>.\1', 'g')
        order by p.kind = 'type' desc, p.oid)
    into v_source
    from reached as r join part as p on p.oid = r.oid
    where not r.is_free;
    select string_agg(m.word[1], ', ') into v_faults
    from jsonb_array_elements_text(v_source) as s (text)
    cross join regexp_matches(s.text, format('\mmemfold(?:\.(?:%s)|_internal\.(?:%s))\M', v_tables, v_others), 'g') as m (word);
    if v_faults is not null then
        raise exception 'functions of a shard would still use %', v_faults;
    end if;
    -- its columns would be qualified with another name than the shard's
    select string_agg(distinct m.word[1], ', ') into v_faults
    from jsonb_array_elements_text(v_source) as s (text)
    cross join regexp_matches(s.text, format('(?<![.\w])(%s)\.\w', v_tables), 'g') as m (word)
    where s.text !~* format('\m(as|declare|>>) %s\M', m.word[1]);
    if v_faults is not null then
        raise exception 'functions of a shard need an alias for %', v_faults;
    end if;

    execute replace(pg_get_functiondef('memfold_internal._is_authorized(text)'::regprocedure), '_is_authorized', '_is_shard_authorized');
    comment on function memfold_internal._is_shard_authorized(text) is
        '_is_authorized() of the release: the common case of _authorize_session(), for calls of _shard_calls().';
    execute format(
        'create or replace function memfold_internal._shard_source() returns text language sql immutable as %L',
        format('select %L::text', v_source));
    -- Another release, or another way of creating them, gets schemas of other names, so that no call begins with functions of one
    -- and ends with those of the other.
    execute format(
        'create or replace function memfold_internal._shard_schema_name(shard_id bigint) returns text language sql immutable parallel safe'
        -- with the cast it is immutable, and is inlined
        ' return %L || shard_id::text',
        format('memfold_%s_', left(md5((
            -- created in any order
            select string_agg(s.text, '' order by s.text collate "C") from jsonb_array_elements_text(v_source) as s (text)
        ) || (
            select p.prosrc from pg_proc as p where p.oid = 'memfold_internal._create_shard_functions(text)'::regprocedure
        )), 8)));
    comment on function memfold_internal._shard_source() is
        'The statements from which _create_shard_functions() makes the functions of a shard: those of the release.';
    comment on function memfold_internal._shard_schema_name(bigint) is
        'The schema of the functions of that shard, by this release.';
end;
$$;

do $$
declare
    v_function regprocedure;
begin
    for v_function in
        select p.oid::regprocedure from pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
            and p.proname ~ '(^|_)shard_(functions|schema|source|calls|tables|authorized)'
    loop
        execute format('revoke all on function %s from public', v_function);
    end loop;
end;
$$;
commit;
