create or replace view memfold.runs_overview with (security_invoker = true) as
select
    r.tenant_id,
    r.run_id,
    r.bucket_id,
    r.kind,
    case when r.status = 'open' and r.kind in ('consolidation', 'sweep') and j.waiting = 0 then 'done' else r.status end as status,
    j.waiting,
    j.judged,
    j.obsolete,
    j.dead,
    e.merged,
    e.replaced,
    e.superseded,
    e.rejected,
    e.pruned,
    e.undone,
    r.report,
    r.arguments,
    r.started_at,
    r.ended_at,
    r.actor
from memfold.runs as r
cross join
    lateral (
        select
            count(*) filter (where o.status in ('open', 'leased')) as waiting,
            count(*) filter (where o.status = 'done') as judged,
            count(*) filter (where o.status = 'obsolete') as obsolete,
            count(*) filter (where o.status = 'dead') as dead
        from memfold.judgements as o
        where o.tenant_id = r.tenant_id and o.run_id = r.run_id
    ) as j
cross join lateral (
    select
        count(*) filter (where v.action = 'merged' and not v.undone) as merged,
        count(*) filter (where v.action = 'replaced' and not v.undone) as replaced,
        count(*) filter (where v.action = 'superseded' and not v.undone) as superseded,
        count(*) filter (where v.action = 'rejected' and not v.undone) as rejected,
        count(*) filter (where v.action = 'pruned' and not v.undone) as pruned,
        count(*) filter (where v.undone) as undone
    from memfold.ledger as v
    where v.tenant_id = r.tenant_id and v.run_id = r.run_id
) as e;
comment on view memfold.runs_overview is
'One row per maintenance run, with its present outcome: judgements waiting and answered, decisions in force and undone. status: open,
done, failed or undone.';
comment on column memfold.runs_overview.waiting is 'Judgements not answered yet, by memfold judge or approve_run().';
comment on column memfold.runs_overview.report is 'Report of the run, as of its end or its last check.';
grant select on memfold.runs_overview to memfold_app, memfold_auditor;
