create or replace function memfold_internal._contested(tenant_id text, memory_ids uuid[])
returns table (memory_id uuid, slot text, last_seen timestamptz)
language plpgsql stable rows 1
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_group record;
begin
    for v_group in
        select x.bucket_id || ' ' || x.scope_key as slot, x.bucket_id, min(x.memory_type) as memory_type, min(x.predicate) as predicate,
            array_agg(x.id) as ids
        from (
            select distinct m.memory_id as id, m.bucket_id, m.scope_key, m.memory_type, m.predicate,
                memfold.canonicalize(m.object, 'prose/1') as value
            from unnest(memory_ids) as i (id)
            cross join lateral memfold_internal._memory(_contested.tenant_id, i.id) as m
            where num_nonnulls(m.subject, m.predicate, m.object) = 3
        ) as x
        group by x.bucket_id, x.scope_key
        having min(x.value) <> max(x.value)
    loop
        if memfold_internal._is_undecided(memfold_internal._policy(tenant_id, v_group.bucket_id, v_group.memory_type), tenant_id,
            v_group.predicate)
        then
            return query
            select k.memory_id, v_group.slot, k.last_seen from memfold.memory_totals as k
            where k.tenant_id = _contested.tenant_id collate "C" and k.memory_id = any(v_group.ids);
        end if;
    end loop;
end;
$$;
comment on function memfold_internal._contested is
'Those of some memories that have different values of one subject and predicate (slot), of which nobody has said how many it has, and when
each was last stated. Only reads.';

create or replace function memfold_internal._disputed_by(tenant_id text, memory_id uuid) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    m memfold.memories;
    v_others uuid[] := '{}';
begin
    select o.* into m from memfold_internal._memory(_disputed_by.tenant_id, _disputed_by.memory_id) as o;
    if num_nonnulls(m.subject, m.predicate, m.object) = 3
        and memfold_internal._is_undecided(memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type), m.tenant_id, m.predicate)
    then
        v_others := memfold_internal._other_values(m.tenant_id, m.bucket_id, m.scope_key, m.object, null, 10);
    end if;
    return array(
        select i.id from pg_catalog.unnest(v_others) as i (id)
        union
        -- not what was forgotten: it is named nowhere
        select o.memory_id
        from memfold.judgements as p
        join memfold.judgements as j on j.tenant_id = p.tenant_id and j.status in ('open', 'leased')
            and j.judgement_id = case p.status when 'part' then p.cluster_id else p.judgement_id end
        cross join lateral pg_catalog.unnest(memfold_internal._member_ids(j.memory_id, j.other_id, j.member_ids)) as i (id)
        cross join lateral memfold_internal._memory(_disputed_by.tenant_id, i.id) as o
        where p.tenant_id = _disputed_by.tenant_id collate "C"
            and (p.memory_id = _disputed_by.memory_id or p.other_id = _disputed_by.memory_id)
            and p.status in ('open', 'leased', 'part') and o.memory_id <> _disputed_by.memory_id and o.status in ('active', 'superseded')
        order by 1 desc
        limit 10
    );
end;
$$;
comment on function memfold_internal._disputed_by is
'The memories that may say otherwise, newest first, at most ten: those that an open question puts next to a memory, and other values of its
subject and predicate, if nobody has said how many values that has. Only reads.';
