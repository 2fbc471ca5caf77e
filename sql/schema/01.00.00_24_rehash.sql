create type memfold_internal.rehash_step as (rows_seen bigint, rows_changed bigint, "position" bytea);
comment on type memfold_internal.rehash_step is
'One step of a rehash: texts read, texts brought under the new rules, and the hash of the last one.';
