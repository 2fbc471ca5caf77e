create type memfold.rehash_step as (rows_seen bigint, rows_changed bigint, "position" bytea);
comment on type memfold.rehash_step is
'A step of a rehash: texts looked at, texts brought under the new rules, and the hash of the last one.';
