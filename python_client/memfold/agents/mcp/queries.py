"""The MCP server's own statements, in addition to the functions that every client calls."""

# Leaves out questions about names: their answer is a rule of the bucket, and their memories are only examples.
OPEN_QUESTIONS = """
select judgement_id, kind, subject, predicate, guard, similarity, created_at,
    case when member_ids is null then array[other_id, memory_id] else member_ids end as memory_ids,
    case when member_ids is null then array[other_content, content] else member_contents end as contents
from memfold.open_judgements
where tenant_id = %(tenant_id)s and bucket_id = %(bucket_id)s and kind <> 'identity'
order by kind not in ('review', 'cardinality'), created_at, judgement_id
limit %(max_results)s
"""

# Of the memories that a call made current: those that have not been forgotten since.
CURRENT_OF = """
select memory_id, content from memfold.memories
where tenant_id = %(tenant_id)s and memory_id = any(%(memory_ids)s) and status = 'active'
order by memory_id
"""

KIND_OF_QUESTION = """
select kind from memfold.open_judgements
where tenant_id = %(tenant_id)s and bucket_id = %(bucket_id)s and judgement_id = %(judgement_id)s
"""
