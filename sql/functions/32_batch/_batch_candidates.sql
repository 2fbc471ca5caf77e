create or replace function memfold_internal._batch_candidates(
    tenant_id text, batch memfold.staged_candidates[], policies memfold.policies[], failed memfold.batch_result[],
    out classes text[], out ordinals bigint[], out idempotency_keys text[], out policy_of integer[],
    out items memfold_internal.candidate[], out errors memfold.batch_result[]
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_sound boolean[];
    c memfold_internal.candidate;
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    errors := coalesce(failed, '{}');
    -- No aggregate here may have an order of its own: the others would get their rows in that one.
    select array_agg(case when x.sound then 'todo' else 'error' end), array_agg(x.ordinal), array_agg(x.idempotency_key),
        array_agg(x.rule), array_agg(x.sound),
        array_agg(row(
            v_tenant_id, x.bucket_id, x.memory_type, x.content, x.subject, x.predicate, x.object, memfold_internal._unit(x.embedding),
            x.embedding_model, x.source_turn_ids, x.source_confidence, x.extractor_confidence, x.session_id, x.origin,
            x.metadata, x.observed_at,
            case
                when not x.sound or x.canonical is null then null
                when (policies[x.rule]).key_fields = 'type,subject,predicate'
                    and (policies[x.rule]).metadata_keys = '{}'
                    then memfold_internal._full_hash(x.memory_type, x.subject, x.predicate, x.canonical)
                else memfold_internal._content_hash(x.memory_type, x.subject, x.predicate, x.content,
                    (policies[x.rule]).canonicalizer, (policies[x.rule]).key_fields, x.signature)
            end,
            null, x.signature, null, null, null, null, null
        )::memfold_internal.candidate)
    into classes, ordinals, idempotency_keys, policy_of, v_sound, items
    from (
        select z.*,
            memfold_internal._is_valid_candidate(
                z.content, z.bucket_id, z.memory_type, z.subject, z.predicate, z.object, z.source_turn_ids,
                z.source_confidence, z.extractor_confidence, z.session_id, z.origin, z.metadata, z.observed_at,
                z.idempotency_key, (policies[z.rule]).max_content_length, (policies[z.rule]).max_metadata_size)
            and z.canonical is distinct from ''
            and (z.embedding is null and z.embedding_model is null
                or coalesce(memfold_internal._fits_model(z.embedding, m.dimensions, m.replaced_by), false))
            as sound,
            case when (policies[z.rule]).metadata_keys <> '{}'
                then memfold_internal._metadata_signature(z.metadata, (policies[z.rule]).metadata_keys) end as signature
        from (
            select y.*, memfold_internal._canonical(y.content, (policies[y.rule]).canonicalizer) as canonical
            from (
                select r.ordinality as i, r.ordinal, r.content, coalesce(r.bucket_id, 'default') as bucket_id,
                    coalesce(r.memory_type, 'fact') as memory_type, r.subject, r.predicate, r.object,
                    r.embedding, r.embedding_model, coalesce(r.source_turn_ids, '{}') as source_turn_ids,
                    coalesce(r.source_confidence, 0.5) as source_confidence,
                    coalesce(r.extractor_confidence, 0.5) as extractor_confidence, r.session_id,
                    coalesce(r.origin, 'observed') as origin, coalesce(r.metadata, '{}') as metadata,
                    r.observed_at, r.idempotency_key,
                    dense_rank() over (order by coalesce(r.bucket_id, 'default'), coalesce(r.memory_type, 'fact'))::integer
                        as rule
                from unnest(batch) with ordinality as r
            ) as y
            offset 0
        ) as z
        left join memfold.embedding_models as m on m.model = z.embedding_model
        order by z.i
        offset 0
    ) as x;
    for v_i in 1..coalesce(cardinality(items), 0) loop
        continue when v_sound[v_i];
        begin
            c := items[v_i];
            if idempotency_keys[v_i] is not null then
                perform memfold_internal._check_identifier('bucket_id', c.bucket_id, true);
                perform memfold_internal._check_identifier('idempotency_key', idempotency_keys[v_i], true);
            end if;
            c := memfold_internal._candidate(c.content, v_tenant_id, c.bucket_id, c.memory_type, c.subject, c.predicate, c.object,
                (batch[v_i]).embedding, c.embedding_model, c.source_turn_ids, c.source_confidence, c.extractor_confidence,
                c.session_id, c.origin, c.metadata, c.observed_at);
            c.policy := null;
            items[v_i] := c;
            classes[v_i] := 'todo';
        exception when others then
            get stacked diagnostics v_code = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
                v_hint = pg_exception_hint;
            errors := errors || memfold_internal._batch_error(ordinals[v_i], v_code, v_message, v_detail, v_hint);
        end;
    end loop;
end;
$$;
revoke all on function memfold_internal._batch_candidates(
    text, memfold.staged_candidates[], memfold.policies[], memfold.batch_result[]
) from public;
comment on function memfold_internal._batch_candidates(
    text, memfold.staged_candidates[], memfold.policies[], memfold.batch_result[]
) is
'The candidates of a batch, validated and hashed, by place in it: class todo, or error with a row of errors. policies: one for each
bucket and type of the batch, in that order; policy_of: its place. Set-based for those that are valid, one by one for the error of the others.';

create or replace function memfold_internal._batch_keys(
    tenant_id text, items memfold_internal.candidate[], ordinals bigint[], idempotency_keys text[],
    inout classes text[], inout errors memfold.batch_result[], out first_of_key integer[], out known uuid[]
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_made_buckets text[];
    v_made_keys text[];
    v_event_id uuid;
    v_differs text;
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    -- the first candidate with the key, where this call makes it
    select array_agg(case
        when octet_length(k.key) between 1 and 512 and octet_length(k.bucket_id) between 1 and 512 then k.first
    end order by k.i)
    into first_of_key
    from (
        select k.*, min(k.i) filter (where k.class = 'todo') over (partition by k.bucket_id, k.key) as first
        from (
            select k.i, (items[k.i]).bucket_id as bucket_id, k.key, k.class
            from unnest(idempotency_keys, classes) with ordinality as k (key, class, i)
        ) as k
    ) as k;
    with made as (
        insert into memfold.idempotency_keys as n (tenant_id, bucket_id, idempotency_key)
        select v_tenant_id, (items[f.i]).bucket_id, idempotency_keys[f.i]
        from unnest(first_of_key) with ordinality as f (first, i)
        where f.first = f.i
        order by 2, 3
        on conflict do nothing
        returning n.bucket_id, n.idempotency_key
    )
    select array_agg(n.bucket_id), array_agg(n.idempotency_key) into v_made_buckets, v_made_keys from made as n;
    select array_agg(case when n.key is not null then f.first end order by f.i) into first_of_key
    from unnest(first_of_key) with ordinality as f (first, i)
    left join unnest(v_made_buckets, v_made_keys) as n (bucket_id, key)
        on n.bucket_id = (items[f.i]).bucket_id and n.key = idempotency_keys[f.i];
    for v_i in 1..cardinality(items) loop
        v_event_id := null;
        if first_of_key[v_i] < v_i then
            classes[v_i] := 'again';
        elsif first_of_key[v_i] is null and idempotency_keys[v_i] is not null then
            -- an error if it is one, for a key that another call has used is answered first
            select i.event_id into v_event_id from memfold.idempotency_keys as i
            where i.tenant_id = v_tenant_id and i.bucket_id = (items[v_i]).bucket_id and i.idempotency_key = idempotency_keys[v_i];
            if v_event_id is not null then
                known[v_i] := v_event_id;
                classes[v_i] := 'known';
            elsif classes[v_i] = 'todo' then
                perform memfold_internal._retry('an idempotency key has expired',
                    'It was there when this call began, and maintenance has removed it since.');
            end if;
        end if;
        continue when classes[v_i] not in ('again', 'known');
        -- the same candidate, or an error of its own
        v_differs := memfold_internal._key_differs(
            case when v_event_id is null then memfold_internal._as_event(items[first_of_key[v_i]])
                else memfold_internal._event(v_tenant_id, v_event_id) end,
            memfold_internal._as_event(items[v_i]));
        if v_differs is not null then
            classes[v_i] := 'error';
            errors := array(select x from unnest(errors) as x where x.ordinal <> ordinals[v_i]);
            begin
                perform memfold_internal._fail_key(idempotency_keys[v_i], case when v_event_id is null
                    then format('candidate %s of the batch', ordinals[first_of_key[v_i]])
                    else format('event %s', v_event_id) end, v_differs);
            exception when sqlstate 'MF062' then
                get stacked diagnostics v_code = returned_sqlstate, v_message = message_text,
                    v_detail = pg_exception_detail, v_hint = pg_exception_hint;
                errors := errors || memfold_internal._batch_error(ordinals[v_i], v_code, v_message, v_detail, v_hint);
            end;
        end if;
    end loop;
end;
$$;
revoke all on function memfold_internal._batch_keys(
    text, memfold_internal.candidate[], bigint[], text[], text[], memfold.batch_result[]
) from public;
comment on function memfold_internal._batch_keys(
    text, memfold_internal.candidate[], bigint[], text[], text[], memfold.batch_result[]
) is
'Takes the idempotency keys of a batch, before any lock. first_of_key: for each candidate whose key this call makes, the place of
the first with that key; known: the ledger row of a key that another call has made. Classes known and again, or error (MF062) where the candidate is another.';

create or replace function memfold_internal._fail_batch(e memfold.batch_result) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._fail(e.sqlstate, e.error,
        'Candidate ' || e.ordinal || coalesce(': ' || e.detail, ' of the batch.'), coalesce(e.hint, 'Nothing was written.'));
end;
$$;
revoke all on function memfold_internal._fail_batch(memfold.batch_result) from public;
comment on function memfold_internal._fail_batch(memfold.batch_result) is 'Raises the error of a candidate for the batch that it is in.';
