-- Longer than 150 lines: its steps share thirty arrays of the batch, and each call copies those that it changes.
create or replace function memfold_internal._ingest_rows(
    tenant_id text, batch memfold.staged_candidates[], failed memfold.batch_result[], on_error text
) returns setof memfold.batch_result
language plpgsql volatile
-- arrays tempt the planner to plan again
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_policies memfold.policies[];
    -- By place in the batch, from 1 on. What a candidate is: error (refused), known (its key is), again (the key of an
    -- earlier one), hit (a replay), new (the first of a new text), repeat (a further one), rest.
    v_classes text[];
    v_ordinals bigint[];
    v_keys text[];
    v_policy_of integer[];
    v_items memfold_internal.candidate[];
    v_scope_keys bigint[];
    v_wide boolean[];
    v_matched uuid[];
    v_roots uuid[];
    v_memory_ids uuid[];
    v_event_ids uuid[];
    v_last_id uuid;
    v_results memfold.ingest_result[];
    v_errors memfold.batch_result[];
    v_first_of_key integer[];
    v_held text[] := array[]::text[];
    v_locks text[];
    v_slots bigint[];
    v_singles text[];
    v_seen_classes text[];
    v_seen_scopes bigint[];
    v_seen_singles text[];
    v_decided text[];
    v_root_scopes bigint[];
    v_changed uuid[];
    v_aliased boolean;
    v_firsts bigint[];
    v_near bigint[];
    v_ids uuid[];
    v_hits uuid[];
    v_touched uuid[];
    v_known uuid[];
    v_count bigint;
    v_rehashed boolean := false;
    v_limited boolean := false;
    v_embeds boolean := false;
    v_repeated record;
    v_buckets text[];
    v_types text[];
    v_models text[];
    v_predicates text[];
    v_policy memfold.policies;
    v_now constant timestamptz := memfold_internal._clock();
    v_latest timestamptz;
    v_seen timestamptz[];
    v_actor constant text := memfold_internal._actor();
    c memfold_internal.candidate;
    d memfold_internal.decision;
begin
    perform memfold_internal._check_wildcard('tenant_id', v_tenant_id);
    -- 1. Validate and hash. The policy once for each bucket and type.
    select pg_catalog.array_agg(p.policy order by p.bucket_id, p.memory_type),
        pg_catalog.array_agg(p.bucket_id order by p.bucket_id, p.memory_type),
        pg_catalog.array_agg(p.memory_type order by p.bucket_id, p.memory_type)
    into v_policies, v_buckets, v_types
    from (
        select t.bucket_id, t.memory_type, memfold_internal._policy(v_tenant_id, t.bucket_id, t.memory_type) as policy
        from (
            select distinct coalesce(r.bucket_id, 'default') as bucket_id, coalesce(r.memory_type, 'fact') as memory_type
            from unnest(batch) as r
        ) as t
    ) as p;
    for v_i in 1..coalesce(cardinality(v_policies), 0) loop
        v_policy := v_policies[v_i];
        v_rehashed := v_rehashed or v_policy.rehash_run is not null;
        v_limited := v_limited or v_policy.max_session_repeats is not null;
        v_embeds := v_embeds or v_policy.embed = 'in_database';
        if v_policy.dedup = 'off' then
            v_policy.canonicalizer := null;
            v_policies[v_i] := v_policy;
        end if;
    end loop;
    select b.* into strict v_classes, v_ordinals, v_keys, v_policy_of, v_items, v_errors
    from memfold_internal._batch_candidates(v_tenant_id, batch, v_policies, failed) as b;
    v_count := coalesce(cardinality(v_items), 0);

    -- 2. Keys, before any lock: a call with the same key waits here for the other to commit.
    if exists (select from unnest(v_keys) as k (key) where k.key is not null) then
        select b.* into strict v_classes, v_errors, v_first_of_key, v_known
        from memfold_internal._batch_keys(v_tenant_id, v_items, v_ordinals, v_keys, v_classes, v_errors) as b;
    end if;
    select coalesce(array_agg(x order by x.ordinal), '{}') into v_errors
    from unnest(v_errors) as x
    where not exists (
        select from unnest(v_ordinals, v_classes) as o (ordinal, class) where o.ordinal = x.ordinal and o.class in ('known', 'again')
    );
    if on_error = 'abort' and cardinality(v_errors) > 0 then
        perform memfold_internal._fail_batch(v_errors[1]);
    end if;

    -- 3. Look, lock what must be locked, and look again: a statement sees what was committed before it began.
    select array_agg(distinct c.predicate) filter (where c.predicate is not null),
        -- not of those that were refused for it, nor of those that were taken in before it was replaced
        array_agg(distinct c.embedding_model) filter (
            where c.embedding_model is not null and v_classes[c.ordinality] not in ('error', 'known', 'again')
        )
    into v_predicates, v_models
    from unnest(v_items) with ordinality as c;
    loop
        select l.matched, l.roots, l.root_scopes, l.classes_now into strict v_matched, v_roots, v_root_scopes, v_classes
        from memfold_internal._probe_batch(v_tenant_id, v_items, v_classes) as l;
        if v_rehashed then
            -- one by one, for a text may stand under either of two hashes
            select array_agg(case when o.class in ('todo', 'hit') and (v_policies[v_policy_of[o.i]]).rehash_run is not null
                then 'rest' else o.class end order by o.i)
            into v_classes
            from unnest(v_classes) with ordinality as o (class, i);
        end if;
        exit when v_classes is null or not v_classes && array['todo', 'rest'];
        -- again after each wait, as the texts: set_predicate() takes no lock
        select coalesce(array_agg(p.predicate), '{}') into v_singles
        from unnest(v_predicates) as p (predicate)
        where memfold_internal._is_single(v_tenant_id, p.predicate);
        if v_classes = v_seen_classes and v_root_scopes is not distinct from v_seen_scopes
            and v_singles <@ v_seen_singles and v_singles @> v_seen_singles
        then
            v_classes := v_decided;
            exit;
        end if;
        if v_embeds then
            -- once, before any lock
            v_items := memfold_internal._embed_batch(v_items, v_classes, v_policies, v_policy_of);
            v_embeds := false;
            select array_agg(distinct c.embedding_model) filter (
                where c.embedding_model is not null and v_classes[c.ordinality] not in ('error', 'known', 'again')
            ) into v_models
            from unnest(v_items) with ordinality as c;
        end if;
        v_seen_classes := v_classes;
        v_seen_scopes := v_root_scopes;
        v_seen_singles := v_singles;
        if v_singles <> '{}' and 'hit' = any(v_classes) then
            -- Whoever may retire the value of a slot decides in order with everything that hits the slot.
            select array_agg(distinct memfold_internal._scope_key_of(c.bucket_id, c.memory_type, c.subject, c.predicate)) into v_slots
            from unnest(v_items) with ordinality as c
            where v_classes[c.ordinality] in ('todo', 'rest') and c.predicate = any(v_singles);
            select array_agg(case when o.class = 'hit' and o.root_scope = any(v_slots) then 'rest' else o.class end order by o.i)
            into v_classes
            from unnest(v_classes, v_root_scopes) with ordinality as o (class, root_scope, i);
        end if;
        v_decided := v_classes;
        select array_agg(x.scope_key),
            -- an alias may lead elsewhere
            array_agg(coalesce(
                x.scope = 'bucket' or x.key_fields <> 'type,subject,predicate' or x.rehashed or x.root_scope <> x.scope_key,
                false))
        into v_scope_keys, v_wide
        from (
            select v_root_scopes[c.ordinality] as root_scope, (v_policies[v_policy_of[c.ordinality]]).scope as scope,
                (v_policies[v_policy_of[c.ordinality]]).key_fields as key_fields,
                (v_policies[v_policy_of[c.ordinality]]).rehash_run is not null as rehashed,
                case when v_classes[c.ordinality] in ('todo', 'rest')
                    then memfold_internal._scope_key_of(c.bucket_id, c.memory_type, c.subject, c.predicate) end as scope_key
            from unnest(v_items) with ordinality as c
            order by c.ordinality
            offset 0
        ) as x;
        -- Nothing is compared, nor locked, where dedup is off.
        v_locks := null;
        select memfold_internal._lock_scopes(v_tenant_id, array_agg((v_items[o.i]).bucket_id), array_agg(o.scope_key),
            array_agg(o.wide), v_held)
        into v_locks
        from unnest(v_classes, v_scope_keys, v_wide) with ordinality as o (class, scope_key, wide, i)
        where o.class in ('todo', 'rest') and (v_policies[v_policy_of[o.i]]).dedup = 'on'
        having count(*) > 0;
        exit when v_locks is null or v_locks = v_held;
        v_held := v_locks;
        for v_i in 1..cardinality(v_policies) loop
            perform memfold_internal._check_rules(v_tenant_id, v_buckets[v_i], v_types[v_i], v_policies[v_i], v_models);
        end loop;
    end loop;

    -- 4. New texts that decide nothing but to be there. Not: recalled ones, values of a slot, those whose words are
    -- compared, and texts that have a neighbour, here or earlier in the batch.
    if 'todo' = any(v_classes) then
        select array_agg(case when x.is_text then x.first end order by x.i),
            array_agg(case
                when not x.is_text then x.class
                when not x.plain or not x.first_is_plain then 'rest'
                when x.first = x.i then 'new'
                when x.bare then 'repeat'
                else 'rest' end order by x.i)
        into v_firsts, v_classes
        from (
            select y.*, first_value(y.i) over w as first, first_value(y.plain) over w as first_is_plain
            from (
                select c.ordinality as i, c.bucket_id, c.content_hash, v_classes[c.ordinality] as class,
                    v_classes[c.ordinality] = 'todo' as is_text, c.metadata = '{}' as bare,
                    c.origin <> 'recalled' and ((v_policies[v_policy_of[c.ordinality]]).dedup = 'on' and (
                        c.predicate = any(v_singles)
                        or (v_policies[v_policy_of[c.ordinality]]).lexical_threshold is not null
                    )) is not true as plain
                from unnest(v_items) with ordinality as c
                offset 0
            ) as y
            window w as (
                partition by y.is_text, y.bucket_id, y.content_hash, case when y.content_hash is null then y.i end order by y.i
            )
            offset 0
        ) as x;
        if exists (
            select from unnest(v_classes) with ordinality as o (class, i) where o.class = 'new' and (v_items[o.i]).embedding is not null
        ) then
            v_near := memfold_internal._near_in_batch(v_tenant_id, v_items, v_classes, v_firsts, v_scope_keys, v_policies, v_policy_of);
            if v_near is not null then
                select array_agg(case when o.class in ('new', 'repeat') and o.first = any(v_near) then 'rest' else o.class end
                    order by o.i)
                into v_classes
                from unnest(v_classes, v_firsts) with ordinality as o (class, first, i);
            end if;
        end if;
    end if;

    if v_limited then
        for v_repeated in
            select r.place, r.repeats
            from memfold_internal._check_batch_repeats(v_tenant_id, v_items, v_classes, v_matched, array(
                select (v_policies[p.place]).max_session_repeats from unnest(v_policy_of) with ordinality as p (place, i) order by p.i
            )) as r
        loop
            for v_i in 1..v_count loop
                -- and those that have its key
                if v_i = v_repeated.place or v_classes[v_i] = 'again' and v_first_of_key[v_i] = v_repeated.place then
                    v_errors := v_errors || memfold_internal._refuse_repeats(v_ordinals[v_i], v_items[v_repeated.place],
                        v_keys[v_i], v_repeated.repeats,
                        (v_policies[v_policy_of[v_repeated.place]]).max_session_repeats, on_error);
                    v_classes[v_i] := 'error';
                end if;
            end loop;
        end loop;
        -- what was counted here is not counted again by those that are decided one by one
        for v_i in 1..cardinality(v_policies) loop
            v_policy := v_policies[v_i];
            v_policy.max_session_repeats := null;
            v_policies[v_i] := v_policy;
        end loop;
    end if;

    -- 5. Rows, in one order: all that are known to be touched, before the first is. Then nothing here waits any more for
    -- what another one may hold.
    select array_agg(distinct o.root_id) into v_hits
    from unnest(v_classes, v_roots) as o (class, root_id) where o.class = 'hit';
    v_ids := v_hits;
    if 'rest' = any(v_classes) then
        for v_i in 1..v_count loop
            continue when v_classes[v_i] <> 'rest';
            c := v_items[v_i];
            c.policy := v_policies[v_policy_of[v_i]];
            c.scope_key := v_scope_keys[v_i];
            d := memfold_internal._decide(c);
            v_touched := array_remove(array[d.root_id, d.target_id], null);
            if d.on_timeline and v_touched <> '{}' then
                v_touched := v_touched || memfold_internal._timeline_texts(v_tenant_id, v_touched);
            end if;
            v_ids := v_ids || v_touched;
        end loop;
    end if;
    if v_ids is not null then
        select l.changed, l.aliased, l.latest into strict v_changed, v_aliased, v_latest
        from (
            select array_agg(i.id order by i.id) as ids, array_agg(i.hit order by i.id) as hits
            from (
                select i.id, bool_or(i.hit) as hit
                from (
                    select h.id, true as hit from unnest(v_hits) as h (id)
                    union all
                    select o.id, false from unnest(v_ids) as o (id)
                ) as i
                group by i.id
            ) as i
        ) as i
        cross join lateral memfold_internal._lock_roots(v_tenant_id, i.ids, i.hits) as l;
        -- A text that led to a root is read again, by a new statement.
        if exists (
            select from unnest(v_classes, v_matched, v_roots) as o (class, memory_id, root_id)
            where o.class = 'hit' and (o.root_id = any(v_changed) or o.memory_id <> o.root_id and not exists (
                select from memfold.memories as m
                where m.tenant_id = v_tenant_id and m.memory_id = o.memory_id and m.root_id = o.root_id
            ))
        ) then
            raise exception 'a memory leads elsewhere now' using
                errcode = 'serialization_failure',
                detail = 'It was folded or retired while this call waited for it.',
                hint = 'Retry the call, with the same idempotency keys if it has some.';
        end if;
    end if;

    -- 6. Ids of texts, in the order of the candidates.
    if v_classes && array['new', 'rest'] then
        v_memory_ids := memfold_internal._new_ids(v_count, memfold_internal._newest_memory(v_tenant_id));
        v_last_id := v_memory_ids[v_count];
    end if;
    if v_classes && array['new', 'repeat'] then
        select array_agg(n.id order by o.i), array_agg(n.root_id order by o.i)
        into v_matched, v_roots
        from unnest(v_classes, v_matched, v_roots, v_firsts) with ordinality as o (class, memory_id, root_id, first, i)
        cross join lateral (
            select case when o.class in ('new', 'repeat') then v_memory_ids[o.first] else o.memory_id end as id,
                case when o.class in ('new', 'repeat') then v_memory_ids[o.first] else o.root_id end as root_id
        ) as n;
        perform memfold_internal._add_texts(v_tenant_id, v_items, v_classes, v_memory_ids, v_scope_keys, v_policies, v_policy_of);
    end if;

    -- 7. What only adds, all at once.
    if v_classes && array['hit', 'new', 'repeat'] then
        -- What is told now is not before what its memory has: ahead is what was given so, or a clock's that was put back since.
        if greatest(v_latest, v_now) > v_now or exists (select from unnest(v_items) as c where c.observed_at > v_now) then
            v_seen := memfold_internal._seen_in_batch(v_tenant_id, v_items, v_classes, v_roots, v_now);
            for v_i in 1..v_count loop
                continue when v_classes[v_i] not in ('hit', 'new', 'repeat');
                c := v_items[v_i];
                c.observed_at := v_seen[v_i];
                v_items[v_i] := c;
            end loop;
        end if;
        v_event_ids := memfold_internal._add_observations(v_tenant_id, v_items, v_classes, v_matched, v_roots, v_aliased, v_now);
        insert into memfold.memory_events (
            tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, observation, content, memory_type,
            subject, predicate, object, source_turn_ids, source_confidence, extractor_confidence, session_id, origin,
            metadata, observed_at, actor
        )
        select v_tenant_id, v_event_ids[c.ordinality], c.bucket_id, case when o.class = 'new' then 'inserted' else 'merged' end,
            case when o.class <> 'new' then 1 end,
            case when o.class = 'new' then null when o.memory_id = o.root_id then 'hash' else 'alias' end, o.memory_id,
            case when o.memory_id <> o.root_id then o.root_id end, true, c.content, c.memory_type, c.subject, c.predicate,
            c.object, c.source_turn_ids, c.source_confidence, c.extractor_confidence, c.session_id, c.origin, c.metadata,
            coalesce(c.observed_at, v_now), v_actor
        from unnest(v_items) with ordinality as c
        cross join lateral (
            select v_classes[c.ordinality] as class, v_matched[c.ordinality] as memory_id, v_roots[c.ordinality] as root_id
        ) as o
        where o.class in ('hit', 'new', 'repeat')
        order by c.ordinality;
    else
        v_event_ids := memfold_internal._new_ids(v_count, memfold_internal._newest_event(v_tenant_id));
    end if;

    -- 8. The rest, one by one, in one sub-transaction: with one each, 64 of them, and every snapshot on the server reads
    -- pg_subtrans.
    if 'rest' = any(v_classes) then
        begin
            for v_i in 1..v_count loop
                continue when v_classes[v_i] <> 'rest';
                c := v_items[v_i];
                c.policy := v_policies[v_policy_of[v_i]];
                c.scope_key := v_scope_keys[v_i];
                c.memory_id := v_memory_ids[v_i];
                c.event_id := v_event_ids[v_i];
                c.last_id := v_last_id;
                c.last_event_id := v_event_ids[v_count];
                v_results[v_i] := memfold_internal._ingest_slow_path(c);
                -- a higher one where another call has added to its memory meanwhile (_record_observation)
                v_event_ids[v_i] := (v_results[v_i]).event_id;
            end loop;
        exception when lock_not_available then
            perform memfold_internal._fail_busy();
        end;
        -- How much of it is independent depends on the order of windows of turns, and what only adds was added first.
        if exists (select from unnest(v_items) as c where cardinality(c.source_turn_ids) > 1) then
            perform memfold.derive_scope(t.roots, v_tenant_id)
            from memfold_internal._roots_of_both(v_tenant_id, v_classes, v_matched, v_results) as t (roots)
            where t.roots <> '{}';
        end if;
    end if;

    -- 9. Keys, and what the callers are told.
    if v_first_of_key is not null then
        perform memfold_internal._use_keys(v_tenant_id, array_agg((v_items[o.i]).bucket_id), array_agg(o.key), array_agg(v_event_ids[o.i]))
        from unnest(v_first_of_key, v_keys) with ordinality as o (first, key, i)
        where o.first = o.i;
        for v_i in 1..v_count loop
            if v_classes[v_i] in ('known', 'again') then
                v_results[v_i] := memfold_internal._event_result(v_tenant_id,
                    coalesce(v_known[v_i], v_event_ids[v_first_of_key[v_i]]));
            end if;
        end loop;
    end if;
    return query select * from memfold_internal._batch_results(
        v_ordinals, v_classes, v_matched, v_roots, v_event_ids, v_results, v_errors);
end;
$$;
revoke all on function memfold_internal._ingest_rows(text, memfold.staged_candidates[], memfold.batch_result[], text) from public;
comment on function memfold_internal._ingest_rows(text, memfold.staged_candidates[], memfold.batch_result[], text) is
'Takes in a batch (in order), with the same outcome as one by one. Most candidates only add: replays of active memories, and
new texts without a neighbour. What they write commutes with everything else in the batch, and is written all at once, before
the rest, which goes through _decide and _apply one by one. failed: candidates that could not be read.';
