create or replace function memfold.ingest_plain_rows(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default null,
    max_rows bigint default 1000
) returns memfold.plain_rows
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
declare
    r memfold.plain_rows;
    v_bucket_id text;
    v_rows bigint;
    v_step bigint;
    v_waits boolean := true;
    v_locked_at timestamptz;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, false);
    if coalesce(max_rows between 1 and 100000, false) is false then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_rows was %s.', coalesce(max_rows::text, 'null')),
            'max_rows is 1 to 100000.');
    end if;
    r.ingested := 0;
    r.busy := 0;
    for v_bucket_id in
        select distinct x.bucket_id
        from (
            select m.bucket_id from memfold.memories as m
            where m.tenant_id = ingest_plain_rows.tenant_id collate "C" and not m.is_ingested
                and (ingest_plain_rows.bucket_id is null or m.bucket_id = ingest_plain_rows.bucket_id collate "C")
            order by m.bucket_id, m.memory_id
            limit max_rows
        ) as x
        order by 1
    loop
        -- Keep writers of the bucket out.
        exit when r.ingested >= max_rows or clock_timestamp() > v_locked_at + interval '100 milliseconds';
        v_rows := 0;
        begin
            -- It waits once, while it holds nothing; later it may hold rows, and only tries.
            perform memfold_internal._lock(tenant_id, v_bucket_id, null, v_waits);
            v_waits := false;
            v_locked_at := coalesce(v_locked_at, clock_timestamp());
            loop
                exit when r.ingested + v_rows >= max_rows
                    or v_rows > 0 and clock_timestamp() > v_locked_at + interval '100 milliseconds';
                v_step := memfold_internal._adopt_plain(tenant_id, v_bucket_id, least(max_rows - r.ingested - v_rows, 50));
                exit when v_step = 0;
                v_rows := v_rows + v_step;
            end loop;
            r.ingested := r.ingested + v_rows;
        exception when lock_not_available or serialization_failure then
            -- leave it as it is
            r.busy := r.busy + 1;
            v_waits := false;
        end;
    end loop;
    return r;
end;
$$;
grant execute on function memfold.ingest_plain_rows to memfold_app;
comment on function memfold.ingest_plain_rows is
'Adds what a plain INSERT into memories did not write, for the rows of one bucket or of all (null): a ledger row (an observation at the
time they were written), counters, and words if the policy compares them. Their vectors stay pending: attach_embedding() runs tier 2.
Handles at most max_rows (1 to 100,000) or about 100 ms per call. Returns how many rows it handled (ingested), and how many buckets it
skipped because others held their locks (busy); it waits for one of them, for at most 500 ms. Call it again until both are 0. Raises MF001
to MF003, MF022, MF025.';

-- Writes ledger rows and counters for a few rows that came by a plain INSERT. The caller holds the bucket's lock.
create or replace function memfold_internal._adopt_plain(p_tenant_id text, p_bucket_id text, p_rows_at_most bigint) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids uuid[];
    v_row record;
begin
    v_ids := array(
        select m.memory_id from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C" and not m.is_ingested
        order by m.memory_id
        limit p_rows_at_most
    );
    if v_ids = '{}' then
        return 0;
    end if;
    perform memfold_internal._adopt_row(p_tenant_id, i.id) from unnest(v_ids) as i (id);
    perform memfold.derive_scope(v_ids, p_tenant_id);
    -- First count the rows: the next statement may merge one into another.
    update memfold.memories as m
    set is_ingested = true
    from unnest(v_ids) as i (id)
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = i.id;
    insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
    select m.tenant_id, m.bucket_id, t.token, m.memory_id
    from unnest(v_ids) as i (id)
    cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
    cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
    cross join lateral unnest(memfold_internal._tokens(m.content, p.segmenter)) as t (token)
    where m.content_hash is not null and p.lexical_threshold is not null
    on conflict do nothing;
    -- The INSERT's transaction may have begun before the bucket's rules changed.
    for v_row in
        select m.memory_id, p.rehash_run
        from unnest(v_ids) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
        where m.canonicalizer is not null and (
            (m.canonicalizer, m.key_fields) is distinct from (p.canonicalizer, p.key_fields)
            or m.metadata_signature is distinct from memfold_internal._stored_signature(m, p.metadata_keys)
        )
    loop
        perform memfold_internal._rehash_text(p_tenant_id, v_row.memory_id, coalesce(v_row.rehash_run, (
            select r.run_id from memfold.runs as r
            where r.tenant_id = p_tenant_id collate "C" and r.bucket_id = p_bucket_id collate "C"
                and r.kind = 'rehash'
            order by r.run_id desc
            limit 1
        )), null);
    end loop;
    return cardinality(v_ids);
end;
$$;
