-- Names that stand for other names (link_subject, link_predicate). They are resolved before anything is hashed. There are no chains: no
-- name is itself an alias, so one lookup is enough.

create or replace function memfold_internal._has_links(tenant_id text) returns boolean
language plpgsql stable
as $$
begin
    return exists (select from memfold.links as l where l.tenant_id = _has_links.tenant_id collate "C");
end;
$$;
comment on function memfold_internal._has_links is 'Whether a tenant has linked any name: most have not. Only reads.';

create or replace function memfold_internal._link_key(kind text, name text) returns text
language sql immutable parallel safe
return case when kind = 'predicate' then memfold_internal._predicate_1(name) else memfold_internal._prose_1(name) end;
comment on function memfold_internal._link_key is 'The canonical form of a name, by which links find it.';

create or replace function memfold_internal._linked_name(tenant_id text, bucket_id text, kind text, name text) returns text
language plpgsql stable
as $$
declare
    v_name text;
begin
    select l.name into v_name
    from memfold.links as l
    where l.tenant_id = _linked_name.tenant_id collate "C" and l.bucket_id in (_linked_name.bucket_id collate "C", '*')
        and l.kind = _linked_name.kind collate "C"
        and l.alias = memfold_internal._link_key(_linked_name.kind, _linked_name.name) collate "C"
    order by l.bucket_id = '*'
    limit 1;
    return v_name;
end;
$$;
comment on function memfold_internal._linked_name is
'The name that a name stands for in a bucket, by the bucket''s own link, else by a link of all buckets. Null: itself. Only reads.';

create or replace function memfold_internal._begins_with(content text, beginning text) returns boolean
language sql immutable parallel safe
return content = beginning or pg_catalog.starts_with(content, beginning || ' ');
comment on function memfold_internal._begins_with is 'Whether a text (canonical) begins with these words (canonical), as whole words.';

create or replace function memfold_internal._resolve_names(
    tenant_id text, bucket_id text, told_subject text, told_predicate text, content text,
    out subject text, out predicate text, out is_linked boolean
)
language plpgsql stable
as $$
begin
    subject := told_subject;
    predicate := told_predicate;
    is_linked := false;
    if not memfold_internal._has_links(tenant_id) then
        return;
    end if;
    if told_subject is not null then
        subject := coalesce(memfold_internal._linked_name(tenant_id, bucket_id, 'subject', told_subject), told_subject);
    elsif content is not null then
        -- of two beginnings the longer is more specific
        select l.name into subject
        from memfold.links as l
        where l.tenant_id = _resolve_names.tenant_id collate "C" and l.bucket_id in (_resolve_names.bucket_id collate "C", '*')
            and l.kind = 'beginning'
            and memfold_internal._begins_with(memfold_internal._prose_1(_resolve_names.content) collate "C", l.alias)
        order by pg_catalog.length(l.alias) desc, l.bucket_id = '*'
        limit 1;
    end if;
    if told_predicate is not null then
        predicate := coalesce(memfold_internal._linked_name(tenant_id, bucket_id, 'predicate', told_predicate), told_predicate);
    end if;
    is_linked := (subject, predicate) is distinct from (told_subject, told_predicate);
end;
$$;
comment on function memfold_internal._resolve_names is
'The subject and predicate under which a bucket stores statements with these names, and whether they differ. content: null if there is no
text. Only reads.';

create or replace function memfold_internal._is_linked(
    tenant_id text, bucket_id text, subject text, predicate text, content text
) returns boolean
language plpgsql stable
as $$
begin
    return (memfold_internal._resolve_names(tenant_id, bucket_id, subject, predicate, content)).is_linked;
end;
$$;
comment on function memfold_internal._is_linked is 'Whether a bucket stores statements with these names under other names. Only reads.';

create or replace function memfold_internal._check_names(
    tenant_id text, bucket_id text, told_subject text, told_predicate text, content text, subject text, predicate text
) returns void
language plpgsql volatile
as $$
declare
    v_names record;
begin
    v_names := memfold_internal._resolve_names(tenant_id, bucket_id, told_subject, told_predicate, content);
    if (v_names.subject, v_names.predicate) is distinct from (subject, predicate) then
        perform memfold_internal._retry('a name has been linked', 'It was linked to another name while this call waited for a lock.');
    end if;
end;
$$;
comment on function memfold_internal._check_names is
'For a caller that has resolved the names of a candidate and then waited for the lock, in a separate statement: raises 40001 if they have
changed.';
