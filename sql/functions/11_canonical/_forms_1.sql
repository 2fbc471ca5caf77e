-- The canonicalizer: what tier 1 regards as the same text.
--
-- A canonical form, once hashed into a row, must stay the same for ever: on every server from PostgreSQL 15 on, under every locale and
-- collation. So nothing here depends on the server's idea of a letter: lower() is used only for ASCII and under collation "C", every
-- other capital comes from a table frozen with the profile, white space is a list of code points. The only server function is
-- normalize(), whose result for an assigned code point Unicode guarantees. A change of rules is a new version (prose/2) in addition to
-- the old one, never an edit.
--
-- Strings are written E'\u....', so that the file is plain ASCII and independent of client_encoding and standard_conforming_strings.
-- Functions named _..._1 belong to version 1 of the profiles.
--
-- The small functions are deliberately not STRICT: PostgreSQL does not inline a STRICT function whose body is a CASE. Each returns NULL
-- for NULL.

-- Normalization -------------------------------------------------------------------------------------------------------

-- Servers of older minor releases drop U+11A7 after a Hangul syllable (fixed upstream). A word joiner in between prevents that, and
-- does no harm: both profiles remove word joiners anyway.
-- _nfkc_1() for a text without long runs of combining marks.
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

create or replace function memfold_internal._nfkc_1(p_content text) returns text
immutable parallel safe
return memfold_internal._normalize_nfkc_1(memfold_internal._break_mark_runs_1(p_content));

-- _nfc_1() for a text without long runs of combining marks.
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

create or replace function memfold_internal._nfc_1(p_content text) returns text
immutable parallel safe
return memfold_internal._normalize_nfc_1(memfold_internal._break_mark_runs_1(p_content));

-- Lower case ----------------------------------------------------------------------------------------------------------

-- Takes text in NFC or NFKC and returns it in that form: a capital may have no composed form although its small letter has one (J +
-- caron, but U+01F0). translate() searches its table for every character, so it gets the distinct capitals of the text instead of the
-- text. The table maps dotted I to i; many programs write its small letter as i + dot above, so that dot is removed too. Not pinned:
-- only the pinned functions below call it.
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
        v_rest := regexp_replace(v_text, '[^' || memfold_internal._capitals_1() || ']+', '', 'g');
        while v_rest <> '' loop
            v_capital := left(v_rest, 1);
            v_capitals := v_capitals || v_capital;
            v_rest := replace(v_rest, v_capital, '');
        end loop;
        v_text := translate(
            v_text, v_capitals, translate(v_capitals, memfold_internal._fold_from_1(), memfold_internal._fold_to_1()));
    end if;
    if strpos(v_text, E'\u0307') > 0 then
        v_text := regexp_replace(v_text, E'([i\u012F\u1E2D\u1ECB])\u0307+', E'\\1', 'g');
    end if;
    if v_text <> p_content collate "C" then
        v_text := memfold_internal._nfc_1(v_text);
    end if;
    return v_text;
end
$$;

-- prose/1 -------------------------------------------------------------------------------------------------------------

-- What NFKC would lose: 10^5 is not 105, 1 1/2 is not 11/2. A run of superscripts is preceded by ^, one of subscripts by _, a vulgar
-- fraction by a space; a following digit stays separate too (except after a fraction numerator, U+215F). Not pinned: only a pinned
-- function calls it.
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

-- Any text. White space is the Unicode property White_Space, except what NFKC has turned into a plain space.
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
    -- models write typographic quotes and dashes at one time, plain ones at another
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

-- In as few nodes as possible: PL/pgSQL initialises them all in every call, and each strpos() prepares a search.
-- prose/1: printable ASCII with single spaces, which is most text, without a call; all other text by _prose_1_any().
create or replace function memfold_internal._prose_1(p_content text) returns text
immutable parallel safe
return case
    when p_content ~ '[^ -~]|  ' collate "C" then memfold_internal._prose_1_any(p_content)
    when p_content ~ '^ |[ .!?]$' collate "C"
        then lower(btrim(regexp_replace(p_content, ' *[.!?] *$' collate "C", '')) collate "C")
    else lower(p_content collate "C")
end;

-- predicate/1 ---------------------------------------------------------------------------------------------------------

-- A predicate is a name, and spellings of one relation differ by how programmers join its words: works_at, works-at, worksAt, "Works
-- at". Only ASCII capitals and small letters count, so that the result does not depend on the server. If nothing would be left (a
-- predicate of "_"), it stays as in prose/1.
create or replace function memfold_internal._predicate_1_any(p_content text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text collate "C" := regexp_replace(p_content collate "C", '([a-z])([A-Z])', E'\\1 \\2', 'g');
begin
    v_text := regexp_replace(v_text, '([A-Z])([A-Z][a-z][a-z])', E'\\1 \\2', 'g');
    -- again afterwards, because NFKC produces some of these signs
    v_text := memfold_internal._prose_1(translate(memfold_internal._prose_1(v_text), '_-', '  '));
    return case when v_text = '' then memfold_internal._prose_1(p_content) else v_text end;
end
$$;

-- predicate/1: prose/1 of a predicate with its words separated by spaces, whatever separated them. Most predicates need
-- no call.
create or replace function memfold_internal._predicate_1(p_content text) returns text
immutable parallel safe
return case
    when p_content ~ '^[a-z0-9]+([_ -][a-z0-9]+)*$' collate "C" then pg_catalog.translate(p_content, '_-', '  ')
    else memfold_internal._predicate_1_any(p_content)
end;

-- flat/1 --------------------------------------------------------------------------------------------------------------

-- Keeps letters, digits and full stops: the general categories L, M and N of Unicode 14, of every script, and U+002E. Written as a list
-- of what is removed (P, S, Z, Cc, Cf, Co), because a list of what is kept would remove letters added later: code points unassigned in
-- Unicode 14 are kept. Combining marks are kept because many scripts write their letters with vowel signs and points; variation
-- selectors are removed, they only choose a glyph. NFC, not NFKC: canonical forms are two spellings of one text, compatibility forms
-- are not (so superscripts need no rule here).
create or replace function memfold_internal._flat_1_any(p_content text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    v_text text collate "C" := p_content;
begin
    v_text := memfold_internal._nfc_1(v_text);
    v_text := regexp_replace(v_text, '[' || memfold_internal._dropped_1() || ']+', '', 'g');
    -- NFC again: a letter and a mark may have become adjacent.
    return memfold_internal._fold_1(memfold_internal._nfc_1(v_text));
end
$$;

create or replace function memfold_internal._flat_1(p_content text) returns text
immutable parallel safe
return case
    when octet_length(p_content) <> char_length(p_content) then memfold_internal._flat_1_any(p_content)
    else regexp_replace(lower(p_content collate "C") collate "C", '[^a-z0-9.]+', '', 'g')
end;

-- code/1 --------------------------------------------------------------------------------------------------------------

create or replace function memfold_internal._code_1(p_content text) returns text
immutable parallel safe
return replace(replace(p_content collate "C", E'\r\n', E'\n'), E'\r', E'\n');
