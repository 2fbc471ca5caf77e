-- Roles are objects of the cluster, not of a database: a second database of the same server finds them made.
do $$
declare
    v_role text;
begin
    foreach v_role in array array[
        'memfold_owner', 'memfold_queue', 'memfold_app', 'memfold_tenant', 'memfold_judge', 'memfold_auditor'
    ] loop
        if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
            begin
                execute pg_catalog.format('create role %I nologin', v_role);
            exception when duplicate_object or unique_violation then
                null;  -- another database of this server is being installed at the same moment
            end;
        end if;
    end loop;
    -- Whoever installs hands the objects over to memfold_owner, which takes membership. A superuser has it.
    if not pg_catalog.pg_has_role(current_user, 'memfold_owner', 'usage') then
        execute pg_catalog.format('grant memfold_owner, memfold_queue to %I', current_user);
    end if;
    -- logins that are bound to one tenant (tenant_roles) are an application all the same
    if not pg_catalog.pg_has_role('memfold_tenant', 'memfold_app', 'member') then
        grant memfold_app to memfold_tenant;
    end if;
end;
$$;

grant usage, create on schema memfold to memfold_owner, memfold_queue;
grant usage on schema memfold to memfold_app, memfold_judge, memfold_auditor;
comment on schema memfold is
'memfold: folds duplicate memories of AI agents into one. Start with: select * from memfold.ingest_memory(...)';
