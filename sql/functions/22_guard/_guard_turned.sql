-- The guard: what is turned round or moved, where two English texts have all but the same words.

-- This, last or next, where a time follows.
create or replace function memfold_internal._guard_when(tokens text[], classes text[])
returns text[]
language sql
immutable
parallel safe
return array(
    select distinct
        case listed.word when 'previous' then 'last' when 'past' then 'last' when 'coming' then 'next' else listed.word end
        collate "C"
    from unnest(tokens, tokens[2:] || array[null], classes[2:] || array[null]) as listed(word, next_word, next_class)
    where
        listed.word in ('this', 'last', 'next', 'previous', 'past', 'coming') and (
            left(listed.next_class, 1) in ('w', 'm', 'M') or listed.next_word in (
                'week', 'month', 'year', 'quarter', 'weekend', 'spring', 'summer', 'autumn', 'fall', 'winter', 'term', 'semester', 'season',
                'sprint', 'morning', 'afternoon', 'evening', 'night'
            )
        )
    order by 1
);
revoke all on function memfold_internal._guard_when(text[], text[]) from public;

-- The group of a preposition of place: those of one group are near enough to be the same place. Null: it is none.
create or replace function memfold_internal._guard_place(token text)
returns text
language sql
immutable
parallel safe
return case
    when token in ('in', 'inside', 'within') then 'in'
    when token in ('under', 'beneath', 'underneath', 'below') then 'under'
    when token in ('near', 'beside', 'alongside') then 'near'
    when token in ('on', 'behind', 'above', 'outside', 'opposite') then token
end;
revoke all on function memfold_internal._guard_place(text) from public;

-- "Reports to Ida" / "Ida reports to her": what follows the last preposition of a stands at the beginning of b, and a pronoun
-- in its place.
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
        if a[v_at] = b[v_last - 1] and a[v_at] in ('to', 'by', 'from', 'with', 'for') then
            return a[v_at + 1:] = b[:v_end - v_at];
        end if;
    end loop;
    return false;
end;
$function$;
revoke all on function memfold_internal._guard_is_turned(text[], text[]) from public;

create or replace function memfold_internal._guard_turned(
    a text[], a_classes text[], only_a integer[], b text[], b_classes text[], only_b integer[]
)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_persons constant text[] := '{he,him,his,she,her,hers}'::text[];
    v_a text[];
    v_b text[];
    v_place_a text;
    v_place_b text;
begin
    if cardinality(only_a) > 6 or cardinality(only_b) > 6 or cardinality(a) > 40 or cardinality(b) > 40 then
        return null;
    end if;

    v_a := memfold_internal._guard_when(a, a_classes);
    v_b := memfold_internal._guard_when(b, b_classes);
    if v_a <> '{}' and v_b <> '{}' and v_a <> v_b then
        return 'time: ' || array_to_string(v_a, ', ') || ' <> ' || array_to_string(v_b, ', ');
    end if;

    v_place_a := (
        select string_agg(distinct memfold_internal._guard_place(a[p.place]), ', ') from unnest(only_a) as p(place)
    );
    v_place_b := (
        select string_agg(distinct memfold_internal._guard_place(b[p.place]), ', ') from unnest(only_b) as p(place)
    );
    -- in and on are said of the same place, and of what is no place
    if v_place_a <> v_place_b and not (v_place_a in ('in', 'on') and v_place_b in ('in', 'on')) then
        return 'place: ' || v_place_a || ' <> ' || v_place_b;
    end if;

    -- "lent him a book, and her nothing" / "lent her a book, and him nothing"
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
    if ('than' = any(a)) <> ('than' = any(b)) and (cardinality(only_a) = 0 or cardinality(only_b) = 0)
        and cardinality(only_a) + cardinality(only_b) = 1
    then
        return 'order: than';
    elsif array_remove(a, 'by') = b or array_remove(b, 'by') = a then
        return 'order: by';
    elsif memfold_internal._guard_is_turned(a, b) or memfold_internal._guard_is_turned(b, a) then
        return 'order: ' || array_to_string(a[:6], ' ') || ' <> ' || array_to_string(b[:6], ' ');
    end if;
    return null;
end;
$function$;
revoke all on function memfold_internal._guard_turned(text[], text[], integer[], text[], text[], integer[]) from public;
comment on function memfold_internal._guard_turned(text[], text[], integer[], text[], text[], integer[]) is
'What two English texts of nearly the same words turn round: another week, month or year (time), another place by its preposition (place),
two persons exchanged (pronoun), who does and who is done to (order). A signal of the guard, or null. The places are those of the words
that only one of them has.';
