-- Raises MF063 if an alias (canonical) cannot be linked to p_name: it is that name, it stands for another name already, or
-- a link of a bucket and a link of all buckets would form a chain.
create or replace function memfold_internal._check_link(
    p_tenant_id text, p_bucket_id text, p_kind text, p_alias text, p_name text
) returns void
language plpgsql stable
as $$
declare
    -- the name of a beginning is that of a subject
    v_kind constant text collate "C" := case p_kind when 'beginning' then 'subject' else p_kind end;
    v_target constant text collate "C" := memfold_internal._link_key(p_kind, p_name);
    v_other memfold.links;
begin
    if p_kind <> 'beginning' and p_alias = v_target then
        perform memfold_internal._fail('MF063', 'the names cannot be linked',
            format('%L is %L, or is already an alias of it: the link would create a cycle.', p_name, p_alias),
            'Link the alias to the name to be stored. unlink_subject() and unlink_predicate() remove a link.');
    end if;
    select l.* into v_other
    from memfold.links as l
    where l.tenant_id = p_tenant_id collate "C" and l.kind = p_kind collate "C" and l.alias = p_alias collate "C"
        and (l.bucket_id = p_bucket_id collate "C" or l.bucket_id = '*')
        and memfold_internal._link_key(l.kind, l.name) <> v_target
    limit 1;
    if found then
        perform memfold_internal._fail('MF063', 'the names cannot be linked',
            format('%L already stands for %L (bucket %s).', p_alias, v_other.name, v_other.bucket_id),
            'Unlink it first, then link it again.');
    end if;
    -- a chain over a bucket and all buckets, in either direction
    select l.* into v_other
    from memfold.links as l
    where l.tenant_id = p_tenant_id collate "C" and l.kind in (v_kind, case v_kind when 'subject' then 'beginning' end)
        and (l.bucket_id = '*') <> (p_bucket_id = '*')
        and (memfold_internal._link_key(l.kind, l.name) = p_alias collate "C" and p_kind <> 'beginning'
            or l.kind = v_kind and l.alias = v_target and p_bucket_id = '*')
    limit 1;
    if found then
        perform memfold_internal._fail('MF063', 'the names cannot be linked',
            format('In bucket %s %L stands for %L, and the two links would form a chain.', v_other.bucket_id, v_other.alias,
                v_other.name),
            'Link both in the same bucket, or both in all buckets.');
    end if;
end;
$$;

-- Locks a tenant's links, then the bucket (none for '*'). Raises MF003, MF025.
create or replace function memfold_internal._lock_links(p_tenant_id text, p_bucket_id text) returns void
language plpgsql volatile
as $$
begin
    perform memfold_internal._check_identifier('bucket_id', p_bucket_id, true);
    perform memfold_internal._check_wildcard('tenant_id', p_tenant_id);
    -- only one call links or unlinks at a time; writers do not take this lock
    perform memfold_internal._lock(p_tenant_id, '*', null, true);
    if p_bucket_id <> '*' then
        perform memfold_internal._lock(p_tenant_id, p_bucket_id, null, true);
    end if;
end;
$$;

-- Links an alias to a name, or to the name that p_name stands for, and takes up at most 1,000 texts that the bucket has
-- under the alias. Returns the run. The caller holds the locks (_lock_links). Raises MF063, 55P03.
create or replace function memfold_internal._link(p_tenant_id text, p_bucket_id text, p_kind text, p_alias text, p_name text) returns uuid
language plpgsql volatile
as $$
declare
    v_name text := coalesce(memfold_internal._linked_name(p_tenant_id, p_bucket_id,
        case p_kind when 'beginning' then 'subject' else p_kind end, p_name),
        p_name);
    v_alias constant text collate "C" := memfold_internal._link_key(p_kind, p_alias);
    v_aliases text[];
    v_run memfold.runs;
    v_number bigint;
begin
    perform memfold_internal._check_link(p_tenant_id, p_bucket_id, p_kind, v_alias, v_name);
    select r.* into v_run
    from memfold.links as l
    join memfold.runs as r on r.tenant_id = l.tenant_id and r.run_id = l.run_id
    where l.tenant_id = p_tenant_id collate "C" and l.bucket_id = p_bucket_id collate "C" and l.kind = p_kind collate "C"
        and l.alias = v_alias;
    if not found then
        -- no chains: aliases of the alias become aliases of the name
        if p_kind <> 'beginning' then
            with led as (
                update memfold.links as l
                set name = v_name
                where l.tenant_id = p_tenant_id collate "C" and l.bucket_id = p_bucket_id collate "C"
                    and (l.kind = p_kind collate "C" or (p_kind, l.kind) = ('subject', 'beginning'))
                    and memfold_internal._link_key(l.kind, l.name) = v_alias
                returning l.kind || ' ' || l.alias as led
            )
            select array_agg(led.led) into v_aliases from led;
        end if;
        v_run := memfold_internal._start_run(p_tenant_id, p_bucket_id, 'link', jsonb_build_object('kind', p_kind, 'alias',
            v_alias,
            'name', v_name, 'was', p_alias, 'repointed', v_aliases));
        insert into memfold.links (tenant_id, bucket_id, kind, alias, name, run_id)
        values (v_run.tenant_id, v_run.bucket_id, p_kind, v_alias, v_name, v_run.run_id)
        on conflict on constraint links_pkey do update set run_id = excluded.run_id;
        perform memfold_internal._close_questions_about(p_tenant_id, p_bucket_id, p_kind, v_alias);
    end if;
    if p_bucket_id = '*' then
        return v_run.run_id;
    end if;
    v_number := memfold_internal._take_up(p_tenant_id, p_bucket_id, p_kind, v_alias, v_run.run_id, 1000);
    perform memfold_internal._note_taken_up(p_tenant_id, v_run.run_id, v_number, v_number < 1000);
    return v_run.run_id;
end;
$$;

create or replace function memfold.link_subject(
    alias text,
    subject text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default'
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('subject', alias, false);
    perform memfold_internal._check_identifier('subject', subject, true);
    perform memfold_internal._lock_links(tenant_id, bucket_id);
    return memfold_internal._link(tenant_id, bucket_id, case when alias is null then 'beginning' else 'subject' end,
        coalesce(alias, subject), subject);
end;
$$;
grant execute on function memfold.link_subject to memfold_app;
comment on function memfold.link_subject is
'Makes alias another name of subject: from now on, statements about alias are stored, hashed and searched as statements about subject (the
ledger keeps the name that was given). If subject is itself an alias, its name is used. alias null: texts that come without a subject and
begin with this one belong to it. bucket_id ''*'': in all buckets. Takes up at most 1,000 texts that the bucket already has under the
alias; call take_up_links() for the rest, and for ''*''. Texts that become equal under the new name are merged. Returns the run (runs,
kind link), which undo_run() undoes as unlink_subject() does. Blocks writers of the bucket while it runs: about 1 ms per text, 10 ms per
merge. 55P03: another transaction has held a memory for half a second; call it again. If the names are already linked, it continues to
take up texts. Raises MF001 to MF003, MF025, MF063.';

create or replace function memfold.link_predicate(
    alias text,
    predicate text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default'
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('predicate', alias, true);
    perform memfold_internal._check_identifier('predicate', predicate, true);
    perform memfold_internal._lock_links(tenant_id, bucket_id);
    return memfold_internal._link(tenant_id, bucket_id, 'predicate', alias, predicate);
end;
$$;
grant execute on function memfold.link_predicate to memfold_app;
comment on function memfold.link_predicate is
'Makes alias another name of a predicate, as link_subject() does for subjects. Spellings that differ only by case and separators are equal
without a link. The number of values at a time (set_predicate) is that of the name, for stored memories as they are taken up. Returns the
run. Raises MF001 to MF003, MF025, MF063.';
