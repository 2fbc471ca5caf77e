-- "ROLE at TIME" of the last ledger row of the newest text that has a vector of p_embedding_model and none of
-- p_replaced_by, for an error message. Only reads.
create or replace function memfold_internal._last_sender(p_tenant_id text, p_embedding_model text, p_replaced_by text) returns text
language plpgsql stable
as $$
begin
    return (
        select format('%s at %s', e.actor, e.recorded_at::timestamptz(0))
        from memfold.memory_vectors as v
        cross join lateral (
            select e.actor, e.recorded_at from memfold.memory_events as e
            where e.tenant_id = v.tenant_id and e.memory_id = v.memory_id
            order by e.event_id desc
            limit 1
        ) as e
        where v.tenant_id = p_tenant_id collate "C" and v.model = p_embedding_model collate "C" and not exists (
            select from memfold.memory_vectors as n
            where n.tenant_id = v.tenant_id and n.memory_id = v.memory_id and n.model = p_replaced_by collate "C"
        )
        order by v.memory_id desc
        limit 1
    );
end;
$$;

create or replace function memfold.replace_embedding_model(embedding_model text, replaced_by text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before constant text := current_setting('memfold.tenant_id', true);
    v_tenant_id text;
    v_missing bigint;
begin
    perform memfold_internal._check_model(embedding_model, null);
    if replaced_by is null then
        update memfold.embedding_models as m
        set replaced_by = null, replaced_at = null
        where m.model = replace_embedding_model.embedding_model collate "C";
        return;
    elsif replaced_by = embedding_model collate "C" then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('Model %L cannot replace itself.', embedding_model),
            'Pass the new model, or null to use the old one again.');
    end if;
    perform memfold_internal._check_model(replaced_by, false);
    for v_tenant_id in select t.id from memfold.tenants() as t (id) loop
        perform set_config('memfold.tenant_id', v_tenant_id, true);
        v_missing := memfold_internal._missing_count(v_tenant_id, embedding_model, replaced_by);
        if v_missing > 0 then
            perform memfold_internal._fail('MF046', 'memories have no vector of the new model',
                format('Tenant %L has %s with a vector of %L but not of %L; the last was stated by %s.', v_tenant_id, v_missing,
                    embedding_model, replaced_by, memfold_internal._last_sender(v_tenant_id, embedding_model, replaced_by)),
                format('Run: memfold reembed --from %1$s --to %2$s. If that does not help, this caller still sends vectors of %1$s.',
                    embedding_model, replaced_by));
        end if;
    end loop;
    perform set_config('memfold.tenant_id', coalesce(v_before, ''), true);
    update memfold.embedding_models as m
    set replaced_by = replace_embedding_model.replaced_by, replaced_at = memfold_internal._clock()
    where m.model = replace_embedding_model.embedding_model collate "C"
        and m.replaced_by is distinct from replace_embedding_model.replaced_by;
end;
$$;
comment on function memfold.replace_embedding_model is
'Cuts over to another embedding model, for all tenants: from now on vectors of embedding_model are refused (MF047), in ingest and in
search, and its stored ones may be dropped. Until then both models are accepted. replaced_by null reverts it. Only for members of
memfold_owner. Raises MF013, MF022, MF046 (some memories have a vector of embedding_model but not of replaced_by), MF047 (replaced_by is
itself replaced).';

create or replace function memfold.drop_embeddings(
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    after uuid default null,
    max_results bigint default 1000,
    inout run_id uuid default null,
    out dropped bigint,
    out last_id uuid
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_model constant text collate "C" := embedding_model;
    v_after constant uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
    v_ids uuid[];
    v_bare bigint;
    r memfold.runs;
    v_now constant timestamptz := clock_timestamp();
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_model(embedding_model, true);
    if not coalesce(max_results between 1 and 100000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 100000.');
    end if;
    if run_id is not null then
        r := memfold_internal._run(tenant_id, run_id);
        if r.kind <> 'dropping' then
            perform memfold_internal._fail('MF039', 'the run does not drop embeddings', format('Run %s is of kind %s.', r.run_id, r.kind),
                'Pass the run_id that an earlier call returned.');
        end if;
    end if;
    -- Every caller locks vectors in this order.
    select array_agg(s.memory_id order by s.memory_id) into v_ids
    from (
        select v.memory_id
        from memfold.memory_vectors as v
        where v.tenant_id = v_tenant_id and v.model = v_model
            and v.memory_id > v_after
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
        perform memfold_internal._fail('MF046', 'memories have no vector of the new model',
            format('%s of tenant %L have only a vector of %L.', v_bare, tenant_id, embedding_model),
            'Run memfold reembed again: memories were written during the change of models.');
    end if;
    delete from memfold.memory_vectors as v
    where v.tenant_id = v_tenant_id and v.memory_id = any(v_ids) and v.model = v_model;
    get diagnostics dropped = row_count;
    if run_id is null then
        run_id := (memfold_internal._start_run(tenant_id, '*', 'dropping', jsonb_build_object('embedding_model', embedding_model))).run_id;
    end if;
    update memfold.runs as o
    set report = o.report || jsonb_build_object('dropped', coalesce((o.report ->> 'dropped')::bigint, 0) + dropped),
        status = case when dropped < max_results then 'done' else o.status end,
        ended_at = case when dropped < max_results then v_now end
    where o.tenant_id = v_tenant_id and o.run_id = drop_embeddings.run_id;
end;
$$;
comment on function memfold.drop_embeddings is
'Deletes vectors of a replaced embedding model, of one tenant, at most max_results (1 to 100,000) with ids above after: dropped: how
many; last_id: the value of after for the next call. Fewer than max_results: none is left. run_id: its row in runs, of kind dropping;
pass it to the next call. Refuses if one of them is its memory''s only vector of a model in use. Only for members of memfold_owner. Raises
MF001 to MF003, MF013, MF022, MF038, MF039, MF046, MF048 (the model has not been replaced).';

create or replace function memfold.unregister_embedding_model(embedding_model text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before constant text := current_setting('memfold.tenant_id', true);
    v_tenant_id text;
    v_other text;
    v_score text;
begin
    perform memfold_internal._check_model(embedding_model, true);
    if to_regclass('memfold.' || memfold_internal._vector_index_name(embedding_model)) is not null then
        perform memfold_internal._fail('MF048', 'the embedding model is in use', format('%L has an index.', embedding_model),
            format(E'Drop it: select vector_index_ddl(%L, drop_index => true) \\gexec', embedding_model));
    end if;
    select m.model into v_other
    from memfold.embedding_models as m where m.replaced_by = unregister_embedding_model.embedding_model collate "C" limit 1;
    if v_other is not null then
        perform memfold_internal._fail('MF048', 'the embedding model is in use', format('It replaces %L.', v_other),
            'Unregister that model first.');
    end if;
    for v_tenant_id in select t.id from memfold.tenants() as t (id) loop
        perform set_config('memfold.tenant_id', v_tenant_id, true);
        if exists (
            select from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id collate "C" and v.model = unregister_embedding_model.embedding_model collate "C"
        ) then
            perform memfold_internal._fail('MF048', 'the embedding model is in use',
                format('Tenant %L has vectors of %L.', v_tenant_id, embedding_model),
                'Drop them with drop_embeddings(), or run: memfold reembed --drop');
        end if;
    end loop;
    perform set_config('memfold.tenant_id', coalesce(v_before, ''), true);
    delete from memfold.embedding_models as m where m.model = unregister_embedding_model.embedding_model collate "C";
    -- Nothing calls the model's scores any more; apply_calibration() would create one again.
    for v_score in
        select p.oid::regprocedure::text
        from memfold.calibrations as c
        join pg_proc as p
            on p.proname = memfold_internal._score_name(c.calibration_id) and p.pronamespace = 'memfold_internal'::regnamespace
        where c.model = unregister_embedding_model.embedding_model collate "C"
    loop
        execute 'drop function ' || v_score;
    end loop;
end;
$$;
comment on function memfold.unregister_embedding_model is
'Removes an embedding model that has been replaced and has neither vectors nor an index left, with the functions that apply_calibration()
created for it. Its calibrations remain readable. Only for members of memfold_owner. Raises MF013, MF048 (it has not been replaced, or has
vectors or an index left).';
