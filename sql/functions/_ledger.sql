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
