"""Code in the docs: SQL statements are run, Python is parsed and its imports are there, commands and options exist.

Statements run in an empty database and are rolled back: what they name must be there, whatever data they find. The output of
README.md and docs/client.md is compared by tests/install/test_readme.py, that of docs/reference.md by test_reference.py.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest

from memfold.tools.cli import main
from tests.support.docs_pages import BEGIN, ELSEWHERE, PAGES, blocks
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

# What is another role, database or extension of the reader's, and what commits by itself: the statement was parsed, and its
# functions, columns and arguments were found.
ACCEPTED = {"42704", "25001", "2D000", "2BP01", "3D000", "0A000"}


def statements(block: str) -> Iterator[str]:
    """Those of a block that also shows output: from a line that begins as a statement does, to one that ends it."""
    lines: list[str] = []
    for line in block.splitlines():
        if not lines and not BEGIN.match(line):
            continue
        lines.append(re.sub(r"(^|\s+)-- .*$", "", line))
        text = "\n".join(lines)
        if text.count("$$") % 2 == 0 and (found := re.search(r"(;| \\gset| \\gexec)\s*$", text)):
            yield text[: found.start()]
            lines.clear()
    assert not lines, f"a statement without an end: {lines}"


def test_statements_of_the_pages_name_what_exists(db: DB) -> None:
    wrong, count = [], 0
    for page in PAGES:
        for statement in [s for block in blocks(page, "sql") for s in statements(block)]:
            if any(word in statement for word in ELSEWHERE) or re.search(r"[ (]\.\.\.", statement):
                continue
            if "run_as_owner" in statement and db.info.server_version < 160000:
                continue
            # variables of psql, and an id that is cut short
            query = re.sub(r"(?<![:\w]):(?:'\w+'|[a-z_]+)(?!\w)", "null", statement)
            query = re.sub(r"'01a2…'", "gen_random_uuid()", query)
            # Roles are the server's: DROP ROLE names each database that uses one, and fails with an internal error if
            # another worker drops that database in the same moment.
            query = re.sub(
                r"^drop role (.*)",
                r"select 1 / ('{\1}' <@ array_agg(rolname::text))::int from pg_roles",
                query,
            )
            count += 1
            try:
                with db.transaction(force_rollback=True):
                    db.execute("set local memfold.tenant_id = 'acme'")
                    db.execute(query.encode())
            except psycopg.Error as error:
                if error.sqlstate not in ACCEPTED and not (error.sqlstate or "").startswith("MF"):
                    wrong.append((page.name, statement, str(error)))
    assert wrong == []
    assert count > 150


def test_statements_are_told_from_their_output() -> None:
    block = "select 1;  -- one\n ?column?\n----------\n        1\n\ndo $$\nbegin\n    perform 1;\nend $$;\nselect a \\gset\n"
    assert list(statements(block)) == ["select 1", "do $$\nbegin\n    perform 1;\nend $$", "select a"]


def test_python_of_the_pages_imports_what_exists() -> None:
    count = 0
    for page in PAGES:
        for block in blocks(page, "python"):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "memfold":
                    name, names = str(node.module), [alias.name for alias in node.names]
                    if name.startswith("memfold.agents."):
                        # its source: the framework would take seconds to load, or is not installed
                        spec = importlib.util.find_spec(name)
                        assert spec is not None, f"{page.name}: {name}"
                        there = set(re.findall(r"\w+", Path(str(spec.origin)).read_text()))
                    else:
                        module = importlib.import_module(name)
                        there = {one for one in names if hasattr(module, one)}
                    assert {*names} <= there, f"{page.name}: {name}"
                    count += len(names)
    assert count > 10


def test_commands_of_the_pages_exist() -> None:
    count = 0
    for page in PAGES:
        for block in [
            *blocks(page, "sh"),
            *(re.sub(r"(?m)^(?!\$ ).*$|^\$ ", "", b) for b in blocks(page, "console")),
        ]:
            for line in re.findall(r"(?m)^(?:export \w+=\$\()?(?:[A-Z_]+=\S+ )*memfold (.*)$", block):
                words = re.split(r"\)?\s*(?:#|[|>;&<]|\)$)", line)[0].split()
                command: click.Command = main
                while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                    assert words[0] in command.commands, f"{page.name}: memfold {line}"
                    command = command.commands[words.pop(0)]
                options = {option for parameter in command.params for option in parameter.opts} | {
                    "--help",
                    "-h",
                }
                given = {word.split("=")[0] for word in words if word.startswith("--")}
                assert given <= options, f"{page.name}: memfold {line}"
                count += 1
    assert count > 40


def test_the_table_of_commands_names_all_and_no_others() -> None:
    (page,) = (page.read_text() for page in PAGES if page.name == "cli.md")
    table = page.partition("| to | command |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(main.commands)
