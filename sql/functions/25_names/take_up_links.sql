-- Takes up at most batch_size texts under an alias, under the lock of their bucket, for take_up_links() and maintenance.
-- Returns how many; 0: none was left. Raises 55P03 if another transaction holds a row.
create or replace function memfold_internal._take_up_batch(
    tenant_id text, bucket_id text, kind text, alias text, batch_size bigint
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_link memfold.links;
    v_bucket_id text := bucket_id;
    v_number bigint;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if coalesce(batch_size between 1 and 100000, false) is false then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('batch_size was %s.', coalesce(batch_size::text, 'null')),
            'batch_size is 1 to 100000.');
    end if;
    if bucket_id = '*' then
        select m.bucket_id into v_bucket_id
        from (select distinct m.bucket_id from memfold.memories as m where m.tenant_id = tenant_id collate "C") as m
        where memfold_internal._texts_under_alias(tenant_id, m.bucket_id, kind, alias, 1) <> '{}'
            -- a bucket's own link takes precedence
            and not exists (
                select from memfold.links as l
                where l.tenant_id = tenant_id collate "C" and l.bucket_id = m.bucket_id and l.kind = kind collate "C"
                    and l.alias = alias collate "C"
            )
        limit 1;
    end if;
    if v_bucket_id is not null then
        perform memfold_internal._lock(tenant_id, v_bucket_id, null, true);
    end if;
    select l.* into v_link
    from memfold.links as l
    where l.tenant_id = tenant_id collate "C" and l.bucket_id = bucket_id collate "C" and l.kind = kind collate "C"
        and l.alias = alias collate "C";
    if not found then
        -- unlinked in the meantime
        return 0;
    end if;
    v_number := case when v_bucket_id is null then 0
        else memfold_internal._take_up(tenant_id, v_bucket_id, kind, alias, v_link.run_id, batch_size) end;
    perform memfold_internal._note_taken_up(tenant_id, v_link.run_id, v_number, v_number = 0);
    return v_number;
end;
$$;
grant execute on function memfold_internal._take_up_batch to memfold_app;

create or replace procedure memfold.take_up_links(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default null,
    batch_size bigint default 20
)
language plpgsql
as $$
-- A procedure with a SET clause cannot commit, so search_path is not pinned and every name is qualified.
declare
    v_link record;
    v_number bigint;
    v_failures bigint;
begin
    call memfold_internal._require_autocommit('take_up_links');
    for v_link in
        select l.bucket_id, l.kind, l.alias
        from memfold.links as l
        where l.tenant_id operator(pg_catalog.=) take_up_links.tenant_id collate "C"
            and (take_up_links.bucket_id is null or l.bucket_id operator(pg_catalog.=) take_up_links.bucket_id collate "C")
        order by l.bucket_id, l.kind, l.alias
    loop
        v_number := null;
        v_failures := 0;
        while v_number is distinct from 0 loop
            begin
                v_number := memfold_internal._take_up_batch(tenant_id, v_link.bucket_id, v_link.kind, v_link.alias, batch_size);
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
    end loop;
end;
$$;
grant execute on procedure memfold.take_up_links to memfold_app;
comment on procedure memfold.take_up_links is
'Takes up the memories stored under the aliases of a tenant''s links: those of one bucket (''*'': links of all buckets), or of every link
(null). Continues where link_subject() and link_predicate() stopped, and does all the work for links of all buckets. Maintenance does the
same in batches (run_maintenance, task links). Commits after each batch of at most batch_size texts (1 to 100,000; 1 to 10 ms each) and
does not block writers: a text that is not taken up yet is found under its old name. If it was interrupted, call it again. The next
sweep_duplicates() or consolidate() compares similar texts of the two names. Not inside a transaction block (25001). Raises MF001, MF002,
MF022.';
