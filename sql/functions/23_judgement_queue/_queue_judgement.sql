-- The memories that a judgement with these columns is about, oldest to newest. Not a row as the argument: on Citus, a row
-- has the type of its shard.
create or replace function memfold_internal._member_ids(p_memory_id uuid, p_other_id uuid, p_member_ids uuid[]) returns uuid[]
language sql immutable parallel safe
return coalesce(p_member_ids, array[least(p_memory_id, p_other_id), greatest(p_memory_id, p_other_id)]);

-- The memories that a judgement is about, oldest to newest.
create or replace function memfold_internal._members(j memfold.judgements) returns uuid[]
language sql immutable parallel safe
return memfold_internal._member_ids(j.memory_id, j.other_id, j.member_ids);

-- Adds a row of status part for each member, except the oldest, of the judgements that are about a cluster.
create or replace function memfold_internal._add_parts(p_tenant_id text, p_judgement_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
    h memfold.judgements;
    v_id uuid;
begin
    foreach v_id in array p_judgement_ids loop
        select o.* into strict h
        from memfold.judgements as o
        where o.tenant_id = p_tenant_id collate "C" and o.judgement_id = v_id;
        continue when h.member_ids is null;
        insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, status, memory_id, other_id, cluster_id)
        select h.tenant_id, h.bucket_id, h.scope_key, h.kind, 'part', m.id, h.other_id, h.judgement_id
        from unnest(h.member_ids[2:]) as m (id);
    end loop;
end;
$$;

-- Closes the parts of a question about a cluster. j: the judgement with its answer. Parts of p_members, the memories that were still there,
-- are done: with j's verdict if p_about contains them and the oldest (or for unsure), else distinct. All other parts are obsolete.
create or replace function memfold_internal._close_parts(j memfold.judgements, p_members uuid[], p_about uuid[]) returns void
language plpgsql volatile
as $$
begin
    if j.member_ids is null then
        return;
    end if;
    update memfold.judgements as p
    set status = case when p.memory_id = any(p_members[2:]) then 'done' else 'obsolete' end,
        other_id = case when p.memory_id = any(p_members[2:]) then p_members[1] else p.other_id end,
        verdict = case
            when p.memory_id <> all(p_members[2:]) then null
            when j.verdict = 'unsure' or p.memory_id = any(p_about) and p_members[1] = any(p_about) then j.verdict
            else 'distinct' end,
        model = j.model, reason = 'answered with its cluster', resolved_at = memfold_internal._clock()
    where p.tenant_id = j.tenant_id and p.cluster_id = j.judgement_id and p.status = 'part';
end;
$$;

-- The judgement as it should be now: obsolete if nothing is left to decide, else about the present roots of its two
-- memories, or about the members of its cluster that are active roots.
create or replace function memfold_internal._refresh_judgement(j memfold.judgements) returns memfold.judgements
language plpgsql stable
as $$
declare
    a memfold.memories;
    b memfold.memories;
begin
    if j.link is not null then
        -- the link or rule that decides a question about names closes it
        return j;
    elsif j.member_ids is not null then
        j.member_ids := array(
            select i.id
            from unnest(j.member_ids) as i (id)
            cross join lateral memfold_internal._memory(j.tenant_id, i.id) as m
            where m.root_id is null and m.status = 'active'
            order by i.id
        );
        if cardinality(j.member_ids) < 2 then
            j.status := 'obsolete';
            j.reason := 'fewer than two of its memories are left';
        else
            j.memory_id := j.member_ids[cardinality(j.member_ids)];
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
        j.reason := 'both ids are the same memory';
    elsif 'withdrawn' in (a.status, b.status)
        or (a.status = 'rejected')::integer + (b.status = 'rejected')::integer > (j.kind = 'forgotten')::integer
    then
        j.status := 'obsolete';
        j.reason := format('memory %s is %s',
            case when a.status in ('rejected', 'withdrawn') then a.memory_id else b.memory_id end,
            case when a.status in ('rejected', 'withdrawn') then a.status else b.status end);
    elsif (a.memory_id, b.memory_id) <> (j.memory_id, j.other_id) then
        if (case j.kind
            when 'review' then memfold_internal._is_in_question(j.tenant_id, a.memory_id, b.memory_id)
            else memfold_internal._was_asked(j.tenant_id, a.memory_id, b.memory_id)
        end) then
            j.status := 'obsolete';
            j.reason := 'the present roots of its memories are already queued or judged';
        end if;
        j.memory_id := greatest(a.memory_id, b.memory_id);
        j.other_id := least(a.memory_id, b.memory_id);
    end if;
    return j;
end;
$$;

-- Whether the refreshed judgement n (_refresh_judgement) is about other memories than j.
create or replace function memfold_internal._has_changed(n memfold.judgements, j memfold.judgements) returns boolean
language sql immutable parallel safe
return (n.memory_id, n.other_id, n.member_ids) is distinct from (j.memory_id, j.other_id, j.member_ids);

-- Whether a pair, in either order and alone or in a cluster, is queued or judged, or was separated when a run was undone.
-- Such a pair is not asked about again, and no run merges it.
create or replace function memfold_internal._was_asked(p_tenant_id text, p_memory_id uuid, p_other_id uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C"
            and j.memory_id = p_memory_id and j.other_id = p_other_id and j.status <> 'obsolete'
    ) or exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C"
            and j.memory_id = p_other_id and j.other_id = p_memory_id and j.status <> 'obsolete'
    ) or exists (
        -- in one cluster
        select from memfold.judgements as j
        cross join lateral (
            select from memfold.judgements as o
            where o.tenant_id = j.tenant_id and o.memory_id = p_other_id and o.cluster_id = j.cluster_id
                and o.status <> 'obsolete'
            limit 1
        ) as o
        where j.tenant_id = p_tenant_id collate "C" and j.memory_id = p_memory_id
            and j.cluster_id is not null and j.status <> 'obsolete'
    );
end;
$$;

-- Whether an open or leased question is about both of these memories.
create or replace function memfold_internal._is_in_question(p_tenant_id text, p_memory_id uuid, p_other_id uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C" and j.status in ('open', 'leased')
            and least(j.memory_id, j.other_id) = least(p_memory_id, p_other_id)
            and greatest(j.memory_id, j.other_id) = greatest(p_memory_id, p_other_id)
    ) or exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C"
            and j.memory_id in (p_memory_id, p_other_id) and j.status = 'part'
            and exists (
                select from memfold.judgements as h
                where h.tenant_id = j.tenant_id and h.judgement_id = j.cluster_id and h.status in ('open', 'leased')
                    and h.member_ids @> array[p_memory_id, p_other_id]
            )
    );
end;
$$;

-- The kind of judgement for a policy's on_ambiguous.
create or replace function memfold_internal._judgement_kind(p_on_ambiguous text) returns text
language sql immutable strict parallel safe
return case p_on_ambiguous when 'judge' then 'write' when 'synthesise' then 'synthesis' else 'review' end;

-- Notifies waiting judges, unless the server's queue of notifications is nearly full.
create or replace function memfold_internal._notify_judges() returns void
language plpgsql volatile
as $$
begin
    -- any login may fill the queue, and a full queue would make the COMMIT fail; judges also look for work without notifications
    if pg_notification_queue_usage() < 0.9 then
        -- without the tenant, because any connected role may listen
        perform pg_notify('memfold_judgements', '');
    end if;
end;
$$;

-- Notifies waiting judges, if the policy has notify and no question for them is queued yet. Called before one is queued.
create or replace function memfold_internal._wake_judges(
    p_tenant_id text, p_bucket_id text, p_memory_type text, p_review boolean
) returns void
language plpgsql volatile
as $$
begin
    -- NOTIFY makes commits wait for one another; judges with work in the queue need none
    if (memfold_internal._policy(p_tenant_id, p_bucket_id, p_memory_type)).notify and not exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C" and j.status in ('open', 'leased')
            and (j.kind = 'review') = p_review
    ) then
        perform memfold_internal._notify_judges();
    end if;
end;
$$;

-- Queues a question about two memories, in either order, and returns its id; null if the pair is queued, or, unless
-- p_again, was judged. p_again null: one of the two is new, and cannot have been asked about.
create or replace function memfold_internal._queue_judgement(
    p_tenant_id text, p_kind text, p_memory_id uuid, p_other_id uuid, p_similarity double precision, p_guard text[], p_again boolean
) returns uuid
language plpgsql volatile
as $$
declare
    v_judgement_id uuid;
    v_memory memfold.memories;
begin
    if (case when p_again then memfold_internal._is_in_question(p_tenant_id, p_memory_id, p_other_id)
        when not p_again then memfold_internal._was_asked(p_tenant_id, p_memory_id, p_other_id) end)
    then
        return null;
    end if;
    select m.* into strict v_memory
    from memfold.memories as m
    where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id;
    perform memfold_internal._wake_judges(v_memory.tenant_id, v_memory.bucket_id, v_memory.memory_type, p_kind = 'review');
    insert into memfold.judgements as j (
        tenant_id, bucket_id, scope_key, kind, memory_id, other_id, similarity, guard
    ) values (
        v_memory.tenant_id, v_memory.bucket_id, v_memory.scope_key, p_kind,
        greatest(p_memory_id, p_other_id),
        least(p_memory_id, p_other_id), p_similarity, p_guard
    )
    on conflict do nothing
    returning j.judgement_id into v_judgement_id;
    return v_judgement_id;
end;
$$;

-- Queues a question about p_members (oldest to newest) that follows from judgement j, under j's run, and returns its id;
-- null if it is already queued.
create or replace function memfold_internal._queue_rest(j memfold.judgements, p_kind text, p_members uuid[]) returns uuid
language plpgsql volatile
as $$
declare
    v_judgement_id uuid;
begin
    insert into memfold.judgements as n (
        tenant_id, bucket_id, scope_key, kind, memory_id, other_id, member_ids, similarity, guard, run_id
    ) values (
        j.tenant_id, j.bucket_id, j.scope_key, p_kind, p_members[cardinality(p_members)], p_members[1],
        case when cardinality(p_members) > 2 then p_members end, j.similarity, j.guard, j.run_id
    )
    on conflict do nothing
    returning n.judgement_id into v_judgement_id;
    if v_judgement_id is not null then
        perform memfold_internal._add_parts(j.tenant_id, array[v_judgement_id]);
    end if;
    return v_judgement_id;
end;
$$;

-- Closes a judgement whose memories have changed, and queues a new one about those of j (_refresh_judgement). Returns its
-- id, so that a late answer to the old one gets MF027; null if the question is already queued.
create or replace function memfold_internal._requeue_judgement(j memfold.judgements) returns uuid
language plpgsql volatile
as $$
begin
    update memfold.judgements as o
    set status = 'obsolete', reason = 'one of its memories was merged: a new question is about the rest', resolved_at = memfold_internal._clock()
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    perform memfold_internal._close_parts(j, '{}', '{}');
    return memfold_internal._queue_rest(j, j.kind, memfold_internal._members(j));
end;
$$;

-- Queues questions of a run, and returns their number; omits those already queued, and those with an erased member.
-- p_questions: objects with kind, members (two memories, or a cluster), similarity and guard (its signals). The caller
-- holds the bucket's lock or the members' rows, so that no member is being erased.
create or replace function memfold_internal._ask_all(r memfold.runs, p_questions jsonb) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids uuid[];
begin
    -- as in _wake_judges()
    if (memfold_internal._policy(r.tenant_id, r.bucket_id, '*')).notify and exists (
        select from jsonb_array_elements(p_questions) as q (question)
        where not exists (
            select from memfold.judgements as j
            where j.tenant_id = r.tenant_id and j.status in ('open', 'leased')
                and (j.kind = 'review') = (q.question ->> 'kind' = 'review')
        )
    ) then
        perform memfold_internal._notify_judges();
    end if;
    with asked as (
        insert into memfold.judgements as j (
            tenant_id, bucket_id, scope_key, kind, memory_id, other_id, member_ids, similarity, guard, run_id
        )
        select r.tenant_id, r.bucket_id, m.scope_key, q.question ->> 'kind', i.ids[cardinality(i.ids)], i.ids[1],
            case when cardinality(i.ids) > 2 then i.ids end, (q.question ->> 'similarity')::double precision,
            array(select jsonb_array_elements_text(q.question -> 'guard')), r.run_id
        from jsonb_array_elements(p_questions) with ordinality as q (question, place)
        cross join lateral (
            select array(
                select e.id::uuid from jsonb_array_elements_text(q.question -> 'members') as e (id) order by 1
            ) as ids
            offset 0
        ) as i
        cross join lateral (
            select m.scope_key from memfold.memories as m
            where m.tenant_id = r.tenant_id and m.memory_id = i.ids[cardinality(i.ids)]
            offset 0
        ) as m
        -- a member may have been erased since the run planned
        where not exists (
            select from unnest(i.ids) as e (id)
            left join lateral memfold_internal._memory(r.tenant_id, e.id) as o on true
            where o.memory_id is null
        )
        order by q.place
        on conflict do nothing
        returning j.judgement_id
    )
    -- not ROW_COUNT: Citus counts skipped rows as inserted
    select coalesce(array_agg(a.judgement_id), '{}') into v_ids from asked as a;
    perform memfold_internal._add_parts(r.tenant_id, v_ids);
    return cardinality(v_ids);
end;
$$;
