"""Every statement that the client sends. Names are qualified: no search_path is relied upon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, LiteralString

from psycopg import sql

BEGIN = "begin isolation level read committed"
SET_TENANT = "select pg_catalog.set_config('memfold.tenant_id', %(memfold_tenant)s, true)"

# Arguments that a call leaves out are left to the functions' defaults, so that these stand in one place.
_CALLS: dict[str, tuple[LiteralString, dict[str, LiteralString]]] = {}


def _function(name: LiteralString, *arguments: LiteralString) -> str:
    _CALLS[name] = (
        "select * from memfold." + name,  # noqa: S608 (literals of this file)
        {argument: argument + " => %(" + argument + ")s" for argument in arguments},
    )
    return name


CANDIDATE: tuple[LiteralString, ...] = (
    "content",
    "tenant_id",
    "bucket_id",
    "memory_type",
    "subject",
    "predicate",
    "object",
    "embedding",
    "embedding_model",
    "source_turn_ids",
    "source_confidence",
    "extractor_confidence",
    "session_id",
    "origin",
    "metadata",
    "observed_at",
    "idempotency_key",
)
KNOWN_ARGUMENTS: tuple[LiteralString, ...] = (
    "content",
    "tenant_id",
    "bucket_id",
    "memory_type",
    "subject",
    "predicate",
    "metadata",
)

INGEST = _function("ingest_memory", *CANDIDATE)
PREVIEW = _function("preview_memory", *CANDIDATE)
KNOWN = _function("known_memory", *KNOWN_ARGUMENTS)
FIND_SIMILAR = _function(
    "find_similar",
    "tenant_id",
    "bucket_id",
    "embedding",
    "embedding_model",
    "threshold",
    "memory_type",
    "subject",
    "predicate",
    "max_results",
)
ATTACH = _function("attach_embedding", "memory_id", "embedding", "embedding_model", "tenant_id")
PENDING = _function("pending_embeddings", "tenant_id", "bucket", "max_results")
EXPLAIN = _function("explain_memory", "memory_id", "tenant_id")
REGISTER_MODEL = _function("register_embedding_model", "model", "dimensions")
CHECK_INVARIANTS = _function("check_invariants", "tenant_id")
CURRENT = _function("current_memories", "tenant_id", "bucket_id", "as_of")
SEARCH = _function(
    "search_memories",
    "tenant_id",
    "bucket_id",
    "query_embedding",
    "embedding_model",
    "max_results",
    "memory_type",
    "subject",
    "predicate",
    "session_id",
    "metadata",
    "min_confidence",
    "as_of",
    "deduplicate",
    "dedup_threshold",
    "touch",
    "show_collapsed",
)
FEEDBACK = _function("record_feedback", "memory_id", "helpful", "tenant_id")

# a person's hand
UNDO = _function("undo", "event_id", "reason", "tenant_id")
REJECT = _function("reject_memory", "memory_id", "reason", "tenant_id")
MERGE = _function("merge_memories", "memory_id", "into_id", "reason", "tenant_id")
SUPERSEDE = _function("supersede_memory", "memory_id", "by_id", "reason", "tenant_id")
UPDATE = _function(
    "update_memory",
    "memory_id",
    "content",
    "object",
    "embedding",
    "embedding_model",
    "reason",
    "tenant_id",
)

# tier 3
CLAIM = _function("claim_judgements", "worker", "max", "lease", "review", "tenant_id", "judgement_ids")
RESOLVE = _function(
    "resolve_judgement",
    "judgement_id",
    "verdict",
    "confidence",
    "reason",
    "merged_text",
    "fuller",
    "model",
    "input_tokens",
    "output_tokens",
    "cost",
    "member_ids",
    "tenant_id",
)
FAIL = _function(
    "fail_judgement",
    "judgement_id",
    "error",
    "worker",
    "counted",
    "retry_after",
    "model",
    "input_tokens",
    "output_tokens",
    "cost",
    "tenant_id",
)
REVIVE = _function("revive_judgements", "tenant_id")


def call(function: str, given: Iterable[str]) -> LiteralString:
    """The call of a function of memfold with the arguments given, by name."""
    head, arguments = _CALLS[function]
    given = list(given)
    if unknown := [name for name in given if name not in arguments]:
        raise TypeError(f"{function} has no argument {', '.join(unknown)}")
    return head + "(" + ", ".join([arguments[name] for name in given]) + ")"


# batches ----------------------------------------------------------------------------------------------------

INGEST_STAGED = """
select * from memfold.ingest_staged(batch_id => %(batch_id)s, tenant_id => %(tenant_id)s)
"""


def tenant_for_copy(parameters: Mapping[str, Any]) -> tuple[sql.SQL, sql.Composed]:
    """What tells the nodes of Citus whose rows a COPY brings: set_config() does not reach them."""
    return (
        sql.SQL("set local citus.propagate_set_commands = 'local'"),
        sql.SQL("set local memfold.tenant_id = {}").format(parameters["memfold_tenant"] or ""),
    )


# What a binary COPY sends for each column: of an embedding and of JSON, bytes that are made here.
_STAGED: dict[str, tuple[LiteralString, str]] = {
    name: (name, "text") for name in CANDIDATE if name not in ("tenant_id", "embedding", "metadata")
}
_STAGED |= {
    "tenant_id": ("tenant_id", "text"),
    "batch_id": ("batch_id", "uuid"),
    "ordinal": ("ordinal", "int8"),
    "embedding": ("embedding", "bytea"),
    "metadata": ("metadata", "bytea"),
    "source_turn_ids": ("source_turn_ids", "text[]"),
    "source_confidence": ("source_confidence", "float8"),
    "extractor_confidence": ("extractor_confidence", "float8"),
    "observed_at": ("observed_at", "timestamptz"),
}


def stage(columns: Iterable[str]) -> tuple[LiteralString, list[str]]:
    """The COPY of a batch's candidates with these columns, and the types that it is to send."""
    columns = list(columns)
    names = ", ".join([_STAGED[column][0] for column in columns])
    statement = "copy memfold.staged_candidates (" + names + ") from stdin (format binary)"
    return statement, [_STAGED[column][1] for column in columns]


_PROBED: dict[str, tuple[LiteralString, LiteralString, LiteralString]] = {
    name: ("%(" + name + ")s::text[]", name, name + " => i." + name)
    for name in KNOWN_ARGUMENTS
    if name not in ("tenant_id", "metadata")
}
_PROBED["metadata"] = ("%(metadata)s::text[]", "metadata", "metadata => i.metadata::jsonb")


def known_places(columns: Iterable[str]) -> LiteralString:
    """Which of many texts tier 1 knows, by their places in the arrays that hold the columns."""
    arguments = [_PROBED[column] for column in columns]
    return (
        "select i.place::integer as place from unnest("  # noqa: S608 (literals of this file)
        + ", ".join([values for values, _, _ in arguments])
        + ") with ordinality as i ("
        + ", ".join([name for _, name, _ in arguments])
        + ", place) cross join lateral memfold.known_memory(tenant_id => %(tenant_id)s, "
        + ", ".join([argument for _, _, argument in arguments])
        + ")"
    )


STATS = """
select * from memfold.dedup_stats
where (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
    and (%(bucket_id)s::text is null or bucket_id = %(bucket_id)s)
order by tenant_id, bucket_id
"""

# What came of a judgement, whoever answered it, in the words of resolve_judgement(). due: it may be claimed;
# successor: one of its memories was folded meanwhile, and this judgement asks about where they lead.
JUDGEMENT = """
select
    j.state,
    j.kind,
    j.verdict,
    j.next_attempt_at <= pg_catalog.clock_timestamp() as due,
    case
        when e.action = 'judged' and e.verdict = 'contradiction' and exists (
            select from memfold.judgements as r
            where r.tenant_id = j.tenant_id and r.memory_id = j.memory_id and r.other_id = j.other_id
                and r.kind = 'review' and r.judgement_id <> j.judgement_id
        ) then 'escalated'
        else e.action
    end as action,
    case
        when e.action = 'merged' then e.target_id
        when e.action in ('replaced', 'superseded') then e.memory_id
        when e.action is not null then j.other_id
    end as memory_id,
    e.event_id,
    case when j.state = 'moot' then (
        select n.judgement_id
        from memfold.memories as a
        join memfold.memories as b on b.tenant_id = a.tenant_id and b.memory_id = j.other_id
        join memfold.judgements as n on n.tenant_id = a.tenant_id
            and n.memory_id = greatest(coalesce(a.root_id, a.memory_id), coalesce(b.root_id, b.memory_id))
            and n.other_id = least(coalesce(a.root_id, a.memory_id), coalesce(b.root_id, b.memory_id))
        where a.tenant_id = j.tenant_id and a.memory_id = j.memory_id
            and n.judgement_id <> j.judgement_id and n.state <> 'moot'
        order by n.judgement_id desc
        limit 1
    ) end as successor
from memfold.judgements as j
left join lateral (
    select l.event_id, l.action, l.verdict, l.memory_id, l.target_id
    from memfold.memory_events as l
    where l.tenant_id = j.tenant_id and l.judgement_id = j.judgement_id and l.tier = 3
        and (l.memory_id in (j.memory_id, j.other_id) or l.target_id in (j.memory_id, j.other_id))
    order by l.event_id desc
    limit 1
) as e on j.state = 'done'
where j.tenant_id = %(tenant_id)s and j.judgement_id = %(judgement_id)s
"""

# review -----------------------------------------------------------------------------------------------------

WAITING = """
select
    count(*) filter (where kind = 'review') as person,
    count(*) filter (where kind <> 'review') as model
from memfold.open_judgements
where state in ('open', 'leased') and (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
"""

# The question that an undo has queued about a pair, if it has.
QUEUED_AGAIN = """
select judgement_id from memfold.open_judgements
where tenant_id = %(tenant_id)s and kind = 'review' and state = 'open'
    and (memory_id, other_id) in ((%(memory_id)s, %(other_id)s), (%(other_id)s, %(memory_id)s))
"""

# What the answer to a question did, the last first.
EVENTS_OF = """
select event_id from memfold.memory_events
where tenant_id = %(tenant_id)s and judgement_id = %(judgement_id)s
    and action in ('merged', 'replaced', 'superseded', 'rejected')
    and (memory_id = any(%(member_ids)s) or target_id = any(%(member_ids)s))
order by event_id desc
"""

# migrate ----------------------------------------------------------------------------------------------------

REVISION = "select version_num from memfold.alembic_version"
HAS_REVISION = "select pg_catalog.to_regclass('memfold.alembic_version') is not null"

# The setting of the database; without one, what the server starts a session with, but for this role's own. Then whether
# this role is called like memfold's schema, to which "$user" leads it, and has no search_path of its own in the database.
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

# What the files of functions are executed under, in every path of installation.
INSTALL_PATH = """
select
    pg_catalog.set_config('search_path',
        'memfold, ' || pg_catalog.quote_ident(n.nspname) || ', pg_temp', true),
    pg_catalog.set_config('client_min_messages', 'warning', true),
    pg_catalog.set_config('lock_timeout', '3s', true)
from pg_catalog.pg_extension as e
join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = 'vector'
"""

STEP_ASIDE = "alter schema memfold rename to memfold_as_found; create schema memfold"

# A body that is kept parsed is printed with other parentheses after pg_dump and pg_upgrade have parsed it again.
DEFINITIONS = """
select p.oid::regprocedure::text, case
    when p.prosqlbody is null then pg_catalog.pg_get_functiondef(p.oid)
    else pg_catalog.regexp_replace(pg_catalog.pg_get_functiondef(p.oid), '[()\\s]', '', 'g')
end
from pg_catalog.pg_proc as p
where p.pronamespace = pg_catalog.to_regnamespace('memfold') and p.prokind in ('f', 'p')
    -- of no file: `memfold adopt` makes these for a table, apply_calibration() for a model
    and coalesce(pg_catalog.obj_description(p.oid, 'pg_proc'), '') !~ '^Made by (memfold adopt|apply_calibration)'
    -- nor are those of memfold_py, an extension of its own
    and not exists (
        select from pg_catalog.pg_depend as d
        join pg_catalog.pg_extension as e on e.oid = d.refobjid
        where d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
            and d.refclassid = 'pg_catalog.pg_extension'::regclass and e.extname = 'memfold_py'
    )
"""

# calibration ------------------------------------------------------------------------------------------------

ADD_PAIRS = _function("add_labelled_pairs", "pairs", "tenant_id")
ADD_PAIR = _function("add_labelled_pair", "content_a", "content_b", "label", "tenant_id")
REMOVE_PAIR = _function("remove_labelled_pair", "pair_id", "tenant_id")
COLLECT_PAIRS = _function("collect_pairs", "tenant_id", "bucket_id", "embedding_model", "max", "min_age")
PAIRS_TO_LABEL = _function("pairs_to_label", "tenant_id", "embedding_model", "max")
DESCRIBE_PAIRS = """
select p.a, p.b, p.label, p.cosine, memfold.canonicalize(p.a, 'prose/1') as key_a,
    memfold.canonicalize(p.b, 'prose/1') as key_b, memfold._guard(%(tenant_id)s, p.a, p.b) as guard,
    %(tenant_id)s::text as tenant_id
from rows from (
    pg_catalog.jsonb_to_recordset(%(pairs)s) as (a text, b text, label text, cosine double precision)
) with ordinality as p (a, b, label, cosine, place)
order by p.place
"""
PAIR_FEATURES = """
select memfold._pair_features(p.pair ->> 0, (p.pair ->> 1)::double precision, p.pair ->> 2, p.pair ->> 3,
    array(select pg_catalog.jsonb_array_elements_text(p.pair -> 4)))
from pg_catalog.jsonb_array_elements(%(pairs)s) with ordinality as p (pair, place)
order by p.place
"""
FEATURE_NAMES = "select memfold._pair_feature_names()"
STORED_PAIRS = """
select l.content_a as a, l.content_b as b, l.label, (l.similarities ->> %(model)s)::double precision as cosine,
    memfold.canonicalize(l.content_a, 'prose/1') as key_a, memfold.canonicalize(l.content_b, 'prose/1') as key_b,
    memfold._guard(l.tenant_id, l.content_a, l.content_b) as guard, coalesce(l.evidence, l.origin) as origin,
    l.tenant_id
from memfold.labelled_pairs as l
where (%(tenant_id)s::text is null or l.tenant_id = %(tenant_id)s) and l.similarities ? %(model)s
    and (%(weak)s or not l.weak)
order by l.tenant_id, l.pair_key
"""
PAIRS_LEFT_OUT = """
select pg_catalog.count(*) filter (where not l.similarities ? %(model)s) as without_cosine,
    pg_catalog.count(*) filter (where l.similarities ? %(model)s and l.weak and not %(weak)s) as weak
from memfold.labelled_pairs as l
where %(tenant_id)s::text is null or l.tenant_id = %(tenant_id)s
"""
ADD_CALIBRATION = """
insert into memfold.calibrations (
    calibration_id, model, merge_threshold, judge_threshold, method, score, score_sql, candidate_threshold, report,
    fingerprint
) values (
    %(calibration_id)s, %(model)s, %(merge_threshold)s, %(judge_threshold)s, %(method)s, %(score)s::jsonb, %(score_sql)s,
    %(candidate_threshold)s, %(report)s, %(fingerprint)s
)
"""
APPLY_CALIBRATION = _function("apply_calibration", "calibration_id")
EMBEDDING_MODEL = """
select m.dimensions, m.merge_threshold, m.judge_threshold, m.score_function, m.calibration_id
from memfold.embedding_models as m where m.model = %(model)s
"""

# the command line -------------------------------------------------------------------------------------------

INSTALLED = "select pg_catalog.to_regnamespace('memfold') is not null as installed"

# A state file is of one database: of its name and oid, at the server's address.
TARGET = """
select pg_catalog.concat_ws('/', d.oid, d.datname, pg_catalog.inet_server_addr(),
    pg_catalog.current_setting('port')) as target,
    (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint as milliseconds
from pg_catalog.pg_database as d where d.datname = current_database()
"""

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
    pg_catalog.to_regclass('memfold.alembic_version') is not null as migrated,
    coalesce((
        select pg_catalog.pg_has_role(current_user, r.oid, 'member')
        from pg_catalog.pg_roles as r where r.rolname = 'memfold_owner'
    ), false) as owns,
    -- which of the roles that look over the walls, and which that are bound to one tenant, this login is a member of
    array(
        select r.rolname::text from pg_catalog.pg_roles as r
        where r.rolname in ('memfold_auditor', 'memfold_queue', 'memfold_judge', 'memfold_tenant')
            and pg_catalog.pg_has_role(current_user, r.oid, 'member')
        order by 1
    ) as groups
"""

# Whether the database is one of Citus, and memfold is distributed there.
CITUS = """
select exists (select from pg_catalog.pg_extension where extname = 'citus') as has_citus,
    pg_catalog.to_regprocedure('memfold._lives_here(text)') is not null as is_distributed
"""

# Nodes whose functions are not the coordinator's.
OTHER_NODES = """
with here as (
    select pg_catalog.md5(pg_catalog.string_agg(
        p.proname || p.prosrc, '' order by p.proname, p.prosrc collate pg_catalog."C")) as functions
    from pg_catalog.pg_proc as p where p.pronamespace = pg_catalog.to_regnamespace('memfold')
)
select w.nodename || ':' || w.nodeport as node, w.success and w.result = h.functions as same
from here as h
cross join lateral pg_catalog.run_command_on_workers(
    'select pg_catalog.md5(pg_catalog.string_agg('
    'p.proname || p.prosrc, '''' order by p.proname, p.prosrc collate pg_catalog."C"))'
    ' from pg_catalog.pg_proc as p where p.pronamespace = pg_catalog.to_regnamespace(''memfold'')'
) as w
"""

# What row level security is to be: each table of tenants, and each policy on it.
WALLS = """
with walled as (
    select c.oid, c.relname::text as name, c.relrowsecurity,
        -- on Citus the tables are another's, and bind memfold_owner without force
        c.relforcerowsecurity or c.relowner::regrole::text = 'memfold_rules' as is_forced
    from pg_catalog.pg_class as c
    where c.relnamespace = pg_catalog.to_regnamespace('memfold') and c.relkind in ('r', 'p') and exists (
        select from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    ) and c.relname <> 'staged_candidates'
),
meant (policy, command, roles, condition, tables) as (
    values
    ('tenant_wall', 'ALL', 'memfold_owner', 'tenant_id = current_setting(''memfold.tenant_id''::text, true)', null),
    ('tenant_read', 'SELECT', 'memfold_app', 'tenant_id = _tenant()', null),
    ('audit_read', 'SELECT', 'memfold_auditor', 'true', array(select name from walled)),
    ('any_tenant_read', 'SELECT', 'memfold_app, memfold_owner', 'tenant_id = ''*''::text',
        array['antonyms', 'policies', 'predicates']),
    ('queue_all', 'ALL', 'memfold_queue', 'true', array['judgements', 'memories']),
    ('queue_read', 'SELECT', 'memfold_queue', 'true', array['memory_counters', 'memory_events']),
    ('own_row', 'SELECT', 'memfold_app', 'role_name = _bound_role(CURRENT_USER)', array['tenant_roles']),
    ('owner_all', 'ALL', 'memfold_owner', 'true', array['tenant_roles'])
),
wanted as (
    select w.name, m.policy, m.command, m.roles, m.condition
    from walled as w
    join meant as m on w.name = any(m.tables) or m.tables is null and w.name <> 'tenant_roles'
),
present as (
    select w.name, p.policyname::text as policy, p.cmd as command, (
            select pg_catalog.string_agg(r::text, ', ' order by r::text) from unnest(p.roles) as r
        ) as roles,
        pg_catalog.replace(
            pg_catalog.regexp_replace(pg_catalog.regexp_replace(p.qual, 'memfold\\._|pg_catalog\\.', '_', 'g'),
                '^\\((.*)\\)$', '\\1'),
            '_tenant_here()', 'current_setting(''memfold.tenant_id''::text, true)') as condition,
        p.permissive, p.with_check
    from walled as w
    join pg_catalog.pg_policies as p on p.schemaname = 'memfold' and p.tablename = w.name
)
select w.name || case when w.relrowsecurity then ': row level security is not forced'
    else ': row level security is off' end as fault
from walled as w
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
where c.relnamespace = pg_catalog.to_regnamespace('memfold') and c.relkind in ('r', 'p', 'v')
    and a.grantee <> c.relowner and a.grantee::regrole::text <> 'memfold_owner' and (
        a.grantee = 0 or a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
        and not (c.relname = 'staged_candidates' and a.privilege_type = 'INSERT'
            and a.grantee::regrole::text = 'memfold_app')
        and not (c.relname = 'judgements' and a.privilege_type in ('INSERT', 'UPDATE')
            and a.grantee::regrole::text = 'memfold_queue')
    )
group by c.relname, a.grantee
order by 1
"""

# Who else is connected, and meets no wall.
UNWALLED_SESSIONS = """
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

# Rows that came by a plain INSERT, and that nothing in the ledger speaks of yet.
PLAIN_ROWS = """
select count(*) as waiting
from memfold.memories as m
where m.tenant_id = %(tenant_id)s and m.plain and not exists (
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
