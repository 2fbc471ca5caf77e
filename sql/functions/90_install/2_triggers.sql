-- Creates missing triggers and replaces none, because that would lock tables in use at every upgrade. If a definition changes,
-- a schema file of that release drops the trigger. This is the last file, to hold the lock briefly.
do $$
declare
    v_there text[] := array(
        select c.relname || '.' || t.tgname
        from pg_catalog.pg_trigger as t
        join pg_catalog.pg_class as c on c.oid = t.tgrelid
        where c.relnamespace = 'memfold'::regnamespace and not t.tgisinternal
    );
begin
    if 'memories.fill_policy' <> all(v_there) then
        create trigger fill_policy before insert on memfold.memories
        for each row when (new.canonicalizer is null) execute function memfold_internal._fill_policy();
    end if;
    -- Statement triggers cost a merge nothing; a row trigger would make every UPDATE compute the hash again.
    if 'memories.refuse_change' <> all(v_there) then
        create trigger refuse_change
        before delete or truncate or update of
        tenant_id, memory_id, bucket_id, memory_type, subject, predicate, object, content, canonicalizer, key_fields,
        metadata_signature, created_at
        on memfold.memories for each statement execute function memfold_internal._refuse();
    end if;
    if 'memory_events.refuse_change' <> all(v_there) then
        create trigger refuse_change
        before delete or truncate or update
        on memfold.memory_events for each statement execute function memfold_internal._refuse();
    end if;
    -- A database on Citus (contrib/citus) does without these.
    if pg_catalog.to_regprocedure('memfold_internal._is_tenant_node(text)') is not null then
        return;
    end if;
    if 'policies.replace_shipped' <> all(v_there) then
        create trigger replace_shipped before insert on memfold.policies
        for each row when (new.tenant_id = '*') execute function memfold_internal._replace_policy();
    end if;
    if 'options.replace_shipped' <> all(v_there) then
        create trigger replace_shipped before insert on memfold.options
        for each row when (new.tenant_id = '*') execute function memfold_internal._replace_policy();
    end if;
    if 'antonyms.replace_shipped' <> all(v_there) then
        create trigger replace_shipped before insert on memfold.antonyms
        for each row when (new.tenant_id = '*') execute function memfold_internal._replace_antonym();
    end if;
end;
$$;
