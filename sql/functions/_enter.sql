create or replace function memfold._enter(tenant_id text) returns void
language plpgsql volatile
as $$
declare
    v_caller name;
    v_trusted boolean;
    v_bound boolean;
begin
    -- the usual case in one expression
    if pg_catalog.current_setting('memfold.tenant_id', true) = tenant_id and tenant_id not in ('', '*')
        and not pg_catalog.pg_has_role(memfold._actor(), 'memfold_tenant', 'member')
    then
        return;
    end if;
    if tenant_id is null or tenant_id = '' then
        perform memfold._fail('MF001', 'tenant_id is missing',
            pg_catalog.format('A memory always belongs to a tenant; tenant_id was %s.', pg_catalog.quote_nullable(tenant_id)),
            'Pass tenant_id, or set memfold.tenant_id where the function takes it from there.');
    end if;
    v_caller := memfold._actor();
    v_trusted := pg_catalog.pg_has_role(v_caller, 'memfold_owner', 'member');
    v_bound := not v_trusted and pg_catalog.pg_has_role(v_caller, 'memfold_tenant', 'member');
    if tenant_id = '*' and not v_trusted
        or v_bound and not exists (
            select from memfold.tenant_roles as r
            where r.role_name = v_caller and r.tenant_id = _enter.tenant_id collate "C")
        or not v_bound and not v_trusted
    then
        perform memfold._fail('MF002', 'the session is not of this tenant',
            case when v_bound then pg_catalog.format('Role %I is bound to another tenant, or to none.', v_caller)
                else 'The tenant_id of the call differs from the setting memfold.tenant_id.' end,
            'Run SET memfold.tenant_id (SET LOCAL behind a transaction pooler) to the tenant of the call.');
    end if;
    if pg_catalog.octet_length(tenant_id) > 512 then
        perform memfold._fail('MF003', 'tenant_id is too long',
            pg_catalog.format('It has %s bytes.', pg_catalog.octet_length(tenant_id)),
            'Identifiers have at most 512 bytes of UTF-8.');
    end if;
    if pg_catalog.current_setting('memfold.tenant_id', true) is distinct from tenant_id then
        perform pg_catalog.set_config('memfold.tenant_id', tenant_id, true);
    end if;
end;
$$;
revoke all on function memfold._enter(text) from public;
comment on function memfold._enter(text) is
'The wall at every entry point: the tenant of the call must be the session''s. Members of memfold_owner (superusers too)
may act for any tenant; for the rest of their transaction memfold.tenant_id is that tenant, so that row level security,
which binds these functions, sees it. Raises MF001 to MF003.';
