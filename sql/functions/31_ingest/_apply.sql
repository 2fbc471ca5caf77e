create or replace function memfold_internal._result(d memfold_internal.decision, memory_id uuid, judgement_id uuid, event_id uuid)
returns memfold.ingest_result
language plpgsql immutable parallel safe
as $$
begin
    return (
        d.action,
        case d.action
            -- for a merge, the memory that now holds the fact
            when 'merged' then coalesce(d.target_id, d.root_id, memory_id)
            when 'rejected' then d.root_id
            -- for a known text, its root
            else coalesce(d.root_id, memory_id)
        end,
        d.tier, d.method, d.similarity, case d.action when 'superseded' then d.target_id end, judgement_id, event_id,
        d.similar_memories
    );
end;
$$;
comment on function memfold_internal._result is 'The result of a decision for the caller.';

create or replace function memfold_internal._event_result(tenant_id text, event_id uuid) returns memfold.ingest_result
language plpgsql stable
as $$
declare
    d memfold_internal.decision;
    e memfold.memory_events;
begin
    e := memfold_internal._event(tenant_id, event_id);
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
comment on function memfold_internal._event_result is 'The result of an ingest call, read from its ledger row.';

create or replace function memfold_internal._stated_at(c memfold_internal.candidate, d memfold_internal.decision) returns timestamptz
language plpgsql stable
as $$
declare
    v_last_seen timestamptz;
    v_slot_seen timestamptz;
begin
    select max(k.last_seen) into v_last_seen
    from memfold.memory_totals as k
    where k.tenant_id = c.tenant_id collate "C" and k.memory_id in (d.root_id, d.target_id);
    if d.method = 'timeline' or d.action = 'inserted' and d.memory_id is not null then
        -- a superseded or withdrawn memory becomes active again, on its former timelines and with the other memories now on them
        v_slot_seen := memfold_internal._last_seen(c.tenant_id, array[d.root_id]);
    elsif d.on_timeline and d.target_id is null then
        select v.last_seen into v_slot_seen from memfold_internal._current_value(c.tenant_id, c.bucket_id, c.scope_key) as v;
        if not found then
            -- its last value may have been superseded by a fact of another scope, with which its timeline now ends
            v_slot_seen := memfold_internal._last_seen(c.tenant_id, memfold_internal._slot_memories(c.tenant_id, c.bucket_id, c.scope_key));
        end if;
    end if;
    return greatest(memfold_internal._clock(), v_last_seen, v_slot_seen);
end;
$$;
comment on function memfold_internal._stated_at is
'When a candidate without observed_at was observed: now. That is the clock''s time, but not before the last statement of the memories
concerned, or of the slot, so that a clock that was ahead for a while makes nothing historical. Only reads.';

create or replace function memfold_internal._insert_text(
    tenant_id text, memory_id uuid, bucket_id text, memory_type text, subject text, predicate text, object text, content text,
    canonicalizer text, key_fields text, metadata_signature text, root_id uuid, session_id text, metadata jsonb,
    embedding_pending boolean, scope_key bigint, embedding vector, embedding_model text
) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    insert into memfold.memories (
        tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
        metadata_signature, status, merged_into, root_id, session_id, metadata, embedding_pending, is_ingested
    ) values (
        _insert_text.tenant_id, _insert_text.memory_id, _insert_text.bucket_id, _insert_text.memory_type, _insert_text.subject,
        _insert_text.predicate, _insert_text.object, _insert_text.content, _insert_text.canonicalizer, _insert_text.key_fields,
        _insert_text.metadata_signature, case when _insert_text.root_id is null then 'active' else 'merged' end,
        _insert_text.root_id, _insert_text.root_id, _insert_text.session_id,
        case when _insert_text.root_id is null then _insert_text.metadata else '{}' end, _insert_text.embedding_pending, true
    )
    on conflict (tenant_id, bucket_id, content_hash) where content_hash is not null do nothing;
    if not found then
        return false;
    end if;
    if embedding is not null then
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
        values (_insert_text.tenant_id, _insert_text.memory_id, embedding_model, _insert_text.bucket_id, _insert_text.scope_key,
            _insert_text.embedding);
    end if;
    return true;
end;
$$;
comment on function memfold_internal._insert_text is
'Stores a new text with its vector, if it has one, as a root or as an alias of root_id. False: the text already exists.';

create or replace function memfold_internal._insert_memory(
    c memfold_internal.candidate, root_id uuid
) returns uuid
language plpgsql volatile
as $$
declare
    v_memory_id uuid := c.memory_id;
begin
    if memfold_internal._displace_stale_hash(c) then
        -- earlier decisions no longer count
        return null;
    end if;
    if v_memory_id is null then
        v_memory_id := memfold_internal._new_memory_id(c.tenant_id);
    end if;
    if not memfold_internal._insert_text(
        c.tenant_id, v_memory_id, c.bucket_id, c.memory_type, c.subject, c.predicate, c.object, c.content, (c.policy).canonicalizer,
        (c.policy).key_fields, c.metadata_signature, root_id, c.session_id, c.metadata,
        c.embedding is null and (c.policy).dedup = 'on', c.scope_key, c.embedding, c.embedding_model)
    then
        return null;
    end if;
    if (c.policy).lexical_threshold is not null and (c.policy).dedup = 'on' then
        insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
        select c.tenant_id, c.bucket_id, t.token, v_memory_id
        from pg_catalog.unnest(memfold_internal._tokens(c.content, (c.policy).segmenter)) as t (token);
    end if;
    return v_memory_id;
end;
$$;
comment on function memfold_internal._insert_memory is
'Stores a new text with its vector and, if the policy compares them, its words, as a root or as an alias of root_id. Null: the text
already exists.';

create or replace function memfold_internal._insert_counters(
    tenant_id text, memory_id uuid, source_turn_ids text[], source_confidence double precision,
    extractor_confidence double precision, observed_at timestamptz, event_id uuid, has_metadata boolean
) returns void
language plpgsql volatile
as $$
begin
    if source_turn_ids <> '{}' then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
        select _insert_counters.tenant_id, t.turn, _insert_counters.memory_id, _insert_counters.event_id
        from pg_catalog.unnest(source_turn_ids) as t (turn);
    end if;
    insert into memfold.memory_counters (
        tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen, last_seen, has_metadata,
        last_event
    ) values (
        tenant_id, memory_id, 1, 1, source_confidence, extractor_confidence, observed_at, observed_at, has_metadata, event_id
    );
end;
$$;
comment on function memfold_internal._insert_counters is
'What _count_statement() writes for a new root, as plain INSERTs, which take less time.';

create or replace function memfold_internal._apply(c memfold_internal.candidate, d memfold_internal.decision) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_memory_id uuid := d.memory_id;
    v_observation constant boolean := d.action <> 'rejected' and c.origin <> 'recalled';
    v_judgement_id uuid;
    v_event_id uuid;
    v_on_timeline boolean;
    v_said record;
    v_derive boolean := d.on_timeline or v_memory_id is not null or pg_catalog.num_nonnulls(c.valid_from, c.valid_until) > 0;
begin
    if v_memory_id is not null then
        -- the first observation of a row derives it: a recalled text is not one
        if c.origin <> 'recalled' then
            perform memfold_internal._adopt_row(c.tenant_id, v_memory_id);
        end if;
        -- so that its id is above those that others, who hold the root's row but no scope, give to restatements
        if v_observation then
            perform memfold_internal._lock_texts(c.tenant_id, memfold_internal._texts_to_lock(c.tenant_id,
                pg_catalog.array_remove(array[v_memory_id, d.root_id, d.target_id], null)));
        end if;
        if d.action = 'merged' then
            d.on_timeline := exists (
                select from memfold.memory_totals as k
                where k.tenant_id = c.tenant_id collate "C" and k.memory_id = d.root_id and k.on_timeline
            );
        end if;
    end if;
    if c.observed_at is null and d.root_id is null and d.target_id is null and not d.on_timeline then
        c.observed_at := memfold_internal._clock();
    elsif c.observed_at is null then
        c.observed_at := memfold_internal._stated_at(c, d);
    end if;
    -- a batch has assigned its own, in the order of its candidates, since it took the locks
    if c.event_id is null then
        c.event_id := memfold_internal._new_event_id(c.tenant_id);
    end if;
    if d.action = 'rejected' or c.origin = 'recalled' and v_memory_id is not null then
        -- only a ledger row
        v_derive := false;
    elsif v_memory_id is null and d.action in ('merged', 'replaced') then
        -- locks the root before its new alias exists, or what it becomes an alias of
        select k.on_timeline into v_on_timeline
        from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = d.target_id and k.is_active
        for no key update;
        if not found then
            return null;
        end if;
        v_memory_id := memfold_internal._insert_memory(c, case d.action when 'merged' then d.target_id end);
        if v_memory_id is null then
            return null;
        end if;
        d.on_timeline := v_on_timeline;
        v_derive := d.action = 'replaced';
        if not v_derive then
            v_said := memfold_internal._record_observation(c, v_memory_id, d.target_id, 1, c.event_id);
            c.event_id := coalesce(v_said.event_id, c.event_id);
            c.observed_at := coalesce(v_said.observed_at, c.observed_at);
            v_derive := v_said.on_timeline is null;
        end if;
    elsif v_memory_id is null then
        v_memory_id := memfold_internal._insert_memory(c, null);
        if v_memory_id is null then
            return null;
        end if;
        if not v_derive then
            perform memfold_internal._insert_counters(c.tenant_id, v_memory_id, c.source_turn_ids, c.source_confidence,
                c.extractor_confidence, c.observed_at, c.event_id, c.metadata <> '{}');
        end if;
        if d.judgement is not null then
            -- the similarity of a judgement is a cosine
            v_judgement_id := memfold_internal._queue_judgement(c.tenant_id, d.judgement, v_memory_id, d.target_id,
                case when d.method <> 'lexical' then d.similarity end, d.guard, null);
        end if;
    end if;

    v_event_id := memfold_internal._record(c, d, v_memory_id, v_observation, v_judgement_id);
    if v_derive then
        if v_observation then
            perform memfold_internal._count_statement(c.tenant_id, v_memory_id, null, c.source_turn_ids, c.source_confidence,
                c.extractor_confidence, c.observed_at, v_event_id, c.metadata <> '{}',
                pg_catalog.num_nonnulls(c.valid_from, c.valid_until) > 0);
        end if;
        perform memfold.derive_scope(pg_catalog.array_remove(array[v_memory_id, d.root_id, d.target_id], null),
            c.tenant_id);
    end if;
    return memfold_internal._result(d, v_memory_id, v_judgement_id, v_event_id);
end;
$$;
comment on function memfold_internal._apply is
'Carries out and records a decision that was made under the scope''s lock. Only writes. Null: the state has changed in spite of the lock
(a plain INSERT); decide again.';
