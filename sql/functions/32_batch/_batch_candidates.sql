-- 32_batch: many facts in one call, with the results that ingest_memory would give for each, in order.
--
-- A batch is a composite of arrays by position (the type batch); each step of _ingest_batch takes it and returns it with
-- its findings. The candidates are read, checked and hashed together; those that are not surely valid are checked one by
-- one, for their errors. Most candidates only add: restatements of active memories, and new texts with no neighbour.
-- They are written together, in a few statements. After them, 31_ingest takes the rest one by one.
--
-- Locks are taken for the whole batch at once, keys in ascending order, then rows in order of id. So two batches, or a
-- batch and single calls, wait for each other but do not deadlock.
--
-- What must stay true: results and state are those of single calls in the same order (tests/sql/test_batch.py compares
-- them); event ids follow the order of the candidates although rows are written in another; an error of one candidate
-- changes nothing for the others (on_error report) or writes nothing at all (abort).

-- Sets the policy of each bucket and type that the candidates name (buckets, types, policies), and which one applies to
-- each (policy_of).
create or replace function memfold_internal._batch_policies(
    b memfold_internal.batch, p_elements memfold_internal.candidate[]
) returns memfold_internal.batch
language plpgsql stable
as $$
declare
    v_policies memfold.policies[];
begin
    select array_agg(p.policy order by p.bucket_id, p.memory_type),
        array_agg(p.bucket_id order by p.bucket_id, p.memory_type),
        array_agg(p.memory_type order by p.bucket_id, p.memory_type)
    into v_policies, b.buckets, b.types
    from (
        select t.bucket_id, t.memory_type, memfold_internal._candidate_policy(b.tenant_id, t.bucket_id, t.memory_type) as policy
        from (
            select distinct e.bucket_id, e.memory_type
            from unnest(p_elements) as e
        ) as t
    ) as p;
    b.policies := v_policies;
    if cardinality(v_policies) = 1 then
        b.policy_of := array_fill(1, array[cardinality(p_elements)]);
    else
        select array_agg(p.place order by p.i) into b.policy_of
        from (
            select e.ordinality as i,
                dense_rank() over (order by e.bucket_id, e.memory_type)::integer as place
            from unnest(p_elements) with ordinality as e
        ) as p;
    end if;
    return b;
end;
$$;

-- Validates and hashes the candidates of a batch together (items, idempotency_keys, and embeddings as unit vectors).
-- Class todo, or error if a candidate is not surely valid: _doubtful_candidates() must follow.
create or replace function memfold_internal._batch_candidates(
    b memfold_internal.batch, p_elements memfold_internal.candidate[]
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
        array_agg((
            x.content, b.tenant_id, x.bucket_id, x.memory_type, x.subject, x.predicate, x.object, null,
            x.embedding_model, x.source_turn_ids, x.source_confidence, x.extractor_confidence, x.session_id,
            x.origin, x.metadata, x.observed_at, x.valid_from, x.valid_until, x.idempotency_key, x.subject,
            x.predicate,
            case
                when not x.sound or x.canonical is null then null
                when (v_policies[x.rule]).key_fields = 'type,subject,predicate' and x.signature is null
                    then memfold_internal._full_hash(x.memory_type, x.subject, x.predicate, x.canonical)
                else memfold_internal._content_hash(x.memory_type, x.subject, x.predicate, x.content,
                    (v_policies[x.rule]).canonicalizer, (v_policies[x.rule]).key_fields, x.signature)
            end,
            null, x.signature, null, null, null, null, null
        )::memfold_internal.candidate),
        case when v_embeddings is not null then array_agg(memfold_internal._unit(x.given_embedding)) end
    into b.classes, b.idempotency_keys, b.items, b.embeddings
    from (
        select z.*,
            memfold_internal._is_surely_valid(memfold_internal._candidate(
                z.content, z.tenant_id, z.bucket_id, z.memory_type, z.subject, z.predicate, z.object, null, z.embedding_model,
                z.source_turn_ids, z.source_confidence, z.extractor_confidence, z.session_id, z.origin, z.metadata, z.observed_at,
                z.valid_from, z.valid_until, z.idempotency_key
            ), (v_policies[z.rule]).max_content_length, (v_policies[z.rule]).max_metadata_size)
            and z.canonical is distinct from ''
            and not (v_has_links
                and memfold_internal._is_linked(b.tenant_id, z.bucket_id, z.subject, z.predicate, z.content))
            and case when z.given_embedding is null and z.embedding_model is null then true else coalesce((
                select memfold_internal._fits_model(z.given_embedding, m.dimensions, m.replaced_by)
                from memfold.embedding_models as m where m.model = z.embedding_model
            ), false) end as sound,
            case when (v_policies[z.rule]).metadata_keys <> '{}'
                then memfold_internal._metadata_signature(z.metadata, (v_policies[z.rule]).metadata_keys) end as signature
        from (
            select e.*, e.ordinality as i, v_embeddings[e.ordinality] as given_embedding, v_policy_of[e.ordinality] as rule,
                memfold_internal._canonical(e.content, (v_policies[v_policy_of[e.ordinality]]).canonicalizer) as canonical
            from unnest(p_elements) with ordinality as e
            offset 0
        ) as z
        order by z.i
        offset 0
    ) as x;
    return b;
end;
$$;

-- Checks one by one the candidates that are not surely valid: class todo after all, or a row of errors.
-- p_given: their original embeddings.
create or replace function memfold_internal._doubtful_candidates(b memfold_internal.batch, p_given vector[]) returns memfold_internal.batch
language plpgsql stable
as $$
declare
    -- Arrays in variables are changed in place; a field of b would be copied each time.
    v_items memfold_internal.candidate[] := b.items;
    v_classes text[] := b.classes;
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
            c.embedding := p_given[v_i];
            c := memfold_internal._validate(c);
            c.policy := null;
            -- vectors are in b.embeddings
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
