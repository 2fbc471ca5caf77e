-- Longer than 150 lines: one loop that widens the search until enough is left; its rounds share the page.
create or replace function memfold.search_memories(
    query_embedding vector,
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_results bigint default 10,
    memory_type text default null,
    subject text default null,
    predicate text default null,
    session_id text default null,
    metadata jsonb default null,
    min_confidence double precision default null,
    as_of timestamptz default null,
    deduplicate boolean default true,
    dedup_threshold double precision default null,
    touch boolean default null,
    show_collapsed boolean default false
) returns setof memfold.found_memory
language plpgsql volatile security definer rows 10 set search_path = pg_catalog, pg_temp
-- planning these statements anew takes longer than they do
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    -- out of range is told below
    v_most constant bigint := 48 * greatest(least(max_results, 1000), 1);
    v_fetch bigint := 3 * greatest(least(max_results, 1000), 1);
    v_types text[];
    v_rules memfold_internal.recall_rule[];
    v_rule memfold_internal.recall_rule;
    v_threshold double precision;
    v_unit memfold.memory_vectors.embedding%type;
    v_roots uuid[];
    v_ids uuid[];
    v_texts uuid[];
    v_scores double precision[];
    v_similarities double precision[];
    v_confidences double precision[];
    v_feedbacks double precision[];
    v_clusters bigint[];
    v_best bigint[];
    v_last bigint;
    v_found bigint;
    v_row memfold.found_memory;
    v_shown uuid[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    if num_nonnulls(search_memories.memory_type, search_memories.subject, search_memories.predicate,
        search_memories.session_id) > 0
    then
        perform memfold_internal._check_identifier('memory_type', search_memories.memory_type, false);
        perform memfold_internal._check_identifier('subject', search_memories.subject, false);
        perform memfold_internal._check_identifier('predicate', search_memories.predicate, false);
        perform memfold_internal._check_identifier('session_id', search_memories.session_id, false);
        select n.subject, n.predicate into subject, predicate
        from memfold_internal._resolve_names(tenant_id, bucket_id, search_memories.subject, search_memories.predicate, null) as n;
    end if;
    if query_embedding is null then
        perform memfold_internal._fail('MF022', 'the embedding is missing', 'query_embedding was null.', 'Pass the vector of the query.');
    elsif not coalesce(max_results between 1 and 1000 and coalesce(dedup_threshold, 0) between 0 and 1
        and coalesce(search_memories.min_confidence, 0) between 0 and 1, false)
    then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s, dedup_threshold %s, min_confidence %s.', coalesce(max_results::text, 'null'),
                coalesce(dedup_threshold::text, 'null'), coalesce(search_memories.min_confidence::text, 'null')),
            'max_results is 1 to 1000; dedup_threshold and min_confidence are 0 to 1, or null for the bucket''s.');
    elsif jsonb_typeof(search_memories.metadata) <> 'object' then
        perform memfold_internal._fail('MF022', 'the metadata is not an object',
            format('It is a JSON %s.', jsonb_typeof(search_memories.metadata)),
            'Pass a JSON object: memories whose metadata contain it are shown.');
    end if;
    perform memfold_internal._check_embedding(query_embedding, embedding_model);
    v_unit := memfold_internal._unit(query_embedding);
    select r.types, r.rules into v_types, v_rules from memfold_internal._recall_rules(tenant_id, bucket_id) as r;
    v_rule := v_rules[coalesce(array_position(v_types, search_memories.memory_type), 1)];
    if coalesce(deduplicate, true) then
        v_threshold := coalesce(dedup_threshold, v_rule.search_threshold, (
            select m.judge_threshold from memfold.embedding_models as m where m.model = embedding_model collate "C"
        ));
    end if;

    loop
        select n.root_ids, n.text_ids, n.similarities, n.confidences, n.feedbacks
        into v_roots, v_texts, v_similarities, v_confidences, v_feedbacks
        from memfold_internal._knn_search(tenant_id, bucket_id, v_unit, embedding_model, v_fetch,
            case when num_nulls(search_memories.memory_type, search_memories.subject, search_memories.predicate) = 0
                then memfold_internal._scope_key(bucket_id, search_memories.memory_type, search_memories.subject,
                    search_memories.predicate) end,
            search_memories.memory_type, memfold.canonicalize(search_memories.subject, 'prose/1'),
            memfold_internal._predicate_1(search_memories.predicate), search_memories.session_id, search_memories.metadata,
            search_memories.min_confidence, coalesce(as_of, now()), as_of, v_types, v_rules) as n;
        select array_agg(r.id), array_agg(r.text_id), array_agg(r.score), array_agg(r.similarity), array_agg(r.confidence)
        into v_ids, v_texts, v_scores, v_similarities, v_confidences
        from (
            -- a root once, by the best of its texts, its own where none is nearer
            select b.*,
                (1 - v_rule.rank_confidence - v_rule.rank_feedback) * b.similarity
                    + v_rule.rank_confidence * b.confidence + v_rule.rank_feedback * b.feedback as score
            from (
                select distinct on (f.id) f.*
                from unnest(v_roots, v_texts, v_similarities, v_confidences, v_feedbacks)
                    as f (id, text_id, similarity, confidence, feedback)
                order by f.id, f.similarity desc, f.text_id <> f.id, f.text_id
            ) as b
            order by score desc, b.similarity desc, b.id
        ) as r;
        if v_ids is null then
            return;
        end if;
        v_clusters := array(select generate_subscripts(v_ids, 1));
        v_best := v_clusters;
        if v_threshold is not null and cardinality(v_ids) > 1 then
            select c.clusters, c.best into v_clusters, v_best
            from memfold_internal._recall_clusters(tenant_id, v_ids, v_confidences, embedding_model, v_threshold, v_rule.guard) as c;
        end if;
        select max(c.cluster), count(*) into v_last, v_found
        from (
            select distinct u.cluster from unnest(v_clusters) as u (cluster) order by 1 limit max_results
        ) as c;
        exit when v_found = max_results or cardinality(v_roots) < v_fetch or v_fetch >= v_most;
        v_fetch := 4 * v_fetch;
    end loop;

    for v_row in
        select i.id, m.content, m.memory_type, m.subject, m.predicate, m.object,
            case when show_collapsed then i.score else v_scores[i.cluster] end,
            case when i.text_id = i.id then i.similarity else (
                select memfold_internal._similarity(v.embedding, v_unit) from memfold.memory_vectors as v
                where v.tenant_id = v_tenant_id and v.memory_id = i.id
                    and v.model = search_memories.embedding_model collate "C"
            ) end,
            i.text_id, i.similarity, i.confidence,
            k.observations - 1, m.metadata, m.session_id, k.first_seen, k.last_seen, o.ids, cardinality(o.ids),
            case when i.best <> i.place then v_ids[i.best] end,
            case when i.text_id = i.id then m.content else (
                select t.content from memfold.memories as t where t.tenant_id = v_tenant_id and t.memory_id = i.text_id
            ) end
        from unnest(v_ids, v_texts, v_scores, v_similarities, v_confidences, v_clusters, v_best) with ordinality
            as i (id, text_id, score, similarity, confidence, cluster, best, place)
        cross join lateral (
            select t.content, t.memory_type, t.subject, t.predicate, t.object, t.metadata, t.session_id
            from memfold.memories as t
            where t.tenant_id = v_tenant_id and t.memory_id = i.id
            offset 0
        ) as m
        cross join lateral (
            select c.observations, c.first_seen, c.last_seen from memfold.memory_totals as c
            where c.tenant_id = v_tenant_id and c.memory_id = i.id
            offset 0
        ) as k
        cross join lateral (
            select array(
                select v_ids[f.place] from unnest(v_best) with ordinality as f (best, place)
                where f.best = i.place and f.place <> i.place
                order by f.place
            ) as ids
            offset 0
        ) as o
        where i.cluster <= v_last and (show_collapsed or i.best = i.place)
        order by i.cluster, i.best <> i.place, i.place
    loop
        return next v_row;
        if v_row.collapsed_into is null then
            v_shown := v_shown || v_row.memory_id;
        end if;
    end loop;

    -- A replica cannot, and a look into the past is no use.
    if coalesce(search_memories.touch,
        v_rule.touch and as_of is null and current_setting('transaction_read_only') = 'off')
    then
        -- what others are writing to is passed over: a count less, and nobody waits
        update memfold.memory_counters as k
        set access_count = k.access_count + 1, last_accessed = now()
        from (
            select c.memory_id from memfold.memory_counters as c
            where c.tenant_id = v_tenant_id and c.memory_id = any(v_shown)
            order by c.memory_id
            for no key update skip locked
        ) as l
        where k.tenant_id = v_tenant_id and k.memory_id = l.memory_id;
    end if;
end;
$$;
revoke all on function memfold.search_memories(
    vector, text, text, text, bigint, text, text, text, text, jsonb, double precision, timestamptz, boolean, double
    precision, boolean, boolean
) from public;
grant execute on function memfold.search_memories(
    vector, text, text, text, bigint, text, text, text, text, jsonb, double precision, timestamptz, boolean, double
    precision, boolean, boolean
) to memfold_app;
comment on function memfold.search_memories(
    vector, text, text, text, bigint, text, text, text, text, jsonb, double precision, timestamptz, boolean, double
    precision, boolean, boolean
) is
'The active memories nearest to a query''s vector, best first, each fact once. Candidates are the 3 * max_results nearest
texts that pass the filters (null: none; subject and predicate in canonical form, metadata contained, min_confidence: the
options''); a text that was folded leads to its memory (matched_id). They are ranked by score = (1 - rank_confidence - rank_feedback) *
matched_similarity + rank_confidence * effective confidence + rank_feedback * (helpful + 1) / (helpful + harmful + 2). Then, unless
deduplicate is false, memories that say the same are shown as one: cosine of at least dedup_threshold (null: the options''
search_threshold, else the model''s judge threshold) with each other, the guard clean, same predicate, no other subject or
object, not judged contradiction or distinct. Shown is the longest in canonical form, then the most confident, then the newest;
the others are its collapsed_ids (show_collapsed: rows of their own, after it, all with their own score). Where too few are left, it looks
further, at up to 48 * max_results. Exact up to 10,000 vectors; of larger buckets by an index (create_vector_index), else
their newest 10,000; exact, however many, of one session_id, and with as_of: what was believed at that time, values that were
superseded since included, confidence as of then. touch (null: the options'', unless as_of is given or the transaction is read-only): counts
what is shown in access_count and last_accessed. Raises MF001 to MF003, MF012 to MF015, MF022.';

create or replace function memfold_internal._recall_clusters(
    tenant_id text, memory_ids uuid[], confidences double precision[], embedding_model text, threshold double precision,
    guard text,
    out clusters bigint[], out best bigint[]
)
language plpgsql stable
as $$
declare
    v_later bigint[];
    v_earlier bigint[];
    v_near record;
    v_cluster bigint;
    v_members bigint[];
    v_member bigint;
    v_clean boolean;
    v_folded bigint[];
begin
    clusters := array(select pg_catalog.generate_subscripts(memory_ids, 1));
    best := clusters;
    with c as materialized (
        select i.place, v.embedding
        from unnest(memory_ids) with ordinality as i (id, place)
        cross join lateral (
            select w.embedding from memfold.memory_vectors as w
            where w.tenant_id = _recall_clusters.tenant_id collate "C" and w.memory_id = i.id
                and w.model = embedding_model collate "C"
            offset 0
        ) as v
    )
    select array_agg(b.place), array_agg(a.place) into v_later, v_earlier
    from c as a
    join c as b on b.place > a.place
    where memfold_internal._similarity(a.embedding, b.embedding) >= threshold;
    if v_later is null then
        return;
    end if;

    for v_near in
        with c as materialized (
            select i.place, m.memory_id, m.content, memfold_internal._prose_1(m.subject) as subject,
                memfold_internal._predicate_1(m.predicate) as predicate, memfold_internal._prose_1(m.object) as object,
                m.object as given_object, m.scope_key, k.on_timeline
            from (select distinct u.place from unnest(v_later || v_earlier) as u (place)) as i
            cross join lateral (
                select t.memory_id, t.content, t.subject, t.predicate, t.object, t.scope_key from memfold.memories as t
                where t.tenant_id = _recall_clusters.tenant_id collate "C" and t.memory_id = memory_ids[i.place]
                offset 0
            ) as m
            cross join lateral (
                select t.on_timeline from memfold.memory_totals as t
                where t.tenant_id = _recall_clusters.tenant_id collate "C" and t.memory_id = memory_ids[i.place]
                offset 0
            ) as k
        ),
        -- by any of their texts; a judgement about two of them has its newer side among these
        judged as materialized (
            select c.memory_id as id, o.root as other
            from c
            cross join lateral (
                select c.memory_id as id
                union all
                select a.memory_id from memfold.memories as a
                where a.tenant_id = _recall_clusters.tenant_id collate "C" and a.root_id = c.memory_id
                offset 0
            ) as t
            cross join lateral (
                select j.other_id from memfold.judgements as j
                where j.tenant_id = _recall_clusters.tenant_id collate "C" and j.memory_id = t.id
                    and j.status = 'done' and j.verdict in ('contradiction', 'distinct')
                offset 0
            ) as j
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root from memfold.memories as m
                where m.tenant_id = _recall_clusters.tenant_id collate "C" and m.memory_id = j.other_id
                offset 0
            ) as o
        ),
        -- told apart from the same one, in one cluster
        told as materialized (
            select c.memory_id as id, j.cluster_id
            from c
            cross join lateral (
                select j.cluster_id from memfold.judgements as j
                where j.tenant_id = _recall_clusters.tenant_id collate "C" and j.memory_id = c.memory_id
                    and j.cluster_id is not null and j.status = 'done' and j.verdict in ('contradiction', 'distinct')
                offset 0
            ) as j
        )
        select b.place, b.content, b.given_object as object,
            array_agg(a.place) as places, array_agg(a.content) as contents, array_agg(a.given_object) as objects
        from unnest(v_later, v_earlier) as p (later, earlier)
        join c as a on a.place = p.earlier
        join c as b on b.place = p.later
        where a.predicate is not distinct from b.predicate
            and (a.subject <> b.subject) is not true
            and (a.object <> b.object) is not true
            -- two answers to one question are two, unless they are known to be the same answer
            and not (a.scope_key = b.scope_key and (a.object = b.object) is not true
                and (a.on_timeline and b.on_timeline
                    or a.predicate is not null and memfold_internal._is_single(_recall_clusters.tenant_id, a.predicate)))
            and not exists (
                select from judged as j
                where j.id in (a.memory_id, b.memory_id) and j.other in (a.memory_id, b.memory_id)
            )
            and not exists (
                select from told as t join told as u on u.cluster_id = t.cluster_id
                where t.id = a.memory_id and u.id = b.memory_id
            )
        group by b.place, b.content, b.given_object
        order by b.place
    loop
        for v_cluster in select distinct clusters[u.place] from unnest(v_near.places) as u (place) order by 1 loop
            v_members := array_positions(clusters, v_cluster);
            v_clean := v_members <@ v_near.places;
            if v_clean and guard = 'on' then
                foreach v_member in array v_members loop
                    v_clean := memfold_internal._guard_pair(tenant_id, v_near.content,
                        v_near.contents[array_position(v_near.places, v_member)], v_near.object,
                        v_near.objects[array_position(v_near.places, v_member)]) = '{}';
                    exit when not v_clean;
                end loop;
            end if;
            if v_clean then
                clusters[v_near.place] := v_cluster;
                v_folded := v_folded || v_cluster;
                exit;
            end if;
        end loop;
    end loop;
    if v_folded is not null then
        best := array(
            select pg_catalog.first_value(u.place) over (partition by u.cluster
                order by m.completeness desc, u.confidence desc, m.last_seen desc, u.id desc)
            from unnest(clusters, memory_ids, confidences) with ordinality as u (cluster, id, confidence, place)
            left join lateral (
                select pg_catalog.length(memfold_internal._prose_1(t.content)) as completeness, k.last_seen
                from memfold.memories as t
                join memfold.memory_totals as k on k.tenant_id = t.tenant_id and k.memory_id = t.memory_id
                where t.tenant_id = _recall_clusters.tenant_id collate "C" and t.memory_id = u.id
                    and u.cluster = any(v_folded)
                offset 0
            ) as m on true
            order by u.place
        );
    end if;
end;
$$;
revoke all on function memfold_internal._recall_clusters(text, uuid[], double precision[], text, double precision, text) from public;
comment on function memfold_internal._recall_clusters(text, uuid[], double precision[], text, double precision, text) is
'For each of these roots, in order of rank: the place of the best-ranked one that says the same (its own, or that of the first
cluster all of whose members say the same as it), and the place of the one of them that is shown. Only reads.';
