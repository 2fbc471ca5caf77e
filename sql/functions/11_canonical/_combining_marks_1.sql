-- The canonicalizer, which defines the texts that tier 1 regards as equal, and what follows from it: hashes, checks of
-- identifiers, words, and the lexicon of the language rules. The generated columns of memories call it, and nearly every
-- module. All is immutable and reads no table, except _stored_signature(), which reads the ledger.
--
-- A canonical form, once it is hashed into a row, must stay the same for ever: on every server from PostgreSQL 15 on, under every locale
-- and collation. So lower() is used only for ASCII and under collation "C", all other capitals come from a table frozen with the profile,
-- and white space is a list of code points. The only function of the server is normalize(), whose result Unicode guarantees for assigned
-- code points. A change of rules is a new version (prose/2) next to the old one, never an edit; functions named _..._1 belong to version 1.

-- noqa: disable=LT02

-- Normalization sorts the marks after a letter in quadratic time: 33,000 of them take 10 s. Unicode Standard Annex 15 calls text
-- with at most 30 in a row stream-safe, and makes other text so by inserting U+034F, which is not sorted, into the run (here after
-- 15, because some marks decompose into two). Candidates with more are refused (_check_marks); other text is broken up.

-- The combining marks that canonical ordering sorts (combining class other than 0) and the characters that decompose into
-- one, of Unicode 14 to 16, as the inside of a bracket expression.
create or replace function memfold_internal._marks_1() returns text
immutable parallel safe
return
    E'\u0300-\u034E\u0350-\u036F\u0483-\u0487\u0591-\u05BD\u05BF\u05C1-\u05C2\u05C4-\u05C5\u05C7\u0610-\u061A'
     '\u064B-\u065F\u0670\u06D6-\u06DC\u06DF-\u06E4\u06E7-\u06E8\u06EA-\u06ED\u0711\u0730-\u074A\u07EB-\u07F3'
     '\u07FD\u0816-\u0819\u081B-\u0823\u0825-\u0827\u0829-\u082D\u0859-\u085B\u0897-\u089F\u08CA-\u08E1'
     '\u08E3-\u08FF\u093C\u094D\u0951-\u0954\u09BC\u09CD\u09FE\u0A3C\u0A4D\u0ABC\u0ACD\u0B3C\u0B4D\u0BCD\u0C3C'
     '\u0C4D\u0C55-\u0C56\u0CBC\u0CCD\u0D3B-\u0D3C\u0D4D\u0DCA\u0E38-\u0E3A\u0E48-\u0E4B\u0EB8-\u0EBA\u0EC8-\u0ECB'
     '\u0F18-\u0F19\u0F35\u0F37\u0F39\u0F71-\u0F75\u0F7A-\u0F7D\u0F80-\u0F84\u0F86-\u0F87\u0FC6\u1037\u1039-\u103A'
     '\u108D\u135D-\u135F\u1714-\u1715\u1734\u17D2\u17DD\u18A9\u1939-\u193B\u1A17-\u1A18\u1A60\u1A75-\u1A7C\u1A7F'
     '\u1AB0-\u1ABD\u1ABF-\u1ACE\u1B34\u1B44\u1B6B-\u1B73\u1BAA-\u1BAB\u1BE6\u1BF2-\u1BF3\u1C37\u1CD0-\u1CD2'
     '\u1CD4-\u1CE0\u1CE2-\u1CE8\u1CED\u1CF4\u1CF8-\u1CF9\u1DC0-\u1DFF\u20D0-\u20DC\u20E1\u20E5-\u20F0'
     '\u2CEF-\u2CF1\u2D7F\u2DE0-\u2DFF\u302A-\u302F\u3099-\u309A\uA66F\uA674-\uA67D\uA69E-\uA69F\uA6F0-\uA6F1'
     '\uA806\uA82C\uA8C4\uA8E0-\uA8F1\uA92B-\uA92D\uA953\uA9B3\uA9C0\uAAB0\uAAB2-\uAAB4\uAAB7-\uAAB8\uAABE-\uAABF'
     '\uAAC1\uAAF6\uABED\uFB1E\uFE20-\uFE2F\uFF9E-\uFF9F\U000101FD\U000102E0\U00010376-\U0001037A\U00010A0D'
     '\U00010A0F\U00010A38-\U00010A3A\U00010A3F\U00010AE5-\U00010AE6\U00010D24-\U00010D27\U00010D69-\U00010D6D'
     '\U00010EAB-\U00010EAC\U00010EFD-\U00010EFF\U00010F46-\U00010F50\U00010F82-\U00010F85\U00011046\U00011070'
     '\U0001107F\U000110B9-\U000110BA\U00011100-\U00011102\U00011133-\U00011134\U00011173\U000111C0\U000111CA'
     '\U00011235-\U00011236\U000112E9-\U000112EA\U0001133B-\U0001133C\U0001134D\U00011366-\U0001136C'
     '\U00011370-\U00011374\U000113CE-\U000113D0\U00011442\U00011446\U0001145E\U000114C2-\U000114C3'
     '\U000115BF-\U000115C0\U0001163F\U000116B6-\U000116B7\U0001172B\U00011839-\U0001183A\U0001193D-\U0001193E'
     '\U00011943\U000119E0\U00011A34\U00011A47\U00011A99\U00011C3F\U00011D42\U00011D44-\U00011D45\U00011D97'
     '\U00011F41-\U00011F42\U0001612F\U00016AF0-\U00016AF4\U00016B30-\U00016B36\U00016FF0-\U00016FF1\U0001BC9E'
     '\U0001D165-\U0001D169\U0001D16D-\U0001D172\U0001D17B-\U0001D182\U0001D185-\U0001D18B\U0001D1AA-\U0001D1AD'
     '\U0001D242-\U0001D244\U0001E000-\U0001E006\U0001E008-\U0001E018\U0001E01B-\U0001E021\U0001E023-\U0001E024'
     '\U0001E026-\U0001E02A\U0001E08F\U0001E130-\U0001E136\U0001E2AE\U0001E2EC-\U0001E2EF\U0001E4EC-\U0001E4EF'
     '\U0001E5EE-\U0001E5EF\U0001E8D0-\U0001E8D6\U0001E944-\U0001E94A';

-- Whether a text has more than 30 combining marks in a row. Its two lengths rule out most texts without a search.
create or replace function memfold_internal._has_mark_run_1(p_content text) returns boolean
immutable parallel safe
return case
    when octet_length(p_content) - char_length(p_content) > 30
        then p_content collate "C" ~ ('[' || memfold_internal._marks_1() || ']{31}')
    else false
end;

-- The text, with U+034F inserted after every 15 marks of a run if it has more than 30 in a row.
create or replace function memfold_internal._break_mark_runs_1(p_content text) returns text
immutable parallel safe
return case
    when memfold_internal._has_mark_run_1(p_content) then regexp_replace(
        p_content collate "C", '([' || memfold_internal._marks_1() || ']{15})(?=[' || memfold_internal._marks_1() || '])', E'\\1\u034F',
            'g')
    else p_content
end;
