-- PostgreSQL's message, in the language of the session, for a COMMIT where none is allowed, as in every function.
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

-- Raises 25001 unless the procedure that calls it may commit.
create or replace procedure memfold_internal._require_autocommit(p_name text)
language plpgsql
as $$
-- It must run in the same context as its caller, so it may not pin search_path: every name is qualified.
declare
    v_message text;
begin
    -- Always fails here: because of the exception block, or, which is checked first, a transaction block around the call.
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
