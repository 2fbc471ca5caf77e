-- The roots among the given ones that can be added to in any order: active, on no timeline and without validity. All
-- together, in a third of the time of single lookups.
create or replace function memfold_internal._additive_roots(p_tenant_id text, p_root_ids uuid[]) returns table (memory_id uuid)
language plpgsql stable rows 1000
-- Plan for the present contents of the table: before PostgreSQL 17 an earlier plan would read all of the tenant.
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select k.memory_id
    from memfold.memory_counters as k
    where k.tenant_id = p_tenant_id collate "C" and k.memory_id = any(p_root_ids) and k.is_additive and not k.on_timeline;
end;
$$;

-- Tier 1 for a batch: for each candidate the text that has its hash, its root and the root's scope (matched, roots,
-- root_scopes), and its resulting class: hit, todo, or rest. Skips candidates that are refused or answered.
create or replace function memfold_internal._probe_batch(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql stable
-- Look texts up by their index; do not let missing statistics choose a scan.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
    v_rehashed constant boolean := exists (select from unnest(b.policies) as p where p.rehash_run is not null);
    -- A validity is decided one by one, in order: the last observation counts.
    v_timed constant boolean := exists (select from unnest(b.items) as c where num_nonnulls(c.valid_from, c.valid_until) > 0);
begin
    with texts as materialized (
        select c.ordinality as i, v_classes[c.ordinality] as class, m.memory_id, m.root_id, m.scope_key,
            c.origin <> 'recalled' and c.metadata = '{}' as is_plain
        from unnest(b.items) with ordinality as c
        left join lateral (
            select m.memory_id, memfold_internal._root(m.memory_id, m.root_id) as root_id, m.scope_key
            from memfold_internal._known_text(b.tenant_id, c.bucket_id, c.content_hash) as m
            where v_classes[c.ordinality] in ('todo', 'hit', 'rest')
        ) as m on true
    )
    select array_agg(x.memory_id order by x.i), array_agg(x.root_id order by x.i), array_agg(x.root_scope order by x.i),
        array_agg(case
            when x.class not in ('todo', 'hit', 'rest') then x.class
            -- During a rehash, a text may be stored under either of two hashes.
            when v_timed then 'rest'
            when v_rehashed and (v_policies[v_policy_of[x.i]]).rehash_run is not null then 'rest'
            when x.hit then 'hit'
            when x.memory_id is not null then 'rest'
            else 'todo' end order by x.i)
    into b.matched, b.roots, b.root_scopes, b.classes
    from (
        select t.i, t.class, t.memory_id, t.root_id,
            case when t.memory_id = t.root_id then t.scope_key when t.memory_id is not null then (
                select r.scope_key from memfold.memories as r where r.tenant_id = b.tenant_id and r.memory_id = t.root_id
            ) end as root_scope,
            -- roots to which observations can be added in any order
            k.memory_id is not null and t.is_plain as hit
        from texts as t
        left join memfold_internal._additive_roots(b.tenant_id, array(select t.root_id from texts as t)) as k
            on k.memory_id = t.root_id
        offset 0
    ) as x;
    return b;
end;
$$;

-- The scopes that the candidates of a batch other than hits need (scope_keys), and whether the bucket's key is needed
-- instead (wide). A hit on a slot that another candidate may change becomes class rest.
create or replace function memfold_internal._scope_batch(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
    v_root_scopes constant uuid[] := b.root_scopes;
    v_classes text[] := b.classes;
    v_slots uuid[];
begin
    if b.singles <> '{}' and 'hit' = any(v_classes) then
        -- A candidate that may supersede the value of a slot is decided in order with everything that hits the slot.
        select array_agg(distinct memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate)) into v_slots
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] in ('todo', 'rest') and c.predicate = any(b.singles);
        select array_agg(case when o.class = 'hit' and o.root_scope = any(v_slots) then 'rest' else o.class end order by o.i)
        into v_classes
        from unnest(v_classes, v_root_scopes) with ordinality as o (class, root_scope, i);
        b.classes := v_classes;
    end if;
    select array_agg(x.scope_key),
        -- an alias may get another root
        array_agg(coalesce(
            x.scope = 'bucket' or x.key_fields <> 'type,subject,predicate' or x.rehashed or x.root_scope <> x.scope_key,
            false))
    into b.scope_keys, b.wide
    from (
        select v_root_scopes[c.ordinality] as root_scope, (v_policies[v_policy_of[c.ordinality]]).scope as scope,
            (v_policies[v_policy_of[c.ordinality]]).key_fields as key_fields,
            (v_policies[v_policy_of[c.ordinality]]).rehash_run is not null as rehashed,
            case when v_classes[c.ordinality] in ('todo', 'rest')
                then memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate) end as scope_key
        from unnest(b.items) with ordinality as c
        order by c.ordinality
        offset 0
    ) as x;
    return b;
end;
$$;

-- _check_rules() for all rules and models of a batch, and _check_names() for its candidates.
create or replace function memfold_internal._check_batch_rules(b memfold_internal.batch) returns void
language plpgsql volatile
as $$
declare
    v_classes constant text[] := b.classes;
    v_models constant text[] := (
        -- Not for candidates that were refused because of it, or ingested before it was replaced.
        select array_agg(distinct c.embedding_model) filter (
            where c.embedding_model is not null and v_classes[c.ordinality] not in ('error', 'known', 'again')
        )
        from unnest(b.items) with ordinality as c
    );
begin
    if memfold_internal._has_links(b.tenant_id) or exists (
        select from unnest(b.items) as c
        where (c.subject, c.predicate) is distinct from (c.given_subject, c.given_predicate)
    ) then
        perform memfold_internal._check_names(b.tenant_id, c.bucket_id, c.given_subject, c.given_predicate, c.content, c.subject,
            c.predicate)
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] in ('todo', 'rest');
    end if;
    perform memfold_internal._check_rules(b.tenant_id, p.bucket_id, p.memory_type, p.policy, v_models)
    from (
        select b.buckets[g.i] as bucket_id, b.types[g.i] as memory_type, b.policies[g.i] as policy
        from generate_subscripts(b.policies, 1) as g (i)
    ) as p;
end;
$$;

-- Tier 1 (_probe_batch), then the locks of the scopes for all but the hits, and tier 1 again under them, until nothing
-- changes. Texts that the database embeds get their vectors before the first lock. May raise 40001.
create or replace function memfold_internal._lock_batch(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_policies constant memfold.policies[] := b.policies;
    v_embeds boolean := exists (select from unnest(v_policies) as p where p.embed = 'in_database');
    v_predicates constant text[] := array(select distinct c.predicate from unnest(b.items) as c where c.predicate is not null);
    v_seen memfold_internal.batch;
    v_decided text[];
    v_held text[] := array[]::text[];
    v_locks text[];
begin
    -- Look up, lock, and look up again: a statement sees only what was committed before it began.
    loop
        b := memfold_internal._probe_batch(b);
        exit when not b.classes && array['todo', 'rest'];
        -- Read again after each wait: it may have been a wait for set_predicate().
        b.singles := array(select u.predicate from unnest(v_predicates) as u (predicate)
            where memfold_internal._is_single(b.tenant_id, u.predicate));
        b.undeclared := memfold_internal._undeclared(b.tenant_id, v_predicates);
        if b.classes = v_seen.classes and b.root_scopes is not distinct from v_seen.root_scopes
            and b.singles <@ v_seen.singles and b.singles @> v_seen.singles
        then
            b.classes := v_decided;
            exit;
        end if;
        if v_embeds then
            -- only once, before any lock
            b := memfold_internal._embed_batch(b);
            v_embeds := false;
        end if;
        v_seen.classes := b.classes;
        v_seen.root_scopes := b.root_scopes;
        v_seen.singles := b.singles;
        b := memfold_internal._scope_batch(b);
        v_decided := b.classes;
        -- With dedup off, nothing is compared or locked.
        v_locks := null;
        select memfold_internal._lock_scopes(b.tenant_id, array_agg(b.buckets[o.rule]), array_agg(o.scope_key), array_agg(o.wide), v_held)
        into v_locks
        from unnest(b.classes, b.scope_keys, b.wide, b.policy_of) as o (class, scope_key, wide, rule)
        where o.class in ('todo', 'rest') and (v_policies[o.rule]).dedup = 'on'
        having count(*) > 0;
        exit when v_locks is null or v_locks = v_held;
        v_held := v_locks;
        perform memfold_internal._check_batch_rules(b);
    end loop;
    return b;
end;
$$;

-- The candidates of a batch, those of class rest with what single calls need: policy, scope and vector.
create or replace function memfold_internal._single_candidates(b memfold_internal.batch) returns memfold_internal.candidate[]
language plpgsql stable
as $$
declare
    v_items memfold_internal.candidate[] := b.items;
    v_classes constant text[] := b.classes;
    v_embeddings constant memfold_internal.batch.embeddings%type := b.embeddings;
    v_policies constant memfold.policies[] := b.policies;
    v_scope_keys constant uuid[] := b.scope_keys;
    c memfold_internal.candidate;
begin
    for v_i in 1..cardinality(v_items) loop
        continue when v_classes[v_i] <> 'rest';
        c := v_items[v_i];
        c.policy := v_policies[b.policy_of[v_i]];
        c.scope_key := v_scope_keys[v_i];
        c.embedding := v_embeddings[v_i];
        v_items[v_i] := c;
    end loop;
    return v_items;
end;
$$;

-- Locks the counters of all memories that a batch is known to change, in one order, before the first write: afterwards
-- it never waits for what another call may hold. Sets aliased and latest. Raises 40001 if the root of a text has changed
-- since it was looked up.
create or replace function memfold_internal._lock_batch_rows(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_items memfold_internal.candidate[];
    v_hits constant uuid[] := array(
        select distinct o.root_id from unnest(v_classes, b.roots) as o (class, root_id) where o.class = 'hit'
    );
    v_ids uuid[] := v_hits;
    v_touched uuid[];
    v_changed uuid[];
    d memfold_internal.decision;
begin
    if 'rest' = any(v_classes) then
        b.items := memfold_internal._single_candidates(b);
        v_items := b.items;
        for v_i in 1..cardinality(v_items) loop
            continue when v_classes[v_i] <> 'rest';
            d := memfold_internal._decide(v_items[v_i]);
            v_touched := array_remove(array[d.root_id, d.target_id], null);
            if v_touched <> '{}' then
                v_touched := memfold_internal._trees(b.tenant_id, v_touched) || memfold_internal._restated_with(b.tenant_id, v_touched);
            end if;
            v_ids := v_ids || v_touched;
        end loop;
    end if;
    if v_ids = '{}' then
        return b;
    end if;
    select l.changed, l.aliased, l.latest into strict v_changed, b.aliased, b.latest
    from (
        select array_agg(i.id order by i.id) as ids, array_agg(i.hit order by i.id) as hits
        from (
            select o.id, bool_or(o.place <= cardinality(v_hits)) as hit from unnest(v_ids) with ordinality as o (id, place)
            group by o.id
        ) as i
    ) as i
    cross join lateral memfold_internal._lock_roots(b.tenant_id, i.ids, i.hits) as l;
    -- A new statement reads again which root each text has.
    if exists (
        select from unnest(v_classes, b.matched, b.roots) as o (class, memory_id, root_id)
        where o.class = 'hit' and (o.root_id = any(v_changed) or o.memory_id <> o.root_id and not exists (
            select from memfold.memories as m
            where m.tenant_id = b.tenant_id and m.memory_id = o.memory_id and m.root_id = o.root_id
        ))
    ) then
        raise exception 'a memory was merged or retired' using
            errcode = 'serialization_failure',
            detail = 'It was merged or retired while this call waited for it.',
            hint = 'Retry the call, with the same idempotency keys if it has any.';
    end if;
    return b;
end;
$$;
