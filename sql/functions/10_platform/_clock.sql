-- The time at which a statement runs, the same for all its rows: an UPDATE that Citus plans may call nothing volatile.
create or replace function memfold_internal._clock() returns timestamptz
language plpgsql stable
as $$
begin
    return clock_timestamp();
end;
$$;
grant execute on function memfold_internal._clock to memfold_queue;
