-- Whether undo() can undo a ledger row of this kind.
create or replace function memfold_internal._is_undoable(p_action text, p_tier integer, p_observation boolean) returns boolean
language sql immutable parallel safe
return coalesce(
    p_action in ('merged', 'replaced', 'superseded', 'historical') and p_tier >= 2
    or p_action in ('rejected', 'pruned', 'judged') and p_tier = 3
    or p_tier = 1 and p_observation, false
);
grant execute on function memfold_internal._is_undoable to memfold_app, memfold_auditor;

create or replace view memfold.ledger with (security_invoker = true) as
select
    e.tenant_id,
    e.event_id,
    e.recorded_at,
    e.bucket_id,
    e.action,
    e.tier,
    e.method,
    e.memory_id,
    e.target_id,
    e.similarity,
    e.guard,
    e.similar_memories,
    e.reason,
    e.observation,
    e.content,
    e.memory_type,
    e.subject,
    e.predicate,
    e.object,
    e.source_turn_ids,
    e.source_confidence,
    e.extractor_confidence,
    e.session_id,
    e.origin,
    e.metadata,
    e.observed_at,
    e.valid_from,
    e.valid_until,
    e.judgement_id,
    e.verdict,
    e.undoes,
    e.run_id,
    e.actor,
    e.cause,
    e.undo_state,
    case e.undo_state when 'undone' then true when 'withdrawn' then true else false end as undone,
    case e.undo_state when 'undone' then e.tier = 1 when 'withdrawn' then true else false end as withdrawn,
    case
        when e.undoes is null
            then
                coalesce(e.undo_state, 'restored') = 'restored' and coalesce(e.method, '') <> 'rehash'
                and memfold_internal._is_undoable(e.action, e.tier, e.observation)
        else
            not exists (
                select from memfold.memory_events as l
                where l.tenant_id = e.tenant_id and l.undoes = e.undoes and l.event_id > e.event_id
            )
            and not exists (
                select from memfold.memory_events as o
                where o.tenant_id = e.tenant_id and o.event_id = e.undoes and o.method = 'rehash'
            )
    end as is_undoable
from (
    select
        e.*,
        -- the last row about the event, by one lookup: a join might hash all rows of the tenant
        (
            select u.action
            from memfold.memory_events as u
            where u.tenant_id = e.tenant_id and u.undoes = e.event_id
            order by u.event_id desc
            limit 1
        ) as undo_state
    from memfold.memory_events as e
) as e;
comment on view memfold.ledger is
'The ledger, with the present state of each row: whether it was undone, and whether its statement still counts. The columns before
undo_state are those of memory_events. The observations in force are those with observation and not withdrawn.';
comment on column memfold.ledger.undo_state is 'Set by the last row about it (undoes): undone, withdrawn or restored. Null: there is none.';
comment on column memfold.ledger.undone is 'Its decision is no longer in force.';
comment on column memfold.ledger.withdrawn is
'Its statement no longer counts. Undoing a tier-1 event also removes the observation; after any other undo it stays with its own text,
unless the whole event was withdrawn.';
comment on column memfold.ledger.is_undoable is
'Whether undo() can undo it: a decision or restatement in force, or the last row about an event; not those of a rehash, which
rehash_bucket() undoes.';

-- The state of an event, or its state before the ledger row p_before: undone, withdrawn, or restored, also if it was never undone.
create or replace function memfold_internal._undo_state(p_tenant_id text, p_event_id uuid, p_before uuid default null) returns text
language plpgsql stable
as $$
declare
    v_state text;
    v_before constant uuid := coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
begin
    select u.action into v_state
    from memfold.memory_events as u
    where u.tenant_id = p_tenant_id collate "C" and u.undoes = p_event_id
        and u.event_id < v_before
    order by u.event_id desc
    limit 1;
    return coalesce(v_state, 'restored');
end;
$$;

create or replace view memfold_internal._observed with (security_invoker = true) as
select e.*
from memfold.ledger as e
where e.observation and not e.withdrawn;
comment on view memfold_internal._observed is 'The observations in force.';

create or replace view memfold_internal._statements with (security_invoker = true) as
select e.*
from memfold.ledger as e
where
    e.observation and not e.withdrawn
    or e.action = 'superseded' and e.tier = 3 and e.observed_at is not null and not e.undone;
comment on view memfold_internal._statements is
'The statements in force: observations, and the statement of a person who retires a memory in favour of another.';

-- Whether a ledger row with these columns makes a statement (_statements) that is withdrawn in this state (_undo_state).
create or replace function memfold_internal._withdraws(
    p_state text, p_action text, p_tier integer, p_observation boolean, p_observed_at timestamptz
) returns boolean
language sql immutable parallel safe
return case
    when p_state in ('undone', 'withdrawn')
        then (p_tier = 1 or p_state = 'withdrawn') and p_observation or p_action = 'superseded' and p_tier = 3 and p_observed_at is not null
    else false
end;

create or replace view memfold_internal._decisions with (security_invoker = true) as
select e.*
from memfold.ledger as e
-- must be the condition of memory_events_decisions_idx
where e.tier > 1;
comment on view memfold_internal._decisions is
'The decisions about texts in tier 2 or 3: found without reading their observations (memory_events_decisions_idx).';

-- The ledger rows with these ids, in the order of the array. Inlined by its callers.
create or replace function memfold_internal._events(p_tenant_id text, p_event_ids uuid[]) returns setof memfold.memory_events
language sql stable
begin atomic
    select e.*
    from pg_catalog.unnest(p_event_ids) with ordinality as i (id, place)
    cross join
        lateral (
            select e.* from memfold.memory_events as e
            where e.tenant_id = p_tenant_id collate "C" and e.event_id = i.id
            -- Only the primary key has this order. If most tenants have one row, the planner would also accept
            -- memory_events_memory_idx, and read it from the tenant's first row to its last.
            order by e.recorded_at
            offset 0
        ) as e
    order by i.place;
end;

-- The ledger row with this id; all null if there is none.
create or replace function memfold_internal._event(p_tenant_id text, p_event_id uuid) returns memfold.memory_events
language plpgsql stable
as $$
declare
    e memfold.memory_events;
begin
    select v.* into e
    from memfold.memory_events as v
    where v.tenant_id = p_tenant_id collate "C" and v.event_id = p_event_id
    -- as in _events()
    order by v.recorded_at;
    return e;
end;
$$;

-- The id of the ledger row that last stated a memory, by any of its texts. No row: no statement is in force.
create or replace function memfold_internal._last_statement(p_tenant_id text, p_root_id uuid) returns setof uuid
language plpgsql stable rows 1
as $$
begin
    return query
    select e.event_id
    from (
        select p_root_id as memory_id
        union all
        select m.memory_id from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.root_id = p_root_id
        offset 0
    ) as t
    cross join lateral (
        select e.event_id, e.observed_at from memfold_internal._statements as e
        where e.tenant_id = p_tenant_id collate "C" and e.memory_id = t.memory_id
        offset 0
    ) as e
    order by e.observed_at desc, e.event_id desc
    limit 1;
end;
$$;

-- Trigger that refuses UPDATE of immutable columns, DELETE and TRUNCATE: MF020 on memories, MF021 on the ledger. Allowed
-- for members of memfold_owner while memfold.maintenance is on (_maintain): rehash, erasure, retention.
create or replace function memfold_internal._refuse() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    -- on Citus, the trigger is on a shard, whose name ends in a number
    v_table constant text := rtrim(tg_table_name, '_0123456789');
begin
    if current_setting('memfold.maintenance', true) = 'on' and pg_has_role(current_user, 'memfold_owner', 'member') then
        return coalesce(new, old);
    end if;
    if v_table = 'memories' then
        perform memfold_internal._fail('MF020', format('%s of memories is refused', tg_op),
            'Text, keys and hash of a memory never change, and no memory is deleted, because the ledger refers to it.',
            'To change what is current, use ingest_memory(), update_memory() or reject_memory(); to undo a decision, undo().');
    else
        perform memfold_internal._fail('MF021', format('%s of %s is refused', tg_op, v_table),
            'The ledger is append-only.', 'State is derived from it: undo(event_id) adds a row that undoes an event.');
    end if;
    return null;
end;
$$;
