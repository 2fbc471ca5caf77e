create or replace function memfold._session_repeats(tenant_id text, memory_id uuid, session_id text, newest bigint) returns bigint
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return (
        select pg_catalog.count(*)
        from (
            select e.event_id, e.observation, e.session_id
            from memfold.memory_events as e
            where e.tenant_id = _session_repeats.tenant_id collate "C" and e.memory_id = _session_repeats.memory_id
            order by e.event_id desc
            limit greatest(newest, 0)
        ) as n
        where n.observation and n.session_id = _session_repeats.session_id collate "C" and not exists (
            select from memfold.memory_events as u
            where u.tenant_id = _session_repeats.tenant_id collate "C" and u.undoes = n.event_id
        )
    );
end;
$$;
revoke all on function memfold._session_repeats(text, uuid, text, bigint) from public;
comment on function memfold._session_repeats(text, uuid, text, bigint) is
'How often a session has stated a text, among the newest ledger rows of the text. Only reads.';

create or replace function memfold._fail_repeats(session_id text, repeats bigint, max_session_repeats bigint) returns void
language plpgsql stable
as $$
begin
    perform memfold._fail('MF055', 'the session repeats itself',
        pg_catalog.format('Session %L has stated this fact %s times; this bucket accepts %s.', session_id, repeats, max_session_repeats),
        'A loop upstream? What an agent was shown from memory is origin => ''recalled''; undo() takes restatements back; '
        'set_policy(max_session_repeats => ...) raises the limit.');
end;
$$;
revoke all on function memfold._fail_repeats(text, bigint, bigint) from public;
comment on function memfold._fail_repeats(text, bigint, bigint) is 'Raises MF055.';

create or replace function memfold._check_repeats(c memfold.candidate, memory_id uuid) returns void
language plpgsql stable
as $$
declare
    v_limit constant bigint := (c.policy).max_session_repeats;
    v_repeats bigint;
begin
    if v_limit is null or c.session_id is null or c.origin = 'recalled' then
        return;
    end if;
    v_repeats := memfold._session_repeats(c.tenant_id, memory_id, c.session_id, 10 * v_limit);
    if v_repeats >= v_limit then
        perform memfold._fail_repeats(c.session_id, v_repeats, v_limit);
    end if;
end;
$$;
revoke all on function memfold._check_repeats(memfold.candidate, uuid) from public;
comment on function memfold._check_repeats(memfold.candidate, uuid) is
'Raises MF055 where the session has stated the text as often as its policy accepts, among the newest rows of the text (ten times
the limit). Only reads.';

create or replace function memfold._check_batch_repeats(
    tenant_id text, items memfold.candidate[], classes text[], matched uuid[], limits bigint[]
) returns table (place bigint, repeats bigint)
language plpgsql stable
as $$
#variable_conflict use_column
begin
    return query
    with counted as (
        select c.ordinality as i, c.bucket_id, c.content_hash, c.session_id, matched[c.ordinality] as memory_id,
            limits[c.ordinality] as most,
            pg_catalog.count(*) over (w rows between unbounded preceding and 1 preceding) as rows_before,
            pg_catalog.count(*) filter (where c.origin <> 'recalled') over (
                partition by c.bucket_id, c.content_hash, c.session_id order by c.ordinality
                rows between unbounded preceding and 1 preceding) as repeats_before,
            c.origin
        from unnest(items) with ordinality as c
        where classes[c.ordinality] in ('hit', 'new', 'repeat', 'rest') and c.content_hash is not null
        window w as (partition by c.bucket_id, c.content_hash order by c.ordinality)
    )
    select x.i, x.repeats
    from (
        select c.i, c.most, c.session_id, c.repeats_before + case when c.memory_id is null then 0 else
            memfold._session_repeats(_check_batch_repeats.tenant_id, c.memory_id, c.session_id, 10 * c.most - c.rows_before)
            end as repeats
        from counted as c
        where c.most is not null and c.session_id is not null and c.origin <> 'recalled'
        offset 0
    ) as x
    where x.repeats >= x.most
    order by x.i;
end;
$$;
revoke all on function memfold._check_batch_repeats(text, memfold.candidate[], text[], uuid[], bigint[]) from public;
comment on function memfold._check_batch_repeats(text, memfold.candidate[], text[], uuid[], bigint[]) is
'The candidates of a batch that _check_repeats() would refuse, one by one and in order, with how often their session has stated
the text. limits: max_session_repeats of each. Only reads.';

create or replace function memfold._refuse_repeats(
    ordinal bigint, c memfold.candidate, idempotency_key text, repeats bigint, max_session_repeats bigint, on_error text
) returns memfold.batch_result
language plpgsql volatile
as $$
declare
    v_message text;
    v_detail text;
    v_hint text;
begin
    begin
        perform memfold._fail_repeats(c.session_id, repeats, max_session_repeats);
    exception when sqlstate 'MF055' then
        get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    end;
    if on_error = 'abort' then
        perform memfold._fail('MF055', v_message, pg_catalog.format('Candidate %s: %s', ordinal, v_detail), v_hint);
    end if;
    -- as if it had never come
    delete from memfold.idempotency_keys as i
    where i.tenant_id = c.tenant_id collate "C" and i.bucket_id = c.bucket_id collate "C"
        and i.idempotency_key = _refuse_repeats.idempotency_key collate "C" and i.event_id is null;
    return memfold._batch_error(ordinal, 'MF055', v_message, v_detail, v_hint);
end;
$$;
revoke all on function memfold._refuse_repeats(bigint, memfold.candidate, text, bigint, bigint, text) from public;
comment on function memfold._refuse_repeats(bigint, memfold.candidate, text, bigint, bigint, text) is
'A candidate of a batch whose session repeats itself: raises MF055, or returns it as the candidate''s error and forgets its key.';
