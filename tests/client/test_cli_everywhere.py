"""Rules for every command: it accepts any form of DSN, never shows a password, and prints JSON if it reports.

A new command is added to COMMANDS here, or these tests fail.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict

from memfold.tools.admin import server
from memfold.tools.cli import _psql, main
from tests.support.memories import ingest
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

ID = "0193b1a2-7c30-7f00-8a4e-0123456789ab"
PASSWORD = "Tr0ub4dor-3"
TABLE = ["--table", "public.nothing"]
COLUMNS = [*TABLE, "--content", "content", "--tenant", "tenant_id"]

# Each with what it needs to get as far as the database. FILE: a file of one candidate.
COMMANDS: dict[str, list[str]] = {
    "adopt pause": TABLE,
    "adopt plan": COLUMNS,
    "adopt run": COLUMNS,
    "adopt status": [],
    "adopt undo": TABLE,
    "calibrate": ["toy"],
    "consolidate": ["--tenant", "t", "--dry-run"],
    "doctor": ["--tenant", "t"],
    "explain": [ID, "--tenant", "t"],
    "export": ["--tenant", "t"],
    "import": COLUMNS,
    "ingest": ["FILE", "--tenant", "t"],
    "init": [],
    "judge": ["--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--once"],
    "maintenance": ["--tenant", "t"],
    "mcp": ["--tenant", "t"],
    "psql": ["-c", "select 1"],
    "reembed": ["--from", "toy", "--to", "other", "--status"],
    "restore": ["EXPORT"],
    "review": ["--tenant", "t"],
    "search": ["--tenant", "t", "--embedding", "[1,0,0]", "--embedding-model", "toy"],
    "stats": [],
    "status": [],
    "sweep": ["--tenant", "t", "--dry-run"],
    "undo": [ID, "--tenant", "t"],
    "uninstall": ["--drop", "x"],
    "web": ["--port", "0"],
}
WITHOUT_DATABASE = {"up", "down"}
WITHOUT_JSON = {
    "export": "it prints JSON, one object a line",
    "mcp": "it speaks MCP on stdout",
    "psql": "it becomes psql",
    "review": "it is a dialogue",
    "web": "it serves a page",
}
# There is no server: libpq's error must not quote the DSN.
SECRETIVE = [
    f"postgresql+psycopg://u:{PASSWORD}@127.0.0.1:1/db",
    f"postgresql://u:{PASSWORD}@127.0.0.1:1/db?connect_timeout=2",
    f"host=127.0.0.1 port=1 user=u password='{PASSWORD}'",
    # and what no libpq can read
    f"postgresql://u:{PASSWORD[:4]}@{PASSWORD[4:]}@127.0.0.1:1/db",
    f"postgresql+psycopg:/u:{PASSWORD}@127.0.0.1:1/db",
    f"host=127.0.0.1 port=1 password={PASSWORD[:4]} {PASSWORD[4:]}",
]


def leaves(group: click.Group = main, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield before + name, command


LEAVES = dict(leaves())


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    candidates = tmp_path / "memories.jsonl"
    candidates.write_text('{"content": "Alice has a cat."}\n')
    export = tmp_path / "export.jsonl"
    export.write_text('{"table": "bucket", "row": {"tenant_id": "t", "bucket_id": "b"}}\n')
    return {"FILE": str(candidates), "EXPORT": str(export)}


def run(command: str, files: dict[str, str], *more: str, **environment: str | None) -> Result:
    given = [files.get(word, word) for word in COMMANDS[command]]
    result = CliRunner(env=environment).invoke(main, [*command.split(), *given, *more], input="q\n")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_every_command_is_listed_here() -> None:
    assert set(LEAVES) == set(COMMANDS) | WITHOUT_DATABASE


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_command_shows_a_password(
    command: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MEMFOLD_LOCK_PATIENCE", "0")
    more = [] if command in WITHOUT_JSON else ["--json"]
    for dsn in SECRETIVE:
        by_option = run(command, files, "--dsn", dsn, *more)
        by_variable = run(command, files, MEMFOLD_DSN=dsn)
        for result in (by_option, by_variable):
            assert result.exit_code != 0, result.output
            assert "HINT: A DSN is" in result.stderr or "connection" in result.stderr, result.output
            for part in (PASSWORD, PASSWORD[:4], PASSWORD[4:]):
                assert part not in result.output + caplog.text, result.output


def uri(dsn: str, **more: str) -> str:
    """The same database as a URI of SQLAlchemy's, with a password that a trusting server does not ask for."""
    given = conninfo_to_dict(dsn) | {"password": PASSWORD} | more
    return "postgresql+psycopg://{user}:{password}@/{dbname}?host={host}&port={port}".format(
        **{name: quote(str(value), safe="") for name, value in given.items()}
    )


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"psql"}))
def test_every_command_takes_every_form_of_dsn(db: DB, dsn: str, files: dict[str, str], command: str) -> None:
    by_libpq = {f"PG{name.upper()}": str(value) for name, value in conninfo_to_dict(dsn).items()}
    by_libpq["PGDATABASE"] = by_libpq.pop("PGDBNAME")
    said = []
    for given, environment in (
        (["--dsn", dsn], {}),
        (["--dsn", uri(dsn)], {}),
        ([], {"MEMFOLD_DSN": uri(dsn)}),
        ([], {"MEMFOLD_DSN": None, **by_libpq}),
    ):
        result = run(command, files, *given, **environment)
        assert "DSN" not in result.stderr.replace("memfold init DSN", ""), result.output
        assert "connection" not in result.stderr, result.output
        assert PASSWORD not in result.output
        said.append(result.exit_code)
    assert len(set(said[1:])) == 1, said
    assert max(said) <= 1, said


def test_only_init_takes_the_database_as_an_argument_too(dsn: str, files: dict[str, str]) -> None:
    takes = {name for name, one in LEAVES.items() if any(p.name == "database" for p in one.params)}
    assert takes == {"init"}
    result = run("init", files, dsn, "--dsn", dsn)
    assert (result.exit_code, "give the database once" in result.stderr) == (2, True)


# --json ----------------------------------------------------------------------------------------------------


def test_every_command_that_reports_has_json() -> None:
    have = {name for name, command in LEAVES.items() if any(one.name == "json" for one in command.params)}
    assert have == set(LEAVES) - set(WITHOUT_JSON)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - set(WITHOUT_JSON)))
def test_json_is_one_document_and_nothing_else(db: DB, dsn: str, files: dict[str, str], command: str) -> None:
    """Failures are reported on stderr."""
    for model in ("toy", "other"):
        db.execute("select register_embedding_model(%s, 3, 0.92, 0.85)", [model])
    ingest(db, "Bob has a dog.", tenant_id="t", embedding="[1,0,0]", embedding_model="toy")
    result = run(command, files, "--dsn", dsn, "--json")
    if result.exit_code == 0:
        assert isinstance(json.loads(result.stdout), dict)
        assert result.stdout.count("\n") == 1
    else:
        assert result.stdout == ""
        assert "Error: " in result.stderr
    fails = {"adopt pause", "adopt plan", "adopt run", "adopt undo", "calibrate", "explain", "import",
             "restore", "undo", "uninstall"}  # fmt: skip
    assert (result.exit_code != 0) == (command in fails), result.output


def test_what_json_says(db: DB, dsn: str, files: dict[str, str], tmp_path: Path) -> None:
    def said(*arguments: object, code: int = 0, lines: str = "") -> dict[str, Any]:
        given = [*map(str, arguments), "--dsn", dsn, "--json"]
        result = CliRunner().invoke(main, given, input=lines)
        assert result.exit_code == code, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    db.execute("select register_embedding_model('toy', 3, 0.92, 0.85)")
    lines = [
        {"content": "Bob has a cat.", "embedding": [1, 0, 0], "embedding_model": "toy"},
        {"content": "Bob owns a cat.", "embedding": [0.999, 0.04, 0], "embedding_model": "toy"},
        {"content": ""},
    ]
    written = "".join(json.dumps(line) + "\n" for line in lines)
    done = said("ingest", "-", "--tenant", "t", code=1, lines=written)
    assert (done["lines"], done["refused"], done["replayed"]) == (3, 1, 0)
    assert {"action": "merged", "tier": 2, "method": "vector", "lines": 1} in done["counts"]

    (memory,) = said("search", "--tenant", "t", "--embedding", "[1,0,0]", "--embedding-model", "toy")[
        "memories"
    ]
    assert (memory["content"], memory["similarity"], memory["repetition_count"]) == ("Bob has a cat.", 1.0, 1)
    explained = said("explain", memory["memory_id"], "--tenant", "t")
    assert "Bob owns a cat." in "\n".join(explained["lines"])
    (bucket,) = said("stats")["buckets"]
    assert (bucket["tenant_id"], bucket["tier_2_merges"]) == ("t", 1)
    found = said("status")
    assert (found["tenants"], found["buckets"][0]["bucket_id"]) == (1, "default")
    assert found["last_maintenance"] is None
    assert said("maintenance", "--tenant", "t")["tenants"][0]["tenant_id"] == "t"
    assert said("status")["last_maintenance"] is not None
    checked = said("doctor", "--tenant", "t")
    assert checked["ok"]
    assert {one["status"] for one in checked["checks"]} <= {"ok", "warning"}

    (event,) = db.execute("select event_id from memory_events where action = 'merged'").fetchall()
    undone = said("undo", event[0], "--tenant", "t", "--reason", "two cats")
    assert {one["status"] for one in undone["memories"]} == {"active"}
    planned = said("sweep", "--tenant", "t", "--dry-run")
    assert planned["pairs"][0]["pairs"] == 1
    assert said("sweep", "--tenant", "t") == {"run": None}  # an undo keeps them apart


def test_up_and_down_print_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from memfold.tools.admin import migrate

    monkeypatch.setattr(server, "start", lambda *_: "host=/for the superuser")
    monkeypatch.setattr(server, "login", lambda *_, **__: "host=/somewhere")
    monkeypatch.setattr(server, "down", lambda *_: True)
    monkeypatch.setattr(migrate, "keep_current", lambda *_: "1.0.0")
    monkeypatch.setattr(migrate, "set_search_path", lambda *_: None)
    up = CliRunner().invoke(main, ["up", "--json"])
    assert json.loads(up.stdout)["dsn"] == "host=/somewhere"
    assert json.loads(CliRunner().invoke(main, ["down", "--json"]).stdout) == {"stopped": True}


# help ------------------------------------------------------------------------------------------------------


def test_the_summary_of_every_command_is_whole() -> None:
    """At the width of an ordinary terminal, none is cut off."""
    for group, path in ((main, []), (main.commands["adopt"], ["adopt"])):
        shown = CliRunner().invoke(main, [*path, "--help"], terminal_width=80).output
        listed = shown.partition("Commands:\n")[2].strip().splitlines()
        assert len(listed) == len(group.commands), shown  # type: ignore[attr-defined]
        assert [line for line in listed if line.endswith(("...", "…"))] == []


def test_every_file_that_is_read_may_be_stdin() -> None:
    read = [
        (name, parameter.name, parameter.type.allow_dash)
        for name, command in LEAVES.items()
        for parameter in command.params
        if isinstance(parameter.type, click.Path) and parameter.type.exists
    ]
    assert {(name, option) for name, option, _ in read} >= {
        ("ingest", "file"), ("ingest", "vectors"), ("restore", "file"), ("calibrate", "pairs"), ("reembed", "vectors")
    }  # fmt: skip
    assert [one for one in read if not one[2]] == []


# psql hands its arguments on
@pytest.mark.parametrize("command", [name for name in COMMANDS if "t" in COMMANDS[name] and name != "psql"])
def test_an_argument_that_is_not_a_text_gives_no_traceback(
    db: DB, dsn: str, files: dict[str, str], command: str
) -> None:
    """Bytes that are not UTF-8, as the shell passes them on."""
    db.execute("select register_embedding_model('toy', 3, 0.92, 0.85)")
    result = run(command, files | {"t": "t\udcff"}, "--dsn", dsn)
    assert result.exit_code in (1, 2)
    assert "UTF-8" in result.stderr or "surrogate" in result.stderr
    assert "Traceback" not in result.stderr


# psql ------------------------------------------------------------------------------------------------------


def test_psql_gets_the_password_by_its_environment(
    db: DB, dsn: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    result = run("psql", files, "--tenant", "acme", "--dsn", uri(dsn))
    assert result.exit_code == 0, result.output
    ((program, arguments, environment),) = started
    assert arguments == [program, "-v", "SHOW_CONTEXT=never", "-c", "select 1"]
    assert PASSWORD not in " ".join(arguments) + result.output
    assert environment["PGPASSWORD"] == PASSWORD
    assert environment["PGDATABASE"] == conninfo_to_dict(dsn)["dbname"]
    assert "memfold.tenant_id=acme" in environment["PGOPTIONS"]
    assert "PGSERVICE" not in environment


def test_psql_calls_memfold_by_its_names(db: DB, dsn: str, capfd: pytest.CaptureFixture[str]) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    db.execute(f"alter database {name} set search_path = '$user', public".encode())
    ingest(db, "Alice has a cat.", tenant_id="a tenant\\ of spaces")
    child = os.fork()
    if not child:  # it becomes psql
        try:
            main(
                ["psql", "--tenant", "a tenant\\ of spaces", "--dsn", uri(dsn), "-XAtc",
                 "select content from current_memories() where current_setting('search_path') like '%memfold'"]
            )  # fmt: skip
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "Alice has a cat." in capfd.readouterr().out


def test_without_psql_it_says_what_to_install(
    dsn: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_psql.shutil, "which", lambda *_: None)
    result = run("psql", files, "--dsn", dsn)
    assert result.exit_code == 1
    assert re.search("psql was not found\nHINT: .*postgresql-client", result.stderr)
