-- Sums of ledger rows (memory_event_sums): values derived from a text's observations need not read them all. docs/decisions/0010.

create or replace function memfold_internal._turn_hash(source_turn_id text) returns bigint
language sql immutable parallel safe
return pg_catalog.hashtextextended(source_turn_id collate "C", 0);
comment on function memfold_internal._turn_hash is 'A source turn, as stored in memory_event_sums.repeated_turns.';

create or replace function memfold_internal._sum_block(tenant_id text, memory_id uuid, after uuid, to_event uuid)
returns memfold.memory_event_sums
language plpgsql stable
as $$
declare
    b memfold.memory_event_sums;
begin
    with observed as materialized (
        -- in pairs and in order, as in _derived_trees()
        select o.memory_id, o.event_id, o.observations, o.without_turns, o.source_turn_ids, o.turn_events, o.source_confidence,
            o.extractor_confidence, o.first_observed_at, o.observed_at, o.metadata,
            pg_catalog.num_nonnulls(o.valid_from, o.valid_until) > 0 as has_validity,
            -- most rows have one turn: avoids a function scan
            case when pg_catalog.cardinality(o.source_turn_ids) = 1 and o.turn_events is null then (
                select s.event_id from memfold.memory_sources as s
                where s.tenant_id = _sum_block.tenant_id collate "C" and s.source_turn_id = o.source_turn_ids[1]
                    and s.memory_id = o.memory_id
            ) end as first_event
        from memfold_internal._observed as o
        where o.tenant_id = _sum_block.tenant_id collate "C"
            and (o.memory_id, o.event_id) > (_sum_block.memory_id, after)
            and (o.memory_id, o.event_id) <= (_sum_block.memory_id, _sum_block.to_event)
        order by o.memory_id, o.event_id
    ),
    turns as materialized (
        select t.turn, coalesce(t.event_id, o.event_id) as event_id, s.event_id as first_event
        from observed as o
        cross join lateral unnest(o.source_turn_ids, o.turn_events) as t (turn, event_id)
        cross join lateral (
            select s.event_id from memfold.memory_sources as s
            where s.tenant_id = _sum_block.tenant_id collate "C" and s.source_turn_id = t.turn and s.memory_id = o.memory_id
            offset 0
        ) as s
        where o.first_event is null and o.source_turn_ids <> '{}'
    )
    select _sum_block.tenant_id, _sum_block.memory_id, _sum_block.to_event,
        -- a row of method archived replaces several
        coalesce(sum(coalesce(o.observations, 1)), 0)::bigint,
        coalesce(sum(coalesce(o.without_turns, case when o.source_turn_ids = '{}' then 1 else 0 end)), 0)::bigint,
        pg_catalog.count(*) filter (where o.first_event = o.event_id)
        + (select pg_catalog.count(distinct t.event_id) from turns as t where t.event_id = t.first_event),
        max(o.source_confidence), max(o.extractor_confidence), min(coalesce(o.first_observed_at, o.observed_at)), max(o.observed_at),
        coalesce(pg_catalog.bool_or(o.metadata <> '{}'), false), coalesce(pg_catalog.bool_or(o.has_validity), false),
        array(
            select memfold_internal._turn_hash(o.source_turn_ids[1]) from observed as o where o.first_event <> o.event_id
            union
            select memfold_internal._turn_hash(t.turn) from turns as t where t.first_event <> t.event_id
            order by 1
        )
    into b
    from observed as o;
    return b;
end;
$$;
comment on function memfold_internal._sum_block is
'The sums of a text''s observations in force with ids above the first and not above the second id. Only reads.';

create or replace function memfold_internal._validity(
    tenant_id text, memory_ids uuid[], last_seen timestamptz, out valid_from timestamptz, out valid_until timestamptz
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_event_id uuid;
    v_observed_at timestamptz;
begin
    -- the latest one, among blocks that have some and rows without sums
    select e.event_id, e.observed_at, e.valid_from, e.valid_until into v_event_id, v_observed_at, valid_from, valid_until
    from pg_catalog.unnest(memory_ids) as i (id)
    cross join lateral (
        select b.has_validity, b.to_event, pg_catalog.lag(b.to_event, 1, '00000000-0000-0000-0000-000000000000')
                over (order by b.to_event) as after
        from (
            select b.has_validity, b.to_event from memfold.memory_event_sums as b
            where b.tenant_id = _validity.tenant_id collate "C" and b.memory_id = i.id
            union all
            select true, 'ffffffff-ffff-ffff-ffff-ffffffffffff'
        ) as b
    ) as b
    cross join lateral (
        select e.event_id, e.observed_at, e.valid_from, e.valid_until from memfold_internal._observed as e
        where e.tenant_id = _validity.tenant_id collate "C"
            and (e.memory_id, e.event_id) > (i.id, b.after) and (e.memory_id, e.event_id) <= (i.id, b.to_event)
            and pg_catalog.num_nonnulls(e.valid_from, e.valid_until) > 0
        order by e.memory_id, e.event_id
        offset 0
    ) as e
    where b.has_validity
    order by e.observed_at desc, e.event_id desc
    limit 1;
    if v_observed_at < last_seen or exists (
        select
        from pg_catalog.unnest(memory_ids) as i (id)
        cross join lateral (
            -- each with its own time
            select from memfold_internal._whole_ledger as e
            where e.tenant_id = _validity.tenant_id collate "C" and e.memory_id = i.id and e.event_id > v_event_id
                and e.observed_at = v_observed_at and e.observation and not (e.tier = 1 and e.undone)
            limit 1
        ) as e
    ) then
        valid_from := null;
        valid_until := null;
    end if;
end;
$$;
comment on function memfold_internal._validity is
'The validity of a tree with texts memory_ids and last observation at last_seen: that of the latest observation in force, by (observed_at,
event_id); null if it gives none. Only reads.';

create or replace function memfold_internal._extend_sums(tenant_id text, memory_id uuid) returns void
language plpgsql volatile
as $$
declare
    v_after uuid;
    v_to uuid;
begin
    select b.to_event into v_after
    from memfold.memory_event_sums as b
    where b.tenant_id = _extend_sums.tenant_id collate "C" and b.memory_id = _extend_sums.memory_id
    order by b.to_event desc
    limit 1;
    v_after := coalesce(v_after, '00000000-0000-0000-0000-000000000000');
    loop
        v_to := null;
        select e.event_id into v_to
        from memfold.memory_events as e
        where e.tenant_id = _extend_sums.tenant_id collate "C" and (e.memory_id, e.event_id) > (_extend_sums.memory_id, v_after)
            and (e.memory_id, e.event_id) <= (_extend_sums.memory_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by e.memory_id, e.event_id
        offset memfold_internal._block_size() - 1
        limit 1;
        exit when v_to is null;
        -- Only archive_events() may change rows of a text while its root's row is held, and it also locks this one.
        perform from memfold.memories as m
        where m.tenant_id = _extend_sums.tenant_id collate "C" and m.memory_id = _extend_sums.memory_id
        for update skip locked;
        exit when not found;
        insert into memfold.memory_event_sums
        select b.* from memfold_internal._sum_block(_extend_sums.tenant_id, _extend_sums.memory_id, v_after, v_to) as b;
        v_after := v_to;
    end loop;
end;
$$;
comment on function memfold_internal._extend_sums is
'Creates blocks for a text''s ledger rows without sums, as far as they fill blocks. The caller holds the row of the text''s root, with
joined stripes: all rows with ids below the last one of the text exist.';

create or replace function memfold_internal._renew_sums(tenant_id text, memory_ids uuid[], event_ids uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    b record;
begin
    for b in
        select distinct o.memory_id, o.to_event, p.to_event as after
        from unnest(memory_ids, event_ids) as i (memory_id, event_id)
        cross join lateral (
            select o.memory_id, o.to_event from memfold.memory_event_sums as o
            where o.tenant_id = _renew_sums.tenant_id collate "C" and o.memory_id = i.memory_id and o.to_event >= i.event_id
            order by o.to_event
            limit 1
        ) as o
        left join lateral (
            select p.to_event from memfold.memory_event_sums as p
            where p.tenant_id = _renew_sums.tenant_id collate "C" and p.memory_id = o.memory_id and p.to_event < o.to_event
            order by p.to_event desc
            limit 1
        ) as p on true
        order by o.memory_id, o.to_event
    loop
        delete from memfold.memory_event_sums as o
        where o.tenant_id = _renew_sums.tenant_id collate "C" and o.memory_id = b.memory_id and o.to_event = b.to_event;
        insert into memfold.memory_event_sums
        select s.* from memfold_internal._sum_block(_renew_sums.tenant_id, b.memory_id,
            coalesce(b.after, '00000000-0000-0000-0000-000000000000'), b.to_event) as s;
    end loop;
end;
$$;
comment on function memfold_internal._renew_sums is
'Recomputes the sums of the blocks that contain these ledger rows, each of its text, after the rows were undone, moved or erased.';

create or replace function memfold_internal._drop_sums_from(tenant_id text, memory_id uuid, event_id uuid) returns void
language plpgsql volatile
as $$
begin
    delete from memfold.memory_event_sums as b
    where b.tenant_id = _drop_sums_from.tenant_id collate "C" and b.memory_id = _drop_sums_from.memory_id
        and b.to_event >= _drop_sums_from.event_id;
end;
$$;
comment on function memfold_internal._drop_sums_from is 'Deletes the sums of blocks that a row with this id may belong to.';

create or replace function memfold_internal._add_turns(
    tenant_id text, memory_id uuid, source_turn_ids text[], event_id uuid
) returns text[]
language plpgsql volatile
as $$
declare
    v_new text[];
begin
    with added as (
        insert into memfold.memory_sources as s (tenant_id, source_turn_id, memory_id, event_id)
        select _add_turns.tenant_id, t.turn, _add_turns.memory_id, _add_turns.event_id
        from pg_catalog.unnest(source_turn_ids) as t (turn)
        on conflict do nothing
        returning s.source_turn_id
    )
    select pg_catalog.array_agg(a.source_turn_id) into v_new from added as a;
    return v_new;
end;
$$;
comment on function memfold_internal._add_turns is
'Adds the source turns (sorted, distinct) of one observation to those of its text. Returns those that the text did not have (null:
none).';

create or replace function memfold_internal._precede(tenant_id text, memory_id uuid, source_turn_ids text[], event_id uuid) returns void
language plpgsql volatile
as $$
declare
    v_turn text;
begin
    foreach v_turn in array source_turn_ids loop
        update memfold.memory_sources as s
        set event_id = _precede.event_id
        where s.tenant_id = _precede.tenant_id collate "C" and s.source_turn_id = v_turn collate "C"
            and s.memory_id = _precede.memory_id and s.event_id > _precede.event_id;
    end loop;
end;
$$;
comment on function memfold_internal._precede is
'For an observation that may have a lower id than one written before it, because it is in a batch or a stripe: makes it the first with
those of its turns that the other had.';

create or replace function memfold_internal._next_with_turn(tenant_id text, memory_id uuid, source_turn_id text, event_id uuid) returns uuid
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_turns constant text[] := array[source_turn_id];
    v_ends uuid[];
    v_spans uuid[];
    v_last uuid := uuid '00000000-0000-0000-0000-000000000000';
    v_next uuid;
    v_archived uuid;
begin
    -- which blocks repeat it, and the rows without sums
    select pg_catalog.array_agg(b.to_event order by b.to_event), pg_catalog.array_agg(b.after order by b.to_event)
    into v_ends, v_spans
    from (
        select b.to_event, b.repeated_turns, pg_catalog.lag(b.to_event, 1, v_last) over (order by b.to_event) as after
        from memfold.memory_event_sums as b
        where b.tenant_id = _next_with_turn.tenant_id collate "C" and b.memory_id = _next_with_turn.memory_id
        union all
        select 'ffffffff-ffff-ffff-ffff-ffffffffffff', array[memfold_internal._turn_hash(_next_with_turn.source_turn_id)],
            coalesce((pg_catalog.array_agg(b.to_event order by b.to_event desc))[1], v_last)
        from memfold.memory_event_sums as b
        where b.tenant_id = _next_with_turn.tenant_id collate "C" and b.memory_id = _next_with_turn.memory_id
    ) as b
    where b.to_event > _next_with_turn.event_id
        and memfold_internal._turn_hash(_next_with_turn.source_turn_id) = any(b.repeated_turns);
    for v_i in 1..pg_catalog.cardinality(v_ends) loop
        select o.event_id into v_next
        from memfold_internal._observed as o
        where o.tenant_id = _next_with_turn.tenant_id collate "C"
            and (o.memory_id, o.event_id) > (_next_with_turn.memory_id, greatest(v_spans[v_i], _next_with_turn.event_id))
            and (o.memory_id, o.event_id) <= (_next_with_turn.memory_id, v_ends[v_i])
            and o.source_turn_ids @> v_turns and o.method is distinct from 'archived'
        order by o.memory_id, o.event_id
        limit 1;
        exit when found;
    end loop;
    -- rows that replace others may be later than these
    if exists (
        select from memfold.memory_events_archive as a
        where a.tenant_id = _next_with_turn.tenant_id collate "C" and a.memory_id = _next_with_turn.memory_id
    ) then
        select t.event_id into v_archived
        from memfold.memory_events as o
        cross join lateral unnest(o.source_turn_ids, o.turn_events) as t (turn, event_id)
        where o.tenant_id = _next_with_turn.tenant_id collate "C" and o.memory_id = _next_with_turn.memory_id
            and o.method = 'archived' and t.turn = _next_with_turn.source_turn_id
        order by t.event_id
        limit 1;
    end if;
    return least(v_next, v_archived);
end;
$$;
comment on function memfold_internal._next_with_turn is
'The first observation in force of a text with this turn, after event_id has been withdrawn. Null: there is none. Only reads.';

create or replace function memfold_internal._withdraw_turns(tenant_id text, memory_ids uuid[], turns text[], event_ids uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    d record;
    v_next uuid;
    v_memories uuid[];
    v_events uuid[];
begin
    for d in
        select s.memory_id, s.source_turn_id, s.event_id
        from unnest(memory_ids, turns, event_ids) as i (memory_id, turn, event_id)
        cross join lateral (
            select s.* from memfold.memory_sources as s
            where s.tenant_id = _withdraw_turns.tenant_id collate "C" and s.source_turn_id = i.turn collate "C"
                and s.memory_id = i.memory_id and s.event_id = i.event_id
            offset 0
        ) as s
        order by s.source_turn_id, s.memory_id
    loop
        v_next := memfold_internal._next_with_turn(tenant_id, d.memory_id, d.source_turn_id, d.event_id);
        if v_next is null then
            delete from memfold.memory_sources as o
            where o.tenant_id = _withdraw_turns.tenant_id collate "C" and o.source_turn_id = d.source_turn_id and o.memory_id = d.memory_id;
        else
            update memfold.memory_sources as o
            set event_id = v_next
            where o.tenant_id = _withdraw_turns.tenant_id collate "C" and o.source_turn_id = d.source_turn_id and o.memory_id = d.memory_id;
            v_memories := v_memories || d.memory_id;
            v_events := v_events || v_next;
        end if;
    end loop;
    perform memfold_internal._renew_sums(tenant_id, memory_ids || v_memories, event_ids || v_events);
end;
$$;
comment on function memfold_internal._withdraw_turns is
'For ledger rows of texts that no longer have these turns, because they were undone or erased: each turn of which one of them was the
first observation moves to the next one, or is removed from the text. turns null: the row had none. Recomputes the sums of their blocks.
The caller holds the rows of their roots, with joined stripes.';
