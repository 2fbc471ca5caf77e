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
        select min(x.predicate) as predicate, x.bucket_id || ' ' || x.scope_key as slot, array_agg(x.id) as ids
        from (
            select distinct m.memory_id as id, m.bucket_id, m.scope_key, m.predicate, m.object
            from unnest(memory_ids) as i (id)
            cross join lateral memfold_internal._memory(_contested.tenant_id, i.id) as m
            where num_nonnulls(m.subject, m.predicate, m.object) = 3
        ) as x
        group by x.bucket_id, x.scope_key
        having min(x.object) <> max(x.object)
    loop
        if memfold_internal._cardinality(tenant_id, v_group.predicate) is null then
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

create or replace function memfold_internal._disputed_by(
    tenant_id text, memory_id uuid, bucket_id text, scope_key bigint, subject text, predicate text, object text
) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids uuid[];
    v_object text;
begin
    v_ids := array(
        select i.id
        from memfold.judgements as j
        cross join lateral unnest(memfold_internal._member_ids(j.memory_id, j.other_id, j.member_ids)) as i (id)
        where j.tenant_id = _disputed_by.tenant_id collate "C"
            and (j.memory_id = _disputed_by.memory_id or j.other_id = _disputed_by.memory_id)
            and j.status in ('open', 'leased') and i.id <> _disputed_by.memory_id
    );
    if num_nonnulls(subject, predicate, object) = 3 and memfold_internal._cardinality(tenant_id, predicate) is null then
        v_object := memfold.canonicalize(object, 'prose/1');
        v_ids := v_ids || array(
            select n.memory_id
            from (
                select m.memory_id, m.object from memfold.memories as m
                where m.bucket_id = _disputed_by.bucket_id collate "C" and m.tenant_id = _disputed_by.tenant_id collate "C"
                    and m.scope_key = _disputed_by.scope_key and m.root_id is null and m.status = 'active'
                order by m.memory_id desc
                limit 100
            ) as n
            where memfold.canonicalize(n.object, 'prose/1') <> v_object
            limit 10
        );
    end if;
    return array(select distinct i.id from pg_catalog.unnest(v_ids) as i (id) order by i.id desc limit 10);
end;
$$;
comment on function memfold_internal._disputed_by is
'The memories that may say otherwise, newest first, at most ten: those that an open question puts next to a memory, and other values of its
subject and predicate, if nobody has said how many values that has. Only reads.';
