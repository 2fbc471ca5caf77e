-- The guard's names, the order of words, and prefixes that reverse a word.

-- The words between conjunctions and commas, in a fixed order.
create or replace function memfold_internal._guard_parts(p_tokens text[], p_joints text[])
returns text[]
language sql
immutable
parallel safe
begin atomic
    select array_agg(parts.part order by parts.part)
    from (
        select string_agg(listed.token, ' ' order by listed.place) collate "C" as part
        from (
            select unnested.token, unnested.place,
                count(*) filter (where unnested.token = any (p_joints)) over (order by unnested.place) as number
            from unnest(p_tokens) with ordinality as unnested(token, place)
        ) as listed
        where listed.token <> all (p_joints)
        group by listed.number
    ) as parts;
end;

-- The same words in another order: the words that changed places, or null if only one phrase moved ("tomorrow I fly" / "I fly
-- tomorrow") or only the parts of a list did ("tea and milk" / "milk and tea").
create or replace function memfold_internal._guard_order(a text[], p_a_classes text[], b text[], p_b_classes text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_a text[] := '{}'::text[];
    v_b text[] := '{}'::text[];
    v_length integer;
    v_from integer := 1;
    v_tried integer := 0;
    v_class text collate "C";
    v_whole_a text[];
    v_whole_b text[];
    v_markers constant text[] := '{am,im,um,zum,zur,in,an,auf,bei,beim,mit,nach,vor,seit,von,vom,aus,für,während,wegen,
        at,on,op,om}'::text[];
    v_focus constant text[] := '{not,no,never,only,just,nicht,nur,nie,pas,seulement,solo,sólo,non,mai,não,só,не,
        только}'::text[];
    v_joints constant text[] := '{and,or,nor,&,",",plus,und,oder,sowie,et,ou,y,e,u,o,ed,и,или,和,与,與,跟,及,或,と,や}'::text[];
begin
    -- grammar is not content; single words joined by conjunctions or commas are sorted
    for v_place in 1..cardinality(a) loop
        v_class := left(p_a_classes[v_place], 1);
        if v_class is null or v_class <> 's' then
            v_a := v_a || a[v_place];
        end if;
    end loop;
    for v_place in 1..cardinality(b) loop
        v_class := left(p_b_classes[v_place], 1);
        if v_class is null or v_class <> 's' then
            v_b := v_b || b[v_place];
        end if;
    end loop;
    v_length := cardinality(v_a);
    if v_a = v_b or v_length <> cardinality(v_b) then
        return null;
    end if;
    v_whole_a := v_a;
    v_whole_b := v_b;
    while v_a[v_from] = v_b[v_from] loop
        v_from := v_from + 1;
    end loop;
    while v_a[v_length] = v_b[v_length] loop
        v_length := v_length - 1;
    end loop;
    v_a := v_a[v_from:v_length];
    v_b := v_b[v_from:v_length];
    v_length := cardinality(v_a);
    if array(select listed.word from unnest(v_a) as listed(word) order by listed.word collate "C")
        <> array(select listed.word from unnest(v_b) as listed(word) order by listed.word collate "C")
    then
        return null;
    end if;

    -- one phrase moved over another: the second text is a rotation of the first, unless what moved only negates (of a repeated word
    -- only the first positions are tried: each try reads the whole text)
    for v_place in 1..v_length - 1 loop
        if v_b[1] = v_a[v_place + 1] then
            v_tried := v_tried + 1;
            exit when v_tried > 40;
        end if;
        if v_b[1] = v_a[v_place + 1] and v_b = v_a[v_place + 1:] || v_a[:v_place] then
            exit when v_place = 1 and v_a[1] = any (v_focus)
                or v_place = v_length - 1 and v_a[v_length] = any (v_focus);
            return null;
        end if;
    end loop;

    -- verb-second languages: a phrase with its preposition moves to the front, the subject behind the verb (checked only in sentences:
    -- the search is quadratic)
    for v_left in 1..least(v_length, 40) - 2 loop
        exit when v_length > 40;
        for v_right in v_left + 2..v_length loop
            if v_b[1] = v_a[v_right]
                and (v_a[1] = any (v_markers) or v_b[1] = any (v_markers) or v_a[v_left + 1:v_right - 1] = '{是}')
                and v_b = v_a[v_right:] || v_a[v_left + 1:v_right - 1] || v_a[:v_left]
            then
                return null;
            end if;
        end loop;
    end loop;

    -- the parts of a list changed places: the words between conjunctions and commas are the same, in either frame
    if v_joints && v_a
        and (memfold_internal._guard_parts(v_a, v_joints) = memfold_internal._guard_parts(v_b, v_joints)
             or memfold_internal._guard_parts(v_whole_a, v_joints) = memfold_internal._guard_parts(v_whole_b, v_joints))
    then
        return null;
    end if;
    return array_to_string(v_a[:6], ' ') || ' <> ' || array_to_string(v_b[:6], ' ');
end;
$function$;

-- Whether capitals mean nothing in a text: nearly all its words have one, and it is too long for a name with a verb ("Likes Star Wars"),
-- or has a capital on a word that is not a name.
create or replace function memfold_internal._guard_is_headline(p_tokens text[], p_marked text[], p_classes text[])
returns boolean
language plpgsql
immutable
parallel safe
as $function$
declare
    v_count integer := 0;
    v_other boolean := false;
begin
    for v_at in 1..cardinality(p_tokens) loop
        if p_marked[v_at] <> p_tokens[v_at] then
            v_count := v_count + 1;
            v_other := v_other
                or v_at > 1 and left(p_classes[v_at], 1) in ('s', 'p', '&', 'n', 'N') and p_classes[v_at] not in ('st');
        end if;
    end loop;
    return v_count > 2 and v_count * 10 > cardinality(p_tokens) * 7 and (v_other or v_count > 4);
end;
$function$;

-- The names among the words that only one text has, each preceded by '!' if it certainly is a name, by '?' if that depends on the other
-- text: the subject that begins a sentence, every noun of German, katakana; by '~' if it begins a sentence and nothing else suggests a
-- name.
create or replace function memfold_internal._guard_new_names(
    p_tokens text[], p_marked text[], p_classes text[], p_only_here integer[], p_others text[], p_is_german boolean, p_is_headline boolean)
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_names text[] := '{}'::text[];
    v_place integer;
    v_before integer;
    v_is_first boolean;
    v_token text collate "C";
    v_next text collate "C";
    v_class text collate "C";
begin
    foreach v_place in array p_only_here loop
        -- (on a page only the first names: each is compared with each of the other text)
        exit when cardinality(v_names) = 40;
        v_token := p_tokens[v_place];
        if v_token ~ E'^[\u30A1-\u30FA][\u30A1-\u30FA\u30FC]+$' and p_classes[v_place] is null then
            v_names := v_names || ('?' || rtrim(v_token, 'ー'));
            continue;
        end if;
        continue when p_marked[v_place] = v_token or p_classes[v_place] is not null or v_token ~ '[0-9@_/]';
        v_is_first := v_place = 1 or p_tokens[v_place - 1] = '.' and coalesce(p_classes[v_place - 2] not in ('st', 'St'), true);
        if p_is_headline and not v_is_first then
            -- the word after a preposition, an article or a conjunction, skipping a name's other words
            v_before := v_place - 1;
            while v_before > greatest(v_place - 3, 1) and p_classes[v_before] is null and p_marked[v_before] <> p_tokens[v_before] loop
                v_before := v_before - 1;
            end loop;
            continue when (coalesce(left(p_classes[v_before], 1) not in ('p', '&'), true) or p_tokens[v_before] = 'to')
                and p_tokens[v_before] not in ('the', 'a', 'an');
        end if;
        continue when v_token = any (p_others) or v_token || 's' = any (p_others) or rtrim(v_token, 's') = any (p_others);
        if v_is_first then
            v_next := p_tokens[v_place + 1];
            v_class := p_classes[v_place + 1];
            if p_marked[v_place + 1] <> v_next and v_class is null and not p_is_german and not p_is_headline
                or v_next in ('''s', 'is', 'was', 'has', 'had', 'does', 'did', 'will', 'would', 'can', 'ist', 'hat',
                              'war', 'wird', 'est', 'a', 'es', 'ha', 'está', 'tiene', 'è', 'é', 'tem')
                or (v_class is null or v_class = 'S') and v_next ~ '[^s]s$' and v_token !~ 's$'
                or v_class is null and left(p_classes[v_place + 2], 1) in ('s', 'p')
                    and v_next ~ '(?:[^s]s|ed|t|e|a|ó|é|и|т|л|ла)$' and v_token !~ '(?:s|ed|ing)$'
            then
                v_names := v_names || ('?' || v_token);
            elsif not p_is_headline then
                v_names := v_names || ('~' || v_token);
            end if;
        elsif p_is_headline then
            v_names := v_names || ('?' || v_token);
        elsif p_is_german then
            if left(p_classes[v_place - 1], 1) is distinct from 's' or p_tokens[v_place - 1] = 'ist' then
                v_names := v_names || ('?' || v_token);
            end if;
        else
            v_names := v_names || ('!' || v_token);
        end if;
    end loop;
    return v_names;
end;
$function$;

-- The names that make a difference, or null. Case endings of Russian, a genitive s and initials (NYC) do not.
create or replace function memfold_internal._guard_name_change(a text[], b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_ending constant text := '(?:ами|ой|ою|ей|ом|ем|ах|ам|ов|[аяуюеыийь]|(?<=[a-z]{3})s)$';
    v_a text[] := a;
    v_b text[] := b;
    v_name text collate "C";
    v_other text collate "C";
begin
    if a <> '{}' and b <> '{}' then
        foreach v_name in array a loop
            foreach v_other in array b loop
                if regexp_replace(substr(v_name, 2) collate "C", v_ending, '')
                    = regexp_replace(substr(v_other, 2) collate "C", v_ending, '')
                then
                    v_a := array_remove(v_a, v_name);
                    v_b := array_remove(v_b, v_other);
                end if;
            end loop;
        end loop;
        v_name := (select string_agg(substr(listed.name, 2, 1), '') from unnest(v_a) as listed(name));
        v_other := (select string_agg(substr(listed.name, 2, 1), '') from unnest(v_b) as listed(name));
        if length(v_name) > 1 and ('!' || v_name = any (v_b) or '?' || v_name = any (v_b))
            or length(v_other) > 1 and ('!' || v_other = any (v_a) or '?' || v_other = any (v_a))
        then
            return null;
        end if;
    end if;
    -- two words that only begin a sentence are two ways to begin it; otherwise one certain name is enough
    v_name := array_to_string(v_a, ',');
    v_other := array_to_string(v_b, ',');
    if v_name ~ '[!?]' and v_other ~ '[!?]' or v_name like '?%' and v_other like '~%'
        or v_name like '~%' and v_other like '?%'
    then
        return replace(translate(v_name || ' <> ' || v_other, '!?~', ''), ',', ', ');
    end if;
    select string_agg(substr(listed.name, 2), ', ') into v_name
    from unnest(v_a || v_b) as listed(name)
    where listed.name collate "C" like '!%';
    return v_name;
end;
$function$;

-- A word and its opposite by prefix or suffix (happy / unhappy, careful / careless), or null.
create or replace function memfold_internal._guard_prefix(a text[], b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_one text collate "C";
    v_two text collate "C";
    v_short text collate "C";
    v_long text collate "C";
    v_prefix text collate "C";
    v_rest text collate "C";
    v_prefixes constant text[] := '{un,dis,in,im,ir,il,non,anti,mis,miss,des,dés,mé,mal,ne,не,бес,без,анти}'::text[];
    v_innocent constant text[] := '{inside,instep,inform,invest,display,discover,impress,improve,discount,newest,
        neural,network}'::text[];
    v_ending constant text := '(?:e?s|e?d|ing|ly|e|en|er|em|es|a|o|as|os|t)$';
begin
    -- (after forty new words, texts are not near-identical)
    foreach v_one in array a[:40] loop
        foreach v_two in array b[:40] loop
            v_short := v_one;
            v_long := v_two;
            if length(v_short) > length(v_long) then
                v_short := v_two;
                v_long := v_one;
            end if;
            continue when length(v_short) < 4;
            foreach v_prefix in array v_prefixes loop
                -- (only few words start with another word)
                exit when strpos(v_long, left(v_short, 3)) < 2;
                if starts_with(v_long, v_prefix) then
                    v_rest := substr(v_long, length(v_prefix) + 1);
                    if left(v_rest, 3) = left(v_short, 3)
                        and regexp_replace(v_rest, v_ending, '') = regexp_replace(v_short, v_ending, '')
                        and v_long <> all (v_innocent)
                    then
                        return v_one || ' <> ' || v_two;
                    end if;
                end if;
            end loop;
            if right(v_one, 3) = 'ful' and v_two = left(v_one, -3) || 'less'
                or right(v_two, 3) = 'ful' and v_one = left(v_two, -3) || 'less'
            then
                return v_one || ' <> ' || v_two;
            end if;
        end loop;
    end loop;
    return null;
end;
$function$;
