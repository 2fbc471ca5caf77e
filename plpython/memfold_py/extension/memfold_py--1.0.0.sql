\echo Use "CREATE EXTENSION memfold_py CASCADE" to load this file. \quit
-- The PL/Python code is in the Python package memfold_py, which the server's Python must be able to import. Each function here has
-- three lines and only calls it. Errors become memfold's errors; one of them says that the package is missing.

create or replace function memfold_internal._holds_model() returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    -- one lock for each session that may hold a model, held until the session ends
    v_class constant integer := hashtext('memfold models');
begin
    if exists (
        select from pg_locks as l
        where l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.classid = v_class::oid and l.objsubid = 2
            and l.database = (select d.oid from pg_database as d where d.datname = current_database())
    ) then
        return true;
    end if;
    for v_slot in 1..memfold_internal._model_sessions() loop
        if pg_try_advisory_lock(v_class, v_slot) then
            return true;
        end if;
    end loop;
    return false;
end;
$$;
comment on function memfold_internal._holds_model() is
'Whether this session may hold models. Takes and keeps one of the MEMFOLD_MODEL_SESSIONS slots if one is free.';

create or replace function memfold_internal._model_sessions() returns integer
language plpython3u stable
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "sessions")
$$;
comment on function memfold_internal._model_sessions() is
'How many sessions of a database may hold models at the same time: MEMFOLD_MODEL_SESSIONS in the server''s environment, or 4.';

create or replace function memfold.lemma_profile(language text) returns text
language plpython3u stable strict
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "profile", language)
$$;
comment on function memfold.lemma_profile(text) is
'Returns the full name of profile lemma/1 for a language (en, de, fr, es, it, pt, or auto to detect it from the text), with the version of
the lemmatiser on the server. Raises MF011 for any other language, MF058, MF059.';

create or replace function memfold.lemmatize(content text, profile text) returns text
language plpython3u immutable strict parallel safe
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "lemmatize", content, profile)
$$;
comment on function memfold.lemmatize(text, text) is
'Replaces the content words of a text, that is, lower-case words other than function words, with their lemmas. Leaves names (capitals),
negations, numerals, symbols and comparatives unchanged. profile: a name that lemma_profile() returns, or a language. Raises MF011, MF058,
MF059.';

create or replace function memfold.lemma_selftest(
    out profile text, out input text, out expected text, out actual text, out ok boolean
) returns setof record
language plpython3u stable
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "selftest")
$$;
comment on function memfold.lemma_selftest() is
'Tests whether the lemmatiser returns the forms that lemma/1 was built with. Returns one row per language: its golden pairs, and a
checksum over common words. Part of canonicalizer_selftest().';

create or replace function memfold.embed_texts(contents text[], model text) returns vector[]
language plpython3u volatile strict
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "embed", model, contents)
$$;
comment on function memfold.embed_texts(text[], text) is
'Returns the unit vectors of an array of texts, in order, computed by a registered embedding model that the server has: a
sentence-transformers model by name (in MEMFOLD_MODELS or the Hugging Face cache; nothing is downloaded) or by the absolute path of its
directory. The session keeps the model loaded. Raises MF013 (not registered), MF014 (registered with another number of dimensions), MF057
(the maximum number of sessions already hold a model), MF058 (model or package missing), MF059.';

create or replace function memfold.embed_text(content text, model text) returns vector
language sql volatile strict
set search_path = pg_catalog, pg_temp
return (memfold.embed_texts(array[content], model))[1];
comment on function memfold.embed_text(text, text) is 'Returns the vector of one text, as embed_texts() does.';

create or replace function memfold.loaded_models(
    out model text, out route text, out dimensions bigint, out memory bigint, out load_seconds double precision, out texts bigint
) returns setof record
language plpython3u volatile
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "loaded")
$$;
comment on function memfold.loaded_models() is
'Lists the models that this session holds: how they run (onnx, numpy or sentence-transformers), how many bytes and seconds each took to
load, and how many texts each has embedded.';

create or replace function memfold.segment_words(content text, language text) returns text[]
language plpython3u immutable strict parallel safe
as $$
try: from memfold_py import server
except ImportError as error: plpy.error(f"the server's Python has no memfold_py: {error}", sqlstate="MF058", hint="docs/plpython.md")
return server.run(plpy, GD, "1.0.0", "tokens", content, language)
$$;
comment on function memfold.segment_words(text, text) is
'Returns the distinct words of a text without spaces. language: zh (Chinese, by jieba) or ja (Japanese, by janome). Raises MF011, MF058,
MF059.';

do $$
declare
    v_function text;
begin
    for v_function in
        select d.objid::regprocedure::text
        from pg_catalog.pg_depend as d
        where d.classid = 'pg_catalog.pg_proc'::regclass and d.refclassid = 'pg_catalog.pg_extension'::regclass
            and d.refobjid = (select e.oid from pg_catalog.pg_extension as e where e.extname = 'memfold_py')
    loop
        execute pg_catalog.format('revoke all on function %s from public', v_function);
        execute pg_catalog.format('alter function %s owner to memfold_owner', v_function);
        execute pg_catalog.format('grant execute on function %s to memfold_app, memfold_auditor', v_function);
    end loop;
end;
$$;
