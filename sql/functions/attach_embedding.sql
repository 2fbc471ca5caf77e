create or replace function memfold.attach_embedding(
    memory_id uuid,
    embedding vector,
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_memory memfold.memories;
    c memfold.candidate;
    d memfold.decision;
    v_bucket_wide boolean;
    v_judgement_id uuid;
    v_child uuid;
    v_event_id uuid;
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
    c.embedding := memfold._unit(embedding);
    c.embedding_model := embedding_model;
    c.policy := memfold._policy(tenant_id, v_memory.bucket_id, v_memory.memory_type);
    v_bucket_wide := (c.policy).scope = 'bucket' or (c.policy).key_fields <> 'type,subject,predicate';
    perform memfold._lock(tenant_id, v_memory.bucket_id, case when not v_bucket_wide then v_memory.scope_key end, true);

    select m.* into strict v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, live, embedding)
    select c.tenant_id, v_memory.memory_id, c.embedding_model, c.bucket_id, c.scope_key, r.status = 'active', c.embedding
    from memfold.memories as r
    where r.tenant_id = c.tenant_id and r.memory_id = coalesce(v_memory.root_id, v_memory.memory_id)
    on conflict do nothing;
    if not found then
        perform memfold._fail('MF019', 'the memory has a vector of this model',
            format('Memory %s, model %L.', memory_id, embedding_model),
            'A text never changes, nor does its vector.');
    end if;
    update memfold.memories as m
    set embedding_pending = false
    where m.tenant_id = c.tenant_id and m.memory_id = v_memory.memory_id and m.embedding_pending;

    d.action := 'embedded';
    d.on_timeline := false;
    if v_memory.status = 'active' and (c.policy).dedup = 'on' then
        d := memfold._decide_similar(c, d, v_memory.memory_id);
        if d.method is null then
            d.action := 'embedded';
        elsif d.action = 'merged' then
            -- a duplicate folds the newer memory into the older
            v_child := greatest(v_memory.memory_id, d.target_id);
            d.target_id := least(v_memory.memory_id, d.target_id);
            d.on_timeline := exists (
                select from memfold.memory_counters as k
                where k.tenant_id = c.tenant_id and k.memory_id in (v_child, d.target_id) and k.on_timeline
            );
        elsif (c.policy).on_ambiguous = 'keep' then
            d.action := 'embedded';
        else
            d.action := 'escalated';
            v_judgement_id := memfold._queue_judgement(c.tenant_id, c.bucket_id, c.scope_key,
                case (c.policy).on_ambiguous when 'judge' then 'write' else 'review' end,
                v_memory.memory_id, d.target_id, d.similarity, d.guard);
        end if;
    end if;
    insert into memfold.memory_events as e (
        tenant_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories, on_timeline,
        judgement_id, actor
    ) values (
        c.tenant_id, c.bucket_id, d.action, d.tier, d.method, coalesce(v_child, v_memory.memory_id), d.target_id,
        d.similarity, d.guard, d.similar_memories, d.on_timeline, v_judgement_id, memfold._actor()
    ) returning e.event_id into v_event_id;
    if d.action = 'merged' then
        perform memfold.derive_scope(c.tenant_id, array[v_child, d.target_id]);
    end if;
    return memfold._result(d, v_memory.memory_id, v_judgement_id, v_event_id);
end;
$$;
revoke all on function memfold.attach_embedding(uuid, vector, text, text) from public;
grant execute on function memfold.attach_embedding(uuid, vector, text, text) to memfold_app;
comment on function memfold.attach_embedding(uuid, vector, text, text) is
'Gives a memory that was stored without a vector its vector, and runs the tier 2 that was skipped: action is merged (the
newer of the two memories is folded into the older, which memory_id names), escalated, or embedded (nothing else to do).
Raises MF012 to MF015, MF018 (no such memory), MF019 (it has one of this model), MF022, MF025.';
