-- The guard's facts of one text: negations, and what can be counted, dated or looked up.

-- How often a text negates. In languages of negative concord "no ... nunca" is one negation.
create or replace function memfold_internal._guard_negations(p_content text, p_tokens text[], p_classes text[])
returns integer
language plpgsql
immutable
parallel safe
as $function$
declare
    v_count integer := cardinality(array_positions(p_classes, 'n'));
    v_text text collate "C";
begin
    if v_count = 0 then
        v_count := cardinality(array_positions(p_classes, 'q'));
    else
        v_text := ' ' || p_content || ' ';
        v_count := v_count - regexp_count(
            v_text,
            ' (?:not|nicht|non|no|не|niet) (?:only|just|nur|solo|sólo|solamente|soltanto|só|apenas|только|alleen) ');
        if position(' no ' in v_text) > 0
            and v_text ~ ' (?:não|em|da|dos|das|uma|ao|é|são|você|usuário|usuária|à|às) '
        then
            v_count := v_count - regexp_count(v_text, ' no ');
        end if;
    end if;
    -- verbs that deny what follows ("stopped smoking", "failed to load"), if something follows
    for v_at in 1..cardinality(p_tokens) loop
        if left(p_classes[v_at], 1) = 'N' and (p_classes[v_at] = 'N'
            or p_classes[v_at] = 'N>ing' and right(p_tokens[v_at + 1], 3) = 'ing'
            or p_tokens[v_at + 1] = substr(p_classes[v_at], 3))
        then
            v_count := v_count + 1;
        end if;
    end loop;
    if octet_length(p_content) = length(p_content) then
        return v_count;
    end if;
    if p_content collate "C" ~ '[ığş]' then
        -- Turkish: -mıyor, -maz, -madı, -mayacak and similar endings
        v_count := v_count + regexp_count(
            p_content collate "C", '[^ ]m(?:[ıiuü]yor|[ae]z|[ae]d[ıi]|[ae]ya?[ae]ca[kğ])(?:[sdt]?[ıiuü][mnz]|[mnk]|l[ae]r)?(?= |$)');
    end if;
    if p_content collate "C" ~ E'[\u3040-\u30FF\u3400-\u9FFF]' then
        v_text := replace(p_content, ' ', '');
        if v_text ~ E'[\u3040-\u309F]' then
            v_text := regexp_replace(
                v_text, 'な(?:ければ|くては|きゃ)(?:なら|いけ)(?:ない|ません)|ないといけ(?:ない|ません)|'
                || '(?:少|すく|つまら|くだら|もったい|かもしれ|違い|ちがい|切)ない|(?:かもしれ|すみ|すい)ません|必ず|かならず|'
                || 'わずか|不便|不安|無料', '', 'g');
            v_count := v_count + regexp_count(
                v_text, 'ない|なかった|なけれ|なきゃ|ません|なく(?!な)|なし|ずに|せず|[わらかたまば]ず|まい|[不無未非]');
        else
            v_text := regexp_replace(
                v_text, '不过|不過|不仅|不僅|不但|不只|不同|差不多|不断|不斷|不久|不错|不錯|了不起|不好意思|对不起|對不起|'
                || '特别|特別|分别|分別|区别|區別|级别|級別|性别|性別|类别|類別|别人|別人|别的|別的|告别|告別|个别|個別|鉴别|'
                || E'识别|識別|未来|未來|无论|無論|是不是|有没有|有沒有|不管|不论|不論|(.)不\\1', '', 'g');
            v_count := v_count + regexp_count(v_text, '[不没沒无無别別未勿]');
        end if;
    elsif p_content collate "C" ~ E'[\uAC00-\uD7A3]' then
        v_count := v_count + regexp_count(p_content collate "C", '않|없|아니|못|지 말');
    elsif p_content collate "C" ~ E'[\u0E00-\u0E7F]' then
        v_count := v_count + regexp_count(p_content collate "C", 'ไม่');
    end if;
    return v_count;
end;
$function$;

-- The position of the month that the ordinal at a position is a day of ("second of May", "22nd June"), or null.
create or replace function memfold_internal._guard_month_after(p_tokens text[], p_classes text[], p_place integer)
returns integer
language sql
immutable
parallel safe
return case
    when p_tokens[p_place + 1] = 'of' and left(p_classes[p_place + 2], 1) in ('m', 'M') then p_place + 2
    when left(p_classes[p_place + 1], 1) = 'm' then p_place + 1
end;

-- The numbers, dates, versions, currencies, units and identifiers of a text, each as kind, value and weight ('s', or 'w' for words that
-- often have another meaning) separated by U+001F.
-- Longer than 150 lines: one pass over the words of a text; each branch is a kind of fact.
create or replace function memfold_internal._guard_facts(p_tokens text[], p_marked text[], p_classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_facts text[] := '{}'::text[];
    v_months constant text[] := '{january,february,march,april,may,june,july,august,september,october,november,
        december}'::text[];
    v_days constant text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}'::text[];
    v_total constant integer := cardinality(p_tokens);
    v_at integer := 0;
    v_token text collate "C";
    v_class text collate "C";
    v_next text collate "C";
    v_kind text collate "C";
    v_value text collate "C";
    v_weight text;
    v_number numeric;
    v_add numeric;
    v_is_word boolean;
    v_is_ordinal boolean;
    v_part text[];
    v_day integer;
    v_month integer;
    v_year text;
    v_place integer;
begin
    while v_at < v_total loop
        v_at := v_at + 1;
        v_token := p_tokens[v_at];
        v_class := p_classes[v_at];
        if v_class is null then
            continue when v_token !~ '[0-9@_/.:²³¹⁰⁴-⁹]';
        else
            continue when left(v_class, 1) not in ('#', '~', '*', 'o', 'm', 'M', 'w', '$', 'u')
                or left(v_class, 1) = 'u' and length(v_token) < 3;
        end if;
        v_kind := null;
        v_weight := 's';
        v_is_ordinal := false;
        v_day := null;
        v_month := null;
        v_year := null;

        if left(v_class, 1) in ('#', '~', '*') or v_token ~ E'^[-+]?[0-9]{1,25}(?:\\.[0-9]{1,25})?$' then
            v_is_word := v_class is not null;
            v_number := case when v_is_word then substr(v_class, 2)::numeric else v_token::numeric end;
            if left(v_class, 1) = '~' or (left(v_class, 1) = '*' and length(v_token) < 5) then
                v_weight := 'w';
            end if;
            v_kind := 'numeral';
            if v_number < 1000000 and not v_is_word and v_at < v_total
                and (left(p_classes[v_at + 1], 1) in ('m', 'M')) and v_token ~ '^[0-9]{1,2}$'
            then
                v_day := v_token::integer;
                v_month := substr(p_classes[v_at + 1], 2)::integer;
                v_at := v_at + 1;
            elsif v_token ~ '^[0-9]{1,2}$' and v_at + 2 <= v_total and p_tokens[v_at + 1] in ('.', 'de')
                and left(p_classes[v_at + 2], 1) in ('m', 'M') and p_tokens[v_at + 2] not in ('may', 'march')
            then
                v_day := v_token::integer;
                v_month := substr(p_classes[v_at + 2], 2)::integer;
                v_at := v_at + 2;
            elsif not v_is_word and v_at > 1
                and (p_tokens[v_at - 1] in ('version', 'versión', 'versione', 'versão', 'версия', 'версии', 'release',
                                          'v', '版')
                     or (position('.' in v_token) > 0 and p_marked[v_at - 1] <> p_tokens[v_at - 1]
                         and p_classes[v_at - 1] is null))
            then
                v_kind := 'version';
                v_value := v_token;
            else
                loop
                    v_next := p_classes[v_at + 1];
                    if left(v_next, 1) = '*' and v_number < 1000000 then
                        v_number := v_number * substr(v_next, 2)::numeric;
                        v_weight := 's';
                        v_at := v_at + 1;
                        continue;
                    end if;
                    exit when not v_is_word;
                    if v_number >= 100 and p_tokens[v_at + 1] = 'and' and left(p_classes[v_at + 2], 1) in ('#', '~') then
                        v_add := substr(p_classes[v_at + 2], 2)::numeric;
                        v_number := v_number + v_add;
                        v_at := v_at + 2;
                        continue;
                    end if;
                    if left(v_next, 1) = 'o' and v_number between 20 and 90 and v_number % 10 = 0
                        and substr(v_next, 2)::integer < 10
                    then
                        v_number := v_number + substr(v_next, 2)::integer;
                        v_is_ordinal := true;
                        v_at := v_at + 1;
                        exit;
                    end if;
                    exit when v_next is null or left(v_next, 1) not in ('#', '~');
                    v_add := substr(v_next, 2)::numeric;
                    exit when not (v_number between 20 and 90 and v_number % 10 = 0 and v_add < 10)
                        and not (v_number >= 100 and v_number % 100 = 0 and v_add < 100);
                    v_number := v_number + v_add;
                    v_at := v_at + 1;
                end loop;
                v_value := trim_scale(v_number)::text || case when v_is_ordinal then 'th' else '' end;
                v_next := p_classes[v_at + 1];
                if v_is_ordinal then
                    v_place := memfold_internal._guard_month_after(p_tokens, p_classes, v_at);
                    if v_place is not null then
                        v_day := v_number::integer;
                        v_month := substr(p_classes[v_place], 2)::integer;
                        v_at := v_place;
                    end if;
                elsif v_next = '%' then
                    v_value := v_value || '%';
                    v_at := v_at + 1;
                elsif left(v_next, 1) = 't' and v_number between 0 and 24 then
                    v_kind := 'time';
                    v_number := case when v_next = 't12' and v_number < 12 then v_number + 12
                                     when p_tokens[v_at + 1] = 'am' and v_number = 12 then 0
                                     else v_number end;
                    v_value := trim_scale(v_number)::text || ':00';
                    v_at := v_at + 1;
                elsif left(v_next, 1) = 'u' then
                    v_facts := v_facts || (E'unit\x1f' || substr(v_next, 2) || E'\x1fw');
                    v_at := v_at + 1;
                elsif p_tokens[v_at + 1] in ('年', '月', '日', '号', '號', '点', '點', '時', '时', '分') then
                    v_kind := 'date';
                    v_value := v_value || p_tokens[v_at + 1];
                elsif v_is_word and v_number = 1 then
                    v_weight := 'w';
                end if;
            end if;
        elsif left(v_class, 1) in ('m', 'M') then
            v_month := substr(v_class, 2)::integer;
            v_part := regexp_match(p_tokens[v_at + 1] collate "C", '^([0-9]{1,2})(?:st|nd|rd|th)?$');
            if v_part is not null then
                v_day := v_part[1]::integer;
                v_at := v_at + 1;
            elsif left(p_classes[v_at + 1], 1) = 'o' then
                v_day := substr(p_classes[v_at + 1], 2)::integer;
                v_at := v_at + 1;
            elsif p_classes[v_at + 1] in ('#20', '#30') and left(p_classes[v_at + 2], 1) = 'o' then
                v_day := substr(p_classes[v_at + 1], 2)::integer + substr(p_classes[v_at + 2], 2)::integer;
                v_at := v_at + 2;
            elsif left(v_class, 1) = 'M' and coalesce(p_tokens[v_at + 1] collate "C" !~ '^[0-9]{4}$', true)
                and (v_at = 1 or p_tokens[v_at - 1] = '.' or p_marked[v_at] = v_token)
            then
                continue;
            end if;
        elsif left(v_class, 1) = 'w' then
            v_kind := 'date';
            v_value := v_days[substr(v_class, 2)::integer];
        elsif left(v_class, 1) = 'o' then
            v_kind := 'numeral';
            v_value := substr(v_class, 2) || 'th';
            v_weight := case when v_class in ('o1', 'o2') then 'w' else 's' end;
            v_place := memfold_internal._guard_month_after(p_tokens, p_classes, v_at);
            if v_place is not null then
                v_weight := 's';
                v_day := substr(v_class, 2)::integer;
                v_month := substr(p_classes[v_place], 2)::integer;
                v_at := v_place;
            end if;
        elsif left(v_class, 1) = 'u' then
            -- a unit without a number: per minute, every week
            v_kind := 'unit';
            v_value := substr(v_class, 2);
            v_weight := 'w';
        elsif left(v_class, 1) = '$' then
            v_kind := 'currency';
            v_value := substr(v_class, 2);
            v_weight := 'w';
        elsif position(E'\x02' in v_token) > 0 then
            v_kind := 'date';
            v_value := replace(v_token, E'\x02', '-');
        elsif v_token ~ '^[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?$' then
            v_kind := 'time';
            v_value := ltrim(v_token, '0');
            if left(v_value, 1) = ':' then
                v_value := '0' || v_value;
            end if;
            if p_classes[v_at + 1] = 't12' and split_part(v_value, ':', 1)::integer < 12 then
                v_value := (split_part(v_value, ':', 1)::integer + 12)::text
                    || substr(v_value, position(':' in v_value));
            end if;
        elsif v_token ~ '^[0-9]+(?:st|nd|rd|th|º|ª|er|ère|ème|e)$' then
            v_part := regexp_match(v_token, '^([0-9]+)');
            if left(p_classes[v_at + 1], 1) in ('m', 'M') and length(v_part[1]) < 3 then
                v_day := v_part[1]::integer;
                v_month := substr(p_classes[v_at + 1], 2)::integer;
                v_at := v_at + 1;
            elsif p_classes[v_at + 1] is not null and p_tokens[v_at + 1] = 'of' and left(p_classes[v_at + 2], 1) in ('m', 'M')
                and length(v_part[1]) < 3
            then
                v_day := v_part[1]::integer;
                v_month := substr(p_classes[v_at + 2], 2)::integer;
                v_at := v_at + 2;
            else
                v_kind := 'numeral';
                v_value := v_part[1] || 'th';
            end if;
        elsif v_token ~ '^[0-9]{1,4}[./][0-9]{1,2}[./][0-9]{2,4}$' then
            v_kind := 'date';
            v_part := regexp_match(v_token, '^([0-9]+)([./])([0-9]+)[./]([0-9]+)$');
            if length(v_part[1]) = 4 then
                v_value := v_part[1] || '-' || lpad(v_part[3], 2, '0') || '-' || lpad(v_part[4], 2, '0');
            elsif v_part[2] = '.' or v_part[1]::integer > 12 then
                v_value := v_part[4] || '-' || lpad(v_part[3], 2, '0') || '-' || lpad(v_part[1], 2, '0');
            else
                v_value := v_part[4] || '-' || lpad(v_part[1], 2, '0') || '-' || lpad(v_part[3], 2, '0');
            end if;
        elsif v_token ~ E'^[0-9]{1,3}(?:\\.[0-9]{3}){2,}$' then
            v_kind := 'numeral';
            v_value := replace(v_token, '.', '');
        elsif v_token ~ E'^v\\.?[0-9]+(?:\\.[0-9a-z]+)*$' or v_token ~ E'^[0-9]+(?:\\.[0-9a-z]+){2,}(?:-[0-9a-z.]+)?$' then
            v_kind := 'version';
            v_value := ltrim(v_token, 'v.');
        elsif length(v_token) > 1 then
            v_kind := 'identifier';
            v_value := rtrim(v_token, './:');
        end if;

        if v_month is not null then
            v_kind := 'date';
            if p_tokens[v_at + 1] in (',', 'de', 'of') and p_tokens[v_at + 2] collate "C" ~ '^[0-9]{4}$' then
                v_at := v_at + 2;
                v_year := p_tokens[v_at];
            elsif p_tokens[v_at + 1] collate "C" ~ '^[0-9]{4}$' then
                v_at := v_at + 1;
                v_year := p_tokens[v_at];
            end if;
            if v_day is not null and v_year is not null then
                v_value := v_year || '-' || lpad(v_month::text, 2, '0') || '-' || lpad(v_day::text, 2, '0');
            else
                v_value := concat_ws(' ', v_day, v_months[v_month], v_year);
            end if;
        end if;
        if v_kind is not null then
            v_facts := v_facts || (v_kind || E'\x1f' || v_value || E'\x1f' || v_weight);
        end if;
    end loop;
    return v_facts;
end;
$function$;

-- Each number of a text with the word it counts, as word, U+001F, number.
create or replace function memfold_internal._guard_counted(p_tokens text[], p_classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_counted text[] := '{}'::text[];
begin
    for v_at in 1..cardinality(p_tokens) - 1 loop
        if (left(p_classes[v_at], 1) = '#' or p_classes[v_at] is null and p_tokens[v_at] collate "C" ~ '^[-+]?[0-9.]+$')
            and (p_classes[v_at + 1] is null or left(p_classes[v_at + 1], 1) in ('S', 'u', '$', '%'))
        then
            v_counted := v_counted
                || (p_tokens[v_at + 1] || E'\x1f' || ltrim(coalesce(p_classes[v_at], p_tokens[v_at]), '#'));
        end if;
    end loop;
    return v_counted;
end;
$function$;

-- The facts (_guard_facts) that only one text states, as signals.
create or replace function memfold_internal._guard_fact_change(a text[], b text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
begin
    return (
        select coalesce(array_agg(compared.kind || ': ' || compared.difference), '{}')
        from (
            select facts.kind,
                concat_ws(' <> ', string_agg(facts.value, ', ' order by facts.value) filter (where facts.side = 1),
                          string_agg(facts.value, ', ' order by facts.value) filter (where facts.side = 2))
                    as difference,
                bool_or(facts.weight = 's') or count(distinct facts.side) = 2 as differs
            from (
                select listed.kind, listed.value, listed.weight, listed.side,
                    -- (a window, for a value that both texts state: a join would take quadratic time for a page)
                    min(listed.side) over (partition by listed.value) <> max(listed.side) over (partition by listed.value)
                        as is_shared
                from (
                    select distinct split_part(stated.fact, E'\x1f', 1) as kind,
                        split_part(stated.fact, E'\x1f', 2) as value,
                        split_part(stated.fact, E'\x1f', 3) as weight, stated.side
                    from (select unnest(a), 1 union all select unnest(b), 2) as stated(fact, side)
                ) as listed
            ) as facts
            where not facts.is_shared
            group by facts.kind
        ) as compared
        where compared.differs);
end;
$function$;
