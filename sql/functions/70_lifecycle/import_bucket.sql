-- Raises MF054 with this detail, and this hint or (null) a general one.
create or replace function memfold_internal._not_an_export(p_detail text, p_hint text) returns void
language plpgsql stable
as $$
begin
    perform memfold_internal._fail('MF054', 'this is not an export that can be imported', p_detail,
        coalesce(p_hint, 'Pass the rows of export_bucket() unchanged, in their order, in one transaction.'));
end;
$$;

-- Inserts exported rows of one table as rows of p_tenant_id, and checks hashes and dimensions. Raises MF054, also for a rule
-- that would apply to other buckets, unless the tenant has it or p_rules is true.
create or replace function memfold_internal._import_rows(
    p_tenant_id text, p_bucket_id text, p_table_name text, p_lines jsonb, p_rules boolean
)
returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_table constant regclass := to_regclass('memfold.' || quote_ident(p_table_name));
    v_all text[];
    v_columns text[];
    v_unknown text;
    v_rule jsonb;
    v_wrong record;
begin
    select array_agg(k.key) into v_all
    from (
        select distinct k.key
        from jsonb_array_elements(p_lines) as l (line), jsonb_object_keys(l.line) as k (key)
    ) as k;
    select array_agg(quote_ident(a.attname) order by a.attnum) into v_columns
    from pg_attribute as a
    where a.attrelid = v_table and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
        and (a.attname = any(v_all) or a.attname = 'tenant_id');
    select min(u.name) into v_unknown
    from unnest(v_all) as u (name)
    where not exists (
        select from pg_attribute as a
        where a.attrelid = v_table and a.attnum > 0 and not a.attisdropped and a.attname = u.name
    );
    if v_unknown is not null then
        perform memfold_internal._not_an_export(format('%s has no column %L in this version.', p_table_name, v_unknown),
            'If it comes from a later version, upgrade memfold.');
    end if;
    if exists (select from jsonb_array_elements(p_lines) as l (line) where l.line = '{}') then
        perform memfold_internal._not_an_export(format('A row of %s is empty.', p_table_name), null);
    end if;
    if p_table_name not in ('policies', 'options', 'labelled_pairs') and exists (
        select from jsonb_array_elements(p_lines) as l (line)
        where l.line ? 'bucket_id' and l.line ->> 'bucket_id' is distinct from p_bucket_id
            and not (p_table_name = 'links' and l.line ->> 'bucket_id' = '*')
    ) then
        perform memfold_internal._not_an_export(format('A row of %s belongs to another bucket.', p_table_name), null);
    end if;
    if p_table_name in ('policies', 'options', 'predicates', 'links', 'antonyms') and p_rules is not true then
        execute format(
            'select l.line - ''tenant_id'' as line from jsonb_array_elements($1) as l (line)'
            ' where coalesce(l.line ->> ''bucket_id'', ''*'') = ''*'' and not exists ('
            '  select from %s as t where t.tenant_id = $2 collate "C" and to_jsonb(t) @> ('
            '   select jsonb_object_agg(k.name, coalesce(l.line -> k.name, $4)) from unnest($3) as k (name)))'
            ' limit 1', v_table)
        into v_rule
        -- A rule with the key of one of the tenant's is not a conflict: the tenant's is kept.
        using p_lines, p_tenant_id, case p_table_name when 'predicates' then '{predicate}' when 'links' then '{bucket_id,kind,alias}'
            when 'antonyms' then '{word,antonym}' else '{bucket_id,memory_type}' end::text[], '"*"'::jsonb;
        if v_rule is not null then
            perform memfold_internal._not_an_export(
                format('It has a rule for all buckets of the tenant, which this tenant does not have: %s, %s.', p_table_name, v_rule),
                'If you trust it, import it with rules => true (memfold restore --rules); or set the tenant''s rules first.');
        end if;
    end if;
    if p_table_name in ('policies', 'options') then
        -- The bucket gets the exported rules; those of the tenant are kept.
        execute format(
            'delete from %s as p using jsonb_array_elements($1) as l (line)'
            ' where p.tenant_id = $2 collate "C" and p.bucket_id = $3 collate "C"'
            ' and l.line ->> ''bucket_id'' = p.bucket_id and l.line ->> ''memory_type'' = p.memory_type', v_table)
        using p_lines, p_tenant_id, p_bucket_id;
    end if;
    execute format(
        'insert into %s (%s) select %s from jsonb_populate_recordset(null::%s, $1)%s',
        v_table, array_to_string(v_columns, ', '), array_to_string(v_columns, ', '), v_table,
        case when p_table_name in ('policies', 'options', 'predicates', 'links', 'antonyms',
            'labelled_pairs') then ' on conflict do nothing' else '' end)
    using (
        select jsonb_agg(l.line || jsonb_build_object('tenant_id', p_tenant_id) order by l.place)
        from jsonb_array_elements(p_lines) with ordinality as l (line, place)
    );
    if p_table_name = 'memories' then
        select m.memory_id, m.content_hash, l.line ->> 'content_hash' as exported into v_wrong
        from jsonb_array_elements(p_lines) as l (line)
        join memfold.memories as m
            on m.tenant_id = p_tenant_id collate "C" and m.memory_id = (l.line ->> 'memory_id')::uuid
        where E'\\x' || encode(m.content_hash, 'hex') is distinct from l.line ->> 'content_hash'
            or m.scope_key::text is distinct from l.line ->> 'scope_key'
        limit 1;
        if found then
            perform memfold_internal._not_an_export(format('Memory %s has the hash %s here, but %s in the export.', v_wrong.memory_id,
                v_wrong.content_hash, v_wrong.exported),
                'Its text or keys were changed, or this server computes other hashes: check with select * from canonicalizer_selftest().');
        end if;
    elsif p_table_name = 'memory_vectors' then
        select l.line ->> 'memory_id' as memory_id, e.model, e.dimensions into v_wrong
        from jsonb_array_elements(p_lines) as l (line)
        join memfold.embedding_models as e on e.model = l.line ->> 'model' collate "C"
        join memfold.memory_vectors as v
            on v.tenant_id = p_tenant_id collate "C" and v.memory_id = (l.line ->> 'memory_id')::uuid
            and v.model = e.model
        where memfold_internal._dimensions(v.embedding) <> e.dimensions
        limit 1;
        if found then
            perform memfold_internal._not_an_export(format('The vector of memory %s does not have the %s dimensions of model %L.',
                v_wrong.memory_id, v_wrong.dimensions, v_wrong.model), null);
        end if;
    end if;
end;
$$;

-- Raises MF054 unless a line's embedding model is registered, or (table rules) its type would be hashed as when exported.
create or replace function memfold_internal._check_import(p_tenant_id text, p_bucket_id text, p_table_name text, p_line jsonb) returns void
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_policy memfold.policies;
begin
    if p_table_name = 'embedding_models' then
        if not exists (
            select from memfold.embedding_models as e
            where e.model = p_line ->> 'model' collate "C" and e.dimensions = (p_line ->> 'dimensions')::bigint
        ) then
            perform memfold_internal._not_an_export(
                format('Embedding model %L of %s dimensions is not registered.', p_line ->> 'model', p_line ->> 'dimensions'),
                format('Register it: select register_embedding_model(%L, %s).', p_line ->> 'model', p_line ->> 'dimensions'));
        end if;
        return;
    end if;
    v_policy := memfold_internal._policy(p_tenant_id, p_bucket_id, p_line ->> 'memory_type');
    if to_jsonb(v_policy) @> p_line - 'memory_type' is not true then
        perform memfold_internal._not_an_export(
            format('Type %L was hashed by %s, but new candidates would be hashed by %s.', p_line ->> 'memory_type',
                p_line - 'memory_type',
                (select jsonb_object_agg(p.key, p.value) from jsonb_each(to_jsonb(v_policy)) as p
                where p_line ? p.key and p.key <> 'memory_type')),
            'Set the same rules for the bucket first: set_policy().');
    end if;
end;
$$;

create or replace function memfold.import_bucket(
    lines jsonb,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    rules boolean default false
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set intervalstyle = 'postgres'
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_bucket_id constant text collate "C" := bucket_id;
    v_mark constant text := concat_ws(' ', pg_current_xact_id()::text, quote_ident(v_tenant_id), quote_ident(v_bucket_id));
    v_state jsonb;
    v_group record;
    v_header jsonb;
    v_counts jsonb;
    v_wrong text;
    v_written bigint := 0;
    v_line record;
begin
    perform memfold_internal._authorize_tenant(v_tenant_id);
    perform memfold_internal._check_identifier('bucket_id', v_bucket_id, true);
    perform memfold_internal._check_wildcard('bucket_id', v_bucket_id);
    if not coalesce(jsonb_typeof(lines) = 'array' and jsonb_array_length(lines) between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', 'lines was not an array of 1 to 10,000 elements.',
            'Pass the lines of an export in their order, in one or several arrays, all in one transaction.');
    end if;
    select format('Element %s is %s.', l.place - 1, left(l.line::text, 80)) into v_wrong
    from jsonb_array_elements(lines) with ordinality as l (line, place)
    where not coalesce(jsonb_typeof(l.line) = 'object' and jsonb_typeof(l.line -> 'row') = 'object' and l.line ->> 'table' in (
        'header', 'embedding_models', 'policies', 'options', 'predicates', 'links', 'antonyms', 'rules', 'memories', 'memory_counters',
        'memory_vectors', 'memory_intervals', 'memory_sources', 'memory_tokens', 'runs', 'judgements', 'memory_events',
        'idempotency_keys', 'labelled_pairs', 'end'
    ), false)
    order by l.place
    limit 1;
    if v_wrong is not null then
        perform memfold_internal._not_an_export(v_wrong, null);
    end if;

    if lines -> 0 ->> 'table' = 'header' then
        v_header := lines -> 0 -> 'row';
        if v_header -> 'format' is distinct from '1' then
            perform memfold_internal._not_an_export(format('Its format is %s; this version reads format 1.', coalesce(v_header ->> 'format', 'missing')),
                'It comes from a later version: upgrade memfold.');
        elsif jsonb_typeof(v_header -> 'counts') is distinct from 'object' or exists (
            select from jsonb_each(case jsonb_typeof(v_header -> 'counts') when 'object' then v_header -> 'counts' else '{}' end) as c
            where c.value::text !~ '^[0-9]{1,18}$'
        ) then
            perform memfold_internal._not_an_export('Its counts are not numbers.', null);
        elsif v_header ->> 'bucket_id' is distinct from v_bucket_id then
            perform memfold_internal._not_an_export(format('It belongs to bucket %L.', v_header ->> 'bucket_id'),
                'A bucket keeps its name, because memories are compared by it.');
        end if;
        perform memfold_internal._lock(v_tenant_id, v_bucket_id, null, true);
        if exists (select from memfold.memories as m where m.tenant_id = v_tenant_id and m.bucket_id = v_bucket_id)
            or exists (select from memfold.judgements as j where j.tenant_id = v_tenant_id and j.bucket_id = v_bucket_id)
            or exists (select from memfold.idempotency_keys as i where i.tenant_id = v_tenant_id and i.bucket_id = v_bucket_id)
            or exists (
                select from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.memory_id is null and e.bucket_id = v_bucket_id and e.action <> 'erased'
            )
        then
            perform memfold_internal._fail('MF053', 'the bucket is not empty',
                format('Bucket %L of tenant %L has memories, judgements, keys or refused candidates.', v_bucket_id, v_tenant_id),
                'Import into a tenant or a database without this bucket, or call erase_bucket() first.');
        end if;
        v_state := jsonb_build_object('mark', v_mark, 'before', memfold_internal._bucket_counts(v_tenant_id, v_bucket_id),
            'counts', v_header -> 'counts', 'takes_up', v_header -> 'takes_up');
        perform set_config('memfold.importing', v_state::text, true);
    else
        v_state := nullif(current_setting('memfold.importing', true), '')::jsonb;
        if v_state ->> 'mark' is distinct from v_mark then
            perform memfold_internal._not_an_export('The first line is not a header, and this transaction has not imported one.', null);
        end if;
    end if;

    begin
        -- Adjacent lines of one table, in order.
        for v_group in
            select g."table", jsonb_agg(g.line order by g.place) as lines
            from (
                select l.line -> 'row' as line, l.line ->> 'table' as "table", l.place,
                    l.place - row_number() over (partition by l.line ->> 'table' order by l.place) as stretch
                from jsonb_array_elements(lines) with ordinality as l (line, place)
            ) as g
            group by g."table", g.stretch
            order by min(g.place)
        loop
            if v_group."table" in ('embedding_models', 'rules') then
                for v_line in select l.line from jsonb_array_elements(v_group.lines) as l (line) loop
                    perform memfold_internal._check_import(v_tenant_id, v_bucket_id, v_group."table", v_line.line);
                end loop;
            elsif v_group."table" not in ('header', 'end') then
                perform memfold_internal._import_rows(v_tenant_id, v_bucket_id, v_group."table", v_group.lines, import_bucket.rules);
                v_written := v_written + jsonb_array_length(v_group.lines);
            end if;
        end loop;
    exception when others then
        -- Other errors mean a bad row, except those of locks, resources and the server.
        if sqlstate ~ '^(MF|08|40|53|55|57|58|XX)' then
            raise;
        end if;
        perform memfold_internal._not_an_export(sqlerrm, null);
    end;

    if lines -> -1 ->> 'table' = 'end' then
        v_counts := memfold_internal._bucket_counts(v_tenant_id, v_bucket_id);
        select string_agg(format('%s: %s instead of %s', c.key, v_counts ->> c.key, c.value), ', ' order by c.key) into v_wrong
        from jsonb_each(v_state -> 'counts') as c
        where (v_counts ->> c.key)::bigint - (v_state -> 'before' ->> c.key)::bigint is distinct from c.value::bigint;
        if v_wrong is not null then
            perform memfold_internal._not_an_export('Lines are missing or too many: ' || v_wrong || '.', null);
        end if;
        perform set_config('memfold.importing', '', true);
        if v_state -> 'takes_up' = 'true' then
            perform memfold_internal._start_run(v_tenant_id, v_bucket_id, 'predicate', '{}');
        end if;
        select format('%s of memory %s is %s, not %s', c.invariant, c.memory_id, c.actual, c.expected) into v_wrong
        from memfold.check_invariants(v_tenant_id) as c
        join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = c.memory_id and m.bucket_id = v_bucket_id
        limit 1;
        if v_wrong is not null then
            perform memfold_internal._not_an_export('Its ledger does not explain what it stores: ' || v_wrong || '.',
                'It was edited, or exported from a damaged bucket: see check_invariants() there.');
        end if;
    end if;
    return v_written;
end;
$$;
comment on function memfold.import_bucket is
'Imports the rows of export_bucket(), in arrays of 1 to 10,000, in their order and all in one transaction, into an empty bucket of the
same name: of this or another tenant, in this or another database. The rows are stored as exported, including ids and times; hashes,
counts and what follows from the ledger (check_invariants) are checked. Embedding models must be registered. Replaces the bucket''s policies
and options. rules: whether it may also add rules for all buckets of the tenant, and links, predicates and antonyms; otherwise such a rule
that the tenant does not have is refused. Returns how many rows it has read. memfold restore does all this. Only for members of
memfold_owner. Raises MF001 to MF003, MF022, MF025, MF053 (the bucket is not empty), MF054.';
