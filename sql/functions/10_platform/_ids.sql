-- A schema file has made it, as it is best on the server of then. A database that has come to PostgreSQL 18 since (by
-- pg_upgrade, or out of a dump) gets what that one has in C.
do $$
begin
    if pg_catalog.current_setting('server_version_num')::integer >= 180000 then
        create or replace function memfold_internal._new_id() returns uuid
        language sql volatile parallel safe
        return pg_catalog.uuidv7();
    end if;
end;
$$;

create or replace function memfold_internal._root(memory_id uuid, root_id uuid) returns uuid
language sql immutable parallel safe
return case when root_id is null then memory_id else root_id end;
revoke all on function memfold_internal._root(uuid, uuid) from public;
comment on function memfold_internal._root(uuid, uuid) is
'The root of a row of memories. Not coalesce(), which row level security takes for leaky and keeps from indexes.';

-- Order is logical. What is later has a higher id, whatever the clock did since the last one: ids of events and memories are
-- of the clock where that is ahead of what is there, else just above it (a hybrid logical clock).

create or replace function memfold_internal._next_id(after uuid, id uuid) returns uuid
language plpgsql immutable strict parallel safe
as $$
declare
    v_hex constant text := pg_catalog.replace(after::text, '-', '');
begin
    -- 48 bits of milliseconds and 12 of their fraction, with the version's digit between them (_new_id), and one more
    return (
        pg_catalog.overlay(pg_catalog.lpad(pg_catalog.to_hex(
            ('x' || pg_catalog.substr(v_hex, 1, 12) || pg_catalog.substr(v_hex, 14, 3))::bit(60)::bigint + 1
        ), 15, '0'), '7', 13, 0)
        || pg_catalog.substr(id::text, 20)
    )::uuid;
end;
$$;
revoke all on function memfold_internal._next_id(uuid, uuid) from public;
comment on function memfold_internal._next_id(uuid, uuid) is
'The id that follows another one: its time and 1/4096 ms, with the random bits of id.';

create or replace function memfold_internal._id_after(id uuid, after uuid) returns uuid
language sql immutable parallel safe
return case when after >= id then memfold_internal._next_id(after, id) else id end;
revoke all on function memfold_internal._id_after(uuid, uuid) from public;
comment on function memfold_internal._id_after(uuid, uuid) is
'The id itself where it is above another one (null: there is none), else the next above that one. Immutable, for an UPDATE that Citus
plans may call nothing volatile. Inlined by its callers.';

create or replace function memfold_internal._newest_event(tenant_id text) returns uuid
language plpgsql stable
as $$
declare
    v_newest uuid;
begin
    -- the end of the primary key
    select e.event_id into v_newest
    from memfold.memory_events as e
    where e.tenant_id = _newest_event.tenant_id collate "C"
    order by e.event_id desc
    limit 1;
    return v_newest;
end;
$$;
revoke all on function memfold_internal._newest_event(text) from public;
comment on function memfold_internal._newest_event(text) is
'The highest event id of a tenant that this call can see: under a scope''s lock no row of the scope has a higher one. One probe,
however many texts are concerned. What is written next takes a higher one (_id_after), whatever the clock did. (A restatement
of an active memory holds only the memory''s row, and comes after memory_counters.last_event.) Only reads.';

create or replace function memfold_internal._newest_memory(tenant_id text) returns uuid
language plpgsql stable
as $$
declare
    v_newest uuid;
begin
    select m.memory_id into v_newest
    from memfold.memories as m
    where m.tenant_id = _newest_memory.tenant_id collate "C"
    order by m.memory_id desc
    limit 1;
    return v_newest;
end;
$$;
revoke all on function memfold_internal._newest_memory(text) from public;
comment on function memfold_internal._newest_memory(text) is
'The highest memory id of a tenant that this call can see. A new memory takes a higher one, so that the newer of two, which
is folded into the older, is the one that came later. Only reads.';

create or replace function memfold_internal._new_event_id(tenant_id text) returns uuid
language plpgsql volatile
as $$
begin
    return memfold_internal._id_after(memfold_internal._new_id(), memfold_internal._newest_event(tenant_id));
end;
$$;
revoke all on function memfold_internal._new_event_id(text) from public;
comment on function memfold_internal._new_event_id(text) is
'An id for a ledger row that is written under a scope''s lock: above all that the scope has.';

create or replace function memfold_internal._new_memory_id(tenant_id text) returns uuid
language plpgsql volatile
as $$
begin
    return memfold_internal._id_after(memfold_internal._new_id(), memfold_internal._newest_memory(tenant_id));
end;
$$;
revoke all on function memfold_internal._new_memory_id(text) from public;
comment on function memfold_internal._new_memory_id(text) is
'An id for a text that is new: above those of all that the tenant has.';

create or replace function memfold_internal._new_run_id(tenant_id text) returns uuid
language plpgsql volatile
as $$
begin
    return memfold_internal._id_after(memfold_internal._new_id(), (
        select r.run_id from memfold.runs as r
        where r.tenant_id = _new_run_id.tenant_id collate "C"
        order by r.run_id desc
        limit 1
    ));
end;
$$;
revoke all on function memfold_internal._new_run_id(text) from public;
comment on function memfold_internal._new_run_id(text) is
'An id for a run that folds or rehashes: above those of the tenant''s runs, for the last one is looked up by it.';

create or replace function memfold_internal._new_ids(number bigint, after uuid) returns uuid[]
language plpgsql volatile
as $$
declare
    v_ids uuid[];
begin
    select pg_catalog.array_agg(n.id) into v_ids
    from (select memfold_internal._new_id() as id from pg_catalog.generate_series(1, number) order by id) as n;
    if after >= v_ids[1] then
        for v_i in 1..number loop
            v_ids[v_i] := memfold_internal._id_after(v_ids[v_i], coalesce(v_ids[v_i - 1], after));
        end loop;
    end if;
    return v_ids;
end;
$$;
revoke all on function memfold_internal._new_ids(bigint, uuid) from public;
comment on function memfold_internal._new_ids(bigint, uuid) is
'As many new ids, in their order, all above another one (null: there is none).';
