-- Decides and applies one candidate under the lock of its scope (scope_key is set). p_is_new: the bucket did not hold
-- the text before the lock.
create or replace function memfold_internal._ingest_locked(c memfold_internal.candidate, p_is_new boolean) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_is_new boolean := p_is_new and (c.policy).rehash_run is null;
    d memfold_internal.decision;
    r memfold.ingest_result;
begin
    for v_attempt in 1..10 loop
        d := case when v_is_new then memfold_internal._decide_new(c) else memfold_internal._decide(c) end;
        -- A new text is not looked up again: its INSERT finds the duplicate.
        if not v_is_new or d.action <> 'rejected' then
            r := memfold_internal._apply(c, d);
        end if;
        if r.action is not null then
            return r;
        end if;
        v_is_new := false;
    end loop;
    raise exception 'too many concurrent changes in this bucket' using
        errcode = 'serialization_failure',
        detail = 'Ten times in succession a row changed between decision and write.',
        hint = 'Retry the call, with the same idempotency_key if it has one.';
end;
$$;

-- Ingests one candidate under the locks of its caller, which holds rows too, so it waits only briefly for other rows
-- (55P03; the caller then uses _fail_busy()).
create or replace function memfold_internal._ingest_under_locks(c memfold_internal.candidate) returns memfold.ingest_result
language plpgsql volatile
-- While this call waits for a row, others may wait for the rows that its caller holds.
set lock_timeout = '100ms'
as $$
declare
    d memfold_internal.decision;
    v_said record;
begin
    d := memfold_internal._decide_known(c);
    if d.action = 'merged' and d.method <> 'timeline' then
        -- A single call has no event id yet. Null would stand for the memory's last one.
        v_said := memfold_internal._record_observation(c, d.memory_id, d.root_id, 0, coalesce(c.event_id, memfold_internal._new_id()));
        if v_said.is_added then
            c.event_id := v_said.event_id;
            c.observed_at := v_said.observed_at;
            return memfold_internal._result(d, d.memory_id, null,
                memfold_internal._record(c, d, d.memory_id, c.origin <> 'recalled', null));
        end if;
    end if;
    return memfold_internal._ingest_locked(c, false);
end;
$$;

-- Whether an observation cannot simply be added to a root, because a later one exists and order matters: the root is on
-- a timeline, or the observation has metadata. Predicts, without a lock, what the UPDATE in _record_observation() will
-- find, so that such a call waits for its scope before it holds the row, when it may still wait.
create or replace function memfold_internal._is_late(
    p_tenant_id text, p_root_id uuid, p_observed_at timestamptz, p_metadata jsonb
) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from memfold.memory_totals as k
        where k.tenant_id = p_tenant_id collate "C" and k.memory_id = p_root_id and k.last_seen > p_observed_at
            and (k.on_timeline or p_metadata <> '{}')
    );
end;
$$;

-- Decides and applies one candidate, under the locks it needs. p_progress: what a fast path left behind (attempt), or
-- 'if known': nothing is done, and null returned, about a text that tier 1 does not know.
create or replace function memfold_internal._ingest(c memfold_internal.candidate, p_progress text) returns memfold.ingest_result
language plpgsql volatile
-- With an array of turns the planner would replan each time, which takes longer than the statement.
set plan_cache_mode = force_generic_plan
as $$
declare
    d memfold_internal.decision;
    v_wide boolean;
    v_patient boolean := p_progress is distinct from 'row held';
    v_said record;
begin
    if p_progress = 'locked' then
        c.scope_key := memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate);
        return memfold_internal._ingest_locked(c, true);
    end if;
    -- A known and active text needs only the lock of its root's row.
    d := memfold_internal._decide_known(c);
    if d.action = 'merged' and d.method <> 'timeline' and num_nonnulls(c.valid_from, c.valid_until) = 0
        and not (v_patient and memfold_internal._is_late(c.tenant_id, d.root_id, c.observed_at, c.metadata))
    then
        if not v_patient then
            perform memfold_internal._try_root(c.tenant_id, d.root_id);
        end if;
        v_said := memfold_internal._record_observation(c, d.memory_id, d.root_id, 0, memfold_internal._new_id());
        if v_said.is_added then
            c.event_id := v_said.event_id;
            c.observed_at := v_said.observed_at;
            return memfold_internal._result(d, d.memory_id, null,
                memfold_internal._record(c, d, d.memory_id, c.origin <> 'recalled', null));
        end if;
        v_patient := false;
    end if;

    if p_progress = 'if known' and d.memory_id is null and d.action is null then
        return null;
    end if;
    if d.memory_id is null and memfold_internal._is_embedded_here(c, c.policy) then
        c := memfold_internal._embed(c);
    end if;

    -- If the hash, the neighbours or the tree extend beyond one scope, so must the lock.
    c.scope_key := memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate);
    v_wide := memfold_internal._is_wide((c.policy).scope, (c.policy).key_fields, (c.policy).rehash_run);
    if d.memory_id is not null and not v_wide then
        -- null: the root has been erased since the lookup
        v_wide := coalesce((select m.scope_key <> c.scope_key from memfold.memories as m
            where m.tenant_id = c.tenant_id and m.memory_id = d.root_id), false);
    end if;

    -- All other cases are decided again under the lock. Lock and decision are separate statements, because a statement sees only what
    -- was committed before it began.
    if (c.policy).dedup = 'on' then
        perform memfold_internal._lock(c.tenant_id, c.bucket_id, case when not v_wide then c.scope_key end, v_patient);
        perform memfold_internal._check_rules(c.tenant_id, c.bucket_id, c.memory_type, c.policy,
            case when c.embedding_model is not null then array[c.embedding_model] end);
        perform memfold_internal._check_names(c.tenant_id, c.bucket_id, c.given_subject, c.given_predicate, c.content, c.subject,
            c.predicate);
    end if;
    if v_patient then
        return memfold_internal._ingest_locked(c, d.memory_id is null);
    end if;
    begin
        return memfold_internal._ingest_under_locks(c);
    exception when lock_not_available then
        perform memfold_internal._fail_busy();
    end;
end;
$$;
