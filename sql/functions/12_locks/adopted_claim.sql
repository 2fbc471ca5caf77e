-- Advisory locks would also work, but an insert of many rows would fill the lock table that all sessions share. The inserted and
-- deleted row stays in the primary key until the transaction ends, and an insert of the same text waits for it. SECURITY DEFINER, like
-- adopted_hash().
create or replace function memfold.adopted_claim(adoption text, scope text[], content_hash bytea) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    -- two texts with the same number only wait for each other needlessly
    v_claim constant bigint := memfold_internal._short_hash(convert_to(
        jsonb_build_array(adoption, scope, encode(content_hash, 'hex'))::text, 'UTF8'
    ));
begin
    insert into memfold.adoption_claims (claim) values (v_claim) on conflict (claim) do nothing;
    delete from memfold.adoption_claims as c
    where c.claim = v_claim;
end;
$$;
comment on function memfold.adopted_claim is
'Waits for other transactions that are inserting the same text into an adopted table, and makes later ones wait until this one ends. Called
by the trigger of an adoption that absorbs, as the owner of the table.';
