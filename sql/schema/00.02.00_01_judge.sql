-- Release 0.2.0: what tier 3 needs.

-- All writers begin with these tables: who holds them first meets none of them half-way, which would be a deadlock.
lock table memfold.tenant_roles, memfold.policies, memfold.memories in access exclusive mode;

-- Those that wait for a person must not be in the way of those that a model may answer.
-- squawk-ignore require-concurrent-index-deletion
drop index memfold.judgements_queue_idx;
-- squawk-ignore require-concurrent-index-creation
create index judgements_queue_idx on memfold.judgements
(tenant_id, (kind = 'review'), next_attempt_at, judgement_id) where state in ('open', 'leased');
-- One question about several memories that are near to one another. What each of them was asked about is found by their rows of
-- state part: an index of an array is of no use behind row level security.
alter table memfold.judgements add column cluster_id uuid;
-- squawk-ignore ban-drop-constraint
alter table memfold.judgements drop constraint judgements_state_check;
-- squawk-ignore constraint-missing-not-valid
alter table memfold.judgements add constraint judgements_state_check
check (state in ('open', 'leased', 'done', 'moot', 'dead', 'part'));
-- squawk-ignore require-concurrent-index-creation
create index judgements_cluster_idx on memfold.judgements (tenant_id, cluster_id) where cluster_id is not null;
comment on column memfold.judgements.state is
'open, leased, done, moot, dead (eight attempts failed), or part: a member of the cluster that cluster_id asks about.';
comment on column memfold.judgements.memory_id is 'The newer side of the pair; of a cluster the newest member.';
comment on column memfold.judgements.other_id is 'The older side; of a cluster the oldest member.';
comment on column memfold.judgements.member_ids is 'Of a question about a cluster: 3 to 10 memories, oldest to newest. Null: a pair.';
comment on column memfold.judgements.cluster_id is
'Of each member but the oldest (other_id): the question about its cluster; where a run was undone, a mark shared by the texts that it had
merged into one memory. Two memories with the same cluster_id were asked about together. Null: a pair of its own.';

comment on column memfold.judgements.attempts is 'How often it was claimed; the eighth attempt is the last.';
comment on column memfold.judgements.next_attempt_at is 'When it may be claimed: of a leased one, when the lease ends.';
comment on column memfold.judgements.verdict is
'unsure: the answer''s confidence was below the policy''s confidence_floor, both were kept.';

comment on column memfold.memory_counters.on_timeline is
'The memory is one of several values of one question: of a single-valued slot, or after a judged contradiction.';
comment on column memfold.memory_counters.last_seen is
'The last observation, or supersession by a person, that states it.';
comment on column memfold.memory_events.on_timeline is
'It concerns a value of a timeline. Of inserted, superseded and historical: of the timeline of their scope.';
comment on column memfold.memory_events.observed_at is
'When the candidate was observed. Of a supersession by a person: from when it holds.';

-- The judge's functions work across tenants: they read both sides of a pair.
create policy queue_read on memfold.memory_counters for select to memfold_queue using (true);
create policy queue_read on memfold.memory_events for select to memfold_queue using (true);

create type memfold.claimed_judgement as (
    tenant_id text,
    judgement_id uuid,
    bucket_id text,
    kind text,
    similarity double precision,
    guard text[],
    attempts bigint,
    leased_until timestamptz,
    memory jsonb,
    other jsonb,
    members jsonb
);
comment on type memfold.claimed_judgement is
'A question for a judge: do memory (the newer) and other (the older) say the same? Both as JSON: memory_id, content,
memory_type, subject, predicate, object, first_seen, last_seen, observations, sources, origin, session_id, source_turn_ids.
members: of a cluster, an array of all its memories in that form, oldest to newest; memory and other are the last and the
first of them. Null: a pair.';

create type memfold.resolution as (
    state text,
    verdict text,
    action text,
    memory_id uuid,
    event_id uuid
);
comment on type memfold.resolution is
'What became of an answer. state: done; open (a side has changed: the question was queued anew, nothing was applied); moot
(there is nothing to decide any more). action: merged, replaced, superseded, rejected, escalated (to a person) or judged
(both were kept); memory_id: the memory that now holds the fact.';

create type memfold.undone_memory as (
    event_id uuid,
    memory_id uuid,
    status text,
    content text
);
comment on type memfold.undone_memory is 'A memory after an undo, and the ledger row that the undo left.';
