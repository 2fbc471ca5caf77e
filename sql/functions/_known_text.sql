create or replace function memfold._known_text(tenant_id text, bucket_id text, content_hash bytea)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key bigint)
language sql stable parallel safe rows 1
begin atomic
-- A range, and in order: by any statistics, and by none, no other index ends as soon. (As a range of rows it would, in
    -- a batch, be read from the index's beginning.)
    select m.memory_id, m.root_id, m.status, m.predicate, m.scope_key
    from memfold.memories as m
    where
        m.tenant_id = _known_text.tenant_id collate "C"
        and m.bucket_id = _known_text.bucket_id collate "C"
        and m.content_hash >= _known_text.content_hash
        and m.content_hash <= _known_text.content_hash
    order by m.content_hash
    limit 1;
end;
revoke all on function memfold._known_text(text, text, bytea) from public;
comment on function memfold._known_text(text, text, bytea) is
'Tier 1''s probe: the text of a bucket that has this hash, as it is stored (root_id null: a root). Inlined by its callers.';
