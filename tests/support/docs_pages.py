"""The blocks of the pages under docs/, and stories: blocks that are run and compared with what the page shows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from tests.support import servers

PAGES = [servers.ROOT / "README.md", *sorted((servers.ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
BEGIN = re.compile(
    r"(select|insert|update|delete|call|set|create|drop|do|alter|grant|revoke|with|explain|truncate|reset)\b"
)
# Of extensions that the embedded server does not have.
ELSEWHERE = (
    "create extension memfold",
    "embed_text(",
    "embed_pending(",
    "loaded_models(",
    "segment_words(",
    "bt_index_check(",
    "cron.",
)


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The blocks of a page in one of these languages."""
    for indent, language, text in BLOCK.findall(page.read_text()):
        if language in languages:
            yield re.sub(rf"(?m)^{indent}", "", text)


RULED = re.compile(r"-[-+]*")


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
        line = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", line)
        line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+\d\d", "TIME", line)
        # of loaded_models(): memory and seconds depend on the machine
        line = re.sub(r"\| \d+ MB \| +[\d.]+ \|", "| MEMORY | SECONDS |", line)
        line = " ".join(line.split())
        if line and not re.fullmatch(r"\(\d+ rows?\)|[-+]+|-\[ RECORD .*", line):
            found.append(line)
    return found


# An id that the page shows, or had from the statement before: that of the story.
ID = re.compile(r"'01a2\w{4}-[\w-]+'|:'judgement_id'")
QUESTION = "(select min(judgement_id::text)::uuid from memfold.judgements where status in ('open', 'leased'))"
EVENT = "(select event_id from memfold.memory_events where tier = 2 and action = 'merged')"
ANN = """
select ingest_memory(content, 'docs', 'user:42/notes', metadata => '{"year": 2025}')
from unnest(array['Ann drinks a flat white every morning', 'Ann likes tea, not coffee', 'Ann''s flat is in Lisbon',
    'On Sundays Ann plays the viola in Porto']) as content;
select ingest_memory('Ann plays the viola on Sundays in Porto', 'docs', 'user:42/work', metadata => '{"year": 2025}');
"""
# Arguments that a page leaves out of a call.
LEFT_OUT = {"'acme', ...)": "'acme', embedding => :'hates', embedding_model => 'all-MiniLM-L6-v2')"}


def run_story(
    dsn: str, bindir: Path, story: list[tuple[str, str, str]], called: dict[str, str] | None = None
) -> None:
    """Run the blocks in one session of psql, and compare what it prints. ``called``: names that are others here."""
    left_out = {**LEFT_OUT, **(called or {})}
    script, promised, names = [r"\pset footer off", "set memfold.tenant_id = 'acme';"], [], []
    for page, begin, before in story:
        path = next(path for path in PAGES if path.name == page)
        (block,) = [block for block in blocks(path, "sql") if block.startswith(begin)]
        script += [
            r"\o /dev/null",
            "set client_min_messages = warning;",
            before,
            "reset client_min_messages;",
            r"\o",
        ]
        for statement, printed in parts(block):
            statement = ID.sub(EVENT if "undo(" in statement else QUESTION, statement)
            for short, whole in left_out.items():
                statement = statement.replace(short, whole)
            # \x, where the page shows a row as lines; \t, where it shows the rows alone
            ruled = any(RULED.fullmatch(line.strip() or "x") for line in printed[1:])
            wide = bool(printed) and not ruled and "|" in printed[0]
            bare = bool(printed) and not ruled and not wide
            switches = [rf"\x {'on' if wide else 'off'}", rf"\t {'on' if bare else 'off'}"]
            script += [rf"\echo =={len(promised)}", *switches, statement]
            promised.append(plain(printed))
            names.append(statement)
    done = subprocess.run(
        [bindir / "psql", "-Xq", "-d", dsn, "-v", "SHOW_CONTEXT=never"], input="\n".join(script), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    shown = re.split(r"(?m)^==\d+\n", done.stdout)
    assert "ERROR" not in shown[0], shown[0]
    for statement, wanted, found in zip_longest(names, promised, shown[1:]):
        for name, here in (called or {}).items():
            found = found.replace(here, name)
        if wanted:
            assert plain(found.splitlines()) == wanted, statement
    assert any(promised)
