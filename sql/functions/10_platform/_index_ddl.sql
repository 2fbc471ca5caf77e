create or replace function memfold_internal._index_ddl(name text, definition text) returns setof text
language plpgsql stable
as $$
begin
    if pg_catalog.to_regclass('memfold.' || name) is not null then
        return next 'drop index concurrently memfold.' || name;
    end if;
    if definition is not null then
        return next pg_catalog.format('create index concurrently %I on memfold.%s', name, definition);
    end if;
end;
$$;
comment on function memfold_internal._index_ddl is
'Returns the statements, one per row, that replace whatever has the index''s name with the index, or drop it (definition null), without
blocking writers. definition: what follows ON. Only reads.';

create or replace function memfold_internal._execute_index_ddl(statement text) returns void
language plpgsql volatile
as $$
begin
    execute pg_catalog.regexp_replace(statement, '^(create|drop) index concurrently', E'\\1 index');
end;
$$;
comment on function memfold_internal._execute_index_ddl is
'Executes a statement of _index_ddl() in the transaction of its caller, which has locked the table.';
