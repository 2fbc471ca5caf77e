-- Subtracts an observation that turned out not to be independent from the counters of a root: of its own text (p_own 1),
-- or only of its tree (p_of_aliases 1).
create or replace function memfold_internal._subtract_independent(
    p_tenant_id text, p_memory_id uuid, p_own bigint, p_of_aliases bigint
) returns void
language plpgsql volatile
as $$
begin
    update memfold.memory_counters as k
    set independent = k.independent - p_own,
        alias_independent = case when p_of_aliases = 0 then k.alias_independent else coalesce(k.alias_independent, 0) - p_of_aliases end
    where k.tenant_id = p_tenant_id collate "C" and k.memory_id = p_memory_id;
end;
$$;

-- Adds the source turns (sorted, distinct) of an observation of a root, which was counted as independent, and corrects
-- the counters if it is not. The caller holds the root's row.
create or replace function memfold_internal._count_turns(
    p_tenant_id text, p_root_id uuid, p_source_turn_ids text[], p_event_id uuid
) returns void
language plpgsql volatile
as $$
declare
    v_new constant text[] := memfold_internal._add_turns(p_tenant_id, p_root_id, p_source_turn_ids, p_event_id);
begin
    if v_new is null then
        perform memfold_internal._subtract_independent(p_tenant_id, p_root_id, 1, 0);
    elsif not memfold_internal._is_new_to_tree(p_tenant_id, p_root_id, p_root_id, v_new) then
        perform memfold_internal._subtract_independent(p_tenant_id, p_root_id, 0, 1);
    end if;
end;
$$;

-- Adds an observation to an alias, after it was added to the root's sum as independent, and corrects that sum if it is
-- not. The caller holds the root's row.
create or replace function memfold_internal._count_alias(
    p_tenant_id text, p_memory_id uuid, p_root_id uuid, p_source_turn_ids text[], p_source_confidence double precision,
    p_extractor_confidence double precision, p_observed_at timestamptz, p_event_id uuid, p_has_metadata boolean
) returns void
language plpgsql volatile
as $$
declare
    v_new constant text[] := memfold_internal._count_statement(p_tenant_id, p_memory_id, p_root_id, p_source_turn_ids, p_source_confidence,
        p_extractor_confidence, p_observed_at, p_event_id, p_has_metadata, false);
begin
    if p_source_turn_ids <> '{}' and (v_new is null or not memfold_internal._is_new_to_tree(p_tenant_id, p_memory_id, p_root_id,
        v_new)) then
        perform memfold_internal._subtract_independent(p_tenant_id, p_root_id, 0, 1);
    end if;
end;
$$;

-- Merges the metadata of a later observation into the existing metadata; keys of p_metadata_max keep their largest
-- number. Empty metadata changes nothing.
create or replace function memfold_internal._merge_metadata(
    p_metadata jsonb, p_addition jsonb, p_metadata_merge text, p_metadata_max text[]
) returns jsonb
language sql immutable parallel safe
begin atomic
    select
        case
            when p_addition = '{}' then p_metadata
            when p_metadata = '{}' then p_addition
            when p_metadata_merge = 'merge' then p_metadata || p_addition
            when p_metadata_merge = 'newest' then p_addition
            else p_metadata
        end || case when p_metadata_max = '{}' then '{}' else coalesce((
            select pg_catalog.jsonb_object_agg(x.key, x.value)
            from (
                select
                    k.key,
                    max(case when pg_catalog.jsonb_typeof(v.given -> k.key) = 'number' then (v.given -> k.key)::numeric end) as value
                from pg_catalog.unnest(p_metadata_max) as k (key)
                cross join (values (p_metadata), (p_addition)) as v (given)
                group by k.key
            ) as x
            where x.value is not null
        ), '{}') end;
end;

-- Adds one observation of p_memory_id to it and its root: counters, sources, metadata. is_added false: nothing was
-- added, because the root is not additive or the observation is late, has metadata out of order, or a validity; the root's
-- row may then be locked. event_id: as given if it is above those of the root's rows, else a higher one. observed_at: for
-- the ledger row; without one, now, but not before what the root has.
create or replace function memfold_internal._record_observation(
    c memfold_internal.candidate, p_memory_id uuid, p_root_id uuid, p_new_aliases bigint, inout event_id uuid,
    out observed_at timestamptz, out is_added boolean
)
language plpgsql volatile
as $$
declare
    v_aliases bigint;
    v_seen constant timestamptz := coalesce(c.observed_at, memfold_internal._clock());
    v_turns bigint := cardinality(c.source_turn_ids);
    v_new bigint;
    v_last_event uuid;
begin
    is_added := false;
    observed_at := v_seen;
    if c.origin = 'recalled' then
        -- Only an erasure (_lock_erased) conflicts with this lock; restatements do not.
        perform from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id and k.memory_id = p_root_id
        for key share;
        if not found then
            return;
        end if;
        update memfold.memory_counters as k
        set aliases = k.aliases + p_new_aliases
        where k.tenant_id = c.tenant_id and k.memory_id = p_root_id and p_new_aliases > 0;
        select true, case when c.observed_at is null then greatest(k.last_seen, v_seen) else v_seen end
        into is_added, observed_at
        from memfold.memory_totals as k
        where k.tenant_id = c.tenant_id and k.memory_id = p_root_id;
        -- This call has not locked the row that holds the last id. A batch has assigned its own ids.
        if c.last_event_id is null then
            event_id := memfold_internal._id_after(event_id, memfold_internal._newest_event(c.tenant_id));
        end if;
        return;
    end if;
    if num_nonnulls(c.valid_from, c.valid_until) > 0 then
        return;
    end if;
    -- The root's row first. An UPDATE that had to wait checks its row again: a root that is no longer active is not updated.
    -- Observations that cannot simply be added (a late value of a slot, metadata out of order, validity) are derived under the scope's
    -- lock. A turn is assumed to be new here.
    if p_memory_id = p_root_id then
        update memfold.memory_counters as k
        set observations = k.observations + 1,
            independent = k.independent + 1,
            source_confidence = greatest(k.source_confidence, c.source_confidence),
            extractor_confidence = greatest(k.extractor_confidence, c.extractor_confidence),
            first_seen = coalesce(least(k.first_seen, c.observed_at), greatest(k.alias_last_seen, v_seen)),
            last_seen = greatest(k.last_seen, v_seen, case when c.observed_at is null then k.alias_last_seen end),
            has_metadata = k.has_metadata or c.metadata <> '{}',
            -- In a batch, a later candidate may have been written first: this one keeps its id.
            last_event = case when k.last_event <= c.last_event_id then greatest(k.last_event, _record_observation.event_id)
                else memfold_internal._id_after(_record_observation.event_id, k.last_event) end
        where k.tenant_id = c.tenant_id
            and k.memory_id = p_root_id
            and k.is_additive
            and (not k.on_timeline and c.metadata = '{}' or (c.observed_at >= greatest(k.last_seen, k.alias_last_seen)) is not false)
        returning k.aliases,
            case when k.last_event <= c.last_event_id then _record_observation.event_id else k.last_event end,
            case when c.observed_at is null then k.last_seen else v_seen end
        into v_aliases, v_last_event, observed_at;
    else
        update memfold.memory_counters as k
        set aliases = k.aliases + p_new_aliases,
            alias_observations = coalesce(k.alias_observations, 0) + 1,
            alias_independent = coalesce(k.alias_independent, 0) + 1,
            alias_source_confidence = greatest(k.alias_source_confidence, c.source_confidence),
            alias_extractor_confidence = greatest(k.alias_extractor_confidence, c.extractor_confidence),
            alias_first_seen = coalesce(least(k.alias_first_seen, c.observed_at), greatest(k.last_seen, v_seen)),
            alias_last_seen = greatest(k.alias_last_seen, v_seen, case when c.observed_at is null then k.last_seen end),
            last_event = case when k.last_event <= c.last_event_id then greatest(k.last_event, _record_observation.event_id)
                else memfold_internal._id_after(_record_observation.event_id, k.last_event) end
        where k.tenant_id = c.tenant_id
            and k.memory_id = p_root_id
            and k.is_additive
            and (not k.on_timeline and c.metadata = '{}' or (c.observed_at >= greatest(k.last_seen, k.alias_last_seen)) is not false)
        returning k.aliases,
            case when k.last_event <= c.last_event_id then _record_observation.event_id else k.last_event end,
            case when c.observed_at is null then k.alias_last_seen else v_seen end
        into v_aliases, v_last_event, observed_at;
    end if;
    if v_aliases is null then
        return;
    end if;
    event_id := v_last_event;
    if p_memory_id <> p_root_id then
        if p_new_aliases = 0 then
            perform from memfold_internal._memory(c.tenant_id, p_memory_id) as m where m.root_id = p_root_id;
            if not found then
                raise exception 'the alias now points to another memory' using
                    errcode = 'serialization_failure',
                    detail = 'Its merge was changed while this call waited for its root.',
                    hint = 'Retry the call, with the same idempotency_key if it has one.';
            end if;
        end if;
        perform memfold_internal._count_alias(c.tenant_id, p_memory_id, p_root_id, c.source_turn_ids, c.source_confidence,
            c.extractor_confidence, observed_at, event_id, c.metadata <> '{}');
        v_turns := 0;
    end if;
    if v_turns = 1 and v_aliases = 0 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
        values (c.tenant_id, c.source_turn_ids[1], p_memory_id, _record_observation.event_id)
        on conflict do nothing;
        get diagnostics v_new = row_count;
        if v_new = 0 then
            perform memfold_internal._subtract_independent(c.tenant_id, p_memory_id, 1, 0);
        end if;
    elsif v_turns > 0 then
        perform memfold_internal._count_turns(c.tenant_id, p_memory_id, c.source_turn_ids, event_id);
    end if;
    if c.metadata <> '{}' then
        -- A separate statement sees what other calls have written by now.
        update memfold.memories as m
        set metadata = memfold_internal._merge_metadata(m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max)
        where m.tenant_id = c.tenant_id and m.memory_id = p_root_id
            and m.metadata <> memfold_internal._merge_metadata(
                m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max);
    end if;
    is_added := true;
end;
$$;
