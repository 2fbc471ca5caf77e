-- The confidence in a memory, in [0, 1]: w1 * source + w2 * extractor + w3 * r(n), with r(n) = 1 - 1 / (1 + ln(1 + n)) and
-- n = independent observations minus one. r(1) = 0.409, r(2) = 0.523, r(3) = 0.581, r(5) = 0.642.
create or replace function memfold_internal._confidence(
    p_source_confidence double precision,
    p_extractor_confidence double precision,
    p_independent bigint,
    p_weight_source double precision,
    p_weight_extractor double precision,
    p_weight_repetition double precision
) returns double precision
language sql immutable parallel safe
return
-- smaller factors count as 0, because a product that underflows is an error
case when least(p_weight_source, p_source_confidence) < 1e-100 then 0 else p_weight_source * p_source_confidence end
+ case when least(p_weight_extractor, p_extractor_confidence) < 1e-100 then 0 else p_weight_extractor * p_extractor_confidence end
+ case
    when p_weight_repetition < 1e-100 then 0
    else p_weight_repetition * (1 - 1 / (1 + pg_catalog.ln(greatest(p_independent, 1)::double precision)))
end;

-- The confidence after decay: p_confidence * (1 - p_decay_rate) ^ days since the last use, once p_decay_interval has
-- passed without use. Never below p_decay_floor, and never raised to it. Inlined where the arguments are columns.
create or replace function memfold_internal._effective(
    p_confidence double precision,
    p_last_used timestamptz,
    p_at timestamptz,
    p_decay_rate double precision,
    p_decay_floor double precision,
    p_decay_interval interval
) returns double precision
language sql stable parallel safe
return case
    when p_decay_rate > 0 and p_confidence > p_decay_floor and p_last_used + p_decay_interval < p_at
        -- bounded, because underflow is an error, and date_part() of infinity is infinite
        then greatest(p_decay_floor, least(p_confidence, greatest(p_confidence, 1e-200) * pg_catalog.exp(greatest(
            least(1e6, (pg_catalog.date_part('epoch', p_at) - pg_catalog.date_part('epoch', p_last_used)) / 86400)
            * pg_catalog.ln(1 - p_decay_rate), -100
        ))))
    else p_confidence
end;
