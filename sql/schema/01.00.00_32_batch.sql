-- Who copies candidates in, does so for its own tenant. Row level security would refuse the COPY.

create function memfold_internal._stages_own(tenant_id text) returns boolean
language sql stable parallel safe
return pg_catalog.current_setting('role') = 'none'
and pg_catalog.current_setting('memfold.tenant_id', true) = tenant_id
and tenant_id > '*' collate "C"
and not pg_catalog.pg_has_role(session_user, 'memfold_tenant', 'member');
revoke all on function memfold_internal._stages_own(text) from public;
grant execute on function memfold_internal._stages_own(text) to memfold_app;
comment on function memfold_internal._stages_own(text) is
'The usual case of _may_stage(), in one expression that the constraint inlines: an application that has set its tenant.';

create function memfold_internal._may_stage(tenant_id text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    if tenant_id = '' or tenant_id = '*' or not (
        coalesce(tenant_id = memfold_internal._tenant(), false) or pg_has_role(current_user, 'memfold_owner', 'member')
    ) then
        perform memfold_internal._fail('MF002', 'the session is not of this tenant',
            'The tenant_id of a staged candidate differs from the session''s tenant, or it is that of everyone''s rules.',
            'Run SET memfold.tenant_id (SET LOCAL behind a transaction pooler) to the tenant of the candidates.');
    end if;
    return true;
end;
$$;
revoke all on function memfold_internal._may_stage(text) from public;
grant execute on function memfold_internal._may_stage(text) to memfold_app;
comment on function memfold_internal._may_stage(text) is
'The row-level security of staged_candidates: true, or MF002 where the tenant is another than the session''s (members of memfold_owner may
stage for any, as a restore does).';

-- One row a candidate that a client has copied in for ingest_staged(). No row level security, under which COPY FROM is
-- refused: applications may insert, and never read. Lost in a crash, as is the transaction that would have used it.
create unlogged table memfold.staged_candidates (
    tenant_id text collate "C" not null default memfold_internal._tenant(),
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
    primary key (tenant_id, batch_id, ordinal),
    constraint staged_candidates_tenant_check check (memfold_internal._stages_own(tenant_id) or memfold_internal._may_stage(tenant_id))
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

create type memfold_internal.batch_turn as (memory_id uuid, turn text collate "C");
comment on type memfold_internal.batch_turn is 'A source turn of a text, in a batch.';
