-- The candidates of a batch that _check_repeats() would refuse, one by one and in order, with how often their session
-- has stated the text, and the limit (most).
create or replace function memfold_internal._check_batch_repeats(b memfold_internal.batch)
returns table (place bigint, repeats bigint, most bigint)
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_matched constant uuid[] := b.matched;
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
begin
    return query
    with counted as (
        select c.ordinality as i, c.bucket_id, c.content_hash, c.session_id, v_matched[c.ordinality] as memory_id,
            (v_policies[v_policy_of[c.ordinality]]).max_session_repeats as most,
            count(*) over (w rows between unbounded preceding and 1 preceding) as rows_before,
            count(*) filter (where c.origin <> 'recalled') over (
                partition by c.bucket_id, c.content_hash, c.session_id order by c.ordinality
                rows between unbounded preceding and 1 preceding) as repeats_before,
            c.origin
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] in ('hit', 'new', 'repeat', 'rest') and c.content_hash is not null
        window w as (partition by c.bucket_id, c.content_hash order by c.ordinality)
    )
    select x.i, x.repeats, x.most
    from (
        select c.i, c.most, c.session_id, c.repeats_before + case when c.memory_id is null then 0 else
            memfold_internal._session_repeats(b.tenant_id, c.memory_id, c.session_id, 10 * c.most - c.rows_before)
            end as repeats
        from counted as c
        where c.most is not null and c.session_id is not null and c.origin <> 'recalled'
        offset 0
    ) as x
    where x.repeats >= x.most
    order by x.i;
end;
$$;

-- Refuses a candidate of a batch whose session repeats itself: raises MF055, or returns it as the candidate's error and
-- deletes its key.
create or replace function memfold_internal._refuse_repeats(
    p_ordinal bigint, c memfold_internal.candidate, p_idempotency_key text, p_repeats bigint, p_max_session_repeats bigint, p_on_error text
) returns memfold.batch_result
language plpgsql volatile
as $$
declare
    v_message text;
    v_detail text;
    v_hint text;
begin
    begin
        perform memfold_internal._fail_repeats(c.session_id, p_repeats, p_max_session_repeats);
    exception when sqlstate 'MF055' then
        get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
    end;
    if p_on_error = 'abort' then
        perform memfold_internal._fail('MF055', v_message, format('Candidate %s: %s', p_ordinal, v_detail), v_hint);
    end if;
    -- Treat it as if it had never arrived.
    delete from memfold.idempotency_keys as i
    where i.tenant_id = c.tenant_id and i.bucket_id = c.bucket_id
        and i.idempotency_key = p_idempotency_key collate "C" and i.event_id is null;
    return memfold_internal._batch_error(p_ordinal, 'MF055', v_message, v_detail, v_hint);
end;
$$;

-- Refuses the candidates of a batch whose session repeats itself (MF055), and those with the same keys; raises the error
-- if p_on_error is abort.
create or replace function memfold_internal._limit_repeats(b memfold_internal.batch, p_on_error text) returns memfold_internal.batch
language plpgsql volatile
as $$
declare
    v_items constant memfold_internal.candidate[] := b.items;
    v_keys constant text[] := b.idempotency_keys;
    v_classes text[] := b.classes;
    v_policies memfold.policies[] := b.policies;
    v_repeated record;
begin
    for v_repeated in select r.place, r.repeats, r.most from memfold_internal._check_batch_repeats(b) as r loop
        for v_i in 1..cardinality(v_items) loop
            -- the candidates with the same key
            if v_i = v_repeated.place or v_classes[v_i] = 'again' and b.first_of_key[v_i] = v_repeated.place then
                b.errors := b.errors || memfold_internal._refuse_repeats(b.ordinals[v_i], v_items[v_repeated.place],
                    v_keys[v_i], v_repeated.repeats, v_repeated.most, p_on_error);
                v_classes[v_i] := 'error';
            end if;
        end loop;
    end loop;
    -- Candidates that are decided one by one are not counted a second time.
    for v_i in 1..cardinality(v_policies) loop
        v_policies[v_i].max_session_repeats := null;
    end loop;
    b.classes := v_classes;
    b.policies := v_policies;
    return b;
end;
$$;
