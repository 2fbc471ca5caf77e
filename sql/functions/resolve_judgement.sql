create or replace function memfold._is_wordless(content text, canonicalizer text) returns boolean
language plpgsql stable
as $$
begin
    return memfold.canonicalize(content, canonicalizer) = ''
        -- the punctuation of every script in use, spelled out: what a class of characters holds depends on the locale
        or pg_catalog.regexp_replace(memfold._prose_1(content), E'[\\u0001-/:-@\\[-`{-\\u00a1\\u00a7\\u00ab\\u00b6\\u00b7\\u00bb\\u00bf'
            || E'\\u037e\\u0387\\u055a-\\u055f\\u0589\\u058a\\u05be\\u05c0\\u05c3\\u05c6\\u05f3\\u05f4\\u060c\\u061b\\u061d-\\u061f\\u066a-\\u066d\\u06d4'
            || E'\\u0964\\u0965\\u0970\\u0e4f\\u0e5a\\u0e5b\\u104a-\\u104f\\u1360-\\u1368\\u17d4-\\u17da'
            || E'\\u2000-\\u206f\\u2e00-\\u2e7f\\u3000-\\u3003\\u3008-\\u3011\\u3014-\\u301f\\u3030\\u303d\\u30a0\\u30fb'
            || E'\\ufe10-\\ufe1f\\ufe30-\\ufe6f\\ufeff\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65]+' collate "C",
            '', 'g') = '';
end;
$$;
revoke all on function memfold._is_wordless(text, text) from public;
comment on function memfold._is_wordless(text, text) is
'Whether a text says nothing: nothing is left of it in canonical form, or without its punctuation. Only reads.';

create or replace function memfold._synthesise(j memfold.judgements, members memfold.memories[]) returns uuid
language plpgsql volatile
as $$
declare
    c memfold.candidate;
    m memfold.memories;
    v_memory memfold.memories;
    v_created text;
    v_object text;
    v_metadata jsonb := '{}'::jsonb;
begin
    -- what the newest says of its object holds
    foreach m in array members loop
        v_object := coalesce(m.object, v_object);
        v_metadata := v_metadata || m.metadata;
    end loop;
    m := members[1];
    c := memfold._candidate(j.merged_text, j.tenant_id, j.bucket_id, m.memory_type, m.subject, m.predicate, v_object, null, null,
        '{}', 0, 0, null, 'inferred', v_metadata, null);
    select r.* into v_memory
    from memfold._known_before_insert(c) as k
    join memfold.memories as r on r.tenant_id = j.tenant_id and r.memory_id = memfold._root(k.memory_id, k.root_id);
    if not found then
        v_memory.memory_id := memfold._insert_memory(c, null);
        v_created := j.merged_text;
    elsif v_memory.status = 'rejected' then
        return null;
    end if;
    foreach m in array members loop
        if m.memory_id <> v_memory.memory_id then
            perform memfold._relate(j, 'replaced', v_memory.memory_id, m.memory_id, v_created, null);
            v_created := null;
        end if;
    end loop;
    return v_memory.memory_id;
end;
$$;
revoke all on function memfold._synthesise(memfold.judgements, memfold.memories[]) from public;
comment on function memfold._synthesise(memfold.judgements, memfold.memories[]) is
'Makes the judgement''s merged text a memory, unless it is one, and folds its members (oldest to newest) into it; returns its id. It
has no observation of its own: with its folds undone it is withdrawn. Null: a person has rejected that text.';

create or replace function memfold._fold_members(
    j memfold.judgements, members memfold.memories[], leader uuid
) returns uuid
language plpgsql volatile
as $$
declare
    r memfold.runs;
    v_action text;
    v_ids uuid[];
    v_event_id uuid;
begin
    if pg_catalog.cardinality(members) = 2 then
        if leader = (members[1]).memory_id then
            return memfold._relate(j, 'merged', (members[2]).memory_id, leader, null, null);
        end if;
        return memfold._relate(j, 'replaced', leader, (members[1]).memory_id, null, null);
    end if;
    -- derived once, not once a member
    r.tenant_id := j.tenant_id;
    r.bucket_id := j.bucket_id;
    r.run_id := j.run_id;
    foreach v_action in array array['replaced', 'merged'] loop
        v_ids := array(
            select m.memory_id from pg_catalog.unnest(members) as m
            where case v_action when 'replaced' then m.memory_id < leader else m.memory_id > leader end
            order by m.memory_id
        );
        continue when v_ids = '{}';
        perform memfold._fold_all(r, 3, memfold._method(j), v_action, v_ids,
            pg_catalog.array_fill(leader, array[pg_catalog.cardinality(v_ids)]),
            pg_catalog.array_fill(j.similarity, array[pg_catalog.cardinality(v_ids)]),
            pg_catalog.array_fill(j.reason, array[pg_catalog.cardinality(v_ids)]),
            pg_catalog.array_fill(j.judgement_id, array[pg_catalog.cardinality(v_ids)]), j.verdict);
    end loop;
    select max(e.event_id::text)::uuid into v_event_id
    from pg_catalog.unnest(members) as m
    cross join lateral (
        select e.event_id from memfold.memory_events as e
        where e.tenant_id = j.tenant_id and e.memory_id = m.memory_id and e.judgement_id = j.judgement_id
        order by e.event_id desc
        limit 1
    ) as e;
    return v_event_id;
end;
$$;
revoke all on function memfold._fold_members(memfold.judgements, memfold.memories[], uuid) from public;
comment on function memfold._fold_members(memfold.judgements, memfold.memories[], uuid) is
'Folds members (oldest to newest) into one of them, the older ones as replaced by it, the newer ones as merged. Returns the last
ledger row. The caller holds the lock.';

create or replace function memfold._stated_last(tenant_id text, members memfold.memories[]) returns uuid
language plpgsql stable
as $$
begin
    return (
        select m.memory_id
        from pg_catalog.unnest(members) as m
        join memfold.memory_counters as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        cross join lateral memfold._last_statement(m.tenant_id, m.memory_id) as e (event_id)
        order by k.last_seen desc, e.event_id desc
        limit 1
    );
end;
$$;
revoke all on function memfold._stated_last(text, memfold.memories[]) from public;
comment on function memfold._stated_last(text, memfold.memories[]) is
'Which of these roots was stated last, ties by ledger order. Only reads.';

create or replace function memfold._contradict(
    j memfold.judgements, members memfold.memories[], conflict text, is_judged boolean
) returns memfold.resolution
language plpgsql volatile
as $$
declare
    r memfold.resolution;
    m memfold.memories;
    v_kept memfold.memories := members[1];
    v_id uuid;
begin
    r.action := 'judged';
    r.memory_id := (members[pg_catalog.cardinality(members)]).memory_id;
    if conflict = 'newest_wins' then
        -- what a plain INSERT has brought was stated when it was written
        perform memfold._adopt_row(o.tenant_id, o.memory_id) from pg_catalog.unnest(members) as o where o.plain;
        if found then
            perform memfold.derive_scope(j.tenant_id, array(
                select o.memory_id from pg_catalog.unnest(members) as o where o.plain
            ));
        end if;
        v_id := memfold._stated_last(j.tenant_id, members);
        select o.* into strict v_kept from pg_catalog.unnest(members) as o where o.memory_id = v_id;
        r.action := 'superseded';
        r.memory_id := v_kept.memory_id;
    elsif conflict = 'keep_existing' then
        r.action := 'rejected';
        r.memory_id := v_kept.memory_id;
    elsif conflict = 'review' then
        r.action := 'escalated';
    end if;
    foreach m in array members loop
        continue when m.memory_id = v_kept.memory_id;
        if r.action in ('judged', 'escalated') or not is_judged and memfold._is_same_value(m, v_kept) then
            r.event_id := memfold._relate(j, 'judged', m.memory_id, v_kept.memory_id, null, null);
        elsif r.action = 'rejected' then
            r.event_id := memfold._relate(j, 'rejected', m.memory_id, null, null, null);
        else
            r.event_id := memfold._relate(j, 'superseded', v_kept.memory_id, m.memory_id, null, null);
        end if;
    end loop;
    if r.action = 'escalated' and pg_catalog.cardinality(members) = 2 then
        perform memfold._queue_judgement(j.tenant_id, 'review', (members[2]).memory_id, v_kept.memory_id, j.similarity, j.guard,
            true);
    elsif r.action = 'escalated' then
        j.run_id := null;
        perform memfold._queue_rest(j, 'review', array(
            select o.memory_id from pg_catalog.unnest(members) as o order by o.memory_id
        ));
    end if;
    return r;
end;
$$;
revoke all on function memfold._contradict(memfold.judgements, memfold.memories[], text, boolean) from public;
comment on function memfold._contradict(memfold.judgements, memfold.memories[], text, boolean) is
'What a conflict policy does to memories (oldest to newest) that answer one question. is_judged: a judge has said that they
contradict one another; else they are values of one slot, of which equal ones are no conflict. The caller holds the lock.';

create or replace function memfold._is_same_value(a memfold.memories, b memfold.memories) returns boolean
language sql stable
return coalesce(memfold.canonicalize(a.object, 'prose/1') = memfold.canonicalize(b.object, 'prose/1'), false);
revoke all on function memfold._is_same_value(memfold.memories, memfold.memories) from public;
comment on function memfold._is_same_value(memfold.memories, memfold.memories) is
'Whether two memories state the same value of their slot: both have an object, and it is the same. Only reads.';

create or replace function memfold._keep_apart(j memfold.judgements, members memfold.memories[]) returns memfold.resolution
language plpgsql volatile
as $$
declare
    r memfold.resolution;
    o memfold.resolution;
    m memfold.memories;
    v_oldest memfold.memories;
    v_slot memfold.memories[];
    v_event_id uuid;
    v_scope bigint;
    v_conflict text;
begin
    r.action := 'judged';
    r.memory_id := (members[pg_catalog.cardinality(members)]).memory_id;
    for v_scope in
        select u.scope_key from pg_catalog.unnest(members) as u group by u.scope_key order by min(u.memory_id::text)
    loop
        v_slot := array(select u from pg_catalog.unnest(members) as u where u.scope_key = v_scope order by u.memory_id);
        v_oldest := v_slot[1];
        -- at most one value of a slot is current, whatever a judge says
        if memfold._is_single(j.tenant_id, v_oldest.predicate) and exists (
            select from pg_catalog.unnest(v_slot[2:]) as u where not memfold._is_same_value(u, v_oldest)
        ) then
            v_conflict := memfold._conflict_of(v_slot);
            if j.kind = 'review' and v_conflict = 'review' then
                v_conflict := 'newest_wins';
            end if;
            o := memfold._contradict(j, v_slot, v_conflict, false);
            if o.action <> 'judged' then
                r.action := o.action;
                r.memory_id := o.memory_id;
                r.event_id := o.event_id;
            end if;
            v_event_id := o.event_id;
        else
            foreach m in array v_slot[2:] loop
                v_event_id := memfold._relate(j, 'judged', m.memory_id, v_oldest.memory_id, null, null);
            end loop;
        end if;
        if v_oldest.memory_id <> (members[1]).memory_id then
            v_event_id := memfold._relate(j, 'judged', v_oldest.memory_id, (members[1]).memory_id, null, null);
        end if;
    end loop;
    r.event_id := coalesce(r.event_id, v_event_id);
    return r;
end;
$$;
revoke all on function memfold._keep_apart(memfold.judgements, memfold.memories[]) from public;
comment on function memfold._keep_apart(memfold.judgements, memfold.memories[]) is
'What becomes of memories (oldest to newest) that are distinct, or of which nobody is sure: all are kept, but of unequal values of a
single-valued slot, which the conflict policy decides. The caller holds the lock.';

create or replace function memfold._conflict_of(members memfold.memories[]) returns text
language plpgsql stable
as $$
declare
    v_newest constant memfold.memories := members[pg_catalog.cardinality(members)];
    v_conflict constant text := (memfold._policy(v_newest.tenant_id, v_newest.bucket_id, v_newest.memory_type)).conflict;
begin
    if exists (select from pg_catalog.unnest(members) as m where m.scope_key <> v_newest.scope_key) then
        return v_conflict;
    end if;
    return memfold._conflict(v_newest.tenant_id, v_newest.predicate, v_conflict);
end;
$$;
revoke all on function memfold._conflict_of(memfold.memories[]) from public;
comment on function memfold._conflict_of(memfold.memories[]) is
'The conflict policy for memories (oldest to newest): the predicate''s where they are of one scope, else the bucket''s. Only reads.';

create or replace function memfold._carry_out(
    j memfold.judgements, members uuid[], fuller uuid
) returns memfold.resolution
language plpgsql volatile
as $$
declare
    r memfold.resolution;
    o memfold.resolution;
    m memfold.memories;
    v_id uuid;
    v_members memfold.memories[] := array[]::memfold.memories[];
    v_oldest memfold.memories;
    v_newest memfold.memories;
    v_conflict text;
begin
    foreach v_id in array array(select i.id from pg_catalog.unnest(members) as i (id) order by 1) loop
        select x.* into strict m from memfold.memories as x where x.tenant_id = j.tenant_id and x.memory_id = v_id;
        v_members := v_members || m;
    end loop;
    v_oldest := v_members[1];
    v_newest := v_members[pg_catalog.cardinality(v_members)];
    r.state := 'done';
    r.verdict := j.verdict;
    if j.verdict in ('duplicate', 'refinement') and j.kind = 'synthesis' then
        if memfold._is_wordless(coalesce(j.merged_text, ''),
            (memfold._policy(j.tenant_id, j.bucket_id, v_oldest.memory_type)).canonicalizer)
        then
            raise warning 'judgement %: the merged text is empty, all memories are kept', j.judgement_id;
        else
            r.memory_id := memfold._synthesise(j, v_members);
        end if;
        if r.memory_id is not null then
            r.action := 'replaced';
            select e.event_id into strict r.event_id
            from memfold.memory_events as e
            where e.tenant_id = j.tenant_id and e.memory_id = r.memory_id
            order by e.event_id desc
            limit 1;
            return r;
        end if;
        -- kept: the newest holds its own fact
        r.action := 'judged';
        r.memory_id := v_newest.memory_id;
        for i in 2..pg_catalog.cardinality(v_members) loop
            r.event_id := memfold._relate(j, 'judged', (v_members[i]).memory_id, v_oldest.memory_id, null, null);
        end loop;
        return r;
    elsif j.verdict in ('duplicate', 'refinement') then
        r.memory_id := v_oldest.memory_id;
        if j.verdict = 'refinement' then
            select coalesce(fuller, u.memory_id) into r.memory_id
            from pg_catalog.unnest(v_members) as u
            order by pg_catalog.length(u.content) desc, u.memory_id
            limit 1;
        end if;
        r.action := case when r.memory_id = v_oldest.memory_id then 'merged' else 'replaced' end;
        r.event_id := memfold._fold_members(j, v_members, r.memory_id);
        return r;
    elsif j.verdict = 'contradiction' then
        v_conflict := memfold._conflict_of(v_members);
        o := memfold._contradict(j, v_members, case when j.kind = 'review' then 'newest_wins' else v_conflict end, true);
    else
        o := memfold._keep_apart(j, v_members);
    end if;
    r.action := o.action;
    r.memory_id := o.memory_id;
    r.event_id := o.event_id;
    return r;
end;
$$;
revoke all on function memfold._carry_out(memfold.judgements, uuid[], uuid) from public;
comment on function memfold._carry_out(memfold.judgements, uuid[], uuid) is
'What a verdict does to the roots that it is about (docs/decisions.md). The caller holds the lock and has validated them under it.';

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

create or replace function memfold._is_outdated(n memfold.judgements, about uuid[], fuller uuid) returns boolean
language plpgsql stable
as $$
declare
    v_left constant uuid[] := array(
        select i.id from pg_catalog.unnest(memfold._members(n)) as i (id) where i.id = any(about) order by 1
    );
begin
    return n.member_ids is null or pg_catalog.cardinality(v_left) < 2
        or coalesce(fuller <> all(v_left), false)
        -- The text of a synthesis has what all of them say: of a member that is gone, and not by becoming one with those that
        -- are left, it must not bring back what was rejected or retired.
        or n.kind = 'synthesis' and exists (
            select
            from pg_catalog.unnest(about) as i (id)
            cross join lateral (
                select memfold._root(m.memory_id, m.root_id) as root from memfold.memories as m
                where m.tenant_id = n.tenant_id and m.memory_id = i.id
                offset 0
            ) as m
            where m.root <> all(v_left)
        );
end;
$$;
revoke all on function memfold._is_outdated(memfold.judgements, uuid[], uuid) from public;
comment on function memfold._is_outdated(memfold.judgements, uuid[], uuid) is
'Whether an answer about these memories no longer fits those that the question n is about now. A pair whose sides have changed
always; a cluster that has lost members only where fewer than two that were answered about are left, or its text or its fullest
memory has gone. Only reads.';

create or replace function memfold._answer_rest(j memfold.judgements, led uuid, rest uuid[]) returns void
language plpgsql volatile
as $$
declare
    n memfold.judgements := j;
    v_id uuid;
    v_left uuid[];
begin
    n.verdict := 'distinct';
    foreach v_id in array rest loop
        if exists (
            select from memfold.memories as m
            where m.tenant_id = j.tenant_id and m.memory_id = led and m.status = 'active'
        ) then
            perform memfold._carry_out(n, array[least(v_id, led), greatest(v_id, led)], null);
        end if;
    end loop;
    v_left := array(
        select m.memory_id
        from pg_catalog.unnest(rest) as i (id)
        join memfold.memories as m on m.tenant_id = j.tenant_id and m.memory_id = i.id and m.status = 'active'
        order by 1
    );
    if pg_catalog.cardinality(v_left) > 1 then
        perform memfold._queue_rest(j, j.kind, v_left);
    end if;
end;
$$;
revoke all on function memfold._answer_rest(memfold.judgements, uuid, uuid[]) from public;
comment on function memfold._answer_rest(memfold.judgements, uuid, uuid[]) is
'What becomes of the members of a cluster that its verdict is not about: each is distinct from the memory that now leads the others,
and they are asked about among themselves, in a question of their own. The caller holds the lock.';

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
    member_ids uuid[] default null,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.resolution
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    j memfold.judgements;
    n memfold.judgements;
    r memfold.resolution;
    v_asked uuid[];
    v_about uuid[];
    v_rest uuid[] := array[]::uuid[];
begin
    perform memfold._enter_judge(tenant_id);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = resolve_judgement.tenant_id collate "C" and o.judgement_id = resolve_judgement.judgement_id
        and o.state <> 'part';
    v_asked := memfold._members(j);
    v_about := coalesce(array(select distinct i.id from unnest(member_ids) as i (id) where member_ids is not null order by 1), '{}');
    if member_ids is null then
        v_about := v_asked;
    end if;
    if j.judgement_id is null then
        perform memfold._no_judgement(judgement_id);
    elsif not coalesce(verdict in ('duplicate', 'refinement', 'contradiction', 'distinct'), false) then
        perform memfold._fail('MF028', 'unknown verdict', format('verdict was %s.', quote_nullable(verdict)),
            'A verdict is duplicate, refinement, contradiction or distinct; say doubt by a low confidence.');
    elsif not coalesce(confidence between 0 and 1, false) then
        perform memfold._fail('MF028', 'the confidence is not between 0 and 1',
            format('confidence was %s.', coalesce(confidence::text, 'null')), 'Pass a number from 0 to 1.');
    elsif cardinality(v_about) < 2 or not coalesce(v_about <@ v_asked, false) then
        perform memfold._fail('MF028', 'member_ids does not fit',
            format('member_ids was %s, the question is about %s.', member_ids, v_asked),
            'Name at least two of the memories that were asked about, or leave it out: then the verdict is about all of them.');
    elsif fuller is not null and (verdict <> 'refinement' or fuller <> all(v_about)) then
        perform memfold._fail('MF028', 'fuller does not fit',
            format('fuller was %s, the verdict %s, about %s.', fuller, verdict, v_about),
            'Of a refinement, name the memory that says more, or leave it out: then it is the longest text.');
    end if;
    perform memfold._check_usage(input_tokens, output_tokens, cost);
    -- The judge was asked without a lock. What it answered is applied to what is there now.
    perform memfold._lock_memories(j.tenant_id, v_asked);
    select o.* into j
    from memfold.judgements as o
    where o.tenant_id = resolve_judgement.tenant_id collate "C" and o.judgement_id = resolve_judgement.judgement_id
    for no key update;
    if not found then
        -- erased with its memories
        perform memfold._no_judgement(judgement_id);
    end if;
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
    if n.state = 'moot' then
        perform memfold._close_parts(j, '{}', '{}');
    elsif memfold._has_changed(n, j) and memfold._is_outdated(n, v_about, fuller) then
        perform memfold._ask_anew(n);
        r.state := 'open';
        n.state := 'moot';
        n.reason := 'one of its memories was folded: asked anew about what is left';
    else
        n.verdict := resolve_judgement.verdict;
        n.confidence := resolve_judgement.confidence;
        n.reason := resolve_judgement.reason;
        n.merged_text := resolve_judgement.merged_text;
        v_rest := array(select i.id from unnest(memfold._members(n)) as i (id) where i.id <> all(v_about) order by 1);
        v_about := array(select i.id from unnest(memfold._members(n)) as i (id) where i.id = any(v_about) order by 1);
        if n.confidence < (
            select (memfold._policy(m.tenant_id, m.bucket_id, m.memory_type)).confidence_floor
            from memfold.memories as m where m.tenant_id = n.tenant_id and m.memory_id = n.memory_id
        ) then
            n.verdict := 'unsure';
            n.reason := concat_ws(': ', resolve_judgement.verdict, n.reason);
            -- of none of them is anything known
            v_about := memfold._members(n);
            v_rest := '{}';
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
        perform memfold._close_parts(n, memfold._members(n), v_about);
        r := memfold._carry_out(n, v_about, fuller);
        if v_rest <> '{}' then
            perform memfold._answer_rest(n, r.memory_id, v_rest);
        end if;
    end if;
    return r;
end;
$$;
revoke all on function memfold.resolve_judgement(
    uuid, text, double precision, text, text, uuid, text, bigint, bigint, double precision, uuid[], text
) from public;
grant execute on function memfold.resolve_judgement(
    uuid, text, double precision, text, text, uuid, text, bigint, bigint, double precision, uuid[], text
) to memfold_judge, memfold_app;
comment on function memfold.resolve_judgement(
    uuid, text, double precision, text, text, uuid, text, bigint, bigint, double precision, uuid[], text
) is
'Answers a judgement, under the lock of its scope and only if its memories are still what was judged. verdict: duplicate (the
newer memories are folded into the oldest), refinement (the fuller text becomes active), contradiction (the conflict policy
decides) or distinct (all are kept). confidence in [0, 1]: below the policy''s confidence_floor all are kept, as unsure. Of unequal
values of a single-valued slot, which cannot all be kept, the conflict policy decides then too.
fuller: of a refinement, the memory that says more; null: the longest text. merged_text: of kind synthesis, the text that says
what all say; without one, or with one of punctuation alone, all are kept, with a warning. member_ids: of a cluster, those that the
verdict is about (null: all); the others are distinct from them, and if there are several of them they are asked about again.
model null: a person answered. The first answer counts.
Raises MF001 to MF003, MF025, MF026 (no such judgement), MF027 (it is closed), MF028 (an argument is not allowed).';
