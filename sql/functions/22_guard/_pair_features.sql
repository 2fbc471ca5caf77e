-- What the calibrated score of tier 2 uses about two texts. Defined only here: scores are fitted to these functions, and are called
-- with their results. A change here requires new calibrations. Nothing depends on a locale: words are those of prose/1, comparisons
-- under collation "C", upper case of ASCII only.

-- The words of a text in their order, for _pair_features: its prose/1 form without punctuation, n't written out; each
-- Han or Kana character is a word. After the first 200 words, the rest in at most 100 pieces.
create or replace function memfold_internal._pair_words(p_content text) returns text[]
language plpgsql immutable strict parallel safe
as $$
declare
    v_text text collate "C" := memfold_internal._prose_1(p_content);
    v_words text[];
    v_rest text[];
    v_count integer;
    v_size integer;
begin
    v_text := replace(v_text, ',', '');
    if octet_length(v_text) <> length(v_text) then
        -- Han, Hiragana and Katakana are written without spaces: each character is a word
        v_text := translate(
            regexp_replace(v_text, E'([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff])', E' \\1 ', 'g'),
            '’…“”«»–—、。，；：！？（）「」『』', '''                    ');
    end if;
    if position('''' in v_text) > 0 then
        v_text := replace(replace(v_text, 'n''t', ' not'), '''', '');
    end if;
    if v_text ~ '[^a-z0-9 ]' then
        v_text := regexp_replace(v_text, '[].;:!?(){}"`/[-]+', ' ', 'g');
    end if;
    v_words := array_remove(string_to_array(v_text, ' '), '');
    v_count := cardinality(v_words);
    if v_count > 200 then
        -- the rest counts in at most 100 pieces: time stays bounded, and no difference is missed
        v_size := (v_count - 101) / 100;
        v_rest := v_words[201:];
        v_words := v_words[:200];
        for v_at in 0..(v_count - 201) / v_size loop
            v_words := v_words || array_to_string(v_rest[v_at * v_size + 1:(v_at + 1) * v_size], ' ');
        end loop;
    end if;
    return v_words;
end;
$$;

-- The names of the features that _pair_features returns, in its order; _pair_features explains each.
create or replace function memfold_internal._pair_feature_names() returns text[]
language sql immutable parallel safe
return array[
    'similarity', 'apart_by_change', 'apart_by_all_change', 'apart_by_words', 'apart_by_length',
    'length_ratio', 'word_length', 'capitals', 'words', 'commas',
    'prefix', 'suffix', 'prefix_share', 'window_share', 'window',
    'shared', 'contained', 'letters', 'change', 'longest',
    'alike', 'unlike', 'replaced', 'grammar', 'denial', 'denials', 'names',
    'shared_content', 'shared_names', 'turns', 'content_turns', 'name_turns', 'behind',
    'inversions', 'inversion_share', 'shift', 'break_share', 'neighbour_share',
    'guard', 'guard_negation', 'guard_value', 'guard_name', 'guard_antonym'
]::text[];

-- The features that a calibrated score is computed from, in the order of _pair_feature_names(): the cosine in [-1, 1],
-- which words two texts share and in which order, and the signals of the guard (null: none). The same for (a, b) and (b,
-- a), the same on every server; finite for any texts.
-- Longer than 150 lines: one expression per feature, in the order in which scores are fitted.
create or replace function memfold_internal._pair_features(
    p_similarity double precision, a text, b text, p_guard text[]
) returns double precision[]
language plpgsql immutable parallel safe
as $$
declare
    -- grammar: may change without changing the meaning
    v_grammar constant jsonb := memfold_internal._lexicon_words('g');
    -- words that reverse a statement, or weaken it
    v_denial constant jsonb := memfold_internal._lexicon_words('d');
    -- in one order, whichever is newer: the features of (a, b) are those of (b, a)
    v_first constant text collate "C" := least(coalesce(a, '') collate "C", coalesce(b, ''));
    v_second constant text collate "C" := greatest(coalesce(a, '') collate "C", coalesce(b, ''));
    v_similarity constant double precision := case when p_similarity between -1 and 1 then p_similarity else 0 end;
    v_apart constant double precision := 1 - v_similarity;
    v_signals constant text collate "C" := E'\n' || array_to_string(coalesce(p_guard, '{}'), E'\n');
    v_whole_a constant text[] := memfold_internal._pair_words(v_first);
    v_whole_b constant text[] := memfold_internal._pair_words(v_second);
    v_count_a constant integer := cardinality(v_whole_a);
    v_count_b constant integer := cardinality(v_whole_b);
    v_shorter constant integer := least(v_count_a, v_count_b);
    v_longer constant integer := greatest(v_count_a, v_count_b, 1);
    v_length_a constant integer := length(v_first);
    v_length_b constant integer := length(v_second);
    v_length constant double precision := greatest(v_length_a + v_length_b, 1);
    v_named_a constant boolean := v_first ~ ' [A-Z]';
    v_named_b constant boolean := v_second ~ ' [A-Z]';
    v_prefix integer := 0;
    v_suffix integer := 0;
    v_a text[];
    v_b text[];
    v_before text collate "C";
    v_word text collate "C";
    v_at integer;
    v_last integer := 0;
    v_last_content integer := 0;
    v_last_name integer := 0;
    v_furthest integer := 0;
    v_places integer[] := '{}'::integer[];
    v_place_before integer;
    v_shared integer := 0;
    v_shared_content integer := 0;
    v_shared_names integer := 0;
    v_breaks integer := 0;
    v_turns integer := 0;
    v_content_turns integer := 0;
    v_name_turns integer := 0;
    v_behind integer := 0;
    v_inversions integer := 0;
    v_shift integer := 0;
    v_neighbours integer := 0;
    v_content_a integer := 0;
    v_content_b integer := 0;
    v_grammar_a integer := 0;
    v_grammar_b integer := 0;
    v_letters integer := 0;
    v_denial_a integer := 0;
    v_denial_b integer := 0;
    v_names_a integer := 0;
    v_names_b integer := 0;
    v_longest integer := 0;
    v_stems text[] := '{}'::text[];
    v_befores text[] := '{}'::text[];
    v_alike integer := 0;
    v_replaced integer := 0;
    v_change double precision;
begin
    -- equal ends are removed first
    while v_whole_a[v_prefix + 1] = v_whole_b[v_prefix + 1] loop
        v_prefix := v_prefix + 1;
    end loop;
    while v_suffix < v_shorter - v_prefix and v_whole_a[v_count_a - v_suffix] = v_whole_b[v_count_b - v_suffix] loop
        v_suffix := v_suffix + 1;
    end loop;
    v_a := v_whole_a[v_prefix + 1:v_count_a - v_suffix];
    v_b := v_whole_b[v_prefix + 1:v_count_b - v_suffix];
    v_before := coalesce(v_whole_a[v_prefix], '^');

    -- words that only the second has
    for v_place in 1..v_count_b - v_suffix - v_prefix loop
        v_word := v_b[v_place];
        if v_word <> all (v_a) then
            v_letters := v_letters + length(v_word);
            if jsonb_exists(v_grammar, v_word) then
                v_grammar_b := v_grammar_b + 1;
            else
                v_content_b := v_content_b + 1;
                v_longest := greatest(v_longest, length(v_word));
                v_stems := v_stems || left(v_word, 4);
                v_befores := v_befores || coalesce(v_b[v_place - 1], v_before);
                if v_named_b and strpos(v_second, ' ' || upper(left(v_word, 1) collate "C") || substr(v_word, 2)) > 0 then
                    v_names_b := v_names_b + 1;
                end if;
                if jsonb_exists(v_denial, v_word) then
                    v_denial_b := v_denial_b + 1;
                end if;
            end if;
        end if;
    end loop;

    -- words of the first: that only it has, or that the second also has, and their positions
    for v_place in 1..v_count_a - v_suffix - v_prefix loop
        v_word := v_a[v_place];
        v_at := coalesce(array_position(v_b, v_word, v_last + 1), array_position(v_b, v_word));
        if v_at is null then
            v_letters := v_letters + length(v_word);
            if jsonb_exists(v_grammar, v_word) then
                v_grammar_a := v_grammar_a + 1;
            else
                v_content_a := v_content_a + 1;
                v_longest := greatest(v_longest, length(v_word));
                if left(v_word, 4) = any (v_stems) then
                    v_alike := v_alike + 1;
                end if;
                if coalesce(v_a[v_place - 1], v_before) = any (v_befores) then
                    v_replaced := v_replaced + 1;
                end if;
                if v_named_a and strpos(v_first, ' ' || upper(left(v_word, 1) collate "C") || substr(v_word, 2)) > 0 then
                    v_names_a := v_names_a + 1;
                end if;
                if jsonb_exists(v_denial, v_word) then
                    v_denial_a := v_denial_a + 1;
                end if;
            end if;
        else
            v_shared := v_shared + 1;
            if v_at <> v_last + 1 then
                v_breaks := v_breaks + 1;
                if v_at < v_last then
                    v_turns := v_turns + 1;
                end if;
            end if;
            v_last := v_at;
            if not jsonb_exists(v_grammar, v_word) then
                v_shared_content := v_shared_content + 1;
                v_shift := v_shift + abs(v_at - v_place);
                if v_at < v_last_content then
                    v_content_turns := v_content_turns + 1;
                end if;
                v_last_content := v_at;
                if v_at < v_furthest then
                    v_behind := v_behind + 1;
                    foreach v_place_before in array v_places loop
                        if v_place_before > v_at then
                            v_inversions := v_inversions + 1;
                        end if;
                    end loop;
                else
                    v_furthest := v_at;
                end if;
                v_places := v_places || v_at;
                if v_named_a and strpos(v_first, ' ' || upper(left(v_word, 1) collate "C") || substr(v_word, 2)) > 0 then
                    v_shared_names := v_shared_names + 1;
                    if v_at < v_last_name then
                        v_name_turns := v_name_turns + 1;
                    end if;
                    v_last_name := v_at;
                end if;
                if coalesce(v_a[v_place - 1], v_before) <> coalesce(v_b[v_at - 1], v_before) then
                    v_neighbours := v_neighbours + 1;
                end if;
            end if;
        end if;
    end loop;
    v_change := v_letters / v_length;
    -- a word that one text repeats is found more often than the other has it
    v_shared := least(v_shared, v_shorter - v_prefix - v_suffix);

    return array[
        -- the similarity; the distance of the vectors relative to the difference
        v_similarity,
        v_apart / (v_change + 0.02),
        v_apart / (v_change + 0.02 + 2.0::double precision * (v_breaks + v_grammar_a + v_grammar_b) / v_longer),
        v_apart / (1 + least(v_content_a, v_content_b)),
        v_apart * v_longer,
        -- the texts: lengths, letters per word, share of capitals, words, difference in commas
        least(v_length_a, v_length_b)::double precision / greatest(v_length_a, v_length_b, 1),
        v_length / greatest(v_count_a + v_count_b, 1),
        regexp_count(v_first || v_second, '[A-Z]') / v_length,
        v_longer,
        abs(length(replace(v_first, ',', '')) - v_length_a - length(replace(v_second, ',', '')) + v_length_b),
        -- equal words at the beginning and at the end, and the window between
        v_prefix,
        v_suffix,
        v_prefix::double precision / greatest(v_shorter, 1),
        (v_longer - v_prefix - v_suffix)::double precision / v_longer,
        v_shorter - v_prefix - v_suffix,
        -- shared words relative to the longer and the shorter text
        (v_prefix + v_suffix + v_shared)::double precision / v_longer,
        (v_prefix + v_suffix + v_shared)::double precision / greatest(v_shorter, 1),
        -- words of one text only: letters, their share, the longest; with the same beginning, without, in the same place; grammar
        v_letters,
        v_change,
        v_longest,
        v_alike,
        greatest(v_content_a, v_content_b) - v_alike,
        v_replaced,
        greatest(v_grammar_a, v_grammar_b),
        -- denials of one text only: difference, sum; names of one text only
        abs(v_denial_a - v_denial_b),
        v_denial_a + v_denial_b,
        greatest(v_names_a, v_names_b),
        -- shared words of the window, and their order
        v_shared_content,
        v_shared_names,
        v_turns,
        v_content_turns,
        v_name_turns,
        v_behind,
        v_inversions,
        v_inversions::double precision / greatest(v_longer * (v_longer - 1), 1),
        v_shift::double precision / greatest(v_shared_content * v_longer, 1),
        v_breaks::double precision / v_longer,
        v_neighbours::double precision / v_longer,
        -- the guard's signals: how many, and of which kind; not substitution, a separate rule that no score repeats
        coalesce(cardinality(p_guard), 0) - regexp_count(v_signals, E'\\nsubstitution:'),
        (strpos(v_signals, E'\nnegation:') > 0)::integer,
        (v_signals ~ E'\\n(numeral|date|time|version|currency|unit|identifier):')::integer,
        (strpos(v_signals, E'\nname:') > 0)::integer,
        (v_signals ~ E'\\n(antonym|prefix):')::integer
    ]::double precision[];
end;
$$;

-- What each feature adds to a score (calibrations.score) of a pair, in log-odds, the largest first; before them the
-- constant of every pair (feature: null). P(duplicate) is 1 / (1 + exp(-their sum)). Features that were not used are not
-- listed. Takes milliseconds; for explain_memory.
create or replace function memfold_internal._explain_score(p_score jsonb, p_features double precision[])
returns table (feature text, feature_value double precision, contribution double precision)
language sql immutable strict parallel safe
begin atomic
    with recursive walk as (
        select t.tree, t.tree -> 0 as node, -1 as asked, (t.tree -> 0 ->> 4)::double precision as moved
        from pg_catalog.jsonb_array_elements(p_score -> 'trees') as t (tree)
        union all
        select w.tree, n.node, w.asked, (n.node ->> 4)::double precision - (w.node ->> 4)::double precision
        from (
            select w.tree, w.node, (w.node ->> 0)::integer as asked from walk as w where (w.node ->> 0)::integer >= 0
        ) as w
        cross join lateral (
            select w.tree -> case
                when p_features[w.asked + 1] <= (w.node ->> 1)::double precision then (w.node ->> 2)::integer
                else (w.node ->> 3)::integer
            end as node
        ) as n
    )
    select
        p_score -> 'features' ->> nullif(w.asked, -1),
        p_features[nullif(w.asked, -1) + 1],
        pg_catalog.sum(w.moved)
        + case when w.asked = -1 then (p_score ->> 'baseline')::double precision else 0::double precision end
    from walk as w
    group by w.asked
    order by w.asked <> -1, pg_catalog.abs(pg_catalog.sum(w.moved)) desc, w.asked;
end;
