create or replace function memfold.erase_tenant(
    tenant_id text,
    reason text default null,
    max_memories bigint default 200
) returns memfold.erasure
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    v_bucket_id text;
    v_result memfold.erasure := (0, 0, 0, 0, '{}');
    v_rest bigint;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_erasure(max_memories);
    v_bucket_id := memfold_internal._some_bucket(tenant_id);
    if v_bucket_id is not null then
        perform memfold_internal._lock(tenant_id, v_bucket_id, null, true);
    end if;
    r := memfold_internal._erasure_run(tenant_id, '*', reason);
    if v_bucket_id is not null then
        v_result := memfold_internal._erase_some(r.tenant_id, v_bucket_id, max_memories);
        v_result.kept := 0;
        v_result.current_again := '{}';
        v_result.remaining := (
            select count(*) from (select from memfold.memories as m where m.tenant_id = r.tenant_id limit 1000) as m
        );
    end if;
    if v_result.remaining = 0 then
        v_rest := memfold_internal._erase_rest(r.tenant_id, null, 20 * max_memories);
        v_result.events := v_result.events + v_rest;
        v_result.remaining := (v_rest = 20 * max_memories)::integer;
    end if;
    perform memfold_internal._end_erasure(r, 'tenant', v_result);
    return v_result;
end;
$$;
comment on function memfold.erase_tenant is
'Erases a tenant: every bucket as erase_bucket() does, then its policies, options, predicates, links, antonyms and labelled pairs. Erases
about max_memories (1 to 10,000) of one bucket per call: call it, each time in a separate transaction, until remaining is 0. Its rows in
tenant_roles, which list who may log in as the tenant, remain. Cannot be undone. A run and a ledger row record when, by whom and why
(reason). Only members of memfold_owner may call it. Raises MF001 to MF003, MF022, MF025.';

-- A bucket of the tenant that has memories; null if there is none. Only reads.
create or replace function memfold_internal._some_bucket(p_tenant_id text) returns text
language plpgsql stable
as $$
declare
    v_bucket_id text;
begin
    select m.bucket_id into v_bucket_id
    from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C" and m.content_hash is not null
    order by m.bucket_id
    limit 1;
    if not found then
        select m.bucket_id into v_bucket_id
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.content_hash is null
        order by m.bucket_id
        limit 1;
    end if;
    return v_bucket_id;
end;
$$;
