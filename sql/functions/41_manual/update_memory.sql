create or replace function memfold.update_memory(
    memory_id uuid,
    content text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    object text default null,
    embedding vector default null,
    embedding_model text default null,
    reason text default null
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    m memfold.memories;
    o memfold.memories;
    c memfold_internal.candidate;
    v_compared memfold.ingest_result;
    v_event_id uuid;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{}');
    perform memfold_internal._lock_memories(tenant_id, array[m.memory_id]);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{rejected,withdrawn}');
    perform memfold_internal._check_agent_changes(m);
    c := memfold_internal._validate(memfold_internal._candidate(content, m.tenant_id, m.bucket_id, m.memory_type, m.subject, m.predicate,
        coalesce(object, m.object), embedding, embedding_model, p_source_confidence => 0, p_extractor_confidence => 0,
        p_origin => 'inferred', p_metadata => m.metadata));
    c.scope_key := memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate);

    select s.memory_id into o.memory_id from memfold_internal._known_before_insert(c) as s;
    if found then
        -- The bucket has that text already: the update is a merge into its root.
        o := memfold_internal._memory_root(tenant_id, o.memory_id, '{rejected}');
        perform memfold_internal._check_two_memories(m, o);
        perform memfold_internal._lock_memories(tenant_id, array[m.memory_id, o.memory_id]);
        v_event_id := memfold_internal._record_relation(memfold_internal._person(tenant_id, m.bucket_id, reason), 'replaced',
            o.memory_id, m.memory_id, null, null);
        return memfold_internal._person_result('replaced', o.memory_id, null, v_event_id);
    end if;
    o.memory_id := memfold_internal._insert_memory(c, null);
    if o.memory_id is null then
        raise exception 'too many concurrent changes in this bucket' using
            errcode = 'serialization_failure',
            detail = 'Another call stored the same text at the same time.', hint = 'Retry the call.';
    end if;
    v_event_id := memfold_internal._record_relation(memfold_internal._person(tenant_id, m.bucket_id, reason), 'replaced',
        o.memory_id, m.memory_id, content, null);
    if embedding is not null then
        -- The new text may say the same as another memory. It states nothing: the old one's statements tell which is newer.
        o := memfold_internal._memory_root(tenant_id, o.memory_id, '{}');
        v_compared := memfold_internal._match_stored_memory(
            memfold_internal._stored_candidate(o, c.embedding, c.embedding_model), o, null);
        if v_compared.action is not null then
            return v_compared;
        end if;
    end if;
    return memfold_internal._person_result('replaced', o.memory_id, null, v_event_id);
end;
$$;
grant execute on function memfold.update_memory to memfold_app;
comment on function memfold.update_memory is
'Gives a memory a new text (and object), as a manual action: a text never changes, so the new one becomes a memory of the same scope and
the old one its alias; ids and observations of the old one count for it. With an embedding, tier 2 runs for the new text: action is merged
or escalated if it matches another memory, otherwise replaced. undo(event_id) undoes it. Raises MF018 (no such memory), MF034 (it already
has this text, or is rejected or withdrawn), MF004 to MF015, MF025. For members of memfold_agent: only what agents have stated (42501, MF066).';
