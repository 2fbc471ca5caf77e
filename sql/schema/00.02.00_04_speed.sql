-- Release 0.2.0: what measuring showed to be dear.

-- A check for each new row of what the same function has written a statement before: a quarter of a batch of new facts.
-- check_invariants() says what a foreign key would have refused. The table that writers reach first is locked first.
lock table memfold.memories in access exclusive mode;
alter table memfold.memory_counters drop constraint memory_counters_tenant_id_memory_id_fkey;
alter table memfold.memory_vectors drop constraint memory_vectors_tenant_id_memory_id_fkey;

-- Rules that are not the usual ones: the hot path finds that there are none without reading the rest.
create index policies_unusual_idx on memfold.policies (tenant_id)
where dedup <> 'on' or canonicalizer <> 'prose/1' or key_fields <> 'type,subject,predicate' or metadata_keys <> '{}'
or max_content_length < 8192;
