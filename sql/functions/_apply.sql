create or replace function memfold._actor() returns text
language sql stable
return case pg_catalog.current_setting('role')
    when 'none' then session_user::text else pg_catalog.current_setting('role')
end;
revoke all on function memfold._actor() from public;
comment on function memfold._actor() is 'The role that called, seen through SECURITY DEFINER.';

create or replace function memfold._record(
    c memfold.candidate, d memfold.decision, memory_id uuid, observation boolean, judgement_id uuid
) returns uuid
language plpgsql volatile
as $$
declare
    v_event_id constant uuid := coalesce(c.event_id, memfold._new_event_id(c.tenant_id));
begin
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories,
        reason, observation, on_timeline, content, memory_type, subject, predicate, object, source_turn_ids,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, judgement_id, actor
    ) values (
        c.tenant_id, v_event_id, c.bucket_id, d.action, d.tier, d.method, memory_id, d.target_id, d.similarity, d.guard, d.similar_memories,
        d.reason, observation, d.on_timeline, c.content, c.memory_type, c.subject, c.predicate, c.object,
        c.source_turn_ids, c.source_confidence, c.extractor_confidence, c.session_id, c.origin, c.metadata,
        c.observed_at, judgement_id, memfold._actor()
    );
    return v_event_id;
end;
$$;
revoke all on function memfold._record(memfold.candidate, memfold.decision, uuid, boolean, uuid) from public;
comment on function memfold._record(memfold.candidate, memfold.decision, uuid, boolean, uuid) is
'Writes the ledger row of an accepted candidate and returns its event_id. Called with all locks held, so that the order
of event ids is the order of events in a scope.';

create or replace function memfold._add_sources(
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
revoke all on function memfold._add_sources(text, uuid, uuid, text[]) from public;
comment on function memfold._add_sources(text, uuid, uuid, text[]) is
'Adds the source turns (sorted, distinct) of one observation and returns whether it is independent evidence: 1 where the whole
tree did not have one of them yet, or it came without turns, else 0. The caller holds the root''s row.';

create or replace function memfold._fold_metadata(
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
revoke all on function memfold._fold_metadata(jsonb, jsonb, text, text[]) from public;
comment on function memfold._fold_metadata(jsonb, jsonb, text, text[]) is
'Folds the metadata of a later observation into what is there; keys of metadata_max keep their largest number. Empty metadata
says nothing.';

create or replace function memfold._strengthen(
    c memfold.candidate, memory_id uuid, root_id uuid, new_aliases bigint, inout event_id uuid,
    out observed_at timestamptz, out on_timeline boolean
)
language plpgsql volatile
as $$
declare
    v_aliases bigint;
    v_on_timeline boolean;
    v_seen constant timestamptz := coalesce(c.observed_at, memfold._clock());
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
        from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id;
        -- it holds no row that has the last id; a batch has given its own
        if c.last_event_id is null then
            event_id := memfold._id_after(event_id, memfold._newest_event(c.tenant_id));
        end if;
        return;
    end if;
    -- The root's row first. An UPDATE that had to wait looks again at what it finds: a root that is no longer live is
    -- not touched. What cannot simply be added (a late value of a slot, metadata out of order) is derived under the
    -- scope's lock. A turn is taken for new here.
    update memfold.memory_counters as k
    set observations = k.observations + 1,
        independent = k.independent + 1,
        source_confidence = greatest(k.source_confidence, c.source_confidence),
        extractor_confidence = greatest(k.extractor_confidence, c.extractor_confidence),
        first_seen = least(k.first_seen, c.observed_at),
        last_seen = greatest(k.last_seen, v_seen),
        -- what a batch has written of later candidates is no reason to give this one another id
        last_event = case when k.last_event <= c.last_event_id then greatest(k.last_event, _strengthen.event_id)
            else memfold._id_after(_strengthen.event_id, k.last_event) end,
        aliases = k.aliases + new_aliases
    where k.tenant_id = c.tenant_id collate "C"
        and k.memory_id = root_id
        and k.live
        and (not k.on_timeline and c.metadata = '{}' or (c.observed_at >= k.last_seen) is not false)
    returning k.aliases, k.on_timeline,
        case when k.last_event <= c.last_event_id then _strengthen.event_id else k.last_event end,
        case when c.observed_at is null then k.last_seen else v_seen end
    into v_aliases, v_on_timeline, event_id, observed_at;
    if v_aliases is null then
        return;
    end if;
    if memory_id <> root_id and new_aliases = 0 then
        perform from memfold.memories as m
        where m.tenant_id = c.tenant_id collate "C" and m.memory_id = _strengthen.memory_id
            and m.root_id = _strengthen.root_id;
        if not found then
            raise exception 'the alias leads elsewhere now' using
                errcode = 'serialization_failure',
                detail = 'Its fold was changed while this call waited for its memory.',
                hint = 'Retry the call, with the same idempotency_key if it has one.';
        end if;
    end if;
    if v_turns = 1 and v_aliases = 0 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id)
        values (c.tenant_id, c.source_turn_ids[1], _strengthen.memory_id)
        on conflict do nothing;
        get diagnostics v_independent = row_count;
    elsif v_turns > 0 then
        v_independent := memfold._add_sources(c.tenant_id, memory_id, root_id, c.source_turn_ids);
    end if;
    if v_independent = 0 then
        update memfold.memory_counters as k
        set independent = k.independent - 1
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = root_id;
    end if;
    if c.metadata <> '{}' then
        update memfold.memories as m
        set metadata = memfold._fold_metadata(m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max)
        where m.tenant_id = c.tenant_id collate "C" and m.memory_id = _strengthen.root_id
            and m.metadata <> memfold._fold_metadata(
                m.metadata, c.metadata, (c.policy).metadata_merge, (c.policy).metadata_max);
    end if;
    on_timeline := v_on_timeline;
end;
$$;
revoke all on function memfold._strengthen(memfold.candidate, uuid, uuid, bigint, uuid) from public;
comment on function memfold._strengthen(memfold.candidate, uuid, uuid, bigint, uuid) is
'Adds one observation of memory_id to its root by addition alone: counters, sources, metadata. Returns whether the root is
a value of a single-valued slot (on_timeline), and what its ledger row is to have: event_id (as given where that is above the
root''s rows) and observed_at (told now: not before what the root has). on_timeline null: nothing was added, because the root is
no longer live or the observation cannot simply be added; its row may then be locked.';

create or replace function memfold._insert_memory(
    c memfold.candidate, root_id uuid
) returns uuid
language plpgsql volatile
as $$
declare
    v_memory_id uuid;
    v_new_id uuid;
begin
    if (c.policy).rehash_run is not null and memfold._make_way(c) then
        -- what was decided before that no longer counts
        return null;
    end if;
    if c.memory_id is null then
        v_new_id := memfold._id_after(memfold._new_id(), memfold._newest_memory(c.tenant_id));
    end if;
    insert into memfold.memories as m (
        tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
        metadata_signature, status, merged_into, root_id, session_id, metadata, embedding_pending, plain
    ) values (
        c.tenant_id, coalesce(c.memory_id, v_new_id), c.bucket_id, c.memory_type, c.subject, c.predicate, c.object,
        c.content, (c.policy).canonicalizer, (c.policy).key_fields, c.metadata_signature, case when root_id is null then 'active' else 'merged' end,
        root_id, root_id, c.session_id, case when root_id is null then c.metadata else '{}' end,
        c.embedding is null and (c.policy).dedup = 'on', false
    )
    on conflict (tenant_id, bucket_id, content_hash) where content_hash is not null do nothing
    returning m.memory_id into v_memory_id;
    if v_memory_id is not null and (c.policy).lexical_threshold is not null and (c.policy).dedup = 'on' then
        insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
        select c.tenant_id, c.bucket_id, t.token, v_memory_id
        from pg_catalog.unnest(memfold._tokens(c.content, (c.policy).segmenter)) as t (token);
    end if;
    if v_memory_id is not null and c.embedding is not null then
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
        values (c.tenant_id, v_memory_id, c.embedding_model, c.bucket_id, c.scope_key, c.embedding);
    end if;
    return v_memory_id;
end;
$$;
revoke all on function memfold._insert_memory(memfold.candidate, uuid) from public;
comment on function memfold._insert_memory(memfold.candidate, uuid) is
'Stores a new text with its vector and, where the policy compares them, its words, as a root or as an alias of root_id. Null: the
text is there already.';

create or replace function memfold._adopt_row(tenant_id text, memory_id uuid) returns void
language plpgsql volatile
as $$
declare
    v_newest constant uuid := memfold._newest_event(tenant_id);
begin
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, method, memory_id, observation, content, memory_type, subject, predicate, object,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, actor
    )
    select m.tenant_id, memfold._id_after(memfold._new_id(), v_newest), m.bucket_id, 'inserted', 'plain', m.memory_id, true, m.content, m.memory_type, m.subject,
        m.predicate, m.object, 0.5, 0.5, m.session_id, 'observed', m.metadata, m.created_at, memfold._actor()
    from memfold.memories as m
    where m.tenant_id = _adopt_row.tenant_id collate "C" and m.memory_id = _adopt_row.memory_id and not exists (
        select from memfold.memory_events as e
        where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id
            -- of a row that nobody has seen to yet there may be a question already: attach_embedding() asks it
            and (e.observation or not m.plain)
    );
end;
$$;
revoke all on function memfold._adopt_row(text, uuid) from public;
comment on function memfold._adopt_row(text, uuid) is
'Gives a row that a plain INSERT left its ledger row: an observation at the time it was written. The caller derives its state.';

create or replace function memfold._stated_at(c memfold.candidate, d memfold.decision) returns timestamptz
language plpgsql stable
as $$
declare
    v_last_seen timestamptz;
    v_slot_seen timestamptz;
begin
    select max(k.last_seen) into v_last_seen
    from memfold.memory_counters as k
    where k.tenant_id = c.tenant_id collate "C" and k.memory_id in (d.root_id, d.target_id);
    if d.method = 'timeline' or d.action = 'inserted' and d.memory_id is not null then
        -- what was superseded or withdrawn comes back, to the timelines that it was on and to what else is on them by now
        v_slot_seen := memfold._last_seen(c.tenant_id, array[d.root_id]);
    elsif d.on_timeline and d.target_id is null then
        select v.last_seen into v_slot_seen from memfold._current_value(c.tenant_id, c.bucket_id, c.scope_key) as v;
        if not found then
            -- its last value may have given way to a fact of another scope, with which its timeline now ends
            v_slot_seen := memfold._last_seen(c.tenant_id, memfold._slot_memories(c.tenant_id, c.bucket_id, c.scope_key));
        end if;
    end if;
    return greatest(memfold._clock(), v_last_seen, v_slot_seen);
end;
$$;
revoke all on function memfold._stated_at(memfold.candidate, memfold.decision) from public;
comment on function memfold._stated_at(memfold.candidate, memfold.decision) is
'When a candidate was observed that does not say: now. That is the clock''s time, but not before what was last stated of the
memories concerned, or of the slot: a clock that was ahead for a while makes nothing historical. Only reads.';

create or replace function memfold._apply(c memfold.candidate, d memfold.decision) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_memory_id uuid := d.memory_id;
    v_observation constant boolean := d.action <> 'rejected' and c.origin <> 'recalled';
    v_judgement_id uuid;
    v_event_id uuid;
    v_on_timeline boolean;
    v_said record;
    v_derive boolean := d.on_timeline or v_memory_id is not null;
begin
    if v_memory_id is not null then
        -- whoever gives a row its observation derives it: not for what was recalled
        if c.origin <> 'recalled' then
            perform memfold._adopt_row(c.tenant_id, v_memory_id);
        end if;
        if d.action = 'merged' then
            d.on_timeline := exists (
                select from memfold.memory_counters as k
                where k.tenant_id = c.tenant_id collate "C" and k.memory_id = d.root_id and k.on_timeline
            );
        end if;
    end if;
    if c.observed_at is null and d.root_id is null and d.target_id is null and not d.on_timeline then
        c.observed_at := memfold._clock();
    elsif c.observed_at is null then
        c.observed_at := memfold._stated_at(c, d);
    end if;
    -- a batch has given its own, in the order of its candidates, since it has the locks
    if c.event_id is null then
        -- _new_event_id(), and the like for a memory, in one statement
        select memfold._id_after(i.event_id, i.newest_event), memfold._id_after(i.memory_id, i.newest_memory)
        into c.event_id, c.memory_id
        from (
            select memfold._new_id() as event_id, case when v_memory_id is null then memfold._new_id() end as memory_id,
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
        select k.on_timeline into v_on_timeline
        from memfold.memory_counters as k
        where k.tenant_id = c.tenant_id collate "C" and k.memory_id = d.target_id and k.live
        for no key update;
        if not found then
            return null;
        end if;
        v_memory_id := memfold._insert_memory(c, case d.action when 'merged' then d.target_id end);
        if v_memory_id is null then
            return null;
        end if;
        d.on_timeline := v_on_timeline;
        v_derive := d.action = 'replaced';
        if not v_derive then
            v_said := memfold._strengthen(c, v_memory_id, d.target_id, 1, c.event_id);
            c.event_id := coalesce(v_said.event_id, c.event_id);
            c.observed_at := coalesce(v_said.observed_at, c.observed_at);
            v_derive := v_said.on_timeline is null;
        end if;
    elsif v_memory_id is null then
        v_memory_id := memfold._insert_memory(c, null);
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
            v_judgement_id := memfold._queue_judgement(c.tenant_id, d.judgement, v_memory_id, d.target_id,
                case when d.method <> 'lexical' then d.similarity end, d.guard, false);
        end if;
    end if;

    v_event_id := memfold._record(c, d, v_memory_id, v_observation, v_judgement_id);
    if v_derive then
        perform memfold.derive_scope(c.tenant_id,
            pg_catalog.array_remove(array[v_memory_id, d.root_id, d.target_id], null));
    end if;
    return memfold._result(d, v_memory_id, v_judgement_id, v_event_id);
end;
$$;
revoke all on function memfold._apply(memfold.candidate, memfold.decision) from public;
comment on function memfold._apply(memfold.candidate, memfold.decision) is
'Carries out a decision that was made under the scope''s lock, and records it. Only writes. Null: the state has changed in
spite of the lock (a plain INSERT), decide again.';
