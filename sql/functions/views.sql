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
    memfold._confidence(
        k.source_confidence, k.extractor_confidence, k.independent,
        p.weight_source, p.weight_extractor, p.weight_repetition
    ) as confidence,
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
    m.created_at
from memfold.memories as m
left join memfold.memory_counters as k
    on m.tenant_id = k.tenant_id and m.memory_id = k.memory_id and m.root_id is null
cross join lateral memfold._policy(m.tenant_id, m.bucket_id, m.memory_type) as p;
comment on view memfold.memory_audit is
'One row a memory: its text, state, aggregates and confidence. Aliases have no aggregates: they are in their root''s.';
comment on column memfold.memory_audit.repetition_count is 'Observations less one.';
comment on column memfold.memory_audit.independent_repetitions is
'n of the confidence formula: independent observations (distinct source turns) less one.';
comment on column memfold.memory_audit.confidence is 'In [0, 1], by the weights of the policy: 0.5 source + 0.3 extractor + 0.2 r(n).';

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
    round(1 - m.active::numeric / nullif(e.observations, 0), 4) as fold_rate
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
    from memfold.memory_events
    group by tenant_id, bucket_id
) as e on m.tenant_id = e.tenant_id and m.bucket_id = e.bucket_id
left join (
    select
        tenant_id,
        bucket_id,
        count(*) as open_judgements,
        min(created_at) as oldest_open_judgement
    from memfold.judgements
    where state in ('open', 'leased')
    group by tenant_id, bucket_id
) as j on m.tenant_id = j.tenant_id and m.bucket_id = j.bucket_id;
comment on view memfold.dedup_stats is
'What deduplication did, one row a bucket: memories by status, decisions by tier, judgements that wait. Reads everything:
for a dashboard, ask once a minute rather than once a second.';
comment on column memfold.dedup_stats.fold_rate is 'Share of observations that did not become an active memory of their own.';

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
from memfold.memory_counters as k
inner join memfold.memories as m on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
where k.observations >= 20 and k.independent * 5 <= k.observations;
comment on view memfold.runaway_memories is
'Memories repeated 20 times or more with at most one observation in five being independent: a loop upstream says the same
turn again and again.';

grant select on memfold.memory_audit, memfold.dedup_stats, memfold.runaway_memories to memfold_app, memfold_auditor;
grant execute on function memfold._confidence(
    double precision, double precision, bigint, double precision, double precision, double precision
) to memfold_app, memfold_auditor;
grant execute on function memfold._policy(text, text, text) to memfold_app, memfold_auditor;
