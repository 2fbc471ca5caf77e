-- The guard: what words say about time, mode, quantity and person (class f of _lexicon), and where two texts differ in it.

-- One word -> what it says: alternatives separated by '|', of which the first with a matching context applies. An alternative is a list
-- of facets separated by '+', and its context behind '>' (what follows) or '<' (what precedes). A facet is its letter; '!' if the word
-- alone makes a difference, '.' if only another one of the same facet does; and letters for its meanings. Two texts agree if they have
-- one of these letters in common. Folded to a constant when a caller is planned.
create or replace function memfold_internal._guard_sayings()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(listed.word, listed.value)
    from memfold_internal._lexicon() as listed
    where listed.class = 'f';
end;

-- Whether there is a number at a position.
create or replace function memfold_internal._guard_is_number(p_token text, p_class text)
returns boolean
language sql
immutable
parallel safe
return coalesce(left(p_class, 1) in ('#', '~', '*', '$') or p_token collate "C" ~ '^[-+]?[0-9]', false);

-- What the words at these positions say: for each facet of 'tmqbSOPn' its letters, then for each of them '!' if a word alone makes a
-- difference; null if they say nothing.
create or replace function memfold_internal._guard_says(p_tokens text[], p_classes text[], p_places integer[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_said text[];
    v_nothing constant text[] := '{"","","","","","","","","","","","","","","",""}'::text[];
    v_facet text collate "C";
    v_number integer;
    v_value text collate "C";
    v_alternative text collate "C";
    v_context text collate "C";
    v_next text collate "C";
    v_before text collate "C";
    v_place integer;
    v_at integer;
    v_fits boolean;
begin
    foreach v_place in array p_places loop
        v_value := memfold_internal._guard_sayings() ->> p_tokens[v_place];
        continue when v_value is null;
        foreach v_alternative in array string_to_array(v_value, '|') loop
            v_at := strpos(translate(v_alternative, '<', '>'), '>');
            if v_at = 0 then
                v_fits := true;
            else
                v_context := substr(v_alternative, v_at + 1);
                v_next := p_tokens[v_place + 1];
                v_before := p_tokens[v_place - 1];
                if substr(v_alternative, v_at, 1) = '<' then
                    v_fits := case v_context
                        when '#' then memfold_internal._guard_is_number(v_before, p_classes[v_place - 1])
                        when 'be' then v_before in ('is', 'are', 'am', 'was', 'were', 'be', 'been', 'still', 'also',
                            'now', 'currently', 'seriously')
                        when 'as_a' then v_before = 'a' and p_tokens[v_place - 2] = 'as'
                        else v_before = v_context end;
                else
                    v_fits := case v_context
                        when '#' then memfold_internal._guard_is_number(v_next, p_classes[v_place + 1])
                        when 'than#' then v_next = 'than'
                            and memfold_internal._guard_is_number(p_tokens[v_place + 2], p_classes[v_place + 2])
                        when 'to#' then v_next = 'to'
                            and memfold_internal._guard_is_number(p_tokens[v_place + 2], p_classes[v_place + 2])
                        -- a content word, which follows in "her dog" but not in "sees her"
                        when 'word' then v_next is not null and coalesce(left(p_classes[v_place + 1], 1), 'S') not in
                            ('s', 'p', '&', 'n', 'N')
                        when 'kin' then memfold_internal._guard_persons() ? v_next
                        -- "is used to" has another meaning
                        when 'used' then v_next = 'to' and (v_before is null or v_before not in
                            ('is', 'are', 'am', 'was', 'were', 'be', 'been', 'being', 'get', 'gets', 'got', 'not', 'often'))
                        else v_next = v_context end;
                end if;
                v_alternative := left(v_alternative, v_at - 1);
            end if;
            if v_fits then
                if v_said is null then
                    v_said := v_nothing;
                end if;
                foreach v_facet in array string_to_array(v_alternative, '+') loop
                    v_number := strpos('tmqbSOPn', left(v_facet, 1));
                    v_said[v_number] := v_said[v_number] || substr(v_facet, 3);
                    if substr(v_facet, 2, 1) = '!' then
                        v_said[v_number + 8] := '!';
                    end if;
                end loop;
                exit;
            end if;
        end loop;
    end loop;
    return v_said;
end;
$function$;

-- Whether a word at one of these positions has this ending.
create or replace function memfold_internal._guard_ends(p_tokens text[], p_places integer[], p_ending text)
returns boolean
language sql
immutable
parallel safe
return exists (
    select 1 from unnest(p_places) as listed(place) where right(p_tokens[listed.place], length(p_ending)) = p_ending
);

-- The words at these positions that may express one of these facets, or null.
create or replace function memfold_internal._guard_sayers(p_tokens text[], p_places integer[], p_facets text)
returns text
language sql
immutable
parallel safe
return (
    select string_agg(p_tokens[listed.place], ', ')
    from unnest(p_places) as listed(place)
    where memfold_internal._guard_sayings() ->> p_tokens[listed.place] ~ ('(?:^|[|+])[' || p_facets || ']')
);

-- The differences between two texts, as signals. The positions are those of the words that only one text has; is_close says that they
-- differ in little else.
create or replace function memfold_internal._guard_saying_change(
    a text[], p_a_classes text[], p_a_places integer[], b text[], p_b_classes text[], p_b_places integer[], p_is_close boolean
)
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_signals text[] := '{}'::text[];
    v_a text[] := memfold_internal._guard_says(a, p_a_classes, p_a_places);
    v_b text[] := memfold_internal._guard_says(b, p_b_classes, p_b_places);
    v_kinds constant text[] := '{tense,mode,quantity,quantity,pronoun,pronoun,pronoun,negation}'::text[];
    v_differs boolean;
begin
    if v_a is null and v_b is null or not '!' = any (v_a || v_b) and (v_a is null or v_b is null) then
        return v_signals;
    end if;
    v_a := coalesce(v_a, array_fill(''::text, array[16]));
    v_b := coalesce(v_b, array_fill(''::text, array[16]));
    for v_at in 1..8 loop
        continue when v_a[v_at] = v_b[v_at];
        if v_a[v_at] <> '' and v_b[v_at] <> '' then
            -- in a different sentence a different tense means little
            v_differs := translate(v_a[v_at], v_b[v_at], '') = v_a[v_at]
                and (p_is_close or v_at > 2 or v_a[v_at + 8] || v_b[v_at + 8] <> '');
        else
            v_differs := v_a[v_at + 8] || v_b[v_at + 8] <> '';
            if v_differs and v_at = 1 then
                v_differs := (p_is_close or translate(v_a[1] || v_b[1], 'f', '') <> '')
                    -- "used to live" / "lived"
                    and not (translate(v_a[1] || v_b[1], 'p', '') = '' and case when v_a[1] = ''
                        then memfold_internal._guard_ends(a, p_a_places, 'ed') else memfold_internal._guard_ends(b, p_b_places, 'ed') end);
            end if;
        end if;
        if v_differs then
            v_signals := v_signals || (v_kinds[v_at] || ': ' || concat_ws(' <> ',
                memfold_internal._guard_sayers(a, p_a_places, substr('tmqbSOPn', v_at, 1)),
                memfold_internal._guard_sayers(b, p_b_places, substr('tmqbSOPn', v_at, 1))));
        end if;
    end loop;

    -- "pays rent to her" / "she pays rent": the same person, the subject of one text only, not of a passive
    if v_signals = '{}' and v_a[5] || v_b[5] <> '' and v_a[6] || v_b[6] <> ''
        and (v_a[5] || v_b[6] = '' or v_b[5] || v_a[6] = '')
        and translate(v_a[5] || v_b[5], v_a[6] || v_b[6], '') <> v_a[5] || v_b[5]
        and 'by' <> all (a) and 'by' <> all (b)
    then
        v_signals := v_signals || ('pronoun: ' || concat_ws(' <> ',
            memfold_internal._guard_sayers(a, p_a_places, 'SO'), memfold_internal._guard_sayers(b, p_b_places, 'SO')));
    end if;
    return v_signals;
end;
$function$;

-- Irregular past forms, with their present. Folded to a constant when a caller is planned.
create or replace function memfold_internal._guard_pasts()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(listed.word, listed.value)
    from memfold_internal._lexicon() as listed
    where listed.class = 'v';
end;

-- Whether a word is the past form of another one: lived / lives, studied / study, went / goes.
create or replace function memfold_internal._guard_is_past(p_past text, p_present text)
returns boolean
language plpgsql
immutable
parallel safe
as $function$
declare
    v_base constant text := memfold_internal._guard_pasts() ->> p_past;
begin
    if v_base is not null then
        return p_present in (v_base, v_base || 's', v_base || 'es', left(v_base, -1) || 'ies');
    end if;
    return right(p_past, 2) = 'ed' and (
        left(p_past, -2) in (p_present, left(p_present, -1)) or left(p_past, -1) in (p_present, left(p_present, -1))
        or right(p_past, 3) = 'ied' and p_present in (left(p_past, -3) || 'y', left(p_past, -3) || 'ies'))
        and right(p_present, 2) <> 'ed' and (length(p_present) < length(p_past) or right(p_present, 1) = 's');
end;
$function$;

-- The first of these words of one text that is the past form of one of the other's, as a signal, or null. "Is kept", "has lived" and
-- "passed by" do not count.
create or replace function memfold_internal._guard_tense_change(p_words_a text[], a text[], p_words_b text[], b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_be constant text[] := '{is,are,am}'::text[];
    v_is_single constant boolean := cardinality(p_words_a) = 1 and cardinality(p_words_b) = 1;
    v_verbs constant text[] := '{is,are,am,was,were,be,been,being,has,have,had,gets,got,by}'::text[];
    v_one text;
    v_other text;
begin
    foreach v_one in array p_words_a loop
        foreach v_other in array p_words_b loop
            if not a && v_verbs and (
                    memfold_internal._guard_is_past(v_one, v_other) and (right(v_other, 1) = 's' or v_is_single)
                    or b && v_be and right(v_other, 3) = 'ing' and memfold_internal._guard_is_past(v_one, left(v_other, -3)))
                or not b && v_verbs and (
                    memfold_internal._guard_is_past(v_other, v_one) and (right(v_one, 1) = 's' or v_is_single)
                    or a && v_be and right(v_one, 3) = 'ing' and memfold_internal._guard_is_past(v_other, left(v_one, -3)))
            then
                return 'tense: ' || v_one || ' <> ' || v_other;
            end if;
        end loop;
    end loop;
    return null;
end;
$function$;
