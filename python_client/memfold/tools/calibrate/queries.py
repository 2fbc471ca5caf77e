"""The statements of a calibration. Names are qualified, so they do not depend on search_path."""

GIVEN_PAIRS = """
select p.a, p.b, p.label, p.cosine, memfold.canonicalize(p.a, 'prose/1') as key_a,
    memfold.canonicalize(p.b, 'prose/1') as key_b, %(tenant_id)s::text as tenant_id
from rows from (
    pg_catalog.jsonb_to_recordset(%(pairs)s) as (a text, b text, label text, cosine double precision)
) with ordinality as p (a, b, label, cosine, place)
order by p.place
"""
DESCRIBE_PAIRS = """
select d.guard, d.features from memfold.describe_pairs(%(pairs)s, %(tenant_id)s) as d order by d.ordinal
"""
STORED_PAIRS = """
select l.content_a as a, l.content_b as b, l.label, (l.similarities ->> %(model)s)::double precision as cosine,
    memfold.canonicalize(l.content_a, 'prose/1') as key_a, memfold.canonicalize(l.content_b, 'prose/1') as key_b,
    coalesce(l.evidence, l.origin) as origin, l.tenant_id
from memfold.labelled_pairs as l
where (%(tenant_id)s::text is null or l.tenant_id = %(tenant_id)s) and l.similarities ? %(model)s
    and (%(weak)s or not l.weak)
order by l.tenant_id, l.pair_key
"""
PAIRS_LEFT_OUT = """
select pg_catalog.count(*) filter (where not l.similarities ? %(model)s) as without_cosine,
    pg_catalog.count(*) filter (where l.similarities ? %(model)s and l.weak and not %(weak)s) as weak
from memfold.labelled_pairs as l
where %(tenant_id)s::text is null or l.tenant_id = %(tenant_id)s
"""
ADD_CALIBRATION = """
insert into memfold.calibrations (
    model, merge_threshold, judge_threshold, method, score, score_sql, candidate_threshold, report, fingerprint
) values (
    %(model)s, %(merge_threshold)s, %(judge_threshold)s, %(method)s, %(score)s::jsonb, %(score_sql)s,
    %(candidate_threshold)s, %(report)s, %(fingerprint)s
) returning calibration_id
"""
EMBEDDING_MODEL = """
select m.dimensions, m.merge_threshold, m.judge_threshold, m.score_function, m.calibration_id
from memfold.embedding_models as m where m.model = %(model)s
"""
REPLAY_BUCKET = """
select r.memory_id, r.action, r.similarity, r.guard, r.reason, m.content, o.content
from memfold.replay_bucket(%(tenant_id)s, %(bucket_id)s, %(calibration_id)s, %(model)s, %(max_memories)s) as r
join memfold.memories as m on m.tenant_id = %(tenant_id)s and m.memory_id = r.memory_id
left join memfold.memories as o on o.tenant_id = m.tenant_id and o.memory_id = r.other_id
order by r.memory_id
"""
