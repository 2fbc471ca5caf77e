create type memfold.erasure as (
    erased bigint,
    kept bigint,
    events bigint,
    remaining bigint,
    current_again uuid[]
);
comment on type memfold.erasure is
'Result of one call: erased texts (memories and aliases), texts that lost observations but stay because other sources support them, and
erased ledger rows. current_again: values that became current as a result. remaining: texts left for another call; for a bucket or tenant
the count stops at 1,000.';

-- No statistics on columns of text: the planner does not need them, and pg_statistic would keep samples of erased text.
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
            ('judgements', array['guard', 'last_error', 'reason', 'merged_text', 'link']),
            ('labelled_pairs', array['content_a', 'content_b'])
        ) as t (name, columns)
    loop
        execute pg_catalog.format('alter table memfold.%I alter column %I set statistics 0', v_column.name, v_column.column_name);
    end loop;
end;
$$;
