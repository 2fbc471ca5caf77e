create or replace function memfold.attach_embedding(
    memory_id uuid,
    embedding vector,
    embedding_model text,
    tenant_id text default current_setting('memfold.tenant_id', true)
) returns memfold.ingest_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_is_given boolean;
    v_memory memfold.memories;
    v_result memfold.ingest_result;
    c memfold_internal.candidate;
begin
    perform memfold_internal._authorize_tenant(tenant_id);
    if embedding is null then
        perform memfold_internal._fail('MF022', 'the embedding is missing', 'embedding was null.', 'Pass a vector.');
    end if;
    perform memfold_internal._check_embedding(embedding, embedding_model);
    select m.* into v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    if not found then
        perform memfold_internal._no_memory(memory_id);
    end if;
    perform memfold_internal._lock_memories(tenant_id, array[memory_id]);

    -- while it waited, its rules may have changed, or the memory may have been erased
    perform memfold_internal._check_embedding(embedding, embedding_model);
    select m.* into v_memory
    from memfold.memories as m
    where m.tenant_id = attach_embedding.tenant_id collate "C" and m.memory_id = attach_embedding.memory_id;
    if not found then
        perform memfold_internal._no_memory(memory_id);
    end if;
    c := memfold_internal._stored_candidate(v_memory, memfold_internal._unit(embedding), embedding_model);
    with given as (
        insert into memfold.memory_vectors (tenant_id, memory_id, model, bucket_id, scope_key, is_active, embedding)
        select c.tenant_id, v_memory.memory_id, c.embedding_model, c.bucket_id, c.scope_key, r.status = 'active', c.embedding
        from memfold.memories as r
        where r.tenant_id = c.tenant_id and r.memory_id = memfold_internal._root(v_memory.memory_id, v_memory.root_id)
        on conflict do nothing
        returning 1
    )
    -- not by FOUND: Citus counts skipped rows as inserted
    select count(*) = 1 into v_is_given from given;
    if not v_is_given then
        perform memfold_internal._fail('MF019', 'the memory already has a vector of this model',
            format('Memory %s, model %L.', memory_id, embedding_model),
            'Neither a text nor its vector ever changes.');
    end if;
    update memfold.memories as m
    set embedding_pending = false
    where m.tenant_id = c.tenant_id and m.memory_id = v_memory.memory_id and m.embedding_pending;

    v_result := memfold_internal._compare_rivals(c, v_memory);
    if v_result.action is null then
        v_result := memfold_internal._match_stored_memory(c, v_memory, 'embedded');
    end if;
    return v_result;
end;
$$;
grant execute on function memfold.attach_embedding to memfold_app;
comment on function memfold.attach_embedding is
'Adds the vector of a memory that was stored without one, and runs the skipped tier 2. action: merged (the newer of the two memories
becomes an alias of the older, which is memory_id), replaced (by the policy''s on_merge, the older becomes an alias of the newer),
escalated, or embedded (nothing else to do). If the memory was taken for a different value of a single-valued slot only because it had no
vector (row 10), and the vector shows that it is not, that decision is undone, whichever of the two is current. Raises MF012 to MF015,
MF018 (no such memory), MF019 (it already has a vector of this model), MF022, MF025.';

create or replace function memfold_internal._stored_candidate(m memfold.memories, embedding vector, embedding_model text)
returns memfold_internal.candidate
language plpgsql stable
as $$
declare
    c memfold_internal.candidate;
begin
    c.tenant_id := m.tenant_id;
    c.bucket_id := m.bucket_id;
    c.scope_key := m.scope_key;
    c.memory_type := m.memory_type;
    c.subject := m.subject;
    c.predicate := m.predicate;
    c.told_subject := m.subject;
    c.told_predicate := m.predicate;
    c.object := m.object;
    c.content := m.content;
    c.session_id := m.session_id;
    c.embedding := embedding;
    c.embedding_model := embedding_model;
    c.policy := memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type);
    return c;
end;
$$;
comment on function memfold_internal._stored_candidate is
'A stored text in the form of a candidate for tier 2, with this unit vector. Only reads.';

create or replace function memfold_internal._match_stored_memory(c memfold_internal.candidate, m memfold.memories, action text)
returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    d memfold_internal.decision;
begin
    d.on_timeline := false;
    if m.status = 'active' and (c.policy).dedup = 'on' then
        d := memfold_internal._decide_stored(c, m, memfold_internal._decide_similar(c, d, m.memory_id));
    end if;
    return memfold_internal._record_comparison(c, m, d, action);
end;
$$;
comment on function memfold_internal._match_stored_memory is
'Tier 2 for an already stored root with its new vector: merges the newer of two duplicates into the older (or by on_merge the older into
the newer), or queues a judgement; else records action (null: nothing, and returns null). The caller holds the lock.';

create or replace function memfold_internal._decide_stored(
    c memfold_internal.candidate, m memfold.memories, d memfold_internal.decision
) returns memfold_internal.decision
language plpgsql stable
as $$
declare
    v_other text;
begin
    if d.action is null then
        return d;
    elsif d.action = 'ambiguous' or (c.policy).on_merge = 'synthesise' then
        d.judgement := case when d.action = 'merged' then 'synthesis'
            when (c.policy).on_ambiguous <> 'insert' then memfold_internal._judgement_kind((c.policy).on_ambiguous) end;
        d.action := 'ambiguous';
        return d;
    end if;
    select o.content into v_other
    from memfold.memories as o where o.tenant_id = c.tenant_id collate "C" and o.memory_id = d.target_id;
    if (c.policy).on_merge = 'replace' then
        d.action := 'replaced';
    elsif memfold_internal._refines(c.policy, case when m.memory_id > d.target_id then m.content else v_other end,
        case when m.memory_id > d.target_id then v_other else m.content end)
    then
        d.reason := pg_catalog.concat_ws(', ', 'refinement', d.reason);
        if (c.policy).on_refinement = 'replace' then
            d.action := 'replaced';
        else
            d.action := 'ambiguous';
            d.judgement := memfold_internal._judgement_kind((c.policy).on_ambiguous);
        end if;
    end if;
    return d;
end;
$$;
comment on function memfold_internal._decide_stored is
'The outcome for the neighbour that tier 2 has found for a stored root: merged (the newer, which has the higher id, into the older),
replaced (the older into the newer) or ambiguous, with the kind of judgement to queue, if any. Only reads.';

create or replace function memfold_internal._was_compared(tenant_id text, m memfold.memories, d memfold_internal.decision) returns boolean
language plpgsql stable
as $$
begin
    -- nor is a pair merged or asked about again if its other side has been merged elsewhere since
    return memfold_internal._was_asked(tenant_id, m.memory_id, d.target_id)
        or memfold_internal._was_asked(tenant_id, m.memory_id, d.memory_id);
end;
$$;
comment on function memfold_internal._was_compared is
'Whether a root and the neighbour that tier 2 found for it (_decide_similar) are already queued or judged. Only reads.';

create or replace function memfold_internal._record_comparison(
    c memfold_internal.candidate, m memfold.memories, d memfold_internal.decision, action text
) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_asked constant boolean := memfold_internal._was_compared(c.tenant_id, m, d);
    v_text_id uuid := m.memory_id;
    v_fold boolean;
    v_other_id uuid;
    v_judgement_id uuid;
    v_event_id uuid;
begin
    v_fold := d.action in ('merged', 'replaced') and not v_asked;
    if v_fold then
        -- a duplicate merges the newer memory into the older, a replacement the older into the newer
        v_other_id := d.target_id;
        v_text_id := greatest(m.memory_id, v_other_id);
        d.target_id := least(m.memory_id, v_other_id);
        d.on_timeline := exists (
            select from memfold.memory_totals as k
            where k.tenant_id = c.tenant_id collate "C" and k.memory_id in (v_text_id, d.target_id) and k.on_timeline
        );
    elsif d.judgement is not null and not v_asked then
        v_judgement_id := memfold_internal._queue_judgement(c.tenant_id, d.judgement, m.memory_id, d.target_id, d.similarity, d.guard,
            false);
    end if;
    if v_fold is not true then
        d.action := case when v_judgement_id is null then _record_comparison.action else 'escalated' end;
    end if;
    if d.action is null then
        return null;
    end if;
    v_event_id := memfold_internal._new_event_id(c.tenant_id);
    insert into memfold.memory_events (
        tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, similar_memories, reason,
        on_timeline, judgement_id, actor
    ) values (
        c.tenant_id, v_event_id, c.bucket_id, d.action, d.tier, d.method, v_text_id, d.target_id,
        d.similarity, d.guard, d.similar_memories, d.reason, d.on_timeline, v_judgement_id, memfold_internal._actor()
    );
    if v_fold then
        perform memfold.derive_scope(array[v_text_id, d.target_id], c.tenant_id);
    end if;
    return memfold_internal._result(d, v_text_id, v_judgement_id, v_event_id);
end;
$$;
comment on function memfold_internal._record_comparison is
'Carries out tier 2''s decision about a stored root m (c: itself): see _match_stored_memory().';

create or replace function memfold_internal._compare_rivals(c memfold_internal.candidate, m memfold.memories) returns memfold.ingest_result
language plpgsql volatile
as $$
declare
    v_floor double precision;
    v_result memfold.ingest_result;
    v_rivals record;
    v_merges boolean;
    w memfold.memories;
    d memfold_internal.decision;
    w_c memfold_internal.candidate;
begin
    if m.predicate is null or m.root_id is not null or m.status not in ('active', 'superseded') or (c.policy).dedup <> 'on'
        or not memfold_internal._is_single(c.tenant_id, m.predicate)
    then
        return null;
    end if;
    select b.floor into v_floor
    from memfold_internal._bands((c.policy).merge_threshold, (c.policy).judge_threshold, (c.policy).similar_threshold,
        c.embedding_model) as b;
    -- Two merged memories may each have had another rival: it checks again, with one supersession less each time.
    loop
        v_merges := false;
        for v_rivals in
            select r.* from memfold_internal._rivals(c.tenant_id, m) as r order by r.event_id
        loop
            w := memfold_internal._memory_root(c.tenant_id, v_rivals.winner_id, '{}');
            w_c := memfold_internal._stored_candidate(w, (
                select v.embedding from memfold.memory_vectors as v
                where v.tenant_id = c.tenant_id and v.memory_id = w.memory_id and v.model = c.embedding_model
            ), c.embedding_model);
            d := memfold_internal._decide_as_neighbour(w_c, w.memory_id, v_rivals.loser_id, v_floor);
            continue when d.target_id is distinct from v_rivals.loser_id or memfold_internal._was_compared(c.tenant_id, w, d);
            d := memfold_internal._decide_stored(w_c, w, d);
            v_merges := d.action in ('merged', 'replaced');
            -- a memory that is not merged stays active in addition to the other, and a question is asked
            continue when not v_merges
                and not memfold_internal._parts_in_two(c.tenant_id, v_rivals.event_id, w.memory_id, v_rivals.loser_id);
            insert into memfold.memory_events (
                tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, similarity, guard, reason, undoes, actor
            )
            select e.tenant_id, memfold_internal._new_event_id(e.tenant_id), e.bucket_id, 'undone', d.tier, d.method, e.memory_id, e.target_id, d.similarity, d.guard,
                'compared by a late vector', e.event_id, memfold_internal._actor()
            from memfold.memory_events as e
            where e.tenant_id = c.tenant_id and e.event_id = v_rivals.event_id;
            v_result := memfold_internal._record_comparison(w_c, w, d, 'embedded');
            if not v_merges then
                perform memfold.derive_scope(array[w.memory_id, v_rivals.loser_id], c.tenant_id);
            end if;
            exit;
        end loop;
        exit when v_merges is not true;
    end loop;
    return v_result;
end;
$$;
comment on function memfold_internal._compare_rivals is
'For a root m of a single-valued slot that has got its vector. Row 10 (predicate) treats texts as two values if tier 2 does not find them
similar, and without vectors it finds nothing: the decision is made again between m and each value that superseded it, or was superseded
by it. If the two are the same, or unclear, the supersession is undone, and tier 2''s decision is carried out as if the vector had been
there from the start. Null: nothing was undone. The caller holds the lock.';

create or replace function memfold_internal._rivals(tenant_id text, m memfold.memories)
returns table (event_id uuid, winner_id uuid, loser_id uuid)
language plpgsql stable rows 1
as $$
declare
    v_root_id constant uuid := (memfold_internal._memory_root(tenant_id, m.memory_id, '{}')).memory_id;
begin
    return query
    select e.event_id, w.memory_id, l.memory_id
    from memfold.memories as t
    -- row 10 decides about a new text: no row about it is older
    cross join lateral (
        select e.* from memfold_internal._ledger as e
        where e.tenant_id = t.tenant_id and e.memory_id = t.memory_id
        order by e.event_id
        limit 1
    ) as e
    cross join lateral memfold_internal._memory_root(e.tenant_id, e.memory_id, '{}') as w
    cross join lateral memfold_internal._memory_root(e.tenant_id, e.target_id, '{}') as l
    where t.tenant_id = _rivals.tenant_id collate "C" and t.bucket_id = m.bucket_id and t.scope_key = m.scope_key
        and e.tier = 2 and e.method = 'predicate' and e.action in ('superseded', 'historical') and not e.undone
        and w.memory_id <> l.memory_id and v_root_id in (w.memory_id, l.memory_id)
        and w.status in ('active', 'superseded') and l.status in ('active', 'superseded')
        -- a person has decided between the two since
        and not exists (
            select from memfold_internal._ledger as p
            where p.tenant_id = e.tenant_id and p.memory_id in (w.memory_id, l.memory_id)
                and p.target_id in (w.memory_id, l.memory_id) and p.action = 'superseded' and p.tier = 3 and not p.undone
        );
end;
$$;
comment on function memfold_internal._rivals is
'The supersessions in force of row 10 of the decision table between the root of m and another root of its slot: which one superseded
which. Only reads.';

create or replace function memfold_internal._decide_as_neighbour(
    c memfold_internal.candidate, root_id uuid, other_id uuid, floor double precision
) returns memfold_internal.decision
language plpgsql volatile
as $$
declare
    v_texts uuid[];
    v_id uuid;
    d memfold_internal.decision;
begin
    select pg_catalog.array_agg(v.memory_id order by v.memory_id) filter (where not v.is_active) into v_texts
    from pg_catalog.unnest(memfold_internal._trees(c.tenant_id, array[other_id])) as i (id)
    cross join lateral (
        select v.memory_id, v.is_active, v.embedding from memfold.memory_vectors as v
        where v.tenant_id = c.tenant_id collate "C" and v.memory_id = i.id and v.model = c.embedding_model collate "C"
        offset 0
    ) as v
    -- usually none is near, and nothing is written
    having max(memfold_internal._similarity(v.embedding, c.embedding)) >= floor;
    if not found then
        return null;
    end if;
    foreach v_id in array coalesce(v_texts, '{}') loop
        update memfold.memory_vectors as v
        set is_active = true
        where v.tenant_id = c.tenant_id and v.memory_id = v_id and v.model = c.embedding_model;
    end loop;
    d.on_timeline := false;
    d := memfold_internal._decide_similar(c, d, root_id);
    foreach v_id in array coalesce(v_texts, '{}') loop
        update memfold.memory_vectors as v
        set is_active = false
        where v.tenant_id = c.tenant_id and v.memory_id = v_id and v.model = c.embedding_model;
    end loop;
    return d;
end;
$$;
comment on function memfold_internal._decide_as_neighbour is
'Tier 2''s decision about a stored root while another one counts as active, which may now be history. Null: none of that one''s texts has
a cosine of floor. The caller holds the lock.';

create or replace function memfold_internal._parts_in_two(tenant_id text, event_id uuid, winner_id uuid, loser_id uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from memfold.memories as m
        where m.tenant_id = _parts_in_two.tenant_id collate "C" and m.memory_id in (winner_id, loser_id) and m.status = 'active'
    ) and not exists (
        select from pg_catalog.unnest(memfold_internal._trees(tenant_id, array[winner_id])) as i (id)
        cross join lateral (
            select e.event_id from memfold_internal._ledger as e
            where e.tenant_id = _parts_in_two.tenant_id collate "C" and e.memory_id = i.id
                and e.action in ('inserted', 'superseded', 'historical') and (e.on_timeline or e.tier = 3) and not e.undone
            union all
            select e.event_id from memfold_internal._ledger as e
            where e.tenant_id = _parts_in_two.tenant_id collate "C" and e.target_id = i.id
                and e.action in ('superseded', 'historical') and (e.on_timeline or e.tier = 3) and not e.undone
            offset 0
        ) as e
        where e.event_id <> _parts_in_two.event_id
    );
end;
$$;
comment on function memfold_internal._parts_in_two is
'Whether two values of a slot would both be active without the supersession event_id: one of them is, and nothing else makes the winner a
value of the slot. Only reads.';
