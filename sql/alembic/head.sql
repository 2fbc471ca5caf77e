-- Runs before the files where no extension can be installed; CREATE EXTENSION does all this itself.
set local client_min_messages = warning;
-- The files require this setting, regardless of the database's default.
set local standard_conforming_strings = on;

do $$
declare
    v_schema text;
    v_version text;
begin
    if current_setting('server_version_num')::integer < 150000 then
        raise exception 'memfold needs PostgreSQL 15 or newer; this is %', current_setting('server_version')
            using errcode = 'object_not_in_prerequisite_state';
    elsif current_setting('server_encoding') <> 'UTF8' then
        raise exception 'memfold needs a database with encoding UTF8; this one has %', current_setting('server_encoding')
            using errcode = 'object_not_in_prerequisite_state',
            detail = 'The encoding of a database cannot be changed.',
            hint = 'Create another one: create database NAME encoding ''UTF8'' locale ''C'' template template0;';
    elsif exists (select from pg_catalog.pg_extension as e where e.extname = 'memfold') then
        raise exception 'memfold is installed in this database by CREATE EXTENSION'
            using errcode = 'object_not_in_prerequisite_state',
            detail = 'Its functions and tables belong to the extension. Use one installation method per database.',
            hint = 'Keep it up to date with: alter extension memfold update. To change to memfold init, export the data and'
                ' uninstall first (docs/operations.md, "Uninstalling").';
    end if;
    if not exists (select from pg_catalog.pg_extension as e where e.extname = 'vector') then
        if not exists (select from pg_catalog.pg_available_extensions as e where e.name = 'vector') then
            raise exception 'memfold needs pgvector, which is not available on this server'
                using errcode = 'object_not_in_prerequisite_state', hint = 'Install version 0.8 or newer.';
        end if;
        begin
            create extension if not exists vector;
        exception when insufficient_privilege then
            raise exception 'memfold needs pgvector, which this role may not install (%)', sqlerrm
                using errcode = 'object_not_in_prerequisite_state',
                hint = 'Ask an administrator for: create extension vector';
        end;
    end if;
    select n.nspname, e.extversion into v_schema, v_version
    from pg_catalog.pg_extension as e
    join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
    where e.extname = 'vector';
    if pg_catalog.string_to_array(v_version, '.')::integer[] < array[0, 8] then
        raise exception 'memfold needs pgvector 0.8 or newer, not %', v_version
            using errcode = 'object_not_in_prerequisite_state', hint = 'Run: alter extension vector update';
    end if;
    if pg_catalog.to_regnamespace('memfold') is null then
        create schema if not exists memfold;
    end if;
    if pg_catalog.to_regnamespace('memfold_internal') is null then
        create schema if not exists memfold_internal;
    end if;
    -- The same path as inside CREATE EXTENSION. The files find pgvector's type by it; no function depends on it.
    perform pg_catalog.set_config('search_path', pg_catalog.format('memfold, memfold_internal, %I, pg_temp', v_schema), true);
end;
$$;
