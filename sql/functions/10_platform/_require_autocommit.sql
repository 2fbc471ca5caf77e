-- PostgreSQL's message, in the language of the session, for a COMMIT inside a function, where it is never allowed.
create or replace function memfold_internal._no_commit() returns text
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_message text;
begin
    begin
        commit;
    exception when invalid_transaction_termination then
        get stacked diagnostics v_message = message_text;
    end;
    return v_message;
end;
$$;
grant execute on function memfold_internal._no_commit to memfold_app;

-- Raises 25001, naming the procedure p_name, unless its caller may commit.
create or replace procedure memfold_internal._require_autocommit(p_name text)
language plpgsql
as $$
-- A procedure with a SET clause cannot commit, so search_path is not pinned and every name is qualified.
declare
    v_message text;
begin
    -- This COMMIT always fails. PostgreSQL checks for a transaction block around the call first, then for the exception
    -- block here: the message shows which one it found.
    begin
        commit;
    exception when invalid_transaction_termination then
        get stacked diagnostics v_message = message_text;
    end;
    if v_message operator(pg_catalog.=) memfold_internal._no_commit() then
        raise exception '% cannot run inside a transaction block', p_name using
            errcode = 'active_sql_transaction',
            detail = 'It commits after each step, so that others do not wait for all of it.',
            hint = 'Call it outside a transaction block, with autocommit.';
    end if;
end;
$$;
grant execute on procedure memfold_internal._require_autocommit to memfold_app;
