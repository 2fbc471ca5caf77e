-- 25_names: names that mean the same subject or predicate (table links). This module suggests links, asks about them,
-- makes them, and gives the texts stored under an alias the name (take_up_links; maintenance does the rest). Answers
-- (40_judging) and undo and unlinking (41_manual) call it. Ingest, recall and the guard look names up in 20_policy/_links.
--
-- A text that is taken up gets the name, and the hash and scope that follow; until then it is found by the name that it
-- came with (_known_candidate). Changes lock the bucket, or all buckets of the tenant, exclusively (_lock_links), and write
-- links, runs, the ledger, names and hashes. What must stay true: no alias is itself a name; no two texts of a bucket
-- have the same hash; unlinking gives every text back the name that it came with.

-- The words of a canonical name.
create or replace function memfold_internal._name_words(p_name text) returns text[]
language sql immutable parallel safe
return pg_catalog.array_remove(pg_catalog.string_to_array(pg_catalog.translate(p_name, '.,;:/_-()''"', '           '), ' '), '');

-- How a name may abbreviate a longer one, both as words: contained (all of its words are among those of the other) or
-- initials (in order, some as first letters and at least one in full). Null: it does not.
create or replace function memfold_internal._name_relation(p_alias text[], p_name text[]) returns text
language plpgsql immutable parallel safe
as $$
declare
    v_word text collate "C";
    v_place integer := 0;
    v_initials integer := 0;
    v_words integer := 0;
    v_found integer;
begin
    if p_alias <@ p_name then
        return case when cardinality(p_alias) < cardinality(p_name) then 'contained' end;
    end if;
    -- Find each word of the alias, or a word that it is the initial of, in the order of the name.
    foreach v_word in array p_alias loop
        v_found := null;
        for v_i in v_place + 1..cardinality(p_name) loop
            if p_name[v_i] = v_word or length(v_word) = 1 and starts_with(p_name[v_i], v_word) then
                v_found := v_i;
                exit;
            end if;
        end loop;
        if v_found is null then
            return null;
        elsif p_name[v_found] = v_word and length(v_word) > 1 then
            v_words := v_words + 1;
        elsif p_name[v_found] <> v_word then
            v_initials := v_initials + 1;
        end if;
        v_place := v_found;
    end loop;
    return case when v_initials > 0 and v_words > 0 then 'initials' end;
end;
$$;

-- Whether the guard distinguishes two names: by different names in them, a number or the like. p_is_related: one may
-- abbreviate the other (_name_relation), so different names do not count. Only reads.
create or replace function memfold_internal._names_clash(p_tenant_id text, p_name text, p_other text, p_is_related boolean) returns boolean
language plpgsql stable
as $$
begin
    -- The guard takes capitals for names only within a sentence.
    return exists (
        select from unnest(memfold_internal._guard(p_tenant_id, 'It is about ' || p_name,
            'It is about ' || p_other)) as s (signal)
        where s.signal !~ '^(name|identifier): ' or s.signal ~ ' <> ' and not p_is_related
    );
end;
$$;

-- The newest 50,000 active memories of a bucket, with canonical subject, predicate, object and content (canonical), the
-- given subject (spelled), and the canonical content without its subject at the beginning (form). Only reads.
create or replace function memfold_internal._subject_facts(p_tenant_id text, p_bucket_id text)
returns table (
    memory_id uuid, memory_type text, subject text, spelled text, predicate text, object text, content text, canonical text, form text
)
language plpgsql stable rows 1000
as $$
#variable_conflict use_column
begin
    return query
    select f.memory_id, f.memory_type, f.subject, f.spelled, f.predicate, f.object, f.content, f.canonical,
        case when starts_with(f.canonical, f.subject || ' ') then substr(f.canonical, length(f.subject) + 2)
            else f.canonical end
    from (
        select m.memory_id, m.memory_type::text, memfold_internal._prose_1(m.subject) as subject, m.subject::text as spelled,
            memfold_internal._predicate_1(m.predicate) as predicate, memfold_internal._prose_1(m.object) as object, m.content::text,
            memfold_internal._prose_1(m.content) as canonical
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.bucket_id = p_bucket_id collate "C"
            and m.status = 'active'
        order by m.memory_id desc
        limit 50000
    ) as f;
end;
$$;

-- Pairs of facts about two subjects whose vectors reach the model's merge threshold and whose statements pass the guard,
-- among the newest 1,000 facts that have a subject and a vector. Only reads.
create or replace function memfold_internal._near_facts(p_tenant_id text, p_bucket_id text)
returns table (subject text, other text, memory_id uuid, other_id uuid)
language plpgsql stable rows 100
as $$
#variable_conflict use_column
begin
    return query
    with newest as materialized (
        select f.*, v.model, v.embedding, e.merge_threshold
        from memfold_internal._subject_facts(p_tenant_id, p_bucket_id) as f
        join memfold.memory_vectors as v on v.tenant_id = p_tenant_id collate "C" and v.memory_id = f.memory_id
        join memfold.embedding_models as e on e.model = v.model
        where f.subject is not null
        order by f.memory_id desc
        limit 1000
    )
    select a.subject, b.subject, a.memory_id, b.memory_id
    from newest as a
    join newest as b on b.model = a.model and b.memory_type = a.memory_type and b.subject > a.subject
        and b.predicate is not distinct from a.predicate and b.form <> a.form and (a.object <> b.object) is not true
    where memfold_internal._similarity(a.embedding, b.embedding) >= a.merge_threshold
        -- Guard the statements only: names are compared elsewhere.
        and memfold_internal._guard(p_tenant_id,
            right(a.content, length(a.form)), right(b.content, length(b.form))) = '{}';
end;
$$;
