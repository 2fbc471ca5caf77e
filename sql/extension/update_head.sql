\echo Use "ALTER EXTENSION memfold UPDATE" to load this file. \quit
-- Strings as the files mean them, whatever the database says.
set local standard_conforming_strings = on;
-- Nobody must queue behind an upgrade that itself waits for a long transaction, and before a deadlock is looked for (1 s)
-- the upgrade is to be the one that gives way. If it fails with 55P03, nothing has changed: run it again.
select pg_catalog.set_config('lock_timeout', '300ms', true)
where pg_catalog.current_setting('lock_timeout') = '0';
