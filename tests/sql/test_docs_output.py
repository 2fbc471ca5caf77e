"""What the pages print below a statement is what a server prints: the columns everywhere, the rows where a block can be made true.

A story has the statements that come before a block of a page; then the block is run, and what each of its statements prints is
compared. Ids, times and what psql adds are left out. (README.md and docs/client.md: tests/install/test_readme.py;
docs/reference.md: test_reference.py.)
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import zip_longest

import psycopg
import pytest

from tests.conftest import Target
from tests.sql.test_docs_code import BEGIN, ELSEWHERE, PAGES, blocks
from tests.support import DB

pytestmark = pytest.mark.one_server

RULED = re.compile(r"-[-+]*")
# From another server, or of a version that is shown as text.
NO_COLUMNS = ("select explain_memory",)


def parts(block: str) -> Iterator[tuple[str, list[str]]]:
    """Statements with what is printed below each."""
    statement: list[str] = []
    printed: list[str] = []
    whole = False
    for line in block.splitlines():
        if (not statement or whole) and BEGIN.match(line):
            if statement:
                yield "\n".join(statement), printed
            statement, printed, whole = [], [], False
        if not statement and not BEGIN.match(line):
            continue
        if whole:
            printed.append(line)
            continue
        statement.append(re.sub(r"(^|\s+)-- .*$", "", line))
        text = "\n".join(statement)
        whole = text.count("$$") % 2 == 0 and re.search(r"(;| \\gset| \\gexec)\s*$", text) is not None
    if statement:
        yield "\n".join(statement), printed


def plain(lines: list[str]) -> list[str]:
    """Without ids, times, widths of columns, and what differs by psql's settings."""
    found = []
    for line in lines:
        line = re.sub(r"^psql:\S+ ", "", line)
        line = re.sub(r"^(ERROR: +)MF\d{3}: ", r"\1", line)
        line = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", line)
        line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+\d\d", "TIME", line)
        line = " ".join(line.split())
        if line and not re.fullmatch(r"\(\d+ rows?\)|[-+]+", line):
            found.append(line)
    return found


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
