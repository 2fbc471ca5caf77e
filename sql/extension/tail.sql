-- Data of an extension's tables is dumped only where it is registered; the rows that memfold ships are left out.
select pg_catalog.pg_extension_config_dump('memfold.policies', 'where (tenant_id, bucket_id, memory_type) <> (''*'', ''*'', ''*'')');
select pg_catalog.pg_extension_config_dump('memfold.predicates', '');
select pg_catalog.pg_extension_config_dump('memfold.embedding_models', '');
select pg_catalog.pg_extension_config_dump('memfold.calibrations', '');
select pg_catalog.pg_extension_config_dump('memfold.tenant_roles', '');
select pg_catalog.pg_extension_config_dump('memfold.antonyms', 'where tenant_id <> ''*''');
select pg_catalog.pg_extension_config_dump('memfold.memories', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_counters', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_vectors', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_intervals', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_sources', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_tokens', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_events', '');
select pg_catalog.pg_extension_config_dump('memfold.idempotency_keys', '');
select pg_catalog.pg_extension_config_dump('memfold.judgements', '');
select pg_catalog.pg_extension_config_dump('memfold.labelled_pairs', '');
select pg_catalog.pg_extension_config_dump('memfold.adoptions', '');
select pg_catalog.pg_extension_config_dump('memfold.adoption_archive', '');
