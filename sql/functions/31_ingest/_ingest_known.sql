-- The fast path: a candidate matches the text of an active memory (row 3 of the decision table). Does what _candidate,
-- _decide_known, _record_observation and _record do in general, as five statements without composites in between, which
-- saves a quarter of the time of a replay; those that write are copies of theirs. If a policy of the tenant has rules
-- that it does not implement (policies_slow_path_idx), the slow path is taken. p_event_id: the ledger row's, unless the
-- memory has a later one; null: a new one. p_content_hash: by the default rules; the candidate meets _is_plainly_valid.
-- action null: it is another case and nothing was written; method says whether a row may be held.
create or replace function memfold_internal._ingest_known(
    p_content_hash bytea, p_content text, p_tenant_id text, p_bucket_id text, p_memory_type text, p_subject text, p_predicate text,
    p_object text,
    p_source_turn_ids text[], p_source_confidence double precision, p_extractor_confidence double precision, p_session_id text,
    p_origin text, p_metadata jsonb, p_observed_at timestamptz, p_event_id uuid
) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_memory_id uuid;
    v_aliases bigint;
    v_new bigint;
    v_turns constant bigint := cardinality(p_source_turn_ids);
    v_seen timestamptz;
    v_stated_at timestamptz;
    v_event_id uuid;
    v_last_event uuid;
begin
    select m.memory_id, coalesce(p_event_id, memfold_internal._new_id()),
        coalesce(p_observed_at, memfold_internal._clock())
    into v_memory_id, v_event_id, v_seen
    from memfold_internal._known_text(p_tenant_id, p_bucket_id, p_content_hash) as m
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
        and (p_observed_at is null
            or not memfold_internal._is_late(p_tenant_id, m.memory_id, p_observed_at, p_metadata));
    if v_memory_id is null then
        return null;
    end if;
    -- An UPDATE that had to wait checks again: a root that has been merged or retired since is not active.
    -- copy of count_in_row
    --     _record_observation.event_id => v_event_id
    --     p_root_id => v_memory_id
    --     observed_at => v_stated_at
    --     c.last_event_id => null::uuid
    --     c. => p_
    update memfold.memory_counters as k
    set observations = k.observations + 1,
        independent = k.independent + 1,
        source_confidence = greatest(k.source_confidence, p_source_confidence),
        extractor_confidence = greatest(k.extractor_confidence, p_extractor_confidence),
        first_seen = coalesce(least(k.first_seen, p_observed_at), greatest(k.alias_last_seen, v_seen)),
        last_seen = greatest(k.last_seen, v_seen, case when p_observed_at is null then k.alias_last_seen end),
        has_metadata = k.has_metadata or p_metadata <> '{}',
        -- a batch having written later candidates is no reason to give this one another id
        last_event = case when k.last_event <= null::uuid then greatest(k.last_event, v_event_id)
            else memfold_internal._id_after(v_event_id, k.last_event) end
    where k.tenant_id = p_tenant_id collate "C"
        and k.memory_id = v_memory_id
        and k.is_additive
        and (not k.on_timeline and p_metadata = '{}' or (p_observed_at >= greatest(k.last_seen, k.alias_last_seen)) is not false)
    returning k.aliases,
        case when k.last_event <= null::uuid then v_event_id else k.last_event end,
        case when p_observed_at is null then k.last_seen else v_seen end
    into v_aliases, v_last_event, v_stated_at;
    -- end of copy
    if v_aliases is null then
        -- it may have waited for the row, and hold it now: the caller must not wait for the scope's lock
        return (null::text, null::uuid, null::integer, 'row held'::text, null::double precision, null::uuid, null::uuid,
            null::uuid, null::jsonb);
    end if;
    -- copy of count_turns
    --     p_root_id => v_memory_id
    --     _record_observation.event_id => v_last_event
    --     p_memory_id, c.source_turn_ids, event_id => v_memory_id, p_source_turn_ids, v_last_event
    --     p_memory_id => v_memory_id
    --     (c.policy).metadata_merge => 'merge'
    --     (c.policy).metadata_max => '{}'
    --     c.metadata => p_metadata
    --     m.tenant_id = c. => m.tenant_id = p_
    --     c. => p_
    if v_turns = 1 and v_aliases = 0 then
        insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
        values (p_tenant_id, p_source_turn_ids[1], v_memory_id, v_last_event)
        on conflict do nothing;
        get diagnostics v_new = row_count;
        if v_new = 0 then
            perform memfold_internal._subtract_independent(p_tenant_id, v_memory_id, 1, 0);
        end if;
    elsif v_turns > 0 then
        perform memfold_internal._count_turns(p_tenant_id, v_memory_id, p_source_turn_ids, v_last_event);
    end if;
    if p_metadata <> '{}' then
        -- a separate statement: it adds to what other calls have written by now
        update memfold.memories as m
        set metadata = memfold_internal._merge_metadata(m.metadata, p_metadata, 'merge', '{}')
        where m.tenant_id = p_tenant_id collate "C" and m.memory_id = v_memory_id
            and m.metadata <> memfold_internal._merge_metadata(
                m.metadata, p_metadata, 'merge', '{}');
    end if;
    -- end of copy
    -- copy of ledger_row
    --     v_event_id => v_last_event
    --     d.action, d.tier, d.method => 'merged', 1, 'hash'
    --     p_memory_id, d.target_id, d.similarity, d.guard, d.similar_memories => v_memory_id, null, null, null, null
    --     d.reason, p_observation => null, true
    --     c.told_subject => p_subject
    --     c.told_predicate => p_predicate
    --     c.observed_at, c.valid_from, c.valid_until, p_judgement_id => v_stated_at, null, null, null
    --     c. => p_
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories,
        reason, observation, content, memory_type, subject, predicate, object, source_turn_ids,
        source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until, judgement_id, actor
    ) values (
        p_tenant_id, v_last_event, p_bucket_id, 'merged', 1, 'hash',
        v_memory_id, null, null, null, null,
        null, true, p_content, p_memory_type, p_subject, p_predicate, p_object,
        p_source_turn_ids, p_source_confidence, p_extractor_confidence, p_session_id, p_origin, p_metadata,
        v_stated_at, null, null, null, memfold_internal._actor()
    );
    -- end of copy
    return ('merged'::text, v_memory_id, 1, 'hash'::text, null::double precision, null::uuid, null::uuid, v_last_event,
        null::jsonb);
end;
$$;
