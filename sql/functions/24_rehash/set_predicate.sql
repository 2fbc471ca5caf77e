-- The predicates that a run of kind predicate is about. Null: a policy has changed.
create or replace function memfold_internal._predicates_of(p_arguments jsonb) returns text[]
language sql immutable parallel safe
begin atomic
    select pg_catalog.array_agg(p.name)
    from
        pg_catalog.jsonb_array_elements_text(
            coalesce(p_arguments -> 'predicates', pg_catalog.jsonb_build_array(p_arguments -> 'predicate'))
        ) as p (name)
    where p.name is not null;
end;

-- Hashes those of p_memory_ids that were stored with dedup => 'off' and whose policy has it on now. Equal texts are
-- merged; texts without a vector wait for one. The caller holds the buckets' locks.
create or replace function memfold_internal._opt_in(r memfold.runs, p_memory_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
    v_ids constant uuid[] := array(
        select i.id
        from unnest(p_memory_ids) with ordinality as i (id, place)
        cross join lateral memfold_internal._memory(r.tenant_id, i.id) as m
        where m.canonicalizer is null and m.content_hash is null
            and (memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type)).dedup = 'on'
        order by i.place
    );
begin
    perform memfold_internal._assign_hashes(r.tenant_id, v_ids, r.run_id, null);
    update memfold.memories as m
    set embedding_pending = true
    where m.tenant_id = r.tenant_id and m.memory_id = any(v_ids) and m.content_hash is not null and not exists (
        select from memfold.memory_vectors as v where v.tenant_id = m.tenant_id and v.memory_id = m.memory_id
    );
end;
$$;

-- Continues a run of kind predicate: locks the buckets of the next p_rows_at_most memories, in the order of their ids, and
-- derives them by the present rules. Returns how many. Raises 40001, and 55P03 if another transaction holds a row.
create or replace function memfold_internal._take_up_values(r memfold.runs, p_rows_at_most bigint) returns bigint
language plpgsql volatile
set plan_cache_mode = force_generic_plan
-- the transaction that holds a row may be waiting for the bucket
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
    v_predicates constant text[] := memfold_internal._predicates_of(r.arguments);
    v_ids uuid[];
    v_now timestamptz;
    v_last constant uuid := coalesce((r.report ->> 'last')::uuid, '00000000-0000-0000-0000-000000000000');
begin
    v_ids := array(
        select m.memory_id from memfold.memories as m
        where m.tenant_id = r.tenant_id and m.memory_id > v_last
            and m.root_id is null
            and r.bucket_id in ('*', m.bucket_id)
            and (v_predicates is null and (m.predicate is not null or m.metadata <> '{}' or m.canonicalizer is null)
                or m.status in ('active', 'superseded') and memfold_internal._predicate_1(m.predicate) = any(v_predicates))
        order by m.memory_id
        limit p_rows_at_most
    );
    if v_ids <> '{}' then
        perform memfold_internal._lock_scopes(r.tenant_id, array_agg(m.bucket_id), array_agg(m.scope_key), array_agg(true), '{}')
        from unnest(v_ids) as i (id)
        cross join lateral memfold_internal._memory(r.tenant_id, i.id) as m;
        if v_predicates is null then
            perform memfold_internal._opt_in(r, v_ids);
        end if;
        perform memfold_internal._derive_all(r.tenant_id, v_ids);
    end if;
    v_now := memfold_internal._clock();
    update memfold.runs as o
    set report = o.report || jsonb_strip_nulls(jsonb_build_object('last', v_ids[cardinality(v_ids)],
            'memories', coalesce((o.report ->> 'memories')::bigint, 0) + cardinality(v_ids))),
        status = case when cardinality(v_ids) < p_rows_at_most then 'done' else o.status end,
        ended_at = case when cardinality(v_ids) < p_rows_at_most then v_now end
    where o.tenant_id = r.tenant_id and o.run_id = r.run_id and o.status = 'open';
    return cardinality(v_ids);
end;
$$;

-- A hook: the part of a run that is done by the call that changed the rule (_take_up_values). On Citus none, because rules
-- are changed on any node.
create or replace function memfold_internal._take_up_now(r memfold.runs, p_rows_at_most bigint) returns bigint
language plpgsql volatile
as $$
begin
    return memfold_internal._take_up_values(r, p_rows_at_most);
end;
$$;

-- Closes the questions about the number of values of these predicates, which have been declared. Null: does nothing.
create or replace function memfold_internal._close_cardinality(p_tenant_id text, p_predicates text[]) returns void
language plpgsql volatile
as $$
begin
    update memfold.judgements as j
    set status = 'obsolete', reason = 'the predicate is declared', resolved_at = memfold_internal._clock()
    where j.tenant_id = p_tenant_id collate "C"
        and j.scope_key in (select memfold_internal._predicate_key(u.name) from unnest(p_predicates) as u (name))
        and j.kind = 'cardinality' and j.status in ('open', 'leased', 'dead');
end;
$$;

-- After a change of a rule: takes up at most 1,000 of the memories that it concerns, and leaves the rest to maintenance, in
-- one run per tenant. Returns the run; null: it concerns no stored memory, or all tenants (p_tenant_id '*').
create or replace function memfold_internal._take_up_rule(p_tenant_id text, p_bucket_id text, p_arguments jsonb) returns uuid
language plpgsql volatile
as $$
declare
    v_setting constant text := current_setting('memfold.tenant_id', true);
    v_tenants text[] := array[p_tenant_id];
    v_tenant_id text;
    v_left bigint := 1000;
    v_number bigint;
    v_run memfold.runs;
begin
    if p_tenant_id = '*' then
        v_tenants := array(select t from memfold.tenants() as t order by t);
    end if;
    foreach v_tenant_id in array v_tenants loop
        if p_tenant_id = '*' then
            perform set_config('memfold.tenant_id', v_tenant_id, true);
            perform memfold_internal._lock_rules(v_tenant_id);
            -- the tenant has its own rule
            continue when exists (
                select from memfold.predicates as p
                where p.tenant_id = v_tenant_id collate "C" and p.predicate = (p_arguments ->> 'predicate') collate "C"
            );
            perform memfold_internal._close_cardinality(v_tenant_id, memfold_internal._predicates_of(p_arguments));
        end if;
        v_run := memfold_internal._start_run(v_tenant_id, p_bucket_id, 'predicate', p_arguments);
        v_number := memfold_internal._take_up_now(v_run, v_left);
        if v_number = 0 and v_left > 0 then
            -- no stored memory is concerned
            delete from memfold.runs as r where r.tenant_id = v_run.tenant_id and r.run_id = v_run.run_id;
            v_run := null;
        end if;
        v_left := v_left - coalesce(v_number, 0);
    end loop;
    if p_tenant_id = '*' then
        perform set_config('memfold.tenant_id', coalesce(v_setting, ''), true);
        return null;
    end if;
    return v_run.run_id;
end;
$$;

-- Declares how many values a predicate has, or, if p_cardinality is null, that this is unknown, and takes up the memories
-- that it concerns (_take_up_rule). Returns the run. For set_predicate(), its undo, and answers of kind cardinality.
create or replace function memfold_internal._declare(p_tenant_id text, p_predicate text, p_cardinality text, p_conflict text) returns uuid
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_predicate constant text := memfold_internal._predicate_1(p_predicate);
    v_was memfold.predicates;
    v_run memfold.runs;
begin
    perform memfold_internal._lock_rules(p_tenant_id);
    select p.* into v_was
    from memfold.predicates as p
    where p.tenant_id = p_tenant_id collate "C" and p.predicate = v_predicate collate "C"
    for update;
    if p_cardinality is null then
        delete from memfold.predicates as p
        where p.tenant_id = p_tenant_id collate "C" and p.predicate = v_predicate collate "C";
    else
        insert into memfold.predicates as p (tenant_id, predicate, cardinality, conflict)
        values (p_tenant_id, v_predicate, p_cardinality, p_conflict)
        on conflict (tenant_id, predicate) do update
        set cardinality = excluded.cardinality, conflict = excluded.conflict, updated_at = excluded.updated_at
        where (p.cardinality, p.conflict) is distinct from (excluded.cardinality, excluded.conflict);
    end if;
    if found then
        return memfold_internal._take_up_rule(p_tenant_id, '*', jsonb_build_object('predicate', v_predicate,
            'cardinality', p_cardinality, 'conflict', p_conflict, 'was', to_jsonb(v_was),
            'for_all', nullif(p_tenant_id = '*', false)));
    end if;
    -- the same declaration again continues the last run
    select r.* into v_run
    from memfold.runs as r
    where r.tenant_id = p_tenant_id collate "C" and r.kind = 'predicate' and r.arguments ->> 'predicate' = v_predicate
    order by r.run_id desc
    limit 1;
    if v_run.status = 'open' then
        perform memfold_internal._take_up_now(v_run, 1000);
    end if;
    return v_run.run_id;
end;
$$;

create or replace function memfold.set_predicate(
    predicate text,
    tenant_id text default current_setting('memfold.tenant_id', true),
    cardinality text default 'one',
    conflict text default null
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_run_id uuid;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    perform memfold_internal._check_identifier('predicate', predicate, true);
    if cardinality is null then
        raise not_null_violation;
    end if;
    v_run_id := memfold_internal._declare(tenant_id, predicate, cardinality, conflict);
    perform memfold_internal._close_cardinality(tenant_id, array[predicate]);
    return v_run_id;
exception when check_violation or not_null_violation then
    perform memfold_internal._fail('MF017', 'an option has a value that is not allowed',
        format('cardinality was %L, conflict %L.', cardinality, conflict),
        'cardinality is one or many; conflict is newest_wins, keep_existing, keep_both, review, or null to use the policy''s.');
end;
$$;
grant execute on function memfold.set_predicate to memfold_app;
comment on function memfold.set_predicate is
'Sets how many values a predicate has at a time: one (a new value replaces the old one, by the conflict policy) or many. Applies
at once to what is stated from now on, and to up to 1,000 stored memories; maintenance, or the same call again, takes up the rest. Returns
the run (runs, kind predicate), which undo_run() undoes as a whole; null: no stored memory is concerned. tenant_id ''*'', for the
owner of the database: for all tenants that have no rule of their own, with a run and a lock for each; returns null, and a call with the
previous rule undoes it. Blocks the writers of these tenants while it runs, and waits for them first. 55P03: another transaction has held
a memory for half a second; call it again. Raises MF003, MF017, MF025.';
