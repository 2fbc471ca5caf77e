-- The guard over two memories.

create or replace function memfold_internal._guard_pair(
    tenant_id text, content text, other_content text, object text, other_object text
) returns text[]
language plpgsql stable
as $$
declare
    v_object constant text := memfold.canonicalize(object, 'prose/1');
    v_other constant text := memfold.canonicalize(other_object, 'prose/1');
    v_signals text[] := memfold_internal._guard(tenant_id, content, other_content);
begin
    if v_object <> v_other then
        v_signals := v_signals || pg_catalog.format('object: %s <> %s', v_object, v_other);
    end if;
    return v_signals;
end;
$$;
revoke all on function memfold_internal._guard_pair(text, text, text, text, text) from public;
comment on function memfold_internal._guard_pair(text, text, text, text, text) is
'The guard over two memories: their texts (_guard) and their canonical objects.';
