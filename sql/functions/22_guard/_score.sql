create or replace function memfold_internal._score(name text, features double precision[]) returns double precision
language plpgsql stable
as $$
declare
    v_score double precision;
begin
    execute pg_catalog.format('select memfold_internal.%I($1)', name) into v_score using features;
    return v_score;
end;
$$;
revoke all on function memfold_internal._score(text, double precision[]) from public;
comment on function memfold_internal._score(text, double precision[]) is
'What the score of a calibration (embedding_models.score_function) says of a pair''s features, in [0, 1].';

create or replace function memfold_internal._pair_score(
    tenant_id text, score text, similarity double precision, memory_id uuid, other_id uuid
) returns double precision
language plpgsql stable
as $$
declare
    a memfold.memories;
    b memfold.memories;
begin
    select m.* into strict a
    from memfold.memories as m where m.tenant_id = _pair_score.tenant_id collate "C" and m.memory_id = _pair_score.memory_id;
    select m.* into strict b
    from memfold.memories as m where m.tenant_id = _pair_score.tenant_id collate "C" and m.memory_id = other_id;
    return memfold_internal._score(score, memfold_internal._pair_features(tenant_id, similarity, a.content, b.content,
        memfold_internal._guard_pair(tenant_id, a.content, b.content, a.object, b.object)));
end;
$$;
revoke all on function memfold_internal._pair_score(text, text, double precision, uuid, uuid) from public;
comment on function memfold_internal._pair_score(text, text, double precision, uuid, uuid) is
'The score (_score) of two memories of the given cosine.';
