-- How many times a session has stated a text, among its p_newest newest ledger rows.
create or replace function memfold_internal._session_repeats(
    p_tenant_id text, p_memory_id uuid, p_session_id text, p_newest bigint
) returns bigint
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select count(*)
        from (
            select e.observation, e.session_id, e.withdrawn
            from memfold.ledger as e
            where e.tenant_id = p_tenant_id collate "C" and e.memory_id = p_memory_id
            order by e.event_id desc
            limit greatest(p_newest, 0)
        ) as n
        where n.observation and n.session_id = p_session_id collate "C" and not n.withdrawn
    );
end;
$$;

-- Raises MF055.
create or replace function memfold_internal._fail_repeats(p_session_id text, p_repeats bigint, p_max_session_repeats bigint) returns void
language plpgsql stable
as $$
begin
    perform memfold_internal._fail('MF055', 'the session repeats itself',
        format('Session %L has stated this fact %s times; this bucket accepts %s.', p_session_id, p_repeats,
            p_max_session_repeats),
        'If the caller is in a loop, fix it. Mark text that an agent was shown from memory as origin => ''recalled''; undo() undoes restatements; '
        'set_policy(max_session_repeats => ...) raises the limit.');
end;
$$;

-- Raises MF055 if the session has stated the text as often as its policy accepts, among the newest rows of the text (ten
-- times the limit).
create or replace function memfold_internal._check_repeats(c memfold_internal.candidate, p_memory_id uuid) returns void
language plpgsql stable
as $$
declare
    v_limit constant bigint := (c.policy).max_session_repeats;
    v_repeats bigint;
begin
    if v_limit is null or c.session_id is null or c.origin = 'recalled' then
        return;
    end if;
    v_repeats := memfold_internal._session_repeats(c.tenant_id, p_memory_id, c.session_id, 10 * v_limit);
    if v_repeats >= v_limit then
        perform memfold_internal._fail_repeats(c.session_id, v_repeats, v_limit);
    end if;
end;
$$;
