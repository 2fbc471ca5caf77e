-- The pairs of a group that are near enough for a question, by position in ids (a < b); a null: there are none. merges: near
-- enough to merge, unless guard or veto prevents it. ids: the memory to keep first: the oldest, or with on_merge replace
-- the one stated last (said_at, else null). Omits pairs that were asked about, and memories in p_waiting.
create or replace function memfold_internal._sweep_pairs(
    p_tenant_id text, p_memory_ids uuid[], p_policy memfold.policies, p_embedding_model text, p_score text,
    p_merge_threshold double precision,
    p_judge_threshold double precision, p_floor double precision, p_waiting uuid[],
    out ids uuid[], out said_at timestamptz[], out a integer[], out b integer[], out similarities double precision[], out merges boolean[]
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
begin
    ids := p_memory_ids;
    if p_policy.on_merge = 'replace' then
        select array_agg(s.id order by s.said_at desc, s.id desc), array_agg(s.said_at order by s.said_at desc, s.id desc)
        into ids, said_at
        from (
            select i.id, coalesce(k.last_seen, m.created_at) as said_at
            from unnest(p_memory_ids) as i (id)
            cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
            left join lateral (
                select k.last_seen from memfold.memory_totals as k
                where k.tenant_id = p_tenant_id collate "C" and k.memory_id = i.id
                offset 0
            ) as k on true
        ) as s;
    end if;
    select array_agg(e.a order by e.a, e.b), array_agg(e.b order by e.a, e.b),
        array_agg(e.similarity order by e.a, e.b), array_agg(e.merges order by e.a, e.b)
    into a, b, similarities, merges
    from (
        select p.a, p.b, p.similarity, s.value >= p_judge_threshold as unclear,
            s.value > p_merge_threshold or s.value = p_merge_threshold and p_policy.merge_inclusive as merges
        from memfold_internal._close_pairs(p_tenant_id, ids, p_embedding_model, p_floor) as p
        cross join lateral (
            select case when p_score is null then p.similarity else memfold_internal._pair_score(
                p_tenant_id, p_score, p.similarity, greatest(ids[p.a], ids[p.b]), least(ids[p.a], ids[p.b])) end as value
            offset 0
        ) as s
        where not memfold_internal._was_asked(p_tenant_id, ids[p.b], ids[p.a])
            -- A sub-select, because it is hashed and an array is not.
            and ids[p.a] not in (select w.id from unnest(p_waiting) as w (id))
            and ids[p.b] not in (select w.id from unnest(p_waiting) as w (id))
    ) as e
    where e.unclear or e.merges;
end;
$$;

-- What the bucket's policies decide about stored memories. With leader_id, a merge of the single member_ids, which passed guard
-- and veto; action as in _decide_pair(). Without, a cluster (oldest to newest) to ask about: similarity is the
-- least in it, and is_mergeable whether some members are near enough to merge. method: vector (the cosine decides) or
-- score. Stops merging in a group after p_max_operations + 1, and omits what is left from its questions.
create or replace function memfold_internal._sweep_plan(
    p_tenant_id text, p_bucket_id text, p_embedding_model text, p_memory_ids uuid[], p_max_operations bigint
) returns table (
    member_ids uuid[], leader_id uuid, similarity double precision, guard text[], method text, action text,
    policy memfold.policies, is_mergeable boolean
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_group record;
    v_policy memfold.policies;
    v_method text;
    v_size integer;
    -- From _sweep_pairs().
    v_ids uuid[];
    v_said timestamptz[];
    v_a integer[];
    v_b integer[];
    v_near double precision[];
    v_merges boolean[];
    v_edge record;
    v_check record;
    v_members integer[];
    v_leaders integer[];
    -- Merges that were prevented by guard or veto.
    v_from integer[];
    v_into integer[];
    v_count bigint;
    v_stopped boolean;
    v_pair record;
    v_is_newer boolean;
    -- An open question may give each of these another root.
    v_waiting constant uuid[] := memfold_internal._waiting(p_tenant_id, p_bucket_id);
begin
    for v_group in
        select g.group_ids as ids, g.policy, g.max_cluster_size, b.score, b.merge_threshold, b.judge_threshold, b.floor
        from memfold_internal._maintenance_groups(p_tenant_id, p_bucket_id, p_embedding_model, true, p_memory_ids) as g
        cross join lateral memfold_internal._bands((g.policy).merge_threshold, (g.policy).judge_threshold,
            (g.policy).similar_threshold, p_embedding_model) as b
    loop
        v_policy := v_group.policy;
        v_size := cardinality(v_group.ids);
        v_method := case when v_group.score is null then 'vector' else 'score' end;
        select p.ids, p.said_at, p.a, p.b, p.similarities, p.merges into v_ids, v_said, v_a, v_b, v_near, v_merges
        from memfold_internal._sweep_pairs(p_tenant_id, v_group.ids, v_policy, p_embedding_model, v_group.score, v_group.merge_threshold,
            v_group.judge_threshold, v_group.floor, v_waiting) as p;
        continue when v_a is null;

        v_members := array[]::integer[];
        v_leaders := array[]::integer[];
        v_from := array[]::integer[];
        v_into := array[]::integer[];
        v_count := 0;
        -- A memory that may not merge into its leader may still merge into another one: after three rounds, ask about the rest.
        for v_turn in 1..case when v_policy.on_merge = 'synthesise' then 0 else 3 end loop
            v_stopped := false;
            for v_edge in
                with edges as (
                    select array_agg(e.a order by e.a, e.b) as a, array_agg(e.b order by e.a, e.b) as b,
                        array_agg(e.similarity order by e.a, e.b) as similarity
                    from unnest(v_a, v_b, v_near, v_merges) as e (a, b, similarity, merges)
                    where e.merges
                        and e.a not in (select f.place from unnest(v_members) as f (place))
                        and e.b not in (select f.place from unnest(v_members) as f (place))
                        and e.b not in (select f.place from unnest(v_leaders) as f (place))
                        and (e.b, e.a) not in (select f.a, f.b from unnest(v_from, v_into) as f (a, b))
                )
                select c.member, c.leader, c.similarity_to_leader as similarity, m.content, m.object, o.content as other_content,
                    o.object as other_object
                from edges as e
                cross join lateral memfold_internal._clusters(e.a, e.b, e.similarity, v_size) as c
                cross join lateral memfold_internal._memory(p_tenant_id, v_ids[c.member]) as m
                cross join lateral memfold_internal._memory(p_tenant_id, v_ids[c.leader]) as o
                where e.a is not null and c.similarity_to_leader is not null
                order by c.similarity_to_leader desc, c.member
            loop
                if v_count > p_max_operations then
                    -- Left to the next call.
                    v_members := v_members || v_edge.member;
                    continue;
                end if;
                v_check := memfold_internal._check_merge(p_tenant_id, p_bucket_id, v_policy, v_edge.content, v_edge.other_content,
                    v_edge.object, v_edge.other_object, null, true);
                v_is_newer := v_ids[v_edge.member] > v_ids[v_edge.leader];
                v_pair := memfold_internal._decide_pair(v_policy, v_check.mergeable, false, v_edge.content, v_said[v_edge.member],
                    v_edge.other_content, v_said[v_edge.leader], v_is_newer);
                if v_pair.action not in ('merged', 'replaced') then
                    v_stopped := true;
                    v_from := v_from || v_edge.member;
                    v_into := v_into || v_edge.leader;
                    continue;
                end if;
                v_members := v_members || v_edge.member;
                v_leaders := v_leaders || v_edge.leader;
                v_count := v_count + 1;
                return query
                select array[v_ids[case when v_is_newer = (v_pair.action = 'merged') then v_edge.member else v_edge.leader end]],
                    v_ids[case when v_is_newer = (v_pair.action = 'merged') then v_edge.leader else v_edge.member end],
                    v_edge.similarity, v_check.guard, v_method, v_pair.action, v_policy, null::boolean;
            end loop;
            exit when not v_stopped;
        end loop;

        -- The questions are those that remain after these merges.
        return query
        with edges as (
            select array_agg(e.a order by e.a, e.b) as a, array_agg(e.b order by e.a, e.b) as b,
                array_agg(e.similarity order by e.a, e.b) as similarity
            from unnest(v_a, v_b, v_near, v_merges) as e (a, b, similarity, merges)
            where e.a not in (select f.place from unnest(v_members) as f (place))
                and e.b not in (select f.place from unnest(v_members) as f (place))
        )
        select array(select v_ids[i.place] from unnest(c.members) as i (place) order by 1), null::uuid, c.lowest,
            null::text[], v_method, null::text, v_policy, exists (
                select from unnest(c.members) as i (place)
                where i.place in (
                    select x.place from unnest(v_a, v_b, v_merges) as e (a, b, merges)
                    cross join lateral (values (e.a), (e.b)) as x (place)
                    where e.merges
                )
            )
        from edges as e
        cross join lateral memfold_internal._cliques(e.a, e.b, e.similarity, v_size, v_group.max_cluster_size) as c
        where e.a is not null;
    end loop;
end;
$$;
