create or replace function memfold.attach_embedding(
    memory_id uuid,
    embedding vector,
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_is_given boolean;
    v_memory memfold.memories;
    c memfold_internal.candidate;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if embedding is null then
        perform memfold_internal._fail('MF022', 'the embedding is missing', 'embedding was null.', 'Pass a vector.');
    end if;
    perform memfold_internal._check_embedding(embedding, embedding_model);
    select m.* into v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    if not found then
        perform memfold_internal._no_memory(memory_id);
    end if;
    perform memfold_internal._lock_memories(tenant_id, array[memory_id]);

    -- While this call waited, the rules may have changed, or the memory may have been erased.
    perform memfold_internal._check_embedding(embedding, embedding_model);
    select m.* into v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    if not found then
        perform memfold_internal._no_memory(memory_id);
    end if;
    c := memfold_internal._stored_candidate(v_memory, memfold_internal._unit(embedding), embedding_model);
    with given as (
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, is_live, embedding)
        select c.tenant_id, v_memory.memory_id, c.embedding_model, c.bucket_id, c.scope_key, r.status <> 'withdrawn', c.embedding
        from memfold.memories as r
        where r.tenant_id = c.tenant_id and r.memory_id = memfold_internal._root(v_memory.memory_id, v_memory.root_id)
        on conflict do nothing
        returning 1
    )
    -- FOUND does not tell: Citus counts skipped rows as inserted.
    select count(*) = 1 into v_is_given from given;
    if not v_is_given then
        perform memfold_internal._fail('MF019', 'the memory already has a vector of this model',
            format('Memory %s, model %L.', memory_id, embedding_model),
            'Neither a text nor its vector ever changes.');
    end if;
    update memfold.memories as m
    set embedding_pending = false
    where m.tenant_id = c.tenant_id and m.memory_id = v_memory.memory_id and m.embedding_pending;

    return memfold_internal._match_stored_memory(c, v_memory, 'embedded');
end;
$$;
grant execute on function memfold.attach_embedding to memfold_app;
comment on function memfold.attach_embedding is
'Adds the vector of a memory that was stored without one, and runs the skipped tier 2. action: merged (the newer of the two memories
becomes an alias of the older, which is memory_id), replaced (by the policy''s on_merge, the older becomes an alias of the newer),
escalated, or embedded (nothing else to do). Raises MF012 to MF015, MF018 (no such memory), MF019 (it already has a vector of this model), MF022, MF025.';

-- A stored text in the form of a candidate for tier 2, with this unit vector.
create or replace function memfold_internal._stored_candidate(m memfold.memories, p_embedding vector, p_embedding_model text)
returns memfold_internal.candidate
language plpgsql stable
as $$
declare
    c memfold_internal.candidate;
begin
    c.tenant_id := m.tenant_id;
    c.bucket_id := m.bucket_id;
    c.scope_key := m.scope_key;
    c.memory_type := m.memory_type;
    c.subject := m.subject;
    c.predicate := m.predicate;
    c.given_subject := m.subject;
    c.given_predicate := m.predicate;
    c.object := m.object;
    c.content := m.content;
    c.session_id := m.session_id;
    c.observed_at := coalesce((
        select k.last_seen from memfold.memory_totals as k where k.tenant_id = m.tenant_id collate "C" and k.memory_id = m.memory_id
    ), m.created_at);
    c.embedding := p_embedding;
    c.embedding_model := p_embedding_model;
    c.policy := memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type);
    return c;
end;
$$;

-- Tier 2 for a stored memory with its new vector: _decide_pair decides which of two duplicates is kept; here "newer" is the one
-- stored later, whenever it was stated. Merges them or queues a judgement, unless they were compared before; else writes a
-- row with p_action (null: none, and returns null). The caller holds the lock.
create or replace function memfold_internal._match_stored_memory(c memfold_internal.candidate, m memfold.memories, p_action text)
returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    d memfold_internal.decision;
begin
    if m.status in ('active', 'superseded') and (c.policy).dedup = 'on' then
        d := memfold_internal._decide_similar(c, d, m.memory_id);
        if d.action is not null then
            if p_action is null and memfold_internal._is_forgotten(c.tenant_id, d.target_id) then
                -- Do not merge away what a person has just written: ask.
                d.action := 'ambiguous';
            end if;
            d := memfold_internal._decide_neighbour(c, d, m.memory_id);
        end if;
    end if;
    return memfold_internal._record_comparison(c, m, d, p_action);
end;
$$;

-- Whether a root and the neighbour that tier 2 found for it (_decide_similar) are already queued, judged or decided.
create or replace function memfold_internal._was_compared(p_tenant_id text, m memfold.memories, d memfold_internal.decision) returns boolean
language plpgsql stable
as $$
begin
    -- Skip a pair whose other side has been merged since.
    return memfold_internal._was_asked(p_tenant_id, m.memory_id, d.target_id)
        or memfold_internal._was_asked(p_tenant_id, m.memory_id, d.memory_id)
        -- somebody has decided about the two without a question
        or memfold_internal._related(p_tenant_id, array[m.memory_id]) <> '{}' and exists (
            select
            from memfold_internal._last_words(p_tenant_id, memfold_internal._trees(p_tenant_id, array[m.memory_id])) as w
            cross join lateral memfold_internal._roots(p_tenant_id, array[w.other_id]) as r
            where r.memory_id = d.target_id
        );
end;
$$;

-- Carries out tier 2's decision about a stored root m, whose candidate is c (_match_stored_memory). If the neighbour is a
-- tombstone (method tombstone), m is merged into it even if m is older.
create or replace function memfold_internal._record_comparison(
    c memfold_internal.candidate, m memfold.memories, d memfold_internal.decision, p_action text
) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_asked constant boolean := memfold_internal._was_compared(c.tenant_id, m, d);
    v_text_id uuid := m.memory_id;
    v_merge boolean;
    v_judgement_id uuid;
    v_event_id uuid;
begin
    v_merge := d.action in ('merged', 'replaced', 'rejected') and not v_asked;
    if v_merge and d.action = 'rejected' then
        d.action := 'merged';
        d.method := 'tombstone';
    elsif v_merge then
        -- The row is about the text stored later: merged into target_id or, if replaced, target_id into it (_merges_in_force).
        v_text_id := greatest(m.memory_id, d.target_id);
        d.target_id := least(m.memory_id, d.target_id);
    elsif d.judgement is not null and not v_asked then
        v_judgement_id := memfold_internal._queue_judgement(c.tenant_id, d.judgement, m.memory_id, d.target_id, d.similarity, d.guard,
            false);
    end if;
    if v_merge is not true then
        d.action := case when v_judgement_id is null then p_action else 'escalated' end;
    end if;
    if d.action is null then
        return null;
    end if;
    if v_merge then
        -- The neighbour may be in another scope, where it may have been merged since it was found.
        perform memfold_internal._lock_texts(c.tenant_id, array[least(v_text_id, d.target_id), greatest(v_text_id, d.target_id)]);
        if exists (
            select from memfold.memories as r
            where r.tenant_id = c.tenant_id and r.memory_id in (v_text_id, d.target_id) and r.root_id is not null
        ) then
            perform memfold_internal._retry('the neighbour has been merged', 'It was merged while this call waited for it.');
        end if;
    end if;
    v_event_id := memfold_internal._new_event_id(c.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories, reason,
        judgement_id, actor
    ) values (
        c.tenant_id, v_event_id, c.bucket_id, d.action, d.tier, d.method, v_text_id, d.target_id,
        d.similarity, d.guard, d.similar_memories, d.reason, v_judgement_id, memfold_internal._actor()
    );
    if v_merge then
        perform memfold_internal._derive(c.tenant_id, array[v_text_id, d.target_id], true);
    end if;
    return memfold_internal._result(d, v_text_id, v_judgement_id, v_event_id);
end;
$$;
