-- From one embedding model to another: vectors of the new one are laid beside those of the old one, and decide nothing.
-- Then the old model is replaced, and its vectors are dropped.

create or replace function memfold._check_model(model text, replaced boolean) returns void
language plpgsql stable
as $$
declare
    v_replaced_by text;
begin
    select m.replaced_by into v_replaced_by
    from memfold.embedding_models as m where m.model = _check_model.model collate "C";
    if not found then
        perform memfold._fail('MF013', 'unknown embedding model',
            pg_catalog.format('%s is not registered.', pg_catalog.quote_nullable(model)),
            'Register it: select register_embedding_model(model, dimensions).');
    elsif v_replaced_by is not null and replaced is false then
        perform memfold._fail('MF047', 'the embedding model has been replaced',
            pg_catalog.format('%L was replaced by %L.', model, v_replaced_by),
            pg_catalog.format('Pass embeddings that %L has made.', v_replaced_by));
    elsif v_replaced_by is null and replaced then
        perform memfold._fail('MF048', 'the embedding model is in use',
            pg_catalog.format('%L has not been replaced by another.', model),
            'First replace_embedding_model(model, replaced_by).');
    end if;
end;
$$;
revoke all on function memfold._check_model(text, boolean) from public;
comment on function memfold._check_model(text, boolean) is
'Raises MF013 for an unknown embedding model; where replaced is false MF047 for one that has been replaced, where it is true
MF048 for one that has not.';

create or replace function memfold._missing_count(tenant_id text, from_model text, to_model text) returns bigint
language sql stable
begin atomic
    select pg_catalog.count(*)
    from memfold.memory_vectors as v
    where
        v.tenant_id = _missing_count.tenant_id collate "C"
        and v.model = from_model collate "C"
        and not exists (
            select from memfold.memory_vectors as n
            where n.tenant_id = v.tenant_id and n.memory_id = v.memory_id and n.model = to_model collate "C"
        );
end;
revoke all on function memfold._missing_count(text, text, text) from public;
comment on function memfold._missing_count(text, text, text) is
'How many memories of a tenant have a vector of from_model and none of to_model. Reads all its vectors'' keys.';

create or replace function memfold.start_reembedding(
    from_model text,
    to_model text,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_run_id uuid;
begin
    perform memfold._enter(tenant_id);
    perform memfold._check_model(from_model, null);
    perform memfold._check_model(to_model, false);
    if from_model = to_model collate "C" then
        perform memfold._fail('MF022', 'an argument is out of range', format('from_model and to_model were both %L.', to_model),
            'Register the new model under a name of its own.');
    end if;
    select r.run_id into v_run_id
    from memfold.runs as r
    where r.tenant_id = start_reembedding.tenant_id collate "C" and r.kind = 'reembedding' and r.state = 'open'
        and r.arguments @> jsonb_build_object('from_model', from_model, 'to_model', to_model)
    order by r.run_id
    limit 1;
    if v_run_id is null then
        v_run_id := (memfold._start_run(tenant_id, '*', 'reembedding',
            jsonb_build_object('from_model', from_model, 'to_model', to_model))).run_id;
    end if;
    return v_run_id;
end;
$$;
revoke all on function memfold.start_reembedding(text, text, text) from public;
grant execute on function memfold.start_reembedding(text, text, text) to memfold_app;
comment on function memfold.start_reembedding(text, text, text) is
'Begins to give the memories of a tenant, which have vectors of from_model, vectors of to_model too, or goes on where an earlier
run has stopped: a row in runs, of kind reembedding. Then, again and again, missing_embeddings() says what is to be embedded and
add_embeddings() stores it; at last end_reembedding(). Raises MF001 to MF003, MF013, MF022, MF047 (to_model has been replaced).';

create or replace function memfold.missing_embeddings(
    from_model text,
    to_model text,
    after uuid default null,
    max_results bigint default 100,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (memory_id uuid, bucket_id text, content text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform memfold._enter(tenant_id);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 10000.');
    end if;
    return query
    select s.memory_id, m.bucket_id::text, m.content::text
    from (
        -- by the primary key, from where the last call has stopped
        select v.memory_id
        from memfold.memory_vectors as v
        where v.tenant_id = missing_embeddings.tenant_id collate "C" and v.model = from_model collate "C"
            and v.memory_id > coalesce(after, '00000000-0000-0000-0000-000000000000')
            and not exists (
                select from memfold.memory_vectors as n
                where n.tenant_id = v.tenant_id and n.memory_id = v.memory_id and n.model = to_model collate "C"
                offset 0
            )
        order by v.memory_id
        limit max_results
    ) as s
    cross join lateral (
        select t.bucket_id, t.content from memfold.memories as t
        where t.tenant_id = missing_embeddings.tenant_id collate "C" and t.memory_id = s.memory_id
        offset 0
    ) as m
    order by s.memory_id;
end;
$$;
revoke all on function memfold.missing_embeddings(text, text, uuid, bigint, text) from public;
grant execute on function memfold.missing_embeddings(text, text, uuid, bigint, text) to memfold_app;
comment on function memfold.missing_embeddings(text, text, uuid, bigint, text) is
'Memories of a tenant, aliases and history included, that have a vector of from_model and none of to_model, by id, behind the id
after: embed their content and hand it to add_embeddings(). At most max_results, 1 to 10,000. What has no vector at all is in
pending_embeddings(). Raises MF001 to MF003, MF022.';

create or replace function memfold.add_embeddings(
    embedding_model text,
    memory_ids uuid[],
    contents text[],
    embeddings vector[],
    run_id uuid default null,
    patient boolean default false,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (memory_id uuid, status text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_model constant text collate "C" := embedding_model;
    -- Writers of a scope wait as long as its lock is held: to the end of the transaction.
    v_until constant timestamptz := clock_timestamp() + interval '50 ms';
    v_count constant bigint := coalesce(cardinality(memory_ids), 0);
    v_added bigint := 0;
    v_item record;
    v_memory record;
begin
    perform memfold._enter(tenant_id);
    perform memfold._check_model(embedding_model, false);
    if not coalesce(v_count between 1 and case when patient then 1 else 1000 end and v_count = cardinality(contents)
        and v_count = cardinality(embeddings), false)
    then
        perform memfold._fail('MF022', 'an argument is out of range',
            format('%s memory_ids, %s contents, %s embeddings, patient %s.', v_count, coalesce(cardinality(contents), 0),
                coalesce(cardinality(embeddings), 0), coalesce(patient::text, 'null')),
            'Pass as many of each: 1 to 1000, or one where the call is patient.');
    elsif current_setting('transaction_isolation') <> 'read committed' then
        perform memfold._fail('MF025', 'the isolation level must be READ COMMITTED',
            'The transaction runs at ' || current_setting('transaction_isolation')
            || ': it could not see what has become of the memories meanwhile.',
            'Run the call in a READ COMMITTED transaction.');
    elsif run_id is not null then
        perform memfold._run(tenant_id, run_id);
    end if;
    for v_item in
        select i.memory_id, i.content, i.embedding
        from unnest(memory_ids, contents, embeddings) as i (memory_id, content, embedding)
        order by i.memory_id
    loop
        memory_id := v_item.memory_id;
        if v_item.embedding is null then
            perform memfold._fail('MF022', 'the embedding is missing', format('That of %s was null.', v_item.memory_id),
                'Pass a vector.');
        end if;
        perform memfold._check_embedding(v_item.embedding, v_model);
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
        elsif not memfold._wait_or_try(v_tenant_id, v_memory.bucket_id, v_memory.scope_key, patient) then
            status := 'busy';
        else
            -- whether it is a neighbour stays as it is from here on
            insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, live, embedding)
            select m.tenant_id, m.memory_id, v_model, m.bucket_id, m.scope_key, r.status = 'active',
                memfold._unit(v_item.embedding)
            from memfold.memories as m
            join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold._root(m.memory_id, m.root_id)
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
revoke all on function memfold.add_embeddings(text, uuid[], text[], vector[], uuid, boolean, text) from public;
grant execute on function memfold.add_embeddings(text, uuid[], text[], vector[], uuid, boolean, text) to memfold_app;
comment on function memfold.add_embeddings(text, uuid[], text[], vector[], uuid, boolean, text) is
'Gives memories that have a vector of another model one of embedding_model too. Nothing is compared, folded or asked for it, and
no ledger row is written. contents: the texts that were embedded. status of each: added; known (it has one); busy (somebody
writes to its scope: call again); later (the call had worked for 50 ms, and writers wait for none longer: call again); gone (there
is no such memory, or its text is another); pending (it has no vector yet: attach_embedding()). At most 1,000 a call. patient: one
memory, and waits its turn. run_id: of start_reembedding(), whose count it adds to.
Raises MF001 to MF003, MF013 to MF015, MF022, MF025, MF038, MF047.';

create or replace function memfold._wait_or_try(
    tenant_id text, bucket_id text, scope_key bigint, patient boolean
) returns boolean
language plpgsql volatile
as $$
begin
    if patient then
        perform memfold._lock(tenant_id, bucket_id, scope_key, true);
        return true;
    end if;
    return memfold._try_lock(tenant_id, bucket_id, scope_key);
end;
$$;
revoke all on function memfold._wait_or_try(text, text, bigint, boolean) from public;
comment on function memfold._wait_or_try(text, text, bigint, boolean) is
'The lock of a scope (_lock), held to the end of the transaction; who is not patient does without where it is not to be had at
once, and is told so.';

create or replace function memfold.end_reembedding(
    run_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    r memfold.runs;
    v_missing bigint;
    v_now constant timestamptz := clock_timestamp();
begin
    perform memfold._enter(tenant_id);
    r := memfold._run(tenant_id, run_id);
    if r.kind <> 'reembedding' then
        perform memfold._fail('MF039', 'the run is no re-embedding', format('Run %s is of kind %s.', r.run_id, r.kind),
            'run_id is what start_reembedding() returned.');
    end if;
    v_missing := memfold._missing_count(r.tenant_id, r.arguments ->> 'from_model', r.arguments ->> 'to_model');
    update memfold.runs as o
    set report = o.report || jsonb_build_object('added', coalesce((o.report ->> 'added')::bigint, 0), 'missing', v_missing),
        state = case when v_missing = 0 then 'done' else o.state end,
        ended_at = case when v_missing = 0 then coalesce(o.ended_at, v_now) end
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id;
    return v_missing;
end;
$$;
revoke all on function memfold.end_reembedding(uuid, text) from public;
grant execute on function memfold.end_reembedding(uuid, text) to memfold_app;
comment on function memfold.end_reembedding(uuid, text) is
'Closes a run of start_reembedding(), if no memory is left that has a vector of the old model and none of the new; returns how
many are. Raises MF001 to MF003, MF038, MF039 (a run of another kind).';

create or replace function memfold.reembed_status(
    from_model text,
    to_model text,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (
    old_vectors bigint, new_vectors bigint, missing bigint, pending bigint, own_thresholds bigint, run_id uuid, added bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
begin
    perform memfold._enter(tenant_id);
    perform memfold._check_model(m.model, null) from unnest(array[from_model, to_model]) as m (model);
    select count(*) filter (where v.model = from_model collate "C"), count(*) filter (where v.model = to_model collate "C")
    into old_vectors, new_vectors
    from memfold.memory_vectors as v where v.tenant_id = v_tenant_id;
    missing := memfold._missing_count(tenant_id, from_model, to_model);
    select count(*) into pending
    from memfold.memories as m where m.tenant_id = v_tenant_id and m.embedding_pending;
    select count(*) into own_thresholds
    from memfold.policies as p
    where p.tenant_id in (v_tenant_id, '*')
        and (p.merge_threshold is not null or p.judge_threshold is not null or p.similar_threshold is not null);
    select r.run_id, (r.report ->> 'added')::bigint into run_id, added
    from memfold.runs as r
    where r.tenant_id = v_tenant_id and r.kind = 'reembedding'
        and r.arguments @> jsonb_build_object('from_model', from_model, 'to_model', to_model)
    order by r.run_id desc
    limit 1;
    return next;
end;
$$;
revoke all on function memfold.reembed_status(text, text, text) from public;
grant execute on function memfold.reembed_status(text, text, text) to memfold_app;
comment on function memfold.reembed_status(text, text, text) is
'How far a tenant is on the way from one embedding model to another: vectors of each; missing: memories with a vector of the old one
alone; pending: without any (attach_embedding); own_thresholds: policies whose own cosine thresholds, made for the old model, count
for the new one too; the last run, and what it has added. Reads all the tenant''s vectors'' keys. Raises MF001 to MF003, MF013.';

create or replace function memfold.replace_embedding_model(model text, replaced_by text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before constant text := current_setting('memfold.tenant_id', true);
    v_tenant_id text;
    v_missing bigint;
begin
    perform memfold._check_model(model, null);
    if replaced_by is null then
        update memfold.embedding_models as m
        set replaced_by = null, replaced_at = null
        where m.model = replace_embedding_model.model collate "C";
        return;
    elsif replaced_by = model collate "C" then
        perform memfold._fail('MF022', 'an argument is out of range', format('A model, %L, cannot replace itself.', model),
            'Name the new model, or null to use the old one again.');
    end if;
    perform memfold._check_model(replaced_by, false);
    for v_tenant_id in select t.id from memfold._tenants() as t (id) loop
        perform set_config('memfold.tenant_id', v_tenant_id, true);
        v_missing := memfold._missing_count(v_tenant_id, model, replaced_by);
        if v_missing > 0 then
            perform memfold._fail('MF046', 'memories have no vector of the new model',
                format('Tenant %L has %s that are embedded by %L and not by %L.', v_tenant_id, v_missing, model, replaced_by),
                format('Run: memfold reembed --from %s --to %s', model, replaced_by));
        end if;
    end loop;
    perform set_config('memfold.tenant_id', coalesce(v_before, ''), true);
    update memfold.embedding_models as m
    set replaced_by = replace_embedding_model.replaced_by, replaced_at = memfold._clock()
    where m.model = replace_embedding_model.model collate "C"
        and m.replaced_by is distinct from replace_embedding_model.replaced_by;
end;
$$;
revoke all on function memfold.replace_embedding_model(text, text) from public;
comment on function memfold.replace_embedding_model(text, text) is
'Cut-over, for all tenants: from now on vectors of model are refused (MF047), in ingest and in search, and its stored ones may be
dropped. Before, both models are accepted side by side. replaced_by null takes it back. Only for members of memfold_owner.
Raises MF013, MF022, MF046 (memories that are embedded by model are not by replaced_by), MF047 (replaced_by is replaced itself).';

create or replace function memfold.drop_embeddings(
    model text,
    after uuid default null,
    max_results bigint default 1000,
    tenant_id text default current_setting('memfold.tenant_id', true),
    inout run_id uuid default null,
    out dropped bigint,
    out last_id uuid
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_model constant text collate "C" := model;
    v_ids uuid[];
    v_bare bigint;
    r memfold.runs;
    v_now constant timestamptz := clock_timestamp();
begin
    perform memfold._enter(tenant_id);
    perform memfold._check_model(model, true);
    if not coalesce(max_results between 1 and 100000, false) then
        perform memfold._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 100000.');
    end if;
    if run_id is not null then
        r := memfold._run(tenant_id, run_id);
        if r.kind <> 'dropping' then
            perform memfold._fail('MF039', 'the run is none that drops', format('Run %s is of kind %s.', r.run_id, r.kind),
                'run_id is what an earlier call returned.');
        end if;
    end if;
    -- in the order in which everyone locks them
    select array_agg(s.memory_id order by s.memory_id) into v_ids
    from (
        select v.memory_id
        from memfold.memory_vectors as v
        where v.tenant_id = v_tenant_id and v.model = v_model
            and v.memory_id > coalesce(after, '00000000-0000-0000-0000-000000000000')
        order by v.memory_id
        limit max_results
        for update
    ) as s;
    last_id := v_ids[cardinality(v_ids)];
    select count(*) into v_bare
    from unnest(v_ids) as i (id)
    where not exists (
        select from memfold.memory_vectors as n
        join memfold.embedding_models as e on e.model = n.model
        where n.tenant_id = v_tenant_id and n.memory_id = i.id and n.model <> v_model and e.replaced_by is null
        offset 0
    );
    if v_bare > 0 then
        perform memfold._fail('MF046', 'memories have no vector of the new model',
            format('%s of tenant %L have one of %L alone.', v_bare, tenant_id, model),
            'Run memfold reembed again: something has been written while the models were changed.');
    end if;
    delete from memfold.memory_vectors as v
    where v.tenant_id = v_tenant_id and v.memory_id = any(v_ids) and v.model = v_model;
    get diagnostics dropped = row_count;
    if run_id is null then
        run_id := (memfold._start_run(tenant_id, '*', 'dropping', jsonb_build_object('model', model))).run_id;
    end if;
    update memfold.runs as o
    set report = o.report || jsonb_build_object('dropped', coalesce((o.report ->> 'dropped')::bigint, 0) + dropped),
        state = case when dropped < max_results then 'done' else o.state end,
        ended_at = case when dropped < max_results then v_now end
    where o.tenant_id = v_tenant_id and o.run_id = drop_embeddings.run_id;
end;
$$;
revoke all on function memfold.drop_embeddings(text, uuid, bigint, text, uuid) from public;
comment on function memfold.drop_embeddings(text, uuid, bigint, text, uuid) is
'Drops vectors of a replaced embedding model, of one tenant, at most max_results (1 to 100,000) behind the id after: dropped says how
many, last_id is what to pass as after next. Fewer than max_results: none is left. run_id: its row in runs, of kind dropping; pass
it on. Refuses while one of them is its memory''s only vector of a model in use. Only for members of memfold_owner.
Raises MF001 to MF003, MF013, MF022, MF038, MF039, MF046, MF048 (the model has not been replaced).';

create or replace function memfold.drop_vector_index_ddl(embedding_model text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_name constant text := 'memfold.' || memfold._vector_index_name(embedding_model);
begin
    if embedding_model is not null and to_regclass(v_name) is not null then
        return next 'drop index concurrently ' || v_name;
    end if;
end;
$$;
revoke all on function memfold.drop_vector_index_ddl(text) from public;
comment on function memfold.drop_vector_index_ddl(text) is
E'The statement that takes away what create_vector_index() or vector_index_ddl() has made for an embedding model, for psql''s \\gexec;
none where there is no index. Only for members of memfold_owner.';

create or replace function memfold.unregister_embedding_model(model text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before constant text := current_setting('memfold.tenant_id', true);
    v_tenant_id text;
    v_other text;
begin
    perform memfold._check_model(model, true);
    if to_regclass('memfold.' || memfold._vector_index_name(model)) is not null then
        perform memfold._fail('MF048', 'the embedding model is in use', format('%L has an index.', model),
            format(E'Drop it: select drop_vector_index_ddl(%L) \\gexec', model));
    end if;
    select m.model into v_other
    from memfold.embedding_models as m where m.replaced_by = unregister_embedding_model.model collate "C" limit 1;
    if v_other is not null then
        perform memfold._fail('MF048', 'the embedding model is in use', format('%L was replaced by it.', v_other),
            'Unregister that one first.');
    end if;
    for v_tenant_id in select t.id from memfold._tenants() as t (id) loop
        perform set_config('memfold.tenant_id', v_tenant_id, true);
        if exists (
            select from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id collate "C" and v.model = unregister_embedding_model.model collate "C"
        ) then
            perform memfold._fail('MF048', 'the embedding model is in use',
                format('Tenant %L has vectors of %L.', v_tenant_id, model),
                'Drop them by drop_embeddings(), or run: memfold reembed --drop');
        end if;
    end loop;
    perform set_config('memfold.tenant_id', coalesce(v_before, ''), true);
    delete from memfold.embedding_models as m where m.model = unregister_embedding_model.model collate "C";
end;
$$;
revoke all on function memfold.unregister_embedding_model(text) from public;
comment on function memfold.unregister_embedding_model(text) is
'Forgets an embedding model that has been replaced and has neither vectors nor an index left. Its calibrations stay, for those who
read them. Only for members of memfold_owner. Raises MF013, MF048 (it has not been replaced, or something is left of it).';
