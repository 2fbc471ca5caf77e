-- The p_memory_ids that state different values of one subject and predicate (slot), while nobody has declared how many
-- values that predicate has; with the time at which each was last stated. Only reads.
create or replace function memfold_internal._contested(p_tenant_id text, p_memory_ids uuid[])
returns table (memory_id uuid, slot text, last_seen timestamptz)
language plpgsql stable rows 1
as $$
#variable_conflict use_column
declare
    v_group record;
begin
    for v_group in
        select m.bucket_id || ' ' || m.scope_key as slot, m.bucket_id, min(m.memory_type) as memory_type, min(m.predicate) as predicate,
            array_agg(m.memory_id) as ids, array_agg(m.object) as objects
        from (select distinct u.id from unnest(p_memory_ids) as u (id)) as i
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        where num_nonnulls(m.subject, m.predicate, m.object) = 3
        group by m.bucket_id, m.scope_key
        having count(*) > 1
    loop
        if (select count(distinct memfold_internal._prose_1(o.object)) > 1 from unnest(v_group.objects) as o (object))
            and memfold_internal._is_undecided(memfold_internal._policy(p_tenant_id, v_group.bucket_id, v_group.memory_type),
                memfold_internal._cardinality(p_tenant_id, v_group.predicate))
        then
            return query
            select k.memory_id, v_group.slot, k.last_seen from memfold.memory_totals as k
            where k.tenant_id = p_tenant_id collate "C" and k.memory_id = any(v_group.ids);
        end if;
    end loop;
end;
$$;

-- The memories that may contradict each of p_memory_ids, if any, newest first, at most three: those in an open question with
-- it, and other values of its subject and predicate while nobody has declared how many it has. Only reads.
create or replace function memfold_internal._disputes(p_tenant_id text, p_memory_ids uuid[]) returns setof memfold_internal.dispute
language plpgsql stable rows 10
as $$
#variable_conflict use_column
declare
    m memfold.memories;
    v_found memfold.memories[];
    v_predicates text[];
    v_rules text;
    v_policy memfold.policies;
    v_ids uuid[];
    v_others uuid[];
    v_other_ids uuid[];
begin
    v_found := array(
        select m from unnest(p_memory_ids) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        where num_nonnulls(m.subject, m.predicate, m.object) = 3
        order by m.bucket_id, m.memory_type
    );
    if v_found <> '{}' then
        v_predicates := memfold_internal._undeclared(p_tenant_id, array(select m.predicate from unnest(v_found) as m));
    end if;
    foreach m in array v_found loop
        continue when m.predicate <> all(v_predicates);
        if v_rules is distinct from m.bucket_id || ' ' || m.memory_type then
            v_rules := m.bucket_id || ' ' || m.memory_type;
            v_policy := memfold_internal._policy(p_tenant_id, m.bucket_id, m.memory_type);
        end if;
        continue when not memfold_internal._is_undecided(v_policy, null);
        v_others := memfold_internal._other_values(p_tenant_id, m.bucket_id, m.scope_key, m.object, null, 3);
        v_ids := v_ids || array_fill(m.memory_id, array[cardinality(v_others)]);
        v_other_ids := v_other_ids || v_others;
    end loop;
    -- Open questions. A rejected memory (kind forgotten) must not be named.
    if exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C" and j.status in ('open', 'leased')
    ) then
        select v_ids || array_agg(i.id), v_other_ids || array_agg(o.memory_id) into v_ids, v_other_ids
        from unnest(p_memory_ids) as i (id)
        cross join lateral (
            select p.status, p.cluster_id, p.judgement_id from memfold.judgements as p
            where p.tenant_id = p_tenant_id collate "C" and p.memory_id = i.id
            union
            select p.status, p.cluster_id, p.judgement_id from memfold.judgements as p
            where p.tenant_id = p_tenant_id collate "C" and p.other_id = i.id
            offset 0
        ) as p
        join memfold.judgements as j on j.tenant_id = p_tenant_id collate "C" and j.status in ('open', 'leased')
            and j.judgement_id = case p.status when 'part' then p.cluster_id else p.judgement_id end
        cross join lateral unnest(memfold_internal._member_ids(j.memory_id, j.other_id, j.member_ids)) as n (id)
        cross join lateral memfold_internal._memory(p_tenant_id, n.id) as o
        where o.memory_id <> i.id and o.status in ('active', 'superseded');
    end if;
    if v_ids is null then
        return;
    end if;
    return query
    select d.memory_id, (array_agg(d.other_id order by d.other_id desc))[1:3]
    from (select distinct u.memory_id, u.other_id from unnest(v_ids, v_other_ids) as u (memory_id, other_id)) as d
    group by d.memory_id;
end;
$$;
