-- Whether the rehash in progress has not reached this text yet.
create or replace function memfold_internal._is_stale(m memfold.memories, p_policy memfold.policies) returns boolean
language plpgsql stable
as $$
-- not an SQL expression: Citus would see its dependencies as a circle
begin
    return p_policy.rehash_run is not null and m.canonicalizer is not null and (
        (m.canonicalizer, m.key_fields) is distinct from (p_policy.canonicalizer, p_policy.key_fields)
        or m.metadata_signature is distinct from memfold_internal._stored_signature(m, p_policy.metadata_keys)
    );
end;
$$;

-- Applies the rules of its policy to one text, and to the texts that an earlier rehash merged into it. p_pending and the
-- result: see _assign_hash(). The caller holds the bucket's lock.
create or replace function memfold_internal._rehash_text(p_tenant_id text, p_memory_id uuid, p_run_id uuid, p_pending uuid[]) returns uuid[]
language plpgsql volatile
as $$
declare
    m memfold.memories;
    v_policy memfold.policies;
    v_pending uuid[] := p_pending;
    v_ids uuid[];
    v_event_ids uuid[];
begin
    -- the hash is released first: another text may need it, and this one may need that text's
    perform memfold_internal._maintain(true);
    update memfold.memories as t
    set canonicalizer = null, metadata_signature = null
    where t.tenant_id = p_tenant_id collate "C" and t.memory_id = p_memory_id
    returning t.* into strict m;
    perform memfold_internal._maintain(false);
    v_policy := memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type);
    select coalesce(array_agg(t.twin_id order by t.twin_id), '{}'), array_agg(t.event_id)
    into v_ids, v_event_ids
    from memfold_internal._parting_twins(p_tenant_id, p_memory_id, memfold_internal._hash_under(m, v_policy)) as t;
    if v_ids <> '{}' then
        v_pending := memfold_internal._derive_pending(p_tenant_id, v_pending);
        perform memfold_internal._split_alias(p_tenant_id, v_event_ids, p_run_id);
    end if;
    v_pending := memfold_internal._assign_hash(m, v_policy, p_run_id, v_pending);
    return memfold_internal._assign_hashes(p_tenant_id, v_ids, p_run_id, v_pending);
end;
$$;

-- Whether a text was merged into p_ancestor_id, directly or through others, by merges in force, also those that apply only
-- once a later one is undone. A merge in the opposite direction would close a cycle.
create or replace function memfold_internal._is_beneath(p_tenant_id text, p_memory_id uuid, p_ancestor_id uuid) returns boolean
language plpgsql stable
as $$
declare
    v_known uuid[] := array[]::uuid[];
    v_new uuid[] := array[p_memory_id];
begin
    loop
        v_known := v_known || v_new;
        v_new := array(
            select distinct e.into_id
            from memfold_internal._merges_in_force(p_tenant_id, v_new) as e
            where e.into_id <> all(v_known)
        );
        exit when v_new = '{}' or p_ancestor_id = any(v_new);
    end loop;
    return v_new <> '{}';
end;
$$;

-- Gives a text without a hash its hash by the policy. If another text has that hash, the newer is merged into the older (a withdrawn one
-- into the other, regardless of age), and has no hash; a rejected one is not merged, and has none either. p_pending: memories that the
-- caller will derive, returned with those of this merge; null: the state is derived at once. The caller holds the bucket's lock.
create or replace function memfold_internal._assign_hash(
    m memfold.memories, p_policy memfold.policies, p_run_id uuid, p_pending uuid[]
) returns uuid[]
language plpgsql volatile
as $$
declare
    v_hash constant bytea := memfold_internal._hash_under(m, p_policy);
    h memfold.memories;
    v_h_policy memfold.policies;
    v_m_root memfold.memories;
    v_h_root memfold.memories;
    v_stays boolean := true;
    v_merges boolean := false;
    v_plain boolean;
    v_reason text;
    v_canonicalizer text;
    v_signature text;
    v_event_id uuid;
    v_pending uuid[] := p_pending;
begin
    -- a stale text that has the hash is rehashed first
    for v_turn in 1..2 loop
        select t.* into h
        from memfold.memories as t
        where t.tenant_id = m.tenant_id and t.bucket_id = m.bucket_id and t.content_hash >= v_hash and t.content_hash <= v_hash
        order by t.content_hash
        limit 1;
        exit when not found or v_turn = 2;
        v_h_policy := memfold_internal._policy(h.tenant_id, h.bucket_id, h.memory_type);
        exit when not memfold_internal._is_stale(h, v_h_policy);
        v_pending := memfold_internal._rehash_text(h.tenant_id, h.memory_id, p_run_id, v_pending);
    end loop;
    if h.memory_id is not null then
        -- A merge of two active or superseded roots may be derived later, with others: the next merge does not depend on it.
        for v_turn in 1..2 loop
            v_m_root := memfold_internal._memory_root(m.tenant_id, m.memory_id, '{}');
            v_h_root := memfold_internal._memory_root(h.tenant_id, h.memory_id, '{}');
            v_plain := v_m_root.memory_id = m.memory_id and v_h_root.memory_id = h.memory_id
                and v_m_root.status in ('active', 'superseded') and v_h_root.status in ('active', 'superseded');
            exit when v_plain or v_turn = 2;
            v_pending := memfold_internal._derive_pending(m.tenant_id, v_pending);
        end loop;
        if 'rejected' in (v_m_root.status, v_h_root.status) then
            -- a tombstone neither absorbs another memory nor is revived
            v_stays := v_h_root.status = 'rejected' and (v_m_root.status <> 'rejected' or m.memory_id < h.memory_id);
            v_reason := 'rejected, and equal to another text under ' || p_policy.canonicalizer || ': no hash';
        else
            v_merges := true;
            perform memfold_internal._adopt_row(m.tenant_id, m.memory_id);
            perform memfold_internal._adopt_row(h.tenant_id, h.memory_id);
            v_reason := 'equal under ' || p_policy.canonicalizer;
            if memfold_internal._is_beneath(m.tenant_id, h.memory_id, m.memory_id) then
                v_stays := true;
            elsif memfold_internal._is_beneath(m.tenant_id, m.memory_id, h.memory_id) then
                v_stays := false;
            elsif 'withdrawn' in (v_m_root.status, v_h_root.status) and v_m_root.status <> v_h_root.status then
                v_stays := v_h_root.status = 'withdrawn';
            else
                v_stays := m.memory_id < h.memory_id;
            end if;
        end if;
    elsif v_hash is null then
        v_stays := false;
        v_reason := 'empty under ' || p_policy.canonicalizer;
    end if;

    perform memfold_internal._maintain(true);
    if v_stays and h.memory_id is not null then
        update memfold.memories as t
        set canonicalizer = null, metadata_signature = null
        where t.tenant_id = h.tenant_id and t.memory_id = h.memory_id;
    end if;
    if v_stays then
        v_canonicalizer := p_policy.canonicalizer;
        v_signature := memfold_internal._stored_signature(m, p_policy.metadata_keys);
    end if;
    update memfold.memories as t
    set canonicalizer = v_canonicalizer, key_fields = p_policy.key_fields, metadata_signature = v_signature
    where t.tenant_id = m.tenant_id and t.memory_id = m.memory_id;
    perform memfold_internal._maintain(false);
    if v_reason is null then
        return v_pending;
    end if;
    v_event_id := memfold_internal._new_event_id(m.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, reason, run_id, actor
    ) values (
        m.tenant_id, v_event_id, m.bucket_id, case when v_merges then 'merged' else 'rehashed' end, 2, 'rehash',
        case when v_stays then h.memory_id else m.memory_id end, case when v_stays then m.memory_id else h.memory_id end,
        v_reason, p_run_id, memfold_internal._actor()
    );
    if v_merges and v_plain and v_pending is not null then
        return v_pending || array[m.memory_id, h.memory_id];
    elsif v_merges then
        perform memfold.derive_scope(array[m.memory_id, h.memory_id, v_m_root.memory_id, v_h_root.memory_id],
            m.tenant_id);
    end if;
    return v_pending;
end;
$$;

-- _assign_hash() for texts, in the order of p_memory_ids.
create or replace function memfold_internal._assign_hashes(
    p_tenant_id text, p_memory_ids uuid[], p_run_id uuid, p_pending uuid[]
) returns uuid[]
language plpgsql volatile
as $$
declare
    m memfold.memories;
    v_pending uuid[] := p_pending;
    v_id uuid;
begin
    foreach v_id in array p_memory_ids loop
        select t.* into strict m
        from memfold.memories as t
        where t.tenant_id = p_tenant_id collate "C" and t.memory_id = v_id;
        -- the rehash of an earlier text may have included it
        continue when m.canonicalizer is not null;
        v_pending := memfold_internal._assign_hash(m, memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type), p_run_id,
            v_pending);
    end loop;
    return v_pending;
end;
$$;

-- Derives the postponed memories, and returns an empty list; null: nothing is postponed.
create or replace function memfold_internal._derive_pending(p_tenant_id text, p_pending uuid[]) returns uuid[]
language plpgsql volatile
as $$
begin
    if p_pending <> '{}' then
        perform memfold.derive_scope(array(select distinct i.id from unnest(p_pending) as i (id)), p_tenant_id);
        return array[]::uuid[];
    end if;
    return p_pending;
end;
$$;

-- The texts that a rehash has merged into this one, each with the ledger row of the merge.
create or replace function memfold_internal._rehash_aliases(p_tenant_id text, p_memory_id uuid)
returns table (twin_id uuid, event_id uuid)
language plpgsql stable rows 1
as $$
#variable_conflict use_column
begin
    return query
    select t.memory_id, e.event_id
    from memfold.memories as t
    cross join lateral (
        select e.event_id from memfold.ledger as e
        where e.tenant_id = t.tenant_id and e.memory_id = t.memory_id and e.target_id = t.merged_into
            and e.action = 'merged' and e.method = 'rehash' and not e.undone
        order by e.event_id desc
        limit 1
    ) as e
    where t.tenant_id = p_tenant_id collate "C" and t.merged_into = p_memory_id and t.content_hash is null
    order by t.memory_id;
end;
$$;

-- The texts that a rehash has merged into this one, or into those in turn, and that are different texts by the present
-- rules. p_content_hash: the hash of this text by these rules.
create or replace function memfold_internal._parting_twins(p_tenant_id text, p_memory_id uuid, p_content_hash bytea)
returns table (twin_id uuid, event_id uuid)
language plpgsql stable rows 1
as $$
#variable_conflict use_column
declare
    v_twin record;
    m memfold.memories;
    v_hash bytea;
begin
    for v_twin in
        select t.twin_id, t.event_id
        from memfold_internal._rehash_aliases(p_tenant_id, p_memory_id) as t
    loop
        select t.* into strict m
        from memfold.memories as t
        where t.tenant_id = p_tenant_id collate "C" and t.memory_id = v_twin.twin_id;
        v_hash := memfold_internal._hash_under(m, memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type));
        -- texts merged into it come first: a caller that takes a few at a time finds them through it
        return query select t.* from memfold_internal._parting_twins(p_tenant_id, v_twin.twin_id, v_hash) as t;
        if v_hash is distinct from p_content_hash then
            return query select v_twin.twin_id, v_twin.event_id;
        end if;
    end loop;
end;
$$;

-- Undoes the events by which rehashes merged texts or left them without a hash. The caller assigns their present hashes
-- next (_assign_hash).
create or replace function memfold_internal._split_alias(p_tenant_id text, p_event_ids uuid[], p_run_id uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    perform memfold_internal._record_undone(p_tenant_id, array(
        select i.id from unnest(p_event_ids) as i (id) order by i.id
    ), array_fill('undone'::text, array[cardinality(p_event_ids)]), 'rehash', p_run_id);
    perform memfold_internal._derive_pending(p_tenant_id, array(
        select x.id
        from memfold_internal._events(p_tenant_id, p_event_ids) as v
        cross join lateral (values (v.memory_id), (v.target_id)) as x (id)
        where v.action = 'merged'
    ));
end;
$$;

-- After an undo: compares again those of p_memory_ids that a rehash has left without a hash, unmerged.
create or replace function memfold_internal._settle_rehash_aliases(p_tenant_id text, p_memory_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
    v_text record;
begin
    for v_text in
        select i.id, e.event_id, e.run_id, e.bucket_id
        from unnest(p_memory_ids) as i (id)
        cross join lateral (
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.memory_id = i.id and m.content_hash is null
            offset 0
        ) as m
        cross join lateral (
            select e.event_id, e.run_id, e.bucket_id from memfold.ledger as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = m.memory_id and e.action = 'rehashed'
                and not e.undone
            offset 0
        ) as e
    loop
        -- the bucket's lock, because the text may be equal to one of another scope
        perform memfold_internal._lock(p_tenant_id, v_text.bucket_id, null, false);
        perform memfold_internal._split_alias(p_tenant_id, array[v_text.event_id], v_text.run_id);
        perform memfold_internal._assign_hashes(p_tenant_id, array[v_text.id], v_text.run_id, null);
    end loop;
end;
$$;
