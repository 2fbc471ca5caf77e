"""Maintenance: rows of a plain INSERT, one call for what is due, from the command line and from pg_cron."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from memfold.tools.cli import main
from tests.support import servers
from tests.support.maintenance import at, run_maintenance
from tests.support.memories import check, counters, ingest, model, vector
from tests.support.queries import DB, Connect


def plainly(db: DB, *texts: str, **columns: Any) -> None:
    columns = {"tenant_id": "acme", **columns}
    names = ", ".join([*columns, "content"])
    values = ", ".join(["%s"] * (len(columns) + 1))
    for text in texts:
        db.execute(
            f"insert into memfold.memories ({names}) values ({values})".encode(), [*columns.values(), text]
        )


def adopt(db: DB, *arguments: Any) -> int:
    row = db.execute(
        f"select ingested from memfold.ingest_plain_rows('acme'{', %s' * len(arguments)})".encode(),
        list(arguments),
    ).fetchone()
    assert row is not None
    return int(row[0])


# Rows of a plain INSERT -------------------------------------------------------------------------------------------


def test_a_plain_row_that_was_asked_about(db: DB) -> None:
    """Its vector came before maintenance, so the ledger has its similar memories before the row itself."""
    model(db)
    ingest(db, "User likes tea", **vector(1.0))
    plainly(db, "User likes green tea")
    row = db.execute(
        "select (attach_embedding(memory_id, %s, 'm', 'acme')).action from memories where not is_ingested",
        [vector(0.9)["embedding"]],
    ).fetchone()
    assert row == ("escalated",)
    assert adopt(db) == 1
    assert db.execute("select distinct status from memories").fetchall() == [("active",)]
    check(db)


def test_plain_rows(db: DB) -> None:
    ingest(db, "Alice has a cat.")
    assert adopt(db) == 0
    plainly(db, "Bob has a dog.", "Carol has a cow.")
    plainly(db, "Dave has a duck.", bucket_id="other")
    assert adopt(db, "other") == 1
    assert adopt(db, None, 1) == 1
    assert adopt(db) == 1
    assert adopt(db) == 0
    assert db.execute("select action, method, content from memory_events order by 3").fetchall() == [
        ("inserted", None, "Alice has a cat."),
        ("inserted", "plain", "Bob has a dog."),
        ("inserted", "plain", "Carol has a cow."),
        ("inserted", "plain", "Dave has a duck."),
    ]
    assert db.execute("select distinct observations from memory_totals").fetchall() == [(1,)]
    check(db)
    found = ingest(db, "bob has a dog")
    assert found.action == "merged"
    assert counters(db, found.memory_id)["observations"] == 2
    check(db)


def test_a_plain_row_that_ingest_met_first(db: DB) -> None:
    plainly(db, "Bob has a dog.")
    assert ingest(db, "Bob has a dog.").action == "merged"
    before = db.execute("select count(*) from memory_events").fetchone()
    assert adopt(db) == 1
    assert db.execute("select count(*) from memory_events").fetchone() == before
    assert adopt(db) == 0
    check(db)


def test_words_of_a_plain_row(db: DB) -> None:
    db.execute("select set_policy('acme', 'default', lexical_threshold => 0.7)")
    plainly(db, "Bob has a brown dog.")
    adopt(db)
    assert [row[0] for row in db.execute("select token from memory_tokens order by 1").fetchall()] == [
        "bob", "brown", "dog", "has",
    ]  # fmt: skip


def test_a_plain_row_by_the_rules_of_before(db: DB, connect: Connect) -> None:
    """Its transaction had not ended when the bucket was rehashed: it is brought under the current rules."""
    ingest(db, "I use C")
    late = connect()
    late.execute("begin")
    plainly(late, "I use C++")
    db.execute("call rehash_bucket('acme', 'default', 'flat')")
    late.execute("commit")
    assert adopt(db) == 1
    assert db.execute("select content, status, canonicalizer from memories order by 1").fetchall() == [
        ("I use C", "active", "flat/1"),
        ("I use C++", "merged", None),
    ]
    check(db)


@pytest.mark.parametrize("busy", ["a", "b"])
def test_a_plain_row_while_the_bucket_is_busy(db: DB, connect: Connect, busy: str) -> None:
    """It waits briefly for one bucket, holding no lock; a busy bucket is left for the next call."""
    for bucket in ("a", "b", "c"):
        plainly(db, f"one of {bucket}", bucket_id=bucket)
    holder = connect()
    holder.execute("begin")
    ingest(holder, "something new", bucket_id=busy)
    # more than one call, where a call's time is over before it comes to the third
    found = []
    for _ in range(20):
        found.append(db.execute("select ingested, busy from memfold.ingest_plain_rows('acme')").fetchone())
        if db.execute("select count(*) from memories where not is_ingested").fetchone() == (1,):
            break
    assert db.execute("select bucket_id from memories where not is_ingested").fetchall() == [(busy,)]
    assert sum(row[0] for row in found if row) == 2
    assert db.execute("select ingested, busy from memfold.ingest_plain_rows('acme')").fetchone() == (0, 1)
    holder.execute("commit")
    assert db.execute("select ingested, busy from memfold.ingest_plain_rows('acme')").fetchone() == (1, 0)
    check(db)


def test_a_plain_row_whose_root_is_busy(db: DB, connect: Connect) -> None:
    """A restatement of a memory holds its row, and no lock on the bucket."""
    plainly(db, "Bob has a dog.")
    ingest(db, "Bob has a dog.")
    plainly(db, "Carol has a cow.", bucket_id="other")
    holder = connect()
    holder.execute("begin")
    ingest(holder, "Bob has a dog.")
    assert db.execute(
        "select ingested, busy from memfold.ingest_plain_rows('acme', 'default')"
    ).fetchone() == (0, 1)
    assert adopt(db, "other") == 1
    holder.execute("commit")
    assert adopt(db) == 1
    check(db)


@pytest.mark.parametrize("rows", [0, 100_001])
def test_plain_rows_out_of_range(db: DB, rows: int) -> None:
    with pytest.raises(psycopg.Error) as error:
        adopt(db, None, rows)
    assert error.value.sqlstate == "MF022"


@pytest.mark.new_database
def test_nothing_is_read_completely_without_need(db: DB) -> None:
    """With nothing to find, it reads a few pages, no matter how many memories there are."""
    db.execute(
        "insert into memories (tenant_id, content, canonicalizer, key_fields, is_ingested)"
        " select 'acme', 'Fact ' || n, 'prose/1', 'type', true from generate_series(1, 5000) as n"
    )
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    read = "select pg_stat_get_xact_blocks_fetched('memfold.memories'::regclass)"
    with db.transaction():
        before = db.execute(read.encode()).fetchone()
        assert adopt(db) == 0
        after = db.execute(read.encode()).fetchone()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] <= 5


# One call ---------------------------------------------------------------------------------------------------------


def test_maintenance(db: DB) -> None:
    plainly(db, "Bob has a dog.")
    report = run_maintenance(db)
    assert report["counts"]["plain"] == 1
    assert report["errors"] == {}
    assert report["busy"] == []
    assert set(report["ms"]) == {"plain", "decay", "syntheses", "keys", "runs", "embed", "links", "cycles"}
    assert report["left"] == ["plain"]
    assert run_maintenance(db)["left"] == []
    rows = db.execute(
        "select kind, status, bucket_id, report - 'after' from runs order by run_id limit 1"
    ).fetchall()
    assert rows == [("maintenance", "done", "*", report)]
    check(db)


def test_one_failing_task_does_not_stop_the_others(db: DB, run: Callable[..., Result]) -> None:
    plainly(db, "Bob has a dog.")
    db.execute(
        "create or replace function memfold_internal._fall_back_dead(p_tenant_id text)"
        " returns bigint language plpgsql as $$ begin raise 'broken'; end $$"
    )
    report = run_maintenance(db)
    assert report["errors"] == {"syntheses": "P0001: broken"}
    assert report["counts"]["plain"] == 1
    assert db.execute("select status from runs where kind = 'maintenance'").fetchall() == [("failed",)]
    check(db)
    result = run("--tenant", "acme")
    assert (result.exit_code, "1 task failed" in result.stderr) == (1, True)


def keys(db: DB) -> list[str]:
    return [
        row[0] for row in db.execute("select idempotency_key from idempotency_keys order by 1").fetchall()
    ]


def test_maintenance_reports_are_deleted_after_a_month(db: DB) -> None:
    """Its own rows and those of decay, 100 a call, not those of runs that can be undone, nor another tenant's."""
    for tenant in ("acme", "globex"):
        db.execute(
            "insert into runs (tenant_id, bucket_id, kind, status, started_at, actor)"
            " select %s, '*', kind, 'done', now() - days * interval '1 day', 'x'"
            " from unnest('{maintenance,decay,consolidation}'::text[]) as kind,"
            " unnest(array_fill(31, '{120}') || 29) as days",
            [tenant],
        )

    def left() -> dict[tuple[str, str], int]:
        rows = db.execute("select tenant_id, kind, count(*) from runs group by 1, 2").fetchall()
        return {(str(tenant), str(kind)): int(str(number)) for tenant, kind, number in rows}

    for number, decays in ((22, 21), (3, 1), (4, 1)):
        db.execute("select run_maintenance('acme', '{runs}')")
        assert left() == {
            ("acme", "maintenance"): number,
            ("acme", "decay"): decays,
            ("acme", "consolidation"): 121,
            ("globex", "maintenance"): 121,
            ("globex", "decay"): 121,
            ("globex", "consolidation"): 121,
        }


def test_idempotency_keys_expire(db: DB) -> None:
    """After the bucket's key_retention, 30 days by default. After that the same key is a new call."""
    db.execute("select set_options('acme', 'long', key_retention => '1 year')")
    db.execute("select set_options('acme', 'short', key_retention => '1 hour')")
    ages = {"new": "29 days", "old": "31 days"}
    for bucket in ("default", "long", "short"):
        for age, interval in ages.items():
            ingest(db, "User likes tea", bucket_id=bucket, idempotency_key=f"{bucket} {age}")
            db.execute(
                "update idempotency_keys set recorded_at = now() - %s::interval where idempotency_key = %s",
                [interval, f"{bucket} {age}"],
            )
    ingest(db, "User likes tea", bucket_id="short", idempotency_key="short now")
    # what keeps the rows of an imported table from being counted twice
    ingest(db, "User likes tea", idempotency_key="import:public.facts:[1]")
    db.execute(
        "update idempotency_keys set recorded_at = now() - interval '3 years' where idempotency_key like 'import:%'"
    )
    assert run_maintenance(db, "keys")["counts"] == {"keys": 3}
    assert keys(db) == ["default new", "import:public.facts:[1]", "long new", "long old", "short now"]
    report = run_maintenance(db)
    assert report["counts"]["keys"] == 0
    assert "keys" not in report["left"]
    observations = "select sum(observations) from memory_totals"
    assert db.execute(observations).fetchone() == (8,)
    ingest(db, "User likes tea", idempotency_key="default new")
    assert db.execute(observations).fetchone() == (8,)
    ingest(db, "User likes tea", idempotency_key="default old")
    assert db.execute(observations).fetchone() == (9,)
    check(db)


def test_expiring_keys_is_bounded(db: DB) -> None:
    """5,000 per call; those of a bucket that keeps them longer are looked at once per turn."""
    db.execute("select set_options('acme', 'long', key_retention => '1 year')")
    event = ingest(db, "User likes tea").event_id
    for bucket, number in (("long", 6000), ("default", 5500)):
        db.execute(
            "insert into idempotency_keys (tenant_id, bucket_id, idempotency_key, event_id, recorded_at)"
            " select 'acme', %s, 'k' || n, %s, now() - interval '50 days' + n * interval '1 second'"
            " from generate_series(1, %s) as n",
            [bucket, event, number],
        )
    done = []
    for _ in range(4):
        report = run_maintenance(db, "keys")
        done.append(report["counts"]["keys"])
        if report["left"] == []:
            break
    assert sum(done) == 5500
    assert max(done) <= 5000
    assert run_maintenance(db, "keys")["counts"] == {"keys": 0}
    assert db.execute("select distinct bucket_id from idempotency_keys").fetchall() == [("long",)]


@pytest.mark.parametrize("retention", ["0", "59 minutes", "2000 years"])
def test_retention_out_of_range(db: DB, retention: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        db.execute("select set_options('acme', key_retention => %s)", [retention])
    assert error.value.sqlstate == "MF017"


def test_unknown_tasks(db: DB) -> None:
    for tasks in (["nonsense"], []):
        with pytest.raises(psycopg.Error) as error:
            db.execute("select run_maintenance('acme', %s)", [tasks])
        assert error.value.sqlstate == "MF022"


def test_a_busy_bucket_is_left(db: DB, connect: Connect) -> None:
    plainly(db, "Bob has a dog.")
    holder = connect()
    holder.execute("begin")
    ingest(holder, "something new")
    report = run_maintenance(db)
    assert report["busy"] == ["plain"]
    assert report["left"] == ["plain"]
    assert report["errors"] == {}
    holder.execute("commit")
    assert run_maintenance(db, "plain")["counts"] == {"plain": 1}


def test_an_application_does_it_for_its_tenant(db: DB, app: Connect) -> None:
    plainly(db, "Bob has a dog.")
    assert run_maintenance(app("acme"))["counts"]["plain"] == 1
    for statement in (
        "select memfold.run_maintenance('acme')", "call memfold.run_maintenance_all()",
        "select memfold.tenants()",
    ):  # fmt: skip
        with pytest.raises(psycopg.Error) as error:
            app("other").execute(statement.encode())
        assert error.value.sqlstate in ("MF002", "42501")


def test_maintenance_of_all_tenants(db: DB) -> None:
    for tenant in ("acme", "beta", "gamma"):
        plainly(db, "Bob has a dog.", tenant_id=tenant)
    assert db.execute("select tenants()").fetchall() == [("acme",), ("beta",), ("gamma",)]
    db.execute("call run_maintenance_all()")
    assert db.execute("select count(*), count(distinct tenant_id) from memory_events").fetchone() == (3, 3)
    db.execute("begin")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction):
        db.execute("call run_maintenance_all()")
    db.execute("rollback")


# The command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def run(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    return lambda *arguments: CliRunner().invoke(main, ["maintenance", *arguments])


def test_command(db: DB, run: Callable[..., Result]) -> None:
    for tenant in ("acme", "beta"):
        plainly(db, "one", "two", tenant_id=tenant)
    result = run("--tenant", "acme")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("acme  plain  2 in ")
    result = run()
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("beta  plain  2 in ")
    assert "2 tenants" in result.stderr
    result = run("--tasks", "plain,keys")
    assert (result.exit_code, result.stdout) == (0, "")
    result = run("--tasks", "nonsense")
    assert result.exit_code == 1
    assert "Tasks are keys, runs, decay, syntheses" in result.stderr


def test_tasks_are_the_same_wherever_they_are_listed(db: DB, run: Callable[..., Result]) -> None:
    """The client leaves them to run_maintenance(); help and docs/maintenance.md describe each."""
    row = db.execute(
        "select array_agg(distinct substring(pg_get_function_arguments(oid) from 'tasks text.. DEFAULT ''{(.*)}'))"
        " from pg_proc where proname in ('run_maintenance', 'run_maintenance_all')"
    ).fetchone()
    assert row is not None
    (by_default,) = (set(tasks.split(",")) for tasks in row[0])
    assert set(run_maintenance(db)["ms"]) == by_default
    page = (servers.ROOT / "docs" / "maintenance.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", page, re.MULTILINE))
    assert {task for task, said in listed.items() if said == "yes"} == by_default
    assert {task for task, said in listed.items() if said == "no"} == {"clean", "sweep"}
    described = re.findall(r"^  (\w+)  +[a-z]", run("--help").output.partition("Options:")[0], re.MULTILINE)
    assert set(described) == set(listed)
    with pytest.raises(psycopg.Error) as error:
        db.execute("select run_maintenance('acme', '{nonsense}')")
    hint = (error.value.diag.message_hint or "").removeprefix("Tasks are ").removesuffix(".")
    assert set(hint.split(", ")) == set(listed)


def test_the_command_reaches_every_tenant(db: DB, run: Callable[..., Result]) -> None:
    """When the time is up, each remaining tenant still gets one call."""
    for tenant in ("acme", "globex", "initech"):
        plainly(db, "one", tenant_id=tenant)
    result = run("--tasks", "plain", "--seconds", "0")
    assert result.exit_code == 0, result.output
    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        [tenant, "plain", "1"] for tenant in ("acme", "globex", "initech")
    ]


def test_command_that_fails(db: DB, run: Callable[..., Result]) -> None:
    plainly(db, "one")
    db.execute("alter function memfold.ingest_plain_rows(text, text, bigint) rename to gone")
    result = run("--tenant", "acme", "--tasks", "plain")
    assert result.exit_code == 1
    assert "acme  plain  failed: 42883" in result.stderr


def test_command_ends_when_time_is_up(db: DB, connect: Connect, run: Callable[..., Result]) -> None:
    plainly(db, "one")
    holder = connect()
    holder.execute("begin")
    ingest(holder, "something new")
    result = run("--tenant", "acme", "--tasks", "plain", "--seconds", "0")
    assert result.exit_code == 0
    assert result.stdout == ""
    release = threading.Timer(0.3, lambda: holder.execute("commit"))
    release.start()
    # it ends when the row is done, before its time is up
    result = run("--tenant", "acme", "--tasks", "plain", "--seconds", "3600")
    assert result.stdout.startswith("acme  plain  1 in ")
    release.join()


# pg_cron ----------------------------------------------------------------------------------------------------------

# A stand-in for pg_cron's functions that records their arguments.
STAND_IN = """
create schema cron;
create table cron.job (jobid bigint generated always as identity, jobname text unique, schedule text, command text);
create function cron.schedule(job_name text, schedule text, command text) returns bigint language sql as $$
    insert into cron.job (jobname, schedule, command) values ($1, $2, $3)
    on conflict (jobname) do update set schedule = excluded.schedule, command = excluded.command returning jobid
$$;
create function cron.unschedule(job_name text) returns boolean language sql as $$
    delete from cron.job where jobname = $1 returning true
$$;
"""


def test_schedule(db: DB) -> None:
    """As docs/maintenance.md says, where pg_cron is."""
    db.execute(STAND_IN)
    plainly(db, "one", tenant_id="it's")
    page = (servers.ROOT / "docs" / "maintenance.md").read_text()
    (statement,) = re.findall(r"^select cron\.schedule\(.*\);$", page, re.MULTILINE)
    db.execute(statement.encode())
    ((command,),) = db.execute("select command from cron.job").fetchall()
    # as pg_cron would run it
    db.execute("set search_path = pg_catalog")
    db.execute(command.encode())
    assert db.execute("select is_ingested from memfold.memories where tenant_id = 'it''s'").fetchall() == [
        (True,)
    ]


def test_what_the_tasks_call(db: DB) -> None:
    """Sweeps, clean-up, decay and the ends of runs, bucket by bucket."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    for bucket in ("one", "two"):
        db.execute("select set_policy('acme', %s, merge_threshold => 1, on_ambiguous => 'insert')", [bucket])
        for content, cosine in (("User likes tea", 1.0), ("User enjoys tea", 0.97)):
            ingest(db, content, bucket_id=bucket, observed_at="2025-01-01", **vector(cosine))
        db.execute("select set_policy('acme', %s, preset => 'three_tier')", [bucket])
        db.execute(
            "select set_options('acme', %s, decay_rate => 0.01, consolidate_interval => '0')", [bucket]
        )
    db.execute("select set_policy('acme', 'off', dedup => 'off')")
    for _ in range(2):
        ingest(db, "User likes milk", bucket_id="off")
    db.execute(
        "insert into runs (tenant_id, bucket_id, kind, started_at, actor)"
        " values ('acme', 'one', 'sweep', now() - interval '1 day', 'a')"
    )
    counts: Counter[str] = Counter()
    for _ in range(10):
        report = run_maintenance(
            db, "plain", "decay", "syntheses", "runs", "embed", "cycles", "clean", "sweep"
        )
        assert report["errors"] == {}
        counts.update(report["counts"])
        if not report["left"]:
            break
    assert report["left"] == []
    assert (counts["sweep"], counts["clean"], counts["decay"], counts["runs"]) == (2, 1, 4, 1)
    statuses = db.execute(
        "select bucket_id, status, count(*) from memories group by 1, 2 order by 1, 2"
    ).fetchall()
    assert statuses == [
        (bucket, status, 1) for bucket in ("off", "one", "two") for status in ("active", "merged")
    ]
    check(db)


# Cycles -----------------------------------------------------------------------------------------------------------


def test_due_tasks_run_once_per_cycle(db: DB) -> None:
    model(db)
    for bucket in ("one", "two", "three"):
        db.execute(
            "select set_policy('acme', %s, merge_threshold => 1, judge_threshold => 1, on_ambiguous => 'insert')",
            [bucket],
        )
    db.execute("select set_options('acme', 'one', sweep_interval => '1 hour')")
    db.execute("select set_options('acme', 'two', sweep_interval => '1 day')")

    def arrive(*texts: str) -> None:
        for bucket in ("one", "two", "three"):
            db.execute("select set_policy('acme', %s, merge_threshold => 1, judge_threshold => 1)", [bucket])
            for text in texts:
                ingest(db, text, bucket_id=bucket, observed_at="2026-01-01", **vector(1))
            db.execute(
                "select set_policy('acme', %s, merge_threshold => 0.9, judge_threshold => 0.9, guard => 'off')",
                [bucket],
            )

    def roots(bucket: str) -> int:
        row = db.execute(
            "select count(*) from memories where bucket_id = %s and root_id is null", [bucket]
        ).fetchone()
        assert row is not None
        return int(row[0])

    assert at(db, "2026-03-01 10:00") == {"cycles": 0}
    arrive("User likes tea", "User drinks tea")
    assert at(db, "2026-03-01 10:30") == {"cycles": 0}, "the hour and the day of the first pass are not over"
    assert at(db, "2026-03-01 11:00") == {"cycles": 1}
    assert (roots("one"), roots("two"), roots("three")) == (1, 2, 2)
    arrive("User has tea")
    assert at(db, "2026-03-01 11:59:59") == {"cycles": 0}
    assert at(db, "2026-03-01 23:59") == {"cycles": 1}
    assert (roots("one"), roots("two"), roots("three")) == (1, 3, 3)
    assert at(db, "2026-03-02 00:00") == {"cycles": 2}
    assert (roots("one"), roots("two"), roots("three")) == (1, 1, 3)
    check(db)


def test_all_three_cyclic_tasks_run(db: DB) -> None:
    model(db)
    db.execute(
        "select set_options('acme', consolidate_interval => '1 day', sweep_interval => '1 day', prune_interval => '1 day')"
    )
    ingest(
        db,
        "User may like jazz",
        observed_at="2020-01-01",
        source_confidence=0,
        extractor_confidence=0,
        **vector(0.1),
    )
    ingest(db, "User likes tea", subject="a", **vector(1))
    ingest(db, "User enjoys tea", subject="a", **vector(0.8))
    done = at(db, "2026-03-01 10:00")
    assert done["cycles"] >= 2
    kinds = db.execute("select distinct kind from runs where kind <> 'maintenance' order by 1").fetchall()
    assert kinds == [("consolidation",), ("pruning",)]
    assert db.execute("select status from memories where content = 'User may like jazz'").fetchone() == (
        "withdrawn",
    )
    check(db)
