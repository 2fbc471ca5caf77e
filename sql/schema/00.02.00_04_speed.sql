-- Release 0.2.0: what measuring showed to be dear.

-- A check for each new row of what the same function has written a statement before: a quarter of a batch of new facts.
-- check_invariants() says what a foreign key would have refused.
-- squawk-ignore ban-drop-constraint
alter table memfold.memory_counters drop constraint memory_counters_tenant_id_memory_id_fkey;
-- squawk-ignore ban-drop-constraint
alter table memfold.memory_vectors drop constraint memory_vectors_tenant_id_memory_id_fkey;

-- The scope before the bucket: beginning with tenant and bucket it looked, before the first ANALYZE, as good for the hash
-- of a text as the index on that, and read the bucket. Texts without a hash are few, and have an index of their own.
-- squawk-ignore require-concurrent-index-deletion
drop index memfold.memories_scope_idx;
-- squawk-ignore require-concurrent-index-creation
create index memories_scope_idx on memfold.memories (tenant_id, scope_key, bucket_id);
-- squawk-ignore require-concurrent-index-creation
create index memories_opted_out_idx on memfold.memories (tenant_id, bucket_id) where content_hash is null;

-- Rules that are not the usual ones: the hot path finds that there are none without reading the rest.
-- squawk-ignore require-concurrent-index-creation
create index policies_unusual_idx on memfold.policies (tenant_id)
where dedup <> 'on' or canonicalizer <> 'prose/1' or key_fields <> 'type,subject,predicate' or metadata_keys <> '{}'
or max_content_length < 8192;

-- Order is logical: a restatement holds the memory's row, and comes after what it names.
alter table memfold.memory_counters add column last_event uuid;
comment on column memfold.memory_counters.last_event is
'Roots: no ledger row by which a text of the tree was stated, pruned or judged current has a higher id. The next one comes after it,
whatever the clock says. Null: none has been written since 0.2.0, which first noted it.';
comment on column memfold.memory_counters.independent is
'Observations that had a source turn which none before them had, or that came without turns: n + 1 of the confidence formula.';
