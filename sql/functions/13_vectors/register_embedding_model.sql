create or replace function memfold.register_embedding_model(
    embedding_model text,
    dimensions bigint,
    merge_threshold double precision default 0.92,
    judge_threshold double precision default 0.85
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_dimensions bigint;
begin
    perform memfold_internal._check_identifier('embedding_model', embedding_model, true);
    perform memfold_internal._check_thresholds(merge_threshold, judge_threshold);
    insert into memfold.embedding_models as m (model, dimensions, merge_threshold, judge_threshold)
    values (register_embedding_model.embedding_model, register_embedding_model.dimensions,
        register_embedding_model.merge_threshold, register_embedding_model.judge_threshold)
    on conflict do nothing;
    if not found then
        select m.dimensions into v_dimensions
        from memfold.embedding_models as m where m.model = register_embedding_model.embedding_model collate "C";
        if v_dimensions is distinct from dimensions then
            perform memfold_internal._fail('MF023', 'the model is registered with another number of dimensions',
                format('%L has %s dimensions, not %s.', embedding_model, v_dimensions, dimensions),
                'Register vectors with other dimensions under another name, such as model:256.');
        end if;
    elsif embedding_model !~* 'all-minilm-l6-v2' and merge_threshold = 0.92 and judge_threshold = 0.85 then
        -- docs/error-rates.md; memfold doctor looks for the same
        raise notice 'the thresholds of % are those measured with all-MiniLM-L6-v2', embedding_model using
            detail = 'Above 0.92 tier 2 merges, from 0.85 it asks a judge. Other models may need other thresholds.',
            hint = 'Measure them in ten minutes: docs/calibration.md, memfold calibrate.';
    end if;
exception when check_violation or not_null_violation then
    perform memfold_internal._fail('MF017', 'an option has a value that is not allowed', sqlerrm,
        'dimensions is 1 to 16000; thresholds are 0 to 1, judge_threshold not above merge_threshold.');
end;
$$;
comment on function memfold.register_embedding_model is
'Registers an embedding model: the number of dimensions of its vectors, the cosine above which tier 2 merges, and the cosine from which it
asks a judge. The defaults were measured with all-MiniLM-L6-v2 (docs/error-rates.md); for any other model a notice says so. Registering
the same model again changes nothing. Models are shared by all tenants: only members of memfold_owner may register them. Raises MF003,
MF017, MF023.';
