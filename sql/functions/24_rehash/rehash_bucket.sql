-- Begins a run of rehash_bucket(): adds the new rules to the policy, next to the old ones, and records the run. Returns
-- its id, or that of the run in progress; null: there is nothing to do. Raises the errors of rehash_bucket().
create or replace function memfold_internal._rehash_begin(
    tenant_id text, bucket_id text, canonicalizer text, key_fields text[], metadata_keys text[], memory_type text,
    undo_run_id uuid, batch_size bigint
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_old memfold.policies;
    v_new memfold.policies;
    v_running memfold.policies;
    v_run memfold.runs;
    v_run_id uuid;
    v_undoes uuid := undo_run_id;
    v_again boolean;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('memory_type', memory_type, true);
    if tenant_id = '*' or bucket_id = '*' or batch_size is null or batch_size not between 1 and 100000 then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('tenant_id was %L, bucket_id %L, batch_size %s.', tenant_id, bucket_id, coalesce(batch_size::text, 'null')),
            'Name one bucket of one tenant; batch_size is 1 to 100000.');
    end if;
    perform memfold_internal._check_key_fields(key_fields, metadata_keys);
    perform memfold_internal._lock(tenant_id, bucket_id, null, true);

    select p.* into v_running
    from memfold.policies as p
    where p.tenant_id = tenant_id collate "C" and p.bucket_id = bucket_id collate "C"
        and p.rehash_run is not null
    limit 1;
    if undo_run_id is not null then
        select r.* into v_run
        from memfold.runs as r
        where r.tenant_id = tenant_id collate "C" and r.run_id = undo_run_id and r.kind = 'rehash'
            and r.bucket_id = bucket_id collate "C";
        if v_run.run_id is null then
            perform memfold_internal._fail('MF022', 'there is no such run', format('undo_run_id was %s.', undo_run_id),
                'The rehashes of a bucket are the rows of runs with kind rehash.');
        elsif v_run.status = 'undone' then
            perform memfold_internal._fail('MF033', 'the run is already undone', format('undo_run_id was %s.', undo_run_id),
                'The table runs shows its status.');
        end if;
        memory_type := v_run.arguments ->> 'memory_type';
    end if;
    v_old := memfold_internal._policy(tenant_id, bucket_id, memory_type);
    v_new := v_old;
    if undo_run_id is not null then
        if memfold_internal._rules(v_old) <> v_run.arguments -> 'to' and v_run.status <> 'open' then
            perform memfold_internal._fail('MF032', 'the run cannot be undone',
                'The bucket has been rehashed again since.', 'Undo the later runs first, or rehash the bucket again.');
        end if;
        canonicalizer := v_run.arguments #>> '{from,canonicalizer}';
        v_new.key_fields := v_run.arguments #>> '{from,key_fields}';
        metadata_keys := array(select k from jsonb_array_elements_text(v_run.arguments #> '{from,metadata_keys}') as k);
    elsif key_fields is not null then
        select coalesce(string_agg(f.name, ',' order by f.place), '') into v_new.key_fields
        from (values ('type', 1), ('subject', 2), ('predicate', 3)) as f (name, place)
        where f.name = any(key_fields);
    end if;
    v_new.canonicalizer := memfold_internal._profile(coalesce(canonicalizer, v_old.canonicalizer));
    v_new.metadata_keys := coalesce(metadata_keys, v_old.metadata_keys);

    if v_running.rehash_run is not null then
        if v_running.memory_type = memory_type and memfold_internal._rules(v_new) = memfold_internal._rules(v_old)
            or canonicalizer is null and key_fields is null and metadata_keys is null
        then
            return v_running.rehash_run;
        elsif v_running.memory_type <> memory_type
            or (v_new.canonicalizer, v_new.key_fields, v_new.metadata_keys) is distinct from
            (v_running.rehash_from_canonicalizer, v_running.rehash_from_key_fields, v_running.rehash_from_metadata_keys)
        then
            perform memfold_internal._fail('MF041', 'a rehash of the bucket is in progress',
                format('Run %s, to %s.', v_running.rehash_run, memfold_internal._rules(v_running)),
                'call rehash_bucket(tenant_id, bucket_id) continues it; with undo_run_id, undoes it.');
        end if;
        v_undoes := v_running.rehash_run;
    elsif memfold_internal._rules(v_new) = memfold_internal._rules(v_old) then
        raise notice 'nothing to do: bucket % is hashed by %, and no rehash is in progress', bucket_id, memfold_internal._rules(v_old);
        return null;
    elsif v_undoes is null then
        -- rehashing back to the previous rules is an undo, even without undo_run_id
        select r.run_id into v_undoes
        from memfold.runs as r
        where r.tenant_id = tenant_id collate "C" and r.bucket_id = bucket_id collate "C"
            and r.kind = 'rehash' and r.status = 'done' and r.arguments ->> 'memory_type' = memory_type
            and r.arguments -> 'to' = memfold_internal._rules(v_old) and r.arguments -> 'from' = memfold_internal._rules(v_new)
        order by r.run_id desc
        limit 1;
    end if;

    v_again := exists (
        select from memfold.runs as e
        where e.tenant_id = tenant_id collate "C" and e.bucket_id = bucket_id collate "C"
            and e.kind = 'rehash'
    );
    v_run_id := memfold_internal._new_run_id(tenant_id);
    insert into memfold.runs (tenant_id, run_id, bucket_id, kind, arguments, report, actor)
    values (tenant_id, v_run_id, bucket_id, 'rehash', jsonb_strip_nulls(jsonb_build_object(
        'memory_type', memory_type, 'from', memfold_internal._rules(v_old), 'to', memfold_internal._rules(v_new), 'undoes', v_undoes,
        'again', v_again)), '{"rows": 0}', memfold_internal._actor());
    if not exists (
        select from memfold.policies as p
        where p.tenant_id = tenant_id collate "C" and p.bucket_id = bucket_id collate "C"
            and p.memory_type = memory_type collate "C"
    ) then
        -- types with a policy of their own keep its rules
        if memory_type = '*' then
            insert into memfold.policies
            select (jsonb_populate_record(p, jsonb_build_object(
                'tenant_id', tenant_id, 'bucket_id', bucket_id, 'memory_type', t.memory_type))).*
            from (
                select distinct p.memory_type from memfold.policies as p
                where p.tenant_id in (tenant_id collate "C", '*')
                    and p.bucket_id in (bucket_id collate "C", '*') and p.memory_type <> '*'
            ) as t
            cross join lateral memfold_internal._policy(tenant_id, bucket_id, t.memory_type) as p
            where p.memory_type = t.memory_type
            on conflict do nothing;
        end if;
        v_old.tenant_id := tenant_id;
        v_old.bucket_id := bucket_id;
        v_old.memory_type := memory_type;
        insert into memfold.policies select (v_old).*;
    end if;
    update memfold.policies as p
    set canonicalizer = v_new.canonicalizer, key_fields = v_new.key_fields, metadata_keys = v_new.metadata_keys,
        rehash_run = v_run_id, rehash_from_canonicalizer = v_old.canonicalizer, rehash_from_key_fields = v_old.key_fields,
        rehash_from_metadata_keys = v_old.metadata_keys, updated_at = memfold_internal._clock()
    where p.tenant_id = tenant_id collate "C" and p.bucket_id = bucket_id collate "C"
        and (p.memory_type = memory_type collate "C" or p.rehash_run = v_running.rehash_run);
    return v_run_id;
end;
$$;
grant execute on function memfold_internal._rehash_begin to memfold_app;

-- The rules of a policy by which content is hashed.
create or replace function memfold_internal._rules(p_policy memfold.policies) returns jsonb
language sql immutable parallel safe
return pg_catalog.jsonb_build_object(
    'canonicalizer', p_policy.canonicalizer, 'key_fields', p_policy.key_fields, 'metadata_keys', p_policy.metadata_keys
);

-- Removes the old rules of an ended run from the policy. The caller holds the bucket's lock. A separate function, because
-- on Citus it runs as a role that may write to all nodes.
create or replace function memfold_internal._rehash_end(p_run memfold.runs) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    update memfold.policies as p
    set rehash_run = null, rehash_from_canonicalizer = null, rehash_from_key_fields = null,
        rehash_from_metadata_keys = null, updated_at = memfold_internal._clock()
    where p.tenant_id = p_run.tenant_id and p.bucket_id = p_run.bucket_id and p.rehash_run = p_run.run_id;
end;
$$;

create or replace procedure memfold.rehash_bucket(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    canonicalizer text default null,
    key_fields text[] default null,
    metadata_keys text[] default null,
    memory_type text default '*',
    undo_run_id uuid default null,
    batch_size bigint default 1000
)
language plpgsql
as $$
-- A procedure with a SET clause cannot commit, so search_path is not pinned and every name is qualified.
declare
    v_run_id uuid;
    v_ended boolean := false;
    v_failures bigint := 0;
begin
    call memfold_internal._require_autocommit('rehash_bucket');
    v_run_id := memfold_internal._rehash_begin(
        tenant_id, bucket_id, canonicalizer, key_fields, metadata_keys, memory_type, undo_run_id, batch_size);
    if v_run_id is null then
        return;
    end if;
    commit;
    while not v_ended loop
        begin
            v_ended := memfold_internal._rehash_batch(tenant_id, v_run_id, batch_size);
            v_failures := 0;
        exception when lock_not_available or deadlock_detected or serialization_failure or unique_violation then
            -- another transaction holds a row, or has just written one: retry for up to a minute
            v_failures := v_failures operator(pg_catalog.+) 1;
            if v_failures operator(pg_catalog.>) 300 then
                raise;
            end if;
        end;
        commit;
        if v_failures operator(pg_catalog.>) 0 then
            perform pg_catalog.pg_sleep(0.1);
            commit;
        end if;
    end loop;
end;
$$;
grant execute on procedure memfold.rehash_bucket to memfold_app;
comment on procedure memfold.rehash_bucket is
'Changes how the hashes of a bucket are computed after memories are stored: canonicalizer, key_fields and metadata_keys as in set_policy()
(null: unchanged), for one memory_type or for all types without a policy of their own. Texts that become equal under the new rules are
merged: the newer becomes an alias without a hash. Texts that an earlier rehash has merged and that differ under the new rules are
separated. Commits after each batch of at most batch_size texts (1 to 100,000) or about 50 ms; until it ends, new texts are stored by the
new rules and compared by both. If it was interrupted, call it without rules to continue. undo_run_id: undoes the last rehash of the
bucket, even one in progress; its status is then undone. One row of runs counts the rows that changed (rows), were merged (merged) or
separated (parted), or are without_hash. Not inside a transaction block (25001). Raises MF011, MF017, MF022, MF025,
MF032 (rehashed again since), MF033 (already undone), MF041 (another rehash is in progress).';
