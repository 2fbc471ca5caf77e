-- All ledger rows of a tenant that name a source turn. Only reads.
create or replace function memfold_internal._events_of_turn(p_tenant_id text, p_turn text) returns setof memfold.memory_events
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    -- Observations in force.
    select e.*
    from memfold.memory_sources as s
    cross join lateral (
        select e.* from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = s.memory_id
            and e.observation and e.source_turn_ids @> array[p_turn]
        offset 0
    ) as e
    where s.tenant_id = p_tenant_id collate "C" and s.source_turn_id = p_turn collate "C"
    union
    -- Observations that were withdrawn.
    select e.*
    from memfold.memory_events as u
    cross join lateral (
        select e.* from memfold.memory_events as e
        where e.tenant_id = p_tenant_id collate "C" and e.event_id = u.undoes
            and e.observation and e.source_turn_ids @> array[p_turn]
        offset 0
    ) as e
    where u.tenant_id = p_tenant_id collate "C" and u.undoes is not null
    union
    -- Refused and recalled statements, by memory_events_erasure_idx.
    select e.*
    from memfold.memory_events as e
    where e.tenant_id = p_tenant_id collate "C"
        and not e.observation and e.source_turn_ids @> array[p_turn];
end;
$$;

create or replace function memfold.erase_source(
    source_turn_id text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    reason text default null,
    max_memories bigint default 100
) returns memfold.erasure
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_result memfold.erasure := (0, 0, 0, 0, '{}');
    v_part memfold.erasure;
    v_buckets text[] := array[]::text[];
    v_locked uuid[] := array[]::uuid[];
    v_ids uuid[];
    v_texts uuid[];
    g record;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('source_turn_id', source_turn_id, false);
    if source_turn_id is null or not coalesce(max_memories between 1 and 1000, false) then
        perform memfold_internal._fail('MF022', 'an argument is missing or out of range',
            format('source_turn_id was %s, max_memories %s.', quote_nullable(source_turn_id), max_memories),
            'Pass the id of the turn to erase; max_memories is 1 to 1000.');
    end if;
    -- All locks come before any row. Wait only for the first, because others may wait for the locks held.
    for g in
        select x.bucket_id, array_remove(array_agg(x.memory_id order by x.memory_id), null) as ids
        from (
            select e.bucket_id, e.memory_id, m.scope_key
            from (
                select distinct e.bucket_id, e.memory_id
                from memfold_internal._events_of_turn(v_tenant_id, source_turn_id) as e
                order by e.memory_id nulls first
                limit max_memories
            ) as e
            left join lateral memfold_internal._memory(v_tenant_id, e.memory_id) as m on true
        ) as x
        group by x.bucket_id, x.scope_key
        order by (array_agg(x.memory_id order by x.memory_id))[1] nulls first
    loop
        if g.ids <> '{}' then
            exit when not memfold_internal._lock_to_erase(v_tenant_id, g.ids, v_buckets = '{}');
        elsif v_buckets = '{}' then
            -- Candidates that a rule refused are about no memory.
            perform memfold_internal._lock(v_tenant_id, g.bucket_id, memfold_internal._no_scope(), true);
        else
            exit when not memfold_internal._try_lock(v_tenant_id, g.bucket_id, memfold_internal._no_scope());
        end if;
        v_buckets := v_buckets || g.bucket_id;
        v_locked := v_locked || g.ids;
    end loop;
    perform memfold_internal._lock_erased(v_tenant_id, memfold_internal._trees(v_tenant_id, v_locked));

    for g in select distinct x.bucket_id from unnest(v_buckets) as x (bucket_id) order by 1
    loop
        -- Search again under the locks, which keep out new rows.
        v_ids := array(
            select distinct e.memory_id
            from memfold_internal._events_of_turn(v_tenant_id, source_turn_id) as e
            where e.bucket_id = g.bucket_id collate "C" and e.memory_id = any(v_locked)
            order by e.memory_id
        );
        v_texts := memfold_internal._trees(v_tenant_id, v_ids);
        v_part := memfold_internal._erase(v_tenant_id, g.bucket_id, v_texts, array(
            select e.event_id
            from memfold_internal._events_of_turn(v_tenant_id, source_turn_id) as e
            where e.bucket_id = g.bucket_id collate "C" and (e.memory_id is null or e.memory_id = any(v_texts))
        ), source_turn_id, reason);
        v_result.erased := v_result.erased + v_part.erased;
        v_result.kept := v_result.kept + v_part.kept;
        v_result.events := v_result.events + v_part.events;
        v_result.current_again := v_result.current_again || v_part.current_again;
    end loop;
    v_result.remaining := (
        select count(distinct coalesce(e.memory_id, e.event_id))
        from memfold_internal._events_of_turn(v_tenant_id, source_turn_id) as e
    );
    return v_result;
end;
$$;
grant execute on function memfold.erase_source to memfold_app;
comment on function memfold.erase_source is
'Erases a conversation turn: every observation that came from it alone, with its text, vector, metadata and ledger rows. A fact that other
turns support stays, in the words of one of them, with its counters derived again. If others were merged into the turn''s own text, the
oldest of them takes its place and the merges remain; so does a merge that the turn''s observation caused, as long as both texts remain.
An observation of several turns stays, without this one. A text that a judge wrote from several texts is erased with any of them. Cannot
be undone. Handles max_memories (1 to 1000) texts per call: call it until remaining is 0. reason is kept in the rows that record the
erasure. Blocks writers of the scopes concerned. Raises MF001 to MF003, MF022, MF025.';
