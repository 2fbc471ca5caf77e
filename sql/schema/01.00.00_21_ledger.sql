-- tenant_id is the first column of every key in tenants' tables, so that these can be distributed by it.

-- Memories ------------------------------------------------------------------------------------------------------------

-- PL/pgSQL on purpose: an INSERT parses and plans each expression of a constraint again, which would take longer than the call.
create function memfold_internal._is_consistent(
    tenant_id text, bucket_id text, memory_type text, memory_id uuid, status text, merged_into uuid, root_id uuid, metadata jsonb
) returns boolean
language plpgsql immutable parallel safe
as $$
begin
    -- every call refuses a longer tenant_id, so its rows could be neither maintained nor erased
    return tenant_id <> '' and pg_catalog.octet_length(tenant_id) <= 512 and bucket_id <> '' and memory_type <> ''
        and status in ('active', 'merged', 'superseded', 'rejected', 'withdrawn')
        and (status = 'merged') = (merged_into is not null)
        and (merged_into is null) = (root_id is null)
        and merged_into is distinct from memory_id and root_id is distinct from memory_id
        and pg_catalog.jsonb_typeof(metadata) = 'object';
end;
$$;
comment on function memfold_internal._is_consistent is
'The invariant of every row of memories: no empty key, a tenant that calls accept, a valid status, and an edge and a root only for
aliases.';

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
    scope_key uuid not null generated always as (
        memfold_internal._scope_key(bucket_id, memory_type, subject, predicate)
    ) stored,
    status text collate "C" not null default 'active',
    merged_into uuid,
    root_id uuid,
    session_id text collate "C",
    metadata jsonb not null default '{}',
    embedding_pending boolean not null default false,
    created_at timestamptz not null default pg_catalog.now(),
    -- memfold's own writes set it to true
    is_ingested boolean not null default false,
    primary key (tenant_id, memory_id),
    foreign key (tenant_id, merged_into) references memfold.memories (tenant_id, memory_id),
    foreign key (tenant_id, root_id) references memfold.memories (tenant_id, memory_id),
    constraint memories_state_check check (memfold_internal._is_consistent(
        tenant_id, bucket_id, memory_type, memory_id, status, merged_into, root_id, metadata
    ))
) with (fillfactor = 90);
comment on table memfold.memories is
'One permanent row per text of a bucket. Text, keys and hash never change; state is derived from memory_events.';
comment on column memfold.memories.canonicalizer is
'Version of the canonicalizer that the hash was computed with; set from the policy. Null: excluded from deduplication.';
comment on column memfold.memories.metadata_signature is
'The policy''s metadata_keys with their values, as JSON text, if they are part of the hash.';
comment on column memfold.memories.content_hash is
'Tier 1: SHA-256 over columns of this row. Null if the policy''s dedup is off.';
comment on column memfold.memories.scope_key is 'Hash of bucket, type, canonical subject, canonical predicate.';
comment on column memfold.memories.status is
'active, merged (an alias), superseded, rejected (a tombstone) or withdrawn (no observation left, or none since it was pruned).';
comment on column memfold.memories.merged_into is 'Aliases: the memory that this text was merged into (the edge that undo removes).';
comment on column memfold.memories.root_id is 'Aliases: the memory at the end of the chain of merged_into. Null for a root.';
comment on column memfold.memories.metadata is 'Roots: the metadata of all observations, combined by the policy.';
comment on column memfold.memories.embedding_pending is 'Stored without a vector: see pending_embeddings().';
comment on column memfold.memories.is_ingested is
'The ledger has a row about it. False: it came by a plain INSERT, and ingest_plain_rows() has not handled it yet.';
create unique index memories_content_hash_key
on memfold.memories (tenant_id, bucket_id, content_hash) where content_hash is not null;
-- The scope comes first: if statistics are new, or most tenants are small, the planner considers an index that begins with the tenant
-- as suitable as the one on a memory_id or a hash, and reads the whole tenant. The few texts without a hash have a separate index.
create index memories_scope_idx on memfold.memories (scope_key, tenant_id, bucket_id);
create index memories_opted_out_idx on memfold.memories (tenant_id, bucket_id) where content_hash is null;
create index memories_session_idx on memfold.memories (tenant_id, bucket_id, session_id) where session_id is not null;
create index memories_not_ingested_idx on memfold.memories (tenant_id, bucket_id, memory_id) where not is_ingested;
-- For readers and maintenance of a bucket, without its aliases and former values. The bucket comes first for the same reason.
create index memories_active_idx on memfold.memories (bucket_id, tenant_id, scope_key, memory_id)
where root_id is null and status = 'active';
create index memories_rejected_idx on memfold.memories (tenant_id, bucket_id, scope_key, memory_id)
where status = 'rejected';
create index memories_root_idx on memfold.memories (tenant_id, root_id, scope_key) where root_id is not null;
create index memories_merged_into_idx on memfold.memories (tenant_id, merged_into) where merged_into is not null;
create index memories_pending_idx on memfold.memories (tenant_id, bucket_id, memory_id) where embedding_pending;

-- No foreign key here and on memory_tokens: see memory_vectors.
create table memfold.memory_counters (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    root_id uuid,
    is_additive boolean not null default true,
    on_timeline boolean not null default false,
    is_related boolean not null default false,
    aliases bigint not null default 0,
    observations bigint not null default 0,
    independent bigint not null default 0,
    source_confidence double precision not null default 0,
    extractor_confidence double precision not null default 0,
    first_seen timestamptz,
    last_seen timestamptz,
    has_metadata boolean not null default false,
    has_validity boolean not null default false,
    alias_observations bigint,
    alias_independent bigint,
    alias_source_confidence double precision,
    alias_extractor_confidence double precision,
    alias_first_seen timestamptz,
    alias_last_seen timestamptz,
    access_count bigint not null default 0,
    helpful_count bigint not null default 0,
    harmful_count bigint not null default 0,
    last_accessed timestamptz,
    last_event uuid,
    decayed_confidence double precision,
    decayed_at timestamptz,
    valid_from timestamptz,
    valid_until timestamptz,
    primary key (tenant_id, memory_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
create index memory_counters_root_idx on memfold.memory_counters (tenant_id, root_id) where root_id is not null;
create index memory_counters_validity_idx on memfold.memory_counters (tenant_id, memory_id) where has_validity;
create index memory_counters_related_idx
on memfold.memory_counters (tenant_id, (case when root_id is null then memory_id else root_id end)) where is_related;
comment on table memfold.memory_counters is
'The counters of each text, over its own observations, in a narrow table so that a merge is one HOT update; those of a root also sum up
its aliases (alias_*). memory_totals adds the two. To change a tree or its counters, a call locks the root''s row here.';
comment on column memfold.memory_counters.root_id is 'As in memories: aliases only.';
comment on column memfold.memory_counters.is_additive is
'Roots: a later statement is only counted. The memory is active and has no validity; if it is on a timeline, it was stated last there and
is current for ever, and nobody has decided that two values of its slot hold together.';
comment on column memfold.memory_counters.on_timeline is
'Roots: when the memory is current depends on other values or on a validity too, and is in memory_intervals.';
comment on column memfold.memory_counters.is_related is
'Somebody has decided that this text contradicts another one, or that the two hold together.';
comment on column memfold.memory_counters.aliases is 'Roots: how many texts have been merged into this one.';
comment on column memfold.memory_counters.observations is 'Observations in force of this text.';
comment on column memfold.memory_counters.independent is
'Observations in force with a source turn that no earlier one of this text had, or without source turns.';
comment on column memfold.memory_counters.first_seen is 'Null, like last_seen: no observation is in force.';
comment on column memfold.memory_counters.last_seen is
'The last observation that states this text, or the last manual supersession that makes it current.';
comment on column memfold.memory_counters.has_metadata is 'Some observation has metadata, which is read from the ledger.';
comment on column memfold.memory_counters.has_validity is
'Some observation has valid_from or valid_until, which are read from the ledger.';
comment on column memfold.memory_counters.alias_observations is
'Roots: the sum over the aliases; other alias_* columns are a sum, minimum or maximum. Null: no alias has an observation.';
comment on column memfold.memory_counters.alias_independent is
'What the aliases add to independent: their sum, less the observations of the tree whose source turns another of its texts had before. May
be negative.';
comment on column memfold.memory_counters.access_count is 'How often recall has shown it (merges are not counted here).';
comment on column memfold.memory_counters.helpful_count is 'Feedback on the memory as it was shown: a merge does not pass it on.';
comment on column memfold.memory_counters.last_event is
'Roots: at least the highest id of the ledger rows that stated, pruned or judged current a text of the tree. The next such row gets a
higher id, regardless of the clock. Null: none has been written yet.';
comment on column memfold.memory_counters.valid_from is
'Roots: time from which recall shows the memory, as stated by its latest observation (by observed_at, event_id). Null: no bound.';
comment on column memfold.memory_counters.valid_until is
'Roots: time until which recall shows the memory, exclusive, as stated by its latest observation. Null: no bound.';
comment on column memfold.memory_counters.decayed_confidence is
'Effective confidence at decayed_at, for readers of the tables; written only by apply_decay().';

create table memfold.memory_intervals (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    valid_from timestamptz not null,
    valid_to timestamptz,
    slot_key uuid,
    primary key (tenant_id, memory_id, valid_from),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id)
);
-- CASE, here and in memory_counters_related_idx, because row-level security treats coalesce() as leaky and uses no index for it.
create index memory_intervals_slot_idx
on memfold.memory_intervals (tenant_id, slot_key, (case when valid_to is null then 'infinity' else valid_to end))
where slot_key is not null;
comment on table memfold.memory_intervals is
'When a memory was or will be current: [valid_from, valid_to); valid_to null: for ever. Only for values of slots, contradictions, and
memories with a validity; all others are current from their first observation on. Derived from the ledger.';
comment on column memfold.memory_intervals.slot_key is 'The scope (memories.scope_key) whose single value this is. Null: of no slot.';

create table memfold.memory_sources (
    tenant_id text collate "C" not null,
    source_turn_id text collate "C" not null,
    memory_id uuid not null,
    event_id uuid not null,
    primary key (tenant_id, source_turn_id, memory_id)
);
comment on table memfold.memory_sources is 'Which conversation turns a text came from: one row per (turn, memory).';
comment on column memfold.memory_sources.event_id is
'The first ledger row in force, by id, that stated this text in this turn. It is independent evidence of the text.';

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

-- No CHECK here, on memory_counters and on memory_sources: each write parses and plans every constraint again, which doubled the cost
-- of a replay. Only memfold's own functions write these tables, and check_invariants() checks the rules.
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
    primary key (tenant_id, event_id, recorded_at)
);
create index memory_events_memory_idx on memfold.memory_events (tenant_id, memory_id, event_id);
-- with action and tier, because a root is the target of one row for each restatement of an alias
create index memory_events_target_idx on memfold.memory_events (tenant_id, target_id, action, tier) where target_id is not null;
create index memory_events_undoes_idx on memfold.memory_events (tenant_id, undoes, event_id) where undoes is not null;
create index memory_events_run_idx on memfold.memory_events (tenant_id, run_id) where run_id is not null;
-- Decisions about texts, without their many restatements. The condition is that of the view memfold_internal._decisions; it is
-- short because each INSERT prepares it again.
create index memory_events_decisions_idx on memfold.memory_events (tenant_id, memory_id, event_id) where tier > 1;
-- Rows that erasure must find by their contents: those that name other memories with the guard's signals, which contain words of both
-- texts, and those whose source turns have no row in memory_sources, because they are not observations.
create index memory_events_erasure_idx on memfold.memory_events (tenant_id, bucket_id, event_id)
where similar_memories is not null or not observation;
comment on table memfold.memory_events is
'The ledger: every observation and every decision, append-only. All state of memories is a function of it, in the order of event
ids. No foreign keys.';
comment on column memfold.memory_events.event_id is
'A UUID of version 7. Of two rows about the same memories the later one has the higher id, even if the clock was set back (its
time is in recorded_at).';
comment on column memfold.memory_events.action is
'inserted, merged, replaced, superseded, escalated, historical, rejected; embedded (a late vector), judged, pruned; undone (the decision),
withdrawn (the decision and what was stated) or restored, of the event undoes; erased, rehashed (after a rehash another text
has the hash of this one, or none has; it was not merged).';
comment on column memfold.memory_events.method is
'What decided: hash, alias, tombstone, timeline (tier 1); object, lexical, vector, session, score, predicate (tier 2); judge, person,
fallback (tier 3); plain, rehash. For action erased, what was to be erased: source, memory, bucket or tenant. erasure: a merge that
replaces one whose text was erased.';
comment on column memfold.memory_events.memory_id is
'The text that the candidate matched or created; of two stored memories, the newer. Null: a rule refused the candidate, so there is no
text.';
comment on column memfold.memory_events.target_id is
'merged in tier 2 or 3: the memory that memory_id was merged into (replaced: the memory that was merged into memory_id). merged in tier 1:
the root, if an alias matched. superseded, historical: the value it competed with. escalated: the neighbour.';
comment on column memfold.memory_events.similarity is
'Cosine to the text of the memory that it was decided against, not of an alias (null: that memory has no vector of the model); for method
lexical, the Jaccard similarity of words.';
comment on column memfold.memory_events.guard is 'The guard''s signals for the neighbour that decided.';
comment on column memfold.memory_events.similar_memories is
'The near memories, former values too, including the one that it was decided against: memory_id; similarity and jaccard, of its own
text; guard; and if an alias was nearer, matched_id and matched_similarity, or by words jaccard_matched_id and matched_jaccard.';
comment on column memfold.memory_events.observation is
'The call counts as an observation of memory_id (recalled text and decisions do not).';
comment on column memfold.memory_events.observed_at is
'When the candidate was observed. For a manual supersession: the time from which it applies.';
comment on column memfold.memory_events.valid_from is 'Time from which the fact holds, as given by the caller. Null: no bound.';
comment on column memfold.memory_events.valid_until is
'Time until which the fact holds, exclusive, as given by the caller. Null: no bound.';
comment on column memfold.memory_events.undoes is
'For undone, withdrawn and restored: the event that this is about. The last row about an event gives its present state.';
comment on column memfold.memory_events.actor is 'Login role of the caller, or the judge.';
comment on column memfold.memory_events.cause is 'For action erased: what was erased (the text, a number of ledger rows).';

create type memfold_internal.statement as (
    root_id uuid,
    value text,
    slot_key uuid,
    observed_at timestamptz,
    event_id uuid,
    is_timed boolean,
    holds tstzrange
);
comment on type memfold_internal.statement is
'A statement in force about a root: its value, its slot (null: none), when it was made, and the time that it covers. is_timed: it came with
a validity.';

create type memfold_internal.derived_time as (
    memory_id uuid,
    slot_key uuid,
    on_timeline boolean,
    is_superseded boolean,
    is_additive boolean,
    times tstzmultirange
);
comment on type memfold_internal.derived_time is 'When a root is current, and its status and flags: the result of _derived_times().';

create type memfold_internal.rivalry as (
    bucket_ids text[],
    slot_keys uuid[],
    rivals uuid[],
    current_ids uuid[]
);
comment on type memfold_internal.rivalry is
'Slots and contradicting memories in which another value may become current after a removal: see _rivalry().';

-- Runs -------------------------------------------------------------------------------------------------------------

create table memfold.runs (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    run_id uuid not null default memfold_internal._new_id(),
    bucket_id text collate "C" not null,
    kind text collate "C" not null check (kind in (
        'consolidation', 'sweep', 'session', 'cleaning', 'pruning', 'decay', 'rehash', 'maintenance', 'reembedding', 'dropping', 'erasure',
        'link', 'predicate', 'forgetting', 'undo'
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
create index runs_open_idx on memfold.runs (tenant_id, run_id) where status = 'open';
create index runs_maintenance_idx on memfold.runs (started_at) where kind = 'maintenance';
comment on table memfold.runs is
'One row per maintenance run: its arguments, its results, when it ran. Its decisions are in memory_events and judgements, by run_id.';
comment on column memfold.runs.bucket_id is '''*'': all buckets of the tenant.';
comment on column memfold.runs.status is
'open: it has unanswered judgements, or is in progress; done; failed: see report; undone: by undo_run().';
comment on column memfold.runs.report is 'Counts by name, and errors.';
