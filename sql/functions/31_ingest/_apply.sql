create or replace function memfold_internal._result(d memfold_internal.decision, memory_id uuid, judgement_id uuid, event_id uuid)
returns memfold.ingest_result
language plpgsql immutable parallel safe
as $$
begin
    return (
        d.action,
        case d.action
            -- of a fold the memory that now holds the fact
            when 'merged' then coalesce(d.target_id, d.root_id, memory_id)
            when 'rejected' then d.root_id
            -- of a text that was known the memory where it leads
            else coalesce(d.root_id, memory_id)
        end,
        d.tier, d.method, d.similarity, case d.action when 'superseded' then d.target_id end, judgement_id, event_id,
        d.similar_memories
    );
end;
$$;
revoke all on function memfold_internal._result(memfold_internal.decision, uuid, uuid, uuid) from public;
comment on function memfold_internal._result(memfold_internal.decision, uuid, uuid, uuid) is 'What the caller is told of a decision.';

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
revoke all on function memfold_internal._event_result(text, uuid) from public;
comment on function memfold_internal._event_result(text, uuid) is 'What a call of ingest returned, read from its ledger row.';

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
        -- what was superseded or withdrawn comes back, to the timelines that it was on and to what else is on them by now
        v_slot_seen := memfold_internal._last_seen(c.tenant_id, array[d.root_id]);
    elsif d.on_timeline and d.target_id is null then
        select v.last_seen into v_slot_seen from memfold_internal._current_value(c.tenant_id, c.bucket_id, c.scope_key) as v;
        if not found then
            -- its last value may have given way to a fact of another scope, with which its timeline now ends
            v_slot_seen := memfold_internal._last_seen(c.tenant_id, memfold_internal._slot_memories(c.tenant_id, c.bucket_id, c.scope_key));
        end if;
    end if;
    return greatest(memfold_internal._clock(), v_last_seen, v_slot_seen);
end;
$$;
revoke all on function memfold_internal._stated_at(memfold_internal.candidate, memfold_internal.decision) from public;
comment on function memfold_internal._stated_at(memfold_internal.candidate, memfold_internal.decision) is
'When a candidate was observed that does not say: now. That is the clock''s time, but not before what was last stated of the
memories concerned, or of the slot: a clock that was ahead for a while makes nothing historical. Only reads.';

create or replace function memfold_internal._insert_memory(
    c memfold_internal.candidate, root_id uuid
) returns uuid
language plpgsql volatile
as $$
declare
    v_memory_id uuid;
    v_new_id uuid;
begin
    if (c.policy).rehash_run is not null and memfold_internal._displace_stale_hash(c) then
        -- what was decided before that no longer counts
        return null;
    end if;
    if c.memory_id is null then
        v_new_id := memfold_internal._id_after(memfold_internal._new_id(), memfold_internal._newest_memory(c.tenant_id));
    end if;
    insert into memfold.memories as m (
        tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
        metadata_signature, status, merged_into, root_id, session_id, metadata, embedding_pending, is_ingested
    ) values (
        c.tenant_id, coalesce(c.memory_id, v_new_id), c.bucket_id, c.memory_type, c.subject, c.predicate, c.object,
        c.content, (c.policy).canonicalizer, (c.policy).key_fields, c.metadata_signature, case when root_id is null then 'active' else 'merged' end,
        root_id, root_id, c.session_id, case when root_id is null then c.metadata else '{}' end,
        c.embedding is null and (c.policy).dedup = 'on', true
    )
    on conflict (tenant_id, bucket_id, content_hash) where content_hash is not null do nothing
    returning m.memory_id into v_memory_id;
    if v_memory_id is not null and (c.policy).lexical_threshold is not null and (c.policy).dedup = 'on' then
        insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
        select c.tenant_id, c.bucket_id, t.token, v_memory_id
        from pg_catalog.unnest(memfold_internal._tokens(c.content, (c.policy).segmenter)) as t (token);
    end if;
    if v_memory_id is not null and c.embedding is not null then
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
        values (c.tenant_id, v_memory_id, c.embedding_model, c.bucket_id, c.scope_key, c.embedding);
    end if;
    return v_memory_id;
end;
$$;
revoke all on function memfold_internal._insert_memory(memfold_internal.candidate, uuid) from public;
comment on function memfold_internal._insert_memory(memfold_internal.candidate, uuid) is
'Stores a new text with its vector and, where the policy compares them, its words, as a root or as an alias of root_id. Null: the
text is there already.';

create or replace function memfold_internal._apply(c memfold_internal.candidate, d memfold_internal.decision) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_memory_id uuid := d.memory_id;
    v_observation constant boolean := d.action <> 'rejected' and c.origin <> 'recalled';
    v_judgement_id uuid;
    v_event_id uuid;
    v_on_timeline boolean;
    v_is_striped boolean;
    v_said record;
    v_derive boolean := d.on_timeline or v_memory_id is not null;
begin
    if v_memory_id is not null then
        -- whoever gives a row its observation derives it: not for what was recalled
        if c.origin <> 'recalled' then
            perform memfold_internal._adopt_row(c.tenant_id, v_memory_id);
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
    -- a batch has given its own, in the order of its candidates, since it has the locks
    if c.event_id is null then
        -- _new_event_id(), and the like for a memory, in one statement
        select memfold_internal._id_after(i.event_id, i.newest_event), memfold_internal._id_after(i.memory_id, i.newest_memory)
        into c.event_id, c.memory_id
        from (
            select memfold_internal._new_id() as event_id, case when v_memory_id is null then memfold_internal._new_id() end as memory_id,
                (
                    select e.event_id from memfold.memory_events as e where e.tenant_id = c.tenant_id collate "C"
                    order by e.event_id desc
                    limit 1
                ) as newest_event,
                (
                    select m.memory_id from memfold.memories as m
                    where v_memory_id is null and m.tenant_id = c.tenant_id collate "C"
                    order by m.memory_id desc
                    limit 1
                ) as newest_memory
            offset 0
        ) as i;
    end if;
    if d.action = 'rejected' or c.origin = 'recalled' and v_memory_id is not null then
        -- a ledger row only
        v_derive := false;
    elsif v_memory_id is null and d.action in ('merged', 'replaced') then
        -- locks the root before its new alias, or what it becomes an alias of, is there
        select k.on_timeline, k.is_striped into v_on_timeline, v_is_striped
        from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = d.target_id and k.is_active
        for no key update;
        if not found then
            return null;
        end if;
        if v_is_striped then
            -- a turn that is new to its text may not be new to a tree of two
            perform memfold_internal._join_stripes(c.tenant_id, array[d.target_id]);
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
            insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id)
            select c.tenant_id, t.turn, v_memory_id from pg_catalog.unnest(c.source_turn_ids) as t (turn);
            insert into memfold.memory_counters (
                tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen,
                last_seen, last_event
            ) values (
                c.tenant_id, v_memory_id, 1, 1, c.source_confidence, c.extractor_confidence, c.observed_at, c.observed_at,
                c.event_id
            );
        end if;
        if d.judgement is not null then
            -- of a judgement the similarity is a cosine
            v_judgement_id := memfold_internal._queue_judgement(c.tenant_id, d.judgement, v_memory_id, d.target_id,
                case when d.method <> 'lexical' then d.similarity end, d.guard, false);
        end if;
    end if;

    v_event_id := memfold_internal._record(c, d, v_memory_id, v_observation, v_judgement_id);
    if v_derive then
        perform memfold.derive_scope(pg_catalog.array_remove(array[v_memory_id, d.root_id, d.target_id], null),
            c.tenant_id);
    end if;
    return memfold_internal._result(d, v_memory_id, v_judgement_id, v_event_id);
end;
$$;
revoke all on function memfold_internal._apply(memfold_internal.candidate, memfold_internal.decision) from public;
comment on function memfold_internal._apply(memfold_internal.candidate, memfold_internal.decision) is
'Carries out a decision that was made under the scope''s lock, and records it. Only writes. Null: the state has changed in
spite of the lock (a plain INSERT), decide again.';
