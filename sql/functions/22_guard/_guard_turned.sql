-- The guard: what is reversed or moved, if two English texts have nearly the same words.

-- This, last or next, if a time follows.
create or replace function memfold_internal._guard_when(p_tokens text[], p_classes text[])
returns text[]
language sql
immutable
parallel safe
return array(
    select distinct
        case listed.word when 'previous' then 'last' when 'past' then 'last' when 'coming' then 'next' else listed.word end
        collate "C"
    from unnest(p_tokens, p_tokens[2:] || array[null], p_classes[2:] || array[null]) as listed(word, next_word, next_class)
    where
        listed.word in ('this', 'last', 'next', 'previous', 'past', 'coming') and (
            left(listed.next_class, 1) in ('w', 'm', 'M') or listed.next_word in (
                'week', 'month', 'year', 'quarter', 'weekend', 'spring', 'summer', 'autumn', 'fall', 'winter', 'term', 'semester', 'season',
                'sprint', 'morning', 'afternoon', 'evening', 'night'
            )
        )
    order by 1
);

-- "Reports to Ida" / "Ida reports to her": the words after the last preposition of a are at the beginning of b, with a pronoun in their
-- place.
create or replace function memfold_internal._guard_is_turned(a text[], b text[])
returns boolean
language plpgsql
immutable
parallel safe
as $function$
declare
    v_end constant integer := cardinality(a);
    v_last constant integer := cardinality(b);
begin
    if v_last < 3 or b[v_last] not in ('him', 'her', 'them', 'me', 'us') then
        return false;
    end if;
    for v_at in reverse v_end - 1..greatest(v_end - 5, 1) loop
        if a[v_at] = b[v_last - 1]
            and a[v_at] in ('to', 'by', 'from', 'with', 'for', 'of', 'than', 'about', 'at', 'after', 'before', 'behind', 'against')
        then
            return a[v_at + 1:] = b[:v_end - v_at];
        end if;
    end loop;
    return false;
end;
$function$;

-- "Was recommended by Priya" / "recommended Priya": the same content words in the same order, or forms of them, and grammar that makes
-- one a passive.
create or replace function memfold_internal._guard_is_passive(
    a text[], p_a_classes text[], p_only_a integer[], b text[], p_b_classes text[]
)
returns boolean
language plpgsql
immutable
parallel safe
as $function$
declare
    v_a text[];
    v_b text[];
begin
    if not exists (select from unnest(p_only_a) as o(place) where a[o.place] = 'by' and p_a_classes[o.place + 1] is distinct from 'w') then
        return false;
    end if;
    v_a := array(
        select w.word from unnest(a, p_a_classes) with ordinality as w(word, class, place)
        where w.word <> 'by' and left(w.class, 1) is distinct from 's' order by w.place
    );
    v_b := array(
        select w.word from unnest(b, p_b_classes) with ordinality as w(word, class, place)
        where left(w.class, 1) is distinct from 's' order by w.place
    );
    return cardinality(v_a) = cardinality(v_b) and not exists (
        select from unnest(v_a, v_b) as w(word, other)
        where w.word <> w.other and not memfold_internal._guard_lemmas(w.word) && memfold_internal._guard_lemmas(w.other)
    );
end;
$function$;

-- The reversal between two English texts of nearly the same words: another week, month or year (time), another place by
-- its preposition (place), two persons exchanged (pronoun), who does and who is done to (order). A signal of the guard,
-- or null. The positions are those of the words that only one of them has.
create or replace function memfold_internal._guard_turned(
    a text[], p_a_classes text[], p_only_a integer[], b text[], p_b_classes text[], p_only_b integer[]
)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_persons text[] := '{he,him,his,she,her,hers}'::text[];
    v_me constant text[] := '{i,me,my,mine}'::text[];
    v_you constant text[] := '{you,your,yours}'::text[];
    v_a text[];
    v_b text[];
begin
    if cardinality(p_only_a) > 6 or cardinality(p_only_b) > 6 or cardinality(a) > 40 or cardinality(b) > 40 then
        return null;
    end if;

    v_a := memfold_internal._guard_when(a, p_a_classes);
    v_b := memfold_internal._guard_when(b, p_b_classes);
    if v_a <> '{}' and v_b <> '{}' and v_a <> v_b then
        return 'time: ' || array_to_string(v_a, ', ') || ' <> ' || array_to_string(v_b, ', ');
    end if;

    v_a := array(select a[p.place] from unnest(p_only_a) as p(place));
    v_b := array(select b[p.place] from unnest(p_only_b) as p(place));
    -- "more than" / "as much as"; "two weeks ago" / "in two weeks"
    if 'than' = any(v_a) and 'as' = any(v_b) or 'as' = any(v_a) and 'than' = any(v_b) then
        return 'quantity: than <> as';
    elsif ('or' = any(v_a || v_b) or 'nor' = any(v_a || v_b)) and not (a || b) && array['either', 'whether'] then
        -- another alternative says less, not more
        return 'quantity: or';
    elsif 'ago' = any(v_a) and 'in' = any(v_b) or 'in' = any(v_a) and 'ago' = any(v_b) then
        return 'time: ago <> in';
    end if;

    -- "lent him a book, and her nothing" / "lent her a book, and him nothing"; "I owe you a coffee" / "you owe me a coffee"
    if a && v_me and a && v_you and b && v_me and b && v_you then
        v_persons := v_persons || v_me || v_you;
    end if;
    if a && v_persons and b && v_persons and cardinality(a) = cardinality(b) then
        v_a := array(select case when t.word = any(v_persons) then '_' else t.word end
                     from unnest(a) with ordinality as t(word, place) order by t.place);
        v_b := array(select case when t.word = any(v_persons) then '_' else t.word end
                     from unnest(b) with ordinality as t(word, place) order by t.place);
        if v_a = v_b and a <> b then
            return 'pronoun: ' || array_to_string(array(select unnest(a) intersect select unnest(v_persons) order by 1), ', ')
                || ', in another order';
        end if;
    end if;

    -- "later than Ida" / "Ida came later"; "taught by her" / "taught her"
    if ('than' = any(a)) <> ('than' = any(b)) and (cardinality(p_only_a) = 0 or cardinality(p_only_b) = 0)
        and cardinality(p_only_a) + cardinality(p_only_b) = 1
    then
        return 'order: than';
    elsif array_remove(a, 'by') = b or array_remove(b, 'by') = a then
        return 'order: by';
    elsif memfold_internal._guard_is_turned(a, b) or memfold_internal._guard_is_turned(b, a)
        or memfold_internal._guard_is_passive(a, p_a_classes, p_only_a, b, p_b_classes)
        or memfold_internal._guard_is_passive(b, p_b_classes, p_only_b, a, p_a_classes)
    then
        return 'order: ' || array_to_string(a[:6], ' ') || ' <> ' || array_to_string(b[:6], ' ');
    end if;
    v_a := memfold_internal._guard_markers(a, p_a_classes);
    v_b := memfold_internal._guard_markers(b, p_b_classes);
    return 'relation: ' || memfold_internal._guard_relation_change(a, v_a, b, v_b);
end;
$function$;
