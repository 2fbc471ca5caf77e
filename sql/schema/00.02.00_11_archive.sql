-- Release 0.2.0: retention. Old ledger rows leave memory_events; one row stands there for many restatements.

-- A row of the ledger that stands for several. No default: an ordinary row does not name them.
alter table memfold.memory_events
add column observations bigint,
add column without_turns bigint,
add column first_observed_at timestamptz,
add column turn_events uuid[];
comment on column memfold.memory_events.observations is
'Of method archived: how many restatements the row stands for; they are in memory_events_archive. Null: one.';
comment on column memfold.memory_events.without_turns is 'Of method archived: how many of them came without source turns.';
comment on column memfold.memory_events.first_observed_at is
'Of method archived: when the earliest of them was observed; observed_at has the latest.';
comment on column memfold.memory_events.turn_events is
'Of method archived: for each of source_turn_ids the first of the archived rows that had it, so that n stays what it was.';
comment on column memfold.memory_events.method is
'What decided: hash, alias, tombstone, timeline (tier 1); object, lexical, vector, session, score, predicate (tier 2); judge, person,
fallback (tier 3); plain, rehash. Of a row erased: what was asked for, source, memory, bucket or tenant; erasure: a fold that
took the place of one whose text was erased. archived: a row that stands for restatements in memory_events_archive, with the
event_id of the last one.';
-- What was said of it is not so: partitions would need "at" in the unique index on undoes too.
comment on table memfold.memory_events is
'The ledger: every observation and every decision, append-only. All state of memories is a function of it, in the order of event
ids. No foreign keys.';
comment on column memfold.memory_events.event_id is
'A UUID of version 7. Of two rows about the same memories the later one has the higher id, whatever the clock did ("at" has its time).';
-- its columns are those of memory_events, and then its own: made anew with the functions
-- squawk-ignore ban-drop-view
drop view if exists memfold._ledger;

create table memfold.memory_events_archive (like memfold.memory_events including comments);
alter table memfold.memory_events_archive add primary key (tenant_id, event_id, at);
create index memory_events_archive_memory_idx on memfold.memory_events_archive (tenant_id, memory_id, event_id);
create unique index memory_events_archive_undoes_key on memfold.memory_events_archive (tenant_id, undoes)
where undoes is not null;
-- erasure looks for rows by what they name
create index memory_events_archive_target_idx on memfold.memory_events_archive (tenant_id, target_id) where target_id is not null;
create index memory_events_archive_erasure_idx on memfold.memory_events_archive (tenant_id, bucket_id, event_id)
where similar_memories is not null or not observation;
comment on table memfold.memory_events_archive is
'Ledger rows that archive_events() has moved out of memory_events, as they were: old restatements, for which a row of method
archived stands in the ledger, and rows on which no state depends. undo() and erasure bring a memory''s rows back. It may be in
another tablespace.';
alter table memfold.memory_events_archive enable row level security;
alter table memfold.memory_events_archive force row level security;
create policy tenant_wall on memfold.memory_events_archive to memfold_owner
using (tenant_id = pg_catalog.current_setting('memfold.tenant_id', true));
create policy tenant_read on memfold.memory_events_archive for select to memfold_app using (tenant_id = memfold._tenant());
create policy audit_read on memfold.memory_events_archive for select to memfold_auditor using (true);

create table memfold.archive_positions (
    tenant_id text collate "C" primary key check (tenant_id <> ''),
    memory_id uuid,
    event_id uuid not null
);
comment on table memfold.archive_positions is
'Where archive_events() goes on in a tenant''s ledger, by memory and event (memory_id null: among the rows that have none). No row:
at the beginning.';
alter table memfold.archive_positions enable row level security;
alter table memfold.archive_positions force row level security;
create policy tenant_wall on memfold.archive_positions to memfold_owner
using (tenant_id = pg_catalog.current_setting('memfold.tenant_id', true));
create policy tenant_read on memfold.archive_positions for select to memfold_app using (tenant_id = memfold._tenant());
create policy audit_read on memfold.archive_positions for select to memfold_auditor using (true);

create type memfold.archived_rows as (archived bigint, summaries bigint, is_left boolean);
comment on type memfold.archived_rows is
'What one call of archive_events() did: rows it moved, rows of method archived it made or made larger; is_left: call it again.';

-- Limits -----------------------------------------------------------------------------------------------------------

alter table memfold.policies add column max_session_repeats bigint check (max_session_repeats between 1 and 1000);
comment on column memfold.policies.max_session_repeats is
'How often one session (session_id) may state one text: a further call is refused (MF055). Null: as often as it likes.';
