create or replace function memfold._events_of(tenant_id text, texts uuid[]) returns setof memfold.memory_events
language sql stable
begin atomic
    select e.*
    from pg_catalog.unnest(texts) as i (id)
    cross join lateral (
        select e.* from memfold.memory_events as e
        where e.tenant_id = _events_of.tenant_id collate "C" and e.memory_id = i.id
        offset 0
    ) as e;
end;
revoke all on function memfold._events_of(text, uuid[]) from public;
comment on function memfold._events_of(text, uuid[]) is 'The ledger rows of texts. Inlined by its callers.';

create or replace function memfold._events_about(tenant_id text, texts uuid[]) returns setof memfold.memory_events
language sql stable
begin atomic
    select e.*
    from pg_catalog.unnest(texts) as i (id)
    cross join lateral (
        select e.* from memfold.memory_events as e
        where e.tenant_id = _events_about.tenant_id collate "C" and e.target_id = i.id
        offset 0
    ) as e;
end;
revoke all on function memfold._events_about(text, uuid[]) from public;
comment on function memfold._events_about(text, uuid[]) is
'The ledger rows that name texts as what was decided against. Inlined by its callers.';

create or replace function memfold._remove_events(tenant_id text, bucket_id text, event_ids uuid[]) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_id uuid;
    v_count bigint := 0;
    v_removed bigint;
begin
    foreach v_id in array event_ids loop
        delete from memfold.memory_events as e
        where e.tenant_id = _remove_events.tenant_id collate "C" and e.event_id = v_id;
        get diagnostics v_removed = row_count;
        v_count := v_count + v_removed;
        delete from memfold.memory_events_archive as e
        where e.tenant_id = _remove_events.tenant_id collate "C" and e.event_id = v_id;
        get diagnostics v_removed = row_count;
        v_count := v_count + v_removed;
        -- and that it was undone
        delete from memfold.memory_events as e
        where e.tenant_id = _remove_events.tenant_id collate "C" and e.undoes = v_id;
        get diagnostics v_removed = row_count;
        v_count := v_count + v_removed;
    end loop;
    if event_ids <> '{}' then
        delete from memfold.idempotency_keys as i
        where i.tenant_id = _remove_events.tenant_id collate "C" and i.bucket_id = _remove_events.bucket_id collate "C"
            and i.event_id = any(event_ids);
    end if;
    return v_count;
end;
$$;
revoke all on function memfold._remove_events(text, text, uuid[]) from public;
comment on function memfold._remove_events(text, text, uuid[]) is
'Takes rows of a bucket out of the ledger or its archive, with those that say they are undone and the calls'' idempotency
keys, and returns how many. Erasure alone may: the caller has memfold.maintenance on.';

create or replace function memfold._remove_member(tenant_id text, memory_id uuid) returns void
language plpgsql volatile
as $$
declare
    v_cluster uuid;
    v_state text;
    v_oldest uuid;
begin
    for v_cluster in
        select distinct p.cluster_id from memfold.judgements as p
        where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id is not null
            and _remove_member.memory_id in (p.memory_id, p.other_id)
        order by 1
    loop
        -- its answer, or the reason of it, may hold what the text said
        update memfold.memory_events as e
        set reason = null, guard = '{}'
        from (
            select x.id from memfold.judgements as p
            cross join lateral (values (p.memory_id), (p.other_id)) as x (id)
            where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id = v_cluster
            group by x.id
        ) as x
        where e.tenant_id = _remove_member.tenant_id collate "C" and e.memory_id = x.id and e.judgement_id = v_cluster;
        delete from memfold.judgements as h
        where h.tenant_id = _remove_member.tenant_id collate "C" and h.judgement_id = v_cluster
        returning h.state into v_state;
        if v_state in ('open', 'leased', 'dead') then
            -- an answer that is still to come finds nothing; the others are asked about by a later run
            delete from memfold.judgements as p
            where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id = v_cluster;
            continue;
        end if;
        delete from memfold.judgements as p
        where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id = v_cluster
            and p.memory_id = _remove_member.memory_id;
        -- where it was the one that all others are beside, the oldest of them is that now
        select p.memory_id into v_oldest
        from memfold.judgements as p
        where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id = v_cluster
            and p.other_id = _remove_member.memory_id
        order by p.memory_id
        limit 1;
        delete from memfold.judgements as p
        where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id = v_cluster and p.memory_id = v_oldest;
        update memfold.judgements as p
        set other_id = v_oldest, guard = '{}'
        where p.tenant_id = _remove_member.tenant_id collate "C" and p.cluster_id = v_cluster
            and p.other_id = _remove_member.memory_id;
    end loop;
end;
$$;
revoke all on function memfold._remove_member(text, uuid) from public;
comment on function memfold._remove_member(text, uuid) is
'Takes a text out of the clusters that it was asked about in. That the others were asked about together stays on record. The caller
has memfold.maintenance on.';

create or replace function memfold._remove_texts(tenant_id text, texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_contents constant text[] := array(
        select m.content
        from pg_catalog.unnest(texts) as i (id)
        cross join lateral (
            select m.content from memfold.memories as m where m.tenant_id = v_tenant_id and m.memory_id = i.id
            offset 0
        ) as m
    );
    v_id uuid;
begin
    -- A worker that asks an open judgement again (_ask_anew) holds no scope's lock. First who has such a judgement, then
    -- the rows that a new one refers to: what is deleted below is all there will be.
    perform from memfold.judgements as j
    where j.tenant_id = v_tenant_id and (j.memory_id = any(texts) or j.other_id = any(texts))
    order by j.judgement_id
    for update;
    perform from memfold.memories as m
    where m.tenant_id = v_tenant_id and m.memory_id = any(texts)
    order by m.memory_id
    for update;
    delete from memfold.labelled_pairs as p
    where p.tenant_id = v_tenant_id
        and (p.memory_a = any(texts) or p.memory_b = any(texts) or p.content_a = any(v_contents) or p.content_b = any(v_contents));
    foreach v_id in array texts loop
        perform memfold._remove_member(v_tenant_id, v_id);
        delete from memfold.judgements as j where j.tenant_id = v_tenant_id and j.memory_id = v_id;
        delete from memfold.judgements as j where j.tenant_id = v_tenant_id and j.other_id = v_id;
        delete from memfold.memory_intervals as i where i.tenant_id = v_tenant_id and i.memory_id = v_id;
        delete from memfold.memory_tokens as t where t.tenant_id = v_tenant_id and t.memory_id = v_id;
        delete from memfold.memory_vectors as v where v.tenant_id = v_tenant_id and v.memory_id = v_id;
        delete from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = v_id;
    end loop;
    -- Aliases and roots at once, for each foreign key is checked at the end of the statement.
    delete from memfold.memories as m
    using (select t.id from pg_catalog.unnest(texts) as t (id)) as t
    where m.tenant_id = v_tenant_id and m.memory_id = t.id;
end;
$$;
revoke all on function memfold._remove_texts(text, uuid[]) from public;
comment on function memfold._remove_texts(text, uuid[]) is
'Takes texts out of every table but the ledger and memory_sources. No text that stays may be folded into one of them. The caller
has memfold.maintenance on.';

create or replace function memfold._without(similar_memories jsonb, texts uuid[]) returns jsonb
language sql immutable parallel safe
begin atomic
    select nullif(coalesce(pg_catalog.jsonb_agg(s.entry - g.vector - g.words order by s.place), '[]'), '[]')
    from pg_catalog.jsonb_array_elements(similar_memories) with ordinality as s (entry, place)
    cross join
        lateral (
            select
                case
                    when (s.entry ->> 'matched_id')::uuid = any(texts) then '{matched_id,matched_similarity}' else '{}'
                end::text[] as vector,
                case
                    when (s.entry ->> 'jaccard_matched_id')::uuid = any(texts) then '{jaccard_matched_id,matched_jaccard}' else '{}'
                end::text[] as words
        ) as g
    where (s.entry ->> 'memory_id')::uuid <> all(texts);
end;
revoke all on function memfold._without(jsonb, uuid[]) from public;
comment on function memfold._without(jsonb, uuid[]) is
'What was reported as similar, without these texts, whether they are memories or what matched. Null: nothing is left.';

create or replace function memfold._blank_signals(tenant_id text, bucket_id text, texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := tenant_id;
begin
    update memfold.memory_events as e
    set guard = '{}'
    from (
        select o.event_id, o.at from memfold._events_about(v_tenant_id, texts) as o where o.guard <> '{}'
    ) as o
    where e.tenant_id = v_tenant_id and e.event_id = o.event_id and e.at = o.at;
    update memfold.memory_events_archive as e
    set guard = '{}'
    from (select t.id from pg_catalog.unnest(texts) as t (id)) as t
    where e.tenant_id = v_tenant_id and e.target_id = t.id and e.guard <> '{}';
    update memfold.judgements as j
    set guard = '{}'
    from (select t.id from pg_catalog.unnest(texts) as t (id)) as t
    where j.tenant_id = v_tenant_id and j.memory_id = t.id and j.guard <> '{}';
    update memfold.judgements as j
    set guard = '{}'
    from (select t.id from pg_catalog.unnest(texts) as t (id)) as t
    where j.tenant_id = v_tenant_id and j.other_id = t.id and j.guard <> '{}';
    update memfold.judgements as j
    set guard = '{}'
    from (
        select p.cluster_id
        from pg_catalog.unnest(texts) as t (id)
        cross join lateral (
            select p.cluster_id from memfold.judgements as p
            where p.tenant_id = v_tenant_id and p.memory_id = t.id and p.cluster_id is not null
            offset 0
        ) as p
    ) as p
    where j.tenant_id = v_tenant_id and j.judgement_id = p.cluster_id and j.guard <> '{}';
    update memfold.memory_events as e
    set similar_memories = memfold._without(e.similar_memories, texts)
    where e.tenant_id = v_tenant_id and e.bucket_id = _blank_signals.bucket_id collate "C"
        and (e.similar_memories is not null or not e.observation)
        and e.similar_memories is distinct from memfold._without(e.similar_memories, texts);
    update memfold.memory_events_archive as e
    set similar_memories = memfold._without(e.similar_memories, texts)
    where e.tenant_id = v_tenant_id and e.bucket_id = _blank_signals.bucket_id collate "C"
        and (e.similar_memories is not null or not e.observation)
        and e.similar_memories is distinct from memfold._without(e.similar_memories, texts);
end;
$$;
revoke all on function memfold._blank_signals(text, text, uuid[]) from public;
comment on function memfold._blank_signals(text, text, uuid[]) is
'Removes what the ledger and the queue say about texts beside others: the guard''s signals are words of both. The caller has
memfold.maintenance on.';

create or replace function memfold._successors(tenant_id text, texts uuid[], gone uuid[])
returns table (memory_id uuid, into_id uuid, root_id uuid)
language sql stable
begin atomic
    with recursive edges as materialized (
        select m.memory_id, m.merged_into, memfold._root(m.memory_id, m.root_id) as root
        from pg_catalog.unnest(texts) as i (id)
        cross join lateral (
            select m.* from memfold.memories as m
            where m.tenant_id = _successors.tenant_id collate "C" and m.memory_id = i.id
            offset 0
        ) as m
    ),
    up (memory_id, root, at) as (
        select e.memory_id, e.root, e.merged_into from edges as e
        union all
        select u.memory_id, u.root, e.merged_into
        from up as u
        join edges as e on e.memory_id = u.at
        where u.at = any(gone)
    ),
    nearest as (
        select u.memory_id, u.root, u.at from up as u where u.at is null or u.at <> all(gone)
    ),
    heads as (
        select distinct on (n.root) n.root, n.memory_id as head
        from nearest as n
        where n.at is null and n.memory_id <> all(gone)
        order by n.root, n.memory_id
    )
    select n.memory_id, coalesce(n.at, h.head), h.head
    from nearest as n
    left join heads as h on h.root = n.root;
end;
revoke all on function memfold._successors(text, uuid[], uuid[]) from public;
comment on function memfold._successors(text, uuid[], uuid[]) is
'Of whole trees, from which the texts gone are taken: where each text leads then. That is the nearest text above it that stays,
else the oldest of those that have none (of that one, and of a root that stays: itself). Null: nothing of its tree stays.
root_id: what is the root then. Only reads.';

create or replace function memfold._state_anew(tenant_id text, texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := tenant_id;
    m memfold.memories;
    e memfold.memory_events;
    v_hash bytea;
begin
    for m in
        select o.*
        from pg_catalog.unnest(texts) as i (id)
        cross join lateral (
            select o.* from memfold.memories as o where o.tenant_id = v_tenant_id and o.memory_id = i.id
            offset 0
        ) as o
        where not exists (
            select from memfold.memory_events as s
            where s.tenant_id = v_tenant_id and s.memory_id = o.memory_id and s.observation and s.content = o.content
                and (s.memory_type, s.subject, s.predicate, s.object, s.session_id)
                is not distinct from (o.memory_type, o.subject, o.predicate, o.object, o.session_id)
        )
    loop
        select s.* into e
        from memfold.memory_events as s
        where s.tenant_id = v_tenant_id and s.memory_id = m.memory_id and s.observation and s.content is not null
        order by memfold._content_hash(s.memory_type, s.subject, s.predicate, s.content, m.canonicalizer, m.key_fields,
            m.metadata_signature) is distinct from m.content_hash, s.event_id
        limit 1;
        continue when not found;
        v_hash := memfold._content_hash(e.memory_type, e.subject, e.predicate, e.content, m.canonicalizer, m.key_fields,
            m.metadata_signature);
        update memfold.memories as o
        set content = e.content, memory_type = e.memory_type, subject = e.subject, predicate = e.predicate, object = e.object,
            session_id = e.session_id,
            -- Only after a rehash to finer rules may it be another memory's: then it goes on without.
            canonicalizer = case when v_hash is not distinct from m.content_hash or not exists (
                select from memfold._known_text(v_tenant_id, m.bucket_id, v_hash)
            ) then m.canonicalizer end
        where o.tenant_id = v_tenant_id and o.memory_id = m.memory_id
        returning o.* into m;
        update memfold.memory_vectors as v
        set scope_key = m.scope_key
        where v.tenant_id = v_tenant_id and v.memory_id = m.memory_id and v.scope_key <> m.scope_key;
    end loop;
end;
$$;
revoke all on function memfold._state_anew(text, uuid[]) from public;
comment on function memfold._state_anew(text, uuid[]) is
'Gives texts whose wording no observation has any more that of the first one left: another spelling of the same canonical
form. The caller has memfold.maintenance on.';

create or replace function memfold._lead_on(
    tenant_id text, bucket_id text, gone uuid[], gone_into uuid[], aliases uuid[], aliases_into uuid[]
) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_removed uuid[] := array[]::uuid[];
    v_count bigint;
    v_newest uuid;
    e memfold.memory_events;
    v_memory_id uuid;
    v_target_id uuid;
begin
    for e in
        select x.*
        from (
            select o.* from memfold._events_of(v_tenant_id, gone) as o
            union
            select o.* from memfold._events_about(v_tenant_id, gone) as o
        ) as x
        order by x.event_id
    loop
        v_memory_id := case when e.memory_id = any(gone)
            then gone_into[pg_catalog.array_position(gone, e.memory_id)] else e.memory_id end;
        v_target_id := nullif(case when e.target_id = any(gone)
            then gone_into[pg_catalog.array_position(gone, e.target_id)] else e.target_id end, v_memory_id);
        if (case
            -- what was recalled repeats the text; what another source said and was refused is that one's
            when e.origin is not null then e.memory_id = any(gone) and e.origin = 'recalled'
            else e.action not in ('merged', 'replaced', 'superseded', 'rejected', 'pruned', 'undone') or v_memory_id is null
                or e.action in ('merged', 'replaced', 'superseded') and v_target_id is null
        end) then
            v_removed := v_removed || e.event_id;
        elsif e.action in ('merged', 'replaced') and e.tier >= 2 and v_target_id is null then
            -- what it was folded into, or took the place of, is gone: it stands for itself
            update memfold.memory_events as o
            set action = 'inserted', tier = null, method = null, target_id = null, similarity = null, guard = '{}',
                similar_memories = null, reason = null
            where o.tenant_id = v_tenant_id and o.event_id = e.event_id;
            delete from memfold.memory_events as o where o.tenant_id = v_tenant_id and o.undoes = e.event_id;
        else
            update memfold.memory_events as o
            set memory_id = v_memory_id, target_id = v_target_id, similarity = null, guard = '{}', similar_memories = null,
                reason = case when o.origin is not null then o.reason end,
                content = case when o.origin is not null then o.content end
            where o.tenant_id = v_tenant_id and o.event_id = e.event_id;
        end if;
    end loop;
    v_count := memfold._remove_events(v_tenant_id, bucket_id, v_removed);
    delete from memfold.memory_events_archive as o
    using (select g.id from unnest(gone) as g (id)) as g
    where o.tenant_id = v_tenant_id and o.target_id = g.id and o.action = 'judged';
    update memfold.memory_events_archive as o
    set target_id = null, similarity = null, guard = '{}', similar_memories = null
    from (select g.id from unnest(gone) as g (id)) as g
    where o.tenant_id = v_tenant_id and o.target_id = g.id;
    v_newest := memfold._newest_event(v_tenant_id);
    -- those that a row of the text above had folded, which is gone
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, guard, on_timeline, actor
    )
    select v_tenant_id, memfold._id_after(memfold._new_id(), v_newest), _lead_on.bucket_id, 'merged', 3, 'erasure', o.id, o.into_id, '{}', exists (
        select from memfold.memory_counters as k
        where k.tenant_id = v_tenant_id and k.memory_id in (o.id, o.into_id) and k.on_timeline
    ), memfold._actor()
    from unnest(aliases, aliases_into) as o (id, into_id)
    where not exists (
        select from memfold._ledger as l
        where l.tenant_id = v_tenant_id and l.memory_id = o.id and l.action = 'merged' and l.tier >= 2 and not l.undone
    ) and not exists (
        select from memfold._ledger as l
        where l.tenant_id = v_tenant_id and l.target_id = o.id and l.action = 'replaced' and not l.undone
    );
    return v_count;
end;
$$;
revoke all on function memfold._lead_on(text, text, uuid[], uuid[], uuid[], uuid[]) from public;
comment on function memfold._lead_on(text, text, uuid[], uuid[], uuid[], uuid[]) is
'What the ledger says of texts that go, whose observations are gone already, it says of those in whose place they are named
from now on (gone_into; null: nothing is left, and what says nothing of others goes too). aliases: texts that stay, each to be
folded into one of aliases_into, those that no row has folded any more by one of its own. Returns how many rows are gone. The caller has
memfold.maintenance on.';

create or replace function memfold._beside(tenant_id text, texts uuid[], actions text[]) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return array(
        select distinct x.id
        from (
            select e.* from memfold._events_of(tenant_id, texts) as e
            where e.target_id is not null and e.tier >= 2
            union all
            select e.* from memfold._events_about(tenant_id, texts) as e
            where e.tier >= 2
        ) as e
        cross join lateral (values (e.memory_id), (e.target_id)) as x (id)
        where e.action = any(actions) and x.id is not null and x.id <> all(texts)
    );
end;
$$;
revoke all on function memfold._beside(text, uuid[], text[]) from public;
comment on function memfold._beside(text, uuid[], text[]) is
'Whoever is, or ever was, put beside one of these texts by an action: on a timeline, or folded with it. Only reads.';

create or replace function memfold._lock_to_erase(tenant_id text, memory_ids uuid[], patient boolean) returns boolean
language plpgsql volatile
as $$
declare
    v_wanted uuid[];
    v_locked uuid[] := array[]::uuid[];
    v_patient boolean := patient;
begin
    loop
        v_wanted := memory_ids || memfold._beside(tenant_id, memfold._trees(tenant_id, memory_ids),
            array['merged', 'replaced', 'superseded', 'historical']);
        if v_wanted <@ v_locked then
            return true;
        elsif not memfold._lock_memories(tenant_id, v_wanted, v_patient) then
            return false;
        end if;
        v_locked := v_wanted;
        -- what waits for a second lock may be waited for
        v_patient := false;
    end loop;
end;
$$;
revoke all on function memfold._lock_to_erase(text, uuid[], boolean) from public;
comment on function memfold._lock_to_erase(text, uuid[], boolean) is
'Takes the lock under which memories of one bucket can be erased: that of their trees, and of all that is derived anew without
them (see _lock_memories()). patient false: it never waits. Returns whether it has it; if not, call it again in another transaction.';

create or replace function memfold._erase(
    tenant_id text, bucket_id text, texts uuid[], timelines uuid[], event_ids uuid[], turn text, reason text
) returns memfold.erasure
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_result memfold.erasure;
    v_said uuid[];
    v_had uuid[];
    v_touched uuid[];
    v_rows bigint[];
    v_still_said uuid[];
    v_has uuid[];
    v_gone uuid[];
    v_gone_into uuid[];
    v_roots uuid[];
    v_aliases uuid[];
    v_aliases_into uuid[];
    v_aliases_root uuid[];
    v_beside uuid[];
    v_named uuid[];
    v_sources uuid[];
    v_turns text[];
    v_removed uuid[];
    v_newest uuid;
begin
    select coalesce(pg_catalog.array_agg(distinct e.memory_id), '{}'),
        coalesce(pg_catalog.array_agg(distinct e.memory_id) filter (where e.observation), '{}')
    into v_said, v_had
    from memfold._events_of(v_tenant_id, texts) as e where e.origin is not null;
    select pg_catalog.array_agg(x.memory_id), pg_catalog.array_agg(x.n) into v_touched, v_rows
    from (
        select e.memory_id, pg_catalog.count(*) as n
        from memfold._events_of(v_tenant_id, texts) as e
        where e.event_id = any(event_ids)
        group by e.memory_id
    ) as x;
    v_beside := memfold._beside(v_tenant_id, texts, array['merged', 'replaced', 'superseded', 'historical']);
    v_named := texts || memfold._beside(v_tenant_id, texts, array['merged', 'replaced']);
    select pg_catalog.array_agg(x.memory_id), pg_catalog.array_agg(x.turn) into v_sources, v_turns
    from (
        select distinct e.memory_id, t.turn
        from memfold._events_of(v_tenant_id, texts) as e
        cross join lateral pg_catalog.unnest(e.source_turn_ids) as t (turn)
        where e.event_id = any(event_ids)
    ) as x;

    perform memfold._maintain(true);
    v_removed := event_ids;
    if _erase.turn is not null then
        -- what they support by other turns stays
        v_removed := array(
            select i.id from unnest(event_ids) as i (id)
            where i.id not in (
                select e.event_id from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.event_id = any(event_ids) and not e.source_turn_ids <@ array[_erase.turn]
                union all
                select e.event_id from memfold.memory_events_archive as e
                where e.tenant_id = v_tenant_id and e.event_id = any(event_ids) and not e.source_turn_ids <@ array[_erase.turn]
            )
        );
        update memfold.memory_events as e
        set source_turn_ids = array_remove(e.source_turn_ids, _erase.turn)
        from unnest(event_ids) as i (id)
        where e.tenant_id = v_tenant_id and e.event_id = i.id and not e.source_turn_ids <@ array[_erase.turn];
        update memfold.memory_events_archive as e
        set source_turn_ids = array_remove(e.source_turn_ids, _erase.turn)
        from unnest(event_ids) as i (id)
        where e.tenant_id = v_tenant_id and e.event_id = i.id and not e.source_turn_ids <@ array[_erase.turn];
    end if;
    v_removed := coalesce(v_removed, '{}');
    v_result.events := memfold._remove_events(v_tenant_id, bucket_id, v_removed);
    -- what is still supported is derived below
    delete from memfold.memory_sources as s
    using unnest(v_sources, v_turns) as t (id, turn)
    where s.tenant_id = v_tenant_id and s.source_turn_id = t.turn collate "C" and s.memory_id = t.id;
    select coalesce(pg_catalog.array_agg(distinct e.memory_id), '{}'),
        coalesce(pg_catalog.array_agg(distinct e.memory_id) filter (where e.observation), '{}')
    into v_still_said, v_has
    from memfold._events_of(v_tenant_id, texts) as e where e.origin is not null;
    v_gone := array(
        with members as materialized (
            select m.memory_id as id, memfold._root(m.memory_id, m.root_id) as root, m.memory_id = any(v_has) as has,
                case when m.memory_id = any(v_had) then m.memory_id <> all(v_has)
                    else m.memory_id = any(v_said) and m.memory_id <> all(v_still_said) end as lost
            from pg_catalog.unnest(texts) as i (id)
            cross join lateral (
                select m.memory_id, m.root_id from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.memory_id = i.id
                offset 0
            ) as m
        ),
        trees as materialized (
            select t.root, pg_catalog.bool_or(t.lost) as loses, pg_catalog.bool_or(t.has) as stays
            from members as t
            group by t.root
        )
        select t.id
        from members as t
        join trees as r on r.root = t.root
        where r.loses and not t.has and (
            t.lost or not r.stays
            -- what a judge or an agent made of the others says what they said; what a person wrote stays
            or exists (
                select from memfold.memory_events as e
                where e.tenant_id = v_tenant_id and e.memory_id = t.id and not e.observation and e.content is not null
                    and (e.judgement_id is not null or e.origin is not null)
            )
        )
        order by t.id
    );
    if v_gone = '{}' then
        v_roots := array(
            select t.id
            from unnest(texts) as t (id)
            cross join lateral (
                select m.root_id from memfold.memories as m where m.tenant_id = v_tenant_id and m.memory_id = t.id
                offset 0
            ) as m
            where m.root_id is null
        );
    else
        select pg_catalog.array_agg(s.memory_id) filter (where s.memory_id = any(v_gone)),
            pg_catalog.array_agg(s.into_id) filter (where s.memory_id = any(v_gone)),
            coalesce(pg_catalog.array_agg(s.memory_id) filter (where s.memory_id <> all(v_gone) and s.memory_id <> s.into_id), '{}'),
            coalesce(pg_catalog.array_agg(s.into_id) filter (where s.memory_id <> all(v_gone) and s.memory_id <> s.into_id), '{}'),
            coalesce(pg_catalog.array_agg(s.root_id) filter (where s.memory_id <> all(v_gone) and s.memory_id <> s.into_id), '{}'),
            coalesce(pg_catalog.array_agg(s.memory_id) filter (where s.memory_id <> all(v_gone) and s.memory_id = s.into_id), '{}')
        into v_gone, v_gone_into, v_aliases, v_aliases_into, v_aliases_root, v_roots
        from memfold._successors(v_tenant_id, texts, v_gone) as s;
        v_result.events := v_result.events
            + memfold._lead_on(v_tenant_id, bucket_id, v_gone, v_gone_into, v_aliases, v_aliases_into);
        perform memfold._blank_signals(v_tenant_id, bucket_id, v_named);
        -- how often the fact was shown, and found helpful, stays with it
        update memfold.memory_counters as k
        set access_count = k.access_count + d.access_count, helpful_count = k.helpful_count + d.helpful_count,
            harmful_count = k.harmful_count + d.harmful_count, last_accessed = greatest(k.last_accessed, d.last_accessed)
        from unnest(v_gone, v_gone_into) as g (id, into_id)
        join memfold.memory_counters as d on d.tenant_id = v_tenant_id and d.memory_id = g.id
        where k.tenant_id = v_tenant_id and k.memory_id = g.into_id;
        -- so that each tree is one when it is derived
        update memfold.memories as m
        set status = case when m.status = 'merged' then 'active' else m.status end, merged_into = null, root_id = null
        from (select t.id from unnest(v_roots) as t (id)) as t
        where m.tenant_id = v_tenant_id and m.memory_id = t.id and m.root_id is not null;
        update memfold.memories as m
        set status = 'merged', merged_into = t.into_id, root_id = t.root_id
        from (select t.* from unnest(v_aliases, v_aliases_into, v_aliases_root) as t (id, into_id, root_id)) as t
        where m.tenant_id = v_tenant_id and m.memory_id = t.id and (m.merged_into, m.root_id) <> (t.into_id, t.root_id);
        perform memfold._remove_texts(v_tenant_id, v_gone);
    end if;
    perform memfold._state_anew(v_tenant_id, array(
        select t.id from pg_catalog.unnest(v_touched) as t (id) where t.id <> all(v_gone)
    ));
    perform memfold._derive_all(v_tenant_id, array(
        select m.memory_id
        from (
            select r.id from pg_catalog.unnest(v_roots || v_beside) as r (id)
            union
            select t.id from pg_catalog.unnest(timelines) as t (id) where t.id <> all(texts)
        ) as i
        join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = i.id
        order by 1
    ));
    v_newest := memfold._newest_event(v_tenant_id);
    insert into memfold.memory_events (tenant_id, event_id, bucket_id, action, method, memory_id, target_id, reason, cause, actor)
    select v_tenant_id, memfold._id_after(memfold._new_id(), v_newest), _erase.bucket_id, 'erased', case when turn is null then 'memory' else 'source' end, x.id, g.into_id, _erase.reason,
        pg_catalog.concat_ws(', ', case when g.id is not null then 'the text' end,
            case when t.n > 0 then pg_catalog.format('%s ledger row%s', t.n, case when t.n > 1 then 's' end) end),
        memfold._actor()
    from (select t.id from unnest(v_touched) as t (id) union select g.id from unnest(v_gone) as g (id)) as x
    left join unnest(v_gone, v_gone_into) as g (id, into_id) on g.id = x.id
    left join unnest(v_touched, v_rows) as t (id, n) on t.id = x.id
    order by x.id;
    perform memfold._maintain(false);
    v_result.erased := pg_catalog.cardinality(v_gone);
    v_result.kept := (select pg_catalog.count(*) from pg_catalog.unnest(v_touched) as t (id) where t.id <> all(v_gone));
    return v_result;
end;
$$;
revoke all on function memfold._erase(text, text, uuid[], uuid[], uuid[], text, text) from public;
comment on function memfold._erase(text, text, uuid[], uuid[], uuid[], text, text) is
'Takes the ledger rows event_ids, of texts (whole trees of one bucket; timelines: all that is on a timeline with them, see
_texts_to_lock()) or of none, out of the ledger, but those that name other
turns, which only lose this one (turn null: all go); then every text that no observation is left of, from all tables; and
derives what stays: a fact of which a text is left keeps its ids, folds and relations to others, and says what that text says.
What a judge wrote of several texts goes with any of them. Each text concerned leaves a row erased, without content (reason,
actor; target_id: where its id leads now). The caller holds their lock (_lock_to_erase(), or the bucket''s) and has locked the trees.';
