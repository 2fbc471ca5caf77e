create or replace function memfold_internal._confidence(
    source_confidence double precision,
    extractor_confidence double precision,
    independent bigint,
    weight_source double precision,
    weight_extractor double precision,
    weight_repetition double precision
) returns double precision
language sql immutable parallel safe
return
-- values that would underflow, which is an error, count as 0
case when least(weight_source, source_confidence) < 1e-100 then 0 else weight_source * source_confidence end
+ case when least(weight_extractor, extractor_confidence) < 1e-100 then 0 else weight_extractor * extractor_confidence end
-- r(n) = 1 - 1 / (1 + ln(1 + n)), n = independent observations minus one
+ case
    when weight_repetition < 1e-100 then 0
    else weight_repetition * (1 - 1 / (1 + pg_catalog.ln(greatest(independent, 1)::double precision)))
end;
comment on function memfold_internal._confidence is
'Confidence in [0, 1] = w1 * source + w2 * extractor + w3 * r(n), r(n) = 1 - 1 / (1 + ln(1 + n)), where n is the number of independent
observations minus one: r(1) = 0.409, r(2) = 0.523, r(3) = 0.581, r(5) = 0.642.';

create or replace function memfold_internal._effective(
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
comment on function memfold_internal._effective is
'Confidence after decay: confidence * (1 - decay_rate) ^ days since last use, once decay_interval has passed without use; not below
decay_floor, nor raised to it. Inlined by callers whose arguments are columns.';
