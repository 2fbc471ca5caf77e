-- The guard over two memories.

create or replace function memfold_internal._guard_pair(
    tenant_id text, content text, other_content text, object text, other_object text, bucket_id text default null
) returns text[]
language plpgsql stable
as $$
declare
    v_object text := memfold.canonicalize(object, 'prose/1');
    v_other text := memfold.canonicalize(other_object, 'prose/1');
    v_signals text[] := memfold_internal._guard(tenant_id, content, other_content);
    v_texts record;
begin
    -- links can only remove a difference: clean texts need none
    if v_signals <> '{}' and bucket_id is not null and memfold_internal._has_links(tenant_id) then
        v_texts := memfold_internal._under_one_name(tenant_id, bucket_id, content, other_content);
        if v_texts.is_changed then
            v_signals := memfold_internal._guard(tenant_id, v_texts.content, v_texts.other_content);
        end if;
    end if;
    if v_object <> v_other and bucket_id is not null and memfold_internal._has_links(tenant_id) then
        v_object := memfold_internal._prose_1(coalesce(memfold_internal._linked_name(tenant_id, bucket_id, 'subject', object), object));
        v_other := memfold_internal._prose_1(
            coalesce(memfold_internal._linked_name(tenant_id, bucket_id, 'subject', other_object), other_object));
    end if;
    if v_object <> v_other then
        v_signals := v_signals || pg_catalog.format('object: %s <> %s', v_object, v_other);
    end if;
    return v_signals;
end;
$$;
comment on function memfold_internal._guard_pair is
'Runs the guard over two memories: their texts (_guard) and their canonical objects. Names that their bucket has linked are equal;
bucket_id null: there are no links.';
