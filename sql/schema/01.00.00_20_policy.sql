create table memfold.policies (
    tenant_id text collate "C" not null default '*' check (tenant_id <> ''),
    bucket_id text collate "C" not null default '*' check (bucket_id <> ''),
    memory_type text collate "C" not null default '*' check (memory_type <> ''),
    preset text collate "C" not null default 'three_tier',
    dedup text collate "C" not null default 'on' check (dedup in ('on', 'off')),
    canonicalizer text collate "C" not null default 'prose/1',
    key_fields text collate "C" not null default 'type,subject,predicate',
    metadata_keys text[] not null default '{}' check (
        case when array_ndims(metadata_keys) > 1 then false else array_position(metadata_keys, null) is null end
    ),
    scope text collate "C" not null default 'predicate' check (scope in ('predicate', 'bucket')),
    neighbours bigint not null default 20 check (neighbours between 1 and 1000),
    merge_threshold double precision check (merge_threshold between 0 and 1),
    merge_inclusive boolean not null default false,
    judge_threshold double precision check (judge_threshold between 0 and 1),
    similar_threshold double precision check (similar_threshold between 0 and 1),
    lexical_threshold double precision check (lexical_threshold between 0 and 1),
    guard text collate "C" not null default 'on' check (guard in ('on', 'off')),
    merge_veto double precision not null default 0.3 check (merge_veto between 0 and 1),
    on_ambiguous text collate "C" not null default 'judge'
    check (on_ambiguous in ('judge', 'synthesise', 'review', 'insert')),
    on_merge text collate "C" not null default 'strengthen'
    check (on_merge in ('strengthen', 'replace', 'synthesise')),
    on_refinement text collate "C" not null default 'replace' check (on_refinement in ('replace', 'escalate', 'merge')),
    metadata_merge text collate "C" not null default 'merge' check (metadata_merge in ('merge', 'first', 'newest')),
    conflict text collate "C" not null default 'newest_wins'
    check (conflict in ('newest_wins', 'keep_existing', 'keep_both', 'review')),
    confidence_floor double precision not null default 0.75 check (confidence_floor between 0 and 1),
    weight_source double precision not null default 0.5 check (weight_source between 0 and 1),
    weight_extractor double precision not null default 0.3 check (weight_extractor between 0 and 1),
    weight_repetition double precision not null default 0.2 check (weight_repetition between 0 and 1),
    notify boolean not null default false,
    max_content_length bigint not null default 100000 check (max_content_length between 1 and 10000000),
    max_metadata_size bigint not null default 100000 check (max_metadata_size between 2 and 10000000),
    updated_at timestamptz not null default pg_catalog.now(),
    lexical_neighbours bigint not null default 5 check (lexical_neighbours between 1 and 1000),
    session_neighbours bigint check (session_neighbours between 1 and 1000),
    metadata_max text[] not null default '{}' check (
        case when array_ndims(metadata_max) > 1 then false else array_position(metadata_max, null) is null end
    ),
    on_judge_failure text collate "C" not null default 'keep' check (on_judge_failure in ('keep', 'replace')),
    rehash_run uuid,
    rehash_from_canonicalizer text collate "C",
    rehash_from_key_fields text collate "C",
    rehash_from_metadata_keys text[],
    max_session_repeats bigint check (max_session_repeats between 1 and 1000),
    embed text collate "C" not null default 'client' check (embed in ('client', 'in_database')),
    embed_model text collate "C",
    segmenter text collate "C" not null default 'characters' check (segmenter in ('characters', 'zh', 'ja')),
    agent_actions_per_hour bigint not null default 60 check (agent_actions_per_hour between 0 and 1000000),
    primary key (tenant_id, bucket_id, memory_type),
    -- while a bucket is rehashed, its texts are hashed by the old rules or by those of its policy
    constraint policies_rehash_check check (
        rehash_run is null or rehash_from_canonicalizer is not null and rehash_from_key_fields is not null
        and rehash_from_metadata_keys is not null
    ),
    constraint policies_embed_model_check check (embed = 'client' or embed_model is not null),
    constraint policies_weights_check check (abs(weight_source + weight_extractor + weight_repetition - 1) < 1e-9)
);
-- The policies with rules that the fast path does not implement; it finds that a tenant has none without reading the others.
create index policies_slow_path_idx on memfold.policies (tenant_id)
where dedup <> 'on' or canonicalizer <> 'prose/1' or key_fields <> 'type,subject,predicate' or metadata_keys <> '{}'
or max_content_length < 8192 or max_metadata_size < 8192 or metadata_merge <> 'merge' or metadata_max <> '{}'
or max_session_repeats is not null or rehash_run is not null;
comment on table memfold.policies is
'The rules of a bucket, which decide candidates and verdicts. ''*'' stands for any; only the most specific row applies: (tenant, bucket,
type), (tenant, bucket), tenant, default. Written by set_policy().';
comment on column memfold.policies.key_fields is
'Fields that the content hash covers in addition to the content: type, subject, predicate, separated by commas.';
comment on column memfold.policies.metadata_keys is 'Metadata keys whose values are part of the content hash.';
comment on column memfold.policies.scope is
'Where tier 2 looks for neighbours: predicate = same bucket, type, subject and predicate; bucket = the whole bucket.';
comment on column memfold.policies.neighbours is 'How many neighbours tier 2 compares (N).';
comment on column memfold.policies.merge_threshold is
'Cosine above which (merge_inclusive: at or above which) a guard-clean neighbour merges. Null: the model''s.';
comment on column memfold.policies.judge_threshold is
'Cosine at or above which the pair goes to a judge. Null: the model''s.';
comment on column memfold.policies.similar_threshold is
'Cosine at or above which neighbours are reported in "similar". Null: the judge threshold.';
comment on column memfold.policies.lexical_threshold is
'Jaccard similarity of words above which a guard-clean neighbour merges. Null: the lexical tier is off.';
comment on column memfold.policies.merge_veto is
'Score of the words of two texts, in [0, 1], below which a pair does not merge automatically but is escalated (the veto). 0: off. Also off
if the guard is off.';
comment on column memfold.policies.on_ambiguous is
'Effect of row 11: judge and review queue a judgement, synthesise asks a judge for one text that combines both, insert adds the text.';
comment on column memfold.policies.on_merge is
'Effect of an automatic merge of a different text (rows 8 and 9): strengthen = the candidate''s text becomes an alias; replace = the newer
text becomes the root, the older its alias; synthesise = a judge writes one text that combines both.';
comment on column memfold.policies.on_refinement is
'Effect of an automatic merge (on_merge => strengthen) if the newer text says everything the older says, and more: replace = the newer
text becomes the root, the older its alias; escalate = a judge is asked; merge = the same as any other merge.';
comment on column memfold.policies.max_content_length is 'Maximum length of the content, in bytes of UTF-8.';
comment on column memfold.policies.max_metadata_size is 'Maximum size of the metadata, in bytes of its text form.';
comment on column memfold.policies.lexical_neighbours is 'How many memories that share words the lexical tier compares.';
comment on column memfold.policies.session_neighbours is
'How many neighbours tier 2 compares if they are of the candidate''s session. Null: sessions make no difference.';
comment on column memfold.policies.metadata_max is
'Metadata keys that keep their largest number, regardless of metadata_merge.';
comment on column memfold.policies.on_judge_failure is
'Effect of a synthesis whose last attempt fails: keep = both memories stay, replace = the newer replaces the older.';
comment on column memfold.policies.rehash_run is
'The run of rehash_bucket() in progress. Null: none, and the columns rehash_from_... have no meaning.';
comment on column memfold.policies.rehash_from_canonicalizer is
'The canonicalizer of the texts that the run has not reached; likewise rehash_from_key_fields and rehash_from_metadata_keys.';
comment on column memfold.policies.max_session_repeats is
'How many times one session (session_id) may state one text; further calls are refused (MF055). Null: no limit.';
comment on column memfold.policies.embed is
'Where the vector of a text that arrives without one is computed: client (later, with attach_embedding()) or in_database (by embed_text()
of memfold_py, if tier 1 does not match).';
comment on column memfold.policies.embed_model is
'The registered model that in_database uses.';
comment on column memfold.policies.segmenter is
'What the lexical tier treats as words in text without spaces: each character, or the words that memfold_py finds (zh Chinese, ja
Japanese).';
comment on column memfold.policies.agent_actions_per_hour is
'How often per hour an agent (a member of memfold_agent, not of memfold_app) may reject or reword a memory, answer a question or undo an
event; further calls are refused (MF066). Statements do not count. Only read in rows of memory_type ''*''.';
insert into memfold.policies default values;

create function memfold_internal._is_cycle(cycle interval) returns boolean
language sql immutable parallel safe
return cycle = interval '0' or cycle between interval '1 minute' and interval '1000 years';
comment on function memfold_internal._is_cycle is 'Whether an interval can be the cycle of a maintenance task; 0: never.';

create table memfold.options (
    tenant_id text collate "C" not null default '*' check (tenant_id <> ''),
    bucket_id text collate "C" not null default '*' check (bucket_id <> ''),
    memory_type text collate "C" not null default '*' check (memory_type <> ''),
    min_confidence double precision not null default 0 check (min_confidence between 0 and 1),
    search_threshold double precision check (search_threshold between 0 and 1),
    touch boolean not null default false,
    rank_confidence double precision not null default 0.1 check (rank_confidence between 0 and 1),
    rank_feedback double precision not null default 0.1 check (rank_feedback between 0 and 1),
    consolidate_threshold double precision not null default 0.75 check (consolidate_threshold between 0 and 1),
    max_cluster_size bigint not null default 10 check (max_cluster_size between 2 and 10),
    session_threshold double precision not null default 0.5 check (session_threshold between 0 and 1),
    protected_types text[] not null default '{}' check (
        case when array_ndims(protected_types) > 1 then false else array_position(protected_types, null) is null end
    ),
    protected_confidence double precision check (protected_confidence between 0 and 1),
    decay_rate double precision not null default 0 check (decay_rate >= 0 and decay_rate < 1),
    decay_floor double precision not null default 0.05 check (decay_floor between 0 and 1),
    decay_interval interval not null default '1 day' check (decay_interval >= interval '0'),
    key_retention interval not null default '30 days'
    check (key_retention between interval '1 hour' and interval '1000 years'),
    consolidate_interval interval not null default '1 day' check (memfold_internal._is_cycle(consolidate_interval)),
    sweep_interval interval not null default '0' check (memfold_internal._is_cycle(sweep_interval)),
    prune_interval interval not null default '0' check (memfold_internal._is_cycle(prune_interval)),
    link_interval interval not null default '0' check (memfold_internal._is_cycle(link_interval)),
    consolidate_budget bigint not null default 5 check (consolidate_budget between 1 and 1000000),
    text_search text collate "C" not null default 'simple' check (text_search <> ''),
    updated_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, bucket_id, memory_type),
    constraint options_rank_check check (rank_confidence + rank_feedback <= 1)
);
comment on table memfold.options is
'Options of a bucket for recall and maintenance; unlike policies, they decide neither candidates nor verdicts. ''*'' stands for any; only
the most specific row applies, as for policies. Written by set_options(), and by set_policy() with a preset.';
comment on column memfold.options.min_confidence is 'Effective confidence below which search_memories() does not show a memory.';
comment on column memfold.options.search_threshold is
'Cosine at or above which search_memories() shows two memories as one. Null: the model''s judge threshold.';
comment on column memfold.options.touch is 'Whether search_memories() counts what it shows (access_count, last_accessed).';
comment on column memfold.options.rank_confidence is
'Share of effective confidence in the score of search_memories(); similarity has the share left by confidence and feedback.';
comment on column memfold.options.rank_feedback is
'Share of feedback, (helpful + 1) / (helpful + harmful + 2), in the score of search_memories().';
comment on column memfold.options.consolidate_threshold is 'Cosine at or above which consolidate() puts two memories into one cluster.';
comment on column memfold.options.max_cluster_size is
'Maximum number of memories in one question of consolidate() or sweep_duplicates(): 2 (pairs) to 10. Larger clusters are split.';
comment on column memfold.options.session_threshold is
'Jaccard similarity of words above which end_session() puts memories into one cluster.';
comment on column memfold.options.protected_types is 'Types that maintenance never merges or prunes, and that do not decay.';
comment on column memfold.options.protected_confidence is
'Confidence at or above which end_session() does not merge a memory. Null: no limit.';
comment on column memfold.options.decay_rate is 'Share of its confidence that a memory loses per day without use. 0: no decay.';
comment on column memfold.options.decay_floor is 'Confidence at which decay ends.';
comment on column memfold.options.decay_interval is 'Time without use after which decay begins.';
comment on column memfold.options.key_retention is
'Minimum time for which an idempotency key is kept; maintenance deletes older ones. Only read in rows of memory_type ''*''.';
comment on column memfold.options.consolidate_interval is
'How often maintenance calls consolidate() to ask about clusters, in a bucket with new memories. 0: never. This and the next four columns
are only read in rows of memory_type ''*''.';
comment on column memfold.options.sweep_interval is 'How often maintenance calls sweep_duplicates(). 0: never.';
comment on column memfold.options.prune_interval is 'How often maintenance calls prune_memories(). 0: never.';
comment on column memfold.options.link_interval is 'How often maintenance calls ask_links(). 0: never.';
comment on column memfold.options.consolidate_budget is
'Maximum number of questions about a bucket that may wait, 1 to 1000000: maintenance lets consolidate() ask only the number that remains.
Counted are questions of runs, and those of ingest for a judge that have waited for a consolidate_interval.';
comment on column memfold.options.text_search is
'The text search configuration that search_memories() uses for words, such as english; schema-qualified unless it is in pg_catalog.
simple: words as they are. Only read in rows of memory_type ''*''.';
insert into memfold.options default values;

create table memfold.predicates (
    tenant_id text collate "C" not null default '*' check (tenant_id <> ''),
    predicate text collate "C" not null check (predicate <> ''),
    cardinality text collate "C" not null default 'many' check (cardinality in ('one', 'many')),
    conflict text collate "C" check (conflict in ('newest_wins', 'keep_existing', 'keep_both', 'review')),
    updated_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, predicate)
);
comment on table memfold.predicates is
'How many values a predicate has at a time. A predicate without a row has many. Written by set_predicate().';
comment on column memfold.predicates.predicate is 'Canonical form (predicate/1).';
comment on column memfold.predicates.conflict is 'Overrides the conflict policy of the bucket. Null: does not.';

create table memfold.links (
    tenant_id text collate "C" not null check (tenant_id not in ('', '*')),
    bucket_id text collate "C" not null default '*' check (bucket_id <> ''),
    kind text collate "C" not null check (kind in ('subject', 'predicate', 'beginning')),
    alias text collate "C" not null check (alias <> ''),
    name text collate "C" not null check (name <> ''),
    run_id uuid,
    linked_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, bucket_id, kind, alias)
);
comment on table memfold.links is
'Names that stand for another name: what arrives under an alias is hashed and stored under its name. No name is itself an alias. Written
by link_subject(), link_predicate(), unlink_subject() and unlink_predicate().';
comment on column memfold.links.bucket_id is '''*'': every bucket of the tenant that has no link of its own for the alias.';
comment on column memfold.links.kind is
'subject, predicate, or beginning: the alias is the beginning of texts that have no subject.';
comment on column memfold.links.alias is 'Canonical form (prose/1; for a predicate predicate/1).';
comment on column memfold.links.name is 'The name that is stored instead, as it was written when it was linked.';
comment on column memfold.links.run_id is 'The run that takes up the memories stored under the alias.';

create type memfold.link_suggestion as (
    kind text,
    alias text,
    name text,
    score double precision,
    reasons text[],
    evidence jsonb
);
comment on type memfold.link_suggestion is
'A link that suggest_links() suggests: the arguments of link_subject() or link_predicate(), and the reasons.';

create type memfold.predicate_suggestion as (
    predicate text,
    score double precision,
    subjects bigint,
    changed bigint,
    most_values bigint,
    returned bigint,
    together bigint,
    memory_ids uuid []
);
comment on type memfold.predicate_suggestion is
'A predicate that suggest_predicates() suggests for set_predicate(), with the evidence.';
