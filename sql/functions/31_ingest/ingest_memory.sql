create or replace function memfold_internal._ingest_fast_path(
    content_hash bytea, content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz, event_id uuid
) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_memory_id uuid;
    v_aliases bigint;
    v_on_timeline boolean;
    v_added bigint;
    v_seen timestamptz;
    v_stated_at timestamptz;
    v_event_id uuid;
    v_last_event uuid;
    v_stripe bigint;
    v_is_striped boolean;
    v_fills_block boolean;
begin
    select m.memory_id, coalesce(_ingest_fast_path.event_id, memfold_internal._new_id()),
        coalesce(_ingest_fast_path.observed_at, memfold_internal._clock())
    into v_memory_id, v_event_id, v_seen
    from memfold_internal._known_text(_ingest_fast_path.tenant_id, _ingest_fast_path.bucket_id, content_hash) as m
    where m.status = 'active'
        -- Rules that say otherwise, whatever bucket they are for: row level security shows this tenant's and '*'s.
        -- The condition is that of policies_slow_path_idx.
        and not exists (
            select from memfold.policies as p
            where p.dedup <> 'on' or p.canonicalizer <> 'prose/1' or p.key_fields <> 'type,subject,predicate'
                or p.metadata_keys <> '{}' or p.max_content_length < 8192 or p.max_metadata_size < 8192
                or p.metadata_merge <> 'merge' or p.metadata_max <> '{}' or p.max_session_repeats is not null
                or p.rehash_run is not null
        );
    if v_memory_id is null then
        return null;
    end if;
    -- What this session found striped last, and probably still is: saves the UPDATE that would find it so.
    v_is_striped := coalesce(pg_catalog.current_setting('memfold.striped', true) = v_memory_id::text, false);
    -- An UPDATE that had to wait looks again: a root that has been folded or retired meanwhile is not active.
    for v_attempt in 1..2 loop
        if not v_is_striped then
            update memfold.memory_counters as k
            set observations = k.observations + 1,
                independent = k.independent + 1,
                source_confidence = greatest(k.source_confidence, _ingest_fast_path.source_confidence),
                extractor_confidence = greatest(k.extractor_confidence, _ingest_fast_path.extractor_confidence),
                first_seen = least(k.first_seen, _ingest_fast_path.observed_at),
                last_seen = greatest(k.last_seen, v_seen),
                last_event = memfold_internal._id_after(v_event_id, k.last_event)
            where k.tenant_id = _ingest_fast_path.tenant_id collate "C"
                and k.memory_id = v_memory_id
                and k.is_active
                and not k.is_striped
                and k.valid_from is null and k.valid_until is null
                and (not k.on_timeline and _ingest_fast_path.metadata = '{}' or (_ingest_fast_path.observed_at >= k.last_seen) is not false)
            returning k.aliases, k.on_timeline, case when _ingest_fast_path.observed_at is null then k.last_seen else v_seen end,
                k.last_event, k.observations % memfold_internal._block_size() = 0 or v_fills_block is not null
            into v_aliases, v_on_timeline, v_stated_at, v_last_event, v_fills_block;
            exit when v_aliases is not null;
        end if;
        if metadata = '{}' then
            -- _add_to_stripe(), in this function: the call of another one costs a tenth
            v_event_id := coalesce(event_id, memfold_internal._new_id());
            update memfold.memory_counter_stripes as x
            set observations = x.observations + 1,
                independent = x.independent + 1,
                source_confidence = greatest(x.source_confidence, _ingest_fast_path.source_confidence),
                extractor_confidence = greatest(x.extractor_confidence, _ingest_fast_path.extractor_confidence),
                first_seen = least(x.first_seen, _ingest_fast_path.observed_at),
                last_seen = greatest(x.last_seen, v_seen),
                last_event = memfold_internal._id_after(v_event_id, greatest(x.last_event, n.event_id))
            from (
                select e.event_id from memfold.memory_events as e
                where e.tenant_id = _ingest_fast_path.tenant_id collate "C"
                order by e.event_id desc
                limit 1
            ) as n
            where x.tenant_id = _ingest_fast_path.tenant_id collate "C" and x.memory_id = v_memory_id
                and x.stripe = memfold_internal._own_stripe() and x.observations < memfold_internal._block_size()
                and pg_catalog.current_setting('transaction_isolation') = 'read committed'
            returning 0, false, case when _ingest_fast_path.observed_at is null then x.last_seen else v_seen end, x.last_event, x.stripe
            into v_aliases, v_on_timeline, v_stated_at, v_last_event, v_stripe;
            if v_aliases is not null then
                if not v_is_striped then
                    perform pg_catalog.set_config('memfold.striped', v_memory_id::text, false);
                end if;
                exit;
            end if;
        end if;
        -- what cannot be added beside others, or there were stripes until a moment ago, or this one is full
        v_fills_block := nullif(memfold_internal._join_stripes(tenant_id, array[v_memory_id]), false);
        v_is_striped := false;
    end loop;
    if v_aliases is null then
        -- it may have waited for the row, and hold it now: the caller must not wait for the scope's lock
        return (null::text, null::uuid, null::integer, 'row held'::text, null::double precision, null::uuid, null::uuid,
            null::uuid, null::jsonb);
    end if;
    if source_turn_ids <> '{}' then
        if v_aliases = 0 then
            insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
            values (_ingest_fast_path.tenant_id, source_turn_ids[1], v_memory_id, v_last_event)
            on conflict do nothing;
            get diagnostics v_added = row_count;
        else
            v_added := memfold_internal._add_sources(tenant_id, v_memory_id, v_memory_id, source_turn_ids, v_last_event);
        end if;
        if v_added = 0 then
            perform memfold_internal._not_independent(tenant_id, v_memory_id, v_stripe);
            if v_stripe is not null then
                perform memfold_internal._precede(tenant_id, v_memory_id, source_turn_ids, v_last_event);
            end if;
        end if;
    end if;
    if v_last_event <> v_event_id then
        if v_stripe is null then
            perform memfold_internal._stripe_contended(tenant_id, v_memory_id, v_event_id);
        elsif observed_at is null then
            v_stated_at := memfold_internal._raise_last_seen(tenant_id, v_memory_id, v_stripe);
        end if;
    end if;
    if metadata <> '{}' then
        -- its own statement: what another call has written by now is what this adds to
        update memfold.memories as m
        set metadata = m.metadata || _ingest_fast_path.metadata
        where m.tenant_id = _ingest_fast_path.tenant_id collate "C" and m.memory_id = v_memory_id
            and m.metadata <> m.metadata || _ingest_fast_path.metadata;
    end if;
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, observation, on_timeline, content, memory_type, subject,
        predicate, object, source_turn_ids, source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, actor
    ) values (
        _ingest_fast_path.tenant_id, v_last_event, _ingest_fast_path.bucket_id, 'merged', 1, 'hash', v_memory_id, true, v_on_timeline,
        _ingest_fast_path.content, _ingest_fast_path.memory_type, _ingest_fast_path.subject, _ingest_fast_path.predicate,
        _ingest_fast_path.object, _ingest_fast_path.source_turn_ids, _ingest_fast_path.source_confidence,
        _ingest_fast_path.extractor_confidence, _ingest_fast_path.session_id, _ingest_fast_path.origin, _ingest_fast_path.metadata,
        v_stated_at, memfold_internal._actor()
    );
    if v_fills_block then
        perform memfold_internal._extend_sums(tenant_id, v_memory_id);
    end if;
    return ('merged'::text, v_memory_id, 1, 'hash'::text, null::double precision, null::uuid, null::uuid, v_last_event,
        null::jsonb);
end;
$$;
revoke all on function memfold_internal._ingest_fast_path(
    bytea, text, text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb,
    timestamptz, uuid
) from public;
comment on function memfold_internal._ingest_fast_path(
    bytea, text, text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb,
    timestamptz, uuid
) is
'The fast path: a candidate hits the text of an active memory (row 3 of the decision table). What _candidate, _decide_known,
_record_observation and _record do in general, as five statements without composites in between, which takes a quarter off a
replay. Where a policy of the tenant has rules that it does not know (policies_slow_path_idx) the slow path is taken. event_id:
the ledger row''s, unless the memory has a later one; null: a new one. content_hash: by the default rules; the candidate is one of
_is_fast_path. action null: it is another case and nothing was written; method says whether a row may be held.';

create or replace function memfold.ingest_memory(
    content text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    memory_type text default 'fact',
    subject text default null,
    predicate text default null,
    object text default null,
    embedding vector default null,
    embedding_model text default null,
    source_turn_ids text[] default '{}',
    source_confidence double precision default 0.5,
    extractor_confidence double precision default 0.5,
    session_id text default null,
    origin text default 'observed',
    metadata jsonb default '{}',
    observed_at timestamptz default null,
    valid_from timestamptz default null,
    valid_until timestamptz default null,
    idempotency_key text default null
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    r memfold.ingest_result;
    v_event_id uuid;
    v_content_hash bytea;
begin
    if memfold_internal._is_authorized(tenant_id) is not true then
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
    if idempotency_key is not null then
        -- row 1: a second call with the key waits here for the first to commit
        perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
        perform memfold_internal._check_identifier('idempotency_key', idempotency_key, true);
        loop
            -- with the id that the event usually gets, so that the row is written once
            insert into memfold.idempotency_keys as i (tenant_id, bucket_id, idempotency_key, event_id)
            values (ingest_memory.tenant_id, ingest_memory.bucket_id, ingest_memory.idempotency_key, memfold_internal._new_id())
            on conflict do nothing
            returning i.event_id into v_event_id;
            exit when found;
            select i.event_id into v_event_id
            from memfold.idempotency_keys as i
            where i.tenant_id = ingest_memory.tenant_id collate "C"
                and i.bucket_id = ingest_memory.bucket_id collate "C"
                and i.idempotency_key = ingest_memory.idempotency_key collate "C";
            if found then
                perform memfold_internal._check_key(tenant_id, idempotency_key, v_event_id, content, memory_type, subject, predicate,
                    object, metadata);
                return memfold_internal._event_result(tenant_id, v_event_id);
            end if;
            -- it expired in between: a new call
        end loop;
    end if;
    if valid_from is null and valid_until is null and memfold_internal._is_fast_path(
        content, bucket_id, memory_type, subject, predicate, object, source_turn_ids, source_confidence, extractor_confidence,
        session_id, origin, metadata, observed_at)
    then
        v_content_hash := memfold_internal._content_hash(
            memory_type, subject, predicate, content, 'prose/1', 'type,subject,predicate', null);
        -- With a vector it is a new fact, mostly: clients embed what is not known.
        if embedding is null and embedding_model is null then
            r := memfold_internal._ingest_fast_path(
                v_content_hash, content, tenant_id, bucket_id, memory_type, subject, predicate, object, source_turn_ids,
                source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, v_event_id);
        end if;
    end if;
    if r.action is null then
        if v_content_hash is not null and r.method is null
            and memfold_internal._is_usual_text(content, tenant_id, bucket_id, memory_type, subject, predicate)
        then
            r := memfold_internal._ingest_new(
                v_content_hash, content, tenant_id, bucket_id, memory_type, subject, predicate, object, embedding, embedding_model,
                source_turn_ids, source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, v_event_id);
            if r.method = 'known' and embedding is not null then
                r := memfold_internal._ingest_fast_path(
                    v_content_hash, content, tenant_id, bucket_id, memory_type, subject, predicate, object, source_turn_ids,
                    source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, v_event_id);
            end if;
        end if;
        if r.action is null then
            r := memfold_internal._ingest(memfold_internal._candidate(
                content, tenant_id, bucket_id, memory_type, subject, predicate, object, embedding, embedding_model,
                source_turn_ids, source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, v_content_hash,
                valid_from, valid_until),
                r.method);
        end if;
    end if;
    if r.event_id <> v_event_id then
        update memfold.idempotency_keys as i
        set event_id = r.event_id
        where i.tenant_id = ingest_memory.tenant_id collate "C"
            and i.bucket_id = ingest_memory.bucket_id collate "C"
            and i.idempotency_key = ingest_memory.idempotency_key collate "C";
    end if;
    return r;
end;
$$;
revoke all on function memfold.ingest_memory(
    text, text, text, text, text, text, text, vector, text, text[], double precision, double precision, text, text, jsonb, timestamptz,
    timestamptz, timestamptz, text
) from public;
grant execute on function memfold.ingest_memory(
    text, text, text, text, text, text, text, vector, text, text[], double precision, double precision, text, text, jsonb, timestamptz,
    timestamptz, timestamptz, text
) to memfold_app;
comment on function memfold.ingest_memory(
    text, text, text, text, text, text, text, vector, text, text[], double precision, double precision, text, text, jsonb, timestamptz,
    timestamptz, timestamptz, text
) is
'Takes in one candidate memory and decides, atomically, whether its fact is new, known, changed or unclear.
Returns (action, memory_id, tier, method, similarity, superseded_id, judgement_id, event_id, similar); action is inserted,
merged, replaced, superseded, escalated, historical or rejected, memory_id the memory that now holds the fact.
embedding: the content''s vector by a registered embedding_model (it is normalised here); without one tier 2 waits for
attach_embedding(). source_turn_ids: at most 1,000. Confidences in [0, 1]. origin: observed, inferred or recalled.
observed_at: at most 5 minutes ahead; null: now, after all that was stated of this. valid_from, valid_until (exclusive): recall shows
the memory in between only; null: no bound; what its latest observation says holds. idempotency_key: a second call with it
returns the first one''s result, and raises MF062 where it is about another candidate (content, type, subject, predicate, object or metadata).
Bad input raises MF001 to MF016, MF061 or MF065 and changes nothing; a call may raise 40001 or 40P01: retry it with the same key.';
