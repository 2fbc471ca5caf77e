-- The guard: whom a text is about, if the other text says all the rest.

-- The person whom text a is about, if text b adds nothing and is not about them, as a signal of the guard (pronoun), or null: a person
-- named at its beginning ("his sister works here"), or the owner of a thing or relative. Call it both ways.
create or replace function memfold_internal._guard_subject(
    a text[], p_marked_a text[], p_classes_a text[], p_only_a integer[], p_classes_b text[], p_only_b integer[]
)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_place integer;
    v_is_first boolean := true;
begin
    -- "his sister works here" / "works here": another person, before everything that both say
    if cardinality(p_only_b) < 3 and not exists (
        select from unnest(p_only_b) as o (place) where coalesce(left(p_classes_b[o.place], 1) not in ('s', '&', 'p'), true)
    ) then
        foreach v_place in array p_only_a loop
            -- "his sister's boss works here" / "his sister works here", "feeds his neighbour's cat" / "feeds his cat"
            if a[v_place] = '''s' and (v_place + 1 = any (p_only_a) or memfold_internal._guard_persons() ? a[v_place - 1])
                and a[v_place - 1] not in ('he', 'she', 'it', 'that', 'there', 'here', 'what', 'who', 'let')
            then
                return format('pronoun: %s''s %s', a[v_place - 1], a[v_place + 1]);
            end if;
            if memfold_internal._guard_persons() ? a[v_place] then
                exit when v_place > 5;
                select not exists (
                    select from generate_series(1, v_place - 1) as p (place)
                    where coalesce(left(p_classes_a[p.place], 1) not in ('s', '&'), true) and p.place <> all (p_only_a)
                ) into v_is_first;
                -- (but "his sister Ann works here" is "Ann works here"; su is a preposition in Italian)
                if v_is_first and p_marked_a[v_place + 1] = a[v_place + 1] and (left(p_classes_a[1], 1) is distinct from 'p'
                    or a[1] = 'su') then
                    return 'pronoun: ' || a[v_place];
                end if;
            end if;
        end loop;
    end if;
    return null;
end;
$function$;
