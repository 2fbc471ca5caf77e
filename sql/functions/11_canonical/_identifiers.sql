-- The longest identifier, in bytes of UTF-8.
create or replace function memfold_internal._identifier_size() returns integer
language sql immutable parallel safe
return 512;

-- Raises MF003 unless the identifier has 1 to 512 bytes, and for a subject, predicate or object also a canonical form
-- that is not empty. Null is allowed unless p_required.
create or replace function memfold_internal._check_identifier(p_name text, p_identifier text, p_required boolean) returns void
language plpgsql immutable parallel safe
as $$
begin
    if p_identifier is null and p_required or p_identifier = '' then
        perform memfold_internal._fail('MF003', format('%s is missing', p_name),
            format('%s was %s.', p_name, quote_nullable(p_identifier)),
            'Pass a text that is not empty'
            || case when p_required then '.' else ', or null if there is none.' end);
    elsif octet_length(p_identifier) > memfold_internal._identifier_size() then
        perform memfold_internal._fail('MF003', format('%s is too long', p_name),
            format('It has %s bytes.', octet_length(p_identifier)),
            format('Identifiers have at most %s bytes of UTF-8; long text belongs in content or metadata.',
                memfold_internal._identifier_size()));
    elsif p_name in ('subject', 'predicate', 'object') and memfold.canonicalize(p_identifier, 'prose/1') = '' then
        perform memfold_internal._fail('MF003', format('%s is empty', p_name),
            format('The canonical form of %L is empty.', p_identifier),
            'Pass null if there is none.');
    end if;
end;
$$;

-- Raises MF003 for '*', which is not a valid tenant, bucket or type of a memory.
create or replace function memfold_internal._check_wildcard(p_name text, p_identifier text) returns void
language plpgsql immutable parallel safe
as $$
begin
    if p_identifier = '*' then
        perform memfold_internal._fail('MF003', format('%s is not a name', p_name),
            format('%s was ''*'', which stands for any name in rules and in maintenance calls.', p_name),
            'Pass an actual name.');
    end if;
end;
$$;

-- Raises MF061 if the text has more than 30 combining marks in a row.
create or replace function memfold_internal._check_marks(p_content text) returns void
language plpgsql immutable parallel safe
as $$
begin
    if memfold_internal._has_mark_run_1(p_content) then
        perform memfold_internal._fail('MF061', 'the content has too many combining marks in a row',
            'More than 30 follow one another.',
            'No script needs so many (Unicode Standard Annex 15 defines text with at most 30 as stream-safe): remove them.');
    end if;
end;
$$;
