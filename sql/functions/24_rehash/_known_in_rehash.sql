-- For a caller that has read the policy, checked the vectors' models and then waited for the lock, in a separate
-- statement: raises 40001 if a rule has changed since, or a model was replaced. (Predicates are read under the lock.)
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
        v_now := memfold_internal._policy(p_tenant_id, p_bucket_id, p_memory_type);
        -- as in _candidate()
        if v_now.dedup = 'off' then
            v_now.canonicalizer := null;
        end if;
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

-- _known_text() in a bucket that is being rehashed: the text that has, or will have, the candidate's hash. Only reads. A
-- text that will become equal to the candidate's for the first time is not found; it is merged when the rehash reaches
-- it.
create or replace function memfold_internal._known_in_rehash(c memfold_internal.candidate)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key uuid)
language plpgsql stable rows 1
as $$
#variable_conflict use_column
declare
    v_hash bytea := c.content_hash;
    m memfold.memories;
    p memfold.policies;
begin
    -- by the new hash, then by the old one; a stale text counts by its future hash
    for v_turn in 1..2 loop
        select t.* into m
        from memfold.memories as t
        where t.tenant_id = c.tenant_id and t.bucket_id = c.bucket_id
            and t.content_hash >= v_hash and t.content_hash <= v_hash
        order by t.content_hash
        limit 1;
        if found then
            p := memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type);
            if (
                case when memfold_internal._is_stale(m, p) then memfold_internal._hash_under(m, p) = c.content_hash else v_turn = 1 end
            ) then
                return query select m.memory_id, m.root_id, m.status::text, m.predicate::text, m.scope_key;
                return;
            end if;
        end if;
        if memfold.canonicalize(c.content, (c.policy).rehash_from_canonicalizer) = '' then
            return;
        end if;
        v_hash := memfold_internal._content_hash(c.memory_type, c.subject, c.predicate, c.content,
            (c.policy).rehash_from_canonicalizer, (c.policy).rehash_from_key_fields,
            memfold_internal._metadata_signature(c.metadata, (c.policy).rehash_from_metadata_keys));
    end loop;
end;
$$;

-- Tier 1's lookup for a candidate, whether or not its bucket is being rehashed, and whether or not the texts under an
-- alias of its name have been taken up.
create or replace function memfold_internal._known_candidate(c memfold_internal.candidate)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key uuid)
language plpgsql stable rows 1
as $$
begin
    if (c.policy).rehash_run is null then
        return query select * from memfold_internal._known_text(c.tenant_id, c.bucket_id, c.content_hash);
        if not found and (c.given_subject, c.given_predicate) is distinct from (c.subject, c.predicate) then
            -- under the name that it came with: take_up_links() has not reached it yet
            return query select k.* from memfold_internal._known_text(c.tenant_id, c.bucket_id, memfold_internal._content_hash(
                c.memory_type, c.given_subject, c.given_predicate, c.content, (c.policy).canonicalizer, (c.policy).key_fields,
                c.metadata_signature)) as k;
        end if;
    else
        return query select * from memfold_internal._known_in_rehash(c);
    end if;
end;
$$;

-- _known_candidate() for a caller that stores the text if it is not known, with no stale hash left in its way. The
-- caller holds the lock.
create or replace function memfold_internal._known_before_insert(c memfold_internal.candidate)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key uuid)
language plpgsql volatile rows 1
as $$
begin
    for v_turn in 1..2 loop
        return query select k.* from memfold_internal._known_candidate(c) as k;
        exit when found or v_turn = 2 or not memfold_internal._displace_stale_hash(c);
    end loop;
end;
$$;

-- In a rehash (else it does nothing): if a different, stale text has the hash of the candidate, gives it its own hash.
-- Returns whether it did: texts that were merged into it may then be separate again, and one of them may be the
-- candidate's. The caller holds the bucket's lock.
create or replace function memfold_internal._displace_stale_hash(c memfold_internal.candidate) returns boolean
language plpgsql volatile
as $$
declare
    m memfold.memories;
begin
    if (c.policy).rehash_run is null then
        return false;
    end if;
    select t.* into m
    from memfold.memories as t
    where t.tenant_id = c.tenant_id and t.bucket_id = c.bucket_id
        and t.content_hash >= c.content_hash and t.content_hash <= c.content_hash
    order by t.content_hash
    limit 1;
    if not found or not memfold_internal._is_stale(m, memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type)) then
        return false;
    end if;
    perform memfold_internal._rehash_text(m.tenant_id, m.memory_id, (c.policy).rehash_run, null);
    return true;
end;
$$;
