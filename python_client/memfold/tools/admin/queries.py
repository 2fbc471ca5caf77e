"""The statements of installation and `memfold doctor`. Names are qualified, so they do not depend on search_path."""

# installing ------------------------------------------------------------------------------------------------

REVISION = "select version_num from memfold_internal.alembic_version"
SET_COMMON_PREDICATES = "select memfold.set_common_predicates('*')"
HAS_REVISION = "select pg_catalog.to_regclass('memfold_internal.alembic_version') is not null"

# The setting of the database; without one, the server's default, ignoring that of this role. Then whether this role
# has the name of memfold's schema, which "$user" would select, and no search_path for this database.
SEARCH_PATH = """
select current_database(), coalesce(
    (
        select substr(c.entry, length('search_path=') + 1)
        from pg_catalog.pg_db_role_setting as s
        join pg_catalog.pg_database as d on d.oid = s.setdatabase and d.datname = current_database()
        cross join unnest(s.setconfig) as c (entry)
        where s.setrole = 0 and c.entry like 'search\\_path=%'
    ),
    (
        select case when s.source in ('default', 'configuration file', 'command line') then s.reset_val
            else s.boot_val end
        from pg_catalog.pg_settings as s
        where s.name = 'search_path'
    )
), current_user = 'memfold' and not exists (
    select from pg_catalog.pg_db_role_setting as s
    join pg_catalog.pg_database as d on d.oid = s.setdatabase and d.datname = current_database()
    cross join unnest(s.setconfig) as c (entry)
    where s.setrole = current_user::regrole and c.entry like 'search\\_path=%'
)
"""

# The settings under which the files of functions are executed, with every installation method.
INSTALL_PATH = """
select
    pg_catalog.set_config('search_path',
        'memfold, memfold_internal, ' || pg_catalog.quote_ident(n.nspname) || ', pg_temp', true),
    pg_catalog.set_config('client_min_messages', 'warning', true),
    pg_catalog.set_config('lock_timeout', '3s', true)
from pg_catalog.pg_extension as e
join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = 'vector'
"""

STEP_ASIDE = (
    "alter schema memfold rename to memfold_as_found; create schema memfold;"
    " alter schema memfold_internal rename to memfold_internal_as_found; create schema memfold_internal"
)

# A body that is stored parsed is printed with different parentheses after pg_dump or pg_upgrade have parsed it again.
DEFINITIONS = """
select p.oid::regprocedure::text, case
    when p.prosqlbody is null then pg_catalog.pg_get_functiondef(p.oid)
    else pg_catalog.regexp_replace(pg_catalog.pg_get_functiondef(p.oid), '[()\\s]', '', 'g')
end
from pg_catalog.pg_proc as p
where p.pronamespace = any(array[pg_catalog.to_regnamespace('memfold'), pg_catalog.to_regnamespace('memfold_internal')])
    and p.prokind in ('f', 'p')
    -- of no file: `memfold adopt` makes these for a table, apply_calibration() for a model
    and coalesce(pg_catalog.obj_description(p.oid, 'pg_proc'), '') !~ '^Made by (memfold adopt|apply_calibration)'
    -- nor are those of memfold_py, a separate extension
    and not exists (
        select from pg_catalog.pg_depend as d
        join pg_catalog.pg_extension as e on e.oid = d.refobjid
        where d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
            and d.refclassid = 'pg_catalog.pg_extension'::regclass and e.extname = 'memfold_py'
    )
"""

# doctor ----------------------------------------------------------------------------------------------------

SERVER = """
select
    pg_catalog.current_setting('server_version') as server,
    pg_catalog.current_setting('server_version_num')::integer as server_number,
    pg_catalog.current_setting('server_encoding') as encoding,
    current_database() as database,
    current_user as role,
    (select r.rolsuper from pg_catalog.pg_roles as r where r.rolname = current_user) as is_superuser,
    (select r.rolbypassrls from pg_catalog.pg_roles as r where r.rolname = current_user) as bypasses,
    (select e.extversion from pg_catalog.pg_extension as e where e.extname = 'vector') as pgvector,
    (select e.extversion from pg_catalog.pg_extension as e where e.extname = 'memfold') as extension,
    pg_catalog.to_regclass('memfold_internal.alembic_version') is not null as migrated,
    coalesce((
        select pg_catalog.pg_has_role(current_user, r.oid, 'member')
        from pg_catalog.pg_roles as r where r.rolname = 'memfold_owner'
    ), false) as owns,
    -- a dump: the policies that let every row be read, and the right to read every table
    exists (
        select from pg_catalog.pg_roles as r
        where r.rolname = 'memfold_auditor' and pg_catalog.pg_has_role(current_user, r.oid, 'usage')
    ) as audits,
    not exists (
        select from pg_catalog.pg_class as c
        where c.relnamespace = any(
            array[pg_catalog.to_regnamespace('memfold'), pg_catalog.to_regnamespace('memfold_internal')]
        ) and c.relkind in ('r', 'p') and not pg_catalog.has_table_privilege(current_user, c.oid, 'select')
    ) as reads_all,
    -- which of the roles that look across tenants, and which that are bound to one tenant, this login is a member of
    array(
        select r.rolname::text from pg_catalog.pg_roles as r
        where r.rolname in ('memfold_auditor', 'memfold_queue', 'memfold_judge', 'memfold_agent')
            and pg_catalog.pg_has_role(current_user, r.oid, 'member')
        order by 1
    ) as groups
"""

# Models without thresholds, whose cosines merge nothing.
UNMEASURED_MODELS = """
select m.model from memfold.embedding_models as m where m.merge_threshold is null and m.replaced_by is null order by m.model
"""

# Whether the database uses Citus and memfold is distributed there.
CITUS = """
select exists (select from pg_catalog.pg_extension where extname = 'citus') as has_citus,
    exists (select from pg_catalog.pg_class as c where c.oid = pg_catalog.to_regclass('memfold.memories')
        and c.relowner::regrole::text = 'memfold_rules') as is_distributed
"""

# Nodes whose functions are not the coordinator's.
OTHER_NODES = """
with here as (
    select pg_catalog.md5(pg_catalog.string_agg(
        p.proname || p.prosrc, '' order by p.proname, p.prosrc collate pg_catalog."C")) as functions
    from pg_catalog.pg_proc as p
    where p.pronamespace = any(array[pg_catalog.to_regnamespace('memfold'), pg_catalog.to_regnamespace('memfold_internal')])
)
select w.nodename || ':' || w.nodeport as node, w.success and w.result = h.functions as same
from here as h
cross join lateral pg_catalog.run_command_on_workers(
    'select pg_catalog.md5(pg_catalog.string_agg('
    'p.proname || p.prosrc, '''' order by p.proname, p.prosrc collate pg_catalog."C"))'
    ' from pg_catalog.pg_proc as p where p.pronamespace = any(array['
    'pg_catalog.to_regnamespace(''memfold''), pg_catalog.to_regnamespace(''memfold_internal'')])'
) as w
"""

# How many shards of memories have functions of their own: current ones, old ones, none; on nodes that answer.
SHARD_FUNCTIONS = """
select count(*) as shards,
    count(*) filter (where f.state = 'current') as current, count(*) filter (where f.state = 'old') as old
from memfold.shard_functions() as f
"""

# Gives shards that have moved their functions again. (Only on Citus, for members of memfold_owner.)
CREATE_SHARD_FUNCTIONS = "select memfold.create_shard_functions()"
CAN_CREATE_SHARD_FUNCTIONS = """
select coalesce(pg_catalog.has_function_privilege(
    pg_catalog.to_regprocedure('memfold.create_shard_functions()'), 'execute'), false)
"""

# The expected row-level security: each table of tenants, and each policy on it.
ISOLATION_FAULTS = """
with isolated as (
    select c.oid, c.relname::text as name, c.relrowsecurity,
        -- on Citus the tables are another's, and bind memfold_owner without force
        c.relforcerowsecurity or c.relowner::regrole::text = 'memfold_rules' as is_forced
    from pg_catalog.pg_class as c
    where c.relnamespace = pg_catalog.to_regnamespace('memfold') and c.relkind in ('r', 'p') and exists (
        select from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    )
),
meant (policy, command, roles, condition, tables) as (
    values
    ('tenant_isolation', 'ALL', 'memfold_owner', 'tenant_id = current_setting(''memfold.tenant_id''::text, true)', null),
    ('tenant_read', 'SELECT', 'memfold_agent, memfold_app', 'tenant_id = _tenant()', null),
    ('audit_read', 'SELECT', 'memfold_auditor', 'true', array(select name from isolated)),
    ('any_tenant_read', 'SELECT', 'memfold_agent, memfold_app, memfold_owner', 'tenant_id = ''*''::text',
        array['antonyms', 'options', 'policies', 'predicates']),
    ('queue_all', 'ALL', 'memfold_queue', 'true', array['judgements', 'memories']),
    ('queue_read', 'SELECT', 'memfold_queue', 'true', array['memory_counters', 'memory_events']),
    ('own_row', 'SELECT', 'memfold_agent, memfold_app', 'role_name = _bound_role(CURRENT_USER)', array['tenant_roles']),
    ('owner_all', 'ALL', 'memfold_owner', 'true', array['tenant_roles'])
),
wanted as (
    select w.name, m.policy, m.command, m.roles, m.condition
    from isolated as w
    join meant as m on w.name = any(m.tables) or m.tables is null and w.name <> 'tenant_roles'
),
present as (
    select w.name, p.policyname::text as policy, p.cmd as command, (
            select pg_catalog.string_agg(r::text, ', ' order by r::text) from unnest(p.roles) as r
        ) as roles,
        pg_catalog.replace(
            pg_catalog.regexp_replace(pg_catalog.regexp_replace(p.qual, 'memfold_internal\\._|pg_catalog\\.', '_', 'g'),
                '^\\((.*)\\)$', '\\1'),
            '_planned_tenant()', 'current_setting(''memfold.tenant_id''::text, true)') as condition,
        p.permissive, p.with_check
    from isolated as w
    join pg_catalog.pg_policies as p on p.schemaname = 'memfold' and p.tablename = w.name
)
select w.name || case when w.relrowsecurity then ': row level security is not forced'
    else ': row level security is off' end as fault
from isolated as w
where not (w.relrowsecurity and w.is_forced)
union all
select coalesce(w.name, p.name) || ': policy ' || coalesce(w.policy, p.policy) || case
    when p.policy is null then ' is missing'
    when w.policy is null then ' is not memfold''s'
    else ' differs' end
from wanted as w
full join present as p on p.name = w.name and p.policy = w.policy
where p.policy is null or w.policy is null
    or (p.command, p.roles, p.condition) is distinct from (w.command, w.roles, w.condition)
    or p.permissive <> 'PERMISSIVE' or p.with_check is not null
union all
select c.relname::text || ': ' || coalesce(nullif(a.grantee, 0)::regrole::text, 'everybody') || ' may '
    || pg_catalog.string_agg(pg_catalog.lower(a.privilege_type), ', ' order by a.privilege_type)
from pg_catalog.pg_class as c
cross join lateral pg_catalog.aclexplode(c.relacl) as a
where c.relnamespace = any(array[pg_catalog.to_regnamespace('memfold'), pg_catalog.to_regnamespace('memfold_internal')])
    and c.relkind in ('r', 'p', 'v')
    and a.grantee <> c.relowner and a.grantee::regrole::text <> 'memfold_owner' and (
        a.grantee = 0 or a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
        and not (c.relname = 'judgements' and a.privilege_type in ('INSERT', 'UPDATE')
            and a.grantee::regrole::text = 'memfold_queue')
    )
group by c.relname, a.grantee
order by 1
"""

# Who else is connected, and bypasses row-level security.
BYPASSING_SESSIONS = """
select s.usename::text as role, pg_catalog.count(*) as sessions
from pg_catalog.pg_stat_activity as s
join pg_catalog.pg_roles as r on r.oid = s.usesysid
where s.datname = current_database() and s.pid <> pg_catalog.pg_backend_pid() and s.backend_type = 'client backend'
    and (r.rolsuper or r.rolbypassrls or pg_catalog.pg_has_role(r.oid, 'memfold_owner', 'member'))
group by 1
order by 1
"""

SELFTEST = """
select
    count(*) as checks,
    count(*) filter (where not s.ok) as failed,
    min(s.profile || ': ' || left(s.input, 60)) filter (where not s.ok) as example
from memfold.canonicalizer_selftest() as s
"""

# Rows of a plain INSERT that have no ledger row yet.
PLAIN_ROWS = """
select count(*) as waiting
from memfold.memories as m
where m.tenant_id = %(tenant_id)s and not m.is_ingested and not exists (
    select from memfold.memory_events as e
    where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id and e.observation
)
"""

INVALID_INDEXES = """
select i.indexrelid::regclass::text as name
from pg_catalog.pg_index as i
join pg_catalog.pg_class as c on c.oid = i.indexrelid
where c.relnamespace = pg_catalog.to_regnamespace('memfold') and not (i.indisvalid and i.indisready)
order by 1
"""

# The pending work of buckets, from its indexes: no memory is counted.
_WAITING = """
asked as (
    select j.tenant_id, j.bucket_id,
        count(*) filter (where j.kind <> 'review' and j.status <> 'dead') as for_judge,
        count(*) filter (where j.kind = 'review' and j.status <> 'dead') as for_person
    from memfold.judgements as j
    where j.status in ('open', 'leased') and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s)
    group by j.tenant_id, j.bucket_id
),
dead as (
    select j.tenant_id, j.bucket_id, count(*) as dead
    from memfold.judgements as j
    where j.status = 'dead' and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s)
    group by j.tenant_id, j.bucket_id
),
pending as (
    select m.tenant_id, m.bucket_id, count(*) as pending_embeddings
    from memfold.memories as m
    where m.embedding_pending and (%(tenant_id)s::text is null or m.tenant_id = %(tenant_id)s)
    group by m.tenant_id, m.bucket_id
),
plain as (
    select m.tenant_id, m.bucket_id, count(*) as plain_rows
    from memfold.memories as m
    where not m.is_ingested and (%(tenant_id)s::text is null or m.tenant_id = %(tenant_id)s) and not exists (
        select from memfold.memory_events as e
        where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id and e.observation
    )
    group by m.tenant_id, m.bucket_id
)
select b.tenant_id, b.bucket_id, coalesce(a.for_judge, 0) as for_judge, coalesce(a.for_person, 0) as for_person,
    coalesce(d.dead, 0) as dead, coalesce(w.pending_embeddings, 0) as pending_embeddings,
    coalesce(p.plain_rows, 0) as plain_rows
from buckets as b
left join asked as a on a.tenant_id = b.tenant_id and a.bucket_id = b.bucket_id
left join dead as d on d.tenant_id = b.tenant_id and d.bucket_id = b.bucket_id
left join pending as w on w.tenant_id = b.tenant_id and w.bucket_id = b.bucket_id
left join plain as p on p.tenant_id = b.tenant_id and p.bucket_id = b.bucket_id
order by b.tenant_id, b.bucket_id
"""

# One by one, each as the next entry of an index (a loose index scan); texts without a hash have a separate index.
_INDEXED_BUCKETS = """
with recursive hashed as (
    (
        select m.tenant_id, m.bucket_id from memfold.memories as m
        where m.content_hash is not null and (%(tenant_id)s::text is null or m.tenant_id = %(tenant_id)s)
        order by m.tenant_id, m.bucket_id limit 1
    )
    union all
    select n.tenant_id, n.bucket_id
    from hashed as h
    cross join lateral (
        select m.tenant_id, m.bucket_id from memfold.memories as m
        where m.content_hash is not null and (%(tenant_id)s::text is null or m.tenant_id = %(tenant_id)s)
            and (m.tenant_id, m.bucket_id) > (h.tenant_id, h.bucket_id)
        order by m.tenant_id, m.bucket_id limit 1
    ) as n
),
opted_out as (
    (
        select m.tenant_id, m.bucket_id from memfold.memories as m
        where m.content_hash is null and (%(tenant_id)s::text is null or m.tenant_id = %(tenant_id)s)
        order by m.tenant_id, m.bucket_id limit 1
    )
    union all
    select n.tenant_id, n.bucket_id
    from opted_out as o
    cross join lateral (
        select m.tenant_id, m.bucket_id from memfold.memories as m
        where m.content_hash is null and (%(tenant_id)s::text is null or m.tenant_id = %(tenant_id)s)
            and (m.tenant_id, m.bucket_id) > (o.tenant_id, o.bucket_id)
        order by m.tenant_id, m.bucket_id limit 1
    ) as n
),
buckets as (
    (select tenant_id, bucket_id from hashed limit %(most)s)
    union
    (select tenant_id, bucket_id from opted_out limit %(most)s)
    order by tenant_id, bucket_id limit %(most)s
),"""
BUCKETS_WAITING = "".join((_INDEXED_BUCKETS, _WAITING))

# The same for every tenant on Citus, where a recursive query must be about one tenant.
_GROUPED_BUCKETS = """
with buckets as (
    select m.tenant_id, m.bucket_id from memfold.memories as m
    group by m.tenant_id, m.bucket_id order by m.tenant_id, m.bucket_id limit %(most)s
),"""
BUCKETS_WAITING_ON_NODES = "".join((_GROUPED_BUCKETS, _WAITING))

LAST_MAINTENANCE = """
select pg_catalog.max(r.ended_at) as ended_at
from memfold.runs as r
where r.kind = 'maintenance' and (%(tenant_id)s::text is null or r.tenant_id = %(tenant_id)s)
"""

# Indexes, of models and of words, that searches of larger buckets lack. Only for rows that the role may read.
SEARCH_LIMIT = 100_000
MISSING_VECTOR_INDEXES = """
select v.model, pg_catalog.count(*) as buckets
from (
    select w.model from memfold.memory_vectors as w where w.is_live
    group by w.model, w.tenant_id, w.bucket_id
    having pg_catalog.count(*) > %(limit)s
) as v
where v.model <> all(array(
    select m.model from memfold.embedding_models as m
    join pg_catalog.pg_index as i on pg_catalog.strpos(pg_catalog.pg_get_expr(i.indpred, i.indrelid),
        '(model = ''' || pg_catalog.replace(m.model, '''', '''''') || '''::text)') > 0
    where i.indrelid = 'memfold.memory_vectors'::pg_catalog.regclass and i.indisvalid
))
group by v.model
order by v.model
"""
LARGE_BUCKETS = """
select pg_catalog.count(*) as buckets
from (
    select from memfold.memories as m
    group by m.tenant_id, m.bucket_id
    having pg_catalog.count(*) > %(limit)s
) as b
where not exists (
    -- with a column: Citus hands the result on to other nodes as a table
    select 1 from pg_catalog.pg_index as i join pg_catalog.pg_class as c on c.oid = i.indexrelid
    where i.indrelid = 'memfold.memories'::pg_catalog.regclass and i.indisvalid and c.relname like 'memories\\_words\\_%%'
)
"""

# Whether a tenant has a memory in a bucket (null: in any).
HAS_MEMORIES = """
select exists (
    select from memfold.memories as m
    where m.tenant_id = %(tenant_id)s and (%(bucket_id)s::text is null or m.bucket_id = %(bucket_id)s)
) as found
"""
