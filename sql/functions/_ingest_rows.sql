create or replace function memfold._is_sound(
    content text, bucket_id text, memory_type text, subject text, predicate text, object text,
    source_turn_ids text[], source_confidence double precision, extractor_confidence double precision, session_id text,
    origin text, metadata jsonb, observed_at timestamptz, idempotency_key text, max_content_length bigint,
    max_metadata_size bigint
) returns boolean
language sql stable parallel safe
return coalesce(
    pg_catalog.octet_length(content) between 1 and max_content_length
    and pg_catalog.octet_length(bucket_id) between 1 and 512 and pg_catalog.octet_length(memory_type) between 1 and 512
    and (subject ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(subject) <= 512) is not false
    and (predicate ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(predicate) <= 512) is not false
    and (object ~ '^[A-Za-z0-9]' collate "C" and pg_catalog.octet_length(object) <= 512) is not false
    and (pg_catalog.octet_length(session_id) between 1 and 512) is not false
    and (pg_catalog.octet_length(idempotency_key) between 1 and 512) is not false
    and (
        metadata = '{}'
        or pg_catalog.jsonb_typeof(metadata) = 'object' and pg_catalog.octet_length(metadata::text) <= max_metadata_size
    )
    and pg_catalog.cardinality(source_turn_ids) <= 1
    and (
        pg_catalog.octet_length(source_turn_ids[1]) between 1 and 512
        or pg_catalog.cardinality(source_turn_ids) = 0
    )
    and source_confidence between 0 and 1 and extractor_confidence between 0 and 1
    and origin in ('observed', 'inferred', 'recalled')
    and observed_at <= pg_catalog.now() and observed_at > '-infinity', false
);
revoke all on function memfold._is_sound(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz, text,
    bigint, bigint
) from public;
comment on function memfold._is_sound(
    text, text, text, text, text, text, text[], double precision, double precision, text, text, jsonb, timestamptz, text,
    bigint, bigint
) is
'A candidate of a batch that is valid beyond doubt; any other is looked at piece by piece (_candidate). One expression,
which its caller inlines.';

create or replace function memfold._full_hash(memory_type text, subject text, predicate text, canonical text) returns bytea
language sql stable parallel safe
return pg_catalog.sha256(
    pg_catalog.convert_to(memory_type, 'UTF8')
    || '\x00'::bytea || coalesce(pg_catalog.convert_to(memfold._prose_1(subject), 'UTF8'), '\xff'::bytea)
    || '\x00'::bytea || coalesce(pg_catalog.convert_to(memfold._prose_1(predicate), 'UTF8'), '\xff'::bytea)
    || '\x00ff00'::bytea
    || pg_catalog.convert_to(canonical, 'UTF8')
);
revoke all on function memfold._full_hash(text, text, text, text) from public;
comment on function memfold._full_hash(text, text, text, text) is
'What _content_hash() gives by the key fields type, subject, predicate and without a metadata signature, of content in
canonical form. One expression, which its caller inlines.';

create or replace function memfold._scope_key_of(bucket_id text, memory_type text, subject text, predicate text) returns bigint
language sql immutable parallel safe
return pg_catalog.hashtextextended(
    coalesce(memfold._prose_1(predicate), '') collate "C",
    pg_catalog.hashtextextended(
        coalesce(memfold._prose_1(subject), '') collate "C",
        pg_catalog.hashtextextended(memory_type collate "C", pg_catalog.hashtextextended(bucket_id collate "C", 0))
    )
);
revoke all on function memfold._scope_key_of(text, text, text, text) from public;
comment on function memfold._scope_key_of(text, text, text, text) is
'What _scope_key() gives. One expression, which its caller inlines.';

create or replace function memfold._lock_scopes(
    tenant_id text, buckets text[], scope_keys bigint[], wide boolean[], held text[]
) returns text[]
language plpgsql volatile
as $$
declare
    v_lock record;
    v_held text[] := held;
    v_buckets bigint;
    v_scopes bigint;
begin
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        perform memfold._fail('MF025', 'the isolation level must be READ COMMITTED',
            'The transaction runs at ' || pg_catalog.current_setting('transaction_isolation')
            || ': after waiting for its turn it could not see what was written before it, and would store a duplicate.',
            'Run the call in a READ COMMITTED transaction. Restating known facts is allowed at any level.');
    end if;
    select pg_catalog.count(distinct s.bucket_id), pg_catalog.count(distinct (s.bucket_id, s.scope_key))
    into v_buckets, v_scopes
    from unnest(buckets, scope_keys) as s (bucket_id, scope_key);
    if v_buckets > 500 then
        perform memfold._fail('MF035', 'the batch has too many buckets',
            pg_catalog.format('It has something new for %s of them.', v_buckets),
            'Each takes a lock: send a batch for at most 500 buckets at a time.');
    end if;
    -- buckets before scopes, each in ascending order of the keys, which are those of _lock()
    for v_lock in
        with needed as (
            select s.bucket_id, s.scope_key, pg_catalog.bool_or(s.wide or v_scopes > 64) over (partition by s.bucket_id) as wide
            from unnest(buckets, scope_keys, wide) as s (bucket_id, scope_key, wide)
        ),
        locks as (
            select pg_catalog.hashtextextended(n.bucket_id collate "C",
                pg_catalog.hashtextextended(_lock_scopes.tenant_id collate "C", 0)) as key, n.wide as exclusive, 1 as place
            from needed as n
            union all
            select pg_catalog.hashtextextended(_lock_scopes.tenant_id collate "C", n.scope_key), true, 2
            from needed as n
            where not n.wide
        )
        select l.key, pg_catalog.bool_or(l.exclusive) as exclusive from locks as l group by l.place, l.key order by l.place, l.key
    loop
        continue when (v_lock.key || ' exclusive') = any(v_held) or not v_lock.exclusive and (v_lock.key || ' shared') = any(v_held);
        if held <> '{}' then
            -- a second turn has keys that others may wait for: it must not wait for more
            if not (case when v_lock.exclusive then pg_catalog.pg_try_advisory_xact_lock(v_lock.key)
                else pg_catalog.pg_try_advisory_xact_lock_shared(v_lock.key) end)
            then
                raise exception 'the scope is busy' using
                    errcode = 'serialization_failure',
                    detail = 'Another call works on it, and this one already holds what it may wait for.',
                    hint = 'Retry the call, with the same idempotency keys if it has some.';
            end if;
        elsif v_lock.exclusive then
            perform pg_catalog.pg_advisory_xact_lock(v_lock.key);
        else
            perform pg_catalog.pg_advisory_xact_lock_shared(v_lock.key);
        end if;
        v_held := v_held || (v_lock.key || case when v_lock.exclusive then ' exclusive' else ' shared' end);
    end loop;
    return v_held;
end;
$$;
revoke all on function memfold._lock_scopes(text, text[], bigint[], boolean[], text[]) from public;
comment on function memfold._lock_scopes(text, text[], bigint[], boolean[], text[]) is
'What _lock() is to one candidate, for those of a batch that are not replays: their buckets'' keys SHARED, then their
scopes'' EXCLUSIVE; EXCLUSIVE for a bucket with a wide one among them, and for all where there are more than 64 scopes. All
in ascending order. held: what an earlier turn has returned; then it only tries. Raises MF025, MF035.';

create or replace function memfold._near_in_batch(
    tenant_id text, items memfold.candidate[], classes text[], firsts bigint[], scope_keys bigint[],
    policies memfold.policies[], policy_of integer[]
) returns bigint[]
language plpgsql stable
-- planned on what the tables hold now: the same order can be had from an index that would read the whole tenant
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_items constant memfold.candidate[] := items;
    v_policies constant memfold.policies[] := policies;
    v_near bigint[];
    v_slack bigint;
begin
    -- A candidate that restates what is not active may bring vectors back, one of a slot may take some away.
    select count(*) into v_slack from unnest(classes) as o (class) where o.class = 'rest';
    with vectors as materialized (
        select c.ordinality as i, c.bucket_id, c.embedding, c.embedding_model, s.scope_key, p.scope = 'bucket' as wide,
            o.class = 'new' and p.dedup = 'on' as asks,
            least(coalesce(p.merge_threshold, m.merge_threshold), coalesce(p.judge_threshold, m.judge_threshold),
                coalesce(p.similar_threshold, p.judge_threshold, m.judge_threshold)) as threshold,
            p.neighbours, case when p.scope = 'predicate' and c.subject is null and c.predicate is null then 1000
                else memfold._exact_limit() end
                + v_slack as newest
        from unnest(v_items) with ordinality as c
        cross join lateral (select classes[c.ordinality] as class, firsts[c.ordinality] as first) as o
        cross join lateral (select scope_keys[c.ordinality] as scope_key) as s
        cross join lateral (select (v_policies[policy_of[c.ordinality]]).* offset 0) as p
        join memfold.embedding_models as m on m.model = c.embedding_model
        where c.embedding is not null and o.first is not null
    ),
    revived as (
        select distinct v.bucket_id, v.scope_key
        from unnest(v_items) with ordinality as c
        cross join lateral (
            select memfold._root(m.memory_id, m.root_id) as root_id
            from memfold._known_text(v_tenant_id, c.bucket_id, c.content_hash) as m
        ) as r
        cross join unnest(memfold._trees(v_tenant_id, array[r.root_id])) as t (id)
        cross join lateral (
            select v.bucket_id, v.scope_key from memfold.memory_vectors as v
            where v.tenant_id = v_tenant_id and v.memory_id = t.id and not v.live
            offset 0
        ) as v
        where classes[c.ordinality] = 'rest' and firsts[c.ordinality] is null
    ),
    -- pairs within a group only: of a scope, of a bucket where one of them looks there; without the vectors, most of which
    -- are alone
    grouped as (
        select v.i, v.bucket_id, v.embedding_model,
            case when bool_or(v.wide) over (partition by v.bucket_id) then 0 else v.scope_key end as place
        from vectors as v
    ),
    groups as (
        select array_agg(v.i order by v.i) as i, array_agg(v.scope_key order by v.i) as scope_key,
            array_agg(v.wide order by v.i) as wide, array_agg(v.asks order by v.i) as asks,
            array_agg(v.threshold order by v.i) as threshold, array_agg(v.embedding order by v.i) as embedding
        from (
            select g.bucket_id, g.place, g.embedding_model, array_agg(g.i) as members
            from grouped as g
            group by g.bucket_id, g.place, g.embedding_model
            having count(*) > 1
        ) as g
        cross join unnest(g.members) as r (i)
        join vectors as v on v.i = r.i
        group by g.bucket_id, g.place, g.embedding_model
    )
    select array_agg(n.i) into v_near
    from (
        select a.i
        from groups as g
        cross join unnest(g.i, g.scope_key, g.wide, g.asks, g.threshold, g.embedding)
            as a (i, scope_key, wide, asks, threshold, embedding)
        cross join unnest(g.i, g.scope_key, g.embedding) as b (i, scope_key, embedding)
        where a.asks and b.i < a.i and (a.wide or a.scope_key = b.scope_key)
            and memfold._similarity(a.embedding, b.embedding) >= a.threshold
        union
        select v.i
        from vectors as v
        where v.asks and not v.wide and exists (
            select
            from (
                select n.embedding from memfold.memory_vectors as n
                where n.tenant_id = v_tenant_id and n.bucket_id = v.bucket_id and n.scope_key = v.scope_key
                    and n.model = v.embedding_model and n.live
                order by n.memory_id desc
                limit v.newest
            ) as n
            where memfold._similarity(n.embedding, v.embedding) >= v.threshold
        )
        union
        select v.i
        from vectors as v
        where v.asks and v.wide and case when memfold._vector_index(v.embedding_model) is not null
            then exists (
                select from memfold._neighbours(v_tenant_id, v.bucket_id, null, v.embedding, v.embedding_model, v.newest, 1,
                    v.threshold, null, null, null)
            )
            else exists (
                select
                from (
                    select n.embedding from memfold.memory_vectors as n
                    where n.tenant_id = v_tenant_id and n.bucket_id = v.bucket_id and n.model = v.embedding_model and n.live
                    order by n.memory_id desc
                    limit v.newest
                ) as n
                where memfold._similarity(n.embedding, v.embedding) >= v.threshold
            ) end
        union
        select v.i
        from vectors as v
        join revived as r on r.bucket_id = v.bucket_id and (v.wide or r.scope_key = v.scope_key)
        where v.asks
    ) as n;
    return v_near;
end;
$$;
revoke all on function memfold._near_in_batch(
    text, memfold.candidate[], text[], bigint[], bigint[], memfold.policies[], integer[]
) from public;
comment on function memfold._near_in_batch(
    text, memfold.candidate[], text[], bigint[], bigint[], memfold.policies[], integer[]
) is
'Which of the new texts of a batch (by place) may have a neighbour that tier 2 would look at: stored, earlier in the batch, or
one that the batch may bring back. Rather one too many. Only reads.';

-- Below: statements that have to reach rows by their index, whatever the statistics say (there may be none yet), alone in
-- functions of their own, so that the settings meet no other plan.
create or replace function memfold._look(
    tenant_id text, items memfold.candidate[], classes text[],
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
    v_items constant memfold.candidate[] := items;
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
            coalesce(k.live and not k.on_timeline, m.is_plain) and c.origin <> 'recalled' and c.metadata = '{}' as hit
        from unnest(v_items) with ordinality as c
        left join lateral (
            select m.memory_id, memfold._root(m.memory_id, m.root_id) as root_id, m.scope_key,
                -- its counters can say nothing else: it is live, and no value of a slot
                m.status = 'active' and m.predicate is null as is_plain
            from memfold._known_text(v_tenant_id, c.bucket_id, c.content_hash) as m
            where v_classes[c.ordinality] in ('todo', 'hit', 'rest')
        ) as m on true
        left join lateral (
            select k.live, k.on_timeline from memfold.memory_counters as k
            where k.tenant_id = v_tenant_id and k.memory_id = m.root_id and not m.is_plain
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
revoke all on function memfold._look(text, memfold.candidate[], text[]) from public;
comment on function memfold._look(text, memfold.candidate[], text[]) is
'Tier 1 for a batch: for each candidate the text that has its hash, its root and the root''s scope, and what it is by that:
hit (an addition to an active memory, in any order with others), rest (known, but not that), todo (not known). Candidates of
another class are left alone. Only reads.';

create or replace function memfold._lock_roots(
    tenant_id text, memory_ids uuid[], out changed uuid[], out aliased boolean
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    select coalesce(pg_catalog.array_agg(k.memory_id) filter (where not k.live or k.on_timeline), '{}'),
        coalesce(pg_catalog.bool_or(k.aliases > 0), false)
    into changed, aliased
    from pg_catalog.unnest(memory_ids) as i (id)
    cross join lateral (
        select k.memory_id, k.live, k.on_timeline, k.aliases from memfold.memory_counters as k
        where k.tenant_id = _lock_roots.tenant_id collate "C" and k.memory_id = i.id
        for no key update
    ) as k;
end;
$$;
revoke all on function memfold._lock_roots(text, uuid[]) from public;
comment on function memfold._lock_roots(text, uuid[]) is
'Locks the rows of memory_counters, in the order of the ids. changed: those to which nothing can simply be added, as they are
now; aliased: one of them has aliases.';

create or replace function memfold._add_observations(
    tenant_id text, items memfold.candidate[], classes text[], matched uuid[], roots uuid[], aliased boolean
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
    v_items constant memfold.candidate[] := items;
    v_classes constant text[] := classes;
    v_matched constant uuid[] := matched;
    v_roots constant uuid[] := roots;
    v_turns memfold.batch_turn[];
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
    select array_agg(row(a.memory_id, a.source_turn_id)::memfold.batch_turn) into v_turns from added as a;
    if aliased and v_turns is not null then
        v_turns := memfold._new_to_tree(v_tenant_id, v_turns);
    end if;
    -- An upsert finds each row by the key, where a join may read all of a tenant that was small when it was planned. The
    -- rows that are there are held already.
    insert into memfold.memory_counters as k (
        tenant_id, memory_id, observations, independent, source_confidence, extractor_confidence, first_seen, last_seen
    )
    select v_tenant_id, o.root_id, count(o.seen), sum(o.independent), max(o.source_confidence), max(o.extractor_confidence),
        min(o.seen), max(o.seen)
    from (
        select v_roots[c.ordinality] as root_id, (c.source_turn_ids = '{}')::integer as independent, c.source_confidence,
            c.extractor_confidence, c.observed_at as seen
        from unnest(v_items) with ordinality as c
        where v_classes[c.ordinality] in ('hit', 'new', 'repeat')
        union all
        select t.memory_id, 1, null, null, null from unnest(v_turns) as t
    ) as o
    group by o.root_id
    order by o.root_id
    on conflict (tenant_id, memory_id) do update
    set observations = k.observations + excluded.observations,
        independent = k.independent + excluded.independent,
        source_confidence = greatest(k.source_confidence, excluded.source_confidence),
        extractor_confidence = greatest(k.extractor_confidence, excluded.extractor_confidence),
        first_seen = least(k.first_seen, excluded.first_seen),
        last_seen = greatest(k.last_seen, excluded.last_seen);
end;
$$;
revoke all on function memfold._add_observations(text, memfold.candidate[], text[], uuid[], uuid[], boolean) from public;
comment on function memfold._add_observations(text, memfold.candidate[], text[], uuid[], uuid[], boolean) is
'Sources and counters of the candidates that only add. The caller holds the rows of their roots; aliased: one has aliases.';

create or replace function memfold._new_to_tree(tenant_id text, turns memfold.batch_turn[]) returns memfold.batch_turn[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
begin
    return array(
        select distinct row(x.root_id, x.turn)::memfold.batch_turn
        from (
            select t.memory_id, t.turn, r.root_id
            from unnest(turns) as t
            cross join lateral (
                select memfold._root(m.memory_id, m.root_id) as root_id from memfold.memories as m
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
            where m.memory_id <> x.memory_id and not row(m.memory_id, x.turn)::memfold.batch_turn = any(turns)
        )
    );
end;
$$;
revoke all on function memfold._new_to_tree(text, memfold.batch_turn[]) from public;
comment on function memfold._new_to_tree(text, memfold.batch_turn[]) is
'Of turns that were just added to texts, those that are evidence: their tree did not have them. Each with its root, once.';

create or replace function memfold._use_keys(
    tenant_id text, buckets text[], idempotency_keys text[], event_ids uuid[]
) returns void
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    -- one by one: joined, and before the first ANALYZE, they may be looked for among all keys of the tenant
    for v_i in 1..coalesce(cardinality(event_ids), 0) loop
        update memfold.idempotency_keys as i
        set event_id = event_ids[v_i]
        where i.tenant_id = _use_keys.tenant_id collate "C" and i.bucket_id = buckets[v_i] collate "C"
            and i.idempotency_key = _use_keys.idempotency_keys[v_i] collate "C";
    end loop;
end;
$$;
revoke all on function memfold._use_keys(text, text[], text[], uuid[]) from public;
comment on function memfold._use_keys(text, text[], text[], uuid[]) is 'Notes which ledger row each key has left.';

create or replace function memfold._new_ids(number bigint) returns uuid[]
language plpgsql volatile
as $$
begin
    return (
        select pg_catalog.array_agg(n.id)
        from (select memfold._new_id() as id from pg_catalog.generate_series(1, number) order by id) as n
    );
end;
$$;
revoke all on function memfold._new_ids(bigint) from public;
comment on function memfold._new_ids(bigint) is 'As many ids, in their order.';

create or replace function memfold._ingest_rest(c memfold.candidate) returns memfold.ingest_result
language plpgsql volatile
-- The rows that the batch was to touch are locked, in one order. Whoever waits for another one may be waited for.
set lock_timeout = '100ms'
as $$
declare
    d memfold.decision;
begin
    d := memfold._decide_known(c);
    if d.action = 'merged' and d.method <> 'timeline' then
        d.on_timeline := memfold._strengthen(c, d.memory_id, d.root_id, 0);
        if d.on_timeline is not null then
            return memfold._result(d, d.memory_id, null,
                memfold._record(c, d, d.memory_id, c.origin <> 'recalled', null));
        end if;
    end if;
    return memfold._ingest_locked(c);
exception when lock_not_available then
    raise exception 'a memory is busy' using
        errcode = 'serialization_failure',
        detail = 'Another call works on it, and this batch already holds rows that it may wait for.',
        hint = 'Retry the call, with the same idempotency keys if it has some.';
end;
$$;
revoke all on function memfold._ingest_rest(memfold.candidate) from public;
comment on function memfold._ingest_rest(memfold.candidate) is
'One candidate of a batch that takes more than an addition, under the locks that the batch holds.';

create or replace function memfold._ingest_rows(
    tenant_id text, batch memfold.staged_candidates[], failed memfold.batch_result[], on_error text
) returns setof memfold.batch_result
language plpgsql volatile
-- arrays tempt the planner to plan anew
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_rows constant memfold.staged_candidates[] := batch;
    v_policies memfold.policies[];
    -- By place in the batch, from 1 on. What a candidate is: error (refused), known (its key is), again (the key of an
    -- earlier one), hit (a replay), new (the first of a new text), repeat (a further one), rest.
    v_classes text[];
    v_ordinals bigint[];
    v_keys text[];
    v_policy_of integer[];
    v_sound boolean[];
    v_items memfold.candidate[];
    v_scope_keys bigint[];
    v_wide boolean[];
    v_matched uuid[];
    v_roots uuid[];
    v_memory_ids uuid[];
    v_event_ids uuid[];
    v_last_id uuid;
    v_results memfold.ingest_result[];
    v_errors memfold.batch_result[] := coalesce(failed, '{}');
    v_first_of_key integer[];
    v_held text[] := array[]::text[];
    v_locks text[];
    v_slots bigint[];
    v_singles text[];
    v_seen_classes text[];
    v_seen_scopes bigint[];
    v_decided text[];
    v_root_scopes bigint[];
    v_changed uuid[];
    v_aliased boolean;
    v_firsts bigint[];
    v_near bigint[];
    v_ids uuid[];
    v_touched uuid[];
    v_known uuid[];
    v_count bigint;
    v_written bigint;
    v_policy memfold.policies;
    v_now constant timestamptz := pg_catalog.now();
    v_actor constant text := memfold._actor();
    c memfold.candidate;
    d memfold.decision;
    e memfold.batch_result;
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    -- 1. Validate and hash. (No aggregate here may have an order of its own: the others would get their rows in that one.)
    -- The policy once for each bucket and type.
    select pg_catalog.array_agg(p.policy order by p.bucket_id, p.memory_type) into v_policies
    from (
        select t.bucket_id, t.memory_type, memfold._policy(v_tenant_id, t.bucket_id, t.memory_type) as policy
        from (
            select distinct coalesce(r.bucket_id, 'default') as bucket_id, coalesce(r.memory_type, 'fact') as memory_type
            from unnest(v_rows) as r
        ) as t
    ) as p;
    for v_i in 1..coalesce(cardinality(v_policies), 0) loop
        v_policy := v_policies[v_i];
        if v_policy.dedup = 'off' then
            v_policy.canonicalizer := null;
            v_policies[v_i] := v_policy;
        end if;
    end loop;
    select array_agg(case when x.sound then 'todo' else 'error' end), array_agg(x.ordinal), array_agg(x.idempotency_key),
        array_agg(x.policy_of), array_agg(x.sound),
        array_agg(row(
            v_tenant_id, x.bucket_id, x.memory_type, x.content, x.subject, x.predicate, x.object, memfold._unit(x.embedding),
            x.embedding_model, x.source_turn_ids, x.source_confidence, x.extractor_confidence, x.session_id, x.origin,
            x.metadata, x.observed_at,
            case
                when not x.sound or x.canonical is null then null
                when (v_policies[x.policy_of]).key_fields = 'type,subject,predicate'
                    and (v_policies[x.policy_of]).metadata_keys = '{}'
                    then memfold._full_hash(x.memory_type, x.subject, x.predicate, x.canonical)
                else memfold._content_hash(x.memory_type, x.subject, x.predicate, x.content,
                    (v_policies[x.policy_of]).canonicalizer, (v_policies[x.policy_of]).key_fields, x.signature)
            end,
            null, x.signature, null, null, null, null
        )::memfold.candidate)
    into v_classes, v_ordinals, v_keys, v_policy_of, v_sound, v_items
    from (
        select z.*,
            memfold._is_sound(
                z.content, z.bucket_id, z.memory_type, z.subject, z.predicate, z.object, z.source_turn_ids,
                z.source_confidence, z.extractor_confidence, z.session_id, z.origin, z.metadata, z.observed_at,
                z.idempotency_key, (v_policies[z.policy_of]).max_content_length, (v_policies[z.policy_of]).max_metadata_size)
            and z.canonical is distinct from ''
            and (z.embedding is null and z.embedding_model is null or coalesce(
                (z.embedding is null or memfold._dimensions(z.embedding) = m.dimensions
                    and memfold._norm(z.embedding) between 1e-30 and 1e30) and m.dimensions is not null, false))
            as sound,
            case when (v_policies[z.policy_of]).metadata_keys <> '{}'
                then memfold._metadata_signature(z.metadata, (v_policies[z.policy_of]).metadata_keys) end as signature
        from (
            select y.*, memfold._canonical(y.content, (v_policies[y.policy_of]).canonicalizer) as canonical
            from (
                select r.ordinality as i, r.ordinal, r.content, coalesce(r.bucket_id, 'default') as bucket_id,
                    coalesce(r.memory_type, 'fact') as memory_type, r.subject, r.predicate, r.object,
                    r.embedding, r.embedding_model, coalesce(r.source_turn_ids, '{}') as source_turn_ids,
                    coalesce(r.source_confidence, 0.5) as source_confidence,
                    coalesce(r.extractor_confidence, 0.5) as extractor_confidence, r.session_id,
                    coalesce(r.origin, 'observed') as origin, coalesce(r.metadata, '{}') as metadata,
                    coalesce(r.observed_at, v_now) as observed_at, r.idempotency_key,
                    dense_rank() over (order by coalesce(r.bucket_id, 'default'), coalesce(r.memory_type, 'fact'))::integer
                        as policy_of
                from unnest(v_rows) with ordinality as r
            ) as y
            offset 0
        ) as z
        left join memfold.embedding_models as m on m.model = z.embedding_model
        order by z.i
        offset 0
    ) as x;
    v_count := coalesce(cardinality(v_items), 0);
    for v_i in 1..v_count loop
        continue when v_sound[v_i];
        begin
            c := (v_items[v_i]);
            if v_keys[v_i] is not null then
                perform memfold._check_identifier('bucket_id', c.bucket_id, true);
                perform memfold._check_identifier('idempotency_key', v_keys[v_i], true);
            end if;
            c := memfold._candidate(c.content, v_tenant_id, c.bucket_id, c.memory_type, c.subject, c.predicate, c.object,
                (v_rows[v_i]).embedding, c.embedding_model, c.source_turn_ids, c.source_confidence, c.extractor_confidence,
                c.session_id, c.origin, c.metadata, c.observed_at);
            c.policy := null;
            v_items[v_i] := c;
            v_classes[v_i] := 'todo';
        exception when others then
            get stacked diagnostics v_code = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
                v_hint = pg_exception_hint;
            v_errors := v_errors || memfold._batch_error(v_ordinals[v_i], v_code, v_message, v_detail, v_hint);
        end;
    end loop;

    -- 2. Keys, before any lock: a call with the same key waits here for the other to commit.
    if exists (select from unnest(v_keys) as k (key) where k.key is not null) then
        with keyed as (
            select k.i, (v_items[k.i]).bucket_id as bucket_id, k.key, k.class
            from unnest(v_keys, v_classes) with ordinality as k (key, class, i)
        ),
        usable as (
            select k.*, min(k.i) filter (where k.class = 'todo') over (partition by k.bucket_id, k.key) as first
            from keyed as k
            where octet_length(k.key) between 1 and 512 and octet_length(k.bucket_id) between 1 and 512
        ),
        made as (
            insert into memfold.idempotency_keys as n (tenant_id, bucket_id, idempotency_key)
            select v_tenant_id, u.bucket_id, u.key from usable as u where u.i = u.first order by u.bucket_id, u.key
            on conflict do nothing
            returning n.bucket_id, n.idempotency_key
        )
        -- the first candidate with the key, where this call has made it
        select array_agg(case when x.is_made then x.first end order by x.i) filter (where x.i is not null)
        into v_first_of_key
        from (
            select y.i, y.first, bool_or(y.is_made) over (partition by y.bucket_id, y.key) as is_made
            from (
                select u.i, u.first, u.bucket_id, u.key, false as is_made from usable as u
                union all
                select k.i, null, null, null, false from keyed as k
                where (octet_length(k.key) between 1 and 512 and octet_length(k.bucket_id) between 1 and 512) is not true
                union all
                select null, null, n.bucket_id, n.idempotency_key, true from made as n
            ) as y
        ) as x;
        for v_i in 1..v_count loop
            if v_first_of_key[v_i] < v_i then
                v_classes[v_i] := 'again';
            elsif v_first_of_key[v_i] is null and v_keys[v_i] is not null then
                -- an error if it is one, for a key that another call has used is answered first
                v_known[v_i] := (
                    select i.event_id from memfold.idempotency_keys as i
                    where i.tenant_id = v_tenant_id and i.bucket_id = (v_items[v_i]).bucket_id and i.idempotency_key = v_keys[v_i]
                );
                if v_known[v_i] is not null then
                    v_classes[v_i] := 'known';
                end if;
            end if;
        end loop;
    end if;
    select coalesce(array_agg(x order by x.ordinal), '{}') into v_errors
    from unnest(v_errors) as x
    where not exists (
        select from unnest(v_ordinals, v_classes) as o (ordinal, class) where o.ordinal = x.ordinal and o.class in ('known', 'again')
    );
    if on_error = 'abort' and cardinality(v_errors) > 0 then
        e := v_errors[1];
        perform memfold._fail(e.sqlstate, e.error,
            'Candidate ' || e.ordinal || coalesce(': ' || e.detail, ' of the batch.'), coalesce(e.hint, 'Nothing was written.'));
    end if;

    -- 3. Look, lock what must be locked, and look again: a statement sees what was committed before it began.
    loop
        select l.matched, l.roots, l.root_scopes, l.classes_now into strict v_matched, v_roots, v_root_scopes, v_classes
        from memfold._look(v_tenant_id, v_items, v_classes) as l;
        exit when v_classes is null or not v_classes && array['todo', 'rest'];
        if v_classes = v_seen_classes and v_root_scopes is not distinct from v_seen_scopes then
            v_classes := v_decided;
            exit;
        end if;
        v_seen_classes := v_classes;
        v_seen_scopes := v_root_scopes;
        select coalesce(array_agg(p.predicate), '{}') into v_singles
        from (select distinct c.predicate from unnest(v_items) as c where c.predicate is not null offset 0) as p
        where memfold._is_single(v_tenant_id, p.predicate);
        if v_singles <> '{}' and 'hit' = any(v_classes) then
            -- Whoever may retire the value of a slot decides in order with everything that hits the slot.
            select array_agg(distinct memfold._scope_key_of(c.bucket_id, c.memory_type, c.subject, c.predicate)) into v_slots
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
                x.scope = 'bucket' or x.key_fields <> 'type,subject,predicate' or x.root_scope <> x.scope_key, false))
        into v_scope_keys, v_wide
        from (
            select v_root_scopes[c.ordinality] as root_scope, (v_policies[v_policy_of[c.ordinality]]).scope as scope,
                (v_policies[v_policy_of[c.ordinality]]).key_fields as key_fields,
                case when v_classes[c.ordinality] in ('todo', 'rest')
                    then memfold._scope_key_of(c.bucket_id, c.memory_type, c.subject, c.predicate) end as scope_key
            from unnest(v_items) with ordinality as c
            order by c.ordinality
            offset 0
        ) as x;
        -- Nothing is compared, nor locked, where dedup is off.
        v_locks := null;
        select memfold._lock_scopes(v_tenant_id, array_agg((v_items[o.i]).bucket_id), array_agg(o.scope_key), array_agg(o.wide), v_held)
        into v_locks
        from unnest(v_classes, v_scope_keys, v_wide) with ordinality as o (class, scope_key, wide, i)
        where o.class in ('todo', 'rest') and (v_policies[v_policy_of[o.i]]).dedup = 'on'
        having count(*) > 0;
        exit when v_locks is null or v_locks = v_held;
        v_held := v_locks;
    end loop;

    -- 4. New texts that decide nothing but to be there. Not: recalled ones, values of a slot, and texts that have a
    -- neighbour, here or earlier in the batch.
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
                    c.origin <> 'recalled' and (c.predicate = any(v_singles)
                        and (v_policies[v_policy_of[c.ordinality]]).dedup = 'on') is not true as plain
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
            v_near := memfold._near_in_batch(v_tenant_id, v_items, v_classes, v_firsts, v_scope_keys, v_policies, v_policy_of);
            if v_near is not null then
                select array_agg(case when o.class in ('new', 'repeat') and o.first = any(v_near) then 'rest' else o.class end
                    order by o.i)
                into v_classes
                from unnest(v_classes, v_firsts) with ordinality as o (class, first, i);
            end if;
        end if;
    end if;

    -- 5. Rows, in one order: all that are known to be touched, before the first is. Then nothing here waits any more for
    -- what another one may hold.
    select array_agg(distinct o.root_id) into v_ids
    from unnest(v_classes, v_roots) as o (class, root_id) where o.class = 'hit';
    if 'rest' = any(v_classes) then
        for v_i in 1..v_count loop
            continue when v_classes[v_i] <> 'rest';
            c := v_items[v_i];
            c.policy := v_policies[v_policy_of[v_i]];
            c.scope_key := v_scope_keys[v_i];
            d := memfold._decide(c);
            v_touched := array_remove(array[d.root_id, d.target_id], null);
            if d.on_timeline and v_touched <> '{}' then
                v_touched := v_touched || memfold._timeline_texts(v_tenant_id, v_touched);
            end if;
            v_ids := v_ids || v_touched;
        end loop;
    end if;
    if v_ids is not null then
        select array_agg(distinct i.id order by i.id) into v_ids from unnest(v_ids) as i (id);
        select l.changed, l.aliased into strict v_changed, v_aliased
        from memfold._lock_roots(v_tenant_id, v_ids) as l;
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

    -- 6. Ids in the order of the candidates.
    if v_classes && array['new', 'rest'] then
        v_memory_ids := memfold._new_ids(v_count);
        v_last_id := v_memory_ids[v_count];
    end if;
    v_event_ids := memfold._new_ids(v_count);
    if v_classes && array['new', 'repeat'] then
        select array_agg(n.id order by o.i), array_agg(n.root_id order by o.i)
        into v_matched, v_roots
        from unnest(v_classes, v_matched, v_roots, v_firsts) with ordinality as o (class, memory_id, root_id, first, i)
        cross join lateral (
            select case when o.class in ('new', 'repeat') then v_memory_ids[o.first] else o.memory_id end as id,
                case when o.class in ('new', 'repeat') then v_memory_ids[o.first] else o.root_id end as root_id
        ) as n;
        insert into memfold.memories (
            tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
            metadata_signature, session_id, metadata, embedding_pending
        )
        select v_tenant_id, v_memory_ids[c.ordinality], c.bucket_id, c.memory_type, c.subject, c.predicate, c.object, c.content,
            (v_policies[v_policy_of[c.ordinality]]).canonicalizer, (v_policies[v_policy_of[c.ordinality]]).key_fields,
            c.metadata_signature, c.session_id, c.metadata,
            c.embedding is null and (v_policies[v_policy_of[c.ordinality]]).dedup = 'on'
        from unnest(v_items) with ordinality as c
        where v_classes[c.ordinality] = 'new'
        order by c.ordinality
        on conflict (tenant_id, bucket_id, content_hash) where content_hash is not null do nothing;
        get diagnostics v_written = row_count;
        if v_written <> (select count(*) from unnest(v_classes) as o (class) where o.class = 'new') then
            raise exception 'a text of the batch is there already' using
                errcode = 'serialization_failure',
                detail = 'A plain INSERT has brought it in while this call worked.',
                hint = 'Retry the call, with the same idempotency keys if it has some.';
        end if;
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
        select v_tenant_id, v_memory_ids[c.ordinality], c.embedding_model, c.bucket_id, v_scope_keys[c.ordinality], c.embedding
        from unnest(v_items) with ordinality as c
        where v_classes[c.ordinality] = 'new' and c.embedding is not null
        order by c.ordinality;
    end if;

    -- 7. What only adds, all at once.
    if v_classes && array['hit', 'new', 'repeat'] then
        perform memfold._add_observations(v_tenant_id, v_items, v_classes, v_matched, v_roots, v_aliased);
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
            c.observed_at, v_actor
        from unnest(v_items) with ordinality as c
        cross join lateral (
            select v_classes[c.ordinality] as class, v_matched[c.ordinality] as memory_id, v_roots[c.ordinality] as root_id
        ) as o
        where o.class in ('hit', 'new', 'repeat')
        order by c.ordinality;
    end if;

    -- 8. The rest, one by one.
    if 'rest' = any(v_classes) then
        for v_i in 1..v_count loop
            continue when v_classes[v_i] <> 'rest';
            c := v_items[v_i];
            c.policy := v_policies[v_policy_of[v_i]];
            c.scope_key := v_scope_keys[v_i];
            c.memory_id := v_memory_ids[v_i];
            c.event_id := v_event_ids[v_i];
            c.last_id := v_last_id;
            v_results[v_i] := memfold._ingest_rest(c);
        end loop;
    end if;

    -- 9. Keys, and what the callers are told.
    if v_first_of_key is not null then
        perform memfold._use_keys(v_tenant_id, array_agg((v_items[o.i]).bucket_id), array_agg(o.key), array_agg(v_event_ids[o.i]))
        from unnest(v_first_of_key, v_keys) with ordinality as o (first, key, i)
        where o.first = o.i;
        for v_i in 1..v_count loop
            if v_classes[v_i] in ('known', 'again') then
                v_results[v_i] := memfold._event_result(v_tenant_id,
                    coalesce(v_known[v_i], v_event_ids[v_first_of_key[v_i]]));
            end if;
        end loop;
    end if;
    return query
    select x.*
    from (
        select v_ordinals[o.i] as ordinal, r.action, r.memory_id, r.tier, r.method, r.similarity, r.superseded_id,
            r.judgement_id, r.event_id, r."similar", null::text, null::text, null::text, null::text
        from unnest(v_classes, v_matched, v_roots, v_event_ids) with ordinality as o (class, memory_id, root_id, event_id, i)
        cross join lateral (
            select case when o.class = 'new' then 'inserted' else 'merged' end, o.root_id,
                case when o.class <> 'new' then 1 end,
                case when o.class = 'new' then null when o.memory_id = o.root_id then 'hash' else 'alias' end,
                null::double precision, null::uuid, null::uuid, o.event_id, null::jsonb
            where o.class in ('hit', 'new', 'repeat')
            union all
            select (v_results[o.i]).* where o.class not in ('hit', 'new', 'repeat', 'error')
        ) as r (action, memory_id, tier, method, similarity, superseded_id, judgement_id, event_id, "similar")
        union all
        select f.* from unnest(v_errors) as f
    ) as x
    order by x.ordinal;
end;
$$;
revoke all on function memfold._ingest_rows(text, memfold.staged_candidates[], memfold.batch_result[], text) from public;
comment on function memfold._ingest_rows(text, memfold.staged_candidates[], memfold.batch_result[], text) is
'Takes in a batch (in order), with the same outcome as one by one. Most candidates only add: replays of active memories, and
new texts without a neighbour. What they write commutes with everything else in the batch, and is written all at once, before
the rest, which goes through _decide and _apply one by one. failed: candidates that could not be read.';
