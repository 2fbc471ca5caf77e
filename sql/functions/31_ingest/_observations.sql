create or replace function memfold_internal._add_sources(
    tenant_id text, memory_id uuid, root_id uuid, source_turn_ids text[]
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
    with added as (
        insert into memfold.memory_sources as s (tenant_id, source_turn_id, memory_id)
        select _add_sources.tenant_id, t.turn, _add_sources.memory_id
        from pg_catalog.unnest(source_turn_ids) as t (turn)
        on conflict do nothing
        returning s.source_turn_id
    )
    select pg_catalog.array_agg(a.source_turn_id) into v_new from added as a;
    if v_new is null then
        return 0;
    end if;
    select pg_catalog.array_agg(m.memory_id) into v_others
    from memfold.memories as m
    where m.tenant_id = _add_sources.tenant_id collate "C"
        and (m.memory_id = _add_sources.root_id or m.root_id = _add_sources.root_id)
        and m.memory_id <> _add_sources.memory_id;
    return least(1, pg_catalog.cardinality(v_new) - (
        select pg_catalog.count(distinct s.source_turn_id)
        from memfold.memory_sources as s
        where s.tenant_id = _add_sources.tenant_id collate "C"
            and s.source_turn_id = any(v_new)
            and s.memory_id = any(v_others)
    ));
end;
$$;
revoke all on function memfold_internal._add_sources(text, uuid, uuid, text[]) from public;
comment on function memfold_internal._add_sources(text, uuid, uuid, text[]) is
'Adds the source turns (sorted, distinct) of one observation and returns whether it is independent evidence: 1 where the whole
tree did not have one of them yet, or it came without turns, else 0. The caller holds the root''s row.';

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
revoke all on function memfold_internal._merge_metadata(jsonb, jsonb, text, text[]) from public;
comment on function memfold_internal._merge_metadata(jsonb, jsonb, text, text[]) is
'Folds the metadata of a later observation into what is there; keys of metadata_max keep their largest number. Empty metadata
says nothing.';

create or replace function memfold_internal._count_beside(
    tenant_id text, root_id uuid, source_turn_ids text[], source_confidence double precision, extractor_confidence double precision,
    seen timestamptz, is_told_now boolean, newest uuid, inout event_id uuid, out observed_at timestamptz
)
language plpgsql volatile
as $$
declare
    v_turns constant bigint := pg_catalog.cardinality(source_turn_ids);
    v_independent bigint := 1;
    v_delta_id uuid;
    v_seen timestamptz := seen;
begin
    -- What is in the ledger was said before: it has lower ids, and earlier times, unless the clock was put back.
    if newest >= event_id then
        event_id := memfold_internal._id_after(memfold_internal._new_id(), newest);
        if is_told_now then
            v_seen := greatest(seen, memfold_internal._last_delta(tenant_id, root_id));
        end if;
    end if;
    -- Whoever moves the row of this process has it until they commit: then there is another one.
    update memfold.memory_counter_deltas as d
    set observations = d.observations + 1,
        independent = d.independent + 1,
        source_confidence = greatest(d.source_confidence, _count_beside.source_confidence),
        extractor_confidence = greatest(d.extractor_confidence, _count_beside.extractor_confidence),
        first_seen = least(d.first_seen, v_seen),
        last_seen = greatest(d.last_seen, v_seen, case when is_told_now then k.last_seen end)
    from memfold.memory_counters as k
    where k.tenant_id = _count_beside.tenant_id collate "C" and k.memory_id = _count_beside.root_id
        and k.is_contended and k.is_active and not k.on_timeline and (k.aliases = 0 or v_turns = 0)
        and d.tenant_id = _count_beside.tenant_id collate "C" and d.memory_id = _count_beside.root_id
        and d.backend = pg_catalog.pg_backend_pid()
        and d.delta_id = (
            select x.delta_id from memfold.memory_counter_deltas as x
            where x.tenant_id = _count_beside.tenant_id collate "C" and x.memory_id = _count_beside.root_id
                and x.backend = pg_catalog.pg_backend_pid()
            limit 1
            for no key update skip locked
        )
    returning d.delta_id, greatest(v_seen, case when is_told_now then k.last_seen end) into v_delta_id, observed_at;
    if v_delta_id is null then
        insert into memfold.memory_counter_deltas as d (
            tenant_id, memory_id, backend, observations, independent, source_confidence, extractor_confidence, first_seen, last_seen
        )
        select k.tenant_id, k.memory_id, pg_catalog.pg_backend_pid(), 1, 1, _count_beside.source_confidence,
            _count_beside.extractor_confidence, s.seen, s.seen
        from memfold.memory_counters as k
        cross join lateral (select greatest(v_seen, case when is_told_now then k.last_seen end) as seen) as s
        where k.tenant_id = _count_beside.tenant_id collate "C" and k.memory_id = _count_beside.root_id
            and k.is_contended and k.is_active and not k.on_timeline and (k.aliases = 0 or v_turns = 0)
        returning d.delta_id, d.last_seen into v_delta_id, observed_at;
        if v_delta_id is null then
            -- Who derives has the row, and may wait for the key that this call holds: it must not wait for the row.
            perform from memfold.memory_counters as k
            where k.tenant_id = _count_beside.tenant_id collate "C" and k.memory_id = _count_beside.root_id
                and k.is_contended and k.is_active and not k.on_timeline;
            if found then
                perform memfold_internal._retry('the memory has changed', 'A text was merged into it while this call was about to count.');
            end if;
            return;
        end if;
    end if;
    if v_turns = 1 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id)
        values (_count_beside.tenant_id, source_turn_ids[1], root_id)
        on conflict do nothing;
        get diagnostics v_independent = row_count;
    elsif v_turns > 1 then
        v_independent := memfold_internal._add_sources(tenant_id, root_id, root_id, source_turn_ids);
    end if;
    if v_turns > 1 or v_independent = 0 then
        -- who had a turn first, and may have been waited for, has the lower id
        event_id := memfold_internal._id_after(event_id, memfold_internal._newest_event(tenant_id));
    end if;
    if v_independent = 0 then
        update memfold.memory_counter_deltas as d
        set independent = d.independent - 1
        where d.tenant_id = _count_beside.tenant_id collate "C" and d.memory_id = _count_beside.root_id
            and d.backend = pg_catalog.pg_backend_pid() and d.delta_id = v_delta_id;
    end if;
    if pg_catalog.random() < 0.00048828125 then
        perform memfold_internal._try_deltas(tenant_id, root_id);
    end if;
end;
$$;
revoke all on function memfold_internal._count_beside(
    text, uuid, text[], double precision, double precision, timestamptz, boolean, uuid, uuid
) from public;
comment on function memfold_internal._count_beside(
    text, uuid, text[], double precision, double precision, timestamptz, boolean, uuid, uuid
) is
'What _add_delta() does once it has the root''s key: counts, in the row of this process, and adds sources. newest: the highest event id
that the call has seen.';

create or replace function memfold_internal._settle_row(
    tenant_id text, root_id uuid, dependent bigint, was_overtaken boolean, is_contended boolean, is_told_now boolean,
    inout event_id uuid, inout observed_at timestamptz
)
language plpgsql volatile
as $$
begin
    if is_contended then
        -- What was said before comes before, wherever it was counted; and who had a turn first, and may have been waited for, has the
        -- lower id.
        event_id := memfold_internal._id_after(event_id, memfold_internal._newest_event(tenant_id));
        if is_told_now then
            observed_at := greatest(observed_at, memfold_internal._last_delta(tenant_id, root_id));
        end if;
    end if;
    update memfold.memory_counters as k
    set independent = k.independent - dependent,
        last_event = greatest(k.last_event, _settle_row.event_id),
        last_seen = case when is_told_now then greatest(k.last_seen, _settle_row.observed_at) else k.last_seen end,
        is_contended = k.is_contended or was_overtaken and not k.on_timeline
    where k.tenant_id = _settle_row.tenant_id collate "C" and k.memory_id = _settle_row.root_id;
    if is_contended and pg_catalog.random() < 0.03125 then
        perform memfold_internal._add_deltas(tenant_id, root_id);
    end if;
end;
$$;
revoke all on function memfold_internal._settle_row(text, uuid, bigint, boolean, boolean, boolean, uuid, timestamptz) from public;
comment on function memfold_internal._settle_row(text, uuid, bigint, boolean, boolean, boolean, uuid, timestamptz) is
'What is left to do for an observation that was added to a root''s row, as independent: dependent (1) if it is not; was_overtaken: a
later call was counted before it, so calls wait for one another here, and the next ones count beside the row; is_contended: they do
already. Returns what the ledger row is to have.';

create or replace function memfold_internal._add_delta(
    tenant_id text, bucket_id text, memory_id uuid, root_id uuid, source_turn_ids text[], source_confidence double precision,
    extractor_confidence double precision, wait boolean, seen timestamptz, is_told_now boolean, inout event_id uuid,
    out observed_at timestamptz
)
language plpgsql volatile
as $$
declare
    v_turns constant bigint := pg_catalog.cardinality(source_turn_ids);
begin
    -- with one snapshot it could not look again
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    -- Nobody is kept waiting by keys of a root that would not do.
    perform from memfold.memory_counters as k
    where k.tenant_id = _add_delta.tenant_id collate "C" and k.memory_id = _add_delta.root_id and k.is_contended and k.is_active
        and not k.on_timeline and (k.aliases = 0 or v_turns = 0)
        and pg_catalog.pg_try_advisory_xact_lock_shared(memfold_internal._roots_key(_add_delta.tenant_id, _add_delta.bucket_id));
    if not found then
        return;
    elsif not pg_catalog.pg_try_advisory_xact_lock_shared(memfold_internal._root_key(tenant_id, root_id)) then
        if not wait then
            return;
        end if;
        -- for whoever derives it: not for its row, of which there would be a queue afterwards
        perform pg_catalog.pg_advisory_xact_lock_shared(memfold_internal._root_key(tenant_id, root_id));
    end if;
    -- now nobody derives it
    perform from memfold.memories as m
    where m.tenant_id = _add_delta.tenant_id collate "C" and m.memory_id = _add_delta.memory_id
        and memfold_internal._root(m.memory_id, m.root_id) = _add_delta.root_id;
    if not found and memory_id <> root_id then
        -- it must not wait for the root's row (_count_beside)
        perform memfold_internal._retry('the alias leads elsewhere now', 'Its fold was changed while this call waited for its memory.');
    elsif not found then
        return;
    end if;
    select b.event_id, b.observed_at into event_id, observed_at
    from memfold_internal._count_beside(tenant_id, root_id, source_turn_ids, source_confidence, extractor_confidence, seen, is_told_now,
        memfold_internal._newest_event(tenant_id), event_id) as b;
    -- the next call of the session need not ask (_ingest_fast_path)
    perform pg_catalog.set_config('memfold.contended', memfold_internal._root_key(tenant_id, root_id)::text, false);
end;
$$;
revoke all on function memfold_internal._add_delta(
    text, text, uuid, uuid, text[], double precision, double precision, boolean, timestamptz, boolean, uuid
) from public;
comment on function memfold_internal._add_delta(
    text, text, uuid, uuid, text[], double precision, double precision, boolean, timestamptz, boolean, uuid
) is
'Adds an observation of memory_id beside the row of its root, which is contended: sources, and a row of memory_counter_deltas. It says
nothing new but that it was said: no metadata, no new alias. Returns what the ledger row is to have: event_id (as given, where that is above
all of the root) and observed_at (seen; where it is told now, not before what the root has). observed_at null: nothing is written, and
the root''s row is to be locked. Not where the order of observations counts: on timelines, and in trees with aliases for one that has
turns. It waits for no row. wait: it waits for who derives the root, holding nothing that is waited for.';

create or replace function memfold_internal._record_observation(
    c memfold_internal.candidate, memory_id uuid, root_id uuid, new_aliases bigint, inout event_id uuid,
    out observed_at timestamptz, out on_timeline boolean
)
language plpgsql volatile
as $$
declare
    v_added record;
    v_beside record;
    v_overtaken boolean;
    v_on_timeline boolean;
    v_seen constant timestamptz := coalesce(c.observed_at, memfold_internal._clock());
    v_turns constant bigint := pg_catalog.cardinality(c.source_turn_ids);
    v_independent bigint := 1;
begin
    observed_at := v_seen;
    if c.origin = 'recalled' then
        update memfold.memory_counters as k
        set aliases = k.aliases + new_aliases
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id and new_aliases > 0;
        select k.on_timeline, case when c.observed_at is null then greatest(k.last_seen, v_seen) else v_seen end
        into on_timeline, observed_at
        from memfold.memory_totals as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id;
        -- it holds no row that has the last id; a batch has given its own
        if c.last_event_id is null then
            event_id := memfold_internal._id_after(event_id, memfold_internal._newest_event(c.tenant_id));
        end if;
        return;
    end if;
    -- The root's row; beside it, where that is contended and nothing depends on the order; else it is waited for. A root that is no
    -- longer active is not touched. What cannot simply be added (a late value of a slot, metadata out of order) is derived under the
    -- scope's lock. A turn is taken for new here.
    for v_attempt in 1..2 loop
        update memfold.memory_counters as k
        set observations = k.observations + 1,
            independent = k.independent + 1,
            source_confidence = greatest(k.source_confidence, c.source_confidence),
            extractor_confidence = greatest(k.extractor_confidence, c.extractor_confidence),
            first_seen = least(k.first_seen, c.observed_at),
            last_seen = greatest(k.last_seen, v_seen),
            -- what a batch has written of later candidates is no reason to give this one another id
            last_event = case when k.last_event <= c.last_event_id then greatest(k.last_event, _record_observation.event_id)
                else memfold_internal._id_after(_record_observation.event_id, k.last_event) end,
            aliases = k.aliases + new_aliases
        where k.tenant_id = c.tenant_id collate "C"
            and k.memory_id = _record_observation.root_id
            and (not k.is_contended or v_attempt = 2)
            and k.is_active
            and (not k.on_timeline and c.metadata = '{}' or (c.observed_at >= k.last_seen) is not false)
        returning k.aliases, k.on_timeline, k.is_contended,
            case when k.last_event <= c.last_event_id then _record_observation.event_id else k.last_event end as event_id,
            case when c.observed_at is null then k.last_seen else v_seen end as observed_at
        into v_added;
        exit when v_added.aliases is not null or v_attempt = 2;
        if c.metadata = '{}' and new_aliases = 0 and c.last_event_id is null then
            v_beside := memfold_internal._add_delta(c.tenant_id, c.bucket_id, memory_id, root_id, c.source_turn_ids, c.source_confidence,
                c.extractor_confidence, c.scope_key is null, v_seen, c.observed_at is null, event_id);
            if v_beside.observed_at is not null then
                event_id := v_beside.event_id;
                observed_at := v_beside.observed_at;
                on_timeline := false;
                return;
            end if;
        end if;
        perform from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = _record_observation.root_id and k.is_active
            and (not k.on_timeline and c.metadata = '{}' or (c.observed_at >= k.last_seen) is not false);
        exit when not found;
        perform from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = _record_observation.root_id
        for no key update;
    end loop;
    if v_added.aliases is null then
        return;
    end if;
    v_on_timeline := v_added.on_timeline;
    v_overtaken := event_id <> v_added.event_id;
    event_id := v_added.event_id;
    observed_at := v_added.observed_at;
    if memory_id <> root_id and new_aliases = 0 then
        perform from memfold.memories as m
        where m.tenant_id = c.tenant_id collate "C" and m.memory_id = _record_observation.memory_id
            and m.root_id = _record_observation.root_id;
        if not found then
            raise exception 'the alias leads elsewhere now' using
                errcode = 'serialization_failure',
                detail = 'Its fold was changed while this call waited for its memory.',
                hint = 'Retry the call, with the same idempotency_key if it has one.';
        end if;
    end if;
    if v_turns = 1 and v_added.aliases = 0 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id)
        values (c.tenant_id, c.source_turn_ids[1], _record_observation.memory_id)
        on conflict do nothing;
        get diagnostics v_independent = row_count;
    elsif v_turns > 0 then
        v_independent := memfold_internal._add_sources(c.tenant_id, memory_id, root_id, c.source_turn_ids);
    end if;
    if v_independent = 0 or v_overtaken or v_added.is_contended then
        v_added := memfold_internal._settle_row(c.tenant_id, root_id, 1 - v_independent, v_overtaken,
            -- ids that a batch has given are after all that was said before it
            v_added.is_contended and (c.last_event_id is null or v_turns > 1 or v_independent = 0), c.observed_at is null, event_id,
            observed_at);
        event_id := v_added.event_id;
        observed_at := v_added.observed_at;
    end if;
    if c.metadata <> '{}' then
        update memfold.memories as m
        set metadata = memfold_internal._merge_metadata(m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max)
        where m.tenant_id = c.tenant_id collate "C" and m.memory_id = _record_observation.root_id
            and m.metadata <> memfold_internal._merge_metadata(
                m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max);
    end if;
    on_timeline := v_on_timeline;
end;
$$;
revoke all on function memfold_internal._record_observation(memfold_internal.candidate, uuid, uuid, bigint, uuid) from public;
comment on function memfold_internal._record_observation(memfold_internal.candidate, uuid, uuid, bigint, uuid) is
'Adds one observation of memory_id to its root by addition alone: counters (or a delta, _add_delta), sources, metadata. Returns whether
the root is a value of a single-valued slot (on_timeline), and what its ledger row is to have: event_id (as given where that is above the
root''s rows) and observed_at (told now: not before what the root has). on_timeline null: nothing was added, because the root is
no longer active or the observation cannot simply be added; its row may then be locked.';
