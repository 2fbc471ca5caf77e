"""`memfold import`: the rows of another table become memories, each once, with the row as their source."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result
from psycopg import sql
from psycopg.conninfo import make_conninfo

from memfold.tools.cli import main
from tests.conftest import Connect
from tests.support.adopting import make_tables
from tests.support.memories import check
from tests.support.queries import DB, one
from tests.support.servers import ROOT
from tests.support.waiting import until

OPTIONS = [
    "--table",
    "app.memories",
    "--content",
    "content",
    "--tenant",
    "tenant_id",
    "--bucket",
    "bucket_id",
]
Run = Callable[..., Result]


@pytest.fixture
def run(dsn: str) -> Run:
    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner(env={"MEMFOLD_DSN": dsn}).invoke(main, ["import", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_each_row_is_one_observation_that_names_it(db: DB, run: Run) -> None:
    make_tables(db, 300)
    before = one(db, "select md5(string_agg(t::text, '' order by id)) from app.memories t")
    result = run(
        *OPTIONS, "--created", "created_at", "--metadata", "jsonb_build_object('reads', reads)", code=1
    )
    refused = one(db, "select count(*) from app.memories where content is null or content = ' . '")
    assert f"{refused} of 300 rows were refused" in result.stderr
    assert "app.memories 89: MF004" in result.stderr
    assert "app.memories 97: the content is null" in result.stderr
    events = "select count(*) from memfold.memory_events"
    assert one(db, events) == 300 - refused
    texts = one(
        db,
        "select count(distinct (tenant_id, bucket_id, memfold.canonicalize(content, 'prose/1')))"
        " from app.memories where memfold.canonicalize(content, 'prose/1') <> ''",
    )
    assert one(db, "select count(*) from memfold.memories") == texts
    row = db.execute(
        "select e.metadata, e.observed_at = m.created_at, e.source_turn_ids, e.tenant_id, e.bucket_id"
        " from memfold.memory_events e, app.memories m where m.id = 25"
        " and e.metadata #>> '{imported_from,key,id}' = '25'"
    ).fetchone()
    assert row == (
        {"reads": 0, "imported_from": {"table": "app.memories", "key": {"id": "25"}}},
        True,
        ["app.memories:25"],
        "t0",
        "b1",
    )
    check(db)
    again = run(*OPTIONS, "--created", "created_at", code=1)
    assert f"{300 - refused} of 300 rows were ingested before" in again.stderr
    assert one(db, events) == 300 - refused
    assert one(db, "select md5(string_agg(t::text, '' order by id)) from app.memories t") == before


@pytest.mark.one_server
def test_killed_and_run_again(db: DB, dsn: str, run: Run) -> None:
    make_tables(db, 3000)
    for child in ("votes", "tags", "links", "notes"):
        db.execute(f"delete from app.{child}".encode())
    db.execute("update app.memories set parent_id = null")
    db.execute("delete from app.memories where coalesce(content, ' . ') = ' . '")
    rows = one(db, "select count(*) from app.memories")
    process = subprocess.Popen(
        [sys.executable, "-m", "memfold", "import", *OPTIONS],
        env=os.environ | {"MEMFOLD_DSN": dsn, "PYTHONPATH": str(ROOT / "python_client")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: one(db, "select count(*) from memfold.memory_events") > 300)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finally:
        process.kill()
    query = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'memfold'"
    until(lambda: one(db, query) == 0)
    done = one(db, "select count(*) from memfold.memory_events")
    assert 300 < done < rows
    assert f"{done:,} of {rows:,} rows were ingested before" in run(*OPTIONS).stderr
    assert one(db, "select count(*) from memfold.memory_events") == rows
    check(db)


def test_every_field(db: DB, run: Run) -> None:
    db.execute("""
        create schema app;
        create table app.m (id integer, part text, t text, who text, kind text, s text, p text, o text, sess text,
            v vector, at timestamptz, primary key (part, id));
        insert into app.m values (7, 'x', 'Alice lives in Rome.', 'acme', 'profile', 'Alice', 'lives_in', 'Rome', 's1',
            '[1,0,0]', '2025-03-01 12:00+02');
        select memfold.register_embedding_model('toy', 3, 0.92, 0.85);
    """)
    run("--table", "app.m", "--content", "t", "--tenant", "who", "--type", "kind", "--subject", "s", "--predicate", "p",
        "--object", "o", "--session", "sess", "--created", "at", "--embedding", "v", "--embedding-model", "toy")  # fmt: skip
    row = db.execute(
        "select m.tenant_id, m.bucket_id, m.memory_type, m.subject, m.predicate, m.object, m.session_id, v.embedding::text,"
        " e.observed_at, e.source_turn_ids, e.metadata from memfold.memories m"
        " join memfold.memory_vectors v using (memory_id) join memfold.memory_events e using (memory_id)"
    ).fetchone()
    assert row is not None
    assert row[:8] == ("acme", "default", "profile", "Alice", "lives_in", "Rome", "s1", "[1,0,0]")
    assert row[8] == datetime(2025, 3, 1, 10, tzinfo=UTC)
    assert row[9] == ["app.m:x,7"]
    assert row[10] == {"imported_from": {"table": "app.m", "key": {"part": "x", "id": "7"}}}


def test_views_partitions_and_other_databases(db: DB, run: Run, dsn: str, connect: Connect) -> None:
    name = f"import_{uuid.uuid4().hex[:12]}"
    db.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    try:
        elsewhere = make_conninfo(dsn, dbname=name, options="")
        with connect(dbname=name, options="") as other:
            other.execute("""
                create table parts (id integer primary key, t text) partition by range (id);
                create table parts_1 partition of parts for values from (0) to (100);
                insert into parts select i, 'text ' || i from generate_series(1, 30) i;
                create view shown as select id, t from parts where id > 10;
            """)
        constant = ["--content", "t", "--tenant", "'acme'", "--from", elsewhere]
        run("--table", "parts", *constant)
        assert one(db, "select count(*) from memfold.memories where tenant_id = 'acme'") == 30
        assert "no usable key" in run("--table", "shown", *constant, code=1).stderr
        run("--table", "shown", *constant, "--id", "id", "--where", "id < 15")
        assert one(db, "select count(*) from memfold.memory_events") == 34
    finally:
        db.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--content nope --tenant tenant_id", "no column nope"),
        ("--content (select|1) --tenant tenant_id", "sub-query"),
        ("--content content; --tenant tenant_id", "semicolon"),
        ("--content content --tenant random()::text", "volatile"),
        ("--content content --tenant tenant_id --embedding meta", "go together"),
        ("--content content --tenant tenant_id --id reads", "not a usable key"),
    ],
)
def test_bad_input(db: DB, run: Run, words: str, why: str) -> None:
    make_tables(db, 10)
    result = run("--table", "app.memories", *(word.replace("|", " ") for word in words.split(" ")), code=1)
    assert why in result.stderr
    assert "Traceback" not in result.output
    assert one(db, "select count(*) from memfold.memories") == 0


def test_as_an_application_of_one_tenant(db: DB, dsn: str, run: Run) -> None:
    """A member of memfold_app who may read the table; no rights in memfold beyond that."""
    make_tables(db, 60)
    role = f"import_{db.info.dbname}"
    db.execute(f"drop role if exists {role}; create role {role} login in role memfold_app")
    try:
        db.execute(f"grant usage on schema app to {role}; grant select on app.memories to {role}")
        run(
            *OPTIONS,
            "--where",
            "content is not null and content <> ' . '",
            "--dsn",
            make_conninfo(dsn, user=role),
        )
        assert one(db, "select count(distinct tenant_id) from memfold.memories") == 5
    finally:
        until(lambda: one(db, "select count(*) from pg_stat_activity where usename = %s", role) == 0)
        db.execute(f"drop owned by {role}; drop role {role}")
