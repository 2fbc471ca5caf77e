create or replace function memfold._was_asked(tenant_id text, memory_id uuid, other_id uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from memfold.judgements as j
        where j.tenant_id = _was_asked.tenant_id collate "C"
            and j.memory_id = _was_asked.memory_id and j.other_id = _was_asked.other_id and j.state <> 'moot'
    ) or exists (
        select from memfold.judgements as j
        where j.tenant_id = _was_asked.tenant_id collate "C"
            and j.memory_id = _was_asked.other_id and j.other_id = _was_asked.memory_id and j.state <> 'moot'
    );
end;
$$;
revoke all on function memfold._was_asked(text, uuid, uuid) from public;
comment on function memfold._was_asked(text, uuid, uuid) is
'Whether a pair, in either order, is queued or judged already: then it is not asked again. Only reads.';

create or replace function memfold._queue_judgement(
    tenant_id text, kind text, memory_id uuid, other_id uuid, similarity double precision, guard text[], again boolean
) returns uuid
language plpgsql volatile
as $$
declare
    v_judgement_id uuid;
    v_memory memfold.memories;
begin
    if not again and memfold._was_asked(tenant_id, memory_id, other_id) then
        return null;
    end if;
    select m.* into strict v_memory
    from memfold.memories as m
    where m.tenant_id = _queue_judgement.tenant_id collate "C" and m.memory_id = _queue_judgement.memory_id;
    -- NOTIFY makes commits wait for one another: only where it is wanted, and where a judge may be asleep.
    if (memfold._policy(v_memory.tenant_id, v_memory.bucket_id, v_memory.memory_type)).notify and not exists (
        select from memfold.judgements as j
        where j.tenant_id = _queue_judgement.tenant_id collate "C" and j.state in ('open', 'leased')
            and (j.kind = 'review') = (_queue_judgement.kind = 'review')
    ) then
        -- (no tenant in it: whoever is connected may listen)
        perform pg_catalog.pg_notify('memfold_judgements', '');
    end if;
    insert into memfold.judgements as j (
        tenant_id, bucket_id, scope_key, kind, memory_id, other_id, similarity, guard
    ) values (
        v_memory.tenant_id, v_memory.bucket_id, v_memory.scope_key, _queue_judgement.kind,
        greatest(_queue_judgement.memory_id, _queue_judgement.other_id),
        least(_queue_judgement.memory_id, _queue_judgement.other_id), _queue_judgement.similarity, _queue_judgement.guard
    )
    on conflict do nothing
    returning j.judgement_id into v_judgement_id;
    return v_judgement_id;
end;
$$;
revoke all on function memfold._queue_judgement(text, text, uuid, uuid, double precision, text[], boolean) from public;
comment on function memfold._queue_judgement(text, text, uuid, uuid, double precision, text[], boolean) is
'Queues the question whether two memories say the same, and returns its id; null where the pair, in either order, is
queued, or (unless again) was judged.';

create or replace function memfold._refresh_judgement(j memfold.judgements) returns memfold.judgements
language plpgsql stable
as $$
declare
    a memfold.memories;
    b memfold.memories;
begin
    select r.* into strict a
    from memfold.memories as m
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold._root(m.memory_id, m.root_id)
    where m.tenant_id = j.tenant_id and m.memory_id = j.memory_id;
    select r.* into strict b
    from memfold.memories as m
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold._root(m.memory_id, m.root_id)
    where m.tenant_id = j.tenant_id and m.memory_id = j.other_id;
    if a.memory_id = b.memory_id then
        j.state := 'moot';
        j.reason := 'the two are one memory already';
    elsif a.status <> 'active' or b.status <> 'active' then
        j.state := 'moot';
        j.reason := pg_catalog.format('memory %s is %s',
            case when a.status <> 'active' then a.memory_id else b.memory_id end,
            case when a.status <> 'active' then a.status else b.status end);
    elsif (a.memory_id, b.memory_id) <> (j.memory_id, j.other_id) then
        -- one of them was folded: the question is now about where it leads
        if (case j.kind
            when 'review' then exists (
                select from memfold.judgements as o
                where o.tenant_id = j.tenant_id and o.state in ('open', 'leased')
                    and least(o.memory_id, o.other_id) = least(a.memory_id, b.memory_id)
                    and greatest(o.memory_id, o.other_id) = greatest(a.memory_id, b.memory_id)
            )
            else memfold._was_asked(j.tenant_id, a.memory_id, b.memory_id)
        end) then
            j.state := 'moot';
            j.reason := 'the memories that the two lead to are queued or judged already';
        end if;
        j.memory_id := greatest(a.memory_id, b.memory_id);
        j.other_id := least(a.memory_id, b.memory_id);
    end if;
    return j;
end;
$$;
revoke all on function memfold._refresh_judgement(memfold.judgements) from public;
comment on function memfold._refresh_judgement(memfold.judgements) is
'The judgement on the present state: moot where there is nothing to decide any more, else about the two roots to which its
memories lead. Only reads.';

create or replace function memfold._ask_anew(j memfold.judgements) returns uuid
language plpgsql volatile
as $$
declare
    v_judgement_id uuid;
begin
    update memfold.judgements as o
    set state = 'moot', reason = 'one of the two was folded: asked anew about where it leads', resolved_at = memfold._clock()
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    insert into memfold.judgements as n (
        tenant_id, bucket_id, scope_key, kind, memory_id, other_id, similarity, guard, run_id
    ) values (
        j.tenant_id, j.bucket_id, j.scope_key, j.kind, j.memory_id, j.other_id, j.similarity, j.guard, j.run_id
    )
    on conflict do nothing
    returning n.judgement_id into v_judgement_id;
    return v_judgement_id;
end;
$$;
revoke all on function memfold._ask_anew(memfold.judgements) from public;
comment on function memfold._ask_anew(memfold.judgements) is
'Closes a judgement whose pair is no longer what was asked, and queues a new one about j''s memories; returns its id, null
where they are queued already. A new id, so that an answer about the old pair that is still to come meets MF027.';
