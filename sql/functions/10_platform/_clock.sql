-- The present time, as a STABLE function: an UPDATE that Citus plans must not call volatile functions.
create or replace function memfold_internal._clock() returns timestamptz
language plpgsql stable
as $$
begin
    return clock_timestamp();
end;
$$;
grant execute on function memfold_internal._clock to memfold_queue;
