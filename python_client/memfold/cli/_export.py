"""``memfold export``, ``restore`` and ``archive``: data that leaves the database, returns to it, or leaves the
ledger."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import psycopg

from memfold._retry import retry
from memfold._text import escape_line
from memfold.cli._shared import (
    FILE,
    dsn_option,
    fail,
    file_name,
    json_option,
    open_client,
    open_file,
    report,
    resolve,
    say,
    show,
    show_json,
)
from memfold.cli._status import has_memories, warn_if_empty

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
@click.argument("tenant")
@click.argument("bucket", default="default")
@dsn_option
def export(tenant: str, bucket: str, dsn: str | None) -> None:
    """Write everything in a bucket to stdout.

    One JSON object per line: texts, vectors, ledger, judgements, rules. "memfold restore" reads it. Exit code 1 if the
    bucket holds nothing and has no rules of its own: its name may be mistyped.

    \b
    memfold export acme default > acme.jsonl
    """
    lines = 0
    with open_client(dsn) as client:
        is_empty = not has_memories(client, tenant, bucket)
    with _connect(dsn, tenant) as connection, connection.cursor("export") as cursor:
        cursor.itersize = _ROWS
        cursor.execute("select e::text from memfold.export_bucket(%s, %s) as e", [tenant, bucket])
        for (line,) in cursor:
            show_json(line)
            lines += 1
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
@dsn_option
@json_option
def restore(file: Path, tenant: str | None, dsn: str | None) -> None:
    """Restore a bucket that "memfold export" has written.

    From FILE, or from stdin (-), into an empty bucket of its name, completely or not at all. Run it as a member of
    memfold_owner. Register its embedding models first.

    \b
    memfold restore acme.jsonl --dsn "$OTHER"
    """
    name = file_name(file)
    with open_file(file) as lines:
        first = lines.readline()
        try:
            header = json.loads(first)["row"]
            bucket, tenant = str(header["bucket_id"]), str(tenant or header["tenant_id"])
        except (ValueError, KeyError, TypeError):
            fail(f"{name} does not begin like an export\nHINT: Write one with: memfold export TENANT BUCKET")
        with open_client(dsn):
            pass
        with _connect(dsn, tenant) as connection:
            rows, ended = _import(connection, tenant, bucket, _batches(itertools.chain([first], lines), name))
            if not ended:
                connection.rollback()
                fail(f"{name} has no end: nothing was imported\nHINT: The export is incomplete.")
    report({"tenant_id": tenant, "bucket_id": bucket, "rows": rows})
    show(f"tenant {tenant}, bucket {bucket}: {rows:,} rows")


def _import(
    connection: psycopg.Connection[Any], tenant: str, bucket: str, batches: Iterator[list[str]]
) -> tuple[int, bool]:
    """How many rows were imported, and whether the last line was the end of an export."""
    rows, ended = 0, False
    for batch in batches:
        done = connection.execute(
            "select memfold.import_bucket(tenant_id => %s, bucket_id => %s, lines => %s::jsonb)",
            [tenant, bucket, f"[{','.join(batch)}]"],
        ).fetchone()
        rows += done[0] if done else 0
        ended = json.loads(batch[-1])["table"] == "end"
    return rows, ended


def _archive(
    connection: psycopg.Connection[Any], days: float, batch: int, tenant: str
) -> tuple[int, int, bool]:
    """One call, which is retried if it conflicted with another and left nothing behind."""
    return retry(
        lambda: connection.execute(
            "select a.archived, a.summaries, a.is_left"
            " from memfold.archive_events(now() - make_interval(secs => %s), max_events => %s, tenant_id => %s) as a",
            [days * 86400, batch, tenant],
        ).fetchone()
    ) or (0, 0, False)


@click.command("archive")
@click.argument("tenant")
@click.option(
    "--days", type=click.FloatRange(0), default=90.0, show_default=True, help="Archive rows older than this."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10000),
    default=1000,
    show_default=True,
    help="Rows to look at per call.",
)
@click.option("--pause", type=click.FloatRange(0), default=0.0, help="Seconds to wait after each call.")
@dsn_option
@json_option
def archive(tenant: str, days: float, batch: int, pause: float, dsn: str | None) -> None:
    """Move old ledger rows to the archive.

    Moves rows on which no state depends to memory_events_archive, one transaction per call. Run it as a member of
    memfold_owner. One row summarizes many restatements; counters do not change.

    \b
    memfold archive acme --days 30
    """
    archived = kept = 0
    left = True
    with open_client(dsn) as client:
        warn_if_empty(client, tenant)
    with _connect(dsn, tenant) as connection:
        connection.autocommit = True
        while left:
            row = _archive(connection, days, batch, tenant)
            archived, kept, left = archived + row[0], kept + row[1], row[2]
            if left and pause:
                time.sleep(pause)
    report({"tenant_id": tenant, "archived": archived, "kept": kept})
    show(f"archived {archived:,} rows; added or enlarged {kept:,} summary rows")
