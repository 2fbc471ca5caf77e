-- Changes a policy and options with the columns' defaults to the values of a preset. Raises MF017 for an unknown preset.
create or replace function memfold_internal._preset(
    p_preset text, inout policy memfold.policies, inout options memfold.options
)
language plpgsql volatile
as $$
declare
    p memfold.policies := policy;
    o memfold.options := options;
begin
    p.preset := p_preset;
    if p_preset = 'three_tier' then
        null;
    elsif p_preset = 'store_and_load' then
        -- no merge without a judge, who writes one text for similar ones
        p.scope := 'bucket';
        p.merge_threshold := 1;
        p.judge_threshold := 0.65;
        p.on_ambiguous := 'synthesise';
        o.search_threshold := 0.6;
        o.touch := true;
        o.consolidate_threshold := 0.65;
    elsif p_preset = 'hash_first' then
        -- a bucket holds a text once, regardless of its type; similar texts go to a judge
        p.key_fields := '';
        p.scope := 'bucket';
        p.merge_threshold := 1;
        p.judge_threshold := 0.95;
        if memfold_internal._has_python() then
            p.canonicalizer := 'lemma';
        else
            raise notice 'content is hashed by prose/1: lemma/1, which treats "likes" and "liked" as equal, is not installed in this database';
        end if;
    elsif p_preset = 'replace_newer' then
        p.neighbours := 1;
        p.merge_threshold := 0.95;
        p.merge_inclusive := true;
        -- texts above the threshold are the same by definition
        p.merge_veto := 0;
        p.judge_threshold := 0.9;
        p.on_merge := 'replace';
        p.on_ambiguous := 'synthesise';
        p.on_judge_failure := 'replace';
        p.metadata_merge := 'newest';
        p.metadata_max := '{intensity}';
        o.consolidate_threshold := 0.9;
    elsif p_preset = 'robotics' then
        p.canonicalizer := 'exact/1';
        p.key_fields := '';
        p.scope := 'bucket';
        p.lexical_threshold := 0.7;
        p.neighbours := 3;
        p.session_neighbours := 20;
        p.merge_threshold := 0.85;
        p.merge_inclusive := true;
        p.merge_veto := 0;
        p.judge_threshold := 0.85;
        p.similar_threshold := 0.4;
        p.on_ambiguous := 'insert';
        p.on_refinement := 'merge';
        p.weight_source := 1;
        p.weight_extractor := 0;
        p.weight_repetition := 0;
        o.min_confidence := 0.3;
        o.touch := true;
        o.protected_types := '{constraint,postmortem,gotcha,perception}';
        o.protected_confidence := 0.95;
        o.decay_rate := 0.01;
    else
        perform memfold_internal._fail('MF017', 'unknown preset', format('preset was %L.', p_preset),
            'Presets are three_tier, store_and_load, hash_first, replace_newer and robotics.');
    end if;
    policy := p;
    options := o;
end;
$$;

-- Raises MF017 unless both lists may be part of a content hash. Null, which keeps the present list, is allowed.
create or replace function memfold_internal._check_key_fields(p_key_fields text[], p_metadata_keys text[]) returns void
language plpgsql immutable
as $$
begin
    if not coalesce(p_key_fields <@ array['type', 'subject', 'predicate'], true) then
        perform memfold_internal._fail('MF017', 'unknown key field', format('key_fields was %s.', p_key_fields),
            'Key fields are type, subject and predicate; the content is always part of the key.');
    elsif array_ndims(p_metadata_keys) > 1 or array_position(p_metadata_keys, null) is not null then
        perform memfold_internal._fail('MF017', 'the metadata keys are not valid',
            format('metadata_keys was %s.', p_metadata_keys), 'Pass a list of names, none of them null.');
    end if;
end;
$$;

-- Stores the words of all memories of a bucket or type ('*': of all), for a policy that has begun to compare words.
create or replace function memfold_internal._add_tokens(p_tenant_id text, p_bucket_id text, p_memory_type text) returns void
language plpgsql volatile
as $$
begin
    insert into memfold.memory_tokens (tenant_id, bucket_id, token, memory_id)
    select m.tenant_id, m.bucket_id, t.token, m.memory_id
    from memfold.memories as m
    cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
    cross join lateral unnest(memfold_internal._tokens(m.content, p.segmenter)) as t (token)
    where m.tenant_id = p_tenant_id collate "C" and p_bucket_id in ('*', m.bucket_id)
        and p_memory_type in ('*', m.memory_type) and m.content_hash is not null
    on conflict do nothing;
end;
$$;
