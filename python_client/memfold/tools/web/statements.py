"""The statements of the pages: each reads a view or function of memfold, as the server's login."""

from __future__ import annotations

from collections.abc import Mapping
from typing import LiteralString

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

_QUESTION_ORDERS: dict[str, LiteralString] = {
    "oldest": "j.created_at",
    "newest": "j.created_at desc",
    "most similar": "j.similarity desc nulls last",
    "least similar": "j.similarity nulls last",
}
_QUESTIONS: LiteralString = """
select j.judgement_id, j.bucket_id, j.kind, j.similarity, j.guard, j.subject, j.predicate, j.content, j.other_content,
    pg_catalog.cardinality(j.member_ids) as members, j.created_at, pg_catalog.count(*) over () as total
from memfold.open_judgements as j
where j.tenant_id = %(tenant_id)s and j.status <> 'leased'
    and (%(bucket_id)s::text is null or j.bucket_id = %(bucket_id)s)
    and (%(kind)s::text is null or j.kind = %(kind)s)
    and pg_catalog.strpos(pg_catalog.lower(pg_catalog.concat_ws(' ', j.subject, j.predicate, j.content, j.other_content)),
        pg_catalog.lower(%(text)s)) > 0
order by """
QUESTIONS: Mapping[str, LiteralString] = {
    name: f"{_QUESTIONS}{order}, j.judgement_id\nlimit %(size)s offset %(skipped)s"
    for name, order in _QUESTION_ORDERS.items()
}

MEMORY = """
select * from memfold.memory_audit where tenant_id = %(tenant_id)s and memory_id = %(memory_id)s
"""
ALIASES = """
select memory_id, content, session_id, created_at from memfold.memories
where tenant_id = %(tenant_id)s and root_id = %(memory_id)s
order by memory_id
limit 200
"""
TEXTS = """
select memory_id, content, status from memfold.memories
where tenant_id = %(tenant_id)s and memory_id = any(%(memory_ids)s::uuid[])
"""
# The decision that made a new text take the place of an old one.
CORRECTED = """
select e.event_id from memfold.ledger as e
where e.tenant_id = %(tenant_id)s and e.target_id = %(memory_id)s and e.action = 'replaced' and not e.undone
order by e.event_id desc
limit 1
"""
# Intervals of all values of the memory's slot, if it has one.
INTERVALS = """
select i.memory_id, m.content, m.object, m.status, i.valid_from, i.valid_to
from memfold.memory_intervals as i
join memfold.memories as m on m.tenant_id = i.tenant_id and m.memory_id = i.memory_id
where i.tenant_id = %(tenant_id)s and (i.memory_id = %(memory_id)s or i.slot_key = (
    select o.slot_key from memfold.memory_intervals as o
    where o.tenant_id = %(tenant_id)s and o.memory_id = %(memory_id)s and o.slot_key is not null
    limit 1
))
order by i.valid_from, i.memory_id
limit 200
"""
STATEMENTS = """
select coalesce(m.root_id, m.memory_id) as memory_id, e.observed_at, coalesce(e.content, m.content) as content, e.session_id,
    e.source_turn_ids, e.origin, e.actor
from memfold.memories as m
join memfold.ledger as e on e.tenant_id = m.tenant_id and e.memory_id = m.memory_id
where m.tenant_id = %(tenant_id)s
    and (m.memory_id = any(%(memory_ids)s::uuid[]) or m.root_id = any(%(memory_ids)s::uuid[]))
    and e.observation and not e.withdrawn and e.observed_at is not null
order by e.observed_at desc, e.event_id desc
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

# By the names of the links in the table's head. Names ascend, figures and times descend.
_BUCKET_ORDERS: dict[str, LiteralString] = {
    "bucket": "b.bucket_id",
    "memories": "b.active desc, b.bucket_id",
    "seen": "b.last_seen desc nulls last, b.bucket_id",
    "questions": "questions desc, b.bucket_id",
}
_BUCKETS: LiteralString = """
select b.*, coalesce(q.questions, 0) as questions, pg_catalog.count(*) over () as total
from (
    select m.bucket_id, pg_catalog.count(*) filter (where m.status = 'active') as active,
        pg_catalog.count(*) filter (where m.status <> 'active') as former,
        pg_catalog.max(greatest(c.last_seen, c.alias_last_seen)) as last_seen
    from memfold.memories as m
    left join memfold.memory_counters as c on c.tenant_id = m.tenant_id and c.memory_id = m.memory_id
    where m.tenant_id = %(tenant_id)s and m.root_id is null
        and pg_catalog.strpos(pg_catalog.lower(m.bucket_id), pg_catalog.lower(%(part)s)) > 0
    group by m.bucket_id
) as b
left join (
    select j.bucket_id, pg_catalog.count(*) as questions
    from memfold.judgements as j
    where j.tenant_id = %(tenant_id)s and j.status in ('open', 'leased')
    group by j.bucket_id
) as q on q.bucket_id = b.bucket_id
order by """
BUCKETS: Mapping[str, LiteralString] = {
    name: _BUCKETS + order + "\nlimit %(size)s offset %(skipped)s" for name, order in _BUCKET_ORDERS.items()
}
MEMORIES = """
select a.memory_id, a.content, a.memory_type, a.subject, a.predicate, a.status, a.repetition_count + 1 as statements,
    a.aliases, a.last_seen, pg_catalog.count(*) over () as total
from memfold.memory_audit as a
where a.tenant_id = %(tenant_id)s and a.bucket_id = %(bucket_id)s and a.root_id is null
    and a.status = any(%(statuses)s::text[])
    and pg_catalog.strpos(pg_catalog.lower(pg_catalog.concat_ws(' ', a.subject, a.predicate, a.content)),
        pg_catalog.lower(%(text)s)) > 0
order by pg_catalog.lower(a.subject) nulls last, a.subject, a.status <> 'active', a.predicate nulls last,
    a.last_seen desc nulls last, a.memory_id
limit %(size)s offset %(skipped)s
"""
# One search covers at most a thousand buckets.
RECENT_BUCKETS = """
select m.bucket_id
from memfold.memories as m
where m.tenant_id = %(tenant_id)s
group by m.bucket_id
order by pg_catalog.max(m.created_at) desc, m.bucket_id
limit 1001
"""

# The day before the first one, in UTC. The first day begins with the questions that were open at its end.
_BEFORE = "((pg_catalog.now() at time zone 'UTC')::date - %(days)s::integer)"
# Not from judge_costs, which reads the whole ledger: event ids begin with a time, so that the primary key finds the rows of
# these days. Only parts of a question about a cluster have a cluster_id.
DAYS = f"""
select d.day, coalesce(e.observations, 0) as observations, coalesce(e.known, 0) as known,
    coalesce(e.observations - e.known, 0) as new, coalesce(e.tier_2, 0) as tier_2, coalesce(e.tier_3, 0) as tier_3,
    coalesce(j.asked, 0) as asked, coalesce(j.answered, 0) as answered,
    (pg_catalog.sum(coalesce(j.asked, 0) - coalesce(j.closed, 0)) over (order by d.day))::bigint as open,
    coalesce(j.calls, 0)::bigint as calls, coalesce(j.input_tokens, 0)::bigint as input_tokens,
    coalesce(j.output_tokens, 0)::bigint as output_tokens, coalesce(j.cost, 0) as cost
from (select {_BEFORE} + n.n as day from pg_catalog.generate_series(0, %(days)s::integer) as n (n)) as d
left join (
    select (o.recorded_at at time zone 'UTC')::date as day, pg_catalog.count(*) filter (where o.observation) as observations,
        pg_catalog.count(*) filter (where o.action = 'merged' and o.tier = 1 and o.observation) as known,
        pg_catalog.count(*) filter (where o.action in ('merged', 'replaced') and o.tier = 2) as tier_2,
        pg_catalog.count(*) filter (where o.action in ('merged', 'replaced') and o.tier = 3) as tier_3
    from memfold.memory_events as o
    where o.tenant_id = %(tenant_id)s and (%(bucket_id)s::text is null or o.bucket_id = %(bucket_id)s)
        and o.event_id >= (pg_catalog.lpad(pg_catalog.to_hex(
            pg_catalog.date_part('epoch', {_BEFORE})::bigint * 1000), 12, '0') || pg_catalog.repeat('0', 20))::uuid
    group by 1
) as e on e.day = d.day
left join (
    select greatest((t.at at time zone 'UTC')::date, {_BEFORE}) as day,
        pg_catalog.count(*) filter (where t.is_asked) as asked,
        pg_catalog.count(*) filter (where not t.is_asked) as closed,
        pg_catalog.count(*) filter (where not t.is_asked and q.status = 'done') as answered,
        pg_catalog.sum(q.attempts) filter (
            where t.is_last and coalesce(q.model, q.input_tokens::text, q.cost::text) is not null
        ) as calls,
        pg_catalog.sum(q.input_tokens) filter (where t.is_last) as input_tokens,
        pg_catalog.sum(q.output_tokens) filter (where t.is_last) as output_tokens,
        pg_catalog.sum(q.cost) filter (where t.is_last) as cost
    from memfold.judgements as q
    cross join lateral (
        values (q.created_at, true, q.resolved_at is null), (q.resolved_at, false, true)
    ) as t (at, is_asked, is_last)
    where q.tenant_id = %(tenant_id)s and (%(bucket_id)s::text is null or q.bucket_id = %(bucket_id)s)
        and q.cluster_id is null and t.at is not null
        and (q.resolved_at is null or q.resolved_at >= {_BEFORE}::timestamp at time zone 'UTC')
    group by 1
) as j on j.day = d.day
order by d.day
offset 1
"""  # noqa: S608 (of this file)
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

# Newest first; the model's row names the one in force.
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
