create or replace function memfold.text_index_ddl(text_search text default 'simple', drop_index boolean default false) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_config constant regconfig := memfold_internal._text_search(text_search);
begin
    if not drop_index and memfold_internal._text_index(v_config) is not null then
        return;
    end if;
    return query select s.* from memfold_internal._index_ddl(memfold_internal._text_index_name(v_config), case when not drop_index then format(
        'memories using gin (memfold_internal._memory_words(tenant_id, bucket_id, content, subject, predicate, object, %L::regconfig))',
        v_config::text) end) as s;
end;
$$;
comment on function memfold.text_index_ddl is
E'Returns the statements that build the index of create_text_index() without blocking writers, one per row, for psql''s \\gexec: they
cannot run inside a function. Returns no row if the index exists and is valid; an invalid one, left by an interrupted build, is dropped
first. drop_index: returns the statement that drops it instead; no row if there is no such index. Only for members of memfold_owner.
Raises MF017.';

create or replace function memfold.create_text_index(text_search text default 'simple') returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    -- Lock before the index is looked up, to wait for another build of it. (SHARE would do for a build, but
    -- admits two builders.)
    lock table memfold.memories in share row exclusive mode;
    perform memfold_internal._execute_index_ddl(s.statement) from memfold.text_index_ddl(text_search) as s (statement);
end;
$$;
comment on function memfold.create_text_index is
'Creates the index of words (GIN) of a text search configuration (set_options(text_search => ...)): search_memories() with a query then
uses it to find words in buckets of any size, instead of reading up to 100,000 texts. Does nothing if the index exists; replaces an
invalid one, left by an interrupted build. Blocks writers until the transaction ends: on a database in use, run the statements of
text_index_ddl() instead. Only for members of memfold_owner. Raises MF017.';
