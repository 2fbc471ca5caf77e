\echo Use "ALTER EXTENSION memfold UPDATE" to load this file. \quit
-- The files require this setting, regardless of the database's default.
set local standard_conforming_strings = on;
-- An upgrade that waits for a long transaction must not block others, and in a deadlock the upgrade must be the one to give way, before
-- detection starts (1 s). If it fails with 55P03, nothing has changed: run it again.
select pg_catalog.set_config('lock_timeout', '300ms', true)
where pg_catalog.current_setting('lock_timeout') = '0';
