-- Applies one changed rule to at most a hundred stored memories: a rule of a predicate, else a link. No more, because the
-- bucket stays locked until the call ends. is_left: another call may find more.
create or replace function memfold_internal._take_up_some(p_tenant_id text) returns memfold_internal.maintenance_step
language plpgsql volatile
as $$
declare
    v_step memfold_internal.maintenance_step;
    v_link memfold.links;
    v_run memfold.runs;
begin
    v_step.number := 0;
    v_step.is_left := false;
    select r.* into v_run
    from memfold.runs as r
    where r.tenant_id = p_tenant_id collate "C" and r.kind = 'predicate' and r.status = 'open'
    order by r.run_id
    limit 1;
    if found then
        v_step.number := memfold_internal._take_up_values(v_run, 100);
        v_step.is_left := true;
        return v_step;
    end if;
    select l.* into v_link
    from memfold.links as l
    join memfold.runs as r on r.tenant_id = l.tenant_id and r.run_id = l.run_id
    where l.tenant_id = p_tenant_id collate "C" and r.status = 'open'
    order by l.bucket_id, l.kind, l.alias
    limit 1;
    if found then
        v_step.number := memfold_internal._take_up_batch(p_tenant_id, v_link.bucket_id, v_link.kind, v_link.alias, 100);
        v_step.is_left := true;
    end if;
    return v_step;
end;
$$;

create or replace function memfold.ask_links(
    tenant_id text default current_setting('memfold.tenant_id', true),
    bucket_id text default 'default',
    max_questions bigint default 20
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_suggestion memfold.link_suggestion;
    v_asked bigint := 0;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if not coalesce(max_questions between 1 and 1000, false) then
        perform memfold_internal._fail('MF022', 'an argument is out of range',
            format('max_questions was %s.', coalesce(max_questions::text, 'null')), 'max_questions is 1 to 1000.');
    end if;
    for v_suggestion in
        select s.kind, s.alias, s.name, s.score, s.reasons, s.evidence
        from memfold.suggest_links(tenant_id, bucket_id, 10000) as s
    loop
        exit when v_asked >= max_questions;
        if memfold_internal._ask_about_names(tenant_id, bucket_id, v_suggestion) is not null then
            v_asked := v_asked + 1;
        end if;
    end loop;
    return v_asked;
end;
$$;
grant execute on function memfold.ask_links to memfold_app;
comment on function memfold.ask_links is
'Queues the best suggestions of suggest_links() as judgements of kind identity, at most max_questions (1 to 1,000), and returns how many:
do the two names mean the same? A judge or a person answers with resolve_judgement(): duplicate links them, distinct keeps them apart
permanently. Links nothing until then. Each pair of names is asked about once, in either order. Maintenance calls this function if the
option link_interval is set. Raises MF001 to MF003, MF022.';
