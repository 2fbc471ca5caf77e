-- Records the start of a maintenance run, and returns it.
create or replace function memfold_internal._start_run(
    p_tenant_id text, p_bucket_id text, p_kind text, p_arguments jsonb
) returns memfold.runs
language plpgsql volatile
as $$
declare
    v_run memfold.runs;
    v_run_id constant uuid := memfold_internal._new_run_id(p_tenant_id);
begin
    insert into memfold.runs as r (tenant_id, run_id, bucket_id, kind, arguments, actor)
    values (p_tenant_id, v_run_id, p_bucket_id, p_kind, jsonb_strip_nulls(p_arguments), memfold_internal._actor())
    returning r.* into v_run;
    return v_run;
end;
$$;

-- A checksum of the rules by which a run plans: policies and options of the bucket, and embedding models.
create or replace function memfold_internal._rules_stamp(p_tenant_id text, p_bucket_id text) returns text
language plpgsql stable
as $$
begin
    return (
        select md5(string_agg(x.rule, ' ' order by x.rule))
        from (
            select p::text as rule from memfold.policies as p
            where p.tenant_id in (p_tenant_id collate "C", '*') and p.bucket_id in (p_bucket_id collate "C", '*')
            union all
            select o::text from memfold.options as o
            where o.tenant_id in (p_tenant_id collate "C", '*') and o.bucket_id in (p_bucket_id collate "C", '*')
            union all
            select m::text from memfold.embedding_models as m
        ) as x
    );
end;
$$;

-- Raises 40001 if the rules by which a run has planned have changed (_rules_stamp). Called once it has the bucket's lock.
create or replace function memfold_internal._check_rules_stamp(p_tenant_id text, p_bucket_id text, p_stamp text) returns void
language plpgsql volatile
as $$
begin
    if memfold_internal._rules_stamp(p_tenant_id, p_bucket_id) <> p_stamp then
        perform memfold_internal._retry('the rules of the bucket have changed', 'They changed while this call waited for a lock.');
    end if;
end;
$$;

-- The run with this id. Raises MF038 if there is none.
create or replace function memfold_internal._run(p_tenant_id text, p_run_id uuid) returns memfold.runs
language plpgsql stable
as $$
declare
    r memfold.runs;
begin
    select o.* into r
    from memfold.runs as o
    where o.tenant_id = p_tenant_id collate "C" and o.run_id = p_run_id;
    if not found then
        perform memfold_internal._fail('MF038', 'there is no such run',
            format('run_id was %s.', coalesce(p_run_id::text, 'null')),
            'runs_overview lists them; set memfold.tenant_id to their tenant.');
    end if;
    return r;
end;
$$;

-- Adds p_report and the counts of decisions and questions to the report of an open run, and marks the run done unless
-- some of its questions wait for an answer.
create or replace function memfold_internal._end_run(p_tenant_id text, p_run_id uuid, p_report jsonb) returns void
language plpgsql volatile
as $$
declare
    v_now constant timestamptz := clock_timestamp();
begin
    update memfold.runs as r
    set report = r.report - array['open', 'obsolete', 'dead'] || p_report || (
            select coalesce(jsonb_object_agg(c.name, c.n), '{}')
            from (
                select e.action as name, count(*) as n
                from memfold.ledger as e
                where e.tenant_id = r.tenant_id and e.run_id = r.run_id and not e.undone
                    and e.action in ('merged', 'replaced', 'superseded', 'rejected', 'pruned')
                group by e.action
                union all
                select case j.status when 'done' then j.verdict when 'leased' then 'open' else j.status end,
                    count(*)
                from memfold.judgements as j
                where j.tenant_id = r.tenant_id and j.run_id = r.run_id
                    and (j.status <> 'done' or j.verdict in ('distinct', 'unsure'))
                group by 1
            ) as c
        ),
        status = case when w.waits then 'open' else 'done' end,
        ended_at = case when not w.waits then v_now end
    from (
        select exists (
            select from memfold.judgements as j
            where j.tenant_id = p_tenant_id collate "C" and j.run_id = p_run_id
                and j.status in ('open', 'leased')
        ) as waits
    ) as w
    where r.tenant_id = p_tenant_id collate "C" and r.run_id = p_run_id and r.status = 'open';
end;
$$;
