#!/usr/bin/env python3
"""Make ``docs/reference.md`` from a database in which memfold is installed.

    gen_reference.py DSN            write the page
    gen_reference.py DSN --check    exit 1, and say where, if the page is out of date

Signatures, columns, grants and meanings come from the catalog, the examples' outputs from running them, in
one transaction that is rolled back, for a tenant ``acme`` that must not exist yet. Needs a superuser.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

import rights

VOID = 2278
NUMBERS = {20, 21, 23, 700, 701, 1700}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

# Function by function, in the order of the page, which is the order in which the examples run.
PARTS: dict[str, dict[str, list[str]]] = {
    "Set up": {
        "register_embedding_model": [
            "select register_embedding_model('toy', 3, 0.92, 0.85)",
            "select model, dimensions, merge_threshold, judge_threshold from embedding_models",
        ],
        "create_vector_index": ["select create_vector_index('toy')"],
        "create_text_index": ["select create_text_index()"],
        "text_index_ddl": ["select text_index_ddl('english')"],
        "vector_index_ddl": [
            "select register_embedding_model('toy:2500', 2500)",
            "select vector_index_ddl('toy:2500')",
        ],
        "set_common_predicates": ["select set_common_predicates('*') > 100 as done"],
        "set_predicate": [
            "select set_predicate('lives_in', 'acme')",
            "select predicate, cardinality, conflict from predicates where tenant_id = 'acme'",
        ],
        "suggest_predicates": [],
        "suggest_links": [],
        "ask_links": [],
        "link_subject": [
            "select link_subject('Evelyn', 'Eve', 'acme') is not null as linked",
            "select bucket_id, kind, alias, name from links",
        ],
        "link_predicate": ["select link_predicate('resides in', 'lives_in', 'acme') is not null as linked"],
        "unlink_subject": ["select unlink_subject('Evelyn', 'acme')"],
        "unlink_predicate": ["select unlink_predicate('resides in', 'acme')"],
        "take_up_links": [],
        "set_policy": [
            "select bucket_id, canonicalizer, merge_threshold, conflict\n"
            "from set_policy('acme', 'snippets', canonicalizer => 'code', merge_threshold => 0.97)",
        ],
        "set_options": [
            "select bucket_id, touch, key_retention from set_options('acme', 'snippets', touch => true)",
        ],
    },
    "Ingest": {
        "ingest_memory": [
            "select action, tier, method, memory_id\n"
            "from ingest_memory('Alice has a cat.', 'acme', subject => 'Alice',\n"
            "    embedding => '[0.90, 0.10, 0.40]', embedding_model => 'toy', source_turn_ids => '{turn-1}')",
            "select action, tier, method, memory_id\n"
            "from ingest_memory('  alice has a CAT', 'acme', subject => 'Alice',\n"
            "    source_turn_ids => '{turn-8}')",
            "select action, tier, method, similarity, memory_id\n"
            "from ingest_memory('Alice owns a cat.', 'acme', subject => 'Alice',\n"
            "    embedding => '[0.88, 0.12, 0.41]', embedding_model => 'toy', source_turn_ids => '{turn-9}')",
            "select action, tier, method, judgement_id is not null as queued,\n"
            "    \"similar\" -> 0 -> 'similarity' as similarity, \"similar\" -> 0 -> 'guard' as guard\n"
            "from ingest_memory('Alice has no cat.', 'acme', subject => 'Alice',\n"
            "    embedding => '[0.90, 0.11, 0.40]', embedding_model => 'toy')",
        ],
        "ingest_memories": [
            "select ordinal, action, tier, method, sqlstate, detail\n"
            "from ingest_memories('[\n"
            '    {"content": "Dan plays chess.", "subject": "Dan", "source_turn_ids": ["turn-1"]},\n'
            '    {"content": "dan plays CHESS", "subject": "Dan", "source_turn_ids": ["turn-2"]},\n'
            '    {"contents": "Dan plays go."}]\', \'globex\')',
            "select ordinal, action, tier, method\n"
            'from ingest_memories(\'[{"content": "Eve plays chess.", "embedding_model": "toy"},'
            ' {"content": "Eve plays go."}]\',\n'
            "    'globex', embeddings => array['[0.1, 0.2, 0.9]', null]::vector[])",
        ],
        "preview_memory": [
            "select action, tier, method, memory_id, event_id\n"
            "from preview_memory('Alice has a cat!', 'acme', subject => 'Alice')",
        ],
        "known_memory": [
            "select memory_id, matched_id, status\n"
            "from known_memory('alice owns a cat', 'acme', subject => 'Alice')",
        ],
        "pending_embeddings": [
            "select action from ingest_memory('Alice has got a cat.', 'acme', subject => 'Alice')",
            "select memory_id, bucket_id, content from pending_embeddings('acme')",
        ],
        "embed_pending": ["select embed_pending('acme')"],
        "attach_embedding": [
            "select action, tier, method, similarity, memory_id\n"
            "from attach_embedding((select memory_id from pending_embeddings('acme')),\n"
            "    '[0.89, 0.10, 0.41]', 'toy', 'acme')",
        ],
    },
    "Read": {
        "profile": ["select content, predicate from profile('Alice', 'acme')"],
        "find_similar": [
            "select memory_id, similarity, content\n"
            "from find_similar('[0.9, 0.1, 0.4]', 'toy', 'acme', 'default', threshold => 0.9)",
        ],
        "current_memory": [
            "select c.content, c.status\n"
            "from memories as m, current_memory(m.memory_id, 'acme') as c\n"
            "where m.content = 'Alice owns a cat.'",
        ],
        "current_memories": [
            "select action\n"
            "from ingest_memory('Alice lives in Berlin.', 'acme', subject => 'Alice', predicate => 'lives_in',\n"
            "    object => 'Berlin', observed_at => '2025-03-01')",
            "select action\n"
            "from ingest_memory('Alice lives in Lyon.', 'acme', subject => 'Alice', predicate => 'lives_in',\n"
            "    object => 'Lyon', observed_at => '2025-09-01')",
            "select content, valid_from, valid_to from current_memories('acme', as_of => '2025-05-01')",
        ],
        "search_memories": [
            "select content, round(score::numeric, 3) as score, similarity, collapsed_count\n"
            "from search_memories('[0.9, 0.1, 0.4]', 'toy', 'acme', 'default', max_results => 3)",
            "select content, round(word_share::numeric, 3) as word_share, complete\n"
            "from search_memories(query => 'Which pets?', tenant_id => 'acme', max_results => 2)",
        ],
        "record_feedback": [
            "select f.* from memories as m, record_feedback(m.memory_id, true, 'acme') as f\n"
            "where m.content = 'Alice has a cat.'",
        ],
        "effective_confidence": [
            "select decay_rate from set_options('acme', 'notes', decay_rate => 0.01)",
            "select action from ingest_memory('Alice may move.', 'acme', 'notes', observed_at => '2025-01-01')",
            "select round(effective_confidence(memory_id, 'acme', '2025-03-02')::numeric, 3)\n"
            "from memories where content = 'Alice may move.'",
        ],
        "apply_decay": ["select decayed, remaining from apply_decay('acme')"],
        "explain_memory": [
            "select explain_memory(memory_id, 'acme')\n"
            "from known_memory('Alice has a cat.', 'acme', subject => 'Alice')",
        ],
    },
    "Judge": {
        "claim_judgements": [
            "select action\n"
            "from ingest_memory('Bob drinks tea.', 'acme', subject => 'Bob',\n"
            "    embedding => '[1.00, 0.00, 0.00]', embedding_model => 'toy')",
            "select action, judgement_id is not null as queued\n"
            "from ingest_memory('Bob drinks green tea.', 'acme', subject => 'Bob',\n"
            "    embedding => '[0.90, 0.43, 0.00]', embedding_model => 'toy')",
            "select kind, guard, attempts, memory ->> 'content' as newer, other ->> 'content' as older\n"
            "from claim_judgements('worker 1', tenant_id => 'acme')",
        ],
        "resolve_judgement": [
            "select r.*\n"
            "from open_judgements as j, resolve_judgement(j.judgement_id, 'refinement', confidence => 0.9,\n"
            "    reason => 'names the kind of tea', model => 'some-model', input_tokens => 412,\n"
            "    output_tokens => 38, cost => 0.00018, tenant_id => 'acme') as r\n"
            "where j.tenant_id = 'acme' and j.content = 'Bob drinks green tea.'",
        ],
        "fail_judgement": [
            "select fail_judgement(judgement_id, 'no JSON', worker => 'worker 1', tenant_id => 'acme')\n"
            "from open_judgements where tenant_id = 'acme'",
        ],
        "retry_judgements": ["select retry_judgements('acme')"],
    },
    "Manual actions": {
        "undo": [
            "select u.*\n"
            "from memory_events as e, undo(e.event_id, 'acme', 'he drinks both') as u\n"
            "where e.tenant_id = 'acme' and e.action = 'replaced'",
        ],
        "merge_memories": [
            "select r.action, r.tier, r.method\n"
            "from memories as a, memories as b, merge_memories(a.memory_id, b.memory_id, 'acme', 'it is') as r\n"
            "where a.content = 'Bob drinks green tea.' and b.content = 'Bob drinks tea.'",
        ],
        "supersede_memory": [
            "select count(ingest_memory(content, 'acme', subject => 'Carol'))\n"
            "from unnest('{Carol works from home.,Carol works in the office.}'::text[]) as c (content)",
            "select r.action, r.tier, r.method\n"
            "from memories as a, memories as b, supersede_memory(a.memory_id, b.memory_id, 'acme', 'she said') as r\n"
            "where a.content = 'Carol works from home.' and b.content = 'Carol works in the office.'",
        ],
        "update_memory": [
            "select r.action, r.tier, r.method\n"
            "from memories as m, update_memory(m.memory_id, 'Carol works in the old office.', tenant_id => 'acme') as r\n"
            "where m.content = 'Carol works in the office.'",
        ],
        "forget_memories": [
            "select action, content from forget_memories('acme', subject => 'Carol', predicate => null)",
        ],
        "reject_memory": [
            "select r.action, r.tier, r.method\n"
            "from memories as m, reject_memory(m.memory_id, 'acme', 'a joke') as r\n"
            "where m.content = 'Bob drinks tea.'",
            "select action, tier, method from ingest_memory('Bob drinks green tea', 'acme', subject => 'Bob')",
        ],
    },
    "Maintenance": {
        "consolidate": [
            "select on_ambiguous from set_policy('acme', 'trips', on_ambiguous => 'insert')",
            "select count(ingest_memory(t.content, 'acme', 'trips', subject => 'Dora', predicate => t.predicate,\n"
            "    embedding => t.embedding::vector, embedding_model => 'toy'))\n"
            "from (values ('Dora sails', 'sails', '[1, 0, 0]'), ('Dora goes sailing', 'hobby', '[0.95, 0.31, 0]'))\n"
            "    as t (content, predicate, embedding)",
            "select action, similarity, content, representative_content from consolidate('acme', 'trips')",
            "select count(*) as asked\n"
            "from consolidate('acme', 'trips', approval => 'person', dry_run => false)",
        ],
        "approve_run": [
            "select approve_run(run_id, tenant_id => 'acme') from runs\n"
            "where tenant_id = 'acme' and kind = 'consolidation'",
        ],
        "undo_run": [
            "select u.status, u.content from runs as r, undo_run(r.run_id, 'acme', 'too eager') as u\n"
            "where r.tenant_id = 'acme' and r.kind = 'consolidation'",
        ],
        "undo_actor": [
            "select status, count(*) from undo_actor(current_user, now() - interval '1 hour', 'acme')\n"
            "group by status order by status",
        ],
        "duplicate_pairs": ["select threshold, pairs from duplicate_pairs('acme', 'trips')"],
        "sweep_duplicates": ["select action, similarity, content from sweep_duplicates('acme', 'default')"],
        "clean_exact_duplicates": ["select content from clean_exact_duplicates('acme', 'default')"],
        "end_session": [
            "select count(ingest_memory(c.content, 'acme', 'talk', session_id => 's-1'))\n"
            "from unnest('{the gate is open,gate open now,the gate is open now}'::text[]) as c (content)",
            "select merged_groups, superseded_count, round(compression_ratio::numeric, 2) as compression_ratio, considered\n"
            "from end_session('s-1', 'acme', 'talk')",
        ],
        "prune_memories": [
            "select content, round(confidence::numeric, 3) as confidence, reason\n"
            "from prune_memories('acme', 'notes', max_confidence => 0.5)",
        ],
        "rehash_bucket": [],
        "ingest_plain_rows": ["select * from ingest_plain_rows('acme')"],
        "run_maintenance": ["select run_maintenance('acme') -> 'counts' as counts"],
        "run_maintenance_all": [],
        "tenants": ["select tenants()"],
    },
    "Calibrate": {
        "add_labelled_pair": [
            "select add_labelled_pair('Eve likes tea.', 'Eve enjoys tea.', 'duplicate', 'acme',\n"
            "    '{\"toy\": 0.97}') is not null as added",
        ],
        "add_labelled_pairs": [
            "select add_labelled_pairs('[\n"
            '    {"a": "Eve likes tea.", "b": "Eve hates tea.", "label": "contradiction"},\n'
            '    {"a": "Eve likes tea.", "b": "Eve likes Rome.", "label": "distinct"}]\', \'acme\')',
        ],
        "collect_pairs": [
            "select * from collect_pairs('acme', embedding_model => 'toy', min_age => '0 days')"
        ],
        "pairs_to_label": [
            "select content_a, content_b, label, evidence, similarity\nfrom pairs_to_label('acme', 'toy', max_results => 2)",
        ],
        "remove_labelled_pair": [
            "select remove_labelled_pair(pair_id, 'acme') from labelled_pairs where content_b = 'Eve likes Rome.'",
        ],
        "describe_pairs": [
            "select guard, features ->> 'shared' as shared\n"
            'from describe_pairs(\'[{"a": "Eve likes tea.", "b": "Eve hates tea.", "similarity": 0.8}]\', \'acme\')',
        ],
        "replay_bucket": [
            "select action, count(*) from replay_bucket('acme') group by 1 order by 1",
        ],
        "apply_calibration": [
            "insert into calibrations (model, merge_threshold, judge_threshold, report, fingerprint)\n"
            "values ('toy', 0.97, 0.8, '{}', sha256('')) returning method, merge_threshold, judge_threshold",
            "select apply_calibration(calibration_id) from calibrations",
        ],
        "calibrate_by_anchors": [
            "select register_embedding_model('new', 3)",
            "select merge_threshold, judge_threshold, report #> '{held_out,with_guard,merged_duplicates}' as merged\n"
            "from calibrate_by_anchors('new', (\n"
            "    select jsonb_agg(to_jsonb(p)) from (values\n"
            "        ('I like tea', 'I love tea', 'duplicate', 0.93, 0.97, false),\n"
            "        ('I have 2 cats', 'I have 3 cats', 'distinct', 0.9, 0.96, false),\n"
            "        ('I like tea', 'Tea is what I like', 'duplicate', 0.9, 0.98, true),\n"
            "        ('I like tea', 'I hate tea', 'distinct', 0.9, 0.98, true)\n"
            "    ) as p (a, b, label, cosine, similarity, held_out)))",
        ],
        "undo_calibration": [
            "select undo_calibration('toy')",
            "select model, calibration_id is null as undone, before -> 'merge_threshold' as merge_threshold\n"
            "from calibration_changes order by recorded_at",
        ],
    },
    "Change the embedding model": {
        "start_reembedding": [
            "select register_embedding_model('toy/2', 2)",
            "select start_reembedding('toy', 'toy/2', 'globex') is not null as started",
        ],
        "missing_embeddings": [
            "select content from missing_embeddings('toy', 'toy/2', tenant_id => 'acme') limit 2"
        ],
        "add_embeddings": [
            "select a.status\n"
            "from (select * from missing_embeddings('toy', 'toy/2', max_results => 1, tenant_id => 'acme')) as m,\n"
            "    add_embeddings(array[m.memory_id], array[m.content], array['[1, 0]'::vector], 'toy/2',\n"
            "        tenant_id => 'acme') as a",
        ],
        "reembed_status": [
            "select old_vectors, new_vectors, missing, pending from reembed_status('toy', 'toy/2', 'acme')",
        ],
        "end_reembedding": [
            "select end_reembedding(run_id, 'globex') from runs where kind = 'reembedding'",
        ],
        "replace_embedding_model": ["select replace_embedding_model('toy:2500', 'toy')"],
        "drop_embeddings": ["select dropped from drop_embeddings('toy:2500', tenant_id => 'acme')"],
        "unregister_embedding_model": ["select unregister_embedding_model('toy:2500')"],
    },
    "Check": {
        "check_invariants": ["select * from check_invariants('acme')"],
        "canonicalize": [
            "select canonicalize('  Owes  ME -5 € (10⁵ cents)!', 'prose/1')",
            "select canonicalize('C++', 'prose/1') as prose, canonicalize('C++', 'flat/1') as flat",
        ],
        "canonicalizer_selftest": [
            "select count(*) as checks, count(*) filter (where not ok) as failed\n"
            "from canonicalizer_selftest()",
        ],
        "derive_scope": [],
    },
    "Keep and forget": {
        "export_bucket": [
            "select action from ingest_memory('Eve takes the bus.', 'globex', 'eve', source_turn_ids => '{turn-1}')",
            "select action from ingest_memory('Eve TAKES the bus', 'globex', 'eve', source_turn_ids => '{turn-2}')",
            "select action from ingest_memory('Eve rides a bike.', 'globex', 'eve', source_turn_ids => '{turn-2}')",
            "select line ->> 'table' as \"table\", count(*)\n"
            "from export_bucket('globex', 'eve') as line group by 1 order by 1",
        ],
        "import_bucket": [],
        "erase_source": [
            "select * from erase_source('turn-1', 'globex', 'request 17')",
            "select content, status from memories where tenant_id = 'globex' and bucket_id = 'eve'",
            "select method, cause, reason, actor from memory_events\n"
            "where tenant_id = 'globex' and action = 'erased' and bucket_id = 'eve'",
        ],
        "erase_memory": [
            "select e.* from memories as m, erase_memory(m.memory_id, 'globex', 'request 18') as e\n"
            "where m.tenant_id = 'globex' and m.content = 'Eve rides a bike.'",
        ],
        "erase_bucket": ["select * from erase_bucket('globex', 'eve')"],
        "erase_tenant": ["select * from erase_tenant('globex', 'contract 4711 ended')"],
    },
    "Called by adopted tables": {
        "adopted_hash": ["select encode(adopted_hash('Alice has a cat.', 'prose/1'), 'hex')"],
        "adopted_claim": [],
        "adopted_repeat": [],
    },
}

VIEWS: dict[str, list[str]] = {
    "ledger": [
        "select action, tier, method, undone, is_undoable from ledger\n"
        "where tenant_id = 'acme' and tier > 1 and action <> 'escalated' order by event_id limit 4",
    ],
    "memory_audit": [
        "select content, status, repetition_count, independent_repetitions,\n"
        "    round(confidence::numeric, 3) as confidence\n"
        "from memory_audit where tenant_id = 'acme' order by memory_id",
    ],
    "memory_totals": [
        "select m.content, t.observations, t.independent\n"
        "from memory_totals as t\n"
        "join memories as m on m.tenant_id = t.tenant_id and m.memory_id = t.memory_id\n"
        "where t.tenant_id = 'acme' and t.observations > 1 order by t.memory_id",
    ],
    "metrics": ["select open_judgements, dead_judgements, pending_embeddings, plain_rows from metrics"],
    "dedup_stats": [
        "select active, merged, observations, inserted, tier_1_merges, tier_2_merges, escalated,\n"
        "    open_judgements, merge_rate, warning\n"
        "from dedup_stats where tenant_id = 'acme'",
    ],
    "open_judgements": [
        "select kind, status, similarity, guard, content, other_content, attempts, last_error\n"
        "from open_judgements where tenant_id = 'acme'",
    ],
    "judge_costs": [
        "select judgements, calls, input_tokens, output_tokens, cost, refinements, avoided_by_hash,\n"
        "    avoided_by_alias, avoided_by_vector\n"
        "from judge_costs where tenant_id = 'acme'",
    ],
    "runs_overview": [
        "select kind, status, waiting, merged, obsolete from runs_overview where tenant_id = 'acme' order by started_at",
    ],
    "runaway_memories": [
        "select count(ingest_memory('Alice has a cat.', 'acme', subject => 'Alice',\n"
        "    source_turn_ids => '{turn-1}'))\n"
        "from generate_series(1, 100)",
        "select content, repetition_count, independent_observations\n"
        "from runaway_memories where tenant_id = 'acme'",
    ],
}

# The schema is also made for later versions. Parts that this version neither writes nor reads are marked.
UNUSED: dict[str, set[str]] = {
    "judgements": {"member_ids"},
}
NOT_USED = "Not used by this version."

# The composite types that callers see.
RESULTS = {
    "batch_result", "ingest_result", "claimed_judgement", "resolution", "undone_memory", "found_memory", "decay_report",
    "erasure", "forgotten_memory", "profile_fact", "link_suggestion", "predicate_suggestion",
}  # fmt: skip

FUNCTIONS = """
select p.proname, pg_get_function_result(p.oid), obj_description(p.oid, 'pg_proc'),
    array(
        select row_to_json(a) from (
            select p.proargnames[n] as name, format_type(p.proargtypes[n - 1], null) as type,
                pg_get_function_arg_default(p.oid, n::integer) as value
            from generate_series(1, p.pronargs) as n order by n
        ) as a
    ),
    array(
        select x.grantee::regrole::text from aclexplode(p.proacl) as x
        where x.grantee <> p.proowner order by 1
    )
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace
order by p.oid
"""

RELATIONS = """
select c.relname, c.relkind,
    coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')),
    array(
        select row_to_json(x) from (
            select a.attname as name, format_type(a.atttypid, a.atttypmod) as type,
                a.attnotnull and c.relkind = 'r' as filled,
                a.attgenerated <> '' as generated, pg_get_expr(d.adbin, d.adrelid) as value,
                col_description(c.oid, a.attnum) as comment
            from pg_attribute as a
            left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            order by a.attnum
        ) as x
    ),
    array(
        select row_to_json(x) from (
            select i.indisprimary as first, pg_get_indexdef(i.indexrelid) as definition
            from pg_index as i where i.indrelid = c.oid and i.indisunique
            order by not i.indisprimary, i.indexrelid::regclass::text
        ) as x
    )
from pg_class as c
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'v', 'c')
order by c.oid
"""

HEAD = """# Reference

Generated by `tools/gen_reference.py` from the comments in the catalog; the outputs are real.
To change the page, change the comment and generate it again. Names are shown without their schema, `memfold`.

Every writing function checks that its `tenant_id` is the session's tenant (`memfold.tenant_id`) and raises
MF001 to MF003 if not ([errors](errors.md)); superusers may act for any tenant. A transaction that calls
one may fail with 40001 or 40P01: retry it.

Columns that this version neither reads nor writes are marked "Not used by this version".
"""


def plain(expression: str) -> str:
    """A default expression without the casts that the catalog adds."""
    bare = re.sub(r"::(?:double precision|timestamp with time zone|[a-z_]+)(?:\[\])?", "", expression)
    return (
        "null"
        if bare == "NULL"
        else re.sub(r"\b(?:pg_catalog|memfold|memfold_internal)\.(?=\w+\()", "", bare)
    )


def short(kind: str) -> str:
    """A type by its usual name."""
    return kind.replace("timestamp with time zone", "timestamptz")


def prose(comment: str | None) -> str:
    """A comment as Markdown, with its lines joined, except lines that are laid out in columns."""
    parts = []
    for paragraph in (comment or "").split("\n\n"):
        if re.search(r"^\S+ {2,}\S", paragraph):
            parts.append(f"```text\n{paragraph}\n```")
        else:
            parts.append(re.sub(r"([*<])", r"\\\1", " ".join(paragraph.split("\n"))))
    return "\n\n".join(parts)


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def printed(cursor: psycopg.Cursor[Any]) -> str:
    """A statement's result as psql prints it, with the server's own text of each value."""
    result = cursor.pgresult
    assert result is not None  # noqa: S101 (the statement was executed)
    names = [(result.fname(n) or b"").decode() for n in range(result.nfields)]
    rows = [
        [(result.get_value(row, n) or b"").decode() for n in range(result.nfields)]
        for row in range(result.ntuples)
    ]
    if names and {result.ftype(n) for n in range(result.nfields)} == {VOID}:
        return ""
    if len(names) == 1 and len(rows) > 1:
        return "\n".join(row[0] for row in rows)
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = [" | ".join(name.center(width) for name, width in zip(names, widths, strict=True))]
    lines.append("-+-".join("-" * width for width in widths))
    for row in rows:
        cells = [
            text.rjust(width) if result.ftype(n) in NUMBERS else text.ljust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(" | ".join(cells))
    framed = [f"-{line}-" if n == 1 else f" {line}".rstrip() for n, line in enumerate(lines)]
    return "\n".join([*framed, f"({len(rows)} row{'' if len(rows) == 1 else 's'})"])


def example(connection: psycopg.Connection[Any], statements: Sequence[str]) -> str:
    """Statements with their results."""
    shown = []
    for statement in statements:
        cursor = connection.execute(statement.encode())
        # an INSERT returns nothing
        output = printed(cursor) if cursor.description else ""
        shown.append(f"{statement};\n{output}".rstrip())
    return "```sql\n" + "\n\n".join(shown) + "\n```"


def function(row: Sequence[Any], connection: psycopg.Connection[Any], statements: Sequence[str]) -> str:
    """The section of one function."""
    name, result, comment, arguments, grantees = row
    listed = [
        f"    {one['name']} {short(one['type'])}"
        + (f" default {plain(one['value'])}" if one["value"] is not None else "")
        for one in arguments
    ]
    signature = f"{name}(\n" + ",\n".join(listed) + "\n)" if listed else f"{name}()"
    returns = (
        ""
        if result is None
        else " returns " + short(result).replace("TABLE(", "table (").replace("SETOF", "setof")
    )
    may = " and ".join(f"`{grantee}`" for grantee in grantees) or "only the owner and superusers"
    parts = [
        f"### {name}",
        f"```text\n{'call ' if result is None else ''}{signature}{returns}\n```",
        prose(comment),
        f"May call it: {may}.",
    ]
    if statements:
        parts.append(example(connection, statements))
    return "\n\n".join(parts)


def columns(relation: str, listed: Sequence[dict[str, Any]]) -> str:
    """The columns of a table, view or type."""
    unused = UNUSED.get(relation, set()) - {"*"}
    if missing := unused - {one["name"] for one in listed}:
        raise SystemExit(f"UNUSED names what {relation} does not have: {sorted(missing)}")
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for one in listed:
        kind = short(one["type"]) + (" not null" if one["filled"] else "")
        if one["generated"]:
            kind += ", generated"
        elif one["value"] is not None:
            kind += f" default {plain(one['value'])}"
        meaning = f"{prose(one['comment'])} {NOT_USED if one['name'] in unused else ''}".strip()
        lines.append(f"| `{one['name']}` | {cell(kind)} | {cell(meaning)} |")
    return "\n".join(lines)


def relation(row: Sequence[Any]) -> list[str]:
    """The section of a table, view or type, without examples."""
    name, _, comment, listed, keys = row
    meaning = f"{prose(comment)} {NOT_USED if '*' in UNUSED.get(name, set()) else ''}".strip()
    parts = [f"### {name}", meaning, columns(name, listed)]
    unique = []
    for key in keys:
        where = re.sub(r"^.*USING btree ", "", key["definition"])
        unique.append(("Primary key: " if key["first"] else "Unique: ") + f"`{where}`.")
    if unique:
        parts.append(" ".join(unique))
    return parts


def make(connection: psycopg.Connection[Any]) -> str:
    """The page."""
    taken = connection.execute("select 1 from memfold.memories where tenant_id = 'acme' limit 1").fetchone()
    if taken is not None:
        raise SystemExit("the tenant acme exists here: give another database")
    connection.execute(
        "select set_config('search_path', 'pg_catalog, memfold, ' || quote_ident(n.nspname), true),"
        " set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true)"
        " from pg_extension as e join pg_namespace as n on n.oid = e.extnamespace where e.extname = 'vector'"
    )
    functions = {row[0]: row for row in connection.execute(FUNCTIONS)}
    relations = list(connection.execute(RELATIONS))
    described = {name for part in PARTS.values() for name in part}
    if described != functions.keys():
        raise SystemExit(f"not both in the catalog and in PARTS: {sorted(described ^ functions.keys())}")

    page = [HEAD.rstrip(), rights.section(connection)]
    for title, part in PARTS.items():
        page.append(f"## {title}")
        page += [function(functions[name], connection, statements) for name, statements in part.items()]
    page.append("## What functions return")
    for row in relations:
        if row[0] in RESULTS:
            page += relation(row)
    page.append("## Views")
    for row in relations:
        if row[1] == "v":
            page += [*relation(row), example(connection, VIEWS[row[0]])]
    page.append("## Tables")
    page.append("Applications may read them, under row-level security, but write none of them.")
    for row in relations:
        if row[1] == "r":
            page += relation(row)
    return "\n\n".join(page) + "\n"


def comparable(page: str) -> list[str]:
    """A page without the parts that differ from run to run: ids, times, and the column widths that depend on them."""
    page = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", page)
    page = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00", "TIME", page)
    return [re.sub(r" +|-{2,}", lambda found: found.group()[0], line) for line in page.splitlines()]


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description="Make docs/reference.md from a database with memfold in it.")
    parser.add_argument("dsn", help="a database in which memfold is installed; nothing in it is changed")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    given = parser.parse_args()
    with psycopg.connect(given.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        page = make(connection)
        connection.rollback()
    if not given.check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    stored = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    differences = list(
        difflib.unified_diff(
            comparable(stored), comparable(page), "docs/reference.md", "the catalog", lineterm=""
        )
    )
    print("\n".join(differences) or "docs/reference.md is up to date")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
