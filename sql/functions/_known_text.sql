create or replace function memfold._known_text(tenant_id text, bucket_id text, content_hash bytea)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key bigint)
language sql stable parallel safe rows 1
begin atomic
    -- As a range of rows, and in order: then the index on the hash alone ends at once. By "=" the index on the scope costs as
    -- much before the first ANALYZE, and reads the bucket.
    select m.memory_id, m.root_id, m.status, m.predicate, m.scope_key
    from memfold.memories as m
    where
        (m.tenant_id, m.bucket_id, m.content_hash)
        >= (_known_text.tenant_id collate "C", _known_text.bucket_id collate "C", _known_text.content_hash)
        and (m.tenant_id, m.bucket_id, m.content_hash)
        <= (_known_text.tenant_id collate "C", _known_text.bucket_id collate "C", _known_text.content_hash)
        and m.content_hash is not null
    order by m.tenant_id, m.bucket_id, m.content_hash
    limit 1;
end;
revoke all on function memfold._known_text(text, text, bytea) from public;
comment on function memfold._known_text(text, text, bytea) is
'Tier 1''s probe: the text of a bucket that has this hash, as it is stored (root_id null: a root). Inlined by its callers.';
