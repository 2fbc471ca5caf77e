-- The comparison of two texts: the guard, which finds differences in facts that are cheap to extract, the veto, and the
-- features of a pair for calibrated scores. Tier 2 uses them before an automatic merge, recall before it shows two
-- memories as one, reports and calibration for pairs. They read the lexicon, antonyms and links, and no memories.
--
-- _guard_text splits texts into words with classes. _guard_facts compares negations, numbers, dates, units and
-- identifiers; _guard_says time, mode, quantity and person; _guard_names names, order and prefixes; _guard_roles and
-- _guard_turned who does what; _guard_exchange the other words.
--
-- What must stay true: nothing depends on the server's locale. No regular expression has a class that does, comparisons use collation "C",
-- and upper case is a list of letters. Scores are fitted to the features as they are, so that a change of these requires new calibrations.

-- Maximum size in bytes of a text that the guard compares; the maximum number of words is a quarter of it.
create or replace function memfold_internal._guard_limit() returns integer
language sql immutable parallel safe
return 8192;

-- Compares the cheap facts of two texts and returns the differences, each as "kind: what"; an empty array is clean.
-- Kinds: negation, numeral, date, time, version, currency, unit, identifier, tense, mode, quantity, pronoun, place,
-- name, antonym, prefix, order, substitution; length: a text that is too long to compare (_guard_limit).
-- Longer than 150 lines: one pass over two texts, in which each step reads what the last one left.
create or replace function memfold_internal._guard(p_tenant_id text, a text, b text)
returns text[]
language plpgsql
stable
parallel safe
set search_path = pg_catalog, pg_temp
-- its queries are over a handful of words: replanning them for each pair would cost more than running them
set plan_cache_mode = force_generic_plan
as $function$
declare
    v_signals text[] := '{}'::text[];
    v_marked text collate "C";
    v_plain_a text collate "C";
    v_plain_b text collate "C";
    v_marked_a text[];
    v_marked_b text[];
    v_a text[];
    v_b text[];
    v_class_a text[];
    v_class_b text[];
    v_length_a integer;
    v_length_b integer;
    v_from integer := 1;
    v_end integer := 0;
    v_only_a integer[] := '{}'::integer[];
    v_only_b integer[] := '{}'::integer[];
    v_words_a text[] := '{}'::text[];
    v_words_b text[] := '{}'::text[];
    v_place integer;
    v_other integer;
    v_count integer;
    v_class text;
    v_token text collate "C";
    v_found text collate "C";
    v_capitals_a integer;
    v_capitals_b integer;
    v_negates boolean := false;
    v_says boolean := false;
    v_says_a boolean := false;
    v_says_b boolean := false;
    v_states boolean := false;
    v_capital boolean := false;
    v_content boolean := false;
    v_facts_a text[];
    v_facts_b text[];
    v_names_a text[];
    v_names_b text[];
    v_text text;
    v_longest constant integer := memfold_internal._guard_limit();
    v_many constant text[] := '{#2,#3,#4,#5,#6,#7,#8,#9,#10,#12}'::text[];
    v_german boolean;
    v_headline boolean;
    v_is_eastern boolean;
    -- regexps are cached by their text, so the same one is written only once
    v_german_words constant text collate "C" :=
        ' (?:der|das|und|ist|nicht|eine|einen|einem|mit|für|hat|mag|bei|seit|von|zu|im|wohnt|lebt|heißt|trinkt|isst) ';
begin
    if octet_length(a) > v_longest or octet_length(b) > v_longest then
        -- a long text is not compared word by word, because others wait for the scope
        if memfold_internal._prose_1(a) = memfold_internal._prose_1(b) then
            return v_signals;
        end if;
        return array[format('length: more than %s bytes', v_longest)];
    end if;
    v_marked := memfold_internal._guard_text(a);
    v_plain_a := translate(v_marked, E'\x01', '');
    v_marked_a := string_to_array(v_marked, ' ');
    v_capitals_a := length(v_marked) - length(v_plain_a);
    v_marked := memfold_internal._guard_text(b);
    v_plain_b := translate(v_marked, E'\x01', '');
    if v_plain_a = v_plain_b then
        return v_signals;
    end if;
    v_marked_b := string_to_array(v_marked, ' ');
    v_capitals_b := length(v_marked) - length(v_plain_b);
    v_a := string_to_array(v_plain_a, ' ');
    v_b := string_to_array(v_plain_b, ' ');
    v_length_a := cardinality(v_a);
    v_length_b := cardinality(v_b);
    if v_length_a > v_longest / 4 or v_length_b > v_longest / 4 then
        return array[format('length: more than %s words', v_longest / 4)];
    end if;
    v_class_a := memfold_internal._guard_classes(v_a);
    v_class_b := memfold_internal._guard_classes(v_b);

    -- words of only one text: remove equal ends, then match each remaining word with an equal one
    while v_a[v_from] = v_b[v_from] loop
        v_from := v_from + 1;
    end loop;
    v_count := least(v_length_a, v_length_b) - v_from;
    while v_end <= v_count and v_a[v_length_a - v_end] = v_b[v_length_b - v_end] loop
        v_end := v_end + 1;
    end loop;
    if (v_length_a - v_end - v_from)::bigint * (v_length_b - v_end - v_from) > 10000 then
        -- the same by sorting, which is slower for a sentence but not quadratic for a page
        select coalesce(array_agg(counted.place order by counted.place) filter (where counted.side = 1), '{}'),
            coalesce(array_agg(counted.place order by counted.place) filter (where counted.side = 2), '{}')
        into v_only_a, v_only_b
        from (
            select ranked.side, ranked.place, count(*) over (partition by ranked.word, ranked.number) as sides
            from (
                select stated.side, stated.word, stated.place::integer + v_from - 1 as place,
                    row_number() over (partition by stated.side, stated.word order by stated.place) as number
                from (
                    select 1, listed.* from unnest(v_a[v_from:v_length_a - v_end]) with ordinality as listed
                    union all
                    select 2, listed.* from unnest(v_b[v_from:v_length_b - v_end]) with ordinality as listed
                ) as stated(side, word, place)
            ) as ranked
        ) as counted
        where counted.sides = 1;
    else
        v_words_b := v_b[v_from:v_length_b - v_end];
        for v_place in v_from..v_length_a - v_end loop
            v_other := array_position(v_words_b, v_a[v_place]);
            if v_other is null then
                v_only_a := v_only_a || v_place;
            else
                v_words_b[v_other] := null;
            end if;
        end loop;
        for v_place in 1..coalesce(cardinality(v_words_b), 0) loop
            if v_words_b[v_place] is not null then
                v_only_b := v_only_b || (v_place + v_from - 1);
            end if;
        end loop;
        v_words_b := '{}'::text[];
    end if;

    if v_only_a <> '{}' and v_only_b <> '{}' then
        -- synonyms, treated as the same word from here on
        for v_place, v_other in
            select s.place, s.other from memfold_internal._guard_synonyms(p_tenant_id, v_a, v_only_a, v_b, v_only_b) as s
        loop
            v_b[v_other] := v_a[v_place];
            v_marked_b[v_other] := v_marked_a[v_place];
            v_class_b[v_other] := v_class_a[v_place];
            v_only_a := array_remove(v_only_a, v_place);
            v_only_b := array_remove(v_only_b, v_other);
        end loop;
        if v_a = v_b then
            return v_signals;
        end if;
    end if;
    foreach v_place in array v_only_a loop
        v_class := left(v_class_a[v_place], 1);
        v_token := v_a[v_place];
        v_found := memfold_internal._guard_sayings() ->> v_token;
        if v_found is not null then
            v_says_a := true;
            v_says := v_says or strpos(v_found, '!') > 0;
        end if;
        if v_class is null or v_class in ('S', 'p', 'N') then
            v_words_a := v_words_a || v_token;
            v_content := v_content or v_class is distinct from 'p';
            v_negates := v_negates or v_class = 'N';
            v_capital := v_capital or v_marked_a[v_place] <> v_token or left(v_token, 1) between 'ァ' and 'ヺ';
            v_states := v_states or v_token ~ '[0-9@_/.:]';
        elsif v_class in ('n', 'q') then
            v_negates := true;
        elsif v_class not in ('s', '&') then
            v_states := true;
            v_words_a := v_words_a || v_token;
        end if;
    end loop;
    foreach v_place in array v_only_b loop
        v_class := left(v_class_b[v_place], 1);
        v_token := v_b[v_place];
        v_found := memfold_internal._guard_sayings() ->> v_token;
        if v_found is not null then
            v_says_b := true;
            v_says := v_says or strpos(v_found, '!') > 0;
        end if;
        if v_class is null or v_class in ('S', 'p', 'N') then
            v_words_b := v_words_b || v_token;
            v_content := v_content or v_class is distinct from 'p';
            v_negates := v_negates or v_class = 'N';
            v_capital := v_capital or v_marked_b[v_place] <> v_token or left(v_token, 1) between 'ァ' and 'ヺ';
            v_states := v_states or v_token ~ '[0-9@_/.:]';
        elsif v_class in ('n', 'q') then
            v_negates := true;
        elsif v_class not in ('s', '&') then
            v_states := true;
            v_words_b := v_words_b || v_token;
        end if;
    end loop;

    -- negations
    v_text := v_plain_a || v_plain_b;
    v_is_eastern := octet_length(v_text) > length(v_text)
        and v_text collate "C" ~ E'[\u0E00-\u0E7F\u3040-\u30FF\u3400-\u9FFF\uAC00-\uD7A3]';
    if v_negates
        or v_is_eastern
            and array_to_string(v_words_a || v_words_b, '') ~ E'[不没沒无無別别未勿非なくずけぬんないまい않없못아니말\u0E44]'
        or not v_is_eastern and octet_length(v_text) > length(v_text) and v_text ~ '[ığş]'
    then
        v_count := memfold_internal._guard_negations(v_plain_a, v_a, v_class_a)
            - memfold_internal._guard_negations(v_plain_b, v_b, v_class_b);
        -- ("used to" denies as much as "no longer" does)
        if v_count <> 0 and not (v_says and abs(v_count) = 1
            and position(' used to ' in ' ' || case when v_count > 0 then v_plain_b else v_plain_a end) > 0
            and (case when v_count > 0 then v_plain_a else v_plain_b end) ~ ' (?:longer|anymore|(?:stopped|quit) [a-z]+ing)(?: |$)')
        then
            v_found := null;
            foreach v_place in array case when v_count > 0 then v_only_a else v_only_b end loop
                if v_count > 0 and left(v_class_a[v_place], 1) in ('n', 'q', 'N') then
                    v_found := v_a[v_place];
                elsif v_count < 0 and left(v_class_b[v_place], 1) in ('n', 'q', 'N') then
                    v_found := v_b[v_place];
                end if;
                exit when v_found is not null;
            end loop;
            v_signals := v_signals || ('negation: ' || coalesce(v_found, v_count::text));
        end if;
    end if;

    if (right(rtrim(a), 1) in ('?', '？')) <> (right(rtrim(b), 1) in ('?', '？')) then
        v_signals := v_signals || 'mode: question'::text;
    end if;

    -- plan A and plan B, sizes M and L: a letter that stands for itself
    if cardinality(v_only_a) = 1 and cardinality(v_only_b) = 1 and length(v_a[v_only_a[1]]) = 1 and length(v_b[v_only_b[1]]) = 1
        and v_marked_a[v_only_a[1]] <> v_a[v_only_a[1]] and v_marked_b[v_only_b[1]] <> v_b[v_only_b[1]]
    then
        v_signals := v_signals || format('identifier: %s <> %s', v_a[v_only_a[1]], v_b[v_only_b[1]]);
    end if;

    -- numbers, dates, versions, currencies, units, identifiers
    if v_states then
        v_facts_a := memfold_internal._guard_facts(v_a, v_marked_a, v_class_a);
        v_facts_b := memfold_internal._guard_facts(v_b, v_marked_b, v_class_b);
        if v_facts_a <> v_facts_b then
            v_signals := v_signals || memfold_internal._guard_fact_change(v_facts_a, v_facts_b);
        end if;
    end if;

    -- time, mode, quantity, person: stated by one text only, or different in both
    if v_says or v_says_a and v_says_b then
        v_signals := v_signals || memfold_internal._guard_saying_change(
            v_a, v_class_a, v_only_a, v_b, v_class_b, v_only_b, cardinality(v_words_a) + cardinality(v_words_b) < 2);
    end if;

    -- "lived" / "lives"
    if v_content and cardinality(v_words_a) between 1 and 3 and cardinality(v_words_b) between 1 and 3 then
        v_signals := array_remove(v_signals || memfold_internal._guard_tense_change(v_words_a, v_a, v_words_b, v_b), null);
    end if;

    -- names in one text only
    if v_capital then
        v_german := (' ' || v_plain_a || ' ' || v_plain_b || ' ') ~ v_german_words;
        v_headline := not v_german and (
            v_capitals_a > 2 and memfold_internal._guard_is_headline(v_a, v_marked_a, v_class_a)
            or v_capitals_b > 2 and memfold_internal._guard_is_headline(v_b, v_marked_b, v_class_b));
        v_text := memfold_internal._guard_name_change(
            memfold_internal._guard_new_names(v_a, v_marked_a, v_class_a, v_only_a, v_b, v_german, v_headline),
            memfold_internal._guard_new_names(v_b, v_marked_b, v_class_b, v_only_b, v_a, v_german, v_headline));
        if v_text is not null then
            v_signals := v_signals || ('name: ' || v_text);
        end if;
    end if;

    -- antonyms
    if v_content or v_words_a <> '{}' then
        if v_words_a <> '{}' and v_words_b <> '{}' then
            for v_token, v_found in
                -- a lateral index lookup of the primary key for every word, whatever the planner thinks of the table (the other text's
                -- words outside of it: an index would sort them again for each lookup)
                select listed.word, found.antonym
                from (select distinct unnest(v_words_a)) as listed(word)
                cross join lateral (
                    select antonyms.antonym from memfold.antonyms as antonyms
                    where antonyms.tenant_id = any (array['*', p_tenant_id])
                        and antonyms.word = listed.word collate "C" and antonyms.kind = 'antonym'
                    offset 0) as found
                where found.antonym = any (v_words_b)
                union all
                select found.antonym, listed.word
                from (select distinct unnest(v_words_b)) as listed(word)
                cross join lateral (
                    select antonyms.antonym from memfold.antonyms as antonyms
                    where antonyms.tenant_id = any (array['*', p_tenant_id])
                        and antonyms.word = listed.word collate "C" and antonyms.kind = 'antonym'
                    offset 0) as found
                where found.antonym = any (v_words_a)
            loop
                v_signals := v_signals || ('antonym: ' || v_token || ' <> ' || v_found);
            end loop;
            v_text := memfold_internal._guard_prefix(v_words_a, v_words_b);
            if v_text is not null then
                v_signals := v_signals || ('prefix: ' || v_text);
            end if;
        end if;
    end if;
    if v_is_eastern then
        v_plain_a := replace(v_plain_a, ' ', '');
        v_plain_b := replace(v_plain_b, ' ', '');
        for v_token, v_found in
            select antonyms.word, antonyms.antonym
            from memfold.antonyms as antonyms
            where antonyms.tenant_id in ('*', p_tenant_id) and antonyms.word >= E'\u2E80' and antonyms.kind = 'antonym'
                and (position(antonyms.word in v_plain_a) > 0 and position(antonyms.antonym in v_plain_b) > 0
                        and position(antonyms.word in v_plain_b) = 0 and position(antonyms.antonym in v_plain_a) = 0
                    or position(antonyms.word in v_plain_b) > 0 and position(antonyms.antonym in v_plain_a) > 0
                        and position(antonyms.word in v_plain_a) = 0 and position(antonyms.antonym in v_plain_b) = 0)
        loop
            v_signals := v_signals || ('antonym: ' || v_token || ' <> ' || v_found);
        end loop;
    end if;

    -- one name in ideographs for another, where a place or a person is named ("住在成都" / "住在重庆")
    if v_is_eastern and v_signals = '{}' and v_words_a <> '{}' and v_words_b <> '{}' then
        v_token := array_to_string(v_a[v_from:v_length_a - v_end], '');
        v_found := array_to_string(v_b[v_from:v_length_b - v_end], '');
        if v_token ~ E'^[\u3400-\u9FFF]{1,6}$' and v_found ~ E'^[\u3400-\u9FFF]{1,6}$'
            and translate(v_token, v_found, '') = v_token
            and (v_a[v_from - 1] in ('在', '叫', '自', '去', '到', '给', '給')
                 or v_a[v_length_a - v_end + 1] in ('に', 'で', 'へ', 'さ', '様', '君')
                    and length(v_token) > 1 and length(v_found) > 1)
        then
            v_signals := v_signals || ('name: ' || v_token || ' <> ' || v_found);
        end if;
    end if;

    -- the same words, the same names in another order
    if v_signals = '{}' then
        if not v_content and cardinality(v_words_a) = cardinality(v_words_b) then
            v_text := memfold_internal._guard_order(v_a, v_class_a, v_b, v_class_b);
            if v_text is not null then
                v_signals := v_signals || ('order: ' || v_text);
            end if;
        end if;
        -- "3 cats and 5 dogs" / "5 cats and 3 dogs"
        if v_content and v_plain_a ~ '[0-9]' or v_class_a && v_many then
            v_facts_a := memfold_internal._guard_counted(v_a, v_class_a);
            v_facts_b := memfold_internal._guard_counted(v_b, v_class_b);
            if cardinality(v_facts_a) > 1 and cardinality(v_facts_b) > 1 and not v_facts_a <@ v_facts_b then
                foreach v_token in array v_facts_a loop
                    v_found := split_part(v_token, E'\x1f', 1);
                    if v_token <> all (v_facts_b) then
                        select 'numeral: ' || split_part(v_token, E'\x1f', 2) || ' ' || v_found || ' <> '
                                || split_part(other.counted, E'\x1f', 2) || ' ' || v_found
                        into v_text
                        from unnest(v_facts_b) as other(counted)
                        where split_part(other.counted, E'\x1f', 1) = v_found and other.counted <> all (v_facts_a)
                        limit 1;
                        v_signals := v_signals || v_text;
                        exit when v_text is not null;
                    end if;
                end loop;
                v_signals := array_remove(v_signals, null);
            end if;
        end if;
        if v_capitals_a > 1 and v_capitals_b > 1 then
            v_names_a := memfold_internal._guard_names(v_a, v_marked_a, v_class_a);
            v_names_b := memfold_internal._guard_names(v_b, v_marked_b, v_class_b);
        end if;
        if cardinality(v_names_a) > 1 and cardinality(v_names_b) > 1 and v_names_a <> v_names_b
            and not memfold_internal._guard_is_headline(v_a, v_marked_a, v_class_a)
            and not memfold_internal._guard_is_headline(v_b, v_marked_b, v_class_b)
        then
            v_text := memfold_internal._guard_role_change(v_names_a, v_names_b);
            if v_text is not null then
                v_signals := v_signals || ('name: ' || v_text);
            end if;
        end if;
    end if;

    if v_signals = '{}' then
        v_signals := array_remove(array[memfold_internal._guard_exchange(
            p_tenant_id, v_a, v_marked_a, v_class_a, v_only_a, v_b, v_marked_b, v_class_b, v_only_b, v_is_eastern,
            cardinality(v_words_a) between 1 and 5 and cardinality(v_words_b) between 1 and 5)], null);
    end if;
    if v_signals <> '{}' then
        v_signals := array(
            select distinct left(listed.signal, 200) collate "C" from unnest(v_signals) as listed(signal) order by 1);
    end if;
    return v_signals;
end;
$function$;
