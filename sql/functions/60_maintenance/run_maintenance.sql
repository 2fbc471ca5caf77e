create or replace function memfold.run_maintenance(
    tenant_id text default current_setting('memfold.tenant_id', true),
    tasks text[] default '{plain,decay,syntheses,keys,runs,embed,links,cycles}'
) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    -- Tasks that lock buckets come last, because locks are held to the end of the call.
    v_known constant text[] := array['keys', 'runs', 'decay', 'syntheses', 'links', 'cycles', 'clean', 'sweep', 'plain', 'embed'];
    v_task text;
    v_step memfold_internal.maintenance_step;
    v_counts jsonb := jsonb '{}';
    v_times jsonb := jsonb '{}';
    v_left jsonb := jsonb '[]';
    v_busy jsonb := jsonb '[]';
    v_errors jsonb := jsonb '{}';
    v_after jsonb;
    v_started constant timestamptz := clock_timestamp();
    v_task_started timestamptz;
    v_state text;
    v_message text;
    v_report jsonb;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if coalesce(tasks <@ v_known and cardinality(tasks) > 0, false) is false then
        perform memfold_internal._fail('MF022', 'unknown task', format('tasks was %s.', coalesce(tasks::text, 'null')),
            format('Tasks are %s.', array_to_string(v_known, ', ')));
    end if;
    select coalesce(r.report -> 'after', '{}') into v_after
    from memfold.runs as r
    where r.tenant_id = run_maintenance.tenant_id collate "C" and r.bucket_id = '*' and r.kind = 'maintenance'
    order by r.run_id desc
    limit 1;
    v_after := coalesce(v_after, '{}');
    foreach v_task in array v_known loop
        continue when v_task <> all(tasks);
        v_task_started := clock_timestamp();
        begin
            v_step := memfold_internal._maintenance_task(tenant_id, v_task, v_after ->> v_task);
            v_counts := v_counts || jsonb_build_object(v_task, v_step.number);
            v_after := v_after || jsonb_build_object(v_task, v_step.after);
            if v_step.is_left then
                v_left := v_left || to_jsonb(v_task);
            end if;
        exception
            when lock_not_available or serialization_failure or deadlock_detected then
                v_busy := v_busy || to_jsonb(v_task);
                v_left := v_left || to_jsonb(v_task);
            when others then
                get stacked diagnostics v_state = returned_sqlstate, v_message = message_text;
                v_errors := v_errors || jsonb_build_object(v_task, v_state || ': ' || v_message);
        end;
        v_times := v_times || jsonb_build_object(v_task,
            round((extract(epoch from clock_timestamp() - v_task_started) * 1000)::numeric, 1));
    end loop;
    v_report := jsonb_build_object('counts', v_counts, 'ms', v_times, 'left', v_left, 'busy', v_busy, 'errors', v_errors);
    insert into memfold.runs as r (tenant_id, bucket_id, kind, status, arguments, report, started_at, ended_at, actor)
    values (tenant_id, '*', 'maintenance', case when v_errors = '{}' then 'done' else 'failed' end,
        jsonb_build_object('tasks', to_jsonb(tasks)),
        v_report || jsonb_build_object('after', jsonb_strip_nulls(v_after)), v_started, clock_timestamp(), memfold_internal._actor());
    -- Each call adds a row of kind maintenance or decay, so it deletes more than one old row of each, which nothing needs.
    delete from memfold.runs as r
    where r.tenant_id = run_maintenance.tenant_id collate "C" and r.run_id = any(array(
        select o.run_id
        from unnest(array['maintenance', 'decay']) as k (kind)
        cross join lateral (
            select o.run_id from memfold.runs as o
            where o.tenant_id = run_maintenance.tenant_id collate "C" and o.bucket_id = '*' and o.kind = k.kind collate "C"
            order by o.run_id
            limit 100
        ) as o
    )) and r.started_at < v_started - interval '30 days';
    return v_report;
end;
$$;
grant execute on function memfold.run_maintenance to memfold_app;
comment on function memfold.run_maintenance is
'Does a bounded amount of the maintenance that is due for a tenant. Tasks: plain (ingest_plain_rows), decay (apply_decay, if options have a
decay_rate), syntheses (applies the fallback of the policy to dead ones), keys (deletes idempotency keys older than the option
key_retention), runs (closes those whose judgements are all answered), embed (embed_pending, if a policy embeds in the database), links
(takes up a hundred texts under the alias of a link, or values of a predicate), cycles (consolidate, sweep_duplicates, prune_memories and
ask_links for buckets whose options set an interval for them, once per interval; by default only consolidate, once a day, for a bucket with
new memories, with approval => ''policy'' and for at most consolidate_budget questions). Not by default: clean (clean_exact_duplicates) and
sweep (sweep_duplicates, which may queue judgements), a few buckets per call, in turn. Returns JSON: counts and ms by task; left, the tasks
with more to do: call it again; busy, those of them that found a lock held; errors by task. A task that fails does not stop the others, but
locks are held until the end: with many writers, run one task per call. Records a run (kind maintenance, status failed if a task has
failed), and deletes its runs, and those of kind decay, that are older than 30 days, 100 per call. Raises MF001 to MF003, MF022.';

-- The next bucket of a tenant in byte order; null after the last. Only reads.
create or replace function memfold_internal._next_bucket(p_tenant_id text, p_bucket_id text) returns text
language plpgsql stable
as $$
begin
    -- One lookup in each of the two indexes that begin with tenant and bucket.
    return (
        select min(b.bucket_id)
        from (
            (select m.bucket_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id > p_bucket_id collate "C"
                and m.content_hash is not null
            order by m.bucket_id limit 1)
            union all
            (select m.bucket_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id > p_bucket_id collate "C"
                and m.content_hash is null
            order by m.bucket_id limit 1)
        ) as b
    );
end;
$$;

-- Does one task of run_maintenance(). p_after: where its last call ended, for a task that iterates: the last bucket with
-- nothing left to do, or a time (keys) or object (cycles).
create or replace function memfold_internal._maintenance_task(p_tenant_id text, p_task text, p_after text)
returns memfold_internal.maintenance_step
language plpgsql volatile
-- Earlier tasks may hold locks: wait no longer for others than a batch takes.
set lock_timeout = '500ms'
as $$
declare
    v_step memfold_internal.maintenance_step;
    v_bucket_id text collate "C";
    v_number bigint;
    v_started constant timestamptz := clock_timestamp();
begin
    v_step.number := 0;
    v_step.is_left := false;
    if p_task = 'plain' then
        select r.ingested, r.ingested > 0 or r.busy > 0, r.busy into v_step.number, v_step.is_left, v_number
        from memfold.ingest_plain_rows(p_tenant_id) as r;
        if v_step.number = 0 and v_number > 0 then
            raise lock_not_available using message = 'every bucket with plain rows is busy';
        end if;
    elsif p_task = 'keys' then
        v_step := memfold_internal._expire_keys(p_tenant_id, p_after);
    elsif p_task = 'decay' then
        if exists (select from memfold.options as o where o.decay_rate > 0) then
            select d.decayed, d.remaining > 0 into v_step.number, v_step.is_left from memfold.apply_decay(p_tenant_id) as d;
        end if;
    elsif p_task = 'embed' then
        v_step.number := memfold.embed_pending(p_tenant_id);
        v_step.is_left := v_step.number > 0;
    elsif p_task = 'syntheses' then
        v_step.number := memfold_internal._fall_back_dead(p_tenant_id);
        v_step.is_left := v_step.number > 0;
    elsif p_task = 'runs' then
        select count(memfold_internal._end_run(r.tenant_id, r.run_id, '{}')) into v_step.number
        from memfold.runs as r
        where r.tenant_id = p_tenant_id collate "C" and r.status = 'open'
            and r.kind not in ('rehash', 'reembedding', 'dropping', 'erasure', 'link', 'predicate')
            and r.started_at < now() - interval '1 minute'
            and not exists (
                select from memfold.judgements as j
                where j.tenant_id = r.tenant_id and j.run_id = r.run_id and j.status in ('open', 'leased')
            );
    elsif p_task = 'links' then
        v_step := memfold_internal._take_up_some(p_tenant_id);
    elsif p_task = 'cycles' then
        v_step := memfold_internal._maintain_cycles(p_tenant_id, p_after::jsonb);
    elsif p_task in ('clean', 'sweep') then
        v_bucket_id := coalesce(p_after, '');
        loop
            v_bucket_id := memfold_internal._next_bucket(p_tenant_id, v_bucket_id);
            exit when v_bucket_id is null;
            if p_task = 'clean' then
                select count(*) into v_number
                from memfold.clean_exact_duplicates(p_tenant_id, v_bucket_id, dry_run => false);
            else
                select count(*) filter (where s.action <> 'keep') into v_number
                from memfold.sweep_duplicates(p_tenant_id, v_bucket_id, dry_run => false) as s;
            end if;
            v_step.number := v_step.number + v_number;
            -- Return to a bucket in which something was done: it may have more.
            if v_number = 0 then
                v_step.after := v_bucket_id;
            end if;
            v_step.is_left := true;
            exit when v_number > 0 or clock_timestamp() > v_started + interval '1 second';
        end loop;
        if v_bucket_id is null then
            v_step.is_left := false;
            v_step.after := null;
        elsif v_step.after is null then
            v_step.after := p_after;
        end if;
    end if;
    return v_step;
end;
$$;

-- Deletes idempotency keys older than the key_retention of their bucket, among the 5,000 oldest keys of a tenant after the
-- time p_after (null: all). Keeps keys that begin with import:, which belong to adopted tables.
create or replace function memfold_internal._expire_keys(p_tenant_id text, p_after text) returns memfold_internal.maintenance_step
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- p_after is a time as text.
set datestyle = iso
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_step memfold_internal.maintenance_step;
    v_before timestamptz;
    v_after constant timestamptz := coalesce(p_after::timestamptz, '-infinity');
    v_seen bigint := 0;
    v_stays boolean := false;
    v_last timestamptz;
    v_key record;
begin
    v_step.number := 0;
    select now() - min(o.key_retention) into v_before
    from memfold.options as o
    where o.tenant_id in (v_tenant_id, '*') and o.memory_type = '*';
    for v_key in
        with old as materialized (
            select k.bucket_id, k.idempotency_key, k.recorded_at
            from memfold.idempotency_keys as k
            where k.tenant_id = v_tenant_id and k.recorded_at < v_before and k.recorded_at > v_after
                and (k.idempotency_key < 'import:' or k.idempotency_key >= 'import;')
            order by k.recorded_at
            limit 5000
        )
        select o.*, o.recorded_at < now() - b.key_retention as is_expired
        from old as o
        join (
            select x.bucket_id, p.key_retention
            from (select distinct o.bucket_id from old as o) as x
            cross join lateral memfold_internal._options(v_tenant_id, x.bucket_id, '*') as p
        ) as b on b.bucket_id = o.bucket_id
        order by o.recorded_at
    loop
        v_seen := v_seen + 1;
        v_stays := v_stays or not v_key.is_expired;
        v_last := v_key.recorded_at;
        if v_key.is_expired then
            delete from memfold.idempotency_keys as k
            where k.tenant_id = v_tenant_id and k.bucket_id = v_key.bucket_id and k.idempotency_key = v_key.idempotency_key
                and k.recorded_at = v_key.recorded_at;
            v_step.number := v_step.number + 1;
        end if;
    end loop;
    v_step.is_left := v_seen = 5000;
    if v_step.is_left then
        -- Skip the keys that are kept. Others with the time of the last one are left to the next pass.
        v_step.after := case when v_stays then v_last::text else p_after end;
    end if;
    return v_step;
end;
$$;

create or replace procedure memfold.run_maintenance_all(
    tasks text[] default '{plain,decay,syntheses,keys,runs,embed,links,cycles}'
)
language plpgsql
as $$
-- A procedure that commits cannot pin search_path, so every name is qualified.
declare
    v_tenant_id text;
    v_left text[];
    v_report jsonb;
    v_failed text[] := array[]::text[];
begin
    call memfold_internal._require_autocommit('run_maintenance_all');
    for v_tenant_id in select t.tenant_id from memfold.tenants() as t (tenant_id) loop
        v_left := tasks;
        for v_turn in 1..100 loop
            v_report := memfold.run_maintenance(v_tenant_id, v_left);
            commit;
            if v_report operator(pg_catalog.->) 'errors' operator(pg_catalog.<>) '{}'::pg_catalog.jsonb then
                v_failed := pg_catalog.array_append(v_failed,
                    pg_catalog.format('%s: %s', v_tenant_id, v_report operator(pg_catalog.->) 'errors'));
            end if;
            v_left := array(
                select pg_catalog.jsonb_array_elements_text(v_report operator(pg_catalog.->) 'left')
            );
            exit when v_left operator(pg_catalog.=) '{}'::text[];
        end loop;
    end loop;
    if pg_catalog.cardinality(v_failed) operator(pg_catalog.>) 0 then
        raise warning 'maintenance failed: %', pg_catalog.array_to_string(v_failed[1:20], '; ');
    end if;
end;
$$;
comment on procedure memfold.run_maintenance_all is
'Calls run_maintenance() for every tenant that has memories, repeatedly while there is more to do, up to 100 times; commits after each
call. Not inside a transaction block (25001). Warns of failures; see runs for details. Only the owner may call it.';
