-- The schema file created _new_id() for the server of that time. A database that has since moved to PostgreSQL 18, by
-- pg_upgrade or from a dump, gets that version's built-in function.
do $$
begin
    if pg_catalog.current_setting('server_version_num')::integer >= 180000 then
        create or replace function memfold_internal._new_id() returns uuid
        language sql volatile parallel safe
        return pg_catalog.uuidv7();
    end if;
end;
$$;

-- The root of a row of memories. Not coalesce(), which row-level security treats as leaky: no index would serve it.
create or replace function memfold_internal._root(p_memory_id uuid, p_root_id uuid) returns uuid
language sql immutable parallel safe
return case when p_root_id is null then p_memory_id else p_root_id end;

-- Ids of events and memories form a hybrid logical clock: they come from the clock if it is ahead of all existing ids,
-- else they follow the highest. So a later row has a higher id even if the clock was set back.

-- The id that follows p_after: its time plus 1/4096 ms, with the random bits of p_id.
create or replace function memfold_internal._next_id(p_after uuid, p_id uuid) returns uuid
language plpgsql immutable strict parallel safe
as $$
declare
    v_hex constant text := replace(p_after::text, '-', '');
begin
    -- 48 bits of milliseconds and 12 of their fraction, with the version's digit between them (_new_id)
    return (
        overlay(lpad(to_hex(
            ('x' || substr(v_hex, 1, 12) || substr(v_hex, 14, 3))::bit(60)::bigint + 1
        ), 15, '0'), '7', 13, 0)
        || substr(p_id::text, 20)
    )::uuid;
end;
$$;

-- p_id if it is above p_after, or p_after is null; else the id that follows p_after. Inlined by its callers.
create or replace function memfold_internal._id_after(p_id uuid, p_after uuid) returns uuid
language sql immutable parallel safe
return case when p_after >= p_id then memfold_internal._next_id(p_after, p_id) else p_id end;

-- The lowest id that was made at p_at. An id is made before its row is recorded, and a call may wait in between: leave a margin.
create or replace function memfold_internal._first_id(p_at timestamptz) returns uuid
language sql immutable parallel safe
return (
    pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.floor(pg_catalog.date_part('epoch', greatest(p_at, 'epoch')) * 1000)::bigint), 12, '0')
    || '70008000000000000000'
)::uuid;

-- The highest event id of a tenant that this call can see; null: none. Under a scope's lock no row of that scope has a higher one, except
-- restatements of active memories: these hold only the memory's row, and follow memory_counters.last_event.
create or replace function memfold_internal._newest_event(p_tenant_id text) returns uuid
language plpgsql stable
as $$
declare
    v_newest uuid;
begin
    select e.event_id into v_newest
    from memfold.memory_events as e
    where e.tenant_id = p_tenant_id collate "C"
    order by e.event_id desc
    limit 1;
    return v_newest;
end;
$$;

-- The highest memory id of a tenant that this call can see; null: none. A new memory gets a higher one, because merges
-- take the memory with the higher id for the one that arrived later.
create or replace function memfold_internal._newest_memory(p_tenant_id text) returns uuid
language plpgsql stable
as $$
declare
    v_newest uuid;
begin
    select m.memory_id into v_newest
    from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C"
    order by m.memory_id desc
    limit 1;
    return v_newest;
end;
$$;

-- An id for a ledger row that is written under a scope's lock, above all ids of the scope.
create or replace function memfold_internal._new_event_id(p_tenant_id text) returns uuid
language plpgsql volatile
as $$
begin
    return memfold_internal._id_after(memfold_internal._new_id(), memfold_internal._newest_event(p_tenant_id));
end;
$$;

-- An id for a new text, above all memory ids of the tenant.
create or replace function memfold_internal._new_memory_id(p_tenant_id text) returns uuid
language plpgsql volatile
as $$
begin
    return memfold_internal._id_after(memfold_internal._new_id(), memfold_internal._newest_memory(p_tenant_id));
end;
$$;

-- An id for a run, above those of the tenant's runs: the last run is the one with the highest id.
create or replace function memfold_internal._new_run_id(p_tenant_id text) returns uuid
language plpgsql volatile
as $$
begin
    return memfold_internal._id_after(memfold_internal._new_id(), (
        select r.run_id from memfold.runs as r
        where r.tenant_id = p_tenant_id collate "C"
        order by r.run_id desc
        limit 1
    ));
end;
$$;

-- p_number new ids in ascending order, all above p_after unless it is null. Null if p_number is 0.
create or replace function memfold_internal._new_ids(p_number bigint, p_after uuid) returns uuid[]
language plpgsql volatile
as $$
declare
    v_ids uuid[];
begin
    select array_agg(n.id) into v_ids
    from (select memfold_internal._new_id() as id from generate_series(1, p_number) order by id) as n;
    if p_after >= v_ids[1] then
        for v_i in 1..p_number loop
            v_ids[v_i] := memfold_internal._id_after(v_ids[v_i], coalesce(v_ids[v_i - 1], p_after));
        end loop;
    end if;
    return v_ids;
end;
$$;
