-- The columns of memory_events, and their comments.
create table memfold.memory_events_archive (
    like memfold.memory_events including comments,
    primary key (tenant_id, event_id, recorded_at)
);
create index memory_events_archive_memory_idx on memfold.memory_events_archive (tenant_id, memory_id, event_id);
create unique index memory_events_archive_undoes_key on memfold.memory_events_archive (tenant_id, undoes)
where undoes is not null;
-- erasure finds rows by the ids in them
create index memory_events_archive_target_idx on memfold.memory_events_archive (tenant_id, target_id) where target_id is not null;
create index memory_events_archive_erasure_idx on memfold.memory_events_archive (tenant_id, bucket_id, event_id)
where similar_memories is not null or not observation;
comment on table memfold.memory_events_archive is
'Ledger rows that archive_events() has moved out of memory_events, unchanged: old restatements, which a row of method archived replaces in
the ledger, and rows on which no state depends. undo() and erasure move a memory''s rows back. The table may be in another tablespace.';
comment on column memfold.memory_events.cause is 'For action erased: what was erased (the text, a number of ledger rows).';

create table memfold.archive_positions (
    tenant_id text collate "C" primary key check (tenant_id <> ''),
    memory_id uuid,
    event_id uuid not null
);
comment on table memfold.archive_positions is
'Where archive_events() continues in a tenant''s ledger, by memory and event (memory_id null: among the rows without one). No row: at the
beginning.';

create type memfold.archived_rows as (archived bigint, summaries bigint, is_left boolean);
comment on type memfold.archived_rows is
'Result of one call of archive_events(): rows moved, rows of method archived created or extended; is_left: call it again.';

create type memfold.erasure as (
    erased bigint,
    kept bigint,
    events bigint,
    remaining bigint
);
comment on type memfold.erasure is
'Result of one call: erased texts (memories and aliases), texts that lost observations but stay because other sources support them, and
erased ledger rows. remaining: texts left for another call; for a bucket or tenant the count stops at 1,000.';

-- No statistics with samples of texts, which the planner does not need: pg_statistic would keep erased text.
do $$
declare
    v_column record;
begin
    for v_column in
        select t.name, pg_catalog.unnest(t.columns) as column_name
        from (values
            ('memories', array['object', 'content', 'metadata']),
            ('memory_events', array[
                'guard', 'similar_memories', 'reason', 'content', 'subject', 'object', 'metadata', 'cause'
            ]),
            ('memory_events_archive', array[
                'guard', 'similar_memories', 'reason', 'content', 'subject', 'object', 'metadata', 'cause'
            ]),
            ('judgements', array['guard', 'last_error', 'reason', 'merged_text', 'link']),
            ('labelled_pairs', array['content_a', 'content_b'])
        ) as t (name, columns)
    loop
        execute pg_catalog.format('alter table memfold.%I alter column %I set statistics 0', v_column.name, v_column.column_name);
    end loop;
end;
$$;
