-- The guard reads a text: its words, and the class of each.

-- One word -> its class and value (_lexicon). For a word in several classes the rightmost applies. Folded to a constant when a caller
-- is planned.
create or replace function memfold_internal._guard_lexicon()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(listed.word, listed.class || listed.value
               order by pg_catalog.strpos('S$uospt&N#~*mMw%qn', listed.class))
    from memfold_internal._lexicon() as listed
    where listed.class not in ('-', 'f', 'v', 'c', 'r');
end;

-- Chinese numerals before a counter as digits, weekdays of Chinese and Japanese as English words.
create or replace function memfold_internal._guard_han_numbers(p_content text)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_text text collate "C" := p_content;
    v_days constant text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}'::text[];
    v_match text[];
    v_total bigint;
    v_digit bigint;
    v_value integer;
    v_from integer;
    v_rest text collate "C";
begin
    if v_text ~ '[曜期拜周週]' then
        for v_value in 1..7 loop
            v_text := replace(v_text, substr('月火水木金土日', v_value, 1) || '曜', ' ' || v_days[v_value] || ' ');
        end loop;
        v_text := regexp_replace(v_text, '(?:星期|禮拜|礼拜|[周週])(?=[一二三四五六日天])', E'\x03', 'g');
        for v_value in 1..7 loop
            v_text := replace(v_text, E'\x03' || substr('一二三四五六日', v_value, 1), ' ' || v_days[v_value] || ' ');
        end loop;
        v_text := replace(v_text, E'\x03天', ' sunday ');
    end if;
    v_rest := v_text;
    v_text := '';
    loop
        -- continues in the rest: from the beginning each time, a page of numerals would take quadratic time
        v_match := regexp_match(
            v_rest, '(一[〇零一二两兩三四五六七八九十百千]{1,9}|[二两兩三四五六七八九十百][〇零一二两兩三四五六七八九十百千]{0,9})'
            || '(?=[个個只隻条條位名张張本年月日号號天岁歲歳点點时時分秒次回台臺件匹杯人枚头頭公里米元円块塊种種家間间套门門])');
        exit when v_match is null;
        v_total := 0;
        v_digit := 0;
        for v_place in 1..length(v_match[1]) loop
            v_value := position(substr(v_match[1], v_place, 1) in '一二三四五六七八九十百千');
            case
                when v_value = 0 then
                    v_digit := case when substr(v_match[1], v_place, 1) in ('两', '兩') then 2 else v_digit * 10 end;
                when v_value < 10 then
                    v_digit := v_digit * 10 + v_value;
                else
                    v_total := v_total + greatest(v_digit, 1) * (10 ^ (v_value - 9))::bigint;
                    v_digit := 0;
            end case;
        end loop;
        v_from := position(v_match[1] in v_rest);
        v_text := v_text || left(v_rest, v_from - 1) || (v_total + v_digit)::text;
        v_rest := substr(v_rest, v_from + length(v_match[1]));
    end loop;
    return v_text || v_rest;
end;
$function$;

-- A text as tokens between single spaces: canonical, words that began with a capital marked by U+0001, contractions written out,
-- hyphens of plain words opened, thousands separators removed, '.' and ',' separate tokens, every ideograph and every run of katakana a
-- token.
create or replace function memfold_internal._guard_text(p_content text)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_text text collate "C";
    v_is_wide boolean;
    v_parts text[];
    v_part text collate "C";
    v_place integer;
begin
    v_text := memfold.canonicalize(
        regexp_replace(
            p_content collate "C",
            E'(^|[^A-Za-z0-9À-ɏͰ-ӿԱ-և''’_@./:\\\\-]|[^A-Za-z0-9À-ɏͰ-ӿԱ-և _@./:]-)'
            || '([A-ZÀ-ÖØ-ÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮİĲĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽΆΈ-ΏΑ-ΫЀ-ЯҐԱ-Ֆ])',
            E'\\1\x01\\2', 'g'),
        'prose/1');

    -- "i m", "don t", "she ll": the apostrophe was not typed
    if v_text ~ ' (?:m|t|re|ve|ll|d|s)(?: |$)' then
        v_text := regexp_replace(
            v_text,
            E'((?:^| )\\x01?(?:i(?= m(?: |$))|(?:i|you|we|they|he|she|it|that|there|who)(?= (?:re|ve|ll|d|s)(?: |$))'
            || '|(?:do|does|did|is|are|was|were|has|have|had|wo|ca|could|would|should|must|need)n?(?= t(?: |$)))) ', E'\\1''', 'g');
    end if;
    if position('step' in v_text) > 0 then
        v_text := regexp_replace(v_text, E'((?:^| )\\x01?step)(?=(?:mother|father|brother|sister|son|daughter|mum|mom|dad)(?:[ ''.,]|$))',
            E'\\1 ', 'g');
    end if;

    if v_text !~ E'[^ a-z\\x01]' then
        return v_text;
    end if;

    v_is_wide := octet_length(v_text) > length(v_text);

    -- one character for variants; brackets and quotation marks mean nothing here
    v_text := translate(
        v_text,
        E';!?\uFF1B\uFF01\uFF1F\u3002\uFF61\uFF0C\u3001\uFF64\u2019\u2018\u02BC\u2013\u2212\u2010\u2011\u2012'
        || E'"()[]{}<>*`~|^\\\u2026\u00B7\u2022\u00BF\u00A1\u2014\u201C\u201D\u201E\u00AB\u00BB\u2039\u203A'
        || E'\u300C\u300D\u300E\u300F\u3010\u3011\u300A\u300B\u30FB',
        '........,,,''''''-----                                            ');

    if v_is_wide and v_text ~ E'[\u2E80-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF]' then
        if v_text ~ '[二两兩三四五六七八九十百曜期拜周週]' then
            v_text := memfold_internal._guard_han_numbers(v_text);
        end if;
        v_text := regexp_replace(
            v_text, E'([\u30A1-\u30FA\u30FC]+|[\u2E80-\u30A0\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF])',
            E' \\1 ', 'g');
    end if;

    if v_is_wide and v_text ~ E'[\u0660-\u0669\u06F0-\u06F9\u0966-\u096F\u09E6-\u09EF\u0E50-\u0E59]' then
        v_text := translate(v_text, '٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९০১২৩৪৫৬৭৮৯๐๑๒๓๔๕๖๗๘๙',
                            '01234567890123456789012345678901234567890123456789');
    end if;

    if position('''' in v_text) > 0 then
        v_text := replace(replace(replace(v_text, 'can''t', 'can not'), 'won''t', 'will not'), 'n''t', ' not');
        v_text := replace(v_text, 'o''clock', 'oclock');
        v_text := replace(replace(replace(replace(replace(replace(v_text,
            '''re', ' are'), '''ve', ' have'), '''ll', ' will'), '''d ', ' would '), 'i''m ', 'i am '), '''s', ' ''s ');
        v_text := regexp_replace(v_text, E'((?:^| )\\x01?(?:n|l|d|j|qu|c|s|m|t|un|dell|nell|all|dall|sull|quest))''',
                                 E'\\1e ', 'g');
        v_text := replace(replace(v_text, ' ''s ', E' \x02 '), '''', ' ');
        v_text := replace(v_text, E'\x02', '''s');
    end if;

    if position('$' in v_text) > 0 or position('%' in v_text) > 0 or v_is_wide and v_text ~ '[€£¥₹₽₩₺₴₪฿]' then
        v_text := regexp_replace(v_text, '(-?)([$€£¥₹₽₩₺₴₪฿])', E' \\2 \\1', 'g');
        v_text := replace(v_text, '%', ' % ');
    end if;

    if v_text ~ '[0-9]' then
        -- ISO dates keep their hyphens as U+0002; a range becomes two numbers; 8-year is split, AB-12 is not
        if position('-' in v_text) > 0 then
            v_text := regexp_replace(v_text, '(?<![0-9])([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])(t(?=[0-9]))?',
                                     E'\\1\x02\\2\x02\\3 ', 'g');
            v_text := regexp_replace(v_text, '((?:^| )[0-9.]+)-(?=[^ 0-9./:@_]{2}|[0-9])', E'\\1 ', 'g');
        end if;
        if v_text ~ '[0-9][,''][0-9]' then
            v_text := regexp_replace(v_text, '(?<=[0-9])[,''](?=[0-9]{3}(?![0-9]))', '', 'g');
            v_text := regexp_replace(v_text, '(?<=[0-9]),(?=[0-9])', '.', 'g');
        end if;
        if v_text ~ '[0-9][a-z°]' then
            v_text := regexp_replace(
                v_text,
                '((?:^|[- ])[0-9.]+)(kg|g|mg|lbs?|oz|km|m|cm|mm|mi|ft|in|l|ml|[kmgt]i?b|[kmg]?hz|k?wh?|ms|'
                || 'min|hrs?|h|d|am|pm|k|bn|mn|°[cf]|[kmg]?bps|mph)(?=[ .,]|$)', E'\\1 \\2', 'g');
        end if;
    end if;

    if position('-' in v_text) > 0 or position('/' in v_text) > 0 then
        if position('non-' in v_text) > 0 then
            -- a prefix, not a word that negates
            v_text := regexp_replace(v_text, E'(^| )(\x01?)non-(?=[^ 0-9./:@_-]{4})', E'\\1\\2non', 'g');
        end if;
        -- (words of letters only; their first and last characters are kept, and those between are masked, because a pattern that looks
        -- ahead from each hyphen takes quadratic time in the length of a word)
        v_text := regexp_replace(
            v_text, '((?:^| )[^ 0-9./:@_])([^ 0-9./:@_]*-[^ 0-9./:@_]*)(?=[^ 0-9./:@_](?:[ .:,]|$))', E'\\1\x04\\2\x05',
            'g');
        if position(E'\x04' in v_text) > 0 then
            v_parts := string_to_array(v_text, E'\x04');
            v_text := v_parts[1];
            foreach v_part in array v_parts[2:] loop
                v_place := position(E'\x05' in v_part);
                v_text := v_text || replace(left(v_part, v_place), '-', ' ') || substr(v_part, v_place + 1);
            end loop;
            v_text := replace(v_text, E'\x05', '');
        end if;
        v_text := regexp_replace(
            v_text, '((?:^| )[^ 0-9./:@_]+)/(?=[^ 0-9./:@_]+(?:[ .,:]|$))', E'\\1 ', 'g');
        v_text := regexp_replace(v_text, '[-/]+(?= |$)|(?<=^| )-+(?=[^ 0-9.])', ' ', 'g');
    end if;

    if position('.' in v_text) > 0 or position(',' in v_text) > 0 or position(':' in v_text) > 0 then
        -- u.s. and p.m. are words; a full stop or comma at the end of a word is a token
        if v_text ~ E'[a-z]\\.[a-z]' then
            v_text := regexp_replace(
                v_text, E'((?:^| )\\x01?[a-z])\\.([a-z])\\.?(?:([a-z])\\.?)?(?=[ ,]|$)', E'\\1\\2\\3', 'g');
        end if;
        if position('..' in v_text) > 0 or position('.,' in v_text) > 0 or position(':.' in v_text) > 0
            or right(v_text, 1) in ('.', ':')
        then
            v_text := regexp_replace(v_text, '[.:]*[.][.:]*(?=[ ,]|$)', ' . ', 'g');
        end if;
        v_text := replace(replace(v_text || ' ', '. ', ' . '), ': ', ' ');
        if position(',' in v_text) > 0 then
            v_text := regexp_replace(v_text, '(?<![0-9]),|,(?![0-9])', ' , ', 'g');
        end if;
    end if;

    return array_to_string(array_remove(string_to_array(v_text, ' '), ''), ' ');
end;
$function$;

create or replace function memfold_internal._guard_classes(p_tokens text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
begin
    -- (unnest returns the elements in their order)
    return array(select memfold_internal._guard_lexicon() ->> listed.token from unnest(p_tokens) as listed(token));
end;
$function$;
