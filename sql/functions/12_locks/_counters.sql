-- A root's counters are a row and, where writers were many at once, rows beside it (memory_counter_deltas). Here is how they are read,
-- moved into the row, and kept still by whoever derives.

create or replace view memfold.memory_totals with (security_invoker = true) as
select
    k.tenant_id,
    k.memory_id,
    k.is_active,
    k.on_timeline,
    k.aliases,
    k.observations + d.observations as observations,
    k.independent + d.independent as independent,
    greatest(k.source_confidence, d.source_confidence) as source_confidence,
    greatest(k.extractor_confidence, d.extractor_confidence) as extractor_confidence,
    least(k.first_seen, d.first_seen) as first_seen,
    greatest(k.last_seen, d.last_seen) as last_seen,
    k.access_count,
    k.helpful_count,
    k.harmful_count,
    k.last_accessed,
    k.last_event,
    k.decayed_confidence,
    k.decayed_at,
    k.is_contended
from memfold.memory_counters as k
-- a probe for those that are contended; none where a caller asks for no sum
left join lateral (
    select
        coalesce(sum(x.observations), 0)::bigint as observations,
        coalesce(sum(x.independent), 0)::bigint as independent,
        max(x.source_confidence) as source_confidence,
        max(x.extractor_confidence) as extractor_confidence,
        min(x.first_seen) as first_seen,
        max(x.last_seen) as last_seen
    from memfold.memory_counter_deltas as x
    where k.is_contended and x.tenant_id = k.tenant_id and x.memory_id = k.memory_id
) as d on true;
comment on view memfold.memory_totals is
'The counters of a memory, exact at any moment: its row of memory_counters and what memory_counter_deltas has beside it. The same columns.
Aliases have a row of zeros or none.';
comment on column memfold.memory_totals.observations is 'repetition_count + 1.';
comment on column memfold.memory_totals.independent is
'Observations that had a source turn which none before them had, or that came without turns: n + 1 of the confidence formula.';

create or replace function memfold_internal._last_delta(tenant_id text, memory_id uuid) returns timestamptz
language plpgsql stable
as $$
begin
    return (
        select max(d.last_seen) from memfold.memory_counter_deltas as d
        where d.tenant_id = _last_delta.tenant_id collate "C" and d.memory_id = _last_delta.memory_id
    );
end;
$$;
revoke all on function memfold_internal._last_delta(text, uuid) from public;
comment on function memfold_internal._last_delta(text, uuid) is
'The latest observation that a memory''s deltas count; null: there are none. Only reads.';

create or replace function memfold_internal._add_deltas(tenant_id text, memory_id uuid) returns bigint
language plpgsql volatile
as $$
declare
    v_ids uuid[];
    v_newest uuid;
    d record;
begin
    -- What another call adds to at this moment stays. Locked by one statement and taken by the next, which sees what was locked.
    v_ids := array(
        select x.delta_id from memfold.memory_counter_deltas as x
        where x.tenant_id = _add_deltas.tenant_id collate "C" and x.memory_id = _add_deltas.memory_id
        for update skip locked
    );
    if v_ids <> '{}' then
        with gone as (
            delete from memfold.memory_counter_deltas as x
            where x.tenant_id = _add_deltas.tenant_id collate "C" and x.memory_id = _add_deltas.memory_id and x.delta_id = any(v_ids)
            returning x.*
        )
        select sum(g.observations)::bigint as observations, sum(g.independent)::bigint as independent,
            max(g.source_confidence) as source_confidence, max(g.extractor_confidence) as extractor_confidence,
            min(g.first_seen) as first_seen, max(g.last_seen) as last_seen
        into d
        from gone as g;
        v_newest := memfold_internal._newest_event(tenant_id);
        update memfold.memory_counters as k
        set observations = k.observations + d.observations, independent = k.independent + d.independent,
            source_confidence = greatest(k.source_confidence, d.source_confidence),
            extractor_confidence = greatest(k.extractor_confidence, d.extractor_confidence),
            first_seen = least(k.first_seen, d.first_seen), last_seen = greatest(k.last_seen, d.last_seen),
            -- no observation that was counted here is above that
            last_event = greatest(k.last_event, v_newest)
        where k.tenant_id = _add_deltas.tenant_id collate "C" and k.memory_id = _add_deltas.memory_id;
    end if;
    -- Where one process at most has counted, it may be over: if nobody else is about to add one, and then, by a statement of its own,
    -- none is left, the row is enough, until somebody waits for it.
    if pg_catalog.cardinality(v_ids) < 2
        and pg_catalog.pg_try_advisory_xact_lock(memfold_internal._root_key(tenant_id, memory_id))
    then
        update memfold.memory_counters as k
        set is_contended = false
        where k.tenant_id = _add_deltas.tenant_id collate "C" and k.memory_id = _add_deltas.memory_id and k.is_contended
            and not exists (
                select from memfold.memory_counter_deltas as x
                where x.tenant_id = _add_deltas.tenant_id collate "C" and x.memory_id = _add_deltas.memory_id
            );
    end if;
    return pg_catalog.cardinality(v_ids);
end;
$$;
revoke all on function memfold_internal._add_deltas(text, uuid) from public;
comment on function memfold_internal._add_deltas(text, uuid) is
'Moves a memory''s deltas into its row of memory_counters, which the caller holds; not those that another call adds to at this moment. Where
at most one process has counted, and nobody is about to, the row is contended no longer. Waits for nobody. Returns how many.';

create or replace function memfold_internal._try_deltas(tenant_id text, memory_id uuid) returns bigint
language plpgsql volatile
as $$
begin
    perform from memfold.memory_counters as k
    where k.tenant_id = _try_deltas.tenant_id collate "C" and k.memory_id = _try_deltas.memory_id
    for no key update skip locked;
    return case when found then memfold_internal._add_deltas(tenant_id, memory_id) else 0 end;
end;
$$;
revoke all on function memfold_internal._try_deltas(text, uuid) from public;
comment on function memfold_internal._try_deltas(text, uuid) is '_add_deltas(), if nobody else holds the row. Returns how many.';

create or replace function memfold_internal._add_all_deltas(tenant_id text, max_memories bigint) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_id uuid;
    v_moved bigint := 0;
begin
    for v_id in
        select distinct d.memory_id
        from (
            select x.memory_id from memfold.memory_counter_deltas as x
            where x.tenant_id = _add_all_deltas.tenant_id collate "C"
            order by x.memory_id
            limit 64 * max_memories
        ) as d
        order by d.memory_id
        limit max_memories
    loop
        v_moved := v_moved + memfold_internal._try_deltas(tenant_id, v_id);
    end loop;
    return v_moved;
end;
$$;
revoke all on function memfold_internal._add_all_deltas(text, bigint) from public;
comment on function memfold_internal._add_all_deltas(text, bigint) is
'Moves deltas of a tenant into the rows they belong to, of so many memories at most, but of none that another call works on. Returns
how many.';

create or replace function memfold_internal._root_key(tenant_id text, memory_id uuid) returns bigint
language sql immutable parallel safe
return pg_catalog.uuid_hash_extended(memory_id, pg_catalog.hashtextextended(tenant_id collate "C", 1));
revoke all on function memfold_internal._root_key(text, uuid) from public;
comment on function memfold_internal._root_key(text, uuid) is
'The advisory key of a root: SHARED by whoever adds a delta to it, EXCLUSIVE by whoever derives it.';

create or replace function memfold_internal._roots_key(tenant_id text, bucket_id text) returns bigint
language sql immutable parallel safe
return pg_catalog.hashtextextended(bucket_id collate "C", pg_catalog.hashtextextended(tenant_id collate "C", 1));
revoke all on function memfold_internal._roots_key(text, text) from public;
comment on function memfold_internal._roots_key(text, text) is
'The advisory key of all roots of a bucket: as _root_key(), for whoever derives more of them than there is room for keys.';

create or replace function memfold_internal._stop_deltas(tenant_id text, memory_ids uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_keys bigint[];
    v_key bigint;
    -- how many keys, then the last of them
    v_noted constant text[] := pg_catalog.string_to_array(
        coalesce(nullif(pg_catalog.current_setting('memfold.root_keys', true), ''), '0'), ' '
    );
    v_number constant bigint := coalesce(pg_catalog.substring(v_noted[1], '^[0-9]{1,9}$')::bigint, 0);
begin
    -- Others have no deltas, and get none: only who holds the row, or the lock of the scope, can make one of these of them.
    v_keys := array(
        select distinct memfold_internal._root_key(_stop_deltas.tenant_id, i.id) as key
        from pg_catalog.unnest(memory_ids) as i (id)
        cross join lateral (
            select from memfold.memory_counters as k
            where k.tenant_id = _stop_deltas.tenant_id collate "C" and k.memory_id = i.id and k.is_contended and k.is_active
                and not k.on_timeline
            offset 0
        ) as k
        order by 1
    );
    if v_keys = '{}' then
        return;
    elsif v_number + pg_catalog.cardinality(v_keys) > 1000 then
        for v_key in
            select distinct memfold_internal._roots_key(_stop_deltas.tenant_id, m.bucket_id) as key
            from pg_catalog.unnest(memory_ids) as i (id)
            cross join lateral (
                select m.bucket_id from memfold.memories as m
                where m.tenant_id = _stop_deltas.tenant_id collate "C" and m.memory_id = i.id
                offset 0
            ) as m
            order by 1
        loop
            perform pg_catalog.pg_advisory_xact_lock(v_key);
        end loop;
        return;
    end if;
    foreach v_key in array v_keys loop
        perform pg_catalog.pg_advisory_xact_lock(v_key);
    end loop;
    -- it is only counted by this: whoever sets it to something else takes other keys, never fewer
    if pg_catalog.cardinality(v_keys) > 1 or v_keys[1]::text is distinct from v_noted[2] then
        perform pg_catalog.set_config('memfold.root_keys',
            (v_number + pg_catalog.cardinality(v_keys))::text || ' ' || v_keys[pg_catalog.cardinality(v_keys)], true);
    end if;
end;
$$;
revoke all on function memfold_internal._stop_deltas(text, uuid[]) from public;
comment on function memfold_internal._stop_deltas(text, uuid[]) is
'Takes the keys of these roots EXCLUSIVE, to the end of the transaction: whoever adds a delta to one of them has committed, and nobody
adds another. A statement of its own. The caller holds the roots'' rows, and has not written sources of theirs: who has a key SHARED
waits for nothing else that a call holds. A transaction with more than 1,000 keys takes that of the bucket instead: a server has room
for a few thousand locks.';
