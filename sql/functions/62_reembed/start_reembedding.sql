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
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_model(from_model, null);
    perform memfold_internal._check_model(to_model, false);
    if from_model = to_model collate "C" then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('from_model and to_model were both %L.', to_model),
            'Register the new model under another name.');
    end if;
    select r.run_id into v_run_id
    from memfold.runs as r
    where r.tenant_id = start_reembedding.tenant_id collate "C" and r.kind = 'reembedding' and r.status = 'open'
        and r.arguments @> jsonb_build_object('from_model', from_model, 'to_model', to_model)
    order by r.run_id
    limit 1;
    if v_run_id is null then
        v_run_id := (memfold_internal._start_run(tenant_id, '*', 'reembedding',
            jsonb_build_object('from_model', from_model, 'to_model', to_model))).run_id;
    end if;
    return v_run_id;
end;
$$;
grant execute on function memfold.start_reembedding to memfold_app;
comment on function memfold.start_reembedding is
'Starts to add vectors of to_model to the memories of a tenant that have vectors of from_model, or resumes where an earlier run stopped:
records a run of kind reembedding. Then call, in a loop, missing_embeddings() for the texts to embed and add_embeddings() to store their
vectors; finally end_reembedding(). Raises MF001 to MF003, MF013, MF022, MF047 (to_model has been replaced).';

create or replace function memfold.missing_embeddings(
    from_model text,
    to_model text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    after uuid default null,
    max_results bigint default 100
) returns table (memory_id uuid, bucket_id text, content text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_after constant uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 10000.');
    end if;
    return query
    select s.memory_id, m.bucket_id::text, m.content::text
    from (
        select v.memory_id
        from memfold.memory_vectors as v
        where v.tenant_id = missing_embeddings.tenant_id collate "C" and v.model = from_model collate "C"
            and v.memory_id > v_after
            and not exists (
                select from memfold.memory_vectors as n
                where n.tenant_id = v.tenant_id and n.memory_id = v.memory_id and n.model = to_model collate "C"
                offset 0
            )
        order by v.memory_id
        limit max_results
    ) as s
    cross join lateral memfold_internal._memory(missing_embeddings.tenant_id, s.memory_id) as m
    order by s.memory_id;
end;
$$;
grant execute on function memfold.missing_embeddings to memfold_app;
comment on function memfold.missing_embeddings is
'Returns the memories of a tenant, including aliases and history, that have a vector of from_model and none of to_model, ordered by id,
with ids above after: embed their content and pass it to add_embeddings(). At most max_results, 1 to 10,000. Memories without any vector
are in pending_embeddings(). Raises MF001 to MF003, MF022.';

create or replace function memfold.reembed_status(
    from_model text,
    to_model text,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (
    old_vectors bigint, new_vectors bigint, missing bigint, pending bigint, own_thresholds bigint, run_id uuid, added bigint
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_model(m.model, null) from unnest(array[from_model, to_model]) as m (model);
    select count(*) filter (where v.model = from_model collate "C"), count(*) filter (where v.model = to_model collate "C")
    into old_vectors, new_vectors
    from memfold.memory_vectors as v where v.tenant_id = v_tenant_id;
    missing := memfold_internal._missing_count(tenant_id, from_model, to_model);
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
grant execute on function memfold.reembed_status to memfold_app;
comment on function memfold.reembed_status is
'Returns a tenant''s progress from one embedding model to another: vectors of each; missing: memories with a vector of the old one only;
pending: memories without any (attach_embedding); own_thresholds: policies whose own cosine thresholds, set for the old model, also apply
to the new one; the last run, and how many it has added. Reads the keys of all vectors of the tenant. Raises MF001 to MF003, MF013.';

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
    perform memfold_internal._authorize_tenant(tenant_id);
    r := memfold_internal._run(tenant_id, run_id);
    if r.kind <> 'reembedding' then
        perform memfold_internal._fail('MF039', 'the run is not a re-embedding', format('Run %s is of kind %s.', r.run_id, r.kind),
            'Pass the run_id that start_reembedding() returned.');
    end if;
    v_missing := memfold_internal._missing_count(r.tenant_id, r.arguments ->> 'from_model', r.arguments ->> 'to_model');
    update memfold.runs as o
    set report = o.report || jsonb_build_object('added', coalesce((o.report ->> 'added')::bigint, 0), 'missing', v_missing),
        status = case when v_missing = 0 then 'done' else o.status end,
        ended_at = case when v_missing = 0 then coalesce(o.ended_at, v_now) end
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id;
    return v_missing;
end;
$$;
grant execute on function memfold.end_reembedding to memfold_app;
comment on function memfold.end_reembedding is
'Closes a run of start_reembedding() if no memory has a vector of the old model and none of the new; returns how many do. Raises MF001 to
MF003, MF038, MF039 (a run of another kind).';

-- The number of memories with a vector of p_from_model and none of p_to_model. Reads the keys of all the tenant's vectors.
create or replace function memfold_internal._missing_count(p_tenant_id text, p_from_model text, p_to_model text) returns bigint
language sql stable
begin atomic
    select pg_catalog.count(*)
    from memfold.memory_vectors as v
    where
        v.tenant_id = p_tenant_id collate "C"
        and v.model = p_from_model collate "C"
        and not exists (
            select from memfold.memory_vectors as n
            where n.tenant_id = v.tenant_id and n.memory_id = v.memory_id and n.model = p_to_model collate "C"
        );
end;
