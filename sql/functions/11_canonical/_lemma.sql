-- Profile lemma/1 comes from memfold_py, an extension for servers with PL/Python. Its functions are called by name at run time, because
-- they may not exist: a request for them is then refused, and everything else works.

-- predicate/1, and lemma/1: the content's words replaced by their lemmas, then prose/1. Raises MF011 for an unknown
-- profile, MF056, MF059.
create or replace function memfold_internal._other_profile(p_content text, p_profile text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text;
begin
    if p_profile = 'predicate/1' then
        return memfold_internal._predicate_1(p_content);
    end if;
    if p_profile !~ '^lemma/1:' then
        return memfold_internal._unknown_profile(p_content, p_profile);
    end if;
    perform memfold_internal._require_python('Canonicalizer ' || p_profile);
    execute 'select memfold.lemmatize($1, $2)' into v_text using memfold_internal._nfc_1(p_content), p_profile;
    return memfold_internal._prose_1(v_text);
end;
$$;

-- The full name of a profile: prose is prose/1, lemma:de is lemma/1:de:simplemma-… with the version that this server
-- has, lemma alone is English. Raises MF011, MF056, MF058.
create or replace function memfold_internal._profile(p_canonicalizer text) returns text
language plpgsql stable
as $$
declare
    v_profile text := p_canonicalizer;
begin
    if p_canonicalizer ~ '^lemma(/1)?(:[^:]*)?$' then
        perform memfold_internal._require_python('Canonicalizer ' || p_canonicalizer);
        execute 'select memfold.lemma_profile($1)' into v_profile
            using coalesce(substring(p_canonicalizer, ':(.*)$'), 'en');
    elsif p_canonicalizer not like '%/%' then
        v_profile := p_canonicalizer || '/1';
    end if;
    if v_profile = 'predicate/1' then
        -- for names, not for facts
        perform memfold_internal._unknown_profile('a', v_profile);
    end if;
    perform memfold.canonicalize('a', v_profile);
    return v_profile;
end;
$$;

-- The golden pairs and checksums of lemma/1; no row if memfold_py is not installed in this database.
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
