"""The statements of the pages: each reads a view or function of memfold, as the server's login."""

# A login that sees all tenants chooses among them: the index is read from one tenant to the next.
TENANTS = """
with recursive t (tenant_id) as (
    (select m.tenant_id from memfold.memories as m order by m.tenant_id limit 1)
    union all
    select (select m.tenant_id from memfold.memories as m where m.tenant_id > t.tenant_id order by m.tenant_id limit 1)
    from t
    where t.tenant_id is not null
)
select t.tenant_id from t where t.tenant_id is not null
"""

_QUESTION = """
select j.judgement_id, j.tenant_id, j.bucket_id, j.kind, j.status, j.similarity, j.guard, j.attempts, j.member_ids, j.link, (
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'memory_id', a.memory_id, 'content', a.content, 'memory_type', a.memory_type, 'subject', a.subject,
            'predicate', a.predicate, 'object', a.object, 'first_seen', a.first_seen, 'last_seen', a.last_seen,
            'observations', a.repetition_count + 1, 'session_id', a.session_id) order by i.place)
        from pg_catalog.unnest(coalesce(j.member_ids, j.pair)) with ordinality as i (id, place)
        join memfold.memory_audit as a on a.tenant_id = j.tenant_id and a.memory_id = i.id
    ) as sides
"""

# Questions for a person come first. Questions that a judge is working on are left to it.
NEXT_QUESTION = (
    _QUESTION  # noqa: S608 (of this file)
    + """
from (select o.*, array[o.other_id, o.memory_id] as pair from memfold.open_judgements as o) as j
where j.tenant_id = %(tenant_id)s and j.status <> 'leased'
    and (%(bucket_id)s::text is null or j.bucket_id = %(bucket_id)s)
    and (%(after)s::uuid is null or (j.kind <> 'review', j.judgement_id) > (
        select a.kind <> 'review', a.judgement_id from memfold.judgements as a
        where a.tenant_id = %(tenant_id)s and a.judgement_id = %(after)s
    ))
order by j.kind <> 'review', j.judgement_id
limit 1
"""
)
QUESTION = (
    _QUESTION  # noqa: S608 (of this file)
    + """
from (
    select o.judgement_id, o.tenant_id, o.bucket_id, o.kind, o.status, o.similarity, o.guard, o.attempts, o.member_ids,
        o.link - array['key', 'told', 'name_told'] || (
            select pg_catalog.jsonb_object_agg(s.side, array(
                select m.content
                from pg_catalog.jsonb_array_elements_text(o.link -> s.side) with ordinality as i (id, place)
                join memfold.memories as m on m.tenant_id = o.tenant_id and m.memory_id = i.id::uuid
                order by i.place
            ))
            from pg_catalog.unnest(array['told', 'name_told']) as s (side)
        ) as link,
        case when o.link is null then array[o.other_id, o.memory_id]
            else array[(o.link #>> '{name_told,0}')::uuid, (o.link #>> '{told,0}')::uuid] end as pair
    from memfold.judgements as o
) as j
where j.tenant_id = %(tenant_id)s and j.judgement_id = %(judgement_id)s
"""
)

MEMORY = """
select * from memfold.memory_audit where tenant_id = %(tenant_id)s and memory_id = %(memory_id)s
"""
ALIASES = """
select memory_id, content, session_id, created_at from memfold.memories
where tenant_id = %(tenant_id)s and root_id = %(memory_id)s
order by memory_id
limit 200
"""
INTERVALS = """
select valid_from, valid_to from memfold.memory_intervals
where tenant_id = %(tenant_id)s and memory_id = %(memory_id)s
order by valid_from
limit 200
"""
_TEXTS = """array(
    select m.memory_id from memfold.memories as m
    where m.tenant_id = %(tenant_id)s and (m.memory_id = %(memory_id)s or m.root_id = %(memory_id)s)
)"""
SOURCES = f"""
select e.session_id, e.origin, pg_catalog.count(distinct e.event_id) as observations,
    pg_catalog.min(e.observed_at) as first_seen, pg_catalog.max(e.observed_at) as last_seen,
    pg_catalog.array_agg(distinct t.turn) filter (where t.turn is not null) as turns
from memfold.memory_events as e
left join lateral pg_catalog.unnest(e.source_turn_ids) as t (turn) on true
where e.tenant_id = %(tenant_id)s and e.memory_id = any({_TEXTS}) and e.observation
group by e.session_id, e.origin
order by last_seen desc
limit 100
"""  # noqa: S608 (of this file)
_LEDGER = """
select e.event_id, e.recorded_at, e.action, e.tier, e.method, e.similarity, e.guard, e.verdict, e.reason, e.actor, e.run_id,
    e.undoes, e.undone, e.memory_id, e.target_id, coalesce(e.content, m.content) as content,
    t.content as target_content, e.is_undoable
from memfold.ledger as e
left join memfold.memories as m on m.tenant_id = e.tenant_id and m.memory_id = e.memory_id
left join memfold.memories as t on t.tenant_id = e.tenant_id and t.memory_id = e.target_id
where e.tenant_id = %(tenant_id)s
"""
LEDGER = (
    _LEDGER
    + f"""and (e.memory_id = any({_TEXTS}) or e.target_id = any({_TEXTS}))
order by e.event_id desc
limit 200
"""
)

COSTS = """
select *, avoided_by_hash + avoided_by_alias + avoided_by_vector as avoided
from memfold.judge_costs
where tenant_id = %(tenant_id)s
order by day desc
limit 30
"""
RUNAWAY = """
select * from memfold.runaway_memories
where tenant_id = %(tenant_id)s and (%(bucket_id)s::text is null or bucket_id = %(bucket_id)s)
order by repetition_count desc
limit 50
"""

RUNS = """
select * from memfold.runs_overview where tenant_id = %(tenant_id)s order by run_id desc limit 50
"""
RUN = """
select * from memfold.runs_overview where tenant_id = %(tenant_id)s and run_id = %(run_id)s
"""
RUN_EVENTS = (
    _LEDGER
    + """and e.run_id = %(run_id)s
order by e.event_id
limit 200
"""
)
RUN_QUESTIONS = (
    _QUESTION  # noqa: S608 (of this file)
    + """
from (select o.*, array[o.other_id, o.memory_id] as pair from memfold.open_judgements as o) as j
where j.tenant_id = %(tenant_id)s and j.judgement_id = any(array(
    select w.judgement_id from memfold.judgements as w
    where w.tenant_id = %(tenant_id)s and w.run_id = %(run_id)s and w.status in ('open', 'leased', 'dead')
    order by w.judgement_id
    limit 100
))
order by j.judgement_id
"""
)

# The newest; in force is the one that its model's row names.
CALIBRATIONS = """
select c.calibration_id, c.model, c.method, c.score is not null as is_fitted, c.merge_threshold, c.judge_threshold,
    c.candidate_threshold, c.created_at, c.created_by, m.model is not null as is_in_force
from memfold.calibrations as c
left join memfold.embedding_models as m on m.model = c.model and m.calibration_id = c.calibration_id
where %(calibration_id)s::uuid is null or c.calibration_id = %(calibration_id)s
order by c.calibration_id desc
limit 100
"""
CALIBRATION_REPORT = """
select report from memfold.calibrations where calibration_id = %(calibration_id)s
"""
