-- The cosine of a unit vector to each of the p_newest newest texts of a scope that are neighbours (is_live), except ids
-- above p_hidden_after up to p_hidden_to. A scan of the scope's vectors. Inlined by its callers.
create or replace function memfold_internal._scope_similarities(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_embedding vector, p_embedding_model text, p_newest bigint,
    p_hidden_after uuid, p_hidden_to uuid
) returns table (memory_id uuid, similarity double precision)
language sql stable parallel safe
begin atomic
    select n.memory_id, memfold_internal._similarity(n.embedding, p_embedding)
    from (
        select v.memory_id, v.embedding
        from memfold.memory_vectors as v
        where
            v.tenant_id = p_tenant_id collate "C"
            and v.bucket_id = p_bucket_id collate "C"
            and v.scope_key = p_scope_key
            and v.model = p_embedding_model collate "C"
            and v.is_live
            and (v.memory_id > p_hidden_after and v.memory_id <= p_hidden_to) is not true
        order by v.memory_id desc
        limit p_newest
    ) as n;
end;

-- The p_max_texts texts nearest to a unit vector, with a cosine of at least p_threshold, among the p_newest of a scope,
-- or of the bucket if p_scope_key is null; most similar first, ties to the older text; null: none. A bucket with more
-- texts than p_newest is searched whole if it has an index (create_vector_index). scan_ended: the index scan gave up.
-- Ids above p_hidden_after up to p_hidden_to are skipped: later texts of the batch; null: none.
create or replace function memfold_internal._near_texts(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_embedding vector, p_embedding_model text,
    p_newest bigint, p_max_texts bigint, p_threshold double precision, p_hidden_after uuid, p_hidden_to uuid,
    out memory_ids uuid[], out similarities double precision[], out scan_ended boolean
)
language plpgsql stable
as $$
declare
    v_index oid;
    v_ids uuid[];
    v_similarities double precision[];
begin
    scan_ended := false;
    -- separate statements: "or p_scope_key is null" in one would make it read the whole tenant
    if p_scope_key is not null then
        select array_agg(s.memory_id), array_agg(s.similarity) into memory_ids, similarities
        from (
            select n.memory_id, n.similarity
            from memfold_internal._scope_similarities(p_tenant_id, p_bucket_id, p_scope_key, p_embedding, p_embedding_model, p_newest,
                p_hidden_after, p_hidden_to) as n
            where n.similarity >= p_threshold
            order by n.similarity desc, n.memory_id
            limit p_max_texts
        ) as s;
        return;
    end if;
    v_index := memfold_internal._vector_index(p_embedding_model);
    if v_index is not null
        and memfold_internal._exceeds_exact_limit(p_tenant_id, p_bucket_id, p_embedding_model, p_newest, p_hidden_after, p_hidden_to)
    then
        select i.memory_ids, i.similarities into v_ids, v_similarities
        from memfold_internal._indexed_knn_dedup(p_tenant_id, p_bucket_id, p_embedding, p_embedding_model, p_max_texts,
            p_hidden_after, p_hidden_to, v_index) as i;
        scan_ended := (cardinality(v_ids) = p_max_texts) is not true;
    end if;
    -- An index scan gives up if nearly all near vectors belong to other buckets; then the newest are searched as well.
    select array_agg(s.memory_id), array_agg(s.similarity) into memory_ids, similarities
    from (
        select u.memory_id, u.similarity
        from (
            (
                select n.memory_id, memfold_internal._similarity(n.embedding, p_embedding) as similarity
                from (
                    select v.memory_id, v.embedding
                    from memfold.memory_vectors as v
                    where v.tenant_id = p_tenant_id collate "C"
                        and v.bucket_id = p_bucket_id collate "C"
                        and v.model = p_embedding_model collate "C"
                        and v.is_live
                        and (v.memory_id > p_hidden_after and v.memory_id <= p_hidden_to) is not true
                    order by v.memory_id desc
                    limit case when v_ids is null or scan_ended then p_newest else 0 end
                ) as n
                where memfold_internal._similarity(n.embedding, p_embedding) >= p_threshold
                order by 2 desc, n.memory_id
                limit p_max_texts
            )
            union
            select i.memory_id, i.similarity from unnest(v_ids, v_similarities) as i (memory_id, similarity)
            where i.similarity >= p_threshold
        ) as u
        order by u.similarity desc, u.memory_id
        limit p_max_texts
    ) as s;
end;
$$;

-- The memories near a unit vector (_near_texts), one row each, most similar first: the p_max_results nearest by any of
-- their texts, and as many by the root's own text. place: the smaller of both ranks. similarity: of the root's text;
-- null: it has no vector of the model. matched_...: the nearest text of the memory. p_except_root: a memory to omit.
-- p_is_active: omit former values too, which are neighbours for tier 2 only.
create or replace function memfold_internal._knn_dedup(
    p_tenant_id text, p_bucket_id text, p_scope_key uuid, p_embedding vector, p_embedding_model text,
    p_newest bigint, p_max_results bigint, p_threshold double precision, p_except_root uuid,
    p_hidden_after uuid, p_hidden_to uuid, p_is_active boolean default false
) returns table (
    root_id uuid, similarity double precision, content text, object text,
    matched_id uuid, matched_similarity double precision, matched_content text, matched_object text,
    place bigint, scan_ended boolean
)
language plpgsql stable rows 20
as $$
declare
    -- Usually each text is a memory of its own, but the aliases of p_except_root are near it.
    v_texts bigint := 20 + 2 * p_max_results + case when p_except_root is null then 0 else 100 end;
    v_ids uuid[];
    v_similarities double precision[];
    v_roots uuid[];
    v_trees bigint;
    v_own bigint;
    v_scan_ended boolean;
begin
    loop
        select n.memory_ids, n.similarities, n.scan_ended into v_ids, v_similarities, v_scan_ended
        from memfold_internal._near_texts(p_tenant_id, p_bucket_id, p_scope_key, p_embedding, p_embedding_model, p_newest, v_texts,
            p_threshold,
            p_hidden_after, p_hidden_to) as n;
        if v_ids is null then
            return;
        end if;
        if cardinality(v_ids) = 1 then
            -- common case: one text is near, and it is a root
            return query
            select m.memory_id, v_similarities[1], m.content::text, m.object::text, m.memory_id, v_similarities[1], m.content::text,
                m.object::text, 1::bigint, v_scan_ended
            from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.memory_id = v_ids[1] and m.root_id is null
                and m.memory_id is distinct from p_except_root and (m.status = 'active' or not p_is_active);
            if found then
                return;
            end if;
        end if;
        -- Look up each text by its key; do not let missing statistics choose a scan.
        select array_agg(m.root_id order by i.rank),
            count(distinct m.root_id) filter (where m.root_id is distinct from p_except_root),
            count(*) filter (where m.root_id = i.id and m.root_id is distinct from p_except_root)
        into v_roots, v_trees, v_own
        from unnest(v_ids) with ordinality as i (id, rank)
        left join lateral (
            select r.root_id from (
                select memfold_internal._root(t.memory_id, t.root_id) as root_id from memfold.memories as t
                where t.tenant_id = p_tenant_id collate "C" and t.memory_id = i.id
                offset 0
            ) as r
            where not p_is_active or exists (
                select from memfold.memories as o
                where o.tenant_id = p_tenant_id collate "C" and o.memory_id = r.root_id and o.status = 'active'
            )
        ) as m on true;
        -- Aliases do not count as results: continue until there are enough memories by both ranks.
        exit when cardinality(v_ids) < v_texts or v_trees >= p_max_results and v_own >= p_max_results
            -- the most that one scan finds: 400 by the index, else all of the newest
            or v_texts >= case when p_scope_key is null and not p_is_active
                and memfold_internal._vector_index(p_embedding_model) is not null then 400 else p_newest end;
        v_texts := 16 * v_texts;
    end loop;
    return query
    select r.root_id, r.similarity, o.content, o.object, r.matched_id, r.matched_similarity, m.content, m.object, r.place, v_scan_ended
    from (
        select w.root_id, w.similarity, w.matched_id, w.matched_similarity,
            least(
                row_number() over (order by w.matched_similarity desc, w.matched_id),
                case when w.similarity is not null
                    then row_number() over (order by w.similarity desc nulls last, w.root_id) end
            ) as place
        from (
            select n.root_id, n.matched_id, n.matched_similarity,
                case when n.matched_id = n.root_id then n.matched_similarity else (
                    -- the root's own vector may be too far away, or too old, to be among the results
                    select memfold_internal._similarity(v.embedding, p_embedding)
                    from memfold.memory_vectors as v
                    where v.tenant_id = p_tenant_id collate "C" and v.memory_id = n.root_id
                        and v.model = p_embedding_model collate "C"
                ) end as similarity
            from (
                select distinct on (t.root_id) t.root_id, t.id as matched_id, t.similarity as matched_similarity
                from unnest(v_ids, v_roots, v_similarities) as t (id, root_id, similarity)
                where t.root_id is not null and t.root_id is distinct from p_except_root
                order by t.root_id, t.similarity desc, t.id <> t.root_id, t.id
            ) as n
        ) as w
    ) as r
    cross join lateral memfold_internal._memory(p_tenant_id, r.root_id) as o
    cross join lateral (
        select o.content, o.object where r.matched_id = r.root_id
        union all
        select t.content, t.object from memfold.memories as t
        where r.matched_id <> r.root_id and t.tenant_id = p_tenant_id collate "C" and t.memory_id = r.matched_id
        offset 0
    ) as m
    where r.place <= p_max_results
    order by r.matched_similarity desc, r.matched_id;
end;
$$;
