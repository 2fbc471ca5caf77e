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
'Result of one candidate of a batch: its position in the batch, from 0, and what ingest_memory() would have returned or raised. sqlstate
null: it was ingested.';

create type memfold_internal.batch_turn as (memory_id uuid, turn text collate "C", event_id uuid);
comment on type memfold_internal.batch_turn is 'A source turn that a candidate of a batch has added to its text.';

-- Vectors are in an array of their own, because every statement reads all candidates, but only a few read vectors. Candidates are
-- composites, because an array of these is read in a third of the time of one array per field.
create type memfold_internal.batch as (
    tenant_id text collate "C",
    received_at timestamptz,
    buckets text[],
    types text[],
    policies memfold.policies[],
    singles text[],
    undeclared text[],
    aliased boolean,
    latest timestamptz,
    -- by position in the batch, from 1
    ordinals bigint[],
    idempotency_keys text[],
    policy_of integer[],
    items memfold_internal.candidate[],
    embeddings vector[],
    classes text[],
    matched uuid[],
    roots uuid[],
    root_scopes uuid[],
    scope_keys uuid[],
    wide boolean[],
    firsts bigint[],
    first_of_key integer[],
    known uuid[],
    memory_ids uuid[],
    event_ids uuid[],
    results memfold.ingest_result[],
    -- not by position
    errors memfold.batch_result[]
);
comment on type memfold_internal.batch is
'A batch in the steps of _ingest_batch(). buckets, types, policies: one for each bucket and type that it names, in their order, and
policy_of a candidate''s; singles: its predicates that have one value at a time; undeclared: those without a declaration; aliased, latest:
see _lock_roots(). By position: items (candidates, without vector and policy until they are decided one by one), embeddings (unit vectors;
null: there are none), classes, the text with the hash and its root (matched, roots, root_scopes), scope_keys (wide: the lock must be the
bucket''s), firsts (the position of the first with the same new text), first_of_key, known (the event of a key that was used), ids for what
is written, results of those that were decided one by one. A class is error (refused), known (its key was used), again (its key is that of
an earlier one), hit (adds to an active memory, in any order with others), todo (its text is not known), then new (the first of a new text)
or repeat (a further one), and rest: everything else.';
