create or replace function memfold.preview_memory(
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
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
    c memfold_internal.candidate;
    d memfold_internal.decision;
    v_event_id uuid;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    c := memfold_internal._candidate(content, tenant_id, bucket_id, memory_type, subject, predicate, object, embedding, embedding_model,
        source_turn_ids, source_confidence, extractor_confidence, session_id, origin, metadata, observed_at, valid_from, valid_until,
        idempotency_key);
    if idempotency_key is not null then
        perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
        perform memfold_internal._check_identifier('idempotency_key', idempotency_key, true);
        select i.event_id into v_event_id
        from memfold.idempotency_keys as i
        where i.tenant_id = preview_memory.tenant_id collate "C"
            and i.bucket_id = preview_memory.bucket_id collate "C"
            and i.idempotency_key = preview_memory.idempotency_key collate "C";
        if found then
            perform memfold_internal._check_same_candidate(c, v_event_id);
            return memfold_internal._event_result(tenant_id, v_event_id);
        end if;
    end if;
    c := memfold_internal._validate(c);
    if memfold_internal._is_embedded_here(c, c.policy) and (memfold_internal._decide_known(c)).memory_id is null then
        c := memfold_internal._embed(c);
    end if;
    c.scope_key := memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate);
    d := memfold_internal._decide(c);
    return memfold_internal._result(d, d.memory_id, null, null);
end;
$$;
grant execute on function memfold.preview_memory to memfold_app;
comment on function memfold.preview_memory is
'Returns what ingest_memory() would return now for the same arguments, without the ids of rows that do not exist yet. Writes nothing and
takes no lock. Raises what ingest_memory() raises for bad input.';
