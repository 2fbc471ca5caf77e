-- Release 0.2.0: other rules for the hash of a bucket that has memories, and rows that came by a plain INSERT.

-- While a bucket is rehashed, its texts stand under the rules of before or under those of its policy.
alter table memfold.policies
add column rehash_run uuid,
add column rehash_from_canonicalizer text collate "C",
add column rehash_from_key_fields text collate "C",
add column rehash_from_metadata_keys text[];
-- squawk-ignore constraint-missing-not-valid
alter table memfold.policies add constraint policies_rehash_check check (
    rehash_run is null or rehash_from_canonicalizer is not null and rehash_from_key_fields is not null
    and rehash_from_metadata_keys is not null
);
comment on column memfold.policies.rehash_run is
'The run of rehash_bucket() that is under way. Null: there is none, and the columns rehash_from_... mean nothing.';
comment on column memfold.policies.rehash_from_canonicalizer is
'What the texts that the run has not reached are hashed by; so rehash_from_key_fields and rehash_from_metadata_keys.';

-- squawk-ignore require-concurrent-index-deletion
drop index memfold.policies_unusual_idx;
-- squawk-ignore require-concurrent-index-creation
create index policies_unusual_idx on memfold.policies (tenant_id)
where dedup <> 'on' or canonicalizer <> 'prose/1' or key_fields <> 'type,subject,predicate' or metadata_keys <> '{}'
or max_content_length < 8192 or rehash_run is not null;
-- squawk-ignore require-concurrent-index-creation
create index runs_bucket_idx on memfold.runs (tenant_id, bucket_id, kind, run_id);

comment on column memfold.memory_events.action is
'inserted, merged, replaced, superseded, escalated, historical, rejected; embedded (a late vector), judged, pruned, undone,
erased, rehashed (by a rehash another text has the hash of this one, or none is left; it was not folded).';

-- What memfold itself writes says false: true is what no function has seen yet.
alter table memfold.memories add column plain boolean not null default false;
alter table memfold.memories alter column plain set default true;
-- squawk-ignore require-concurrent-index-creation
create index memories_plain_idx on memfold.memories (tenant_id, bucket_id, memory_id) where plain;
comment on column memfold.memories.plain is
'It came by a plain INSERT, and ingest_plain_rows() has not seen it yet.';
-- those of the release before; not in the upgrade of a database whose installer row level security binds
update memfold.memories as m
set plain = true
where not exists (
    select from memfold.memory_counters as k where k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
) and not exists (
    select from memfold.memory_events as e where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id
);

create type memfold.rehash_step as (rows_seen bigint, rows_changed bigint, "position" bytea);
comment on type memfold.rehash_step is
'A step of a rehash: texts looked at, texts brought under the new rules, and the hash of the last one.';

create type memfold.upkeep_step as (number bigint, is_left boolean, after text);
create type memfold.plain_rows as (ingested bigint, busy bigint);
comment on type memfold.plain_rows is
'What ingest_plain_rows() did: rows that it ingested; buckets that it left alone because others were at work there.';
comment on type memfold.upkeep_step is 'What a task of upkeep() did, whether it has more to do, and where it goes on.';
