-- Raises MF056 if the policy needs memfold_py and this database does not have it, MF012, MF013 or MF047 if the policy
-- embeds in the database without a registered model that is in use.
create or replace function memfold_internal._check_embed(p_policy memfold.policies) returns void
language plpgsql stable
as $$
begin
    if p_policy.embed = 'in_database' then
        perform memfold_internal._require_python('embed => ''in_database''');
        if p_policy.embed_model is null then
            perform memfold_internal._fail('MF012', 'in_database has no model', 'embed_model was null.',
                'Pass embed_model, a registered embedding model that the server can load.');
        end if;
        perform memfold_internal._check_embedding(null, p_policy.embed_model);
    end if;
    if p_policy.segmenter in ('zh', 'ja') then
        perform memfold_internal._require_python(format('segmenter => %L', p_policy.segmenter));
    end if;
end;
$$;

-- Whether the database computes the candidate's vector, by the candidate's policy.
create or replace function memfold_internal._is_embedded_here(c memfold_internal.candidate, p_policy memfold.policies) returns boolean
language sql immutable parallel safe
return p_policy.embed = 'in_database' and p_policy.dedup = 'on' and c.embedding is null
and coalesce(c.embedding_model, p_policy.embed_model) = p_policy.embed_model;

-- The candidate with the vector that the database computes. Without a vector if this session may not load a model: the
-- text then waits for embed_pending(). Called before any lock. Raises MF056 to MF059.
create or replace function memfold_internal._embed(c memfold_internal.candidate) returns memfold_internal.candidate
language plpgsql volatile
as $$
begin
    select v.embedding, (c.policy).embed_model
    into c.embedding, c.embedding_model
    from memfold_internal._vectors(array[c.content], (c.policy).embed_model) as v;
    return c;
end;
$$;

-- _embed() for the candidates of a batch that tier 1 does not know: each text once, all texts of a model together.
create or replace function memfold_internal._embed_batch(b memfold_internal.batch) returns memfold_internal.batch
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_items memfold_internal.candidate[] := b.items;
    v_embeddings memfold_internal.batch.embeddings%type := b.embeddings;
    v_classes constant text[] := b.classes;
    v_matched constant uuid[] := b.matched;
    v_policies constant memfold.policies[] := b.policies;
    v_policy_of constant integer[] := b.policy_of;
    v_new record;
begin
    for v_new in
        with waiting as (
            select c.ordinality as i, c.content, (v_policies[v_policy_of[c.ordinality]]).embed_model as model
            from unnest(b.items) with ordinality as c
            where (v_classes[c.ordinality] = 'todo' or v_classes[c.ordinality] = 'rest' and v_matched[c.ordinality] is null)
                and v_embeddings[c.ordinality] is null
                and memfold_internal._is_embedded_here(v_items[c.ordinality], v_policies[v_policy_of[c.ordinality]])
        ),
        texts as (
            select t.model, array_agg(t.content order by t.content collate "C") as contents
            from (select distinct w.model, w.content from waiting as w) as t
            group by t.model
        ),
        -- materialized: one call per model in every plan
        made as materialized (
            select t.model, t.contents[v.place] as content, v.embedding
            from texts as t
            cross join lateral memfold_internal._vectors(t.contents, t.model) as v
        )
        select w.i, w.model, m.embedding
        from made as m
        join waiting as w on w.model = m.model and w.content = m.content
    loop
        v_embeddings[v_new.i] := v_new.embedding;
        v_items[v_new.i].embedding_model := v_new.model;
    end loop;
    b.items := v_items;
    b.embeddings := v_embeddings;
    return b;
end;
$$;

-- The unit vectors of an array of texts, with their positions from 1. No row if the permitted number of other sessions
-- already hold a model. Raises MF056 to MF059.
create or replace function memfold_internal._vectors(p_contents text[], p_model text) returns table (place bigint, embedding vector)
language plpgsql volatile
as $$
declare
    v_may boolean;
begin
    perform memfold_internal._require_python('embed => ''in_database''');
    execute 'select memfold_internal._holds_model()' into v_may;
    if v_may then
        return query execute 'select v.place, memfold_internal._unit(v.embedding) '
            'from unnest(memfold.embed_texts($1, $2)) with ordinality as v (embedding, place)' using p_contents, p_model;
    end if;
end;
$$;
