create or replace function memfold_internal._swap_settings(names text[], settings text[]) returns text[]
language plpgsql volatile
as $$
declare
    v_before constant text[] := array(
        select pg_catalog.current_setting(n.name, true) from unnest(names) with ordinality as n (name, place) order by n.place
    );
begin
    perform pg_catalog.set_config(n.name, n.setting, true) from unnest(names, settings) as n (name, setting);
    return v_before;
end;
$$;
revoke all on function memfold_internal._swap_settings(text[], text[]) from public;
comment on function memfold_internal._swap_settings(text[], text[]) is
'Sets names to settings in this transaction, and returns what they were, to be set again after the one statement that needs
them. No SET of a function: who may not set what is unknown as long as pgvector''s library is not loaded could not create it.
So the library must be loaded: _norm() sees to that.';

create or replace function memfold_internal._maintain(wanted boolean) returns void
language sql volatile
begin atomic
    select pg_catalog.set_config('memfold.maintenance', case when wanted then 'on' else 'off' end, true);
end;
revoke all on function memfold_internal._maintain(boolean) from public;
comment on function memfold_internal._maintain(boolean) is
'Lets the next statements of the owner write what never changes otherwise (_refuse), or no longer. Not a SET of the functions
that do: an owner who is no superuser could not create them.';
