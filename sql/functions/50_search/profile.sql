create or replace function memfold.profile(
    subject text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_results bigint default 200
) returns setof memfold.profile_fact
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
    v_subject text collate "C";
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('subject', profile.subject, true);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 10000.');
    end if;
    v_subject := memfold.canonicalize((memfold_internal._resolve_names(tenant_id, bucket_id, profile.subject, null, '')).subject, 'prose/1');
    return query
    select m.memory_id, m.content::text, m.predicate::text, m.object::text, f.valid_from,
        memfold_internal._disputed_by(profile.tenant_id, m.memory_id, m.bucket_id, m.scope_key, m.subject, m.predicate, m.object)
    from memfold.memories as m
    join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
    cross join lateral (
        select case when k.on_timeline then (
            select max(i.valid_from) from memfold.memory_intervals as i
            where i.tenant_id = m.tenant_id and i.memory_id = m.memory_id and i.valid_from <= greatest(now(), k.last_seen)
                and (i.valid_to > greatest(now(), k.last_seen) or i.valid_to is null)
        ) else coalesce(k.valid_from, k.first_seen) end as valid_from
        offset 0
    ) as f
    where m.bucket_id = profile.bucket_id collate "C" and m.tenant_id = profile.tenant_id collate "C" and m.root_id is null
        and m.status = 'active' and memfold.canonicalize(m.subject, 'prose/1') = v_subject and f.valid_from is not null
    order by m.predicate nulls last, f.valid_from desc, m.memory_id desc
    limit max_results;
end;
$$;
grant execute on function memfold.profile to memfold_app;
comment on function memfold.profile is
'What is known about a subject now (linked names count): its current memories, by predicate, the newest first. Reads the active memories of
the bucket. Raises MF001 to MF003, MF022.';
