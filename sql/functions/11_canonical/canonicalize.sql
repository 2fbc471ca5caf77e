-- Raises MF011: there is no such profile.
create or replace function memfold_internal._unknown_profile(p_content text, p_profile text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'MF011',
        message = 'unknown canonicalizer profile',
        detail = format('There is no profile "%s".', p_profile),
        hint = 'The profiles are prose/1, flat/1, code/1 and exact/1.';
end
$$;

-- canonicalize() for memfold's PL/pgSQL functions, which inline it. Not for a generated column or a CHECK: every INSERT
-- would inline it again, which takes a hundred times as long as the call.
create or replace function memfold_internal._canonical(p_content text, p_profile text) returns text
immutable parallel safe
return case p_profile collate "C"
    when 'prose/1' then memfold_internal._prose_1(p_content)
    when 'flat/1' then memfold_internal._flat_1(p_content)
    when 'code/1' then memfold_internal._code_1(p_content)
    when 'exact/1' then p_content
    else memfold_internal._other_profile(p_content, p_profile)
end;

create or replace function memfold.canonicalize(content text, profile text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    return memfold_internal._canonical(content, profile);
end
$$;

comment on function memfold.canonicalize is
$$Returns the canonical form of a text: two texts with the same form are one fact to tier 1.

prose/1  U+200B, U+2060, U+FEFF and U+00AD dropped; superscripts, subscripts and vulgar fractions kept apart
         (10^5, H_2O, 1 1/2 with U+2044); NFKC; lower case; white space runs to one space; trimmed; one trailing
         . ! ? or U+3002 stripped; trimmed; typographic quotes and dashes (U+2010 to U+201F, U+2212) as plain ones.
         Numerals, signs, currency, symbols and negation stay.
flat/1   NFC, lower case; of that only letters with their marks, digits and full stops, of every script.
code/1   line ends to LF; everything else stays.
exact/1  the text as it is.

predicate/1  for predicates, regardless of the policy: a space before an ASCII capital that follows a small letter (worksAt), or that
         follows a capital and precedes two small letters (HTTPServer); prose/1; _ and - become spaces; prose/1.

Immutable: for text of code points assigned in Unicode 14 the same bytes on every server from PostgreSQL 15 on, regardless
of locale and collations (canonicalizer_selftest() proves it for yours). A profile never changes: other rules get
another version. Lower case is the simple mapping of Unicode 14, with final sigma as sigma and any dotted i as i.
NULL gives NULL. Raises MF011 for an unknown profile. Needs database encoding UTF8.$$;
