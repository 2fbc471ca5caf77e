"""The MCP server's own statements, in addition to the functions that every client calls."""

# Without questions whether two names mean the same: their answer is a rule of the bucket, and they only show examples.
OPEN_QUESTIONS = """
select judgement_id, kind, subject, predicate, guard, similarity, created_at,
    case when member_ids is null then array[other_id, memory_id] else member_ids end as memory_ids,
    case when member_ids is null then array[other_content, content] else member_contents end as contents
from memfold.open_judgements
where tenant_id = %(tenant_id)s and bucket_id = %(bucket_id)s and kind <> 'identity'
order by kind not in ('review', 'cardinality'), created_at, judgement_id
limit %(max_results)s
"""

# Of memories that became current by a call: those that have not been forgotten since.
CURRENT_OF = """
select memory_id, content from memfold.memories
where tenant_id = %(tenant_id)s and memory_id = any(%(memory_ids)s) and status = 'active'
order by memory_id
"""

KIND_OF_QUESTION = """
select kind from memfold.open_judgements
where tenant_id = %(tenant_id)s and bucket_id = %(bucket_id)s and judgement_id = %(judgement_id)s
"""
