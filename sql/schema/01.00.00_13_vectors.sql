create table memfold.embedding_models (
    model text collate "C" primary key check (model <> ''),
    dimensions bigint not null check (dimensions between 1 and 16000),
    merge_threshold double precision check (merge_threshold between 0 and 1),
    judge_threshold double precision not null check (judge_threshold between 0 and 1),
    calibration_id uuid,
    registered_at timestamptz not null default pg_catalog.now(),
    score_function text collate "C",
    candidate_threshold double precision,
    score_merge_threshold double precision,
    score_judge_threshold double precision,
    replaced_by text collate "C",
    replaced_at timestamptz,
    check (judge_threshold <= merge_threshold),
    constraint embedding_models_score_check check (
        pg_catalog.num_nulls(score_function, candidate_threshold, score_merge_threshold, score_judge_threshold) in (0, 4)
        and candidate_threshold between -1 and 1
        and score_judge_threshold >= 0 and score_judge_threshold <= score_merge_threshold and score_merge_threshold <= 1
    ),
    constraint embedding_models_replaced_check check (
        replaced_by <> model and (replaced_by is null) = (replaced_at is null)
    )
);
comment on table memfold.embedding_models is
'The embedding models whose vectors are accepted; vectors of different models are never compared.';
comment on column memfold.embedding_models.merge_threshold is
'The cosine above which tier 2 merges. Null: the model has not been measured, so its cosines never merge (register_embedding_model).';
comment on column memfold.embedding_models.calibration_id is
'The calibration that the thresholds come from. Null: they ship with memfold or were set manually.';
comment on column memfold.embedding_models.score_function is
'Function in schema memfold_internal, generated from the calibration, whose score replaces the cosine. Null: the cosine decides.';
comment on column memfold.embedding_models.candidate_threshold is
'With a score_function: the cosine at or above which a neighbour is scored.';
comment on column memfold.embedding_models.score_merge_threshold is
'With a score_function: the score, in [0, 1], above which tier 2 merges. Functions that compare cosines still use merge_threshold.';
comment on column memfold.embedding_models.score_judge_threshold is
'With a score_function: the score, in [0, 1], at or above which tier 2 asks a judge.';
comment on column memfold.embedding_models.replaced_by is
'The model that replaced this one (replace_embedding_model); vectors of this one have been refused since. Null: in use.';

-- No foreign key to memories: checking it for each new row, whose memory the same function has just written, took a quarter of the
-- time of a batch of new facts. check_invariants() reports rows without a memory.
create table memfold.memory_vectors (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    model text collate "C" not null,
    bucket_id text collate "C" not null,
    scope_key uuid not null,
    is_live boolean not null default true,
    embedding vector not null,
    primary key (tenant_id, memory_id, model)
);
-- MAIN keeps a vector in the row while it fits a page, which saves a TOAST read per neighbour; PLAIN would refuse larger vectors.
alter table memfold.memory_vectors alter column embedding set storage main;
create index memory_vectors_scope_idx
on memfold.memory_vectors (tenant_id, bucket_id, scope_key, model, memory_id) where is_live;
comment on table memfold.memory_vectors is
'One unit vector per memory and embedding model, including those of aliases; a scoped scan reads no other table.';
comment on column memfold.memory_vectors.is_live is
'The memory, or the root of the alias, is not withdrawn: it is a neighbour.';
