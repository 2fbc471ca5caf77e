-- The queue of questions: queueing one, whether it was asked before, whether it is still open, closing it. Ingest, maintenance and manual
-- actions queue questions; 40_judging leases them and applies the answers. The module writes only judgements, and wakes judges by NOTIFY.
--
-- A question is about a pair of memories, a cluster of three to ten, or names: whether two names mean the same (kind identity), or whether
-- a predicate has one value at a time (kind cardinality). A cluster also has a row of status part for each member but the oldest.
--
-- What must stay true: a pair has at most one open question, and while that waits, nothing is merged, linked or declared.
-- Before an answer applies, _refresh_judgement() finds the present roots of its memories.

-- A key of two names, in either order and any spelling. A hash, because names may be longer than an index entry.
create or replace function memfold_internal._names_key(p_kind text, p_alias text, p_name text) returns text
language plpgsql immutable parallel safe
as $$
declare
    v_alias constant text collate "C" := memfold_internal._link_key(p_kind, p_alias);
    v_name constant text collate "C" := memfold_internal._link_key(p_kind, p_name);
begin
    return encode(sha256(convert_to(
        jsonb_build_array(p_kind, least(v_alias, v_name), greatest(v_alias, v_name))::text, 'UTF8'
    )), 'hex');
end;
$$;

-- The key of the names of a suggestion (_names_key).
create or replace function memfold_internal._suggestion_key(p_suggestion memfold.link_suggestion) returns text
language plpgsql immutable parallel safe
as $$
begin
    return memfold_internal._names_key(case when p_suggestion.alias is null then 'beginning' else p_suggestion.kind end,
        coalesce(p_suggestion.alias, p_suggestion.name), p_suggestion.name);
end;
$$;

-- Two example memories for a question about names: one about the name, one about the alias.
create or replace function memfold_internal._examples(p_link jsonb) returns uuid[]
language sql immutable parallel safe
return array[(p_link #>> '{name_told,0}')::uuid, (p_link #>> '{told,0}')::uuid];
grant execute on function memfold_internal._examples to memfold_app, memfold_auditor;

-- A question about names as a judge or a person sees it: with statements instead of ids. Null: it is about memories.
create or replace function memfold_internal._shown_link(p_tenant_id text, p_link jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select p_link - array['key', 'told', 'name_told'] || jsonb_object_agg(s.side, array(
            select m.content
            from (
                select e.id::uuid as id, e.place
                from jsonb_array_elements_text(p_link -> s.side) with ordinality as e (id, place)
                offset 0
            ) as i
            join memfold.memories as m on m.tenant_id = p_tenant_id collate "C" and m.memory_id = i.id
            order by i.place
        ))
        from unnest(array['told', 'name_told']) as s (side)
        where p_link is not null
        having count(*) > 0
    );
end;
$$;
grant execute on function memfold_internal._shown_link to memfold_app, memfold_auditor;

-- Queues the question whether two names mean the same, and returns its id; null if it was asked before, or if no memory
-- about one of the names is left.
create or replace function memfold_internal._ask_about_names(
    p_tenant_id text, p_bucket_id text, p_suggestion memfold.link_suggestion
) returns uuid
language plpgsql volatile
as $$
declare
    v_told uuid[];
    v_name_told uuid[];
    v_judgement_id uuid;
begin
    -- memories that are being erased are skipped, because the question would keep their names
    with evidence as (
        select e.side, e.id::uuid, e.place
        from (
            select s.side, p.pair ->> s.place as id, p.n as place
            from (values ('told', 0), ('name_told', 1)) as s (side, place)
            cross join lateral jsonb_array_elements(p_suggestion.evidence -> 'pairs') with ordinality as p (pair, n)
            union all
            select s.side, i.id, 100 + i.n
            from (values ('told', 'memory_ids'), ('name_told', 'name_memory_ids')) as s (side, ids)
            cross join lateral jsonb_array_elements_text(p_suggestion.evidence -> s.ids) with ordinality as i (id, n)
        ) as e
    ),
    held as materialized (
        select m.memory_id
        from memfold.memories as m
        where m.tenant_id = p_tenant_id collate "C" and m.memory_id = any(array(select e.id from evidence as e))
        for key share skip locked
    ),
    shown as (
        select e.side, e.id, min(e.place) as place
        from evidence as e
        join held as h on h.memory_id = e.id
        group by e.side, e.id
    )
    select (array_agg(s.id order by s.place) filter (where s.side = 'told'))[1:5],
        (array_agg(s.id order by s.place) filter (where s.side = 'name_told'))[1:5]
    into v_told, v_name_told
    from shown as s;
    if v_told is null or v_name_told is null then
        return null;
    end if;
    perform memfold_internal._wake_judges(p_tenant_id, p_bucket_id, '*', false);
    insert into memfold.judgements as j (tenant_id, bucket_id, scope_key, kind, link)
    values (p_tenant_id, p_bucket_id, memfold_internal._no_scope(), 'identity',
        to_jsonb(p_suggestion)
        || jsonb_build_object(
            'kind', case when p_suggestion.alias is null then 'beginning' else p_suggestion.kind end,
            'key', memfold_internal._suggestion_key(p_suggestion), 'told', v_told, 'name_told', v_name_told,
            -- without ids of memories that may be erased while the question is open
            'evidence', p_suggestion.evidence - array['pairs', 'memory_ids', 'name_memory_ids']
        ))
    on conflict do nothing
    returning j.judgement_id into v_judgement_id;
    return v_judgement_id;
end;
$$;

-- Records that two names that were linked are distinct, so that they are neither suggested nor asked about again.
create or replace function memfold_internal._keep_names_apart(
    p_tenant_id text, p_bucket_id text, p_kind text, p_alias text, p_name text, p_run_id uuid
) returns void
language plpgsql volatile
as $$
begin
    insert into memfold.judgements as j (
        tenant_id, bucket_id, scope_key, kind, status, link, verdict, reason, run_id, resolved_at
    ) values (
        p_tenant_id, p_bucket_id, memfold_internal._no_scope(), 'identity', 'done',
        jsonb_build_object(
            'kind', p_kind, 'alias', p_alias, 'name', p_name,
            'key', memfold_internal._names_key(p_kind, p_alias, p_name),
            'told', '[]'::jsonb, 'name_told', '[]'::jsonb
        ), 'distinct', 'unlinked', p_run_id, memfold_internal._clock()
    )
    on conflict do nothing;
end;
$$;

-- Closes the open questions about an alias (canonical) that has been linked, in the bucket ('*': in all).
create or replace function memfold_internal._close_questions_about(
    p_tenant_id text, p_bucket_id text, p_kind text, p_alias text
) returns void
language plpgsql volatile
as $$
begin
    update memfold.judgements as j
    set status = 'obsolete', reason = 'one of the names is linked', resolved_at = memfold_internal._clock()
    where j.tenant_id = p_tenant_id collate "C" and j.kind = 'identity' and j.status in ('open', 'leased', 'dead')
        and (p_bucket_id = '*' or j.bucket_id = p_bucket_id collate "C")
        and j.link ->> 'kind' = p_kind
        and p_alias collate "C" in (
            memfold_internal._link_key(j.link ->> 'kind', coalesce(j.link ->> 'alias', j.link ->> 'name')) collate "C",
            memfold_internal._link_key(j.link ->> 'kind', j.link ->> 'name') collate "C"
        );
end;
$$;

-- The scope_key of a question about a predicate. Row-level security would leave an index on link unusable.
create or replace function memfold_internal._predicate_key(p_predicate text) returns uuid
language sql immutable parallel safe
return memfold_internal._scope_key('*', '*', null, p_predicate);

-- Queues the question whether a predicate has one value at a time, with two values of a subject, and returns its id;
-- null if it was asked before, is being asked by another transaction, or would need one lock too many.
create or replace function memfold_internal._ask_cardinality(
    p_tenant_id text, p_bucket_id text, p_predicate text, p_memory_id uuid, p_other_id uuid
) returns uuid
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
declare
    v_key constant uuid := memfold_internal._predicate_key(p_predicate);
    v_lock constant bigint := memfold_internal._scope_lock(p_tenant_id, v_key);
    v_judgement_id uuid;
begin
    if memfold_internal._was_asked_about(p_tenant_id, v_key) or memfold_internal._has_too_many_locks(1) then
        return null;
    end if;
    -- A call that is asking this now may wait for this one, so it must not wait, as it would for the unique index.
    perform memfold_internal._note_scope(v_lock);
    if not pg_try_advisory_xact_lock(v_lock) or memfold_internal._was_asked_about(p_tenant_id, v_key) then
        return null;
    end if;
    perform memfold_internal._wake_judges(p_tenant_id, p_bucket_id, '*', false);
    insert into memfold.judgements as j (tenant_id, bucket_id, scope_key, kind, link)
    values (p_tenant_id, p_bucket_id, v_key, 'cardinality', jsonb_build_object(
        'kind', 'cardinality', 'name', p_predicate, 'told', array[p_memory_id],
        'name_told', array[p_other_id]))
    on conflict do nothing
    returning j.judgement_id into v_judgement_id;
    return v_judgement_id;
end;
$$;

-- Whether the number of values of a predicate (_predicate_key) is or was in question.
create or replace function memfold_internal._was_asked_about(p_tenant_id text, p_predicate_key uuid) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
begin
    return exists (
        select from memfold.judgements as j
        where j.tenant_id = p_tenant_id collate "C" and j.scope_key = p_predicate_key
            and j.kind = 'cardinality' and j.status <> 'obsolete'
    );
end;
$$;
