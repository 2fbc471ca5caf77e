create or replace function memfold._lock(tenant_id text, bucket_id text, scope_key bigint, patient boolean) returns void
language plpgsql volatile
as $$
declare
    v_bucket_key constant bigint := pg_catalog.hashtextextended(bucket_id collate "C",
        pg_catalog.hashtextextended(tenant_id collate "C", 0));
    v_scope_key constant bigint := pg_catalog.hashtextextended(tenant_id collate "C", scope_key);
begin
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        perform memfold._fail('MF025', 'the isolation level must be READ COMMITTED',
            'The transaction runs at ' || pg_catalog.current_setting('transaction_isolation')
            || ': after waiting for its turn it could not see what was written before it, and would store a duplicate.',
            'Run the call in a READ COMMITTED transaction. Restating a known fact is allowed at any level.');
    end if;
    if patient then
        if scope_key is null then
            perform pg_catalog.pg_advisory_xact_lock(v_bucket_key);
        else
            perform pg_catalog.pg_advisory_xact_lock_shared(v_bucket_key);
            perform pg_catalog.pg_advisory_xact_lock(v_scope_key);
        end if;
    elsif not memfold._try_lock(tenant_id, bucket_id, scope_key) then
        raise exception 'the scope is busy' using
            errcode = 'serialization_failure',
            detail = 'Another call works on it, and this one already holds a row that it may wait for.',
            hint = 'Retry the call, with the same idempotency_key if it has one.';
    end if;
end;
$$;
revoke all on function memfold._lock(text, text, bigint, boolean) from public;
comment on function memfold._lock(text, text, bigint, boolean) is
'Slow paths only, and always a statement of its own: the bucket''s advisory key SHARED, then the scope''s EXCLUSIVE
(scope_key null: the bucket''s EXCLUSIVE), held to the end of the transaction. A caller that already holds a row lock is
not patient: it tries, and fails with 40001. Raises MF025 at any isolation level but READ COMMITTED.';

create or replace function memfold._try_lock(tenant_id text, bucket_id text, scope_key bigint) returns boolean
language plpgsql volatile
as $$
declare
    v_bucket_key constant bigint := pg_catalog.hashtextextended(bucket_id collate "C",
        pg_catalog.hashtextextended(tenant_id collate "C", 0));
begin
    if scope_key is null then
        return pg_catalog.pg_try_advisory_xact_lock(v_bucket_key);
    end if;
    return pg_catalog.pg_try_advisory_xact_lock_shared(v_bucket_key)
        and pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(tenant_id collate "C", scope_key));
end;
$$;
revoke all on function memfold._try_lock(text, text, bigint) from public;
comment on function memfold._try_lock(text, text, bigint) is
'The locks of _lock(), where they are to be had at once: else false, and perhaps the bucket''s SHARED.';
