-- Locks. Two writers of new facts in one scope (bucket, type, subject, predicate) take turns by transaction-level
-- advisory locks, because their texts may differ and no row exists yet that both could lock. Restatements of an active
-- memory only lock its row of memory_counters. Callers: every module that writes, from 20_policy on.
--
-- Three kinds of advisory keys exist: a tenant's key of rules, a bucket's and a scope's. A writer of one scope takes the
-- first two SHARED and the last EXCLUSIVE; what spans scopes takes the bucket's key EXCLUSIVE, and a change of what is a
-- slot takes the key of rules EXCLUSIVE. All are held to the end of the transaction and require READ COMMITTED (MF025).
--
-- What must stay true: the order is rules, buckets, scopes (each ascending), judgements, roots by id, aliases by id, sources, ledger. A
-- call that may hold a row, or that takes keys in a second pass, tries for a key and fails with 40001 instead of waiting. Locking is a
-- separate statement, so that the next one sees what others have committed. docs/decisions/0004 has the reasons. Of tables, the module
-- locks rows of memory_counters, and writes adoption_claims and adoption_repeats for triggers of `memfold adopt`.

-- Waits for other transactions that are inserting the text into the adopted table, and makes later ones wait until this
-- transaction ends. SECURITY DEFINER, like _adopted_repeat(): the table's owner has no other rights in memfold.
create or replace function memfold_internal._adopted_claim(p_adoption text, p_scope text[], p_content_hash bytea) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    -- if two texts have the same number, their inserts wait for each other needlessly
    v_claim constant bigint := memfold_internal._short_hash(convert_to(
        jsonb_build_array(p_adoption, p_scope, encode(p_content_hash, 'hex'))::text, 'UTF8'
    ));
begin
    -- The deleted row stays in the primary key until the transaction ends, and an insert of the same text waits for it. Advisory locks
    -- would fill the lock table, which all sessions share, when many rows are inserted.
    insert into memfold.adoption_claims (claim) values (v_claim) on conflict (claim) do nothing;
    delete from memfold.adoption_claims as c
    where c.claim = v_claim;
end;
$$;

-- Counts an insert that was absorbed by the row of the adopted table with this key.
create or replace function memfold_internal._adopted_repeat(p_adoption text, p_row_key jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- the plan may date from when the table was empty
set enable_seqscan = off
set jit = off
as $$
declare
    -- the row in which this transaction last counted, and how often; one setting for each of 1,024 groups of keys
    v_hash constant bigint := memfold_internal._short_hash(convert_to(row(p_adoption, p_row_key)::text, 'UTF8'));
    v_setting constant text := 'memfold.repeats_' || (v_hash & 1023);
    v_last constant text[] := string_to_array(current_setting(v_setting, true), ' ');
    v_id uuid;
    v_repeats bigint := 0;
begin
    if v_last[1] = v_hash::text then
        v_repeats := v_last[3]::bigint;
        -- a new row after every 100 counts, because each call reads all versions of the row that its transaction has written
        v_id := case when v_repeats % 100 <> 0 then v_last[2]::uuid end;
    else
        select i.repeat_id into v_id
        from memfold.adoption_repeats as i
        where i.adoption = p_adoption collate "C" and i.row_key = p_row_key
        limit 1
        -- waiting would be a deadlock of two transactions that insert known texts in different orders
        for update skip locked;
    end if;
    update memfold.adoption_repeats as r
    set repeats = r.repeats + 1, last_at = clock_timestamp()
    where r.repeat_id = v_id;
    if not found then
        insert into memfold.adoption_repeats (adoption, row_key) values (p_adoption, p_row_key)
        returning repeat_id into v_id;
    end if;
    perform set_config(v_setting, v_hash || ' ' || v_id || ' ' || v_repeats + 1, true);
end;
$$;
