-- The memories that an open question compares with an older one: maintenance skips them until it is answered. Only reads.
create or replace function memfold_internal._waiting(p_tenant_id text, p_bucket_id text) returns uuid[]
language plpgsql stable
as $$
begin
    return array(
        select distinct i.id
        from memfold.judgements as j
        cross join lateral unnest((memfold_internal._member_ids(j.memory_id, j.other_id, j.member_ids))[2:]) as i (id)
        where j.tenant_id = p_tenant_id collate "C" and j.bucket_id = p_bucket_id collate "C"
            and j.status in ('open', 'leased')
    );
end;
$$;

-- Connected clusters of the positions 1..p_size, from pairs (a < b, sorted by a), and the leader with which each member is
-- compared: the first position leads all that are near it, the next one without a leader leads those near it, and so on.
-- No row for leaders. similarity_to_leader null: the member is only near another member of its leader's.
create or replace function memfold_internal._clusters(
    a integer[], b integer[], p_similarity double precision[], p_size integer
) returns table (cluster integer, member integer, leader integer, similarity_to_leader double precision)
language plpgsql immutable rows 1000
as $$
declare
    v_edges constant integer := coalesce(cardinality(a), 0);
    v_cluster integer[] := array_fill(0, array[p_size]);
    v_leader integer[] := array_fill(0, array[p_size]);
    v_led integer[] := array_fill(0, array[p_size]);
    v_similarity double precision[] := array_fill(null::double precision, array[p_size]);
    v_nearest double precision[] := array_fill(null::double precision, array[p_size]);
    v_from integer;
    v_to integer;
    v_here integer;
    v_there integer;
    v_next integer;
begin
    for e in 1..v_edges loop
        v_from := a[e];
        v_to := b[e];
        -- Edges are sorted by their first side: if that has no leader by now, it is one.
        if v_leader[v_from] = 0 then
            v_leader[v_from] := v_from;
        end if;
        if v_leader[v_from] = v_from and v_leader[v_to] = 0 then
            v_leader[v_to] := v_from;
            v_led[v_from] := v_led[v_from] + 1;
            v_similarity[v_to] := p_similarity[e];
        end if;
        -- Union-find, in which 0 means the position itself.
        v_here := v_from;
        while v_cluster[v_here] <> 0 loop
            v_here := v_cluster[v_here];
        end loop;
        v_there := v_to;
        while v_cluster[v_there] <> 0 loop
            v_there := v_cluster[v_there];
        end loop;
        while v_cluster[v_from] <> 0 and v_cluster[v_from] <> v_here loop
            v_next := v_cluster[v_from];
            v_cluster[v_from] := v_here;
            v_from := v_next;
        end loop;
        while v_cluster[v_to] <> 0 and v_cluster[v_to] <> v_there loop
            v_next := v_cluster[v_to];
            v_cluster[v_to] := v_there;
            v_to := v_next;
        end loop;
        if v_here <> v_there then
            v_cluster[greatest(v_here, v_there)] := least(v_here, v_there);
        end if;
    end loop;
    -- A position that leads none and has no leader gets the leader of the nearest member that it is near.
    for e in 1..v_edges loop
        for v_turn in 1..2 loop
            v_from := case v_turn when 1 then a[e] else b[e] end;
            v_to := case v_turn when 1 then b[e] else a[e] end;
            if (v_leader[v_from] = 0 or v_led[v_from] = 0 and v_similarity[v_from] is null)
                and v_similarity[v_to] is not null and p_similarity[e] > coalesce(v_nearest[v_from], -2)
            then
                v_nearest[v_from] := p_similarity[e];
                v_leader[v_from] := v_leader[v_to];
            end if;
        end loop;
    end loop;
    for v_member in 1..p_size loop
        if v_leader[v_member] not in (0, v_member) then
            v_here := v_member;
            while v_cluster[v_here] <> 0 loop
                v_here := v_cluster[v_here];
            end loop;
            cluster := v_here;
            member := v_member;
            leader := v_leader[v_member];
            similarity_to_leader := v_similarity[v_member];
            return next;
        end if;
    end loop;
end;
$$;

-- Clusters of the positions 1..p_size in which every two are near: each begins with the nearest pair left, and grows by
-- positions near all of its members, up to p_max_size. A position left alone is paired with its nearest neighbour, so that
-- every position with a pair is in a cluster. lowest: the least similarity in it. Deterministic.
create or replace function memfold_internal._cliques(
    a integer[], b integer[], p_similarity double precision[], p_size integer, p_max_size bigint
) returns table (members integer[], lowest double precision)
language plpgsql immutable rows 100
as $$
declare
    v_edges integer[];
    v_to integer[];
    v_near double precision[];
    -- Offset of each position's neighbours in v_to and v_near.
    v_begin integer[];
    v_used boolean[] := array_fill(false, array[p_size]);
    -- For the growing cluster: how many of its members each position is near, and its least similarity to them.
    v_cluster integer[] := array_fill(0, array[p_size]);
    v_count integer[] := array_fill(0, array[p_size]);
    v_lowest double precision[] := array_fill(0::double precision, array[p_size]);
    v_number integer := 0;
    v_member integer;
    v_next integer;
    v_place integer;
begin
    if coalesce(cardinality(a), 0) = 0 then
        return;
    end if;
    v_edges := array(
        select e.place::integer from unnest(a, b, p_similarity) with ordinality as e (a, b, similarity, place)
        order by e.similarity desc, least(e.a, e.b), greatest(e.a, e.b)
    );
    select array_agg(n.there order by n.here, n.similarity desc, n.there),
        array_agg(n.similarity order by n.here, n.similarity desc, n.there)
    into v_to, v_near
    from (
        select e.a as here, e.b as there, e.similarity from unnest(a, b, p_similarity) as e (a, b, similarity)
        union all
        select e.b, e.a, e.similarity from unnest(a, b, p_similarity) as e (a, b, similarity)
    ) as n;
    v_begin := array(
        select (1 + sum(coalesce(d.n, 0)) over (order by p.place) - coalesce(d.n, 0))::integer
        from generate_series(1, p_size + 1) as p (place)
        left join (
            select n.here, count(*) as n from unnest(a || b) as n (here) group by n.here
        ) as d on d.here = p.place
        order by p.place
    );
    foreach v_place in array v_edges loop
        continue when v_used[a[v_place]] or v_used[b[v_place]];
        v_number := v_number + 1;
        members := array[]::integer[];
        lowest := p_similarity[v_place];
        v_member := least(a[v_place], b[v_place]);
        v_next := greatest(a[v_place], b[v_place]);
        loop
            members := members || v_member;
            v_used[v_member] := true;
            if v_cluster[v_member] = v_number then
                lowest := least(lowest, v_lowest[v_member]);
            end if;
            for i in v_begin[v_member]..v_begin[v_member + 1] - 1 loop
                if v_cluster[v_to[i]] <> v_number then
                    v_cluster[v_to[i]] := v_number;
                    v_count[v_to[i]] := 0;
                    v_lowest[v_to[i]] := 1;
                end if;
                v_count[v_to[i]] := v_count[v_to[i]] + 1;
                v_lowest[v_to[i]] := least(v_lowest[v_to[i]], v_near[i]);
            end loop;
            exit when cardinality(members) >= p_max_size;
            if v_next is null then
                -- Of those near all members, take the one nearest to the first.
                for i in v_begin[members[1]]..v_begin[members[1] + 1] - 1 loop
                    if not v_used[v_to[i]] and v_count[v_to[i]] = cardinality(members) then
                        v_next := v_to[i];
                        exit;
                    end if;
                end loop;
                exit when v_next is null;
            end if;
            v_member := v_next;
            v_next := null;
        end loop;
        members := array(select m.place from unnest(members) as m (place) order by 1);
        return next;
    end loop;
    -- Pair the positions that are left with their nearest neighbours, which are in clusters already.
    for v_here in 1..p_size loop
        if not v_used[v_here] and v_begin[v_here + 1] > v_begin[v_here] then
            v_next := v_to[v_begin[v_here]];
            members := array[least(v_here, v_next), greatest(v_here, v_next)];
            lowest := v_near[v_begin[v_here]];
            return next;
        end if;
    end loop;
end;
$$;
