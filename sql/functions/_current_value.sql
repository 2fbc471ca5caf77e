create or replace function memfold._current_value(tenant_id text, bucket_id text, scope_key bigint)
returns table (memory_id uuid, object text, last_seen timestamptz)
language plpgsql stable rows 1
as $$
begin
    return query
    select m.memory_id, memfold.canonicalize(m.object, 'prose/1'), k.last_seen
    from memfold.memories as m
    -- from the slot to its counters, whatever the statistics say: there may be none yet
    cross join lateral (
        select k.on_timeline, k.last_seen from memfold.memory_counters as k
        where k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        offset 0
    ) as k
    where m.tenant_id = _current_value.tenant_id collate "C"
        and m.bucket_id = _current_value.bucket_id collate "C"
        and m.scope_key = _current_value.scope_key
        and m.status = 'active'
        -- contested ones are active, but not the value of the slot
        and (k.on_timeline or not exists (
            select from memfold.memory_events as e
            cross join lateral (
                select from memfold.memory_events as u
                where u.tenant_id = e.tenant_id and u.undoes = e.event_id and u.tier is null
                offset 0
            ) as u
            where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id and e.tier >= 2 and e.on_timeline
        ) and not exists (
            select from memfold.memory_events as e
            cross join lateral (
                select from memfold.memory_events as u
                where u.tenant_id = e.tenant_id and u.undoes = e.event_id and u.tier is null
                offset 0
            ) as u
            where e.tenant_id = m.tenant_id and e.target_id = m.memory_id and e.tier >= 2 and e.on_timeline
        ))
    order by k.on_timeline desc, k.last_seen desc, m.memory_id desc
    limit 1;
end;
$$;
revoke all on function memfold._current_value(text, text, bigint) from public;
comment on function memfold._current_value(text, text, bigint) is
'The current value of a single-valued slot: its memory, canonical object and last observation. No row: there is none, or
only contested ones.';
