create or replace function memfold.undo(
    event_id uuid,
    reason text default null,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns setof memfold.undone_memory
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    e memfold.memory_events;
    v_sides uuid[];
    v_undo_id uuid;
begin
    perform memfold._enter(tenant_id);
    select v.* into e
    from memfold.memory_events as v
    where v.tenant_id = undo.tenant_id collate "C" and v.event_id = undo.event_id;
    if not found then
        perform memfold._fail('MF029', 'there is no such event', format('event_id was %s.', coalesce(undo.event_id::text, 'null')),
            'explain_memory() shows the events of a memory; set memfold.tenant_id to its tenant.');
    elsif e.method = 'rehash' then
        perform memfold._fail('MF032', 'the event cannot be undone', format('It belongs to the rehash %s.', e.run_id),
            'Texts that are one under the rules of now cannot be two: call rehash_bucket(tenant_id, bucket_id, undo_run_id => ...).');
    elsif not coalesce(
        e.action in ('merged', 'replaced', 'superseded', 'historical') and e.tier >= 2
        or e.action = 'rejected' and e.tier = 3
        or e.tier = 1 and e.observation, false
    ) then
        perform memfold._fail('MF032', 'the event cannot be undone',
            format('It is %s%s.', e.action, coalesce(', tier ' || e.tier, '')),
            'Folds, retirements, rejections of a memory and restatements can be; reject_memory() takes a memory itself away.');
    end if;
    v_sides := array_remove(array[e.memory_id, e.target_id], null);
    perform memfold._lock_memories(e.tenant_id, v_sides);
    insert into memfold.memory_events as u (tenant_id, bucket_id, action, memory_id, target_id, reason, undoes, actor)
    values (e.tenant_id, e.bucket_id, 'undone', e.memory_id, e.target_id, undo.reason, e.event_id, memfold._actor())
    on conflict (tenant_id, undoes) where undoes is not null do nothing
    returning u.event_id into v_undo_id;
    if v_undo_id is null then
        perform memfold._fail('MF033', 'the event is undone already', format('event_id was %s.', e.event_id),
            'explain_memory() marks what is undone.');
    end if;
    perform memfold.derive_scope(e.tenant_id, v_sides);
    perform memfold._settle(e.tenant_id, v_sides);

    if e.action in ('superseded', 'historical') and e.tier >= 2 or e.action in ('merged', 'replaced') and e.tier >= 2 and e.on_timeline
    then
        -- which of the two holds is a person's to say
        perform memfold._queue_judgement(e.tenant_id, 'review', a.memory_id, b.memory_id, e.similarity, e.guard, true)
        from memfold._memory_root(e.tenant_id, e.memory_id, '{}') as a
        cross join memfold._memory_root(e.tenant_id, e.target_id, '{}') as b
        where a.memory_id <> b.memory_id and a.status = 'active' and b.status = 'active';
    elsif e.action in ('merged', 'replaced') and e.tier >= 2 then
        -- so that nothing folds or asks it again
        insert into memfold.judgements (
            tenant_id, bucket_id, scope_key, kind, state, memory_id, other_id, similarity, guard, verdict, confidence, reason,
            resolved_at
        )
        select e.tenant_id, e.bucket_id, m.scope_key, 'review', 'done', greatest(e.memory_id, e.target_id),
            least(e.memory_id, e.target_id), e.similarity, e.guard, 'distinct', 1, concat_ws(': ', 'undone', undo.reason),
            clock_timestamp()
        from memfold.memories as m
        where m.tenant_id = e.tenant_id and m.memory_id = e.memory_id;
    end if;
    return query
    select v_undo_id, m.memory_id, m.status::text, m.content::text
    from memfold.memories as m
    where m.tenant_id = e.tenant_id and m.memory_id = any(v_sides)
    order by m.memory_id;
end;
$$;
revoke all on function memfold.undo(uuid, text, text) from public;
grant execute on function memfold.undo(uuid, text, text) to memfold_app;
comment on function memfold.undo(uuid, text, text) is
'Takes back one event of the ledger, whoever made it, in any order: a fold (both texts are memories of their own again, with
every observation that arrived by them), a supersession (both are active, and a person is asked), a rejection, or one
restatement (tier 1: the observation no longer counts). Returns the memories of the event as they are now. Nothing is
deleted: an undone row follows in the ledger. Raises MF029 (no such event), MF032 (it cannot be undone), MF033 (it is).';
