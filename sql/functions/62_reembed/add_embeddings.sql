-- Moves a database in use from one embedding model to another. memfold reembed calls these functions, for each
-- tenant: start_reembedding() opens a run; missing_embeddings() and add_embeddings(), in a loop, add vectors of the new
-- model next to those of the old one; end_reembedding() closes the run. Then replace_embedding_model() switches over for
-- all tenants, and drop_embeddings() and unregister_embedding_model() remove what is left; these three are for members of
-- memfold_owner.
--
-- Only memory_vectors, embedding_models and the report of the run change: added vectors decide nothing, and the ledger
-- gets no row. add_embeddings() tries for the locks of scopes and stops after 50 ms. What must stay true: no memory loses
-- its last vector of a model in use (MF046), and is_live of a new vector is that of its root under the scope's lock.

create or replace function memfold.add_embeddings(
    memory_ids uuid[],
    contents text[],
    embeddings vector[],
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    run_id uuid default null,
    wait boolean default false
) returns table (memory_id uuid, status text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_model constant text collate "C" := embedding_model;
    -- Scopes stay locked to the end of the transaction, so the call stops before their writers wait for long.
    v_until constant timestamptz := clock_timestamp() + interval '50 ms';
    v_count constant bigint := coalesce(cardinality(memory_ids), 0);
    v_added bigint := 0;
    v_item record;
    v_memory record;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_model(embedding_model, false);
    if not coalesce(v_count between 1 and case when wait then 1 else 1000 end and v_count = cardinality(contents)
        and v_count = cardinality(embeddings), false)
    then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('%s memory_ids, %s contents, %s embeddings, wait %s.', v_count, coalesce(cardinality(contents), 0),
                coalesce(cardinality(embeddings), 0), coalesce(wait::text, 'null')),
            'Pass the same number of each: 1 to 1000, or one if wait is true.');
    elsif current_setting('transaction_isolation') <> 'read committed' then
        perform memfold_internal._fail('MF025', 'the isolation level must be READ COMMITTED',
            'The transaction runs at ' || current_setting('transaction_isolation')
            || ': it could not see later changes of the memories.',
            'Run the call in a READ COMMITTED transaction.');
    elsif run_id is not null then
        perform memfold_internal._run(tenant_id, run_id);
    end if;
    for v_item in
        select i.memory_id, i.content, i.embedding
        from unnest(memory_ids, contents, embeddings) as i (memory_id, content, embedding)
        order by i.memory_id
    loop
        memory_id := v_item.memory_id;
        if v_item.embedding is null then
            perform memfold_internal._fail('MF022', 'the embedding is missing', format('The embedding of memory %s was null.', v_item.memory_id),
                'Pass a vector.');
        end if;
        perform memfold_internal._check_embedding(v_item.embedding, v_model);
        if v_added > 0 and clock_timestamp() > v_until then
            status := 'later';
            return next;
            continue;
        end if;
        select m.bucket_id, m.scope_key, m.embedding_pending, m.content = v_item.content collate "C" as is_same into v_memory
        from memfold.memories as m
        where m.tenant_id = v_tenant_id and m.memory_id = v_item.memory_id;
        if v_memory.is_same is not true then
            status := 'gone';
        elsif v_memory.embedding_pending then
            status := 'pending';
        elsif exists (
            select from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id and v.memory_id = v_item.memory_id and v.model = v_model
        ) then
            status := 'known';
        elsif not memfold_internal._wait_or_try(v_tenant_id, v_memory.bucket_id, v_memory.scope_key, wait) then
            status := 'busy';
        else
            -- Under the lock, is_live cannot change.
            insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, is_live, embedding)
            select m.tenant_id, m.memory_id, v_model, m.bucket_id, m.scope_key, r.status <> 'withdrawn',
                memfold_internal._unit(v_item.embedding)
            from memfold.memories as m
            join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold_internal._root(m.memory_id, m.root_id)
            where m.tenant_id = v_tenant_id and m.memory_id = v_item.memory_id and m.content = v_item.content collate "C"
            on conflict do nothing;
            status := case when found then 'added' else 'known' end;
            v_added := v_added + (status = 'added')::integer;
        end if;
        return next;
    end loop;
    if run_id is not null and v_added > 0 then
        update memfold.runs as r
        set report = r.report || jsonb_build_object('added', coalesce((r.report ->> 'added')::bigint, 0) + v_added)
        where r.tenant_id = v_tenant_id and r.run_id = add_embeddings.run_id;
    end if;
end;
$$;
grant execute on function memfold.add_embeddings to memfold_app;
comment on function memfold.add_embeddings is
'Adds vectors of embedding_model to memories that have a vector of another model. Compares, merges and asks nothing, and writes no ledger
row. contents: the texts that were embedded. status of each: added; known (it has one); busy (another transaction writes to its scope:
call again); later (the call had worked for 50 ms, the longest that writers should wait: call again); gone (there is no such memory, or
its text differs); pending (it has no vector yet: use attach_embedding()). At most 1,000 per call. wait: for a single memory, waits for
the lock of its scope. run_id: the run of start_reembedding() whose count it adds to. Raises MF001 to MF003, MF013 to MF015, MF022, MF025,
MF038, MF047.';

-- Takes the lock of a scope (_lock) and returns true. Unless p_wait, does not wait, and returns false if it is not free.
create or replace function memfold_internal._wait_or_try(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_wait boolean
) returns boolean
language plpgsql volatile
as $$
begin
    if p_wait then
        perform memfold_internal._lock(p_tenant_id, p_bucket_id, p_scope_key, true);
        return true;
    end if;
    return memfold_internal._try_lock(p_tenant_id, p_bucket_id, p_scope_key);
end;
$$;
