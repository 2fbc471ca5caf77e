-- tenant_id leads every key of every tenant table, so that they can be distributed by it.

-- Memories ------------------------------------------------------------------------------------------------------------

-- PL/pgSQL on purpose: an INSERT reads and prepares each expression of a constraint again, which would take longer than this does.
create function memfold_internal._is_consistent(
    tenant_id text, bucket_id text, memory_type text, memory_id uuid, status text, merged_into uuid, root_id uuid, metadata jsonb
) returns boolean
language plpgsql immutable parallel safe
as $$
begin
    return tenant_id <> '' and bucket_id <> '' and memory_type <> ''
        and status in ('active', 'merged', 'superseded', 'rejected', 'withdrawn')
        and (status = 'merged') = (merged_into is not null)
        and (merged_into is null) = (root_id is null)
        and merged_into is distinct from memory_id and root_id is distinct from memory_id
        and pg_catalog.jsonb_typeof(metadata) = 'object';
end;
$$;
revoke all on function memfold_internal._is_consistent(text, text, text, uuid, text, uuid, uuid, jsonb) from public;
comment on function memfold_internal._is_consistent(text, text, text, uuid, text, uuid, uuid, jsonb) is
'What holds of every row of memories: no empty key, a status that there is, and an edge and a root for aliases alone.';

create table memfold.memories (
    tenant_id text collate "C" not null,
    memory_id uuid not null default memfold_internal._new_id(),
    bucket_id text collate "C" not null default 'default',
    memory_type text collate "C" not null default 'fact',
    subject text collate "C",
    predicate text collate "C",
    object text collate "C",
    content text collate "C" not null,
    canonicalizer text collate "C",
    key_fields text collate "C",
    metadata_signature text collate "C",
    content_hash bytea generated always as (
        memfold_internal._content_hash(memory_type, subject, predicate, content, canonicalizer, key_fields, metadata_signature)
    ) stored,
    scope_key bigint not null generated always as (
        memfold_internal._scope_key(bucket_id, memory_type, subject, predicate)
    ) stored,
    status text collate "C" not null default 'active',
    merged_into uuid,
    root_id uuid,
    session_id text collate "C",
    metadata jsonb not null default '{}',
    embedding_pending boolean not null default false,
    created_at timestamptz not null default pg_catalog.now(),
    -- what memfold itself writes says false
    is_ingested boolean not null default false,
    primary key (tenant_id, memory_id),
    foreign key (tenant_id, merged_into) references memfold.memories (tenant_id, memory_id),
    foreign key (tenant_id, root_id) references memfold.memories (tenant_id, memory_id),
    constraint memories_state_check check (memfold_internal._is_consistent(
        tenant_id, bucket_id, memory_type, memory_id, status, merged_into, root_id, metadata
    ))
) with (fillfactor = 90);
comment on table memfold.memories is
'One row a text of a bucket, for ever. Text, keys and hash never change; state is derived from memory_events.';
comment on column memfold.memories.canonicalizer is
'Versioned profile that the hash was made with; filled in from the policy. Null: opted out of deduplication.';
comment on column memfold.memories.metadata_signature is
'The policy''s metadata_keys with their values, as JSON text, where they are part of the hash.';
comment on column memfold.memories.content_hash is
'Tier 1: SHA-256 over what the row itself holds. Null when the policy''s dedup is off.';
comment on column memfold.memories.scope_key is 'Hash of bucket, type, canonical subject, canonical predicate.';
comment on column memfold.memories.status is
'active, merged (an alias), superseded, rejected (a tombstone) or withdrawn (no observation left, or none since it was pruned).';
comment on column memfold.memories.merged_into is 'Aliases: the memory that this text was folded into (the edge that undo cuts).';
comment on column memfold.memories.root_id is 'Aliases: the memory where merged_into finally leads. Null for a root.';
comment on column memfold.memories.metadata is 'Roots: the metadata of all observations, folded by the policy.';
comment on column memfold.memories.embedding_pending is 'Stored without a vector: see pending_embeddings().';
comment on column memfold.memories.is_ingested is
'The ledger has a row about it. False: it came by a plain INSERT, and ingest_plain_rows() has not seen it yet.';
create unique index memories_content_hash_key
on memfold.memories (tenant_id, bucket_id, content_hash) where content_hash is not null;
-- The scope first: an index that begins with the tenant looks, where statistics are young or most tenants are small, as good for a
-- memory_id or a hash as the index on that, and is read from the tenant's first row to its last. Texts without a hash are few, and
-- have an index of their own.
create index memories_scope_idx on memfold.memories (scope_key, tenant_id, bucket_id);
create index memories_opted_out_idx on memfold.memories (tenant_id, bucket_id) where content_hash is null;
create index memories_session_idx on memfold.memories (tenant_id, bucket_id, session_id) where session_id is not null;
create index memories_not_ingested_idx on memfold.memories (tenant_id, bucket_id, memory_id) where not is_ingested;
create index memories_root_idx on memfold.memories (tenant_id, root_id) where root_id is not null;
create index memories_merged_into_idx on memfold.memories (tenant_id, merged_into) where merged_into is not null;
create index memories_pending_idx on memfold.memories (tenant_id, bucket_id, memory_id) where embedding_pending;

-- No foreign key here and on memory_tokens: see memory_vectors.
create table memfold.memory_counters (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    is_active boolean not null default true,
    on_timeline boolean not null default false,
    aliases bigint not null default 0,
    observations bigint not null default 0,
    independent bigint not null default 0,
    source_confidence double precision not null default 0,
    extractor_confidence double precision not null default 0,
    first_seen timestamptz not null default '-infinity',
    last_seen timestamptz not null default '-infinity',
    access_count bigint not null default 0,
    helpful_count bigint not null default 0,
    harmful_count bigint not null default 0,
    last_accessed timestamptz,
    last_event uuid,
    decayed_confidence double precision,
    decayed_at timestamptz,
    is_striped boolean not null default false,
    valid_from timestamptz,
    valid_until timestamptz,
    primary key (tenant_id, memory_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table memfold.memory_counters is
'The aggregates of a root over its own and its aliases'' observations: a narrow row of its own, so that a merge is one
HOT update. Aliases have a row of zeros or none. A change of a tree or its counters locks the root''s row here. What is
observed of a root is counted beside its row where that is contended: memory_totals has the sums.';
comment on column memfold.memory_counters.is_active is 'The root''s status is active.';
comment on column memfold.memory_counters.on_timeline is
'The memory is one of several values of one question: of a single-valued slot, or after a judged contradiction.';
comment on column memfold.memory_counters.aliases is 'How many texts are folded into this one.';
comment on column memfold.memory_counters.observations is 'repetition_count + 1.';
comment on column memfold.memory_counters.independent is
'Observations that had a source turn which none before them had, or that came without turns: n + 1 of the confidence formula.';
comment on column memfold.memory_counters.last_seen is
'The last observation, or supersession by a person, that states it.';
comment on column memfold.memory_counters.access_count is 'How often recall has shown it (merges are not counted here).';
comment on column memfold.memory_counters.helpful_count is 'Feedback on the memory as it was shown: not passed on by a fold.';
comment on column memfold.memory_counters.last_event is
'Roots: no ledger row by which a text of the tree was stated, pruned or judged current has a higher id. The next one comes after it,
whatever the clock says. Null: none has been written yet.';
comment on column memfold.memory_counters.is_striped is
'Calls have waited for this row, so that others add to memory_counter_stripes. Set and cleared by who holds the row.';
comment on column memfold.memory_counters.valid_from is
'From when recall shows the memory, as its latest observation says, by (observed_at, event_id). Null: no bound.';
comment on column memfold.memory_counters.valid_until is
'Until when recall shows the memory, exclusive, as its latest observation says. Null: no bound.';
comment on column memfold.memory_counters.decayed_confidence is
'Effective confidence at decayed_at, for those who read tables; written by apply_decay() alone.';

create table memfold.memory_counter_stripes (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    stripe bigint not null check (stripe between 0 and 63),
    observations bigint not null default 0,
    independent bigint not null default 0,
    source_confidence double precision not null,
    extractor_confidence double precision not null,
    first_seen timestamptz not null,
    last_seen timestamptz not null,
    last_event uuid,
    primary key (tenant_id, memory_id, stripe)
    -- room for updates in place: a process's row stays on its page
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table memfold.memory_counter_stripes is
'Striped counters: where calls have waited for a root''s row in memory_counters, 64 rows beside it. Each server process adds to
one of them, so that writers of a fact wait for each other no more. observations and independent are added to those of the root''s
row; confidences, times and last_event began as copies of the row''s. memory_totals has the sums. Roots have 64 of them (active
ones, on no timeline and without aliases) or none; a change of its tree, and maintenance, join them into the row.';
comment on column memfold.memory_counter_stripes.stripe is 'Who adds here: server processes whose id is this modulo 64.';

create table memfold.memory_intervals (
    tenant_id text collate "C" not null,
    bucket_id text collate "C" not null,
    scope_key bigint not null,
    valid_from timestamptz not null,
    from_event uuid not null,
    memory_id uuid not null,
    valid_to timestamptz,
    primary key (tenant_id, bucket_id, scope_key, valid_from, from_event),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id)
);
create index memory_intervals_memory_idx on memfold.memory_intervals (tenant_id, memory_id);
comment on table memfold.memory_intervals is
'When a value of a single-valued slot was current: [valid_from, valid_to), null = still. Derived from the ledger.';

create table memfold.memory_sources (
    tenant_id text collate "C" not null,
    source_turn_id text collate "C" not null,
    memory_id uuid not null,
    event_id uuid not null,
    primary key (tenant_id, source_turn_id, memory_id)
);
comment on table memfold.memory_sources is 'Which conversation turns a text came from: one row per (turn, memory).';
comment on column memfold.memory_sources.event_id is
'The first ledger row, by id, of those in force by which this text was stated in this turn. It is independent evidence of the text.';

create table memfold.memory_tokens (
    tenant_id text collate "C" not null,
    bucket_id text collate "C" not null,
    token text collate "C" not null,
    memory_id uuid not null,
    primary key (tenant_id, bucket_id, token, memory_id)
);
create index memory_tokens_memory_idx on memfold.memory_tokens (tenant_id, memory_id);
comment on table memfold.memory_tokens is
'Lexical tier: the words of memories, for buckets whose policy has a lexical_threshold.';

-- The ledger -------------------------------------------------------------------------------------------------------

-- No CHECK here, on memory_counters and on memory_sources: an INSERT or UPDATE reads and plans each of them again, which
-- doubled the cost of a replay. Only memfold's own functions write these tables; check_invariants() says what must hold.
create table memfold.memory_events (
    tenant_id text collate "C" not null,
    event_id uuid not null default memfold_internal._new_id(),
    recorded_at timestamptz not null default pg_catalog.clock_timestamp(),
    bucket_id text collate "C" not null,
    action text collate "C" not null,
    tier smallint,
    method text collate "C",
    memory_id uuid,
    target_id uuid,
    similarity double precision,
    guard text[],
    similar_memories jsonb,
    reason text collate "C",
    observation boolean not null default false,
    on_timeline boolean not null default false,
    content text collate "C",
    memory_type text collate "C",
    subject text collate "C",
    predicate text collate "C",
    object text collate "C",
    source_turn_ids text[] not null default '{}',
    source_confidence double precision,
    extractor_confidence double precision,
    session_id text collate "C",
    origin text collate "C",
    metadata jsonb,
    observed_at timestamptz,
    valid_from timestamptz,
    valid_until timestamptz,
    judgement_id uuid,
    verdict text collate "C",
    undoes uuid,
    run_id uuid,
    actor text collate "C" not null,
    cause text collate "C",
    -- of a row that stands for several; no default: an ordinary row does not name them
    observations bigint,
    without_turns bigint,
    first_observed_at timestamptz,
    turn_events uuid[],
    primary key (tenant_id, event_id, recorded_at)
);
create index memory_events_memory_idx on memfold.memory_events (tenant_id, memory_id, event_id);
-- by action and tier: a root has a row for each restatement of an alias
create index memory_events_target_idx on memfold.memory_events (tenant_id, target_id, action, tier) where target_id is not null;
create unique index memory_events_undoes_key on memfold.memory_events (tenant_id, undoes) where undoes is not null;
create index memory_events_run_idx on memfold.memory_events (tenant_id, run_id) where run_id is not null;
-- What was decided of a text, without its restatements, of which there may be many: the condition is that of the view
-- memfold_internal._decisions. It is short, since each INSERT prepares it again.
create index memory_events_decisions_idx on memfold.memory_events (tenant_id, memory_id, event_id) where tier <> 1 or on_timeline;
-- The rows that erasure has to look for by what they say: those that name other memories with the guard's signals, which are
-- words of both, and those whose source turn has no row in memory_sources, for they support nothing.
create index memory_events_erasure_idx on memfold.memory_events (tenant_id, bucket_id, event_id)
where similar_memories is not null or not observation;
comment on table memfold.memory_events is
'The ledger: every observation and every decision, append-only. All state of memories is a function of it, in the order of event
ids. No foreign keys.';
comment on column memfold.memory_events.event_id is
'A UUID of version 7. Of two rows about the same memories the later one has the higher id, whatever the clock did
("recorded_at" has its time).';
comment on column memfold.memory_events.action is
'inserted, merged, replaced, superseded, escalated, historical, rejected; embedded (a late vector), judged, pruned, undone,
erased, rehashed (by a rehash another text has the hash of this one, or none is left; it was not folded).';
comment on column memfold.memory_events.method is
'What decided: hash, alias, tombstone, timeline (tier 1); object, lexical, vector, session, score, predicate (tier 2); judge, person,
fallback (tier 3); plain, rehash. Of a row erased: what was asked for, source, memory, bucket or tenant; erasure: a fold that
took the place of one whose text was erased. archived: a row that stands for restatements in memory_events_archive, with the
event_id of the last one.';
comment on column memfold.memory_events.memory_id is 'The text that the candidate matched or created. Null: refused by a rule, no text.';
comment on column memfold.memory_events.target_id is
'merged in tier 2 or 3: the memory that memory_id was folded into (replaced: the memory folded into memory_id). merged in
tier 1: the root, where an alias was hit. superseded, historical: the value it competed with. escalated: the neighbour.';
comment on column memfold.memory_events.similarity is
'Cosine to the own text of the memory that it was decided against (null: it has no vector of the model); of method lexical the
Jaccard similarity of words.';
comment on column memfold.memory_events.guard is 'The guard''s signals against the neighbour that decided.';
comment on column memfold.memory_events.similar_memories is
'The active memories that were near, always with the one that it was decided against: memory_id; similarity and jaccard, of its own
text; guard; and where an alias was nearer, matched_id and matched_similarity, by words jaccard_matched_id and matched_jaccard.';
comment on column memfold.memory_events.observation is
'The call counts as an observation of memory_id (recalled text and decisions do not).';
comment on column memfold.memory_events.on_timeline is
'It concerns a value of a timeline. Of inserted, superseded and historical: of the timeline of their scope.';
comment on column memfold.memory_events.observed_at is
'When the candidate was observed. Of a supersession by a person: from when it holds.';
comment on column memfold.memory_events.valid_from is 'From when the fact holds, as the caller said. Null: no bound.';
comment on column memfold.memory_events.valid_until is 'Until when the fact holds, exclusive, as the caller said. Null: no bound.';
comment on column memfold.memory_events.actor is 'Login role that called, or the judge.';
comment on column memfold.memory_events.observations is
'Of method archived: how many restatements the row stands for; they are in memory_events_archive. Null: one.';
comment on column memfold.memory_events.without_turns is 'Of method archived: how many of them came without source turns.';
comment on column memfold.memory_events.first_observed_at is
'Of method archived: when the earliest of them was observed; observed_at has the latest.';
comment on column memfold.memory_events.turn_events is
'Of method archived: for each of source_turn_ids the first of the archived rows that had it, so that n stays what it was.';

create table memfold.memory_event_sums (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    to_event uuid not null,
    observations bigint not null,
    without_turns bigint not null,
    independent bigint not null,
    source_confidence double precision,
    extractor_confidence double precision,
    first_seen timestamptz,
    last_seen timestamptz,
    has_metadata boolean not null,
    has_validity boolean not null,
    repeated_turns bigint[] not null,
    primary key (tenant_id, memory_id, to_event)
);
comment on table memfold.memory_event_sums is
'Sums of ledger rows, so that what is derived from them need not read each: of a text''s observations in force, in the order of their
ids, in blocks. A block ends with the row to_event, and begins after the block before it. What is after the last block has no sums yet.';
comment on column memfold.memory_event_sums.to_event is 'The last ledger row that belongs to the block.';
comment on column memfold.memory_event_sums.independent is
'Observations that are the first of their text to have one of their source turns. Those without turns are in without_turns.';
comment on column memfold.memory_event_sums.repeated_turns is
'Hashes of the source turns that an observation of the block has, and another one of the text had before.';
comment on column memfold.memory_event_sums.first_seen is 'Null, as the confidences and last_seen: none of the block is in force.';
comment on column memfold.memory_event_sums.has_metadata is 'Some observation of the block has metadata, which is read from the ledger.';
comment on column memfold.memory_event_sums.has_validity is
'Some observation of the block has valid_from or valid_until, which are read from the ledger.';

-- Runs -------------------------------------------------------------------------------------------------------------

create table memfold.runs (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    run_id uuid not null default memfold_internal._new_id(),
    bucket_id text collate "C" not null,
    kind text collate "C" not null check (kind in (
        'consolidation', 'sweep', 'session', 'cleaning', 'pruning', 'decay', 'rehash', 'maintenance', 'reembedding', 'dropping', 'erasure',
        'link'
    )),
    status text collate "C" not null default 'open' check (status in ('open', 'done', 'failed', 'undone')),
    arguments jsonb not null default '{}',
    report jsonb not null default '{}',
    started_at timestamptz not null default pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    actor text collate "C" not null,
    primary key (tenant_id, run_id)
);
create index runs_bucket_idx on memfold.runs (tenant_id, bucket_id, kind, run_id);
create index runs_maintenance_idx on memfold.runs (started_at) where kind = 'maintenance';
comment on table memfold.runs is
'One row a run of maintenance: what was asked, what it did, when. Its decisions are in memory_events and judgements, by run_id.';
comment on column memfold.runs.bucket_id is '''*'': all buckets of the tenant.';
comment on column memfold.runs.status is
'open: judgements of it wait, or it is under way; done; failed: see report; undone: by undo_run().';
comment on column memfold.runs.report is 'Counts by name, and what went wrong.';
