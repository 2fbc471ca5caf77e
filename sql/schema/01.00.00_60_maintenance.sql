create type memfold.decay_report as (
    run_id uuid,
    decayed bigint,
    remaining bigint
);
comment on type memfold.decay_report is
'Result of apply_decay(): how many memories it updated (decayed), and how many remain for another call. run_id: its row in runs.';

create type memfold_internal.maintenance_step as (number bigint, is_left boolean, after text);
comment on type memfold_internal.maintenance_step is
'Result of a task of run_maintenance(): how much it did, whether it has more to do, and where it continues.';
