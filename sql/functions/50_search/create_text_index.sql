create or replace function memfold.text_index_ddl(text_search text default 'simple') returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_config constant regconfig := memfold_internal._text_search(text_search);
begin
    if memfold_internal._text_index(v_config) is not null then
        return;
    end if;
    return query select s.* from memfold_internal._index_ddl(memfold_internal._text_index_name(v_config), format(
        'memories using gin (memfold_internal._memory_words(tenant_id, bucket_id, content, subject, predicate, object, %L::regconfig))',
        v_config::text)) as s;
end;
$$;
revoke all on function memfold.text_index_ddl(text) from public;
comment on function memfold.text_index_ddl(text) is
E'The statements that make what create_text_index() makes without keeping writers waiting, one a row, for psql''s \\gexec: they cannot run
inside a function. None where the index is there and valid; one that an interrupted build has left behind is dropped. Only for members of
memfold_owner. Raises MF017.';

create or replace function memfold.create_text_index(text_search text default 'simple') returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    -- first, so that what a concurrent build makes is seen when it is complete
    lock table memfold.memories in share mode;
    perform memfold_internal._execute_index_ddl(s.statement) from memfold.text_index_ddl(text_search) as s (statement);
end;
$$;
revoke all on function memfold.create_text_index(text) from public;
comment on function memfold.create_text_index(text) is
'Makes the index of words (GIN) of a text search configuration (set_options(text_search => ...)): search_memories() with a query then finds
words in buckets of any size by it, instead of reading up to 100,000 texts. Does nothing where it is there; replaces one that an
interrupted build has left behind. Writers wait until the transaction ends: on a database in use, run the statements of text_index_ddl()
instead. Only for members of memfold_owner. Raises MF017.';

create or replace function memfold.drop_text_index_ddl(text_search text default 'simple') returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return query select s.* from memfold_internal._index_ddl(
        memfold_internal._text_index_name(memfold_internal._text_search(text_search)), null) as s;
end;
$$;
revoke all on function memfold.drop_text_index_ddl(text) from public;
comment on function memfold.drop_text_index_ddl(text) is
E'The statement that takes away what create_text_index() or text_index_ddl() has made, for psql''s \\gexec; none where there is no index.
Only for members of memfold_owner. Raises MF017.';
