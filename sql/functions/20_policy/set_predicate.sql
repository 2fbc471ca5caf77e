create or replace function memfold.set_predicate(
    predicate text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    cardinality text default 'one',
    conflict text default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform memfold_internal._authorize_tenant(set_predicate.tenant_id);
    perform memfold_internal._check_identifier('predicate', set_predicate.predicate, true);
    insert into memfold.predicates as p (tenant_id, predicate, cardinality, conflict)
    values (set_predicate.tenant_id, memfold_internal._predicate_1(set_predicate.predicate),
        set_predicate.cardinality, set_predicate.conflict)
    on conflict (tenant_id, predicate) do update
    set cardinality = excluded.cardinality, conflict = excluded.conflict, updated_at = excluded.updated_at;
exception when check_violation or not_null_violation then
    perform memfold_internal._fail('MF017', 'an option has a value that is not allowed',
        format('cardinality was %L, conflict %L.', set_predicate.cardinality, set_predicate.conflict),
        'cardinality is one or many; conflict is newest_wins, keep_existing, keep_both, review, or null to use the policy''s.');
end;
$$;
grant execute on function memfold.set_predicate to memfold_app;
comment on function memfold.set_predicate is
'Sets how many values a predicate has at a time: one (a new value supersedes the old one, by the conflict policy) or many. Applies to
candidates from now on; stored memories do not change. Raises MF003, MF017.';
