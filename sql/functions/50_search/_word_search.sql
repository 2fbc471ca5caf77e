-- The memories that contain each word, by the index of words (_text_index); size is that of their texts in bytes. The caller
-- must be authorized for the tenant and bucket that p_keys (_word_keys) contain; p_tenant_id selects the shard on Citus.
-- Owned by memfold_queue, because row-level security would prevent the index: array comparisons are not leakproof.
create or replace function memfold_internal._indexed_words(p_tenant_id text, p_keys bigint[], p_text_search regconfig)
returns table (memory_id uuid, key bigint, size integer)
language plpgsql stable strict security definer rows 1000 set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
    return query execute format(
        'select m.memory_id, k.key, m.size from unnest($1) as k (key)'
        ' cross join lateral ('
        ' select t.memory_id, octet_length(t.content) as size from memfold.memories as t'
        ' where memfold_internal._memory_words(t.tenant_id, t.bucket_id, t.content, t.subject, t.predicate, t.object, %L::regconfig)'
        ' @> array[k.key]'
        -- No index has this collation: one that begins with the tenant would be read whole, and every text split into words.
        ' and t.tenant_id = $2 collate "POSIX"'
        ' offset 0) as m', p_text_search::text)
    using p_keys, p_tenant_id;
end;
$$;

-- Whether a bucket has more than _search_limit() texts. Reads up to that many index entries.
create or replace function memfold_internal._exceeds_text_limit(p_tenant_id text, p_bucket_id text) returns boolean
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
begin
    return exists (
        select
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.content_hash is not null
        offset memfold_internal._search_limit() limit 1
    );
end;
$$;

-- The p_max_texts texts of a bucket with most of a query's words, among those that recall may show (_recallable), each with
-- its root. share: their part of the words' weights, in [0, 1], slightly lower for longer texts. Without an index of
-- words it reads the bucket's texts, or the newest 100,000 if there are more (shortfall: no_text_index). Only reads.
create or replace function memfold_internal._word_search(
    p_tenant_id text, p_bucket_id text, p_query text, p_max_texts bigint, p_memory_type text, p_subject text, p_predicate text,
    p_session_id text,
    p_metadata jsonb, p_metadata_path jsonpath, p_min_confidence double precision, p_at timestamptz, p_as_of timestamptz,
    p_types text[], p_rules memfold_internal.recall_rule[],
    out root_ids uuid[], out text_ids uuid[], out shares double precision[], out confidences double precision[],
    out feedbacks double precision[], out shortfall text
)
language plpgsql stable
as $$
declare
    v_config constant regconfig := (memfold_internal._options(p_tenant_id, p_bucket_id, '*')).text_search::regconfig;
    v_words constant text[] := memfold_internal._query_words(p_query, v_config);
    v_keys constant bigint[] := memfold_internal._word_keys(p_tenant_id, p_bucket_id, v_words);
    v_is_indexed constant boolean := memfold_internal._text_index(v_config) is not null;
    v_any tsquery;
    v_pattern text;
    v_source text;
begin
    if v_words = '{}' then
        return;
    end if;
    if not v_is_indexed then
        v_any := array_to_string(array(
            select '''' || replace(replace(w.word, E'\\', E'\\\\'), '''', '''''') || '''' from unnest(v_words) as w (word)
        ), ' | ')::tsquery;
        if v_config = 'pg_catalog.simple'::regconfig then
            -- Words of this configuration are parts of the text in lower case.
            v_pattern := array_to_string(array(
                select regexp_replace(w.word, E'[^[:alnum:]]', E'\\\\\\&', 'g') from unnest(v_words) as w (word)
            ), '|');
        end if;
        -- A session has few texts; p_as_of reads the whole bucket, however large.
        v_source := case when p_session_id is not null then 'session' else 'bucket' end;
        if num_nonnulls(p_session_id, p_as_of) = 0 and memfold_internal._exceeds_text_limit(p_tenant_id, p_bucket_id) then
            v_source := 'newest';
            shortfall := 'no_text_index';
        end if;
    end if;
    with hits as materialized (
        select i.memory_id, i.key, i.size
        from memfold_internal._indexed_words(p_tenant_id, case when v_is_indexed then v_keys end, v_config) as i
        union all
        select t.memory_id, w.key, t.size
        from (
            select r.memory_id, octet_length(r.content) as size,
                memfold_internal._word_vector(r.content, r.subject, r.predicate, r.object, v_config) as words
            from (
                select m.memory_id, m.content, m.subject, m.predicate, m.object
                from memfold.memories as m
                where v_source = 'bucket' and m.tenant_id = p_tenant_id collate "C"
                    and m.bucket_id = p_bucket_id collate "C" and m.content_hash is not null
                union all
                select m.memory_id, m.content, m.subject, m.predicate, m.object
                from memfold.memories as m
                where v_source in ('bucket', 'newest') and m.tenant_id = p_tenant_id collate "C"
                    and m.bucket_id = p_bucket_id collate "C" and m.content_hash is null
                union all
                select m.memory_id, m.content, m.subject, m.predicate, m.object
                from (
                    select b.memory_id
                    from (
                        select m.memory_id from memfold.memories as m
                        where v_source = 'newest' and m.tenant_id = p_tenant_id collate "C"
                            and m.bucket_id = p_bucket_id collate "C" and m.content_hash is not null
                        offset 0
                    ) as b
                    order by b.memory_id desc
                    limit memfold_internal._search_limit()
                ) as n
                cross join lateral memfold_internal._memory(p_tenant_id, n.memory_id) as m
                union all
                select a.memory_id, a.content, a.subject, a.predicate, a.object
                from memfold.memories as m
                cross join lateral (
                    select t.* from memfold.memories as t
                    where t.tenant_id = p_tenant_id collate "C" and t.memory_id = m.memory_id
                    union all
                    select t.* from memfold.memories as t
                    where t.tenant_id = p_tenant_id collate "C" and t.root_id = m.memory_id
                    offset 0
                ) as a
                where v_source = 'session' and m.tenant_id = p_tenant_id collate "C"
                    and m.bucket_id = p_bucket_id collate "C"
                    and m.session_id = p_session_id collate "C" and m.root_id is null
            ) as r
            cross join lateral (
                select lower(r.content || coalesce(' ' || r.subject, '') || coalesce(' ' || r.predicate, '')
                    || coalesce(' ' || r.object, '')) as text
                offset 0
            ) as l
            -- Parsing takes ten times as long as this test; texts with other than ASCII characters are always parsed.
            where v_pattern is null or l.text ~ v_pattern or octet_length(l.text) <> length(l.text)
            offset 0
        ) as t
        cross join lateral tsvector_to_array(case when t.words @@ v_any then t.words end) as o (words)
        join unnest(v_words, v_keys) as w (word, key) on w.word = any(o.words)
    ),
    counted as (
        select k.key, count(h.key) as texts
        from unnest(v_keys) as k (key)
        left join hits as h on h.key = k.key
        group by k.key
    ),
    -- The weights of BM25 among the texts that have any of the words, as whole numbers, whose sum does not depend on the
    -- order: an index and a scan give the same shares, to the last digit.
    weighted as (
        select c.key, round(1e12 * ln(1 + (sum(c.texts) over () - c.texts + 0.5) / (c.texts + 0.5)))::double precision as weight
        from counted as c
    ),
    ranked as (
        select h.memory_id, sum(w.weight) / max(s.weight) as share, max(h.size) / max(s.size) as size
        from hits as h
        join weighted as w on w.key = h.key
        cross join (
            select (select sum(x.weight) from weighted as x) as weight, (select avg(x.size)::double precision from hits as x) as size
        ) as s
        group by h.memory_id
    )
    select array_agg(s.root_id), array_agg(s.text_id), array_agg(s.share), array_agg(s.confidence), array_agg(s.feedback)
    into root_ids, text_ids, shares, confidences, feedbacks
    from (
        select n.root_id, o.memory_id as text_id, o.share, n.confidence, n.feedback
        from (
            -- Prefer the shorter of two texts with the same words.
            select r.memory_id, r.share * (1 - 0.2 * r.size / (r.size + 1)) as share from ranked as r
            order by 2 desc, r.memory_id
        ) as o
        cross join lateral memfold_internal._recallable(p_tenant_id, o.memory_id, p_memory_type,
            p_subject, p_predicate, p_session_id, p_metadata, p_metadata_path,
            p_min_confidence, p_at, p_as_of, p_types, p_rules) as n
        order by o.share desc, o.memory_id
        limit p_max_texts
    ) as s;
end;
$$;
