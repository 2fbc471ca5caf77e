-- retry_judgements() for one tenant, or for all (p_only_tenant null). Owned by memfold_queue, which sees all queues.
create or replace function memfold_internal._retry_judgements(p_only_tenant text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_count bigint;
begin
    with revived as (
        select j.tenant_id, j.judgement_id
        from (
            -- If a pair was asked about twice, retry the later question.
            select distinct on (o.tenant_id, coalesce(least(o.memory_id, o.other_id), o.judgement_id), greatest(o.memory_id, o.other_id))
                o.tenant_id, o.judgement_id
            from memfold.judgements as o
            where o.status = 'dead' and (p_only_tenant is null or o.tenant_id = p_only_tenant collate "C")
            order by o.tenant_id, coalesce(least(o.memory_id, o.other_id), o.judgement_id), greatest(o.memory_id, o.other_id), o.judgement_id desc
        ) as d
        join memfold.judgements as j on j.tenant_id = d.tenant_id and j.judgement_id = d.judgement_id
        where j.status = 'dead'
            -- Skip pairs that have been asked about again since.
            and not memfold_internal._is_in_question(j.tenant_id, j.memory_id, j.other_id)
        order by j.tenant_id, j.judgement_id
        for no key update of j skip locked
    )
    update memfold.judgements as j
    set status = 'open', attempts = 0, next_attempt_at = memfold_internal._clock(), worker = null, leased_until = null
    from revived as r
    where j.tenant_id = r.tenant_id and j.judgement_id = r.judgement_id;
    get diagnostics v_count = row_count;
    return v_count;
end;
$$;

-- A hook: retry_judgements() without a tenant. On Citus it works tenant by tenant.
create or replace function memfold_internal._retry_all_tenants() returns bigint
language sql volatile
return memfold_internal._retry_judgements(null);

create or replace function memfold.retry_judgements(
    tenant_id text default nullif(current_setting('memfold.tenant_id', true), '')
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue(tenant_id);
begin
    return case when v_tenant_id is null then memfold_internal._retry_all_tenants()
        else memfold_internal._retry_judgements(v_tenant_id) end;
end;
$$;
grant execute on function memfold.retry_judgements to memfold_judge, memfold_app;
comment on function memfold.retry_judgements is
'Queues dead judgements again, with eight attempts each, and returns how many. tenant_id null: all tenants, only for members of
memfold_judge. Raises MF001 to MF003.';
