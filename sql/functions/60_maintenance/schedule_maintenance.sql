create or replace function memfold_internal._require_cron() returns void
language plpgsql stable
as $$
begin
    if not exists (
        select from pg_catalog.pg_proc as p
        join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
        where n.nspname = 'cron' and p.proname = 'schedule'
    ) then
        perform memfold_internal._fail('MF040', 'pg_cron is not installed in this database',
            'There is no function cron.schedule.',
            'Run "memfold maintenance" from any scheduler, or create extension pg_cron.');
    end if;
end;
$$;
comment on function memfold_internal._require_cron is 'Raises MF040 unless pg_cron is installed in this database.';

create or replace function memfold.schedule_maintenance(
    schedule text default '*/10 * * * *',
    tenant_id text default '*',
    tasks text[] default '{plain,decay,syntheses,keys,runs,embed,links,cycles}'
) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_job bigint;
begin
    perform memfold_internal._require_cron();
    if coalesce(tenant_id <> '' and schedule <> '' and cardinality(tasks) > 0, false) is false then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('schedule was %L, tenant_id %L, tasks %s.', schedule, tenant_id, coalesce(tasks::text, 'null')),
            'Pass a cron schedule, a tenant (''*'': all) and at least one task.');
    end if;
    -- a job of this name is replaced
    execute 'select cron.schedule($1, $2, $3)' into v_job using
        memfold_internal._maintenance_job(tenant_id), schedule,
        case tenant_id
            when '*' then format('call memfold.run_maintenance_all(%L)', tasks)
            else format('select memfold.run_maintenance(%L, %L)', tenant_id, tasks)
        end;
    return v_job;
end;
$$;
comment on function memfold.schedule_maintenance is
'Schedules run_maintenance() for a tenant, or run_maintenance_all() (tenant_id ''*''), with pg_cron ("minute hour day month weekday";
default every ten minutes). Replaces an earlier schedule of the same tenant. The job runs as the caller, a member of memfold_owner.
Returns pg_cron''s job id. Only the owner may call it. Raises MF022, MF040 (pg_cron is not installed).';

create or replace function memfold.unschedule_maintenance(tenant_id text default '*') returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_there boolean;
    v_done boolean := false;
begin
    perform memfold_internal._require_cron();
    execute 'select exists (select from cron.job as j where j.jobname = $1)' into v_there
        using memfold_internal._maintenance_job(tenant_id);
    if v_there then
        execute 'select cron.unschedule($1)' into v_done using memfold_internal._maintenance_job(tenant_id);
    end if;
    return v_done;
end;
$$;
comment on function memfold.unschedule_maintenance is
'Removes the schedule that schedule_maintenance() created for a tenant (''*'': the one for all tenants). Returns whether there was one.
Only the owner may call it. Raises MF040.';

create or replace function memfold_internal._maintenance_job(tenant_id text) returns text
language sql immutable parallel safe
return 'memfold maintenance' || case tenant_id when '*' then '' else ' ' || tenant_id end;
comment on function memfold_internal._maintenance_job is 'The name of a tenant''s job in pg_cron.';
