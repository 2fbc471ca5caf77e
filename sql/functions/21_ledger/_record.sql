-- Writes the ledger row of an accepted candidate, and returns its id. Called with all locks held, so that ids are in the
-- order of events in a scope.
create or replace function memfold_internal._record(
    c memfold_internal.candidate, d memfold_internal.decision, p_memory_id uuid, p_observation boolean, p_judgement_id uuid
) returns uuid
language plpgsql volatile
as $$
declare
    v_event_id constant uuid := coalesce(c.event_id, memfold_internal._new_event_id(c.tenant_id));
begin
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories,
        reason, observation, content, memory_type, subject, predicate, object, source_turn_ids,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until, judgement_id, actor
    ) values (
        c.tenant_id, v_event_id, c.bucket_id, d.action, d.tier, d.method,
        p_memory_id, d.target_id, d.similarity, d.guard, d.similar_memories,
        d.reason, p_observation, c.content, c.memory_type, c.given_subject, c.given_predicate, c.object,
        c.source_turn_ids, c.source_confidence, c.extractor_confidence, c.session_id, c.origin, c.metadata,
        c.observed_at, c.valid_from, c.valid_until, p_judgement_id, memfold_internal._actor()
    );
    if c.last_event_id is not null and p_observation then
        -- later candidates of its batch, with higher ids, may have been written before
        perform memfold_internal._precede(c.tenant_id, p_memory_id, c.source_turn_ids, v_event_id);
    end if;
    return v_event_id;
end;
$$;

-- _record() for the candidates of a batch that only add: new texts, and restatements of active memories.
create or replace function memfold_internal._record_batch(b memfold_internal.batch) returns void
language plpgsql volatile
as $$
declare
    v_classes constant text[] := b.classes;
    v_matched constant uuid[] := b.matched;
    v_roots constant uuid[] := b.roots;
    v_event_ids constant uuid[] := b.event_ids;
    v_actor constant text := memfold_internal._actor();
begin
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, observation, content, memory_type,
        subject, predicate, object, source_turn_ids, source_confidence, extractor_confidence, session_id, origin,
        metadata, observed_at, actor
    )
    select b.tenant_id, v_event_ids[c.ordinality], c.bucket_id, case when o.class = 'new' then 'inserted' else 'merged' end,
        case when o.class <> 'new' then 1 end,
        case when o.class <> 'new' then memfold_internal._hit_method(o.memory_id, o.root_id) end, o.memory_id,
        case when o.memory_id <> o.root_id then o.root_id end, true, c.content, c.memory_type, c.given_subject,
        c.given_predicate, c.object, c.source_turn_ids, c.source_confidence, c.extractor_confidence, c.session_id, c.origin, c.metadata,
        coalesce(c.observed_at, b.received_at), v_actor
    from unnest(b.items) with ordinality as c
    cross join lateral (
        select v_classes[c.ordinality] as class, v_matched[c.ordinality] as memory_id, v_roots[c.ordinality] as root_id
    ) as o
    where o.class in ('hit', 'new', 'repeat')
    order by c.ordinality;
end;
$$;

-- Writes the ledger row of a memory from a plain INSERT, unless it has one: an observation at the time of the INSERT, which
-- it also counts. The caller derives the state.
create or replace function memfold_internal._adopt_row(p_tenant_id text, p_memory_id uuid) returns void
language plpgsql volatile
as $$
declare
    v_newest constant uuid := memfold_internal._newest_event(p_tenant_id);
    v_event memfold.memory_events;
begin
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, method, memory_id, observation, content, memory_type, subject, predicate, object,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, actor
    )
    select m.tenant_id, memfold_internal._id_after(memfold_internal._new_id(), v_newest), m.bucket_id, 'inserted', 'plain', m.memory_id, true, m.content, m.memory_type, m.subject,
        m.predicate, m.object, 0.5, 0.5, m.session_id, 'observed', m.metadata, m.created_at, memfold_internal._actor()
    from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id and not exists (
        select from memfold.memory_events as e
        where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id
            -- attach_embedding() may already have written a row with a question about it
            and (e.observation or m.is_ingested)
    )
    returning * into v_event;
    if found then
        perform memfold_internal._count_statement(p_tenant_id, p_memory_id, null, '{}', v_event.source_confidence,
            v_event.extractor_confidence,
            v_event.observed_at, v_event.event_id, v_event.metadata <> '{}', false);
    end if;
end;
$$;

-- Records a decision of tier 3 about two roots, derives their state, and returns the event. p_action: merged (p_memory_id
-- into p_target_id), replaced (p_target_id into p_memory_id), superseded (p_memory_id retires p_target_id), rejected, or
-- judged (nothing changes). p_content: the text, if p_memory_id is new. p_stated_at: a person states p_memory_id as of this
-- time. The caller holds the lock.
create or replace function memfold_internal._record_relation(
    j memfold.judgements, p_action text, p_memory_id uuid, p_target_id uuid, p_content text, p_stated_at timestamptz
) returns uuid
language plpgsql volatile
as $$
declare
    v_event_id uuid;
begin
    if p_content is null and p_action <> 'judged' then
        perform memfold_internal._adopt_row(j.tenant_id, p_memory_id);
    end if;
    if p_target_id is not null and p_action <> 'judged' then
        perform memfold_internal._adopt_row(j.tenant_id, p_target_id);
    end if;
    if p_stated_at is not null then
        -- a restatement must not count at the same time
        insert into memfold.memory_counters (tenant_id, memory_id) values (j.tenant_id, p_memory_id) on conflict do nothing;
        perform memfold_internal._lock_texts(j.tenant_id, memfold_internal._texts_to_lock(j.tenant_id, array[p_memory_id, p_target_id]));
    end if;
    v_event_id := memfold_internal._new_event_id(j.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, reason, content,
        observed_at, judgement_id, verdict, run_id, actor
    ) values (
        j.tenant_id, v_event_id, j.bucket_id, p_action, 3,
        memfold_internal._method(j), p_memory_id, p_target_id,
        j.similarity, j.guard, j.reason, p_content, p_stated_at, j.judgement_id, j.verdict, j.run_id,
        memfold_internal._actor()
    );
    if p_stated_at is not null then
        perform memfold_internal._recount(j.tenant_id, array[p_memory_id]);
    end if;
    -- memories from a plain INSERT wait until they are ingested
    if p_action <> 'judged' or j.verdict = 'distinct' and j.model is null and not exists (
        select from memfold_internal._roots(j.tenant_id, array[p_memory_id, p_target_id]) as r where not r.is_ingested
    ) then
        perform memfold_internal._derive(j.tenant_id, array_remove(array[p_memory_id, p_target_id], null),
            p_action in ('merged', 'replaced'));
    end if;
    return v_event_id;
end;
$$;

-- Sets events to the states undone, withdrawn or restored (p_states), by one ledger row for each that is in another state, and corrects
-- turns and counters of texts whose statements change. undone: the events that changed, in their order (null: none); undo_ids: the rows
-- written; earlier: the previous states. The caller holds the locks, for observations also the rows of their roots, and derives the state.
create or replace function memfold_internal._record_undone(
    p_tenant_id text, p_event_ids uuid[], p_states text[], p_reason text, p_run_id uuid, out undone uuid[], out undo_ids uuid[],
    out earlier text[]
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_states text[];
begin
    select array_agg(i.id order by i.place), array_agg(i.state order by i.place), array_agg(l.state order by i.place)
    into undone, v_states, earlier
    from unnest(p_event_ids, p_states) with ordinality as i (id, state, place)
    cross join lateral (select memfold_internal._undo_state(p_tenant_id, i.id) as state) as l
    where l.state <> i.state;
    undo_ids := memfold_internal._new_ids(coalesce(cardinality(undone), 0), memfold_internal._newest_event(p_tenant_id));
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, memory_id, target_id, reason, undoes, run_id, actor
    )
    select p_tenant_id, undo_ids[v.place], v.bucket_id, v_states[v.place], v.memory_id, v.target_id, p_reason,
        v.event_id, p_run_id, memfold_internal._actor()
    from (
        select e.*, i.place
        from unnest(undone) with ordinality as i (id, place)
        cross join lateral memfold_internal._events(p_tenant_id, array[i.id]) as e
    ) as v;
    perform memfold_internal._restate_turns(p_tenant_id, array_agg(v.memory_id), array_agg(t.turn), array_agg(v.event_id))
    from unnest(undone, v_states, earlier) as i (id, state, before)
    cross join lateral memfold_internal._events(p_tenant_id, array[i.id]) as v
    left join lateral unnest(v.source_turn_ids) as t (turn) on true
    where memfold_internal._withdraws(i.state, v.action, v.tier, v.observation, v.observed_at)
        <> memfold_internal._withdraws(i.before, v.action, v.tier, v.observation, v.observed_at)
    having count(*) > 0;
end;
$$;

-- The ledger's method for a decision of tier 3: judge, person, or fallback if the judge has failed.
create or replace function memfold_internal._method(j memfold.judgements) returns text
language sql immutable parallel safe
return case when j.status = 'dead' then 'fallback' when j.model is null then 'person' else 'judge' end;

-- Merges each of p_memory_ids into the element of p_into_ids at the same position, as events of a run, and derives their state together.
-- p_action: merged, or replaced if a newer text replaces an older. Skips a pair if one of the two is not an active root or was merged at an
-- earlier position, and returns the positions of the others. The caller holds the bucket's lock.
create or replace function memfold_internal._merge_all(
    r memfold.runs, p_tier integer, p_method text, p_action text, p_memory_ids uuid[], p_into_ids uuid[],
    p_similarities double precision[], p_reasons text[], p_judgement_ids uuid[], p_verdict text
) returns integer[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_active constant uuid[] := array(
        select i.id
        from (select distinct x.id from unnest(p_memory_ids || p_into_ids) as x (id)) as i
        cross join lateral memfold_internal._memory(r.tenant_id, i.id) as m
        where m.root_id is null and m.status = 'active'
    );
    v_gone uuid[] := array[]::uuid[];
    v_places integer[] := array[]::integer[];
    v_newest uuid;
begin
    for i in 1..coalesce(cardinality(p_memory_ids), 0) loop
        if p_memory_ids[i] = any(v_active) and p_into_ids[i] = any(v_active) and p_memory_ids[i] <> p_into_ids[i]
            and p_memory_ids[i] <> all(v_gone) and p_into_ids[i] <> all(v_gone)
        then
            v_gone := v_gone || p_memory_ids[i];
            v_places := v_places || i;
        end if;
    end loop;
    if v_places = '{}' then
        return v_places;
    end if;
    perform memfold_internal._adopt_row(r.tenant_id, i.id)
    from unnest(v_places) as p (place)
    cross join lateral (values (p_memory_ids[p.place]), (p_into_ids[p.place])) as i (id);
    v_newest := memfold_internal._newest_event(r.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, reason,
        judgement_id, verdict, run_id, actor
    )
    select r.tenant_id, memfold_internal._id_after(memfold_internal._new_id(), v_newest), r.bucket_id, p_action, p_tier, p_method,
        case when p_action = 'replaced' then p_into_ids[p.place] else p_memory_ids[p.place] end,
        case when p_action = 'replaced' then p_memory_ids[p.place] else p_into_ids[p.place] end,
        p_similarities[p.place],
        coalesce((
            select j.guard from memfold.judgements as j
            where j.tenant_id = r.tenant_id and j.judgement_id = p_judgement_ids[p.place]
        ), '{}'),
        p_reasons[p.place],
        p_judgement_ids[p.place], p_verdict, r.run_id, memfold_internal._actor()
    from unnest(v_places) with ordinality as p (place, turn)
    order by p.turn;
    perform memfold_internal._derive_all(r.tenant_id, array(
        select distinct x.id
        from unnest(v_places) as p (place)
        cross join lateral (values (p_memory_ids[p.place]), (p_into_ids[p.place])) as x (id)
        order by 1
    ), true);
    return v_places;
end;
$$;
