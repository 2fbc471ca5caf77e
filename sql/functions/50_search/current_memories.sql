create or replace function memfold.current_memories(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    as_of timestamptz default null,
    known_at timestamptz default null
) returns table (
    memory_id uuid, content text, memory_type text, subject text, predicate text, object text, valid_from timestamptz,
    valid_to timestamptz, repetition_count bigint, confidence double precision
)
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_bucket_id constant text collate "C" := bucket_id;
begin
    perform memfold_internal._authorize_reader(v_tenant_id);
    if coalesce(v_tenant_id, '') = '' then
        perform memfold_internal._fail('MF001', 'tenant_id is missing', 'It was neither passed nor set by memfold.tenant_id.',
            'Pass tenant_id, or set memfold.tenant_id.');
    end if;
    if coalesce(v_bucket_id, '') = '' then
        perform memfold_internal._fail('MF003', 'bucket_id is missing', format('bucket_id was %s.', quote_nullable(v_bucket_id)),
            'Pass a text that is not empty.');
    end if;
    if known_at is not null then
        return query
        select b.memory_id, b.content, b.memory_type, b.subject, b.predicate, b.object, b.valid_from, b.valid_to, b.repetition_count,
            b.confidence
        from jsonb_to_recordset(
            memfold_internal._believed_memories(v_tenant_id, v_bucket_id, coalesce(as_of, known_at), known_at)
        ) as b (
            memory_id uuid, content text, memory_type text, subject text, predicate text, object text, valid_from timestamptz,
            valid_to timestamptz, repetition_count bigint, confidence double precision
        )
        order by b.valid_from, b.memory_id;
        return;
    end if;
    return query
    select m.memory_id, m.content::text, m.memory_type::text, m.subject::text, m.predicate::text, m.object::text,
        v.valid_from, v.valid_to, k.observations - 1,
        memfold_internal._confidence(k.source_confidence, k.extractor_confidence, k.independent, p.weight_source, p.weight_extractor,
            p.weight_repetition)
    from (
        select a.* from memfold.memories as a
        where a.tenant_id = v_tenant_id and a.bucket_id = v_bucket_id and a.root_id is null and a.status = 'active'
        union all
        -- Two conditions, one for each of the two indexes that begin with tenant and bucket.
        select a.* from memfold.memories as a
        where (a.tenant_id = v_tenant_id and a.bucket_id = v_bucket_id and a.content_hash is not null
                or a.tenant_id = v_tenant_id and a.bucket_id = v_bucket_id and a.content_hash is null)
            and a.root_id is null and a.status = 'superseded' and as_of is not null
    ) as m
    cross join lateral (
        select k.on_timeline, k.first_seen, k.observations, k.independent, k.source_confidence, k.extractor_confidence,
            -- The value stated last is current even if the clock was ahead when it was stated.
            coalesce(as_of, greatest(now(), k.last_seen)) as at
        from memfold.memory_totals as k
        where k.tenant_id = v_tenant_id and k.memory_id = m.memory_id
        offset 0
    ) as k
    cross join lateral (
        select i.valid_from, i.valid_to
        from memfold.memory_intervals as i
        where k.on_timeline and i.tenant_id = m.tenant_id and i.memory_id = m.memory_id
            and i.valid_from <= k.at and (i.valid_to > k.at or i.valid_to is null)
        union all
        select k.first_seen, null
        where not k.on_timeline and k.first_seen <= k.at
    ) as v
    cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
    order by v.valid_from, m.memory_id;
end;
$$;
grant execute on function memfold.current_memories to memfold_app, memfold_auditor;
comment on function memfold.current_memories is
'Returns what was believed true at a time (null: now): values of timelines by their intervals, all other active memories from their first
observation on, none outside its validity. known_at null: by what is known today; merges, rejections and late arrivals count as if they
had always been known. known_at: by the ledger rows recorded until then, including those undone later; as_of null is then known_at.
Content erased since is not shown. known_at derives the bucket a second time, so it takes longer, and it writes rows and rolls them back:
MF022 in a read-only transaction. valid_from, valid_to: the interval; valid_to null: still current. Raises MF001 to
MF003, MF022.';
