create or replace function memfold_internal._policy(tenant_id text, bucket_id text, memory_type text) returns memfold.policies
language plpgsql stable
as $$
declare
    v_row record;
    v_policy memfold.policies;
    v_rank integer := -1;
begin
    -- At most eight rows, usually one: a loop is cheaper than a sort.
    for v_row in
        select p as policy,
            (p.tenant_id <> '*')::integer * 4 + (p.bucket_id <> '*')::integer * 2 + (p.memory_type <> '*')::integer as rank
        from memfold.policies as p
        where p.tenant_id in (_policy.tenant_id collate "C", '*')
            and p.bucket_id in (_policy.bucket_id collate "C", '*')
            and p.memory_type in (_policy.memory_type collate "C", '*')
    loop
        if v_row.rank > v_rank then
            v_rank := v_row.rank;
            v_policy := v_row.policy;
        end if;
    end loop;
    if memory_type = 'quote' and v_policy.canonicalizer like 'lemma/%' then
        -- a quotation is its words
        v_policy.canonicalizer := 'prose/1';
    end if;
    return v_policy;
end;
$$;
revoke all on function memfold_internal._policy(text, text, text) from public;
comment on function memfold_internal._policy(text, text, text) is
'The policy that applies: the most specific of (tenant, bucket, type), (tenant, bucket), tenant, default. Quotes (type quote)
are never lemmatised: prose/1 for lemma/1.';

create or replace function memfold_internal._is_single(tenant_id text, predicate text) returns boolean
language sql stable
begin atomic
    select coalesce((
        select p.cardinality = 'one'
        from memfold.predicates as p
        where
            p.tenant_id in (_is_single.tenant_id collate "C", '*')
            and p.predicate = memfold.canonicalize(_is_single.predicate, 'prose/1') collate "C"
        order by p.tenant_id = '*'
        limit 1
    ), false);
end;
revoke all on function memfold_internal._is_single(text, text) from public;
comment on function memfold_internal._is_single(text, text) is 'Whether a predicate has one value at a time.';

create or replace function memfold_internal._conflict(tenant_id text, predicate text, conflict text) returns text
language sql stable
begin atomic
    select coalesce((
        select p.conflict
        from memfold.predicates as p
        where
            p.tenant_id in (_conflict.tenant_id collate "C", '*')
            and p.predicate = memfold.canonicalize(_conflict.predicate, 'prose/1') collate "C"
        order by p.tenant_id = '*'
        limit 1
    ), _conflict.conflict);
end;
revoke all on function memfold_internal._conflict(text, text, text) from public;
comment on function memfold_internal._conflict(text, text, text) is
'The conflict policy of a predicate: its own, else (conflict) that of the bucket.';
