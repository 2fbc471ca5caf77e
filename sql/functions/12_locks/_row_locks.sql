-- Locks. Two writers of new facts in one scope (bucket, type, subject, predicate) take turns by transaction-level
-- advisory locks, because their texts may differ and no row exists yet that both could lock. Restatements of an active
-- memory only lock its row of memory_counters. Callers: every module that writes, from 20_policy on.
--
-- Three kinds of advisory keys exist: a tenant's key of rules, a bucket's and a scope's. A writer of one scope takes the
-- first two SHARED and the last EXCLUSIVE; what spans scopes takes the bucket's key EXCLUSIVE, and a change of what is a
-- slot takes the key of rules EXCLUSIVE. All are held to the end of the transaction and require READ COMMITTED (MF025).
--
-- What must stay true: the order is rules, buckets, scopes (each ascending), judgements, roots by id, aliases by id, sources, ledger. A
-- call that may hold a row, or that takes keys in a second pass, tries for a key and fails with 40001 instead of waiting. Locking is a
-- separate statement, so that the next one sees what others have committed. docs/decisions/0004 has the reasons. The module
-- locks rows of memory_counters, and writes adoption_claims and adoption_repeats for triggers of `memfold adopt`.

-- Locks rows of memory_counters in the given order. p_hits: an observation is to be added to the row without a lock on
-- its scope; raises 40001 if that memory was merged, retired or erased. changed: the rows to which observations cannot
-- simply be added. aliased: whether any of the rows has aliases. latest: the last time that any of the memories was seen.
create or replace function memfold_internal._lock_roots(
    p_tenant_id text, p_memory_ids uuid[], p_hits boolean[], out changed uuid[], out aliased boolean, out latest timestamptz
)
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    select coalesce(array_agg(k.memory_id) filter (
            where not k.is_additive or k.on_timeline
        ), '{}'),
        coalesce(bool_or(case
            -- raised before the next row is locked: this row may now be an alias's, and must not be held while waiting for a root
            when i.hit and k.is_additive is not true then memfold_internal._fail_changed_root()
            else k.aliases > 0 end), false),
        max(greatest(k.last_seen, k.alias_last_seen))
    into changed, aliased, latest
    from unnest(p_memory_ids, p_hits) as i (id, hit)
    left join lateral (
        select k.memory_id, k.is_additive, k.on_timeline, k.aliases, k.last_seen, k.alias_last_seen
        from memfold.memory_counters as k
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = i.id
        for no key update
    ) as k on true;
end;
$$;

-- Raises 40001: a memory was merged, retired or erased.
create or replace function memfold_internal._fail_changed_root() returns boolean
language plpgsql volatile
as $$
begin
    perform memfold_internal._retry('a memory has changed', 'It was merged, retired or erased while this call waited for it.');
    return null;
end;
$$;

-- Locks the row of a root if it is free, else raises 40001. The caller may hold a row that comes after it in the order of
-- locking (of one of its aliases, of a later value of its slot), so waiting could deadlock.
create or replace function memfold_internal._try_root(p_tenant_id text, p_root_id uuid) returns void
language plpgsql volatile
as $$
begin
    perform from memfold.memory_counters as k
    where k.tenant_id = p_tenant_id collate "C" and k.memory_id = p_root_id
    for no key update skip locked;
    -- a memory from a plain INSERT has no counters yet
    if not found and exists (
        select from memfold.memory_counters as k
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = p_root_id
    ) then
        perform memfold_internal._fail_busy();
    end if;
end;
$$;

-- Raises 40001: another call is changing a memory.
create or replace function memfold_internal._fail_busy() returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._retry('a memory is busy', 'Another call is changing it, and may be waiting for rows that this one holds.');
end;
$$;

-- Locks the counters of p_memory_ids in the given order, which is that of _texts_to_lock(). Called before texts are
-- counted again or derive_scope() is called in parts. The caller holds the lock of their scope or bucket.
create or replace function memfold_internal._lock_texts(p_tenant_id text, p_memory_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
    v_id uuid;
begin
    foreach v_id in array p_memory_ids loop
        perform from memfold.memory_counters as k
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = v_id
        for no key update;
    end loop;
end;
$$;
