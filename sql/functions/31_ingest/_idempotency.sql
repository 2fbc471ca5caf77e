-- The list of fields in which two candidates with one idempotency key differ; null: they are the same. Fields about the
-- circumstances may differ in a retry: vector, time, session, origin, turns, confidences.
create or replace function memfold_internal._key_differs(e memfold.memory_events, c memfold.memory_events) returns text
language plpgsql immutable parallel safe
as $$
begin
    -- erased: there is nothing left to compare
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
    e.subject := c.told_subject;
    e.predicate := c.told_predicate;
    e.object := c.object;
    e.metadata := c.metadata;
    return e;
end;
$$;

-- Raises MF062 if the candidate differs from the one whose call used the key and wrote the event.
create or replace function memfold_internal._check_same_candidate(
    p_tenant_id text, p_idempotency_key text, p_event_id uuid, p_content text, p_memory_type text, p_subject text, p_predicate text,
    p_object text,
    p_metadata jsonb
) returns void
language plpgsql stable
as $$
declare
    c memfold_internal.candidate;
    v_differs text;
begin
    c.content := p_content;
    c.memory_type := p_memory_type;
    c.told_subject := p_subject;
    c.told_predicate := p_predicate;
    c.object := p_object;
    c.metadata := p_metadata;
    v_differs := memfold_internal._key_differs(memfold_internal._event(p_tenant_id, p_event_id), memfold_internal._as_event(c));
    if v_differs is not null then
        perform memfold_internal._fail_key(p_idempotency_key, format('event %s', p_event_id), v_differs);
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
