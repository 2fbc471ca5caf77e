-- Resets the options of a key to the columns' defaults, and returns them.
create or replace function memfold_internal._reset_options(p_tenant_id text, p_bucket_id text, p_memory_type text) returns memfold.options
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_options memfold.options;
begin
    delete from memfold.options as o
    where o.tenant_id = p_tenant_id and o.bucket_id = p_bucket_id
        and o.memory_type = p_memory_type;
    insert into memfold.options as o (tenant_id, bucket_id, memory_type)
    values (p_tenant_id, p_bucket_id, p_memory_type)
    returning o.* into v_options;
    return v_options;
end;
$$;

-- Writes the options of a key, replacing existing ones. Raises MF017 for values that are not allowed.
create or replace function memfold_internal._store_options(p_options memfold.options) returns void
language plpgsql volatile
as $$
begin
    delete from memfold.options as o
    where o.tenant_id = p_options.tenant_id and o.bucket_id = p_options.bucket_id and o.memory_type = p_options.memory_type;
    insert into memfold.options select (p_options).*;
exception when check_violation or not_null_violation then
    perform memfold_internal._fail('MF017', 'an option has a value that is not allowed', sqlerrm,
        E'See the allowed values with: \\d+ memfold.options');
end;
$$;

-- Looks up a text search configuration by name. Raises MF017 if there is none.
create or replace function memfold_internal._text_search(p_text_search text) returns regconfig
language plpgsql stable
as $$
begin
    if p_text_search is null then
        raise invalid_name;
    end if;
    return p_text_search::regconfig;
exception when undefined_object or invalid_schema_name or invalid_name or syntax_error or feature_not_supported then
    perform memfold_internal._fail('MF017', 'unknown text search configuration', format('text_search was %L.', p_text_search),
        E'Name one that \\dF lists, such as english; schema-qualified unless it is in pg_catalog.');
end;
$$;

create or replace function memfold.set_options(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default '*',
    memory_type text default '*',
    min_confidence double precision default null,
    search_threshold double precision default null,
    touch boolean default null,
    rank_confidence double precision default null,
    rank_feedback double precision default null,
    consolidate_threshold double precision default null,
    max_cluster_size bigint default null,
    protected_types text[] default null,
    decay_rate double precision default null,
    decay_floor double precision default null,
    decay_interval interval default null,
    key_retention interval default null,
    consolidate_interval interval default null,
    sweep_interval interval default null,
    prune_interval interval default null,
    text_search text default null,
    link_interval interval default null,
    consolidate_budget bigint default null
) returns memfold.options
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_new memfold.options;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('memory_type', memory_type, true);
    if decay_interval > '1000 years' then
        perform memfold_internal._fail('MF017', 'the interval is too long', format('decay_interval was %s.', decay_interval),
            'Pass at most 1,000 years; with a decay_rate of 0 nothing decays.');
    end if;
    -- the later of two concurrent calls for one bucket keeps what the earlier one has set
    perform memfold_internal._lock(tenant_id, bucket_id, null, true);
    v_new := memfold_internal._options(tenant_id, bucket_id, memory_type);
    v_new.tenant_id := tenant_id;
    v_new.bucket_id := bucket_id;
    v_new.memory_type := memory_type;
    v_new.min_confidence := coalesce(min_confidence, v_new.min_confidence);
    v_new.search_threshold := coalesce(search_threshold, v_new.search_threshold);
    v_new.touch := coalesce(touch, v_new.touch);
    -- smaller values count as 0, because a product would underflow, which is an error
    v_new.rank_confidence := coalesce(case when abs(rank_confidence) < 1e-50 then 0 else rank_confidence end, v_new.rank_confidence);
    v_new.rank_feedback := coalesce(case when abs(rank_feedback) < 1e-50 then 0 else rank_feedback end, v_new.rank_feedback);
    v_new.consolidate_threshold := coalesce(consolidate_threshold, v_new.consolidate_threshold);
    v_new.max_cluster_size := coalesce(max_cluster_size, v_new.max_cluster_size);
    v_new.protected_types := coalesce(protected_types, v_new.protected_types);
    v_new.decay_rate := coalesce(decay_rate, v_new.decay_rate);
    v_new.decay_floor := coalesce(decay_floor, v_new.decay_floor);
    v_new.decay_interval := coalesce(decay_interval, v_new.decay_interval);
    v_new.key_retention := coalesce(key_retention, v_new.key_retention);
    v_new.consolidate_interval := coalesce(consolidate_interval, v_new.consolidate_interval);
    v_new.sweep_interval := coalesce(sweep_interval, v_new.sweep_interval);
    v_new.prune_interval := coalesce(prune_interval, v_new.prune_interval);
    v_new.link_interval := coalesce(link_interval, v_new.link_interval);
    v_new.consolidate_budget := coalesce(consolidate_budget, v_new.consolidate_budget);
    if text_search is not null then
        v_new.text_search := memfold_internal._text_search(text_search)::text;
    end if;
    v_new.updated_at := clock_timestamp();
    perform memfold_internal._store_options(v_new);
    return v_new;
end;
$$;
grant execute on function memfold.set_options to memfold_app;
comment on function memfold.set_options is
'Sets the options for recall and maintenance of a tenant, a bucket, or one type of a bucket (''*'' = any), and returns them. An omitted
argument keeps its value in that row, or in the less specific row if there is none yet. The arguments are the columns of memfold.options;
set_policy(preset => ...) sets them all. Options do not affect how candidates are decided. Raises MF001 to MF003, MF017 (a value that is
not allowed), MF025.';
