-- What recall needs of a bucket's policies and options, for each memory type that has its own; the first element is '*',
-- for all other types. Looked up once for a search, not for each memory.
create or replace function memfold_internal._recall_rules(
    p_tenant_id text, p_bucket_id text, out types text[], out rules memfold_internal.recall_rule[]
)
language plpgsql stable
-- Turn on again what search_memories() turns off: policies and options are a page or two, indexes read 16 pages more.
set enable_seqscan = on
as $$
begin
    select array_agg(t.memory_type order by t.memory_type <> '*'),
        array_agg(row(
            p.guard, p.weight_source, p.weight_extractor, p.weight_repetition, o.min_confidence, o.search_threshold, o.touch,
            o.rank_confidence, o.rank_feedback, o.protected_types, o.decay_rate, o.decay_floor, o.decay_interval
        )::memfold_internal.recall_rule order by t.memory_type <> '*')
    into types, rules
    from (
        select p.memory_type
        from memfold.policies as p
        where p.tenant_id in (p_tenant_id collate "C", '*')
            and p.bucket_id in (p_bucket_id collate "C", '*')
        union
        select o.memory_type
        from memfold.options as o
        where o.tenant_id in (p_tenant_id collate "C", '*')
            and o.bucket_id in (p_bucket_id collate "C", '*')
    ) as t
    cross join lateral memfold_internal._policy(p_tenant_id, p_bucket_id, t.memory_type) as p
    cross join lateral memfold_internal._options(p_tenant_id, p_bucket_id, t.memory_type) as o;
end;
$$;

-- The most texts of a bucket that recall compares one by one: of a larger bucket only the newest, unless there is an index.
-- A smaller limit would save nothing, because finding the newest reads an index entry of each (100,000 vectors: 0.23 s).
create or replace function memfold_internal._search_limit() returns bigint
language sql immutable parallel safe
return 100000;

-- Whether a scope (null: the bucket) has more than _search_limit() active vectors of a model. Reads that many index entries.
create or replace function memfold_internal._exceeds_search_limit(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_embedding_model text
) returns boolean
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
begin
    if p_scope_key is null then
        return memfold_internal._exceeds_exact_limit(p_tenant_id, p_bucket_id, p_embedding_model, memfold_internal._search_limit(), null,
            null);
    end if;
    return exists (
        select
        from memfold.memory_vectors as v
        where v.tenant_id = p_tenant_id collate "C"
            and v.bucket_id = p_bucket_id collate "C"
            and v.scope_key = p_scope_key
            and v.model = p_embedding_model collate "C"
            and v.is_live
        offset memfold_internal._search_limit() limit 1
    );
end;
$$;

-- Whether a bucket has more than _exact_limit() active vectors of a model, so that recall uses the index, or reads a scope
-- by itself. The session remembers the answer for a minute, because counting takes a sixth of a search.
create or replace function memfold_internal._is_large_bucket(p_tenant_id text, p_bucket_id text, p_embedding_model text) returns boolean
language plpgsql stable
as $$
declare
    v_now constant bigint := date_part('epoch', memfold_internal._clock());
    v_setting constant text := 'memfold.large_' || to_hex(hashtextextended(
        row(p_tenant_id, p_bucket_id, p_embedding_model)::text collate "C", 0));
    -- when it was counted; negative: the bucket was not large
    v_counted bigint := nullif(current_setting(v_setting, true), '')::bigint;
begin
    if (v_now - abs(v_counted) between 0 and 59) is not true then
        v_counted := case when memfold_internal._exceeds_exact_limit(p_tenant_id, p_bucket_id, p_embedding_model,
            memfold_internal._exact_limit(), null, null) then v_now else -v_now end;
        perform set_config(v_setting, v_counted::text, false);
    end if;
    return v_counted > 0;
end;
$$;

-- _knn_search() for a session, or for p_as_of (p_session_id null): compares all texts, however many. Only reads.
create or replace function memfold_internal._knn_by_memory(
    p_tenant_id text, p_bucket_id text, p_embedding vector, p_embedding_model text, p_max_vectors bigint,
    p_memory_type text, p_subject text, p_predicate text, p_session_id text, p_metadata jsonb, p_metadata_path jsonpath,
    p_min_confidence double precision, p_at timestamptz, p_as_of timestamptz, p_types text[], p_rules memfold_internal.recall_rule[],
    out root_ids uuid[], out text_ids uuid[], out similarities double precision[], out confidences double precision[],
    out feedbacks double precision[]
)
language plpgsql stable
as $$
begin
    -- Start from memories: a session has few, and p_as_of compares all of the bucket.
    select array_agg(s.root_id), array_agg(s.text_id), array_agg(s.similarity), array_agg(s.confidence), array_agg(s.feedback)
    into root_ids, text_ids, similarities, confidences, feedbacks
    from (
        select n.root_id, a.id as text_id, memfold_internal._similarity(v.embedding, p_embedding) as similarity, n.confidence,
            n.feedback
        from (
            select m.memory_id from memfold.memories as m
            where p_session_id is not null
                and m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.session_id = p_session_id collate "C" and m.root_id is null
            union all
            select m.memory_id from memfold.memories as m
            where p_session_id is null
                and m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.content_hash is not null and m.root_id is null
            union all
            select m.memory_id from memfold.memories as m
            where p_session_id is null
                and m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.content_hash is null and m.root_id is null
        ) as r
        cross join lateral memfold_internal._recallable(p_tenant_id, r.memory_id, p_memory_type,
            p_subject, p_predicate, p_session_id, p_metadata, p_metadata_path,
            p_min_confidence, p_at, p_as_of, p_types, p_rules) as n
        cross join lateral (
            select r.memory_id as id
            union all
            select a.memory_id from memfold.memories as a
            where a.tenant_id = p_tenant_id collate "C" and a.root_id = r.memory_id
            offset 0
        ) as a
        cross join lateral (
            select w.embedding from memfold.memory_vectors as w
            where w.tenant_id = p_tenant_id collate "C" and w.memory_id = a.id
                and w.model = p_embedding_model collate "C"
            offset 0
        ) as v
        order by 3 desc, n.root_id
        limit p_max_vectors
    ) as s;
end;
$$;

-- The cosine of a unit vector to each neighbour (is_live) of a scope or, if p_scope_key is null, of a bucket; the p_most nearest come
-- first (null: all). Only the _search_limit() newest of a scope, and of a bucket unless p_is_whole. Only reads.
create or replace function memfold_internal._compared_texts(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_embedding vector, p_embedding_model text, p_is_whole boolean, p_most bigint,
    out ids uuid[], out similarities double precision[]
)
language plpgsql stable
as $$
begin
    -- separate statements, so that a session plans only what it uses
    if p_scope_key is not null then
        select array_agg(s.memory_id), array_agg(s.similarity) into ids, similarities
        from (
            select n.memory_id, n.similarity
            from memfold_internal._scope_similarities(p_tenant_id, p_bucket_id, p_scope_key, p_embedding, p_embedding_model,
                memfold_internal._search_limit(), null, null) as n
            order by n.similarity desc, n.memory_id
            limit p_most
        ) as s;
    elsif p_is_whole then
        select array_agg(s.memory_id), array_agg(s.similarity) into ids, similarities
        from (
            select v.memory_id, memfold_internal._similarity(v.embedding, p_embedding) as similarity
            from memfold.memory_vectors as v
            where v.tenant_id = p_tenant_id collate "C" and v.bucket_id = p_bucket_id collate "C"
                and v.model = p_embedding_model collate "C" and v.is_live
            order by 2 desc, v.memory_id
            limit p_most
        ) as s;
    else
        select array_agg(s.memory_id), array_agg(s.similarity) into ids, similarities
        from (
            select n.memory_id, memfold_internal._similarity(w.embedding, p_embedding) as similarity
            from (
                -- Ids are sorted without their vectors: sorting 100,000 of these takes as long as comparing them.
                select v.memory_id from memfold.memory_vectors as v
                where v.tenant_id = p_tenant_id collate "C" and v.bucket_id = p_bucket_id collate "C"
                    and v.model = p_embedding_model collate "C" and v.is_live
                order by v.memory_id desc
                limit memfold_internal._search_limit()
            ) as n
            cross join lateral (
                select v.embedding from memfold.memory_vectors as v
                where v.tenant_id = p_tenant_id collate "C" and v.memory_id = n.memory_id and v.model = p_embedding_model collate "C"
                offset 0
            ) as w
            order by 2 desc, n.memory_id
            limit p_most
        ) as s;
    end if;
end;
$$;

-- The p_max_vectors texts of a bucket nearest to a unit vector, among those that recall may show (_recallable), each with
-- its root, which may appear several times. Exact for a session, p_as_of, a scope (null: none), and up to 10,000 vectors;
-- beyond that by the index, or exact if there is none. shortfall: null if everything was covered; no_index: only the
-- newest 100,000 were; scan_ended: the index scan gave up, and the bucket is too large to compare. Only reads.
create or replace function memfold_internal._knn_search(
    p_tenant_id text, p_bucket_id text, p_embedding vector, p_embedding_model text, p_max_vectors bigint, p_scope_key uuid,
    p_memory_type text, p_subject text, p_predicate text, p_session_id text, p_metadata jsonb, p_metadata_path jsonpath,
    p_min_confidence double precision, p_at timestamptz, p_as_of timestamptz, p_types text[], p_rules memfold_internal.recall_rule[],
    out root_ids uuid[], out text_ids uuid[], out similarities double precision[], out confidences double precision[],
    out feedbacks double precision[], out shortfall text
)
language plpgsql stable
as $$
declare
    v_filtered boolean := num_nonnulls(p_memory_type, p_subject, p_predicate, p_metadata, p_metadata_path,
        p_min_confidence) > 0
        or exists (select from unnest(p_rules) as p where p.min_confidence > 0);
    v_outgrown boolean := false;
    v_index oid;
    v_most bigint;
    v_ids uuid[];
    v_similarities double precision[];
begin
    if p_session_id is not null or p_as_of is not null then
        select m.root_ids, m.text_ids, m.similarities, m.confidences, m.feedbacks
        into root_ids, text_ids, similarities, confidences, feedbacks
        from memfold_internal._knn_by_memory(p_tenant_id, p_bucket_id, p_embedding, p_embedding_model, p_max_vectors, p_memory_type,
            p_subject,
            p_predicate, p_session_id, p_metadata, p_metadata_path, p_min_confidence, p_at, p_as_of, p_types, p_rules) as m;
        return;
    end if;

    v_index := memfold_internal._vector_index(p_embedding_model);
    v_outgrown := memfold_internal._is_large_bucket(p_tenant_id, p_bucket_id, p_embedding_model);
    -- A scope of a large bucket is compared by itself, unless it is too large.
    if v_outgrown and (p_scope_key is not null or v_index is null)
        and memfold_internal._exceeds_search_limit(p_tenant_id, p_bucket_id, p_scope_key, p_embedding_model)
    then
        shortfall := 'no_index';
    end if;
    if v_outgrown and v_index is not null and (p_scope_key is null or shortfall is not null) then
        select i.root_ids, i.text_ids, i.similarities, i.confidences, i.feedbacks
        into root_ids, text_ids, similarities, confidences, feedbacks
        from memfold_internal._indexed_knn_search(p_tenant_id, p_bucket_id, p_embedding, p_embedding_model, p_max_vectors, p_memory_type,
            p_subject,
            p_predicate, p_metadata, p_metadata_path, p_min_confidence, p_at, p_types, p_rules, v_filtered, v_index) as i;
        if cardinality(root_ids) = p_max_vectors then
            shortfall := null;
            return;
        elsif shortfall is not null or memfold_internal._exceeds_search_limit(p_tenant_id, p_bucket_id, null, p_embedding_model) then
            shortfall := 'scan_ended';
        end if;
    end if;
    v_most := case when not v_filtered then p_max_vectors end;
    loop
        select c.ids, c.similarities into v_ids, v_similarities
        from memfold_internal._compared_texts(p_tenant_id, p_bucket_id, case when v_outgrown then p_scope_key end, p_embedding,
            p_embedding_model, shortfall is null, v_most) as c;
        -- An index scan gives up if nearly all that is near is of other buckets or filtered out: then also take what it has found.
        select array_agg(s.root_id), array_agg(s.text_id), array_agg(s.similarity), array_agg(s.confidence), array_agg(s.feedback)
        into root_ids, text_ids, similarities, confidences, feedbacks
        from (
            (
                select n.root_id, o.id as text_id, o.similarity, n.confidence, n.feedback
                from (
                    -- sorted before it is joined, so that only as many as are wanted are looked up
                    select u.id, u.similarity from unnest(v_ids, v_similarities) as u (id, similarity) order by u.similarity desc, u.id
                ) as o
                cross join lateral memfold_internal._recallable(p_tenant_id, o.id, p_memory_type, p_subject, p_predicate, null, p_metadata,
                    p_metadata_path, p_min_confidence, p_at, null, p_types, p_rules) as n
                order by o.similarity desc, o.id
                limit p_max_vectors
            )
            union
            select f.root_id, f.text_id, f.similarity, f.confidence, f.feedback
            from unnest(root_ids, text_ids, similarities, confidences, feedbacks)
                as f (root_id, text_id, similarity, confidence, feedback)
            order by similarity desc, root_id
            limit p_max_vectors
        ) as s;
        -- Former values and expired facts do not pass: if there are any among the nearest, compare all.
        exit when v_most is null or cardinality(root_ids) = p_max_vectors or coalesce(cardinality(v_ids), 0) < v_most;
        v_most := null;
    end loop;
end;
$$;

-- _knn_search() over a bucket by an index (_vector_index), which rarely misses a text. Returns fewer than p_max_vectors if
-- the scan gave up: after 4,000 entries, or 20,000 with filters. Only reads.
create or replace function memfold_internal._indexed_knn_search(
    p_tenant_id text, p_bucket_id text, p_embedding vector, p_embedding_model text, p_max_vectors bigint, p_memory_type text,
    p_subject text, p_predicate text, p_metadata jsonb, p_metadata_path jsonpath, p_min_confidence double precision, p_at timestamptz,
    p_types text[],
    p_rules memfold_internal.recall_rule[], p_filtered boolean, p_index_id oid,
    out root_ids uuid[], out text_ids uuid[], out similarities double precision[], out confidences double precision[],
    out feedbacks double precision[]
)
language plpgsql stable
as $$
declare
    v_before text[];
    v_type text;
    v_schema text;
    v_ids uuid[];
    v_similarities double precision[];
begin
    if not p_filtered then
        -- Nearly all pass: take the nearest first, because planning the query below at each call takes 1.2 ms of 4.3.
        select k.memory_ids, k.similarities into v_ids, v_similarities
        from memfold_internal._indexed_knn_dedup(p_tenant_id, p_bucket_id, p_embedding, p_embedding_model, p_max_vectors, null, null,
            p_index_id) as k;
        select array_agg(n.root_id), array_agg(i.id), array_agg(i.similarity), array_agg(n.confidence), array_agg(n.feedback)
        into root_ids, text_ids, similarities, confidences, feedbacks
        from unnest(v_ids, v_similarities) as i (id, similarity)
        cross join lateral memfold_internal._recallable(p_tenant_id, i.id, null, null, null, null, null, null, null, p_at, null,
            p_types, p_rules) as n;
    end if;
    if p_filtered or cardinality(v_ids) = p_max_vectors and coalesce(cardinality(root_ids), 0) < p_max_vectors then
        -- Let the scan continue until enough texts have passed.
        select t.type, t.schema into strict v_type, v_schema from memfold_internal._vector_type(p_index_id) as t;
        v_before := memfold_internal._scan_far(p_embedding, p_max_vectors, case when p_filtered then 20000 else 4000 end);
        execute format(
            'select array_agg(s.root_id), array_agg(s.text_id), array_agg(s.similarity), array_agg(s.confidence), array_agg(s.feedback)'
            ' from ('
            ' select n.root_id, v.memory_id as text_id, memfold_internal._similarity(v.embedding, $3) as similarity, n.confidence, n.feedback'
            ' from memfold.memory_vectors as v'
            ' cross join lateral memfold_internal._recallable($1, v.memory_id, $5, $6, $7, null, $8, $13, $9, $10, null, $11, $12) as n'
            ' where v.tenant_id = $1 collate "C" and v.bucket_id = $2 collate "C" and v.model = %L and v.is_live'
            ' order by v.embedding::%s operator(%s.<#>) $3::%s'
            ' limit $4) as s',
            p_embedding_model, v_type, v_schema, v_type)
        into root_ids, text_ids, similarities, confidences, feedbacks
        using p_tenant_id, p_bucket_id, p_embedding, p_max_vectors, p_memory_type, p_subject, p_predicate, p_metadata, p_min_confidence,
            p_at, p_types,
            p_rules, p_metadata_path;
        perform memfold_internal._swap_settings(memfold_internal._scan_settings(), v_before);
    end if;
end;
$$;
