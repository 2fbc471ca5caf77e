-- Sets the policy of each bucket and type that the candidates name (buckets, types, policies), and which one applies to
-- each (policy_of).
create or replace function memfold_internal._batch_policies(
    b memfold_internal.batch, p_elements memfold_internal.batch_candidate[]
) returns memfold_internal.batch
language plpgsql stable
as $$
declare
    v_policies memfold.policies[];
    v_policy memfold.policies;
begin
    select array_agg(p.policy order by p.bucket_id, p.memory_type),
        array_agg(p.bucket_id order by p.bucket_id, p.memory_type),
        array_agg(p.memory_type order by p.bucket_id, p.memory_type)
    into v_policies, b.buckets, b.types
    from (
        select t.bucket_id, t.memory_type, memfold_internal._policy(b.tenant_id, t.bucket_id, t.memory_type) as policy
        from (
            select distinct coalesce(e.bucket_id, 'default') as bucket_id, coalesce(e.memory_type, 'fact') as memory_type
            from unnest(p_elements) as e
        ) as t
    ) as p;
    for v_i in 1..cardinality(v_policies) loop
        v_policy := v_policies[v_i];
        if v_policy.dedup = 'off' then
            v_policy.canonicalizer := null;
            v_policies[v_i] := v_policy;
        end if;
    end loop;
    b.policies := v_policies;
    if cardinality(v_policies) = 1 then
        b.policy_of := array_fill(1, array[cardinality(p_elements)]);
    else
        select array_agg(p.place order by p.i) into b.policy_of
        from (
            select e.ordinality as i,
                dense_rank() over (order by coalesce(e.bucket_id, 'default'), coalesce(e.memory_type, 'fact'))::integer as place
            from unnest(p_elements) with ordinality as e
        ) as p;
    end if;
    return b;
end;
$$;

-- Validates and hashes the candidates of a batch together (items, idempotency_keys, and embeddings as unit vectors).
-- Class todo, or error if a candidate is not certainly valid: _doubtful_candidates() must follow.
create or replace function memfold_internal._batch_candidates(
    b memfold_internal.batch, p_elements memfold_internal.batch_candidate[]
) returns memfold_internal.batch
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
    v_embeddings constant memfold_internal.batch.embeddings%type := b.embeddings;
    v_has_links constant boolean := memfold_internal._has_links(b.tenant_id);
begin
    -- No aggregate here may have its own ORDER BY: the others would get their rows in that order.
    select array_agg(case when x.sound then 'todo' else 'error' end), array_agg(x.idempotency_key),
        array_agg(row(
            b.tenant_id, x.bucket_id, x.memory_type, x.content, x.subject, x.predicate, x.object, null,
            x.embedding_model, x.source_turn_ids, x.source_confidence, x.extractor_confidence, x.session_id, x.origin,
            x.metadata, x.observed_at,
            case
                when not x.sound or x.canonical is null then null
                when (v_policies[x.rule]).key_fields = 'type,subject,predicate' and x.signature is null
                    then memfold_internal._full_hash(x.memory_type, x.subject, x.predicate, x.canonical)
                else memfold_internal._content_hash(x.memory_type, x.subject, x.predicate, x.content,
                    (v_policies[x.rule]).canonicalizer, (v_policies[x.rule]).key_fields, x.signature)
            end,
            null, x.signature, null, null, null, null, null, x.subject, x.predicate, x.valid_from, x.valid_until
        )::memfold_internal.candidate),
        case when v_embeddings is not null then array_agg(memfold_internal._unit(x.embedding)) end
    into b.classes, b.idempotency_keys, b.items, b.embeddings
    from (
        select z.*,
            memfold_internal._is_valid_candidate(
                z.content, z.bucket_id, z.memory_type, z.subject, z.predicate, z.object, z.source_turn_ids,
                z.source_confidence, z.extractor_confidence, z.session_id, z.origin, z.metadata, z.observed_at,
                z.idempotency_key, (v_policies[z.rule]).max_content_length, (v_policies[z.rule]).max_metadata_size)
            and z.canonical is distinct from ''
            and num_nonnulls(z.valid_from, z.valid_until) = 0
            and not (v_has_links and memfold_internal._is_linked(b.tenant_id, z.bucket_id, z.subject, z.predicate, z.content))
            and case when z.embedding is null and z.embedding_model is null then true else coalesce((
                select memfold_internal._fits_model(z.embedding, m.dimensions, m.replaced_by)
                from memfold.embedding_models as m where m.model = z.embedding_model
            ), false) end as sound,
            case when (v_policies[z.rule]).metadata_keys <> '{}'
                then memfold_internal._metadata_signature(z.metadata, (v_policies[z.rule]).metadata_keys) end as signature
        from (
            select y.*, memfold_internal._canonical(y.content, (v_policies[y.rule]).canonicalizer) as canonical
            from (
                select e.ordinality as i, e.content, coalesce(e.bucket_id, 'default') as bucket_id,
                    coalesce(e.memory_type, 'fact') as memory_type, e.subject, e.predicate, e.object,
                    v_embeddings[e.ordinality] as embedding, e.embedding_model,
                    coalesce(e.source_turn_ids, '{}') as source_turn_ids,
                    coalesce(e.source_confidence, 0.5) as source_confidence,
                    coalesce(e.extractor_confidence, 0.5) as extractor_confidence, e.session_id,
                    coalesce(e.origin, 'observed') as origin, coalesce(e.metadata, '{}') as metadata,
                    e.observed_at, e.valid_from, e.valid_until, e.idempotency_key, v_policy_of[e.ordinality] as rule
                from unnest(p_elements) with ordinality as e
                order by e.ordinality
            ) as y
            offset 0
        ) as z
        order by z.i
        offset 0
    ) as x;
    return b;
end;
$$;

-- Checks one by one the candidates that _batch_candidates() is not sure of: class todo after all, or a row of errors.
-- p_given: their original embeddings.
create or replace function memfold_internal._doubtful_candidates(b memfold_internal.batch, p_given vector[]) returns memfold_internal.batch
language plpgsql stable
as $$
declare
    -- changed as variables: changing a field of b would copy the array each time
    v_items memfold_internal.candidate[] := b.items;
    v_classes text[] := b.classes;
    v_keys constant text[] := b.idempotency_keys;
    c memfold_internal.candidate;
    v_code text;
    v_message text;
    v_detail text;
    v_hint text;
begin
    for v_i in 1..cardinality(v_items) loop
        continue when v_classes[v_i] = 'todo';
        begin
            c := v_items[v_i];
            if v_keys[v_i] is not null then
                perform memfold_internal._check_identifier('bucket_id', c.bucket_id, true);
                perform memfold_internal._check_identifier('idempotency_key', v_keys[v_i], true);
            end if;
            c := memfold_internal._candidate(c.content, b.tenant_id, c.bucket_id, c.memory_type, c.subject, c.predicate, c.object,
                p_given[v_i], c.embedding_model, c.source_turn_ids, c.source_confidence, c.extractor_confidence,
                c.session_id, c.origin, c.metadata, c.observed_at, p_valid_from => c.valid_from, p_valid_until => c.valid_until);
            c.policy := null;
            -- next to it, like the others
            c.embedding := null;
            v_items[v_i] := c;
            v_classes[v_i] := 'todo';
        exception when others then
            get stacked diagnostics v_code = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
                v_hint = pg_exception_hint;
            b.errors := b.errors || memfold_internal._batch_error(b.ordinals[v_i], v_code, v_message, v_detail, v_hint);
        end;
    end loop;
    b.items := v_items;
    b.classes := v_classes;
    return b;
end;
$$;
