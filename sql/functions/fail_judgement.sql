create or replace function memfold.fail_judgement(
    judgement_id uuid,
    error text,
    worker text default null,
    counted boolean default true,
    retry_after interval default null,
    model text default null,
    input_tokens bigint default null,
    output_tokens bigint default null,
    cost double precision default null,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    j memfold.judgements;
begin
    perform memfold._enter_judge(tenant_id);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = fail_judgement.tenant_id collate "C" and o.judgement_id = fail_judgement.judgement_id
    for no key update;
    if not found then
        perform memfold._no_judgement(judgement_id);
    end if;
    perform memfold._check_usage(input_tokens, output_tokens, cost);
    -- what it has cost is spent, whoever holds it now
    update memfold.judgements as o
    set model = coalesce(fail_judgement.model, o.model),
        input_tokens = coalesce(o.input_tokens + fail_judgement.input_tokens, o.input_tokens, fail_judgement.input_tokens),
        output_tokens = coalesce(o.output_tokens + fail_judgement.output_tokens, o.output_tokens,
            fail_judgement.output_tokens),
        cost = coalesce(o.cost + fail_judgement.cost, o.cost, fail_judgement.cost)
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    if j.state <> 'leased' or coalesce(worker, j.worker) <> j.worker then
        return j.state;
    end if;
    if not counted then
        j.attempts := greatest(j.attempts - 1, 0);
    end if;
    j.state := case when j.attempts >= 8 then 'dead' else 'open' end;
    update memfold.judgements as o
    set state = j.state, attempts = j.attempts, last_error = left(error, 1000), worker = null, leased_until = null,
        -- 5 s, 10 s, 20 s and so on to one hour, a fifth more or less so that they do not all come back at once
        next_attempt_at = clock_timestamp() + coalesce(retry_after,
            least(interval '5 seconds' * 2 ^ greatest(j.attempts - 1, 0), interval '1 hour') * (0.8 + 0.4 * random()))
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    return j.state;
end;
$$;
revoke all on function memfold.fail_judgement(
    uuid, text, text, boolean, interval, text, bigint, bigint, double precision, text
) from public;
grant execute on function memfold.fail_judgement(
    uuid, text, text, boolean, interval, text, bigint, bigint, double precision, text
) to memfold_judge, memfold_app;
comment on function memfold.fail_judgement(
    uuid, text, text, boolean, interval, text, bigint, bigint, double precision, text
) is
'Gives a leased judgement back without an answer, and returns its state: open (it comes back after retry_after, else after
5 s, doubled with each attempt up to 1 h), dead (after the eighth attempt; see revive_judgements), or what it was where it
is not leased (or not to worker). counted => false: the attempt does not count, for it was not the pair''s fault.
error: the first 1,000 characters are kept. Tokens and cost are added to the judgement''s. Raises MF026, MF028.';

create or replace function memfold._no_judgement(judgement_id uuid) returns void
language plpgsql volatile parallel safe
as $$
begin
    perform memfold._fail('MF026', 'there is no such judgement',
        pg_catalog.format('judgement_id was %s.', coalesce(judgement_id::text, 'null')),
        'open_judgements lists those that wait; set memfold.tenant_id to their tenant.');
end;
$$;
revoke all on function memfold._no_judgement(uuid) from public;
comment on function memfold._no_judgement(uuid) is 'Raises MF026.';

create or replace function memfold._check_usage(input_tokens bigint, output_tokens bigint, cost double precision) returns void
language plpgsql immutable parallel safe
as $$
begin
    if input_tokens < 0 or output_tokens < 0 or not coalesce(cost >= 0 and cost < 'infinity', true) then
        perform memfold._fail('MF028', 'the cost of a call cannot be negative',
            pg_catalog.format('input_tokens was %s, output_tokens %s, cost %s.', coalesce(input_tokens::text, 'null'),
                coalesce(output_tokens::text, 'null'), coalesce(cost::text, 'null')),
            'Pass what the endpoint counted, or nothing.');
    end if;
end;
$$;
revoke all on function memfold._check_usage(bigint, bigint, double precision) from public;
comment on function memfold._check_usage(bigint, bigint, double precision) is 'Raises MF028 unless tokens and cost are nonnegative.';
