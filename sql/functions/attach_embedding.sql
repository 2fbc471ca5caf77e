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
    c memfold.candidate;
begin
    perform memfold._enter(tenant_id);
    if embedding is null then
        perform memfold._fail('MF022', 'the embedding is missing', 'embedding was null.', 'Pass a vector.');
    end if;
    perform memfold._check_embedding(embedding, embedding_model);
    select m.* into v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    if not found then
        perform memfold._fail('MF018', 'there is no such memory', format('memory_id was %s.', memory_id),
            'Ids are those that ingest_memory() returned to this tenant.');
    end if;
    c.tenant_id := tenant_id;
    c.bucket_id := v_memory.bucket_id;
    c.scope_key := v_memory.scope_key;
    c.memory_type := v_memory.memory_type;
    c.subject := v_memory.subject;
    c.predicate := v_memory.predicate;
    c.object := v_memory.object;
    c.content := v_memory.content;
    c.session_id := v_memory.session_id;
    c.embedding := memfold._unit(embedding);
    c.embedding_model := embedding_model;
    c.policy := memfold._policy(tenant_id, v_memory.bucket_id, v_memory.memory_type);
    perform memfold._lock_memories(tenant_id, array[memory_id]);

    select m.* into strict v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    with given as (
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, live, embedding)
        select c.tenant_id, v_memory.memory_id, c.embedding_model, c.bucket_id, c.scope_key, r.status = 'active', c.embedding
        from memfold.memories as r
        where r.tenant_id = c.tenant_id and r.memory_id = memfold._root(v_memory.memory_id, v_memory.root_id)
        on conflict do nothing
        returning 1
    )
    -- not by FOUND: Citus takes rows that are left out for inserted ones
    select count(*) = 1 into v_is_given from given;
    if not v_is_given then
        perform memfold._fail('MF019', 'the memory has a vector of this model',
            format('Memory %s, model %L.', memory_id, embedding_model),
            'A text never changes, nor does its vector.');
    end if;
    update memfold.memories as m
    set embedding_pending = false
    where m.tenant_id = c.tenant_id and m.memory_id = v_memory.memory_id and m.embedding_pending;

    return memfold._compare(c, v_memory, 'embedded');
end;
$$;
revoke all on function memfold.attach_embedding(uuid, vector, text, text) from public;
grant execute on function memfold.attach_embedding(uuid, vector, text, text) to memfold_app;
comment on function memfold.attach_embedding(uuid, vector, text, text) is
'Gives a memory that was stored without a vector its vector, and runs the tier 2 that was skipped: action is merged (the
newer of the two memories is folded into the older, which memory_id names), replaced (by the policy''s on_merge, the older into
the newer), escalated, or embedded (nothing else to do).
Raises MF012 to MF015, MF018 (no such memory), MF019 (it has one of this model), MF022, MF025.';

create or replace function memfold._compare(c memfold.candidate, m memfold.memories, action text) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    d memfold.decision;
    v_asked boolean;
    v_text_id uuid := m.memory_id;
    v_fold boolean;
    v_other_id uuid;
    v_judgement_id uuid;
    v_event_id uuid;
begin
    d.on_timeline := false;
    if m.status = 'active' and (c.policy).dedup = 'on' then
        d := memfold._decide_similar(c, d, m.memory_id);
    end if;
    -- nor is a pair folded or asked again whose other side has been folded elsewhere since
    v_asked := memfold._was_asked(c.tenant_id, m.memory_id, d.target_id)
        or memfold._was_asked(c.tenant_id, m.memory_id, d.memory_id);
    v_fold := d.action = 'merged' and not v_asked and (c.policy).on_merge <> 'synthesise';
    if v_fold then
        -- a duplicate folds the newer memory into the older, a replacement the older into the newer
        v_other_id := d.target_id;
        if (c.policy).on_merge = 'replace' then
            d.action := 'replaced';
        end if;
        v_text_id := greatest(m.memory_id, v_other_id);
        d.target_id := least(m.memory_id, v_other_id);
        d.on_timeline := exists (
            select from memfold.memory_counters as k
            where k.tenant_id = c.tenant_id collate "C" and k.memory_id in (v_text_id, d.target_id) and k.on_timeline
        );
    elsif d.action is not null and not v_asked and (d.action = 'merged' or (c.policy).on_ambiguous <> 'keep') then
        v_judgement_id := memfold._queue_judgement(c.tenant_id,
            case d.action when 'merged' then 'synthesis' else memfold._judgement_kind((c.policy).on_ambiguous) end,
            m.memory_id, d.target_id, d.similarity, d.guard, false);
    end if;
    if v_fold is not true then
        d.action := case when v_judgement_id is null then _compare.action else 'escalated' end;
    end if;
    if d.action is null then
        return null;
    end if;
    v_event_id := memfold._new_event_id(c.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories, reason,
        on_timeline, judgement_id, actor
    ) values (
        c.tenant_id, v_event_id, c.bucket_id, d.action, d.tier, d.method, v_text_id, d.target_id,
        d.similarity, d.guard, d.similar_memories, d.reason, d.on_timeline, v_judgement_id, memfold._actor()
    );
    if v_fold then
        perform memfold.derive_scope(c.tenant_id, array[v_text_id, d.target_id]);
    end if;
    return memfold._result(d, v_text_id, v_judgement_id, v_event_id);
end;
$$;
revoke all on function memfold._compare(memfold.candidate, memfold.memories, text) from public;
comment on function memfold._compare(memfold.candidate, memfold.memories, text) is
'Tier 2 for a root that is stored already, with its new vector: folds the newer of two duplicates into the older (by on_merge,
the older into the newer), or queues a judgement; else records action (null: nothing, and returns null). The caller holds the lock.';
