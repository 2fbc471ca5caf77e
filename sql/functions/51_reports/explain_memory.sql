-- Reports: views for dashboards and monitoring, the history of a memory, and suggestions of predicates.
--
-- Everything here only reads, and takes no lock. The views are queried by the client, the page, psql and monitoring, under
-- the row-level security of the caller (security_invoker), so the functions that they call are granted to readers.
-- explain_memory() also reads as its caller.
--
-- What must stay true: metrics reads only statistics and small indexes, because monitors query it often.

-- The six features that contribute most to a pair's score (calibrations.score), as text, in log-odds; null without a score.
-- SECURITY DEFINER so that readers of memories need no right to the functions that it calls.
create or replace function memfold_internal._explain_pair(
    p_score jsonb, p_similarity double precision, p_guard text[], p_content text, p_other_content text
) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select string_agg(format('%s %s', coalesce(s.feature, 'any pair'), to_char(s.contribution, 'FMSG990.00')), ', ' order by s.place)
        from memfold_internal._explain_score(p_score, memfold_internal._pair_features(
            p_similarity, p_content, p_other_content, p_guard))
            with ordinality as s (feature, feature_value, contribution, place)
        where s.place <= 6
    );
end;
$$;
grant execute on function memfold_internal._explain_pair to memfold_app, memfold_auditor;

-- Longer than 150 lines: it writes one report, section by section.
create or replace function memfold.explain_memory(
    memory_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns setof text
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_asked constant uuid := explain_memory.memory_id;
    m record;
    r record;
    v_tree uuid[];
    v_events uuid[];
    v_count bigint;
    v_skipped boolean := false;
    v_score text;
begin
    perform memfold_internal._authorize_reader(tenant_id);
    select a.* into m
    from memfold.memory_audit as a
    where a.memory_id = v_asked
        and (a.tenant_id = explain_memory.tenant_id collate "C" or coalesce(explain_memory.tenant_id, '') = '');
    if not found then
        perform memfold_internal._fail('MF018', 'there is no such memory', format('memory_id was %s.', v_asked),
            'Pass an id that ingest_memory() returned to this tenant, and set memfold.tenant_id to the tenant.');
    end if;
    if m.root_id is not null then
        return next format('alias %s: "%s"', m.memory_id, m.content);
        return next '    is merged into';
        select a.* into strict m
        from memfold.memory_audit as a where a.tenant_id = m.tenant_id and a.memory_id = m.root_id;
    end if;

    return next format('memory %s: "%s"', m.memory_id, m.content);
    return next format('    %s, tenant %s, bucket %s, type %s%s%s%s', m.status, m.tenant_id, m.bucket_id, m.memory_type,
        ', subject ' || m.subject, ', predicate ' || m.predicate, ', object ' || m.object);
    if m.repetition_count is not null then
        return next format('    said %s, by %s independent source%s; first %s, last %s',
            case m.repetition_count when 0 then 'once' when 1 then 'twice' else m.repetition_count + 1 || ' times' end,
            m.independent_repetitions + 1, case when m.independent_repetitions > 0 then 's' end,
            m.first_seen::timestamptz(0), m.last_seen::timestamptz(0));
        return next format('    confidence %s from source %s, extractor %s, n = %s', round(m.confidence::numeric, 3),
            round(m.source_confidence::numeric, 3), round(m.extractor_confidence::numeric, 3), m.independent_repetitions);
    end if;
    return next format('    key %s', coalesce(left(encode(m.content_hash, 'hex'), 16) || '… by ' || m.canonicalizer,
        'none: not deduplicated') || case when m.embedding_pending then '; its embedding is pending' else '' end);
    if num_nonnulls(m.valid_from, m.valid_until) > 0 then
        return next '    valid' || coalesce(' from ' || m.valid_from::timestamptz(0), '') || coalesce(' until ' || m.valid_until::timestamptz(0), '')
            || case when m.valid_until <= now() then ': expired' when m.valid_from > now() then ': not yet' else '' end;
    end if;
    if m.metadata <> '{}' then
        return next format('    metadata %s', m.metadata);
    end if;

    for r in
        select i.valid_from, i.valid_to from memfold.memory_intervals as i
        where i.tenant_id = m.tenant_id and i.memory_id = m.memory_id order by i.valid_from
    loop
        return next format('    was current from %s to %s', r.valid_from::timestamptz(0),
            coalesce(r.valid_to::timestamptz(0)::text, 'now'));
    end loop;

    -- Query each column separately, for its index: with OR, missing statistics may choose a scan of the tenant.
    v_tree := m.memory_id || array(
        select a.memory_id from memfold.memories as a where a.tenant_id = m.tenant_id and a.root_id = m.memory_id
    );
    if cardinality(v_tree) > 1 then
        return next 'aliases (texts that were merged into it)';
        for r in
            select a.memory_id, a.content from memfold.memories as a
            where a.tenant_id = m.tenant_id and a.root_id = m.memory_id order by a.memory_id
        loop
            return next format('    %s: "%s"', r.memory_id, r.content);
        end loop;
    end if;

    for r in
        select distinct on (j.judgement_id) j.*, (
            select string_agg('"' || o.content || '"', ', ' order by o.memory_id)
            from unnest(coalesce(j.member_ids, array[j.memory_id, j.other_id])) as i (id)
            join memfold.memories as o on o.tenant_id = j.tenant_id and o.memory_id = i.id
            where o.memory_id <> all(v_tree)
        ) as other_contents
        from (
            select x.* from memfold.judgements as x
            where x.tenant_id = m.tenant_id and (x.memory_id = any(v_tree) or x.other_id = any(v_tree))
        ) as p
        -- Rows of cluster members are replaced by the question about the cluster.
        cross join lateral (
            select coalesce((
                select h.judgement_id from memfold.judgements as h where h.tenant_id = p.tenant_id and h.judgement_id = p.cluster_id
            ), p.judgement_id) as id
            offset 0
        ) as q
        join memfold.judgements as j on j.tenant_id = p.tenant_id and j.judgement_id = q.id
        order by j.judgement_id
    loop
        return next format('judgement %s (%s, %s): the same as %s? cosine %s%s%s', r.judgement_id, r.kind, r.status,
            r.other_contents, round(r.similarity::numeric, 4), '; guard: ' || nullif(array_to_string(r.guard, ', '), ''),
            '; verdict ' || r.verdict);
    end loop;

    v_events := array(
        select e.event_id
        from unnest(v_tree) as i (id)
        cross join lateral (
            select e.event_id from memfold.memory_events as e where e.tenant_id = m.tenant_id and e.memory_id = i.id
            union all
            select e.event_id from memfold.memory_events as e where e.tenant_id = m.tenant_id and e.target_id = i.id
            offset 0
        ) as e
        group by e.event_id
        order by e.event_id
    );
    v_count := cardinality(v_events);
    return next format('ledger (%s rows; undo(event_id) reverses one)', v_count);
    for r in
        select x.*, w.content as memory_content, t.content as target_content, a.memory_id as matched_id,
            a.content as matched_content, n.matched_similarity
        from (
            select e.*, i.n
            from unnest(v_events) with ordinality as i (id, n)
            cross join lateral (
                select e.* from memfold.ledger as e
                where e.tenant_id = m.tenant_id and e.event_id = i.id
                -- Only the primary key has this order: missing statistics must not choose another index (as in _events).
                order by e.recorded_at
                offset 0
            ) as e
            where i.n <= 15 or i.n > v_count - 15
        ) as x
        left join lateral (
            select o.content from memfold.memories as o where o.tenant_id = x.tenant_id and o.memory_id = x.memory_id offset 0
        ) as w on true
        left join lateral (
            select o.content from memfold.memories as o where o.tenant_id = x.tenant_id and o.memory_id = x.target_id offset 0
        ) as t on true
        -- The alias that was nearer than the memory that the decision is about.
        left join lateral (
            select (s.entry ->> case x.method when 'lexical' then 'jaccard_matched_id' else 'matched_id' end)::uuid as id,
                (s.entry ->> case x.method when 'lexical' then 'matched_jaccard' else 'matched_similarity' end)::numeric
                    as matched_similarity
            from jsonb_array_elements(x.similar_memories) as s (entry)
            where (s.entry ->> 'memory_id')::uuid in (x.memory_id, x.target_id)
        ) as n on x.tier = 2
        left join lateral (
            select o.memory_id, o.content from memfold.memories as o where o.tenant_id = x.tenant_id and o.memory_id = n.id offset 0
        ) as a on true
        order by x.n
    loop
        if r.n > 15 and not v_skipped and v_count > 30 then
            return next format('    … %s more …', v_count - 30);
            v_skipped := true;
        end if;
        return next format('    %s  %s  %s%s%s%s%s%s%s%s', r.event_id, r.recorded_at::timestamptz(0), rpad(r.action, 10),
            case when r.tier is not null then format(' tier %s %s', r.tier, r.method) else '' end,
            ' ' || r.verdict,
            case r.method when 'lexical' then ', Jaccard ' else ', cosine ' end
                || coalesce(round(r.similarity::numeric, 4)::text, case when r.matched_id is not null then 'unknown' end)
                || case when r.matched_id is not null
                    then format(' (%s to "%s", %s)', round(r.matched_similarity, 4), r.matched_content, r.matched_id) else '' end,
            ', guard ' || nullif(array_to_string(r.guard, ', '), ''),
            case
                when r.undoes is not null then format(' undoes %s', r.undoes)
                when not r.memory_id = any(v_tree) then format(', by "%s"', r.memory_content)
                when r.target_id <> m.memory_id then format(', against "%s"', r.target_content)
            end,
            case when r.content is not null then format(' "%s"', r.content) else '' end,
            case when r.source_turn_ids <> '{}' then ' from ' || array_to_string(r.source_turn_ids, ', ') else '' end)
            || coalesce(', valid from ' || r.valid_from::timestamptz(0), '') || coalesce(', valid until ' || r.valid_until::timestamptz(0), '')
            || case when r.undone then format('  (%s)', r.undo_state) else '' end
            || coalesce('  run ' || r.run_id, '')
            || coalesce('  reason: ' || r.reason, '');
        if r.method = 'score' then
            v_score := memfold_internal._explain_pair((
                select c.score
                from memfold.memory_vectors as v
                join memfold.embedding_models as e on e.model = v.model and e.score_function is not null
                join memfold.calibrations as c on c.calibration_id = e.calibration_id
                where v.tenant_id = m.tenant_id and v.memory_id in (r.target_id, r.matched_id)
                order by v.model
                limit 1
            ), case when r.action in ('merged', 'replaced') then r.similarity else coalesce(r.matched_similarity, r.similarity) end,
            r.guard, coalesce(r.content, r.memory_content),
            case when r.action in ('merged', 'replaced') then r.target_content
                else coalesce(r.matched_content, r.target_content) end);
            if v_score is not null then
                return next '        log-odds: ' || v_score;
            end if;
        end if;
        if r.reason like '%veto %' and r.target_content is not null then
            return next format('        words: %s', memfold_internal._veto_reasons(coalesce(r.content, r.memory_content),
                r.target_content));
        end if;
    end loop;
end;
$$;
grant execute on function memfold.explain_memory to memfold_app, memfold_auditor;
grant execute on function memfold_internal._fail to memfold_app, memfold_auditor;
comment on function memfold.explain_memory is
'Returns the whole life of a memory as readable lines: its text and state, what its confidence is made of, when it was current, its
aliases, its judgements, and its ledger (the first and the last 15 rows). For decisions by a score or the veto, it names the features that
contributed most to the score in force now. Raises MF018.';
