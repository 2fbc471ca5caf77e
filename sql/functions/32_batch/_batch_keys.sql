-- Stores the missing idempotency keys of a batch's valid candidates. Returns for each candidate whose key this call has
-- stored the position of the first with that key. A call with the same key waits here for the other to commit.
create or replace function memfold_internal._take_keys(b memfold_internal.batch) returns integer[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_items constant memfold_internal.candidate[] := b.items;
    v_keys constant text[] := b.idempotency_keys;
    v_first_of_key integer[];
    v_made_buckets text[];
    v_made_keys text[];
begin
    select array_agg(case
        when octet_length(k.key) between 1 and 512 and octet_length(k.bucket_id) between 1 and 512 then k.first
    end order by k.i)
    into v_first_of_key
    from (
        select k.*, min(k.i) filter (where k.class = 'todo') over (partition by k.bucket_id, k.key) as first
        from (
            select k.i, (v_items[k.i]).bucket_id as bucket_id, k.key, k.class
            from unnest(v_keys, b.classes) with ordinality as k (key, class, i)
        ) as k
    ) as k;
    with made as (
        insert into memfold.idempotency_keys as n (tenant_id, bucket_id, idempotency_key)
        select b.tenant_id, (v_items[f.i]).bucket_id, v_keys[f.i]
        from unnest(v_first_of_key) with ordinality as f (first, i)
        where f.first = f.i
        order by 2, 3
        on conflict do nothing
        returning n.bucket_id, n.idempotency_key
    )
    select array_agg(n.bucket_id), array_agg(n.idempotency_key) into v_made_buckets, v_made_keys from made as n;
    return (
        select array_agg(case when n.key is not null then f.first end order by f.i)
        from unnest(v_first_of_key) with ordinality as f (first, i)
        left join unnest(v_made_buckets, v_made_keys) as n (bucket_id, key)
            on n.bucket_id = (v_items[f.i]).bucket_id and n.key = v_keys[f.i]
    );
end;
$$;

-- MF062, as the error of a candidate of a batch.
create or replace function memfold_internal._key_error(
    p_idempotency_key text, p_ordinal bigint, p_used_by text, p_differs text
) returns memfold.batch_result
language plpgsql volatile
as $$
declare
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    perform memfold_internal._fail_key(p_idempotency_key, p_used_by, p_differs);
exception when sqlstate 'MF062' then
    get stacked diagnostics v_code = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
        v_hint = pg_exception_hint;
    return memfold_internal._batch_error(p_ordinal, v_code, v_message, v_detail, v_hint);
end;
$$;

-- Takes the idempotency keys of a batch, before any lock. first_of_key: for each candidate whose key this call stores,
-- the position of the first with that key; known: the ledger row of a key that another call has stored. Classes known
-- and again, or error (MF062) if the candidate differs.
create or replace function memfold_internal._batch_keys(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_items constant memfold_internal.candidate[] := b.items;
    v_keys constant text[] := b.idempotency_keys;
    v_classes text[] := b.classes;
    v_first_of_key constant integer[] := memfold_internal._take_keys(b);
    v_known uuid[];
    v_event_id uuid;
    v_differs text;
begin
    for v_i in 1..cardinality(v_items) loop
        v_event_id := null;
        if v_first_of_key[v_i] < v_i then
            v_classes[v_i] := 'again';
        elsif v_first_of_key[v_i] is null and v_keys[v_i] is not null then
            -- A key that another call has used is answered before its candidate is found invalid.
            select i.event_id into v_event_id from memfold.idempotency_keys as i
            where i.tenant_id = b.tenant_id and i.bucket_id = (v_items[v_i]).bucket_id and i.idempotency_key = v_keys[v_i];
            if v_event_id is not null then
                v_known[v_i] := v_event_id;
                v_classes[v_i] := 'known';
            elsif v_classes[v_i] = 'todo' then
                perform memfold_internal._retry('an idempotency key has expired',
                    'It existed when this call began, and maintenance has removed it since.');
            end if;
        end if;
        continue when v_classes[v_i] not in ('again', 'known');
        -- equal candidates share the result; a different one has its own error
        v_differs := memfold_internal._key_differs(
            case when v_event_id is null then memfold_internal._as_event(v_items[v_first_of_key[v_i]])
                else memfold_internal._event(b.tenant_id, v_event_id) end,
            memfold_internal._as_event(v_items[v_i]));
        if v_differs is not null then
            v_classes[v_i] := 'error';
            b.errors := array(select x from unnest(b.errors) as x where x.ordinal <> b.ordinals[v_i]);
            b.errors := b.errors || memfold_internal._key_error(v_keys[v_i], b.ordinals[v_i], case when v_event_id is null
                then format('candidate %s of the batch', b.ordinals[v_first_of_key[v_i]])
                else format('event %s', v_event_id) end, v_differs);
        end if;
    end loop;
    -- A candidate that is answered by its key is not refused.
    b.errors := array(
        select x from unnest(b.errors) as x
        where not exists (
            select from unnest(b.ordinals, v_classes) as o (ordinal, class) where o.ordinal = x.ordinal and o.class in ('known', 'again')
        )
    );
    b.classes := v_classes;
    b.first_of_key := v_first_of_key;
    b.known := v_known;
    return b;
end;
$$;

-- Records the ledger row of each key of a batch, and sets the results of candidates whose key was used, by another call
-- or by an earlier candidate.
create or replace function memfold_internal._answer_keys(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
declare
    v_classes constant text[] := b.classes;
    v_items constant memfold_internal.candidate[] := b.items;
    v_known constant uuid[] := b.known;
    v_results memfold.ingest_result[] := b.results;
begin
    perform memfold_internal._use_keys(b.tenant_id, array_agg((v_items[o.i]).bucket_id), array_agg(o.key),
        array_agg(o.event_id))
    from unnest(b.first_of_key, b.idempotency_keys, b.event_ids) with ordinality as o (first, key, event_id, i)
    where o.first = o.i;
    for v_i in 1..cardinality(v_items) loop
        if v_classes[v_i] in ('known', 'again') then
            v_results[v_i] := memfold_internal._event_result(b.tenant_id, coalesce(v_known[v_i], b.event_ids[b.first_of_key[v_i]]));
        end if;
    end loop;
    b.results := v_results;
    return b;
end;
$$;
