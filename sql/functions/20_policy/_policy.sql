-- How specific the key of a policy or of options is; the highest of those that match applies. Inlined by its callers.
create or replace function memfold_internal._specificity(p_tenant_id text, p_bucket_id text, p_memory_type text) returns integer
language sql immutable parallel safe
return (p_tenant_id <> '*')::integer * 4 + (p_bucket_id <> '*')::integer * 2 + (p_memory_type <> '*')::integer;

-- The policy of a type in a bucket. Quotations (type quote) are never lemmatised: prose/1 instead of lemma/1.
create or replace function memfold_internal._policy(p_tenant_id text, p_bucket_id text, p_memory_type text) returns memfold.policies
language plpgsql stable
as $$
declare
    v_row record;
    v_policy memfold.policies;
    v_rank integer := -1;
begin
    -- usually one row, at most eight: a loop is cheaper than a sort
    for v_row in
        select p as policy, memfold_internal._specificity(p.tenant_id, p.bucket_id, p.memory_type) as rank
        from memfold.policies as p
        where p.tenant_id in (p_tenant_id collate "C", '*')
            and p.bucket_id in (p_bucket_id collate "C", '*')
            and p.memory_type in (p_memory_type collate "C", '*')
    loop
        if v_row.rank > v_rank then
            v_rank := v_row.rank;
            v_policy := v_row.policy;
        end if;
    end loop;
    if p_memory_type = 'quote' and v_policy.canonicalizer like 'lemma/%' then
        v_policy.canonicalizer := 'prose/1';
    end if;
    return v_policy;
end;
$$;

-- The policy by which a candidate is hashed and decided: with dedup off it has no hash (canonicalizer null).
create or replace function memfold_internal._candidate_policy(p_tenant_id text, p_bucket_id text, p_memory_type text)
returns memfold.policies
language plpgsql stable
as $$
declare
    v_policy memfold.policies := memfold_internal._policy(p_tenant_id, p_bucket_id, p_memory_type);
begin
    if v_policy.dedup = 'off' then
        v_policy.canonicalizer := null;
    end if;
    return v_policy;
end;
$$;

-- Raises 40001 if the policy of a type is no longer p_policy (_candidate_policy), or if one of p_models was replaced. Called after waiting
-- for a lock, in a separate statement. (Predicates are only read under the lock.)
create or replace function memfold_internal._check_rules(
    p_tenant_id text, p_bucket_id text, p_memory_type text, p_policy memfold.policies, p_models text[]
) returns void
language plpgsql volatile
as $$
declare
    v_now memfold.policies;
begin
    -- Every write of a policy sets updated_at. A row that is less specific than the one that was read has no effect.
    if exists (
        select from memfold.policies as p
        where p.tenant_id in (p_tenant_id collate "C", '*')
            and p.bucket_id in (p_bucket_id collate "C", '*')
            and p.memory_type in (p_memory_type collate "C", '*')
            and p.updated_at <> p_policy.updated_at
            and memfold_internal._specificity(p.tenant_id, p.bucket_id, p.memory_type)
            >= memfold_internal._specificity(p_policy.tenant_id, p_policy.bucket_id, p_policy.memory_type)
    ) then
        v_now := memfold_internal._candidate_policy(p_tenant_id, p_bucket_id, p_memory_type);
        v_now.updated_at := p_policy.updated_at;
        if v_now is distinct from p_policy then
            perform memfold_internal._retry('the rules of the bucket have changed', 'They changed while this call waited for a lock.');
        end if;
    end if;
    if p_models is not null and exists (
        select from memfold.embedding_models as m where m.model = any(p_models) and m.replaced_by is not null
    ) then
        perform memfold_internal._retry('the embedding model has been replaced', 'It was replaced while this call waited for a lock.');
    end if;
end;
$$;

-- Whether a policy compares texts across scopes, so that writers must lock the bucket. p_scope, p_key_fields,
-- p_rehash_run: columns of the policy. Inlined by its callers.
create or replace function memfold_internal._is_wide(p_scope text, p_key_fields text, p_rehash_run uuid) returns boolean
language sql immutable parallel safe
return p_scope = 'bucket' or p_key_fields <> 'type,subject,predicate' or p_rehash_run is not null;

-- The options of a type in a bucket.
create or replace function memfold_internal._options(p_tenant_id text, p_bucket_id text, p_memory_type text) returns memfold.options
language plpgsql stable
as $$
declare
    v_options memfold.options;
begin
    select o.* into v_options
    from memfold.options as o
    where o.tenant_id in (p_tenant_id collate "C", '*')
        and o.bucket_id in (p_bucket_id collate "C", '*')
        and o.memory_type in (p_memory_type collate "C", '*')
    order by memfold_internal._specificity(o.tenant_id, o.bucket_id, o.memory_type) desc
    limit 1;
    return v_options;
end;
$$;

-- How memories of a type decay; protected types have the rate 0. Columns, because the view memory_audit must not depend
-- on the row type of options: Citus would see a circular dependency, and no node could be added.
create or replace function memfold_internal._decay(
    p_tenant_id text, p_bucket_id text, p_memory_type text,
    out decay_rate double precision, out decay_floor double precision, out decay_interval interval
)
language plpgsql stable
as $$
declare
    v_options memfold.options := memfold_internal._options(p_tenant_id, p_bucket_id, p_memory_type);
begin
    decay_rate := case when p_memory_type = any(v_options.protected_types) then 0 else v_options.decay_rate end;
    decay_floor := v_options.decay_floor;
    decay_interval := v_options.decay_interval;
end;
$$;

-- How many values a predicate has at a time: one or many; null, which counts as many: nobody has declared it.
create or replace function memfold_internal._cardinality(p_tenant_id text, p_predicate text) returns text
language sql stable
begin atomic
    select p.cardinality
    from memfold.predicates as p
    where
        p.tenant_id in (p_tenant_id collate "C", '*')
        and p.predicate = memfold_internal._predicate_1(p_predicate) collate "C"
    order by p.tenant_id = '*'
    limit 1;
end;

-- The distinct predicates among p_predicates that nobody has declared (_cardinality).
create or replace function memfold_internal._undeclared(p_tenant_id text, p_predicates text[]) returns text[]
language plpgsql stable
as $$
begin
    return array(
        select distinct u.predicate from unnest(p_predicates) as u (predicate)
        where memfold_internal._predicate_1(u.predicate) <> all(array(
            select p.predicate from memfold.predicates as p
            where p.tenant_id in (p_tenant_id collate "C", '*') and p.predicate = any(array(
                select memfold_internal._predicate_1(o.predicate) from unnest(p_predicates) as o (predicate)
            ))
        ))
    );
end;
$$;

-- Whether a predicate has one value at a time. Inlined by its callers.
create or replace function memfold_internal._is_single(p_tenant_id text, p_predicate text) returns boolean
language sql stable
return coalesce(memfold_internal._cardinality(p_tenant_id, p_predicate) = 'one', false);

-- The conflict policy of a predicate: its own, else p_conflict, the bucket's.
create or replace function memfold_internal._conflict(p_tenant_id text, p_predicate text, p_conflict text) returns text
language sql stable
begin atomic
    select coalesce((
        select p.conflict
        from memfold.predicates as p
        where
            p.tenant_id in (p_tenant_id collate "C", '*')
            and p.predicate = memfold_internal._predicate_1(p_predicate) collate "C"
        order by p.tenant_id = '*'
        limit 1
    ), p_conflict);
end;

-- Whether two statements name different values of a predicate that has one value at a time; null if an object is null.
-- Tier 2 does not compare such texts.
create or replace function memfold_internal._are_two_values(p_tenant_id text, p_predicate text, p_object text, p_other_object text)
returns boolean
language plpgsql stable
as $$
begin
    return memfold.canonicalize(p_object, 'prose/1') <> memfold.canonicalize(p_other_object, 'prose/1')
        and memfold_internal._is_single(p_tenant_id, p_predicate);
end;
$$;

-- Whether a scope with this predicate is a slot: it has one value at a time, deduplication is on, and the conflict policy is not keep_both.
create or replace function memfold_internal._is_slot(
    p_tenant_id text, p_bucket_id text, p_memory_type text, p_predicate text
) returns boolean
language plpgsql stable
as $$
declare
    v_policy memfold.policies;
begin
    if p_predicate is null or not memfold_internal._is_single(p_tenant_id, p_predicate) then
        return false;
    end if;
    v_policy := memfold_internal._policy(p_tenant_id, p_bucket_id, p_memory_type);
    return v_policy.dedup = 'on' and memfold_internal._conflict(p_tenant_id, p_predicate, v_policy.conflict) <> 'keep_both';
end;
$$;
