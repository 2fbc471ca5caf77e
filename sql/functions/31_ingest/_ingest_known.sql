-- The fast path of row 3 of the decision table: a candidate with the text of an active memory, under rules that need
-- nothing but its hash. Does what _validate, _decide_known and _ingest do in general, without reading the policy and the
-- links. Progress 'unknown': no text has the hash by these rules. p_event_id: the ledger row's, unless the memory has a
-- later one; null: a new one. content_hash: by the default rules; the candidate meets _is_plainly_valid.
create or replace function memfold_internal._ingest_known(c memfold_internal.candidate, p_event_id uuid) returns memfold_internal.attempt
language plpgsql volatile
as $$
declare
    v_known record;
    v_said record;
    d memfold_internal.decision;
begin
    select m.memory_id, m.status into v_known
    from (
        -- Other rules, for any bucket: row-level security shows this tenant's and '*'s. The condition is that of
        -- policies_slow_path_idx.
        select where not exists (
            select from memfold.policies as p
            where p.dedup <> 'on' or p.canonicalizer <> 'prose/1' or p.key_fields <> 'type,subject,predicate'
                or p.metadata_keys <> '{}' or p.max_content_length < 8192 or p.max_metadata_size < 8192
                or p.metadata_merge <> 'merge' or p.metadata_max <> '{}' or p.max_session_repeats is not null
                or p.rehash_run is not null
        )
    ) as r
    left join lateral memfold_internal._known_text(c.tenant_id, c.bucket_id, c.content_hash) as m on true;
    if found and v_known.memory_id is null then
        return (null::memfold.ingest_result, 'unknown'::text);
    elsif (v_known.status = 'active') is not true
        or c.observed_at is not null and memfold_internal._is_late(c.tenant_id, v_known.memory_id, c.observed_at, c.metadata)
    then
        return null;
    end if;
    if c.metadata <> '{}' then
        -- the rules of every policy that the query above lets pass
        c.policy.metadata_merge := 'merge';
        c.policy.metadata_max := '{}';
    end if;
    v_said := memfold_internal._record_observation(c, v_known.memory_id, v_known.memory_id, 0, coalesce(p_event_id, memfold_internal._new_id()));
    if not v_said.is_added then
        return (null::memfold.ingest_result, 'row held'::text);
    end if;
    c.event_id := v_said.event_id;
    c.observed_at := v_said.observed_at;
    d.action := 'merged';
    d.tier := 1;
    d.method := 'hash';
    perform memfold_internal._record(c, d, v_known.memory_id, true, null);
    return (('merged', v_known.memory_id, 1, 'hash', null, null, null, c.event_id, null)::memfold.ingest_result, null::text);
end;
$$;
