-- The profiles of version 1. Strings are written E'\u....', so that the file is plain ASCII and independent of client_encoding and
-- standard_conforming_strings. Every function returns null for null; the small ones are not STRICT, because PostgreSQL does not inline
-- a STRICT function whose body is a CASE. _fold_1() and _keep_apart_1() need no pinned search_path: only functions that pin it call them.

-- Normalization -------------------------------------------------------------------------------------------------------

-- _nfkc_1() for a text without long runs of combining marks. Older minor releases of PostgreSQL drop U+11A7 after a
-- Hangul syllable; a word joiner between them prevents that, and both profiles remove word joiners.
create or replace function memfold_internal._normalize_nfkc_1(p_content text) returns text
immutable parallel safe
return case
    when p_content is nfkc normalized then p_content
    when strpos(p_content collate "C", E'\u11A7') = 0 then normalize(p_content, nfkc)
    else replace(
        normalize(
            replace(memfold_internal._break_mark_runs_1(replace(p_content collate "C", E'\u2060', '')), E'\u11A7', E'\u2060\u11A7'),
            nfkc
        ) collate "C",
        E'\u2060', ''
    )
end;

-- The text in NFKC, in linear time.
create or replace function memfold_internal._nfkc_1(p_content text) returns text
immutable parallel safe
return memfold_internal._normalize_nfkc_1(memfold_internal._break_mark_runs_1(p_content));

-- _nfc_1() for a text without long runs of combining marks; U+11A7 as in _normalize_nfkc_1().
create or replace function memfold_internal._normalize_nfc_1(p_content text) returns text
immutable parallel safe
return case
    when p_content is nfc normalized then p_content
    when strpos(p_content collate "C", E'\u11A7') = 0 then normalize(p_content, nfc)
    else replace(
        normalize(
            replace(memfold_internal._break_mark_runs_1(replace(p_content collate "C", E'\u2060', '')), E'\u11A7', E'\u2060\u11A7'),
            nfc
        ) collate "C",
        E'\u2060', ''
    )
end;

-- The text in NFC, in linear time.
create or replace function memfold_internal._nfc_1(p_content text) returns text
immutable parallel safe
return memfold_internal._normalize_nfc_1(memfold_internal._break_mark_runs_1(p_content));

-- Lower case ----------------------------------------------------------------------------------------------------------

-- The lower case of a text in NFC or NFKC, in the same form.
create or replace function memfold_internal._fold_1(p_content text) returns text
language plpgsql immutable strict parallel safe
as $$
declare
    v_text text collate "C" := lower(p_content collate "C");
    v_rest text collate "C";
    v_capital text collate "C";
    v_capitals text collate "C" := '';
begin
    if v_text ~ ('[' || memfold_internal._capitals_1() || ']') then
        -- translate() searches its table for every character, so the table is reduced to the distinct capitals of the text
        v_rest := regexp_replace(v_text, '[^' || memfold_internal._capitals_1() || ']+', '', 'g');
        while v_rest <> '' loop
            v_capital := left(v_rest, 1);
            v_capitals := v_capitals || v_capital;
            v_rest := replace(v_rest, v_capital, '');
        end loop;
        v_text := translate(
            v_text, v_capitals, translate(v_capitals, memfold_internal._fold_from_1(), memfold_internal._fold_to_1()));
    end if;
    -- the table maps dotted I to i, and many programs write its small letter as i + dot above
    if strpos(v_text, E'\u0307') > 0 then
        v_text := regexp_replace(v_text, E'([i\u012F\u1E2D\u1ECB])\u0307+', E'\\1', 'g');
    end if;
    -- a small letter may have a composed form that its capital lacks (U+01F0)
    if v_text <> p_content collate "C" then
        v_text := memfold_internal._nfc_1(v_text);
    end if;
    return v_text;
end
$$;

-- prose/1 -------------------------------------------------------------------------------------------------------------

-- The text with differences kept that NFKC would lose (10^5 is not 105, 1 1/2 is not 11/2): ^ before a run of superscripts, _ before one of
-- subscripts, a space before a vulgar fraction, and a space before a digit that follows any of them (except U+215F, a fraction numerator).
create or replace function memfold_internal._keep_apart_1(p_content text) returns text
language plpgsql immutable strict parallel safe
as $$
declare
    v_text text collate "C" := translate(p_content collate "C", E'\u00AD\u200B\u2060\uFEFF', '');
begin
    v_text := regexp_replace(v_text, '([' || memfold_internal._superscripts_1() || ']+)', E'^\\1', 'g');
    v_text := regexp_replace(v_text, '([' || memfold_internal._subscripts_1() || ']+)', E'_\\1', 'g');
    v_text := regexp_replace(v_text, '([' || memfold_internal._fractions_1() || E'\u215F])', E' \\1', 'g');
    return regexp_replace(
        v_text,
        '([' || memfold_internal._superscripts_1() || memfold_internal._subscripts_1() || memfold_internal._fractions_1() || '])'
        || '(?=[' || memfold_internal._digits_1() || '])',
        E'\\1 ', 'g');
end
$$;

-- prose/1 of any text. White space is the Unicode property White_Space, without the characters that NFKC has already
-- turned into a plain space.
create or replace function memfold_internal._prose_1_any(p_content text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text collate "C" := p_content;
begin
    if v_text ~ (E'[\u00AD\u200B\u2060\uFEFF\u215F' || memfold_internal._superscripts_1() || memfold_internal._subscripts_1()
                 || memfold_internal._fractions_1() || ']') then
        v_text := memfold_internal._keep_apart_1(v_text);
    end if;
    v_text := memfold_internal._fold_1(memfold_internal._nfkc_1(v_text));
    -- models use typographic quotes and dashes in one text, plain ones in another
    if v_text ~ E'[\u2010-\u201F\u2212]' then
        v_text := translate(v_text, E'\u2018\u2019\u201A\u201B\u201C\u201D\u201E\u201F\u2010\u2012\u2013\u2014\u2015\u2212',
            '''''''''""""------');
    end if;
    if v_text ~ E'[\\u0009-\\u000D\u0085\u1680\u2028\u2029]|  ' then
        v_text := regexp_replace(v_text, E'[\\u0009-\\u000D \u0085\u1680\u2028\u2029]+', ' ', 'g');
    end if;
    v_text := btrim(v_text);
    if right(v_text, 1) in ('.', '!', '?', E'\u3002') then
        v_text := rtrim(left(v_text, -1));
    end if;
    return v_text;
end
$$;

-- prose/1: printable ASCII with single spaces, which is most text, needs no call. Few nodes, because PL/pgSQL initialises
-- all nodes of an inlined expression in every call.
create or replace function memfold_internal._prose_1(p_content text) returns text
immutable parallel safe
return case
    when p_content ~ '[^ -~]|  ' collate "C" then memfold_internal._prose_1_any(p_content)
    when p_content ~ '^ |[ .!?]$' collate "C"
        then lower(btrim(regexp_replace(p_content, ' *[.!?] *$' collate "C", '')) collate "C")
    else lower(p_content collate "C")
end;

-- predicate/1 ---------------------------------------------------------------------------------------------------------

-- predicate/1 of any name. Spellings of one relation differ by how programmers join its words: works_at, works-at, worksAt, "Works at".
-- Only ASCII capitals separate words, so that the result does not depend on the server. A name without words ("_") keeps its prose/1 form.
create or replace function memfold_internal._predicate_1_any(p_content text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text collate "C" := regexp_replace(p_content collate "C", '([a-z])([A-Z])', E'\\1 \\2', 'g');
begin
    v_text := regexp_replace(v_text, '([A-Z])([A-Z][a-z][a-z])', E'\\1 \\2', 'g');
    -- prose/1 comes first, because NFKC produces some of these signs
    v_text := memfold_internal._prose_1(translate(memfold_internal._prose_1(v_text), '_-', '  '));
    return case when v_text = '' then memfold_internal._prose_1(p_content) else v_text end;
end
$$;

-- predicate/1: prose/1 of a predicate with its words separated by spaces. Most predicates need no call.
create or replace function memfold_internal._predicate_1(p_content text) returns text
immutable parallel safe
return case
    when p_content ~ '^[a-z0-9]+([_ -][a-z0-9]+)*$' collate "C" then pg_catalog.translate(p_content, '_-', '  ')
    else memfold_internal._predicate_1_any(p_content)
end;

-- flat/1 --------------------------------------------------------------------------------------------------------------

-- flat/1 of any text: letters, digits and full stops (categories L, M and N of Unicode 14, and U+002E), in lower case.
-- The rule lists the characters to remove (P, S, Z, Cc, Cf, Co and variation selectors, which only choose a glyph), so
-- that letters added after Unicode 14 are kept. NFC, not NFKC: compatibility forms are different texts.
create or replace function memfold_internal._flat_1_any(p_content text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text collate "C" := p_content;
begin
    v_text := memfold_internal._nfc_1(v_text);
    v_text := regexp_replace(v_text, '[' || memfold_internal._dropped_1() || ']+', '', 'g');
    -- a letter and a mark may have become adjacent
    return memfold_internal._fold_1(memfold_internal._nfc_1(v_text));
end
$$;

-- flat/1: ASCII needs no call.
create or replace function memfold_internal._flat_1(p_content text) returns text
immutable parallel safe
return case
    when octet_length(p_content) <> char_length(p_content) then memfold_internal._flat_1_any(p_content)
    else regexp_replace(lower(p_content collate "C") collate "C", '[^a-z0-9.]+', '', 'g')
end;

-- code/1 --------------------------------------------------------------------------------------------------------------

-- code/1: only line ends are normalized.
create or replace function memfold_internal._code_1(p_content text) returns text
immutable parallel safe
return replace(replace(p_content collate "C", E'\r\n', E'\n'), E'\r', E'\n');
