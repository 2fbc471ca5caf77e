-- The words of the guard without their commonest English endings, numbers as digits: equal if two words are forms of
-- one. Approximate; for texts that are near and guard-clean.
create or replace function memfold_internal._stems(p_tokens text[], p_classes text[]) returns text[]
language sql immutable parallel safe
begin atomic
    select
        array_agg(
            case
                when t.class ~ '^[#~]' then substr(t.class, 2)
                else regexp_replace(t.word collate "C", '(?<=[a-z]{3})(?:e?s|e?d|ing|e)$', '')
            end
            order by t.place
        )
    from unnest(p_tokens, p_classes) with ordinality as t (word, class, place);
end;

-- Whether content says everything that other says, and more: it has all words of other except grammar, counting forms of
-- a word as equal, and an additional content word. Called for two texts with a clean guard; false if one is too long to
-- compare.
create or replace function memfold_internal._says_more(p_content text, p_other text) returns boolean
language plpgsql immutable parallel safe
set plan_cache_mode = force_generic_plan
as $$
declare
    v_longest constant integer := memfold_internal._guard_limit();
    v_words text[];
    v_classes text[];
    v_other text[];
    v_other_classes text[];
    -- the subject need not be repeated
    v_nobody constant text[] := '{user,client,customer,person,benutzer,nutzer,utilisateur,utilisatric,usuario,usuaria,usuário,utent,
        пользователь,gebruiker}'::text[];
begin
    if octet_length(p_content) > v_longest or octet_length(p_other) > v_longest then
        return false;
    end if;
    v_words := string_to_array(translate(memfold_internal._guard_text(p_content), E'\x01', ''), ' ');
    v_other := string_to_array(translate(memfold_internal._guard_text(p_other), E'\x01', ''), ' ');
    v_classes := memfold_internal._guard_classes(v_words);
    v_other_classes := memfold_internal._guard_classes(v_other);
    v_words := memfold_internal._stems(v_words, v_classes);
    v_other := memfold_internal._stems(v_other, v_other_classes);
    return not exists (
        select from unnest(v_other, v_other_classes) as o (word, class)
        where left(o.class, 1) in ('s', '&') is not true and o.word <> all(v_words) and o.word <> all(v_nobody)
    ) and (
        -- one ideograph is not a word yet
        select sum(case when w.word collate "C" between E'\u2E80' and E'\u9FFF' then 0.5 else 1 end) >= 1
        from unnest(v_words, v_classes) as w (word, class)
        where (w.class is null or left(w.class, 1) not in ('s', '&', 'p', 'S', 'n', 'q')) and w.word <> all(v_other)
    ) is true and (
        -- "keeps two cats" says "has two cats" in other words
        select count(*) filter (where w.word <> all(v_other)) from unnest(v_words, v_classes) as w (word, class)
        where w.class is distinct from '&'
    ) > (
        select count(*) filter (where o.word <> all(v_words)) from unnest(v_other, v_other_classes) as o (word, class)
        where o.class is distinct from '&' and o.word <> all(v_nobody)
    );
end;
$$;
