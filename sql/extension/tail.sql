-- Data of an extension's tables is dumped only if registered. Rows that memfold ships are dumped too, because they may have been
-- changed: on restore they replace those that CREATE EXTENSION inserted (trigger replace_shipped).
select pg_catalog.pg_extension_config_dump('memfold.policies', '');
select pg_catalog.pg_extension_config_dump('memfold.options', '');
select pg_catalog.pg_extension_config_dump('memfold.predicates', '');
select pg_catalog.pg_extension_config_dump('memfold.links', '');
select pg_catalog.pg_extension_config_dump('memfold.embedding_models', '');
select pg_catalog.pg_extension_config_dump('memfold.calibrations', '');
select pg_catalog.pg_extension_config_dump('memfold.calibration_changes', '');
select pg_catalog.pg_extension_config_dump('memfold.tenant_roles', '');
select pg_catalog.pg_extension_config_dump('memfold.antonyms', '');
select pg_catalog.pg_extension_config_dump('memfold.memories', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_counters', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_vectors', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_intervals', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_sources', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_tokens', '');
select pg_catalog.pg_extension_config_dump('memfold.memory_events', '');
select pg_catalog.pg_extension_config_dump('memfold.idempotency_keys', '');
select pg_catalog.pg_extension_config_dump('memfold.judgements', '');
select pg_catalog.pg_extension_config_dump('memfold.labelled_pairs', '');
select pg_catalog.pg_extension_config_dump('memfold.runs', '');
select pg_catalog.pg_extension_config_dump('memfold.adoptions', '');
select pg_catalog.pg_extension_config_dump('memfold.adoption_archive', '');
select pg_catalog.pg_extension_config_dump('memfold.adoption_repeats', '');

-- A dump includes the privileges of an extension's objects that differ from the initial ones, and the change of owner counts as a
-- difference. This makes the present ones the initial ones: a later version may have other functions.
do $$
declare
    v_object record;
begin
    for v_object in
        select case d.classid when 'pg_catalog.pg_proc'::regclass then 'routine ' || d.objid::regprocedure::text
            else 'table ' || d.objid::regclass::text end as name
        from pg_catalog.pg_depend as d
        join pg_catalog.pg_extension as e on e.oid = d.refobjid
        left join pg_catalog.pg_class as c on d.classid = 'pg_catalog.pg_class'::regclass and c.oid = d.objid
        where d.refclassid = 'pg_catalog.pg_extension'::regclass and d.deptype = 'e' and e.extname = 'memfold'
            and (d.classid = 'pg_catalog.pg_proc'::regclass or c.relkind in ('r', 'v'))
    loop
        execute pg_catalog.format('revoke all on %s from public', v_object.name);
    end loop;
end;
$$;

-- Except what an administrator has granted to another role (as `memfold adopt` does for a table's owner): that is also recorded
-- whenever a script grants or revokes, and a dump would omit it. Only a superuser may write here; under pg_tle the owner of the
-- database may not be one, and a dump after an upgrade then omits such grants.
do $$
begin
    if (select r.rolsuper from pg_catalog.pg_roles as r where r.rolname = current_user) then
        update pg_catalog.pg_init_privs as i
        set
            initprivs = array(
                select a.item
                from pg_catalog.unnest(i.initprivs) with ordinality as a (item, place)
                where
                    exists (
                        select from pg_catalog.aclexplode(array[a.item]) as x
                        where
                            x.grantee in (0, x.grantor)
                            or pg_catalog.pg_get_userbyid(x.grantee) ~ '^memfold_(owner|queue|app|agent|tenant|judge|auditor)$'
                    )
                order by a.place
            )
        where
            i.classoid = 'pg_catalog.pg_namespace'::regclass and i.objoid = any('{memfold,memfold_internal}'::regnamespace[])
            or (i.classoid, i.objoid) in (
                select d.classid, d.objid
                from pg_catalog.pg_depend as d
                join pg_catalog.pg_extension as e on e.oid = d.refobjid
                where d.refclassid = 'pg_catalog.pg_extension'::regclass and d.deptype = 'e' and e.extname = 'memfold'
            );
    end if;
end;
$$;
