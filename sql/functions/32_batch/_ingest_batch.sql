-- Creates the ids of a batch, in the order of its candidates, and writes everything that only adds (classes hit, new and
-- repeat) together: texts, vectors, source turns, counters, ledger. It commutes with everything else in the batch.
create or replace function memfold_internal._add_batch(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
declare
    v_adds constant boolean := b.classes && array['hit', 'new', 'repeat'];
begin
    if b.classes && array['new', 'repeat', 'rest'] then
        b := memfold_internal._batch_ids(b);
        perform memfold_internal._add_texts(b);
    end if;
    if v_adds then
        -- A statement without a time is not before those of its memory: a time in the future was either given, or comes from a clock
        -- that was since set back.
        if greatest(b.latest, b.received_at) > b.received_at or exists (
            select from unnest(b.items) as c where c.observed_at > b.received_at
        ) then
            b.items := memfold_internal._seen_in_batch(b);
        end if;
    end if;
    b.event_ids := memfold_internal._new_ids(cardinality(b.items), memfold_internal._newest_event(b.tenant_id));
    if v_adds then
        perform memfold_internal._add_batch_counters(b, memfold_internal._add_batch_sources(b));
        perform memfold_internal._record_batch(b);
    end if;
    return b;
end;
$$;

-- Ingests the candidates of a batch that are more than additions (class rest), one by one and in order, under the locks
-- that are held (results).
create or replace function memfold_internal._ingest_rest(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_items constant memfold_internal.candidate[] := b.items;
    v_memory_ids constant uuid[] := b.memory_ids;
    v_event_ids uuid[] := b.event_ids;
    v_results memfold.ingest_result[];
    v_count constant integer := cardinality(v_items);
    v_last_event_id constant uuid := b.event_ids[v_count];
    v_roots uuid[];
    c memfold_internal.candidate;
begin
    -- One subtransaction for all: with 64 or more, every snapshot on the server would read pg_subtrans.
    begin
        for v_i in 1..v_count loop
            continue when v_classes[v_i] <> 'rest';
            c := v_items[v_i];
            c.memory_id := v_memory_ids[v_i];
            c.event_id := v_event_ids[v_i];
            c.last_id := v_memory_ids[v_count];
            c.last_event_id := v_last_event_id;
            v_results[v_i] := memfold_internal._ingest_under_locks(c);
            -- The id is higher if another call has added to the memory since (_record_observation).
            v_event_ids[v_i] := (v_results[v_i]).event_id;
        end loop;
    exception when lock_not_available then
        perform memfold_internal._fail_busy();
    end;
    b.event_ids := v_event_ids;
    b.results := v_results;
    -- Whether windows of turns are independent depends on their order, and candidates that only add were added first.
    if exists (select from unnest(v_items) as c where cardinality(c.source_turn_ids) > 1) then
        v_roots := memfold_internal._roots_of_both(b);
        if v_roots <> '{}' then
            perform memfold_internal._recount(b.tenant_id, memfold_internal._trees(b.tenant_id, v_roots));
            perform memfold.derive_scope(v_roots, b.tenant_id);
        end if;
    end if;
    return b;
end;
$$;

-- The results for the caller of a batch, in the order of the candidates: of those that only added, of those decided one
-- by one (results), and errors.
create or replace function memfold_internal._batch_results(b memfold_internal.batch) returns setof memfold.batch_result
language plpgsql stable
as $$
declare
    v_results constant memfold.ingest_result[] := b.results;
begin
    return query
    select x.*
    from (
        select o.ordinal, r.action, r.memory_id, r.tier, r.method, r.similarity, r.superseded_id,
            r.judgement_id, r.event_id, r."similar", null::text, null::text, null::text, null::text
        from unnest(b.ordinals, b.classes, b.matched, b.roots, b.event_ids) with ordinality
            as o (ordinal, class, memory_id, root_id, event_id, i)
        cross join lateral (
            select case when o.class = 'new' then 'inserted' else 'merged' end, o.root_id,
                case when o.class <> 'new' then 1 end,
                case when o.class <> 'new' then memfold_internal._hit_method(o.memory_id, o.root_id) end,
                null::double precision, null::uuid, null::uuid, o.event_id, null::jsonb
            where o.class in ('hit', 'new', 'repeat')
            union all
            select (v_results[o.i]).* where o.class not in ('hit', 'new', 'repeat', 'error')
        ) as r (action, memory_id, tier, method, similarity, superseded_id, judgement_id, event_id, "similar")
        union all
        select f.* from unnest(b.errors) as f
    ) as x
    order by x.ordinal;
end;
$$;

-- Ingests a batch, with the same outcome as its candidates one by one, in order. Most of them only add: replays of
-- active memories, and new texts without a neighbour. These are written together, before the rest, which is decided one
-- by one. Each step takes the batch and returns it with its findings.
create or replace function memfold_internal._ingest_batch(
    p_tenant_id text, p_candidates jsonb, p_on_error text, p_embeddings vector []
) returns setof memfold.batch_result
language plpgsql volatile
-- With arrays the planner would replan each time.
set plan_cache_mode = force_generic_plan
as $$
declare
    v_read record;
    b memfold_internal.batch;
begin
    perform memfold_internal._check_wildcard('tenant_id', p_tenant_id);
    v_read := memfold_internal._read_batch(p_tenant_id, p_candidates, p_embeddings);
    b.tenant_id := p_tenant_id;
    b.received_at := memfold_internal._clock();
    b.ordinals := v_read.ordinals;
    b.embeddings := v_read.embeddings;
    b.errors := coalesce(v_read.errors, '{}');
    if b.ordinals is not null then
        b := memfold_internal._batch_policies(b, v_read.elements);
        b := memfold_internal._batch_candidates(b, v_read.elements);
        if 'error' = any(b.classes) then
            b := memfold_internal._doubtful_candidates(b, v_read.embeddings);
        end if;
        -- Before any lock: a call with the same key waits here for the other to commit.
        if num_nonnulls(variadic b.idempotency_keys) > 0 then
            b := memfold_internal._batch_keys(b);
        end if;
    end if;
    if p_on_error = 'abort' and b.errors <> '{}' then
        perform memfold_internal._fail_batch(e) from unnest(b.errors) as e order by e.ordinal limit 1;
    end if;
    if b.ordinals is not null then
        b := memfold_internal._lock_batch(b);
        if 'todo' = any(b.classes) then
            b := memfold_internal._sort_texts(b);
        end if;
        if exists (select from unnest(b.policies) as p where p.max_session_repeats is not null) then
            b := memfold_internal._limit_repeats(b, p_on_error);
        end if;
        b := memfold_internal._lock_batch_rows(b);
        b := memfold_internal._add_batch(b);
        if 'rest' = any(b.classes) then
            b := memfold_internal._ingest_rest(b);
        end if;
        if b.first_of_key is not null then
            b := memfold_internal._answer_keys(b);
        end if;
    end if;
    return query select * from memfold_internal._batch_results(b);
end;
$$;
