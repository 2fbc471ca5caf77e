create or replace function memfold_internal._decide_known(c memfold_internal.candidate) returns memfold_internal.decision
language plpgsql stable
as $$
declare
    d memfold_internal.decision;
    v_status text;
    v_current_id uuid;
    v_last_seen timestamptz;
begin
    if (c.policy).rehash_run is null then
        select m.memory_id, memfold_internal._root(m.memory_id, m.root_id), m.root_id, m.status
        into d.memory_id, d.root_id, d.target_id, v_status
        from memfold_internal._known_text(c.tenant_id, c.bucket_id, c.content_hash) as m;
    else
        select m.memory_id, memfold_internal._root(m.memory_id, m.root_id), m.root_id, m.status
        into d.memory_id, d.root_id, d.target_id, v_status
        from memfold_internal._known_in_rehash(c) as m;
    end if;
    if d.memory_id is null then
        return null;
    end if;
    if c.session_id is not null and (c.policy).max_session_repeats is not null then
        perform memfold_internal._check_repeats(c, d.memory_id);
    end if;
    d.tier := 1;
    d.method := 'hash';
    d.on_timeline := false;
    if d.target_id is not null then
        d.method := 'alias';
        select m.status into strict v_status
        from memfold.memories as m where m.tenant_id = c.tenant_id collate "C" and m.memory_id = d.root_id;
    end if;
    if v_status = 'active' then
        -- row 3
        d.action := 'merged';
        return d;
    end if;
    if v_status = 'rejected' then
        -- row 2
        d.action := 'rejected';
        d.method := 'tombstone';
        return d;
    elsif v_status = 'withdrawn' and c.origin = 'recalled' then
        -- row 11
        d := null;
        d.action := 'rejected';
        d.reason := 'recalled';
        d.on_timeline := false;
        return d;
    elsif v_status = 'superseded' or v_status = 'withdrawn' and memfold_internal._is_single(c.tenant_id, c.predicate)
        -- contested: restated it is active, beside the value of its slot
        and not exists (
            select from memfold_internal._derived_trees(c.tenant_id, memfold_internal._trees(c.tenant_id, array[d.root_id])) as t
            where t.memory_id = d.root_id and t.contested
        )
    then
        -- row 4
        d.method := 'timeline';
        if v_status = 'superseded' then
            with timelines as (
                select t.* from memfold_internal._derived_timelines(c.tenant_id,
                    memfold_internal._timeline_texts(c.tenant_id, array[d.root_id])) as t
            ),
            own as (
                select t.timeline, t.of_scope from timelines as t where t.memory_id = d.root_id limit 1
            )
            select o.of_scope, k.memory_id, k.last_seen into d.on_timeline, v_current_id, v_last_seen
            from own as o
            join timelines as t on t.timeline = o.timeline and t.valid_to is null
            join memfold.memory_counters as k on k.tenant_id = c.tenant_id collate "C" and k.memory_id = t.memory_id
            order by k.last_seen desc, k.memory_id desc
            limit 1;
        else
            d.on_timeline := true;
            select v.memory_id, v.last_seen into v_current_id, v_last_seen
            from memfold_internal._current_value(c.tenant_id, c.bucket_id,
                memfold_internal._scope_key(c.bucket_id, c.memory_type, c.subject, c.predicate)) as v;
        end if;
        if c.origin <> 'recalled' and (v_current_id is null or (c.observed_at >= v_last_seen) is not false) then
            d.action := case when v_current_id is null then 'inserted' else 'superseded' end;
            d.target_id := v_current_id;
        elsif v_status = 'withdrawn' then
            d.action := 'historical';
            d.target_id := v_current_id;
        else
            d.action := 'merged';
            d.target_id := null;
        end if;
        return d;
    end if;
    -- withdrawn: as if it were new
    d.action := 'inserted';
    d.target_id := null;
    return d;
end;
$$;
revoke all on function memfold_internal._decide_known(memfold_internal.candidate) from public;
comment on function memfold_internal._decide_known(memfold_internal.candidate) is
'Tier 1: rows 2 to 4 of the decision table (docs/rules.md). Null: the bucket does not hold this text. Only reads.';
