-- First the arguments of ingest_memory(), in their order, then what the steps of a call add. memory_id and event_id are the
-- candidate's if a batch has assigned all ids in advance (null: they are assigned when a row is written); last_id and
-- last_event_id are the highest of the batch.
create type memfold_internal.candidate as (
    content text collate "C",
    tenant_id text collate "C",
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
    valid_from timestamptz,
    valid_until timestamptz,
    idempotency_key text collate "C",
    given_subject text collate "C",
    given_predicate text collate "C",
    content_hash bytea,
    scope_key uuid,
    metadata_signature text collate "C",
    policy memfold.policies,
    memory_id uuid,
    event_id uuid,
    last_id uuid,
    last_event_id uuid
);
comment on type memfold_internal.candidate is
'A candidate memory: the arguments of the caller (_candidate), then what _validate and later steps add: its hash and scope, the policy that
applies, and ids. subject and predicate are resolved by links; given_subject and given_predicate are those of the caller.';

create type memfold_internal.decision as (
    action text,
    tier integer,
    method text,
    memory_id uuid,
    root_id uuid,
    target_id uuid,
    similarity double precision,
    guard text[],
    similar_memories jsonb,
    reason text,
    judgement text,
    other_value uuid
);
comment on type memfold_internal.decision is
'Result of _decide(): the action, the stored text that matched (memory_id, with its root), the memory it concerns (target_id), the kind of
judgement to queue, and another value of the same subject and predicate, if the predicate''s number of values is not declared
(other_value).';
