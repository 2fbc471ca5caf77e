-- An index of words stores the results of these functions, so, like canonicalizers, they are never edited but replaced by
-- new versions. A restore builds the index as memfold_owner before it grants anything: SQL bodies bind the names of
-- memfold's functions, and PL/pgSQL calls only built-in ones.

-- The words of a text by a text search configuration. p_capitals, p_fold_from, p_fold_to: letter case, from prose/1.
create or replace function memfold_internal._text_words(
    p_content text, p_text_search regconfig, p_capitals text, p_fold_from text, p_fold_to text
) returns tsvector
language plpgsql immutable parallel safe
as $$
declare
    v_text text collate "C" := p_content;
    v_capitals text collate "C";
begin
    if pg_catalog.octet_length(v_text) <> pg_catalog.length(v_text) then
        -- Letter case must not depend on the server's locale.
        v_text := pg_catalog.lower(pg_catalog.normalize(v_text, 'NFKC') collate "C");
        v_capitals := pg_catalog.regexp_replace(v_text, '[^' || p_capitals || ']+', '', 'g');
        if v_capitals <> '' then
            v_text := pg_catalog.translate(v_text, v_capitals, pg_catalog.translate(v_capitals, p_fold_from, p_fold_to));
        end if;
        -- Han, Hiragana and Katakana have no spaces between words: each character is a word, as for the lexical tier.
        v_text := pg_catalog.regexp_replace(
            pg_catalog.regexp_replace(v_text, E'[\u3000-\u303f]', ' ', 'g'),
            E'([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff])', E' \\1 ', 'g');
    end if;
    return pg_catalog.to_tsvector(p_text_search, v_text);
end;
$$;

-- The words by which recall finds a memory: those of its text, subject, predicate and object. Inlined.
create or replace function memfold_internal._word_vector(
    p_content text, p_subject text, p_predicate text, p_object text, p_text_search regconfig
) returns tsvector
language sql immutable parallel safe
-- The first 8,000 characters: without an index each search parses every text, and a long one must not slow down all searches.
return memfold_internal._text_words(
    pg_catalog.left(p_content, 8000) || coalesce(' ' || p_subject, '') || coalesce(' ' || p_predicate, '') || coalesce(' ' || p_object, ''),
    p_text_search, memfold_internal._capitals_1(), memfold_internal._fold_from_1(), memfold_internal._fold_to_1()
);

-- A hash of each word together with tenant and bucket, in the order of p_words, so that one index serves all buckets.
create or replace function memfold_internal._word_keys(p_of_tenant text, p_of_bucket text, p_words text[]) returns bigint[]
language plpgsql immutable parallel safe
as $$
declare
    v_seed constant bigint := pg_catalog.hashtextextended(p_of_bucket collate "C", pg_catalog.hashtextextended(p_of_tenant collate "C", 0));
begin
    return array(
        select pg_catalog.hashtextextended(w.word collate "C", v_seed) from pg_catalog.unnest(p_words) with ordinality as w (word, place)
        order by w.place
    );
end;
$$;

-- The entries of a memory in an index of words (create_text_index): the keys (_word_keys) of its words. Inlined.
create or replace function memfold_internal._memory_words(
    p_of_tenant text, p_of_bucket text, p_content text, p_subject text, p_predicate text, p_object text, p_text_search regconfig
) returns bigint[]
language sql immutable parallel safe
return memfold_internal._word_keys(
    p_of_tenant, p_of_bucket,
    pg_catalog.tsvector_to_array(memfold_internal._word_vector(p_content, p_subject, p_predicate, p_object, p_text_search))
);

-- The words of a query to search for, at most 64. Configuration simple: without English stop words, unless all are.
create or replace function memfold_internal._query_words(p_query text, p_text_search regconfig) returns text[]
language plpgsql immutable parallel safe
as $$
declare
    v_words text[] := array(
        select w.lexeme
        from unnest(memfold_internal._word_vector(p_query, null, null, null, p_text_search)) as w
        order by w.positions[1], w.lexeme
    );
    v_telling text[];
begin
    if p_text_search = 'pg_catalog.simple'::regconfig then
        -- This configuration has no stop words, and the English ones match nearly everything.
        v_telling := array(
            select w.word from unnest(v_words) with ordinality as w (word, place)
            where ts_lexize('pg_catalog.english_stem', w.word) <> '{}'
            order by w.place
        );
        if v_telling <> '{}' then
            v_words := v_telling;
        end if;
    end if;
    return v_words[1:64];
end;
$$;

-- The name of the index of words by a text search configuration.
create or replace function memfold_internal._text_index_name(p_text_search regconfig) returns text
language sql stable parallel safe
return 'memories_words_' || pg_catalog.left(
    pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(p_text_search::text, 'UTF8')), 'hex'), 32
);

-- The valid index of words by a configuration; null if there is none.
create or replace function memfold_internal._text_index(p_text_search regconfig) returns oid
language sql stable parallel safe
begin atomic
    select i.indexrelid
    from pg_catalog.pg_index as i
    where
        i.indexrelid = pg_catalog.to_regclass('memfold.' || memfold_internal._text_index_name(p_text_search))::oid
        and i.indisvalid and i.indrelid = 'memfold.memories'::pg_catalog.regclass;
end;
