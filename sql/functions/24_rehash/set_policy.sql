create or replace function memfold.set_policy(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default '*',
    memory_type text default '*',
    preset text default null,
    dedup text default null,
    canonicalizer text default null,
    key_fields text[] default null,
    metadata_keys text[] default null,
    scope text default null,
    neighbours bigint default null,
    merge_threshold double precision default null,
    judge_threshold double precision default null,
    lexical_threshold double precision default null,
    guard text default null,
    merge_veto double precision default null,
    on_ambiguous text default null,
    on_merge text default null,
    on_refinement text default null,
    metadata_merge text default null,
    conflict text default null,
    confidence_floor double precision default null,
    notify boolean default null,
    weights double precision[] default null,
    max_content_length bigint default null,
    max_metadata_size bigint default null,
    max_session_repeats bigint default null,
    embed text default null,
    embed_model text default null,
    segmenter text default null,
    agent_actions_per_hour bigint default null
) returns memfold.policies
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_old memfold.policies;
    v_new memfold.policies;
    v_preset record;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('memory_type', memory_type, true);
    if bucket_id = '*' then
        perform memfold_internal._lock_rules(tenant_id);
    end if;
    perform memfold_internal._lock(tenant_id, bucket_id, null, true);
    v_old := memfold_internal._policy(tenant_id, bucket_id, memory_type);
    if preset is null then
        v_new := v_old;
    else
        -- a preset changes the columns' defaults, of the policy and of the options
        delete from memfold.policies as p
        where p.tenant_id = set_policy.tenant_id and p.bucket_id = set_policy.bucket_id
            and p.memory_type = set_policy.memory_type;
        insert into memfold.policies as p (tenant_id, bucket_id, memory_type)
        values (set_policy.tenant_id, set_policy.bucket_id, set_policy.memory_type)
        returning p.* into v_new;
        v_preset := memfold_internal._preset(preset, v_new, memfold_internal._reset_options(tenant_id, bucket_id, memory_type));
        v_new := v_preset.policy;
        perform memfold_internal._store_options(v_preset.options);
        v_new.rehash_run := v_old.rehash_run;
        v_new.rehash_from_canonicalizer := v_old.rehash_from_canonicalizer;
        v_new.rehash_from_key_fields := v_old.rehash_from_key_fields;
        v_new.rehash_from_metadata_keys := v_old.rehash_from_metadata_keys;
    end if;

    perform memfold_internal._check_key_fields(key_fields, metadata_keys);
    if weights is not null and (
        array_dims(weights) is distinct from '[1:3]' or array_position(weights, null) is not null
        or abs(weights[1] + weights[2] + weights[3] - 1) < 1e-9 is not true
    )
    then
        perform memfold_internal._fail('MF017', 'the weights are not valid', format('weights was %s.', weights),
            'Pass three numbers that add up to 1, for source, extractor and repetition.');
    end if;
    v_new.tenant_id := tenant_id;
    v_new.bucket_id := bucket_id;
    v_new.memory_type := memory_type;
    v_new.dedup := coalesce(dedup, v_new.dedup);
    v_new.canonicalizer := memfold_internal._profile(coalesce(canonicalizer, v_new.canonicalizer));
    v_new.key_fields := coalesce((
        select coalesce(string_agg(f.name, ',' order by f.place), '')
        from (values ('type', 1), ('subject', 2), ('predicate', 3)) as f (name, place)
        where f.name = any(set_policy.key_fields)
        having set_policy.key_fields is not null
    ), v_new.key_fields);
    v_new.metadata_keys := coalesce(metadata_keys, v_new.metadata_keys);
    v_new.scope := coalesce(scope, v_new.scope);
    v_new.neighbours := coalesce(neighbours, v_new.neighbours);
    v_new.merge_threshold := coalesce(merge_threshold, v_new.merge_threshold);
    v_new.judge_threshold := coalesce(judge_threshold, v_new.judge_threshold);
    v_new.lexical_threshold := coalesce(lexical_threshold, v_new.lexical_threshold);
    v_new.guard := coalesce(guard, v_new.guard);
    v_new.merge_veto := coalesce(merge_veto, v_new.merge_veto);
    v_new.on_ambiguous := coalesce(on_ambiguous, v_new.on_ambiguous);
    v_new.on_merge := coalesce(on_merge, v_new.on_merge);
    v_new.on_refinement := coalesce(on_refinement, v_new.on_refinement);
    v_new.metadata_merge := coalesce(metadata_merge, v_new.metadata_merge);
    v_new.conflict := coalesce(conflict, v_new.conflict);
    v_new.confidence_floor := coalesce(confidence_floor, v_new.confidence_floor);
    v_new.notify := coalesce(notify, v_new.notify);
    v_new.weight_source := coalesce(weights[1], v_new.weight_source);
    v_new.weight_extractor := coalesce(weights[2], v_new.weight_extractor);
    v_new.weight_repetition := coalesce(weights[3], v_new.weight_repetition);
    v_new.max_content_length := coalesce(max_content_length, v_new.max_content_length);
    v_new.max_metadata_size := coalesce(max_metadata_size, v_new.max_metadata_size);
    v_new.max_session_repeats := coalesce(max_session_repeats, v_new.max_session_repeats);
    v_new.embed := coalesce(embed, v_new.embed);
    v_new.embed_model := coalesce(embed_model, v_new.embed_model);
    v_new.segmenter := coalesce(segmenter, v_new.segmenter);
    v_new.agent_actions_per_hour := coalesce(agent_actions_per_hour, v_new.agent_actions_per_hour);
    v_new.updated_at := clock_timestamp();
    perform memfold_internal._check_thresholds(v_new.merge_threshold, v_new.judge_threshold);
    perform memfold_internal._check_embed(v_new);

    if (v_new.canonicalizer, v_new.key_fields, v_new.metadata_keys)
        is distinct from (v_old.canonicalizer, v_old.key_fields, v_old.metadata_keys)
        and (tenant_id = '*' or exists (
            select from memfold.memories as m
            where m.tenant_id = set_policy.tenant_id
                and set_policy.bucket_id in (m.bucket_id, '*')
                and set_policy.memory_type in (m.memory_type, '*')
                and m.content_hash is not null
        ))
    then
        perform memfold_internal._fail('MF024', 'the hash of stored memories would change',
            'Content hashes depend on canonicalizer, key_fields and metadata_keys, and memories are stored '
            'under the old ones' || case when tenant_id = '*' then ', or may be, in some tenant.' else '.' end,
            'Set them for a bucket before its first memory, or: call rehash_bucket(tenant_id, bucket_id, ...).');
    end if;
    begin
        delete from memfold.policies as p
        where p.tenant_id = set_policy.tenant_id and p.bucket_id = set_policy.bucket_id
            and p.memory_type = set_policy.memory_type;
        insert into memfold.policies select (v_new).*;
    exception when check_violation or not_null_violation then
        perform memfold_internal._fail('MF017', 'an option has a value that is not allowed', sqlerrm,
            E'See the allowed values with: \\d+ memfold.policies');
    end;
    if v_new.segmenter <> v_old.segmenter then
        delete from memfold.memory_tokens as t
        using memfold.memories as m
        where t.tenant_id = set_policy.tenant_id and set_policy.bucket_id in ('*', t.bucket_id)
            and m.tenant_id = t.tenant_id and m.memory_id = t.memory_id and set_policy.memory_type in ('*', m.memory_type);
    end if;
    if v_new.lexical_threshold is not null and (v_old.lexical_threshold is null or v_new.segmenter <> v_old.segmenter) then
        perform memfold_internal._add_tokens(tenant_id, bucket_id, memory_type);
    end if;
    -- these columns decide which values are current, which texts have a hash, and what metadata follows from the ledger
    if (v_new.conflict = 'keep_both', v_new.dedup, v_new.metadata_merge, v_new.metadata_max)
        <> (v_old.conflict = 'keep_both', v_old.dedup, v_old.metadata_merge, v_old.metadata_max)
    then
        perform memfold_internal._take_up_rule(tenant_id, bucket_id, '{}');
    end if;
    return v_new;
end;
$$;
grant execute on function memfold.set_policy to memfold_app;
comment on function memfold.set_policy is
'Sets the rules of a tenant, a bucket, or one type of a bucket (''*'' = any), and returns them. An omitted argument keeps its value in that
policy, or in the less specific policy if there is none yet. preset: the values that the other arguments start from: three_tier (the
defaults), store_and_load, hash_first, replace_newer or robotics; it also sets the options of the same key (set_options). key_fields: any
of type, subject, predicate. weights: source, extractor and repetition, which add up to 1. dedup => ''off'' stores without a hash.
canonicalizer: prose, flat, code, exact, or lemma:en (de, fr, es, it, pt, auto; requires memfold_py). embed => ''in_database'': the
database computes the vectors with embed_model (requires memfold_py). The other arguments are columns of memfold.policies; its further
columns are set by presets. Raises MF017 (a value that is not allowed), MF011 (no such canonicalizer), MF024 (the hash of stored memories
would change), MF012 or MF013 (no registered embed_model), MF025, MF056 (memfold_py is missing),
MF058, MF059.';
