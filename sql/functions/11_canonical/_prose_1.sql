-- The same bytes as before (canonicalizer_selftest() compares them), in fewer nodes: PL/pgSQL initialises them all in every
-- call, and each strpos() prepares a search.
create or replace function memfold._prose_1(content text) returns text
immutable parallel safe
return case
    when content ~ '[^ -~]|  ' collate "C" then memfold._prose_1_any(content)
    when content ~ '^ |[ .!?]$' collate "C"
        then lower(btrim(regexp_replace(content, ' *[.!?] *$' collate "C", '')) collate "C")
    else lower(content collate "C")
end;
revoke all on function memfold._prose_1(text) from public;
comment on function memfold._prose_1(text) is
'prose/1: printable ASCII with single spaces, which is most text, without a call; all other text by _prose_1_any().';
