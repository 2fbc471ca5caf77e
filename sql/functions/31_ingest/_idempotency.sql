-- The fields in which two candidates with one idempotency key differ; null: in none. Vector, time, session, origin, turns
-- and confidences may differ in a retry.
create or replace function memfold_internal._key_differs(e memfold.memory_events, c memfold.memory_events) returns text
language plpgsql immutable parallel safe
as $$
begin
    -- After an erasure there is nothing to compare.
    if e.content is null then
        return null;
    end if;
    return nullif(concat_ws(', ',
        case when c.content is distinct from e.content then 'content' end,
        case when c.memory_type is distinct from e.memory_type then 'memory_type' end,
        case when c.subject is distinct from e.subject then 'subject' end,
        case when c.predicate is distinct from e.predicate then 'predicate' end,
        case when c.object is distinct from e.object then 'object' end,
        case when coalesce(c.metadata, '{}') is distinct from coalesce(e.metadata, '{}') then 'metadata' end
    ), '');
end;
$$;

-- The fields of a candidate that _key_differs() compares.
create or replace function memfold_internal._as_event(c memfold_internal.candidate) returns memfold.memory_events
language plpgsql immutable parallel safe
as $$
declare
    e memfold.memory_events;
begin
    e.content := c.content;
    e.memory_type := c.memory_type;
    e.subject := c.given_subject;
    e.predicate := c.given_predicate;
    e.object := c.object;
    e.metadata := c.metadata;
    return e;
end;
$$;

-- Raises MF062 if the candidate differs from the one whose call used the key and wrote the event.
create or replace function memfold_internal._check_same_candidate(c memfold_internal.candidate, p_event_id uuid) returns void
language plpgsql stable
as $$
declare
    v_differs constant text := memfold_internal._key_differs(memfold_internal._event(c.tenant_id, p_event_id),
        memfold_internal._as_event(c));
begin
    if v_differs is not null then
        perform memfold_internal._fail_key(c.idempotency_key, format('event %s', p_event_id), v_differs);
    end if;
end;
$$;

-- Raises MF062.
create or replace function memfold_internal._fail_key(p_idempotency_key text, p_used_by text, p_differs text) returns void
language plpgsql stable
as $$
begin
    perform memfold_internal._fail('MF062', 'the idempotency key was used for another candidate',
        format('Key %L was used by %s; they differ in: %s.', p_idempotency_key, p_used_by, p_differs),
        'Use a new key for each candidate; a retry must pass the arguments of the first call.');
end;
$$;
