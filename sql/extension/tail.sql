-- Data of an extension's tables is dumped only where it is registered; rows that memfold ships are left out.
select pg_catalog.pg_extension_config_dump('memfold.' || t.name, t.condition)
from (values
    ('policies', 'where (tenant_id, bucket_id, memory_type) <> (''*'', ''*'', ''*'')'),
    ('predicates', ''),
    ('embedding_models', ''),
    ('calibrations', ''),
    ('tenant_roles', ''),
    ('antonyms', 'where tenant_id <> ''*'''),
    ('memories', ''),
    ('memory_counters', ''),
    ('memory_vectors', ''),
    ('memory_intervals', ''),
    ('memory_sources', ''),
    ('memory_tokens', ''),
    ('memory_events', ''),
    ('idempotency_keys', ''),
    ('judgements', ''),
    ('labelled_pairs', '')
) as t (name, condition);
