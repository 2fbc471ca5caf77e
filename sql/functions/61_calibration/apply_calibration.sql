-- Sets the columns of a model that p_after names, and logs the previous thresholds and score. p_undoes: the change that this
-- undoes, or null. The caller has locked the model's row.
create or replace function memfold_internal._change_calibration(
    p_model text, p_calibration_id uuid, p_undoes uuid, p_after jsonb
) returns void
language plpgsql volatile
as $$
declare
    m memfold.embedding_models;
    v_columns constant text[] := array['calibration_id', 'merge_threshold', 'judge_threshold', 'score_function',
        'candidate_threshold', 'score_merge_threshold', 'score_judge_threshold'];
begin
    select o.* into strict m from memfold.embedding_models as o where o.model = p_model collate "C";
    insert into memfold.calibration_changes (model, calibration_id, undoes, before, actor)
    select m.model, p_calibration_id, p_undoes,
        jsonb_object_agg(c.name, to_jsonb(m) -> c.name), memfold_internal._actor()
    from unnest(v_columns) as c (name);
    m := jsonb_populate_record(m, p_after);
    update memfold.embedding_models as o
    set calibration_id = m.calibration_id, merge_threshold = m.merge_threshold, judge_threshold = m.judge_threshold,
        score_function = m.score_function, candidate_threshold = m.candidate_threshold,
        score_merge_threshold = m.score_merge_threshold, score_judge_threshold = m.score_judge_threshold
    where o.model = m.model;
end;
$$;

-- The name of the function that apply_calibration() creates from a calibration's score.
create or replace function memfold_internal._score_name(p_calibration_id uuid) returns text
language sql immutable strict parallel safe
return '_score_' || pg_catalog.replace(p_calibration_id::text, '-', '');

-- Whether a text is the body of a function as Score.body() writes it: arithmetic over its argument, without other reads
-- or calls.
create or replace function memfold_internal._is_score(p_score_sql text) returns boolean
language plpgsql immutable parallel safe
as $$
declare
    -- without literals, comments on their own lines and numbers, words and signs are left; no literal has a second line
    v_body text := regexp_replace(p_score_sql, E'''[^''\\\\]*''|^ *--[^\\n]*$', ' ', 'gn');
begin
    v_body := regexp_replace(v_body, E'\\m[0-9]+(\\.[0-9]+)?(e[-+]?[0-9]+)?\\M', ' ', 'g');
    return v_body ~ E'^[a-z0-9_.,:;=<>+*/&()\\[\\]\\s-]*$' and v_body !~ E'--|/\\*' and not exists (
        select from regexp_matches(v_body, '[a-z0-9_.]+', 'g') as w (words)
        where w.words[1] !~ '^f[0-9]+$' and w.words[1] <> all (
            '{begin,bit,bit_count,cardinality,case,constant,declare,double,else,end,errcode,exception,exp,features,float8,greatest,
            if,least,pg_catalog.cardinality,precision,raise,return,then,using,v,varbit,varying,when,width_bucket}'::text[]
        )
    );
end;
$$;

-- Creates the function of a calibration's score and returns its name; null if it has no score. Undoing the calibration does
-- not drop the function, because a call in progress may need it. Raises MF045.
create or replace function memfold_internal._make_score(p_calibration_id uuid) returns text
language plpgsql volatile
as $$
declare
    v_name constant text := memfold_internal._score_name(p_calibration_id);
    v_sql text;
begin
    -- Only members of memfold_owner can have written this text, and it is executed as that role. It is still checked.
    select c.score_sql into v_sql from memfold.calibrations as c where c.calibration_id = p_calibration_id;
    if v_sql is null then
        return null;
    elsif not memfold_internal._is_score(v_sql) then
        perform memfold_internal._fail('MF045', 'the score is not a function of only its features',
            format('score_sql of calibration %s is not what memfold calibrate writes.', p_calibration_id),
            'Calibrate again.');
    end if;
    execute format('create or replace function memfold_internal.%I(features double precision[]) returns double precision'
        ' language plpgsql immutable strict parallel safe as %L', v_name, v_sql);
    execute format('revoke all on function memfold_internal.%I(double precision[]) from public', v_name);
    execute format('grant execute on function memfold_internal.%I(double precision[]) to memfold_owner', v_name);
    execute format('comment on function memfold_internal.%I(double precision[]) is %L', v_name,
        'Made by apply_calibration: how likely two texts are duplicates, in [0, 1], by their features (_pair_features).');
    return v_name;
end;
$$;

create or replace function memfold.apply_calibration(calibration_id uuid) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    c memfold.calibrations;
begin
    select k.* into c from memfold.calibrations as k where k.calibration_id = apply_calibration.calibration_id;
    if not found then
        perform memfold_internal._fail('MF043', 'there is no such calibration',
            format('calibration_id was %s.', coalesce(calibration_id::text, 'null')), 'The table calibrations lists them.');
    end if;
    perform from memfold.embedding_models as m where m.model = c.model for no key update;
    if not found then
        perform memfold_internal._fail_unknown_model(c.model);
    end if;
    perform memfold_internal._change_calibration(c.model, c.calibration_id, null, case
        when c.score is null then jsonb_build_object('calibration_id', c.calibration_id,
            'merge_threshold', c.merge_threshold, 'judge_threshold', c.judge_threshold, 'score_function', null,
            'candidate_threshold', null, 'score_merge_threshold', null, 'score_judge_threshold', null)
        else jsonb_build_object('calibration_id', c.calibration_id,
            'score_function', memfold_internal._make_score(c.calibration_id), 'candidate_threshold', c.candidate_threshold,
            'score_merge_threshold', c.merge_threshold, 'score_judge_threshold', c.judge_threshold)
        end);
end;
$$;
comment on function memfold.apply_calibration is
'Puts a calibration in force for its model: its thresholds, and its score if it has one, from now on, except for policies that set
thresholds themselves. Stored memories do not change. Logged in calibration_changes; undo_calibration() undoes it. Only for members of
memfold_owner. Raises MF013 (its model is not registered), MF043, MF045.';

create or replace function memfold.undo_calibration(embedding_model text) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    c memfold.calibration_changes;
    v_registered_at timestamptz;
begin
    select m.registered_at into v_registered_at
    from memfold.embedding_models as m where m.model = undo_calibration.embedding_model collate "C" for no key update;
    if not found then
        perform memfold_internal._fail_unknown_model(undo_calibration.embedding_model);
    end if;
    select h.* into c
    from memfold.calibration_changes as h
    where h.model = undo_calibration.embedding_model collate "C" and h.undoes is null
        -- Ignore changes of an earlier model of this name, which was unregistered.
        and h.recorded_at >= v_registered_at
        and not exists (select from memfold.calibration_changes as u where u.undoes = h.change_id)
    order by h.recorded_at desc, h.change_id desc
    limit 1;
    if not found then
        perform memfold_internal._fail('MF043', 'there is no calibration to undo', format('No calibration is applied to %L.', embedding_model),
            'The table calibration_changes lists what was applied and undone.');
    end if;
    perform memfold_internal._change_calibration(c.model, (c.before ->> 'calibration_id')::uuid, c.change_id, c.before);
    return (c.before ->> 'calibration_id')::uuid;
end;
$$;
comment on function memfold.undo_calibration is
'Undoes the last apply_calibration() of a model that is not undone yet: restores its previous thresholds and score. Returns the
calibration now in force; null: none. Merges made in the meantime remain (undo, undo_run). Logged as well. Only for members of
memfold_owner. Raises MF013, MF043.';
