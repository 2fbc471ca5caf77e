create type memfold.found_memory as (
    memory_id uuid,
    content text,
    memory_type text,
    subject text,
    predicate text,
    object text,
    score double precision,
    similarity double precision,
    matched_id uuid,
    matched_similarity double precision,
    confidence double precision,
    repetition_count bigint,
    metadata jsonb,
    session_id text,
    first_seen timestamptz,
    last_seen timestamptz,
    collapsed_ids uuid[],
    collapsed_count bigint,
    collapsed_into uuid,
    matched_content text,
    bucket_id text,
    word_share double precision,
    complete boolean,
    valid_from timestamptz,
    disputed_by uuid[]
);
comment on type memfold.found_memory is
'A memory that search_memories() shows. similarity: the cosine of the text shown; matched_similarity: that of the text found (null: it has
no vector of the model, or the search has none). matched_id: the nearest of its texts, which may be an alias; matched_content: that text.
word_share: the share of the query''s words that this text has, in [0, 1], rare words counting more (null: none, or a search by vector
only). confidence: effective, that is, after decay. score: what it is ranked by; the best of its own and those of collapsed_ids, which say
the same and are not shown. collapsed_into: with show_collapsed, the memory shown instead. valid_from: when it became current; without a
timeline or a validity, first_seen. disputed_by: memories that may contradict it, newest first, at most three: those in an open question
with it, and other values of the same subject and predicate if its number of values is not declared. complete: the same in each row; false
if the search has not examined every text that it could have found (a NOTICE explains why).';

create type memfold_internal.dispute as (
    memory_id uuid,
    others uuid[]
);
comment on type memfold_internal.dispute is 'A memory, and those that may contradict it: see _disputes().';

create type memfold_internal.recall_rule as (
    guard text,
    weight_source double precision,
    weight_extractor double precision,
    weight_repetition double precision,
    min_confidence double precision,
    search_threshold double precision,
    touch boolean,
    rank_confidence double precision,
    rank_feedback double precision,
    protected_types text[],
    decay_rate double precision,
    decay_floor double precision,
    decay_interval interval
);
comment on type memfold_internal.recall_rule is 'What recall reads of the policy and of the options that apply to a type.';

create type memfold.profile_fact as (
    memory_id uuid,
    content text,
    predicate text,
    object text,
    valid_from timestamptz,
    disputed_by uuid[]
);
comment on type memfold.profile_fact is
'A current memory about a subject: see profile(). valid_from and disputed_by: as in found_memory.';
