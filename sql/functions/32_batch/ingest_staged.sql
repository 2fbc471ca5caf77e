create or replace function memfold_internal._take_staged(tenant_id text, batch_id uuid) returns memfold.staged_candidates[]
language plpgsql volatile
-- by their index, whatever the statistics say: see _probe_batch()
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_batch_id constant uuid := batch_id;
    v_rows memfold.staged_candidates[];
begin
    -- what a client has left behind
    delete from memfold.staged_candidates as s
    where s.tenant_id = v_tenant_id and s.batch_id = any(array(
        select o.batch_id from memfold.staged_candidates as o
        where o.tenant_id = v_tenant_id and o.ordinal = 0 and o.staged_at < now() - interval '1 day' and o.batch_id <> v_batch_id
        for update skip locked
    ));
    with taken as (
        delete from memfold.staged_candidates as s
        where s.tenant_id = v_tenant_id and s.batch_id = v_batch_id
        returning s.*
    )
    select array_agg(t::memfold.staged_candidates order by t.ordinal) into v_rows from taken as t;
    return v_rows;
end;
$$;
revoke all on function memfold_internal._take_staged(text, uuid) from public;
comment on function memfold_internal._take_staged(text, uuid) is
'The rows of a batch, in order, taken out of staged_candidates; with them goes what the tenant has left there for a day.';

create or replace function memfold.ingest_staged(
    batch_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    on_error text default 'report'
) returns setof memfold.batch_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_tenant_id constant text collate "C" := tenant_id;
    v_batch_id constant uuid := batch_id;
    v_rows memfold.staged_candidates[];
begin
    perform memfold_internal._authorize_tenant(v_tenant_id);
    if v_batch_id is null then
        perform memfold_internal._fail('MF022', 'batch_id is missing', 'batch_id was null.', 'Pass the id that the rows were copied with.');
    end if;
    v_rows := memfold_internal._take_staged(v_tenant_id, v_batch_id);
    perform memfold_internal._check_batch(coalesce(cardinality(v_rows), 0), on_error);
    return query select * from memfold_internal._ingest_rows(v_tenant_id, v_rows, null, on_error);
end;
$$;
revoke all on function memfold.ingest_staged(uuid, text, text) from public;
grant execute on function memfold.ingest_staged(uuid, text, text) to memfold_app;
comment on function memfold.ingest_staged(uuid, text, text) is
'ingest_memories() for candidates that the client has copied into staged_candidates under a batch_id of its own: faster, above
all with vectors. The rows are taken out; in the transaction that fails they stay. No row: nothing is done. Batches that the
tenant has not ingested for a day are removed. Raises MF022, MF025, MF035; may raise 40001: retry it.';
