create or replace function memfold_internal._check_batch_repeats(
    tenant_id text, items memfold_internal.candidate[], classes text[], matched uuid[], limits bigint[]
) returns table (place bigint, repeats bigint)
language plpgsql stable
as $$
#variable_conflict use_column
begin
    return query
    with counted as (
        select c.ordinality as i, c.bucket_id, c.content_hash, c.session_id, matched[c.ordinality] as memory_id,
            limits[c.ordinality] as most,
            pg_catalog.count(*) over (w rows between unbounded preceding and 1 preceding) as rows_before,
            pg_catalog.count(*) filter (where c.origin <> 'recalled') over (
                partition by c.bucket_id, c.content_hash, c.session_id order by c.ordinality
                rows between unbounded preceding and 1 preceding) as repeats_before,
            c.origin
        from unnest(items) with ordinality as c
        where classes[c.ordinality] in ('hit', 'new', 'repeat', 'rest') and c.content_hash is not null
        window w as (partition by c.bucket_id, c.content_hash order by c.ordinality)
    )
    select x.i, x.repeats
    from (
        select c.i, c.most, c.session_id, c.repeats_before + case when c.memory_id is null then 0 else
            memfold_internal._session_repeats(_check_batch_repeats.tenant_id, c.memory_id, c.session_id, 10 * c.most - c.rows_before)
            end as repeats
        from counted as c
        where c.most is not null and c.session_id is not null and c.origin <> 'recalled'
        offset 0
    ) as x
    where x.repeats >= x.most
    order by x.i;
end;
$$;
revoke all on function memfold_internal._check_batch_repeats(text, memfold_internal.candidate[], text[], uuid[], bigint[]) from public;
comment on function memfold_internal._check_batch_repeats(text, memfold_internal.candidate[], text[], uuid[], bigint[]) is
'The candidates of a batch that _check_repeats() would refuse, one by one and in order, with how often their session has stated
the text. limits: max_session_repeats of each. Only reads.';

create or replace function memfold_internal._refuse_repeats(
    ordinal bigint, c memfold_internal.candidate, idempotency_key text, repeats bigint, max_session_repeats bigint, on_error text
) returns memfold.batch_result
language plpgsql volatile
as $$
declare
    v_message text;
    v_detail text;
    v_hint text;
begin
    begin
        perform memfold_internal._fail_repeats(c.session_id, repeats, max_session_repeats);
    exception when sqlstate 'MF055' then
        get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    end;
    if on_error = 'abort' then
        perform memfold_internal._fail('MF055', v_message, pg_catalog.format('Candidate %s: %s', ordinal, v_detail), v_hint);
    end if;
    -- as if it had never come
    delete from memfold.idempotency_keys as i
    where i.tenant_id = c.tenant_id collate "C" and i.bucket_id = c.bucket_id collate "C"
        and i.idempotency_key = _refuse_repeats.idempotency_key collate "C" and i.event_id is null;
    return memfold_internal._batch_error(ordinal, 'MF055', v_message, v_detail, v_hint);
end;
$$;
revoke all on function memfold_internal._refuse_repeats(bigint, memfold_internal.candidate, text, bigint, bigint, text) from public;
comment on function memfold_internal._refuse_repeats(bigint, memfold_internal.candidate, text, bigint, bigint, text) is
'A candidate of a batch whose session repeats itself: raises MF055, or returns it as the candidate''s error and forgets its key.';
