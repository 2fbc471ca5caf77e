-- The cosine that as many of the anchors exceed as exceed p_reference by all-MiniLM-L6-v2: the stricter of that for duplicates and
-- that for other pairs, so that a model that separates them less well merges less, not more.
create or replace function memfold_internal._matched_threshold(p_anchors jsonb, p_reference double precision) returns double precision
language sql immutable parallel safe
begin atomic
    select max(s.threshold)
    from (
        select
            (pg_catalog.array_agg(a.similarity order by a.similarity desc))[
                1 + count(*) filter (where a.cosine > p_reference)
            ] as threshold
        from pg_catalog.jsonb_to_recordset(p_anchors) as a (label text, cosine double precision, similarity double precision)
        group by a.label = 'duplicate'
    ) as s;
end;

create or replace function memfold_internal._rate(p_count bigint, p_of bigint) returns jsonb
language sql immutable parallel safe
return pg_catalog.jsonb_build_object('count', p_count, 'of', p_of, 'rate', round(p_count::numeric / nullif(p_of, 0), 6));

create or replace function memfold.calibrate_by_anchors(
    embedding_model text, pairs jsonb
) returns table (calibration_id uuid, merge_threshold double precision, judge_threshold double precision, report jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_chosen_on jsonb;
    v_reference record;
begin
    perform memfold_internal._check_model(embedding_model, false);
    perform memfold_internal._check_pairs(pairs, '{a,b,label,cosine,similarity,held_out}');
    select jsonb_agg(e.pair) into v_chosen_on
    from jsonb_array_elements(pairs) as e (pair) where not (e.pair ->> 'held_out')::boolean;
    select s.* into strict v_reference from memfold_internal._shipped_thresholds('all-MiniLM-L6-v2') as s;
    merge_threshold := memfold_internal._matched_threshold(v_chosen_on, v_reference.merge_threshold);
    judge_threshold := least(memfold_internal._matched_threshold(v_chosen_on, v_reference.judge_threshold), merge_threshold);
    select jsonb_build_object('guard', true, 'pairs', jsonb_build_object('used', jsonb_array_length(pairs), 'held_out', count(*)),
        'held_out', jsonb_build_object('with_guard', jsonb_build_object(
            'false_merge', memfold_internal._rate(count(*) filter (where f.merged and not f.same), count(*) filter (where not f.same)),
            'false_keep', memfold_internal._rate(count(*) filter (where f.kept and f.same), count(*) filter (where f.same)),
            'escalation', memfold_internal._rate(count(*) filter (where not f.merged and not f.kept), count(*)),
            'merged_duplicates', memfold_internal._rate(count(*) filter (where f.merged and f.same), count(*) filter (where f.same)))))
    into report
    from (
        select r.label = 'duplicate' as same, r.similarity < judge_threshold as kept,
            r.similarity > merge_threshold and memfold_internal._guard('*', r.a, r.b) = '{}' as merged
        from jsonb_to_recordset(pairs) as r (a text, b text, label text, similarity double precision, held_out boolean)
        where r.held_out
        offset 0
    ) as f;
    insert into memfold.calibrations as c (model, merge_threshold, judge_threshold, method, report, fingerprint)
    values (embedding_model, calibrate_by_anchors.merge_threshold, calibrate_by_anchors.judge_threshold, 'anchors',
        calibrate_by_anchors.report, sha256(convert_to(pairs::text, 'UTF8')))
    returning c.calibration_id into calibration_id;
    perform memfold.apply_calibration(calibration_id);
    return next;
exception when null_value_not_allowed or not_null_violation or check_violation or invalid_text_representation then
    perform memfold_internal._fail('MF042', 'the pairs are not anchors', sqlerrm,
        'Pass pairs of all labels: a, b, label, cosine, similarity (cosines by all-MiniLM-L6-v2 and by this model), held_out.');
end;
$$;
comment on function memfold.calibrate_by_anchors is
'Sets the thresholds of a registered embedding model without labels of your own: the same share of the anchors, memfold''s labelled pairs,
exceeds them as exceeds the thresholds of all-MiniLM-L6-v2 by that model''s cosines. Clients call it (memfold calibrate --anchors) with the
pairs of memfold/data/anchors.jsonl: an array of objects with the keys a, b, label, cosine (by all-MiniLM-L6-v2), similarity (by this model)
and held_out. Pairs that are not held out choose the thresholds; the others measure the rates in report, as for memfold calibrate. Stores
the result as a calibration (method anchors) and applies it; undo_calibration() undoes that. Only for members of memfold_owner. Raises
MF013, MF035, MF042, MF047.';
