-- A schema file has made it, as it is best on the server of then. A database that has come to PostgreSQL 18 since (by
-- pg_upgrade, or out of a dump) gets what that one has in C.
do $$
begin
    if pg_catalog.current_setting('server_version_num')::integer >= 180000 then
        create or replace function memfold._new_id() returns uuid
        language sql volatile parallel safe
        return pg_catalog.uuidv7();
    end if;
end;
$$;
