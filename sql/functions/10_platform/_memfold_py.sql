-- Whether memfold_py, which computes lemmas, vectors and words of scripts without spaces, is installed in this database.
create or replace function memfold_internal._has_python() returns boolean
language sql stable parallel safe
return pg_catalog.to_regprocedure('memfold.lemmatize(text,text)') is not null;

-- Raises MF056 unless memfold_py is installed in this database.
create or replace function memfold_internal._require_python(p_feature text) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    if not memfold_internal._has_python() then
        raise exception 'the extension memfold_py is not installed in this database' using
            errcode = 'MF056',
            detail = format('%s needs memfold_py, which needs PL/Python (plpython3u); managed servers do not offer it.', p_feature),
            hint = 'A superuser can add it: create extension memfold_py cascade (docs/plpython.md). Without it, use canonicalizer '
            'prose, and vectors from the client.';
    end if;
end;
$$;
