-- Release 0.2.0: what a policy asks of memfold_py.

alter table memfold.policies
add column embed text collate "C" not null default 'client' check (embed in ('client', 'in_database')),
add column embed_model text collate "C",
add column segmenter text collate "C" not null default 'characters' check (segmenter in ('characters', 'zh', 'ja')),
-- squawk-ignore constraint-missing-not-valid
add constraint policies_embed_model_check check (embed = 'client' or embed_model is not null);
comment on column memfold.policies.embed is
'Who makes the vector of a text that comes without one: client (later, by attach_embedding()) or in_database (embed_text() of
memfold_py, after a tier-1 miss).';
comment on column memfold.policies.embed_model is
'The registered model of in_database.';
comment on column memfold.policies.segmenter is
'What the lexical tier takes for a word of text without spaces: each of its characters, or the words that memfold_py finds (zh
Chinese, ja Japanese).';
