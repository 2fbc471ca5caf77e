"""The server's clock, moved by a number of seconds or by a setting of the session."""

from __future__ import annotations

# {shift}: seconds; ids of version 7 follow the clock, as those of memfold do.
SHIFTED = """
create or replace function memfold_internal._clock() returns timestamptz language plpgsql stable as
$$begin return pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => {shift}); end;$$;
create or replace function memfold_internal._new_id() returns uuid language sql volatile return (
    pg_catalog.overlay(pg_catalog.lpad(pg_catalog.to_hex(
        (pg_catalog.date_part('epoch', memfold_internal._clock()) * 4096000)::bigint
    ), 15, '0'), '7', 13, 0)
    || pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20)
)::uuid;
"""
SETTING = "coalesce(nullif(pg_catalog.current_setting('test.shift', true), ''), '0')::double precision"
