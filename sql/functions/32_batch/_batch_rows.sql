-- Statements of a batch that must reach rows by their index, whatever the statistics say (there may be none yet), each in a separate
-- function, so that the settings affect no other plan.

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
    select pg_catalog.array_agg(coalesce(x.observed_at, greatest(x.last_seen, x.latest)) order by x.i) into v_seen
    from (
        select c.ordinality as i, c.observed_at, k.last_seen,
            max(coalesce(c.observed_at, b.told_at)) over (partition by o.root_id order by c.ordinality) as latest
        from pg_catalog.unnest(v_items) with ordinality as c
        cross join lateral (
            select case when v_classes[c.ordinality] in ('hit', 'new', 'repeat') then v_roots[c.ordinality] end as root_id
        ) as o
        left join lateral (
            select k.last_seen from memfold.memory_totals as k
            where k.tenant_id = b.tenant_id and k.memory_id = o.root_id
            offset 0
        ) as k on true
    ) as x;
    for v_i in 1..pg_catalog.cardinality(v_items) loop
        if v_classes[v_i] in ('hit', 'new', 'repeat') then
            v_items[v_i].observed_at := v_seen[v_i];
        end if;
    end loop;
    return v_items;
end;
$$;
comment on function memfold_internal._seen_in_batch is
'The candidates of a batch; those that only add get the time when they were observed: as the caller says, else now (told_at), but not
before the last statement of their memory (_stated_at). Only reads.';

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
        having pg_catalog.bool_or(o.class = 'rest') and pg_catalog.bool_or(o.class <> 'rest')
        order by r.root_id
    );
end;
$$;
comment on function memfold_internal._roots_of_both is
'The memories that a batch has both added to and decided about one by one. Only reads.';

create or replace function memfold_internal._new_to_tree(tenant_id text, turns memfold_internal.batch_turn[])
returns memfold_internal.batch_turn[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
begin
    return array(
        select distinct row(x.root_id, x.turn)::memfold_internal.batch_turn
        from (
            select t.memory_id, t.turn, r.root_id
            from unnest(turns) as t
            cross join lateral (
                select memfold_internal._root(m.memory_id, m.root_id) as root_id from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.memory_id = t.memory_id
                offset 0
            ) as r
        ) as x
        where not exists (
            select
            from (
                select x.root_id as memory_id
                union all
                select m.memory_id from memfold.memories as m where m.tenant_id = v_tenant_id and m.root_id = x.root_id
            ) as m
            cross join lateral (
                select from memfold.memory_sources as s
                where s.tenant_id = v_tenant_id and s.source_turn_id = x.turn and s.memory_id = m.memory_id
                offset 0
            ) as s
            -- another text of the tree already had it
            where m.memory_id <> x.memory_id and not row(m.memory_id, x.turn)::memfold_internal.batch_turn = any(turns)
        )
    );
end;
$$;
comment on function memfold_internal._new_to_tree is
'Of turns that were just added to texts, those that are evidence, because their tree did not have them. Each with its root, once.';

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
        -- the first of several in one turn
        order by 2, 3, c.ordinality
        on conflict do nothing
        returning s.source_turn_id, s.memory_id
    )
    select array_agg(row(a.memory_id, a.source_turn_id)::memfold_internal.batch_turn) into v_turns from added as a;
    if b.aliased and v_turns is not null then
        v_turns := memfold_internal._new_to_tree(b.tenant_id, v_turns);
    end if;
    return v_turns;
end;
$$;
comment on function memfold_internal._add_batch_sources is
'Stores the source turns of the candidates that only add. Returns those that are evidence: new to their texts, and if a tree has aliases,
to the whole tree.';

create or replace function memfold_internal._add_batch_counters(b memfold_internal.batch, turns memfold_internal.batch_turn[])
returns uuid[]
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
    v_roots constant uuid[] := b.roots;
    v_event_ids constant uuid[] := b.event_ids;
    -- with at most one turn each, a new turn belongs to one candidate
    v_windows constant boolean := exists (select from unnest(b.items) as c where cardinality(c.source_turn_ids) > 1);
    v_filled uuid[];
begin
    -- An upsert finds each row by the key; a join may read all of a tenant that was small when it was planned. Existing rows are
    -- already locked.
    with counted as (
        insert into memfold.memory_counters as k (
            tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen, last_seen,
            last_event
        )
        select b.tenant_id, o.root_id, count(o.seen), sum(o.independent), max(o.source_confidence), max(o.extractor_confidence),
            min(o.seen), max(o.seen), v_event_ids[max(o.i)]
        from (
            select v_roots[c.ordinality] as root_id, (c.source_turn_ids = '{}')::integer as independent, c.source_confidence,
                c.extractor_confidence, coalesce(c.observed_at, b.told_at) as seen, c.ordinality as i
            from unnest(b.items) with ordinality as c
            where v_classes[c.ordinality] in ('hit', 'new', 'repeat')
            union all
            select t.memory_id, 1, null, null, null, null from unnest(turns) as t where not v_windows
            union all
            -- one per candidate, the first of those that have a new turn
            select distinct f.root_id, 1, null::double precision, null::double precision, null::timestamptz, f.i
            from (
                select t.root_id, min(t.i) as i
                from (
                    select v_roots[c.ordinality] as root_id, t.turn, c.ordinality as i, false as is_new
                    from unnest(b.items) with ordinality as c
                    cross join lateral unnest(c.source_turn_ids) as t (turn)
                    where v_windows and v_classes[c.ordinality] in ('hit', 'new', 'repeat')
                    union all
                    select t.memory_id, t.turn, null, true from unnest(turns) as t where v_windows
                ) as t
                group by t.root_id, t.turn
                having bool_or(t.is_new)
            ) as f
        ) as o
        group by o.root_id
        order by o.root_id
        on conflict (tenant_id, memory_id) do update
        set observations = k.observations + excluded.observations,
            independent = k.independent + excluded.independent,
            source_confidence = greatest(k.source_confidence, excluded.source_confidence),
            extractor_confidence = greatest(k.extractor_confidence, excluded.extractor_confidence),
            first_seen = least(k.first_seen, excluded.first_seen),
            last_seen = greatest(k.last_seen, excluded.last_seen),
            last_event = greatest(k.last_event, excluded.last_event)
        returning k.memory_id, k.observations
    )
    select array_agg(k.memory_id) into v_filled
    from counted as k
    -- it may have passed a multiple of the block size
    where k.observations >= memfold_internal._block_size()
        and k.observations % memfold_internal._block_size() < cardinality(v_classes);
    return v_filled;
end;
$$;
comment on function memfold_internal._add_batch_counters is
'Adds to the counters of the candidates that only add. turns: those that are evidence. Returns the roots that may now have a block to be
summed (null: none). The caller holds the rows of their roots.';

create or replace function memfold_internal._use_keys(
    tenant_id text, buckets text[], idempotency_keys text[], event_ids uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_event_id uuid;
begin
    -- one by one: in a join before the first ANALYZE, they may be looked for among all keys of the tenant
    for v_i in 1..coalesce(cardinality(event_ids), 0) loop
        v_event_id := event_ids[v_i];
        update memfold.idempotency_keys as i
        set event_id = v_event_id
        where i.tenant_id = _use_keys.tenant_id collate "C" and i.bucket_id = buckets[v_i] collate "C"
            and i.idempotency_key = _use_keys.idempotency_keys[v_i] collate "C";
    end loop;
end;
$$;
comment on function memfold_internal._use_keys is 'Records the ledger row of each idempotency key.';
