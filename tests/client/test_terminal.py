"""For every command: no stored text controls the reader's terminal or poses as a separate line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from memfold import Memfold
from memfold.client._text import escape_line
from memfold.client.judging import limits
from memfold.tools import cli
from memfold.tools.cli import main
from tests.support.chat_server import ChatServer
from tests.support.judging import flood
from tests.support.memories import ingest
from tests.support.queries import DB
from tests.support.rude_endpoint import KEY, RUDE, STEERS, running

# Python: other tests cover each server.
pytestmark = pytest.mark.one_server

# a title, a cleared screen, colours by C0 and C1, reversed text, an overwritten line, and a line that is none
HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b[31mRED\x9b31m\u202eevil\u2066\u200e\u2028line\rover\x7f\nFORGED line"
TENANT, BUCKET, SUBJECT = (f"{name}{HOSTILE}" for name in ("tenant", "bucket", "subject"))
MODEL, OTHER_MODEL = f"model{HOSTILE}", f"other model{HOSTILE}"
ESCAPED = escape_line(HOSTILE)

Run = Callable[..., str]
EXEMPT = {"up", "down", "init", "psql", "mcp", "uninstall", "web"}
"""Commands that print nothing stored: what they print is a path, a DSN or SQL; psql prints for itself,
and mcp to a client."""


class Ran:
    """Runs commands, and notes which."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.commands: set[str] = set()

    def __call__(self, *arguments: object, code: int = 0, says: str = "", lines: str = "") -> Result:
        """says: the part of the hostile text that it must show, so that printing nothing does not pass."""
        self.commands.add(str(arguments[0]))
        given = [str(argument) for argument in arguments]
        environment = {"MEMFOLD_DSN": self.dsn, "OPENAI_API_KEY": KEY}
        # color: so that click strips nothing before we look
        result = CliRunner(env=environment).invoke(main, given, input=lines, color=True)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        for stream in (result.stdout, result.stderr):
            found = STEERS.search(stream)
            assert found is None, ascii(stream[max(0, found.start() - 80) : found.end() + 20])
            assert "\u2028" not in stream
            assert KEY not in stream
            # quotations in errors, and the columns of review, continue indented
            assert not re.search("(?m)^ {0,3}FORGED", stream), stream
        assert says in result.output, result.output
        return result


@pytest.fixture
def run(dsn: str) -> Ran:
    return Ran(dsn)


def store(db: DB, text: str, vector: str, **more: Any) -> Any:
    given = {
        "bucket_id": BUCKET,
        "subject": SUBJECT,
        "predicate": f"says{HOSTILE}",
        "object": f"object{HOSTILE}",
    }
    return ingest(
        db, f"{text}{HOSTILE}", tenant_id=TENANT, embedding=vector, embedding_model=MODEL, memory_type="fact",
        session_id=f"session{HOSTILE}", source_turn_ids=[f"turn{HOSTILE}"], metadata={f"key{HOSTILE}": HOSTILE},
        **(given | more),
    )  # fmt: skip


def fill(db: DB) -> dict[str, Any]:
    """A memory with an alias, one that is asked about, one rejected, and a person's notes on them."""
    for model in (MODEL, OTHER_MODEL):
        db.execute("select register_embedding_model(%s, 3, 0.92, 0.85)", [model])
    db.execute("select set_policy(%s, %s, on_ambiguous => 'review')", [TENANT, BUCKET])
    first = store(db, "Bob has a cat", "[1,0,0]")
    store(db, "Bob owns a cat", "[0.999,0.04,0]")
    asked = store(db, "Bob has 2 cats", "[0.9,0.43,0]")
    gone = store(db, "Bob is gone", "[0,0,1]", object=None)
    db.execute(
        "select reject_memory(%s, reason => %s, tenant_id => %s)",
        [gone.memory_id, f"reason{HOSTILE}", TENANT],
    )
    return {"first": first, "asked": asked, "gone": gone}


def test_every_command_that_prints_what_is_stored(
    db: DB, dsn: str, run: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = fill(db)
    here = ["--tenant", TENANT]
    there = [*here, "--bucket", BUCKET]

    for memory in made.values():
        run("explain", memory.memory_id, *here, says=f"bucket {escape_line(BUCKET)}")
    run("explain", made["gone"].memory_id, *here, says=f"reason: reason{ESCAPED}")
    run("search", *there, "--embedding", "[1,0,0]", "--embedding-model", MODEL, says="PWNED")
    run("stats", says=escape_line(TENANT))
    run("stats", *here, says=escape_line(BUCKET))
    run("status", *here, says=escape_line(BUCKET))
    run("doctor", *here, says=f"tenant {escape_line(TENANT)}")
    run("maintenance", *here, "--tasks", "clean,plain")
    exported = run("export", "--tenant", TENANT, "--bucket", BUCKET, says="PWNED")
    check_export(db, exported.stdout, tmp_path, run)

    # a person, and labels
    run(
        "review", *here, lines="d\nu\ns\n", says=f"tenant {escape_line(TENANT)}, bucket {escape_line(BUCKET)}"
    )
    run("review", *here, "--label", "--embedding-model", MODEL, lines="d\nu\nq\n", says="PWNED")
    pairs = tmp_path / "pairs.jsonl"
    given = [
        {"a": f"a{n}{HOSTILE}", "b": f"b{n}{HOSTILE}", "label": "distinct", "cosine": 0.5} for n in range(5)
    ]
    pairs.write_text("".join(json.dumps(one) + "\n" for one in given))
    run("calibrate", MODEL, *here, "--pairs", pairs, code=1, says="contradictions are missing")
    run("calibrate", f"unknown{HOSTILE}", code=1, says="MF013: unknown embedding model")

    # runs of maintenance
    run("sweep", *there, "--dry-run", "--embedding-model", MODEL)
    store(db, "Bob keeps a cat", "[0.99,0.14,0]", predicate=f"keeps{HOSTILE}")
    run("consolidate", *there, "--embedding-model", MODEL, "--dry-run", says="PWNED")
    began = run("consolidate", *there, "--embedding-model", MODEL, "--approval", "person", says="run ")
    run_id = began.stdout.split()[1].rstrip(":")
    run("undo", "--run", run_id, *here, "--reason", HOSTILE)
    run("sweep", *there, "--embedding-model", MODEL)

    # models
    texts = [row[0] for row in db.execute("select content from memfold.memories").fetchall()]
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, texts=np.array(["x"]), vectors=np.ones((1, 3), dtype=np.float32))
    change = ["--from", MODEL, "--to", OTHER_MODEL]
    run("reembed", *change, "--vectors", vectors, code=1, says="such as: Bob")
    np.savez(vectors, texts=np.array(texts), vectors=np.ones((len(texts), 3), dtype=np.float32))
    run("reembed", *change, "--vectors", vectors, says=f"vectors of {escape_line(OTHER_MODEL)} added")
    run("reembed", *change, "--status", says=escape_line(OTHER_MODEL))
    run("reembed", *change, "--vectors", vectors, "--cut-over", says="has replaced")
    run("reembed", "--from", MODEL, "--drop", says="is unregistered")

    # candidates
    file = tmp_path / "name\x1b[31m.jsonl"
    lines = [
        {"content": f"fine{HOSTILE}"},
        {"content": "x", f"field{HOSTILE}": 1},
        {"content": "x", "memory_id": HOSTILE},
    ]
    lines += [{"content": "x", "subject": HOSTILE * 20}, {"content": HOSTILE, "observed_at": HOSTILE}]
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    run("ingest", file, *there, code=1, says="4 of 5 lines were refused")
    db.execute(
        "create schema app; create table app.memories (id text primary key, tenant_id text, content text)"
    )
    db.execute(
        "insert into app.memories values (%s, %s, %s), (%s, %s, ' . ')",
        [f"1{HOSTILE}", TENANT, f"imported{HOSTILE}", f"2{HOSTILE}", TENANT],
    )
    table = ["--table", "app.memories", "--content", "content", "--tenant", "tenant_id"]
    run("import", *table, code=1, says=f"app.memories 2{ESCAPED}: MF004")
    db.execute("insert into app.memories values (%s, %s, %s)", [f"3{HOSTILE}", TENANT, f"imported{HOSTILE}"])
    run("adopt", "plan", *table)
    run("adopt", "run", *table, "--profile", "prose", says=escape_line(TENANT))
    run("adopt", "run", "--table", "app.memories", "--confirm", says="is adopted")
    run("adopt", "status", says="step 6 of 6 is done")
    run("adopt", "undo", "--table", "app.memories", "--restore", says="undone")

    # a model that judges
    with ChatServer() as server:
        flood(db, f"judged{HOSTILE}", 3)
        run(
            "judge",
            "--model",
            f"m{HOSTILE}",
            "--base-url",
            server.base_url,
            "--once",
            says=f"tenant=judged{ESCAPED}",
        )

    # the server's messages about its input
    run("explain", HOSTILE, *here, code=2, says="is not a valid UUID")
    run("search", *there, "--embedding", "[1,0,0]", "--embedding-model", HOSTILE, code=1, says=ESCAPED[:30])
    run(
        "export",
        "--tenant",
        f"none{HOSTILE}",
        "--bucket",
        HOSTILE,
        code=1,
        says="has no memories, nor anything else",
    )
    run("stats", "--dsn", f"host={HOSTILE}", code=1)
    run("review", "--label", "--embedding-model", HOSTILE, *here, code=1, lines="q\n")
    assert run.commands == set(main.commands) - EXEMPT


def check_export(db: DB, exported: str, directory: Path, run: Ran) -> None:
    """It is JSON with the same value as the stored one, and can be restored unchanged."""
    rows = [json.loads(line) for line in exported.splitlines()]
    stored = db.execute("select e::text from memfold.export_bucket(%s, %s) as e", [TENANT, BUCKET]).fetchall()
    assert rows[1:-1] == [json.loads(row[0]) for row in stored][1:-1]
    contents = {row["row"].get("content") for row in rows if row["table"] == "memories"}
    assert f"Bob has a cat{HOSTILE}" in contents
    file = directory / "export.jsonl"
    file.write_text(exported)
    other = f"other{TENANT}"
    run("restore", file, "--tenant", other, says=f"tenant {escape_line(other)}")
    found = db.execute("select content from memfold.memories where tenant_id = %s", [other]).fetchall()
    assert {row[0] for row in found} == contents


@pytest.mark.parametrize("mode", ["echo", "page"])
@pytest.mark.parametrize("status", [401, 200])
def test_no_command_repeats_what_an_endpoint_says(
    db: DB, dsn: str, run: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, status: int
) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(limits, "LONGEST_PAUSE", 0.01)
    fill(db)
    here = ["--tenant", TENANT, "--bucket", BUCKET]
    with running() as rude:
        rude.mode, rude.status = mode, status
        url = ["--embed-url", rude.url, "--embed-model", f"small{HOSTILE}"]
        file = tmp_path / "memories.jsonl"
        file.write_text(json.dumps({"content": f"fine{RUDE}"}) + "\n")
        run("ingest", file, *here, *url)
        run("search", "cat", *here, *url, code=1, says="embedding endpoint: ")
        run("reembed", "--from", MODEL, "--to", OTHER_MODEL, *url, code=1, says="embedding endpoint: ")
        pairs = tmp_path / "pairs.jsonl"
        pairs.write_text(json.dumps({"a": "a", "b": "b", "label": "distinct"}) + "\n")
        run(
            "calibrate",
            MODEL,
            "--tenant",
            TENANT,
            "--pairs",
            pairs,
            *url,
            code=1,
            says="embedding endpoint: ",
        )
        db.execute("create schema app; create table app.memories (id int primary key, content text)")
        db.execute("insert into app.memories values (1, 'imported')")
        run("import", "--table", "app.memories", "--content", "content", "--tenant", "'t'", *url)
        flood(db, f"judged{HOSTILE}", 1)
        run(
            "judge",
            "--model",
            "m",
            "--base-url",
            rude.url,
            "--once",
            "--timeout",
            5,
            # 3: it answered, but no answer was usable
            code=3 if (mode, status) == ("page", 200) else 1,
        )
    assert rude.asked


def test_unexpected_errors_are_reported_without_their_text(
    run: Ran, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        try:
            raise KeyError(f"Bearer {KEY} {HOSTILE}")
        except KeyError as error:
            raise RuntimeError(f"Bearer {KEY} {HOSTILE}") from error

    monkeypatch.setattr(Memfold, "stats", fail)
    result = run("stats", code=1, says="RuntimeError: ")
    assert result.stderr.count("Traceback (most recent call last)") == 2
    assert "KeyError: " in result.stderr


def test_the_commands_print_through_one_place() -> None:
    """Anything else is JSON, SQL or a DSN, to be used unchanged."""
    directory = Path(cli.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(directory.glob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"click\.s?echo\(|\bprint\(|sys\.std(out|err)\.write", line)
    ]
    assert found == [
        "__init__.py: click.echo(dsn)  # to be used unchanged",
        "__init__.py: click.echo(script.encode(), nl=False)  # SQL, to be run unchanged",
        "_shared.py: click.echo(format_error(error), err=True)",
        "_shared.py: click.echo(escape_json(document).encode())",
        '_shared.py: click.echo(f"\\r\\x1b[K{escape_line(text)}", nl=False, err=True)',
        '_shared.py: click.echo("\\r\\x1b[K", nl=False, err=True)',
        "_shared.py: click.echo(escape_line(line))",
        "_shared.py: click.echo(escape(text))",
        "_shared.py: click.echo(escape_line(line), err=True)",
        "_shared.py: click.echo(escape(text), err=True)",
    ]
