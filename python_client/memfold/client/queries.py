"""Every statement that the client sends. Names are qualified, so it does not depend on search_path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import LiteralString

from memfold.client.types import CandidateFields, Memory, ProbeFields

BEGIN = "begin isolation level read committed"
COMMIT = "commit"
# psycopg reads times only in DateStyle ISO. UTC, because east of it the year 9999, Python's last, ends earlier.
SET_FORMATS = (
    "select pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('timezone', 'UTC', true)"
)
SET_TENANT: LiteralString = (
    SET_FORMATS + ", pg_catalog.set_config('memfold.tenant_id', %(memfold_tenant)s, true)"
)

# Omitted arguments get the functions' defaults, so that these are defined in one place.
_CALLS: dict[str, tuple[LiteralString, dict[str, LiteralString]]] = {}


def _function(name: LiteralString, *arguments: LiteralString) -> str:
    _CALLS[name] = (
        "select * from memfold." + name,  # noqa: S608 (literals of this file)
        {argument: argument + " => %(" + argument + ")s" for argument in arguments},
    )
    return name


CANDIDATE = ("content", "tenant_id", *CandidateFields.__annotations__)
KNOWN_ARGUMENTS = ("content", "tenant_id", *ProbeFields.__annotations__)
_SLOT = ("tenant_id", "bucket_id", "subject", "predicate")
INGEST = _function("ingest_memory", *CANDIDATE, "if_known")
PREVIEW = _function("preview_memory", *CANDIDATE)
KNOWN = _function("known_memory", *KNOWN_ARGUMENTS)
FIND_SIMILAR = _function(
    "find_similar", *_SLOT, "embedding", "embedding_model", "threshold", "memory_type", "max_results"
)
ATTACH = _function("attach_embedding", "memory_id", "embedding", "embedding_model", "tenant_id")
PENDING = _function("pending_embeddings", "tenant_id", "bucket_id", "max_results")
EXPLAIN = _function("explain_memory", "memory_id", "tenant_id")
REGISTER_MODEL = _function(
    "register_embedding_model", "embedding_model", "dimensions", "merge_threshold", "judge_threshold"
)
CALIBRATE_BY_ANCHORS = _function("calibrate_by_anchors", "embedding_model", "pairs")
CHECK_INVARIANTS = _function("check_invariants", "tenant_id")
CURRENT = _function("current_memories", "tenant_id", "bucket_id", "as_of", "known_at")
# From the most specific of the bucket's policies for every type.
CONFIDENCE_FLOOR = """
select p.confidence_floor from memfold.policies as p
where p.tenant_id in (%(tenant_id)s, '*') and p.bucket_id in (%(bucket_id)s, '*') and p.memory_type = '*'
order by p.tenant_id = '*', p.bucket_id = '*'
limit 1
"""
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
    "query",
    "bucket_ids",
    "bucket_prefix",
    "metadata_path",
    "min_similarity",
)
PROFILE = _function("profile", "subject", "tenant_id", "bucket_id", "max_results")
FEEDBACK = _function("record_feedback", "memory_id", "helpful", "tenant_id")

# what is stored
SET_PREDICATE = _function("set_predicate", "predicate", "tenant_id", "cardinality", "conflict")
LINK_SUBJECT = _function("link_subject", "alias", "subject", "tenant_id", "bucket_id")
LINK_PREDICATE = _function("link_predicate", "alias", "predicate", "tenant_id", "bucket_id")
UNLINK_SUBJECT = _function("unlink_subject", "alias", "tenant_id", "bucket_id", "subject")
UNLINK_PREDICATE = _function("unlink_predicate", "alias", "tenant_id", "bucket_id")
SUGGEST_LINKS = _function("suggest_links", "tenant_id", "bucket_id", "max_results")
SUGGEST_PREDICATES = _function("suggest_predicates", "tenant_id", "bucket_id", "max_results")
ASK_LINKS = _function("ask_links", "tenant_id", "bucket_id", "max_questions")
ERASE = {
    "memory_id": _function("erase_memory", "memory_id", "tenant_id", "reason"),
    "source_turn_id": _function("erase_source", "source_turn_id", "tenant_id", "reason"),
    "bucket_id": _function("erase_bucket", "tenant_id", "bucket_id", "reason"),
    "tenant_id": _function("erase_tenant", "tenant_id", "reason"),
}
"""By the argument that is given."""

# manual actions
UNDO = _function("undo", "event_id", "reason", "tenant_id")
REJECT = _function("reject_memory", "memory_id", "reason", "tenant_id")
FORGET = _function(
    "forget_memories",
    *_SLOT,
    "query_embedding",
    "embedding_model",
    "min_similarity",
    "erase",
    "dry_run",
    "reason",
)
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

# maintenance
CONSOLIDATE = _function("consolidate", "tenant_id", "bucket_id", "approval", "dry_run")
RUN_MAINTENANCE = _function("run_maintenance", "tenant_id", "tasks")
SWEEP = _function("sweep_duplicates", "tenant_id", "bucket_id", "dry_run")
PRUNE = _function("prune_memories", "tenant_id", "bucket_id", "dry_run")
APPROVE_RUN = _function("approve_run", "run_id", "tenant_id", "verdict")
UNDO_RUN = _function("undo_run", "run_id", "tenant_id", "reason")

# tier 3
CLAIM = _function(
    "claim_judgements", "worker", "tenant_id", "max_results", "lease", "review", "judgement_ids"
)
RESOLVE = _function(
    "resolve_judgement",
    "judgement_id",
    "verdict",
    "confidence",
    "reason",
    "merged_text",
    "richer_memory_id",
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
RETRY = _function("retry_judgements", "tenant_id")


def call(function: str, given: Iterable[str]) -> LiteralString:
    """A call of a memfold function with the given arguments, by name."""
    head, arguments = _CALLS[function]
    given = list(given)
    if unknown := [name for name in given if name not in arguments]:
        raise TypeError(f"{function} has no argument {', '.join(unknown)}")
    return head + "(" + ", ".join([arguments[name] for name in given]) + ")"


def alone(statement: LiteralString) -> LiteralString:
    """A call that sets the tenant itself, when its arguments are evaluated: no statement has to come before it."""
    return statement.replace(
        "=> %(tenant_id)s", "=> pg_catalog.set_config('memfold.tenant_id', %(tenant_id)s, true)"
    )


# batches ----------------------------------------------------------------------------------------------------

# The condition is there only to fail (42P01) if memfold's functions are called through a router: on its servers, work that
# is rolled back here would stay. It names the table without reading it: planning an outer join of a function and a table
# that has row-level security crashes Citus 13.2.2.
INGEST_MANY = """
select r.* from memfold.ingest_memories(
    candidates => %(candidates)s, tenant_id => %(tenant_id)s, embeddings => %(embeddings)s
) as r where 'memfold.memory_vectors'::regclass is not null
"""
# The element type that an array of vectors must name.
VECTOR_TYPE = """
select a.atttypid::bigint as oid from pg_catalog.pg_attribute as a
where a.attrelid = 'memfold.memory_vectors'::regclass and a.attname = 'embedding'
"""


_PROBED: dict[str, tuple[LiteralString, LiteralString, LiteralString]] = {
    name: ("%(" + name + ")s::text[]", name, name + " => i." + name)
    for name in KNOWN_ARGUMENTS
    if name not in ("tenant_id", "metadata")
}
_PROBED["metadata"] = ("%(metadata)s::text[]", "metadata", "metadata => i.metadata::jsonb")


def known_places(columns: Iterable[str]) -> LiteralString:
    """Which of many texts tier 1 knows, by their positions in the arrays of columns."""
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


_MEMORY = (
    "select "  # noqa: S608 (names of this package)
    + ", ".join(
        "a.effective_confidence as confidence" if field.name == "confidence" else "a." + field.name
        for field in fields(Memory)
    )
    + " from memfold.memory_audit as a where a.tenant_id = %(tenant_id)s\n"
)
GET = _MEMORY + "and a.memory_id = %(memory_id)s"
# A linked name is looked up by the name it stands for in the bucket.
_FILTERS = """
and (%(bucket_id)s::text is null or a.bucket_id = %(bucket_id)s)
and (%(status)s::text is null or a.status = %(status)s)
and (%(memory_type)s::text is null or a.memory_type = %(memory_type)s)
and (%(subject)s::text is null
    or memfold.canonicalize(a.subject, 'prose/1') = memfold.canonicalize(coalesce((
        select l.name from memfold.links as l
        where l.tenant_id = %(tenant_id)s and l.bucket_id in (a.bucket_id, '*') and l.kind = 'subject'
            and l.alias = memfold.canonicalize(%(subject)s, 'prose/1')
        order by l.bucket_id = '*'
        limit 1
    ), %(subject)s), 'prose/1'))
and (%(predicate)s::text is null
    or memfold.canonicalize(a.predicate, 'predicate/1') = memfold.canonicalize(coalesce((
        select l.name from memfold.links as l
        where l.tenant_id = %(tenant_id)s and l.bucket_id in (a.bucket_id, '*') and l.kind = 'predicate'
            and l.alias = memfold.canonicalize(%(predicate)s, 'predicate/1')
        order by l.bucket_id = '*'
        limit 1
    ), %(predicate)s), 'predicate/1'))
and (%(memory_id)s::uuid is null or a.memory_id > %(memory_id)s)
order by a.memory_id
limit %(max_results)s
"""
# Ids are time-ordered, and pages follow the table's key: memories written during paging come on a later page.
LIST = _MEMORY + _FILTERS

# The login's tenant: from the settings of the role or the database, else from the role's binding.
TENANTS_OF_LOGIN = """
select pg_catalog.current_setting('memfold.tenant_id', true) as tenant_id
where pg_catalog.current_setting('memfold.tenant_id', true) <> ''
union
select r.tenant_id from memfold.tenant_roles as r where r.role_name = session_user
"""

# The names of a function's arguments, in order.
SIGNATURE = """
select p.proargnames::text[] as names
from pg_catalog.pg_proc as p
where p.pronamespace = pg_catalog.to_regnamespace('memfold') and p.proname = %(function)s
"""

STATS = """
select * from memfold.dedup_stats
where (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
    and (%(bucket_id)s::text is null or bucket_id = %(bucket_id)s)
order by tenant_id, bucket_id
"""

# The result of a judgement, no matter who answered it, in the form of resolve_judgement(). due: it can be claimed;
# successor: one of its memories has been merged since, and this judgement asks about the roots.
JUDGEMENT = """
select
    j.status,
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
    null::uuid as run_id,
    case when j.status = 'obsolete' then (
        select n.judgement_id
        from memfold.memories as a
        join memfold.memories as b on b.tenant_id = a.tenant_id and b.memory_id = j.other_id
        join memfold.judgements as n on n.tenant_id = a.tenant_id
            and n.memory_id = greatest(coalesce(a.root_id, a.memory_id), coalesce(b.root_id, b.memory_id))
            and n.other_id = least(coalesce(a.root_id, a.memory_id), coalesce(b.root_id, b.memory_id))
        where a.tenant_id = j.tenant_id and a.memory_id = j.memory_id
            and n.judgement_id <> j.judgement_id and n.status <> 'obsolete'
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
) as e on j.status = 'done'
where j.tenant_id = %(tenant_id)s and j.judgement_id = %(judgement_id)s
"""

# review -----------------------------------------------------------------------------------------------------

WAITING = """
select
    count(*) filter (where kind = 'review') as person,
    count(*) filter (where kind <> 'review') as model
from memfold.open_judgements
where status in ('open', 'leased') and (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
"""

# The question that an undo has queued about a pair, if any.
QUEUED_AGAIN = """
select judgement_id from memfold.open_judgements
where tenant_id = %(tenant_id)s and kind = 'review' and status = 'open'
    and (memory_id, other_id) in ((%(memory_id)s, %(other_id)s), (%(other_id)s, %(memory_id)s))
"""

# What the answer to a question did, most recent first.
EVENTS_OF = """
select event_id from memfold.memory_events
where tenant_id = %(tenant_id)s and judgement_id = %(judgement_id)s
    and action in ('merged', 'replaced', 'superseded', 'rejected')
    and (memory_id = any(%(member_ids)s) or target_id = any(%(member_ids)s))
order by event_id desc
"""

# labelled pairs -------------------------------------------------------------------------------------------

ADD_PAIRS = _function("add_labelled_pairs", "pairs", "tenant_id")
ADD_PAIR = _function("add_labelled_pair", "content_a", "content_b", "label", "tenant_id")
REMOVE_PAIR = _function("remove_labelled_pair", "pair_id", "tenant_id")
COLLECT_PAIRS = _function(
    "collect_pairs", "tenant_id", "bucket_id", "embedding_model", "max_results", "min_age"
)
PAIRS_TO_LABEL = _function("pairs_to_label", "tenant_id", "embedding_model", "max_results")

# the command line ------------------------------------------------------------------------------------------

INSTALLED = "select pg_catalog.to_regnamespace('memfold') is not null as installed"

# A state file belongs to one database, identified by its name and oid and the server's address.
TARGET = """
select pg_catalog.concat_ws('/', d.oid, d.datname, pg_catalog.inet_server_addr(),
    pg_catalog.current_setting('port')) as target,
    (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint as milliseconds
from pg_catalog.pg_database as d where d.datname = current_database()
"""

# Slots with several current values: a person decided that, or undid a supersession.
SHARED_SLOTS = """
select min(m.subject) as subject, min(m.predicate) as predicate, count(*) as number
from memfold.memory_intervals as i join memfold.memories as m using (tenant_id, memory_id)
where i.tenant_id = %(tenant_id)s and tstzrange(i.valid_from, i.valid_to) @> now()
group by i.slot_key having i.slot_key is not null and count(*) > 1 order by 3 desc, 1, 2
"""
