-- Tables of `memfold adopt`. Only for members of memfold_owner, because an archive holds whole rows of any tenant.

create table memfold.adoptions (
    table_schema text collate "C" not null,
    table_name text collate "C" not null,
    name text collate "C" not null unique,
    definition jsonb not null,
    step bigint not null default 0 check (step between 0 and 6),
    confirmed_at timestamptz,
    withheld boolean not null default false,
    paused boolean not null default false,
    absorbs boolean not null default false,
    "position" jsonb,
    rows_seen bigint not null default 0,
    rows_hashed bigint not null default 0,
    left_out jsonb not null default '{}',
    groups_resolved bigint not null default 0,
    rows_archived bigint not null default 0,
    children_repointed bigint not null default 0,
    children_archived bigint not null default 0,
    steps jsonb not null default '{}',
    last_error text collate "C",
    created_at timestamptz not null default pg_catalog.now(),
    updated_at timestamptz not null default pg_catalog.now(),
    primary key (table_schema, table_name),
    check (step < 4 or confirmed_at is not null)
);
comment on table memfold.adoptions is
'Tables that `memfold adopt` works on, and its progress, which an interrupted run continues from. One row per table.';
comment on column memfold.adoptions.name is 'The functions generated for the table are named after it: insert_<name>, find_<name>.';
comment on column memfold.adoptions.definition is
'The hash column, the key, the canonicalizer and the expressions, as `memfold adopt plan` shows them.';
comment on column memfold.adoptions.step is 'The last finished step.';
comment on column memfold.adoptions.confirmed_at is
'When someone confirmed that duplicates may be archived: from then on undo needs the archive.';
comment on column memfold.adoptions.withheld is
'While the unique index is built, new and changed rows get no hash, so that they cannot make the build fail. They get it afterwards.';
comment on column memfold.adoptions.paused is 'Read between batches.';
comment on column memfold.adoptions.absorbs is
'From step 6 on, an INSERT of an existing text succeeds without adding its row, and is counted in adoption_repeats.';
comment on column memfold.adoptions."position" is 'Step 3: the key of the last row of the last batch, its columns as text.';
comment on column memfold.adoptions.left_out is 'Rows without a hash, by reason, as last counted.';
comment on column memfold.adoptions.steps is 'When each step began and ended.';

create table memfold.adoption_archive (
    archive_id uuid primary key default memfold_internal._new_id(),
    adoption text collate "C" not null,
    reason text collate "C" not null check (reason in ('duplicate', 'child_collision')),
    table_schema text collate "C" not null,
    table_name text collate "C" not null,
    row_key jsonb,
    row_data jsonb not null,
    kept_key jsonb,
    tenant text collate "C",
    bucket text collate "C",
    content_hash bytea,
    repointed jsonb not null default '[]',
    archived_at timestamptz not null default pg_catalog.now(),
    restored_at timestamptz
);
create index adoption_archive_waiting_idx
on memfold.adoption_archive (adoption, archived_at, archive_id) where restored_at is null;
create index adoption_archive_key_idx on memfold.adoption_archive using hash (row_key);
comment on table memfold.adoption_archive is
'Rows that `memfold adopt` removed from a table: duplicates, and rows of child tables that would have collided. Each value is stored as
the text that the server prints for it, so that the row can be restored unchanged.';
comment on column memfold.adoption_archive.adoption is 'The name of the adoption.';
comment on column memfold.adoption_archive.row_key is 'The row''s key, by column. Null: the table has no key.';
comment on column memfold.adoption_archive.kept_key is 'The key of the row that was kept instead.';
comment on column memfold.adoption_archive.repointed is
'Rows of child tables that now refer to the kept row: constraint, table, and their keys.';
comment on column memfold.adoption_archive.archived_at is 'The same for all rows of one batch, which is one transaction.';

create table memfold.adoption_repeats (
    repeat_id uuid primary key default memfold_internal._new_id(),
    adoption text collate "C" not null,
    row_key jsonb not null,
    repeats bigint not null default 1 check (repeats > 0),
    first_at timestamptz not null default pg_catalog.clock_timestamp(),
    last_at timestamptz not null default pg_catalog.clock_timestamp()
);
create index adoption_repeats_key_idx on memfold.adoption_repeats using hash (row_key);
comment on table memfold.adoption_repeats is
'Inserts that were absorbed because their text already existed, by the row that holds it: the sum of `repeats` over its rows here.
Concurrent writers count in separate rows, so that none waits for another.';
comment on column memfold.adoption_repeats.adoption is 'The name of the adoption.';
comment on column memfold.adoption_repeats.row_key is
'The key of the existing row, by column, as in adoption_archive.';

-- Unlogged: after a crash, the sessions that had claimed a text are gone.
create unlogged table memfold.adoption_claims (claim bigint primary key);
comment on table memfold.adoption_claims is
'Texts being inserted into tables whose adoption absorbs: a second insert of the same text waits here for the first. The table always
looks empty, because each row is deleted by the transaction that inserts it.';
