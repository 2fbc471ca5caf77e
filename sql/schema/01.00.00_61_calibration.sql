create function memfold_internal._pair_key(a text, b text) returns bytea
language plpgsql immutable parallel safe
as $$
declare
    v_a constant text collate "C" := memfold_internal._prose_1(a);
    v_b constant text collate "C" := memfold_internal._prose_1(b);
begin
    return pg_catalog.sha256(pg_catalog.convert_to(least(v_a, v_b), 'UTF8') || E'\\x00'::bytea
        || pg_catalog.convert_to(greatest(v_a, v_b), 'UTF8'));
end;
$$;
comment on function memfold_internal._pair_key is 'SHA-256 of two texts in canonical form (prose/1), in either order.';

create table memfold.labelled_pairs (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    pair_id uuid not null default memfold_internal._new_id(),
    content_a text collate "C" not null,
    content_b text collate "C" not null,
    label text collate "C" not null check (label in ('duplicate', 'refinement', 'contradiction', 'distinct')),
    origin text collate "C" not null check (origin in ('import', 'collected', 'labelled')),
    labelled_at timestamptz not null default pg_catalog.now(),
    pair_key bytea not null generated always as (memfold_internal._pair_key(content_a, content_b)) stored,
    similarities jsonb not null default '{}' check (pg_catalog.jsonb_typeof(similarities) = 'object'),
    evidence text collate "C",
    weak boolean not null default false,
    memory_a uuid,
    memory_b uuid,
    labelled_by text collate "C",
    primary key (tenant_id, pair_id)
);
create unique index labelled_pairs_pair_key on memfold.labelled_pairs (tenant_id, pair_key);
comment on table memfold.labelled_pairs is 'Pairs of texts labelled with how they relate: the input of calibration.';
comment on column memfold.labelled_pairs.origin is
'import: loaded from a file; collected: by collect_pairs(), from past decisions; labelled: a person was shown the pair.';
comment on column memfold.labelled_pairs.pair_key is
'The two texts in canonical form, in either order: a tenant has one row for each pair.';
comment on column memfold.labelled_pairs.similarities is 'Cosine of the two texts in [-1, 1], by embedding model.';
comment on column memfold.labelled_pairs.evidence is
'For collected pairs: person or judge (a verdict), undo (a merge that was undone), object (another value of a single-valued predicate),
merge (an automatic merge that still holds), neighbours (near, and both kept).';
comment on column memfold.labelled_pairs.weak is
'Nobody has checked the pair (evidence merge or neighbours). Calibration omits it unless asked to include it.';
comment on column memfold.labelled_pairs.memory_a is 'For collected pairs: the memory with text content_a.';
comment on column memfold.labelled_pairs.memory_b is 'For collected pairs: the memory with text content_b.';
comment on column memfold.labelled_pairs.labelled_by is 'The role that submitted the label.';

-- No foreign key to embedding_models: measurements stay after a model and its vectors are removed.
create table memfold.calibrations (
    calibration_id uuid primary key default memfold_internal._new_id(),
    model text collate "C" not null,
    merge_threshold double precision not null,
    judge_threshold double precision not null,
    report jsonb not null,
    fingerprint bytea not null,
    created_at timestamptz not null default pg_catalog.now(),
    method text collate "C" not null default 'budget',
    score jsonb,
    score_sql text collate "C",
    candidate_threshold double precision,
    created_by text collate "C" not null default current_user,
    constraint calibrations_state_check check (
        method in ('budget', 'percentile', 'anchors')
        and judge_threshold >= 0 and judge_threshold <= merge_threshold and merge_threshold <= 1
        and candidate_threshold between -1 and 1
        and (score is null) = (score_sql is null) and (score is null) = (candidate_threshold is null)
    )
);
comment on table memfold.calibrations is
'Thresholds derived from labelled pairs, with the rates measured on held-out pairs. Written by memfold calibrate; only members of
memfold_owner may write it. The calibration in force for a model is the one in its row of embedding_models (apply_calibration).';
comment on column memfold.calibrations.merge_threshold is 'A pair above it is merged: a score, or without a score a cosine.';
comment on column memfold.calibrations.judge_threshold is
'At or above it a judge is asked about a pair: a score, or without a score a cosine.';
comment on column memfold.calibrations.report is
'The measurements: counts, rates with their bounds per class, the trade-off. No texts.';
comment on column memfold.calibrations.fingerprint is
'SHA-256 of the labelled pairs that it was derived from: canonical texts, labels, cosines.';
comment on column memfold.calibrations.method is
'budget: the bands keep error rates within a budget; percentile: the bands are percentiles of the distributions;
anchors: the bands let through as many of the anchor pairs as those of all-MiniLM-L6-v2.';
comment on column memfold.calibrations.score is
'The fitted model of a calibrated score. Null: the bands are of the cosine itself.';
comment on column memfold.calibrations.score_sql is 'The score as the body of a PL/pgSQL function, which apply_calibration() creates.';
comment on column memfold.calibrations.candidate_threshold is
'With a score: the cosine at or above which a neighbour is scored.';

create table memfold.calibration_changes (
    change_id uuid primary key default memfold_internal._new_id(),
    model text collate "C" not null,
    calibration_id uuid,
    undoes uuid unique,
    before jsonb not null check (pg_catalog.jsonb_typeof(before) = 'object'),
    actor text collate "C" not null,
    recorded_at timestamptz not null default pg_catalog.clock_timestamp()
);
create index calibration_changes_model_idx on memfold.calibration_changes (model, change_id);
comment on table memfold.calibration_changes is
'Which calibration was applied to which model, when and by whom, and the previous values of the model''s row. Append-only.';
comment on column memfold.calibration_changes.calibration_id is
'The calibration in force since then. Null: none; the thresholds are those before the first calibration.';
comment on column memfold.calibration_changes.undoes is 'The change that this one undid (undo_calibration).';
comment on column memfold.calibration_changes.before is
'The columns of the model''s row that the change wrote, with their previous values.';
