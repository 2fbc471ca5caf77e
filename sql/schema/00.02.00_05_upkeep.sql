-- Release 0.2.0: recall and upkeep.

-- Rules ------------------------------------------------------------------------------------------------------------

alter table memfold.policies
add column lexical_neighbours bigint not null default 5 check (lexical_neighbours between 1 and 1000),
add column session_neighbours bigint check (session_neighbours between 1 and 1000),
add column metadata_max text[] not null default '{}',
add column on_judge_failure text collate "C" not null default 'keep' check (on_judge_failure in ('keep', 'replace')),
add column search_threshold double precision check (search_threshold between 0 and 1),
add column touch boolean not null default false,
add column rank_confidence double precision not null default 0.1 check (rank_confidence between 0 and 1),
add column rank_feedback double precision not null default 0.1 check (rank_feedback between 0 and 1),
add column consolidate_threshold double precision not null default 0.75 check (consolidate_threshold between 0 and 1),
add column max_cluster_size bigint not null default 10 check (max_cluster_size between 2 and 10),
add column session_threshold double precision not null default 0.5 check (session_threshold between 0 and 1),
add column protected_types text[] not null default '{}',
add column protected_confidence double precision check (protected_confidence between 0 and 1),
add column decay_rate double precision not null default 0 check (decay_rate >= 0 and decay_rate < 1),
add column decay_floor double precision not null default 0.05 check (decay_floor between 0 and 1),
add column decay_interval interval not null default '1 day' check (decay_interval >= interval '0'),
add column key_retention interval not null default '30 days'
check (key_retention between interval '1 hour' and interval '1000 years');
-- squawk-ignore constraint-missing-not-valid
alter table memfold.policies add constraint policies_rank_check check (rank_confidence + rank_feedback <= 1);
-- squawk-ignore ban-drop-constraint
alter table memfold.policies drop constraint policies_on_ambiguous_check;
-- squawk-ignore constraint-missing-not-valid
alter table memfold.policies add constraint policies_on_ambiguous_check
check (on_ambiguous in ('judge', 'synthesise', 'review', 'keep'));
comment on column memfold.policies.lexical_threshold is
'Jaccard similarity of words above which a guard-clean neighbour merges. Null: the lexical tier is off.';
comment on column memfold.policies.lexical_neighbours is 'How many memories that share words the lexical tier looks at.';
comment on column memfold.policies.session_neighbours is
'How many neighbours tier 2 looks at where they are of the candidate''s session. Null: sessions make no difference.';
comment on column memfold.policies.on_ambiguous is
'What row 9 does: judge and review queue a judgement, synthesise asks a judge for one text that says what both say, keep
inserts.';
comment on column memfold.policies.on_merge is
'What an automatic merge of another text (rows 7 and 8) does: strengthen = the candidate''s text becomes an alias; replace = the
newer text holds, the older becomes its alias; synthesise = a judge writes one text that says what both say.';
comment on column memfold.policies.metadata_max is
'Metadata keys that keep the largest of their numbers, whatever metadata_merge says of the others.';
comment on column memfold.policies.on_judge_failure is
'When the last attempt of a synthesis has failed: keep = both memories stay, replace = the newer replaces the older.';
comment on column memfold.policies.search_threshold is
'Cosine at or above which search_memories() shows two memories as one. Null: the model''s judge threshold.';
comment on column memfold.policies.touch is 'Whether search_memories() counts what it shows (access_count, last_accessed).';
comment on column memfold.policies.min_confidence is 'Effective confidence below which search_memories() does not show a memory.';
comment on column memfold.policies.rank_confidence is
'Share of effective confidence in the score of search_memories(); similarity has what confidence and feedback leave.';
comment on column memfold.policies.rank_feedback is
'Share of feedback, (helpful + 1) / (helpful + harmful + 2), in the score of search_memories().';
comment on column memfold.policies.consolidate_threshold is 'Cosine at or above which consolidate() makes one cluster of two memories.';
comment on column memfold.policies.max_cluster_size is
'How many memories one question of consolidate() or sweep_duplicates() may be about: 2 (pairs) to 10. Larger clusters are split.';
comment on column memfold.policies.session_threshold is
'Jaccard similarity of words above which end_session() makes one cluster of memories.';
comment on column memfold.policies.protected_types is 'Types that upkeep never folds, prunes or lets decay.';
comment on column memfold.policies.protected_confidence is
'Confidence at or above which end_session() does not fold a memory. Null: none is protected by it.';
comment on column memfold.policies.decay_rate is 'Share of its confidence that a memory loses in a day without use. 0: none.';
comment on column memfold.policies.decay_floor is 'Decay ends at this confidence.';
comment on column memfold.policies.decay_interval is 'Decay begins after so long without use.';
comment on column memfold.policies.key_retention is
'For how long an idempotency key answers at least; upkeep removes older ones. Of policies for memory_type ''*''.';

-- Recall -----------------------------------------------------------------------------------------------------------

alter table memfold.memory_counters
add column decayed_confidence double precision,
add column decayed_at timestamptz;
comment on column memfold.memory_counters.decayed_confidence is
'Effective confidence at decayed_at, for those who read tables; written by apply_decay() alone.';
comment on column memfold.memory_counters.helpful_count is 'Feedback on the memory as it was shown: not passed on by a fold.';

-- squawk-ignore require-concurrent-index-creation
create index memories_session_idx on memfold.memories (tenant_id, bucket_id, session_id) where session_id is not null;

-- A check for each new row of what the same function has written a statement before.
-- squawk-ignore ban-drop-constraint
alter table memfold.memory_tokens drop constraint memory_tokens_tenant_id_memory_id_fkey;

-- Idempotency keys -------------------------------------------------------------------------------------------------

-- Those that upkeep removes. Keys of a table that is being taken over are what keeps its rows from being counted twice.
-- squawk-ignore require-concurrent-index-creation
create index idempotency_keys_at_idx on memfold.idempotency_keys (tenant_id, at)
where idempotency_key < 'import:' or idempotency_key >= 'import;';

-- Runs -------------------------------------------------------------------------------------------------------------

create table memfold.runs (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    run_id uuid not null default memfold._new_id(),
    bucket_id text collate "C" not null,
    kind text collate "C" not null
    check (kind in ('consolidation', 'sweep', 'session', 'cleaning', 'pruning', 'decay', 'rehash', 'upkeep')),
    state text collate "C" not null default 'open' check (state in ('open', 'done', 'failed', 'undone')),
    arguments jsonb not null default '{}',
    report jsonb not null default '{}',
    started_at timestamptz not null default pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    actor text collate "C" not null,
    primary key (tenant_id, run_id)
);
comment on table memfold.runs is
'One row a run of upkeep: what was asked, what it did, when. Its decisions are in memory_events and judgements, by run_id.';
comment on column memfold.runs.bucket_id is '''*'': all buckets of the tenant.';
comment on column memfold.runs.state is
'open: judgements of it wait, or it is under way; done; failed: see report; undone: by undo_run().';
comment on column memfold.runs.report is 'Counts by name, and what went wrong.';
alter table memfold.runs enable row level security;
alter table memfold.runs force row level security;
create policy tenant_wall on memfold.runs to memfold_owner
using (tenant_id = pg_catalog.current_setting('memfold.tenant_id', true));
create policy tenant_read on memfold.runs for select to memfold_app using (tenant_id = memfold._tenant());
create policy audit_read on memfold.runs for select to memfold_auditor using (true);

-- squawk-ignore require-concurrent-index-creation
create index memory_events_pruned_idx on memfold.memory_events (tenant_id, memory_id, event_id) where action = 'pruned';
-- squawk-ignore require-concurrent-index-creation
create index judgements_run_idx on memfold.judgements (tenant_id, run_id) where run_id is not null;
-- squawk-ignore require-concurrent-index-creation
create index judgements_waiting_idx on memfold.judgements (tenant_id, run_id, judgement_id)
where run_id is not null and state in ('open', 'leased') and kind <> 'synthesis';
comment on column memfold.judgements.kind is
'write: found by ingest; synthesis: ingest asks for one text; consolidation: found by a run of upkeep; review: for a person.';
comment on column memfold.memory_events.action is
'inserted, merged, replaced, superseded, escalated, historical, rejected; embedded (a late vector), judged, pruned, undone,
erased.';
comment on column memfold.memories.status is
'active, merged (an alias), superseded, rejected (a tombstone) or withdrawn (no observation left, or none since it was pruned).';
comment on column memfold.memory_events.similarity is
'Cosine to the own text of the memory that it was decided against (null: it has no vector of the model); of method lexical the
Jaccard similarity of words.';
comment on column memfold.memory_events.similar_memories is
'The active memories that were near, always with the one that it was decided against: memory_id; similarity and jaccard, of its own
text; guard; and where an alias was nearer, matched_id and matched_similarity, by words jaccard_matched_id and matched_jaccard.';
comment on type memfold.ingest_result is
'action: inserted, merged, replaced, superseded, escalated, historical or rejected. memory_id: the memory that now holds
the fact (of a merge: the active one). tier 1 to 3 and method say what decided; similarity is the cosine to the own text of
the memory that it was decided against, of method lexical the Jaccard similarity of words. similar: as in
memory_events.similar_memories.';
