create or replace view memfold._ledger with (security_invoker = true) as
select
    e.*,
    -- not EXISTS, for which a whole tenant's rows may be hashed
    (
        select true
        from memfold.memory_events as u
        where u.tenant_id = e.tenant_id and u.undoes = e.event_id
    ) is not null as undone
from memfold.memory_events as e;
comment on view memfold._ledger is 'The ledger, and of each row whether it was undone: then it is no longer in force.';

create or replace view memfold._whole_ledger with (security_invoker = true) as
select e.*
from memfold._ledger as e
where e.method is distinct from 'archived'
union all
select
    a.*,
    -- an undone row is moved together with what it takes back
    (
        select true
        from memfold.memory_events_archive as u
        where u.tenant_id = a.tenant_id and u.undoes = a.event_id
    ) is not null as undone
from memfold.memory_events_archive as a;
comment on view memfold._whole_ledger is
'The ledger as if nothing had been archived: for what asks when something was stated, or counts decisions.';
