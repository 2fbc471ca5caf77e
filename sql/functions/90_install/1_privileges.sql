-- Owners, privileges and triggers of all other modules. Every installation and upgrade runs this last.
--
-- What must stay true: memfold_owner, to which row-level security applies, owns all objects, except functions that work
-- across tenants (memfold_queue), tables on Citus (memfold_rules), and functions that memfold adopt generated, which run
-- the expressions of a user's table as its owner. PUBLIC may execute nothing; what an agent may call is listed here. An
-- upgrade must not lock tables in use, so it changes only what differs.
do $$
declare
    v_object record;
begin
    -- Only functions that PUBLIC may still execute, because each REVOKE writes the function's catalog row again.
    for v_object in
        select p.oid::regprocedure::text as name
        from pg_catalog.pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and (p.proacl is null or exists (
            select from pg_catalog.aclexplode(p.proacl) as a where a.grantee = 0
        ))
    loop
        execute pg_catalog.format('revoke all on routine %s from public', v_object.name);
    end loop;
    for v_object in
        select c.oid, c.relkind, c.oid::regclass::text as name
        from pg_catalog.pg_class as c
        where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind in ('r', 'p', 'v')
            and c.relname <> 'alembic_version' and c.relowner <> 'memfold_owner'::regrole
            -- The owner of tables on Citus (contrib/citus).
            and c.relowner is distinct from pg_catalog.to_regrole('memfold_rules')
    loop
        execute pg_catalog.format('alter %s %s owner to memfold_owner',
            case v_object.relkind when 'v' then 'view' else 'table' end, v_object.name);
    end loop;
    for v_object in
        select p.oid::regprocedure::text as name
        from pg_catalog.pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])
            and p.proowner not in ('memfold_owner'::regrole, 'memfold_queue'::regrole)
            and coalesce(pg_catalog.obj_description(p.oid, 'pg_proc'), '') not like 'Made by memfold adopt%'
    loop
        execute pg_catalog.format('alter routine %s owner to memfold_owner', v_object.name);
    end loop;
    -- Functions that work across tenants.
    alter function memfold_internal._claim owner to memfold_queue;
    alter function memfold_internal._retry_judgements owner to memfold_queue;
    alter function memfold.tenants owner to memfold_queue;
    alter function memfold_internal._indexed_words owner to memfold_queue;
    grant execute on function
    memfold_internal._claim, memfold_internal._retry_judgements, memfold.tenants, memfold_internal._indexed_words
    to memfold_owner;
    for v_object in
        select t.oid::regtype::text as name
        from pg_catalog.pg_type as t
        join pg_catalog.pg_class as c on c.oid = t.typrelid
        where t.typnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind = 'c'
            and t.typowner <> 'memfold_owner'::regrole
            and coalesce(pg_catalog.obj_description(t.oid, 'pg_type'), '') not like 'Made by memfold adopt%'
    loop
        execute pg_catalog.format('alter type %s owner to memfold_owner', v_object.name);
    end loop;
end;
$$;

grant select on
memfold.memories, memfold.memory_counters, memfold.memory_totals, memfold.memory_vectors, memfold.memory_intervals,
memfold.memory_sources, memfold.memory_tokens, memfold.memory_events, memfold.idempotency_keys, memfold.judgements,
memfold.labelled_pairs, memfold.runs, memfold.policies, memfold.options, memfold.predicates, memfold.links, memfold.antonyms,
memfold.lexicon, memfold.embedding_models, memfold.calibrations, memfold.calibration_changes, memfold.tenant_roles,
memfold.ledger, memfold_internal._observed, memfold_internal._decisions
to memfold_app, memfold_auditor;
grant select, insert, update on memfold.judgements to memfold_queue;
grant select on memfold.memories, memfold.memory_counters, memfold.memory_totals, memfold.memory_events to memfold_queue;
grant execute on function
memfold_internal._refresh_judgement, memfold_internal._was_asked, memfold_internal._judged_side, memfold_internal._is_in_question,
memfold_internal._members, memfold_internal._member_ids, memfold_internal._add_parts, memfold_internal._close_parts,
memfold_internal._queue_rest, memfold_internal._has_changed, memfold_internal._root, memfold_internal._requeue_judgement,
memfold_internal._lease, memfold_internal._new_id, memfold_internal._examples, memfold_internal._shown_link, memfold_internal._memory
to memfold_queue;
grant execute on function
memfold_internal._tenant, memfold_internal._bound_tenant, memfold_internal._bound_role, memfold_internal._root,
-- for the warning of dedup_stats
memfold_internal._search_limit, memfold_internal._vector_index, memfold_internal._vector_index_name, memfold_internal._unanswered
to memfold_app, memfold_auditor;
-- canonicalize(), its self-test and the functions that they call run as the caller.
do $$
declare
    v_function text;
begin
    for v_function in
        select p.oid::regprocedure::text
        from pg_catalog.pg_proc as p
        where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and (
            p.proname ~ '^_.*_1(_any)?$' or p.proname ~ '^_?canonical' or p.proname in (
                '_unknown_profile', '_other_profile', '_require_python', '_has_python', '_fail', '_lemma_selftest'
            )
        )
    loop
        execute pg_catalog.format('grant execute on function %s to memfold_app, memfold_auditor', v_function);
    end loop;
    -- The entries of an index of words are computed as the role that writes a row or searches.
    for v_function in
        select p.oid::regprocedure::text
        from pg_catalog.pg_proc as p
        where p.pronamespace = 'memfold_internal'::regnamespace
            and (p.proname ~ '^_.*_1(_any)?$' or p.proname in ('_text_words', '_word_vector', '_word_keys', '_memory_words'))
    loop
        execute pg_catalog.format('grant execute on function %s to memfold_app, memfold_auditor, memfold_queue', v_function);
    end loop;
end;
$$;

-- An agent may read what an application reads, and call what a conversation needs: the public functions listed here, and the
-- private ones that are granted to applications, except the steps of rehash_bucket() and take_up_links().
do $$
declare
    v_object record;
begin
    for v_object in
        select 'select on ' || c.oid::regclass::text as privilege
        from pg_catalog.pg_class as c
        cross join lateral pg_catalog.aclexplode(c.relacl) as a
        where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and c.relkind in ('r', 'p', 'v')
            and a.grantee = 'memfold_app'::regrole and a.privilege_type = 'SELECT'
        union all
        select 'execute on function ' || p.oid::regprocedure::text
        from pg_catalog.pg_proc as p
        cross join lateral pg_catalog.aclexplode(p.proacl) as a
        where a.grantee = 'memfold_app'::regrole and p.prokind = 'f' and (
            p.pronamespace = 'memfold_internal'::regnamespace
            and p.proname not in ('_rehash_begin', '_rehash_batch', '_take_up_batch', '_no_commit')
            or p.pronamespace = 'memfold'::regnamespace and p.proname in (
                'ingest_memory', 'ingest_memories', 'preview_memory', 'known_memory',
                'pending_embeddings', 'attach_embedding', 'embed_pending',
                'search_memories', 'find_similar', 'profile', 'current_memory', 'current_memories', 'effective_confidence', 'record_feedback',
                'explain_memory', 'canonicalize', 'update_memory', 'reject_memory', 'forget_memories', 'undo', 'resolve_judgement'
            )
        )
    loop
        execute pg_catalog.format('grant %s to memfold_agent', v_object.privilege);
    end loop;
end;
$$;
