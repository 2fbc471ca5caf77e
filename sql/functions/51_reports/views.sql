create or replace view memfold.memory_audit with (security_invoker = true) as
select
    m.tenant_id,
    m.bucket_id,
    m.memory_id,
    m.status,
    m.content,
    m.memory_type,
    m.subject,
    m.predicate,
    m.object,
    greatest(k.observations - 1, 0) as repetition_count,
    greatest(k.independent - 1, 0) as independent_repetitions,
    k.aliases,
    k.source_confidence,
    k.extractor_confidence,
    c.confidence,
    k.first_seen,
    k.last_seen,
    k.access_count,
    k.helpful_count,
    k.harmful_count,
    m.metadata,
    m.merged_into,
    m.root_id,
    m.session_id,
    m.canonicalizer,
    m.content_hash,
    m.embedding_pending,
    m.created_at,
    memfold_internal._effective(
        c.confidence, greatest(k.last_accessed, k.last_seen), now(),
        d.decay_rate, d.decay_floor, d.decay_interval
    ) as effective_confidence,
    k.decayed_confidence,
    k.decayed_at,
    k.last_accessed,
    k.valid_from,
    k.valid_until
from memfold.memories as m
left join memfold.memory_totals as k
    on m.tenant_id = k.tenant_id and m.memory_id = k.memory_id and m.root_id is null
cross join lateral memfold_internal._policy(m.tenant_id, m.bucket_id, m.memory_type) as p
cross join lateral memfold_internal._decay(m.tenant_id, m.bucket_id, m.memory_type) as d
cross join lateral (
    select
        memfold_internal._confidence(
            k.source_confidence, k.extractor_confidence, k.independent,
            p.weight_source, p.weight_extractor, p.weight_repetition
        ) as confidence
    where true
    offset 0
) as c;
comment on view memfold.memory_audit is
'One row per memory: its text, state, aggregates and confidence. Aliases have no aggregates: they count for their root.';
comment on column memfold.memory_audit.repetition_count is 'Observations minus one.';
comment on column memfold.memory_audit.independent_repetitions is
'n of the confidence formula: independent observations (with a source turn that is new, or without turns) minus one.';
comment on column memfold.memory_audit.confidence is 'In [0, 1], by the weights of the policy: 0.5 source + 0.3 extractor + 0.2 r(n).';
comment on column memfold.memory_audit.effective_confidence is 'Confidence after decay, now: what search_memories() ranks by.';
comment on column memfold.memory_audit.valid_from is 'Time from which recall shows the memory. Null: no bound.';
comment on column memfold.memory_audit.valid_until is 'Time until which recall shows the memory, exclusive. Null: no bound.';
comment on column memfold.memory_audit.decayed_confidence is
'Effective confidence at decayed_at, as apply_decay() stored it. Null: it has not, or there was no decay.';

create or replace view memfold.dedup_stats with (security_invoker = true) as
select
    m.tenant_id,
    m.bucket_id,
    m.active,
    m.merged,
    m.superseded,
    m.rejected,
    m.withdrawn,
    m.pending_embeddings,
    coalesce(e.observations, 0) as observations,
    coalesce(e.inserted, 0) as inserted,
    coalesce(e.tier_1, 0) as tier_1_merges,
    coalesce(e.tier_2, 0) as tier_2_merges,
    coalesce(e.tier_3, 0) as tier_3_merges,
    coalesce(e.escalated, 0) as escalated,
    coalesce(e.supersessions, 0) as supersessions,
    coalesce(e.refused, 0) as rejected_candidates,
    coalesce(j.open_judgements, 0) as open_judgements,
    j.oldest_open_judgement,
    round(1 - m.active::numeric / nullif(e.observations, 0), 4) as merge_rate,
    coalesce(j.dead_judgements, 0) as dead_judgements,
    nullif(concat_ws(
        '; ',
        memfold_internal._unanswered(j.for_judge, j.oldest_for_judge, j.last_answer),
        case
            when j.dead_judgements > 0
                then
                    'dead judgements: ' || j.dead_judgements
                    || ', each failed eight times: see open_judgements, then retry_judgements()'
        end,
        case
            when v.models is not null
                then
                    'search is not complete: more than ' || memfold_internal._search_limit() || ' vectors and no index of '
                    || v.models || ': run vector_index_ddl()'
        end
    ), '') as warning
from (
    select
        tenant_id,
        bucket_id,
        count(*) filter (where status = 'active') as active,
        count(*) filter (where status = 'merged') as merged,
        count(*) filter (where status = 'superseded') as superseded,
        count(*) filter (where status = 'rejected') as rejected,
        count(*) filter (where status = 'withdrawn') as withdrawn,
        count(*) filter (where embedding_pending) as pending_embeddings
    from memfold.memories
    group by tenant_id, bucket_id
) as m
left join (
    select
        tenant_id,
        bucket_id,
        count(*) filter (where observation) as observations,
        count(*) filter (where action = 'inserted') as inserted,
        count(*) filter (where action = 'merged' and tier = 1) as tier_1,
        count(*) filter (where action in ('merged', 'replaced') and tier = 2) as tier_2,
        count(*) filter (where action in ('merged', 'replaced') and tier = 3) as tier_3,
        count(*) filter (where action = 'escalated') as escalated,
        count(*) filter (where action in ('superseded', 'historical')) as supersessions,
        count(*) filter (where action = 'rejected' and tier is distinct from 3) as refused
    from memfold.ledger
    group by tenant_id, bucket_id
) as e on m.tenant_id = e.tenant_id and m.bucket_id = e.bucket_id
left join (
    select
        tenant_id,
        bucket_id,
        count(*) filter (where status in ('open', 'leased')) as open_judgements,
        min(created_at) filter (where status in ('open', 'leased')) as oldest_open_judgement,
        count(*) filter (where status in ('open', 'leased') and kind <> 'review') as for_judge,
        min(created_at) filter (where status in ('open', 'leased') and kind <> 'review') as oldest_for_judge,
        max(resolved_at) filter (where status = 'done' and kind <> 'review') as last_answer,
        count(*) filter (where status = 'dead') as dead_judgements
    from memfold.judgements
    group by tenant_id, bucket_id
) as j on m.tenant_id = j.tenant_id and m.bucket_id = j.bucket_id
left join (
    select
        n.tenant_id,
        n.bucket_id,
        string_agg(n.model, ', ' order by n.model) as models
    from (
        select tenant_id, bucket_id, model, count(*) as vectors
        from memfold.memory_vectors
        where is_live
        group by tenant_id, bucket_id, model
    ) as n
    where n.vectors > memfold_internal._search_limit() and memfold_internal._vector_index(n.model) is null
    group by n.tenant_id, n.bucket_id
) as v on m.tenant_id = v.tenant_id and m.bucket_id = v.bucket_id;
comment on view memfold.dedup_stats is
'Results of deduplication, one row per bucket: memories by status, decisions by tier, waiting judgements. Reads all memories and their
ledger: refresh a dashboard once a minute rather than once a second.';
comment on column memfold.dedup_stats.merge_rate is 'Share of observations that did not become an active memory.';

comment on column memfold.dedup_stats.warning is
'Judgements are not being answered: the oldest for a judge has waited for a day and none was answered since, or some are dead; or search
is not complete (more than 100,000 vectors of a model without an index). Null: no warning.';

create or replace view memfold.open_judgements with (security_invoker = true) as
select
    j.tenant_id,
    j.bucket_id,
    j.judgement_id,
    j.kind,
    j.status,
    j.similarity,
    j.guard,
    m.content,
    o.content as other_content,
    m.subject,
    m.predicate,
    m.object,
    o.object as other_object,
    k.last_seen,
    l.last_seen as other_last_seen,
    j.attempts,
    j.next_attempt_at,
    j.last_error,
    j.created_at,
    m.memory_id,
    o.memory_id as other_id,
    j.member_ids,
    (
        select array_agg(a.content order by i.place)
        from unnest(j.member_ids) with ordinality as i (id, place)
        inner join memfold.memories as a on j.tenant_id = a.tenant_id and i.id = a.memory_id
    ) as member_contents,
    memfold_internal._shown_link(j.tenant_id, j.link) as link
from memfold.judgements as j
-- A question about names is shown with example statements about each.
inner join memfold.memories as m
    on j.tenant_id = m.tenant_id and coalesce(j.memory_id, (memfold_internal._examples(j.link))[2]) = m.memory_id
inner join memfold.memories as o
    on j.tenant_id = o.tenant_id and coalesce(j.other_id, (memfold_internal._examples(j.link))[1]) = o.memory_id
left join memfold.memory_totals as k on m.tenant_id = k.tenant_id and m.memory_id = k.memory_id
left join memfold.memory_totals as l on o.tenant_id = l.tenant_id and o.memory_id = l.memory_id
where j.status in ('open', 'leased', 'dead');
comment on view memfold.open_judgements is
'Questions that wait for an answer, with both texts: does content (the newer) say the same as other_content? Kind review waits for a
person. Answer with: select * from resolve_judgement(judgement_id, ''duplicate'' | ''refinement'' | ''contradiction'' | ''distinct'',
reason => ...). Kind identity asks whether two names mean the same (link): content and other_content are example statements about each,
and the answer is ''duplicate'' or ''distinct''. Kind cardinality asks whether a predicate (link) has one value at a time: content and
other_content state two values of one subject, and the answer is ''one'' or ''many''.';
comment on column memfold.open_judgements.link is
'For kind identity: kind, alias and name, score, reasons and evidence (as in suggest_links), and statements about each (told, name_told).
For kind cardinality: name, the predicate, and statements of a newer (told) and an older value (name_told). Null: the question is about
memories.';
comment on column memfold.open_judgements.member_ids is
'For a cluster, all its memories, oldest to newest; content and other_content are those of the last and the first. Null: a pair.';

create or replace view memfold.judge_costs with (security_invoker = true) as
select
    d.tenant_id,
    d.day,
    sum(d.judgements) as judgements,
    sum(d.calls) as calls,
    sum(d.input_tokens) as input_tokens,
    sum(d.output_tokens) as output_tokens,
    sum(d.cost) as cost,
    sum(d.duplicates) as duplicates,
    sum(d.refinements) as refinements,
    sum(d.contradictions) as contradictions,
    sum(d.distincts) as distincts,
    sum(d.unsure) as unsure,
    sum(d.dead) as dead,
    sum(d.avoided_by_hash) as avoided_by_hash,
    sum(d.avoided_by_alias) as avoided_by_alias,
    sum(d.avoided_by_vector) as avoided_by_vector
from (
    select
        tenant_id,
        (coalesce(resolved_at, created_at) at time zone 'UTC')::date as day,
        count(*) filter (where status = 'done') as judgements,
        sum(attempts) as calls,
        coalesce(sum(input_tokens), 0) as input_tokens,
        coalesce(sum(output_tokens), 0) as output_tokens,
        coalesce(sum(cost), 0) as cost,
        count(*) filter (where verdict = 'duplicate') as duplicates,
        count(*) filter (where verdict = 'refinement') as refinements,
        count(*) filter (where verdict = 'contradiction') as contradictions,
        count(*) filter (where verdict = 'distinct') as distincts,
        count(*) filter (where verdict = 'unsure') as unsure,
        count(*) filter (where status = 'dead') as dead,
        0 as avoided_by_hash,
        0 as avoided_by_alias,
        0 as avoided_by_vector
    from memfold.judgements
    where (model is not null or input_tokens is not null or cost is not null) and cluster_id is null
    group by 1, 2
    union all
    select
        tenant_id,
        (recorded_at at time zone 'UTC')::date,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        count(*) filter (where tier = 1 and method <> 'alias'),
        count(*) filter (where tier = 1 and method = 'alias'),
        count(*) filter (where tier = 2)
    from memfold.ledger
    where action in ('merged', 'replaced', 'superseded', 'historical') and tier in (1, 2)
    group by 1, 2
) as d
group by d.tenant_id, d.day;
comment on view memfold.judge_costs is
'Costs of the model of tier 3, one row per tenant and day (UTC; a judgement counts on the day of its answer), and the calls saved:
candidates that tier 1 recognized by their hash or by the text of an alias, and those that tier 2 decided alone.';
comment on column memfold.judge_costs.calls is 'Attempts, including failed ones.';
comment on column memfold.judge_costs.cost is 'In the currency of the prices that the judge was configured with.';

create or replace view memfold.runaway_memories with (security_invoker = true) as
select
    m.tenant_id,
    m.bucket_id,
    m.memory_id,
    m.content,
    k.observations - 1 as repetition_count,
    k.independent as independent_observations,
    k.first_seen,
    k.last_seen
from memfold.memory_totals as k
inner join memfold.memories as m on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
where
    k.observations >= 20
    -- The second condition finds repetition without turns, in which each observation counts as independent.
    and (k.independent * 5 <= k.observations or k.last_seen - k.first_seen < k.observations * interval '1 minute');
comment on view memfold.runaway_memories is
'Memories stated 20 times or more, with at most one independent observation in five, or stated more than once a minute: a caller
probably submits the same turn in a loop.';

grant select on
memfold.memory_audit, memfold.dedup_stats, memfold.open_judgements, memfold.judge_costs, memfold.runaway_memories
to memfold_app, memfold_auditor;
grant execute on function memfold_internal._confidence to memfold_app, memfold_auditor;
grant execute on function memfold_internal._effective to memfold_app, memfold_auditor;
grant execute on function
memfold_internal._policy, memfold_internal._options, memfold_internal._decay,
memfold_internal._specificity
to memfold_app, memfold_auditor;
