-- Whether a text is empty in canonical form, or once its punctuation is removed. Only reads.
create or replace function memfold_internal._is_wordless(p_content text, p_canonicalizer text) returns boolean
language plpgsql stable
as $$
begin
    return memfold.canonicalize(p_content, p_canonicalizer) = ''
        -- All scripts' punctuation is spelled out, because the contents of a character class depend on the locale.
        or regexp_replace(memfold_internal._prose_1(p_content),
            E'[\\u0001-/:-@\\[-`{-\\u00a1\\u00a7\\u00ab\\u00b6\\u00b7\\u00bb\\u00bf'
            || E'\\u037e\\u0387\\u055a-\\u055f\\u0589\\u058a\\u05be\\u05c0\\u05c3\\u05c6\\u05f3\\u05f4\\u060c\\u061b\\u061d-\\u061f\\u066a-\\u066d\\u06d4'
            || E'\\u0964\\u0965\\u0970\\u0e4f\\u0e5a\\u0e5b\\u104a-\\u104f\\u1360-\\u1368\\u17d4-\\u17da'
            || E'\\u2000-\\u206f\\u2e00-\\u2e7f\\u3000-\\u3003\\u3008-\\u3011\\u3014-\\u301f\\u3030\\u303d\\u30a0\\u30fb'
            || E'\\ufe10-\\ufe1f\\ufe30-\\ufe6f\\ufeff\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65]+' collate "C",
            '', 'g') = '';
end;
$$;

-- Merges members (oldest to newest) into the memory with the judgement's merged text, stored unless the bucket has it, and
-- returns its id; null if that text is rejected. Without an observation, a stored text is withdrawn when this is undone.
create or replace function memfold_internal._synthesise(j memfold.judgements, p_members memfold.memories[]) returns uuid
language plpgsql volatile
as $$
declare
    c memfold_internal.candidate;
    m memfold.memories;
    v_memory memfold.memories;
    v_created text;
    v_object text;
    v_metadata jsonb := '{}'::jsonb;
begin
    -- The object of the newest member that has one, and all metadata, of which newer values win.
    foreach m in array p_members loop
        v_object := coalesce(m.object, v_object);
        v_metadata := v_metadata || m.metadata;
    end loop;
    m := p_members[1];
    c := memfold_internal._validate(memfold_internal._candidate(j.merged_text, j.tenant_id, j.bucket_id, m.memory_type, m.subject,
        m.predicate, v_object, p_source_confidence => 0, p_extractor_confidence => 0, p_origin => 'inferred', p_metadata => v_metadata));
    select r.* into v_memory
    from memfold_internal._known_before_insert(c) as k
    join memfold.memories as r on r.tenant_id = j.tenant_id and r.memory_id = memfold_internal._root(k.memory_id, k.root_id);
    if not found then
        v_memory.memory_id := memfold_internal._insert_memory(c, null);
        v_created := j.merged_text;
    elsif v_memory.status = 'rejected' then
        return null;
    end if;
    foreach m in array p_members loop
        if m.memory_id <> v_memory.memory_id then
            perform memfold_internal._record_relation(j, 'replaced', v_memory.memory_id, m.memory_id, v_created, null);
            v_created := null;
        end if;
    end loop;
    return v_memory.memory_id;
end;
$$;

-- Merges members (oldest to newest) into p_leader, one of them: it replaces the older ones, and the newer ones become its
-- aliases (merged). Returns the id of the last ledger row. The caller holds the lock.
create or replace function memfold_internal._merge_members(
    j memfold.judgements, p_members memfold.memories[], p_leader uuid
) returns uuid
language plpgsql volatile
as $$
declare
    r memfold.runs;
    v_action text;
    v_ids uuid[];
    v_event_id uuid;
begin
    if cardinality(p_members) = 2 then
        if p_leader = (p_members[1]).memory_id then
            return memfold_internal._record_relation(j, 'merged', (p_members[2]).memory_id, p_leader, null, null);
        end if;
        return memfold_internal._record_relation(j, 'replaced', p_leader, (p_members[1]).memory_id, null, null);
    end if;
    -- _merge_all derives the tree once for each action, not once for each member.
    r.tenant_id := j.tenant_id;
    r.bucket_id := j.bucket_id;
    r.run_id := j.run_id;
    foreach v_action in array array['replaced', 'merged'] loop
        v_ids := array(
            select m.memory_id from unnest(p_members) as m
            where case v_action when 'replaced' then m.memory_id < p_leader else m.memory_id > p_leader end
            order by m.memory_id
        );
        continue when v_ids = '{}';
        perform memfold_internal._merge_all(r, 3, memfold_internal._method(j), v_action, v_ids,
            array_fill(p_leader, array[cardinality(v_ids)]),
            array_fill(j.similarity, array[cardinality(v_ids)]),
            array_fill(j.reason, array[cardinality(v_ids)]),
            array_fill(j.judgement_id, array[cardinality(v_ids)]), j.verdict);
    end loop;
    select max(e.event_id::text)::uuid into v_event_id
    from unnest(p_members) as m
    cross join lateral (
        select e.event_id from memfold.memory_events as e
        where e.tenant_id = j.tenant_id and e.memory_id = m.memory_id and e.judgement_id = j.judgement_id
        order by e.event_id desc
        limit 1
    ) as e;
    return v_event_id;
end;
$$;

-- Applies a conflict policy to members (oldest to newest) that cannot all be current. p_is_judged: a judge found that they
-- contradict one another; false: they are values of a slot, of which equal ones stay. The caller holds the lock.
create or replace function memfold_internal._contradict(
    j memfold.judgements, p_members memfold.memories[], p_conflict text, p_is_judged boolean
) returns memfold.resolution
language plpgsql volatile
as $$
declare
    r memfold.resolution;
    m memfold.memories;
    v_kept memfold.memories := p_members[1];
    v_id uuid;
begin
    r.action := 'judged';
    r.memory_id := (p_members[cardinality(p_members)]).memory_id;
    if p_conflict = 'newest_wins' then
        -- _stated_last reads counters, which rows of a plain INSERT do not have yet.
        perform memfold_internal._adopt_row(o.tenant_id, o.memory_id) from unnest(p_members) as o where not o.is_ingested;
        if found then
            perform memfold.derive_scope(array(
                select o.memory_id from unnest(p_members) as o where not o.is_ingested
            ), j.tenant_id);
        end if;
        v_id := memfold_internal._stated_last(p_members);
        select o.* into strict v_kept from unnest(p_members) as o where o.memory_id = v_id;
        r.action := 'superseded';
        r.memory_id := v_kept.memory_id;
    elsif p_conflict = 'keep_existing' then
        r.action := 'rejected';
        r.memory_id := v_kept.memory_id;
    elsif p_conflict = 'review' then
        r.action := 'escalated';
    end if;
    foreach m in array p_members loop
        continue when m.memory_id = v_kept.memory_id;
        if r.action in ('judged', 'escalated') or not p_is_judged and memfold_internal._is_same_value(m, v_kept) then
            r.event_id := memfold_internal._record_relation(j, 'judged', m.memory_id, v_kept.memory_id, null, null);
        elsif r.action = 'rejected' then
            r.event_id := memfold_internal._record_relation(j, 'rejected', m.memory_id, null, null, null);
        else
            r.event_id := memfold_internal._record_relation(j, 'superseded', v_kept.memory_id, m.memory_id, null, null);
        end if;
    end loop;
    if r.action = 'escalated' and cardinality(p_members) = 2 then
        perform memfold_internal._queue_judgement(j.tenant_id, 'review', (p_members[2]).memory_id, v_kept.memory_id, j.similarity, j.guard,
            true);
    elsif r.action = 'escalated' then
        j.run_id := null;
        perform memfold_internal._queue_rest(j, 'review', array(
            select o.memory_id from unnest(p_members) as o order by o.memory_id
        ));
    end if;
    return r;
end;
$$;

-- Whether both memories have an object, and the objects are equal in canonical form. Only reads.
create or replace function memfold_internal._is_same_value(a memfold.memories, b memfold.memories) returns boolean
language sql stable
return coalesce(memfold.canonicalize(a.object, 'prose/1') = memfold.canonicalize(b.object, 'prose/1'), false);

-- Applies distinct or unsure to members (oldest to newest): all are kept, except unequal values of a slot whose conflict
-- policy is keep_existing, or review before a person has answered. The caller holds the lock.
create or replace function memfold_internal._keep_apart(j memfold.judgements, p_members memfold.memories[]) returns memfold.resolution
language plpgsql volatile
as $$
declare
    r memfold.resolution;
    o memfold.resolution;
    v_oldest memfold.memories;
    v_slot memfold.memories[];
    v_event_id uuid;
    v_scope uuid;
    v_conflict text;
begin
    r.action := 'judged';
    r.memory_id := (p_members[cardinality(p_members)]).memory_id;
    for v_scope in
        select u.scope_key from unnest(p_members) as u group by u.scope_key order by min(u.memory_id::text)
    loop
        v_slot := array(select u from unnest(p_members) as u where u.scope_key = v_scope order by u.memory_id);
        v_oldest := v_slot[1];
        v_conflict := memfold_internal._conflict_of(j, v_slot);
        -- Two unequal values of a slot cannot both be current under these policies, unless a person says so (model null).
        if v_conflict in ('keep_existing', 'review') and not (j.verdict = 'distinct' and j.model is null)
            and memfold_internal._is_slot(v_oldest.tenant_id, v_oldest.bucket_id, v_oldest.memory_type, v_oldest.predicate)
            and exists (
                select from unnest(v_slot[2:]) as u where not memfold_internal._is_same_value(u, v_oldest)
            )
        then
            o := memfold_internal._contradict(j, v_slot, v_conflict, false);
            if o.action <> 'judged' then
                r.action := o.action;
                r.memory_id := o.memory_id;
                r.event_id := o.event_id;
            end if;
            v_event_id := o.event_id;
        else
            -- A person's distinct is recorded for each pair, because it lets these values of a slot hold together.
            for i in 2..cardinality(v_slot) loop
                for k in 1..case when j.verdict = 'distinct' and j.model is null then i - 1 else 1 end loop
                    v_event_id := memfold_internal._record_relation(j, 'judged', (v_slot[i]).memory_id, (v_slot[k]).memory_id, null, null);
                end loop;
            end loop;
        end if;
        if v_oldest.memory_id <> (p_members[1]).memory_id then
            v_event_id := memfold_internal._record_relation(j, 'judged', v_oldest.memory_id, (p_members[1]).memory_id, null, null);
        end if;
    end loop;
    r.event_id := coalesce(r.event_id, v_event_id);
    return r;
end;
$$;

-- The conflict policy for members: the predicate's if they have one scope, else that of the newest's type; newest_wins in
-- place of review if a person has answered (model null, or kind review), who is not asked again. Only reads.
create or replace function memfold_internal._conflict_of(j memfold.judgements, p_members memfold.memories[]) returns text
language plpgsql stable
as $$
declare
    v_newest constant memfold.memories := p_members[cardinality(p_members)];
    v_conflict text := (memfold_internal._policy(v_newest.tenant_id, v_newest.bucket_id, v_newest.memory_type)).conflict;
begin
    if not exists (select from unnest(p_members) as m where m.scope_key <> v_newest.scope_key) then
        v_conflict := memfold_internal._conflict(v_newest.tenant_id, v_newest.predicate, v_conflict);
    end if;
    return case when v_conflict = 'review' and (j.kind = 'review' or j.model is null) then 'newest_wins' else v_conflict end;
end;
$$;

-- Applies the judgement's verdict to the roots p_members (docs/rules.md), and returns what became of them. The caller
-- holds their lock, and has checked under it that they still are roots.
create or replace function memfold_internal._apply_verdict(
    j memfold.judgements, p_members uuid[], p_richer_memory_id uuid
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
    v_forgotten_id uuid;
begin
    foreach v_id in array array(select i.id from unnest(p_members) as i (id) order by 1) loop
        select x.* into strict m from memfold.memories as x where x.tenant_id = j.tenant_id and x.memory_id = v_id;
        v_members := v_members || m;
        v_forgotten_id := coalesce(v_forgotten_id, case when m.status = 'rejected' then m.memory_id end);
    end loop;
    v_oldest := v_members[1];
    v_newest := v_members[cardinality(v_members)];
    r.status := 'done';
    r.verdict := j.verdict;
    if j.verdict in ('duplicate', 'refinement') and j.kind = 'synthesis' then
        if memfold_internal._is_wordless(coalesce(j.merged_text, ''),
            (memfold_internal._policy(j.tenant_id, j.bucket_id, v_oldest.memory_type)).canonicalizer)
        then
            raise warning 'judgement %: the merged text is empty, so all memories are kept', j.judgement_id;
        else
            r.memory_id := memfold_internal._synthesise(j, v_members);
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
        -- All are kept; the result names the newest as a fact of its own.
        r.action := 'judged';
        r.memory_id := v_newest.memory_id;
        for i in 2..cardinality(v_members) loop
            r.event_id := memfold_internal._record_relation(j, 'judged', (v_members[i]).memory_id, v_oldest.memory_id, null, null);
        end loop;
        return r;
    elsif j.verdict in ('duplicate', 'refinement') then
        r.memory_id := coalesce(v_forgotten_id, v_oldest.memory_id);
        if j.verdict = 'refinement' and v_forgotten_id is null then
            select coalesce(p_richer_memory_id, u.memory_id) into r.memory_id
            from unnest(v_members) as u
            order by length(u.content) desc, u.memory_id
            limit 1;
        end if;
        r.action := case when r.memory_id = v_oldest.memory_id then 'merged' else 'replaced' end;
        r.event_id := memfold_internal._merge_members(j, v_members, r.memory_id);
        return r;
    elsif v_forgotten_id is not null then
        r.action := 'judged';
        r.memory_id := v_newest.memory_id;
        r.event_id := memfold_internal._record_relation(j, 'judged', v_newest.memory_id, v_oldest.memory_id, null, null);
        return r;
    elsif j.verdict = 'contradiction' then
        v_conflict := memfold_internal._conflict_of(j, v_members);
        o := memfold_internal._contradict(j, v_members, case when j.kind = 'review' then 'newest_wins' else v_conflict end, true);
    else
        o := memfold_internal._keep_apart(j, v_members);
    end if;
    r.action := o.action;
    r.memory_id := o.memory_id;
    r.event_id := o.event_id;
    return r;
end;
$$;
