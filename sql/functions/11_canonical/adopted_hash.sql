-- SECURITY DEFINER: a role that writes to an adopted table has no rights in memfold; the owner of that table is granted only this
-- function.
create or replace function memfold.adopted_hash(content text, profile text) returns bytea
language plpgsql immutable strict parallel safe security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_content text;
begin
    perform memfold_internal._check_marks(content);
    v_content := memfold_internal._canonical(content, profile);
    if v_content = '' then
        -- another table's writer must not fail
        return null;
    end if;
    return sha256(convert_to(v_content, 'UTF8'));
end;
$$;
comment on function memfold.adopted_hash is
'Returns SHA-256 (32 bytes) of the canonical form of a text: the hash of rows of an adopted table. Null if that form is empty. Called by the
functions that memfold adopt makes for the table, as its owner. Raises MF011, MF061.';
