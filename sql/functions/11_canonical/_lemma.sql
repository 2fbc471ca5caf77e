-- Profile lemma/1 comes from memfold_py, an extension for servers with PL/Python. Its functions are called by name at run time, because
-- they may not exist: a request for them is then refused, and everything else works.

create or replace function memfold_internal._other_profile(content text, profile text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text;
begin
    if profile = 'predicate/1' then
        return memfold_internal._predicate_1(content);
    end if;
    if profile !~ '^lemma/1:' then
        return memfold_internal._unknown_profile(content, profile);
    end if;
    perform memfold_internal._require_python('Canonicalizer ' || profile);
    execute 'select memfold.lemmatize($1, $2)' into v_text using memfold_internal._nfc_1(content), profile;
    return memfold_internal._prose_1(v_text);
end;
$$;
comment on function memfold_internal._other_profile is
'predicate/1, and lemma/1: the content''s words replaced by their lemmas, then prose/1. Raises MF011 for an unknown profile, MF056,
MF059.';

create or replace function memfold_internal._profile(canonicalizer text) returns text
language plpgsql stable
as $$
declare
    v_profile text := canonicalizer;
begin
    if canonicalizer ~ '^lemma(/1)?(:[^:]*)?$' then
        perform memfold_internal._require_python('Canonicalizer ' || canonicalizer);
        execute 'select memfold.lemma_profile($1)' into v_profile
            using coalesce(pg_catalog.substring(canonicalizer, ':(.*)$'), 'en');
    elsif canonicalizer not like '%/%' then
        v_profile := canonicalizer || '/1';
    end if;
    if v_profile = 'predicate/1' then
        -- for names, not for facts
        perform memfold_internal._unknown_profile('a', v_profile);
    end if;
    perform memfold.canonicalize('a', v_profile);
    return v_profile;
end;
$$;
comment on function memfold_internal._profile is
'The full name of a profile: prose is prose/1, lemma:de is lemma/1:de:simplemma-… with the version that this server has, lemma alone is
English. Raises MF011, MF056, MF058.';

create or replace function memfold_internal._lemma_selftest()
returns table (profile text, input text, expected text, actual text, ok boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if memfold_internal._has_python() then
        return query execute 'select * from memfold.lemma_selftest()';
    end if;
end;
$$;
comment on function memfold_internal._lemma_selftest is
'The golden pairs and checksums of lemma/1; no row if memfold_py is not installed in this database.';
