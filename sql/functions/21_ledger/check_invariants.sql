-- Longer than 150 lines: one row per invariant, over the same derived tables.
create or replace function memfold.check_invariants(
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns table (memory_id uuid, invariant text, expected text, actual text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
-- compiling the queries takes twenty times as long as running them
set jit = off
-- with old statistics, the planner expects one row from each step
set enable_nestloop = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_ids uuid[];
begin
    perform memfold_internal._authorize_tenant(v_tenant_id);
    select coalesce(array_agg(m.memory_id), '{}') into v_ids from memfold.memories as m where m.tenant_id = v_tenant_id;

    -- state and edges match the ledger, and a root's sums match its texts
    return query
    with derived as materialized (
        select * from memfold_internal._derived_trees(v_tenant_id, v_ids)
    ),
    expected as (
        select d.memory_id, to_jsonb(d) - '{memory_id,rejected,observations}'::text[] || jsonb_build_object(
            'status', case when d.root_id is not null then 'merged' when d.rejected then 'rejected'
                when d.observations = 0 or memfold_internal._is_pruned(v_tenant_id, d.memory_id) then 'withdrawn'
                -- _check_times() checks superseded
                when m.status = 'superseded' then 'superseded' else 'active' end) as state
        from derived as d
        join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = d.memory_id
    ),
    actual as (
        select m.memory_id, coalesce(to_jsonb(k), '{}') || to_jsonb(m) || jsonb_build_object(
            'aliases', coalesce(k.aliases, 0)) as state,
            not m.is_ingested and not exists (
                select from memfold.memory_events as o
                where o.tenant_id = m.tenant_id and o.memory_id = m.memory_id and o.observation
            ) as waits
        from memfold.memories as m
        left join memfold.memory_counters as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        where m.tenant_id = v_tenant_id
    )
    select a.memory_id, 'memory: ' || coalesce(x.key, 'leads to a root'), x.value #>> '{}', a.state ->> coalesce(x.key, 'root_id')
    from actual as a
    left join expected as e on e.memory_id = a.memory_id
    -- no row: the merges in force form a cycle
    left join lateral jsonb_each(e.state) as x on true
    where (e.memory_id is null or x.value is distinct from coalesce(a.state -> x.key, 'null'))
        -- except a row of a plain INSERT, which is active, with its metadata, before ingest_plain_rows() writes its ledger row
        and not (a.waits and (x.key = 'metadata' or x.key = 'status' and x.value = '"withdrawn"' and a.state ->> 'status' = 'active'))
        -- except metadata that the run of a changed policy has not reached yet
        and not (x.key = 'metadata' and exists (
            select from memfold.runs as o
            where o.tenant_id = v_tenant_id and o.kind = 'predicate' and o.status = 'open'
                and not o.arguments ?| array['predicate', 'predicates']
                and (o.report ->> 'last' is null or a.memory_id > (o.report ->> 'last')::uuid)
        ));

    -- counters match the observations in force, of each text and of each root with its aliases
    return query
    with stated as materialized (
        select x.kind, x.id, e.event_id, e.observed_at, e.source_turn_ids, e.source_confidence, e.extractor_confidence, e.observation
        from memfold_internal._statements as e
        join memfold.memories as m on m.tenant_id = e.tenant_id and m.memory_id = e.memory_id
        cross join lateral (values
            ('text', m.memory_id), ('tree', memfold_internal._root(m.memory_id, m.root_id))
        ) as x (kind, id)
        where e.tenant_id = v_tenant_id
    ),
    firsts as (
        select distinct on (s.kind, s.id, t.turn) s.kind, s.id, s.event_id
        from stated as s, unnest(s.source_turn_ids) as t (turn)
        where s.observation
        order by s.kind, s.id, t.turn, s.event_id
    ),
    independents as (
        select f.kind, f.id, count(distinct f.event_id) as n from firsts as f group by f.kind, f.id
    ),
    expected as (
        select s.kind, s.id, jsonb_build_object(
            'observations', count(*) filter (where s.observation),
            'independent', count(*) filter (where s.observation and s.source_turn_ids = '{}') + coalesce(max(i.n), 0),
            'source_confidence', coalesce(max(s.source_confidence) filter (where s.observation), 0),
            'extractor_confidence', coalesce(max(s.extractor_confidence) filter (where s.observation), 0),
            'first_seen', min(s.observed_at) filter (where s.observation), 'last_seen', max(s.observed_at)) as state
        from stated as s
        left join independents as i on i.kind = s.kind and i.id = s.id
        group by s.kind, s.id
    ),
    actual as (
        select 'text' as kind, k.memory_id as id, to_jsonb(k) as state from memfold.memory_counters as k where k.tenant_id = v_tenant_id
        union all
        select 'tree', t.memory_id, to_jsonb(t) from memfold.memory_totals as t where t.tenant_id = v_tenant_id
    )
    select coalesce(a.id, e.id), format('counters of a %s: %s', coalesce(a.kind, e.kind), x.key), x.value #>> '{}', a.state ->> x.key
    from actual as a
    full join expected as e on e.kind = a.kind and e.id = a.id
    cross join lateral jsonb_each(coalesce(e.state, jsonb '{
        "observations": 0, "independent": 0, "source_confidence": 0, "extractor_confidence": 0, "first_seen": null, "last_seen": null
    }')) as x
    where x.value is distinct from a.state -> x.key;

    return query
    select d.memory_id, 'counters: ' || x.name, x.expected, x.actual
    from memfold.memory_counters as d
    join memfold.memories as m on m.tenant_id = d.tenant_id and m.memory_id = d.memory_id
    cross join lateral (values
        ('root_id', m.root_id::text, d.root_id::text)
    ) as x (name, expected, actual)
    where d.tenant_id = v_tenant_id and x.expected is distinct from x.actual;

    return query
    select v.memory_id, 'vector: ' || x.name, x.expected, x.actual
    from memfold.memory_vectors as v
    join memfold.memories as m on m.tenant_id = v.tenant_id and m.memory_id = v.memory_id
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold_internal._root(m.memory_id, m.root_id)
    cross join lateral (values
        ('is_live', (r.status <> 'withdrawn')::text, v.is_live::text),
        ('bucket_id', m.bucket_id, v.bucket_id),
        ('scope_key', m.scope_key::text, v.scope_key::text),
        ('norm', '1.0000', round(memfold_internal._norm(v.embedding)::numeric, 4)::text)
    ) as x (name, expected, actual)
    where v.tenant_id = v_tenant_id and x.expected <> x.actual;

    -- counters and vectors belong to a memory (there is no foreign key)
    return query
    select x.memory_id, x.name || ': memory exists', x.memory_id::text, null
    from (
        select k.memory_id, 'counters' as name from memfold.memory_counters as k where k.tenant_id = v_tenant_id
        union all
        select v.memory_id, 'vector' from memfold.memory_vectors as v where v.tenant_id = v_tenant_id
    ) as x
    where not exists (
        select from memfold.memories as m where m.tenant_id = v_tenant_id and m.memory_id = x.memory_id
    );

    -- sources are the turns of the observations in force, each with the first of them
    return query
    with expected as (
        select e.memory_id, t.turn, (array_agg(e.event_id order by e.event_id))[1] as event_id
        from memfold_internal._observed as e, unnest(e.source_turn_ids) as t (turn)
        where e.tenant_id = v_tenant_id and e.memory_id is not null
        group by e.memory_id, t.turn
    ),
    actual as (
        select s.memory_id, s.source_turn_id as turn, s.event_id
        from memfold.memory_sources as s where s.tenant_id = v_tenant_id
    )
    select coalesce(e.memory_id, a.memory_id), 'source' || x.name, x.expected, x.actual
    from expected as e
    full join actual as a on a.memory_id = e.memory_id and a.turn = e.turn
    cross join lateral (values
        ('', e.turn, a.turn),
        (': first event', e.event_id::text, a.event_id::text)
    ) as x (name, expected, actual)
    where x.expected is distinct from x.actual;

    return query select t.* from memfold_internal._check_times(v_tenant_id) as t;

    -- order: later rows have higher ids
    return query
    select r.memory_id, 'order: last event', x.event_id::text, k.last_event::text
    from memfold.memories as m
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = memfold_internal._root(m.memory_id, m.root_id)
    join memfold.memory_totals as k on k.tenant_id = r.tenant_id and k.memory_id = r.memory_id
    cross join lateral (
        select e.event_id from memfold.memory_events as e
        where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id
            and (e.observation or e.tier = 3 and e.action in ('pruned', 'superseded'))
        order by e.event_id desc
        limit 1
    ) as x
    where m.tenant_id = v_tenant_id and k.last_event < x.event_id;
    return query
    select u.memory_id, 'order: undone later', u.undoes::text, u.event_id::text
    from memfold.memory_events as u
    where u.tenant_id = v_tenant_id and u.undoes >= u.event_id;

    -- ids in the ledger exist
    return query
    select e.memory_id, 'ledger: memory exists', e.event_id::text, null
    from memfold.ledger as e
    where e.tenant_id = v_tenant_id and e.memory_id is not null and e.action <> 'erased' and not exists (
        select from memfold.memories as m where m.tenant_id = e.tenant_id and m.memory_id = e.memory_id
    );
    -- an undone row can be undone (an erasure may have changed it after undo() had checked it)
    return query
    select u.memory_id, 'ledger: what is undone can be', e.event_id::text, concat_ws(', tier ', e.action, e.tier)
    from memfold.memory_events as u
    join memfold.memory_events as e on e.tenant_id = u.tenant_id and e.event_id = u.undoes
    where u.tenant_id = v_tenant_id and e.method is distinct from 'rehash'
        and not (memfold_internal._is_undoable(e.action, e.tier, e.observation) or u.action <> 'undone' and e.observation);
    return query
    select null::uuid, 'idempotency key: ledger row exists', i.idempotency_key::text, i.event_id::text
    from memfold.idempotency_keys as i
    where i.tenant_id = v_tenant_id and not exists (
        select from memfold.ledger as e where e.tenant_id = i.tenant_id and e.event_id = i.event_id
    );
    -- an open judgement asks about memories of its bucket
    return query
    select m.memory_id, 'open judgement: both sides are roots', null, j.judgement_id::text
    from memfold.judgements as j
    join memfold.memories as m on m.tenant_id = j.tenant_id and m.memory_id in (j.memory_id, j.other_id)
    where j.tenant_id = v_tenant_id and j.status = 'open' and j.kind = 'write' and m.bucket_id <> j.bucket_id;
    -- an open question about a cluster names 3 to 10 memories of its bucket, oldest to newest, and has a row for each but the oldest
    return query
    select j.memory_id, 'open cluster: its members', e.members::text, j.member_ids::text
    from memfold.judgements as j
    cross join lateral (
        select array(
            select distinct x.id
            from (
                select j.other_id as id
                union all
                select p.memory_id from memfold.judgements as p
                where p.tenant_id = v_tenant_id and p.cluster_id = j.judgement_id and p.status = 'part' and p.other_id = j.other_id
            ) as x
            join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = x.id and m.bucket_id = j.bucket_id
            order by 1
        ) as members
    ) as e
    where j.tenant_id = v_tenant_id and j.member_ids is not null and j.status in ('open', 'leased', 'dead') and (
        e.members is distinct from j.member_ids or cardinality(j.member_ids) not between 3 and 10
        or (j.other_id, j.memory_id) is distinct from (j.member_ids[1], j.member_ids[cardinality(j.member_ids)])
    );
    return query
    select p.memory_id, 'part of a cluster: a question that waits', p.cluster_id::text, h.status::text
    from memfold.judgements as p
    left join memfold.judgements as h on h.tenant_id = p.tenant_id and h.judgement_id = p.cluster_id
    where p.tenant_id = v_tenant_id and p.status = 'part' and (h.status in ('open', 'leased', 'dead')) is not true;
end;
$$;
grant execute on function memfold.check_invariants to memfold_app;
comment on function memfold.check_invariants is
'Recomputes every status, edge, aggregate, source, interval and vector flag of a tenant from the ledger and returns one row for each
difference; no row means that there is none. Run it while nothing writes to the tenant; otherwise check each difference again. A row of a
plain INSERT that waits for ingest_plain_rows() is not a difference.';
