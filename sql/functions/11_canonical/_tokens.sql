-- The distinct words of a text for the lexical tier, sorted: its prose/1 form split at spaces, without surrounding
-- punctuation and stop words. Raises MF056, MF058 if p_segmenter needs memfold_py.
create or replace function memfold_internal._tokens(p_content text, p_segmenter text) returns text[]
language plpgsql immutable strict parallel safe
as $$
declare
    -- function words, and words that classify memories
    v_stop_words constant jsonb := memfold_internal._lexicon_words('t');
    v_text text collate "C" := memfold_internal._prose_1(p_content);
begin
    if octet_length(v_text) <> length(v_text) then
        -- Han, Hiragana and Katakana are written without spaces: each character counts as a word, unless a segmenter finds words
        v_text := case p_segmenter when 'characters' then regexp_replace(
            v_text, E'([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff])', E' \\1 ', 'g')
        else memfold_internal._segmented(v_text, p_segmenter) end;
    end if;
    return array(
        select distinct w.word collate "C"
        from (
            select btrim(t.token, '.,;:!?()[]{}"''`…«»“”‘’、。，；：！？（）「」『』') as word
            from unnest(string_to_array(v_text, ' ')) as t (token)
        ) as w
        where w.word <> '' and not jsonb_exists(v_stop_words, w.word)
        order by 1
    );
end;
$$;

-- Jaccard similarity of two sets of words (_tokens), in [0, 1]: shared words divided by all words; 0 for two empty sets.
create or replace function memfold_internal._jaccard(a text[], b text[]) returns double precision
language sql immutable strict parallel safe
begin atomic
    select coalesce(s.n::double precision / nullif(pg_catalog.cardinality(a) + pg_catalog.cardinality(b) - s.n, 0), 0)
    from (
        -- a join: searching the array for each word would take quadratic time
        select pg_catalog.count(*) as n
        from pg_catalog.unnest(a) as x (word) join pg_catalog.unnest(b) as y (word) on x.word = y.word
    ) as s;
end;

-- A text of a script without spaces, with spaces between its words. Raises MF056, MF058.
create or replace function memfold_internal._segmented(p_content text, p_segmenter text) returns text
language plpgsql immutable strict parallel safe
as $$
declare
    v_words text[];
begin
    perform memfold_internal._require_python(format('segmenter => %L', p_segmenter));
    execute 'select memfold.segment_words($1, $2)' into v_words using p_content, p_segmenter;
    return array_to_string(v_words, ' ');
end;
$$;
