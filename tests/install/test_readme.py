"""The code of README.md and docs/client.md runs in one database and prints what the pages show."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from memfold.client.facts import Fact, Facts
from memfold.tools.cli import main
from tests.support import servers

README = (servers.ROOT / "README.md").read_text()
# The section where docs/client.md continues it.
MORE = (
    (servers.ROOT / "docs" / "client.md").read_text().partition("## In more detail")[2].partition("\n## ")[0]
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# Blocks that need more than the reader's own machine, by a word in them: an owner's psql, another server.
ELSEWHERE = ("create extension", "memfold_app", "memfold_tenant", "set local")

pytestmark = pytest.mark.one_server


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall(page) if kind in languages]


def rows(block: str) -> list[str]:
    """The rows that the comments below the statements promise, as ``psql -At`` prints them."""
    return [line.removeprefix("-- ") for line in block.splitlines() if line.startswith("-- ")]


def test_python_and_sql_of_the_readme(dsn: str, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    asked: dict[str, Any] = {}
    rome = Fact(content="Bob lives in Rome.", subject="Bob", predicate="lives_in", object="Rome")

    def parse(**given: Any) -> SimpleNamespace:
        asked.update(given)
        return SimpleNamespace(output_parsed=Facts(facts=[rome]))

    names: dict[str, Any] = {"client": SimpleNamespace(responses=SimpleNamespace(parse=parse))}
    printed: list[str] = []
    compared = 0
    for kind, text in blocks(README + MORE, "python", "sql", "text"):
        if kind == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, "README.md", "exec"), names)  # noqa: S102
            printed = output.getvalue().splitlines()
        elif kind == "text":
            assert printed == text.splitlines()
            compared += 1
        elif not any(word in text for word in ELSEWHERE):
            # the whole block, as a reader pastes it: anything but SQL in it would be an error
            psql = target.cluster.bindir / "psql"
            done = subprocess.run(
                [psql, "-XqAt", "-F", " | ", "-v", "ON_ERROR_STOP=1", "-d", dsn],
                input=text, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            shown = [line for line in done.stdout.splitlines() if line.strip(" |")]
            assert shown == rows(text)
            compared += len(shown)
    assert compared == 7

    client = names["memfold"]
    (home,) = [fact for fact in client.profile("Bob") if fact.predicate == "lives_in"]
    told = client.explain(home.memory_id)
    client.close()
    assert (home.object, asked["text_format"]) == ("Rome", Facts)
    assert json.loads(asked["input"])["content"] == "I live in Rome now."
    assert '"Bob lives in Rome." from turn-40' in told


def test_the_page_of_the_package_has_the_same_five_lines() -> None:
    page = (servers.ROOT / "python_client/README.md").read_text()
    assert blocks(page, "python", "text") == blocks(README, "python", "text")[:2]


def test_commands_of_the_readme_exist() -> None:
    lines = [
        line
        for _, text in blocks(README, "sh")
        for line in text.splitlines()
        if re.match(r"(export \w+=\$\()?memfold ", line)
    ]
    assert len(lines) >= 4
    for line in lines:
        words = re.sub(r"^export \w+=\$\(|\)?\s*(#.*)?$", "", line).split()[1:]
        command = main.commands[words[0]]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_the_readme_is_for_three_minutes() -> None:
    assert README.count("\n") <= 150
