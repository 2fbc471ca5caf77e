-- What the core asks of memfold_py, the extension for servers that have PL/Python. All that names its functions is here, and
-- by EXECUTE, for they may not be there: then a policy that asks for them is refused, and all else works.

create or replace function memfold._has_python() returns boolean
language sql stable parallel safe
return pg_catalog.to_regprocedure('memfold.lemmatize(text,text)') is not null;
revoke all on function memfold._has_python() from public;
comment on function memfold._has_python() is 'Whether memfold_py is in this database.';

create or replace function memfold._require_python(feature text) returns void
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    if not memfold._has_python() then
        perform memfold._fail('MF056', 'the extension memfold_py is not in this database',
            pg_catalog.format('%s needs it, and it needs PL/Python (plpython3u), which managed servers do not have.', feature),
            'A superuser can add it: create extension memfold_py cascade (docs/plpython.md). Without it: canonicalizer '
            'prose, and vectors from the client.');
    end if;
end;
$$;
revoke all on function memfold._require_python(text) from public;
comment on function memfold._require_python(text) is 'Raises MF056 unless memfold_py is in this database.';

create or replace function memfold._other_profile(content text, profile text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text;
begin
    if profile !~ '^lemma/1:' then
        return memfold._unknown_profile(content, profile);
    end if;
    perform memfold._require_python('Canonicalizer ' || profile);
    execute 'select memfold.lemmatize($1, $2)' into v_text using memfold._nfc_1(content), profile;
    return memfold._prose_1(v_text);
end;
$$;
revoke all on function memfold._other_profile(text, text) from public;
comment on function memfold._other_profile(text, text) is
'lemma/1: the content''s words by their lemmas, then prose/1. Raises MF011 for a profile that there is not, MF056, MF059.';

-- As it was, but for the last line.
create or replace function memfold._canonical(content text, profile text) returns text
immutable parallel safe
return case profile collate "C"
    when 'prose/1' then memfold._prose_1(content)
    when 'flat/1' then memfold._flat_1(content)
    when 'code/1' then memfold._code_1(content)
    when 'exact/1' then content
    else memfold._other_profile(content, profile)
end;
revoke all on function memfold._canonical(text, text) from public;

create or replace function memfold._profile(canonicalizer text) returns text
language plpgsql stable
as $$
declare
    v_profile text := canonicalizer;
begin
    if canonicalizer ~ '^lemma(/1)?(:[^:]*)?$' then
        perform memfold._require_python('Canonicalizer ' || canonicalizer);
        execute 'select memfold.lemma_profile($1)' into v_profile
            using coalesce(pg_catalog.substring(canonicalizer, ':(.*)$'), 'en');
    elsif canonicalizer not like '%/%' then
        v_profile := canonicalizer || '/1';
    end if;
    perform memfold.canonicalize('a', v_profile);
    return v_profile;
end;
$$;
revoke all on function memfold._profile(text) from public;
comment on function memfold._profile(text) is
'The full name of a profile: prose is prose/1, lemma:de is lemma/1:de:simplemma-… with the version that this server has, lemma
alone is English. Raises MF011, MF056, MF058.';

create or replace function memfold._check_embed(policy memfold.policies) returns void
language plpgsql stable
as $$
begin
    if policy.embed = 'in_database' then
        perform memfold._require_python('embed => ''in_database''');
        if policy.embed_model is null then
            perform memfold._fail('MF012', 'in_database has no model', 'embed_model was null.',
                'Pass embed_model, a registered embedding model that the server can load.');
        end if;
        perform memfold._check_embedding(null, policy.embed_model);
    end if;
    if policy.segmenter in ('zh', 'ja') then
        perform memfold._require_python(pg_catalog.format('segmenter => %L', policy.segmenter));
    end if;
end;
$$;
revoke all on function memfold._check_embed(memfold.policies) from public;
comment on function memfold._check_embed(memfold.policies) is
'Raises MF056 where a policy asks for what is not in this database, MF012 or MF013 where it names no registered model.';

create or replace function memfold._is_embedded_here(c memfold.candidate, policy memfold.policies) returns boolean
language sql immutable parallel safe
return policy.embed = 'in_database' and policy.dedup = 'on' and c.embedding is null
and coalesce(c.embedding_model, policy.embed_model) = policy.embed_model;
revoke all on function memfold._is_embedded_here(memfold.candidate, memfold.policies) from public;
comment on function memfold._is_embedded_here(memfold.candidate, memfold.policies) is
'A candidate whose vector the database makes.';

create or replace function memfold._vectors(contents text[], model text) returns table (place bigint, embedding vector)
language plpgsql volatile
as $$
declare
    v_may boolean;
begin
    perform memfold._require_python('embed => ''in_database''');
    execute 'select memfold._holds_model()' into v_may;
    if v_may then
        return query execute 'select v.place, memfold._unit(v.embedding) '
            'from unnest(memfold.embed_texts($1, $2)) with ordinality as v (embedding, place)' using contents, model;
    end if;
end;
$$;
revoke all on function memfold._vectors(text[], text) from public;
comment on function memfold._vectors(text[], text) is
'The unit vectors of some texts, by their places from 1 on; no row where as many sessions as are allowed hold a model, and this
is none of them. Raises MF056 to MF059.';

create or replace function memfold._embed(c memfold.candidate) returns memfold.candidate
language plpgsql volatile
as $$
begin
    select v.embedding, (c.policy).embed_model
    into c.embedding, c.embedding_model
    from memfold._vectors(array[c.content], (c.policy).embed_model) as v;
    return c;
end;
$$;
revoke all on function memfold._embed(memfold.candidate) from public;
comment on function memfold._embed(memfold.candidate) is
'A candidate with the vector that the database makes; without one where this session may hold no model: it waits then, as
others do, for embed_pending(). Called before any lock.';

create or replace function memfold._embed_batch(
    items memfold.candidate[], classes text[], policies memfold.policies[], policy_of integer[]
) returns memfold.candidate[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_items memfold.candidate[] := items;
    v_new record;
begin
    for v_new in
        with waiting as (
            select c.ordinality as i, c.content, (policies[policy_of[c.ordinality]]).embed_model as model
            from pg_catalog.unnest(items) with ordinality as c
            where classes[c.ordinality] = 'todo'
                and memfold._is_embedded_here(items[c.ordinality], policies[policy_of[c.ordinality]])
        ),
        texts as (
            select t.model, pg_catalog.array_agg(t.content order by t.content collate "C") as contents
            from (select distinct w.model, w.content from waiting as w) as t
            group by t.model
        )
        select w.i, w.model, v.embedding
        from texts as t
        cross join lateral memfold._vectors(t.contents, t.model) as v
        join waiting as w on w.model = t.model and w.content = t.contents[v.place]
    loop
        v_items[v_new.i].embedding := v_new.embedding;
        v_items[v_new.i].embedding_model := v_new.model;
    end loop;
    return v_items;
end;
$$;
revoke all on function memfold._embed_batch(memfold.candidate[], text[], memfold.policies[], integer[]) from public;
comment on function memfold._embed_batch(memfold.candidate[], text[], memfold.policies[], integer[]) is
'_embed() for those of a batch that tier 1 does not know (class todo): each text once, all of one model together.';

create or replace function memfold._segmented(content text, segmenter text) returns text
language plpgsql immutable strict parallel safe
as $$
declare
    v_words text[];
begin
    perform memfold._require_python(pg_catalog.format('segmenter => %L', segmenter));
    execute 'select memfold.segment_words($1, $2)' into v_words using content, segmenter;
    return pg_catalog.array_to_string(v_words, ' ');
end;
$$;
revoke all on function memfold._segmented(text, text) from public;
comment on function memfold._segmented(text, text) is
'A text with a space between its words, where its script writes none. Raises MF056, MF058.';

create or replace function memfold._lemma_selftest()
returns table (profile text, input text, expected text, actual text, ok boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if memfold._has_python() then
        return query execute 'select * from memfold.lemma_selftest()';
    end if;
end;
$$;
revoke all on function memfold._lemma_selftest() from public;
comment on function memfold._lemma_selftest() is
'The golden pairs and checksums of lemma/1; no row where memfold_py is not in this database.';
