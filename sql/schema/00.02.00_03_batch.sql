-- Release 0.2.0: many candidates in one call.

-- One row a candidate that a client has copied in for ingest_staged(). No row level security, under which COPY FROM is
-- refused: applications may insert, and never read. Lost in a crash, as is the transaction that would have used it.
create unlogged table memfold.staged_candidates (
    tenant_id text collate "C" not null default memfold._tenant(),
    batch_id uuid not null,
    ordinal bigint not null,
    staged_at timestamptz not null default pg_catalog.now(),
    content text collate "C",
    bucket_id text collate "C",
    memory_type text collate "C",
    subject text collate "C",
    predicate text collate "C",
    object text collate "C",
    embedding vector,
    embedding_model text collate "C",
    source_turn_ids text[],
    source_confidence double precision,
    extractor_confidence double precision,
    session_id text collate "C",
    origin text collate "C",
    metadata jsonb,
    observed_at timestamptz,
    idempotency_key text collate "C",
    primary key (tenant_id, batch_id, ordinal)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index staged_candidates_age_idx on memfold.staged_candidates (tenant_id, staged_at) where ordinal = 0;
comment on table memfold.staged_candidates is
'Candidates that a client has copied in (COPY), for ingest_staged(batch_id), which takes them out. Applications may insert,
nothing else. Null stands for the default of ingest_memory().';
comment on column memfold.staged_candidates.batch_id is
'Chosen by the client, at random: who knows it could add to the batch.';
comment on column memfold.staged_candidates.ordinal is
'The place in the batch, from 0 on: the order in which the candidates are decided, and the ordinal of the result.';
comment on column memfold.staged_candidates.staged_at is
'A batch that nobody has ingested for a day goes with the tenant''s next call of ingest_staged().';

create type memfold.batch_result as (
    ordinal bigint,
    action text,
    memory_id uuid,
    tier integer,
    method text,
    similarity double precision,
    superseded_id uuid,
    judgement_id uuid,
    event_id uuid,
    "similar" jsonb,
    sqlstate text,
    error text,
    detail text,
    hint text
);
comment on type memfold.batch_result is
'What became of one candidate of a batch: its place in the batch, from 0 on, and what ingest_memory() would have returned or
raised. sqlstate null: it was taken in.';

-- A batch makes the ids of all its rows at once, in the order of its candidates: memory_id and event_id are this one's,
-- last_id is the memory_id of the last one. Null: made where the row is written.
alter type memfold.candidate
add attribute memory_id uuid, add attribute event_id uuid, add attribute last_id uuid, add attribute last_event_id uuid;

create type memfold.batch_turn as (memory_id uuid, turn text collate "C");
comment on type memfold.batch_turn is 'A source turn of a text, in a batch.';
