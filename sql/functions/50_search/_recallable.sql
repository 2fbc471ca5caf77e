-- The root of a text, with its effective confidence at p_at and its feedback in (0, 1); no row unless the root is current
-- then and passes the filters (null: no filter; p_subject and p_predicate are canonical). p_types, p_rules: from
-- _recall_rules(). Inlined, so that scans of vectors continue until enough texts have passed. Only reads.
create or replace function memfold_internal._recallable(
    p_tenant_id text, p_memory_id uuid, p_memory_type text, p_subject text, p_predicate text, p_session_id text, p_metadata jsonb,
    p_metadata_path jsonpath, p_min_confidence double precision, p_at timestamptz, p_as_of timestamptz, p_types text[],
    p_rules memfold_internal.recall_rule[]
) returns table (root_id uuid, confidence double precision, feedback double precision)
language sql stable rows 1
-- The body is a text because a view that it reads is dropped while Citus distributes tables.
as $$
    select r.memory_id, e.confidence, (k.helpful_count + 1)::double precision / (k.helpful_count + k.harmful_count + 2)
    from (
        select memfold_internal._root(m.memory_id, m.root_id) as id
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id
        offset 0
    ) as t
    cross join
        lateral (
            select m.memory_id, m.memory_type, m.subject, m.predicate, m.session_id, m.metadata, m.status
            from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.memory_id = t.id
            offset 0
        ) as r
    cross join
        lateral (
            select
                c.on_timeline, c.independent, c.source_confidence, c.extractor_confidence, c.first_seen, c.last_seen,
                c.last_accessed, c.helpful_count, c.harmful_count
            from memfold.memory_totals as c
            where c.tenant_id = p_tenant_id collate "C" and c.memory_id = t.id
            offset 0
        ) as k
    cross join
        lateral (
            select p_rules[coalesce(array_position(p_types, r.memory_type), 1)] as p
            where true
            offset 0
        ) as q
    cross join
        lateral (
            select
                memfold_internal._confidence(
                    k.source_confidence, k.extractor_confidence, k.independent,
                    (q.p).weight_source, (q.p).weight_extractor, (q.p).weight_repetition
                ) as confidence,
                greatest(k.last_accessed, k.last_seen) as last_used,
                case when r.memory_type = any((q.p).protected_types) then 0 else (q.p).decay_rate end as decay_rate,
                (q.p).decay_floor,
                (q.p).decay_interval,
                coalesce(p_min_confidence, (q.p).min_confidence) as least_confidence
            where true
            offset 0
        ) as c
    cross join
        lateral (
            select
                memfold_internal._effective(c.confidence, c.last_used, p_at, c.decay_rate, c.decay_floor, c.decay_interval) as confidence
            where true
            offset 0
        ) as e
    where
        case
            when p_as_of is null then r.status = 'active'
            else r.status in ('active', 'superseded')
        end
        and case
            when not k.on_timeline then p_as_of is null or k.first_seen <= p_as_of
            else exists (
                select
                from memfold.memory_intervals as i
                where
                    i.tenant_id = p_tenant_id collate "C" and i.memory_id = r.memory_id
                    -- The value stated last is current even if the clock was ahead when it was stated.
                    and i.valid_from <= coalesce(p_as_of, greatest(p_at, k.last_seen))
                    and (i.valid_to > coalesce(p_as_of, greatest(p_at, k.last_seen)) or i.valid_to is null)
            )
        end
        and (p_memory_type is null or r.memory_type = p_memory_type collate "C")
        and (p_session_id is null or r.session_id = p_session_id collate "C")
        and (p_subject is null or memfold_internal._prose_1(r.subject) = p_subject collate "C")
        and (p_predicate is null or memfold_internal._predicate_1(r.predicate) = p_predicate collate "C")
        and (p_metadata is null or r.metadata @> p_metadata)
        and (p_metadata_path is null or r.metadata @@ p_metadata_path)
        -- Rounding errors must not decide at a threshold.
        and e.confidence >= c.least_confidence - 1e-9
    offset 0;
$$;
