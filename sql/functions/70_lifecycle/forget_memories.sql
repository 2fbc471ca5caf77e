-- The memories that forget_memories() forgets, at most 1,001, with the best cosine of their texts to p_embedding. Only reads.
create or replace function memfold_internal._forgettable(
    p_tenant_id text, p_bucket_id text, p_subject text, p_predicate text, p_embedding vector, p_embedding_model text,
    p_min_similarity double precision
) returns table (memory_id uuid, similarity double precision)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_names constant record := memfold_internal._resolve_names(p_tenant_id, p_bucket_id, p_subject, p_predicate, '');
    v_subject constant text collate "C" := memfold.canonicalize(v_names.subject, 'prose/1');
    v_predicate constant text collate "C" := memfold_internal._predicate_1(v_names.predicate);
begin
    return query
    select m.memory_id, t.similarity
    from memfold.memories as m
    left join lateral (
        select max(memfold_internal._similarity(v.embedding, p_embedding)) as similarity
        from memfold.memories as a
        join memfold.memory_vectors as v on v.tenant_id = a.tenant_id and v.memory_id = a.memory_id
            and v.model = p_embedding_model collate "C"
        where p_embedding is not null and a.tenant_id = m.tenant_id
            and (a.memory_id = m.memory_id or a.root_id = m.memory_id)
        offset 0
    ) as t on true
    where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
        and m.root_id is null and m.status in ('active', 'superseded')
        and (v_subject is null or memfold.canonicalize(m.subject, 'prose/1') = v_subject)
        and (v_predicate is null or memfold_internal._predicate_1(m.predicate) = v_predicate)
        and (p_embedding is null or t.similarity >= p_min_similarity)
    order by t.similarity desc nulls last, m.memory_id
    limit 1001;
end;
$$;

create or replace function memfold.forget_memories(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    subject text default null,
    predicate text default null,
    query_embedding vector default null,
    embedding_model text default null,
    min_similarity double precision default null,
    erase boolean default false,
    dry_run boolean default true,
    reason text default null
) returns setof memfold.forgotten_memory
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_unit memfold.memory_vectors.embedding%type;
    v_ids uuid[];
    v_similarities double precision[];
    v_rivalry memfold_internal.rivalry;
    v_found memfold.memories[];
    v_run memfold.runs;
    j memfold.judgements;
    v_id uuid;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('subject', forget_memories.subject, false);
    perform memfold_internal._check_identifier('predicate', forget_memories.predicate, false);
    if num_nonnulls(forget_memories.subject, query_embedding) = 0 or num_nonnulls(query_embedding, min_similarity) = 1
        or not coalesce(min_similarity, 0) between 0 and 1 or num_nulls(erase, dry_run) > 0
    then
        perform memfold_internal._fail('MF022', 'it is not clear what to forget',
            format('subject was %s, query_embedding %s, min_similarity %s, erase %s, dry_run %s.', quote_nullable(forget_memories.subject),
                case when query_embedding is null then 'null' else 'a vector' end, coalesce(min_similarity::text, 'null'),
                coalesce(erase::text, 'null'), coalesce(dry_run::text, 'null')),
            'Name a subject, and a predicate if only that is meant; or pass query_embedding with min_similarity (0 to 1); or both.');
    end if;
    if not dry_run and not has_function_privilege(memfold_internal._actor(), 'memfold.erase_memory(uuid, text, text)', 'execute') then
        perform memfold_internal._fail('42501', 'permission denied to forget many memories at once',
            format('Role %s may only preview it.', memfold_internal._actor()), 'Reject each of them with reject_memory().');
    end if;
    if query_embedding is not null then
        perform memfold_internal._check_embedding(query_embedding, embedding_model);
        v_unit := memfold_internal._unit(query_embedding);
    end if;
    if not dry_run then
        perform memfold_internal._lock(tenant_id, bucket_id, null, true);
    end if;
    select coalesce(array_agg(f.memory_id), '{}'), array_agg(f.similarity) into v_ids, v_similarities
    from memfold_internal._forgettable(tenant_id, bucket_id, forget_memories.subject, forget_memories.predicate, v_unit, embedding_model,
        min_similarity) as f;
    if cardinality(v_ids) > 1000 then
        perform memfold_internal._fail('MF022', 'too much to forget in one call', 'More than 1,000 memories match.',
            'Pass a predicate or a higher min_similarity. erase_bucket() erases a whole bucket.');
    end if;
    v_found := array(
        select m from unnest(v_ids) with ordinality as i (id, place)
        cross join lateral memfold_internal._memory(tenant_id, i.id) as m order by i.place
    );
    if not dry_run and v_ids <> '{}' then
        perform memfold_internal._lock_erased(tenant_id, memfold_internal._trees(tenant_id, v_ids));
        v_rivalry := memfold_internal._rivalry(tenant_id, v_ids);
        if not erase then
            v_run := memfold_internal._start_run(tenant_id, bucket_id, 'forgetting', jsonb_build_object(
                'subject', forget_memories.subject, 'predicate', forget_memories.predicate, 'min_similarity', min_similarity));
            j := memfold_internal._person(tenant_id, bucket_id, reason);
            j.run_id := v_run.run_id;
        end if;
        foreach v_id in array array(select i.id from unnest(v_ids) as i (id) order by i.id) loop
            if erase then
                perform memfold.erase_memory(v_id, tenant_id, reason);
            else
                perform memfold_internal._record_relation(j, 'rejected', v_id, null, null, null);
            end if;
        end loop;
        if not erase then
            perform memfold_internal._end_run(tenant_id, v_run.run_id, '{}');
        end if;
    end if;
    return query
    select v_run.run_id, m.memory_id, case when erase then 'erased' else 'rejected' end, m.subject::text, m.predicate::text, m.content::text,
        v_similarities[m.ordinality]
    from unnest(v_found) with ordinality as m;
    return query
    select v_run.run_id, m.memory_id, 'current again', m.subject::text, m.predicate::text, m.content::text, null::double precision
    from unnest(memfold_internal._current_again(tenant_id, v_rivalry)) as i (id)
    cross join lateral memfold_internal._memory(tenant_id, i.id) as m;
end;
$$;
grant execute on function memfold.forget_memories to memfold_app;
comment on function memfold.forget_memories is
'Forgets all memories of a bucket about a subject (and predicate; linked names count), current and former values; or those with a text at
least as near to a query (query_embedding of embedding_model) as min_similarity, a cosine in [0, 1]; or, given both, those that match both.
Each is rejected as by reject_memory(), in one run (runs, kind forgetting) that undo_run() undoes as a whole; with erase, each is erased as
by erase_memory(), for good. dry_run (the default) returns what it would forget (run_id null) and changes nothing. action: rejected or
erased, the nearest first; then current again, for values that became current as a result. At most 1,000 memories per call. A member of
memfold_agent may only preview it (42501), and must reject memories one by one. Raises MF001 to MF003, MF012 to MF015, MF022, MF025.';
