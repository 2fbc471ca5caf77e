-- Removes a text from the questions about clusters that it was in. The record that the other members were asked about
-- together stays. The caller has set memfold.maintenance to on.
create or replace function memfold_internal._remove_member(p_tenant_id text, p_memory_id uuid) returns void
language plpgsql volatile
as $$
declare
    v_cluster uuid;
    v_status text;
    v_oldest uuid;
begin
    for v_cluster in
        select distinct p.cluster_id from memfold.judgements as p
        where p.tenant_id = p_tenant_id collate "C" and p.cluster_id is not null
            and p_memory_id in (p.memory_id, p.other_id)
        order by 1
    loop
        -- The answer, or its reason, may contain the text.
        update memfold.memory_events as e
        set reason = null, guard = '{}'
        from (
            select x.id from memfold.judgements as p
            cross join lateral (values (p.memory_id), (p.other_id)) as x (id)
            where p.tenant_id = p_tenant_id collate "C" and p.cluster_id = v_cluster
            group by x.id
        ) as x
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = x.id and e.judgement_id = v_cluster;
        delete from memfold.judgements as h
        where h.tenant_id = p_tenant_id collate "C" and h.judgement_id = v_cluster
        returning h.status into v_status;
        if v_status in ('open', 'leased', 'dead') then
            -- An unanswered question is deleted as a whole: a late answer gets MF026, and a later run asks about the others.
            delete from memfold.judgements as p
            where p.tenant_id = p_tenant_id collate "C" and p.cluster_id = v_cluster;
            continue;
        end if;
        delete from memfold.judgements as p
        where p.tenant_id = p_tenant_id collate "C" and p.cluster_id = v_cluster
            and p.memory_id = p_memory_id;
        -- If it was the member that all others refer to, the oldest of these takes its place.
        select p.memory_id into v_oldest
        from memfold.judgements as p
        where p.tenant_id = p_tenant_id collate "C" and p.cluster_id = v_cluster
            and p.other_id = p_memory_id
        order by p.memory_id
        limit 1;
        delete from memfold.judgements as p
        where p.tenant_id = p_tenant_id collate "C" and p.cluster_id = v_cluster and p.memory_id = v_oldest;
        update memfold.judgements as p
        set other_id = v_oldest, guard = '{}'
        where p.tenant_id = p_tenant_id collate "C" and p.cluster_id = v_cluster
            and p.other_id = p_memory_id;
    end loop;
end;
$$;

-- Deletes texts from every table except the ledger and memory_sources. No remaining text may be merged into one of them.
-- The caller has set memfold.maintenance to on.
create or replace function memfold_internal._remove_texts(p_tenant_id text, p_texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    v_contents constant text[] := array(
        select m.content
        from unnest(p_texts) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as m
    );
    v_id uuid;
begin
    -- A worker that queues an open judgement again (_requeue_judgement) holds no scope's lock: lock judgements, then the
    -- memories that a new one would refer to, so that none is added to what is deleted below.
    perform from memfold.judgements as j
    where j.tenant_id = v_tenant_id and (j.memory_id = any(p_texts) or j.other_id = any(p_texts))
    order by j.judgement_id
    for update;
    perform from memfold.memories as m
    where m.tenant_id = v_tenant_id and m.memory_id = any(p_texts)
    order by m.memory_id
    for update;
    -- After these locks, because _ask_about_names() holds the memories that its question shows.
    delete from memfold.judgements as j
    where j.tenant_id = v_tenant_id and j.link is not null
        and (j.link -> 'told' ?| p_texts::text[] or j.link -> 'name_told' ?| p_texts::text[]);
    delete from memfold.labelled_pairs as p
    where p.tenant_id = v_tenant_id
        and (p.memory_a = any(p_texts) or p.memory_b = any(p_texts) or p.content_a = any(v_contents) or p.content_b = any(v_contents));
    foreach v_id in array p_texts loop
        perform memfold_internal._remove_member(v_tenant_id, v_id);
        delete from memfold.judgements as j where j.tenant_id = v_tenant_id and j.memory_id = v_id;
        delete from memfold.judgements as j where j.tenant_id = v_tenant_id and j.other_id = v_id;
        delete from memfold.memory_intervals as i where i.tenant_id = v_tenant_id and i.memory_id = v_id;
        delete from memfold.memory_tokens as t where t.tenant_id = v_tenant_id and t.memory_id = v_id;
        delete from memfold.memory_vectors as v where v.tenant_id = v_tenant_id and v.memory_id = v_id;
        delete from memfold.memory_counters as k where k.tenant_id = v_tenant_id and k.memory_id = v_id;
    end loop;
    -- In one statement, at whose end foreign keys between aliases and roots are checked.
    delete from memfold.memories as m
    using (select t.id from unnest(p_texts) as t (id)) as t
    where m.tenant_id = v_tenant_id and m.memory_id = t.id;
end;
$$;

-- For each of p_texts (whole trees), the text into which it is merged once p_gone are removed: the nearest above it that
-- stays, else the oldest without any (a new root, into_id = memory_id); null: nothing of the tree stays. Only reads.
create or replace function memfold_internal._new_roots(p_tenant_id text, p_texts uuid[], p_gone uuid[])
returns table (memory_id uuid, into_id uuid, root_id uuid)
language sql stable
-- The body is a text, because a parsed one that calls _memory() keeps Citus from distributing the table.
as $$
    with recursive edges as materialized (
        select m.memory_id, m.merged_into, memfold_internal._root(m.memory_id, m.root_id) as root
        from unnest(p_texts) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
    ),
    up (memory_id, root, at) as (
        select e.memory_id, e.root, e.merged_into from edges as e
        union all
        select u.memory_id, u.root, e.merged_into
        from up as u
        join edges as e on e.memory_id = u.at
        where u.at = any(p_gone)
    ),
    nearest as (
        select u.memory_id, u.root, u.at from up as u where u.at is null or u.at <> all(p_gone)
    ),
    heads as (
        select distinct on (n.root) n.root, n.memory_id as head
        from nearest as n
        where n.at is null and n.memory_id <> all(p_gone)
        order by n.root, n.memory_id
    )
    select n.memory_id, coalesce(n.at, h.head), h.head
    from nearest as n
    left join heads as h on h.root = n.root;
$$;

-- Gives texts whose exact wording is in no ledger row any more the wording of their first remaining observation, or else of
-- a recalled or refused one: another spelling of their canonical form. The caller has set memfold.maintenance to on.
create or replace function memfold_internal._restore_wording(p_tenant_id text, p_texts uuid[]) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tenant_id constant text collate "C" := p_tenant_id;
    m memfold.memories;
    e memfold.memory_events;
    v_hash bytea;
begin
    for m in
        select o.*
        from unnest(p_texts) as i (id)
        cross join lateral memfold_internal._memory(v_tenant_id, i.id) as o
        where not exists (
            select from memfold.memory_events as s
            where s.tenant_id = v_tenant_id and s.memory_id = o.memory_id and s.content = o.content
                and ((s.memory_type, s.subject, s.predicate, s.object, s.session_id)
                    is not distinct from (o.memory_type, o.subject, o.predicate, o.object, o.session_id)
                    -- A judge or a person wrote it in these words.
                    or s.origin is null)
            -- Look up each text's rows; do not let missing statistics choose a scan of the ledger.
            offset 0
        )
    loop
        select s.* into e
        from memfold.memory_events as s
        where s.tenant_id = v_tenant_id and s.memory_id = m.memory_id and s.content is not null
            -- Recalled and refused statements count: they support nothing, but contain the words.
            and s.origin is not null
        order by (
            select memfold_internal._content_hash(s.memory_type, n.subject, n.predicate, s.content, m.canonicalizer, m.key_fields,
                m.metadata_signature) is distinct from m.content_hash
            from memfold_internal._resolve_names(v_tenant_id, m.bucket_id, s.subject, s.predicate, s.content) as n
        ), not s.observation, s.event_id
        limit 1;
        continue when not found;
        select n.subject, n.predicate into e.subject, e.predicate
        from memfold_internal._resolve_names(v_tenant_id, m.bucket_id, e.subject, e.predicate, e.content) as n;
        v_hash := memfold_internal._content_hash(e.memory_type, e.subject, e.predicate, e.content, m.canonicalizer, m.key_fields,
            m.metadata_signature);
        update memfold.memories as o
        set content = e.content, memory_type = e.memory_type, subject = e.subject, predicate = e.predicate, object = e.object,
            session_id = e.session_id,
            -- After a rehash to finer rules, another memory may have this hash: then leave this one without a hash.
            canonicalizer = case when v_hash is not distinct from m.content_hash or not exists (
                select from memfold_internal._known_text(v_tenant_id, m.bucket_id, v_hash)
            ) then m.canonicalizer end
        where o.tenant_id = v_tenant_id and o.memory_id = m.memory_id
        returning o.* into m;
        update memfold.memory_vectors as v
        set scope_key = m.scope_key
        where v.tenant_id = v_tenant_id and v.memory_id = m.memory_id and v.scope_key <> m.scope_key;
        -- Spellings of one canonical form may have different words ("zebra-cake" and "zebracake" by flat/1).
        delete from memfold.memory_tokens as t where t.tenant_id = v_tenant_id and t.memory_id = m.memory_id;
        if found then
            insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
            select m.tenant_id, m.bucket_id, t.token, m.memory_id
            from unnest(memfold_internal._tokens(m.content,
                (memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type)).segmenter)) as t (token);
        end if;
    end loop;
end;
$$;
