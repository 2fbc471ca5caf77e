-- The buckets that a search covers, sorted: p_bucket_ids and all that begin with p_bucket_prefix; p_bucket_id if neither is
-- given. Raises MF003, MF022 (more than 1,000). Only reads.
create or replace function memfold_internal._search_buckets(
    p_tenant_id text, p_bucket_id text, p_bucket_ids text[], p_bucket_prefix text
) returns text[]
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
declare
    v_bucket text;
    v_buckets text[] := array[]::text[];
begin
    if num_nonnulls(p_bucket_ids, p_bucket_prefix) = 0 then
        perform memfold_internal._check_identifier('bucket_id', p_bucket_id, true);
        return array[p_bucket_id];
    end if;
    for v_bucket in select distinct u.id from unnest(p_bucket_ids) as u (id) limit 1001 loop
        perform memfold_internal._check_identifier('bucket_ids', v_bucket, true);
        v_buckets := v_buckets || v_bucket;
    end loop;
    if p_bucket_prefix is not null then
        perform memfold_internal._check_identifier('bucket_prefix', p_bucket_prefix, true);
        v_bucket := p_bucket_prefix;
        loop
            -- The next bucket, by one lookup in each of the two indexes that begin with tenant and bucket.
            v_bucket := least(
                (select m.bucket_id from memfold.memories as m
                where m.tenant_id = p_tenant_id collate "C" and m.bucket_id >= v_bucket collate "C"
                    and m.content_hash is not null
                order by m.bucket_id limit 1),
                (select m.bucket_id from memfold.memories as m
                where m.tenant_id = p_tenant_id collate "C" and m.bucket_id >= v_bucket collate "C"
                    and m.content_hash is null
                order by m.bucket_id limit 1)
            );
            exit when v_bucket is null or not starts_with(v_bucket, p_bucket_prefix) or cardinality(v_buckets) > 1000;
            v_buckets := v_buckets || v_bucket;
            -- The successor of this name in byte order: no text contains a zero byte.
            v_bucket := v_bucket || E'\x01';
        end loop;
        v_buckets := array(select distinct u.id from unnest(v_buckets) as u (id));
    end if;
    if cardinality(v_buckets) > 1000 then
        perform memfold_internal._fail('MF022', 'too many buckets for one search',
            format('bucket_ids has %s, bucket_prefix was %s.', coalesce(cardinality(p_bucket_ids), 0), quote_nullable(p_bucket_prefix)),
            'A search covers at most 1,000 buckets: name fewer, or a longer prefix.');
    end if;
    return array(select u.id from unnest(v_buckets) as u (id) order by u.id collate "C");
end;
$$;

-- The options of a search: ranking and counting for each bucket (arrays in the order of p_bucket_ids); threshold and guard
-- for showing two memories as one, the strictest of all buckets. Only reads.
create or replace function memfold_internal._recall_settings(
    p_tenant_id text, p_bucket_ids text[], p_memory_type text,
    out rank_confidences double precision[], out rank_feedbacks double precision[], out touches boolean[],
    out threshold double precision, out guard text
)
language plpgsql stable
as $$
declare
    v_bucket text;
    v_types text[];
    v_rules memfold_internal.recall_rule[];
    v_rule memfold_internal.recall_rule;
begin
    foreach v_bucket in array p_bucket_ids loop
        select r.types, r.rules into v_types, v_rules from memfold_internal._recall_rules(p_tenant_id, v_bucket) as r;
        v_rule := v_rules[coalesce(array_position(v_types, p_memory_type), 1)];
        rank_confidences := rank_confidences || v_rule.rank_confidence;
        rank_feedbacks := rank_feedbacks || v_rule.rank_feedback;
        touches := touches || v_rule.touch;
        threshold := greatest(threshold, v_rule.search_threshold);
        guard := case when guard = 'on' then 'on' else v_rule.guard end;
    end loop;
end;
$$;

-- What a search finds before it ranks: in each bucket (places: its position) the p_max_texts texts nearest to a vector
-- (_knn_search; shares are null), and those with most of the query's words (_word_search; similarities are null).
-- has_more: a larger p_max_texts may find more. shortfalls: why some texts may be missing. Only reads.
create or replace function memfold_internal._recall_candidates(
    p_tenant_id text, p_bucket_ids text[], p_embedding vector, p_embedding_model text, p_query text, p_max_texts bigint,
    p_memory_type text, p_subject text, p_predicate text, p_session_id text, p_metadata jsonb, p_metadata_path jsonpath,
    p_min_confidence double precision, p_as_of timestamptz,
    out places bigint[], out root_ids uuid[], out text_ids uuid[], out similarities double precision[],
    out shares double precision[], out confidences double precision[], out feedbacks double precision[],
    out has_more boolean, out shortfalls text[]
)
language plpgsql stable
as $$
declare
    v_name record;
    v_subject text;
    v_predicate text;
    v_at constant timestamptz := coalesce(p_as_of, now());
    v_place bigint := 0;
    v_bucket text;
    v_rules record;
    v_found record;
    v_count bigint;
    v_near bigint := 0;
    v_said bigint := 0;
begin
    has_more := false;
    foreach v_bucket in array p_bucket_ids loop
        v_place := v_place + 1;
        select r.types, r.rules into v_rules from memfold_internal._recall_rules(p_tenant_id, v_bucket) as r;
        -- Links of names differ from bucket to bucket.
        select n.subject, n.predicate into v_name
        from memfold_internal._resolve_names(p_tenant_id, v_bucket, p_subject, p_predicate, null) as n;
        v_subject := memfold.canonicalize(v_name.subject, 'prose/1');
        v_predicate := memfold_internal._predicate_1(v_name.predicate);
        if p_embedding is not null then
            select n.* into v_found
            from memfold_internal._knn_search(p_tenant_id, v_bucket, p_embedding, p_embedding_model, p_max_texts,
                case when num_nulls(p_memory_type, p_subject, p_predicate) = 0
                    then memfold_internal._scope_key(v_bucket, p_memory_type, v_name.subject, v_name.predicate) end,
                p_memory_type, v_subject, v_predicate, p_session_id, p_metadata, p_metadata_path, p_min_confidence, v_at, p_as_of,
                v_rules.types, v_rules.rules) as n;
            v_count := coalesce(cardinality(v_found.root_ids), 0);
            places := places || array_fill(v_place, array[v_count]::integer[]);
            root_ids := root_ids || v_found.root_ids;
            text_ids := text_ids || v_found.text_ids;
            similarities := similarities || v_found.similarities;
            shares := shares || array_fill(null::double precision, array[v_count]::integer[]);
            confidences := confidences || v_found.confidences;
            feedbacks := feedbacks || v_found.feedbacks;
            has_more := has_more or v_count >= p_max_texts;
            v_near := v_near + v_count;
            shortfalls := shortfalls || v_found.shortfall;
        end if;
        if p_query is not null then
            select n.* into v_found
            from memfold_internal._word_search(p_tenant_id, v_bucket, p_query, p_max_texts, p_memory_type, v_subject, v_predicate,
                p_session_id,
                p_metadata, p_metadata_path, p_min_confidence, v_at, p_as_of, v_rules.types, v_rules.rules) as n;
            v_count := coalesce(cardinality(v_found.root_ids), 0);
            places := places || array_fill(v_place, array[v_count]::integer[]);
            root_ids := root_ids || v_found.root_ids;
            text_ids := text_ids || v_found.text_ids;
            similarities := similarities || array_fill(null::double precision, array[v_count]::integer[]);
            shares := shares || v_found.shares;
            confidences := confidences || v_found.confidences;
            feedbacks := feedbacks || v_found.feedbacks;
            has_more := has_more or v_count >= p_max_texts;
            v_said := v_said + v_count;
            shortfalls := shortfalls || v_found.shortfall;
        end if;
    end loop;
    has_more := has_more or greatest(v_near, v_said) > p_max_texts;
    shortfalls := array(select distinct s.reason from unnest(shortfalls) as s (reason) where s.reason is not null order by 1);
end;
$$;

-- Raises a NOTICE (SQLSTATE 01M01) that explains why a search has not covered everything, and what to do.
create or replace function memfold_internal._notify_incomplete(p_shortfalls text[], p_embedding_model text, p_text_search text)
returns void
language plpgsql stable
as $$
declare
    v_limit constant text := to_char(memfold_internal._search_limit(), 'FM999,999,999');
begin
    raise notice 'the search is not complete' using
        -- In the class of warnings, so that clients can recognize it.
        errcode = '01M01',
        detail = array_to_string(array[
            case when 'no_index' = any(p_shortfalls) then format(
                'A bucket has more than %s vectors and no index of model %s: only the newest were compared.',
                v_limit, p_embedding_model) end,
            case when 'scan_ended' = any(p_shortfalls) then format(
                'The scan of the index of model %s ended before enough was found; in a bucket with more than %s vectors, the newest'
                ' were compared as well.', p_embedding_model, v_limit) end,
            case when 'near_scan_ended' = any(p_shortfalls) then format(
                'The scan of the index of model %s ended before enough was found; the newest %s vectors were compared as well.',
                p_embedding_model, to_char(memfold_internal._exact_limit(), 'FM999,999,999')) end,
            case when 'no_text_index' = any(p_shortfalls) then format(
                'A bucket has more than %s texts and no index of words: only the newest were read.', v_limit) end
        ], ' '),
        hint = array_to_string(array[
            case when 'no_index' = any(p_shortfalls) then format(
                E'As a member of memfold_owner: select memfold.vector_index_ddl(%L) \\gexec', p_embedding_model) end,
            case when 'no_text_index' = any(p_shortfalls) then format(
                E'As a member of memfold_owner: select memfold.text_index_ddl(%L) \\gexec', p_text_search) end,
            case when 'scan_ended' = any(p_shortfalls) then
                'Search with fewer filters, or one session: those are searched completely.' end,
            case when 'near_scan_ended' = any(p_shortfalls) then 'Pass a memory_type to search one scope.' end
        ], '; ');
end;
$$;

-- The p_max_texts best roots of each kind from _recall_candidates(), each once, with their fit in [0, 1]: the similarity, the
-- share of words, or with both (p_is_hybrid) the sum of 1 / (60 + rank), scaled so that the first by both has 1. Only reads.
create or replace function memfold_internal._fuse(
    p_places bigint[], p_root_ids uuid[], p_text_ids uuid[], p_similarities double precision[], p_shares double precision[],
    p_confidences double precision[], p_feedbacks double precision[], p_max_texts bigint, p_is_hybrid boolean
) returns table (
    place bigint, id uuid, text_id uuid, similarity double precision, share double precision, confidence double precision,
    feedback double precision, fit double precision
)
language sql stable
begin atomic
    select
        f.place, f.id, (array_agg(f.text_id order by f.is_near desc))[1], max(f.similarity), max(f.share),
        max(f.confidence), max(f.feedback),
        case when p_is_hybrid then 30.5 * sum(1.0::double precision / (60 + f.rank)) else coalesce(max(f.similarity), max(f.share)) end
    from (
        select b.*, row_number() over (partition by b.is_near order by b.fit desc, b.id) as rank
        from (
            -- The best text of each root, for each kind; the root's own text wins ties.
            select distinct on (u.id, u.similarity is null)
                u.place, u.id, u.text_id, u.similarity, u.share, u.confidence, u.feedback,
                u.similarity is not null as is_near, coalesce(u.similarity, u.share) as fit
            from
                unnest(p_places, p_root_ids, p_text_ids, p_similarities, p_shares, p_confidences, p_feedbacks)
                    as u (place, id, text_id, similarity, share, confidence, feedback)
            order by u.id, u.similarity is null, fit desc, u.text_id <> u.id, u.text_id
        ) as b
    ) as f
    where f.rank <= p_max_texts
    group by f.place, f.id;
end;

-- The cosine of a stored text and a unit vector; null without p_unit, or if the text has no vector of the model. Only reads.
create or replace function memfold_internal._stored_similarity(
    p_tenant_id text, p_memory_id uuid, p_embedding_model text, p_unit vector
)
returns double precision
language plpgsql stable
as $$
begin
    if p_unit is null then
        return null;
    end if;
    return (
        select memfold_internal._similarity(v.embedding, p_unit) from memfold.memory_vectors as v
        where v.tenant_id = p_tenant_id collate "C" and v.memory_id = p_memory_id
            and v.model = p_embedding_model collate "C"
    );
end;
$$;
