\echo Use "CREATE EXTENSION memfold CASCADE" to load this file. \quit

do $$
begin
    if pg_catalog.to_regclass('memfold_internal.alembic_version') is not null or pg_catalog.to_regclass('memfold.memories') is not null then
        raise exception 'memfold is installed in this database by memfold init'
            using errcode = 'object_not_in_prerequisite_state',
            detail = 'Schema memfold already contains the tables that the extension would create. Use one installation method per database.',
            hint = 'Keep it up to date with: memfold init DSN. To change to the extension, export the data and uninstall first'
                ' (docs/operations.md, "Uninstalling").';
    end if;
end;
$$;

create schema memfold_internal;

-- The files require this setting, regardless of the database's default.
set local standard_conforming_strings = on;
