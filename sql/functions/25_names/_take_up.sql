-- Gives a text another subject and predicate, with the hash and the scope that follow, and derives its state. If another
-- text has that hash, the two are merged (_assign_hash); texts that a rehash or a link had merged with it are separated
-- if they differ now. The caller holds the bucket's lock.
create or replace function memfold_internal._rename_text(
    p_tenant_id text, p_memory_id uuid, p_subject text, p_predicate text, p_run_id uuid
)
returns void
language plpgsql volatile
-- the plan may date from when there were few rows
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    m memfold.memories;
    v_policy memfold.policies;
    v_texts uuid[] := memfold_internal._timeline_texts(p_tenant_id, array[p_memory_id]);
    v_is_hashed boolean;
    v_ids uuid[];
    v_events uuid[];
begin
    select t.* into strict m
    from memfold.memories as t
    where t.tenant_id = p_tenant_id collate "C" and t.memory_id = p_memory_id;
    v_is_hashed := m.canonicalizer is not null;
    if not v_is_hashed then
        -- a rehash has merged the text into another one, or left it without a hash: it is compared again
        v_events := array(
            select e.event_id from memfold.ledger as e
            where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id and not e.undone
                and (e.action = 'merged' and e.method = 'rehash' or e.action = 'rehashed')
            order by e.event_id
        );
        v_is_hashed := v_events <> '{}';
    end if;
    perform memfold_internal._maintain(true);
    update memfold.memories as t
    set subject = p_subject, predicate = p_predicate, canonicalizer = null, metadata_signature = null
    where t.tenant_id = m.tenant_id and t.memory_id = m.memory_id
    returning t.* into strict m;
    perform memfold_internal._maintain(false);
    update memfold.memory_vectors as v
    set scope_key = m.scope_key
    where v.tenant_id = m.tenant_id and v.memory_id = m.memory_id and v.scope_key <> m.scope_key;
    if v_is_hashed then
        if v_events <> '{}' then
            perform memfold_internal._split_alias(p_tenant_id, v_events, p_run_id);
        end if;
        v_policy := memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type);
        -- texts that were equal to it under the old name
        select coalesce(array_agg(t.twin_id order by t.twin_id), '{}'), array_agg(t.event_id)
        into v_ids, v_events
        from memfold_internal._parting_twins(p_tenant_id, p_memory_id, memfold_internal._hash_under(m, v_policy)) as t;
        if v_ids <> '{}' then
            perform memfold_internal._split_alias(p_tenant_id, v_events, p_run_id);
        end if;
        perform memfold_internal._assign_hash(m, v_policy, p_run_id, null);
        perform memfold_internal._assign_hashes(p_tenant_id, v_ids, p_run_id, null);
    end if;
    -- its former timeline and its present one
    perform memfold.derive_scope(v_texts || p_memory_id, p_tenant_id);
end;
$$;

-- At most p_rows_at_most texts of a bucket that are stored under an alias. Reads the bucket until it has found them.
create or replace function memfold_internal._texts_under_alias(
    p_tenant_id text, p_bucket_id text, p_kind text, p_alias text, p_rows_at_most bigint
) returns uuid[]
language plpgsql stable
as $$
begin
    if p_kind = 'subject' then
        return array(
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.subject is not null and memfold_internal._prose_1(m.subject) = p_alias collate "C"
            limit p_rows_at_most
        );
    elsif p_kind = 'predicate' then
        return array(
            select m.memory_id from memfold.memories as m
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and m.predicate is not null and memfold_internal._predicate_1(m.predicate) = p_alias collate "C"
            limit p_rows_at_most
        );
    end if;
    return array(
        select m.memory_id from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.subject is null and memfold_internal._begins_with(memfold_internal._prose_1(m.content) collate "C", p_alias collate "C")
        limit p_rows_at_most
    );
end;
$$;

-- Takes up at most p_rows_at_most texts under an alias; returns how many. The caller holds the bucket's lock.
create or replace function memfold_internal._take_up(
    p_tenant_id text, p_bucket_id text, p_kind text, p_alias text, p_run_id uuid, p_rows_at_most bigint
) returns bigint
language plpgsql volatile
-- the transaction that holds a row may be waiting for the bucket
set lock_timeout = '500ms'
as $$
declare
    v_ids constant uuid[] := memfold_internal._texts_under_alias(p_tenant_id, p_bucket_id, p_kind, p_alias, p_rows_at_most);
    v_text record;
begin
    for v_text in
        select m.memory_id, n.subject, n.predicate
        from unnest(v_ids) as i (id)
        cross join lateral memfold_internal._memory(p_tenant_id, i.id) as m
        cross join lateral memfold_internal._resolve_names(m.tenant_id, m.bucket_id, m.subject, m.predicate, m.content) as n
        order by m.memory_id
    loop
        perform memfold_internal._rename_text(p_tenant_id, v_text.memory_id, v_text.subject, v_text.predicate, p_run_id);
    end loop;
    return cardinality(v_ids);
end;
$$;

-- Adds p_texts to the texts that the run of a link has taken up, counts its merges, and, if p_is_done, ends the run.
create or replace function memfold_internal._note_taken_up(p_tenant_id text, p_run_id uuid, p_texts bigint, p_is_done boolean) returns void
language plpgsql volatile
as $$
declare
    -- not in the UPDATE: Citus allows no volatile function there, nor a stable one of a column (jsonb_build_object)
    v_now constant timestamptz := clock_timestamp();
    v_merged jsonb;
begin
    select jsonb_build_object('merged', count(*)) into v_merged
    from memfold.memory_events as e
    where e.tenant_id = p_tenant_id collate "C" and e.run_id = p_run_id and e.action = 'merged';
    update memfold.runs as r
    set report = jsonb_set(r.report || v_merged, '{texts}', (coalesce((r.report ->> 'texts')::bigint,
        0) + p_texts)::text::jsonb),
        status = case when p_is_done then 'done' else r.status end, ended_at = case when p_is_done then v_now end
    where r.tenant_id = p_tenant_id collate "C" and r.run_id = p_run_id and r.status <> 'undone';
end;
$$;

-- The subject or predicate (p_kind) with which a text first came; for a text without an observation, that of the first
-- text that it replaced, else p_own_name.
create or replace function memfold_internal._given_name(p_tenant_id text, p_memory_id uuid, p_own_name text, p_kind text) returns text
language plpgsql stable
as $$
declare
    e memfold.memory_events;
    v_id uuid := p_memory_id;
begin
    -- a text that a person or a judge wrote has no observation: it has the names of the first text that it replaced
    for v_step in 1..100 loop
        select o.* into e
        from memfold.memory_events as o
        where o.tenant_id = p_tenant_id collate "C" and o.memory_id = v_id
            and (o.observation and o.memory_type is not null or o.action = 'replaced' and o.tier = 3)
        order by o.observation desc, o.event_id
        limit 1;
        exit when e.observation is not false or e.target_id is null;
        v_id := e.target_id;
    end loop;
    if e.observation is not true then
        return p_own_name;
    end if;
    return case when p_kind = 'predicate' then e.predicate else e.subject end;
end;
$$;

-- After a link was removed: gives texts under its name that came under another one that name again, resolved by the
-- present links. Returns how many. The caller holds the bucket's lock.
create or replace function memfold_internal._give_back(
    p_tenant_id text, p_bucket_id text, p_kind text, p_name text, p_run_id uuid
) returns bigint
language plpgsql volatile
set lock_timeout = '500ms'
as $$
declare
    v_text record;
    v_number bigint := 0;
begin
    for v_text in
        select x.memory_id, x.subject, x.predicate
        from (
            select m.memory_id, m.subject as subject_now, m.predicate as predicate_now,
                case when p_kind = 'predicate' then m.subject else n.subject end as subject,
                case when p_kind = 'predicate' then n.predicate else m.predicate end as predicate
            from memfold.memories as m
            cross join lateral memfold_internal._given_name(
                m.tenant_id, m.memory_id, case when p_kind = 'predicate' then m.predicate else m.subject end, p_kind
            ) as t (name)
            cross join lateral memfold_internal._resolve_names(m.tenant_id, m.bucket_id, case when p_kind <> 'predicate' then t.name end,
                case when p_kind = 'predicate' then t.name end, m.content) as n
            where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
                and case when p_kind = 'predicate' then memfold_internal._predicate_1(m.predicate)
                    else memfold_internal._prose_1(m.subject) end = memfold_internal._link_key(p_kind, p_name) collate "C"
        ) as x
        where memfold_internal._prose_1(x.subject) is distinct from memfold_internal._prose_1(x.subject_now)
            or memfold_internal._predicate_1(x.predicate) is distinct from memfold_internal._predicate_1(x.predicate_now)
        order by x.memory_id
    loop
        perform memfold_internal._rename_text(p_tenant_id, v_text.memory_id, v_text.subject, v_text.predicate, p_run_id);
        v_number := v_number + 1;
    end loop;
    return v_number;
end;
$$;
