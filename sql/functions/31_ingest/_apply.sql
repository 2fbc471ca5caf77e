-- 31_ingest: one fact. ingest_memory tries two fast paths, then the general one:
--
--   _ingest_known   the bucket holds the text as an active memory: one row to lock, a counter and a ledger row to write
--   _ingest_new     the bucket does not hold it, and nothing near is in its scope: the scope's lock, four inserts
--   _ingest         anything else: _validate, _decide (30_decide), the locks that the decision needs, _decide again under
--                   them, _apply
--
-- A fast path decides nothing that _ingest would not decide too. If it meets another case, it has written
-- nothing and reports its progress (the type attempt), and _ingest continues.
--
-- Rows of a plain INSERT (ingest_plain_rows), previews and lookups are here as well, by the same candidate and decision.
-- A late vector (attach_embedding) is not a statement: it needs only _decide_pair, and its ledger row adds no observation.
--
-- What must stay true: a call that holds the row of a root never waits for the lock of a scope; what is decided under a
-- lock reads only what was committed before the lock was taken; each accepted call writes exactly one ledger row, and the
-- row's id is above all earlier ones of its memory.

-- The result of a decision for the caller.
create or replace function memfold_internal._result(d memfold_internal.decision, p_memory_id uuid, p_judgement_id uuid, p_event_id uuid)
returns memfold.ingest_result
language plpgsql immutable parallel safe
as $$
begin
    return (
        d.action,
        case d.action
            -- the memory that now holds the fact
            when 'merged' then coalesce(d.target_id, d.root_id, p_memory_id)
            when 'rejected' then d.root_id
            -- of a known text, the root
            else coalesce(d.root_id, p_memory_id)
        end,
        d.tier, d.method, d.similarity, case d.action when 'superseded' then d.target_id end, p_judgement_id, p_event_id,
        d.similar_memories
    );
end;
$$;

-- The result of an ingest call, read from its ledger row.
create or replace function memfold_internal._event_result(p_tenant_id text, p_event_id uuid) returns memfold.ingest_result
language plpgsql stable
as $$
declare
    d memfold_internal.decision;
    e memfold.memory_events;
begin
    e := memfold_internal._event(p_tenant_id, p_event_id);
    d.action := e.action;
    d.tier := e.tier;
    d.method := e.method;
    select case when e.tier = 1 then memfold_internal._root(m.memory_id, m.root_id) else m.memory_id end into d.root_id
    from memfold.memories as m
    where m.tenant_id = e.tenant_id and m.memory_id = e.memory_id;
    d.target_id := e.target_id;
    d.similarity := e.similarity;
    d.similar_memories := e.similar_memories;
    return memfold_internal._result(d, e.memory_id, e.judgement_id, e.event_id);
end;
$$;

-- The time of a candidate without observed_at: the clock's, but not before the last statement of the memories concerned,
-- of their slots and of p_slot_key, so that a clock that once ran ahead makes no statement historical.
create or replace function memfold_internal._stated_at(
    c memfold_internal.candidate, d memfold_internal.decision, p_slot_key uuid
) returns timestamptz
language plpgsql stable
as $$
begin
    if p_slot_key is null and num_nonnulls(d.root_id, d.target_id) = 0 then
        return memfold_internal._clock();
    end if;
    return greatest(memfold_internal._clock(), memfold_internal._last_said(c.tenant_id, c.bucket_id,
        array_remove(array[d.root_id, d.target_id], null), p_slot_key));
end;
$$;

-- Stores a new text with its vector, if it has one, as a root or as an alias of p_root_id. False: the text already
-- exists.
create or replace function memfold_internal._insert_text(c memfold_internal.candidate, p_memory_id uuid, p_root_id uuid) returns boolean
language plpgsql volatile
as $$
begin
    insert into memfold.memories (
        tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
        metadata_signature, status, merged_into, root_id, session_id, metadata, embedding_pending, is_ingested
    ) values (
        c.tenant_id, p_memory_id, c.bucket_id, c.memory_type, c.subject, c.predicate, c.object, c.content, (c.policy).canonicalizer,
        (c.policy).key_fields, c.metadata_signature, case when p_root_id is null then 'active' else 'merged' end, p_root_id, p_root_id,
        c.session_id, case when p_root_id is null then c.metadata else '{}' end, c.embedding is null and (c.policy).dedup = 'on', true
    )
    on conflict (tenant_id, bucket_id, content_hash) where content_hash is not null do nothing;
    if not found then
        return false;
    end if;
    if c.embedding is not null then
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
        values (c.tenant_id, p_memory_id, c.embedding_model, c.bucket_id, c.scope_key, c.embedding);
    end if;
    return true;
end;
$$;

-- Stores a new text with its vector and, if the policy compares them, its words, as a root or as an alias of p_root_id.
-- Null: the text already exists.
create or replace function memfold_internal._insert_memory(
    c memfold_internal.candidate, p_root_id uuid
) returns uuid
language plpgsql volatile
as $$
declare
    v_memory_id uuid := c.memory_id;
begin
    if memfold_internal._displace_stale_hash(c) then
        -- Decide again: the earlier decision was made without that text.
        return null;
    end if;
    if v_memory_id is null then
        v_memory_id := memfold_internal._new_memory_id(c.tenant_id);
    end if;
    if not memfold_internal._insert_text(c, v_memory_id, p_root_id) then
        return null;
    end if;
    if (c.policy).lexical_threshold is not null and (c.policy).dedup = 'on' then
        insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
        select c.tenant_id, c.bucket_id, t.token, v_memory_id
        from unnest(memfold_internal._tokens(c.content, (c.policy).segmenter)) as t (token);
    end if;
    return v_memory_id;
end;
$$;

-- Writes the counters and turns of a new root, as _count_statement() would, by plain INSERTs, which are faster.
create or replace function memfold_internal._insert_counters(c memfold_internal.candidate, p_memory_id uuid) returns void
language plpgsql volatile
as $$
begin
    if c.source_turn_ids <> '{}' then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
        select c.tenant_id, t.turn, p_memory_id, c.event_id
        from unnest(c.source_turn_ids) as t (turn);
    end if;
    insert into memfold.memory_counters (
        tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen, last_seen, has_metadata,
        last_event
    ) values (
        c.tenant_id, p_memory_id, 1, 1, c.source_confidence, c.extractor_confidence, c.observed_at, c.observed_at, c.metadata <> '{}',
        c.event_id
    );
end;
$$;

-- The common case of _derive_times(): a text stated after all others of its slot, without a validity, becomes the
-- current one. False: another case; nothing was changed. The caller holds the scope's lock, and adds the
-- statement itself.
create or replace function memfold_internal._append_value(
    p_tenant_id text, p_root_id uuid, p_slot_key uuid, p_bucket_id text, p_at timestamptz
)
returns boolean
language plpgsql volatile
set plan_cache_mode = force_generic_plan
-- Statistics of a table whose facts are all of one scope must not choose a scan.
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_variable
declare
    r record;
    v_values uuid[];
    v_begins timestamptz;
begin
    select m.status, num_nonnulls(k.valid_from, k.valid_until) > 0 as is_timed into strict r
    from memfold.memories as m
    join memfold.memory_counters as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_root_id;
    if r.status not in ('active', 'superseded') or r.is_timed or memfold_internal._related(p_tenant_id, array[p_root_id]) <> '{}' then
        return false;
    end if;
    select array_agg(i.memory_id), max(i.valid_from) into v_values, v_begins
    from (
        select i.memory_id, i.valid_from from memfold.memory_intervals as i
        where i.tenant_id = p_tenant_id collate "C" and i.slot_key = p_slot_key
            and case when i.valid_to is null then 'infinity' else i.valid_to end > p_at
        limit 2
    ) as i;
    if v_values is null then
        -- It is the first value, unless others are not on the timeline yet.
        if exists (
            select from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C" and m.scope_key = p_slot_key
                and m.memory_id <> p_root_id
        ) then
            return false;
        end if;
    elsif cardinality(v_values) > 1 or v_values[1] = p_root_id or v_begins > p_at then
        return false;
    end if;
    for r in
        select i.id from unnest(v_values || p_root_id) as i (id) order by i.id
    loop
        perform from memfold.memory_counters as k
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = r.id
        for no key update;
    end loop;
    if v_values is not null then
        -- Another call may have stated it later, or given it a validity or metadata.
        update memfold.memory_counters as k
        set is_additive = false
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = v_values[1] and k.is_additive
            and greatest(k.last_seen, k.alias_last_seen) <= p_at;
        if not found then
            return false;
        end if;
        update memfold.memories as m
        set status = 'superseded'
        where m.tenant_id = p_tenant_id collate "C" and m.memory_id = v_values[1];
        delete from memfold.memory_intervals as i
        where i.tenant_id = p_tenant_id collate "C" and i.memory_id = v_values[1] and i.valid_from = p_at;
        update memfold.memory_intervals as i
        set valid_to = p_at
        where i.tenant_id = p_tenant_id collate "C" and i.memory_id = v_values[1] and i.valid_from = v_begins and v_begins < p_at;
    end if;
    -- The value may have been current until this moment: its interval continues.
    update memfold.memory_intervals as i
    set valid_to = null
    where i.tenant_id = p_tenant_id collate "C" and i.memory_id = p_root_id and i.valid_to = p_at;
    if not found then
        insert into memfold.memory_intervals (tenant_id, memory_id, valid_from, slot_key)
        values (p_tenant_id, p_root_id, p_at, p_slot_key);
    end if;
    update memfold.memories as m
    set status = 'active'
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_root_id and m.status <> 'active';
    update memfold.memory_counters as k
    set is_additive = true, on_timeline = true
    where k.tenant_id = p_tenant_id collate "C" and k.memory_id = p_root_id;
    return true;
end;
$$;

-- Carries out and records a decision that was made under the scope's lock. Null: a plain INSERT, which takes no lock, has
-- changed the state; decide again.
create or replace function memfold_internal._apply(c memfold_internal.candidate, d memfold_internal.decision) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_memory_id uuid := d.memory_id;
    v_observation constant boolean := d.action <> 'rejected' and c.origin <> 'recalled';
    v_timed constant boolean := num_nonnulls(c.valid_from, c.valid_until) > 0;
    v_slot_key uuid;
    v_judgement_id uuid;
    v_asked_id uuid;
    v_event_id uuid;
    v_said record;
    v_derive boolean;
    v_counted boolean := false;
begin
    if v_memory_id is not null then
        -- The first observation of a plain row derives its state. A recalled text is not an observation.
        if c.origin <> 'recalled' then
            perform memfold_internal._adopt_row(c.tenant_id, v_memory_id);
        end if;
    end if;
    if v_observation and (v_memory_id is not null or d.action in ('merged', 'replaced')) then
        select memfold_internal._slot_key(m.tenant_id, m.bucket_id, m.memory_type, m.predicate, m.scope_key) into v_slot_key
        from memfold.memories as m
        where m.tenant_id = c.tenant_id and m.memory_id = memfold_internal._root(d.target_id, d.root_id);
    elsif v_observation and memfold_internal._is_slot(c.tenant_id, c.bucket_id, c.memory_type, c.predicate) then
        v_slot_key := c.scope_key;
    end if;
    if c.observed_at is null then
        c.observed_at := memfold_internal._stated_at(c, d, v_slot_key);
    end if;
    v_derive := v_memory_id is not null or v_timed;
    if v_memory_id is not null and v_observation then
        if v_slot_key is not null and not v_timed then
            v_derive := not memfold_internal._append_value(c.tenant_id, d.root_id, v_slot_key, c.bucket_id, c.observed_at);
        end if;
        -- Restatements lock only the root's row. Lock it before the event id is drawn, so that this id is above theirs.
        if v_derive then
            perform memfold_internal._lock_texts(c.tenant_id, memfold_internal._texts_to_lock(c.tenant_id,
                array_remove(array[v_memory_id, d.root_id, d.target_id], null)));
        end if;
    end if;
    -- A batch has assigned the ids of its candidates, in their order.
    if c.event_id is null then
        c.event_id := memfold_internal._new_event_id(c.tenant_id);
    end if;
    if d.action = 'rejected' or c.origin = 'recalled' and v_memory_id is not null then
        -- writes only a ledger row
        v_derive := false;
    elsif v_memory_id is not null and not v_derive then
        v_said := memfold_internal._record_observation(c, v_memory_id, d.root_id, 0, c.event_id);
        c.event_id := coalesce(v_said.event_id, c.event_id);
        v_derive := not v_said.is_added;
    elsif v_memory_id is null and d.action in ('merged', 'replaced') then
        -- Lock the slot's values in order of id, among them the target, before its new alias or successor exists.
        if v_slot_key is not null then
            perform memfold_internal._lock_texts(c.tenant_id, array(
                select i.id from unnest(d.target_id || memfold_internal._restated_with(c.tenant_id, array[d.target_id])) as i (id)
                group by i.id order by i.id
            ));
        end if;
        perform from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id and k.memory_id = d.target_id and k.root_id is null
        for no key update;
        if not found then
            return null;
        end if;
        v_memory_id := memfold_internal._insert_memory(c, case d.action when 'merged' then d.target_id end);
        if v_memory_id is null then
            return null;
        end if;
        v_derive := d.action = 'replaced';
        if not v_derive then
            if v_slot_key is not null and not v_timed then
                perform memfold_internal._append_value(c.tenant_id, d.target_id, v_slot_key, c.bucket_id, c.observed_at);
            end if;
            v_said := memfold_internal._record_observation(c, v_memory_id, d.target_id, 1, c.event_id);
            c.event_id := coalesce(v_said.event_id, c.event_id);
            c.observed_at := coalesce(v_said.observed_at, c.observed_at);
            v_derive := not v_said.is_added;
        end if;
    elsif v_memory_id is null then
        v_memory_id := memfold_internal._insert_memory(c, null);
        if v_memory_id is null then
            return null;
        end if;
        if not v_derive then
            perform memfold_internal._insert_counters(c, v_memory_id);
            v_derive := v_slot_key is not null
                and not memfold_internal._append_value(c.tenant_id, v_memory_id, v_slot_key, c.bucket_id, c.observed_at);
            v_counted := v_derive;
        end if;
    end if;
    if d.judgement is not null then
        -- Only cosines are compared with a judge's thresholds.
        v_judgement_id := memfold_internal._queue_judgement(c.tenant_id, d.judgement, v_memory_id, d.target_id,
            case when d.method <> 'lexical' then d.similarity end, d.guard, null);
    end if;
    if d.other_value is not null and (c.policy).on_ambiguous <> 'insert' then
        v_asked_id := memfold_internal._ask_cardinality(c.tenant_id, c.bucket_id, c.predicate, v_memory_id, d.other_value);
        v_judgement_id := coalesce(v_judgement_id, v_asked_id);
    end if;

    v_event_id := memfold_internal._record(c, d, v_memory_id, v_observation, v_judgement_id);
    if v_derive then
        if v_observation and not v_counted then
            perform memfold_internal._count_statement(c.tenant_id, v_memory_id, null, c.source_turn_ids, c.source_confidence,
                c.extractor_confidence, c.observed_at, v_event_id, c.metadata <> '{}',
                num_nonnulls(c.valid_from, c.valid_until) > 0);
        end if;
        perform memfold.derive_scope(array_remove(array[v_memory_id, d.root_id, d.target_id], null),
            c.tenant_id);
    end if;
    return memfold_internal._result(d, v_memory_id, v_judgement_id, v_event_id);
end;
$$;
