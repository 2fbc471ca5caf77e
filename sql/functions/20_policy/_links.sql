-- Rules: policies, which decide candidates and verdicts; options, for recall and maintenance; predicates, with the number
-- of values that each has at a time; links, which are names that stand for other names. For policies and options, only
-- the most specific row of (tenant, bucket, type), (tenant, bucket), tenant, default applies.
--
-- Nearly every later module reads rules here. 24_rehash writes those that change what is derived from stored memories; this module writes
-- options (set_options, under the bucket's lock), the words of memories, and in triggers the defaults of a plain INSERT. Rules that were
-- read before a wait for a lock must be checked again after it (_check_names, and _check_rules in 24_rehash). Names are resolved before
-- anything is hashed; no name is itself an alias, so one lookup is enough.

-- Whether a tenant has linked any name.
create or replace function memfold_internal._has_links(p_tenant_id text) returns boolean
language plpgsql stable
as $$
begin
    return exists (select from memfold.links as l where l.tenant_id = p_tenant_id collate "C");
end;
$$;

-- The canonical form of a name, by which links find it.
create or replace function memfold_internal._link_key(p_kind text, p_name text) returns text
language sql immutable parallel safe
return case when p_kind = 'predicate' then memfold_internal._predicate_1(p_name) else memfold_internal._prose_1(p_name) end;

-- The name that p_name stands for in a bucket, by the bucket's own link, else by one for all buckets; null: none.
create or replace function memfold_internal._linked_name(p_tenant_id text, p_bucket_id text, p_kind text, p_name text) returns text
language plpgsql stable
as $$
declare
    v_name text;
begin
    select l.name into v_name
    from memfold.links as l
    where l.tenant_id = p_tenant_id collate "C" and l.bucket_id in (p_bucket_id collate "C", '*')
        and l.kind = p_kind collate "C"
        and l.alias = memfold_internal._link_key(p_kind, p_name) collate "C"
    order by l.bucket_id = '*'
    limit 1;
    return v_name;
end;
$$;

-- Whether a canonical text begins with these canonical words, as whole words.
create or replace function memfold_internal._begins_with(p_content text, p_beginning text) returns boolean
language sql immutable parallel safe
return p_content = p_beginning or pg_catalog.starts_with(p_content, p_beginning || ' ');

-- The subject and predicate under which a bucket stores a statement with these names, and whether they differ. Without
-- a subject, the beginning of p_content (null: none) may name one.
create or replace function memfold_internal._resolve_names(
    p_tenant_id text, p_bucket_id text, p_given_subject text, p_given_predicate text, p_content text,
    out subject text, out predicate text, out is_linked boolean
)
language plpgsql stable
as $$
begin
    subject := p_given_subject;
    predicate := p_given_predicate;
    is_linked := false;
    if not memfold_internal._has_links(p_tenant_id) then
        return;
    end if;
    if p_given_subject is not null then
        subject := coalesce(memfold_internal._linked_name(p_tenant_id, p_bucket_id, 'subject', p_given_subject), p_given_subject);
    elsif p_content is not null then
        -- the longer prefix is more specific
        select l.name into subject
        from memfold.links as l
        where l.tenant_id = p_tenant_id collate "C" and l.bucket_id in (p_bucket_id collate "C", '*')
            and l.kind = 'beginning'
            and memfold_internal._begins_with(memfold_internal._prose_1(p_content) collate "C", l.alias)
        order by length(l.alias) desc, l.bucket_id = '*'
        limit 1;
    end if;
    if p_given_predicate is not null then
        predicate := coalesce(memfold_internal._linked_name(p_tenant_id, p_bucket_id, 'predicate', p_given_predicate), p_given_predicate);
    end if;
    is_linked := (subject, predicate) is distinct from (p_given_subject, p_given_predicate);
end;
$$;

-- Whether a bucket stores a statement with these names under other names.
create or replace function memfold_internal._is_linked(
    p_tenant_id text, p_bucket_id text, p_subject text, p_predicate text, p_content text
) returns boolean
language plpgsql stable
as $$
begin
    return (memfold_internal._resolve_names(p_tenant_id, p_bucket_id, p_subject, p_predicate, p_content)).is_linked;
end;
$$;

-- Raises 40001 unless names still resolve to p_subject and p_predicate. Called after waiting for a lock, in a separate statement.
create or replace function memfold_internal._check_names(
    p_tenant_id text, p_bucket_id text, p_given_subject text, p_given_predicate text, p_content text, p_subject text, p_predicate text
) returns void
language plpgsql volatile
as $$
declare
    v_names record;
begin
    v_names := memfold_internal._resolve_names(p_tenant_id, p_bucket_id, p_given_subject, p_given_predicate, p_content);
    if (v_names.subject, v_names.predicate) is distinct from (p_subject, p_predicate) then
        perform memfold_internal._retry('a name has been linked', 'It was linked to another name while this call waited for a lock.');
    end if;
end;
$$;
