"""The adapters' own statements, in addition to the functions that every client calls.

A framework's key for an item is a source turn (``_core.turn_id``): what was stored under it is read from the ledger.
"""

from __future__ import annotations

from typing import LiteralString

from memfold.client.queries import SET_TENANT

# The texts of a root r, and the last statement of a turn of k, in any bucket.
_TREE: LiteralString = """
    select r.memory_id, false as is_alias
    union all
    select a.memory_id, true from memfold.memories as a where a.tenant_id = %(tenant_id)s and a.root_id = r.memory_id
"""
_STATED_LAST: LiteralString = """
    select e.memory_id, e.content, e.memory_type, e.subject, e.predicate, e.object, e.metadata,
        e.metadata -> 'value' as value, (e.metadata ->> 'ttl')::double precision as ttl,
        coalesce(e.observed_at, e.recorded_at) as updated_at,
        pg_catalog.min(coalesce(e.observed_at, e.recorded_at)) over () as created_at
    from memfold.memory_sources as s
    join memfold.ledger as e on e.tenant_id = s.tenant_id and e.memory_id = s.memory_id
    where s.tenant_id = %(tenant_id)s and s.source_turn_id = k.turn and e.source_turn_ids @> array[k.turn]
        and e.observation and not e.withdrawn
    order by e.event_id desc limit 1"""

_IS_VALID: LiteralString = (
    "(c.valid_from <= pg_catalog.now()) is not false and (pg_catalog.now() < c.valid_until) is not false"
)

# What was stored under some turns, unless a person has rejected it since, or it has expired.
GET_ITEMS: LiteralString = (
    """
select k.turn, r.memory_id, r.bucket_id, r.subject, r.predicate, r.object, n.content, n.value, n.created_at, n.updated_at,
    null::double precision as score, n.ttl
from pg_catalog.unnest(%(turns)s::text[]) with ordinality as k (turn, place)
cross join lateral ("""
    + _STATED_LAST
    + """) as n
join memfold.memories as m on m.tenant_id = %(tenant_id)s and m.memory_id = n.memory_id
join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = coalesce(m.root_id, m.memory_id)
join memfold.memory_totals as c on c.tenant_id = r.tenant_id and c.memory_id = r.memory_id
where r.status in ('active', 'superseded') and """
    + _IS_VALID
    + """
order by k.place
"""
)

# Postpones the end of what some turns stated with a ttl, in minutes. It is stated again as of its last observation, so that
# neither its confidence nor its order changes, and in steps of a hundredth of the ttl, because each one adds a row to the
# ledger. What another key keeps for longer is not shortened.
PUT_OFF: LiteralString = (
    """
select i.action
from (
    select k.turn, r.bucket_id, c.last_seen, n.*, pg_catalog.now() + n.ttl * interval '1 minute' as valid_until
    from pg_catalog.unnest(%(turns)s::text[]) as k (turn)
    cross join lateral ("""  # noqa: S608 (literals of this file)
    + _STATED_LAST
    + """) as n
    join memfold.memories as m on m.tenant_id = %(tenant_id)s and m.memory_id = n.memory_id
    join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = coalesce(m.root_id, m.memory_id)
    join memfold.memory_totals as c on c.tenant_id = r.tenant_id and c.memory_id = r.memory_id
    where r.status = 'active' and c.valid_until > pg_catalog.now()
        and c.valid_until < pg_catalog.now() + n.ttl * interval '0.99 minutes'
    order by k.turn
    offset 0
) as d
cross join lateral memfold.ingest_memory(
    content => d.content, tenant_id => %(tenant_id)s, bucket_id => d.bucket_id, memory_type => d.memory_type,
    subject => d.subject, predicate => d.predicate, object => d.object, source_turn_ids => array[d.turn],
    metadata => d.metadata, observed_at => d.last_seen, valid_until => d.valid_until
) as i
"""
)

# Opens a transaction in which nobody else writes or compares what a turn states: of two concurrent puts of a key, the later
# one sees the other. There are only 256 such locks, because a batch has many turns.
OPEN_TURN: LiteralString = f"""
{SET_TENANT},
    pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(
        %(memfold_tenant)s::text, 1 + (pg_catalog.hashtext(%(turn)s::text) & 255)
    ))
"""
OPEN_TURNS: LiteralString = f"""
{SET_TENANT},
    (select pg_catalog.count(pg_catalog.pg_advisory_xact_lock(
        pg_catalog.hashtextextended(%(memfold_tenant)s::text, k.place)
    )) from (
        select distinct 1 + (pg_catalog.hashtext(t.turn) & 255) as place
        from pg_catalog.unnest(%(turns)s::text[]) as t (turn)
        order by place
        offset 0
    ) as k)
"""  # noqa: S608 (literals of memfold)

# Whether a turn has ever stated a memory other than i; CHANGED_TURNS does the same for many turns.
STATED_OTHERS: LiteralString = """
exists (
    select from memfold.memory_sources as s
    where s.tenant_id = %(tenant_id)s and s.source_turn_id = %(turn)s::text and s.memory_id <> i.memory_id
) as is_changed
"""

# The turns that have ever stated a memory other than the given one: usually there are none, and OTHERS_OF_TURN takes far
# longer to plan than this.
CHANGED_TURNS: LiteralString = """
select k.turn
from rows from (pg_catalog.unnest(%(turns)s::text[]), pg_catalog.unnest(%(memory_ids)s::uuid[])) as k (turn, memory_id)
where exists (
    select from memfold.memory_sources as s
    where s.tenant_id = %(tenant_id)s and s.source_turn_id = k.turn and s.memory_id <> k.memory_id
)
"""

# The active memories that a turn states apart from the given one; is_sole: nothing else states them, in this bucket.
OTHERS_OF_TURN: LiteralString = (
    """
select r.memory_id, r.bucket_id = %(bucket_id)s and not exists (
    select from ("""  # noqa: S608
    + _TREE
    + """) as t
    join memfold.ledger as e on e.tenant_id = %(tenant_id)s and e.memory_id = t.memory_id
    where e.observation and not e.withdrawn and e.source_turn_ids <> array[%(turn)s::text]) as is_sole
from (
    select distinct coalesce(m.root_id, m.memory_id) as memory_id
    from memfold.memory_sources as s
    join memfold.memories as m on m.tenant_id = s.tenant_id and m.memory_id = s.memory_id
    where s.tenant_id = %(tenant_id)s and s.source_turn_id = %(turn)s
) as o
join memfold.memories as r on r.tenant_id = %(tenant_id)s and r.memory_id = o.memory_id
where r.status = 'active' and r.memory_id <> %(memory_id)s
order by r.memory_id
"""
)

# One step in an index per bucket, no matter how many memories it has; texts without a hash have a separate index.
_BUCKETS: LiteralString = """
with recursive b (bucket_id) as (
    select %(lower)s::text collate "C"
    union all
    select n.bucket_id
    from b
    cross join lateral (
        select least(
            (select pg_catalog.min(m.bucket_id) from memfold.memories as m
            where m.tenant_id = %(tenant_id)s and m.content_hash is not null and m.bucket_id > b.bucket_id
                and (%(upper)s::text is null or m.bucket_id < %(upper)s::text)),
            (select pg_catalog.min(m.bucket_id) from memfold.memories as m
            where m.tenant_id = %(tenant_id)s and m.content_hash is null and m.bucket_id > b.bucket_id
                and (%(upper)s::text is null or m.bucket_id < %(upper)s::text))
        ) as bucket_id
    ) as n
    where n.bucket_id is not null
),
places as (
    select b.bucket_id from b
    where b.bucket_id <> '' and (b.bucket_id = %(lower)s::text or pg_catalog.starts_with(b.bucket_id, %(below)s::text))
)
"""
LIST_BUCKETS: LiteralString = (
    _BUCKETS
    + """
select p.bucket_id from places as p
where exists (
    select from memfold.memories as r
    join memfold.memory_totals as c on c.tenant_id = r.tenant_id and c.memory_id = r.memory_id
    where r.tenant_id = %(tenant_id)s and r.bucket_id = p.bucket_id and r.status = 'active' and """
    + _IS_VALID
    + """
)
order by p.bucket_id
"""
)

# The key under which a memory is shown: the first one that stated its own text, else that of an alias. Memories that were
# not stored through this framework have none.
_WITH_ITEM: LiteralString = (
    """
left join lateral (
    select e.turn
    from ("""  # noqa: S608
    + _TREE
    + """) as t
    cross join lateral (
        select e.event_id, s.turn
        from memfold.ledger as e
        cross join lateral pg_catalog.unnest(e.source_turn_ids) as s (turn)
        where e.tenant_id = %(tenant_id)s and e.memory_id = t.memory_id and e.observation and not e.withdrawn
            and pg_catalog.starts_with(s.turn, %(scheme)s::text)
        order by e.event_id
        limit 1
    ) as e
    order by t.is_alias, e.event_id
    limit 1
) as k on true
left join lateral ("""
    + _STATED_LAST
    + """) as n on true
where not exists (
    select
    from pg_catalog.jsonb_array_elements(%(filters)s::jsonb) as f (rule)
    cross join lateral (
        select n.value #> array(select pg_catalog.jsonb_array_elements_text(f.rule -> 'path')) as given,
            f.rule -> 'value' as wanted
    ) as v
    where case f.rule ->> 'op'
        when '$eq' then v.given = v.wanted
        when '$ne' then v.given is distinct from v.wanted
        when '$any' then v.given ?| array(select pg_catalog.jsonb_array_elements_text(v.wanted))
        else pg_catalog.jsonb_typeof(v.given) = pg_catalog.jsonb_typeof(v.wanted) and case f.rule ->> 'op'
            when '$gt' then v.given > v.wanted
            when '$gte' then v.given >= v.wanted
            when '$lt' then v.given < v.wanted
            when '$lte' then v.given <= v.wanted
        end
    end is not true
)
"""
)
_SHOWN: LiteralString = """
select k.turn, r.memory_id, r.bucket_id, r.subject, r.predicate, r.object, coalesce(n.content, r.content) as content,
    n.value, coalesce(n.created_at, r.created_at) as created_at, coalesce(n.updated_at, r.last_seen) as updated_at, r.score,
    n.ttl
"""

# The active memories of some buckets, most recently observed first.
LIST_ITEMS: LiteralString = (
    _BUCKETS  # noqa: S608
    + _SHOWN
    + """
from (
    select m.memory_id, m.bucket_id, m.subject, m.predicate, m.object, m.content, m.created_at, c.last_seen,
        null::double precision as score
    from places as p
    join memfold.memories as m on m.tenant_id = %(tenant_id)s and m.bucket_id = p.bucket_id and m.status = 'active'
    join memfold.memory_totals as c on c.tenant_id = m.tenant_id and c.memory_id = m.memory_id
    where """
    + _IS_VALID
    + """
    order by c.last_seen desc, m.memory_id desc
    -- in this order, and no further than the page asks for
    offset 0
) as r"""
    + _WITH_ITEM
    + """
order by r.last_seen desc, r.memory_id desc
limit %(max_items)s offset %(skipped)s
"""
)
# The memories of some buckets nearest to a vector: from each as many as the page may need.
FIND_ITEMS: LiteralString = (
    _BUCKETS  # noqa: S608
    + _SHOWN
    + """
from (
    select f.memory_id, p.bucket_id, f.subject, f.predicate, f.object, f.content, f.first_seen as created_at, f.last_seen,
        f.matched_similarity as score
    from places as p
    cross join lateral memfold.search_memories(
        query_embedding => %(query_embedding)s, embedding_model => %(embedding_model)s, tenant_id => %(tenant_id)s,
        bucket_id => p.bucket_id, max_results => %(max_results)s
    ) as f
) as r"""
    + _WITH_ITEM
    + """
order by r.score desc, r.memory_id desc
limit %(max_items)s offset %(skipped)s
"""
)
