create or replace function memfold._event(tenant_id text, event_id uuid) returns memfold.memory_events
language plpgsql stable
as $$
declare
    e memfold.memory_events;
begin
    select v.* into e
    from memfold.memory_events as v
    where v.tenant_id = _event.tenant_id collate "C" and v.event_id = _event.event_id;
    -- a row that stands for archived ones has the id of the last of them
    if not found or e.method = 'archived' then
        select v.* into e
        from memfold.memory_events_archive as v
        where v.tenant_id = _event.tenant_id collate "C" and v.event_id = _event.event_id;
    end if;
    return e;
end;
$$;
revoke all on function memfold._event(text, uuid) from public;
comment on function memfold._event(text, uuid) is
'A row of the ledger, archived or not. All null: there is none. Only reads.';

create or replace function memfold._unarchive(tenant_id text, memory_ids uuid[]) returns void
language plpgsql volatile
-- arrays of ids tempt the planner to plan anew
set plan_cache_mode = force_generic_plan
as $$
declare
    v_maintained constant boolean := coalesce(pg_catalog.current_setting('memfold.maintenance', true), '') = 'on';
    v_ids uuid[];
    v_id uuid;
begin
    select pg_catalog.array_agg(distinct i.id) into v_ids
    from pg_catalog.unnest(memory_ids) as i (id)
    where exists (
        select from memfold.memory_events_archive as a
        where a.tenant_id = _unarchive.tenant_id collate "C" and a.memory_id = i.id
        offset 0
    );
    if v_ids is null then
        return;
    end if;
    perform memfold._maintain(true);
    foreach v_id in array v_ids loop
        delete from memfold.memory_events as e
        where e.tenant_id = _unarchive.tenant_id collate "C" and e.memory_id = v_id and e.method = 'archived';
        with back as (
            delete from memfold.memory_events_archive as a
            where a.tenant_id = _unarchive.tenant_id collate "C" and a.memory_id = v_id
            returning a.*
        )
        insert into memfold.memory_events select b.* from back as b order by b.event_id;
    end loop;
    perform memfold._maintain(v_maintained);
end;
$$;
revoke all on function memfold._unarchive(text, uuid[]) from public;
comment on function memfold._unarchive(text, uuid[]) is
'Brings all archived rows of these memories back into the ledger, and takes away the rows that stood for them: no state changes.
Rows of the archive without a memory (candidates that a rule refused) stay there. The caller holds the lock.';
