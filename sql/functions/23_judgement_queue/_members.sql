-- Of columns, for on Citus a row of a table is of its shard's type.
create or replace function memfold_internal._member_ids(memory_id uuid, other_id uuid, member_ids uuid[]) returns uuid[]
language sql immutable parallel safe
return coalesce(member_ids, array[least(memory_id, other_id), greatest(memory_id, other_id)]);
revoke all on function memfold_internal._member_ids(uuid, uuid, uuid[]) from public;
comment on function memfold_internal._member_ids(uuid, uuid, uuid[]) is
'The memories that a judgement with these columns is about, oldest to newest.';

create or replace function memfold_internal._members(j memfold.judgements) returns uuid[]
language sql immutable parallel safe
return memfold_internal._member_ids(j.memory_id, j.other_id, j.member_ids);
revoke all on function memfold_internal._members(memfold.judgements) from public;
comment on function memfold_internal._members(memfold.judgements) is 'The memories that a judgement is about, oldest to newest.';

create or replace function memfold_internal._add_parts(tenant_id text, judgement_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
    h memfold.judgements;
    v_id uuid;
begin
    foreach v_id in array judgement_ids loop
        select o.* into strict h
        from memfold.judgements as o
        where o.tenant_id = _add_parts.tenant_id collate "C" and o.judgement_id = v_id;
        continue when h.member_ids is null;
        insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, status, memory_id, other_id, cluster_id)
        select h.tenant_id, h.bucket_id, h.scope_key, h.kind, 'part', m.id, h.other_id, h.judgement_id
        from pg_catalog.unnest(h.member_ids[2:]) as m (id);
    end loop;
end;
$$;
revoke all on function memfold_internal._add_parts(text, uuid[]) from public;
comment on function memfold_internal._add_parts(text, uuid[]) is
'Gives each member of those judgements that are about a cluster, but the oldest, its row of status part.';

create or replace function memfold_internal._close_parts(j memfold.judgements, members uuid[], about uuid[]) returns void
language plpgsql volatile
as $$
begin
    if j.member_ids is null then
        return;
    end if;
    update memfold.judgements as p
    set status = case when p.memory_id = any(members[2:]) then 'done' else 'obsolete' end,
        other_id = case when p.memory_id = any(members[2:]) then members[1] else p.other_id end,
        verdict = case
            when p.memory_id <> all(members[2:]) then null
            when j.verdict = 'unsure' or p.memory_id = any(about) and members[1] = any(about) then j.verdict
            else 'distinct' end,
        model = j.model, reason = 'answered with its cluster', resolved_at = memfold_internal._clock()
    where p.tenant_id = j.tenant_id and p.cluster_id = j.judgement_id and p.status = 'part';
end;
$$;
revoke all on function memfold_internal._close_parts(memfold.judgements, uuid[], uuid[]) from public;
comment on function memfold_internal._close_parts(memfold.judgements, uuid[], uuid[]) is
'Closes what belongs to a question about a cluster, j with its answer: done for those of members (who were still there), with the
verdict for those that it is about, distinct for the others; obsolete for the rest. members empty: all of it is obsolete.';

create or replace function memfold_internal._refresh_judgement(j memfold.judgements) returns memfold.judgements
language plpgsql stable
as $$
declare
    a memfold.memories;
    b memfold.memories;
begin
    if j.member_ids is not null then
        -- whoever is no longer a memory of its own drops out
        j.member_ids := array(
            select i.id
            from pg_catalog.unnest(j.member_ids) as i (id)
            cross join lateral (
                select from memfold.memories as m
                where m.tenant_id = j.tenant_id and m.memory_id = i.id and m.root_id is null and m.status = 'active'
                offset 0
            ) as m
            order by i.id
        );
        if pg_catalog.cardinality(j.member_ids) < 2 then
            j.status := 'obsolete';
            j.reason := 'fewer than two of its memories are left';
        else
            j.memory_id := j.member_ids[pg_catalog.cardinality(j.member_ids)];
            j.other_id := j.member_ids[1];
        end if;
        return j;
    end if;
    select r.* into strict a
    from memfold.memories as m
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold_internal._root(m.memory_id, m.root_id)
    where m.tenant_id = j.tenant_id and m.memory_id = j.memory_id;
    select r.* into strict b
    from memfold.memories as m
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold_internal._root(m.memory_id, m.root_id)
    where m.tenant_id = j.tenant_id and m.memory_id = j.other_id;
    if a.memory_id = b.memory_id then
        j.status := 'obsolete';
        j.reason := 'the two are one memory already';
    elsif (a.status <> 'active' or b.status <> 'active')
        -- A value that a third one retired while it was asked about: the other one is to find its place on the slot's timeline, for
        -- else it would stay beside what holds now.
        and not (a.scope_key = b.scope_key and a.predicate is not null
            and (a.status, b.status) in (('active', 'superseded'), ('superseded', 'active'))
            and not exists (
                select from memfold.memory_events as e
                where e.tenant_id = j.tenant_id and e.action = 'superseded'
                    and e.memory_id = case a.status when 'active' then a.memory_id else b.memory_id end
                    and e.target_id = case a.status when 'active' then b.memory_id else a.memory_id end
            ))
    then
        j.status := 'obsolete';
        j.reason := pg_catalog.format('memory %s is %s',
            case when a.status <> 'active' then a.memory_id else b.memory_id end,
            case when a.status <> 'active' then a.status else b.status end);
    elsif (a.memory_id, b.memory_id) <> (j.memory_id, j.other_id) then
        -- one of them was folded: the question is now about where it leads
        if (case j.kind
            when 'review' then memfold_internal._is_in_question(j.tenant_id, a.memory_id, b.memory_id)
            else memfold_internal._was_asked(j.tenant_id, a.memory_id, b.memory_id)
        end) then
            j.status := 'obsolete';
            j.reason := 'the memories that the two lead to are queued or judged already';
        end if;
        j.memory_id := greatest(a.memory_id, b.memory_id);
        j.other_id := least(a.memory_id, b.memory_id);
    end if;
    return j;
end;
$$;
revoke all on function memfold_internal._refresh_judgement(memfold.judgements) from public;
comment on function memfold_internal._refresh_judgement(memfold.judgements) is
'The judgement on the present state: obsolete where there is nothing to decide any more, else about the two roots to which its
memories lead; of a cluster, about those of its members that are active roots. Only reads.';

create or replace function memfold_internal._has_changed(n memfold.judgements, j memfold.judgements) returns boolean
language sql immutable parallel safe
return (n.memory_id, n.other_id, n.member_ids) is distinct from (j.memory_id, j.other_id, j.member_ids);
revoke all on function memfold_internal._has_changed(memfold.judgements, memfold.judgements) from public;
comment on function memfold_internal._has_changed(memfold.judgements, memfold.judgements) is
'Whether a judgement is about other memories now (_refresh_judgement) than it was.';
