-- After a link is removed: withdraws restatements made under one of its names, of a text that now has the other, and ingests
-- them again under their own name, at their own times. Returns how many. The caller holds the bucket's lock.
create or replace function memfold_internal._state_again(
    p_tenant_id text, p_bucket_id text, p_kind text, p_alias text, p_name text, p_run_id uuid
) returns bigint
language plpgsql volatile
set lock_timeout = '500ms'
as $$
declare
    e memfold.memory_events;
    v_number bigint := 0;
begin
    for e in
        select o.*
        from memfold.memories as m
        cross join lateral (
            select l.* from memfold.ledger as l
            where l.tenant_id = m.tenant_id and l.memory_id = m.memory_id and l.observation and l.tier = 1 and not l.undone
            offset 0
        ) as l
        cross join lateral memfold_internal._resolve_names(m.tenant_id, m.bucket_id, l.subject, l.predicate, l.content) as n
        cross join lateral memfold_internal._event(m.tenant_id, l.event_id) as o
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and case when p_kind = 'predicate' then memfold_internal._predicate_1(m.predicate) else memfold_internal._prose_1(m.subject) end
            in (p_alias collate "C", memfold_internal._link_key(p_kind, p_name) collate "C")
            and (memfold_internal._prose_1(n.subject), memfold_internal._predicate_1(n.predicate))
            is distinct from (memfold_internal._prose_1(m.subject), memfold_internal._predicate_1(m.predicate))
        order by l.event_id
    loop
        perform memfold_internal._undo(p_tenant_id, array[e.event_id], '{undone}', 'unlinked', p_run_id);
        perform memfold_internal._ingest(memfold_internal._validate(memfold_internal._candidate(e.content, p_tenant_id, p_bucket_id,
            e.memory_type, e.subject, e.predicate, e.object, null, null, e.source_turn_ids, e.source_confidence, e.extractor_confidence,
            e.session_id, e.origin, e.metadata, e.observed_at, e.valid_from, e.valid_until)), null);
        v_number := v_number + 1;
    end loop;
    return v_number;
end;
$$;

-- Removes a link, and gives texts that came under its alias that name again. Returns how many. Raises MF064 (there is no
-- such link). The caller holds the locks (_lock_links).
create or replace function memfold_internal._unlink(p_tenant_id text, p_bucket_id text, p_kind text, p_alias text) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    v_link memfold.links;
    v_run memfold.runs;
    v_bucket_id text;
    v_number bigint := 0;
    v_now timestamptz;
begin
    delete from memfold.links as l
    where l.tenant_id = p_tenant_id collate "C" and l.bucket_id = p_bucket_id collate "C" and l.kind = p_kind collate "C"
        and l.alias = memfold_internal._link_key(p_kind, p_alias) collate "C"
    returning l.* into v_link;
    if not found then
        perform memfold_internal._fail('MF064', 'there is no such link', format('%L is not an alias in bucket %s.', p_alias, p_bucket_id),
            'The table links lists the aliases of a tenant, each with its bucket (''*'': all).');
    end if;
    select r.* into v_run from memfold.runs as r where r.tenant_id = v_link.tenant_id and r.run_id = v_link.run_id;
    -- Re-point aliases to the alias that the link had re-pointed to its name.
    update memfold.links as l
    set name = v_run.arguments ->> 'was'
    where l.tenant_id = v_link.tenant_id and l.bucket_id = v_link.bucket_id
        and v_run.arguments -> 'repointed' ? (l.kind || ' ' || l.alias);
    perform memfold_internal._keep_names_apart(p_tenant_id, p_bucket_id, p_kind, v_link.alias, v_link.name, v_link.run_id);
    if p_bucket_id <> '*' then
        v_number := memfold_internal._give_back(p_tenant_id, p_bucket_id, p_kind, v_link.name, v_link.run_id);
        perform memfold_internal._state_again(p_tenant_id, p_bucket_id, p_kind, v_link.alias, v_link.name, v_link.run_id);
    else
        for v_bucket_id in
            select distinct m.bucket_id from memfold.memories as m
            where m.tenant_id = v_link.tenant_id
                and case when p_kind = 'predicate' then memfold_internal._predicate_1(m.predicate) else memfold_internal._prose_1(m.subject) end
                = memfold_internal._link_key(p_kind, v_link.name) collate "C"
            order by 1
        loop
            perform memfold_internal._lock(p_tenant_id, v_bucket_id, null, v_number = 0);
            v_number := v_number + memfold_internal._give_back(p_tenant_id, v_bucket_id, p_kind, v_link.name, v_link.run_id);
            perform memfold_internal._state_again(p_tenant_id, v_bucket_id, p_kind, v_link.alias, v_link.name, v_link.run_id);
        end loop;
    end if;
    -- Not in the UPDATE, in which Citus allows no volatile function.
    v_now := clock_timestamp();
    update memfold.runs as r
    set status = 'undone', ended_at = v_now, report = r.report || jsonb_build_object('given_back', v_number)
    where r.tenant_id = v_link.tenant_id and r.run_id = v_link.run_id;
    return v_number;
end;
$$;

create or replace function memfold.unlink_subject(
    alias text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    subject text default null
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('subject', coalesce(alias, subject), true);
    perform memfold_internal._lock_links(tenant_id, bucket_id);
    return memfold_internal._unlink(tenant_id, bucket_id, case when alias is null then 'beginning' else 'subject' end,
        coalesce(alias, subject));
end;
$$;
grant execute on function memfold.unlink_subject to memfold_app;
comment on function memfold.unlink_subject is
'Undoes link_subject(): the alias is a separate name again. Texts that first came under it get it back, including those that came since the
link; restatements of a text that came under the other name are ingested again under that name; texts that were merged because of the link
are separated. Merges that a judge, a sweep or a person has made since remain: undo them as well. From then on, the two names are recorded
as distinct: suggest_links() omits them, link_subject() still accepts them. alias null: undoes it for texts without a subject that begin
with this one. Returns how many texts now have another name. Runs in one transaction and blocks writers of the bucket until it ends. Raises
MF001 to MF003, MF025, MF064 (there is no such link).';

create or replace function memfold.unlink_predicate(
    alias text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default'
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('predicate', alias, true);
    perform memfold_internal._lock_links(tenant_id, bucket_id);
    return memfold_internal._unlink(tenant_id, bucket_id, 'predicate', alias);
end;
$$;
grant execute on function memfold.unlink_predicate to memfold_app;
comment on function memfold.unlink_predicate is
'Undoes link_predicate(), as unlink_subject() undoes link_subject(). Raises MF001 to MF003, MF025, MF064 (there is no such link).';
