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
    v_new bigint;
    v_turns constant bigint := pg_catalog.cardinality(source_turn_ids);
    v_seen timestamptz;
    v_stated_at timestamptz;
    v_event_id uuid;
    v_last_event uuid;
begin
    select m.memory_id, coalesce(_ingest_fast_path.event_id, memfold_internal._new_id()),
        coalesce(_ingest_fast_path.observed_at, memfold_internal._clock())
    into v_memory_id, v_event_id, v_seen
    from memfold_internal._known_text(_ingest_fast_path.tenant_id, _ingest_fast_path.bucket_id, content_hash) as m
    where m.status = 'active'
        -- Other rules, for any bucket: row-level security shows this tenant's and '*'s. The condition is that of
        -- policies_slow_path_idx.
        and not exists (
            select from memfold.policies as p
            where p.dedup <> 'on' or p.canonicalizer <> 'prose/1' or p.key_fields <> 'type,subject,predicate'
                or p.metadata_keys <> '{}' or p.max_content_length < 8192 or p.max_metadata_size < 8192
                or p.metadata_merge <> 'merge' or p.metadata_max <> '{}' or p.max_session_repeats is not null
                or p.rehash_run is not null
        )
        and (_ingest_fast_path.observed_at is null
            or not memfold_internal._is_late(_ingest_fast_path.tenant_id, m.memory_id, _ingest_fast_path.observed_at, metadata));
    if v_memory_id is null then
        return null;
    end if;
    -- An UPDATE that had to wait checks again: a root that has been merged or retired since is not active.
    -- copy of count_in_row
    --     _record_observation.event_id => v_event_id
    --     _record_observation.root_id => v_memory_id
    --     observed_at => v_stated_at
    --     c.last_event_id => null::uuid
    --     c. => _ingest_fast_path.
    update memfold.memory_counters as k
    set observations = k.observations + 1,
        independent = k.independent + 1,
        source_confidence = greatest(k.source_confidence, _ingest_fast_path.source_confidence),
        extractor_confidence = greatest(k.extractor_confidence, _ingest_fast_path.extractor_confidence),
        first_seen = coalesce(least(k.first_seen, _ingest_fast_path.observed_at), greatest(k.alias_last_seen, v_seen)),
        last_seen = greatest(k.last_seen, v_seen, case when _ingest_fast_path.observed_at is null then k.alias_last_seen end),
        has_metadata = k.has_metadata or _ingest_fast_path.metadata <> '{}',
        -- a batch having written later candidates is no reason to give this one another id
        last_event = case when k.last_event <= null::uuid then greatest(k.last_event, v_event_id)
            else memfold_internal._id_after(v_event_id, k.last_event) end
    where k.tenant_id = _ingest_fast_path.tenant_id collate "C"
        and k.memory_id = v_memory_id
        and k.is_additive
        and (not k.on_timeline and _ingest_fast_path.metadata = '{}' or (_ingest_fast_path.observed_at >= greatest(k.last_seen, k.alias_last_seen)) is not false)
    returning k.aliases,
        case when k.last_event <= null::uuid then v_event_id else k.last_event end,
        case when _ingest_fast_path.observed_at is null then k.last_seen else v_seen end
    into v_aliases, v_last_event, v_stated_at;
    -- end of copy
    if v_aliases is null then
        -- it may have waited for the row, and hold it now: the caller must not wait for the scope's lock
        return (null::text, null::uuid, null::integer, 'row held'::text, null::double precision, null::uuid, null::uuid,
            null::uuid, null::jsonb);
    end if;
    -- copy of count_turns
    --     _record_observation.memory_id => v_memory_id
    --     _record_observation.root_id => v_memory_id
    --     _record_observation.event_id => v_last_event
    --     memory_id, 1, 0 => v_memory_id, 1, 0
    --     memory_id, c.source_turn_ids, event_id => v_memory_id, source_turn_ids, v_last_event
    --     (c.policy).metadata_merge => 'merge'
    --     (c.policy).metadata_max => '{}'
    --     c.metadata => _ingest_fast_path.metadata
    --     m.tenant_id = c. => m.tenant_id = _ingest_fast_path.
    --     c. =>
    if v_turns = 1 and v_aliases = 0 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
        values (tenant_id, source_turn_ids[1], v_memory_id, v_last_event)
        on conflict do nothing;
        get diagnostics v_new = row_count;
        if v_new = 0 then
            perform memfold_internal._subtract_independent(tenant_id, v_memory_id, 1, 0);
        end if;
    elsif v_turns > 0 then
        perform memfold_internal._count_turns(tenant_id, v_memory_id, source_turn_ids, v_last_event);
    end if;
    if _ingest_fast_path.metadata <> '{}' then
        -- a separate statement: it adds to what other calls have written by now
        update memfold.memories as m
        set metadata = memfold_internal._merge_metadata(m.metadata, _ingest_fast_path.metadata, 'merge', '{}')
        where m.tenant_id = _ingest_fast_path.tenant_id collate "C" and m.memory_id = v_memory_id
            and m.metadata <> memfold_internal._merge_metadata(
                m.metadata, _ingest_fast_path.metadata, 'merge', '{}');
    end if;
    -- end of copy
    -- copy of ledger_row
    --     v_event_id => v_last_event
    --     d.action, d.tier, d.method => 'merged', 1, 'hash'
    --     memory_id, d.target_id, d.similarity, d.guard, d.similar_memories => v_memory_id, null, null, null, null
    --     d.reason, observation => null, true
    --     c.told_subject => subject
    --     c.told_predicate => predicate
    --     c.observed_at, c.valid_from, c.valid_until, judgement_id => v_stated_at, null, null, null
    --     c. =>
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories,
        reason, observation, content, memory_type, subject, predicate, object, source_turn_ids,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until, judgement_id, actor
    ) values (
        tenant_id, v_last_event, bucket_id, 'merged', 1, 'hash', v_memory_id, null, null, null, null,
        null, true, content, memory_type, subject, predicate, object,
        source_turn_ids, source_confidence, extractor_confidence, session_id, origin, metadata,
        v_stated_at, null, null, null, memfold_internal._actor()
    );
    -- end of copy
    return ('merged'::text, v_memory_id, 1, 'hash'::text, null::double precision, null::uuid, null::uuid, v_last_event,
        null::jsonb);
end;
$$;
comment on function memfold_internal._ingest_fast_path is
'The fast path: a candidate matches the text of an active memory (row 3 of the decision table). Does what _candidate, _decide_known,
_record_observation and _record do in general, as five statements without composites in between, which saves a quarter of the time of a
replay; those that write are copies of theirs. If a policy of the tenant has rules that it does not implement (policies_slow_path_idx),
the slow path is taken. event_id: the ledger row''s, unless the memory has a later one; null: a new one. content_hash: by the default
rules; the candidate meets _is_fast_path. action null: it is another case and nothing was written; method says whether a row may be
held.';
