create or replace function memfold_internal._no_judgement(judgement_id uuid) returns void
language plpgsql volatile parallel safe
as $$
begin
    perform memfold_internal._fail('MF026', 'there is no such judgement',
        pg_catalog.format('judgement_id was %s.', coalesce(judgement_id::text, 'null')),
        'open_judgements lists those that wait; set memfold.tenant_id to their tenant.');
end;
$$;
revoke all on function memfold_internal._no_judgement(uuid) from public;
comment on function memfold_internal._no_judgement(uuid) is 'Raises MF026.';

create or replace function memfold_internal._check_usage(input_tokens bigint, output_tokens bigint, cost double precision) returns void
language plpgsql immutable parallel safe
as $$
begin
    if not coalesce(input_tokens between 0 and 1e12, true) or not coalesce(output_tokens between 0 and 1e12, true)
        or not coalesce(cost between 0 and 1e12, true)
    then
        perform memfold_internal._fail('MF028', 'the cost of a call is out of range',
            pg_catalog.format('input_tokens was %s, output_tokens %s, cost %s.', coalesce(input_tokens::text, 'null'),
                coalesce(output_tokens::text, 'null'), coalesce(cost::text, 'null')),
            'Pass what the endpoint counted, 0 to 1e12, or nothing.');
    end if;
end;
$$;
revoke all on function memfold_internal._check_usage(bigint, bigint, double precision) from public;
comment on function memfold_internal._check_usage(bigint, bigint, double precision) is
'Raises MF028 unless tokens and cost are 0 to 1e12: what they add up to has to be a number as well.';
