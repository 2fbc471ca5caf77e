-- Called by the trigger of an adoption that absorbs. SECURITY DEFINER, like _adopted_hash: the owner of the table has no other rights
-- here.

-- Advisory locks would also work, but an insert of many rows would fill the lock table that all sessions share. The inserted and
-- deleted row stays in the primary key until the transaction ends, and an insert of the same text waits for it.
create or replace function memfold_internal._adopted_claim(adoption text, scope text[], content_hash bytea) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    -- two texts with the same number only wait for each other needlessly
    v_claim constant bigint := pg_catalog.hashtextextended(
        pg_catalog.jsonb_build_array(adoption, scope, pg_catalog.encode(content_hash, 'hex'))::text collate "C", 0
    );
begin
    insert into memfold.adoption_claims (claim) values (v_claim) on conflict (claim) do nothing;
    delete from memfold.adoption_claims as c
    where c.claim = v_claim;
end;
$$;
revoke all on function memfold_internal._adopted_claim(text, text[], bytea) from public;
comment on function memfold_internal._adopted_claim(text, text[], bytea) is
'Waits for other transactions that are inserting the text into the adopted table, and makes later ones wait until this transaction ends.';

-- Skips a row in which another transaction has counted without committing: two inserts of many known texts in different orders would
-- otherwise deadlock.
create or replace function memfold_internal._adopted_repeat(adoption text, row_key jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update memfold.adoption_repeats as r
    set repeats = r.repeats + 1, last_at = pg_catalog.clock_timestamp()
    where r.repeat_id = (
        select i.repeat_id
        from memfold.adoption_repeats as i
        where i.adoption = _adopted_repeat.adoption collate "C" and i.row_key = _adopted_repeat.row_key
        limit 1
        for update skip locked
    );
    if not found then
        insert into memfold.adoption_repeats (adoption, row_key) values (_adopted_repeat.adoption, _adopted_repeat.row_key);
    end if;
end;
$$;
revoke all on function memfold_internal._adopted_repeat(text, jsonb) from public;
comment on function memfold_internal._adopted_repeat(text, jsonb) is
'Counts an absorbed insert on the row of the adopted table that holds its text.';
