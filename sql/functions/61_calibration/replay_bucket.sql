-- Copies a bucket's own policies and links to another bucket.
create or replace function memfold_internal._copy_rules(p_tenant_id text, p_bucket_id text, p_into_bucket text) returns void
language plpgsql volatile
as $$
declare
    p memfold.policies;
    l memfold.links;
begin
    for p in
        select o.* from memfold.policies as o
        where o.tenant_id = p_tenant_id collate "C" and o.bucket_id = p_bucket_id collate "C"
    loop
        p.bucket_id := p_into_bucket;
        p.rehash_run := null;
        insert into memfold.policies select (p).*;
    end loop;
    for l in
        select o.* from memfold.links as o
        where o.tenant_id = p_tenant_id collate "C" and o.bucket_id = p_bucket_id collate "C"
    loop
        l.bucket_id := p_into_bucket;
        insert into memfold.links select (l).*;
    end loop;
end;
$$;

-- Ingests the newest p_max_memories texts of a bucket into another bucket, oldest first, and returns the outcome of each.
-- other_id: the text that it was decided against, by its id in the first bucket.
create or replace function memfold_internal._replay(
    p_tenant_id text, p_bucket_id text, p_into_bucket text, p_embedding_model text, p_max_memories bigint
) returns table (memory_id uuid, other_id uuid, action text, similarity double precision, guard text[], reason text)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    m record;
    r memfold.ingest_result;
begin
    for m in
        select s.*
        from (
            select o.memory_id, o.content, o.memory_type, o.subject, o.predicate, o.object, o.session_id, v.embedding,
                o.metadata
            from memfold.memories as o
            join memfold.memory_vectors as v on v.tenant_id = o.tenant_id and v.memory_id = o.memory_id
            where o.tenant_id = p_tenant_id collate "C" and o.bucket_id = p_bucket_id collate "C"
                and o.content_hash is not null and v.model = p_embedding_model collate "C"
            order by o.memory_id desc
            limit p_max_memories
        ) as s
        order by s.memory_id
    loop
        r := memfold.ingest_memory(
            m.content, p_tenant_id, bucket_id => p_into_bucket, memory_type => m.memory_type, subject => m.subject,
            predicate => m.predicate, object => m.object, session_id => m.session_id, embedding => m.embedding,
            embedding_model => p_embedding_model,
            metadata => memfold_internal._first_metadata(p_tenant_id, m.memory_id, m.metadata)
        );
        return query
        select m.memory_id, (
                select o.memory_id from memfold.memories as o
                where o.tenant_id = e.tenant_id and o.bucket_id = p_bucket_id collate "C" and o.content_hash = t.content_hash
            ), r.action, e.similarity, coalesce(e.guard, '{}'), e.reason
        from memfold.memory_events as e
        left join memfold.memories as t on t.tenant_id = e.tenant_id and t.memory_id = e.target_id
        where e.tenant_id = p_tenant_id collate "C" and e.event_id = r.event_id;
    end loop;
end;
$$;

create or replace function memfold.replay_bucket(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    calibration_id uuid default null,
    embedding_model text default null,
    max_memories bigint default 10000
) returns table (memory_id uuid, other_id uuid, action text, similarity double precision, guard text[], reason text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_model text;
    v_bucket constant text := 'replay ' || memfold_internal._new_id();
    v_told jsonb;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    v_model := memfold_internal._maintenance_model(tenant_id, bucket_id, embedding_model);
    if not coalesce(max_memories between 1 and 100000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_memories was %s.', max_memories),
            'max_memories is 1 to 100000.');
    end if;
    begin
        if calibration_id is not null then
            perform memfold.apply_calibration(calibration_id);
        end if;
        perform memfold_internal._copy_rules(tenant_id, bucket_id, v_bucket);
        select jsonb_agg(r order by r.memory_id) into v_told
        from memfold_internal._replay(tenant_id, bucket_id, v_bucket, v_model, max_memories) as r;
        -- Roll back all rows; variables keep their values.
        raise exception using errcode = 'MFROL';
    exception when sqlstate 'MFROL' then
        null;
    end;
    return query
    select t.memory_id, t.other_id, t.action, t.similarity, t.guard, t.reason
    from jsonb_to_recordset(coalesce(v_told, '[]'))
        as t (memory_id uuid, other_id uuid, action text, similarity double precision, guard text[], reason text)
    order by t.memory_id;
end;
$$;
comment on function memfold.replay_bucket is
'Returns what would happen to a bucket''s texts if they arrived again, in their original order, by the present rules or by a calibration
(calibration_id) that is not applied yet. Ingests them into a separate bucket and rolls everything back. Returns one row per
text: its action, the text that it was decided against (other_id), similarity, guard and reason as in the ledger; no judge is asked, so
both texts of an escalation stay active. embedding_model null: the most used one in the bucket; texts without its vector are omitted.
max_memories: only the newest texts, 1 to 100000. Only for members of memfold_owner. Raises MF001 to MF003, MF013, MF022,
MF025, MF043, MF045.';
