-- The guard in languages without a table of words that mean about the same: a word exchanged for another one that is not a form of it is
-- a difference, unless it is listed as a synonym (memfold.antonyms, kind synonym).

-- One word -> the languages whose grammar, numbers or names of days it belongs to. Folded to a constant when a caller is planned.
create or replace function memfold_internal._guard_languages()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(listed.word, listed.languages)
    from (
        select l.word, pg_catalog.string_agg(l.language, ' ') as languages
        from memfold_internal._lexicon() as l
        where
            l.class not in ('-', 'f', 'v', 'r', 'c') and l.language not in ('*', 'zh', 'ja', 'ko')
            and l.word not in ('.', ',', '&')
        group by l.word
    ) as listed;
end;

-- The kind of difference that a word makes if only one text has it, and words for persons (classes c and r of _lexicon).
create or replace function memfold_internal._guard_changers()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(l.word, l.value) from memfold_internal._lexicon() as l where l.class = 'c';
end;

create or replace function memfold_internal._guard_persons()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(l.word, l.language) from memfold_internal._lexicon() as l where l.class = 'r';
end;

-- Whether two texts are in English: by their grammatical words; if these do not decide, false if one has a letter that
-- English does not use, and true if the lexicon knows more than half of the words that are not names. Null: unknown.
-- p_is_one: little more than one word differs; unknown texts then count as not English.
create or replace function memfold_internal._guard_is_english(p_marked_a text[], p_marked_b text[], p_only_b integer[], p_is_one boolean)
returns boolean
language plpgsql
stable
parallel safe
as $function$
declare
    v_english integer := 0;
    v_other integer := 0;
    v_word text;
    v_languages text collate "C";
    v_place integer;
    v_marked text[] := p_marked_a[:30];
begin
    foreach v_place in array p_only_b[:20] loop
        v_marked := v_marked || p_marked_b[v_place];
    end loop;
    foreach v_word in array v_marked loop
        v_languages := memfold_internal._guard_languages() ->> translate(v_word, E'\x01', '');
        if v_languages = 'en' then
            v_english := v_english + 1;
        elsif strpos(v_languages, 'en') = 0 then
            v_other := v_other + 1;
        end if;
    end loop;
    if v_english <> v_other then
        return v_english > v_other;
    end if;
    v_word := array_to_string(v_marked, ' ');
    if octet_length(v_word) > length(v_word) then
        return false;
    end if;
    -- (a word with an ending is known by its stem: that is enough here, with one lookup per word; most names are the same in every
    -- language)
    return case when count(*) < 2 * count(known.word) then true when v_other > 0 or p_is_one and count(*) > 0 then false end
    from unnest(v_marked) as listed(word)
    left join lateral (
        select l.word from memfold.lexicon as l
        where l.word = any (array[listed.word, regexp_replace(listed.word, '(?:s|ed|ing)$', '')])
        limit 1
    ) as known on true
    where listed.word !~ E'^[].,0-9$%''+\\x01-]';
end;
$function$;

-- A word of another language without endings of gender, number and case; those of the past are kept.
create or replace function memfold_internal._guard_root(p_word text)
returns text
language sql
immutable
parallel safe
return regexp_replace(
    p_word collate "C",
    '(?<=.{3})(?:(?<!t)(?:es|en|e)|er|em|as|os|[snaoix]'
    || '|ами|ями|ого|его|ому|ему|ыми|ими|[оеы]й|[ая]я|[ыи]х|[ыи]м|ою|ом|ем|ах|ям|ях|ам|ов|ев|[аяуюеыиьо]|(?:[еёюиуяа]т)(?:ся)?)$'
    -- Turkish: the present tense of negated verbs
    || '|(?<=..)m[aeiıuü](?:z|yor)$', ''
);

-- "Hilft Ida" / "Ida hilft": b begins with a person who comes after the verb in a, and the same verb follows.
create or replace function memfold_internal._guard_is_object_ahead(
    a text[], p_marked_a text[], p_classes_a text[], b text[], p_classes_b text[]
)
returns boolean
language sql
immutable
parallel safe
return exists (
    select from generate_series(1, 2) as s (place)
    cross join generate_series(2, least(cardinality(a), 20)) as o (place)
    where
        memfold_internal._guard_root(a[o.place]) = memfold_internal._guard_root(b[s.place])
        and (p_marked_a[o.place] <> a[o.place] or memfold_internal._guard_persons() ? a[o.place]) and p_classes_a[o.place] is null
        and b[1] <> a[1] and b[s.place + 1] = any (a[1:2]) and array_position(a, b[s.place + 1]) < o.place
        and (s.place = 1 or left(p_classes_b[s.place - 1], 1) = 's' and s.place = 2)
);

-- Whether two words are forms of one, except words for persons: a brother is not a sister.
create or replace function memfold_internal._guard_is_form(p_word text, p_other text)
returns boolean
language sql
immutable
parallel safe
return memfold_internal._guard_root(p_word) = memfold_internal._guard_root(p_other)
and not (p_word ~ 'os?$' and p_other ~ 'as?$' or p_word ~ 'as?$' and p_other ~ 'os?$');

-- The difference between two texts in a language other than English, as a signal, or null: content words that are not
-- forms of each other, on both sides (substitution); a word that changes a fact, on one side (tense, mode, quantity);
-- prepositions (substitution); who does what (order). The positions are those of the words that only one of them has.
create or replace function memfold_internal._guard_other_language(
    a text[], p_marked_a text[], p_classes_a text[], p_only_a integer[], b text[], p_marked_b text[], p_classes_b text[], p_only_b integer[]
)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_words_a text[] := '{}'::text[];
    v_words_b text[] := '{}'::text[];
    v_markers_a text[] := '{}'::text[];
    v_markers_b text[] := '{}'::text[];
    v_grammar_a text[] := '{}'::text[];
    v_grammar_b text[] := '{}'::text[];
    v_place integer;
    v_other integer;
    v_class text collate "C";
    v_found text;
    v_cases boolean := false;
    v_nobody constant text[] := '{user,benutzer,benutzerin,nutzer,nutzerin,anwender,anwenderin,kunde,kundin,utilisateur,utilisatrice,
        client,cliente,usuario,usuaria,usuário,usuária,utente,gebruiker,пользователь,пользовательница,пользователя,клиент}'::text[];
    -- where something is, or what it belongs to: exchanging one for another means little
    v_light constant text[] := '{in,im,ins,zu,zum,zur,bei,beim,à,au,aux,de,d,dans,en,chez,al,del,di,da,dal,dalla,dallo,nel,nella,nello,
        della,dello,dei,degli,delle,alla,do,dos,das,em,na,no,nos,nas,ao,pelo,pela,в,во,на,к,ко,о,об,при,als,como,comme,come,как}'::text[];
    -- who does it, and to whom it is done
    v_roles constant text[] := '{von,vom,an,für,par,por,per,pour,para,da,dal,dalla,pelo,pela,у,от,к,для}'::text[];
    v_genitive constant text[] := '{von,vom,de,d,du,des,del,della,dello,di,do,van}'::text[];
    v_owners constant text[] := '{sein,seine,seinen,ihr,ihre,ihren,son,sa,ses,leur,leurs,su,sus,suo,sua,suoi,sue,seu,seus,suas,его,её,их,
        zijn,haar}'::text[];
    v_past constant text[] := '{war,waren,hatte,hatten,wurde,wurden,était,étaient,avait,avaient,era,eran,erano,eram,estaba,estaban,
        estava,estavam,había,aveva,avevano,tinha,tenía,был,была,было,были,had,werd}'::text[];
begin
    foreach v_place in array p_only_a loop
        v_class := left(p_classes_a[v_place], 1);
        if v_class = 'p' then
            v_markers_a := v_markers_a || a[v_place];
        elsif v_class in ('s', '&') then
            v_grammar_a := v_grammar_a || a[v_place];
        elsif v_class = 'u' then
            v_words_a := v_words_a || p_classes_a[v_place];
        elsif (v_class is null or v_class in ('S', 'o')) and a[v_place] <> all (v_nobody) and a[v_place] !~ '[0-9]|^[.,]*$' then
            v_words_a := v_words_a || a[v_place];
        end if;
    end loop;
    foreach v_place in array p_only_b loop
        v_class := left(p_classes_b[v_place], 1);
        if v_class = 'p' then
            v_markers_b := v_markers_b || b[v_place];
        elsif v_class in ('s', '&') then
            v_grammar_b := v_grammar_b || b[v_place];
        elsif v_class = 'u' then
            v_words_b := v_words_b || p_classes_b[v_place];
        elsif (v_class is null or v_class in ('S', 'o')) and b[v_place] <> all (v_nobody) and b[v_place] !~ '[0-9]|^[.,]*$' then
            v_words_b := v_words_b || b[v_place];
        end if;
    end loop;

    -- content words: each with a form of it in the other text, as far as there is one
    for v_at in reverse least(cardinality(v_words_a), 20)..1 loop
        v_other := (
            select w.place from unnest(v_words_b[:20]) with ordinality as w (word, place)
            where memfold_internal._guard_is_form(w.word, v_words_a[v_at])
            limit 1
        );
        if v_other is not null then
            -- "one who helps" / "one who is helped", if a case ending says so
            v_cases := v_cases or v_words_a[v_at] ~ '[а-я]$' and v_words_b[v_other] <> v_words_a[v_at]
                and (E'\x01' || v_words_a[v_at] = any (p_marked_a) or memfold_internal._guard_persons() ?| array[v_words_a[v_at],
                    v_words_b[v_other]]);
            v_words_a := v_words_a[:v_at - 1] || v_words_a[v_at + 1:];
            v_words_b := v_words_b[:v_other - 1] || v_words_b[v_other + 1:];
        end if;
    end loop;
    if v_words_a <> '{}' and v_words_b <> '{}' then
        return 'substitution: ' || v_words_a[1] || ' <> ' || v_words_b[1];
    end if;
    -- words that change a fact when added
    select format('%s: %s', memfold_internal._guard_changers() ->> w.word, w.word) into v_found
    from unnest(v_words_a || v_words_b || v_grammar_a || v_grammar_b) with ordinality as w (word, place)
    where memfold_internal._guard_changers() ? w.word
    order by w.place
    limit 1;
    if v_found is not null then
        return v_found;
    end if;
    if (v_grammar_a && v_past) <> (v_grammar_b && v_past) then
        return 'tense: ' || array_to_string(
            array(select unnest(v_grammar_a || v_grammar_b) intersect select unnest(v_past) order by 1), ', ');
    end if;
    if v_markers_a <> '{}' and v_markers_b <> '{}' and not (v_markers_a <@ v_light and v_markers_b <@ v_light) then
        return 'substitution: ' || v_markers_a[1] || ' <> ' || v_markers_b[1];
    end if;
    -- "his boss is Karl" / "is the boss of Karl"; "Karl has borrowed it" / "has borrowed it from Karl"
    if v_grammar_a && v_owners and not v_grammar_b && v_owners and (v_markers_b || v_grammar_b) && v_genitive
        or v_grammar_b && v_owners and not v_grammar_a && v_owners and (v_markers_a || v_grammar_a) && v_genitive
        or v_words_a = '{}' and v_words_b = '{}'
        and (v_cases and v_markers_a = v_markers_b or (v_markers_a && v_roles) <> (v_markers_b && v_roles))
        or memfold_internal._guard_is_object_ahead(a, p_marked_a, p_classes_a, b, p_classes_b)
        or memfold_internal._guard_is_object_ahead(b, p_marked_b, p_classes_b, a, p_classes_a)
    then
        return 'order: ' || array_to_string(a[:6], ' ') || ' <> ' || array_to_string(b[:6], ' ');
    end if;
    return null;
end;
$function$;
