-- The fast path of row 13 of the decision table: a text that the bucket does not hold, under rules that compare only its
-- vector, with nothing near and no single-valued slot. Does what _validate, _decide_new and _apply do in general.
-- content_hash: by the default rules; the candidate meets _is_plainly_valid and _is_usual_text.
create or replace function memfold_internal._ingest_new(c memfold_internal.candidate, p_event_id uuid) returns memfold_internal.attempt
language plpgsql volatile
-- as in _ingest()
set plan_cache_mode = force_generic_plan
as $$
declare
    v_rules record;
    d memfold_internal.decision;
    v_memory_id uuid;
    v_cardinality text;
begin
    -- The bucket's rules, if they allow this path; is_known: the bucket holds the text.
    select p.policy, p.updated_at, least(b.floor, b.report) as least,
        exists (
            select from memfold_internal._known_text(c.tenant_id, c.bucket_id, c.content_hash)
        ) as is_known,
        exists (select from memfold.links as l where l.tenant_id = c.tenant_id) as has_links
    into v_rules
    from (
        select p.*, p as policy from memfold.policies as p
        where p.tenant_id in (c.tenant_id, '*') and p.bucket_id in (c.bucket_id, '*')
            and p.memory_type in (c.memory_type, '*')
        order by memfold_internal._specificity(p.tenant_id, p.bucket_id, p.memory_type) desc
        limit 1
    ) as p
    left join lateral memfold_internal._bands(p.merge_threshold, p.judge_threshold, p.similar_threshold,
        c.embedding_model) as b on true
    where p.dedup = 'on' and p.canonicalizer = 'prose/1' and p.key_fields = 'type,subject,predicate' and p.metadata_keys = '{}'
        and memfold_internal._has_usual_limits(p.max_content_length, p.max_metadata_size) and p.rehash_run is null
        and p.scope = 'predicate' and p.lexical_threshold is null
        and case when c.embedding is null then p.embed = 'client' and c.embedding_model is null
            else memfold_internal._fits_model(c.embedding, b.dimensions, b.replaced_by) end;
    if not found or v_rules.is_known then
        return (null::memfold.ingest_result, case when v_rules.is_known then 'known' end);
    end if;
    if v_rules.has_links and memfold_internal._is_linked(c.tenant_id, c.bucket_id, c.subject, c.predicate, c.content) then
        return null;
    end if;
    c.policy := v_rules.policy;
    c.embedding := memfold_internal._unit(c.embedding);
    c.scope_key := memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate);
    perform memfold_internal._lock(c.tenant_id, c.bucket_id, c.scope_key, true);
    -- Usually there are no rules but those just read.
    if exists (select from memfold.policies as p where p.updated_at <> v_rules.updated_at) or exists (
        select from memfold.embedding_models as m
        where m.model = c.embedding_model and m.replaced_by is not null
    ) then
        perform memfold_internal._check_rules(c.tenant_id, c.bucket_id, c.memory_type, c.policy,
            case when c.embedding_model is not null then array[c.embedding_model] end);
    end if;
    if exists (select from memfold.links as l where l.tenant_id = c.tenant_id) then
        perform memfold_internal._check_names(c.tenant_id, c.bucket_id, c.subject, c.predicate, c.content, c.subject, c.predicate);
    end if;
    if num_nonnulls(c.subject, c.predicate, c.object) = 3
        and exists (
            select from memfold.memories as m
            where m.tenant_id = c.tenant_id and m.status = 'rejected'
                and (m.bucket_id, m.scope_key) >= (c.bucket_id, c.scope_key)
                and (m.bucket_id, m.scope_key) <= (c.bucket_id, c.scope_key)
        )
    then
        return (null::memfold.ingest_result, 'locked'::text);
    end if;
    v_cardinality := case when c.predicate is not null then memfold_internal._cardinality(c.tenant_id, c.predicate) end;
    if v_cardinality = 'one' or v_cardinality is null and num_nonnulls(c.subject, c.predicate, c.object) = 3
        and memfold_internal._other_values(c.tenant_id, c.bucket_id, c.scope_key, c.object, null, 1) <> '{}'
        or c.embedding is not null and exists (
        select from memfold_internal._scope_similarities(c.tenant_id, c.bucket_id, c.scope_key, c.embedding, c.embedding_model,
            memfold_internal._newest('predicate', c.subject, c.predicate), null, null) as n
        where n.similarity >= v_rules.least
    ) then
        -- The neighbour, or the slot's value, is often this text itself, stored by the call that this one waited for.
        return (null::memfold.ingest_result, case when exists (
            select from memfold_internal._known_text(c.tenant_id, c.bucket_id, c.content_hash)
        ) then 'known' else 'locked' end);
    end if;
    c.observed_at := coalesce(c.observed_at, memfold_internal._clock());
    c.event_id := memfold_internal._id_after(coalesce(p_event_id, memfold_internal._new_id()), memfold_internal._newest_event(c.tenant_id));
    v_memory_id := memfold_internal._new_memory_id(c.tenant_id);
    -- The unique index finds the text if another call has stored it since.
    if not memfold_internal._insert_text(c, v_memory_id, null) then
        return (null::memfold.ingest_result, 'known'::text);
    end if;
    perform memfold_internal._insert_counters(c, v_memory_id);
    d.action := 'inserted';
    perform memfold_internal._record(c, d, v_memory_id, true, null);
    return (('inserted', v_memory_id, null, null, null, null, null, c.event_id, null)::memfold.ingest_result, null::text);
end;
$$;
