-- Functions of memfold_py, an optional extension for servers with PL/Python, are called by EXECUTE, because they may not exist.

-- The canonical form by predicate/1 or lemma/1 (prose/1 of the words' lemmas). Raises MF011 for an unknown profile,
-- MF056 without memfold_py, MF059.
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

-- The full name of a profile: prose/1 for prose, lemma/1:de:simplemma-… with the version of this server for lemma:de,
-- English for lemma alone. Raises MF011, MF056, MF058.
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
        -- a profile for names, which no policy may use for facts
        perform memfold_internal._unknown_profile('a', v_profile);
    end if;
    perform memfold.canonicalize('a', v_profile);
    return v_profile;
end;
$$;

-- The golden pairs and checksums of lemma/1; no row without memfold_py.
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
