create or replace function memfold_internal._ingest_fast_path(
    content text, tenant_id text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz
) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_content_hash bytea;
    v_memory_id uuid;
    v_aliases bigint;
    v_on_timeline boolean;
    v_added bigint;
    v_seen timestamptz;
    v_event_id uuid;
begin
    if not memfold_internal._is_fast_path(
        content, bucket_id, memory_type, subject, predicate, object, source_turn_ids, source_confidence,
        extractor_confidence, session_id, origin, metadata, observed_at)
    then
        return null;
    end if;
    v_content_hash := memfold_internal._content_hash(memory_type, subject, predicate, content, 'prose/1', 'type,subject,predicate',
        null);
    select m.memory_id, memfold_internal._new_id(), coalesce(_ingest_fast_path.observed_at, memfold_internal._clock())
    into v_memory_id, v_event_id, v_seen
    from memfold_internal._known_text(_ingest_fast_path.tenant_id, _ingest_fast_path.bucket_id, v_content_hash) as m
    where m.status = 'active'
        -- Rules that say otherwise, whatever bucket they are for: row level security shows this tenant's and '*'s.
        -- The condition is that of policies_unusual_idx.
        and not exists (
            select from memfold.policies as p
            where p.dedup <> 'on' or p.canonicalizer <> 'prose/1' or p.key_fields <> 'type,subject,predicate'
                or p.metadata_keys <> '{}' or p.max_content_length < 8192 or p.rehash_run is not null
        );
    if v_memory_id is null then
        return null;
    end if;
    -- An UPDATE that had to wait looks again: a root that has been folded or retired meanwhile is not active.
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
        and (not k.on_timeline or (_ingest_fast_path.observed_at >= k.last_seen) is not false)
    returning k.aliases, k.on_timeline, case when _ingest_fast_path.observed_at is null then k.last_seen else v_seen end, k.last_event
    into v_aliases, v_on_timeline, v_seen, v_event_id;
    if v_aliases is null then
        -- it may have waited for the row, and hold it now: the caller must not wait for the scope's lock
        return (null::text, null::uuid, null::integer, 'row held'::text, null::double precision, null::uuid, null::uuid,
            null::uuid, null::jsonb);
    end if;
    if source_turn_ids <> '{}' then
        if v_aliases = 0 then
            insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id)
            values (_ingest_fast_path.tenant_id, source_turn_ids[1], v_memory_id)
            on conflict do nothing;
            get diagnostics v_added = row_count;
        else
            v_added := memfold_internal._add_sources(tenant_id, v_memory_id, v_memory_id, source_turn_ids);
        end if;
        if v_added = 0 then
            update memfold.memory_counters as k
            set independent = k.independent - 1
            where k.tenant_id = _ingest_fast_path.tenant_id collate "C" and k.memory_id = v_memory_id;
        end if;
    end if;
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, observation, on_timeline, content, memory_type, subject,
        predicate, source_turn_ids, source_confidence, extractor_confidence, origin, metadata, observed_at, actor
    ) values (
        _ingest_fast_path.tenant_id, v_event_id, _ingest_fast_path.bucket_id, 'merged', 1, 'hash', v_memory_id, true, v_on_timeline,
        _ingest_fast_path.content, _ingest_fast_path.memory_type, _ingest_fast_path.subject, _ingest_fast_path.predicate,
        _ingest_fast_path.source_turn_ids, _ingest_fast_path.source_confidence, _ingest_fast_path.extractor_confidence,
        _ingest_fast_path.origin, _ingest_fast_path.metadata, v_seen, memfold_internal._actor()
    );
    return ('merged'::text, v_memory_id, 1, 'hash'::text, null::double precision, null::uuid, null::uuid, v_event_id,
        null::jsonb);
end;
$$;
revoke all on function memfold_internal._ingest_fast_path(
    text, text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz
) from public;
comment on function memfold_internal._ingest_fast_path(
    text, text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz
) is
'The hot path: the usual candidate hits the text of an active memory (row 3 of the decision table). What _candidate,
_decide_known, _record_observation and _record do in general, as five statements without composites in between, which takes a
quarter off a replay. Usual rules too: where a policy of the tenant hashes in another way, is off, or takes less than
8 kB, the general way is taken. action null: it is another case and nothing was written; method says whether a row may be held.';
