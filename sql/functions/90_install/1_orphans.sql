-- What sql/functions/ of a released version made, and these files no longer make, goes: an upgraded database has what a new
-- one has. A signature that changed is such an orphan too. Any other function of the schema is left alone: it is not ours.
-- What is listed is frozen with its release (tests/test_upgrade.py says what is missing); what these files have made or
-- replaced was written by this transaction, and is no orphan. Alone, outside such a transaction, this file does nothing.
do $$
declare
    v_released constant text := $list$
            _actor();
            _add_sources(text,uuid,uuid,text[]);
            _adopt_row(text,uuid);
            _apply(candidate,decision);
            _candidate(text,text,text,text,text,text,text,vector,text,text[],double precision,double precision,
            text,text,jsonb,timestamp with time zone);
            _canonicalizer_assigned();
            _canonicalizer_checksums();
            _canonicalizer_golden();
            _check_candidate(text,text,text,text,text,text,text[],double precision,double precision,text,text,
            jsonb,timestamp with time zone,policies);
            _check_embedding(vector,text);
            _check_identifier(text,text,boolean);
            _confidence(double precision,double precision,bigint,double precision,double precision,
            double precision);
            _current_value(text,text,bigint);
            _decide(candidate);
            _decide_conflict(decision,text,text,uuid,boolean);
            _decide_known(candidate);
            _decide_similar(candidate,decision,uuid);
            _derived_timeline(text,text,bigint);
            _derived_trees(text,uuid[]);
            _enter(text);
            _event_result(text,uuid);
            _fail(text,text,text,text);
            _fill_policy();
            _fold_metadata(jsonb,jsonb,text);
            _guard(text,text,text);
            _guard_classes(text[]);
            _guard_counted(text[],text[]);
            _guard_facts(text[],text[],text[]);
            _guard_han_numbers(text);
            _guard_lexicon();
            _guard_name_change(text[],text[]);
            _guard_names(text[],text[],text[]);
            _guard_negations(text,text[]);
            _guard_new_names(text[],text[],text[],integer[],text[],boolean);
            _guard_order(text[],text[],text[],text[]);
            _guard_pair(text,text,text,text,text);
            _guard_parts(text[],text[]);
            _guard_prefix(text[],text[]);
            _guard_text(text);
            _ingest(candidate,boolean);
            _ingest_known(text,text,text,text,text,text,text,text[],double precision,double precision,text,text,
            jsonb,timestamp with time zone);
            _insert_memory(candidate,uuid);
            _is_single(text,text);
            _is_usual(text,text,text,text,text,text,text[],double precision,double precision,text,text,jsonb,
            timestamp with time zone,bigint);
            _lock(text,text,bigint,boolean);
            _metadata_signature(jsonb,text[]);
            _neighbours(text,text,bigint,vector,text,bigint,bigint,double precision,uuid);
            _policy(text,text,text);
            _queue_judgement(text,text,bigint,text,uuid,uuid,double precision,text[]);
            _record(candidate,decision,uuid,boolean,uuid);
            _refuse();
            _result(decision,uuid,uuid,uuid);
            _strengthen(candidate,uuid,uuid,bigint);
            attach_embedding(uuid,vector,text,text);
            canonicalizer_selftest();
            check_invariants(text);
            current_memory(uuid,text);
            derive_scope(text,uuid[]);
            explain_memory(uuid,text);
            find_similar(text,text,vector,text,double precision,text,text,text,bigint);
            ingest_memory(text,text,text,text,text,text,text,vector,text,text[],double precision,
            double precision,text,text,jsonb,timestamp with time zone,text);
            known_memory(text,text,text,text,text,text,jsonb);
            pending_embeddings(text,text,bigint);
            preview_memory(text,text,text,text,text,text,text,vector,text,text[],double precision,
            double precision,text,text,jsonb,timestamp with time zone,text);
            register_embedding_model(text,bigint,double precision,double precision);
            set_policy(text,text,text,text,text,text,text[],text[],text,bigint,double precision,boolean,
            double precision,double precision,text,text,text,text,double precision[],bigint,bigint);
            set_predicate(text,text,text,text);
            view _ledger;
            view dedup_stats;
            view memory_audit;
            view runaway_memories;
        $list$;
    v_names constant text[] := pg_catalog.string_to_array(pg_catalog.regexp_replace(v_released, E'\\s*\\n\\s*', '', 'g'), ';');
    v_orphans text;
begin
    if not exists (
        select from pg_catalog.pg_proc as p
        where p.pronamespace = 'memfold'::regnamespace and p.proname = '_fail' and pg_catalog.age(p.xmin) <= 0
    ) then
        return;
    end if;
    select pg_catalog.string_agg(r.ev_class::regclass::text, ', ') into v_orphans
    from pg_catalog.pg_rewrite as r
    join pg_catalog.pg_class as c on c.oid = r.ev_class
    where c.relnamespace = 'memfold'::regnamespace and c.relkind = 'v' and 'view ' || c.relname = any(v_names)
        and pg_catalog.age(r.xmin) > 0;
    if v_orphans is not null then
        execute 'drop view ' || v_orphans;
    end if;
    -- in one statement: some depend on others
    select pg_catalog.string_agg(p.oid::regprocedure::text, ', ') into v_orphans
    from pg_catalog.pg_proc as p
    where p.pronamespace = 'memfold'::regnamespace and p.oid::regprocedure::text = any(v_names)
        and pg_catalog.age(p.xmin) > 0;
    if v_orphans is not null then
        execute 'drop function ' || v_orphans;
    end if;
end;
$$;
