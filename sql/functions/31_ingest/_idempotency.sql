create or replace function memfold_internal._key_differs(e memfold.memory_events, c memfold.memory_events) returns text
language plpgsql immutable parallel safe
as $$
begin
    -- erased: there is nothing left to compare
    if e.content is null then
        return null;
    end if;
    return nullif(pg_catalog.concat_ws(', ',
        case when c.content is distinct from e.content then 'content' end,
        case when c.memory_type is distinct from e.memory_type then 'memory_type' end,
        case when c.subject is distinct from e.subject then 'subject' end,
        case when c.predicate is distinct from e.predicate then 'predicate' end,
        case when c.object is distinct from e.object then 'object' end,
        case when coalesce(c.metadata, '{}') is distinct from coalesce(e.metadata, '{}') then 'metadata' end
    ), '');
end;
$$;
comment on function memfold_internal._key_differs is
'The list of fields in which two candidates with one idempotency key differ; null: they are the same. Fields about the circumstances may
differ in a retry: vector, time, session, origin, turns, confidences.';

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
comment on function memfold_internal._as_event is 'The fields of a candidate that _key_differs() compares.';

create or replace function memfold_internal._check_same_candidate(
    tenant_id text, idempotency_key text, event_id uuid, content text, memory_type text, subject text, predicate text, object text,
    metadata jsonb
) returns void
language plpgsql stable
as $$
declare
    c memfold_internal.candidate;
    v_differs text;
begin
    c.content := content;
    c.memory_type := memory_type;
    c.told_subject := subject;
    c.told_predicate := predicate;
    c.object := object;
    c.metadata := metadata;
    v_differs := memfold_internal._key_differs(memfold_internal._event(tenant_id, event_id), memfold_internal._as_event(c));
    if v_differs is not null then
        perform memfold_internal._fail_key(idempotency_key, pg_catalog.format('event %s', event_id), v_differs);
    end if;
end;
$$;
comment on function memfold_internal._check_same_candidate is
'Raises MF062 if the candidate differs from the one whose call used the key and wrote the event.';

create or replace function memfold_internal._fail_key(idempotency_key text, used_by text, differs text) returns void
language plpgsql stable
as $$
begin
    perform memfold_internal._fail('MF062', 'the idempotency key was used for another candidate',
        pg_catalog.format('Key %L was used by %s; they differ in: %s.', idempotency_key, used_by, differs),
        'Use a new key for each candidate; a retry must pass the arguments of the first call.');
end;
$$;
comment on function memfold_internal._fail_key is 'Raises MF062.';
