-- Sets the class of unknown texts: new or repeat (firsts: of which text) for those that decide nothing but their
-- existence, rest for the others: recalled ones, values of a slot, those whose words are compared, and texts that have a
-- neighbour, or another value of their subject and predicate, stored or earlier in the batch.
create or replace function memfold_internal._sort_texts(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
    v_values constant bigint[] := memfold_internal._values_in_batch(b);
    v_near bigint[];
begin
    select array_agg(case when x.is_text then x.first end order by x.i),
        array_agg(case
            when not x.is_text then x.class
            when not x.plain or not x.first_is_plain then 'rest'
            when x.first = x.i then 'new'
            when x.bare then 'repeat'
            else 'rest' end order by x.i)
    into b.firsts, b.classes
    from (
        select y.*, first_value(y.i) over w as first, first_value(y.plain) over w as first_is_plain
        from (
            select c.ordinality as i, c.bucket_id, c.content_hash, v_classes[c.ordinality] as class,
                v_classes[c.ordinality] = 'todo' as is_text, c.metadata = '{}' as bare,
                c.origin <> 'recalled' and ((v_policies[v_policy_of[c.ordinality]]).dedup = 'on' and (
                    c.predicate = any(b.singles)
                    or c.ordinality = any(v_values)
                    or (v_policies[v_policy_of[c.ordinality]]).lexical_threshold is not null
                )) is not true as plain
            from unnest(b.items) with ordinality as c
            offset 0
        ) as y
        window w as (
            partition by y.is_text, y.bucket_id, y.content_hash, case when y.content_hash is null then y.i end order by y.i
        )
        offset 0
    ) as x;
    if b.embeddings is not null then
        v_near := memfold_internal._near_in_batch(b);
        if v_near is not null then
            select array_agg(case when o.class in ('new', 'repeat') and o.first = any(v_near) then 'rest' else o.class end order by o.i)
            into b.classes
            from unnest(b.classes, b.firsts) with ordinality as o (class, first, i);
        end if;
    end if;
    return b;
end;
$$;

-- Ids of new texts, in the order of the candidates (memory_ids); those of class new and repeat have them as matched and
-- roots.
create or replace function memfold_internal._batch_ids(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
as $$
declare
    v_memory_ids constant uuid[] := memfold_internal._new_ids(cardinality(b.items), memfold_internal._newest_memory(b.tenant_id));
begin
    b.memory_ids := v_memory_ids;
    select array_agg(n.id order by o.i), array_agg(n.root_id order by o.i)
    into b.matched, b.roots
    from unnest(b.classes, b.matched, b.roots, b.firsts) with ordinality as o (class, memory_id, root_id, first, i)
    cross join lateral (
        select case when o.class in ('new', 'repeat') then v_memory_ids[o.first] else o.memory_id end as id,
            case when o.class in ('new', 'repeat') then v_memory_ids[o.first] else o.root_id end as root_id
    ) as n;
    return b;
end;
$$;

-- Stores the new texts of a batch (class new) and their vectors. Raises 40001 if a plain INSERT has added one since.
create or replace function memfold_internal._add_texts(b memfold_internal.batch) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_classes constant text[] := b.classes;
    v_memory_ids constant uuid[] := b.memory_ids;
    v_scope_keys constant uuid[] := b.scope_keys;
    v_embeddings constant memfold_internal.batch.embeddings%type := b.embeddings;
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
begin
    begin
        insert into memfold.memories (
            tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
            metadata_signature, session_id, metadata, embedding_pending, is_ingested
        )
        select b.tenant_id, v_memory_ids[c.ordinality], c.bucket_id, c.memory_type, c.subject, c.predicate, c.object, c.content,
            (v_policies[v_policy_of[c.ordinality]]).canonicalizer, (v_policies[v_policy_of[c.ordinality]]).key_fields,
            c.metadata_signature, c.session_id, c.metadata,
            v_embeddings[c.ordinality] is null and (v_policies[v_policy_of[c.ordinality]]).dedup = 'on', true
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] = 'new'
        order by c.ordinality;
    exception when unique_violation then
        raise exception 'a text of the batch already exists' using
            errcode = 'serialization_failure',
            detail = 'A plain INSERT added it during this call.',
            hint = 'Retry the call, with the same idempotency keys if it has any.';
    end;
    if v_embeddings is not null then
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, embedding)
        select b.tenant_id, v_memory_ids[c.ordinality], c.embedding_model, c.bucket_id, v_scope_keys[c.ordinality],
            v_embeddings[c.ordinality]
        from unnest(b.items) with ordinality as c
        where v_classes[c.ordinality] = 'new' and v_embeddings[c.ordinality] is not null
        order by c.ordinality;
    end if;
end;
$$;
