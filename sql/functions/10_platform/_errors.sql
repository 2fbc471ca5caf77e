-- Raises SQLSTATE p_code (MFxxx, docs/errors.md), with DETAIL and HINT.
create or replace function memfold_internal._fail(p_code text, p_message text, p_detail text, p_hint text) returns void
language plpgsql volatile parallel safe
as $$
begin
    raise exception using errcode = p_code, message = p_message, detail = p_detail, hint = p_hint;
end;
$$;

-- Raises 40001: the call will succeed when it is repeated.
create or replace function memfold_internal._retry(p_message text, p_detail text) returns void
language plpgsql volatile
as $$
begin
    raise exception '%', p_message using
        errcode = 'serialization_failure',
        detail = p_detail,
        hint = 'Retry the call, with the same idempotency_key if it has one.';
end;
$$;
