-- Sets parameters for this transaction, and returns their previous values, which the caller restores after the one
-- statement that needs the settings. A SET clause would not do: pgvector's parameters are unknown until its library is
-- loaded, and not every role may create a function that sets unknown parameters. Call _norm() first to load the library.
create or replace function memfold_internal._swap_settings(p_names text[], p_settings text[]) returns text[]
language plpgsql volatile
as $$
declare
    v_before constant text[] := array(
        select current_setting(n.name, true) from unnest(p_names) with ordinality as n (name, place) order by n.place
    );
begin
    perform set_config(n.name, n.setting, true) from unnest(p_names, p_settings) as n (name, setting);
    return v_before;
end;
$$;

-- Allows the owner's next statements to write immutable columns and rows (_refuse), or stops allowing it. Not a SET
-- clause of the functions concerned: an owner who is not a superuser could not create them.
create or replace function memfold_internal._maintain(p_wanted boolean) returns void
language sql volatile
begin atomic
    select pg_catalog.set_config('memfold.maintenance', case when p_wanted then 'on' else 'off' end, true);
end;
