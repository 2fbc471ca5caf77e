-- Locks a scope for a writer: the key of rules and the bucket's SHARED, then the scope's EXCLUSIVE. p_scope_key null:
-- the whole bucket, EXCLUSIVE. p_wait must be false if the caller may hold a row: keys that are not free then raise
-- 40001. For many scopes in one transaction, see _lock_scope(). Raises MF025, and 40001 for too many scopes.
create or replace function memfold_internal._lock(p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_wait boolean) returns void
language plpgsql volatile
as $$
declare
    v_bucket_lock constant bigint := memfold_internal._bucket_key(p_tenant_id, p_bucket_id);
    v_scope_lock constant bigint := memfold_internal._scope_lock(p_tenant_id, p_scope_key);
    v_noted text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform memfold_internal._check_isolation();
    end if;
    if p_wait then
        perform pg_advisory_xact_lock_shared(memfold_internal._rules_key(p_tenant_id));
    elsif not pg_try_advisory_xact_lock_shared(memfold_internal._rules_key(p_tenant_id)) then
        perform memfold_internal._fail_busy_scope();
    end if;
    if p_scope_key is null and p_wait then
        perform pg_advisory_xact_lock(v_bucket_lock);
    elsif p_wait and coalesce(current_setting('memfold.scope_locks', true), '') = ''
        and coalesce(current_setting('memfold.lock_bucket', true), '') <> 'on'
    then
        -- the first scope of a transaction: _lock_scope() and _note_scope() without the cost of their calls
        perform pg_advisory_xact_lock_shared(v_bucket_lock);
        perform pg_advisory_xact_lock(v_scope_lock);
        v_noted := set_config('memfold.scope_locks', '1 ' || v_scope_lock || ' ', true);
    elsif p_scope_key is null then
        if not pg_try_advisory_xact_lock(v_bucket_lock) then
            perform memfold_internal._fail_busy_scope();
        end if;
    elsif not memfold_internal._lock_scope(v_bucket_lock, v_scope_lock, p_wait) then
        if p_wait then
            perform memfold_internal._fail_scope_locks();
        end if;
        perform memfold_internal._fail_busy_scope();
    end if;
end;
$$;

-- Raises 40001: another call is writing to the scope.
create or replace function memfold_internal._fail_busy_scope() returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._retry('the scope is busy', 'Another call is writing to it, and may be waiting for locks that this one holds.');
end;
$$;

-- Takes the locks of _lock() if they are free; else returns false, and may keep those that are SHARED.
create or replace function memfold_internal._try_lock(p_tenant_id text, p_bucket_id text, p_scope_key uuid) returns boolean
language plpgsql volatile
as $$
begin
    if not pg_try_advisory_xact_lock_shared(memfold_internal._rules_key(p_tenant_id)) then
        return false;
    elsif p_scope_key is null then
        return pg_try_advisory_xact_lock(memfold_internal._bucket_key(p_tenant_id, p_bucket_id));
    end if;
    return memfold_internal._lock_scope(memfold_internal._bucket_key(p_tenant_id, p_bucket_id),
        memfold_internal._scope_lock(p_tenant_id, p_scope_key), false);
end;
$$;

-- The advisory key of a bucket.
create or replace function memfold_internal._bucket_key(p_tenant_id text, p_bucket_id text) returns bigint
language sql stable parallel safe
return memfold_internal._short_hash(
    pg_catalog.convert_to('bucket ' || p_tenant_id, 'UTF8') || E'\\x00'::bytea || pg_catalog.convert_to(p_bucket_id, 'UTF8')
);

-- The advisory key of a scope.
create or replace function memfold_internal._scope_lock(p_tenant_id text, p_scope_key uuid) returns bigint
language sql stable parallel safe
return memfold_internal._short_hash(
    pg_catalog.convert_to('scope ' || p_tenant_id, 'UTF8') || E'\\x00'::bytea || pg_catalog.uuid_send(p_scope_key)
);

-- The advisory key of a tenant's rules: that of the empty bucket name, which no bucket has.
create or replace function memfold_internal._rules_key(p_tenant_id text) returns bigint
language sql stable parallel safe
return memfold_internal._bucket_key(p_tenant_id, '');

-- Locks a tenant's rules for a change of which scopes are slots: waits for calls that decided by the old rules, so that
-- the caller takes up all that they stored, and makes later calls wait. Must precede any other lock. Raises MF025.
create or replace function memfold_internal._lock_rules(p_tenant_id text) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._check_isolation();
    perform pg_advisory_xact_lock(memfold_internal._rules_key(p_tenant_id));
end;
$$;

-- Raises MF025 at any isolation level except READ COMMITTED.
create or replace function memfold_internal._check_isolation() returns void
language plpgsql stable
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform memfold_internal._fail('MF025', 'the isolation level must be READ COMMITTED',
            'The transaction runs at ' || current_setting('transaction_isolation')
            || ': after waiting for a lock it could not see what others have written, and would store a duplicate.',
            'Run the call in a READ COMMITTED transaction. Restating a known fact is allowed at any level.');
    end if;
end;
$$;

-- How many scopes a transaction locks one by one before it takes the bucket's key EXCLUSIVE instead. The lock table has
-- room for a few thousand locks of all sessions (max_locks_per_transaction times max_connections).
create or replace function memfold_internal._max_scopes() returns bigint
language sql immutable parallel safe
return 64;

-- How many advisory locks a transaction may hold if it cannot get the bucket's key because others write to the bucket.
create or replace function memfold_internal._max_scope_locks() returns bigint
language sql immutable parallel safe
return 2000;

-- An upper bound for the number of scopes that this transaction has locked (_note_scope).
create or replace function memfold_internal._scopes_locked() returns bigint
language sql stable
return coalesce(
    pg_catalog.substring(pg_catalog.current_setting('memfold.scope_locks', true), '^[0-9]{1,9}(?= )')::bigint, 0
);

-- Counts a scope's key as held, in a setting that is reset when the lock is released: at the end of the transaction, or
-- when a savepoint is rolled back. A session that tampers with the setting locks more scopes, or is refused earlier.
create or replace function memfold_internal._note_scope(p_scope_lock bigint) returns void
language plpgsql volatile
as $$
declare
    -- the number of keys, then the first _max_scopes() keys ('2 17 -4 '): later ones may be counted twice
    v_noted constant text := coalesce(current_setting('memfold.scope_locks', true), '');
    v_number constant bigint := memfold_internal._scopes_locked();
begin
    if v_number = 0 then
        perform set_config('memfold.scope_locks', '1 ' || p_scope_lock || ' ', true);
    elsif strpos(v_noted, ' ' || p_scope_lock || ' ') = 0 then
        perform set_config('memfold.scope_locks', (v_number + 1)::text
            || substr(v_noted, strpos(v_noted, ' '))
            || case when v_number < memfold_internal._max_scopes() then p_scope_lock || ' ' else '' end, true);
    end if;
end;
$$;

-- Takes the bucket's key SHARED and the scope's EXCLUSIVE. After _max_scopes() scopes it takes the bucket's EXCLUSIVE
-- instead if that is free, else continues up to _max_scope_locks(). With memfold.lock_bucket = on and p_wait, it waits
-- for the bucket's key at once. False: there are too many locks, or, without p_wait, a key is not free.
create or replace function memfold_internal._lock_scope(p_bucket_lock bigint, p_scope_lock bigint, p_wait boolean) returns boolean
language plpgsql volatile
as $$
declare
    v_number bigint := memfold_internal._scopes_locked();
begin
    if p_wait and coalesce(current_setting('memfold.lock_bucket', true), '') = 'on' then
        perform pg_advisory_xact_lock(p_bucket_lock);
        return true;
    elsif v_number >= memfold_internal._max_scopes()
        and strpos(current_setting('memfold.scope_locks'), ' ' || p_scope_lock || ' ') = 0
    then
        -- The transaction already holds the bucket's key SHARED, so it may only try: two that waited here would deadlock.
        if pg_try_advisory_xact_lock(p_bucket_lock) then
            return true;
        elsif memfold_internal._has_too_many_locks(1) then
            return false;
        end if;
    end if;
    if p_wait then
        perform pg_advisory_xact_lock_shared(p_bucket_lock);
        perform pg_advisory_xact_lock(p_scope_lock);
    elsif not (pg_try_advisory_xact_lock_shared(p_bucket_lock) and pg_try_advisory_xact_lock(p_scope_lock)) then
        return false;
    end if;
    perform memfold_internal._note_scope(p_scope_lock);
    return true;
end;
$$;

-- _lock() for many scopes, such as those of a batch: the key of rules and the buckets' SHARED, then the scopes' EXCLUSIVE, in ascending
-- order. A bucket's key is EXCLUSIVE if one of its entries is wide (p_wide), or if there are more than _max_scopes() scopes. Returns the
-- keys held. p_held: the result of an earlier pass, after which it tries without waiting; '{}': none. Raises MF025, MF035, 40001.
create or replace function memfold_internal._lock_scopes(
    p_tenant_id text, p_buckets text[], p_scope_keys uuid[], p_wide boolean[], p_held text[]
) returns text[]
language plpgsql volatile
as $$
declare
    v_lock record;
    v_held text[] := p_held;
    v_buckets bigint;
    v_scopes bigint;
    v_wide bigint[] := array[]::bigint[];
    v_many boolean;
begin
    perform memfold_internal._check_isolation();
    select count(distinct s.bucket_id), count(*)
    into v_buckets, v_scopes
    from (select distinct s.bucket_id, s.scope_key from unnest(p_buckets, p_scope_keys) as s (bucket_id, scope_key)) as s;
    if v_buckets > 500 then
        perform memfold_internal._fail('MF035', 'the batch has too many buckets',
            format('It has new facts for %s buckets.', v_buckets),
            'Each bucket takes a lock: send batches for at most 500 buckets.');
    end if;
    if p_held = '{}' then
        perform pg_advisory_xact_lock_shared(memfold_internal._rules_key(p_tenant_id));
    end if;
    v_many := v_scopes > memfold_internal._max_scopes() or coalesce(current_setting('memfold.lock_bucket', true), '') = 'on';
    if memfold_internal._scopes_locked() > 0 and memfold_internal._scopes_locked() + v_scopes > memfold_internal._max_scopes() then
        -- earlier calls of the transaction hold scopes: as in _lock_scope(), it must not wait for a whole bucket
        v_many := false;
        for v_lock in
            select distinct memfold_internal._bucket_key(p_tenant_id, s.bucket_id) as key
            from unnest(p_buckets) as s (bucket_id)
            order by 1
        loop
            if pg_try_advisory_xact_lock(v_lock.key) then
                v_wide := v_wide || v_lock.key;
            elsif memfold_internal._has_too_many_locks(v_scopes) then
                perform memfold_internal._fail_scope_locks();
            end if;
        end loop;
    end if;
    -- buckets before scopes, each in ascending order of the keys
    for v_lock in
        with needed as (
            select k.key, s.scope_key,
                bool_or(s.wide or v_many or k.key = any(v_wide)) over (partition by k.key) as wide
            from unnest(p_buckets, p_scope_keys, p_wide) as s (bucket_id, scope_key, wide)
            cross join lateral (select memfold_internal._bucket_key(p_tenant_id, s.bucket_id) as key) as k
        ),
        locks as (
            select n.key, n.wide as exclusive, 1 as place
            from needed as n
            union all
            select memfold_internal._scope_lock(p_tenant_id, n.scope_key), true, 2
            from needed as n
            where not n.wide
        )
        select l.key, l.place, bool_or(l.exclusive) as exclusive from locks as l group by l.place, l.key order by l.place, l.key
    loop
        continue when (v_lock.key || ' exclusive') = any(v_held) or not v_lock.exclusive and (v_lock.key || ' shared') = any(v_held);
        if p_held <> '{}' then
            -- in a second pass, others may wait for the keys that this call holds
            if not (case when v_lock.exclusive then pg_try_advisory_xact_lock(v_lock.key)
                else pg_try_advisory_xact_lock_shared(v_lock.key) end)
            then
                perform memfold_internal._fail_busy_scope();
            end if;
        elsif v_lock.exclusive then
            perform pg_advisory_xact_lock(v_lock.key);
        else
            perform pg_advisory_xact_lock_shared(v_lock.key);
        end if;
        if v_lock.place = 2 then
            perform memfold_internal._note_scope(v_lock.key);
        end if;
        v_held := v_held || (v_lock.key || case when v_lock.exclusive then ' exclusive' else ' shared' end);
    end loop;
    return v_held;
end;
$$;

-- Whether p_more advisory locks would put the transaction above _max_scope_locks().
create or replace function memfold_internal._has_too_many_locks(p_more bigint) returns boolean
language plpgsql volatile
as $$
begin
    -- the noted number is an upper bound; the exact number in pg_locks is expensive
    return memfold_internal._scopes_locked() + p_more > memfold_internal._max_scope_locks() and p_more + (
        select count(*) from pg_locks as l
        where l.pid = pg_backend_pid() and l.locktype = 'advisory'
    ) > memfold_internal._max_scope_locks();
end;
$$;

-- Raises 40001: the transaction has too many locks. The hint shows how to use fewer.
create or replace function memfold_internal._fail_scope_locks() returns void
language plpgsql volatile
as $$
begin
    raise exception 'the transaction has locked too many scopes' using
        errcode = 'serialization_failure',
        detail = format('It has written to more than %s scopes of a bucket, and could not lock the bucket instead because others write to it.',
            memfold_internal._max_scope_locks()),
        hint = 'Commit more often, send the facts as one batch (ingest_memories), or begin the transaction with: '
            'set local memfold.lock_bucket = on';
end;
$$;
