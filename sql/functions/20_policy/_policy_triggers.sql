-- BEFORE INSERT on memories, for a row without canonicalizer (a plain INSERT): sets the rules of its policy and resolves
-- its names, so that it is hashed like any other text. A row with key_fields has opted out of that. Raises MF003 for
-- names and MF061 for content that ingest_memory() would refuse.
create or replace function memfold_internal._fill_policy() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
    v_policy memfold.policies;
    v_names record;
begin
    -- opted out by memfold, now or before a dump, whose rows may be loaded before its policies
    if new.key_fields is not null then
        return new;
    end if;
    perform memfold_internal._check_identifier('tenant_id', new.tenant_id, true);
    perform memfold_internal._check_identifier('bucket_id', new.bucket_id, true);
    perform memfold_internal._check_identifier('memory_type', new.memory_type, true);
    perform memfold_internal._check_wildcard('tenant_id', new.tenant_id);
    perform memfold_internal._check_wildcard('bucket_id', new.bucket_id);
    perform memfold_internal._check_wildcard('memory_type', new.memory_type);
    perform memfold_internal._check_marks(new.content);
    perform memfold_internal._check_identifier('subject', new.subject, false);
    perform memfold_internal._check_identifier('predicate', new.predicate, false);
    perform memfold_internal._check_identifier('object', new.object, false);
    v_names := memfold_internal._resolve_names(new.tenant_id, new.bucket_id, new.subject, new.predicate, new.content);
    new.subject := v_names.subject;
    new.predicate := v_names.predicate;
    v_policy := memfold_internal._policy(new.tenant_id, new.bucket_id, new.memory_type);
    new.key_fields := v_policy.key_fields;
    if v_policy.dedup = 'on' then
        new.canonicalizer := v_policy.canonicalizer;
        new.metadata_signature := memfold_internal._metadata_signature(new.metadata, v_policy.metadata_keys);
        new.embedding_pending := true;
    end if;
    return new;
end;
$$;

-- BEFORE INSERT on policies and options, for tenant '*': the row replaces the one that memfold ships. CREATE EXTENSION
-- inserts the shipped rows before those of a dump are loaded.
create or replace function memfold_internal._replace_policy() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('delete from %s as p where p.tenant_id = $1 and p.bucket_id = $2 and p.memory_type = $3', tg_relid::regclass)
    using new.tenant_id, new.bucket_id, new.memory_type;
    return new;
end;
$$;

-- BEFORE INSERT on antonyms, for tenant '*': the row replaces the one that memfold ships, as in _replace_policy().
create or replace function memfold_internal._replace_antonym() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
begin
    delete from memfold.antonyms as a
    where a.tenant_id = new.tenant_id and a.word = new.word and a.antonym = new.antonym;
    return new;
end;
$$;
