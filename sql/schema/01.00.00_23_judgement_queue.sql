create table memfold.judgements (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    judgement_id uuid not null default memfold_internal._new_id(),
    bucket_id text collate "C" not null,
    scope_key uuid not null,
    kind text collate "C" not null check (kind in (
        'write', 'synthesis', 'consolidation', 'review', 'forgotten', 'identity', 'cardinality'
    )),
    status text collate "C" not null default 'open'
    check (status in ('open', 'leased', 'done', 'obsolete', 'dead', 'part')),
    memory_id uuid,
    other_id uuid,
    member_ids uuid[],
    similarity double precision,
    guard text[],
    worker text collate "C",
    leased_until timestamptz,
    attempts bigint not null default 0,
    next_attempt_at timestamptz not null default pg_catalog.now(),
    last_error text collate "C",
    verdict text collate "C" check (verdict in ('duplicate', 'refinement', 'contradiction', 'distinct', 'one', 'many', 'unsure')),
    confidence double precision check (confidence between 0 and 1),
    reason text collate "C",
    merged_text text collate "C",
    model text collate "C",
    input_tokens bigint,
    output_tokens bigint,
    cost double precision,
    run_id uuid,
    created_at timestamptz not null default pg_catalog.now(),
    resolved_at timestamptz,
    cluster_id uuid,
    link jsonb,
    primary key (tenant_id, judgement_id),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id),
    foreign key (tenant_id, other_id) references memfold.memories (tenant_id, memory_id),
    check (
        case
            when kind in ('identity', 'cardinality') then link is not null and memory_id is null and other_id is null and member_ids is null
            else link is null and memory_id is not null and (other_id is not null or member_ids is not null)
        end
    )
);
create unique index judgements_open_pair_key on memfold.judgements
(tenant_id, least(memory_id, other_id), greatest(memory_id, other_id)) where status in ('open', 'leased');
-- (kind = 'review') comes early: questions for a person must not block those for a model.
create index judgements_queue_idx on memfold.judgements
(tenant_id, (kind = 'review'), next_attempt_at, judgement_id) where status in ('open', 'leased');
create index judgements_memory_idx on memfold.judgements (tenant_id, memory_id);
create index judgements_other_idx on memfold.judgements (tenant_id, other_id);
-- Finds the members of a cluster by their rows of status part: under row-level security, an index on an array is not used.
create index judgements_cluster_idx on memfold.judgements (tenant_id, cluster_id) where cluster_id is not null;
create index judgements_run_idx on memfold.judgements (tenant_id, run_id) where run_id is not null;
create index judgements_waiting_idx on memfold.judgements (tenant_id, run_id, judgement_id)
where run_id is not null and status in ('open', 'leased') and kind <> 'synthesis';
-- for the view metrics
create index judgements_dead_idx on memfold.judgements (tenant_id, judgement_id) where status = 'dead';
-- Two names are asked about only once in a bucket.
create unique index judgements_names_key on memfold.judgements
(tenant_id, bucket_id, (link ->> 'key')) where kind = 'identity' and status <> 'obsolete';
-- A predicate is asked about only once, in all buckets together.
create unique index judgements_predicate_key on memfold.judgements
(tenant_id, scope_key) where kind = 'cardinality' and status <> 'obsolete';
create index judgements_names_idx on memfold.judgements (tenant_id, bucket_id) where link is not null;
comment on table memfold.judgements is
'Tier 3: open and answered questions "do these two say the same?", for kind identity "do these two names mean the same?", and for kind
cardinality "has this predicate one value at a time?". Until the answer, all memories stay active, and nothing is linked or declared.';
comment on column memfold.judgements.kind is
'write: found by ingest; synthesis: ingest asks for one text; consolidation: found by a maintenance run; review: for a person; forgotten:
found by ingest, near a tombstone; identity: whether two names mean the same (ask_links); cardinality: whether a predicate has one value
at a time (suggest_predicates).';
comment on column memfold.judgements.status is
'open, leased, done, obsolete, dead (eight attempts failed), or part: a member of the cluster that cluster_id asks about.';
comment on column memfold.judgements.memory_id is
'The newer side of the pair; for a cluster the newest member. Null: the question has a link.';
comment on column memfold.judgements.other_id is 'The older side; for a cluster the oldest member.';
comment on column memfold.judgements.member_ids is 'For a question about a cluster: 3 to 10 memories, oldest to newest. Null: a pair.';
comment on column memfold.judgements.run_id is
'The run that asks; for kind identity or cardinality the run of the link or rule that the answer made, for undo_run().';
comment on column memfold.judgements.link is
'For kind identity: the suggestion (kind, alias, name, score, reasons, evidence), key (the two names, hashed), and told and name_told (ids
of up to five memories about each name). For kind cardinality: name (the predicate), told and name_told (ids of a newer and
an older value of one subject). Erased together with any of these memories.';
comment on column memfold.judgements.attempts is 'How many times it was claimed; the eighth attempt is the last.';
comment on column memfold.judgements.next_attempt_at is 'When it may be claimed; if it is leased, when the lease expires.';
comment on column memfold.judgements.verdict is
'unsure: the answer''s confidence was below the policy''s confidence_floor; both were kept.';
comment on column memfold.judgements.cost is 'Cost of the model''s calls, in the currency that the judge is configured with.';
comment on column memfold.judgements.cluster_id is
'For each member except the oldest (other_id): the question about its cluster; after an undo, a mark shared by the texts that the run
or event had merged into one memory. Two memories with the same cluster_id were asked about together. Null: a separate pair.';
