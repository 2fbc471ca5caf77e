create or replace function memfold.ingest_memories(
    candidates jsonb,
    tenant_id text default current_setting('memfold.tenant_id', true),
    on_error text default 'report',
    embeddings vector [] default null
) returns setof memfold.batch_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    r memfold.batch_result;
begin
    if memfold_internal._is_authorized(tenant_id) is not true then
        perform memfold_internal._authorize_tenant(tenant_id);
    end if;
    -- what _check_batch() checks, without its 20 us
    if jsonb_typeof(candidates) = 'array' and jsonb_array_length(candidates) = 1
        and on_error in ('report', 'abort') and (cardinality(embeddings) = 1) is not false
    then
        r := memfold_internal._ingest_batch_of_one(tenant_id, candidates -> 0, embeddings[array_lower(embeddings, 1)]);
        if r.ordinal is not null then
            return next r;
            return;
        end if;
    end if;
    perform memfold_internal._check_batch(candidates, on_error, embeddings);
    return query select * from memfold_internal._ingest_batch(tenant_id, candidates, on_error, embeddings);
end;
$$;
grant execute on function memfold.ingest_memories to memfold_app;
comment on function memfold.ingest_memories is
'Ingests many candidates: a JSON array of at most 10,000 objects whose keys are the arguments of ingest_memory(). Produces the same
memories, counters and ledger as single calls in the same order. Returns one row per candidate: its position in the array (ordinal, from
0), and either what ingest_memory() returns, or sqlstate, error, detail and hint of what it would have raised: one bad candidate does not
affect the others. on_error abort: raises the first error and writes nothing. JSON null is SQL null: the default
of ingest_memory(), except for bucket_id and memory_type, which may not be null (MF003). embeddings: one vector per
candidate, or null; most efficient in binary form. Alternatively, a candidate may have the key embedding, an array of numbers or a string
in pgvector''s format: this takes ten times as long to read. Raises MF022, MF025, MF035; may raise 40001: retry it with the same
idempotency keys.';
