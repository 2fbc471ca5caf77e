-- Returns the statements, one per row, that drop an index if it exists and create it again, without blocking writers.
-- p_definition: the part of CREATE INDEX after ON; null: the index is only dropped.
create or replace function memfold_internal._index_ddl(p_name text, p_definition text) returns setof text
language plpgsql stable
as $$
begin
    if to_regclass('memfold.' || p_name) is not null then
        return next 'drop index concurrently memfold.' || p_name;
    end if;
    if p_definition is not null then
        return next format('create index concurrently %I on memfold.%s', p_name, p_definition);
    end if;
end;
$$;

-- Executes a statement of _index_ddl() without CONCURRENTLY. The caller has locked the table.
create or replace function memfold_internal._execute_index_ddl(p_statement text) returns void
language plpgsql volatile
as $$
begin
    execute regexp_replace(p_statement, '^(create|drop) index concurrently', E'\\1 index');
end;
$$;
