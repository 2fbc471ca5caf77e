-- The veto: reasons in the words of two texts against an automatic merge, regardless of their vectors. The trees are in _veto.sql.

-- A text in the words that the veto compares: the guard's, with numbers as digits, and without the commonest English
-- endings.
create or replace function memfold_internal._veto_text(p_content text) returns text
language plpgsql immutable parallel safe
as $$
declare
    v_words constant text[] := string_to_array(translate(memfold_internal._guard_text(p_content), E'\x01', ''), ' ');
begin
    return array_to_string(memfold_internal._stems(v_words, memfold_internal._guard_classes(v_words)), ' ');
end;
$$;

-- The features that the veto is computed from: those of two texts (_pair_features), after _veto_text. The same for (a,
-- b) and (b, a). The model is fitted to them: after a change of this function, or of one that it calls, fit another one
-- (tools/fit_veto.py).
create or replace function memfold_internal._veto_features(a text, b text) returns double precision[]
language plpgsql immutable parallel safe
as $$
begin
    -- neither cosine nor guard: the same for every model, and independent of the guard
    return memfold_internal._pair_features(null, memfold_internal._veto_text(a), memfold_internal._veto_text(b), null);
end;
$$;

-- How likely two texts with near vectors say the same, by their words alone: in [0, 1], the same for (a, b) and (b, a).
-- Fitted to labelled pairs (docs/calibration.md); not a probability for texts unlike these.
create or replace function memfold_internal._veto_score(a text, b text) returns double precision
language plpgsql immutable parallel safe
as $$
begin
    return memfold_internal._veto_trees(memfold_internal._veto_features(a, b));
end;
$$;

-- Why two texts do not merge automatically, by their words, such as "veto 0.12 < 0.3 (veto/1)". Null: no veto, or
-- p_merge_veto is 0.
create or replace function memfold_internal._veto(p_merge_veto double precision, a text, b text) returns text
language plpgsql immutable parallel safe
as $$
declare
    v_score double precision;
begin
    if p_merge_veto > 0 then
        v_score := memfold_internal._veto_score(a, b);
        if v_score < p_merge_veto then
            -- truncated, not rounded: a value below the threshold is printed below it
            return format('veto %s < %s (%s)', trunc(v_score::numeric, 2), p_merge_veto,
                memfold_internal._veto_version());
        end if;
    end if;
    return null;
end;
$$;

-- The features that contribute most to the score of two texts (_veto_score), in words, with their values and contributions
-- in log-odds. Takes milliseconds; for explain_memory. Reads no table: SECURITY DEFINER so that a role that
-- may read memories needs no right to the functions that it calls.
create or replace function memfold_internal._veto_reasons(a text, b text) returns text
language plpgsql immutable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_names constant jsonb := jsonb '{
        "length_ratio": "length of the shorter by the longer", "word_length": "letters per word", "capitals": "share of capitals",
        "words": "words of the longer", "commas": "difference in commas", "prefix": "equal words at the beginning",
        "suffix": "equal words at the end", "prefix_share": "share of equal words at the beginning",
        "window_share": "share of words between equal ends", "window": "words between equal ends",
        "shared": "shared words, of the longer", "contained": "shared words, of the shorter",
        "letters": "letters of words that differ", "change": "share of letters that differ", "longest": "longest word that differs",
        "alike": "words that differ in their end", "unlike": "words that differ", "replaced": "words exchanged in their place",
        "grammar": "grammatical words that differ", "denial": "difference in denials", "denials": "denials in one only",
        "names": "names in one only", "shared_content": "shared words in the changed part",
        "shared_names": "shared names in the changed part", "turns": "words that moved ahead",
        "content_turns": "content words that moved ahead", "name_turns": "names that moved ahead", "behind": "words behind their place",
        "inversions": "pairs in another order", "inversion_share": "share of pairs in another order", "shift": "how far words moved",
        "break_share": "breaks in the order", "neighbour_share": "words with another neighbour"}';
begin
    return (
        select string_agg(case when r.feature is null then 'any pair'
            else coalesce(v_names ->> r.feature, r.feature) || ' ' || round(r.feature_value::numeric, 2)::double precision end
            || ' (' || to_char(r.contribution, 'FMSG990.00') || ')', ', ' order by r.place)
        from memfold_internal._explain_score(memfold_internal._veto_model(),
            memfold_internal._veto_features(a, b)) with ordinality as r (feature, feature_value, contribution, place)
        where r.place <= 6
    );
end;
$$;
grant execute on function memfold_internal._veto_reasons to memfold_app, memfold_auditor;
