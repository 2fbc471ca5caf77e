create or replace function memfold.embed_pending(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default null,
    max_results bigint default 32
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_due record;
    v_number bigint := 0;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', embed_pending.bucket_id, false);
    if max_results is null or max_results not between 1 and 1000 then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 1000.');
    end if;
    if not exists (select from memfold.policies as p where p.embed = 'in_database')
        -- One session at a time: all would take the same memories.
        or not pg_try_advisory_xact_lock(memfold_internal._short_hash(convert_to('embed_pending ' || tenant_id, 'UTF8')))
    then
        return 0;
    end if;
    for v_due in
        with due as (
            select m.memory_id, m.content, p.embed_model as model
            from memfold.memories as m
            cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
            where m.tenant_id = embed_pending.tenant_id collate "C" and m.embedding_pending
                and (embed_pending.bucket_id is null or m.bucket_id = embed_pending.bucket_id collate "C")
                and p.embed = 'in_database'
            order by m.memory_id
            limit max_results
        ),
        texts as (
            select d.model, array_agg(d.memory_id order by d.memory_id) as ids, array_agg(d.content order by d.memory_id) as contents
            from due as d
            group by d.model
        ),
        -- Compute all vectors before the first lock, which lasts until the end of the transaction.
        made as materialized (
            select t.ids[v.place] as memory_id, t.model, v.embedding
            from texts as t
            cross join lateral memfold_internal._vectors(t.contents, t.model) as v
        )
        select m.* from made as m order by m.memory_id
    loop
        perform memfold.attach_embedding(v_due.memory_id, v_due.embedding, v_due.model, tenant_id);
        v_number := v_number + 1;
    end loop;
    return v_number;
end;
$$;
grant execute on function memfold.embed_pending to memfold_app;
comment on function memfold.embed_pending is
'If a policy embeds in the database, computes the vectors of memories stored without one and runs the skipped tier 2, as
attach_embedding() does: for rows of a plain INSERT, rows older than the policy, and rows stored while the maximum number of sessions held
a model. Handles at most max_results (1 to 1,000) per call, oldest first, of one bucket or of all (null), and returns how many: call it
until it returns 0. It also returns 0 if this session may not hold a model, or if another session is doing the same. Raises MF001 to
MF003, MF022, MF056 to MF059; 40001 and 40P01 as ingest_memory() does.';
