create or replace function memfold._effective(
    confidence double precision,
    last_used timestamptz,
    at timestamptz,
    decay_rate double precision,
    decay_floor double precision,
    decay_interval interval
) returns double precision
language sql stable parallel safe
return case
    when decay_rate > 0 and confidence > decay_floor and last_used + decay_interval < at
        -- bounded where a double would underflow, which is an error; date_part() of infinity is infinite
        then greatest(decay_floor, least(confidence, greatest(confidence, 1e-200) * pg_catalog.exp(greatest(
            least(1e6, (pg_catalog.date_part('epoch', at) - pg_catalog.date_part('epoch', last_used)) / 86400)
            * pg_catalog.ln(1 - decay_rate), -100
        ))))
    else confidence
end;
revoke all on function memfold._effective(
    double precision, timestamptz, timestamptz, double precision, double precision, interval
) from public;
comment on function memfold._effective(
    double precision, timestamptz, timestamptz, double precision, double precision, interval
) is
'Confidence after decay: confidence * (1 - decay_rate) ^ days since last use, once decay_interval has passed without use; not
below decay_floor, nor raised to it. Inlined by callers whose arguments are columns.';
