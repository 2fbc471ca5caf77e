-- Definer: whoever writes to an adopted table has no rights in memfold; the owner of that table is given this function alone.
create or replace function memfold._adopted_hash(content text, profile text) returns bytea
language plpgsql immutable strict parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_content text;
begin
    perform memfold._check_marks(content);
    v_content := memfold._canonical(content, profile);
    if v_content = '' then
        return null;
    end if;
    return pg_catalog.sha256(pg_catalog.convert_to(v_content, 'UTF8'));
end;
$$;
revoke all on function memfold._adopted_hash(text, text) from public;
comment on function memfold._adopted_hash(text, text) is
'SHA-256 (32 bytes) of the canonical content: the hash of rows of tables that are not memfold''s. Null where nothing is left
of it: another table''s writer must not fail. Raises MF061, which the functions made for a table turn into null too.';
