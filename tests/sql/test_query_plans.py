"""Statements of the hot path use the right index, even in tables that were never analyzed.

A database that is being filled has no statistics until autovacuum runs. Until then several indexes look as good as the
right one, and the wrong one reads the bucket: a replay takes as long as there are memories. Counted are the pages that
a call looks at, which no busy machine changes (entries would not do: those that an index skips are not counted).
"""

from __future__ import annotations

import json
import re
from statistics import median

import pytest

from tests.support.memories import ingest, model, vector
from tests.support.queries import DB, one
from tests.support.server_statistics import FILL, never_analyze, read
from tests.support.servers import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.new_database

CALLS = {
    "a replay": "select * from memfold.ingest_memory('Fact {even}', 'acme')",
    "a replay of a slot's value": "select * from memfold.ingest_memory('Fact {odd}', 'acme', subject => 'Subject {odd}',"
    " predicate => 'lives_in')",
    "a replay by the general way": "select * from memfold.ingest_memory('Fact {even}', 'acme', origin => 'recalled')",
    "a new fact": "select * from memfold.ingest_memory('New {even}', 'acme')",
    "known_memory": "select * from memfold.known_memory('Fact {even}', 'acme')",
    "a batch": "select * from memfold.ingest_memories('{batch}')",
}
CURRENT = (
    "select v.* from memfold.memories as m, memfold_internal._current_value('acme', '{}', m.scope_key) as v"
    " where m.tenant_id = 'acme' and m.memory_id = %s"
)
# A call writes to about ten indexes. A wrong index costs about a page per row.
MOST = 300


@pytest.mark.parametrize(
    ("rows", "warm"),
    # With the larger number the index on the hash has a level more than the others, which makes it look worse.
    [(7_000, False), (15_000, False), (15_000, True)],
    ids=["small", "large", "planned_when_empty"],
)
def test_before_the_first_analyze(db: DB, rows: int, warm: bool) -> None:
    never_analyze(db)
    db.execute("select memfold.set_predicate('lives_in', 'acme')")

    def call(name: str, turn: int) -> tuple[int, int]:
        """As in an application: the same session, a different fact each time."""
        even = 2 * turn + 2
        batch = json.dumps([{"content": f"Fact {even}"}, {"content": f"New, too, {even}"}])
        query = CALLS[name].format(even=even, odd=even + 1, batch=batch)
        with db.transaction():
            before = read(db)
            db.execute(query.encode())
            after = read(db)
        return after[0] - before[0], after[1] - before[1]

    first = 0
    if warm:
        first = 10
        for turn in range(first):
            for name in CALLS:
                call(name, turn)
    db.execute(FILL.replace("%(rows)s", str(rows)).replace("1, ", f"{2 * first + 2}, ", 1).encode())
    for name in CALLS:
        for turn in range(first, first + 8):  # from the sixth on the plan may be generic
            pages, scans = call(name, turn)
            assert pages <= MOST, f"{name} reads {pages} pages"
            assert scans > 0, f"{name} looks for the hash by another index"
    memory_id = ingest(db, "Fact 101", subject="Subject 101", predicate="lives_in").memory_id
    for _ in range(8):
        with db.transaction():
            before = read(db)
            row = db.execute(CURRENT, [memory_id]).fetchone()
            pages = read(db)[0] - before[0]
        assert row is not None
        assert row[1] == "town 101"
        assert pages <= MOST, f"_current_value reads {pages} pages"
    assert db.execute(
        "select count(*) from pg_class where oid = 'memfold.memories'::regclass and reltuples < 0"
    ).fetchone() == (1,), "nobody has analyzed it"


def test_a_run_is_approved_before_the_first_analyze(db: DB) -> None:
    """A call of approve_run reads in proportion to its pairs, not to how many others wait."""
    never_analyze(db)
    runs = {}
    for tenant, rows in (("large", 8_000), ("small", 200)):
        db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        db.execute(FILL.replace("%(rows)s", str(rows)).replace("'acme'", f"'{tenant}'").encode())
        runs[tenant] = one(
            db,
            "insert into memfold.runs (tenant_id, bucket_id, kind, arguments, actor)"
            " values (%s, 'default', 'consolidation', '{}', 'test') returning run_id",
            tenant,
        )
        db.execute(
            "insert into memfold.judgements"
            " (tenant_id, bucket_id, scope_key, kind, memory_id, other_id, similarity, guard, run_id)"
            " select m.tenant_id, m.bucket_id, m.scope_key, 'consolidation', m.memory_id, m.other_id, 0.9, '{}', %s"
            " from (select m.*, lag(m.memory_id) over w as other_id, row_number() over w as place"
            " from memfold.memories as m where m.tenant_id = %s window w as (order by m.memory_id)) as m"
            " where m.place %% 2 = 0",
            [runs[tenant], tenant],
        )

    def pages(tenant: str) -> int:
        db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        with db.transaction():
            before = read(db)[0]
            db.execute("select memfold.approve_run(%s, max_operations => 10)", [runs[tenant]])
            return read(db)[0] - before

    # In turn: what other databases do makes calls plan again, some in succession, and that reads pages, too.
    # The large one is first: a session that had planned for the small one would go on so until the first ANALYZE.
    large, small = zip(*[(pages("large"), pages("small")) for _ in range(8)], strict=True)
    assert db.execute(
        "select tenant_id, count(*) from memfold.memories where root_id is not null group by tenant_id order by 1"
    ).fetchall() == [("large", 80), ("small", 80)]
    # counting open judgements reads their index: a page for a few hundred
    assert median(a - b for a, b in zip(large[1:], small[1:], strict=True)) <= 200, (large, small)
    assert median(small[1:]) <= 10_000, "both read the whole table"


@pytest.mark.one_server
def test_plans_that_look_expensive_are_not_compiled(db: DB) -> None:
    """Arrays of unknown size make a plan look as expensive as one over millions of rows: JIT took seconds a call."""
    found = db.execute(
        "select proname from pg_proc where pronamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        " and 'jit=off' = any(proconfig)"
    ).fetchall()
    assert {name for (name,) in found} >= {"end_session", "duplicate_pairs", "suggest_links"}


@pytest.mark.one_server
def test_functions_that_switch_sequential_scans_off_switch_jit_off(db: DB) -> None:
    """Before PostgreSQL 18 a plan that needs such a scan costs 10^10: each call was compiled."""
    found = db.execute(
        "select count(*), array_agg(proname::text) filter (where not 'jit=off' = any(proconfig)) from pg_proc"
        " where pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and 'enable_seqscan=off' = any(proconfig)"
    ).fetchone()
    assert found is not None
    assert found[0] > 20
    assert found[1] is None


# Memories with a ledger row each, and of every other one the next one as its duplicate.
TENANTS = """
with texts as materialized (
    select 'tenant ' || t as tenant, memfold_internal._new_id() as id, n
    from generate_series(%(first)s::integer, %(last)s) as t, generate_series(1, %(rows)s) as n
),
memories as (
    insert into memfold.memories (tenant_id, memory_id, content, canonicalizer, key_fields)
    select tenant, id, 'Fact ' || n, 'prose/1', 'type,subject,predicate' from texts
),
events as (
    insert into memfold.memory_events (tenant_id, bucket_id, action, memory_id, observation, observed_at, actor)
    select tenant, 'default', 'inserted', id, true, now(), 'me' from texts
)
insert into memfold.memory_events (tenant_id, event_id, bucket_id, action, tier, method, memory_id, target_id, actor)
select tenant, memfold_internal._new_id(), 'default', 'merged', 3, 'person', next_id, id, 'me'
from (select tenant, id, n, lead(id) over (partition by tenant order by id) as next_id from texts) as t
where n %% 2 = 1 and next_id is not null
"""


def pages_of(db: DB, query: str) -> int:
    """Pages that a statement looks at."""
    with db.transaction():
        before = read(db)[0]
        db.execute(query.encode())
        return read(db)[0] - before


def wait_for_older_transactions(db: DB) -> None:
    xid = db.execute("select pg_current_xact_id()::text").fetchone()
    assert xid is not None
    older = (
        "select from pg_stat_activity where pid <> pg_backend_pid()"
        " and greatest(age(backend_xid), age(backend_xmin)) > age(%s::xid)"
    )
    until(lambda: not db.execute(older, xid).fetchall(), "older transactions end")


def test_a_large_tenant_among_small_ones_is_not_read_for_each_memory(db: DB) -> None:
    """Statistics of small tenants promise one row per tenant: any index that begins with the tenant looks as good."""
    never_analyze(db)
    db.execute(TENANTS, {"first": 1, "last": 300, "rows": 1})
    db.execute("analyze")
    rows = 800
    db.execute(TENANTS, {"first": 0, "last": 0, "rows": rows})
    db.execute("select set_config('memfold.tenant_id', 'tenant 0', false)")
    for name, query in {
        "derive_scope": "select memfold.derive_scope(array(select memory_id from memfold.memories"
        " where tenant_id = 'tenant 0' and bucket_id = 'default' and content_hash is not null), 'tenant 0')",
        "known_at": "select * from memfold.current_memories('tenant 0', known_at => clock_timestamp())",
    }.items():
        a_memory = pages_of(db, query) / rows
        assert a_memory < 350, f"{name} reads {a_memory:.0f} pages a memory"
    assert db.execute("select count(*) from memfold.memories where root_id is not null").fetchone() == (
        rows / 2,
    )


def test_words_are_looked_up_by_memory_before_the_first_analyze(db: DB) -> None:
    never_analyze(db)
    db.execute("select memfold.set_policy('acme', lexical_threshold => 0.8, scope => 'bucket')")
    for n in range(7):  # planned when the tables are almost empty
        ingest(db, f"Something else {n}")
    rows = 600
    db.execute(FILL.replace("%(rows)s", str(rows)).encode())
    db.execute(
        "insert into memfold.memory_tokens select m.tenant_id, m.bucket_id, 'fact', m.memory_id from memfold.memories as m"
        " where m.content like 'Fact %'"
    )
    pages = pages_of(db, "select * from memfold.preview_memory('fact of the matter', 'acme')")
    assert pages < rows, f"{pages} pages for {rows} memories with one word"


def test_the_last_statement_of_a_memory_is_found_without_the_ledger(db: DB) -> None:
    db.execute(TENANTS, {"first": 0, "last": 0, "rows": 1000})
    db.execute("analyze")
    db.execute("select set_config('memfold.tenant_id', 'tenant 0', false)")
    for _ in range(7):
        pages = pages_of(
            db,
            "select memfold_internal._last_statement('tenant 0', m.memory_id) from memfold.memories as m"
            " where m.tenant_id = 'tenant 0' and m.bucket_id = 'default' and m.content_hash is not null limit 1",
        )
        assert pages < 60, f"{pages} pages for a memory with one ledger row"


def test_a_call_about_one_memory_does_not_read_a_large_tenant_among_small_ones(db: DB) -> None:
    never_analyze(db)
    db.execute(TENANTS, {"first": 1, "last": 300, "rows": 1})
    db.execute("analyze")
    rows = 3000
    calls = {
        "explain_memory": "select memfold.explain_memory('{memory}', '{tenant}')",
        "undo": "select memfold.undo('{event}', '{tenant}')",
        "erase_memory": "select memfold.erase_memory('{memory}', '{tenant}')",
    }
    # Old versions of rows are visited as long as any transaction might see them, even one of a test in another database.
    # If one was open, another large tenant is tried: a wrong plan reads that one, too.
    for number in (0, -1, -2):
        wait_for_older_transactions(db)
        tenant = f"tenant {number}"
        db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        db.execute(TENANTS, {"first": number, "last": number, "rows": rows})
        db.execute("update memfold.memories set is_ingested = true where tenant_id = %s", [tenant])
        db.execute(
            "select memfold.derive_scope(array(select memory_id from memfold.memories where tenant_id = %(t)s), %(t)s)",
            {"t": tenant},
        )
        merges = db.execute(
            "select event_id, target_id from memfold.memory_events"
            " where tenant_id = %s and action = 'merged' and tier = 3 order by event_id limit 30",
            [tenant],
        ).fetchall()
        # the first call plans
        pages = {
            name: min(
                pages_of(db, call.format(event=event, memory=memory, tenant=tenant))
                for event, memory in (merges.pop() for _ in range(3))
            )
            for name, call in calls.items()
        }
        if max(pages.values()) < rows:
            break
    assert max(pages.values()) < rows, f"of a tenant with {rows} memories: {pages}"


def test_maintenance_reads_open_runs_alone(db: DB) -> None:
    db.execute(
        "insert into memfold.runs (tenant_id, bucket_id, kind, status, started_at, actor)"
        " select 'acme', 'default', 'sweep', case n when 7 then 'open' else 'done' end, now() - interval '1 hour', 'me'"
        " from generate_series(1, 3000) as n"
    )
    db.execute("analyze memfold.runs")
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    with db.transaction():
        report = db.execute("select memfold.run_maintenance('acme', '{runs}')").fetchone()
        rows = db.execute(
            "select coalesce(sum(pg_stat_get_xact_tuples_returned(i.oid)), 0)::bigint from pg_class as i"
            " where i.oid = 'memfold.runs'::regclass"
            " or i.oid in (select indexrelid from pg_index where indrelid = 'memfold.runs'::regclass)"
        ).fetchone()
    assert report is not None
    assert report[0]["counts"] == {"runs": 1}
    assert rows is not None
    assert rows[0] < 1000, f"{rows[0]} rows of 3,000"


READ = """
select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint from pg_class as c
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'i')
"""


@pytest.mark.parametrize("policy", [{}, {"on_merge": "replace"}, {"on_refinement": "merge"}])
def test_a_paraphrase_does_not_read_its_tenant(db: DB, policy: dict[str, str]) -> None:
    """Rows and index entries, of all tables."""
    model(db)
    db.execute("select set_config('memfold.tenant_id', 'tenant 0', false)")
    db.execute(TENANTS, {"first": 0, "last": 0, "rows": 3000})
    db.execute("update memfold.memories set is_ingested = true")
    db.execute("analyze")
    db.execute("select memfold.set_predicate('lives_in', 'tenant 0')")
    for name, value in policy.items():
        db.execute(f"select memfold.set_policy('tenant 0', {name} => %s)".encode(), [value])
    for subject, cosine in (("Ann", 0.99), ("Ben", 0.99), ("Cem", 0.9)):
        given = {"tenant_id": "tenant 0", "subject": subject}
        ingest(db, f"{subject} lives in Lisbon.", **given, **vector(1.0))
        with db.transaction():
            before = one(db, READ)
            ingest(db, f"{subject} resides in Lisbon.", **given, **vector(cosine))
            for place in ("Lisbon", "Porto", "Lisbon"):
                ingest(db, f"{subject}'s town is {place}.", **given, predicate="lives_in", object=place)
            read_rows = one(db, READ) - before
        assert read_rows < 1000, f"{read_rows} rows of a tenant with 3,000 memories"


def test_no_key_is_compared_with_what_may_leak() -> None:
    """Row-level security treats coalesce() and the cast of a column as leaky, and uses no index for such a condition."""
    compared = re.compile(r"\.\w*(?:_id|_key|_at) (?:=|<|>|<=|>=) (?:coalesce\(|\w+\.\w+::)")
    files = list((ROOT / "sql" / "functions").rglob("*.sql"))
    assert len(files) > 100
    assert [
        (file.name, line.strip())
        for file in files
        for line in file.read_text().splitlines()
        if compared.search(line)
    ] == []
