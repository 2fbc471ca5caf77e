"""What the MCP server asks of the database, beside the functions that every client calls."""

# Whose login it is: as the role or the database is set up, else as the role is bound.
TENANTS_OF_LOGIN = """
select pg_catalog.current_setting('memfold.tenant_id', true) as tenant_id
where pg_catalog.current_setting('memfold.tenant_id', true) <> ''
union
select r.tenant_id from memfold.tenant_roles as r where r.role_name = session_user
"""

# Without vectors: by the share of the query's words that a memory has; the beginning of a word counts half.
RECALL_BY_WORDS = """
with query (words) as (
    select pg_catalog.tsvector_to_array(pg_catalog.to_tsvector('pg_catalog.simple', %(query)s::text))
)
select c.memory_id, c.content, c.memory_type, c.subject, c.predicate, c.object, f.score, c.confidence, c.repetition_count,
    '{}'::uuid[] as collapsed_ids
from query as q
cross join memfold.current_memories(
    tenant_id => %(tenant_id)s, bucket_id => %(bucket_id)s, as_of => %(as_of)s
) as c
cross join lateral pg_catalog.tsvector_to_array(pg_catalog.to_tsvector(
    'pg_catalog.simple', pg_catalog.concat_ws(' ', c.content, c.subject, c.predicate, c.object)
)) as t (words)
cross join lateral (
    select pg_catalog.avg(case
        when w.word = any(t.words) then 1.0
        when exists (
            select from pg_catalog.unnest(t.words) as o (word)
            where least(pg_catalog.length(o.word), pg_catalog.length(w.word)) >= 3
                and (pg_catalog.starts_with(o.word, w.word) or pg_catalog.starts_with(w.word, o.word))
        ) then 0.5
        else 0.0
    end)::double precision as score
    from pg_catalog.unnest(q.words) as w (word)
) as f
where f.score > 0
    and (%(subject)s::text is null
        or memfold.canonicalize(c.subject, 'prose/1') = memfold.canonicalize(coalesce((
            select l.name from memfold.links as l
            where l.tenant_id = %(tenant_id)s and l.bucket_id in (%(bucket_id)s, '*') and l.kind = 'subject'
                and l.alias = memfold.canonicalize(%(subject)s::text, 'prose/1')
            order by l.bucket_id = '*'
            limit 1
        ), %(subject)s::text), 'prose/1'))
order by f.score desc, c.confidence desc, c.valid_from desc, c.memory_id
limit %(max_results)s
"""

OPEN_QUESTIONS = """
select judgement_id, kind, subject, predicate, guard, similarity, created_at,
    case when member_ids is null then array[other_id, memory_id] else member_ids end as memory_ids,
    case when member_ids is null then array[other_content, content] else member_contents end as contents
from memfold.open_judgements
where tenant_id = %(tenant_id)s and bucket_id = %(bucket_id)s
order by kind <> 'review', created_at, judgement_id
limit %(max_results)s
"""

KIND_OF_QUESTION = """
select kind from memfold.open_judgements
where tenant_id = %(tenant_id)s and bucket_id = %(bucket_id)s and judgement_id = %(judgement_id)s
"""
