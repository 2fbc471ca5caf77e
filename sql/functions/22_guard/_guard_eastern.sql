-- The guard in scripts without spaces between words: Chinese, Japanese, Thai; and in Korean.

-- A text without spaces, in which phrases known to say the same as one of the other text are replaced by that one.
create or replace function memfold_internal._guard_eastern_text(p_tenant_id text, p_content text, p_other text)
returns text
language plpgsql
stable
parallel safe
as $function$
declare
    v_text text collate "C" := p_content;
    v_phrase text;
    v_instead text;
begin
    for v_phrase, v_instead in
        select found.phrase, found.instead
        from (
            select s.word, s.antonym from memfold.antonyms as s
            where s.tenant_id in ('*', p_tenant_id) and s.word >= E'\u2E80' and s.kind = 'synonym'
            union all
            select s.antonym, s.word from memfold.antonyms as s
            where s.tenant_id in ('*', p_tenant_id) and s.word >= E'\u2E80' and s.kind = 'synonym'
        ) as found (phrase, instead)
        where position(found.phrase in p_content) > 0 and position(found.instead in p_content) = 0
            and position(found.instead in p_other) > 0
        order by length(found.phrase) desc, found.phrase collate "C"
    loop
        v_text := replace(v_text, v_phrase, v_instead);
    end loop;
    return v_text;
end;
$function$;

-- Words with content: ideographs except grammar, runs of katakana and of Latin letters, and the beginnings of Korean words.
create or replace function memfold_internal._guard_eastern_content(p_content text)
returns text[]
language sql
immutable
parallel safe
return array(
    select case when m.found[1] between E'\uAC00' and E'\uD7A3' then left(m.found[1], 2) else rtrim(m.found[1], 'ー') end
    from regexp_matches(
        translate(p_content, '的了在是着也就又而且但和与與跟及该該其个個之', ''),
        E'[\u3400-\u9FFF\uF900-\uFAFF]|[\u30A1-\u30FA\u30FC]+|[a-z]+|[\uAC00-\uD7A3]+|[\u0E00-\u0E7F]+', 'g'
    ) as m (found)
);

-- The difference between two Chinese, Japanese, Korean or Thai texts (_guard_text), as a signal, or null: words on both
-- sides that the other lacks (substitution), a phrase that changes a fact on one side (tense, mode, quantity), a
-- different person at the beginning (pronoun), who owns what (order). Of Japanese endings in hiragana only the past
-- counts.
create or replace function memfold_internal._guard_eastern(p_tenant_id text, p_plain_a text, p_plain_b text)
returns text
language plpgsql
stable
parallel safe
as $function$
declare
    -- (Korean keeps its spaces)
    v_space constant text := case when p_plain_a collate "C" ~ E'[\uAC00-\uD7A3]' then '' else ' ' end;
    v_b text collate "C" := translate(p_plain_b, v_space, '');
    v_a text collate "C" := memfold_internal._guard_eastern_text(p_tenant_id, translate(p_plain_a, v_space, ''), v_b);
    v_words_a text[];
    v_words_b text[];
    v_all_a constant text[] := memfold_internal._guard_eastern_content(v_a);
    v_all_b constant text[] := memfold_internal._guard_eastern_content(v_b);
    v_longer text collate "C";
    v_found text;
begin
    v_words_a := array(
        select d.word from (select unnest(v_all_a) except all select unnest(v_all_b)) as d (word)
        order by array_position(v_all_a[:100], d.word), d.word collate "C");
    v_words_b := array(
        select d.word from (select unnest(v_all_b) except all select unnest(v_all_a)) as d (word)
        order by array_position(v_all_b[:100], d.word), d.word collate "C");
    if v_words_a <> '{}' and v_words_b <> '{}' then
        return 'substitution: ' || array_to_string(v_words_a[:4], '') || ' <> ' || array_to_string(v_words_b[:4], '');
    end if;
    -- words that change a fact when added
    select format('%s: %s', c.value, c.key) into v_found
    from jsonb_each_text(memfold_internal._guard_changers()) as c
    where c.key >= E'\u2E80' and (position(c.key in v_a) > 0) <> (position(c.key in v_b) > 0)
    order by length(c.key) desc, c.key
    limit 1;
    if v_found is not null then
        return v_found;
    end if;
    -- Japanese ends a sentence of the past with た
    if v_a ~ E'[\u3041-\u3096]' and v_b ~ E'[\u3041-\u3096]' and (v_a ~ 'た(?:$|[.,])') <> (v_b ~ 'た(?:$|[.,])') then
        return 'tense: た';
    end if;
    -- another person at the beginning
    v_longer := case when length(v_a) > length(v_b) then v_a else v_b end;
    v_longer := left(v_longer, -length(case when length(v_a) > length(v_b) then v_b else v_a end));
    if v_longer || v_a = v_b or v_longer || v_b = v_a then
        select p.key into v_found from jsonb_each_text(memfold_internal._guard_persons()) as p
        where p.key >= E'\u2E80' and position(p.key in v_longer) > 0
        order by length(p.key) desc
        limit 1;
        if v_found is not null then
            return 'pronoun: ' || v_found;
        end if;
    end if;
    -- "甲 is 乙" and "乙 is 甲" say the same, "the boss of 甲 is 乙" and "甲 is the boss of 乙" do not; nor do texts with subject and object
    -- exchanged
    if v_words_a = '{}' and v_words_b = '{}' then
        if length(v_a) - length(replace(v_a, '是', '')) = 1 and length(v_b) - length(replace(v_b, '是', '')) = 1
            and v_all_a <> v_all_b
            and (split_part(v_a, '是', 1), split_part(v_a, '是', 2)) <> (split_part(v_b, '是', 2), split_part(v_b, '是', 1))
        then
            return 'order: ' || left(v_a, 12) || ' <> ' || left(v_b, 12);
        end if;
    elsif array_to_string(v_words_a || v_words_b, '') ~ '^[被把给給从從对對向]+$' then
        return 'order: ' || array_to_string(v_words_a || v_words_b, '');
    end if;
    return null;
end;
$function$;
