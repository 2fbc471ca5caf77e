-- Data of an extension's tables is dumped only where it is registered. Rows that memfold ships are dumped too, for they
-- may have been changed: on restore they replace those that CREATE EXTENSION has made (trigger replace_shipped).
select pg_catalog.pg_extension_config_dump('memfold.policies', '');
select pg_catalog.pg_extension_config_dump('memfold.predicates', '');
select pg_catalog.pg_extension_config_dump('memfold.embedding_models', '');
select pg_catalog.pg_extension_config_dump('memfold.calibrations', '');
select pg_catalog.pg_extension_config_dump('memfold.tenant_roles', '');
select pg_catalog.pg_extension_config_dump('memfold.antonyms', '');
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
