-- Statements of a batch that must reach rows by their index, even without statistics; each has a function of its own, so
-- that the settings affect no other plan.

-- Which candidates of a batch (by position) have another value of their subject and predicate, stored or earlier in the
-- batch, of a predicate without a declared number of values, or a tombstone with the same value.
create or replace function memfold_internal._values_in_batch(b memfold_internal.batch) returns bigint[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_scope_keys constant uuid[] := b.scope_keys;
begin
    return array(
        select v.i
        from (
            select c.ordinality as i, c.bucket_id, c.object, v_scope_keys[c.ordinality] as scope_key,
                memfold.canonicalize(c.object, 'prose/1') as value,
                min(memfold.canonicalize(c.object, 'prose/1')) over w as least,
                max(memfold.canonicalize(c.object, 'prose/1')) over w as greatest,
                c.predicate = any(b.undeclared) as is_undeclared
            from unnest(b.items) with ordinality as c
            where v_classes[c.ordinality] in ('todo', 'rest') and num_nonnulls(c.subject, c.predicate, c.object) = 3
            window w as (partition by c.bucket_id, v_scope_keys[c.ordinality] order by c.ordinality)
        ) as v
        where memfold_internal._forgotten_value(b.tenant_id, v.bucket_id, v.scope_key, v.object) is not null
            or v.is_undeclared and (v.least <> v.greatest
                or memfold_internal._other_values(b.tenant_id, v.bucket_id, v.scope_key, v.object, null, 1) <> '{}')
    );
end;
$$;

-- The candidates of a batch; those that only add get the time when they were observed: the caller's, else now
-- (received_at), but not before the last statement of their memory (_stated_at).
create or replace function memfold_internal._seen_in_batch(b memfold_internal.batch) returns memfold_internal.candidate[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_items memfold_internal.candidate[] := b.items;
    v_classes constant text[] := b.classes;
    v_roots constant uuid[] := b.roots;
    v_seen timestamptz[];
begin
    select array_agg(coalesce(x.observed_at, greatest(x.last_seen, x.latest)) order by x.i) into v_seen
    from (
        select c.ordinality as i, c.observed_at, k.last_seen,
            max(coalesce(c.observed_at, b.received_at)) over (partition by o.root_id order by c.ordinality) as latest
        from unnest(v_items) with ordinality as c
        cross join lateral (
            select case when v_classes[c.ordinality] in ('hit', 'new', 'repeat') then v_roots[c.ordinality] end as root_id
        ) as o
        left join lateral (
            select k.last_seen from memfold.memory_totals as k
            where k.tenant_id = b.tenant_id and k.memory_id = o.root_id
            offset 0
        ) as k on true
    ) as x;
    for v_i in 1..cardinality(v_items) loop
        if v_classes[v_i] in ('hit', 'new', 'repeat') then
            v_items[v_i].observed_at := v_seen[v_i];
        end if;
    end loop;
    return v_items;
end;
$$;

-- The memories that a batch has both added to and decided about one by one.
create or replace function memfold_internal._roots_of_both(b memfold_internal.batch) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_results constant memfold.ingest_result[] := b.results;
begin
    return array(
        select r.root_id
        from unnest(b.classes, b.matched) with ordinality as o (class, matched, i)
        cross join lateral (
            select case when o.class = 'rest' then (v_results[o.i]).memory_id
                when o.class in ('hit', 'new', 'repeat') then o.matched end as memory_id
        ) as t
        cross join lateral (
            select memfold_internal._root(m.memory_id, m.root_id) as root_id from memfold.memories as m
            where m.tenant_id = b.tenant_id and m.memory_id = t.memory_id
            offset 0
        ) as r
        group by r.root_id
        having bool_or(o.class = 'rest') and bool_or(o.class <> 'rest')
        order by r.root_id
    );
end;
$$;

-- Stores the source turns of the candidates that only add. Returns those that are new to their texts.
create or replace function memfold_internal._add_batch_sources(b memfold_internal.batch) returns memfold_internal.batch_turn[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_matched constant uuid[] := b.matched;
    v_event_ids constant uuid[] := b.event_ids;
    v_turns memfold_internal.batch_turn[];
begin
    with added as (
        insert into memfold.memory_sources as s (tenant_id, source_turn_id, memory_id, event_id)
        select b.tenant_id, t.turn, v_matched[c.ordinality], v_event_ids[c.ordinality]
        from unnest(b.items) with ordinality as c
        cross join lateral unnest(c.source_turn_ids) as t (turn)
        where v_classes[c.ordinality] in ('hit', 'new', 'repeat')
        -- the first of several candidates from one turn
        order by 2, 3, c.ordinality
        on conflict do nothing
        returning s.source_turn_id, s.memory_id, s.event_id
    )
    select array_agg(row(a.memory_id, a.source_turn_id, a.event_id)::memfold_internal.batch_turn) into v_turns from added as a;
    return v_turns;
end;
$$;

-- For each tree to which a batch has added turns (p_turns: those new to their texts): how many of the observations that
-- brought them are independent in the tree, less those that were counted as independent in the root's own text.
create or replace function memfold_internal._batch_evidence(b memfold_internal.batch, p_turns memfold_internal.batch_turn[])
returns table (root_id uuid, independent bigint)
language plpgsql stable rows 100
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := b.tenant_id;
begin
    return query
    select x.root_id, count(distinct x.event_id) filter (where x.is_first) - count(distinct x.event_id) filter (where x.is_own)
    from (
        select r.root_id, t.event_id, t.memory_id = r.root_id as is_own, not exists (
            -- another text of the tree had the turn before
            select from (
                select s.memory_id, s.event_id from memfold.memory_sources as s
                where s.tenant_id = v_tenant_id and s.source_turn_id = t.turn and s.memory_id <> t.memory_id
                offset 0
            ) as s
            cross join lateral memfold_internal._memory(v_tenant_id, s.memory_id) as m
            where r.root_id in (m.memory_id, m.root_id) and s.event_id < t.event_id
        ) as is_first
        from unnest(p_turns) as t
        cross join lateral (
            select memfold_internal._root(m.memory_id, m.root_id) as root_id from memfold_internal._memory(v_tenant_id, t.memory_id) as m
        ) as r
    ) as x
    group by x.root_id;
end;
$$;

-- Adds to the counters of the candidates that only add. p_turns: those that are new to their texts. The caller holds the
-- rows of their roots.
create or replace function memfold_internal._add_batch_counters(b memfold_internal.batch, p_turns memfold_internal.batch_turn[])
returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_matched constant uuid[] := b.matched;
    v_roots constant uuid[] := b.roots;
    v_event_ids constant uuid[] := b.event_ids;
begin
    -- An upsert finds each row by the key; a join may read all of a tenant that was small when it was planned. Rows of roots are already
    -- locked, and with them those of their aliases.
    insert into memfold.memory_counters as k (
        tenant_id, memory_id, root_id, is_additive, observations, independent, source_confidence, extractor_confidence, first_seen,
            last_seen,
        has_metadata, last_event
    )
    select b.tenant_id, o.memory_id, (array_agg(o.root_id) filter (where o.seen is not null))[1], bool_and(o.root_id is null),
        count(o.seen), count(distinct o.evidence), max(o.source_confidence),
        max(o.extractor_confidence), min(o.seen), max(o.seen), coalesce(bool_or(o.has_metadata), false), v_event_ids[max(o.i)]
    from (
        select v_matched[c.ordinality] as memory_id, nullif(v_roots[c.ordinality], v_matched[c.ordinality]) as root_id,
            case when c.source_turn_ids = '{}' then v_event_ids[c.ordinality] end as evidence, c.source_confidence, c.extractor_confidence,
            coalesce(c.observed_at, b.received_at) as seen, c.metadata <> '{}' as has_metadata, c.ordinality as i
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] in ('hit', 'new', 'repeat')
        union all
        -- Several turns of one observation count once.
        select t.memory_id, null, t.event_id, null, null, null, null, null from unnest(p_turns) as t
    ) as o
    group by o.memory_id
    order by o.memory_id
    on conflict (tenant_id, memory_id) do update
    set observations = k.observations + excluded.observations,
        independent = k.independent + excluded.independent,
        source_confidence = greatest(k.source_confidence, excluded.source_confidence),
        extractor_confidence = greatest(k.extractor_confidence, excluded.extractor_confidence),
        first_seen = least(k.first_seen, excluded.first_seen),
        last_seen = greatest(k.last_seen, excluded.last_seen),
        has_metadata = k.has_metadata or excluded.has_metadata,
        last_event = greatest(k.last_event, excluded.last_event);
    if b.aliased is not true then
        return;
    end if;
    -- The sums over aliases: add what the aliases got, less what adds no evidence to the tree as a whole.
    insert into memfold.memory_counters as k (
        tenant_id, memory_id, alias_observations, alias_independent, alias_source_confidence, alias_extractor_confidence,
        alias_first_seen, alias_last_seen, last_event
    )
    select b.tenant_id, o.root_id, count(o.seen), sum(o.independent), max(o.source_confidence), max(o.extractor_confidence), min(o.seen),
        max(o.seen), v_event_ids[max(o.i)]
    from (
        select v_roots[c.ordinality] as root_id, case when c.source_turn_ids = '{}' then 1 else 0 end as independent, c.source_confidence,
            c.extractor_confidence, coalesce(c.observed_at, b.received_at) as seen, c.ordinality as i
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] = 'hit' and v_matched[c.ordinality] <> v_roots[c.ordinality]
        union all
        select e.root_id, e.independent, null, null, null, null from memfold_internal._batch_evidence(b, p_turns) as e
    ) as o
    group by o.root_id
    having count(o.seen) > 0 or sum(o.independent) <> 0
    order by o.root_id
    on conflict (tenant_id, memory_id) do update
    set alias_observations = case
            when excluded.alias_observations = 0 then k.alias_observations else coalesce(k.alias_observations,
                0) + excluded.alias_observations
        end,
        alias_independent = coalesce(k.alias_independent, 0) + excluded.alias_independent,
        alias_source_confidence = greatest(k.alias_source_confidence, excluded.alias_source_confidence),
        alias_extractor_confidence = greatest(k.alias_extractor_confidence, excluded.alias_extractor_confidence),
        alias_first_seen = least(k.alias_first_seen, excluded.alias_first_seen),
        alias_last_seen = greatest(k.alias_last_seen, excluded.alias_last_seen),
        last_event = greatest(k.last_event, excluded.last_event);
end;
$$;

-- Records the ledger row of each idempotency key.
create or replace function memfold_internal._use_keys(
    p_tenant_id text, p_buckets text[], p_idempotency_keys text[], p_event_ids uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_event_id uuid;
begin
    -- One by one: before the first ANALYZE, a join may read all keys of the tenant.
    for v_i in 1..coalesce(cardinality(p_event_ids), 0) loop
        v_event_id := p_event_ids[v_i];
        update memfold.idempotency_keys as i
        set event_id = v_event_id
        where i.tenant_id = p_tenant_id collate "C" and i.bucket_id = p_buckets[v_i] collate "C"
            and i.idempotency_key = p_idempotency_keys[v_i] collate "C";
    end loop;
end;
$$;
