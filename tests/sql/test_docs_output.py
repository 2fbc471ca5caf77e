"""What the pages print below a statement is what a server prints: the columns, and the rows where a story leads to them.

A story has the statements that come before a block of a page; then the block is run, and what each of its statements prints
is compared. Ids, times and what psql adds are left out. (README.md and docs/client.md: tests/install/test_readme.py;
docs/reference.md: test_reference.py; commands: tests/client/test_docs_commands.py.)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Target
from tests.support import servers
from tests.support.docs_pages import ANN, ELSEWHERE, PAGES, RULED, blocks, parts, run_story
from tests.support.queries import DB

sys.path.insert(0, str(servers.ROOT / "demo"))
import make_vectors

pytestmark = pytest.mark.one_server

# From another server, or of a version that is shown as text.
NO_COLUMNS = ("select explain_memory",)


def test_columns_of_the_pages_are_those_of_the_server(db: DB) -> None:
    wrong, count = [], 0
    for page in PAGES:
        for block in blocks(page, "sql"):
            for statement, printed in parts(block):
                if len(printed) < 2 or not RULED.fullmatch(printed[1].strip() or "x"):
                    continue
                if any(word in statement for word in (*ELSEWHERE, *NO_COLUMNS)):
                    continue
                query = re.sub(r"(?<![:\w]):(?:'\w+'|[a-z_]+)(?!\w)", "null", statement.rstrip("; \n"))
                try:
                    with db.transaction(force_rollback=True):
                        db.execute("set local memfold.tenant_id = 'acme'")
                        done = db.execute(re.sub(r"'01a2\w*…?'", "gen_random_uuid()", query).encode())
                        names = [column.name for column in done.description or ()]
                except psycopg.Error:
                    continue  # of an empty database; test_docs_code.py says which errors are accepted
                count += 1
                if [name.strip() for name in printed[0].split("|")] != names:
                    wrong.append((page.name, statement, printed[0], names))
    assert wrong == []
    assert count > 40


TOY = "select register_embedding_model('toy', 3, 0.92, 0.85);"
DATA = servers.ROOT / "tests" / "data"
REAL = make_vectors.load_vectors(DATA / "paraphrases.npz")


def real(content: str) -> str:
    """The vector of a text, as a literal."""
    return f"'{json.dumps([float(x) for x in REAL[content]])}'"


# Seven memories of two facts, as tests/sql/test_search.py has them, and variables of psql.
COFFEE = "".join(
    [
        "select register_embedding_model('all-MiniLM-L6-v2', 384);"
        "select set_policy('acme', preset => 'store_and_load'); select set_policy('acme', on_ambiguous => 'insert');",
        *(
            f"select ingest_memory($${row['content']}$$, 'acme', embedding => {real(row['content'])},"
            " embedding_model => 'all-MiniLM-L6-v2');"
            for row in map(json.loads, (DATA / "paraphrases.jsonl").read_text().splitlines())
            if row["kind"] in ("flat white", "pour-over")
        ),
        f"\nselect {real('What coffee does the user like?')} as query \\gset\n",
        f"select {real('User hates coffee, especially flat white.')} as hates \\gset\n",
    ]
)
# The page, how a block of it begins, and what came before. ``TOY``: a model of three numbers.
STORIES = [
    (
        "rules.md", "select set_policy('acme', 'robot'",
        "select set_policy('acme', 'robot', preset => 'robotics');"
        "select ingest_memory('grip force 12.5N works for cups', 'acme', 'robot');",
    ),
    (
        "rules.md", "-- 'Deploys are manual.'", TOY
        + """
        select ingest_memory('Deploys are manual.', 'acme', observed_at => '2025-01-10', embedding => '[0.9, 0.1, 0.4]',
            embedding_model => 'toy');
        select ingest_memory('Deploys run by themselves.', 'acme', observed_at => '2025-03-01',
            embedding => '[0.7, 0.4, 0.4]', embedding_model => 'toy');
        """,
    ),
    ("rules.md", "select action from ingest_memory('Alice lives in Lyon.'", ""),
    ("model-your-data.md", "select set_predicate('lives_in', '*')", ""),
    ("forgetting.md", "select r.action from (values ('Paris')", "select set_predicate('lives_in', 'acme');"),
    ("recall.md", "select ingest_memory('Ann works at VW'", "select set_predicate('works_at', 'docs');"),
    (
        "maintenance.md", "select cluster, round(similarity", TOY
        + """
        select ingest_memory('User uses Vim', 'acme', predicate => 'uses', embedding => '[1, 0, 0]',
            embedding_model => 'toy');
        select ingest_memory('User''s editor is Vim', 'acme', predicate => 'editor', embedding => '[0.94, 0.3412, 0]',
            embedding_model => 'toy');
        select ingest_memory('User edits 3 files in Vim', 'acme', predicate => 'edits', embedding => '[0.87, 0.25, 0.425]',
            embedding_model => 'toy');
        """,
    ),
    (
        "maintenance.md", "select approve_run(:'run_id'", "@2"
        + "select run_id from consolidate('acme', 'default', dry_run => false, approval => 'person') limit 1 \\gset\n",
    ),
    ("maintenance.md", "select status, content from undo_run", "@2" + "select approve_run(:'run_id', tenant_id => 'acme');"),
    ("maintenance.md", "select undo_run(:'run_id', tenant_id", "@2" + ""),
    (
        "maintenance.md", "select * from duplicate_pairs", TOY
        + """
        select set_policy('acme', 'old', merge_threshold => 1, judge_threshold => 1);
        select ingest_memory('User likes tea', 'acme', 'old', embedding => '[1, 0, 0]',
            embedding_model => 'toy');
        select ingest_memory('User likes 2 teas', 'acme', 'old', embedding => '[0.96, 0.28, 0]',
            embedding_model => 'toy');
        select ingest_memory('The user likes tea', 'acme', 'old', embedding => '[0.951, -0.2, 0.2359]',
            embedding_model => 'toy');
        select set_policy('acme', 'old', merge_threshold => 0.92, judge_threshold => 0.85);
        """,
    ),
    (
        "maintenance.md", "select content from clean_exact_duplicates",
        "select set_policy('acme', 'off', dedup => 'off');"
        "select ingest_memory('Grip_force = 12.5N.', 'acme', 'off');"
        "select ingest_memory('grip_force = 12.5N', 'acme', 'off');",
    ),
    (
        "maintenance.md", "select link_subject('Georg'",
        "select ingest_memory(content, 'acme', subject => subject)"
        " from unnest(array['Georg Maier', 'Georg']) as subject, unnest(array['plays chess', 'has a dog']) as content;",
    ),
    (
        "judge.md", "select ask_links('acme')",
        "select ingest_memory(content, 'acme', subject => subject) from (values ('Georg', 'Georg plays chess'),"
        " ('Georg', 'Georg has a dog'), ('Georg', 'is tall'), ('Georg Maier', 'Georg Maier plays chess'),"
        " ('Georg Maier', 'Georg Maier has a dog'), ('Georg Maier', 'is tall')) as facts (subject, content);",
    ),
    (
        "judge.md", "select judgement_id, kind, guard, content", TOY
        + """
        select set_policy('acme', 'care', on_ambiguous => 'review');
        select ingest_memory('Dana takes 20 mg.', 'acme', 'care', embedding => '[1, 0, 0]', embedding_model => 'toy');
        select ingest_memory('Dana takes 40 mg.', 'acme', 'care', embedding => '[1, 0.01, 0]', embedding_model => 'toy');
        select ingest_memory('Erik is allergic to nuts.', 'acme', 'care', embedding => '[0, 1, 0]',
            embedding_model => 'toy');
        select ingest_memory('Erik is allergic to hazelnuts and walnuts.', 'acme', 'care', embedding => '[0, 0.9, 0.43]',
            embedding_model => 'toy');
        """,
    ),
    (
        "judge.md", "select judgement_id, tenant_id, guard", TOY
        + """
        select ingest_memory('Ines has a dog.', 'acme', embedding => '[1, 0, 0]', embedding_model => 'toy');
        select ingest_memory('Ines has no dog.', 'acme', embedding => '[1, 0.01, 0]', embedding_model => 'toy');
        """,
    ),
    ("recall.md", "select content, round(score::numeric, 3) as score, round(similarity", COFFEE),
    ("recall.md", "select ingest_memory('User hates coffee", "@2"),
    ("recall.md", "select * from record_feedback", "@2select memory_id from memories limit 1 \\gset\n"),
    ("recall.md", "select * from apply_decay", "@2select set_options('acme', decay_rate => 0.01);"),
    (
        "recall.md", "select content, round(score::numeric, 3) as score, round(word_share", ANN,
    ),
    ("recall.md", "select bucket_id, content, collapsed_count", ANN),
    (
        "recall.md", "select set_options('acme', decay_rate", TOY
        + "select ingest_memory('User loves coffee, especially flat white.', 'acme');",
    ),
    (
        "maintenance.md", "select content, confidence, reason from prune_memories",
        "select set_policy('acme', 'notes', weights => '{1,0,0}');"
        "select ingest_memory('User may like jazz', 'acme', 'notes', source_confidence => 0.2, observed_at => '2025-01-01');"
        "select ingest_memory('User likes jazz', 'acme', 'notes');",
    ),
    ("faults.md", "select tenant_id, content, repetition_count", "select count(ingest_memory('The user said hello', 'acme',"
        " source_turn_ids => '{t1}', session_id => 's', idempotency_key => n::text)) from generate_series(1, 60) as n;"),
    ("operations.md", "set role memfold_app", ""),
    (
        "operations.md", "select explain_memory(memory_id", TOY
        + """
        select ingest_memory('Alice has a cat.', 'acme', subject => 'Alice', embedding => '[0.9, 0.1, 0.4]',
            embedding_model => 'toy');
        select ingest_memory('  alice has a CAT', 'acme', subject => 'Alice');
        select ingest_memory('Alice owns a cat.', 'acme', subject => 'Alice', embedding => '[0.88, 0.12, 0.41]',
            embedding_model => 'toy');
        select ingest_memory('Alice has no cat.', 'acme', subject => 'Alice', embedding => '[0.90, 0.11, 0.40]',
            embedding_model => 'toy');
        """,
    ),
    ("faults.md", "select t.tenant_id, i.*", "select ingest_memory('User likes tea', 'acme');"),
    ("faults.md", "select count(*) as overdue", ""),
    ("faults.md", "select * from memfold.check_invariants('acme')", "select ingest_memory('User likes tea', 'acme');"),
]  # fmt: skip
# Goes on in the database of the block before.
CONTINUED = "@2"


def stories() -> Iterator[list[tuple[str, str, str]]]:
    """Blocks that are run one after the other in one database."""
    story: list[tuple[str, str, str]] = []
    for page, begin, before in STORIES:
        if story and not before.startswith(CONTINUED):
            yield story
            story = []
        story.append((page, begin, before.removeprefix(CONTINUED)))
    yield story


@pytest.mark.parametrize("story", list(stories()), ids=lambda story: f"{story[0][0]}:{story[0][1][:30]}")
def test_rows_of_the_pages_are_those_of_the_server(
    dsn: str, target: Target, story: list[tuple[str, str, str]]
) -> None:
    run_story(dsn, target.cluster.bindir, story)
