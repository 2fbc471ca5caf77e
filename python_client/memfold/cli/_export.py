"""``memfold export``, ``restore`` and ``archive``: what leaves the database, comes back to it, or leaves its ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psycopg

from memfold._retry import retry
from memfold._text import escape_json
from memfold.cli._shared import FILE, dsn_option, fail, open_client, resolve, say, show

_ROWS = 1000
"""Lines a call: a few megabytes, with vectors."""


def _connect(dsn: str | None, tenant: str) -> psycopg.Connection[Any]:
    with open_client(dsn):
        pass
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
    """Write everything about a bucket to stdout, one JSON object a line: texts, vectors, ledger, judgements, rules.

    "memfold restore" takes it back.

    \b
    memfold export acme default > acme.jsonl
    """
    lines = 0
    with _connect(dsn, tenant) as connection, connection.cursor("export") as cursor:
        cursor.itersize = _ROWS
        cursor.execute("select e::text from memfold.export_bucket(%s, %s) as e", [tenant, bucket])
        for (line,) in cursor:
            click.echo(escape_json(line))
            lines += 1
    say(f"{lines:,} lines")


def _batches(file: Path) -> Iterator[list[str]]:
    """The lines of a file, some at a time."""
    batch: list[str] = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                json.loads(line)
            except ValueError as error:
                fail(f"{file}, line {number} is no JSON: {error}")
            batch.append(line)
            if len(batch) == _ROWS:
                yield batch
                batch = []
    if batch:
        yield batch


@click.command("restore")
@click.argument("file", type=FILE)
@click.option("--tenant", metavar="ID", help="Whose it is from now on; default: whose it was.")
@dsn_option
def restore(file: Path, tenant: str | None, dsn: str | None) -> None:
    """Take back what "memfold export" has written, into a bucket of its name that is empty: all of it, or nothing.

    As a member of memfold_owner. Register its embedding models first.

    \b
    memfold restore acme.jsonl --dsn "$OTHER"
    """
    with file.open(encoding="utf-8") as lines:
        try:
            header = json.loads(lines.readline())["row"]
            bucket, tenant = str(header["bucket_id"]), str(tenant or header["tenant_id"])
        except (ValueError, KeyError, TypeError):
            fail(
                f"{file} does not begin as an export does\nHINT: Write one with: memfold export TENANT BUCKET"
            )
    rows = 0
    ended = False
    with _connect(dsn, tenant) as connection:
        for batch in _batches(file):
            done = connection.execute(
                "select memfold.import_bucket(tenant_id => %s, bucket_id => %s, lines => %s::jsonb)",
                [tenant, bucket, f"[{','.join(batch)}]"],
            ).fetchone()
            rows += done[0] if done else 0
            ended = json.loads(batch[-1])["table"] == "end"
        if not ended:
            connection.rollback()
            fail(
                f"{file} has no end: nothing was imported\nHINT: It is not all that memfold export had to write."
            )
    show(f"tenant {tenant}, bucket {bucket}: {rows:,} rows")


def _archive(
    connection: psycopg.Connection[Any], days: float, batch: int, tenant: str
) -> tuple[int, int, bool]:
    """One call; it left nothing behind where it met another one half-way, and is made again."""
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
    "--days", type=click.FloatRange(0), default=90.0, show_default=True, help="Rows that are older leave."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10000),
    default=1000,
    show_default=True,
    help="Rows to look at in a call.",
)
@click.option("--pause", type=click.FloatRange(0), default=0.0, help="Seconds to wait after each call.")
@dsn_option
def archive(tenant: str, days: float, batch: int, pause: float, dsn: str | None) -> None:
    """Move old ledger rows on which no memory depends to memory_events_archive, in transactions of their own.

    As a member of memfold_owner. One row stands for many restatements; counters stay as they are.

    \b
    memfold archive acme --days 30
    """
    archived = kept = 0
    left = True
    with _connect(dsn, tenant) as connection:
        connection.autocommit = True
        while left:
            row = _archive(connection, days, batch, tenant)
            archived, kept, left = archived + row[0], kept + row[1], row[2]
            if left and pause:
                time.sleep(pause)
    show(f"archived {archived:,} rows; made or enlarged {kept:,} that stand for many")
