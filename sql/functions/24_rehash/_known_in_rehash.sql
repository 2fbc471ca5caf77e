-- Applies changed rules to stored memories: policies, predicates, and rules for hashes (rehash_bucket); and tier 1's
-- lookup during such a change. Ingest and decisions call the lookup; undo and maintenance call the rest.
--
-- A rehash goes through the texts of a bucket. A text that it has not reached is stale, and found by its old hash and by
-- its future one. If two texts are equal under the new rules, one becomes an alias of the other, without a hash (its twin).
-- After a change of a predicate or policy, the memories concerned are derived again. Maintenance finishes the rest.
--
-- The module locks buckets, or a tenant's rules, and writes policies, predicates, runs, the ledger and hash columns of
-- memories. What must stay true: no two texts of a bucket have the same hash; a merge never closes a cycle
-- (_is_beneath).

-- _known_text() in a bucket that is being rehashed: the text that has, or will have, the candidate's hash. Does not find
-- a text that only becomes equal by the new rules; the rehash merges it when it gets there.
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
    -- by the new hash, then by the old one; a stale text matches by its future hash
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

-- Tier 1's lookup for a candidate, also while its bucket is rehashed or texts under an alias wait to be taken up.
create or replace function memfold_internal._known_candidate(c memfold_internal.candidate)
returns table (memory_id uuid, root_id uuid, status text, predicate text, scope_key uuid)
language plpgsql stable rows 1
as $$
begin
    if (c.policy).rehash_run is null then
        return query select * from memfold_internal._known_text(c.tenant_id, c.bucket_id, c.content_hash);
        if not found and (c.given_subject, c.given_predicate) is distinct from (c.subject, c.predicate) then
            -- under the name that the candidate came with: take_up_links() may not have reached that text
            return query select k.* from memfold_internal._known_text(c.tenant_id, c.bucket_id, memfold_internal._content_hash(
                c.memory_type, c.given_subject, c.given_predicate, c.content, (c.policy).canonicalizer, (c.policy).key_fields,
                c.metadata_signature)) as k;
        end if;
    else
        return query select * from memfold_internal._known_in_rehash(c);
    end if;
end;
$$;

-- _known_candidate() for a caller that will store the text if it is not known: no stale text keeps its hash. The caller holds the lock.
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

-- Rehashes a stale text that has the candidate's hash. Returns whether there was one: texts that were merged into it may
-- be separate again, and one of them may be the candidate's. The caller holds the bucket's lock.
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
