create or replace function memfold.suggest_predicates(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_results bigint default 100
) returns setof memfold.predicate_suggestion
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_row memfold.predicate_suggestion;
begin
    perform memfold_internal._authorize_tenant(suggest_predicates.tenant_id);
    perform memfold_internal._check_identifier('bucket_id', suggest_predicates.bucket_id, true);
    if not coalesce(max_results between 1 and 10000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range', format('max_results was %s.', coalesce(max_results::text, 'null')),
            'max_results is 1 to 10000.');
    end if;
    for v_row in
        with facts as materialized (
            select m.memory_id, m.scope_key, m.predicate, memfold.canonicalize(m.object, 'prose/1') as value, m.session_id, k.first_seen, k.last_seen
            from memfold.memories as m
            join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
            where m.tenant_id = suggest_predicates.tenant_id collate "C" and m.bucket_id = suggest_predicates.bucket_id collate "C"
                and m.root_id is null and m.status = 'active' and num_nonnulls(m.subject, m.predicate, m.object) = 3
            order by m.memory_id desc
            limit 50000
        ),
        stated as (
            select f.scope_key, f.value, min(f.predicate) as predicate, min(f.first_seen) as first_seen, max(f.last_seen) as last_seen,
                max(f.memory_id::text)::uuid as memory_id, array_agg(distinct f.session_id) filter (where f.session_id is not null) as sessions
            from facts as f
            group by f.scope_key, f.value
        ),
        ordered as (
            select s.*, s.last_seen > lead(s.first_seen) over w as returns, s.sessions && lag(s.sessions) over w as is_together
            from stated as s
            window w as (partition by s.scope_key order by s.first_seen, s.memory_id)
        ),
        slots as (
            select o.scope_key, min(o.predicate) as predicate, count(*) as number, coalesce(bool_or(o.returns), false) as returns,
                coalesce(bool_or(o.is_together), false) as is_together, array_agg(o.memory_id order by o.memory_id desc) as newest
            from ordered as o
            group by o.scope_key
        ),
        found as (
            select min(s.predicate) as predicate, count(*) as subjects, count(*) filter (where s.number > 1) as changed,
                max(s.number) as most_values, count(*) filter (where s.returns) as returned, count(*) filter (where s.is_together) as together,
                count(*) filter (where s.number = 2 and not s.returns and not s.is_together) as plain,
                (array_agg(s.newest[1] order by s.number) filter (where s.number > 1))[1] as newer,
                (array_agg(s.newest[2] order by s.number) filter (where s.number > 1))[1] as older
            from slots as s
            group by memfold_internal._predicate_1(s.predicate)
        )
        select f.predicate, (f.plain + 1)::double precision / (f.changed + 2), f.subjects, f.changed, f.most_values, f.returned, f.together,
            array[f.newer, f.older]
        from found as f
        where f.changed > 0
        order by 2 desc, f.changed desc, f.predicate
    loop
        -- Not in the query, because on Citus its functions may not read tables.
        continue when memfold_internal._cardinality(suggest_predicates.tenant_id, v_row.predicate) is not null;
        return next v_row;
        max_results := max_results - 1;
        exit when max_results = 0;
    end loop;
end;
$$;
grant execute on function memfold.suggest_predicates to memfold_app;
comment on function memfold.suggest_predicates is
'Suggests predicates of a bucket that may have one value at a time, for set_predicate(); declares nothing. Considers
undeclared predicates of which some subject has several values. score in (0, 1), best first: (p + 1) / (changed + 2), where p of the changed
subjects have two values that were stated in different sessions, the older one not again after the newer. subjects: how many have this
predicate with an object; changed: how many of them have more than one value; most_values: the most values that one of them has; returned:
how many had an older value stated again after a newer one; together: how many had two values stated in one session; memory_ids: two values
of one of them, the newer first. Reads the newest 50,000 active memories
that have a subject, a predicate and an object. Raises MF001 to MF003, MF022.';
