-- The guard: how the words of a text are related, as far as prepositions and connectives show it.

-- English prepositions and connectives, each with the letters of the groups to which it belongs: two that share a letter
-- may stand for each other. Folded to a constant when a caller is planned.
create or replace function memfold_internal._guard_small_words()
returns jsonb
language sql
immutable
parallel safe
return '{
"in": "acj", "at": "ack", "on": "acl", "within": "a", "inside": "a", "into": "ab", "onto": "a", "upon": "a", "during": "am", "of": "ahijl",
"to": "bgn", "toward": "b", "towards": "b", "over": "gq", "than": "go", "across": "cq", "around": "qA", "above": "q", "for": "hmn",
"with": "i", "from": "jrs", "by": "ktu", "near": "k", "close": "k", "next": "k", "beside": "k", "alongside": "k", "about": "lA",
"through": "t", "via": "t", "between": "s", "out": "r", "off": "r", "outside": "r", "under": "v", "below": "v", "beneath": "v",
"underneath": "v", "until": "w", "till": "w", "because": "x", "since": "x", "so": "x", "as": "oxy", "like": "o", "while": "yz",
"when": "y", "whenever": "y", "once": "y", "if": "y", "although": "z", "though": "z", "despite": "z", "but": "z", "even": "z",
"regardless": "z", "after": "", "against": "", "before": "", "behind": "", "beyond": "", "opposite": "", "except": "", "instead": "",
"rather": "o", "unless": "", "without": "", "past": "", "along": "", "per": "", "unlike": "", "up": "", "down": ""
}'::jsonb;

-- The small word (_guard_small_words) before each content word of a text, '' if there is none, null for all other
-- words. The parts of a list ("with Ann, Bob and Carol") share it.
create or replace function memfold_internal._guard_markers(p_tokens text[], p_classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_markers text[] := array_fill(null::text, array[cardinality(p_tokens)]);
    v_words constant jsonb := memfold_internal._guard_small_words();
    v_class text;
    v_before text := '';
    v_marker text := '';
    v_last text := '';
begin
    for v_at in 1..cardinality(p_tokens) loop
        v_class := coalesce(left(p_classes[v_at], 1), '');
        if v_words ? p_tokens[v_at] then
            -- the first word of "close to", "because of", "instead of", "even if"
            v_marker := case
                when p_tokens[v_at] in ('of', 'to') and v_before in ('close', 'next', 'because', 'instead', 'out', 'regardless', 'rather')
                    or p_tokens[v_at] in ('if', 'though') and v_before = 'even' then v_before
                else p_tokens[v_at] end;
        elsif v_class = '&' then
            v_marker := v_last;
        elsif p_tokens[v_at] = '.' then
            v_marker := '';
        elsif v_class not in ('s', 'n', 'q') then
            v_markers[v_at] := v_marker;
            v_last := v_marker;
            v_marker := '';
        end if;
        v_before := p_tokens[v_at];
    end loop;
    return v_markers;
end;
$function$;

-- The first content word that two English texts have in different relations, as a signal: after small words that may not
-- stand for each other, where what precedes is the same ("sent to Laura", "sent by Laura"), or two words that exchange
-- them ("from bus to bike", "from bike to bus"). Null: there is none.
create or replace function memfold_internal._guard_relation_change(a text[], p_markers_a text[], b text[], p_markers_b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_words constant jsonb := memfold_internal._guard_small_words();
    v_changed text[] := '{}'::text[];
    v_place integer;
    v_one text;
    v_other text;
    v_before_a text;
    v_before_b text;
begin
    for v_at in 1..cardinality(a) loop
        continue when p_markers_a[v_at] is null;
        v_place := array_position(b, a[v_at]);
        v_one := v_words ->> p_markers_a[v_at];
        v_other := v_words ->> p_markers_b[v_place];
        if p_markers_a[v_at] <> p_markers_b[v_place] and (translate(v_one, v_other, '') <> v_one and v_one <> '') is not true
            and cardinality(array_positions(a, a[v_at])) = 1 and cardinality(array_positions(b, a[v_at])) = 1
        then
            if (p_markers_b[v_place] || ' ' || p_markers_a[v_at]) = any (v_changed) then
                return format('%s <> %s', p_markers_a[v_at], p_markers_b[v_place]);
            end if;
            -- If one side has no small word, only one that shows who does what to whom counts.
            if p_markers_a[v_at] <> '' and p_markers_b[v_place] <> '' or array[p_markers_a[v_at], p_markers_b[v_place]] && array['to', 'from', 'by', 'for', 'with'] then
                v_changed := v_changed || (p_markers_a[v_at] || ' ' || p_markers_b[v_place]);
            end if;
            select b[max(p.place)] into v_before_b from generate_series(1, v_place - 1) as p (place) where p_markers_b[p.place] is not null;
            if p_markers_a[v_at] <> '' and p_markers_b[v_place] <> ''
                and (v_before_a is not distinct from v_before_b
                    or memfold_internal._guard_lemmas(v_before_a) && memfold_internal._guard_lemmas(v_before_b))
                and p_markers_a[v_at] <> all (array_remove(p_markers_b, null)) and p_markers_b[v_place] <> all (array_remove(p_markers_a, null))
            then
                return format('%s %s <> %s %s', p_markers_a[v_at], a[v_at], p_markers_b[v_place], a[v_at]);
            end if;
        end if;
        v_before_a := a[v_at];
    end loop;
    return null;
end;
$function$;
