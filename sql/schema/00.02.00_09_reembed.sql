-- Release 0.2.0: from one embedding model to another.

alter table memfold.embedding_models
add column replaced_by text collate "C",
add column replaced_at timestamptz;
-- A handful of rows, that nobody writes to but who registers or replaces a model.
-- squawk-ignore constraint-missing-not-valid
alter table memfold.embedding_models add constraint embedding_models_replaced_check check (
    replaced_by <> model and (replaced_by is null) = (replaced_at is null)
);
comment on column memfold.embedding_models.replaced_by is
'The model that took its place (replace_embedding_model): since then vectors of this one are refused. Null: in use.';

-- What was measured outlives the model whose vectors are gone.
-- squawk-ignore ban-drop-constraint
alter table memfold.calibrations drop constraint calibrations_model_fkey;

-- squawk-ignore ban-drop-constraint
alter table memfold.runs drop constraint runs_kind_check;
-- squawk-ignore constraint-missing-not-valid
alter table memfold.runs add constraint runs_kind_check check (kind in (
    'consolidation', 'sweep', 'session', 'cleaning', 'pruning', 'decay', 'rehash', 'upkeep', 'reembedding', 'dropping'
));
