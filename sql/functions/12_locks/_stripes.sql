-- The counters of a root are one row. If writers wait for that row they are striped: 64 additional rows (memory_counter_stripes), of
-- which each server process uses its own, so that commits of one fact reach the disk together. docs/decisions/0009.

create or replace view memfold.memory_totals with (security_invoker = true) as
select
    k.tenant_id,
    k.memory_id,
    k.is_active,
    k.on_timeline,
    k.aliases,
    k.observations + s.observations as observations,
    k.independent + s.independent as independent,
    greatest(k.source_confidence, s.source_confidence) as source_confidence,
    greatest(k.extractor_confidence, s.extractor_confidence) as extractor_confidence,
    least(k.first_seen, s.first_seen) as first_seen,
    greatest(k.last_seen, s.last_seen) as last_seen,
    k.access_count,
    k.helpful_count,
    k.harmful_count,
    k.last_accessed,
    k.last_event,
    k.decayed_confidence,
    k.decayed_at,
    k.is_striped,
    k.valid_from,
    k.valid_until
from memfold.memory_counters as k
-- read only if there are some, and if a caller needs a sum
left join lateral (
    select
        coalesce(sum(x.observations), 0)::bigint as observations,
        coalesce(sum(x.independent), 0)::bigint as independent,
        max(x.source_confidence) as source_confidence,
        max(x.extractor_confidence) as extractor_confidence,
        min(x.first_seen) as first_seen,
        max(x.last_seen) as last_seen
    from memfold.memory_counter_stripes as x
    -- not a condition by itself, which Citus on PostgreSQL 15 does not plan beneath an outer join
    where x.tenant_id = k.tenant_id and x.memory_id = case when k.is_striped then k.memory_id end
) as s on true;
comment on view memfold.memory_totals is
'The counters of a memory, exact in every snapshot: its row of memory_counters plus, if they are striped, its rows of
memory_counter_stripes. The columns are those of memory_counters. An alias has a row of zeros or no row.';
comment on column memfold.memory_totals.observations is 'repetition_count + 1.';
comment on column memfold.memory_totals.independent is
'Observations with a source turn that no earlier observation had, or without source turns: n + 1 of the confidence formula.';

create or replace function memfold_internal._block_size() returns bigint
language sql immutable parallel safe
return 1024;
comment on function memfold_internal._block_size is 'How many ledger rows of a text one block of memory_event_sums covers.';

create or replace function memfold_internal._own_stripe() returns bigint
language sql stable parallel safe
return pg_catalog.pg_backend_pid() & 63;
comment on function memfold_internal._own_stripe is 'The stripe, 0 to 63, that this server process adds to.';

create or replace function memfold_internal._adds_to(root_id uuid) returns boolean
language sql stable parallel safe
return (pg_catalog.strpos(pg_catalog.current_setting('memfold.adds_to', true), root_id::text) > 0) is true;
comment on function memfold_internal._adds_to is
'Whether this transaction has added to a stripe of the root, and holds it. One expression, which its callers inline; without COALESCE, in
which Citus allows an UPDATE nothing that is not immutable.';

create or replace function memfold_internal._note_stripe(root_id uuid) returns text
language sql volatile
return pg_catalog.set_config(
    'memfold.adds_to', pg_catalog.concat(pg_catalog.current_setting('memfold.adds_to', true), root_id), true
);
comment on function memfold_internal._note_stripe is
'Notes, for _adds_to() and until the transaction ends, that it has added to a stripe of the root. One expression, which its callers
inline.';

create or replace function memfold_internal._stripe(tenant_id text, root_id uuid) returns void
language plpgsql volatile
as $$
begin
    -- not if an observation cannot be added without looking at others: values of a timeline, turns of several texts, validity
    update memfold.memory_counters as k
    set is_striped = true
    where k.tenant_id = _stripe.tenant_id collate "C" and k.memory_id = _stripe.root_id and k.is_active and not k.on_timeline
        and k.aliases = 0 and not k.is_striped and k.valid_from is null and k.valid_until is null;
    if found then
        insert into memfold.memory_counter_stripes (
            tenant_id, memory_id, stripe, source_confidence, extractor_confidence, first_seen, last_seen, last_event
        )
        select k.tenant_id, k.memory_id, s.stripe, k.source_confidence, k.extractor_confidence, k.first_seen, k.last_seen, k.last_event
        from memfold.memory_counters as k
        cross join pg_catalog.generate_series(0, 63) as s (stripe)
        where k.tenant_id = _stripe.tenant_id collate "C" and k.memory_id = _stripe.root_id;
    end if;
end;
$$;
comment on function memfold_internal._stripe is
'Stripes the counters of a root whose row the caller holds, if possible: it is active, on no timeline, without aliases and without
validity.';

create or replace function memfold_internal._stripe_contended(tenant_id text, root_id uuid, event_id uuid) returns void
language plpgsql volatile
as $$
begin
    -- One in eight, by the id's random bits: a fact whose restatements must join its stripes is not striped again each time.
    if pg_catalog.get_byte(pg_catalog.uuid_send(event_id), 15) < 32 then
        perform memfold_internal._stripe(tenant_id, root_id);
    end if;
end;
$$;
comment on function memfold_internal._stripe_contended is
'For a call that has waited for the row, which it now holds: its event_id was overtaken by that of a call that began later but counted
earlier. Stripes the root''s counters for one such call in eight.';

create or replace function memfold_internal._not_independent(tenant_id text, root_id uuid, stripe bigint) returns void
language plpgsql volatile
as $$
begin
    if stripe is null then
        update memfold.memory_counters as k
        set independent = k.independent - 1
        where k.tenant_id = _not_independent.tenant_id collate "C" and k.memory_id = root_id;
    else
        update memfold.memory_counter_stripes as x
        set independent = x.independent - 1
        where x.tenant_id = _not_independent.tenant_id collate "C" and x.memory_id = root_id and x.stripe = _not_independent.stripe;
    end if;
end;
$$;
comment on function memfold_internal._not_independent is
'Corrects the count of an observation that turned out not to be independent, in the place where it was counted: in a stripe, or (null) in
the row.';

create or replace function memfold_internal._raise_last_seen(tenant_id text, root_id uuid, stripe bigint) returns timestamptz
language plpgsql volatile
as $$
declare
    v_seen timestamptz;
begin
    update memfold.memory_counter_stripes as x
    set last_seen = t.last_seen
    from memfold.memory_totals as t
    where x.tenant_id = _raise_last_seen.tenant_id collate "C" and x.memory_id = _raise_last_seen.root_id
        and x.stripe = _raise_last_seen.stripe and t.tenant_id = x.tenant_id and t.memory_id = x.memory_id
    returning x.last_seen into v_seen;
    return v_seen;
end;
$$;
comment on function memfold_internal._raise_last_seen is
'For an observation without observed_at whose id was overtaken: the clock may be behind earlier statements, and so its time would be too.
Sets a stripe''s last_seen to that of the memory, and returns it.';

create or replace function memfold_internal._add_to_stripe(
    tenant_id text, root_id uuid, source_confidence double precision, extractor_confidence double precision, observed_at timestamptz,
    event_id uuid
) returns memfold.memory_counter_stripes
language plpgsql volatile
as $$
declare
    s memfold.memory_counter_stripes;
    -- not in the UPDATE: Citus allows no volatile function there
    v_event_id constant uuid := coalesce(event_id, memfold_internal._new_id());
    v_now constant timestamptz := coalesce(observed_at, memfold_internal._clock());
begin
    -- rule count_in_stripe
    update memfold.memory_counter_stripes as x
    set observations = x.observations + 1,
        independent = x.independent + 1,
        source_confidence = greatest(x.source_confidence, _add_to_stripe.source_confidence),
        extractor_confidence = greatest(x.extractor_confidence, _add_to_stripe.extractor_confidence),
        first_seen = least(x.first_seen, _add_to_stripe.observed_at),
        last_seen = greatest(x.last_seen, v_now),
        last_event = memfold_internal._id_after(v_event_id, greatest(x.last_event, n.event_id))
    from (
        -- above every id of the tenant: earlier statements may be in other stripes, whatever the clock says
        select e.event_id from memfold.memory_events as e
        where e.tenant_id = _add_to_stripe.tenant_id collate "C"
        order by e.event_id desc
        limit 1
    ) as n
    where x.tenant_id = _add_to_stripe.tenant_id collate "C" and x.memory_id = _add_to_stripe.root_id
        and x.stripe = memfold_internal._own_stripe()
        -- if this transaction has added to it, it holds it, and must not wait for all others
        and (x.observations < memfold_internal._block_size() or memfold_internal._adds_to(_add_to_stripe.root_id))
        -- a snapshot from before others' calls does not show which statements this one follows
        and pg_catalog.current_setting('transaction_isolation') = 'read committed'
    -- end of rule
    returning x.* into s;
    if not found then
        return null;
    end if;
    if not memfold_internal._adds_to(root_id) then
        perform memfold_internal._note_stripe(root_id);
    end if;
    if observed_at is not null then
        s.last_seen := observed_at;
    elsif s.last_event <> v_event_id then
        s.last_seen := memfold_internal._raise_last_seen(tenant_id, root_id, s.stripe);
    end if;
    return s;
end;
$$;
comment on function memfold_internal._add_to_stripe is
'Adds one observation of a root with striped counters to this process''s stripe, as an independent one. Returns the stripe afterwards,
except last_seen, which is when this was observed (null: now, after everything stated before), and last_event, which is its ledger row''s
id: event_id (null: a new one), or a later one. Null: nothing was added, because the counters are not striped, or the stripe is full (its
rows wait for their sums), or the transaction has one snapshot.';

create or replace function memfold_internal._join_stripes(tenant_id text, memory_ids uuid[]) returns boolean
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_found boolean := false;
    d record;
begin
    for d in
        -- the rows of counters, in their order, before any stripe
        select k.memory_id
        from pg_catalog.unnest(memory_ids) as i (id)
        cross join lateral (
            select k.memory_id from memfold.memory_counters as k
            where k.tenant_id = _join_stripes.tenant_id collate "C" and k.memory_id = i.id and k.is_striped
            for no key update
        ) as k
        order by k.memory_id
    loop
        with gone as (
            delete from memfold.memory_counter_stripes as x
            where x.tenant_id = _join_stripes.tenant_id collate "C" and x.memory_id = d.memory_id
            returning x.*
        )
        update memfold.memory_counters as k
        set is_striped = false, observations = k.observations + g.observations, independent = k.independent + g.independent,
            source_confidence = g.source_confidence, extractor_confidence = g.extractor_confidence, first_seen = g.first_seen,
            last_seen = g.last_seen, last_event = g.last_event
        from (
            select pg_catalog.sum(g.observations)::bigint as observations, pg_catalog.sum(g.independent)::bigint as independent,
                max(g.source_confidence) as source_confidence, max(g.extractor_confidence) as extractor_confidence,
                min(g.first_seen) as first_seen, max(g.last_seen) as last_seen,
                (pg_catalog.array_agg(g.last_event order by g.last_event desc nulls last))[1] as last_event
            from gone as g
        ) as g
        where k.tenant_id = _join_stripes.tenant_id collate "C" and k.memory_id = d.memory_id and k.is_striped;
        v_found := true;
    end loop;
    return v_found;
end;
$$;
comment on function memfold_internal._join_stripes is
'Adds the stripes of these roots to their rows of memory_counters, locks those rows, and returns whether there were any stripes. Waits for
transactions that add to a stripe; later ones find no stripe and wait for the row, so that until this transaction ends the row holds the
complete counters. The caller must not have written source turns of these roots, because a transaction that holds a stripe may wait for
them.';

create or replace function memfold_internal._join_idle_stripes(tenant_id text, max_memories bigint) returns setof uuid
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_id uuid;
begin
    for v_id in
        select x.memory_id from memfold.memory_counter_stripes as x
        where x.tenant_id = _join_idle_stripes.tenant_id collate "C" and x.stripe = 0
        order by x.memory_id
        limit max_memories
    loop
        perform from memfold.memory_counters as k
        where k.tenant_id = _join_idle_stripes.tenant_id collate "C" and k.memory_id = v_id
        for no key update skip locked;
        continue when not found;
        -- a stripe in use is a sign that the root is still contended
        if (
            select count(*) from (
                select from memfold.memory_counter_stripes as x
                where x.tenant_id = _join_idle_stripes.tenant_id collate "C" and x.memory_id = v_id
                for update skip locked
            ) as free
        ) = 64 then
            perform memfold_internal._join_stripes(tenant_id, array[v_id]);
            return next v_id;
        end if;
    end loop;
end;
$$;
comment on function memfold_internal._join_idle_stripes is
'Joins the stripes of at most the given number of a tenant''s roots, those that no transaction is adding to. Never waits. Returns these
roots.';
