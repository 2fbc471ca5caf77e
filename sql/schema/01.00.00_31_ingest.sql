create table memfold.idempotency_keys (
    tenant_id text collate "C" not null,
    bucket_id text collate "C" not null,
    idempotency_key text collate "C" not null,
    event_id uuid,
    recorded_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, bucket_id, idempotency_key)
);
-- The keys that maintenance may delete. Keys of an import stay, because they prevent its rows from being counted twice.
create index idempotency_keys_recorded_at_idx on memfold.idempotency_keys (tenant_id, recorded_at)
where idempotency_key < 'import:' or idempotency_key >= 'import;';
comment on table memfold.idempotency_keys is 'Ingest calls that carried a key, and the ledger row that each wrote.';

create type memfold.ingest_result as (
    action text,
    memory_id uuid,
    tier integer,
    method text,
    similarity double precision,
    superseded_id uuid,
    judgement_id uuid,
    event_id uuid,
    "similar" jsonb
);
comment on type memfold.ingest_result is
'action: inserted, merged, replaced, superseded, escalated, historical or rejected. memory_id: the memory that now holds the fact (for a
merge, the active one). tier (1 to 3) and method: what decided. similarity: the cosine to the text of the memory that it was decided
against, not of an alias; for method lexical, the Jaccard similarity of words. similar: as in memory_events.similar_memories.';

create type memfold_internal.attempt as (result memfold.ingest_result, progress text);
comment on type memfold_internal.attempt is
'What a fast path returns: its result, or its progress if the general path must continue. known: the bucket holds the text; unknown: it
does not, by the default rules; locked: the call holds the lock of the scope, and the present rules were checked;
row held: the call may hold the row of a root; null: nothing.';
create type memfold.pending_memory as (memory_id uuid, bucket_id text, content text, created_at timestamptz);
comment on type memfold.pending_memory is 'A memory that was stored without a vector, and the text to embed.';
create type memfold.plain_rows as (ingested bigint, busy bigint);
comment on type memfold.plain_rows is
'Result of ingest_plain_rows(): rows that it ingested, and buckets that it skipped because others held their locks.';
