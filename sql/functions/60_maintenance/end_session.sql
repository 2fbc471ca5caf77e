-- The active memories of a session that may be merged, in order of creation. kind: only memories of one kind are compared.
-- standing: the memory with the lowest is kept. With on_merge replace that is the one stated last, else the most confident, then
-- the most recalled, then the newest. Only reads.
create or replace function memfold_internal._session_texts(p_tenant_id text, p_bucket_id text, p_session_id text)
returns table (
    kind text, memory_id uuid, content text, object text, tokens text[], last_seen timestamptz, standing bigint, rule memfold.policies,
    session_threshold double precision
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
-- Missing statistics must not choose a scan.
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    with texts as materialized (
        select m.*
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.session_id = p_session_id collate "C"
            and m.content_hash is not null and m.root_id is null and m.status = 'active'
    ),
    rules as materialized (
        select t.memory_type, p as rule, o.protected_confidence, o.session_threshold
        from (select distinct x.memory_type from texts as x) as t
        cross join lateral memfold_internal._policy(p_tenant_id, p_bucket_id, t.memory_type) as p
        cross join lateral memfold_internal._options(p_tenant_id, p_bucket_id, t.memory_type) as o
        where t.memory_type <> all(o.protected_types)
    )
    select t.memory_type || case when (r.rule).scope = 'predicate' then ' ' || t.scope_key else '' end, t.memory_id,
        t.content::text, t.object::text, memfold_internal._tokens(t.content, (r.rule).segmenter),
        k.last_seen, row_number() over (
            order by case when (r.rule).on_merge = 'replace' then k.last_seen end desc nulls last, f.confidence desc, k.access_count desc, t.created_at desc, t.memory_id desc
        ), r.rule, r.session_threshold
    from texts as t
    join rules as r on r.memory_type = t.memory_type
    cross join lateral (
        select k.* from memfold.memory_totals as k
        where k.tenant_id = t.tenant_id and k.memory_id = t.memory_id
        offset 0
    ) as k
    cross join lateral (
        select memfold_internal._confidence(k.source_confidence, k.extractor_confidence, k.independent, (r.rule).weight_source,
            (r.rule).weight_extractor, (r.rule).weight_repetition) as confidence
    ) as f
    where (r.protected_confidence is null or f.confidence < r.protected_confidence)
    order by t.created_at, t.memory_id;
end;
$$;

-- The merges of end_session(): greedy clusters in which every two texts have a Jaccard similarity of words above the
-- threshold. None if fewer than three memories were considered. Only reads.
create or replace function memfold_internal._session_merges(
    p_tenant_id text, p_bucket_id text, p_session_id text,
    out considered bigint, out clusters bigint, out memory_ids uuid[], out into_ids uuid[],
    out similarities double precision[], out average_similarity double precision
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    g record;
    v_used boolean[];
    v_cluster integer[];
    v_to integer;
    v_stays integer;
    v_sum double precision := 0;
    v_pairs bigint := 0;
    v_similarity double precision;
begin
    considered := 0;
    clusters := 0;
    memory_ids := array[]::uuid[];
    into_ids := array[]::uuid[];
    similarities := array[]::double precision[];
    for g in
        with texts as materialized (
            select t.*, row_number() over (partition by t.kind) as place
            from memfold_internal._session_texts(p_tenant_id, p_bucket_id, p_session_id) as t
        ),
        words as (
            select t.kind, t.place, w.word from texts as t cross join lateral unnest(t.tokens) as w (word)
        ),
        shared as (
            select a.kind, a.place as a, b.place as b, count(*) as n
            from words as a
            join words as b on b.kind = a.kind and b.word = a.word and b.place > a.place
            group by a.kind, a.place, b.place
        ),
        near as (
            select s.kind, s.a, s.b, j.similarity, p.reason = 'refinement' as a_is_refined, q.reason = 'refinement' as b_is_refined
            from shared as s
            join texts as a on a.kind = s.kind and a.place = s.a
            join texts as b on b.kind = s.kind and b.place = s.b
            cross join lateral (
                select s.n::double precision / (cardinality(a.tokens) + cardinality(b.tokens) - s.n)
                    as similarity
            ) as j
            cross join lateral memfold_internal._check_merge(p_tenant_id, p_bucket_id, a.rule, a.content,
                b.content, a.object, b.object, null, j.similarity > a.session_threshold) as m
            -- Either may be kept, so the policy must allow both directions.
            cross join lateral memfold_internal._decide_pair(a.rule, m.mergeable, false, b.content, null, a.content, null, true) as p
            cross join lateral memfold_internal._decide_pair(a.rule, m.mergeable, false, a.content, null, b.content, null, true) as q
            where j.similarity > a.session_threshold
                and not memfold_internal._was_asked(p_tenant_id, a.memory_id, b.memory_id)
                and p.action in ('merged', 'replaced') and q.action in ('merged', 'replaced')
        ),
        refined as (
            select n.kind, n.a as place from near as n where n.a_is_refined
            union
            select n.kind, n.b from near as n where n.b_is_refined
        )
        select t.kind, t.ids, t.standings,
            -- For each memory, the later ones that are near it.
            array(
                select coalesce((
                    select jsonb_object_agg(n.b::text, n.similarity) from near as n where n.kind = t.kind and n.a = p.place
                ), '{}')
                from generate_series(1, cardinality(t.ids)) as p (place)
                order by p.place
            ) as later
        from (
            select x.kind, array_agg(x.memory_id order by x.place) as ids,
                -- A text that another one refines is kept only if all are refined.
                array_agg(x.standing + case when f.place is null then 0 else 1000000000 end order by x.place) as standings
            from texts as x
            left join refined as f on f.kind = x.kind and f.place = x.place
            group by x.kind
        ) as t
        order by t.ids[1]
    loop
        considered := considered + cardinality(g.ids);
        v_used := array_fill(false, array[cardinality(g.ids)]);
        for i in 1..cardinality(g.ids) loop
            continue when v_used[i] or g.later[i] = '{}';
            v_cluster := array[i];
            for v_to in select k.key::integer from jsonb_object_keys(g.later[i]) as k (key) order by 1 loop
                if not v_used[v_to] and (
                    select bool_and(g.later[c.place] ? v_to::text) from unnest(v_cluster) as c (place)
                ) then
                    v_cluster := v_cluster || v_to;
                end if;
            end loop;
            continue when cardinality(v_cluster) = 1;
            clusters := clusters + 1;
            select c.place into v_stays
            from unnest(v_cluster) as c (place) order by g.standings[c.place] limit 1;
            for c in 1..cardinality(v_cluster) loop
                v_used[v_cluster[c]] := true;
                for d in c + 1..cardinality(v_cluster) loop
                    v_similarity := (g.later[v_cluster[c]] ->> v_cluster[d]::text)::double precision;
                    v_sum := v_sum + v_similarity;
                    v_pairs := v_pairs + 1;
                    if v_stays in (v_cluster[c], v_cluster[d]) then
                        memory_ids := memory_ids || g.ids[v_cluster[c] + v_cluster[d] - v_stays];
                        into_ids := into_ids || g.ids[v_stays];
                        similarities := similarities || v_similarity;
                    end if;
                end loop;
            end loop;
        end loop;
    end loop;
    average_similarity := coalesce(v_sum / nullif(v_pairs, 0), 0);
    if considered < 3 then
        clusters := 0;
        memory_ids := array[]::uuid[];
        average_similarity := 0;
    end if;
end;
$$;

create or replace function memfold.end_session(
    session_id text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    dry_run boolean default false
) returns table (
    run_id uuid, merged_groups bigint, superseded_count bigint, compression_ratio double precision,
    avg_similarity double precision, considered bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
-- Arrays of unknown size look expensive, and compiling the plan would take seconds while the bucket is locked.
set jit = off
as $$
#variable_conflict use_column
declare
    r memfold.runs;
    f record;
    v_merged bigint;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('session_id', session_id, true);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    if dry_run is null then
        perform memfold_internal._fail('MF022', 'an argument is out of range', 'dry_run was null.', 'dry_run is true or false.');
    end if;
    if not dry_run then
        perform memfold_internal._lock(tenant_id, bucket_id, null, true);
    end if;
    select s.* into f from memfold_internal._session_merges(tenant_id, bucket_id, session_id) as s;
    v_merged := cardinality(f.memory_ids);
    if not dry_run then
        r := memfold_internal._start_run(tenant_id, bucket_id, 'session',
            jsonb_build_object('session_id', session_id));
        v_merged := cardinality(memfold_internal._merge_all(r, 2, 'lexical', 'merged', f.memory_ids, f.into_ids, f.similarities, null,
            null, null));
        perform memfold_internal._end_run(tenant_id, r.run_id, jsonb_build_object('considered', f.considered, 'groups', f.clusters));
    end if;
    return query
    select r.run_id, f.clusters, v_merged, coalesce(v_merged::double precision / nullif(f.considered, 0), 0),
        f.average_similarity, f.considered;
end;
$$;
grant execute on function memfold.end_session to memfold_app;
comment on function memfold.end_session is
'Merges memories that a session states more than once: among its active memories of one type (and of one subject and predicate, unless the
policy''s scope is the bucket), it forms greedy clusters in order of creation, in which every two have a Jaccard similarity of words above
the option session_threshold and a clean guard. Keeps the text that on_merge or on_refinement of the policy keeps, else the most confident,
then the most often recalled, then the newest; leaves what the policy would ask about. Omits the
protected_types of the options, confidence at or above protected_confidence, sessions of fewer than 3 memories (considered), and pairs
that were judged, wait for a judgement, or were separated by an undo. compression_ratio: superseded_count / considered; avg_similarity: of
all pairs within clusters. undo_run() undoes it. dry_run: writes nothing, run_id is null. Blocks writers of the bucket. Raises MF001 to
MF003, MF022, MF025.';
