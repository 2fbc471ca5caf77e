-- Release 0.2.0: erasure.

-- The rows that erasure has to look for by what they say: those that name other memories with the guard's signals, which are
-- words of both, and those whose source turn has no row in memory_sources, for they support nothing.
-- squawk-ignore require-concurrent-index-creation
create index memory_events_erasure_idx on memfold.memory_events (tenant_id, bucket_id, event_id)
where similar_memories is not null or not observation;

create type memfold.erasure as (
    erased bigint,
    kept bigint,
    events bigint,
    remaining bigint
);
comment on type memfold.erasure is
'What one call erased: texts (memories and aliases) that are gone, texts that lost observations and stay, for other sources
support them, and ledger rows that are gone. remaining: texts that are left for another call; of a bucket or tenant at most
1,000 are counted.';

-- squawk-ignore ban-drop-constraint
alter table memfold.runs drop constraint runs_kind_check;
-- squawk-ignore constraint-missing-not-valid
alter table memfold.runs add constraint runs_kind_check check (kind in (
    'consolidation', 'sweep', 'session', 'cleaning', 'pruning', 'decay', 'rehash', 'upkeep', 'reembedding', 'dropping', 'erasure'
));
comment on column memfold.memory_events.cause is
'Of a row erased: what is gone.';

-- No samples of texts for the planner, which compares none of them: pg_statistic would keep what was erased.
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
            ('judgements', array['guard', 'last_error', 'reason', 'merged_text']),
            ('labelled_pairs', array['content_a', 'content_b']),
            ('staged_candidates', array['subject', 'object', 'content', 'metadata'])
        ) as t (name, columns)
    loop
        execute pg_catalog.format('alter table memfold.%I alter column %I set statistics 0', v_column.name, v_column.column_name);
    end loop;
end;
$$;
