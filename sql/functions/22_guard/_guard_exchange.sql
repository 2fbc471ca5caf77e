-- The guard's last check, if no other signal was raised: the words of the texts, in their language.

-- Words that a deployment lists as equal (memfold.antonyms, kind synonym): pairs of positions, in a and b.
create or replace function memfold_internal._guard_synonyms(
    p_tenant_id text, a text[], p_only_a integer[], b text[], p_only_b integer[]
)
returns table (place integer, other integer)
language plpgsql
stable
parallel safe
set plan_cache_mode = force_generic_plan
as $function$
begin
    return query
    -- (each word is paired with one other: the first)
    select distinct on (paired.other) paired.place, paired.other
    from (
        select distinct on (found.place) found.place, found.other
        from (
            select x.place, y.place
            from unnest(p_only_a[:40]) as x (place)
            cross join lateral (
                select s.antonym from memfold.antonyms as s
                where s.tenant_id = any (array['*', p_tenant_id])
                    and s.word = a[x.place] collate "C" and s.kind = 'synonym'
                offset 0
            ) as known (word)
            join unnest(p_only_b[:40]) as y (place) on b[y.place] = known.word
            union all
            select x.place, y.place
            from unnest(p_only_b[:40]) as y (place)
            cross join lateral (
                select s.antonym from memfold.antonyms as s
                where s.tenant_id = any (array['*', p_tenant_id])
                    and s.word = b[y.place] collate "C" and s.kind = 'synonym'
                offset 0
            ) as known (word)
            join unnest(p_only_a[:40]) as x (place) on a[x.place] = known.word
        ) as found (place, other)
        order by found.place, found.other
    ) as paired
    order by paired.other, paired.place;
end;
$function$;

-- The difference between the words of two texts, as a signal, or null. For each text: its words (_guard_text), the same
-- with capitals marked, their classes (_guard_classes) and the positions of those that only it has. p_is_exchange: each
-- has one to five content words that the other lacks.
create or replace function memfold_internal._guard_exchange(
    p_tenant_id text, a text[], p_marked_a text[], p_classes_a text[], p_only_a integer[],
    b text[], p_marked_b text[], p_classes_b text[], p_only_b integer[], p_is_eastern boolean, p_is_exchange boolean
)
returns text
language plpgsql
stable
parallel safe
as $function$
declare
    v_signal text;
    v_is_english boolean;
begin
    v_signal := memfold_internal._guard_turned(a, p_classes_a, p_only_a, b, p_classes_b, p_only_b);
    if v_signal is not null then
        return v_signal;
    elsif p_is_eastern then
        return memfold_internal._guard_eastern(p_tenant_id, array_to_string(a, ' '), array_to_string(b, ' '));
    end if;
    v_signal := coalesce(
        memfold_internal._guard_subject(a, p_marked_a, p_classes_a, p_only_a, p_classes_b, p_only_b),
        memfold_internal._guard_subject(b, p_marked_b, p_classes_b, p_only_b, p_classes_a, p_only_a));
    if v_signal is not null then
        return v_signal;
    end if;
    v_is_english := memfold_internal._guard_is_english(p_marked_a, p_marked_b, p_only_b,
        cardinality(p_only_a) + cardinality(p_only_b) < 4 and cardinality(p_only_a) < cardinality(a));
    if not v_is_english then
        return memfold_internal._guard_other_language(a, p_marked_a, p_classes_a, p_only_a, b, p_marked_b, p_classes_b, p_only_b);
    elsif v_is_english and p_is_exchange
        and (
            least(cardinality(a) - cardinality(p_only_a), cardinality(b) - cardinality(p_only_b)) * 5
            >= greatest(cardinality(a), cardinality(b)) * 3
            or greatest(cardinality(a), cardinality(b)) < 5 and greatest(cardinality(p_only_a), cardinality(p_only_b)) = 1
        )
    then
        -- A few content words are exchanged in texts that share most of theirs, or one in a text so short that each word is the fact.
        return memfold_internal._guard_substitution(a, p_classes_a, p_only_a, b, p_classes_b, p_only_b);
    end if;
    return null;
end;
$function$;
