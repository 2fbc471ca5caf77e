create or replace function memfold._synthesise(
    j memfold.judgements, newer memfold.memories, older memfold.memories
) returns uuid
language plpgsql volatile
as $$
declare
    c memfold.candidate;
    v_memory memfold.memories;
    v_created text;
begin
    c := memfold._candidate(j.merged_text, j.tenant_id, j.bucket_id, older.memory_type, older.subject, older.predicate,
        coalesce(newer.object, older.object), null, null, '{}', 0, 0, null, 'inferred', older.metadata || newer.metadata,
        pg_catalog.now());
    select r.* into v_memory
    from memfold._known_before_insert(c) as m
    join memfold.memories as r on r.tenant_id = j.tenant_id and r.memory_id = memfold._root(m.memory_id, m.root_id);
    if not found then
        v_memory.memory_id := memfold._insert_memory(c, null);
        v_created := j.merged_text;
    elsif v_memory.status = 'rejected' then
        return null;
    end if;
    if older.memory_id <> v_memory.memory_id then
        perform memfold._relate(j, 'replaced', v_memory.memory_id, older.memory_id, v_created, null);
        v_created := null;
    end if;
    if newer.memory_id = v_memory.memory_id then
        return v_memory.memory_id;
    end if;
    perform memfold._relate(j, 'replaced', v_memory.memory_id, newer.memory_id, v_created, null);
    return v_memory.memory_id;
end;
$$;
revoke all on function memfold._synthesise(memfold.judgements, memfold.memories, memfold.memories) from public;
comment on function memfold._synthesise(memfold.judgements, memfold.memories, memfold.memories) is
'Makes the judgement''s merged text a memory, unless it is one, and folds both sides into it; returns its id. It has no
observation of its own: with its folds undone it is withdrawn. Null: a person has rejected that text.';

create or replace function memfold._carry_out(
    j memfold.judgements, newer memfold.memories, older memfold.memories, fuller uuid
) returns memfold.resolution
language plpgsql volatile
as $$
declare
    r memfold.resolution;
    v_conflict text;
    v_winner memfold.memories := newer;
    v_loser memfold.memories := older;
begin
    r.state := 'done';
    r.verdict := j.verdict;
    -- kept: the newer one holds its own fact
    r.memory_id := newer.memory_id;
    r.action := 'judged';
    if j.verdict in ('duplicate', 'refinement') then
        if j.kind = 'synthesis' and coalesce(j.merged_text, '') <> '' then
            r.memory_id := memfold._synthesise(j, newer, older);
            r.action := case when r.memory_id is null then 'judged' else 'replaced' end;
            if r.memory_id is not null then
                select e.event_id into strict r.event_id
                from memfold.memory_events as e
                where e.tenant_id = j.tenant_id and e.memory_id = r.memory_id
                order by e.event_id desc
                limit 1;
                return r;
            end if;
            r.memory_id := newer.memory_id;
        elsif j.kind = 'synthesis' then
            raise warning 'judgement %: the merged text is empty, both memories are kept', j.judgement_id;
        elsif j.verdict = 'refinement' and newer.memory_id = coalesce(fuller, case
            when pg_catalog.length(newer.content) > pg_catalog.length(older.content) then newer.memory_id
        end) then
            r.action := 'replaced';
            r.memory_id := newer.memory_id;
        else
            r.action := 'merged';
            r.memory_id := older.memory_id;
        end if;
    elsif j.verdict = 'contradiction' then
        v_conflict := (memfold._policy(newer.tenant_id, newer.bucket_id, newer.memory_type)).conflict;
        if newer.scope_key = older.scope_key then
            v_conflict := memfold._conflict(newer.tenant_id, newer.predicate, v_conflict);
        end if;
        if v_conflict = 'newest_wins' or j.kind = 'review' then
            -- the one that was stated last, ties by ledger order
            if (
                select (k.last_seen, e.event_id) > (l.last_seen, f.event_id)
                from memfold.memory_counters as k
                cross join lateral memfold._last_statement(k.tenant_id, k.memory_id) as e (event_id)
                join memfold.memory_counters as l on l.tenant_id = k.tenant_id and l.memory_id = newer.memory_id
                cross join lateral memfold._last_statement(l.tenant_id, l.memory_id) as f (event_id)
                where k.tenant_id = j.tenant_id and k.memory_id = older.memory_id
            ) then
                v_winner := older;
                v_loser := newer;
            end if;
            r.action := 'superseded';
            r.memory_id := v_winner.memory_id;
        elsif v_conflict = 'keep_existing' then
            r.action := 'rejected';
            r.memory_id := older.memory_id;
        elsif v_conflict = 'review' then
            r.action := 'escalated';
        end if;
    end if;

    if r.action = 'rejected' then
        r.event_id := memfold._relate(j, 'rejected', newer.memory_id, null, null, null);
    elsif r.action = 'superseded' then
        r.event_id := memfold._relate(j, 'superseded', v_winner.memory_id, v_loser.memory_id, null, null);
    elsif r.action = 'escalated' then
        r.event_id := memfold._relate(j, 'judged', newer.memory_id, older.memory_id, null, null);
        perform memfold._queue_judgement(j.tenant_id, 'review', newer.memory_id, older.memory_id, j.similarity, j.guard, true);
    else
        r.event_id := memfold._relate(j, r.action, newer.memory_id, older.memory_id, null, null);
    end if;
    return r;
end;
$$;
revoke all on function memfold._carry_out(memfold.judgements, memfold.memories, memfold.memories, uuid) from public;
comment on function memfold._carry_out(memfold.judgements, memfold.memories, memfold.memories, uuid) is
'What a verdict does to its pair (docs/decisions.md). The caller holds the lock and has validated the pair under it.';

create or replace function memfold._last_statement(tenant_id text, root_id uuid) returns setof uuid
language plpgsql stable rows 1
as $$
begin
    return query
    select e.event_id
    from memfold._whole_ledger as e
    join memfold.memories as m on m.tenant_id = e.tenant_id and m.memory_id = e.memory_id
    where m.tenant_id = _last_statement.tenant_id collate "C"
        and (m.memory_id = _last_statement.root_id or m.root_id = _last_statement.root_id)
        and (e.observation and not (e.tier = 1 and e.undone)
            or e.action = 'superseded' and e.tier = 3 and not e.undone and e.observed_at is not null)
    order by e.observed_at desc, e.event_id desc
    limit 1;
end;
$$;
revoke all on function memfold._last_statement(text, uuid) from public;
comment on function memfold._last_statement(text, uuid) is 'The ledger row by which a root was stated last. Only reads.';

create or replace function memfold.resolve_judgement(
    judgement_id uuid,
    verdict text,
    confidence double precision default 1,
    reason text default null,
    merged_text text default null,
    fuller uuid default null,
    model text default null,
    input_tokens bigint default null,
    output_tokens bigint default null,
    cost double precision default null,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.resolution
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    j memfold.judgements;
    n memfold.judgements;
    r memfold.resolution;
    v_newer memfold.memories;
    v_older memfold.memories;
begin
    perform memfold._enter_judge(tenant_id);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = resolve_judgement.tenant_id collate "C" and o.judgement_id = resolve_judgement.judgement_id;
    if not found then
        perform memfold._no_judgement(judgement_id);
    elsif not coalesce(verdict in ('duplicate', 'refinement', 'contradiction', 'distinct'), false) then
        perform memfold._fail('MF028', 'unknown verdict', format('verdict was %s.', quote_nullable(verdict)),
            'A verdict is duplicate, refinement, contradiction or distinct; say doubt by a low confidence.');
    elsif not coalesce(confidence between 0 and 1, false) then
        perform memfold._fail('MF028', 'the confidence is not between 0 and 1',
            format('confidence was %s.', coalesce(confidence::text, 'null')), 'Pass a number from 0 to 1.');
    elsif fuller is not null and (verdict <> 'refinement' or fuller not in (j.memory_id, j.other_id)) then
        perform memfold._fail('MF028', 'fuller does not fit',
            format('fuller was %s, the verdict %s, the pair %s and %s.', fuller, verdict, j.memory_id, j.other_id),
            'Of a refinement, name the memory of the pair that says more, or leave it out: then it is the longer text.');
    end if;
    perform memfold._check_usage(input_tokens, output_tokens, cost);
    -- The judge was asked without a lock. What it answered is applied to what is there now.
    perform memfold._lock_memories(j.tenant_id, array[j.memory_id, j.other_id]);
    select o.* into strict j
    from memfold.judgements as o
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id
    for no key update;
    if j.state in ('done', 'moot') then
        perform memfold._fail('MF027', 'the judgement is closed',
            format('Judgement %s is %s%s.', j.judgement_id, j.state, coalesce(': ' || j.verdict, '')),
            'The first answer counts. undo() takes back what it did.');
    end if;
    j.model := resolve_judgement.model;
    j.input_tokens := coalesce(j.input_tokens + resolve_judgement.input_tokens, j.input_tokens, resolve_judgement.input_tokens);
    j.output_tokens := coalesce(j.output_tokens + resolve_judgement.output_tokens, j.output_tokens,
        resolve_judgement.output_tokens);
    j.cost := coalesce(j.cost + resolve_judgement.cost, j.cost, resolve_judgement.cost);
    n := memfold._refresh_judgement(j);
    if n.state <> 'moot' and (n.memory_id, n.other_id) <> (j.memory_id, j.other_id) then
        perform memfold._ask_anew(n);
        r.state := 'open';
        n.state := 'moot';
        n.reason := 'one of the two was folded: asked anew about where it leads';
    elsif n.state <> 'moot' then
        n.verdict := resolve_judgement.verdict;
        n.confidence := resolve_judgement.confidence;
        n.reason := resolve_judgement.reason;
        n.merged_text := resolve_judgement.merged_text;
        select m.* into strict v_newer
        from memfold.memories as m where m.tenant_id = n.tenant_id and m.memory_id = greatest(n.memory_id, n.other_id);
        select m.* into strict v_older
        from memfold.memories as m where m.tenant_id = n.tenant_id and m.memory_id = least(n.memory_id, n.other_id);
        if n.confidence < (memfold._policy(n.tenant_id, n.bucket_id, v_newer.memory_type)).confidence_floor then
            n.verdict := 'unsure';
            n.reason := concat_ws(': ', resolve_judgement.verdict, n.reason);
        end if;
        n.state := 'done';
    end if;
    r.state := coalesce(r.state, n.state);
    update memfold.judgements as o
    set state = n.state, verdict = n.verdict, confidence = n.confidence, reason = n.reason,
        merged_text = n.merged_text, model = n.model, input_tokens = n.input_tokens,
        output_tokens = n.output_tokens, cost = n.cost, resolved_at = memfold._clock()
    where o.tenant_id = j.tenant_id and o.judgement_id = j.judgement_id;
    if n.state = 'done' then
        r := memfold._carry_out(n, v_newer, v_older, fuller);
    end if;
    return r;
end;
$$;
revoke all on function memfold.resolve_judgement(
    uuid, text, double precision, text, text, uuid, text, bigint, bigint, double precision, text
) from public;
grant execute on function memfold.resolve_judgement(
    uuid, text, double precision, text, text, uuid, text, bigint, bigint, double precision, text
) to memfold_judge, memfold_app;
comment on function memfold.resolve_judgement(
    uuid, text, double precision, text, text, uuid, text, bigint, bigint, double precision, text
) is
'Answers a judgement, under the lock of its scope and only if both sides are still what was judged. verdict: duplicate (the
newer memory is folded into the older), refinement (the fuller text becomes active), contradiction (the conflict policy
decides) or distinct (both are kept). confidence in [0, 1]: below the policy''s confidence_floor both are kept, as unsure.
fuller: of a refinement, the memory that says more; null: the longer text. merged_text: of kind synthesis, the text that says
what both say; without one both are kept, with a warning. model null: a person answered. The first answer counts.
Raises MF001 to MF003, MF025, MF026 (no such judgement), MF027 (it is closed), MF028 (an argument is not allowed).';
