-- Sets names to settings in this transaction, and returns their previous values, to be restored after the one statement
-- that needs them. Not a SET clause of the function: a role without the right to set unknown parameters, which
-- pgvector's are until its library is loaded, could not create it. So the library must be loaded: _norm() sees to that.
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

-- Allows the next statements of the owner to write what is otherwise immutable (_refuse), or stops allowing it. Not a
-- SET clause of the functions concerned: an owner who is not a superuser could not create them.
create or replace function memfold_internal._maintain(p_wanted boolean) returns void
language sql volatile
begin atomic
    select pg_catalog.set_config('memfold.maintenance', case when p_wanted then 'on' else 'off' end, true);
end;
