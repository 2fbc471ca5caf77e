create or replace function memfold_internal._add_sources(
    tenant_id text, memory_id uuid, root_id uuid, source_turn_ids text[], event_id uuid
) returns bigint
language plpgsql volatile
as $$
declare
    v_new text[];
    v_others uuid[];
begin
    if source_turn_ids = '{}' then
        return 1;
    end if;
    v_new := memfold_internal._add_turns(tenant_id, memory_id, source_turn_ids, event_id);
    if v_new is null then
        return 0;
    end if;
    -- not by OR: where statistics are young, that reads the tenant
    select pg_catalog.array_agg(m.memory_id) into v_others
    from (
        select _add_sources.root_id as memory_id
        union all
        select m.memory_id from memfold.memories as m
        where m.tenant_id = _add_sources.tenant_id collate "C" and m.root_id = _add_sources.root_id
    ) as m
    where m.memory_id <> _add_sources.memory_id;
    return least(1, pg_catalog.cardinality(v_new) - (
        select pg_catalog.count(distinct s.source_turn_id)
        from memfold.memory_sources as s
        where s.tenant_id = _add_sources.tenant_id collate "C"
            and s.source_turn_id = any(v_new)
            and s.memory_id = any(v_others)
    ));
end;
$$;
comment on function memfold_internal._add_sources is
'Adds the source turns (sorted, distinct) of one observation and returns whether it is independent evidence: 1 if one of them is new to
the whole tree, or it came without turns, else 0. The caller holds the root''s row.';

create or replace function memfold_internal._merge_metadata(
    metadata jsonb, addition jsonb, metadata_merge text, metadata_max text[]
) returns jsonb
language sql immutable parallel safe
begin atomic
    select
        case
            when addition = '{}' then metadata
            when metadata = '{}' then addition
            when metadata_merge = 'merge' then metadata || addition
            when metadata_merge = 'newest' then addition
            else metadata
        end || case when metadata_max = '{}' then '{}' else coalesce((
            select pg_catalog.jsonb_object_agg(x.key, x.value)
            from (
                select
                    k.key,
                    max(case when pg_catalog.jsonb_typeof(v.given -> k.key) = 'number' then (v.given -> k.key)::numeric end) as value
                from pg_catalog.unnest(metadata_max) as k (key)
                cross join (values (metadata), (addition)) as v (given)
                group by k.key
            ) as x
            where x.value is not null
        ), '{}') end;
end;
comment on function memfold_internal._merge_metadata is
'Merges the metadata of a later observation into the existing metadata; keys of metadata_max keep their largest number. Empty metadata
changes nothing.';

create or replace function memfold_internal._record_observation(
    c memfold_internal.candidate, memory_id uuid, root_id uuid, new_aliases bigint, inout event_id uuid,
    out observed_at timestamptz, out on_timeline boolean
)
language plpgsql volatile
as $$
declare
    v_aliases bigint;
    v_on_timeline boolean;
    v_seen constant timestamptz := coalesce(c.observed_at, memfold_internal._clock());
    v_turns constant bigint := pg_catalog.cardinality(c.source_turn_ids);
    v_independent bigint := 1;
    v_last_event uuid;
    v_stripe bigint;
    v_fills_block boolean;
begin
    observed_at := v_seen;
    if c.origin = 'recalled' then
        -- against erasure alone (_lock_erased): restatements do not wait for it, nor it for them
        perform from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id
        for key share;
        if not found then
            return;
        end if;
        update memfold.memory_counters as k
        set aliases = k.aliases + new_aliases
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id and new_aliases > 0;
        select k.on_timeline, case when c.observed_at is null then greatest(k.last_seen, v_seen) else v_seen end
        into on_timeline, observed_at
        from memfold.memory_totals as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id;
        -- it holds no row with the last id; a batch has assigned its own
        if c.last_event_id is null then
            event_id := memfold_internal._id_after(event_id, memfold_internal._newest_event(c.tenant_id));
        end if;
        return;
    end if;
    if pg_catalog.num_nonnulls(c.valid_from, c.valid_until) > 0 then
        return;
    end if;
    -- The root's row first. An UPDATE that had to wait checks its row again: a root that is no longer active is not updated.
    -- Observations that cannot simply be added (a late value of a slot, metadata out of order, validity) are derived under the scope's
    -- lock. A turn is assumed to be new here.
    for v_attempt in 1..2 loop
        -- rule count_in_row
        update memfold.memory_counters as k
        set observations = k.observations + 1,
            independent = k.independent + 1,
            source_confidence = greatest(k.source_confidence, c.source_confidence),
            extractor_confidence = greatest(k.extractor_confidence, c.extractor_confidence),
            first_seen = least(k.first_seen, c.observed_at),
            last_seen = greatest(k.last_seen, v_seen),
            -- a batch having written later candidates is no reason to give this one another id
            last_event = case when k.last_event <= c.last_event_id then greatest(k.last_event, _record_observation.event_id)
                else memfold_internal._id_after(_record_observation.event_id, k.last_event) end,
            aliases = k.aliases + new_aliases
        where k.tenant_id = c.tenant_id collate "C"
            and k.memory_id = root_id
            and k.is_active
            and not k.is_striped
            and k.valid_from is null and k.valid_until is null
            and (not k.on_timeline and c.metadata = '{}' or (c.observed_at >= k.last_seen) is not false)
        returning k.aliases, k.on_timeline,
            case when k.last_event <= c.last_event_id then _record_observation.event_id else k.last_event end,
            case when c.observed_at is null then k.last_seen else v_seen end,
            k.observations % memfold_internal._block_size() = 0 or v_fills_block is not null
        into v_aliases, v_on_timeline, v_last_event, observed_at, v_fills_block;
        -- end of rule
        exit when v_aliases is not null;
        -- Several turns may be partly new, depending on earlier observations: not concurrently.
        if c.metadata = '{}' and new_aliases = 0 and v_turns <= 1 and c.last_event_id is null
            and (c.observed_at > memfold_internal._clock()) is not true
        then
            select 0, false, s.last_seen, s.last_event, s.stripe
            into v_aliases, v_on_timeline, observed_at, v_last_event, v_stripe
            from memfold_internal._add_to_stripe(c.tenant_id, root_id, c.source_confidence, c.extractor_confidence, c.observed_at,
                c.event_id) as s
            where s.stripe is not null;
            exit when v_aliases is not null;
        end if;
        v_fills_block := nullif(memfold_internal._join_stripes(c.tenant_id, array[root_id]), false);
    end loop;
    if v_aliases is null then
        return;
    end if;
    if v_last_event <> event_id and v_stripe is null and c.last_event_id is null then
        perform memfold_internal._stripe_contended(c.tenant_id, root_id, event_id);
    end if;
    event_id := v_last_event;
    if memory_id <> root_id and new_aliases = 0 then
        perform from memfold.memories as m
        where m.tenant_id = c.tenant_id collate "C" and m.memory_id = _record_observation.memory_id
            and m.root_id = _record_observation.root_id;
        if not found then
            raise exception 'the alias now points to another memory' using
                errcode = 'serialization_failure',
                detail = 'Its merge was changed while this call waited for its root.',
                hint = 'Retry the call, with the same idempotency_key if it has one.';
        end if;
    end if;
    -- rule count_turns
    if v_turns = 1 and v_aliases = 0 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
        values (c.tenant_id, c.source_turn_ids[1], _record_observation.memory_id, _record_observation.event_id)
        on conflict do nothing;
        get diagnostics v_independent = row_count;
    elsif v_turns > 0 then
        v_independent := memfold_internal._add_sources(c.tenant_id, memory_id, root_id, c.source_turn_ids, event_id);
    end if;
    if v_independent = 0 then
        perform memfold_internal._not_independent(c.tenant_id, root_id, v_stripe);
        if v_stripe is not null then
            perform memfold_internal._precede(c.tenant_id, memory_id, c.source_turn_ids, event_id);
        end if;
    end if;
    if c.metadata <> '{}' then
        -- a separate statement: it adds to what other calls have written by now
        update memfold.memories as m
        set metadata = memfold_internal._merge_metadata(m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max)
        where m.tenant_id = c.tenant_id collate "C" and m.memory_id = _record_observation.root_id
            and m.metadata <> memfold_internal._merge_metadata(
                m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max);
    end if;
    -- end of rule
    if v_fills_block then
        perform memfold_internal._extend_sums(c.tenant_id, memory_id);
    end if;
    on_timeline := v_on_timeline;
end;
$$;
comment on function memfold_internal._record_observation is
'Adds one observation of memory_id to its root by addition alone: counters, sources, metadata. Returns whether the root is a value of a
single-valued slot (on_timeline), and the values for its ledger row: event_id (as given if it is above those of the root''s rows) and
observed_at (without one, now, but not before what the root has). on_timeline null: nothing was added, because the root is no longer
active or the observation cannot simply be added; its row may then be locked.';
