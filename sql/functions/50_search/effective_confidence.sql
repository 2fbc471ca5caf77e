create or replace function memfold.effective_confidence(
    memory_id uuid,
    tenant_id text default current_setting('memfold.tenant_id', true),
    as_of timestamptz default now()
) returns double precision
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
    m memfold.memories;
    v_confidence double precision;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    m := memfold_internal._memory_root(tenant_id, memory_id, '{}');
    select memfold_internal._effective(
        memfold_internal._confidence(k.source_confidence, k.extractor_confidence, k.independent, p.weight_source, p.weight_extractor,
            p.weight_repetition),
        greatest(k.last_accessed, k.last_seen), coalesce(as_of, now()),
        d.decay_rate, d.decay_floor, d.decay_interval)
    into v_confidence
    from memfold.memory_totals as k
    cross join memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
    cross join memfold_internal._decay(m.tenant_id, m.bucket_id, m.memory_type) as d
    where k.tenant_id = m.tenant_id and k.memory_id = m.memory_id;
    return v_confidence;
end;
$$;
grant execute on function memfold.effective_confidence to memfold_app;
comment on function memfold.effective_confidence is
'Returns the confidence of a memory (for an alias: of its root) after decay, at a time, in [0, 1]: confidence * (1 - decay_rate) ^ days
since last use, by its options. Last use is the later of last_accessed and last_seen. Decay begins after decay_interval without use, ends
at decay_floor and spares protected_types; with a decay_rate of 0, the default, the result is the confidence. Writes nothing. Null for a
row without an observation. Raises MF001, MF002, MF018.';
