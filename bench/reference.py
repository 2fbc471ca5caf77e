"""The reference: plain tables, and the one statement that a good PostgreSQL developer would write.

The tables have the columns and the indexes of memfold's, copied by LIKE so that they stay the same; no CHECK, no
foreign key, no trigger, no row level security. The statements are single data-modifying CTEs: no round trip, no
PL/pgSQL. They decide nothing but "same text or not".
"""

from __future__ import annotations

from harness import APPLICATION, Server

TABLES = """
create schema reference authorization reference_owner;
grant usage on schema reference to reference_owner;

-- one row a fact: text, hash and counters together, in reach of one upsert
create table reference.memories (
    tenant_id text collate "C" not null,
    memory_id uuid not null default uuidv7(),
    bucket_id text collate "C" not null,
    content text not null,
    content_hash bytea not null,
    repetition_count bigint not null default 0,
    source_confidence double precision not null,
    extractor_confidence double precision not null,
    first_seen timestamptz not null default now(),
    last_seen timestamptz not null default now(),
    primary key (tenant_id, memory_id),
    unique (tenant_id, bucket_id, content_hash)
) with (fillfactor = 50);

create table reference.events (like memfold.memory_events including indexes including storage);
alter table reference.events
alter event_id set default uuidv7(), alter recorded_at set default clock_timestamp(),
alter source_turn_ids set default '{}', alter observation set default false;
create table reference.sources (like memfold.memory_sources including indexes including storage);
alter table reference.sources alter column event_id set default gen_random_uuid();

-- for new facts, table by table what memfold has
create table reference.facts (like memfold.memories including indexes including storage including defaults)
with (fillfactor = 90);
alter table reference.facts alter memory_id set default uuidv7(), alter created_at set default now(),
alter is_ingested set default true;
create table reference.counters
(like memfold.memory_counters including indexes including storage including defaults) with (fillfactor = 50);
create table reference.vectors
(like memfold.memory_vectors including indexes including storage including defaults);
"""

# The server composes the text, so that pgbench can send an existing one.
FACT = "'User likes to drink cup number ' || {number}::bigint || ' of green tea in the morning'"

_CANDIDATE = f"""
with candidate as (
    select 'bench' as tenant_id, 'default' as bucket_id, c.content,
        sha256(convert_to(lower(c.content), 'UTF8')) as content_hash
    from (select {FACT.format(number=":i")} as content) as c
)"""

_UPSERT = """
    insert into reference.memories as m
        (tenant_id, bucket_id, content, content_hash, source_confidence, extractor_confidence)
    select c.tenant_id, c.bucket_id, c.content, c.content_hash, 0.5, 0.5 from candidate as c
    on conflict (tenant_id, bucket_id, content_hash) do update
    set repetition_count = m.repetition_count + 1,
        source_confidence = greatest(m.source_confidence, excluded.source_confidence),
        extractor_confidence = greatest(m.extractor_confidence, excluded.extractor_confidence),
        last_seen = greatest(m.last_seen, excluded.last_seen)
"""

BARE_UPSERT = f"{_CANDIDATE}{_UPSERT}    returning m.memory_id"

THREE_WRITES = f"""{_CANDIDATE},
counted as ({_UPSERT}    returning m.tenant_id, m.memory_id, m.bucket_id
),
sourced as (
    insert into reference.sources (tenant_id, source_turn_id, memory_id)
    select k.tenant_id, 'turn-' || :t::bigint, k.memory_id from counted as k
    on conflict do nothing
)
insert into reference.events (
    tenant_id, bucket_id, action, tier, method, memory_id, observation, content, memory_type, source_turn_ids,
    source_confidence, extractor_confidence, origin, metadata, observed_at, actor
)
select k.tenant_id, k.bucket_id, 'merged', 1, 'hash', k.memory_id, true, c.content, 'fact',
    array['turn-' || :t::bigint], 0.5, 0.5, 'observed', '{{}}', now(), session_user
from counted as k, candidate as c
returning event_id"""

NEW_FACT = """
with candidate as materialized (
    select 'bench' as tenant_id, uuidv7() as memory_id, 'default' as bucket_id, 'fact' as memory_type,
        p.subject, p.content || ' ' || :t::bigint as content,
        md5('default/fact/' || lower(p.subject))::uuid as scope_key,
        p.embedding
    from bench.pool as p where p.id = :next
),
fact as (
    insert into reference.facts (
        tenant_id, memory_id, bucket_id, memory_type, subject, content, canonicalizer, key_fields,
        content_hash, scope_key
    )
    select c.tenant_id, c.memory_id, c.bucket_id, c.memory_type, c.subject, c.content, 'prose/1',
        'type,subject,predicate',
        sha256(convert_to(c.memory_type || '/' || c.subject || '/' || lower(c.content), 'UTF8')), c.scope_key
    from candidate as c
),
vector as (
    insert into reference.vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
    select c.tenant_id, c.memory_id, 'bench', c.bucket_id, c.scope_key, c.embedding from candidate as c
),
counter as (
    insert into reference.counters (
        tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence,
        first_seen, last_seen
    )
    select c.tenant_id, c.memory_id, 1, 1, 0.5, 0.5, now(), now() from candidate as c
),
source as (
    insert into reference.sources (tenant_id, source_turn_id, memory_id)
    select c.tenant_id, 'turn-' || :t::bigint, c.memory_id from candidate as c
)
insert into reference.events (
    tenant_id, bucket_id, action, memory_id, observation, content, memory_type, subject, source_turn_ids,
    source_confidence, extractor_confidence, origin, metadata, observed_at, actor
)
select c.tenant_id, c.bucket_id, 'inserted', c.memory_id, true, c.content, c.memory_type, c.subject,
    array['turn-' || :t::bigint], 0.5, 0.5, 'observed', '{}', now(), session_user
from candidate as c
returning event_id"""


def create(server: Server, database: str) -> None:
    """Create the reference tables, writable by the roles that may call memfold."""
    with server.connect(database) as connection:
        connection.execute(TABLES)
        connection.execute(
            "do $$ declare t text; begin for t in select oid::regclass from pg_class"
            " where relnamespace = 'reference'::regnamespace and relkind = 'r' loop"
            " execute format('alter table %s owner to reference_owner', t); end loop; end $$"
        )
        connection.execute(
            f"grant usage on schema reference to {APPLICATION};"
            f" grant select, insert, update on all tables in schema reference to {APPLICATION}"
        )
