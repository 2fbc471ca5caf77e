-- The guard treats names that a bucket has linked (link_subject) as one: "Georg works at Acme" says the same as "Georg Maier works at
-- Acme".

-- The name that these words of a text (canonical) are, without a genitive 's and surrounding punctuation.
create or replace function memfold_internal._name_key(p_words text[]) returns text
language sql immutable parallel safe
return pg_catalog.regexp_replace(
    pg_catalog.ltrim(pg_catalog.array_to_string(p_words, ' '), '"''([{<' || E'\u201C\u201E\u2018\u00AB'),
    E'(?:[''\u2019]s)?[]"'')}>.,;:!?\u201D\u201C\u2019\u00BB\u2026]*$' collate "C", ''
);

-- A loop, because the planner overestimates sets of words so much that a server with JIT would compile each query over them.
-- All runs of at most longest words of a text (canonical), as names.
create or replace function memfold_internal._runs_of_words(p_words text[], p_longest integer) returns text[]
language plpgsql immutable parallel safe
as $$
declare
    v_runs text[] := array[]::text[];
begin
    for v_from in 1..cardinality(p_words) loop
        for v_to in v_from..least(v_from + p_longest - 1, cardinality(p_words)) loop
            v_runs := v_runs || memfold_internal._name_key(p_words[v_from:v_to]);
        end loop;
    end loop;
    return v_runs;
end;
$$;

-- The positions at which a text (its words, canonical) has one of these names (canonical -> what it stands for), and the
-- name. p_longest: the largest number of words in a name.
create or replace function memfold_internal._names_in(p_words text[], p_names jsonb, p_longest integer)
returns table (place integer, size integer, name text)
language plpgsql immutable parallel safe rows 2
as $$
begin
    place := 1;
    while place <= cardinality(p_words) loop
        -- of two names that begin here, the longer
        size := least(p_longest, cardinality(p_words) - place + 1);
        name := null;
        while size > 0 and name is null loop
            name := p_names ->> memfold_internal._name_key(p_words[place:place + size - 1]);
            size := size - 1;
        end loop;
        size := size + 1;
        if name is not null then
            return next;
            place := place + size;
        else
            place := place + 1;
        end if;
    end loop;
end;
$$;

-- Whether two texts (their words, canonical, and which begin with a capital) use these words as a whole name, not as a
-- part of a longer one: judged by the words next to it. In doubt, false.
create or replace function memfold_internal._is_name_whole(
    a text[], p_is_capital_a boolean[], p_from_a integer, p_to_a integer, b text[], p_is_capital_b boolean[], p_from_b integer,
    p_to_b integer
) returns boolean
language plpgsql immutable parallel safe
as $$
declare
    v_is_name constant boolean := p_is_capital_a[p_from_a] and p_is_capital_b[p_from_b];
    v_at_a integer;
    v_at_b integer;
    v_a text;
    v_b text;
    v_in_b boolean;
    v_in_a boolean;
begin
    for v_at_a, v_at_b in values (p_from_a - 1, p_from_b - 1), (p_to_a + 1, p_to_b + 1) loop
        v_a := case when v_at_a between 1 and cardinality(a) then memfold_internal._name_key(array[a[v_at_a]]) end;
        v_b := case when v_at_b between 1 and cardinality(b) then memfold_internal._name_key(array[b[v_at_b]]) end;
        continue when v_a is not distinct from v_b;
        -- "Georg Huber": another word belongs to the name
        if p_is_capital_a[v_at_a] or p_is_capital_b[v_at_b] then
            return false;
        end if;
        v_in_b := v_a is null or exists (select from unnest(b) as w (word) where memfold_internal._name_key(array[w.word]) = v_a);
        v_in_a := v_b is null or exists (select from unnest(a) as w (word) where memfold_internal._name_key(array[w.word]) = v_b);
        -- one of them has a word in between ("georg huber works" / "georg maier works"); or capitals do not mark names
        if v_in_a <> v_in_b or not v_is_name and not (v_in_a and (v_a is null or v_b is null)) then
            return false;
        end if;
    end loop;
    return true;
end;
$$;

-- A text (its words) with other names at these positions.
create or replace function memfold_internal._rename(p_words text[], p_places integer[], p_sizes integer[], p_names text[]) returns text
language plpgsql immutable parallel safe
as $$
declare
    v_words text[] := p_words;
    v_last text;
begin
    for i in 1..coalesce(cardinality(p_places), 0) loop
        v_last := p_words[p_places[i] + p_sizes[i] - 1];
        v_words[p_places[i]] := p_names[i]
            || substring(v_last, E'(?:[''\u2019]s)?[]"'')}>.,;:!?\u201D\u201C\u2019\u00BB\u2026]*$' collate "C");
        for v_place in p_places[i] + 1..p_places[i] + p_sizes[i] - 1 loop
            v_words[v_place] := null;
        end loop;
    end loop;
    return array_to_string(v_words, ' ');
end;
$$;

-- Two texts with linked names that both mention replaced by one name, if one text uses an alias (of the bucket's links) and
-- the other the name or another alias. is_changed: whether there is such a name. An alias that may be a part of a longer name ("Georg
-- Huber", where "Georg" is linked) is left unchanged; so are texts of more than 200 words, all but the first ten names
-- of a text, and names of more than eight words. Only reads.
create or replace function memfold_internal._under_one_name(
    p_tenant_id text, p_bucket_id text, inout content text, inout other_content text, out is_changed boolean
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    -- facts are short: the following checks each run of words, and each pair of positions, while others wait for the scope
    v_most_words constant integer := 200;
    v_most_places constant integer := 10;
    v_longest_name constant integer := 8;
    v_spaces constant text collate "C" := E'[\\u0009-\\u000D \u0085\u1680\u2028\u2029]+';
    v_a text[];
    v_b text[];
    v_words_a text[];
    v_words_b text[];
    v_capital_a boolean[];
    v_capital_b boolean[];
    v_names jsonb;
    v_longest integer;
    v_found record;
begin
    is_changed := false;
    if not memfold_internal._has_links(p_tenant_id)
        or greatest(octet_length(content), octet_length(other_content)) > memfold_internal._guard_limit()
    then
        return;
    end if;
    v_a := string_to_array(btrim(regexp_replace(content collate "C", v_spaces, ' ', 'g')), ' ');
    v_b := string_to_array(btrim(regexp_replace(other_content collate "C", v_spaces, ' ', 'g')), ' ');
    v_words_a := string_to_array(memfold_internal._prose_1(content), ' ');
    v_words_b := string_to_array(memfold_internal._prose_1(other_content), ' ');
    -- (other spaces, and words that become two in canonical form: rare, and both texts are left unchanged)
    if greatest(cardinality(v_a), cardinality(v_b)) > v_most_words
        or cardinality(v_a) <> cardinality(v_words_a)
        or cardinality(v_b) <> cardinality(v_words_b)
    then
        return;
    end if;
    -- aliases in either text, and their names; the bucket's own link first
    select jsonb_object_agg(l.alias, l.name order by l.bucket_id <> '*')
            || jsonb_object_agg(memfold_internal._prose_1(l.name), l.name),
        least(v_longest_name, max(greatest(cardinality(string_to_array(l.alias, ' ')),
            cardinality(string_to_array(memfold_internal._prose_1(l.name), ' ')))))
    into v_names, v_longest
    from memfold.links as l
    where l.tenant_id = p_tenant_id collate "C" and l.bucket_id in (p_bucket_id collate "C", '*')
        and l.kind = 'subject'
        and l.alias = any (memfold_internal._runs_of_words(v_words_a, v_longest_name)
            || memfold_internal._runs_of_words(v_words_b, v_longest_name));
    if v_names is null then
        return;
    end if;
    v_capital_a := array(select left(w.written, 1) <> left(w.word, 1)
        from rows from (unnest(v_a), unnest(v_words_a)) with ordinality as w (written, word, place) order by w.place);
    v_capital_b := array(select left(w.written, 1) <> left(w.word, 1)
        from rows from (unnest(v_b), unnest(v_words_b)) with ordinality as w (written, word, place) order by w.place);
    with met as materialized (
        select a.place as a, a.size as size_a, b.place as b, b.size as size_b, a.name
        from (select n.* from memfold_internal._names_in(v_words_a, v_names, v_longest) as n limit v_most_places) as a
        join (select n.* from memfold_internal._names_in(v_words_b, v_names, v_longest) as n limit v_most_places) as b
            on memfold_internal._prose_1(b.name) = memfold_internal._prose_1(a.name)
        where memfold_internal._is_name_whole(v_words_a, v_capital_a, a.place, a.place + a.size - 1,
            v_words_b, v_capital_b, b.place, b.place + b.size - 1)
    )
    select
        memfold_internal._rename(v_a, array_agg(m.a), array_agg(m.size_a), array_agg(m.name)) as a,
        memfold_internal._rename(v_b, array_agg(m.b), array_agg(m.size_b), array_agg(m.name)) as b
    into v_found
    from met as m;
    is_changed := (v_found.a, v_found.b) is distinct from (array_to_string(v_a, ' '), array_to_string(v_b, ' '));
    if is_changed then
        content := v_found.a;
        other_content := v_found.b;
    end if;
end;
$$;
