create or replace function memfold_internal._fail(code text, message text, detail text, hint text) returns void
language plpgsql volatile parallel safe
as $$
begin
    raise exception using errcode = code, message = message, detail = detail, hint = hint;
end;
$$;
comment on function memfold_internal._fail is 'Raises an error of memfold: SQLSTATE MFxxx (docs/errors.md), with DETAIL and HINT.';

create or replace function memfold_internal._retry(message text, detail text) returns void
language plpgsql volatile
as $$
begin
    raise exception '%', message using
        errcode = 'serialization_failure',
        detail = _retry.detail,
        hint = 'Retry the call, with the same idempotency_key if it has one.';
end;
$$;
comment on function memfold_internal._retry is 'Raises 40001: the transaction would succeed if it were run again.';
