-- Everything that the catalog says of schemas memfold and memfold_internal, one line an object: equal databases give equal lines. Privileges that
-- were never changed and the same ones, granted, are equal.
with space as (select oid from pg_catalog.pg_namespace where nspname in ('memfold', 'memfold_internal')),
rels as (
    select c.* from pg_catalog.pg_class as c, space
    where c.relnamespace = space.oid and c.relname !~ '^alembic_version'
)
select line from (
    select 'relation ' || relname || ' ' || relkind::text || ' rls ' || relrowsecurity::text || relforcerowsecurity::text
        || ' owner ' || relowner::regrole::text || ' acl ' || coalesce((select string_agg(a::text, ',' order by a::text)
            from unnest(coalesce(relacl, acldefault('r', relowner))) as a), '-') || ' options ' || coalesce(reloptions::text, '-')
    from rels where relkind in ('r', 'v', 'c', 'p', 'S')
    union all
    select 'column ' || r.relname || '.' || a.attnum::text || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        || ' notnull ' || a.attnotnull::text || ' generated ' || a.attgenerated::text || ' storage ' || a.attstorage::text
        || ' collation ' || a.attcollation::regcollation::text || ' default ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '-')
        || ' comment ' || coalesce(col_description(a.attrelid, a.attnum), '-')
    from rels as r
    join pg_catalog.pg_attribute as a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    left join pg_catalog.pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where r.relkind in ('r', 'v', 'c', 'p')
    union all
    select 'constraint ' || conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(k.oid)
    from pg_catalog.pg_constraint as k, space where k.connamespace = space.oid and conrelid::regclass::text !~ 'alembic'
    union all
    select 'index ' || pg_get_indexdef(r.oid) from rels as r where r.relkind = 'i'
    union all
    select 'trigger ' || pg_get_triggerdef(t.oid) || t.tgenabled::text
    from pg_catalog.pg_trigger as t join rels as r on r.oid = t.tgrelid where not t.tgisinternal
    union all
    select 'policy ' || r.relname || ' ' || p.polname || ' ' || p.polcmd::text || p.polpermissive::text || ' to '
        || (select string_agg(x::regrole::text, ',' order by x::regrole::text) from unnest(p.polroles) as x)
        || ' using ' || coalesce(pg_get_expr(p.polqual, p.polrelid), '-')
        || ' check ' || coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '-')
    from pg_catalog.pg_policy as p join rels as r on r.oid = p.polrelid
    union all
    select 'function ' || pg_get_functiondef(p.oid) || ' owner ' || p.proowner::regrole::text || ' acl '
        || coalesce((select string_agg(a::text, ',' order by a::text) from unnest(p.proacl) as a), 'PUBLIC')
        || ' comment ' || coalesce(obj_description(p.oid, 'pg_proc'), '-')
    from pg_catalog.pg_proc as p, space where p.pronamespace = space.oid
    union all
    select 'view ' || r.relname || ' ' || pg_get_viewdef(r.oid) from rels as r where r.relkind = 'v'
    union all
    select 'comment ' || r.relname || ' ' || obj_description(r.oid, 'pg_class')
    from rels as r where obj_description(r.oid, 'pg_class') is not null
    union all
    select 'type ' || t.typname || ' owner ' || t.typowner::regrole::text || ' comment '
        || coalesce(obj_description(t.oid, 'pg_type'), '-')
    from pg_catalog.pg_type as t join rels as r on r.oid = t.typrelid where r.relkind = 'c'
    union all
    select 'policy row ' || (to_jsonb(p) - 'updated_at')::text from memfold.policies as p
    union all
    select 'options row ' || (to_jsonb(o) - 'updated_at')::text from memfold.options as o
    union all
    select 'antonyms ' || count(*)::text || ' ' || md5(string_agg(a::text, ',' order by a.word, a.antonym))
    from memfold.antonyms as a where a.tenant_id = '*'
    union all
    select 'lexicon ' || count(*)::text || ' ' || md5(string_agg(l::text, ',' order by l.word)) from memfold.lexicon as l
) as s (line)
order by line collate "C"
