"""``memfold export`` and ``restore``: data that leaves the database and returns to it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import psycopg

from memfold.client._text import escape_line
from memfold.tools.cli._shared import (
    FILE,
    dsn_option,
    fail,
    file_name,
    json_option,
    open_client,
    open_file,
    progress,
    report,
    resolve,
    say,
    show,
    show_json,
)
from memfold.tools.cli._status import has_memories

_ROWS = 1000
"""Lines per call: a few megabytes, with vectors."""
_FRAME = 2
"""Lines of an empty export: its beginning and its end."""


def _connect(dsn: str | None, tenant: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(resolve(dsn))
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.execute("select pg_catalog.set_config('memfold.tenant_id', %s, false)", [tenant])
    connection.commit()
    return connection


@click.command("export")
@dsn_option
@click.option("--tenant", metavar="ID", required=True, help="The tenant.")
@click.option("--bucket", metavar="ID", default="default", help="The bucket; default: default.")
def export(dsn: str | None, tenant: str, bucket: str) -> None:
    """Write everything in a bucket to stdout.

    One JSON object per line: texts, vectors, ledger, judgements, rules. "memfold restore" reads it. Exit code 1 if the
    bucket holds nothing and has no rules of its own: its name may be mistyped.

    \b
    memfold export --tenant acme --bucket notes > notes.jsonl
    """
    lines = 0
    with open_client(dsn) as client:
        is_empty = not has_memories(client, tenant, bucket)
    with _connect(dsn, tenant) as connection, connection.cursor("export") as cursor:
        cursor.itersize = _ROWS
        cursor.execute("select e::text from memfold.export_bucket(%s, %s) as e", [tenant, bucket])
        tell = progress()
        for (line,) in cursor:
            show_json(line)
            lines += 1
            tell(f"{lines:,} lines")
    say(f"{lines:,} lines")
    if is_empty:
        what = escape_line(f"bucket {bucket} of tenant {tenant} has no memories")
        if lines <= _FRAME:
            fail(
                f"{what}, nor anything else\nHINT: Is its name spelled correctly? memfold status --json lists them all."
            )
        say(f"{what}; is its name spelled correctly?")


def _batches(lines: Iterable[bytes], name: str) -> Iterator[list[str]]:
    """The lines of an export, in batches."""
    batch: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            json.loads(line)
            batch.append(line.decode())
        except ValueError as error:
            fail(f"{name}, line {number} is not JSON: {error}")
        if len(batch) == _ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


@click.command("restore")
@click.argument("file", type=FILE)
@click.option("--tenant", metavar="ID", help="The new tenant; default: the old one.")
@click.option("--rules", is_flag=True, help="Also add its rules that apply to all buckets of the tenant.")
@dsn_option
@json_option
def restore(file: Path, tenant: str | None, rules: bool, dsn: str | None) -> None:
    """Restore a bucket that "memfold export" has written.

    Reads FILE, or stdin (-), into an empty bucket of the same name, completely or not at all. Run it as a member of
    memfold_owner. Register its embedding models first.

    \b
    memfold restore notes.jsonl --dsn "$OTHER"
    """
    name = file_name(file)
    with open_file(file) as lines:
        first = lines.readline()
        try:
            header = json.loads(first)["row"]
            bucket, tenant = str(header["bucket_id"]), str(tenant or header["tenant_id"])
        except (ValueError, KeyError, TypeError):
            fail(
                f"{name} does not begin like an export\nHINT: Write one with: memfold export --tenant ID --bucket ID"
            )
        with open_client(dsn):
            pass
        with _connect(dsn, tenant) as connection:
            batches = _batches(itertools.chain([first], lines), name)
            rows, ended = _import(connection, tenant, bucket, rules, batches)
            if not ended:
                connection.rollback()
                fail(f"{name} has no end: nothing was imported\nHINT: The export is incomplete.")
    report({"tenant_id": tenant, "bucket_id": bucket, "rows": rows})
    show(f"tenant {tenant}, bucket {bucket}: {rows:,} rows")


def _import(
    connection: psycopg.Connection[Any], tenant: str, bucket: str, rules: bool, batches: Iterator[list[str]]
) -> tuple[int, bool]:
    """How many rows were imported, and whether the last line was the end of an export."""
    rows, ended = 0, False
    tell = progress()
    for batch in batches:
        tell(f"{rows:,} rows")
        done = connection.execute(
            "select memfold.import_bucket(tenant_id => %s, bucket_id => %s, rules => %s, lines => %s::jsonb)",
            [tenant, bucket, rules, f"[{','.join(batch)}]"],
        ).fetchone()
        rows += done[0] if done else 0
        ended = json.loads(batch[-1])["table"] == "end"
    return rows, ended
