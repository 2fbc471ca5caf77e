-- The guard over two memories.

-- Runs the guard over two memories: their texts (_guard) and their canonical objects. Names that their bucket has linked
-- are equal; p_bucket_id null: there are no links.
create or replace function memfold_internal._guard_pair(
    p_tenant_id text, p_content text, p_other_content text, p_object text, p_other_object text, p_bucket_id text default null
) returns text[]
language plpgsql stable
as $$
declare
    v_object text := memfold.canonicalize(p_object, 'prose/1');
    v_other text := memfold.canonicalize(p_other_object, 'prose/1');
    v_signals text[] := memfold_internal._guard(p_tenant_id, p_content, p_other_content);
    v_texts record;
begin
    -- links can only remove a difference: clean texts need none
    if v_signals <> '{}' and p_bucket_id is not null and memfold_internal._has_links(p_tenant_id) then
        v_texts := memfold_internal._under_one_name(p_tenant_id, p_bucket_id, p_content, p_other_content);
        if v_texts.is_changed then
            v_signals := memfold_internal._guard(p_tenant_id, v_texts.content, v_texts.other_content);
        end if;
    end if;
    if v_object <> v_other and p_bucket_id is not null and memfold_internal._has_links(p_tenant_id) then
        v_object := memfold_internal._prose_1(coalesce(memfold_internal._linked_name(p_tenant_id, p_bucket_id, 'subject', p_object),
            p_object));
        v_other := memfold_internal._prose_1(
            coalesce(memfold_internal._linked_name(p_tenant_id, p_bucket_id, 'subject', p_other_object), p_other_object));
    end if;
    if v_object <> v_other then
        v_signals := v_signals || format('object: %s <> %s', v_object, v_other);
    end if;
    return v_signals;
end;
$$;
