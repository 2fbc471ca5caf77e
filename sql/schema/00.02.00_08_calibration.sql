-- Release 0.2.0: labelled pairs with their cosines, calibrations with their scores, and which one a model goes by.

create function memfold._pair_key(a text, b text) returns bytea
language plpgsql immutable parallel safe
as $$
declare
    v_a constant text collate "C" := memfold._prose_1(a);
    v_b constant text collate "C" := memfold._prose_1(b);
begin
    return pg_catalog.sha256(pg_catalog.convert_to(least(v_a, v_b), 'UTF8') || E'\\x00'::bytea
        || pg_catalog.convert_to(greatest(v_a, v_b), 'UTF8'));
end;
$$;
revoke all on function memfold._pair_key(text, text) from public;
comment on function memfold._pair_key(text, text) is
'SHA-256 of two texts in canonical form (prose/1), whichever comes first.';

-- Nothing of the release before writes or reads it: its few rows, if any, are written anew while nobody waits.
alter table memfold.labelled_pairs
-- squawk-ignore adding-field-with-default
add column pair_key bytea not null generated always as (memfold._pair_key(content_a, content_b)) stored,
add column similarities jsonb not null default '{}',
add column evidence text collate "C",
add column weak boolean not null default false,
add column memory_a uuid,
add column memory_b uuid,
add column labelled_by text collate "C";
-- squawk-ignore constraint-missing-not-valid
alter table memfold.labelled_pairs add constraint labelled_pairs_similarities_check
check (pg_catalog.jsonb_typeof(similarities) = 'object');
-- squawk-ignore constraint-missing-not-valid
alter table memfold.labelled_pairs add constraint labelled_pairs_origin_check
check (origin in ('import', 'collected', 'labelled'));
-- squawk-ignore require-concurrent-index-creation
create unique index labelled_pairs_pair_key on memfold.labelled_pairs (tenant_id, pair_key);
comment on column memfold.labelled_pairs.pair_key is
'The two texts in canonical form, in either order: a tenant has one row for them.';
comment on column memfold.labelled_pairs.similarities is 'Cosine of the two texts in [-1, 1], by embedding model.';
comment on column memfold.labelled_pairs.origin is
'import: handed in, from a file; collected: by collect_pairs(), from past decisions; labelled: a person was shown the pair.';
comment on column memfold.labelled_pairs.evidence is
'Of collected pairs: person or judge (a verdict), undo (a fold that was taken back), object (another value of a
single-valued predicate), merge (an automatic merge that stands), neighbours (close, and kept side by side).';
comment on column memfold.labelled_pairs.weak is
'Nobody has looked at the pair: merge and neighbours. Calibration leaves it out unless told otherwise.';
comment on column memfold.labelled_pairs.memory_a is 'Of collected pairs: the memory whose text content_a is.';
comment on column memfold.labelled_pairs.memory_b is 'Of collected pairs: the memory whose text content_b is.';
comment on column memfold.labelled_pairs.labelled_by is 'The role that handed the label in.';

alter table memfold.calibrations
add column method text collate "C" not null default 'budget',
add column score jsonb,
add column score_sql text collate "C",
add column candidate_threshold double precision,
-- squawk-ignore adding-field-with-default
add column created_by text collate "C" not null default current_user;
-- squawk-ignore constraint-missing-not-valid
alter table memfold.calibrations add constraint calibrations_state_check check (
    method in ('budget', 'percentile')
    and judge_threshold >= 0 and judge_threshold <= merge_threshold and merge_threshold <= 1
    and candidate_threshold between -1 and 1
    and (score is null) = (score_sql is null) and (score is null) = (candidate_threshold is null)
);
comment on table memfold.calibrations is
'Thresholds derived from labelled pairs, with the rates measured on held-out pairs. Written by memfold calibrate, by members of
memfold_owner alone. In force for a model is the one that its row of embedding_models names (apply_calibration).';
comment on column memfold.calibrations.method is
'budget: the bands keep error rates within a budget; percentile: they are percentiles of the distributions.';
comment on column memfold.calibrations.merge_threshold is 'A pair above it is merged: of the score, without one of the cosine.';
comment on column memfold.calibrations.judge_threshold is 'From here on a pair is asked about: of the score, without one of the cosine.';
comment on column memfold.calibrations.score is
'The fitted model of a calibrated score. Null: the bands are of the cosine itself.';
comment on column memfold.calibrations.score_sql is 'The score as an SQL function: what apply_calibration() makes.';
comment on column memfold.calibrations.candidate_threshold is
'With a score: the cosine from which on a neighbour is scored.';
comment on column memfold.calibrations.report is
'What was measured: counts, rates with their bounds per class, the trade-off. No texts.';
comment on column memfold.calibrations.fingerprint is
'SHA-256 of the labelled pairs it was made from: canonical texts, labels, cosines.';

alter table memfold.embedding_models
add column score_function text collate "C",
add column candidate_threshold double precision,
add column score_merge_threshold double precision,
add column score_judge_threshold double precision;
-- squawk-ignore constraint-missing-not-valid
alter table memfold.embedding_models add constraint embedding_models_score_check check (
    pg_catalog.num_nulls(score_function, candidate_threshold, score_merge_threshold, score_judge_threshold) in (0, 4)
    and candidate_threshold between -1 and 1
    and score_judge_threshold >= 0 and score_judge_threshold <= score_merge_threshold and score_merge_threshold <= 1
);
comment on column memfold.embedding_models.score_function is
'The function of schema memfold that scores pairs in place of their cosine, generated from the calibration. Null: the cosine.';
comment on column memfold.embedding_models.candidate_threshold is
'With a score_function: the cosine from which on a neighbour is scored.';
comment on column memfold.embedding_models.score_merge_threshold is
'With a score_function: the score, in [0, 1], above which tier 2 merges. What compares cosines goes by merge_threshold still.';
comment on column memfold.embedding_models.score_judge_threshold is
'With a score_function: the score, in [0, 1], from which on tier 2 asks a judge.';

create table memfold.calibration_changes (
    change_id uuid primary key default memfold._new_id(),
    model text collate "C" not null,
    calibration_id uuid,
    undoes uuid unique,
    before jsonb not null check (pg_catalog.jsonb_typeof(before) = 'object'),
    actor text collate "C" not null,
    at timestamptz not null default pg_catalog.clock_timestamp()
);
create index calibration_changes_model_idx on memfold.calibration_changes (model, change_id);
comment on table memfold.calibration_changes is
'Which calibration was applied to which model, when and by whom, and what the model''s row said before. Append-only.';
comment on column memfold.calibration_changes.calibration_id is
'What holds since. Null: none, the thresholds are those of before the first calibration.';
comment on column memfold.calibration_changes.before is
'The columns of the model''s row that the change wrote, as they were.';
comment on column memfold.calibration_changes.undoes is 'The change that this one took back (undo_calibration).';
grant select on memfold.calibration_changes to memfold_app, memfold_auditor;
