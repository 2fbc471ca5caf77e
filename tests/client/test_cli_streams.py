"""The command as a process: streams that are closed, full or of another encoding. None of it is a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mcp_clients import COMMAND
from tests.support.memories import ingest
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

TEXT = "Zoë → Straße"


def run(dsn: str, *arguments: str, redirect: str = "", **env: str) -> subprocess.CompletedProcess[bytes]:
    """``redirect``: what redirects its streams."""
    return subprocess.run(
        ["/bin/sh", "-c", f'"$0" "$@" {redirect}', COMMAND, *arguments], env=os.environ | {"MEMFOLD_DSN": dsn} | env,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_closed_stdin_is_reported(dsn: str) -> None:
    done = run(dsn, "ingest", "-", "--tenant", "acme", redirect="<&-")
    assert (done.returncode, b"stdin is closed" in done.stderr) == (2, True), done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="macOS has no /dev/full")
@pytest.mark.parametrize(
    "command",
    [("export", "--tenant", "acme"), ("stats",), ("status", "--json")],
    ids=lambda given: str(given[0]),
)
def test_a_full_disk_is_reported(dsn: str, db: DB, command: tuple[str, ...]) -> None:
    ingest(db, TEXT)
    done = run(dsn, *command, redirect=">/dev/full")
    assert (done.returncode, b"No space left on device" in done.stderr) == (1, True), done.stderr
    assert b"Traceback" not in done.stderr


def test_a_reader_that_stops_early_is_not_an_error(dsn: str, db: DB) -> None:
    ingest(db, TEXT)
    done = run(dsn, "export", "--tenant", "acme", redirect="| head -n 1 >/dev/null")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_json_and_sql_are_utf_8_in_any_locale(dsn: str, db: DB, encoding: str) -> None:
    memory = ingest(db, TEXT, bucket_id=TEXT)
    locale = {"PYTHONIOENCODING": encoding}
    exported = run(dsn, "export", "--tenant", "acme", "--bucket", TEXT, **locale)
    assert exported.returncode == 0, exported.stderr
    rows = [json.loads(line) for line in exported.stdout.decode("utf-8").splitlines()]
    assert TEXT in {row["row"].get("content") for row in rows}
    stats = run(dsn, "stats", "--json", **locale)
    assert json.loads(stats.stdout.decode("utf-8"))["buckets"][0]["bucket_id"] == TEXT, stats.stderr
    script = run(dsn, "init", "--sql", **locale)
    assert script.returncode == 0, script.stderr
    assert not script.stdout.decode("utf-8").isascii(), "the lexicon at least is not"
    told = run(dsn, "explain", str(memory.memory_id), "--tenant", "acme", **locale)
    assert told.returncode == 0, told.stderr
    # click takes ASCII for a locale that nobody has set, and writes UTF-8
    shown = TEXT.encode("utf-8" if encoding == "ascii" else encoding, "backslashreplace")
    assert shown in told.stdout


# Immediately, not after two seconds.
SOON = "from memfold.tools.cli import _shared, main; _shared._LINE.after = _shared._LINE.pause = 0; main()"


def on_a_terminal(dsn: str, *command: str) -> tuple[int, bytes]:
    """The exit code of a command, and what it wrote to stderr."""
    given = [sys.executable, "-c", SOON, *command]
    environment = os.environ | {"MEMFOLD_DSN": dsn}
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            given, env=environment, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=False
        )
        shown = os.read(ours, 100_000)
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, shown


@pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("command", ["ingest", "import"])
def test_progress_is_shown_only_on_a_terminal(dsn: str, db: DB, tmp_path: Path, command: str) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text('{"content": "Alice has a cat."}\n[]\n')
    code, shown = on_a_terminal(dsn, command, str(file), "--tenant", "acme")
    assert code == 1
    before, line, after = shown.partition(b"1 of ")
    assert line
    assert before.endswith(b"\r\x1b[K")
    # cleared before the line that reports a problem, and at the end
    assert b"\r\x1b[Km.jsonl" in after
    assert after.rstrip().endswith(b"were refused")
    given = [sys.executable, "-c", SOON, command, str(file), "--tenant", "acme"]
    piped = subprocess.run(
        given, env=os.environ | {"MEMFOLD_DSN": dsn}, capture_output=True, timeout=60, check=False
    )
    assert b"\x1b" not in piped.stderr


@pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("maintenance --tenant acme", "maintenance of acme"),
        ("sweep --tenant acme", "looking for duplicates"),
        ("consolidate --tenant acme", "comparing memories"),
        ("adopt run --table public.notes --content note", "step 4: looking for duplicates"),
        ("calibrate small", "choosing thresholds"),
        ("judge --once --judge idle:Judge", "0 judged"),
        ("judge --review-merges --tenant acme --judge idle:Judge", "reading merges"),
    ],
)
def test_a_command_that_may_take_long_says_so_on_a_terminal(
    dsn: str, db: DB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("idle.py").write_text("class Judge:\n    async def judge(self, question): ...\n")
    db.execute("create table public.notes (id int primary key, note text)")
    db.execute("insert into public.notes values (1, 'Alice has a cat.'), (2, 'alice has a cat')")
    _, shown = on_a_terminal(dsn, *command.split())
    assert re.search(rf"\r\x1b\[K{line}, \d+ s\r\x1b\[K".encode(), shown), "it is shown, and cleared"
