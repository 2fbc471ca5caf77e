-- Recall: what a tenant's memories say, now or at an earlier time, and which of them fit a query.
--
-- search_memories() finds texts by vector (_knn_search) and by words (_word_search), each with its root if that may be
-- shown (_recallable), ranks the roots (_fuse) and shows those that say the same as one (_recall_clusters).
-- current_memories(), current_memory(), effective_confidence(), profile() and find_similar() answer other questions about
-- the same state. Applications and agents call them; of other modules, 51_reports uses the limit of exact search.
--
-- Recall writes in three places: the counters of what was shown (touch, which skips locked rows), record_feedback(), and
-- known_at, whose copy of a bucket is rolled back. create_text_index() blocks writers of memories. What must stay true: a
-- search covers all of its buckets, or marks its rows as not complete and raises a NOTICE (01M01); a scan and an index
-- rank words alike; and missing statistics never choose a plan, hence enable_seqscan off and lookups by key (offset 0).

-- Copies a bucket to tenant p_into_tenant: policies, predicates, texts, the ledger rows recorded until p_known_at, counters.
-- Returns the ids of the texts, whose state the caller derives. Leaves memfold.tenant_id set to p_into_tenant.
create or replace function memfold_internal._copy_known(
    p_tenant_id text, p_bucket_id text, p_known_at timestamptz, p_into_tenant text
) returns uuid[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_texts memfold.memories[];
    v_events memfold.memory_events[];
    v_policies memfold.policies[];
    v_predicates memfold.predicates[];
begin
    -- Two conditions, one for each of the two indexes that begin with tenant and bucket.
    v_texts := array(
        select m from memfold.memories as m
        where (m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.content_hash is not null
            or m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.content_hash is null)
    );
    v_events := array(
        select e.event
        from unnest(v_texts) as m
        cross join lateral (
            select e as event from memfold.memory_events as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = m.memory_id and e.recorded_at <= p_known_at
            offset 0
        ) as e
    );
    v_policies := array(select p from memfold.policies as p where p.tenant_id = p_tenant_id collate "C");
    v_predicates := array(select p from memfold.predicates as p where p.tenant_id = p_tenant_id collate "C");
    -- Row-level security shows one tenant at a time, so everything was read before.
    perform set_config('memfold.tenant_id', p_into_tenant, true);
    for v_i in 1..cardinality(v_policies) loop
        v_policies[v_i].tenant_id := p_into_tenant;
        v_policies[v_i].rehash_run := null;
    end loop;
    insert into memfold.policies select p.* from unnest(v_policies) as p;
    insert into memfold.predicates (tenant_id, predicate, cardinality, conflict)
    select p_into_tenant, p.predicate, p.cardinality, p.conflict from unnest(v_predicates) as p;
    -- An empty key_fields leaves content_hash null; no derived state depends on it.
    insert into memfold.memories (
        tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, key_fields, created_at, is_ingested
    )
    select p_into_tenant, m.memory_id, m.bucket_id, m.memory_type, m.subject, m.predicate, m.object, m.content, '', m.created_at, true
    from unnest(v_texts) as m;
    insert into memfold.memory_events (
        tenant_id, event_id, recorded_at, bucket_id, action, tier, method, memory_id, target_id, observation, source_turn_ids,
        source_confidence, extractor_confidence, observed_at, valid_from, valid_until, verdict, undoes, actor
    )
    select p_into_tenant, e.event_id, e.recorded_at, e.bucket_id, e.action, e.tier, e.method, e.memory_id, e.target_id, e.observation,
        e.source_turn_ids, e.source_confidence, e.extractor_confidence, e.observed_at, e.valid_from, e.valid_until,
        e.verdict, e.undoes, e.actor
    from unnest(v_events) as e;
    insert into memfold.memory_sources (tenant_id, source_turn_id, memory_id, event_id)
    select distinct on (t.turn, o.memory_id) p_into_tenant, t.turn, o.memory_id, o.event_id
    from memfold_internal._observed as o
    cross join lateral unnest(o.source_turn_ids) as t (turn)
    where o.tenant_id = p_into_tenant
    order by t.turn, o.memory_id, o.event_id;
    insert into memfold.memory_counters (tenant_id, memory_id)
    select p_into_tenant, m.memory_id from unnest(v_texts) as m;
    perform memfold_internal._recount(p_into_tenant, array(select m.memory_id from unnest(v_texts) as m));
    return array(select m.memory_id from unnest(v_texts) as m order by m.memory_id);
end;
$$;

-- The rows of current_memories() by the ledger as of p_known_at, as a JSON array. Derives a copy of the bucket under a
-- temporary tenant, and rolls it back. Raises MF001 to MF003, MF022 (the transaction is read-only).
create or replace function memfold_internal._believed_memories(
    p_tenant_id text, p_bucket_id text, p_as_of timestamptz, p_known_at timestamptz
) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant constant text := 'known ' || memfold_internal._new_id();
    v_told jsonb;
begin
    perform memfold_internal._authorize_tenant(p_tenant_id);
    if current_setting('transaction_read_only') = 'on' then
        perform memfold_internal._fail('MF022', 'known_at requires a read-write transaction',
            'It derives past state in temporary rows, which it rolls back.',
            'Call it on the primary, in a transaction that is not read-only.');
    end if;
    begin
        perform memfold_internal._derive_all(v_tenant, memfold_internal._copy_known(p_tenant_id, p_bucket_id, p_known_at, v_tenant));
        select jsonb_agg(m) into v_told from memfold.current_memories(v_tenant, p_bucket_id, p_as_of) as m;
        -- Roll back all rows; variables keep their values.
        raise exception using errcode = 'MFROL';
    exception when sqlstate 'MFROL' then
        null;
    end;
    return coalesce(v_told, '[]');
end;
$$;
grant execute on function memfold_internal._believed_memories to memfold_app, memfold_auditor;
