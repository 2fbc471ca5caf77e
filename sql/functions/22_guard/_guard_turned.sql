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

-- The group of a preposition of place: those of one group are close enough to mean the same place. Null: it is not one.
create or replace function memfold_internal._guard_place(p_token text)
returns text
language sql
immutable
parallel safe
return case
    when p_token in ('in', 'inside', 'within') then 'in'
    when p_token in ('under', 'beneath', 'underneath', 'below') then 'under'
    when p_token in ('near', 'beside', 'alongside') then 'near'
    when p_token in ('on', 'behind', 'above', 'outside', 'opposite') then p_token
end;

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

-- "Pays rent to his aunt" / "his aunt pays rent to him": b begins with the words behind the verb of a, the same verb follows, and a
-- pronoun for the subject of a. Or "coaches Lena's team" / "Lena coaches the team".
create or replace function memfold_internal._guard_is_object_first(
    a text[], p_a_classes text[], b text[], p_b_classes text[], p_only_b integer[]
)
returns boolean
language plpgsql
immutable
parallel safe
as $function$
declare
    v_verb integer;
    v_subject text[] := '{}'::text[];
    v_place integer;
begin
    if left(p_b_classes[1], 1) = 'p' or b[1] = a[1] or 'by' = any (a) and 'by' <> all (b)
        -- (few texts have one: the rest need no check)
        or not (b && array['him', 'her', 'them', 'me', 'us'] or '''s' = any (a))
    then
        return false;
    end if;
    -- the same verb, in any form
    select place into v_verb from unnest(b) with ordinality as w (word, place)
    where place > 1 and memfold_internal._guard_lemmas(word) && memfold_internal._guard_lemmas(a[1])
    order by place
    limit 1;
    for v_at in 1..coalesce(v_verb, 0) - 1 loop
        if coalesce(left(p_b_classes[v_at], 1) not in ('s', '&', 'p'), true) then
            v_subject := v_subject || b[v_at];
        end if;
    end loop;
    if v_subject = '{}' or not v_subject <@ a[2:] then
        return false;
    end if;
    v_place := array_position(a, v_subject[cardinality(v_subject)]);
    return a[1] not in ('is', 'was') and a[v_place + 1] = '''s' and b[v_verb - 1] <> '''s'
        or exists (
            select from unnest(p_only_b) as o (place)
            where o.place > v_verb and b[o.place] in ('him', 'her', 'them', 'me', 'us')
                -- (her cousin)
                and (b[o.place] <> 'her' or left(p_b_classes[o.place + 1], 1) in ('s', 'p', '&') or o.place = cardinality(b))
        );
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

-- The preposition before a word, skipping its article, or an empty text.
create or replace function memfold_internal._guard_marker(p_tokens text[], p_classes text[], p_place integer)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_at integer := p_place - 1;
begin
    while left(p_classes[v_at], 1) in ('s', '&') and p_tokens[v_at] <> '.' loop
        -- the parts of a list share a preposition
        v_at := v_at - case when left(p_classes[v_at], 1) = '&' then 2 else 1 end;
    end loop;
    return case
        when left(p_classes[v_at], 1) is distinct from 'p' then ''
        when p_tokens[v_at] in ('than', 'over') then 'to'
        else p_tokens[v_at]
    end;
end;
$function$;

-- "Switched from bus to bike" / "went from bike to bus": two words that both texts have, each after the preposition that the other one
-- follows in the other text. Null: there are none.
create or replace function memfold_internal._guard_swapped(a text[], p_a_classes text[], b text[], p_b_classes text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_words text[] := '{}'::text[];
    v_a text[] := '{}'::text[];
    v_b text[] := '{}'::text[];
    v_place integer;
begin
    for v_at in 1..cardinality(a) loop
        v_place := array_position(b, a[v_at]);
        if p_a_classes[v_at] is null and v_place is not null and cardinality(v_words) < 12 then
            v_words := v_words || a[v_at];
            v_a := v_a || memfold_internal._guard_marker(a, p_a_classes, v_at);
            v_b := v_b || memfold_internal._guard_marker(b, p_b_classes, v_place);
        end if;
    end loop;
    for v_at in 1..cardinality(v_words) loop
        for v_other in v_at + 1..cardinality(v_words) loop
            if v_a[v_at] <> v_a[v_other] and array[v_a[v_at], v_a[v_other]] && array['to', 'from', 'by', 'for', 'with']
                and v_a[v_at] = v_b[v_other] and v_a[v_other] = v_b[v_at] then
                return v_words[v_at] || ' <> ' || v_words[v_other];
            end if;
        end loop;
    end loop;
    return null;
end;
$function$;

-- "His boss is Omar" / "is Omar's boss": a possessive in one text, a genitive in the other, unless the relation is mutual.
create or replace function memfold_internal._guard_is_owner(a text[], p_only_a integer[], b text[], p_only_b integer[])
returns boolean
language sql
immutable
parallel safe
return a && array['is', 'was'] and b && array['is', 'was']
and not a && array[
    'cousin', 'friend', 'neighbour', 'neighbor', 'colleague', 'coworker', 'sibling', 'partner', 'spouse', 'roommate',
    'flatmate', 'classmate', 'twin'
]
and exists (select from unnest(p_only_a) as o (place) where a[o.place] in ('his', 'her', 'their', 'my', 'our'))
and exists (
    select from unnest(p_only_b) as o (place)
    where b[o.place] = '''s' and b[o.place - 1] = any (a) or b[o.place] = 'of' and b[o.place + 1] = any (a)
)
and not exists (select from unnest(p_only_a) as o (place) where a[o.place] in ('''s', 'of'))
and not exists (select from unnest(p_only_b) as o (place) where b[o.place] in ('his', 'her', 'their', 'my', 'our'));

-- How a text relates to the days, months and years in it: until then, from then on, then. In alphabetical order.
create or replace function memfold_internal._guard_bounds(p_tokens text[], p_classes text[])
returns text[]
language sql
immutable
parallel safe
return array(
    select distinct
        case
            when listed.word in ('until', 'till', 'before', 'by') then 'until'
            when listed.word in ('since', 'from', 'after') then 'since'
            else 'on'
        end collate "C"
    from unnest(p_tokens, p_tokens[2:] || array[null], p_classes[2:] || array[null]) as listed(word, next_word, next_class)
    where
        listed.word in ('until', 'till', 'before', 'by', 'since', 'from', 'after', 'on', 'in', 'at')
        and (left(listed.next_class, 1) in ('w', 'm', 'M') or listed.next_word collate "C" ~ '^(?:1[89]|20)[0-9][0-9]$')
    order by 1
);

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
    v_place_a text;
    v_place_b text;
begin
    if cardinality(p_only_a) > 6 or cardinality(p_only_b) > 6 or cardinality(a) > 40 or cardinality(b) > 40 then
        return null;
    end if;

    v_a := memfold_internal._guard_when(a, p_a_classes);
    v_b := memfold_internal._guard_when(b, p_b_classes);
    if v_a <> '{}' and v_b <> '{}' and v_a <> v_b then
        return 'time: ' || array_to_string(v_a, ', ') || ' <> ' || array_to_string(v_b, ', ');
    end if;

    v_a := memfold_internal._guard_bounds(a, p_a_classes);
    v_b := memfold_internal._guard_bounds(b, p_b_classes);
    if v_a <> '{}' and v_b <> '{}' and v_a <> v_b then
        return 'time: ' || array_to_string(v_a, ', ') || ' <> ' || array_to_string(v_b, ', ');
    end if;

    v_a := array(select a[p.place] from unnest(p_only_a) as p(place));
    v_b := array(select b[p.place] from unnest(p_only_b) as p(place));
    -- "more than" / "as much as"; "two weeks ago" / "in two weeks"
    if 'than' = any(v_a) and 'as' = any(v_b) or 'as' = any(v_a) and 'than' = any(v_b) then
        return 'quantity: than <> as';
    elsif 'ago' = any(v_a) and 'in' = any(v_b) or 'in' = any(v_a) and 'ago' = any(v_b) then
        return 'time: ago <> in';
    elsif 'to' = any(v_a) and 'from' = any(v_b) and 'from' <> all(v_a) and 'to' <> all(v_b)
        or 'from' = any(v_a) and 'to' = any(v_b) and 'to' <> all(v_a) and 'from' <> all(v_b)
    then
        return 'place: from <> to';
    end if;

    v_place_a := (
        select string_agg(distinct memfold_internal._guard_place(a[p.place]), ', ') from unnest(p_only_a) as p(place)
    );
    v_place_b := (
        select string_agg(distinct memfold_internal._guard_place(b[p.place]), ', ') from unnest(p_only_b) as p(place)
    );
    -- in and on are used for the same place, and for things that are not places
    if v_place_a <> v_place_b and not (v_place_a in ('in', 'on') and v_place_b in ('in', 'on')) then
        return 'place: ' || v_place_a || ' <> ' || v_place_b;
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
        or memfold_internal._guard_is_object_first(a, p_a_classes, b, p_b_classes, p_only_b)
        or memfold_internal._guard_is_object_first(b, p_b_classes, a, p_a_classes, p_only_a)
        or memfold_internal._guard_is_passive(a, p_a_classes, p_only_a, b, p_b_classes)
        or memfold_internal._guard_is_passive(b, p_b_classes, p_only_b, a, p_a_classes)
        or memfold_internal._guard_is_owner(a, p_only_a, b, p_only_b)
        or memfold_internal._guard_is_owner(b, p_only_b, a, p_only_a)
    then
        return 'order: ' || array_to_string(a[:6], ' ') || ' <> ' || array_to_string(b[:6], ' ');
    end if;
    return 'order: ' || memfold_internal._guard_swapped(a, p_a_classes, b, p_b_classes);
end;
$function$;
