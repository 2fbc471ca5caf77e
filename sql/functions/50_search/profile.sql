create or replace function memfold.profile(
    subject text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_results bigint default 200
) returns setof memfold.profile_fact
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_subject text collate "C";
    v_facts memfold.profile_fact[];
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('bucket_id', bucket_id, true);
    perform memfold_internal._check_identifier('subject', profile.subject, true);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_results was %s.', coalesce(max_results::text, 'null')), 'max_results is 1 to 10000.');
    end if;
    v_subject := memfold.canonicalize((memfold_internal._resolve_names(tenant_id, bucket_id, profile.subject, null, '')).subject, 'prose/1');
    v_facts := array(
        select (c.memory_id, c.content, c.predicate, c.object, c.valid_from, null)::memfold.profile_fact
        from memfold.current_memories(tenant_id, bucket_id) as c
        where memfold.canonicalize(c.subject, 'prose/1') = v_subject
        order by c.predicate nulls last, c.valid_from desc, c.memory_id desc
        limit max_results
    );
    return query
    select f.memory_id, f.content, f.predicate, f.object, f.valid_from, coalesce(d.others, '{}')
    from unnest(v_facts) with ordinality as f
    left join memfold_internal._disputes(tenant_id, array(select o.memory_id from unnest(v_facts) as o)) as d on d.memory_id = f.memory_id
    order by f.ordinality;
end;
$$;
grant execute on function memfold.profile to memfold_app;
comment on function memfold.profile is
'Returns the current memories about a subject (linked names count), by predicate, the newest first. Reads the active memories of the
bucket. Raises MF001 to MF003, MF022.';
