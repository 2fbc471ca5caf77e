-- The rows of search_memories(), from one snapshot; touches: the bucket's options count this one as used. Raises MF003,
-- MF012 to MF015, MF022. Only reads.
-- Longer than 150 lines: one loop that widens the search until enough results are left; its rounds share arguments and arrays.
create or replace function memfold_internal._search(
    p_query_embedding vector, p_embedding_model text, p_tenant_id text, p_bucket_id text, p_max_results bigint, p_memory_type text,
    p_subject text,
    p_predicate text, p_session_id text, p_metadata jsonb, p_min_confidence double precision, p_as_of timestamptz, p_deduplicate boolean,
    p_dedup_threshold double precision, p_show_collapsed boolean, p_query text, p_bucket_ids text[], p_bucket_prefix text,
    p_metadata_path jsonpath, p_min_similarity double precision
) returns table (found memfold.found_memory, touches boolean)
language plpgsql stable rows 10
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    -- p_max_results is checked below.
    v_most constant bigint := 48 * greatest(least(p_max_results, 1000), 1);
    v_fetch bigint := 3 * greatest(least(p_max_results, 1000), 1);
    v_buckets text[];
    v_settings record;
    v_model text := p_embedding_model;
    v_threshold double precision;
    v_unit memfold.memory_vectors.embedding%type;
    v_found record;
    v_ids uuid[];
    v_texts uuid[];
    v_places bigint[];
    v_scores double precision[];
    v_similarities double precision[];
    v_shares double precision[];
    v_confidences double precision[];
    v_clusters bigint[];
    v_best bigint[];
    v_last bigint;
    v_shown bigint;
    v_disputes memfold_internal.dispute[];
begin
    v_buckets := memfold_internal._search_buckets(p_tenant_id, p_bucket_id, p_bucket_ids, p_bucket_prefix);
    if num_nonnulls(p_memory_type, p_subject, p_predicate,
        p_session_id) > 0
    then
        perform memfold_internal._check_identifier('memory_type', p_memory_type, false);
        perform memfold_internal._check_identifier('subject', p_subject, false);
        perform memfold_internal._check_identifier('predicate', p_predicate, false);
        perform memfold_internal._check_identifier('session_id', p_session_id, false);
    end if;
    if p_query_embedding is null and not coalesce(p_query ~ '[^[:space:]]', false) then
        perform memfold_internal._fail('MF022', 'the query is missing',
            format('query_embedding was null, and query %s.', quote_nullable(p_query)),
            'Pass the vector of the query, its text, or both.');
    elsif not coalesce(p_max_results between 1 and 1000 and coalesce(p_dedup_threshold, 0) between 0 and 1
        and coalesce(p_min_confidence, 0) between 0 and 1 and coalesce(p_min_similarity, 0) between 0 and 1, false)
    then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s, dedup_threshold %s, min_confidence %s, min_similarity %s.', coalesce(p_max_results::text, 'null'),
                coalesce(p_dedup_threshold::text, 'null'), coalesce(p_min_confidence::text, 'null'),
                coalesce(p_min_similarity::text, 'null')),
            'max_results is 1 to 1000; min_similarity 0 to 1; dedup_threshold and min_confidence are 0 to 1, or null to use the bucket''s options.');
    elsif jsonb_typeof(p_metadata) <> 'object' then
        perform memfold_internal._fail('MF022', 'the metadata is not an object',
            format('It is a JSON %s.', jsonb_typeof(p_metadata)),
            'Pass a JSON object that the metadata of a memory must contain.');
    elsif p_metadata_path::text ~ '^(strict )?[$@]' then
        perform memfold_internal._fail('MF022', 'metadata_path is not a condition',
            format('It is the path %s, which is neither true nor false.', p_metadata_path),
            'Write a comparison, such as $.year > 2020, $.done == true or exists($.tags[*] ? (@ == "work")).');
    end if;
    if p_query_embedding is not null then
        perform memfold_internal._check_embedding(p_query_embedding, p_embedding_model);
        v_unit := memfold_internal._unit(p_query_embedding);
    elsif v_model is null then
        -- Stored vectors decide which memories are shown as one: use the only model in use, if there is just one.
        select min(m.model) into v_model from memfold.embedding_models as m where m.replaced_by is null having count(*) = 1;
    end if;
    if v_buckets = '{}' then
        return;
    end if;
    select s.* into v_settings from memfold_internal._recall_settings(p_tenant_id, v_buckets, p_memory_type) as s;
    if coalesce(p_deduplicate, true) then
        v_threshold := coalesce(p_dedup_threshold, v_settings.threshold, (
            select m.judge_threshold from memfold.embedding_models as m where m.model = v_model collate "C"
        ));
    end if;

    loop
        select c.* into v_found
        from memfold_internal._recall_candidates(p_tenant_id, v_buckets, v_unit, v_model, p_query, v_fetch,
            p_memory_type, p_subject, p_predicate, p_session_id,
            p_metadata, p_metadata_path, p_min_confidence, p_as_of) as c;
        select array_agg(r.id), array_agg(r.text_id), array_agg(r.place), array_agg(r.score), array_agg(r.similarity),
            array_agg(r.share), array_agg(r.confidence)
        into v_ids, v_texts, v_places, v_scores, v_similarities, v_shares, v_confidences
        from (
            select f.place, f.id, f.text_id, f.similarity, f.share, f.confidence,
                -- Contested values within 0.05 of the best get its score; the newest then comes first (order by).
                case when c.memory_id is not null and f.score >= max(f.score) over w - 0.05 then max(f.score) over w else f.score end as score
            from (
                select b.*, (1 - v_settings.rank_confidences[b.place] - v_settings.rank_feedbacks[b.place]) * b.fit
                        + v_settings.rank_confidences[b.place] * b.confidence + v_settings.rank_feedbacks[b.place] * b.feedback as score
                from memfold_internal._fuse(v_found.places, v_found.root_ids, v_found.text_ids, v_found.similarities, v_found.shares,
                    v_found.confidences, v_found.feedbacks, v_fetch,
                    v_unit is not null and p_query is not null) as b
            ) as f
            left join memfold_internal._contested(v_tenant_id, v_found.root_ids) as c on c.memory_id = f.id
            where p_min_similarity is null or p_min_similarity <= case when v_unit is null then f.share else coalesce(f.similarity,
                memfold_internal._stored_similarity(v_tenant_id, f.text_id, p_embedding_model, v_unit)) end
            window w as (partition by c.slot)
            order by score desc, c.last_seen desc nulls last, f.similarity desc nulls last, f.id desc
        ) as r;
        exit when v_ids is null;
        v_clusters := array(select generate_subscripts(v_ids, 1));
        v_best := v_clusters;
        if coalesce(p_deduplicate, true) and cardinality(v_ids) > 1 then
            select c.clusters, c.best into v_clusters, v_best
            from memfold_internal._recall_clusters(p_tenant_id, v_ids, v_confidences, v_model, v_threshold, v_settings.guard,
                p_max_results) as c;
        end if;
        select max(c.cluster), count(*) into v_last, v_shown
        from (
            select distinct u.cluster from unnest(v_clusters) as u (cluster) order by 1 limit p_max_results
        ) as c;
        exit when v_shown = p_max_results or not v_found.has_more or v_fetch >= v_most
            -- Some of the v_fetch best were not near enough, so none that are farther away will be.
            or p_min_similarity is not null and num_nulls(v_unit, p_query) = 1
            and cardinality(v_ids) < least(v_fetch, (select count(distinct u.id) from unnest(v_found.root_ids) as u (id)));
        v_fetch := 4 * v_fetch;
    end loop;
    if v_ids is null and p_min_similarity is not null and v_found.root_ids <> '{}' then
        raise notice 'nothing is near enough' using
            errcode = '01M02',
            detail = format('min_similarity was %s; the nearest has %s.', p_min_similarity, (
                select max(u.near) from unnest(case when v_unit is null then v_found.shares else v_found.similarities end) as u (near)
            )),
            hint = 'Lower min_similarity, or rephrase the query.';
    end if;
    if v_found.shortfalls <> '{}' then
        perform memfold_internal._notify_incomplete(v_found.shortfalls, v_model, (
            select min((memfold_internal._options(p_tenant_id, u.id, '*')).text_search) from unnest(v_buckets) as u (id)
        ));
    end if;

    if p_as_of is null then
        v_disputes := array(
            select d from memfold_internal._disputes(v_tenant_id, array(
                select i.id from unnest(v_ids, v_clusters, v_best) with ordinality as i (id, cluster, best, place)
                where i.cluster <= v_last and (p_show_collapsed or i.best = i.place)
            )) as d
        );
    end if;
    return query
    select (i.id, m.content, m.memory_type, m.subject, m.predicate, m.object,
        case when p_show_collapsed then i.score else v_scores[i.cluster] end,
        case when i.text_id = i.id and i.similarity is not null then i.similarity else memfold_internal._stored_similarity(
            v_tenant_id, i.id, p_embedding_model, v_unit) end,
        i.text_id, coalesce(i.similarity, memfold_internal._stored_similarity(
            v_tenant_id, i.text_id, p_embedding_model, v_unit)),
        i.confidence,
        k.observations - 1, m.metadata, m.session_id, k.first_seen, k.last_seen, o.ids, cardinality(o.ids),
        case when i.best <> i.place then v_ids[i.best] end,
        case when i.text_id = i.id then m.content else (
            select t.content from memfold.memories as t where t.tenant_id = v_tenant_id and t.memory_id = i.text_id
        ) end,
        m.bucket_id, i.share, v_found.shortfalls = '{}',
        case when k.on_timeline then (
            select max(t.valid_from) from memfold.memory_intervals as t
            where t.tenant_id = v_tenant_id and t.memory_id = i.id and t.valid_from <= coalesce(p_as_of, greatest(now(), k.last_seen))
        ) else k.first_seen end,
        coalesce(d.others, '{}'))::memfold.found_memory,
        i.best = i.place and v_settings.touches[i.rules]
    from unnest(v_ids, v_texts, v_places, v_scores, v_similarities, v_shares, v_confidences, v_clusters, v_best) with ordinality
        as i (id, text_id, rules, score, similarity, share, confidence, cluster, best, place)
    cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
    cross join lateral (
        select c.observations, c.first_seen, c.last_seen, c.on_timeline from memfold.memory_totals as c
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
    left join unnest(v_disputes) as d on d.memory_id = i.id
    where i.cluster <= v_last and (p_show_collapsed or i.best = i.place)
    order by i.cluster, i.best <> i.place, i.place;
end;
$$;

create or replace function memfold.search_memories(
    query_embedding vector default null,
    embedding_model text default null,
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
    show_collapsed boolean default false,
    query text default null,
    bucket_ids text[] default null,
    bucket_prefix text default null,
    metadata_path jsonpath default null,
    min_similarity double precision default null
) returns setof memfold.found_memory
language plpgsql volatile security definer rows 10 set search_path = pg_catalog, pg_temp
-- Planning these statements takes longer than executing them.
set plan_cache_mode = force_generic_plan
-- Missing statistics must not choose a scan.
set enable_seqscan = off
set jit = off
as $$
declare
    r record;
    v_touched uuid[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    for r in
        select f.found, f.touches from memfold_internal._search(
            query_embedding, embedding_model, tenant_id, bucket_id, max_results, memory_type, subject, predicate, session_id, metadata,
            min_confidence, as_of, deduplicate, dedup_threshold, show_collapsed, query, bucket_ids, bucket_prefix, metadata_path,
            min_similarity
        ) as f
    loop
        return next r.found;
        if coalesce(search_memories.touch, r.touches) and (r.found).collapsed_into is null then
            v_touched := v_touched || (r.found).memory_id;
        end if;
    end loop;
    -- A standby cannot write, and recall of the past is not a use.
    if v_touched is not null and coalesce(search_memories.touch, as_of is null and current_setting('transaction_read_only') = 'off') then
        -- Skip rows that others are writing: an inexact count is better than waiting.
        update memfold.memory_counters as k
        set access_count = k.access_count + 1, last_accessed = now()
        from (
            select c.memory_id from memfold.memory_counters as c
            where c.tenant_id = search_memories.tenant_id collate "C" and c.memory_id = any(v_touched)
            order by c.memory_id
            for no key update skip locked
        ) as l
        where k.tenant_id = search_memories.tenant_id collate "C" and k.memory_id = l.memory_id;
    end if;
end;
$$;
grant execute on function memfold.search_memories to memfold_app;
comment on function memfold.search_memories is
'Returns the active and currently valid memories (valid_from, valid_until) that best match a query, each fact once: nearest to its vector
(query_embedding), or with most of its words (query: in content, subject, predicate and object, rare words counting more, by the option
text_search), or both. For each of the two, the candidates are the 3 * max_results best texts that pass the filters (null: no filter;
subject and predicate in canonical form, metadata contained, metadata_path a jsonpath condition, min_confidence: default from the options).
A merged text returns its memory (matched_id). Searches bucket_id, or else bucket_ids and all buckets that begin with bucket_prefix, at
most 1,000. Memories are ranked by score = (1 - rank_confidence - rank_feedback) * fit + rank_confidence * effective confidence +
rank_feedback * (helpful + 1) / (helpful + harmful + 2); fit is matched_similarity, word_share, or with both 30.5 * (1 / (60 + rank by
vector) + 1 / (60 + rank by words)). If the number of values of a predicate is not declared, different values of one subject within 0.05 of
the best score get that score, the one stated last first. min_similarity: only those with at least this matched_similarity (by words only:
word_share); if there is none, a NOTICE (01M02) names the nearest. Then, unless deduplicate is false, memories that say the same are shown
as one, even across buckets: each pair has a cosine of at least dedup_threshold (null: the option search_threshold, else the model''s judge
threshold; if one has no vector, at least 0.8 of the words in common), a clean guard, the same predicate and no different subject or
object, and was not judged contradiction or distinct. The one with the longest canonical form is shown, then the most confident, then the
newest; the others are its collapsed_ids (show_collapsed: extra rows after it, each with its own score). If too few remain, it examines up
to 48 * max_results. It searches all of a bucket of up to 100,000 vectors or texts; a larger one by an index (create_vector_index, used
from 10,000 on, rarely misses one; create_text_index), else only its newest 100,000: complete is then false in each row, and a NOTICE
(01M01) names the statement that creates the index. With session_id or as_of it searches all texts, however many. as_of: what was believed
at that time, including values superseded since, with validity and confidence as of then. touch: counts what is shown in access_count and
last_accessed (null: by the options, unless as_of is given or the transaction is read-only). Raises MF001 to MF003, MF012 to MF015,
MF022.';
