-- A batch assigns the ids of all its rows at once, in the order of its candidates: memory_id and event_id are this one's, last_id is
-- the memory_id of the last one. Null: assigned when the row is written.
create type memfold_internal.candidate as (
    tenant_id text,
    bucket_id text,
    memory_type text,
    content text,
    subject text,
    predicate text,
    object text,
    embedding vector,
    embedding_model text,
    source_turn_ids text[],
    source_confidence double precision,
    extractor_confidence double precision,
    session_id text,
    origin text,
    metadata jsonb,
    observed_at timestamptz,
    content_hash bytea,
    scope_key uuid,
    metadata_signature text,
    policy memfold.policies,
    memory_id uuid,
    event_id uuid,
    last_id uuid,
    last_event_id uuid,
    told_subject text,
    told_predicate text,
    valid_from timestamptz,
    valid_until timestamptz
);
comment on type memfold_internal.candidate is
'A validated candidate: the arguments of the caller, its hash and scope, and the policy that applies. subject and predicate are resolved
by links; told_subject and told_predicate are those of the caller.';

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
judgement to queue, and another value of the same subject and predicate, if nobody has said how many it has (other_value).';
