-- A memory as shown to a judge, with the provenance of its first observation; null if it is gone.
create or replace function memfold_internal._judged_side(p_tenant_id text, p_memory_id uuid) returns jsonb
language plpgsql stable
as $$
begin
    return (
        select jsonb_strip_nulls(jsonb_build_object(
            'memory_id', m.memory_id, 'content', m.content, 'memory_type', m.memory_type, 'subject', m.subject,
            'predicate', m.predicate, 'object', m.object, 'first_seen', k.first_seen, 'last_seen', k.last_seen,
            'observations', k.observations, 'sources', k.independent, 'origin', e.origin, 'session_id', e.session_id,
            'source_turn_ids', e.turns
        ))
        from memfold.memories as m
        left join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
        left join lateral (
            select o.origin, o.session_id, to_jsonb(o.source_turn_ids[1:5]) as turns
            from memfold.memory_events as o
            where o.tenant_id = m.tenant_id and o.memory_id = m.memory_id and o.observation
            order by o.event_id
            limit 1
        ) as e on true
        where m.tenant_id = p_tenant_id collate "C" and m.memory_id = p_memory_id
    );
end;
$$;

-- Leases a judgement whose row the caller has locked, and returns it with its new status: leased; obsolete (nothing is left
-- to decide); dead (its eighth lease has expired); or open (its memories have changed, and have a new question).
create or replace function memfold_internal._lease(j memfold.judgements, p_worker text, p_lease interval) returns memfold.judgements
language plpgsql volatile
as $$
declare
    n memfold.judgements := memfold_internal._refresh_judgement(j);
begin
    if n.status = 'obsolete' then
        n.resolved_at := clock_timestamp();
        perform memfold_internal._close_parts(j, '{}', '{}');
    elsif memfold_internal._has_changed(n, j) then
        perform memfold_internal._requeue_judgement(n);
        n.status := 'open';
        return n;
    elsif j.attempts >= 8 then
        n.status := 'dead';
        n.last_error := coalesce(j.last_error, 'lease expired without an answer');
    else
        n.status := 'leased';
        n.worker := p_worker;
        n.attempts := j.attempts + 1;
        n.leased_until := clock_timestamp() + p_lease;
        n.next_attempt_at := n.leased_until;
    end if;
    update memfold.judgements as u
    set status = n.status, worker = n.worker, attempts = n.attempts, leased_until = n.leased_until,
        next_attempt_at = n.next_attempt_at, last_error = n.last_error, reason = n.reason, resolved_at = n.resolved_at
    where u.tenant_id = j.tenant_id and u.judgement_id = j.judgement_id;
    return n;
end;
$$;

-- claim_judgements() for one tenant, or for all (p_only_tenant null). Owned by memfold_queue, which sees all queues.
create or replace function memfold_internal._claim(
    p_worker text, p_max bigint, p_lease interval, p_review boolean, p_only_tenant text, p_judgement_ids uuid[]
) returns setof memfold.claimed_judgement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    -- A session's claims start after the tenant that was served last: round robin without a table.
    v_start constant text collate "C" := coalesce(current_setting('memfold.claimed_tenant', true), '');
    v_last text collate "C" := v_start;
    v_wrapped boolean := false;
    v_tenants text[];
    v_tenant text collate "C";
    v_seen bigint := 0;
    v_left bigint := p_max;
    v_share bigint;
    v_given bigint;
    v_due refcursor;
    j memfold.judgements;
    n memfold.judgements;
    v_sides uuid[];
begin
    while v_left > 0 and v_seen < 1000 loop
        if p_only_tenant is not null then
            v_tenants := array[p_only_tenant];
        else
            -- The next tenants that have a queue, by one index lookup each.
            select array_agg(t.tenant_id) into v_tenants
            from (
                with recursive t (tenant_id) as (
                    select min(q.tenant_id) from memfold.judgements as q
                    where q.status in ('open', 'leased') and (q.kind = 'review') = p_review and q.tenant_id > v_last
                    union all
                    select (
                        select min(q.tenant_id) from memfold.judgements as q
                        where q.status in ('open', 'leased') and (q.kind = 'review') = p_review and q.tenant_id > t.tenant_id
                    ) from t where t.tenant_id is not null
                )
                select t.tenant_id from t
                where t.tenant_id is not null and (not v_wrapped or t.tenant_id <= v_start)
                limit greatest(v_left, 10)
            ) as t;
            if v_tenants is null then
                exit when v_wrapped or v_start = '';
                v_wrapped := true;
                v_last := '';
                continue;
            end if;
            v_last := v_tenants[cardinality(v_tenants)];
            v_seen := v_seen + cardinality(v_tenants);
        end if;
        v_share := greatest(1, v_left / cardinality(v_tenants));
        while cardinality(v_tenants) > 0 and v_left > 0 loop
            foreach v_tenant in array v_tenants loop
                v_given := 0;
                if p_judgement_ids is null then
                    open v_due for
                        select q.*
                        from memfold.judgements as q
                        where q.tenant_id = v_tenant and q.status in ('open', 'leased') and (q.kind = 'review') = p_review
                            and q.next_attempt_at <= clock_timestamp()
                        order by q.next_attempt_at, q.judgement_id
                        limit least(v_share, v_left)
                        for no key update skip locked;
                else
                    open v_due for
                        select q.*
                        from memfold.judgements as q
                        where q.tenant_id = v_tenant and q.judgement_id = any(p_judgement_ids)
                            and q.status in ('open', 'leased') and (q.kind = 'review') = p_review
                            and q.next_attempt_at <= clock_timestamp()
                        order by q.judgement_id
                        limit least(v_share, v_left)
                        for no key update skip locked;
                end if;
                loop
                    fetch v_due into j;
                    exit when not found;
                    v_given := v_given + 1;
                    n := memfold_internal._lease(j, p_worker, p_lease);
                    if n.status = 'open' then
                        -- The question was queued under another id: give the tenant one more turn to find it.
                        v_given := v_share;
                    end if;
                    if n.status = 'leased' then
                        v_left := v_left - 1;
                        v_sides := case when n.link is null then array[n.other_id, n.memory_id]
                            else memfold_internal._examples(n.link) end;
                        return next (n.tenant_id, n.judgement_id, n.bucket_id, n.kind, n.similarity, n.guard, n.attempts,
                            n.leased_until, memfold_internal._judged_side(n.tenant_id, v_sides[2]),
                            memfold_internal._judged_side(n.tenant_id, v_sides[1]), case when n.member_ids is not null then (
                                select jsonb_agg(memfold_internal._judged_side(n.tenant_id, i.id) order by i.place)
                                from unnest(n.member_ids) with ordinality as i (id, place)
                            ) end, memfold_internal._shown_link(n.tenant_id, n.link))::memfold.claimed_judgement;
                        if p_only_tenant is null then
                            perform set_config('memfold.claimed_tenant', n.tenant_id, false);
                        end if;
                    end if;
                end loop;
                close v_due;
                if v_given < v_share then
                    v_tenants := array_remove(v_tenants, v_tenant);
                end if;
                exit when v_left <= 0;
            end loop;
        end loop;
        exit when p_only_tenant is not null;
    end loop;
end;
$$;

-- A hook: claim_judgements() without a tenant. On Citus, where no node has all queues, it claims tenant by tenant.
create or replace function memfold_internal._claim_all_tenants(
    p_worker text, p_max_results bigint, p_lease interval, p_review boolean, p_judgement_ids uuid[]
) returns setof memfold.claimed_judgement
language sql volatile
begin atomic
    select * from memfold_internal._claim(p_worker, p_max_results, p_lease, p_review, null, p_judgement_ids);
end;

create or replace function memfold.claim_judgements(
    worker text,
    tenant_id text default nullif(current_setting('memfold.tenant_id', true), ''),
    max_results bigint default 10,
    lease interval default '1 minute',
    review boolean default false,
    judgement_ids uuid[] default null
) returns setof memfold.claimed_judgement
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_tenant_id constant text := memfold_internal._authorize_queue(tenant_id);
begin
    perform memfold_internal._check_identifier('worker', worker, true);
    if not coalesce(max_results between 1 and 1000, false)
        or not coalesce(lease between interval '1 second' and interval '1 day', false) or review is null
    then
        perform memfold_internal._fail('MF028', 'an argument of the claim is out of range',
            format('max_results was %s, lease %s, review %s.', coalesce(max_results::text, 'null'), coalesce(lease::text, 'null'),
                coalesce(review::text, 'null')),
            'Claim 1 to 1,000 judgements for one second to one day.');
    end if;
    if v_tenant_id is null then
        return query select * from memfold_internal._claim_all_tenants(worker, max_results, lease, review, judgement_ids);
    else
        return query select * from memfold_internal._claim(worker, max_results, lease, review, v_tenant_id, judgement_ids);
    end if;
end;
$$;
grant execute on function memfold.claim_judgements to memfold_judge, memfold_app;
comment on function memfold.claim_judgements is
'Leases at most max_results (1 to 1,000) judgements to a worker (any name): the oldest of a tenant first, tenants in turn. Others do not
see them until the lease (1 s to 1 day) expires; each claim counts as one of eight attempts. review: claims those that wait for a person.
members: the memories of a cluster, oldest to newest. link: for kind identity, the names in question. tenant_id null: all tenants, only
for members of memfold_judge. judgement_ids: only these. Answer each with resolve_judgement() or fail_judgement(). Raises MF001 to MF003,
MF028.';
