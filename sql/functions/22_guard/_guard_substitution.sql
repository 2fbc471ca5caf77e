-- The guard's rule of substitutions: two English texts of nearly the same words, with a few exchanged, say the same only if the
-- exchanged words are known to mean about the same (memfold.lexicon).

-- The words that an English word may be a regular form of, itself first; most of them do not exist.
create or replace function memfold_internal._guard_lemmas(p_word text)
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_word constant text collate "C" := p_word;
    v_endings constant text[] := '{s,es,ies,ves,ves,ed,ed,ied,ing,ing,er,er,ier,est,est,iest}'::text[];
    v_instead constant text[] := '{"","",y,f,fe,"",e,y,"",e,"",e,y,"",e,y}'::text[];
    v_lemmas text[] := array[v_word];
    v_stem text collate "C";
begin
    if right(v_word, 1) not in ('s', 'd', 'g', 'r', 't') then
        return v_lemmas;
    end if;
    for v_place in 1..16 loop
        v_stem := left(v_word, -length(v_endings[v_place]));
        if v_stem || v_endings[v_place] = v_word and length(v_stem) > 2 then
            v_lemmas := v_lemmas || (v_stem || v_instead[v_place]);
            -- "planned"
            if v_instead[v_place] = '' and v_endings[v_place] in ('ed', 'ing', 'er', 'est')
                and right(v_stem, 1) = left(right(v_stem, 2), 1)
            then
                v_lemmas := v_lemmas || left(v_stem, -1);
            end if;
        end if;
    end loop;
    return v_lemmas;
end;
$function$;

-- Whether two words of six letters or more are one edit apart: one extra letter, one different letter, or two neighbours
-- swapped.
create or replace function memfold_internal._guard_is_slip(p_word text, p_other text)
returns boolean
language plpgsql
immutable
parallel safe
as $function$
declare
    v_word constant text collate "C" := p_word;
    v_other constant text collate "C" := p_other;
    v_equal integer := 0;
    v_shorter constant integer := least(length(p_word), length(p_other));
    v_longer constant integer := greatest(length(p_word), length(p_other));
begin
    if v_shorter < 6 or v_longer - v_shorter > 1 then
        return false;
    end if;
    while v_equal < v_shorter and substr(v_word, v_equal + 1, 1) = substr(v_other, v_equal + 1, 1) loop
        v_equal := v_equal + 1;
    end loop;
    return case
        when length(v_word) > length(v_other) then substr(v_word, v_equal + 2) = substr(v_other, v_equal + 1)
        when length(v_word) < length(v_other) then substr(v_word, v_equal + 1) = substr(v_other, v_equal + 2)
        else substr(v_word, v_equal + 2) = substr(v_other, v_equal + 2)
            or substr(v_word, v_equal + 3) = substr(v_other, v_equal + 3)
            and substr(v_word, v_equal + 1, 1) = substr(v_other, v_equal + 2, 1)
            and substr(v_word, v_equal + 2, 1) = substr(v_other, v_equal + 1, 1)
    end;
end;
$function$;

-- The signal "substitution: x <> y" if content words are exchanged that by the lexicon do not mean about the same; null
-- if they do, and if none or more than three are exchanged. For each text, in English: its words (_guard_text), their
-- classes (_guard_classes) and the positions of those that only it has.
create or replace function memfold_internal._guard_substitution(
    a text[], p_classes_a text[], p_only_a integer[], b text[], p_classes_b text[], p_only_b integer[]
)
returns text
language plpgsql
stable
parallel safe
as $function$
declare
    v_words_a text[] := '{}'::text[];
    v_words_b text[] := '{}'::text[];
    v_said_a text[] := '{}'::text[];
    v_said_b text[] := '{}'::text[];
    v_places_a integer[] := '{}'::integer[];
    v_places_b integer[] := '{}'::integer[];
    v_place integer;
    v_pairs integer[];
    v_signal text;
    -- classes that other parts of the guard read: grammar, prepositions, conjunctions, negations
    v_elsewhere constant text[] := '{s,p,&,n,q,N}'::text[];
begin
    -- the exchanged words: content words
    foreach v_place in array p_only_a loop
        if coalesce(left(p_classes_a[v_place], 1) <> all (v_elsewhere), true) and a[v_place] !~ '[0-9]' then
            v_words_a := v_words_a || a[v_place];
            v_said_a := v_said_a || nullif(p_classes_a[v_place], 'S');
            v_places_a := v_places_a || v_place;
        end if;
    end loop;
    foreach v_place in array p_only_b loop
        if coalesce(left(p_classes_b[v_place], 1) <> all (v_elsewhere), true) and b[v_place] !~ '[0-9]' then
            v_words_b := v_words_b || b[v_place];
            v_said_b := v_said_b || nullif(p_classes_b[v_place], 'S');
            v_places_b := v_places_b || v_place;
        end if;
    end loop;
    if cardinality(v_words_a) not between 1 and 3 or cardinality(v_words_b) not between 1 and 3 then
        return null;
    end if;
    -- "e-mail", "email"
    if array_to_string(a, '') = array_to_string(b, '') then
        return null;
    end if;

    -- pairs that mean about the same: position in one text * 4 + position in the other
    with stated as materialized (
        select listed.side, listed.place::integer as place, listed.word, listed.class,
            memfold_internal._guard_lemmas(listed.word) as lemmas
        from (
            select 1, w.* from unnest(v_words_a, v_said_a) with ordinality as w
            union all
            select 2, w.* from unnest(v_words_b, v_said_b) with ordinality as w
        ) as listed(side, word, class, place)
    ), known as materialized (
        select stated.side, stated.place, entry.senses, entry.near, entry.opposites
        from stated
        cross join lateral (
            select l.senses, l.near, l.opposites from memfold.lexicon as l where l.word = any (stated.lemmas) offset 0
        ) as entry
    )
    select coalesce(array_agg(found.pair), '{}') into v_pairs
    from (
        select one.place * 4 + other.place
        from stated as one
        join stated as other on one.side = 1 and other.side = 2
        where one.lemmas && other.lemmas or one.class = other.class
            or memfold_internal._guard_is_slip(one.word, other.word)
            and (not exists (select from known as k where k.side = 1 and k.place = one.place)
                 or not exists (select from known as k where k.side = 2 and k.place = other.place))
        union
        select one.place * 4 + other.place
        from known as one
        join known as other on one.side = 1 and other.side = 2
        where one.senses && other.senses or one.senses && other.near or one.near && other.senses
        group by one.place, other.place
        having not bool_or(coalesce(one.opposites && other.senses or one.senses && other.opposites, false))
    ) as found(pair);
    -- each word of the text that has fewer is paired with one of the other
    if (case least(cardinality(v_words_a), cardinality(v_words_b))
            when 1 then v_pairs <> '{}'
            when 2 then exists (
                select from unnest(v_pairs) as x(pair), unnest(v_pairs) as y(pair)
                where x.pair / 4 <> y.pair / 4 and x.pair % 4 <> y.pair % 4)
            else exists (
                select from unnest(v_pairs) as x(pair), unnest(v_pairs) as y(pair), unnest(v_pairs) as z(pair)
                where x.pair / 4 = 1 and y.pair / 4 = 2 and z.pair / 4 = 3
                    and x.pair % 4 <> y.pair % 4 and x.pair % 4 <> z.pair % 4 and y.pair % 4 <> z.pair % 4)
        end)
    then
        return null;
    end if;
    -- and a word without a partner is in the same place: both texts have the same word before it, or after it. "Works well for cups"
    -- and "works for small cups" each say something more
    select format('substitution: %s <> %s', one.word, other.word) into v_signal
    from (
        select w.*,
            (select max(i) from generate_series(0, w.at - 1) as x(i) where i <> all (p_only_a)) as before,
            (select min(i) from generate_series(w.at + 1, cardinality(a) + 1) as x(i) where i <> all (p_only_a)) as after
        from unnest(v_words_a, v_places_a) with ordinality as w(word, at, place)
    ) as one
    join (
        select w.*,
            (select max(i) from generate_series(0, w.at - 1) as x(i) where i <> all (p_only_b)) as before,
            (select min(i) from generate_series(w.at + 1, cardinality(b) + 1) as x(i) where i <> all (p_only_b)) as after
        from unnest(v_words_b, v_places_b) with ordinality as w(word, at, place)
    ) as other
        on coalesce(a[one.before], '') = coalesce(b[other.before], '') or coalesce(a[one.after], '') = coalesce(b[other.after], '')
    where one.place * 4 + other.place <> all (v_pairs)
    order by (select count(*) from unnest(v_pairs) as x(pair) where x.pair / 4 = one.place or x.pair % 4 = other.place),
        one.place, other.place
    limit 1;
    return v_signal;
end;
$function$;
