create or replace function memfold_internal._archivable(
    tenant_id text, before timestamptz, from_memory uuid, from_event uuid, to_memory uuid, to_event uuid, memory_ids uuid[]
) returns table (memory_id uuid, event_id uuid, undo_id uuid, summary bigint, is_summary boolean)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with seen as (
        select e.memory_id, e.event_id, e.metadata, e.observed_at, e.source_turn_ids, u.undo_id,
            e.method is not distinct from 'archived' as is_summary,
            -- validity is compared with later observations
            e.action = 'merged' and e.tier = 1 and e.observation and not e.on_timeline and num_nonnulls(e.valid_from, e.valid_until) = 0
                and e.method is distinct from 'archived' and e.recorded_at < _archivable.before and e.run_id is null
                and coalesce(u.recorded_at < _archivable.before and u.run_id is null, true) as is_restatement,
            not e.observation and e.recorded_at < _archivable.before and e.run_id is null and e.undoes is null
                and (e.action = 'merged' and e.tier = 1 or e.action = 'rejected' and e.tier is distinct from 3
                    -- for a text of a plain INSERT it may be the only row (_adopt_row)
                    or e.action = 'embedded' and exists (
                        select from memfold.memory_events as o
                        where o.tenant_id = e.tenant_id and o.memory_id = e.memory_id and o.observation
                    )) as is_idle
        from memfold.memory_events as e
        left join lateral (
            select u.event_id as undo_id, u.recorded_at, u.run_id
            from memfold.memory_events as u
            where u.tenant_id = e.tenant_id and u.undoes = e.event_id
            offset 0
        ) as u on true
        where e.tenant_id = _archivable.tenant_id collate "C"
            and (e.memory_id, e.event_id) >= (from_memory, from_event)
            and (e.memory_id, e.event_id) <= (to_memory, to_event)
            and (memory_ids is null or e.memory_id = any(memory_ids))
    ),
    ranked as (
        -- of equal metadata the first and the last stay: merging the others changes nothing, whatever the policy
        select s.*, s.is_summary or s.metadata = '{}' or (
            pg_catalog.row_number() over (w order by s.observed_at, s.event_id) > 1
            and pg_catalog.row_number() over (w order by s.observed_at desc, s.event_id desc) > 1
        ) as is_foldable
        from seen as s
        where s.is_summary or s.is_restatement and s.undo_id is null
        window w as (partition by s.memory_id, s.is_summary, s.metadata)
    ),
    numbered as (
        -- so that no row grows without limit
        select r.*, coalesce(sum(pg_catalog.cardinality(r.source_turn_ids)) over (
            partition by r.memory_id order by r.event_id rows between unbounded preceding and 1 preceding
        ), 0)::bigint / 2000 as summary
        from ranked as r
        where r.is_foldable
    ),
    folded as (
        select n.*, pg_catalog.count(*) over (partition by n.memory_id, n.summary) as n
        from numbered as n
    )
    select f.memory_id, f.event_id, null::uuid, f.summary, f.is_summary from folded as f where f.n > 1
    union all
    select s.memory_id, s.event_id, s.undo_id, null, false
    from seen as s
    where s.is_restatement and s.undo_id is not null
        or s.is_idle;
end;
$$;
comment on function memfold_internal._archivable is
'What archive_events() would move of a section of the ledger, by memory and event: restatements by the number of the row that will replace
them (is_summary: they are such a row), undone ones with the row that undid them, and rows on which no state depends. memory_ids null:
all. Only reads.';

create or replace function memfold_internal._archive(tenant_id text, event_ids uuid[], summaries bigint[]) returns memfold.archived_rows
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_result memfold.archived_rows;
    v_gone memfold.memory_events[];
    v_summaries bigint[];
begin
    select pg_catalog.array_agg(e order by e.event_id), pg_catalog.array_agg(i.summary order by e.event_id)
    into v_gone, v_summaries
    from unnest(event_ids, summaries) as i (id, summary)
    join memfold.memory_events as e on e.tenant_id = _archive.tenant_id collate "C" and e.event_id = i.id;
    perform memfold_internal._maintain(true);
    delete from memfold.memory_events as e
    where e.tenant_id = _archive.tenant_id collate "C" and e.event_id = any(event_ids);
    insert into memfold.memory_events_archive
    select g.* from pg_catalog.unnest(v_gone) as g where g.method is distinct from 'archived';
    get diagnostics v_result.archived = row_count;
    -- with the key of the last row, which is removed
    insert into memfold.memory_events (
        tenant_id, event_id, recorded_at, bucket_id, action, tier, method, memory_id, observation, source_turn_ids,
        source_confidence, extractor_confidence, metadata, observed_at, actor, observations, without_turns, first_observed_at,
        turn_events
    )
    select _archive.tenant_id, s.event_id, s.recorded_at, s.bucket_id, 'merged', 1, 'archived', s.memory_id, true,
        coalesce(t.turns, '{}'), s.source_confidence, s.extractor_confidence, '{}', s.observed_at, memfold_internal._actor(),
        s.observations, s.without_turns, s.first_observed_at, coalesce(t.holders, '{}')
    from (
        select g.memory_id, v_summaries[g.ordinality] as summary, min(g.bucket_id) as bucket_id,
            (pg_catalog.array_agg(g.event_id order by g.event_id desc))[1] as event_id,
            (pg_catalog.array_agg(g.recorded_at order by g.event_id desc))[1] as recorded_at,
            max(g.source_confidence) as source_confidence, max(g.extractor_confidence) as extractor_confidence,
            max(g.observed_at) as observed_at, min(coalesce(g.first_observed_at, g.observed_at)) as first_observed_at,
            sum(coalesce(g.observations, 1)) as observations,
            sum(coalesce(g.without_turns, case when g.source_turn_ids = '{}' then 1 else 0 end)) as without_turns
        from pg_catalog.unnest(v_gone) with ordinality as g
        where v_summaries[g.ordinality] is not null
        group by 1, 2
    ) as s
    left join (
        select f.memory_id, f.summary, pg_catalog.array_agg(f.turn order by f.turn) as turns,
            pg_catalog.array_agg(f.holder order by f.turn) as holders
        from (
            select distinct on (g.memory_id, v_summaries[g.ordinality], t.turn) g.memory_id,
                v_summaries[g.ordinality] as summary, t.turn, coalesce(t.holder, g.event_id) as holder
            from pg_catalog.unnest(v_gone) with ordinality as g, unnest(g.source_turn_ids, g.turn_events) as t (turn, holder)
            where v_summaries[g.ordinality] is not null
            order by g.memory_id, v_summaries[g.ordinality], t.turn, coalesce(t.holder, g.event_id)
        ) as f
        group by f.memory_id, f.summary
    ) as t on t.memory_id = s.memory_id and t.summary = s.summary;
    get diagnostics v_result.summaries = row_count;
    perform memfold_internal._renew_sums(_archive.tenant_id, pg_catalog.array_agg(g.memory_id), pg_catalog.array_agg(g.event_id))
    from pg_catalog.unnest(v_gone) as g
    where g.observation
    having pg_catalog.count(*) > 0;
    v_result.is_left := true;
    perform memfold_internal._maintain(false);
    return v_result;
end;
$$;
comment on function memfold_internal._archive is
'Moves rows of the ledger to the archive. summaries: the number of the row that replaces it, among those of its memory; null: none does.
Rows of method archived are deleted in favour of one that also replaces theirs. The caller holds the locks.';

create or replace function memfold.archive_events(
    before timestamptz,
    tenant_id text default current_setting('memfold.tenant_id', true),
    max_events bigint default 1000
) returns memfold.archived_rows
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_zero constant uuid := '00000000-0000-0000-0000-000000000000'::uuid;
    v_from_memory uuid := v_zero;
    v_from_event uuid := v_zero;
    v_next_memory uuid;
    v_next_event uuid;
    v_memories uuid[];
    v_buckets text[];
    v_events uuid[];
    v_summaries bigint[];
    v_last bigint;
    v_locked text[] := array[]::text[];
    v_text record;
    v_result memfold.archived_rows;
begin
    perform memfold_internal._authorize_tenant(v_tenant_id);
    if not coalesce(before <= clock_timestamp() and max_events between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('before was %s, max_events %s.', before, max_events),
            'before is a time in the past, max_events 1 to 10,000.');
    end if;
    v_result.archived := 0;
    v_result.summaries := 0;
    v_result.is_left := true;
    select p.memory_id, p.event_id into v_from_memory, v_from_event
    from memfold.archive_positions as p where p.tenant_id = v_tenant_id;
    if not found then
        v_from_memory := v_zero;
        v_from_event := v_zero;
    end if;

    -- one more row than it handles: the next call continues there
    if v_from_memory is not null then
        select array_agg(e.memory_id), array_agg(e.event_id) into v_memories, v_events
        from (
            select e.memory_id, e.event_id
            from memfold.memory_events as e
            where e.tenant_id = v_tenant_id and (e.memory_id, e.event_id) >= (v_from_memory, v_from_event)
            order by e.memory_id, e.event_id
            limit max_events + 1
        ) as e;
    end if;
    if v_memories is not null then
        v_last := least(cardinality(v_events), max_events);
        v_next_memory := v_memories[max_events + 1];
        v_next_event := coalesce(v_events[max_events + 1], v_zero);
        for v_text in
            select a.memory_id, m.bucket_id, m.scope_key
            from (
                select distinct a.memory_id
                from memfold_internal._archivable(v_tenant_id, before, v_from_memory, v_from_event, v_memories[v_last],
                    v_events[v_last], null) as a
            ) as a
            cross join lateral (
                select m.bucket_id, m.scope_key from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.memory_id = a.memory_id
                offset 0
            ) as m
            order by a.memory_id
        loop
            -- It waits only for the first, so that nobody waits for its locks while it waits for another.
            if v_locked = '{}' then
                perform memfold_internal._lock(v_tenant_id, v_text.bucket_id, v_text.scope_key, true);
            elsif cardinality(v_locked) = 64
                or not memfold_internal._try_lock(v_tenant_id, v_text.bucket_id, v_text.scope_key)
            then
                v_next_memory := v_text.memory_id;
                v_next_event := v_zero;
                exit;
            end if;
            v_locked := v_locked || v_text.memory_id::text;
        end loop;
        if v_locked <> '{}' then
            -- against _extend_sums(), which a restatement calls without the scope's lock
            perform from unnest(v_locked::uuid[]) as i (id)
            join memfold.memories as m on m.tenant_id = v_tenant_id and m.memory_id = i.id
            order by m.memory_id
            for key share of m;
            -- read again under the locks
            with plan as materialized (
                select a.* from memfold_internal._archivable(v_tenant_id, before, v_from_memory, v_from_event, v_memories[v_last],
                    v_events[v_last], v_locked::uuid[]) as a
            )
            select array_agg(p.event_id), array_agg(p.summary),
                -- the rest of a memory is read from the row that replaces its beginning
                coalesce((array_agg(p.event_id order by p.event_id desc) filter (
                    where p.memory_id = v_next_memory and p.summary is not null))[1], v_next_event)
            into v_events, v_summaries, v_next_event
            from (
                select p.memory_id, p.event_id, p.summary from plan as p
                union all
                select p.memory_id, p.undo_id, null from plan as p where p.undo_id is not null
            ) as p;
            v_result := memfold_internal._archive(v_tenant_id, v_events, v_summaries);
        end if;
    else
        -- rows without a memory: candidates that a rule refused
        select array_agg(e.event_id), array_agg(e.bucket_id) into v_events, v_buckets
        from (
            select e.event_id, e.bucket_id
            from memfold.memory_events as e
            where e.tenant_id = v_tenant_id and e.memory_id is null
                and e.event_id >= case when v_from_memory is null then v_from_event else v_zero end
            order by e.event_id
            limit max_events + 1
        ) as e;
        v_next_event := v_events[max_events + 1];
        for v_text in
            select b.bucket_id, b.event_id
            from (
                select distinct on (i.bucket_id) i.bucket_id, i.event_id
                from unnest(v_buckets, v_events) as i (bucket_id, event_id)
                order by i.bucket_id, i.event_id
            ) as b
            order by b.event_id
        loop
            -- against erasure, which has this key or the bucket's
            if v_locked = '{}' then
                perform memfold_internal._lock(v_tenant_id, v_text.bucket_id, 0, true);
            elsif cardinality(v_locked) = 64 or not memfold_internal._try_lock(v_tenant_id, v_text.bucket_id, 0) then
                v_next_event := v_text.event_id;
                exit;
            end if;
            v_locked := v_locked || v_text.bucket_id;
        end loop;
        v_result := memfold_internal._archive(v_tenant_id, array(
            select e.event_id
            from unnest(v_events) as i (id)
            join memfold.memory_events as e on e.tenant_id = v_tenant_id and e.event_id = i.id
            where e.memory_id is null and e.action = 'rejected' and e.recorded_at < archive_events.before and e.run_id is null
                and (v_next_event is null or e.event_id < v_next_event)
        ), null);
        v_result.is_left := v_next_event is not null;
    end if;
    if not v_result.is_left then
        delete from memfold.archive_positions as p where p.tenant_id = v_tenant_id;
        return v_result;
    end if;
    update memfold.archive_positions as p
    set memory_id = v_next_memory, event_id = v_next_event
    where p.tenant_id = v_tenant_id;
    if not found then
        insert into memfold.archive_positions (tenant_id, memory_id, event_id)
        values (v_tenant_id, v_next_memory, v_next_event)
        on conflict do nothing;
    end if;
    return v_result;
end;
$$;
comment on function memfold.archive_events is
'Moves ledger rows of a tenant written before a given time to memory_events_archive if no state of memories depends on them: restatements
of one text, which are replaced by one row of method archived (the first and the last of those with the same metadata stay), restatements
that were undone, refused candidates, and recalled ones. All other rows stay: those that created, merged, retired or judged a memory,
values of timelines, decisions of runs. Counters, confidences, metadata and statistics do not change; undo() and a repeated call with an
idempotency key find archived rows. Reads max_events rows (1 to 10,000) of at most 64 scopes, continues where the last call ended, and
returns how many rows it moved, how many replace them, and whether to call it again. Blocks writers of these scopes, except restatements.
Only for members of memfold_owner. Raises MF001 to MF003, MF022, MF025.';
