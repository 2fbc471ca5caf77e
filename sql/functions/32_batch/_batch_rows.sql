-- Statements of a batch that have to reach rows by their index, whatever the statistics say (there may be none yet), alone in
-- functions of their own, so that the settings meet no other plan.

create or replace function memfold_internal._probe_batch(
    tenant_id text, items memfold_internal.candidate[], classes text[],
    out matched uuid[], out roots uuid[], out root_scopes bigint[], out classes_now text[]
)
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_items constant memfold_internal.candidate[] := items;
    v_classes constant text[] := classes;
begin
    select array_agg(x.memory_id), array_agg(x.root_id), array_agg(x.root_scope),
        array_agg(case
            when x.class not in ('todo', 'hit', 'rest') then x.class
            when x.hit then 'hit'
            when x.memory_id is not null then 'rest'
            else 'todo' end)
    into matched, roots, root_scopes, classes_now
    from (
        select c.ordinality as i, v_classes[c.ordinality] as class, m.memory_id, m.root_id, r.scope_key as root_scope,
            -- what can be added, in any order
            coalesce(k.is_active and not k.on_timeline, false) and c.origin <> 'recalled' and c.metadata = '{}' as hit
        from unnest(v_items) with ordinality as c
        left join lateral (
            select m.memory_id, memfold_internal._root(m.memory_id, m.root_id) as root_id, m.scope_key
            from memfold_internal._known_text(v_tenant_id, c.bucket_id, c.content_hash) as m
            where v_classes[c.ordinality] in ('todo', 'hit', 'rest')
        ) as m on true
        left join lateral (
            select k.is_active, k.on_timeline from memfold.memory_totals as k
            where k.tenant_id = v_tenant_id and k.memory_id = m.root_id
            offset 0
        ) as k on true
        left join lateral (
            select m.scope_key where m.memory_id = m.root_id
            union all
            select r.scope_key from memfold.memories as r
            where m.memory_id <> m.root_id and r.tenant_id = v_tenant_id and r.memory_id = m.root_id
            offset 0
        ) as r on true
        order by c.ordinality
        offset 0
    ) as x;
end;
$$;
revoke all on function memfold_internal._probe_batch(text, memfold_internal.candidate[], text[]) from public;
comment on function memfold_internal._probe_batch(text, memfold_internal.candidate[], text[]) is
'Tier 1 for a batch: for each candidate the text that has its hash, its root and the root''s scope, and what it is by that:
hit (an addition to an active memory, in any order with others), rest (known, but not that), todo (not known). Candidates of
another class are left alone. Only reads.';

create or replace function memfold_internal._seen_in_batch(
    tenant_id text, items memfold_internal.candidate[], classes text[], roots uuid[], at timestamptz
) returns timestamptz[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_items constant memfold_internal.candidate[] := items;
begin
    return (
        select pg_catalog.array_agg(coalesce(x.observed_at, greatest(x.last_seen, x.latest)) order by x.i)
        from (
            select c.ordinality as i, c.observed_at, k.last_seen,
                max(coalesce(c.observed_at, _seen_in_batch.at)) over (partition by o.root_id order by c.ordinality) as latest
            from pg_catalog.unnest(v_items) with ordinality as c
            cross join lateral (
                select case when classes[c.ordinality] in ('hit', 'new', 'repeat') then roots[c.ordinality] end as root_id
            ) as o
            left join lateral (
                select k.last_seen from memfold.memory_totals as k
                where k.tenant_id = _seen_in_batch.tenant_id collate "C" and k.memory_id = o.root_id
                offset 0
            ) as k on true
        ) as x
    );
end;
$$;
revoke all on function memfold_internal._seen_in_batch(text, memfold_internal.candidate[], text[], uuid[], timestamptz) from public;
comment on function memfold_internal._seen_in_batch(text, memfold_internal.candidate[], text[], uuid[], timestamptz) is
'When the candidates of a batch that only add were observed, by place: as the caller says, else now (at), but not before what their
memory has by then (_stated_at). Only reads.';

create or replace function memfold_internal._roots_of_both(
    tenant_id text, classes text[], matched uuid[], results memfold.ingest_result[]
) returns uuid[]
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return array(
        select r.root_id
        from pg_catalog.unnest(classes) with ordinality as o (class, i)
        cross join lateral (
            select case when o.class = 'rest' then (results[o.i]).memory_id
                when o.class in ('hit', 'new', 'repeat') then matched[o.i] end as memory_id
        ) as t
        cross join lateral (
            select memfold_internal._root(m.memory_id, m.root_id) as root_id from memfold.memories as m
            where m.tenant_id = _roots_of_both.tenant_id collate "C" and m.memory_id = t.memory_id
            offset 0
        ) as r
        group by r.root_id
        having pg_catalog.bool_or(o.class = 'rest') and pg_catalog.bool_or(o.class <> 'rest')
        order by r.root_id
    );
end;
$$;
revoke all on function memfold_internal._roots_of_both(text, text[], uuid[], memfold.ingest_result[]) from public;
comment on function memfold_internal._roots_of_both(text, text[], uuid[], memfold.ingest_result[]) is
'The memories that a batch has both added to and decided about one by one. Only reads.';

create or replace function memfold_internal._add_observations(
    tenant_id text, items memfold_internal.candidate[], classes text[], matched uuid[], roots uuid[], aliased boolean, at timestamptz,
    event_ids uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_items constant memfold_internal.candidate[] := items;
    v_classes constant text[] := classes;
    v_matched constant uuid[] := matched;
    v_roots constant uuid[] := roots;
    v_turns memfold_internal.batch_turn[];
    -- of at most one turn each, a new turn is one candidate's
    v_windows constant boolean := exists (select from unnest(v_items) as c where cardinality(c.source_turn_ids) > 1);
begin
    -- Which turns are new: to their texts, and where there are aliases, to the whole tree.
    with added as (
        insert into memfold.memory_sources as s (tenant_id, source_turn_id, memory_id)
        select v_tenant_id, t.turn, v_matched[c.ordinality]
        from unnest(v_items) with ordinality as c
        cross join lateral unnest(c.source_turn_ids) as t (turn)
        where v_classes[c.ordinality] in ('hit', 'new', 'repeat')
        order by 2, 3
        on conflict do nothing
        returning s.source_turn_id, s.memory_id
    )
    select array_agg(row(a.memory_id, a.source_turn_id)::memfold_internal.batch_turn) into v_turns from added as a;
    if aliased and v_turns is not null then
        v_turns := memfold_internal._new_to_tree(v_tenant_id, v_turns);
    end if;
    -- An upsert finds each row by the key, where a join may read all of a tenant that was small when it was planned. The
    -- rows that are there are held already.
    insert into memfold.memory_counters as k (
        tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen, last_seen,
        last_event
    )
    select v_tenant_id, o.root_id, count(o.seen), sum(o.independent), max(o.source_confidence), max(o.extractor_confidence),
        min(o.seen), max(o.seen), event_ids[max(o.i)]
    from (
        select v_roots[c.ordinality] as root_id, (c.source_turn_ids = '{}')::integer as independent, c.source_confidence,
            c.extractor_confidence, coalesce(c.observed_at, _add_observations.at) as seen, c.ordinality as i
        from unnest(v_items) with ordinality as c
        where v_classes[c.ordinality] in ('hit', 'new', 'repeat')
        union all
        select t.memory_id, 1, null, null, null, null from unnest(v_turns) as t where not v_windows
        union all
        -- one a candidate, the first of those that have a new turn
        select distinct f.root_id, 1, null::double precision, null::double precision, null::timestamptz, f.i
        from (
            select t.root_id, min(t.i) as i
            from (
                select v_roots[c.ordinality] as root_id, t.turn, c.ordinality as i, false as is_new
                from unnest(v_items) with ordinality as c
                cross join lateral unnest(c.source_turn_ids) as t (turn)
                where v_windows and v_classes[c.ordinality] in ('hit', 'new', 'repeat')
                union all
                select t.memory_id, t.turn, null, true from unnest(v_turns) as t where v_windows
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
        last_event = greatest(k.last_event, excluded.last_event);
end;
$$;
revoke all on function memfold_internal._add_observations(
    text, memfold_internal.candidate[], text[], uuid[], uuid[], boolean, timestamptz, uuid[]
) from public;
comment on function memfold_internal._add_observations(
    text, memfold_internal.candidate[], text[], uuid[], uuid[], boolean, timestamptz, uuid[]
) is
'Sources and counters of the candidates that only add. The caller holds the rows of their roots; aliased: one has aliases; at: when
those were observed that do not say; event_ids: of their ledger rows, by place.';

create or replace function memfold_internal._new_to_tree(tenant_id text, turns memfold_internal.batch_turn[])
returns memfold_internal.batch_turn[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
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
            -- another text of the tree that had it before
            where m.memory_id <> x.memory_id and not row(m.memory_id, x.turn)::memfold_internal.batch_turn = any(turns)
        )
    );
end;
$$;
revoke all on function memfold_internal._new_to_tree(text, memfold_internal.batch_turn[]) from public;
comment on function memfold_internal._new_to_tree(text, memfold_internal.batch_turn[]) is
'Of turns that were just added to texts, those that are evidence: their tree did not have them. Each with its root, once.';

create or replace function memfold_internal._use_keys(
    tenant_id text, buckets text[], idempotency_keys text[], event_ids uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_event_id uuid;
begin
    -- one by one: joined, and before the first ANALYZE, they may be looked for among all keys of the tenant
    for v_i in 1..coalesce(cardinality(event_ids), 0) loop
        v_event_id := event_ids[v_i];
        update memfold.idempotency_keys as i
        set event_id = v_event_id
        where i.tenant_id = _use_keys.tenant_id collate "C" and i.bucket_id = buckets[v_i] collate "C"
            and i.idempotency_key = _use_keys.idempotency_keys[v_i] collate "C";
    end loop;
end;
$$;
revoke all on function memfold_internal._use_keys(text, text[], text[], uuid[]) from public;
comment on function memfold_internal._use_keys(text, text[], text[], uuid[]) is 'Notes which ledger row each key has left.';

create or replace function memfold_internal._add_texts(
    tenant_id text, items memfold_internal.candidate[], classes text[], memory_ids uuid[], scope_keys bigint[],
    policies memfold.policies[], policy_of integer[]
) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_written bigint;
begin
    with written as (
        insert into memfold.memories (
            tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
            metadata_signature, session_id, metadata, embedding_pending, is_ingested
        )
        select v_tenant_id, memory_ids[c.ordinality], c.bucket_id, c.memory_type, c.subject, c.predicate, c.object, c.content,
            (policies[policy_of[c.ordinality]]).canonicalizer, (policies[policy_of[c.ordinality]]).key_fields,
            c.metadata_signature, c.session_id, c.metadata,
            c.embedding is null and (policies[policy_of[c.ordinality]]).dedup = 'on', true
        from unnest(items) with ordinality as c
        where classes[c.ordinality] = 'new'
        order by c.ordinality
        on conflict (tenant_id, bucket_id, content_hash) where content_hash is not null do nothing
        returning 1
    )
    -- not by ROW_COUNT: Citus takes rows that are left out for inserted ones
    select count(*) into v_written from written;
    if v_written <> (select count(*) from unnest(classes) as o (class) where o.class = 'new') then
        raise exception 'a text of the batch is there already' using
            errcode = 'serialization_failure',
            detail = 'A plain INSERT has brought it in while this call worked.',
            hint = 'Retry the call, with the same idempotency keys if it has some.';
    end if;
    insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
    select v_tenant_id, memory_ids[c.ordinality], c.embedding_model, c.bucket_id, scope_keys[c.ordinality], c.embedding
    from unnest(items) with ordinality as c
    where classes[c.ordinality] = 'new' and c.embedding is not null
    order by c.ordinality;
end;
$$;
revoke all on function memfold_internal._add_texts(
    text, memfold_internal.candidate[], text[], uuid[], bigint[], memfold.policies[], integer[]
) from public;
comment on function memfold_internal._add_texts(
    text, memfold_internal.candidate[], text[], uuid[], bigint[], memfold.policies[], integer[]
) is
'Stores the new texts of a batch (class new) and their vectors. Raises 40001 where one has come in by a plain INSERT since.';

create or replace function memfold_internal._batch_results(
    ordinals bigint[], classes text[], matched uuid[], roots uuid[], event_ids uuid[], results memfold.ingest_result[],
    errors memfold.batch_result[]
) returns setof memfold.batch_result
language sql stable
as $$
    select x.*
    from (
        select ordinals[o.i] as ordinal, r.action, r.memory_id, r.tier, r.method, r.similarity, r.superseded_id,
            r.judgement_id, r.event_id, r."similar", null::text, null::text, null::text, null::text
        from unnest(classes, matched, roots, event_ids) with ordinality as o (class, memory_id, root_id, event_id, i)
        cross join lateral (
            select case when o.class = 'new' then 'inserted' else 'merged' end, o.root_id,
                case when o.class <> 'new' then 1 end,
                case when o.class = 'new' then null when o.memory_id = o.root_id then 'hash' else 'alias' end,
                null::double precision, null::uuid, null::uuid, o.event_id, null::jsonb
            where o.class in ('hit', 'new', 'repeat')
            union all
            select (results[o.i]).* where o.class not in ('hit', 'new', 'repeat', 'error')
        ) as r (action, memory_id, tier, method, similarity, superseded_id, judgement_id, event_id, "similar")
        union all
        select f.* from unnest(errors) as f
    ) as x
    order by x.ordinal;
$$;
revoke all on function memfold_internal._batch_results(
    bigint[], text[], uuid[], uuid[], uuid[], memfold.ingest_result[], memfold.batch_result[]
) from public;
comment on function memfold_internal._batch_results(
    bigint[], text[], uuid[], uuid[], uuid[], memfold.ingest_result[], memfold.batch_result[]
) is
'What the caller of a batch is told, in the order of the candidates: what only added, what was decided one by one (results), and errors.';
