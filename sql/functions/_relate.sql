create or replace function memfold._lock_memories(tenant_id text, memory_ids uuid[], patient boolean default true) returns boolean
language plpgsql volatile
-- arrays of ids tempt the planner to plan anew
set plan_cache_mode = force_generic_plan
as $$
declare
    v_texts uuid[];
    v_bucket_id text;
    v_scope_key bigint;
    v_wide boolean;
    v_locked text;
begin
    loop
        -- whatever the call may change: their trees, and what is beside them on a timeline
        v_texts := memfold._timeline_texts(tenant_id, memory_ids);
        select min(m.bucket_id), min(m.scope_key), min(m.scope_key) <> max(m.scope_key) or pg_catalog.bool_or(
            p.scope = 'bucket' or p.key_fields <> 'type,subject,predicate' or p.rehash_run is not null)
        into strict v_bucket_id, v_scope_key, v_wide
        from (
            select distinct m.bucket_id, m.scope_key, m.memory_type
            from pg_catalog.unnest(v_texts) as i (id)
            cross join lateral (
                select m.* from memfold.memories as m
                where m.tenant_id = _lock_memories.tenant_id collate "C" and m.memory_id = i.id
                offset 0
            ) as m
        ) as m
        cross join lateral memfold._policy(_lock_memories.tenant_id, m.bucket_id, m.memory_type) as p;
        -- no bucket: they are gone
        exit when v_bucket_id is null or v_locked = 'bucket' or v_locked = 'scope' and not v_wide;
        -- A second turn has the scope's key already: it must not wait for the bucket's.
        if patient then
            perform memfold._lock(tenant_id, v_bucket_id, case when not v_wide then v_scope_key end, v_locked is null);
        elsif not memfold._try_lock(tenant_id, v_bucket_id, case when not v_wide then v_scope_key end) then
            return false;
        end if;
        v_locked := case when v_wide then 'bucket' else 'scope' end;
    end loop;
    return true;
end;
$$;
revoke all on function memfold._lock_memories(text, uuid[], boolean) from public;
comment on function memfold._lock_memories(text, uuid[], boolean) is
'Takes the lock that a decision about memories of one bucket needs: their scope''s, or the bucket''s where their trees and
timelines reach over scopes. Looks again once it has it. Raises MF025, and 40001 where it would have to wait twice.
patient false: it never waits, and returns whether it has the lock.';

create or replace function memfold._no_memory(memory_id uuid) returns void
language plpgsql volatile
as $$
begin
    perform memfold._fail('MF018', 'there is no such memory',
        pg_catalog.format('memory_id was %s.', coalesce(memory_id::text, 'null')),
        'Ids are those that ingest_memory() returned to this tenant.');
end;
$$;
revoke all on function memfold._no_memory(uuid) from public;
comment on function memfold._no_memory(uuid) is 'Raises MF018.';

create or replace function memfold._memory_root(
    tenant_id text, memory_id uuid, refused text[]
) returns memfold.memories
language plpgsql stable
as $$
declare
    r memfold.memories;
begin
    select o.* into r
    from memfold.memories as m
    join memfold.memories as o on o.tenant_id = m.tenant_id and o.memory_id = memfold._root(m.memory_id, m.root_id)
    where m.tenant_id = _memory_root.tenant_id collate "C" and m.memory_id = _memory_root.memory_id;
    if not found then
        perform memfold._no_memory(memory_id);
    elsif r.status = any(refused) then
        perform memfold._fail('MF034', 'the memory is ' || r.status,
            pg_catalog.format('Memory %s is %s.', r.memory_id, r.status),
            'explain_memory() says by which event; undo(event_id) takes that back.');
    end if;
    return r;
end;
$$;
revoke all on function memfold._memory_root(text, uuid, text[]) from public;
comment on function memfold._memory_root(text, uuid, text[]) is
'The memory where an id leads, which must not have one of the refused statuses. Raises MF018, MF034. Only reads.';

create or replace function memfold._method(j memfold.judgements) returns text
language sql immutable parallel safe
return case when j.state = 'dead' then 'fallback' when j.model is null then 'person' else 'judge' end;
revoke all on function memfold._method(memfold.judgements) from public;
comment on function memfold._method(memfold.judgements) is 'By whom tier 3 was decided, as the ledger has it.';

create or replace function memfold._relate(
    j memfold.judgements, action text, memory_id uuid, target_id uuid, content text, stated_at timestamptz
) returns uuid
language plpgsql volatile
as $$
declare
    v_on_timeline boolean;
    v_event_id uuid;
begin
    if content is null and action <> 'judged' then
        perform memfold._adopt_row(j.tenant_id, memory_id);
    end if;
    if target_id is not null and action <> 'judged' then
        perform memfold._adopt_row(j.tenant_id, target_id);
    end if;
    if action = 'superseded' then
        select a.scope_key = b.scope_key and memfold._is_single(a.tenant_id, a.predicate) into strict v_on_timeline
        from memfold.memories as a
        join memfold.memories as b on b.tenant_id = a.tenant_id and b.memory_id = _relate.target_id
        where a.tenant_id = j.tenant_id collate "C" and a.memory_id = _relate.memory_id;
    else
        v_on_timeline := action in ('merged', 'replaced') and exists (
            select from memfold.memory_counters as k
            where k.tenant_id = j.tenant_id collate "C"
                and k.memory_id in (_relate.memory_id, _relate.target_id) and k.on_timeline
        );
    end if;
    v_event_id := memfold._new_event_id(j.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, reason, on_timeline, content,
        observed_at, judgement_id, verdict, run_id, actor
    ) values (
        j.tenant_id, v_event_id, j.bucket_id, action, 3,
        memfold._method(j), memory_id, target_id,
        j.similarity, j.guard, j.reason, v_on_timeline, content, stated_at, j.judgement_id, j.verdict, j.run_id,
        memfold._actor()
    );
    if action <> 'judged' then
        perform memfold.derive_scope(j.tenant_id, pg_catalog.array_remove(array[memory_id, target_id], null));
    end if;
    return v_event_id;
end;
$$;
revoke all on function memfold._relate(memfold.judgements, text, uuid, uuid, text, timestamptz) from public;
comment on function memfold._relate(memfold.judgements, text, uuid, uuid, text, timestamptz) is
'Tier 3: records what a judge or a person (no model) decided of two roots, or what holds where the judge failed (dead), and
derives their state: merged (memory_id is folded into target_id), replaced (target_id into memory_id), superseded (memory_id
retires target_id), rejected, judged (nothing changes). content: the text, of a memory that this creates. stated_at: a person
states memory_id, at this time.
The caller holds the lock.';
