create or replace function memfold.ingest_memories(
    candidates jsonb,
    tenant_id text default current_setting('memfold.tenant_id', true),
    on_error text default 'report',
    embeddings vector [] default null
) returns setof memfold.batch_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_batch(candidates, on_error, embeddings);
    return query select * from memfold_internal._ingest_batch(tenant_id, candidates, on_error, embeddings);
end;
$$;
revoke all on function memfold.ingest_memories(jsonb, text, text, vector []) from public;
grant execute on function memfold.ingest_memories(jsonb, text, text, vector []) to memfold_app;
comment on function memfold.ingest_memories(jsonb, text, text, vector []) is
'Takes in many candidates at once: a JSON array of at most 10,000 objects whose keys are the arguments of ingest_memory().
The same memories, counters and ledger as those calls one by one, in order. One row a candidate: its place in the array
(ordinal, from 0 on), what ingest_memory() returns, or sqlstate, error, detail and hint of what it would have raised: a bad
candidate does not keep the others out. on_error abort: the first one''s error is raised, and nothing is written.
JSON null stands for the default. embeddings: one vector for each candidate, null where it has none; best sent in binary form.
A candidate may have a member embedding instead, an array of numbers or a string as pgvector prints a vector: it is read in
ten times the time. Raises MF022, MF025, MF035; may raise 40001: retry it with the same idempotency keys.';
