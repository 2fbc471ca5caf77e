-- The tables. tenant_id leads every key of every tenant table, so that they can be distributed by it.

-- Small functions that stored columns and index scans are built of -------------------------------------------------

create function memfold._similarity(a vector, b vector) returns double precision
language sql immutable strict parallel safe
return pg_catalog.round(-1e6 * (a <#> b)) / 1e6;
revoke all on function memfold._similarity(vector, vector) from public;
comment on function memfold._similarity(vector, vector) is
'Cosine of two unit vectors, in [-1, 1], rounded to 6 decimals: single-precision noise must not decide at a threshold.';

create function memfold._unit(a vector) returns vector
language sql immutable strict parallel safe
return l2_normalize(a);
revoke all on function memfold._unit(vector) from public;
comment on function memfold._unit(vector) is 'The vector divided by its Euclidean norm.';

create function memfold._norm(a vector) returns double precision
language sql immutable strict parallel safe
return vector_norm(a);
revoke all on function memfold._norm(vector) from public;
comment on function memfold._norm(vector) is 'Euclidean norm.';

create function memfold._dimensions(a vector) returns integer
language sql immutable strict parallel safe
return vector_dims(a);
revoke all on function memfold._dimensions(vector) from public;
comment on function memfold._dimensions(vector) is 'Number of dimensions.';

-- PL/pgSQL on purpose: an INSERT would plan the body of an SQL function anew each time it computes a stored column.
create function memfold._content_hash(
    memory_type text, subject text, predicate text, content text,
    canonicalizer text, key_fields text, metadata_signature text
) returns bytea
language plpgsql immutable parallel safe
as $$
declare
    v_content text;
begin
    if canonicalizer is null then
        return null;
    elsif canonicalizer = 'prose/1' then
        v_content := memfold._prose_1(content);
    else
        v_content := memfold.canonicalize(content, canonicalizer);
    end if;
    if v_content = '' then
        raise exception 'the content is empty in canonical form' using
            errcode = 'MF004',
            detail = pg_catalog.format('Nothing is left of %L under the canonicalizer %s.',
                pg_catalog.left(content, 100), canonicalizer),
            hint = 'Pass the text of one fact.';
    end if;
    if key_fields = 'type,subject,predicate' and subject is null and predicate is null and metadata_signature is null then
        -- what the expression below comes to in the most frequent case
        return pg_catalog.sha256(pg_catalog.convert_to(memory_type, 'UTF8') || '\x00ff00ff00ff00'::bytea
            || pg_catalog.convert_to(v_content, 'UTF8'));
    end if;
    return pg_catalog.sha256(
        -- A field ends with a zero byte, which no text holds. Neither are ff (null) and fe (not part of the key) UTF-8.
        case when pg_catalog.strpos(key_fields, 'type') > 0
            then pg_catalog.convert_to(memory_type, 'UTF8') else '\xfe'::bytea end
        || '\x00'::bytea
        || case when pg_catalog.strpos(key_fields, 'subject') > 0
            then coalesce(pg_catalog.convert_to(memfold._prose_1(subject), 'UTF8'), '\xff'::bytea) else '\xfe'::bytea end
        || '\x00'::bytea
        || case when pg_catalog.strpos(key_fields, 'predicate') > 0
            then coalesce(pg_catalog.convert_to(memfold._prose_1(predicate), 'UTF8'), '\xff'::bytea) else '\xfe'::bytea end
        || '\x00'::bytea
        || coalesce(pg_catalog.convert_to(metadata_signature, 'UTF8'), '\xff'::bytea)
        || '\x00'::bytea
        || pg_catalog.convert_to(v_content, 'UTF8')
    );
end;
$$;
revoke all on function memfold._content_hash(text, text, text, text, text, text, text) from public;
comment on function memfold._content_hash(text, text, text, text, text, text, text) is
'SHA-256 (32 bytes) over an unambiguous encoding of the key fields and the canonical content. Null without a
canonicalizer: such a memory has opted out of deduplication. Raises MF004 where the canonical content is empty.';

create function memfold._scope_key(bucket_id text, memory_type text, subject text, predicate text) returns bigint
language plpgsql immutable parallel safe
as $$
declare
    v_key bigint := pg_catalog.hashtextextended(memory_type collate "C",
        pg_catalog.hashtextextended(bucket_id collate "C", 0));
begin
    -- null = empty: neither is ever empty in canonical form
    v_key := pg_catalog.hashtextextended(
        coalesce(memfold._prose_1(subject), '') collate "C", v_key);
    return pg_catalog.hashtextextended(
        coalesce(memfold._prose_1(predicate), '') collate "C", v_key);
end;
$$;
revoke all on function memfold._scope_key(text, text, text, text) from public;
comment on function memfold._scope_key(text, text, text, text) is
'64-bit key of a scope: bucket, type, canonical subject, canonical predicate.';

create function memfold._root(memory_id uuid, root_id uuid) returns uuid
language sql immutable parallel safe
return case when root_id is null then memory_id else root_id end;
revoke all on function memfold._root(uuid, uuid) from public;
comment on function memfold._root(uuid, uuid) is
'The root of a row of memories. Not coalesce(), which row level security takes for leaky and keeps from indexes.';

-- PostgreSQL 18 brings what is wanted, in C; before it takes some text work.
do $do$
begin
    execute 'create function memfold._new_id() returns uuid language sql volatile parallel safe return ' || case
        when pg_catalog.current_setting('server_version_num')::integer >= 180000 then 'pg_catalog.uuidv7()'
        -- one reading of the clock: 48 bits of milliseconds, 12 bits of their fraction, the version's digit between them
        else $body$(
            pg_catalog.overlay(pg_catalog.lpad(pg_catalog.to_hex(
                (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 4096000)::bigint
            ), 15, '0'), '7', 13, 0)
            || pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20)
        )::uuid$body$
    end;
end;
$do$;
revoke all on function memfold._new_id() from public;
comment on function memfold._new_id() is
'A UUID of version 7 (RFC 9562, method 3): milliseconds, then 12 bits of their fraction, so ids sort by time.';

-- Rules ------------------------------------------------------------------------------------------------------------

create table memfold.policies (
    tenant_id text collate "C" not null default '*' check (tenant_id <> ''),
    bucket_id text collate "C" not null default '*' check (bucket_id <> ''),
    memory_type text collate "C" not null default '*' check (memory_type <> ''),
    preset text collate "C" not null default 'three_tier',
    dedup text collate "C" not null default 'on' check (dedup in ('on', 'off')),
    canonicalizer text collate "C" not null default 'prose/1',
    key_fields text collate "C" not null default 'type,subject,predicate',
    metadata_keys text[] not null default '{}',
    scope text collate "C" not null default 'predicate' check (scope in ('predicate', 'bucket')),
    neighbours bigint not null default 20 check (neighbours between 1 and 1000),
    merge_threshold double precision check (merge_threshold between 0 and 1),
    merge_inclusive boolean not null default false,
    judge_threshold double precision check (judge_threshold between 0 and 1),
    similar_threshold double precision check (similar_threshold between 0 and 1),
    lexical_threshold double precision check (lexical_threshold between 0 and 1),
    guard text collate "C" not null default 'on' check (guard in ('on', 'off')),
    on_ambiguous text collate "C" not null default 'judge' check (on_ambiguous in ('judge', 'review', 'keep')),
    on_merge text collate "C" not null default 'strengthen'
    check (on_merge in ('strengthen', 'replace', 'synthesise')),
    metadata_merge text collate "C" not null default 'merge' check (metadata_merge in ('merge', 'first', 'newest')),
    conflict text collate "C" not null default 'newest_wins'
    check (conflict in ('newest_wins', 'keep_existing', 'keep_both', 'review')),
    confidence_floor double precision not null default 0.75 check (confidence_floor between 0 and 1),
    min_confidence double precision not null default 0 check (min_confidence between 0 and 1),
    weight_source double precision not null default 0.5 check (weight_source between 0 and 1),
    weight_extractor double precision not null default 0.3 check (weight_extractor between 0 and 1),
    weight_repetition double precision not null default 0.2 check (weight_repetition between 0 and 1),
    notify boolean not null default false,
    max_content_length bigint not null default 100000 check (max_content_length between 1 and 10000000),
    max_metadata_size bigint not null default 100000 check (max_metadata_size between 2 and 10000000),
    updated_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, bucket_id, memory_type)
);
comment on table memfold.policies is
'The rules of a bucket. ''*'' stands for any; the most specific row wins whole: (tenant, bucket, type), (tenant, bucket),
tenant, default. Written by set_policy().';
comment on column memfold.policies.key_fields is
'What the content hash covers beside the content: a list of type, subject, predicate, joined by commas.';
comment on column memfold.policies.metadata_keys is 'Metadata keys whose values are part of the content hash.';
comment on column memfold.policies.scope is
'Where tier 2 looks for neighbours: predicate = same bucket, type, subject and predicate; bucket = the whole bucket.';
comment on column memfold.policies.neighbours is 'How many neighbours tier 2 looks at (N).';
comment on column memfold.policies.merge_threshold is
'Cosine above which (merge_inclusive: at or above which) a guard-clean neighbour merges. Null: the model''s.';
comment on column memfold.policies.judge_threshold is
'Cosine at or above which the pair goes to a judge. Null: the model''s.';
comment on column memfold.policies.similar_threshold is
'Cosine at or above which neighbours are reported in "similar". Null: the judge threshold.';
comment on column memfold.policies.max_content_length is 'Longest content accepted, in bytes of UTF-8.';
comment on column memfold.policies.max_metadata_size is 'Largest metadata accepted, in bytes of its text form.';
insert into memfold.policies default values;

create table memfold.predicates (
    tenant_id text collate "C" not null default '*' check (tenant_id <> ''),
    predicate text collate "C" not null check (predicate <> ''),
    cardinality text collate "C" not null default 'many' check (cardinality in ('one', 'many')),
    conflict text collate "C" check (conflict in ('newest_wins', 'keep_existing', 'keep_both', 'review')),
    updated_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, predicate)
);
comment on table memfold.predicates is
'How many values a predicate has at a time. A predicate that is not here has many. Written by set_predicate().';
comment on column memfold.predicates.predicate is 'Canonical form (prose/1).';
comment on column memfold.predicates.conflict is 'Overrides the conflict policy of the bucket. Null: it does not.';

create table memfold.embedding_models (
    model text collate "C" primary key check (model <> ''),
    dimensions bigint not null check (dimensions between 1 and 16000),
    merge_threshold double precision not null default 0.92 check (merge_threshold between 0 and 1),
    judge_threshold double precision not null default 0.85 check (judge_threshold between 0 and 1),
    calibration_id uuid,
    registered_at timestamptz not null default pg_catalog.now(),
    check (judge_threshold <= merge_threshold)
);
comment on table memfold.embedding_models is
'The embedding models whose vectors are accepted; vectors of different models are never compared.';
comment on column memfold.embedding_models.calibration_id is
'The calibration that the thresholds come from. Null: they are the defaults 0.92 and 0.85, or were set by hand.';

create table memfold.tenant_roles (
    role_name name primary key,
    tenant_id text collate "C" not null check (tenant_id <> '')
);
comment on table memfold.tenant_roles is
'Which tenant a login role belongs to that is a member of memfold_tenant: this row decides, whatever memfold.tenant_id is
set to, and without a row such a role reaches nothing. Other members of memfold_app are trusted to set it.';

-- Memories ---------------------------------------------------------------------------------------------------------

create table memfold.memories (
    tenant_id text collate "C" not null,
    memory_id uuid not null default memfold._new_id(),
    bucket_id text collate "C" not null default 'default',
    memory_type text collate "C" not null default 'fact',
    subject text collate "C",
    predicate text collate "C",
    object text collate "C",
    content text collate "C" not null,
    canonicalizer text collate "C",
    key_fields text collate "C",
    metadata_signature text collate "C",
    content_hash bytea generated always as (
        memfold._content_hash(memory_type, subject, predicate, content, canonicalizer, key_fields, metadata_signature)
    ) stored,
    scope_key bigint not null generated always as (
        memfold._scope_key(bucket_id, memory_type, subject, predicate)
    ) stored,
    status text collate "C" not null default 'active',
    merged_into uuid,
    root_id uuid,
    session_id text collate "C",
    metadata jsonb not null default '{}',
    embedding_pending boolean not null default false,
    created_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, memory_id),
    foreign key (tenant_id, merged_into) references memfold.memories (tenant_id, memory_id),
    foreign key (tenant_id, root_id) references memfold.memories (tenant_id, memory_id),
    -- one constraint rather than eight: an INSERT reads and plans each of them anew
    constraint memories_state_check check (
        tenant_id <> '' and bucket_id <> '' and memory_type <> ''
        and status in ('active', 'merged', 'superseded', 'rejected', 'withdrawn')
        and (status = 'merged') = (merged_into is not null)
        and (merged_into is null) = (root_id is null)
        and merged_into is distinct from memory_id and root_id is distinct from memory_id
        and pg_catalog.jsonb_typeof(metadata) = 'object'
    )
) with (fillfactor = 90);
comment on table memfold.memories is
'One row a text of a bucket, for ever. Text, keys and hash never change; state is derived from memory_events.';
comment on column memfold.memories.content_hash is
'Tier 1: SHA-256 over what the row itself holds. Null when the policy''s dedup is off.';
comment on column memfold.memories.canonicalizer is
'Versioned profile that the hash was made with; filled in from the policy. Null: opted out of deduplication.';
comment on column memfold.memories.metadata_signature is
'The policy''s metadata_keys with their values, as JSON text, where they are part of the hash.';
comment on column memfold.memories.scope_key is 'Hash of bucket, type, canonical subject, canonical predicate.';
comment on column memfold.memories.status is
'active, merged (an alias), superseded, rejected (a tombstone) or withdrawn (no observation left).';
comment on column memfold.memories.merged_into is 'Aliases: the memory that this text was folded into (the edge that undo cuts).';
comment on column memfold.memories.root_id is 'Aliases: the memory where merged_into finally leads. Null for a root.';
comment on column memfold.memories.metadata is 'Roots: the metadata of all observations, folded by the policy.';
comment on column memfold.memories.embedding_pending is 'Stored without a vector: see pending_embeddings().';
create unique index memories_content_hash_key
on memfold.memories (tenant_id, bucket_id, content_hash) where content_hash is not null;
create index memories_scope_idx on memfold.memories (tenant_id, bucket_id, scope_key);
create index memories_root_idx on memfold.memories (tenant_id, root_id) where root_id is not null;
create index memories_merged_into_idx on memfold.memories (tenant_id, merged_into) where merged_into is not null;
create index memories_pending_idx on memfold.memories (tenant_id, bucket_id, memory_id) where embedding_pending;

create table memfold.memory_counters (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    live boolean not null default true,
    on_timeline boolean not null default false,
    aliases bigint not null default 0,
    observations bigint not null default 0,
    independent bigint not null default 0,
    source_confidence double precision not null default 0,
    extractor_confidence double precision not null default 0,
    first_seen timestamptz not null default '-infinity',
    last_seen timestamptz not null default '-infinity',
    access_count bigint not null default 0,
    helpful_count bigint not null default 0,
    harmful_count bigint not null default 0,
    last_accessed timestamptz,
    primary key (tenant_id, memory_id),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table memfold.memory_counters is
'The aggregates of a root over its own and its aliases'' observations: a narrow row of its own, so that a merge is one
HOT update. Aliases have a row of zeros or none. Whoever changes a tree or its counters locks the root''s row here.';
comment on column memfold.memory_counters.live is 'The root''s status is active.';
comment on column memfold.memory_counters.on_timeline is 'The memory is a value of a single-valued slot.';
comment on column memfold.memory_counters.aliases is 'How many texts are folded into this one.';
comment on column memfold.memory_counters.observations is 'repetition_count + 1.';
comment on column memfold.memory_counters.independent is
'Distinct source turns, plus one for each observation without turns: n + 1 of the confidence formula.';
comment on column memfold.memory_counters.access_count is 'How often recall has shown it (merges are not counted here).';

create table memfold.memory_vectors (
    tenant_id text collate "C" not null,
    memory_id uuid not null,
    model text collate "C" not null,
    bucket_id text collate "C" not null,
    scope_key bigint not null,
    live boolean not null default true,
    embedding vector not null,
    primary key (tenant_id, memory_id, model),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id)
);
-- In the row while it fits a page: no TOAST read a neighbour. MAIN rather than PLAIN, which refuses larger vectors.
alter table memfold.memory_vectors alter column embedding set storage main;
create index memory_vectors_scope_idx
on memfold.memory_vectors (tenant_id, bucket_id, scope_key, model, memory_id) where live;
comment on table memfold.memory_vectors is
'One unit vector per (memory, embedding model), aliases'' included; a scoped scan reads nothing else.';
comment on column memfold.memory_vectors.live is 'Where the memory leads is active: it is a neighbour.';

create table memfold.memory_intervals (
    tenant_id text collate "C" not null,
    bucket_id text collate "C" not null,
    scope_key bigint not null,
    valid_from timestamptz not null,
    from_event uuid not null,
    memory_id uuid not null,
    valid_to timestamptz,
    primary key (tenant_id, bucket_id, scope_key, valid_from, from_event),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id)
);
create index memory_intervals_memory_idx on memfold.memory_intervals (tenant_id, memory_id);
comment on table memfold.memory_intervals is
'When a value of a single-valued slot was current: [valid_from, valid_to), null = still. Derived from the ledger.';

create table memfold.memory_sources (
    tenant_id text collate "C" not null,
    source_turn_id text collate "C" not null,
    memory_id uuid not null,
    primary key (tenant_id, source_turn_id, memory_id)
);
comment on table memfold.memory_sources is 'Which conversation turns a text came from: one row per (turn, memory).';

create table memfold.memory_tokens (
    tenant_id text collate "C" not null,
    bucket_id text collate "C" not null,
    token text collate "C" not null,
    memory_id uuid not null,
    primary key (tenant_id, bucket_id, token, memory_id),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id)
);
create index memory_tokens_memory_idx on memfold.memory_tokens (tenant_id, memory_id);
comment on table memfold.memory_tokens is
'Lexical tier: the words of memories, for buckets whose policy has a lexical_threshold.';

-- The ledger -------------------------------------------------------------------------------------------------------

-- No CHECK here, on memory_counters and on memory_sources: an INSERT or UPDATE reads and plans each of them anew, which
-- doubled the cost of a replay. Only memfold's own functions write these tables; check_invariants() says what must hold.
create table memfold.memory_events (
    tenant_id text collate "C" not null,
    event_id uuid not null default memfold._new_id(),
    at timestamptz not null default pg_catalog.clock_timestamp(),
    bucket_id text collate "C" not null,
    action text collate "C" not null,
    tier smallint,
    method text collate "C",
    memory_id uuid,
    target_id uuid,
    similarity double precision,
    guard text[],
    similar_memories jsonb,
    reason text collate "C",
    observation boolean not null default false,
    on_timeline boolean not null default false,
    content text collate "C",
    memory_type text collate "C",
    subject text collate "C",
    predicate text collate "C",
    object text collate "C",
    source_turn_ids text[] not null default '{}',
    source_confidence double precision,
    extractor_confidence double precision,
    session_id text collate "C",
    origin text collate "C",
    metadata jsonb,
    observed_at timestamptz,
    judgement_id uuid,
    verdict text collate "C",
    undoes uuid,
    run_id uuid,
    actor text collate "C" not null,
    cause text collate "C",
    primary key (tenant_id, event_id, at)
);
create index memory_events_memory_idx on memfold.memory_events (tenant_id, memory_id, event_id);
create index memory_events_target_idx on memfold.memory_events (tenant_id, target_id) where target_id is not null;
create unique index memory_events_undoes_key on memfold.memory_events (tenant_id, undoes) where undoes is not null;
create index memory_events_run_idx on memfold.memory_events (tenant_id, run_id) where run_id is not null;
comment on table memfold.memory_events is
'The ledger: every observation and every decision, append-only. All state of memories is a function of it. No foreign
keys, and "at" in the primary key, so that it can be partitioned by time.';
comment on column memfold.memory_events.action is
'inserted, merged, replaced, superseded, escalated, historical, rejected; embedded (a late vector), judged, undone, erased.';
comment on column memfold.memory_events.memory_id is 'The text that the candidate matched or created. Null: refused by a rule, no text.';
comment on column memfold.memory_events.target_id is
'merged in tier 2 or 3: the memory that memory_id was folded into (replaced: the memory folded into memory_id). merged in
tier 1: the root, where an alias was hit. superseded, historical: the value it competed with. escalated: the neighbour.';
comment on column memfold.memory_events.observation is
'The call counts as an observation of memory_id (recalled text and decisions do not).';
comment on column memfold.memory_events.on_timeline is 'The observation states the value of a single-valued slot.';
comment on column memfold.memory_events.guard is 'The guard''s signals against the neighbour that decided.';
comment on column memfold.memory_events.actor is 'Login role that called, or the judge.';

create table memfold.idempotency_keys (
    tenant_id text collate "C" not null,
    bucket_id text collate "C" not null,
    idempotency_key text collate "C" not null,
    event_id uuid,
    at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, bucket_id, idempotency_key)
);
comment on table memfold.idempotency_keys is 'Calls of ingest that carried a key, and the ledger row each of them left.';

-- Tier 3 -----------------------------------------------------------------------------------------------------------

create table memfold.judgements (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    judgement_id uuid not null default memfold._new_id(),
    bucket_id text collate "C" not null,
    scope_key bigint not null,
    kind text collate "C" not null check (kind in ('write', 'synthesis', 'consolidation', 'review')),
    state text collate "C" not null default 'open' check (state in ('open', 'leased', 'done', 'moot', 'dead')),
    memory_id uuid not null,
    other_id uuid,
    member_ids uuid[],
    similarity double precision,
    guard text[],
    worker text collate "C",
    leased_until timestamptz,
    attempts bigint not null default 0,
    next_attempt_at timestamptz not null default pg_catalog.now(),
    last_error text collate "C",
    verdict text collate "C" check (verdict in ('duplicate', 'refinement', 'contradiction', 'distinct', 'unsure')),
    confidence double precision check (confidence between 0 and 1),
    reason text collate "C",
    merged_text text collate "C",
    model text collate "C",
    input_tokens bigint,
    output_tokens bigint,
    cost double precision,
    run_id uuid,
    created_at timestamptz not null default pg_catalog.now(),
    resolved_at timestamptz,
    primary key (tenant_id, judgement_id),
    foreign key (tenant_id, memory_id) references memfold.memories (tenant_id, memory_id),
    foreign key (tenant_id, other_id) references memfold.memories (tenant_id, memory_id),
    check (other_id is not null or member_ids is not null)
);
create unique index judgements_open_pair_key on memfold.judgements
(tenant_id, least(memory_id, other_id), greatest(memory_id, other_id)) where state in ('open', 'leased');
create index judgements_queue_idx on memfold.judgements (tenant_id, next_attempt_at) where state in ('open', 'leased');
create index judgements_memory_idx on memfold.judgements (tenant_id, memory_id);
create index judgements_other_idx on memfold.judgements (tenant_id, other_id);
comment on table memfold.judgements is
'Tier 3: open and answered questions "do these two say the same?". Both memories stay active until it is answered.';
comment on column memfold.judgements.memory_id is 'The newer side of the pair.';
comment on column memfold.judgements.other_id is 'The older side. Null: a cluster, see member_ids.';
comment on column memfold.judgements.cost is 'Of the model''s calls, in the currency that the judge is configured with.';

-- Calibration ------------------------------------------------------------------------------------------------------

create table memfold.labelled_pairs (
    tenant_id text collate "C" not null check (tenant_id <> ''),
    pair_id uuid not null default memfold._new_id(),
    content_a text collate "C" not null,
    content_b text collate "C" not null,
    label text collate "C" not null check (label in ('duplicate', 'refinement', 'contradiction', 'distinct')),
    origin text collate "C" not null,
    labelled_at timestamptz not null default pg_catalog.now(),
    primary key (tenant_id, pair_id)
);
comment on table memfold.labelled_pairs is 'Pairs of texts with what they are to each other: the input of calibration.';

create table memfold.calibrations (
    calibration_id uuid primary key default memfold._new_id(),
    model text collate "C" not null references memfold.embedding_models (model),
    merge_threshold double precision not null,
    judge_threshold double precision not null,
    report jsonb not null,
    fingerprint bytea not null,
    created_at timestamptz not null default pg_catalog.now()
);
comment on table memfold.calibrations is 'Thresholds derived from labelled pairs, with the rates measured on held-out pairs.';

-- What functions hand to one another -------------------------------------------------------------------------------

create type memfold.candidate as (
    tenant_id text,
    bucket_id text,
    memory_type text,
    content text,
    subject text,
    predicate text,
    object text,
    embedding vector,
    embedding_model text,
    source_turn_ids text[],
    source_confidence double precision,
    extractor_confidence double precision,
    session_id text,
    origin text,
    metadata jsonb,
    observed_at timestamptz,
    content_hash bytea,
    scope_key bigint,
    metadata_signature text,
    policy memfold.policies
);
comment on type memfold.candidate is 'A validated candidate: what the caller handed in, its hash and scope, and the policy that applies.';

create type memfold.decision as (
    action text,
    tier integer,
    method text,
    memory_id uuid,
    root_id uuid,
    target_id uuid,
    similarity double precision,
    guard text[],
    similar_memories jsonb,
    reason text,
    on_timeline boolean,
    judgement text
);
comment on type memfold.decision is
'What _decide() found: the action, the stored text that was hit (memory_id, with its root), the memory it concerns
(target_id), and the kind of judgement to queue.';

create type memfold.ingest_result as (
    action text,
    memory_id uuid,
    tier integer,
    method text,
    similarity double precision,
    superseded_id uuid,
    judgement_id uuid,
    event_id uuid,
    "similar" jsonb
);
comment on type memfold.ingest_result is
'action: inserted, merged, replaced, superseded, escalated, historical or rejected. memory_id: the memory that now holds
the fact (of a merge: the active one). tier 1 to 3 and method say what decided, similarity is a cosine.';
