-- Raises MF013. p_dimensions: those of the vector, if there is one.
create or replace function memfold_internal._fail_unknown_model(p_model text, p_dimensions bigint default null) returns void
language plpgsql stable
as $$
begin
    perform memfold_internal._fail('MF013', 'unknown embedding model',
        format('%s is not registered. Registered models: %s.', quote_nullable(p_model),
            coalesce((select string_agg(m.model, ', ' order by m.model) from memfold.embedding_models as m), 'none')),
        format('Pass one of them, or register it: select memfold.register_embedding_model(%s, %s), once, as a member of memfold_owner.',
            quote_nullable(p_model), coalesce(p_dimensions::text, 'dimensions')));
end;
$$;

-- Raises MF013 for an unknown embedding model. p_replaced false: also MF047 for a model that has been replaced; true:
-- MF048 for one that has not.
create or replace function memfold_internal._check_model(p_model text, p_replaced boolean) returns void
language plpgsql stable
as $$
declare
    v_replaced_by text;
begin
    select m.replaced_by into v_replaced_by
    from memfold.embedding_models as m where m.model = p_model collate "C";
    if not found then
        perform memfold_internal._fail_unknown_model(p_model);
    elsif v_replaced_by is not null and p_replaced is false then
        perform memfold_internal._fail('MF047', 'the embedding model has been replaced',
            format('%L was replaced by %L.', p_model, v_replaced_by),
            format('Pass embeddings of model %L.', v_replaced_by));
    elsif v_replaced_by is null and p_replaced then
        perform memfold_internal._fail('MF048', 'the embedding model is in use',
            format('%L has not been replaced by another.', p_model),
            'Call replace_embedding_model(model, replaced_by) first.');
    end if;
end;
$$;

-- Whether an embedding is valid for a model with p_dimensions (null: unknown model) that p_replaced_by has replaced
-- (null: in use). A null embedding fits. Inlined by its callers; _check_embedding() raises the error.
create or replace function memfold_internal._fits_model(p_embedding vector, p_dimensions bigint, p_replaced_by text) returns boolean
language sql immutable parallel safe
return p_replaced_by is null and p_dimensions is not null and (
    p_embedding is null
    or memfold_internal._dimensions(p_embedding) = p_dimensions and memfold_internal._norm(p_embedding) between 1e-30 and 1e30
);

-- Raises an error unless the embedding is valid for its model: MF012 (no model), MF013 (unknown model), MF014 (wrong
-- number of dimensions), MF015 (zero vector), MF047 (replaced model).
create or replace function memfold_internal._check_embedding(p_embedding vector, p_embedding_model text) returns void
language plpgsql stable
as $$
declare
    v_dimensions bigint;
    v_replaced_by text;
begin
    if p_embedding_model is null then
        perform memfold_internal._fail('MF012', 'the embedding has no model',
            format('A vector of %s dimensions came without embedding_model.', memfold_internal._dimensions(p_embedding)),
            'Pass embedding_model: only vectors of one model can be compared.');
    end if;
    select m.dimensions, m.replaced_by into v_dimensions, v_replaced_by
    from memfold.embedding_models as m where m.model = p_embedding_model collate "C";
    if not found then
        perform memfold_internal._fail_unknown_model(p_embedding_model, memfold_internal._dimensions(p_embedding));
    elsif memfold_internal._fits_model(p_embedding, v_dimensions, v_replaced_by) then
        return;
    elsif p_embedding is not null and memfold_internal._dimensions(p_embedding) <> v_dimensions then
        perform memfold_internal._fail('MF014', 'the embedding has the wrong number of dimensions',
            format('Model %L has %s dimensions, the vector %s.', p_embedding_model, v_dimensions,
                memfold_internal._dimensions(p_embedding)),
            'Pass the vector of the content from this model.');
    elsif v_replaced_by is not null then
        perform memfold_internal._check_model(p_embedding_model, false);
    else
        perform memfold_internal._fail('MF015', 'the embedding has no direction',
            format('Its norm is %s.', memfold_internal._norm(p_embedding)),
            'A zero vector has no direction: omit embedding if there is none.');
    end if;
end;
$$;

-- Raises MF017 if the judge threshold is above the merge threshold. Null stands for that of each model in use.
create or replace function memfold_internal._check_thresholds(p_merge_threshold double precision, p_judge_threshold double precision)
returns void
language plpgsql stable
as $$
declare
    v_crossed record;
begin
    if p_judge_threshold > p_merge_threshold then
        perform memfold_internal._fail('MF017', 'the judge threshold is above the merge threshold',
            format('merge_threshold is %s, judge_threshold %s.', p_merge_threshold, p_judge_threshold),
            'A judge is asked between the two thresholds: pass a judge_threshold that is not above merge_threshold.');
    elsif num_nulls(p_merge_threshold, p_judge_threshold) = 1 then
        select m.model, m.merge_threshold, m.judge_threshold into v_crossed
        from memfold.embedding_models as m
        where m.replaced_by is null and coalesce(p_judge_threshold, m.judge_threshold)
            > coalesce(p_merge_threshold, m.merge_threshold)
        order by m.model
        limit 1;
        if found then
            perform memfold_internal._fail('MF017', 'the judge threshold is above the merge threshold',
                format('merge_threshold is %s, judge_threshold %s; embedding model %L has %s and %s.',
                    quote_nullable(p_merge_threshold), quote_nullable(p_judge_threshold), v_crossed.model,
                    v_crossed.merge_threshold, v_crossed.judge_threshold),
                'A policy that sets only one of them takes the other from the model: pass both.');
        end if;
    end if;
end;
$$;
